//! Port and PCIe counter sets of PPCNT and MPCNT. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// `PPCNT` group 0x1a: physical layer recovery counters.
    pub struct PhysLayerRecoveryCntrs = "phys_layer_recovery_cntrs", 0xf8 bytes {
        total_successful_recovery_events @ 0x0 : 32;
    }

    /// `PPCNT` group 0x12: physical layer counters.
    pub struct PhysLayerCntrs = "phys_layer_cntrs", 0xf8 bytes {
        time_since_last_clear_high @ 0x0 : 32;
        time_since_last_clear_low @ 0x20 : 32;
        symbol_errors_high @ 0x40 : 32;
        symbol_errors_low @ 0x60 : 32;
        sync_headers_errors_high @ 0x80 : 32;
        sync_headers_errors_low @ 0xa0 : 32;
        edpl_bip_errors_lane0_high @ 0xc0 : 32;
        edpl_bip_errors_lane0_low @ 0xe0 : 32;
        edpl_bip_errors_lane1_high @ 0x100 : 32;
        edpl_bip_errors_lane1_low @ 0x120 : 32;
        edpl_bip_errors_lane2_high @ 0x140 : 32;
        edpl_bip_errors_lane2_low @ 0x160 : 32;
        edpl_bip_errors_lane3_high @ 0x180 : 32;
        edpl_bip_errors_lane3_low @ 0x1a0 : 32;
        fc_fec_corrected_blocks_lane0_high @ 0x1c0 : 32;
        fc_fec_corrected_blocks_lane0_low @ 0x1e0 : 32;
        fc_fec_corrected_blocks_lane1_high @ 0x200 : 32;
        fc_fec_corrected_blocks_lane1_low @ 0x220 : 32;
        fc_fec_corrected_blocks_lane2_high @ 0x240 : 32;
        fc_fec_corrected_blocks_lane2_low @ 0x260 : 32;
        fc_fec_corrected_blocks_lane3_high @ 0x280 : 32;
        fc_fec_corrected_blocks_lane3_low @ 0x2a0 : 32;
        fc_fec_uncorrectable_blocks_lane0_high @ 0x2c0 : 32;
        fc_fec_uncorrectable_blocks_lane0_low @ 0x2e0 : 32;
        fc_fec_uncorrectable_blocks_lane1_high @ 0x300 : 32;
        fc_fec_uncorrectable_blocks_lane1_low @ 0x320 : 32;
        fc_fec_uncorrectable_blocks_lane2_high @ 0x340 : 32;
        fc_fec_uncorrectable_blocks_lane2_low @ 0x360 : 32;
        fc_fec_uncorrectable_blocks_lane3_high @ 0x380 : 32;
        fc_fec_uncorrectable_blocks_lane3_low @ 0x3a0 : 32;
        rs_fec_corrected_blocks_high @ 0x3c0 : 32;
        rs_fec_corrected_blocks_low @ 0x3e0 : 32;
        rs_fec_uncorrectable_blocks_high @ 0x400 : 32;
        rs_fec_uncorrectable_blocks_low @ 0x420 : 32;
        rs_fec_no_errors_blocks_high @ 0x440 : 32;
        rs_fec_no_errors_blocks_low @ 0x460 : 32;
        rs_fec_single_error_blocks_high @ 0x480 : 32;
        rs_fec_single_error_blocks_low @ 0x4a0 : 32;
        rs_fec_corrected_symbols_total_high @ 0x4c0 : 32;
        rs_fec_corrected_symbols_total_low @ 0x4e0 : 32;
        rs_fec_corrected_symbols_lane0_high @ 0x500 : 32;
        rs_fec_corrected_symbols_lane0_low @ 0x520 : 32;
        rs_fec_corrected_symbols_lane1_high @ 0x540 : 32;
        rs_fec_corrected_symbols_lane1_low @ 0x560 : 32;
        rs_fec_corrected_symbols_lane2_high @ 0x580 : 32;
        rs_fec_corrected_symbols_lane2_low @ 0x5a0 : 32;
        rs_fec_corrected_symbols_lane3_high @ 0x5c0 : 32;
        rs_fec_corrected_symbols_lane3_low @ 0x5e0 : 32;
        link_down_events @ 0x600 : 32;
        successful_recovery_events @ 0x620 : 32;
    }

    /// `PPCNT` group 0x16: physical layer statistics.
    pub struct PhysLayerStatisticalCntrs = "phys_layer_statistical_cntrs", 0xf8 bytes {
        time_since_last_clear_high @ 0x0 : 32;
        time_since_last_clear_low @ 0x20 : 32;
        phy_received_bits_high @ 0x40 : 32;
        phy_received_bits_low @ 0x60 : 32;
        phy_symbol_errors_high @ 0x80 : 32;
        phy_symbol_errors_low @ 0xa0 : 32;
        phy_corrected_bits_high @ 0xc0 : 32;
        phy_corrected_bits_low @ 0xe0 : 32;
        phy_corrected_bits_lane0_high @ 0x100 : 32;
        phy_corrected_bits_lane0_low @ 0x120 : 32;
        phy_corrected_bits_lane1_high @ 0x140 : 32;
        phy_corrected_bits_lane1_low @ 0x160 : 32;
        phy_corrected_bits_lane2_high @ 0x180 : 32;
        phy_corrected_bits_lane2_low @ 0x1a0 : 32;
        phy_corrected_bits_lane3_high @ 0x1c0 : 32;
        phy_corrected_bits_lane3_low @ 0x1e0 : 32;
    }

    /// `PPCNT` group 0x20: InfiniBand port counters.
    pub struct IbPortCntrsGrpDataLayout = "ib_port_cntrs_grp_data_layout", 0x28 bytes {
        symbol_error_counter @ 0x0 : 16;
        link_error_recovery_counter @ 0x10 : 8;
        link_downed_counter @ 0x18 : 8;
        port_rcv_errors @ 0x20 : 16;
        port_rcv_remote_physical_errors @ 0x30 : 16;
        port_rcv_switch_relay_errors @ 0x40 : 16;
        port_xmit_discards @ 0x50 : 16;
        port_xmit_constraint_errors @ 0x60 : 8;
        port_rcv_constraint_errors @ 0x68 : 8;
        link_overrun_errors @ 0x78 : 8;
        vl_15_dropped @ 0x90 : 16;
        port_xmit_wait @ 0x120 : 32;
    }

    /// `PPCNT` group 0x21: extended InfiniBand port counters.
    pub struct IbExtPortCntrsGrpDataLayout = "ib_ext_port_cntrs_grp_data_layout", 0xf8 bytes {
        port_xmit_data_high @ 0x300 : 32;
        port_xmit_data_low @ 0x320 : 32;
        port_rcv_data_high @ 0x340 : 32;
        port_rcv_data_low @ 0x360 : 32;
        port_xmit_pkts_high @ 0x380 : 32;
        port_xmit_pkts_low @ 0x3a0 : 32;
        port_rcv_pkts_high @ 0x3c0 : 32;
        port_rcv_pkts_low @ 0x3e0 : 32;
        port_unicast_xmit_pkts_high @ 0x480 : 32;
        port_unicast_xmit_pkts_low @ 0x4a0 : 32;
        port_multicast_xmit_pkts_high @ 0x4c0 : 32;
        port_multicast_xmit_pkts_low @ 0x4e0 : 32;
        port_unicast_rcv_pkts_high @ 0x500 : 32;
        port_unicast_rcv_pkts_low @ 0x520 : 32;
        port_multicast_rcv_pkts_high @ 0x540 : 32;
        port_multicast_rcv_pkts_low @ 0x560 : 32;
    }

    /// `PPCNT` group 0x11: counters per traffic class.
    pub struct EthPerTcPrioGrpDataLayout = "eth_per_tc_prio_grp_data_layout", 0xf8 bytes {
        transmit_queue_high @ 0x0 : 32;
        transmit_queue_low @ 0x20 : 32;
        no_buffer_discard_uc_high @ 0x40 : 32;
        no_buffer_discard_uc_low @ 0x60 : 32;
    }

    /// `PPCNT` group 0x13: congestion counters per traffic class.
    pub struct EthPerTcCongestPrioGrpDataLayout = "eth_per_tc_congest_prio_grp_data_layout", 0xf8 bytes {
        wred_discard_high @ 0x0 : 32;
        wred_discard_low @ 0x20 : 32;
        ecn_marked_tc_high @ 0x40 : 32;
        ecn_marked_tc_low @ 0x60 : 32;
    }

    /// `PPCNT` group 0x10: counters per priority.
    pub struct EthPerPrioGrpDataLayout = "eth_per_prio_grp_data_layout", 0xf8 bytes {
        rx_octets_high @ 0x0 : 32;
        rx_octets_low @ 0x20 : 32;
        rx_frames_high @ 0x100 : 32;
        rx_frames_low @ 0x120 : 32;
        tx_octets_high @ 0x140 : 32;
        tx_octets_low @ 0x160 : 32;
        tx_frames_high @ 0x240 : 32;
        tx_frames_low @ 0x260 : 32;
        rx_pause_high @ 0x280 : 32;
        rx_pause_low @ 0x2a0 : 32;
        rx_pause_duration_high @ 0x2c0 : 32;
        rx_pause_duration_low @ 0x2e0 : 32;
        tx_pause_high @ 0x300 : 32;
        tx_pause_low @ 0x320 : 32;
        tx_pause_duration_high @ 0x340 : 32;
        tx_pause_duration_low @ 0x360 : 32;
        rx_pause_transition_high @ 0x380 : 32;
        rx_pause_transition_low @ 0x3a0 : 32;
        rx_discards_high @ 0x3c0 : 32;
        rx_discards_low @ 0x3e0 : 32;
        device_stall_minor_watermark_cnt_high @ 0x400 : 32;
        device_stall_minor_watermark_cnt_low @ 0x420 : 32;
        device_stall_critical_watermark_cnt_high @ 0x440 : 32;
        device_stall_critical_watermark_cnt_low @ 0x460 : 32;
    }

    /// `PPCNT` group 5: extended Ethernet counters.
    pub struct EthExtendedCntrsGrpDataLayout = "eth_extended_cntrs_grp_data_layout", 0xf8 bytes {
        port_transmit_wait_high @ 0x0 : 32;
        port_transmit_wait_low @ 0x20 : 32;
        rx_buffer_almost_full_high @ 0x140 : 32;
        rx_buffer_almost_full_low @ 0x160 : 32;
        rx_buffer_full_high @ 0x180 : 32;
        rx_buffer_full_low @ 0x1a0 : 32;
        rx_icrc_encapsulated_high @ 0x1c0 : 32;
        rx_icrc_encapsulated_low @ 0x1e0 : 32;
    }

    /// `PPCNT` group 3: RFC 3635 counters.
    pub struct Eth3635CntrsGrpDataLayout = "eth_3635_cntrs_grp_data_layout", 0xf8 bytes {
        dot3stats_alignment_errors_high @ 0x0 : 32;
        dot3stats_alignment_errors_low @ 0x20 : 32;
        dot3stats_fcs_errors_high @ 0x40 : 32;
        dot3stats_fcs_errors_low @ 0x60 : 32;
        dot3stats_single_collision_frames_high @ 0x80 : 32;
        dot3stats_single_collision_frames_low @ 0xa0 : 32;
        dot3stats_multiple_collision_frames_high @ 0xc0 : 32;
        dot3stats_multiple_collision_frames_low @ 0xe0 : 32;
        dot3stats_sqe_test_errors_high @ 0x100 : 32;
        dot3stats_sqe_test_errors_low @ 0x120 : 32;
        dot3stats_deferred_transmissions_high @ 0x140 : 32;
        dot3stats_deferred_transmissions_low @ 0x160 : 32;
        dot3stats_late_collisions_high @ 0x180 : 32;
        dot3stats_late_collisions_low @ 0x1a0 : 32;
        dot3stats_excessive_collisions_high @ 0x1c0 : 32;
        dot3stats_excessive_collisions_low @ 0x1e0 : 32;
        dot3stats_internal_mac_transmit_errors_high @ 0x200 : 32;
        dot3stats_internal_mac_transmit_errors_low @ 0x220 : 32;
        dot3stats_carrier_sense_errors_high @ 0x240 : 32;
        dot3stats_carrier_sense_errors_low @ 0x260 : 32;
        dot3stats_frame_too_longs_high @ 0x280 : 32;
        dot3stats_frame_too_longs_low @ 0x2a0 : 32;
        dot3stats_internal_mac_receive_errors_high @ 0x2c0 : 32;
        dot3stats_internal_mac_receive_errors_low @ 0x2e0 : 32;
        dot3stats_symbol_errors_high @ 0x300 : 32;
        dot3stats_symbol_errors_low @ 0x320 : 32;
        dot3control_in_unknown_opcodes_high @ 0x340 : 32;
        dot3control_in_unknown_opcodes_low @ 0x360 : 32;
        dot3in_pause_frames_high @ 0x380 : 32;
        dot3in_pause_frames_low @ 0x3a0 : 32;
        dot3out_pause_frames_high @ 0x3c0 : 32;
        dot3out_pause_frames_low @ 0x3e0 : 32;
    }

    /// `PPCNT` group 2: RFC 2819 counters.
    pub struct Eth2819CntrsGrpDataLayout = "eth_2819_cntrs_grp_data_layout", 0xf8 bytes {
        ether_stats_drop_events_high @ 0x0 : 32;
        ether_stats_drop_events_low @ 0x20 : 32;
        ether_stats_octets_high @ 0x40 : 32;
        ether_stats_octets_low @ 0x60 : 32;
        ether_stats_pkts_high @ 0x80 : 32;
        ether_stats_pkts_low @ 0xa0 : 32;
        ether_stats_broadcast_pkts_high @ 0xc0 : 32;
        ether_stats_broadcast_pkts_low @ 0xe0 : 32;
        ether_stats_multicast_pkts_high @ 0x100 : 32;
        ether_stats_multicast_pkts_low @ 0x120 : 32;
        ether_stats_crc_align_errors_high @ 0x140 : 32;
        ether_stats_crc_align_errors_low @ 0x160 : 32;
        ether_stats_undersize_pkts_high @ 0x180 : 32;
        ether_stats_undersize_pkts_low @ 0x1a0 : 32;
        ether_stats_oversize_pkts_high @ 0x1c0 : 32;
        ether_stats_oversize_pkts_low @ 0x1e0 : 32;
        ether_stats_fragments_high @ 0x200 : 32;
        ether_stats_fragments_low @ 0x220 : 32;
        ether_stats_jabbers_high @ 0x240 : 32;
        ether_stats_jabbers_low @ 0x260 : 32;
        ether_stats_collisions_high @ 0x280 : 32;
        ether_stats_collisions_low @ 0x2a0 : 32;
        ether_stats_pkts64octets_high @ 0x2c0 : 32;
        ether_stats_pkts64octets_low @ 0x2e0 : 32;
        ether_stats_pkts65to127octets_high @ 0x300 : 32;
        ether_stats_pkts65to127octets_low @ 0x320 : 32;
        ether_stats_pkts128to255octets_high @ 0x340 : 32;
        ether_stats_pkts128to255octets_low @ 0x360 : 32;
        ether_stats_pkts256to511octets_high @ 0x380 : 32;
        ether_stats_pkts256to511octets_low @ 0x3a0 : 32;
        ether_stats_pkts512to1023octets_high @ 0x3c0 : 32;
        ether_stats_pkts512to1023octets_low @ 0x3e0 : 32;
        ether_stats_pkts1024to1518octets_high @ 0x400 : 32;
        ether_stats_pkts1024to1518octets_low @ 0x420 : 32;
        ether_stats_pkts1519to2047octets_high @ 0x440 : 32;
        ether_stats_pkts1519to2047octets_low @ 0x460 : 32;
        ether_stats_pkts2048to4095octets_high @ 0x480 : 32;
        ether_stats_pkts2048to4095octets_low @ 0x4a0 : 32;
        ether_stats_pkts4096to8191octets_high @ 0x4c0 : 32;
        ether_stats_pkts4096to8191octets_low @ 0x4e0 : 32;
        ether_stats_pkts8192to10239octets_high @ 0x500 : 32;
        ether_stats_pkts8192to10239octets_low @ 0x520 : 32;
    }

    /// `PPCNT` group 1: RFC 2863 counters.
    pub struct Eth2863CntrsGrpDataLayout = "eth_2863_cntrs_grp_data_layout", 0xf8 bytes {
        if_in_octets_high @ 0x0 : 32;
        if_in_octets_low @ 0x20 : 32;
        if_in_ucast_pkts_high @ 0x40 : 32;
        if_in_ucast_pkts_low @ 0x60 : 32;
        if_in_discards_high @ 0x80 : 32;
        if_in_discards_low @ 0xa0 : 32;
        if_in_errors_high @ 0xc0 : 32;
        if_in_errors_low @ 0xe0 : 32;
        if_in_unknown_protos_high @ 0x100 : 32;
        if_in_unknown_protos_low @ 0x120 : 32;
        if_out_octets_high @ 0x140 : 32;
        if_out_octets_low @ 0x160 : 32;
        if_out_ucast_pkts_high @ 0x180 : 32;
        if_out_ucast_pkts_low @ 0x1a0 : 32;
        if_out_discards_high @ 0x1c0 : 32;
        if_out_discards_low @ 0x1e0 : 32;
        if_out_errors_high @ 0x200 : 32;
        if_out_errors_low @ 0x220 : 32;
        if_in_multicast_pkts_high @ 0x240 : 32;
        if_in_multicast_pkts_low @ 0x260 : 32;
        if_in_broadcast_pkts_high @ 0x280 : 32;
        if_in_broadcast_pkts_low @ 0x2a0 : 32;
        if_out_multicast_pkts_high @ 0x2c0 : 32;
        if_out_multicast_pkts_low @ 0x2e0 : 32;
        if_out_broadcast_pkts_high @ 0x300 : 32;
        if_out_broadcast_pkts_low @ 0x320 : 32;
    }

    /// `PPCNT` group 0: IEEE 802.3 counters.
    pub struct Eth8023CntrsGrpDataLayout = "eth_802_3_cntrs_grp_data_layout", 0xf8 bytes {
        a_frames_transmitted_ok_high @ 0x0 : 32;
        a_frames_transmitted_ok_low @ 0x20 : 32;
        a_frames_received_ok_high @ 0x40 : 32;
        a_frames_received_ok_low @ 0x60 : 32;
        a_frame_check_sequence_errors_high @ 0x80 : 32;
        a_frame_check_sequence_errors_low @ 0xa0 : 32;
        a_alignment_errors_high @ 0xc0 : 32;
        a_alignment_errors_low @ 0xe0 : 32;
        a_octets_transmitted_ok_high @ 0x100 : 32;
        a_octets_transmitted_ok_low @ 0x120 : 32;
        a_octets_received_ok_high @ 0x140 : 32;
        a_octets_received_ok_low @ 0x160 : 32;
        a_multicast_frames_xmitted_ok_high @ 0x180 : 32;
        a_multicast_frames_xmitted_ok_low @ 0x1a0 : 32;
        a_broadcast_frames_xmitted_ok_high @ 0x1c0 : 32;
        a_broadcast_frames_xmitted_ok_low @ 0x1e0 : 32;
        a_multicast_frames_received_ok_high @ 0x200 : 32;
        a_multicast_frames_received_ok_low @ 0x220 : 32;
        a_broadcast_frames_received_ok_high @ 0x240 : 32;
        a_broadcast_frames_received_ok_low @ 0x260 : 32;
        a_in_range_length_errors_high @ 0x280 : 32;
        a_in_range_length_errors_low @ 0x2a0 : 32;
        a_out_of_range_length_field_high @ 0x2c0 : 32;
        a_out_of_range_length_field_low @ 0x2e0 : 32;
        a_frame_too_long_errors_high @ 0x300 : 32;
        a_frame_too_long_errors_low @ 0x320 : 32;
        a_symbol_error_during_carrier_high @ 0x340 : 32;
        a_symbol_error_during_carrier_low @ 0x360 : 32;
        a_mac_control_frames_transmitted_high @ 0x380 : 32;
        a_mac_control_frames_transmitted_low @ 0x3a0 : 32;
        a_mac_control_frames_received_high @ 0x3c0 : 32;
        a_mac_control_frames_received_low @ 0x3e0 : 32;
        a_unsupported_opcodes_received_high @ 0x400 : 32;
        a_unsupported_opcodes_received_low @ 0x420 : 32;
        a_pause_mac_ctrl_frames_received_high @ 0x440 : 32;
        a_pause_mac_ctrl_frames_received_low @ 0x460 : 32;
        a_pause_mac_ctrl_frames_transmitted_high @ 0x480 : 32;
        a_pause_mac_ctrl_frames_transmitted_low @ 0x4a0 : 32;
    }

    /// `MPCNT` group 0: PCIe performance counters.
    pub struct PciePerfCntrsGrpDataLayout = "pcie_perf_cntrs_grp_data_layout", 0xf8 bytes {
        life_time_counter_high @ 0x0 : 32;
        life_time_counter_low @ 0x20 : 32;
        rx_errors @ 0x40 : 32;
        tx_errors @ 0x60 : 32;
        l0_to_recovery_eieos @ 0x80 : 32;
        l0_to_recovery_ts @ 0xa0 : 32;
        l0_to_recovery_framing @ 0xc0 : 32;
        l0_to_recovery_retrain @ 0xe0 : 32;
        crc_error_dllp @ 0x100 : 32;
        crc_error_tlp @ 0x120 : 32;
        tx_overflow_buffer_pkt_high @ 0x140 : 32;
        tx_overflow_buffer_pkt_low @ 0x160 : 32;
        outbound_stalled_reads @ 0x180 : 32;
        outbound_stalled_writes @ 0x1a0 : 32;
        outbound_stalled_reads_events @ 0x1c0 : 32;
        outbound_stalled_writes_events @ 0x1e0 : 32;
    }

    /// `PPCNT` group 0x23: Reed-Solomon FEC histogram.
    pub struct RsHistogramCntrs = "rs_histogram_cntrs", 0xd8 bytes {
        hist @ 0x0 : [64; 16];
    }

    /// Counter set of `PPCNT`, by group.
    pub struct EthCntrsGrpDataLayoutAuto = "eth_cntrs_grp_data_layout_auto", 0xf8 bytes {
        eth_802_3_cntrs_grp_data_layout @ 0x0 : Eth8023CntrsGrpDataLayout;
        eth_2863_cntrs_grp_data_layout @ 0x0 : Eth2863CntrsGrpDataLayout, alias;
        eth_2819_cntrs_grp_data_layout @ 0x0 : Eth2819CntrsGrpDataLayout, alias;
        eth_3635_cntrs_grp_data_layout @ 0x0 : Eth3635CntrsGrpDataLayout, alias;
        eth_extended_cntrs_grp_data_layout @ 0x0 : EthExtendedCntrsGrpDataLayout, alias;
        eth_per_prio_grp_data_layout @ 0x0 : EthPerPrioGrpDataLayout, alias;
        eth_per_tc_prio_grp_data_layout @ 0x0 : EthPerTcPrioGrpDataLayout, alias;
        eth_per_tc_congest_prio_grp_data_layout @ 0x0 : EthPerTcCongestPrioGrpDataLayout, alias;
        ib_ext_port_cntrs_grp_data_layout @ 0x0 : IbExtPortCntrsGrpDataLayout, alias;
        phys_layer_cntrs @ 0x0 : PhysLayerCntrs, alias;
        phys_layer_statistical_cntrs @ 0x0 : PhysLayerStatisticalCntrs, alias;
        phys_layer_recovery_cntrs @ 0x0 : PhysLayerRecoveryCntrs, alias;
        rs_histogram_cntrs @ 0x0 : RsHistogramCntrs, alias;
        ib_port_cntrs_grp_data_layout @ 0x0 : IbPortCntrsGrpDataLayout, alias;
    }

    /// Counter set of `MPCNT`, by group.
    pub struct PcieCntrsGrpDataLayoutAuto = "pcie_cntrs_grp_data_layout_auto", 0xf8 bytes {
        pcie_perf_cntrs_grp_data_layout @ 0x0 : PciePerfCntrsGrpDataLayout;
    }
}
