//! Completion queues. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Which fields `MODIFY_CQ` changes when it resizes.
    pub struct ResizeFieldSelect = "resize_field_select", 0x4 bytes {
        resize_field_select @ 0x0 : 32;
    }

    /// Which fields `MODIFY_CQ` changes.
    pub struct ModifyFieldSelect = "modify_field_select", 0x4 bytes {
        modify_field_select @ 0x0 : 32;
    }

    /// Completion queue context.
    pub struct Cqc = "cqc", 0x40 bytes {
        status @ 0x0 : 4;
        dbr_umem_valid @ 0x6 : 1;
        apu_cq @ 0x7 : 1;
        cqe_sz @ 0x8 : 3;
        cc @ 0xb : 1;
        scqe_break_moderation_en @ 0xd : 1;
        oi @ 0xe : 1;
        cq_period_mode @ 0xf : 2;
        cqe_comp_en @ 0x11 : 1;
        mini_cqe_res_format @ 0x12 : 2;
        st @ 0x14 : 4;
        cqe_compression_layout @ 0x1e : 2;
        dbr_umem_id @ 0x20 : 32, extra "DPDK drivers/common/mlx5/mlx5_prm.h";
        page_offset @ 0x54 : 6;
        log_cq_size @ 0x63 : 5;
        uar_page @ 0x68 : 24;
        cq_period @ 0x84 : 12;
        cq_max_count @ 0x90 : 16;
        c_eqn_or_apu_element @ 0xa0 : 32;
        log_page_size @ 0xc3 : 5;
        last_notified_index @ 0x108 : 24;
        last_solicit_index @ 0x128 : 24;
        consumer_counter @ 0x148 : 24;
        producer_counter @ 0x168 : 24;
        dbr_addr @ 0x1c0 : 64;
    }

    /// Which fields `MODIFY_CQ` changes, by `op_mod`.
    pub struct ModifyFieldSelectResizeFieldSelectAuto = "modify_field_select_resize_field_select_auto", 0x4 bytes {
        modify_field_select @ 0x0 : ModifyFieldSelect;
        resize_field_select @ 0x0 : ResizeFieldSelect, alias;
    }

    /// Syndromes of an error completion.
    pub struct CqeErrorSyndrome = "cqe_error_syndrome", 0x4 bytes {
        hw_error_syndrome @ 0x0 : 8;
        hw_syndrome_type @ 0x8 : 4;
        vendor_error_syndrome @ 0x10 : 8;
        syndrome @ 0x18 : 8;
    }

    /// Output of `QUERY_CQ`.
    pub struct QueryCqOut = "query_cq_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        cq_context @ 0x80 : Cqc;
        pas @ 0x880 : tail;
    }

    /// Input of `QUERY_CQ`.
    pub struct QueryCqIn = "query_cq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        cqn @ 0x48 : 24;
    }

    /// Output of `MODIFY_CQ`.
    pub struct ModifyCqOut = "modify_cq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `MODIFY_CQ`.
    pub struct ModifyCqIn = "modify_cq_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        cqn @ 0x48 : 24;
        modify_field_select_resize_field_select @ 0x60 : ModifyFieldSelectResizeFieldSelectAuto;
        cq_context @ 0x80 : Cqc;
        cq_umem_offset @ 0x280 : 64, extra "DPDK drivers/common/mlx5/mlx5_prm.h";
        cq_umem_id @ 0x2c0 : 32, extra "DPDK drivers/common/mlx5/mlx5_prm.h";
        cq_umem_valid @ 0x2e0 : 1;
        pas @ 0x880 : tail;
    }

    /// Output of `DESTROY_CQ`.
    pub struct DestroyCqOut = "destroy_cq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_CQ`.
    pub struct DestroyCqIn = "destroy_cq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        cqn @ 0x48 : 24;
    }

    /// Output of `CREATE_CQ`.
    pub struct CreateCqOut = "create_cq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        cqn @ 0x48 : 24;
    }

    /// Input of `CREATE_CQ`.
    pub struct CreateCqIn = "create_cq_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        cq_context @ 0x80 : Cqc;
        cq_umem_offset @ 0x280 : 64, extra "DPDK drivers/common/mlx5/mlx5_prm.h";
        cq_umem_id @ 0x2c0 : 32, extra "DPDK drivers/common/mlx5/mlx5_prm.h";
        cq_umem_valid @ 0x2e0 : 1;
        pas @ 0x880 : tail;
    }
}
