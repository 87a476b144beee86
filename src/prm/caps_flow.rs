//! Flow steering capabilities. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Header fields that a flow table type can match, first half.
    pub struct FlowTableFieldsSupported = "flow_table_fields_supported", 0x10 bytes {
        outer_dmac @ 0x0 : 1;
        outer_smac @ 0x1 : 1;
        outer_ether_type @ 0x2 : 1;
        outer_ip_version @ 0x3 : 1;
        outer_first_prio @ 0x4 : 1;
        outer_first_cfi @ 0x5 : 1;
        outer_first_vid @ 0x6 : 1;
        outer_ipv4_ttl @ 0x7 : 1;
        outer_second_prio @ 0x8 : 1;
        outer_second_cfi @ 0x9 : 1;
        outer_second_vid @ 0xa : 1;
        outer_sip @ 0xc : 1;
        outer_dip @ 0xd : 1;
        outer_frag @ 0xe : 1;
        outer_ip_protocol @ 0xf : 1;
        outer_ip_ecn @ 0x10 : 1;
        outer_ip_dscp @ 0x11 : 1;
        outer_udp_sport @ 0x12 : 1;
        outer_udp_dport @ 0x13 : 1;
        outer_tcp_sport @ 0x14 : 1;
        outer_tcp_dport @ 0x15 : 1;
        outer_tcp_flags @ 0x16 : 1;
        outer_gre_protocol @ 0x17 : 1;
        outer_gre_key @ 0x18 : 1;
        outer_vxlan_vni @ 0x19 : 1;
        outer_geneve_vni @ 0x1a : 1;
        outer_geneve_oam @ 0x1b : 1;
        outer_geneve_protocol_type @ 0x1c : 1;
        outer_geneve_opt_len @ 0x1d : 1;
        source_vhca_port @ 0x1e : 1;
        source_eswitch_port @ 0x1f : 1;
        inner_dmac @ 0x20 : 1;
        inner_smac @ 0x21 : 1;
        inner_ether_type @ 0x22 : 1;
        inner_ip_version @ 0x23 : 1;
        inner_first_prio @ 0x24 : 1;
        inner_first_cfi @ 0x25 : 1;
        inner_first_vid @ 0x26 : 1;
        inner_second_prio @ 0x28 : 1;
        inner_second_cfi @ 0x29 : 1;
        inner_second_vid @ 0x2a : 1;
        inner_sip @ 0x2c : 1;
        inner_dip @ 0x2d : 1;
        inner_frag @ 0x2e : 1;
        inner_ip_protocol @ 0x2f : 1;
        inner_ip_ecn @ 0x30 : 1;
        inner_ip_dscp @ 0x31 : 1;
        inner_udp_sport @ 0x32 : 1;
        inner_udp_dport @ 0x33 : 1;
        inner_tcp_sport @ 0x34 : 1;
        inner_tcp_dport @ 0x35 : 1;
        inner_tcp_flags @ 0x36 : 1;
        geneve_tlv_option_0_data @ 0x40 : 1;
        geneve_tlv_option_0_exist @ 0x41 : 1;
        outer_first_mpls_over_udp @ 0x45 : 4;
        outer_first_mpls_over_gre @ 0x49 : 4;
        inner_first_mpls @ 0x4d : 4;
        outer_first_mpls @ 0x51 : 4;
        outer_esp_spi @ 0x57 : 1;
        bth_dst_qp @ 0x5a : 1;
        metadata_reg_c_7 @ 0x78 : 1;
        metadata_reg_c_6 @ 0x79 : 1;
        metadata_reg_c_5 @ 0x7a : 1;
        metadata_reg_c_4 @ 0x7b : 1;
        metadata_reg_c_3 @ 0x7c : 1;
        metadata_reg_c_2 @ 0x7d : 1;
        metadata_reg_c_1 @ 0x7e : 1;
        metadata_reg_c_0 @ 0x7f : 1;
    }

    /// Header fields that a flow table type can match, second half.
    pub struct FlowTableFieldsSupported2 = "flow_table_fields_supported_2", 0x10 bytes {
        inner_l4_type_ext @ 0x0 : 1;
        outer_l4_type_ext @ 0x1 : 1;
        inner_l4_type @ 0x2 : 1;
        outer_l4_type @ 0x3 : 1;
        bth_opcode @ 0xe : 1;
        tunnel_header_0_1 @ 0x10 : 1;
        ipsec_next_header @ 0x2f : 1;
    }

    /// Properties of one flow table type.
    pub struct FlowTablePropLayout = "flow_table_prop_layout", 0x40 bytes {
        ft_support @ 0x0 : 1;
        flow_counter @ 0x2 : 1;
        flow_modify_en @ 0x3 : 1;
        modify_root @ 0x4 : 1;
        identified_miss_table_mode @ 0x5 : 1;
        flow_table_modify @ 0x6 : 1;
        reformat @ 0x7 : 1;
        decap @ 0x8 : 1;
        reset_root_to_default @ 0x9 : 1;
        pop_vlan @ 0xa : 1;
        push_vlan @ 0xb : 1;
        pop_vlan_2 @ 0xd : 1;
        push_vlan_2 @ 0xe : 1;
        reformat_and_vlan_action @ 0xf : 1;
        sw_owner @ 0x11 : 1;
        reformat_l3_tunnel_to_l2 @ 0x12 : 1;
        reformat_l2_to_l3_tunnel @ 0x13 : 1;
        reformat_and_modify_action @ 0x14 : 1;
        ignore_flow_level @ 0x15 : 1;
        table_miss_action_domain @ 0x17 : 1;
        termination_table @ 0x18 : 1;
        reformat_and_fwd_to_table @ 0x19 : 1;
        forward_vhca_rx @ 0x1a : 1;
        ipsec_encrypt @ 0x1c : 1;
        ipsec_decrypt @ 0x1d : 1;
        sw_owner_v2 @ 0x1e : 1;
        termination_table_raw_traffic @ 0x20 : 1;
        log_max_ft_size @ 0x22 : 6;
        log_max_modify_header_context @ 0x28 : 8;
        max_modify_header_actions @ 0x30 : 8;
        max_ft_level @ 0x38 : 8;
        reformat_add_esp_trasport @ 0x40 : 1;
        reformat_l2_to_l3_esp_tunnel @ 0x41 : 1;
        reformat_add_esp_transport_over_udp @ 0x42 : 1;
        reformat_del_esp_trasport @ 0x43 : 1;
        reformat_l3_esp_tunnel_to_l2 @ 0x44 : 1;
        reformat_del_esp_transport_over_udp @ 0x45 : 1;
        execute_aso @ 0x46 : 1;
        reformat_l2_to_l3_psp_tunnel @ 0x60 : 1;
        reformat_l3_psp_tunnel_to_l2 @ 0x61 : 1;
        reformat_insert @ 0x62 : 1;
        reformat_remove @ 0x63 : 1;
        macsec_encrypt @ 0x64 : 1;
        macsec_decrypt @ 0x65 : 1;
        psp_encrypt @ 0x66 : 1;
        psp_decrypt @ 0x67 : 1;
        reformat_add_macsec @ 0x68 : 1;
        reformat_remove_macsec @ 0x69 : 1;
        reparse @ 0x6a : 1;
        cross_vhca_object @ 0x6c : 1;
        reformat_l2_to_l3_audp_tunnel @ 0x6d : 1;
        reformat_l3_audp_tunnel_to_l2 @ 0x6e : 1;
        ignore_flow_level_rtc_valid @ 0x6f : 1;
        reformat_del_psp_transport @ 0x77 : 1;
        log_max_ft_num @ 0x78 : 8;
        log_max_flow_counter @ 0x90 : 8;
        log_max_destination @ 0x98 : 8;
        log_max_flow @ 0xb8 : 8;
        ft_field_support @ 0x100 : FlowTableFieldsSupported;
        ft_field_bitmask_support @ 0x180 : FlowTableFieldsSupported;
    }

    /// Capability type 7: NIC flow tables.
    pub struct FlowTableNicCap = "flow_table_nic_cap", 0x1000 bytes {
        nic_rx_multi_path_tirs @ 0x0 : 1;
        nic_rx_multi_path_tirs_fts @ 0x1 : 1;
        allow_sniffer_and_nic_rx_shared_tir @ 0x2 : 1;
        sw_owner_reformat_supported @ 0x7 : 1;
        encap_general_header @ 0x20 : 1;
        log_max_packet_reformat_context @ 0x2b : 5;
        max_encap_header_size @ 0x36 : 10;
        flow_table_properties_nic_receive @ 0x200 : FlowTablePropLayout;
        flow_table_properties_nic_receive_rdma @ 0x400 : FlowTablePropLayout;
        flow_table_properties_nic_receive_sniffer @ 0x600 : FlowTablePropLayout;
        flow_table_properties_nic_transmit @ 0x800 : FlowTablePropLayout;
        flow_table_properties_nic_transmit_rdma @ 0xa00 : FlowTablePropLayout;
        flow_table_properties_nic_transmit_sniffer @ 0xc00 : FlowTablePropLayout;
        ft_field_support_2_nic_receive @ 0x1400 : FlowTableFieldsSupported2;
        ft_field_support_2_nic_receive_rdma @ 0x1500 : FlowTableFieldsSupported2;
        ft_field_support_2_nic_transmit_rdma @ 0x1800 : FlowTableFieldsSupported2;
        sw_steering_nic_rx_action_drop_icm_address @ 0x2000 : 64;
        sw_steering_nic_tx_action_drop_icm_address @ 0x2040 : 64;
        sw_steering_nic_tx_action_allow_icm_address @ 0x2080 : 64;
    }

    /// Capability type 8: e-switch flow tables.
    pub struct FlowTableEswitchCap = "flow_table_eswitch_cap", 0x1000 bytes {
        fdb_to_vport_reg_c_id @ 0x0 : 8;
        fdb_uplink_hairpin @ 0xd : 1;
        fdb_multi_path_any_table_limit_regc @ 0xe : 1;
        fdb_dynamic_tunnel @ 0x10 : 1;
        fdb_multi_path_any_table @ 0x12 : 1;
        fdb_modify_header_fwd_to_table @ 0x15 : 1;
        fdb_ipv4_ttl_modify @ 0x16 : 1;
        flow_source @ 0x17 : 1;
        multi_fdb_encap @ 0x1a : 1;
        egress_acl_forward_to_vport @ 0x1b : 1;
        fdb_multi_path_to_table @ 0x1c : 1;
        flow_table_properties_nic_esw_fdb @ 0x200 : FlowTablePropLayout;
        flow_table_properties_esw_acl_ingress @ 0x400 : FlowTablePropLayout;
        flow_table_properties_esw_acl_egress @ 0x600 : FlowTablePropLayout;
        ft_field_support_2_esw_fdb @ 0x1400 : FlowTableFieldsSupported2;
        ft_field_bitmask_support_2_esw_fdb @ 0x1480 : FlowTableFieldsSupported2;
        sw_steering_fdb_action_drop_icm_address_rx @ 0x1800 : 64;
        sw_steering_fdb_action_drop_icm_address_tx @ 0x1840 : 64;
        sw_steering_uplink_icm_address_rx @ 0x1880 : 64;
        sw_steering_uplink_icm_address_tx @ 0x18c0 : 64;
    }
}
