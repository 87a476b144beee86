//! Work queues: SQ and RQ. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Work queue, inside `rqc`, `sqc`, `rmpc` and `xrqc`.
    pub struct Wq = "wq", 0xc0 bytes {
        wq_type @ 0x0 : 4;
        wq_signature @ 0x4 : 1;
        end_padding_mode @ 0x5 : 2;
        cd_slave @ 0x7 : 1;
        hds_skip_first_sge @ 0x20 : 1;
        log2_hds_buf_size @ 0x21 : 3;
        page_offset @ 0x2b : 5;
        lwm @ 0x30 : 16;
        pd @ 0x48 : 24;
        uar_page @ 0x68 : 24;
        dbr_addr @ 0x80 : 64;
        hw_counter @ 0xc0 : 32;
        sw_counter @ 0xe0 : 32;
        log_wq_stride @ 0x10c : 4;
        log_wq_pg_sz @ 0x113 : 5;
        log_wq_sz @ 0x11b : 5;
        dbr_umem_valid @ 0x120 : 1;
        wq_umem_valid @ 0x121 : 1;
        log_hairpin_num_packets @ 0x123 : 5;
        log_hairpin_data_sz @ 0x12b : 5;
        log_wqe_num_of_strides @ 0x134 : 4;
        two_byte_shift_en @ 0x138 : 1;
        log_wqe_stride_size @ 0x13d : 3;
        dbr_umem_id @ 0x140 : 32;
        wq_umem_id @ 0x160 : 32;
        wq_umem_offset @ 0x180 : 64;
        headers_mkey @ 0x1c0 : 32;
        shampo_enable @ 0x1e0 : 1;
        shampo_mode @ 0x1e2 : 2;
        log_reservation_size @ 0x1e5 : 3;
        log_max_num_of_packets_per_reservation @ 0x1ed : 3;
        log_headers_entry_size @ 0x1f6 : 2;
        log_headers_buffer_entry_num @ 0x1fc : 4;
        pas @ 0x600 : tail;
    }

    /// Send queue context.
    pub struct Sqc = "sqc", 0xf0 bytes {
        rlky @ 0x0 : 1;
        cd_master @ 0x1 : 1;
        fre @ 0x2 : 1;
        flush_in_error_en @ 0x3 : 1;
        allow_multi_pkt_send_wqe @ 0x4 : 1;
        min_wqe_inline_mode @ 0x5 : 3;
        state @ 0x8 : 4;
        reg_umr @ 0xc : 1;
        allow_swp @ 0xd : 1;
        hairpin @ 0xe : 1;
        non_wire @ 0xf : 1;
        ts_format @ 0x1a : 2;
        user_index @ 0x28 : 24;
        cqn @ 0x48 : 24;
        hairpin_peer_rq @ 0x68 : 24;
        hairpin_peer_vhca @ 0x90 : 16;
        ts_cqe_to_dest_cqn @ 0xc8 : 24;
        packet_pacing_rate_limit_index @ 0xf0 : 16;
        tis_lst_sz @ 0x100 : 16;
        qos_queue_group_id @ 0x110 : 16;
        tis_num_0 @ 0x168 : 24;
        wq @ 0x180 : Wq;
    }

    /// Receive queue context.
    pub struct Rqc = "rqc", 0xf0 bytes {
        rlky @ 0x0 : 1;
        delay_drop_en @ 0x1 : 1;
        scatter_fcs @ 0x2 : 1;
        vsd @ 0x3 : 1;
        mem_rq_type @ 0x4 : 4;
        state @ 0x8 : 4;
        flush_in_error_en @ 0xd : 1;
        hairpin @ 0xe : 1;
        ts_format @ 0x1a : 2;
        user_index @ 0x28 : 24;
        cqn @ 0x48 : 24;
        counter_set_id @ 0x60 : 8;
        rmpn @ 0x88 : 24;
        hairpin_peer_sq @ 0xa8 : 24;
        hairpin_peer_vhca @ 0xd0 : 16;
        shampo_no_match_alignment_granularity @ 0x126 : 2;
        shampo_match_criteria_type @ 0x12e : 2;
        reservation_timeout @ 0x130 : 16;
        wq @ 0x180 : Wq;
    }

    /// Output of `QUERY_SQ`.
    pub struct QuerySqOut = "query_sq_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        sq_context @ 0x100 : Sqc;
    }

    /// Input of `QUERY_SQ`.
    pub struct QuerySqIn = "query_sq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        sqn @ 0x48 : 24;
    }

    /// Output of `QUERY_RQ`.
    pub struct QueryRqOut = "query_rq_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        rq_context @ 0x100 : Rqc;
    }

    /// Input of `QUERY_RQ`.
    pub struct QueryRqIn = "query_rq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        rqn @ 0x48 : 24;
    }

    /// Output of `MODIFY_SQ`.
    pub struct ModifySqOut = "modify_sq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `MODIFY_SQ`.
    pub struct ModifySqIn = "modify_sq_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        sq_state @ 0x40 : 4;
        sqn @ 0x48 : 24;
        modify_bitmask @ 0x80 : 64;
        ctx @ 0x100 : Sqc;
    }

    /// Output of `MODIFY_RQ`.
    pub struct ModifyRqOut = "modify_rq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `MODIFY_RQ`.
    pub struct ModifyRqIn = "modify_rq_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        rq_state @ 0x40 : 4;
        rqn @ 0x48 : 24;
        modify_bitmask @ 0x80 : 64;
        ctx @ 0x100 : Rqc;
    }

    /// Output of `DESTROY_SQ`.
    pub struct DestroySqOut = "destroy_sq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_SQ`.
    pub struct DestroySqIn = "destroy_sq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        sqn @ 0x48 : 24;
    }

    /// Output of `DESTROY_RQ`.
    pub struct DestroyRqOut = "destroy_rq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_RQ`.
    pub struct DestroyRqIn = "destroy_rq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        rqn @ 0x48 : 24;
    }

    /// Input of `SET_DELAY_DROP_PARAMS`.
    pub struct SetDelayDropParamsIn = "set_delay_drop_params_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        delay_drop_timeout @ 0x70 : 16;
    }

    /// Output of `SET_DELAY_DROP_PARAMS`.
    pub struct SetDelayDropParamsOut = "set_delay_drop_params_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Output of `CREATE_SQ`.
    pub struct CreateSqOut = "create_sq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        sqn @ 0x48 : 24;
    }

    /// Input of `CREATE_SQ`.
    pub struct CreateSqIn = "create_sq_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        ctx @ 0x100 : Sqc;
    }

    /// Output of `CREATE_RQ`.
    pub struct CreateRqOut = "create_rq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        rqn @ 0x48 : 24;
    }

    /// Input of `CREATE_RQ`.
    pub struct CreateRqIn = "create_rq_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        ctx @ 0x100 : Rqc;
    }
}
