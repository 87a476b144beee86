//! Access registers of ports, and the access command. Source of every layout: `mlx5_ifc.h`.

use super::reg_counters::EthCntrsGrpDataLayoutAuto;

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Output of `ACCESS_REG`.
    pub struct AccessRegisterOut = "access_register_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        register_data @ 0x80 : tail;
    }

    /// Input of `ACCESS_REG`.
    pub struct AccessRegisterIn = "access_register_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        register_id @ 0x50 : 16;
        argument @ 0x60 : 32;
        register_data @ 0x80 : tail;
    }

    /// Access register `PTYS`.
    pub struct PtysReg = "ptys_reg", 0x40 bytes {
        an_disable_admin @ 0x1 : 1;
        an_disable_cap @ 0x2 : 1;
        local_port @ 0x8 : 8;
        plane_ind @ 0x18 : 4;
        proto_mask @ 0x1d : 3;
        an_status @ 0x20 : 4;
        data_rate_oper @ 0x30 : 16;
        ext_eth_proto_capability @ 0x40 : 32;
        eth_proto_capability @ 0x60 : 32;
        ib_link_width_capability @ 0x80 : 16;
        ib_proto_capability @ 0x90 : 16;
        ext_eth_proto_admin @ 0xa0 : 32;
        eth_proto_admin @ 0xc0 : 32;
        ib_link_width_admin @ 0xe0 : 16;
        ib_proto_admin @ 0xf0 : 16;
        ext_eth_proto_oper @ 0x100 : 32;
        eth_proto_oper @ 0x120 : 32;
        ib_link_width_oper @ 0x140 : 16;
        ib_proto_oper @ 0x150 : 16;
        lane_rate_oper @ 0x168 : 20;
        connector_type @ 0x17c : 4;
        eth_proto_lp_advertise @ 0x180 : 32;
    }

    /// Access register `PPLM`. Drivers before the 1600G modes (Linux 6.12) send and take only the first 0x50 bytes.
    pub struct PplmReg = "pplm_reg", 0x78 bytes {
        local_port @ 0x8 : 8;
        port_profile_mode @ 0x40 : 8;
        static_port_profile @ 0x48 : 8;
        active_port_profile @ 0x50 : 8;
        retransmission_active @ 0x60 : 8;
        fec_mode_active @ 0x68 : 24;
        rs_fec_correction_bypass_cap @ 0x80 : 4;
        fec_override_cap_56g @ 0x8c : 4;
        fec_override_cap_100g @ 0x90 : 4;
        fec_override_cap_50g @ 0x94 : 4;
        fec_override_cap_25g @ 0x98 : 4;
        fec_override_cap_10g_40g @ 0x9c : 4;
        rs_fec_correction_bypass_admin @ 0xa0 : 4;
        fec_override_admin_56g @ 0xac : 4;
        fec_override_admin_100g @ 0xb0 : 4;
        fec_override_admin_50g @ 0xb4 : 4;
        fec_override_admin_25g @ 0xb8 : 4;
        fec_override_admin_10g_40g @ 0xbc : 4;
        fec_override_cap_400g_8x @ 0xc0 : 16;
        fec_override_cap_200g_4x @ 0xd0 : 16;
        fec_override_cap_100g_2x @ 0xe0 : 16;
        fec_override_cap_50g_1x @ 0xf0 : 16;
        fec_override_admin_400g_8x @ 0x100 : 16;
        fec_override_admin_200g_4x @ 0x110 : 16;
        fec_override_admin_100g_2x @ 0x120 : 16;
        fec_override_admin_50g_1x @ 0x130 : 16;
        fec_override_cap_800g_8x @ 0x140 : 16;
        fec_override_cap_400g_4x @ 0x150 : 16;
        fec_override_cap_200g_2x @ 0x160 : 16;
        fec_override_cap_100g_1x @ 0x170 : 16;
        fec_override_admin_800g_8x @ 0x220 : 16;
        fec_override_admin_400g_4x @ 0x230 : 16;
        fec_override_admin_200g_2x @ 0x240 : 16;
        fec_override_admin_100g_1x @ 0x250 : 16;
        fec_override_cap_1600g_8x @ 0x2c0 : 16;
        fec_override_cap_800g_4x @ 0x2d0 : 16;
        fec_override_cap_400g_2x @ 0x2e0 : 16;
        fec_override_cap_200g_1x @ 0x2f0 : 16;
        fec_override_admin_1600g_8x @ 0x300 : 16;
        fec_override_admin_800g_4x @ 0x310 : 16;
        fec_override_admin_400g_2x @ 0x320 : 16;
        fec_override_admin_200g_1x @ 0x330 : 16;
    }

    /// Access register `PPCNT`.
    pub struct PpcntReg = "ppcnt_reg", 0x100 bytes {
        swid @ 0x0 : 8;
        local_port @ 0x8 : 8;
        pnat @ 0x10 : 2;
        grp @ 0x1a : 6;
        clr @ 0x20 : 1;
        plane_ind @ 0x34 : 4;
        prio_tc @ 0x3b : 5;
        counter_set @ 0x40 : EthCntrsGrpDataLayoutAuto;
    }

    /// Access register `PMTU`.
    pub struct PmtuReg = "pmtu_reg", 0x10 bytes {
        local_port @ 0x8 : 8;
        max_mtu @ 0x20 : 16;
        admin_mtu @ 0x40 : 16;
        oper_mtu @ 0x60 : 16;
    }

    /// Access register `PMLP`.
    pub struct PmlpReg = "pmlp_reg", 0x40 bytes {
        rxtx @ 0x0 : 1;
        local_port @ 0x8 : 8;
        width @ 0x18 : 8;
        lane0_module_mapping @ 0x20 : 32;
        lane1_module_mapping @ 0x40 : 32;
        lane2_module_mapping @ 0x60 : 32;
        lane3_module_mapping @ 0x80 : 32;
    }

    /// Access register `PMAOS`.
    pub struct PmaosReg = "pmaos_reg", 0x10 bytes {
        module @ 0x8 : 8;
        admin_status @ 0x14 : 4;
        oper_status @ 0x1c : 4;
        ase @ 0x20 : 1;
        ee @ 0x21 : 1;
        e @ 0x3e : 2;
    }

    /// Access register `PFCC`.
    pub struct PfccReg = "pfcc_reg", 0x20 bytes {
        buf_ownership @ 0x4 : 2;
        local_port @ 0x8 : 8;
        cable_length_mask @ 0x1a : 1;
        ppan_mask_n @ 0x1b : 1;
        minor_stall_mask @ 0x1c : 1;
        critical_stall_mask @ 0x1d : 1;
        ppan @ 0x20 : 4;
        prio_mask_tx @ 0x28 : 8;
        prio_mask_rx @ 0x38 : 8;
        pptx @ 0x40 : 1;
        aptx @ 0x41 : 1;
        pptx_mask_n @ 0x42 : 1;
        pfctx @ 0x48 : 8;
        pprx @ 0x60 : 1;
        aprx @ 0x61 : 1;
        pprx_mask_n @ 0x62 : 1;
        pfcrx @ 0x68 : 8;
        device_stall_minor_watermark @ 0x80 : 16;
        device_stall_critical_watermark @ 0x90 : 16;
        cable_length @ 0xb8 : 8;
    }

    /// Port features that exist.
    pub struct PcamEnhancedFeatures = "pcam_enhanced_features", 0x10 bytes {
        ppcnt_recovery_counters @ 0x10 : 1;
        cable_length @ 0x18 : 1;
        fec_200G_per_lane_in_pplm @ 0x1d : 1;
        fec_100G_per_lane_in_pplm @ 0x48 : 1;
        shp_pbmc_pbsr_support @ 0x4b : 1;
        buffer_ownership @ 0x53 : 1;
        fec_50G_per_lane_in_pplm @ 0x68 : 1;
        rx_icrc_encapsulated_counter @ 0x6d : 1;
        ptys_extended_ethernet @ 0x72 : 1;
        pfcc_mask @ 0x76 : 1;
        per_lane_error_counters @ 0x7a : 1;
        rx_buffer_fullness_counters @ 0x7b : 1;
        ptys_connector_type @ 0x7c : 1;
        ppcnt_discard_group @ 0x7e : 1;
        ppcnt_statistical_group @ 0x7f : 1;
    }

    /// Access registers 0x5000 to 0x507f that exist.
    pub struct PcamRegs5000To507f = "pcam_regs_5000_to_507f", 0x10 bytes {
        port_access_reg_cap_mask_127_to_96 @ 0x0 : 32;
        port_access_reg_cap_mask_95_to_64 @ 0x20 : 32;
        port_access_reg_cap_mask_63 @ 0x40 : 1;
        pphcr @ 0x41 : 1;
        port_access_reg_cap_mask_61_to_36 @ 0x42 : 26;
        pplm @ 0x5c : 1;
        port_access_reg_cap_mask_34_to_32 @ 0x5d : 3;
        port_access_reg_cap_mask_31_to_13 @ 0x60 : 19;
        pbmc @ 0x73 : 1;
        pptb @ 0x74 : 1;
        port_access_reg_cap_mask_10_to_09 @ 0x75 : 2;
        ppcnt @ 0x77 : 1;
        port_access_reg_cap_mask_07_to_00 @ 0x78 : 8;
    }

    /// Union `port_access_reg_cap_mask` of `pcam_reg`.
    pub struct PcamRegPortAccessRegCapMask = "pcam_reg.port_access_reg_cap_mask", 0x10 bytes {
        regs_5000_to_507f @ 0x0 : PcamRegs5000To507f;
    }

    /// Union `feature_cap_mask` of `pcam_reg`.
    pub struct PcamRegFeatureCapMask = "pcam_reg.feature_cap_mask", 0x10 bytes {
        enhanced_features @ 0x0 : PcamEnhancedFeatures;
    }

    /// Access register `PCAM`.
    pub struct PcamReg = "pcam_reg", 0x50 bytes {
        feature_group @ 0x8 : 8;
        access_reg_group @ 0x18 : 8;
        port_access_reg_cap_mask @ 0x40 : PcamRegPortAccessRegCapMask;
        feature_cap_mask @ 0x140 : PcamRegFeatureCapMask;
    }

    /// Access register `PCAP`.
    pub struct PcapReg = "pcap_reg", 0x14 bytes {
        local_port @ 0x8 : 8;
        port_capability_mask @ 0x20 : [32; 4];
    }

    /// Access register `PAOS`.
    pub struct PaosReg = "paos_reg", 0x10 bytes {
        swid @ 0x0 : 8;
        local_port @ 0x8 : 8;
        admin_status @ 0x14 : 4;
        oper_status @ 0x1c : 4;
        ase @ 0x20 : 1;
        ee @ 0x21 : 1;
        e @ 0x3e : 2;
    }

    /// Access register `PCMR`.
    pub struct PcmrReg = "pcmr_reg", 0xc bytes {
        local_port @ 0x8 : 8;
        entropy_force_cap @ 0x20 : 1;
        entropy_calc_cap @ 0x21 : 1;
        entropy_gre_calc_cap @ 0x22 : 1;
        rx_ts_over_crc_cap @ 0x32 : 1;
        fcs_cap @ 0x3e : 1;
        entropy_force @ 0x40 : 1;
        entropy_calc @ 0x41 : 1;
        entropy_gre_calc @ 0x42 : 1;
        rx_ts_over_crc @ 0x52 : 1;
        fcs_chk @ 0x5e : 1;
    }

    /// Module and lanes of one port lane.
    pub struct Lane2ModuleMapping = "lane_2_module_mapping", 0x4 bytes {
        rx_lane @ 0x4 : 4;
        tx_lane @ 0xc : 4;
        module @ 0x18 : 8;
    }

    /// Access register `BUFFERX`.
    pub struct BufferxReg = "bufferx_reg", 0x8 bytes {
        lossy @ 0x6 : 1;
        epsb @ 0x7 : 1;
        size @ 0x10 : 16;
        xoff_threshold @ 0x20 : 16;
        xon_threshold @ 0x30 : 16;
    }

    /// Status of a port as a monitor opcode.
    pub struct PddrMonitorOpcode = "pddr_monitor_opcode", 0x4 bytes {
        monitor_opcode @ 0x10 : 16;
    }

    /// Status of a port, by group.
    pub struct PddrTroubleshootingPageStatusOpcodeAuto = "pddr_troubleshooting_page_status_opcode_auto", 0x4 bytes {
        pddr_monitor_opcode @ 0x0 : PddrMonitorOpcode;
    }

    /// Page of `PDDR`: why the link is down.
    pub struct PddrTroubleshootingPage = "pddr_troubleshooting_page", 0xf8 bytes {
        group_opcode @ 0x10 : 16;
        status_opcode @ 0x20 : PddrTroubleshootingPageStatusOpcodeAuto;
        status_message @ 0x60 : [32; 59];
    }

    /// Page of `PDDR`, by selector.
    pub struct PddrRegPageDataAuto = "pddr_reg_page_data_auto", 0xf8 bytes {
        pddr_troubleshooting_page @ 0x0 : PddrTroubleshootingPage;
    }

    /// Access register `PDDR`.
    pub struct PddrReg = "pddr_reg", 0x100 bytes {
        local_port @ 0x8 : 8;
        pnat @ 0x10 : 2;
        page_select @ 0x38 : 8;
        page_data @ 0x40 : PddrRegPageDataAuto;
    }

    /// Bounds of one histogram bin.
    pub struct BinRangeLayout = "bin_range_layout", 0x4 bytes {
        high_val @ 0xa : 6;
        low_val @ 0x1a : 6;
    }

    /// Access register `PPHCR`.
    pub struct PphcrReg = "pphcr_reg", 0x50 bytes {
        active_hist_type @ 0x0 : 4;
        local_port @ 0x8 : 8;
        num_of_bins @ 0x28 : 8;
        bin_range @ 0x80 : [BinRangeLayout; 16];
    }

    /// Access register `PPTB`.
    pub struct PptbReg = "pptb_reg", 0xc bytes {
        mm @ 0x2 : 2;
        local_port @ 0x8 : 8;
        cm @ 0x16 : 1;
        um @ 0x17 : 1;
        pm @ 0x18 : 8;
        prio_x_buff @ 0x20 : 32;
        pm_msb @ 0x40 : 8;
        ctrl_buff @ 0x58 : 4;
        untagged_buff @ 0x5c : 4;
    }

    /// Access register `PBMC`.
    pub struct PbmcReg = "pbmc_reg", 0x6c bytes {
        local_port @ 0x8 : 8;
        xoff_timer_value @ 0x20 : 16;
        xoff_refresh @ 0x30 : 16;
        fullness_threshold @ 0x49 : 7;
        port_buffer_size @ 0x50 : 16;
        buffer @ 0x60 : [BufferxReg; 10];
        shared_headroom_pool @ 0x2e0 : BufferxReg;
    }
}
