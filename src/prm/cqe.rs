//! Completion queue entries. Sources: kernel `include/linux/mlx5/device.h` (`mlx5_cqe64`, `mlx5_err_cqe`,
//! `mlx5_sig_err_cqe`, `mlx5_mini_cqe8`) and `cq.h`; the subfields of packed bytes from the accessors beside them.
//!
//! A 128-byte entry carries these 64 bytes in its second half. `mlx5_ifc.h` has no completion entry.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Completion queue entry.
    pub struct Cqe = "cqe64", 0x40 bytes {
        tls_offload @ 0x3 : 2;
        outer_l3_tunneled @ 0x7 : 1;
        wqe_id @ 0x10 : 16;
        lro_tcppsh_abort_dupack @ 0x20 : 8;
        lro_min_ttl @ 0x28 : 8;
        lro_tcp_win @ 0x30 : 16;
        lro_ack_seq_num @ 0x40 : 32;
        rss_hash_result @ 0x60 : 32;
        rss_hash_type @ 0x80 : 8;
        rss_hash_type_l4 @ 0x80 : 2, alias;
        rss_hash_type_ip @ 0x84 : 2, alias;
        ml_path @ 0x88 : 8;
        check_sum @ 0xa0 : 16;
        slid @ 0xb0 : 16;
        grh @ 0xc2 : 2;
        sl @ 0xc4 : 4;
        roce_l3_type @ 0xc6 : 2, alias;
        rqpn @ 0xc8 : 24;
        hds @ 0xe0 : 2;
        l4_ok @ 0xe5 : 1;
        l3_ok @ 0xe6 : 1;
        l2_ok @ 0xe7 : 1;
        l4_hdr_type @ 0xe9 : 3;
        l3_hdr_type @ 0xec : 2;
        vlan_present @ 0xef : 1;
        vlan_info @ 0xf0 : 16;
        lro_num_seg @ 0x100 : 8;
        srqn_user_index @ 0x108 : 24;
        immediate @ 0x120 : 32;
        inval_rkey @ 0x120 : 32, alias;
        pkey @ 0x120 : 32, alias;
        ft_metadata @ 0x120 : 32, alias;
        byte_cnt @ 0x160 : 32;
        timestamp @ 0x180 : 64;
        send_wqe_opcode @ 0x1c0 : 8;
        qpn @ 0x1c8 : 24;
        wqe_counter @ 0x1e0 : 16;
        signature @ 0x1f0 : 8;
        opcode @ 0x1f8 : 4;
        format @ 0x1fc : 2;
        se @ 0x1fe : 1;
        owner @ 0x1ff : 1;
    }

    /// Completion queue entry of a request or receive that failed.
    pub struct ErrCqe = "err_cqe", 0x40 bytes {
        srqn_user_index @ 0x108 : 24;
        vendor_err_synd @ 0x1b0 : 8;
        syndrome @ 0x1b8 : 8;
        send_wqe_opcode @ 0x1c0 : 8;
        qpn @ 0x1c8 : 24;
        wqe_counter @ 0x1e0 : 16;
        signature @ 0x1f0 : 8;
        opcode @ 0x1f8 : 4;
        format @ 0x1fc : 2;
        se @ 0x1fe : 1;
        owner @ 0x1ff : 1;
    }

    /// Completion queue entry of a signature error.
    pub struct SigErrCqe = "sig_err_cqe", 0x40 bytes {
        expected_trans_sig @ 0x80 : 32;
        actual_trans_sig @ 0xa0 : 32;
        expected_reftag @ 0xc0 : 32;
        actual_reftag @ 0xe0 : 32;
        syndrome @ 0x100 : 16;
        mkey @ 0x120 : 32;
        err_offset @ 0x140 : 64;
        qpn @ 0x1c8 : 24;
        signature @ 0x1f0 : 8;
        opcode @ 0x1f8 : 4;
        format @ 0x1fc : 2;
        se @ 0x1fe : 1;
        owner @ 0x1ff : 1;
    }

    /// Element of a compressed completion array.
    pub struct MiniCqe = "mini_cqe8", 8 bytes {
        rx_hash_result @ 0x0 : 32;
        checksum @ 0x0 : 16, alias;
        wqe_counter @ 0x0 : 16, alias;
        stridx @ 0x10 : 16, alias;
        s_wqe_opcode @ 0x10 : 8, alias;
        byte_cnt @ 0x20 : 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte offsets of the kernel's structures.
    #[test]
    fn fields_are_where_the_driver_reads_them() {
        for (layout, path, byte) in [
            (Cqe::LAYOUT, "wqe_id", 0x02),
            (Cqe::LAYOUT, "rss_hash_result", 0x0c),
            (Cqe::LAYOUT, "rss_hash_type", 0x10),
            (Cqe::LAYOUT, "check_sum", 0x14),
            (Cqe::LAYOUT, "slid", 0x16),
            (Cqe::LAYOUT, "rqpn", 0x19),
            (Cqe::LAYOUT, "hds", 0x1c),
            (Cqe::LAYOUT, "l4_hdr_type", 0x1d),
            (Cqe::LAYOUT, "vlan_info", 0x1e),
            (Cqe::LAYOUT, "srqn_user_index", 0x21),
            (Cqe::LAYOUT, "immediate", 0x24),
            (Cqe::LAYOUT, "byte_cnt", 0x2c),
            (Cqe::LAYOUT, "timestamp", 0x30),
            (Cqe::LAYOUT, "send_wqe_opcode", 0x38),
            (Cqe::LAYOUT, "wqe_counter", 0x3c),
            (Cqe::LAYOUT, "signature", 0x3e),
            (Cqe::LAYOUT, "opcode", 0x3f),
            (ErrCqe::LAYOUT, "vendor_err_synd", 0x36),
            (ErrCqe::LAYOUT, "syndrome", 0x37),
            (ErrCqe::LAYOUT, "wqe_counter", 0x3c),
            (SigErrCqe::LAYOUT, "expected_trans_sig", 0x10),
            (SigErrCqe::LAYOUT, "syndrome", 0x20),
            (SigErrCqe::LAYOUT, "mkey", 0x24),
            (SigErrCqe::LAYOUT, "err_offset", 0x28),
        ] {
            let (offset, _) = layout.find(path).expect(path);
            assert_eq!(offset / 8, byte, "{} {path}", layout.name);
        }
    }

    #[test]
    fn op_own_packs_opcode_solicited_event_and_owner() {
        let mut cqe = Cqe::zeroed();
        cqe.set_opcode(0xd);
        cqe.set_se(1);
        cqe.set_owner(1);
        assert_eq!(cqe.as_bytes()[0x3f], 0xd3);
    }
}
