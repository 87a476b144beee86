//! Memory keys, special contexts, page fault resume, signature PSVs. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Memory key context.
    pub struct Mkc = "mkc", 0x40 bytes {
        free @ 0x1 : 1;
        access_mode_4_2 @ 0x3 : 3;
        relaxed_ordering_write @ 0xd : 1;
        small_fence_on_rdma_read_response @ 0xf : 1;
        umr_en @ 0x10 : 1;
        a @ 0x11 : 1;
        rw @ 0x12 : 1;
        rr @ 0x13 : 1;
        lw @ 0x14 : 1;
        lr @ 0x15 : 1;
        access_mode_1_0 @ 0x16 : 2;
        ma_translation_mode @ 0x1a : 2;
        qpn @ 0x20 : 24;
        mkey_7_0 @ 0x38 : 8;
        length64 @ 0x60 : 1;
        bsf_en @ 0x61 : 1;
        sync_umr @ 0x62 : 1;
        expected_sigerr_count @ 0x65 : 1;
        en_rinval @ 0x67 : 1;
        pd @ 0x68 : 24;
        start_addr @ 0x80 : 64;
        len @ 0xc0 : 64;
        bsf_octword_size @ 0x100 : 32;
        crossing_target_vhca_id @ 0x180 : 16;
        translations_octword_size @ 0x1a0 : 32;
        order_read_after_write @ 0x1d6 : 2, extra "DPDK drivers/common/mlx5/mlx5_prm.h";
        relaxed_ordering_read @ 0x1d9 : 1;
        log_page_size @ 0x1da : 6;
        pcie_tph_en @ 0x1e5 : 1;
        pcie_tph_ph @ 0x1e6 : 2;
        pcie_tph_steering_tag_index @ 0x1e8 : 8;
    }

    /// Output of `QUERY_SPECIAL_CONTEXTS`.
    pub struct QuerySpecialContextsOut = "query_special_contexts_out", 0x20 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        dump_fill_mkey @ 0x40 : 32;
        resd_lkey @ 0x60 : 32;
        null_mkey @ 0x80 : 32;
        terminate_scatter_list_mkey @ 0xa0 : 32;
        repeated_mkey @ 0xc0 : 32;
    }

    /// Input of `QUERY_SPECIAL_CONTEXTS`.
    pub struct QuerySpecialContextsIn = "query_special_contexts_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `QUERY_MKEY`.
    pub struct QueryMkeyOut = "query_mkey_out", 0x130 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        memory_key_mkey_entry @ 0x80 : Mkc;
        bsf0_klm0_pas_mtt0_1 @ 0x880 : [u8; 16];
        bsf1_klm1_pas_mtt2_3 @ 0x900 : [u8; 16];
    }

    /// Input of `QUERY_MKEY`.
    pub struct QueryMkeyIn = "query_mkey_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        mkey_index @ 0x48 : 24;
        pg_access @ 0x60 : 1;
    }

    /// Which transport page fault a resume answers.
    pub struct TransPageFaultInfo = "trans_page_fault_info", 0x8 bytes {
        error @ 0x0 : 1;
        page_fault_type @ 0x5 : 3;
        wq_number @ 0x8 : 24;
        fault_token @ 0x28 : 24;
    }

    /// Which memory page fault a resume answers.
    pub struct MemPageFaultInfo = "mem_page_fault_info", 0x8 bytes {
        error @ 0x0 : 1;
        fault_token_47_32 @ 0x10 : 16;
        fault_token_31_0 @ 0x20 : 32;
    }

    /// Which page fault a resume answers, by scheme.
    pub struct PageFaultResumeInPageFaultInfoAuto = "page_fault_resume_in_page_fault_info_auto", 0x8 bytes {
        trans_page_fault_info @ 0x0 : TransPageFaultInfo;
        mem_page_fault_info @ 0x0 : MemPageFaultInfo, alias;
    }

    /// Output of `PAGE_FAULT_RESUME`.
    pub struct PageFaultResumeOut = "page_fault_resume_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `PAGE_FAULT_RESUME`.
    pub struct PageFaultResumeIn = "page_fault_resume_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        page_fault_info @ 0x40 : PageFaultResumeInPageFaultInfoAuto;
    }

    /// Output of `DESTROY_PSV`.
    pub struct DestroyPsvOut = "destroy_psv_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_PSV`.
    pub struct DestroyPsvIn = "destroy_psv_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        psvn @ 0x48 : 24;
    }

    /// Output of `DESTROY_MKEY`.
    pub struct DestroyMkeyOut = "destroy_mkey_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_MKEY`.
    pub struct DestroyMkeyIn = "destroy_mkey_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        mkey_index @ 0x48 : 24;
    }

    /// Output of `CREATE_PSV`.
    pub struct CreatePsvOut = "create_psv_out", 0x20 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        psv0_index @ 0x88 : 24;
        psv1_index @ 0xa8 : 24;
        psv2_index @ 0xc8 : 24;
        psv3_index @ 0xe8 : 24;
    }

    /// Input of `CREATE_PSV`.
    pub struct CreatePsvIn = "create_psv_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        num_psv @ 0x40 : 4;
        pd @ 0x48 : 24;
    }

    /// Output of `CREATE_MKEY`.
    pub struct CreateMkeyOut = "create_mkey_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        mkey_index @ 0x48 : 24;
    }

    /// Input of `CREATE_MKEY`.
    pub struct CreateMkeyIn = "create_mkey_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        pg_access @ 0x60 : 1;
        mkey_umem_valid @ 0x61 : 1;
        data_direct @ 0x62 : 1;
        memory_key_mkey_entry @ 0x80 : Mkc;
        translations_octword_actual_size @ 0x300 : 32;
        mkey_umem_id @ 0x320 : 32, extra "DPDK drivers/common/mlx5/mlx5_prm.h";
        mkey_umem_offset @ 0x340 : 64, extra "DPDK drivers/common/mlx5/mlx5_prm.h";
        klm_pas_mtt @ 0x880 : tail;
    }

    /// Memory translation entry.
    pub struct Mtt = "mtt", 0x8 bytes {
        ptag_63_32 @ 0x0 : 32;
        ptag_31_8 @ 0x20 : 24;
        wr_en @ 0x3e : 1;
        rd_en @ 0x3f : 1;
    }
}
