//! Queue pairs and DCTs. Source of every layout: `mlx5_ifc.h`.

use super::cq::CqeErrorSyndrome;

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Address path of a queue pair.
    pub struct Ads = "ads", 0x2c bytes {
        fl @ 0x0 : 1;
        free_ar @ 0x1 : 1;
        pkey_index @ 0x10 : 16;
        plane_index @ 0x20 : 8;
        grh @ 0x28 : 1;
        mlid @ 0x29 : 7;
        rlid @ 0x30 : 16;
        ack_timeout @ 0x40 : 5;
        src_addr_index @ 0x48 : 8;
        stat_rate @ 0x54 : 4;
        hop_limit @ 0x58 : 8;
        tclass @ 0x64 : 8;
        flow_label @ 0x6c : 20;
        rgid_rip @ 0x80 : [u8; 16];
        f_dscp @ 0x104 : 1;
        f_ecn @ 0x105 : 1;
        f_eth_prio @ 0x107 : 1;
        ecn @ 0x108 : 2;
        dscp @ 0x10a : 6;
        udp_sport @ 0x110 : 16;
        dei_cfi @ 0x120 : 1;
        eth_prio @ 0x121 : 3;
        sl @ 0x124 : 4;
        vhca_port_num @ 0x128 : 8;
        rmac_47_32 @ 0x130 : 16;
        rmac_31_0 @ 0x140 : 32;
    }

    /// Queue pair context.
    pub struct Qpc = "qpc", 0xe8 bytes {
        state @ 0x0 : 4;
        lag_tx_port_affinity @ 0x4 : 4;
        st @ 0x8 : 8;
        isolate_vl_tc @ 0x12 : 1;
        pm_state @ 0x13 : 2;
        req_e2e_credit_mode @ 0x16 : 2;
        offload_type @ 0x18 : 4;
        end_padding_mode @ 0x1c : 2;
        wq_signature @ 0x20 : 1;
        block_lb_mc @ 0x21 : 1;
        atomic_like_write_en @ 0x22 : 1;
        latency_sensitive @ 0x23 : 1;
        drain_sigerr @ 0x25 : 1;
        dp_ordering_force @ 0x27 : 1;
        pd @ 0x28 : 24;
        mtu @ 0x40 : 3;
        log_msg_max @ 0x43 : 5;
        log_rq_size @ 0x49 : 4;
        log_rq_stride @ 0x4d : 3;
        no_sq @ 0x50 : 1;
        log_sq_size @ 0x51 : 4;
        retry_mode @ 0x56 : 2;
        ts_format @ 0x58 : 2;
        rlky @ 0x5b : 1;
        ulp_stateless_offload_mode @ 0x5c : 4;
        counter_set_id @ 0x60 : 8;
        uar_page @ 0x68 : 24;
        user_index @ 0x88 : 24;
        log_page_size @ 0xa3 : 5;
        remote_qpn @ 0xa8 : 24;
        primary_address_path @ 0xc0 : Ads;
        secondary_address_path @ 0x220 : Ads;
        log_ack_req_freq @ 0x380 : 4;
        log_sra_max @ 0x388 : 3;
        retry_count @ 0x38d : 3;
        rnr_retry @ 0x390 : 3;
        fre @ 0x394 : 1;
        cur_rnr_retry @ 0x395 : 3;
        cur_retry_count @ 0x398 : 3;
        packet_pacing_rate_limit_index @ 0x3b0 : 16;
        next_send_psn @ 0x3c8 : 24;
        log_num_dci_stream_channels @ 0x3e3 : 5;
        cqn_snd @ 0x3e8 : 24;
        log_num_dci_errored_streams @ 0x403 : 5;
        deth_sqpn @ 0x408 : 24;
        last_acked_psn @ 0x448 : 24;
        ssn @ 0x468 : 24;
        log_rra_max @ 0x488 : 3;
        atomic_mode @ 0x48c : 4;
        rre @ 0x490 : 1;
        rwe @ 0x491 : 1;
        rae @ 0x492 : 1;
        page_offset @ 0x494 : 6;
        dp_ordering_1 @ 0x49c : 1;
        cd_slave_receive @ 0x49d : 1;
        cd_slave_send @ 0x49e : 1;
        cd_master @ 0x49f : 1;
        min_rnr_nak @ 0x4a3 : 5;
        next_rcv_psn @ 0x4a8 : 24;
        xrcd @ 0x4c8 : 24;
        cqn_rcv @ 0x4e8 : 24;
        dbr_addr @ 0x500 : 64;
        q_key @ 0x540 : 32;
        rq_type @ 0x565 : 3;
        srqn_rmpn_xrqn @ 0x568 : 24;
        rmsn @ 0x588 : 24;
        hw_sq_wqebb_counter @ 0x5a0 : 16;
        sw_sq_wqebb_counter @ 0x5b0 : 16;
        hw_rq_counter @ 0x5c0 : 32;
        sw_rq_counter @ 0x5e0 : 32;
        cgs @ 0x62f : 1;
        cs_req @ 0x630 : 8;
        cs_res @ 0x638 : 8;
        dc_access_key @ 0x640 : 64;
        dbr_umem_valid @ 0x683 : 1;
        dbr_umem_id @ 0x720 : 32, extra "DPDK drivers/common/mlx5/mlx5_prm.h";
    }

    /// Dynamically connected target context.
    pub struct Dctc = "dctc", 0x40 bytes {
        state @ 0x4 : 4;
        dp_ordering_force @ 0x27 : 1;
        user_index @ 0x28 : 24;
        cqn @ 0x48 : 24;
        counter_set_id @ 0x60 : 8;
        atomic_mode @ 0x68 : 4;
        rre @ 0x6c : 1;
        rwe @ 0x6d : 1;
        rae @ 0x6e : 1;
        atomic_like_write_en @ 0x6f : 1;
        latency_sensitive @ 0x70 : 1;
        rlky @ 0x71 : 1;
        free_ar @ 0x72 : 1;
        dp_ordering_1 @ 0x74 : 1;
        cs_res @ 0x88 : 8;
        min_rnr_nak @ 0x93 : 5;
        srqn_xrqn @ 0xa8 : 24;
        pd @ 0xc8 : 24;
        tclass @ 0xe0 : 8;
        flow_label @ 0xec : 20;
        dc_access_key @ 0x100 : 64;
        mtu @ 0x145 : 3;
        port @ 0x148 : 8;
        pkey_index @ 0x150 : 16;
        my_addr_index @ 0x168 : 8;
        hop_limit @ 0x178 : 8;
        dc_access_key_violation_count @ 0x180 : 32;
        dei_cfi @ 0x1b4 : 1;
        eth_prio @ 0x1b5 : 3;
        ecn @ 0x1b8 : 2;
        dscp @ 0x1ba : 6;
        ece @ 0x1e0 : 32;
    }

    /// Tag matching state of an XRQ.
    pub struct TagMatchingTopologyContext = "tag_matching_topology_context", 0x10 bytes {
        log_matching_list_sz @ 0x0 : 4;
        append_next_index @ 0x10 : 16;
        sw_phase_cnt @ 0x20 : 16;
        hw_phase_cnt @ 0x30 : 16;
    }

    /// Output of `SQERR2RTS_QP`.
    pub struct Sqerr2rtsQpOut = "sqerr2rts_qp_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `SQERR2RTS_QP`.
    pub struct Sqerr2rtsQpIn = "sqerr2rts_qp_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpn @ 0x48 : 24;
        opt_param_mask @ 0x80 : 32;
        qpc @ 0xc0 : Qpc;
    }

    /// Output of `SQD2RTS_QP`.
    pub struct Sqd2rtsQpOut = "sqd2rts_qp_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `SQD2RTS_QP`.
    pub struct Sqd2rtsQpIn = "sqd2rts_qp_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpn @ 0x48 : 24;
        opt_param_mask @ 0x80 : 32;
        qpc @ 0xc0 : Qpc;
    }

    /// Output of `RTS2RTS_QP`.
    pub struct Rts2rtsQpOut = "rts2rts_qp_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        ece @ 0x60 : 32;
    }

    /// Input of `RTS2RTS_QP`.
    pub struct Rts2rtsQpIn = "rts2rts_qp_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpn @ 0x48 : 24;
        opt_param_mask @ 0x80 : 32;
        ece @ 0xa0 : 32;
        qpc @ 0xc0 : Qpc;
    }

    /// Output of `RTR2RTS_QP`.
    pub struct Rtr2rtsQpOut = "rtr2rts_qp_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        ece @ 0x60 : 32;
    }

    /// Input of `RTR2RTS_QP`.
    pub struct Rtr2rtsQpIn = "rtr2rts_qp_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpn @ 0x48 : 24;
        opt_param_mask @ 0x80 : 32;
        ece @ 0xa0 : 32;
        qpc @ 0xc0 : Qpc;
    }

    /// Output of `RST2INIT_QP`.
    pub struct Rst2initQpOut = "rst2init_qp_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        ece @ 0x60 : 32;
    }

    /// Input of `RST2INIT_QP`.
    pub struct Rst2initQpIn = "rst2init_qp_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpn @ 0x48 : 24;
        opt_param_mask @ 0x80 : 32;
        ece @ 0xa0 : 32;
        qpc @ 0xc0 : Qpc;
    }

    /// Extension of the QP context.
    pub struct QpContextExtension = "qp_context_extension", 0xc0 bytes {
        error_syndrome @ 0x60 : CqeErrorSyndrome;
    }

    /// QP context extension and the pages after it.
    pub struct QpcExtensionAndPasListIn = "qpc_extension_and_pas_list_in", 0xc0 bytes {
        qpc_data_extension @ 0x0 : QpContextExtension;
        pas @ 0x600 : tail;
    }

    /// What follows a QP context in `QUERY_QP`: pages, or the extension and pages.
    pub struct QpPasOrQpcExtAndPas = "qp_pas_or_qpc_ext_and_pas", 0xc0 bytes {
        qpc_ext_and_pas_list @ 0x0 : QpcExtensionAndPasListIn;
        qp_pas_list @ 0x0 : tail, alias;
    }

    /// Output of `QUERY_QP`.
    pub struct QueryQpOut = "query_qp_out", 0x1d0 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        opt_param_mask @ 0x80 : 32;
        ece @ 0xa0 : 32;
        qpc @ 0xc0 : Qpc;
        qp_pas_or_qpc_ext_and_pas @ 0x880 : QpPasOrQpcExtAndPas;
    }

    /// Input of `QUERY_QP`.
    pub struct QueryQpIn = "query_qp_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        qpc_ext @ 0x40 : 1;
        qpn @ 0x48 : 24;
    }

    /// Output of `QUERY_DCT`.
    pub struct QueryDctOut = "query_dct_out", 0x80 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        dct_context_entry @ 0x80 : Dctc;
    }

    /// Input of `QUERY_DCT`.
    pub struct QueryDctIn = "query_dct_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        dctn @ 0x48 : 24;
    }

    /// Output of `2RST_QP`.
    pub struct Qp2rstOut = "qp_2rst_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `2RST_QP`.
    pub struct Qp2rstIn = "qp_2rst_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpn @ 0x48 : 24;
    }

    /// Output of `2ERR_QP`.
    pub struct Qp2errOut = "qp_2err_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `2ERR_QP`.
    pub struct Qp2errIn = "qp_2err_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpn @ 0x48 : 24;
    }

    /// Output of `INIT2RTR_QP`.
    pub struct Init2rtrQpOut = "init2rtr_qp_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        ece @ 0x60 : 32;
    }

    /// Input of `INIT2RTR_QP`.
    pub struct Init2rtrQpIn = "init2rtr_qp_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpn @ 0x48 : 24;
        opt_param_mask @ 0x80 : 32;
        ece @ 0xa0 : 32;
        qpc @ 0xc0 : Qpc;
    }

    /// Output of `INIT2INIT_QP`.
    pub struct Init2initQpOut = "init2init_qp_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        ece @ 0x60 : 32;
    }

    /// Input of `INIT2INIT_QP`.
    pub struct Init2initQpIn = "init2init_qp_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpn @ 0x48 : 24;
        opt_param_mask @ 0x80 : 32;
        ece @ 0xa0 : 32;
        qpc @ 0xc0 : Qpc;
    }

    /// Output of `DRAIN_DCT`.
    pub struct DrainDctOut = "drain_dct_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DRAIN_DCT`.
    pub struct DrainDctIn = "drain_dct_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        dctn @ 0x48 : 24;
    }

    /// Output of `DETACH_FROM_MCG`.
    pub struct DetachFromMcgOut = "detach_from_mcg_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DETACH_FROM_MCG`.
    pub struct DetachFromMcgIn = "detach_from_mcg_in", 0x20 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpn @ 0x48 : 24;
        multicast_gid @ 0x80 : [u8; 16];
    }

    /// Output of `DESTROY_QP`.
    pub struct DestroyQpOut = "destroy_qp_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_QP`.
    pub struct DestroyQpIn = "destroy_qp_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpn @ 0x48 : 24;
    }

    /// Output of `DESTROY_DCT`.
    pub struct DestroyDctOut = "destroy_dct_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_DCT`.
    pub struct DestroyDctIn = "destroy_dct_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        dctn @ 0x48 : 24;
    }

    /// Output of `CREATE_QP`.
    pub struct CreateQpOut = "create_qp_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        qpn @ 0x48 : 24;
        ece @ 0x60 : 32;
    }

    /// Input of `CREATE_QP`.
    pub struct CreateQpIn = "create_qp_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpc_ext @ 0x40 : 1;
        input_qpn @ 0x48 : 24;
        opt_param_mask @ 0x80 : 32;
        ece @ 0xa0 : 32;
        qpc @ 0xc0 : Qpc;
        wq_umem_offset @ 0x800 : 64;
        wq_umem_id @ 0x840 : 32;
        wq_umem_valid @ 0x860 : 1;
        pas @ 0x880 : tail;
    }

    /// Output of `CREATE_DCT`.
    pub struct CreateDctOut = "create_dct_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        dctn @ 0x48 : 24;
        ece @ 0x60 : 32;
    }

    /// Input of `CREATE_DCT`.
    pub struct CreateDctIn = "create_dct_in", 0x80 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        dct_context_entry @ 0x80 : Dctc;
    }

    /// Output of `ATTACH_TO_MCG`.
    pub struct AttachToMcgOut = "attach_to_mcg_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `ATTACH_TO_MCG`.
    pub struct AttachToMcgIn = "attach_to_mcg_in", 0x20 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        qpn @ 0x48 : 24;
        multicast_gid @ 0x80 : [u8; 16];
    }

    /// Output of `ARM_DCT_FOR_KEY_VIOLATION`.
    pub struct ArmDctOut = "arm_dct_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `ARM_DCT_FOR_KEY_VIOLATION`.
    pub struct ArmDctIn = "arm_dct_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        dct_number @ 0x48 : 24;
    }
}
