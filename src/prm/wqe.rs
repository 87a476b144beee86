//! Work queue entries: send segments, receive segments, translation entries, doorbells and doorbell records. Sources:
//! kernel `include/linux/mlx5/qp.h` (`mlx5_wqe_*`, `mlx5_av`, `mlx5_klm`), `cq.h` (CQ doorbell), `core/lib/eq.h` (EQ
//! doorbell); the subfields of packed words from the masks beside them. `mlx5_ifc.h` has none of these.
//!
//! A send entry is a sequence of 16-byte units; `ds` of the control segment counts them, itself included. Four units
//! make a basic block, the unit of queue indices.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Control segment, first in every send entry. Its first eight bytes are also the send doorbell.
    pub struct CtrlSeg = "wqe_ctrl_seg", 0x10 bytes {
        opmod @ 0x0 : 8;
        wqe_index @ 0x8 : 16;
        opcode @ 0x18 : 8;
        qpn @ 0x20 : 24;
        ds @ 0x3a : 6;
        signature @ 0x40 : 8;
        fence @ 0x58 : 3;
        ce @ 0x5c : 2;
        se @ 0x5e : 1;
        general_id @ 0x60 : 32;
        imm @ 0x60 : 32, alias;
        inval_rkey @ 0x60 : 32, alias;
        umr_mkey @ 0x60 : 32, alias;
        tis_tir_num @ 0x60 : 32, alias;
        tisn @ 0x60 : 24, alias;
    }

    /// Remote address segment.
    pub struct RaddrSeg = "wqe_raddr_seg", 0x10 bytes {
        raddr @ 0x0 : 64;
        rkey @ 0x40 : 32;
    }

    /// Atomic segment of 8-byte operations.
    pub struct AtomicSeg = "wqe_atomic_seg", 0x10 bytes {
        swap_add @ 0x0 : 64;
        compare @ 0x40 : 64;
    }

    /// Atomic segment of 8-byte operations with masks.
    pub struct MaskedAtomicSeg = "wqe_masked_atomic_seg", 0x20 bytes {
        swap_add @ 0x0 : 64;
        compare @ 0x40 : 64;
        swap_add_mask @ 0x80 : 64;
        compare_mask @ 0xc0 : 64;
    }

    /// Data segment: a pointer. With `inline` set it is an [`InlineSeg`].
    pub struct DataSeg = "wqe_data_seg", 0x10 bytes {
        inline @ 0x0 : 1;
        byte_count @ 0x1 : 31;
        lkey @ 0x20 : 32;
        addr @ 0x40 : 64;
    }

    /// Inline data segment; padded to 16 bytes.
    pub struct InlineSeg = "wqe_inline_seg", 4 bytes {
        inline @ 0x0 : 1;
        byte_count @ 0x16 : 10;
        data @ 0x20 : tail;
    }

    /// XRC segment.
    pub struct XrcSeg = "wqe_xrc_seg", 0x10 bytes {
        xrc_srqn @ 0x8 : 24;
    }

    /// Address vector of a datagram. Without `extended` only the first 16 bytes are present.
    pub struct Av = "av", 0x30 bytes {
        dc_key @ 0x0 : 64;
        qkey @ 0x0 : 32, alias;
        extended @ 0x40 : 1;
        dqp_dct @ 0x48 : 24;
        stat_rate @ 0x60 : 4;
        sl @ 0x64 : 4;
        fl @ 0x68 : 1;
        mlid @ 0x69 : 7;
        rlid @ 0x70 : 16;
        udp_sport @ 0x70 : 16, alias;
        rmac @ 0xa0 : [u8; 6];
        tclass @ 0xd0 : 8;
        hop_limit @ 0xd8 : 8;
        grh @ 0xe1 : 1;
        sgid_index @ 0xe2 : 10;
        flow_label @ 0xec : 20;
        rgid @ 0x100 : [u8; 16];
    }

    /// Short address vector, the first 16 bytes of [`Av`].
    pub struct BaseAv = "base_av", 0x10 bytes {
        dc_key @ 0x0 : 64;
        qkey @ 0x0 : 32, alias;
        extended @ 0x40 : 1;
        dqp_dct @ 0x48 : 24;
        stat_rate @ 0x60 : 4;
        sl @ 0x64 : 4;
        fl @ 0x68 : 1;
        mlid @ 0x69 : 7;
        rlid @ 0x70 : 16;
        udp_sport @ 0x70 : 16, alias;
    }

    /// Ethernet segment. `inline_hdr_sz` bytes of headers start at `inline_hdr_start` and run on after the segment.
    pub struct EthSeg = "wqe_eth_seg", 0x10 bytes {
        swp_outer_l4_offset @ 0x0 : 8;
        swp_outer_l3_offset @ 0x8 : 8;
        swp_inner_l4_offset @ 0x10 : 8;
        swp_inner_l3_offset @ 0x18 : 8;
        l4_csum @ 0x20 : 1;
        l3_csum @ 0x21 : 1;
        l4_inner_csum @ 0x22 : 1;
        l3_inner_csum @ 0x23 : 1;
        swp_flags @ 0x28 : 8;
        mss @ 0x30 : 16;
        flow_table_metadata @ 0x40 : 32;
        trailer @ 0x60 : 32;
        insert_vlan @ 0x60 : 1, alias;
        inline_hdr_sz @ 0x66 : 10, alias;
        vlan_tci @ 0x70 : 16, alias;
        inline_hdr_start @ 0x70 : [u8; 2], alias;
        inline_hdr_rest @ 0x80 : tail;
    }

    /// UMR control segment.
    pub struct UmrCtrlSeg = "wqe_umr_ctrl_seg", 0x30 bytes {
        inline @ 0x0 : 1;
        check_free @ 0x1 : 2;
        translation_offset_en @ 0x3 : 1;
        check_qpn @ 0x4 : 1;
        xlt_octowords @ 0x20 : 16;
        xlt_offset @ 0x30 : 16;
        bsf_octowords @ 0x30 : 16, alias;
        mkey_mask @ 0x40 : 64;
        xlt_offset_47_16 @ 0x80 : 32;
    }

    /// Set-PSV segment.
    pub struct SetPsvSeg = "seg_set_psv", 0x10 bytes {
        psv_num @ 0x0 : 32;
        syndrome @ 0x20 : 16;
        status @ 0x30 : 16;
        transient_sig @ 0x40 : 32;
        ref_tag @ 0x60 : 32;
    }

    /// Memory translation entry with its access bits, in inline lists, UMRs and umems.
    pub struct MttEntry = "mtt_entry", 8 bytes {
        ptag_63_32 @ 0x0 : 32;
        ptag_31_3 @ 0x20 : 29;
        wr_en @ 0x3e : 1;
        rd_en @ 0x3f : 1;
    }

    /// Indirect translation entry with its own length.
    pub struct Klm = "klm", 0x10 bytes {
        bcount @ 0x0 : 32;
        key @ 0x20 : 32;
        va @ 0x40 : 64;
    }

    /// Indirect translation entry of the key's fixed entity size.
    pub struct Ksm = "ksm", 0x10 bytes {
        key @ 0x20 : 32;
        va @ 0x40 : 64;
    }

    /// Entry of a strided (repeat block) translation.
    pub struct StrideBlockEntry = "stride_block_entry", 0x10 bytes {
        stride @ 0x0 : 16;
        bcount @ 0x10 : 16;
        key @ 0x20 : 32;
        va @ 0x40 : 64;
    }

    /// Head of a strided (repeat block) translation.
    pub struct StrideBlockCtrlSeg = "stride_block_ctrl_seg", 0x10 bytes {
        bcount_per_cycle @ 0x0 : 32;
        op @ 0x20 : 32;
        repeat_count @ 0x40 : 32;
        num_entries @ 0x70 : 16;
    }

    /// Next segment, first in every entry of a linked-list receive queue. Source: `device.h`, `mlx5_wqe_srq_next_seg`.
    pub struct SrqNextSeg = "wqe_srq_next_seg", 0x10 bytes {
        next_wqe_index @ 0x10 : 16;
        signature @ 0x20 : 8;
    }

    /// Send doorbell: the first eight bytes of the control segment.
    pub struct SendDoorbell = "send_doorbell", 8 bytes {
        opmod @ 0x0 : 8;
        wqe_index @ 0x8 : 16;
        opcode @ 0x18 : 8;
        qpn @ 0x20 : 24;
        ds @ 0x3a : 6;
    }

    /// CQ doorbell at 0x20 of a UAR page; its first dword is also the arm word of the doorbell record.
    pub struct CqDoorbell = "cq_doorbell", 8 bytes {
        sn @ 0x2 : 2;
        cmd @ 0x7 : 1;
        ci @ 0x8 : 24;
        cqn @ 0x28 : 24;
    }

    /// EQ doorbell at 0x40 (arm) and 0x48 of a UAR page.
    pub struct EqDoorbell = "eq_doorbell", 4 bytes {
        eqn @ 0x0 : 8;
        ci @ 0x8 : 24;
    }

    /// Doorbell record of a queue pair, send queue or receive queue.
    pub struct QpDbRec = "qp_doorbell_record", 8 bytes {
        receive_counter @ 0x10 : 16;
        send_counter @ 0x30 : 16;
    }

    /// Doorbell record of a completion queue.
    pub struct CqDbRec = "cq_doorbell_record", 8 bytes {
        consumer_index @ 0x8 : 24;
        arm_sn @ 0x22 : 2;
        arm_cmd @ 0x27 : 1;
        arm_ci @ 0x28 : 24;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte offsets of the kernel's structures.
    #[test]
    fn fields_are_where_the_driver_writes_them() {
        for (layout, path, byte) in [
            (CtrlSeg::LAYOUT, "qpn", 0x4),
            (CtrlSeg::LAYOUT, "signature", 0x8),
            (CtrlSeg::LAYOUT, "fence", 0xb),
            (CtrlSeg::LAYOUT, "imm", 0xc),
            (RaddrSeg::LAYOUT, "rkey", 0x8),
            (MaskedAtomicSeg::LAYOUT, "compare_mask", 0x18),
            (DataSeg::LAYOUT, "lkey", 0x4),
            (DataSeg::LAYOUT, "addr", 0x8),
            (Av::LAYOUT, "dqp_dct", 0x9),
            (Av::LAYOUT, "stat_rate", 0xc),
            (Av::LAYOUT, "mlid", 0xd),
            (Av::LAYOUT, "udp_sport", 0xe),
            (Av::LAYOUT, "tclass", 0x1a),
            (Av::LAYOUT, "hop_limit", 0x1b),
            (Av::LAYOUT, "grh", 0x1c),
            (EthSeg::LAYOUT, "l4_csum", 0x4),
            (EthSeg::LAYOUT, "swp_flags", 0x5),
            (EthSeg::LAYOUT, "mss", 0x6),
            (EthSeg::LAYOUT, "flow_table_metadata", 0x8),
            (EthSeg::LAYOUT, "trailer", 0xc),
            (UmrCtrlSeg::LAYOUT, "xlt_octowords", 0x4),
            (UmrCtrlSeg::LAYOUT, "xlt_offset", 0x6),
            (UmrCtrlSeg::LAYOUT, "mkey_mask", 0x8),
            (UmrCtrlSeg::LAYOUT, "xlt_offset_47_16", 0x10),
            (SrqNextSeg::LAYOUT, "next_wqe_index", 0x2),
            (SrqNextSeg::LAYOUT, "signature", 0x4),
            (StrideBlockCtrlSeg::LAYOUT, "num_entries", 0xe),
        ] {
            let (offset, _) = layout.find(path).expect(path);
            assert_eq!(offset / 8, byte, "{} {path}", layout.name);
        }
    }

    #[test]
    fn packed_bytes_have_the_values_of_the_drivers_masks() {
        let mut ctrl = CtrlSeg::zeroed();
        ctrl.set_fence(4);
        ctrl.set_ce(2);
        ctrl.set_se(1);
        assert_eq!(ctrl.as_bytes()[0xb], (4 << 5) | (2 << 2) | (1 << 1));
        let mut umr = UmrCtrlSeg::zeroed();
        umr.set_inline(1);
        umr.set_check_free(1);
        assert_eq!(umr.as_bytes()[0], (1 << 7) | (1 << 5));
        umr.set_translation_offset_en(1);
        umr.set_check_qpn(1);
        assert_eq!(umr.as_bytes()[0], (1 << 7) | (1 << 5) | (1 << 4) | (1 << 3));
        let mut eth = EthSeg::zeroed();
        eth.set_l3_csum(1);
        eth.set_l4_csum(1);
        assert_eq!(eth.as_bytes()[4], (1 << 6) | (1 << 7));
        let mut av = Av::zeroed();
        av.set_extended(1);
        av.set_grh(1);
        assert_eq!((av.as_bytes()[8], av.as_bytes()[0x1c]), (0x80, 0x40));
        let db = CqDoorbell::new([0x21, 0, 0, 5, 0, 0, 0, 9]).unwrap();
        assert_eq!((db.sn(), db.cmd(), db.ci(), db.cqn()), (2, 1, 5, 9));
    }
}
