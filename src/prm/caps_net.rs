//! Networking capabilities. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Capability type 9: e-switch.
    pub struct ESwitchCap = "e_switch_cap", 0x100 bytes {
        vport_svlan_strip @ 0x0 : 1;
        vport_cvlan_strip @ 0x1 : 1;
        vport_svlan_insert @ 0x2 : 1;
        vport_cvlan_insert_if_not_exist @ 0x3 : 1;
        vport_cvlan_insert_overwrite @ 0x4 : 1;
        vport_cvlan_insert_always @ 0x6 : 1;
        esw_shared_ingress_acl @ 0x7 : 1;
        esw_uplink_ingress_acl @ 0x8 : 1;
        root_ft_on_other_esw @ 0x9 : 1;
        esw_vport_state_max_tx_speed @ 0xb : 1;
        esw_functions_changed @ 0x19 : 1;
        ecpf_vport_exists @ 0x1b : 1;
        counter_eswitch_affinity @ 0x1c : 1;
        merged_eswitch @ 0x1d : 1;
        nic_vport_node_guid_modify @ 0x1e : 1;
        nic_vport_port_guid_modify @ 0x1f : 1;
        vxlan_encap_decap @ 0x20 : 1;
        nvgre_encap_decap @ 0x21 : 1;
        log_max_fdb_encap_uplink @ 0x23 : 5;
        log_max_packet_reformat_context @ 0x2b : 5;
        max_encap_header_size @ 0x36 : 10;
        log_max_esw_sf @ 0x4b : 5;
        esw_sf_base_id @ 0x50 : 16;
        esw_manager_vport_number_valid @ 0x60 : 1;
        esw_manager_vport_number @ 0x70 : 16;
    }

    /// Capability type 0xc: quality of service.
    pub struct QosCap = "qos_cap", 0x100 bytes {
        packet_pacing @ 0x0 : 1;
        esw_scheduling @ 0x1 : 1;
        esw_bw_share @ 0x2 : 1;
        esw_rate_limit @ 0x3 : 1;
        packet_pacing_burst_bound @ 0x5 : 1;
        packet_pacing_typical_size @ 0x6 : 1;
        nic_sq_scheduling @ 0x8 : 1;
        nic_bw_share @ 0x9 : 1;
        nic_rate_limit @ 0xa : 1;
        packet_pacing_uid @ 0xb : 1;
        log_esw_max_sched_depth @ 0xc : 4;
        flow_meter_reg_id @ 0x18 : 8, extra "DPDK drivers/common/mlx5/mlx5_prm.h, rdma-core tests/mlx5_prm_structs.py";
        packet_pacing_req_ud @ 0x22 : 1;
        packet_pacing_req_uc @ 0x23 : 1;
        esw_cross_esw_sched @ 0x29 : 1;
        log_max_qos_nic_queue_group @ 0x2b : 5;
        packet_pacing_max_rate @ 0x40 : 32;
        packet_pacing_min_rate @ 0x60 : 32;
        log_esw_max_rate_limit @ 0x8b : 5;
        packet_pacing_rate_table_size @ 0x90 : 16;
        esw_element_type @ 0xa0 : 16;
        esw_tsar_type @ 0xb0 : 16;
        max_qos_para_vport @ 0xd0 : 16;
        max_tsar_bw_share @ 0xe0 : 32;
        nic_element_type @ 0x100 : 16;
        nic_tsar_type @ 0x110 : 16;
        log_meter_aso_granularity @ 0x123 : 5;
        log_meter_aso_max_alloc @ 0x12b : 5;
        log_max_num_meter_aso @ 0x133 : 5;
    }

    /// Capability types 1 (Ethernet), 5 and 6 (IPoIB): networking offloads.
    pub struct PerProtocolNetworkingOffloadCaps = "per_protocol_networking_offload_caps", 0x100 bytes {
        csum_cap @ 0x0 : 1;
        vlan_cap @ 0x1 : 1;
        lro_cap @ 0x2 : 1;
        lro_psh_flag @ 0x3 : 1;
        lro_time_stamp @ 0x4 : 1;
        wqe_vlan_insert @ 0x7 : 1;
        self_lb_en_modifiable @ 0x8 : 1;
        max_lso_cap @ 0xb : 5;
        multi_pkt_send_wqe @ 0x10 : 2;
        wqe_inline_mode @ 0x12 : 2;
        rss_ind_tbl_cap @ 0x14 : 4;
        reg_umr_sq @ 0x18 : 1;
        scatter_fcs @ 0x19 : 1;
        enhanced_multi_pkt_send_wqe @ 0x1a : 1;
        tunnel_lso_const_out_ip_id @ 0x1b : 1;
        tunnel_lro_gre @ 0x1c : 1;
        tunnel_lro_vxlan @ 0x1d : 1;
        tunnel_stateless_gre @ 0x1e : 1;
        tunnel_stateless_vxlan @ 0x1f : 1;
        swp @ 0x20 : 1;
        swp_csum @ 0x21 : 1;
        swp_lso @ 0x22 : 1;
        cqe_checksum_full @ 0x23 : 1;
        tunnel_stateless_geneve_tx @ 0x24 : 1;
        tunnel_stateless_mpls_over_udp @ 0x25 : 1;
        tunnel_stateless_mpls_over_gre @ 0x26 : 1;
        tunnel_stateless_vxlan_gpe @ 0x27 : 1;
        tunnel_stateless_ipv4_over_vxlan @ 0x28 : 1;
        tunnel_stateless_ip_over_ip @ 0x29 : 1;
        insert_trailer @ 0x2a : 1;
        tunnel_stateless_ip_over_ip_rx @ 0x2c : 1;
        tunnel_stateless_ip_over_ip_tx @ 0x2d : 1;
        max_vxlan_udp_ports @ 0x30 : 8;
        swp_csum_l4_partial @ 0x38 : 1;
        max_geneve_opt_len @ 0x3e : 1;
        tunnel_stateless_geneve_rx @ 0x3f : 1;
        lro_min_mss_size @ 0x50 : 16;
        lro_timer_supported_periods @ 0x180 : [32; 4];
    }

    /// Capability type 4: RoCE.
    pub struct RoceCap = "roce_cap", 0x100 bytes {
        roce_apm @ 0x0 : 1;
        sw_r_roce_src_udp_port @ 0x4 : 1;
        fl_rc_qp_when_roce_disabled @ 0x5 : 1;
        fl_rc_qp_when_roce_enabled @ 0x6 : 1;
        roce_cc_general @ 0x7 : 1;
        qp_ooo_transmit_default @ 0x8 : 1;
        qp_ts_format @ 0x1e : 2;
        l3_type @ 0x8c : 4;
        roce_version @ 0x98 : 8;
        r_roce_dest_udp_port @ 0xb0 : 16;
        r_roce_max_src_udp_port @ 0xc0 : 16;
        r_roce_min_src_udp_port @ 0xd0 : 16;
        roce_address_table_size @ 0xf0 : 16;
    }

    /// Capability type 0x11: TLS.
    pub struct TlsCap = "tls_cap", 0x100 bytes {
        tls_1_2_aes_gcm_128 @ 0x0 : 1;
        tls_1_3_aes_gcm_128 @ 0x1 : 1;
        tls_1_2_aes_gcm_256 @ 0x2 : 1;
        tls_1_3_aes_gcm_256 @ 0x3 : 1;
    }

    /// Capability type 0x15: IPsec.
    pub struct IpsecCap = "ipsec_cap", 0x100 bytes {
        ipsec_full_offload @ 0x0 : 1;
        ipsec_crypto_offload @ 0x1 : 1;
        ipsec_esn @ 0x2 : 1;
        ipsec_crypto_esp_aes_gcm_256_encrypt @ 0x3 : 1;
        ipsec_crypto_esp_aes_gcm_128_encrypt @ 0x4 : 1;
        ipsec_crypto_esp_aes_gcm_256_decrypt @ 0x5 : 1;
        ipsec_crypto_esp_aes_gcm_128_decrypt @ 0x6 : 1;
        log_max_ipsec_offload @ 0xb : 5;
        min_log_ipsec_full_replay_window @ 0x20 : 8;
        max_log_ipsec_full_replay_window @ 0x28 : 8;
    }

    /// Capability type 0x1f: MACsec.
    pub struct MacsecCap = "macsec_cap", 0x100 bytes {
        macsec_epn @ 0x0 : 1;
        macsec_crypto_esp_aes_gcm_256_encrypt @ 0x3 : 1;
        macsec_crypto_esp_aes_gcm_128_encrypt @ 0x4 : 1;
        macsec_crypto_esp_aes_gcm_256_decrypt @ 0x5 : 1;
        macsec_crypto_esp_aes_gcm_128_decrypt @ 0x6 : 1;
        log_max_macsec_offload @ 0xb : 5;
        min_log_macsec_full_replay_window @ 0x20 : 8;
        max_log_macsec_full_replay_window @ 0x28 : 8;
    }

    /// Capability type 0x1e: PSP.
    pub struct PspCap = "psp_cap", 0x100 bytes {
        psp_crypto_offload @ 0x1 : 1;
        psp_crypto_esp_aes_gcm_256_encrypt @ 0x3 : 1;
        psp_crypto_esp_aes_gcm_128_encrypt @ 0x4 : 1;
        psp_crypto_esp_aes_gcm_256_decrypt @ 0x5 : 1;
        psp_crypto_esp_aes_gcm_128_decrypt @ 0x6 : 1;
        log_max_num_of_psp_spi @ 0xb : 5;
    }

    /// Capability type 0x1a: cryptography.
    pub struct CryptoCap = "crypto_cap", 0x100 bytes {
        synchronize_dek @ 0x3 : 1;
        int_kek_manual @ 0x4 : 1;
        int_kek_auto @ 0x5 : 1;
        log_dek_max_alloc @ 0x23 : 5;
        log_max_num_deks @ 0x2b : 5;
        log_dek_granularity @ 0x63 : 5;
        log_max_num_int_kek @ 0x6b : 5;
        sw_wrapped_dek @ 0x70 : 16;
    }

    /// Capability type 0x1d: header-data split and merge.
    pub struct ShampoCap = "shampo_cap", 0x100 bytes {
        shampo_log_max_reservation_size @ 0x3 : 5;
        shampo_log_min_reservation_size @ 0xb : 5;
        shampo_min_mss_size @ 0x10 : 16;
        shampo_header_split @ 0x20 : 1;
        shampo_header_split_data_merge @ 0x21 : 1;
        shampo_log_max_headers_entry_size @ 0x23 : 5;
    }
}
