//! Flow match parameters. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// IPv4 address in a 128-bit field.
    pub struct Ipv4Layout = "ipv4_layout", 0x10 bytes {
        ipv4 @ 0x60 : 32;
    }

    /// IPv6 address.
    pub struct Ipv6Layout = "ipv6_layout", 0x10 bytes {
        ipv6 @ 0x0 : [u8; 16];
    }

    /// IPv6 address as four dwords.
    pub struct Ipv6SimpleLayout = "ipv6_simple_layout", 0x10 bytes {
        ipv6_127_96 @ 0x0 : 32;
        ipv6_95_64 @ 0x20 : 32;
        ipv6_63_32 @ 0x40 : 32;
        ipv6_31_0 @ 0x60 : 32;
    }

    /// IPv4 or IPv6 address.
    pub struct Ipv6LayoutIpv4LayoutAuto = "ipv6_layout_ipv4_layout_auto", 0x10 bytes {
        ipv6_simple_layout @ 0x0 : Ipv6SimpleLayout;
        ipv6_layout @ 0x0 : Ipv6Layout, alias;
        ipv4_layout @ 0x0 : Ipv4Layout, alias;
    }

    /// Flow match: layers 2 to 4 of the outer or inner packet.
    pub struct FteMatchSetLyr24 = "fte_match_set_lyr_2_4", 0x40 bytes {
        smac_47_16 @ 0x0 : 32;
        smac_15_0 @ 0x20 : 16;
        ethertype @ 0x30 : 16;
        dmac_47_16 @ 0x40 : 32;
        dmac_15_0 @ 0x60 : 16;
        first_prio @ 0x70 : 3;
        first_cfi @ 0x73 : 1;
        first_vid @ 0x74 : 12;
        ip_protocol @ 0x80 : 8;
        ip_dscp @ 0x88 : 6;
        ip_ecn @ 0x8e : 2;
        cvlan_tag @ 0x90 : 1;
        svlan_tag @ 0x91 : 1;
        frag @ 0x92 : 1;
        ip_version @ 0x93 : 4;
        tcp_flags @ 0x97 : 9;
        tcp_sport @ 0xa0 : 16;
        tcp_dport @ 0xb0 : 16;
        l4_type @ 0xc0 : 2;
        l4_type_ext @ 0xc2 : 4;
        ipv4_ihl @ 0xd0 : 4;
        ttl_hoplimit @ 0xd8 : 8;
        udp_sport @ 0xe0 : 16;
        udp_dport @ 0xf0 : 16;
        src_ipv4_src_ipv6 @ 0x100 : Ipv6LayoutIpv4LayoutAuto;
        dst_ipv4_dst_ipv6 @ 0x180 : Ipv6LayoutIpv4LayoutAuto;
    }

    /// NVGRE key.
    pub struct NvgreKey = "nvgre_key", 0x4 bytes {
        hi @ 0x0 : 24;
        lo @ 0x18 : 8;
    }

    /// GRE key.
    pub struct GreKey = "gre_key", 0x4 bytes {
        nvgre @ 0x0 : NvgreKey;
        key @ 0x0 : 32, alias;
    }

    /// Flow match: source port, GRE, VXLAN, GENEVE and other tunnels.
    pub struct FteMatchSetMisc = "fte_match_set_misc", 0x40 bytes {
        gre_c_present @ 0x0 : 1;
        gre_k_present @ 0x2 : 1;
        gre_s_present @ 0x3 : 1;
        source_vhca_port @ 0x4 : 4;
        source_sqn @ 0x8 : 24;
        source_eswitch_owner_vhca_id @ 0x20 : 16;
        source_port @ 0x30 : 16;
        outer_second_prio @ 0x40 : 3;
        outer_second_cfi @ 0x43 : 1;
        outer_second_vid @ 0x44 : 12;
        inner_second_prio @ 0x50 : 3;
        inner_second_cfi @ 0x53 : 1;
        inner_second_vid @ 0x54 : 12;
        outer_second_cvlan_tag @ 0x60 : 1;
        inner_second_cvlan_tag @ 0x61 : 1;
        outer_second_svlan_tag @ 0x62 : 1;
        inner_second_svlan_tag @ 0x63 : 1;
        gre_protocol @ 0x70 : 16;
        gre_key @ 0x80 : GreKey;
        vxlan_vni @ 0xa0 : 24;
        bth_opcode @ 0xb8 : 8;
        geneve_vni @ 0xc0 : 24;
        geneve_tlv_option_0_exist @ 0xde : 1;
        geneve_oam @ 0xdf : 1;
        outer_ipv6_flow_label @ 0xec : 20;
        inner_ipv6_flow_label @ 0x10c : 20;
        geneve_opt_len @ 0x12a : 6;
        geneve_protocol_type @ 0x130 : 16;
        bth_dst_qp @ 0x148 : 24;
        inner_esp_spi @ 0x160 : 32;
        outer_esp_spi @ 0x180 : 32;
    }

    /// MPLS label stack entry to match.
    pub struct FteMatchMpls = "fte_match_mpls", 0x4 bytes {
        mpls_label @ 0x0 : 20;
        mpls_exp @ 0x14 : 3;
        mpls_s_bos @ 0x17 : 1;
        mpls_ttl @ 0x18 : 8;
    }

    /// Flow match: MPLS and metadata registers.
    pub struct FteMatchSetMisc2 = "fte_match_set_misc2", 0x40 bytes {
        outer_first_mpls @ 0x0 : FteMatchMpls;
        inner_first_mpls @ 0x20 : FteMatchMpls;
        outer_first_mpls_over_gre @ 0x40 : FteMatchMpls;
        outer_first_mpls_over_udp @ 0x60 : FteMatchMpls;
        metadata_reg_c_7 @ 0x80 : 32;
        metadata_reg_c_6 @ 0xa0 : 32;
        metadata_reg_c_5 @ 0xc0 : 32;
        metadata_reg_c_4 @ 0xe0 : 32;
        metadata_reg_c_3 @ 0x100 : 32;
        metadata_reg_c_2 @ 0x120 : 32;
        metadata_reg_c_1 @ 0x140 : 32;
        metadata_reg_c_0 @ 0x160 : 32;
        metadata_reg_a @ 0x180 : 32;
        psp_syndrome @ 0x1a0 : 8;
        macsec_syndrome @ 0x1a8 : 8;
        ipsec_syndrome @ 0x1b0 : 8;
        ipsec_next_header @ 0x1b8 : 8;
    }

    /// Flow match: TCP sequence numbers, VXLAN-GPE, ICMP, GTP-U.
    pub struct FteMatchSetMisc3 = "fte_match_set_misc3", 0x40 bytes {
        inner_tcp_seq_num @ 0x0 : 32;
        outer_tcp_seq_num @ 0x20 : 32;
        inner_tcp_ack_num @ 0x40 : 32;
        outer_tcp_ack_num @ 0x60 : 32;
        outer_vxlan_gpe_vni @ 0x88 : 24;
        outer_vxlan_gpe_next_protocol @ 0xa0 : 8;
        outer_vxlan_gpe_flags @ 0xa8 : 8;
        icmp_header_data @ 0xc0 : 32;
        icmpv6_header_data @ 0xe0 : 32;
        icmp_type @ 0x100 : 8;
        icmp_code @ 0x108 : 8;
        icmpv6_type @ 0x110 : 8;
        icmpv6_code @ 0x118 : 8;
        geneve_tlv_option_0_data @ 0x120 : 32;
        gtpu_teid @ 0x140 : 32;
        gtpu_msg_type @ 0x160 : 8;
        gtpu_msg_flags @ 0x168 : 8;
        gtpu_dw_2 @ 0x180 : 32;
        gtpu_first_ext_dw_0 @ 0x1a0 : 32;
        gtpu_dw_0 @ 0x1c0 : 32;
    }

    /// Flow match: programmable sample fields.
    pub struct FteMatchSetMisc4 = "fte_match_set_misc4", 0x40 bytes {
        prog_sample_field_value_0 @ 0x0 : 32;
        prog_sample_field_id_0 @ 0x20 : 32;
        prog_sample_field_value_1 @ 0x40 : 32;
        prog_sample_field_id_1 @ 0x60 : 32;
        prog_sample_field_value_2 @ 0x80 : 32;
        prog_sample_field_id_2 @ 0xa0 : 32;
        prog_sample_field_value_3 @ 0xc0 : 32;
        prog_sample_field_id_3 @ 0xe0 : 32;
    }

    /// Flow match: MACsec tag and tunnel headers.
    pub struct FteMatchSetMisc5 = "fte_match_set_misc5", 0x40 bytes {
        macsec_tag_0 @ 0x0 : 32;
        macsec_tag_1 @ 0x20 : 32;
        macsec_tag_2 @ 0x40 : 32;
        macsec_tag_3 @ 0x60 : 32;
        tunnel_header_0 @ 0x80 : 32;
        tunnel_header_1 @ 0xa0 : 32;
        tunnel_header_2 @ 0xc0 : 32;
        tunnel_header_3 @ 0xe0 : 32;
    }

    /// Flow match: further programmable sample fields.
    pub struct FteMatchSetMisc6 = "fte_match_set_misc6", 0x40 bytes {
        psp_version @ 0x1a : 4;
    }

    /// Flow match parameters: every header set.
    pub struct FteMatchParam = "fte_match_param", 0x200 bytes {
        outer_headers @ 0x0 : FteMatchSetLyr24;
        misc_parameters @ 0x200 : FteMatchSetMisc;
        inner_headers @ 0x400 : FteMatchSetLyr24;
        misc_parameters_2 @ 0x600 : FteMatchSetMisc2;
        misc_parameters_3 @ 0x800 : FteMatchSetMisc3;
        misc_parameters_4 @ 0xa00 : FteMatchSetMisc4;
        misc_parameters_5 @ 0xc00 : FteMatchSetMisc5;
        misc_parameters_6 @ 0xe00 : FteMatchSetMisc6;
    }
}
