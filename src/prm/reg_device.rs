//! Access registers of the device: management, timeouts, quality of service. Source of every layout: `mlx5_ifc.h`.

use super::reg_counters::PcieCntrsGrpDataLayoutAuto;

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Timeout with its unit, as in the initialization segment and `DTOR`.
    pub struct DefaultTimeout = "default_timeout", 0x4 bytes {
        to_multiplier @ 0x0 : 3;
        to_value @ 0xc : 20;
    }

    /// Access register `DTOR`.
    pub struct DtorReg = "dtor_reg", 0x40 bytes {
        pcie_toggle_to @ 0x20 : DefaultTimeout;
        health_poll_to @ 0xa0 : DefaultTimeout;
        full_crdump_to @ 0xc0 : DefaultTimeout;
        fw_reset_to @ 0xe0 : DefaultTimeout;
        flush_on_err_to @ 0x100 : DefaultTimeout;
        pci_sync_update_to @ 0x120 : DefaultTimeout;
        tear_down_to @ 0x140 : DefaultTimeout;
        fsm_reactivate_to @ 0x160 : DefaultTimeout;
        reclaim_pages_to @ 0x180 : DefaultTimeout;
        reclaim_vfs_pages_to @ 0x1a0 : DefaultTimeout;
        reset_unload_to @ 0x1c0 : DefaultTimeout;
    }

    /// Access register `MPCNT`.
    pub struct MpcntReg = "mpcnt_reg", 0x100 bytes {
        pcie_index @ 0x8 : 8;
        grp @ 0x1a : 6;
        clr @ 0x20 : 1;
        counter_set @ 0x40 : PcieCntrsGrpDataLayoutAuto;
    }

    /// Management features that exist.
    pub struct McamEnhancedFeatures = "mcam_enhanced_features", 0x10 bytes {
        mtutc_freq_adj_units @ 0x50 : 1;
        mtutc_time_adjustment_extended_range @ 0x51 : 1;
        mcia_32dwords @ 0x5d : 1;
        out_pulse_duration_ns @ 0x5e : 1;
        npps_period @ 0x5f : 1;
        reset_state @ 0x6a : 1;
        ptpcyc2realtime_modify @ 0x6b : 1;
        pci_status_and_power @ 0x6e : 1;
        mark_tx_action_cnp @ 0x74 : 1;
        mark_tx_action_cqe @ 0x75 : 1;
        dynamic_tx_overflow @ 0x76 : 1;
        pcie_outbound_stalled @ 0x7b : 1;
        tx_overflow_buffer_pkt @ 0x7c : 1;
        mtpps_enh_out_per_adj @ 0x7d : 1;
        mtpps_fs @ 0x7e : 1;
        pcie_performance_group @ 0x7f : 1;
    }

    /// Access register `MCAM_ACCESS`.
    pub struct McamAccessReg = "mcam_access_reg", 0x10 bytes {
        mcda @ 0x1c : 1;
        mcc @ 0x1d : 1;
        mcqi @ 0x1e : 1;
        mcqs @ 0x1f : 1;
        regs_95_to_90 @ 0x20 : 6;
        mpir @ 0x26 : 1;
        regs_88_to_87 @ 0x27 : 2;
        mpegc @ 0x29 : 1;
        mtutc @ 0x2a : 1;
        regs_84_to_68 @ 0x2b : 17;
        tracer_registers @ 0x3c : 4;
        regs_63_to_46 @ 0x40 : 18;
        mrtc @ 0x52 : 1;
        regs_44_to_41 @ 0x53 : 4;
        mfrl @ 0x57 : 1;
        regs_39_to_32 @ 0x58 : 8;
        regs_31_to_11 @ 0x60 : 21;
        mtmp @ 0x75 : 1;
        regs_9_to_0 @ 0x76 : 10;
    }

    /// Access registers 0x9080 to 0x90ff that exist.
    pub struct McamAccessRegBits1 = "mcam_access_reg_bits1", 0x10 bytes {
        regs_127_to_96 @ 0x0 : 32;
        regs_95_to_64 @ 0x20 : 32;
        regs_63_to_32 @ 0x40 : 32;
        regs_31_to_0 @ 0x60 : 32;
    }

    /// Access registers 0x9100 to 0x917f that exist.
    pub struct McamAccessRegBits2 = "mcam_access_reg_bits2", 0x10 bytes {
        regs_127_to_99 @ 0x0 : 29;
        mirc @ 0x1d : 1;
        regs_97_to_96 @ 0x1e : 2;
        regs_95_to_87 @ 0x20 : 9;
        synce_registers @ 0x29 : 2;
        regs_84_to_64 @ 0x2b : 21;
        regs_63_to_32 @ 0x40 : 32;
        regs_31_to_0 @ 0x60 : 32;
    }

    /// Access registers 0x9180 to 0x91ff that exist.
    pub struct McamAccessRegBits3 = "mcam_access_reg_bits3", 0x10 bytes {
        regs_127_to_96 @ 0x0 : 32;
        regs_95_to_64 @ 0x20 : 32;
        regs_63_to_32 @ 0x40 : 32;
        regs_31_to_3 @ 0x60 : 29;
        mrtcq @ 0x7d : 1;
        mtctr @ 0x7e : 1;
        mtptm @ 0x7f : 1;
    }

    /// Union `mng_access_reg_cap_mask` of `mcam_reg`.
    pub struct McamRegMngAccessRegCapMask = "mcam_reg.mng_access_reg_cap_mask", 0x10 bytes {
        access_regs @ 0x0 : McamAccessReg;
        access_regs1 @ 0x0 : McamAccessRegBits1, alias;
        access_regs2 @ 0x0 : McamAccessRegBits2, alias;
        access_regs3 @ 0x0 : McamAccessRegBits3, alias;
    }

    /// Union `mng_feature_cap_mask` of `mcam_reg`.
    pub struct McamRegMngFeatureCapMask = "mcam_reg.mng_feature_cap_mask", 0x10 bytes {
        enhanced_features @ 0x0 : McamEnhancedFeatures;
    }

    /// Access register `MCAM`.
    pub struct McamReg = "mcam_reg", 0x48 bytes {
        feature_group @ 0x8 : 8;
        access_reg_group @ 0x18 : 8;
        mng_access_reg_cap_mask @ 0x40 : McamRegMngAccessRegCapMask;
        mng_feature_cap_mask @ 0x140 : McamRegMngFeatureCapMask;
    }

    /// QoS access registers that exist.
    pub struct QcamAccessRegCapMask = "qcam_access_reg_cap_mask", 0x10 bytes {
        qpdpm @ 0x6c : 1;
        qcam_access_reg_cap_mask_18_to_4 @ 0x6d : 15;
        qdpm @ 0x7c : 1;
        qpts @ 0x7d : 1;
        qcap @ 0x7e : 1;
        qcam_access_reg_cap_mask_0 @ 0x7f : 1;
    }

    /// QoS features that exist.
    pub struct QcamQosFeatureCapMask = "qcam_qos_feature_cap_mask", 0x10 bytes {
        qetcr_qshr_max_bw_val_msb @ 0x7b : 1;
        qcam_qos_feature_cap_mask_3_to_1 @ 0x7c : 3;
        qpts_trust_both @ 0x7f : 1;
    }

    /// Union `qos_access_reg_cap_mask` of `qcam_reg`.
    pub struct QcamRegQosAccessRegCapMask = "qcam_reg.qos_access_reg_cap_mask", 0x10 bytes {
        reg_cap @ 0x0 : QcamAccessRegCapMask;
    }

    /// Union `qos_feature_cap_mask` of `qcam_reg`.
    pub struct QcamRegQosFeatureCapMask = "qcam_reg.qos_feature_cap_mask", 0x10 bytes {
        feature_cap @ 0x0 : QcamQosFeatureCapMask;
    }

    /// Access register `QCAM`.
    pub struct QcamReg = "qcam_reg", 0x48 bytes {
        feature_group @ 0x8 : 8;
        access_reg_group @ 0x18 : 8;
        qos_access_reg_cap_mask @ 0x40 : QcamRegQosAccessRegCapMask;
        qos_feature_cap_mask @ 0x140 : QcamRegQosFeatureCapMask;
    }

    /// Access register `HOST_ENDIANNESS`.
    pub struct RegisterHostEndianness = "register_host_endianness", 0x10 bytes {
        he @ 0x0 : 1;
    }

    /// Access register `MRTC`.
    pub struct MrtcReg = "mrtc_reg", 0x10 bytes {
        time_synced @ 0x0 : 1;
        time_h @ 0x40 : 32;
        time_l @ 0x60 : 32;
    }

    /// Access register `MTCAP`.
    pub struct MtcapReg = "mtcap_reg", 0x10 bytes {
        sensor_count @ 0x19 : 7;
        sensor_map @ 0x40 : 64;
    }

    /// Access register `MTMP`.
    pub struct MtmpReg = "mtmp_reg", 0x20 bytes {
        sensor_index @ 0x14 : 12;
        temperature @ 0x30 : 16;
        mte @ 0x40 : 1;
        mtr @ 0x41 : 1;
        max_temperature @ 0x50 : 16;
        tee @ 0x60 : 2;
        temp_threshold_hi @ 0x70 : 16;
        temp_threshold_lo @ 0x90 : 16;
        sensor_name_hi @ 0xc0 : 32;
        sensor_name_lo @ 0xe0 : 32;
    }

    /// Access register `ETS_TCN_CONFIG`.
    pub struct EtsTcnConfigReg = "ets_tcn_config_reg", 0x8 bytes {
        g @ 0x0 : 1;
        b @ 0x1 : 1;
        r @ 0x2 : 1;
        group @ 0xc : 4;
        bw_allocation @ 0x19 : 7;
        max_bw_units @ 0x2c : 4;
        max_bw_value @ 0x30 : 16;
    }

    /// Access register `ETS_GLOBAL_CONFIG`.
    pub struct EtsGlobalConfigReg = "ets_global_config_reg", 0x8 bytes {
        r @ 0x2 : 1;
        max_bw_units @ 0x2c : 4;
        max_bw_value @ 0x38 : 8;
    }

    /// Access register `QETC`.
    pub struct QetcReg = "qetc_reg", 0x50 bytes {
        port_number @ 0x8 : 8;
        tc_configuration @ 0x40 : [EtsTcnConfigReg; 8];
        global_configuration @ 0x240 : EtsGlobalConfigReg;
    }

    /// Access register `QPDPM`.
    pub struct QpdpmReg = "qpdpm_reg", 0x84 bytes {
        local_port @ 0x8 : 8;
        dscp @ 0x20 : [16; 64];
    }

    /// Access register `QPTS`.
    pub struct QptsReg = "qpts_reg", 0x8 bytes {
        local_port @ 0x8 : 8;
        trust_state @ 0x3d : 3;
    }

    /// Access register `SBCAM`.
    pub struct SbcamReg = "sbcam_reg", 0x4c bytes {
        feature_group @ 0x8 : 8;
        access_reg_group @ 0x18 : 8;
        sb_access_reg_cap_mask @ 0x40 : [32; 4];
        sb_feature_cap_mask @ 0x140 : [32; 4];
        cap_total_buffer_size @ 0x200 : 32;
        cap_cell_size @ 0x220 : 16;
        cap_max_pg_buffers @ 0x230 : 8;
        cap_num_pool_supported @ 0x238 : 8;
        cap_sbsr_stat_size @ 0x248 : 8;
        cap_max_tclass_data @ 0x250 : 8;
        cap_max_cpu_ingress_tclass_sb @ 0x258 : 8;
    }

    /// Access register `SBPR`.
    pub struct SbprReg = "sbpr_reg", 0x18 bytes {
        desc @ 0x0 : 1;
        snap @ 0x1 : 1;
        dir @ 0x6 : 2;
        pool @ 0x1c : 4;
        infi_size @ 0x20 : 1;
        size @ 0x28 : 24;
        mode @ 0x5c : 4;
        buff_occupancy @ 0x68 : 24;
        clr @ 0x80 : 1;
        max_buff_occupancy @ 0x88 : 24;
        ext_buff_occupancy @ 0xa8 : 24;
    }

    /// Access register `SBCM`.
    pub struct SbcmReg = "sbcm_reg", 0x28 bytes {
        desc @ 0x0 : 1;
        snap @ 0x1 : 1;
        local_port @ 0x8 : 8;
        pnat @ 0x10 : 2;
        pg_buff @ 0x12 : 6;
        dir @ 0x1e : 2;
        exc @ 0x3f : 1;
        buff_occupancy @ 0x88 : 24;
        clr @ 0xa0 : 1;
        max_buff_occupancy @ 0xa8 : 24;
        min_buff @ 0xc8 : 24;
        infi_max @ 0xe0 : 1;
        max_buff @ 0xe8 : 24;
        pool @ 0x13c : 4;
    }

    /// Access register `QTCT`.
    pub struct QtctReg = "qtct_reg", 0x8 bytes {
        port_number @ 0x8 : 8;
        prio @ 0x1d : 3;
        tclass @ 0x3d : 3;
    }

    /// Access register `MCIA`.
    pub struct MciaReg = "mcia_reg", 0x90 bytes {
        l @ 0x0 : 1;
        module @ 0x8 : 8;
        status @ 0x18 : 8;
        i2c_device_address @ 0x20 : 8;
        page_number @ 0x28 : 8;
        device_address @ 0x30 : 16;
        size @ 0x50 : 16;
        dwords @ 0x80 : [u8; 0x80];
    }

    /// Access register `MCQS`: state of a component of the firmware.
    pub struct McqsReg = "mcqs_reg", 0x10 bytes {
        last_index_flag @ 0x0 : 1;
        fw_device @ 0x8 : 8;
        component_index @ 0x10 : 16;
        identifier @ 0x30 : 16;
        component_status @ 0x57 : 5;
        component_update_state @ 0x5c : 4;
        last_update_state_changer_type @ 0x60 : 4;
        last_update_state_changer_host_id @ 0x64 : 4;
    }

    /// Access register `MCQI`: information about a component of the firmware.
    pub struct McqiReg = "mcqi_reg", 0x18 bytes {
        read_pending_component @ 0x0 : 1;
        component_index @ 0x10 : 16;
        info_type @ 0x5b : 5;
        info_size @ 0x60 : 32;
        offset @ 0x80 : 32;
        data_size @ 0xb0 : 16;
        data @ 0xc0 : tail;
    }

    /// Data of `MCQI`: what can be done with a component.
    pub struct McqiCap = "mcqi_cap", 0x14 bytes {
        supported_info_bitmask @ 0x0 : 32;
        component_size @ 0x20 : 32;
        max_component_size @ 0x40 : 32;
        log_mcda_word_size @ 0x60 : 4;
        mcda_max_write_size @ 0x70 : 16;
        rd_en @ 0x80 : 1;
        match_chip_id @ 0x82 : 1;
        match_psid @ 0x83 : 1;
        check_user_timestamp @ 0x84 : 1;
        match_base_guid_mac @ 0x85 : 1;
    }

    /// Data of `MCQI`: version of a component.
    pub struct McqiVersion = "mcqi_version", 0x7c bytes {
        build_time_valid @ 0x2 : 1;
        user_defined_time_valid @ 0x3 : 1;
        version_string_length @ 0x18 : 8;
        version @ 0x20 : 32;
        build_time @ 0x40 : 64;
        user_defined_time @ 0x80 : 64;
        build_tool_version @ 0xc0 : 32;
        version_string @ 0x100 : [u8; 92];
    }

    /// Access register `DCBX_PARAM`.
    pub struct DcbxParam = "dcbx_param", 0x40 bytes {
        dcbx_cee_cap @ 0x0 : 1;
        dcbx_ieee_cap @ 0x1 : 1;
        dcbx_standby_cap @ 0x2 : 1;
        port_number @ 0x8 : 8;
        max_application_table_size @ 0x1a : 6;
        version_oper @ 0x35 : 3;
        version_admin @ 0x3d : 3;
        willing_admin @ 0x40 : 1;
        pfc_cap_oper @ 0x44 : 4;
        pfc_cap_admin @ 0x4c : 4;
        num_of_tc_oper @ 0x54 : 4;
        num_of_tc_admin @ 0x5c : 4;
        remote_willing @ 0x60 : 1;
        remote_pfc_cap @ 0x64 : 4;
        remote_num_of_tc @ 0x7c : 4;
        error @ 0x98 : 8;
    }

    /// Access register `NODE_DESC`: text that describes the node. Source: kernel `mlx5/core/port.c`, `mlx5_query_node_desc`
    /// of `drivers/infiniband/hw/mlx5/main.c`.
    pub struct NodeDesc = "node_desc", 0x40 bytes {
        node_description @ 0x0 : [u8; 64];
    }
}
