//! Transport interfaces and RQ tables: TIR, TIS, RQT. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Header fields that receive hashing uses.
    pub struct RxHashFieldSelect = "rx_hash_field_select", 0x4 bytes {
        l3_prot_type @ 0x0 : 1;
        l4_prot_type @ 0x1 : 1;
        selected_fields @ 0x2 : 30;
    }

    /// RQ number in an RQ table.
    pub struct RqNum = "rq_num", 0x4 bytes {
        rq_num @ 0x8 : 24;
    }

    /// RQ number in an RQ table, with its vHCA.
    pub struct RqVhca = "rq_vhca", 0x8 bytes {
        rq_num @ 0x8 : 24;
        rq_vhca_id @ 0x30 : 16;
    }

    /// Transport interface send context.
    pub struct Tisc = "tisc", 0xa0 bytes {
        strict_lag_tx_port_affinity @ 0x0 : 1;
        tls_en @ 0x1 : 1;
        lag_tx_port_affinity @ 0x4 : 4;
        prio @ 0xc : 4;
        transport_domain @ 0x128 : 24;
        underlay_qpn @ 0x148 : 24;
        pd @ 0x168 : 24;
    }

    /// Transport interface receive context.
    pub struct Tirc = "tirc", 0xf0 bytes {
        disp_type @ 0x20 : 4;
        tls_en @ 0x24 : 1;
        lro_timeout_period_usecs @ 0x84 : 16;
        packet_merge_mask @ 0x94 : 4;
        lro_max_ip_payload_size @ 0x98 : 8;
        inline_rqn @ 0xe8 : 24;
        rx_hash_symmetric @ 0x100 : 1;
        tunneled_offload_en @ 0x102 : 1;
        indirect_table @ 0x108 : 24;
        rx_hash_fn @ 0x120 : 4;
        self_lb_block @ 0x126 : 2;
        transport_domain @ 0x128 : 24;
        rx_hash_toeplitz_key @ 0x140 : [32; 10];
        rx_hash_field_selector_outer @ 0x280 : RxHashFieldSelect;
        rx_hash_field_selector_inner @ 0x2a0 : RxHashFieldSelect;
    }

    /// RQ table context; the RQ numbers follow it.
    pub struct Rqtc = "rqtc", 0xf0 bytes {
        list_q_type @ 0xa5 : 3;
        rqt_max_size @ 0xb0 : 16;
        rq_vhca_id_format @ 0xc0 : 1;
        rqt_actual_size @ 0xd0 : 16;
        rq_num @ 0x780 : tail;
        rq_vhca @ 0x780 : tail, alias;
    }

    /// Output of `QUERY_TIS`.
    pub struct QueryTisOut = "query_tis_out", 0xb0 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        tis_context @ 0x80 : Tisc;
    }

    /// Input of `QUERY_TIS`.
    pub struct QueryTisIn = "query_tis_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        tisn @ 0x48 : 24;
    }

    /// Output of `QUERY_TIR`.
    pub struct QueryTirOut = "query_tir_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        tir_context @ 0x100 : Tirc;
    }

    /// Input of `QUERY_TIR`.
    pub struct QueryTirIn = "query_tir_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        tirn @ 0x48 : 24;
    }

    /// Output of `QUERY_RQT`.
    pub struct QueryRqtOut = "query_rqt_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        rqt_context @ 0x100 : Rqtc;
    }

    /// Input of `QUERY_RQT`.
    pub struct QueryRqtIn = "query_rqt_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        rqtn @ 0x48 : 24;
    }

    /// Output of `MODIFY_TIS`.
    pub struct ModifyTisOut = "modify_tis_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Which fields `MODIFY_TIS` changes.
    pub struct ModifyTisBitmask = "modify_tis_bitmask", 0x8 bytes {
        lag_tx_port_affinity @ 0x3d : 1;
        strict_lag_tx_port_affinity @ 0x3e : 1;
        prio @ 0x3f : 1;
    }

    /// Input of `MODIFY_TIS`.
    pub struct ModifyTisIn = "modify_tis_in", 0xc0 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        tisn @ 0x48 : 24;
        bitmask @ 0x80 : ModifyTisBitmask;
        ctx @ 0x100 : Tisc;
    }

    /// Which fields `MODIFY_TIR` changes.
    pub struct ModifyTirBitmask = "modify_tir_bitmask", 0x8 bytes {
        self_lb_en @ 0x3b : 1;
        hash @ 0x3d : 1;
        packet_merge @ 0x3f : 1;
    }

    /// Output of `MODIFY_TIR`.
    pub struct ModifyTirOut = "modify_tir_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `MODIFY_TIR`.
    pub struct ModifyTirIn = "modify_tir_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        tirn @ 0x48 : 24;
        bitmask @ 0x80 : ModifyTirBitmask;
        ctx @ 0x100 : Tirc;
    }

    /// Output of `MODIFY_RQT`.
    pub struct ModifyRqtOut = "modify_rqt_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Which fields `MODIFY_RQT` changes.
    pub struct RqtBitmask = "rqt_bitmask", 0x8 bytes {
        rqn_list @ 0x3f : 1;
    }

    /// Input of `MODIFY_RQT`.
    pub struct ModifyRqtIn = "modify_rqt_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        rqtn @ 0x48 : 24;
        bitmask @ 0x80 : RqtBitmask;
        ctx @ 0x100 : Rqtc;
    }

    /// Output of `DESTROY_TIS`.
    pub struct DestroyTisOut = "destroy_tis_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_TIS`.
    pub struct DestroyTisIn = "destroy_tis_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        tisn @ 0x48 : 24;
    }

    /// Output of `DESTROY_TIR`.
    pub struct DestroyTirOut = "destroy_tir_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_TIR`.
    pub struct DestroyTirIn = "destroy_tir_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        tirn @ 0x48 : 24;
    }

    /// Output of `DESTROY_RQT`.
    pub struct DestroyRqtOut = "destroy_rqt_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_RQT`.
    pub struct DestroyRqtIn = "destroy_rqt_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        rqtn @ 0x48 : 24;
    }

    /// Output of `CREATE_TIS`.
    pub struct CreateTisOut = "create_tis_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        tisn @ 0x48 : 24;
    }

    /// Input of `CREATE_TIS`.
    pub struct CreateTisIn = "create_tis_in", 0xc0 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        ctx @ 0x100 : Tisc;
    }

    /// Output of `CREATE_TIR`.
    pub struct CreateTirOut = "create_tir_out", 0x10 bytes {
        status @ 0x0 : 8;
        icm_address_63_40 @ 0x8 : 24;
        syndrome @ 0x20 : 32;
        icm_address_39_32 @ 0x40 : 8;
        tirn @ 0x48 : 24;
        icm_address_31_0 @ 0x60 : 32;
    }

    /// Input of `CREATE_TIR`.
    pub struct CreateTirIn = "create_tir_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        ctx @ 0x100 : Tirc;
    }

    /// Output of `CREATE_RQT`.
    pub struct CreateRqtOut = "create_rqt_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        rqtn @ 0x48 : 24;
    }

    /// Input of `CREATE_RQT`.
    pub struct CreateRqtIn = "create_rqt_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        rqt_context @ 0x100 : Rqtc;
    }
}
