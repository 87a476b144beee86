//! General device capabilities, second page, and the capability types beside networking. Source of every layout: `mlx5_ifc.h`.

use super::caps_flow::{FlowTableFieldsSupported2, FlowTablePropLayout};

crate::prm::layout! {
    #![list = LAYOUTS]

    /// On-demand paging operations of one transport.
    pub struct OdpPerTransportServiceCap = "odp_per_transport_service_cap", 0x4 bytes {
        send @ 0x0 : 1;
        receive @ 0x1 : 1;
        write @ 0x2 : 1;
        read @ 0x3 : 1;
        atomic @ 0x4 : 1;
        srq_receive @ 0x5 : 1;
    }

    /// Capability type 0x25: port selection flow tables.
    pub struct PortSelectionCap = "port_selection_cap", 0x1000 bytes {
        port_select_flow_table @ 0x10 : 1;
        port_select_flow_table_bypass @ 0x12 : 1;
        flow_table_properties_port_selection @ 0x200 : FlowTablePropLayout;
        ft_field_support_2_port_selection @ 0x400 : FlowTableFieldsSupported2;
    }

    /// Flow tables that are written by work queue entries.
    pub struct WqeBasedFlowTableCap = "wqe_based_flow_table_cap", 0x3c bytes {
        log_max_num_ste @ 0x3 : 5;
        log_max_num_stc @ 0xb : 5;
        log_max_num_rtc @ 0x13 : 5;
        log_max_num_header_modify_pattern @ 0x1b : 5;
        rtc_hash_split_table @ 0x20 : 1;
        rtc_linear_lookup_table @ 0x21 : 1;
        stc_alloc_log_granularity @ 0x23 : 5;
        stc_alloc_log_max @ 0x2b : 5;
        ste_alloc_log_granularity @ 0x33 : 5;
        ste_alloc_log_max @ 0x3b : 5;
        rtc_reparse_mode @ 0x4b : 5;
        rtc_index_mode @ 0x53 : 5;
        rtc_log_depth_max @ 0x5b : 5;
        ste_format @ 0x70 : 16;
        stc_action_type @ 0x80 : [u8; 16];
        header_insert_type @ 0x100 : 16;
        header_remove_type @ 0x110 : 16;
        trivial_match_definer @ 0x120 : 32;
        rtc_max_num_hash_definer_gen_wqe @ 0x15b : 5;
        access_index_mode @ 0x178 : 8;
        ste_format_gen_wqe @ 0x190 : 16;
        linear_match_definer_reg_c3 @ 0x1a0 : 32;
        fdb_jump_to_tir_stc @ 0x1c0 : 1;
    }

    /// Capability type 0xd: debugging.
    pub struct DebugCap = "debug_cap", 0x100 bytes {
        core_dump_general @ 0x0 : 1;
        core_dump_qp @ 0x1 : 1;
        resource_dump @ 0x9 : 1;
        stall_detect @ 0x22 : 1;
    }

    /// Capability type 0xf: device memory.
    pub struct DeviceMemCap = "device_mem_cap", 0x100 bytes {
        memic @ 0x0 : 1;
        memic_increment_size @ 0x20 : 8, extra "rdma-core tests/test_mlx5_dm_ops.py";
        log_min_memic_alloc_size @ 0x2b : 5;
        memic_test_and_set_size @ 0x30 : 8, extra "rdma-core tests/test_mlx5_dm_ops.py";
        log_max_memic_addr_alignment @ 0x38 : 8;
        memic_bar_start_addr @ 0x40 : 64;
        memic_bar_size @ 0x80 : 32;
        max_memic_size @ 0xa0 : 32;
        steering_sw_icm_start_address @ 0xc0 : 64;
        log_header_modify_sw_icm_size @ 0x108 : 8;
        log_sw_icm_alloc_granularity @ 0x112 : 6;
        log_steering_sw_icm_size @ 0x118 : 8;
        log_indirect_encap_sw_icm_size @ 0x120 : 8;
        log_header_modify_pattern_sw_icm_size @ 0x138 : 8;
        header_modify_sw_icm_start_address @ 0x140 : 64;
        header_modify_pattern_sw_icm_start_address @ 0x1c0 : 64;
        memic_operations @ 0x200 : 32;
        indirect_encap_sw_icm_start_address @ 0x240 : 64;
    }

    /// Capability type 0x14: events that user contexts may subscribe to.
    pub struct DeviceEventCap = "device_event_cap", 0x40 bytes {
        user_affiliated_events @ 0x0 : [64; 4];
        user_unaffiliated_events @ 0x100 : [64; 4];
    }

    /// Capability type 0x13: virtio (vDPA) emulation.
    pub struct VirtioEmulationCap = "virtio_emulation_cap", 0x100 bytes {
        desc_tunnel_offload_type @ 0x0 : 1;
        eth_frame_offload_type @ 0x1 : 1;
        virtio_version_1_0 @ 0x2 : 1;
        device_features_bits_mask @ 0x3 : 13;
        event_mode @ 0x10 : 8;
        virtio_queue_type @ 0x18 : 8;
        max_tunnel_desc @ 0x20 : 16;
        log_doorbell_stride @ 0x33 : 5;
        log_doorbell_bar_size @ 0x3b : 5;
        doorbell_bar_offset @ 0x40 : 64;
        max_emulated_devices @ 0x80 : 8;
        max_num_virtio_queues @ 0x88 : 24;
        desc_group_mkey_supported @ 0xd3 : 1;
        freeze_to_rdy_supported @ 0xd4 : 1;
        umem_1_buffer_param_a @ 0x100 : 32;
        umem_1_buffer_param_b @ 0x120 : 32;
        umem_2_buffer_param_a @ 0x140 : 32;
        umem_2_buffer_param_b @ 0x160 : 32;
        umem_3_buffer_param_a @ 0x180 : 32;
        umem_3_buffer_param_b @ 0x1a0 : 32;
    }

    /// Capability type 0x2a: TLP device emulation.
    pub struct TlpDevEmuCapabilities = "tlp_dev_emu_capabilities", 0x100 bytes {
        log_tlp_rsp_gw_page_stride @ 0x33 : 5;
        tlp_rsp_gw_num_pages @ 0x10c : 4;
        tlp_rsp_gw_pages_bar_offset @ 0x1c0 : 64;
    }

    /// Capability type 3: atomic operations.
    pub struct AtomicCaps = "atomic_caps", 0x100 bytes {
        atomic_req_8B_endianness_mode @ 0x40 : 2;
        supported_atomic_req_8B_endianness_mode_1 @ 0x46 : 1;
        atomic_operations @ 0x90 : 16;
        atomic_size_qp @ 0xb0 : 16;
        atomic_size_dc @ 0xd0 : 16;
    }

    /// On-demand paging by one page-fault scheme.
    pub struct OdpSchemeCap = "odp_scheme_cap", 0x40 bytes {
        sig @ 0x40 : 1;
        page_prefetch @ 0x45 : 1;
        rc_odp_caps @ 0x80 : OdpPerTransportServiceCap;
        uc_odp_caps @ 0xa0 : OdpPerTransportServiceCap;
        ud_odp_caps @ 0xc0 : OdpPerTransportServiceCap;
        xrc_odp_caps @ 0xe0 : OdpPerTransportServiceCap;
        dc_odp_caps @ 0x100 : OdpPerTransportServiceCap;
    }

    /// Capability type 2: on-demand paging.
    pub struct OdpCap = "odp_cap", 0x100 bytes {
        transport_page_fault_scheme_cap @ 0x0 : OdpSchemeCap;
        memory_page_fault_scheme_cap @ 0x200 : OdpSchemeCap;
        mem_page_fault @ 0x600 : 1;
    }

    /// Capability type 0x20: the second page of general device capabilities.
    pub struct CmdHcaCap2 = "cmd_hca_cap_2", 0x100 bytes {
        migratable @ 0x80 : 1;
        dp_ordering_force @ 0x88 : 1;
        query_vuid @ 0x92 : 1;
        umr_log_entity_size_5 @ 0x98 : 1;
        max_reformat_insert_size @ 0xa0 : 8;
        max_reformat_insert_offset @ 0xa8 : 8;
        max_reformat_remove_size @ 0xb0 : 8;
        max_reformat_remove_offset @ 0xb8 : 8;
        migration_multi_load @ 0xc8 : 1;
        migration_tracking_state @ 0xc9 : 1;
        multiplane_qp_ud @ 0xca : 1;
        migration_in_chunks @ 0xd0 : 1;
        sf_eq_usage @ 0xd2 : 1;
        multiplane @ 0xd8 : 1;
        migration_state @ 0xd9 : 1;
        cross_vhca_object_to_object_supported @ 0xe0 : 32;
        allowed_object_for_other_vhca_access @ 0x100 : 64;
        flow_table_type_2_type @ 0x1a0 : 8;
        format_select_dw_8_6_ext @ 0x1aa : 1;
        log_min_mkey_entity_size @ 0x1ab : 5;
        general_obj_types_127_64 @ 0x1c0 : 64;
        sw_vhca_id_valid @ 0x221 : 1;
        sw_vhca_id @ 0x222 : 14;
        ts_cqe_metadata_size2wqe_counter @ 0x24b : 5;
        format_select_dw_gtpu_dw_0 @ 0x280 : 8;
        format_select_dw_gtpu_dw_1 @ 0x288 : 8;
        format_select_dw_gtpu_dw_2 @ 0x290 : 8;
        format_select_dw_gtpu_first_ext_dw_0 @ 0x298 : 8;
        generate_wqe_type @ 0x2a0 : 32;
        min_mkey_log_entity_size_fixed_buffer @ 0x38b : 5;
        ec_vf_vport_base @ 0x390 : 16;
        max_mkey_log_entity_size_fixed_buffer @ 0x3a2 : 6;
        max_mkey_log_entity_size_mtt @ 0x3aa : 6;
        max_rqt_vhca_id @ 0x3b0 : 16;
        pcc_ifa2 @ 0x3f0 : 1;
        min_mkey_log_entity_size_fixed_buffer_valid @ 0x401 : 1;
        return_reg_id @ 0x410 : 16;
        flow_table_hash_type @ 0x43c : 4;
        max_num_eqs_24b @ 0x448 : 24;
        load_balance_id @ 0x5a4 : 4;
        query_adjacent_functions_id @ 0x5c0 : 1;
        ingress_egress_esw_vport_connect @ 0x5c1 : 1;
        function_id_type_vhca_id @ 0x5c2 : 1;
        lag_per_mp_group @ 0x5c4 : 1;
        delegate_vhca_management_profiles @ 0x5d0 : 16;
        delegated_vhca_max @ 0x5e0 : 16;
        delegate_vhca_max @ 0x5f0 : 16;
    }

    /// Capability type 0x28: RDMA transport steering.
    pub struct AdvRdmaCap = "adv_rdma_cap", 0x800 bytes {
        rdma_transport_manager @ 0x0 : 1;
        rdma_transport_manager_other_eswitch @ 0x1 : 1;
        rcx_type @ 0x20 : 8;
        ps_entry_log_max_value @ 0x2a : 6;
        qp_max_ps_num_entry @ 0x36 : 10;
        mp_max_num_queues @ 0x40 : 8;
        ps_user_context_max_log_size @ 0x48 : 8;
        message_based_qp_and_striding_wq @ 0x50 : 8;
        max_receive_send_message_size_stride @ 0x60 : 16;
        max_receive_send_message_size_byte @ 0x80 : 32;
        rdma_transport_rx_flow_table_properties @ 0x200 : FlowTablePropLayout;
        rdma_transport_tx_flow_table_properties @ 0x400 : FlowTablePropLayout;
        rdma_transport_rx_ft_field_support_2 @ 0x600 : FlowTableFieldsSupported2;
        rdma_transport_tx_ft_field_support_2 @ 0x680 : FlowTableFieldsSupported2;
        rdma_transport_rx_ft_field_bitmask_support_2 @ 0x700 : FlowTableFieldsSupported2;
        rdma_transport_tx_ft_field_bitmask_support_2 @ 0x780 : FlowTableFieldsSupported2;
    }

    /// Capability type 0x26: advanced virtualisation.
    pub struct AdvVirtualizationCap = "adv_virtualization_cap", 0x100 bytes {
        pg_track_log_max_num @ 0x3 : 5;
        pg_track_max_num_range @ 0x8 : 8;
        pg_track_log_min_addr_space @ 0x10 : 8;
        pg_track_log_max_addr_space @ 0x18 : 8;
        pg_track_log_min_msg_size @ 0x23 : 5;
        pg_track_log_max_msg_size @ 0x2b : 5;
        pg_track_log_min_page_size @ 0x33 : 5;
        pg_track_log_max_page_size @ 0x3b : 5;
    }
}
