//! NIC, HCA and e-switch vports, RoCE addresses. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// MAC address in 64 bits.
    pub struct MacAddressLayout = "mac_address_layout", 0x8 bytes {
        mac_addr_47_32 @ 0x10 : 16;
        mac_addr_31_0 @ 0x20 : 32;
    }

    /// VLAN id in a vport's VLAN list.
    pub struct VlanLayout = "vlan_layout", 0x8 bytes {
        vlan @ 0x14 : 12;
    }

    /// RoCE address table entry.
    pub struct RoceAddrLayout = "roce_addr_layout", 0x20 bytes {
        source_l3_address @ 0x0 : [u8; 16];
        vlan_valid @ 0x83 : 1;
        vlan_id @ 0x84 : 12;
        source_mac_47_32 @ 0x90 : 16;
        source_mac_31_0 @ 0xa0 : 32;
        roce_l3_type @ 0xd4 : 4;
        roce_version @ 0xd8 : 8;
    }

    /// NIC vport context; the address list follows it.
    pub struct NicVportContext = "nic_vport_context", 0x100 bytes {
        min_wqe_inline_mode @ 0x5 : 3;
        disable_mc_local_lb @ 0x1d : 1;
        disable_uc_local_lb @ 0x1e : 1;
        roce_en @ 0x1f : 1;
        arm_change_event @ 0x20 : 1;
        event_on_mtu @ 0x3b : 1;
        event_on_promisc_change @ 0x3c : 1;
        event_on_vlan_change @ 0x3d : 1;
        event_on_mc_address_change @ 0x3e : 1;
        event_on_uc_address_change @ 0x3f : 1;
        vhca_id_type @ 0x40 : 1;
        affiliation_criteria @ 0x4c : 4;
        affiliated_vhca_id @ 0x50 : 16;
        sd_group @ 0x101 : 3;
        sd_group_size @ 0x108 : 8;
        mtu @ 0x130 : 16;
        system_image_guid @ 0x140 : 64;
        port_guid @ 0x180 : 64;
        node_guid @ 0x1c0 : 64;
        qkey_violation_counter @ 0x340 : 16;
        promisc_uc @ 0x780 : 1;
        promisc_mc @ 0x781 : 1;
        promisc_all @ 0x782 : 1;
        allowed_list_type @ 0x785 : 3;
        allowed_list_size @ 0x790 : 16;
        permanent_address @ 0x7a0 : MacAddressLayout;
        current_uc_mac_address @ 0x800 : tail;
    }

    /// HCA (InfiniBand) vport context.
    pub struct HcaVportContext = "hca_vport_context", 0x200 bytes {
        field_select @ 0x0 : 32;
        sm_virt_aware @ 0x100 : 1;
        has_smi @ 0x101 : 1;
        has_raw @ 0x102 : 1;
        grh_required @ 0x103 : 1;
        num_port_plane @ 0x108 : 8;
        port_physical_state @ 0x110 : 4;
        vport_state_policy @ 0x114 : 4;
        port_state @ 0x118 : 4;
        vport_state @ 0x11c : 4;
        system_image_guid @ 0x140 : 64;
        port_guid @ 0x180 : 64;
        node_guid @ 0x1c0 : 64;
        cap_mask1 @ 0x200 : 32;
        cap_mask1_field_select @ 0x220 : 32;
        cap_mask2 @ 0x240 : 32;
        cap_mask2_field_select @ 0x260 : 32;
        lid @ 0x300 : 16;
        init_type_reply @ 0x314 : 4;
        lmc @ 0x318 : 3;
        subnet_timeout @ 0x31b : 5;
        sm_lid @ 0x320 : 16;
        sm_sl @ 0x330 : 4;
        qkey_violation_counter @ 0x340 : 16;
        pkey_violation_counter @ 0x350 : 16;
    }

    /// E-switch vport context.
    pub struct EswVportContext = "esw_vport_context", 0x100 bytes {
        fdb_to_vport_reg_c @ 0x0 : 1;
        vport_svlan_strip @ 0x3 : 1;
        vport_cvlan_strip @ 0x4 : 1;
        vport_svlan_insert @ 0x5 : 1;
        vport_cvlan_insert @ 0x6 : 2;
        fdb_to_vport_reg_c_id @ 0x8 : 8;
        svlan_cfi @ 0x40 : 1;
        svlan_pcp @ 0x41 : 3;
        svlan_id @ 0x44 : 12;
        cvlan_cfi @ 0x50 : 1;
        cvlan_pcp @ 0x51 : 3;
        cvlan_id @ 0x54 : 12;
        sw_steering_vport_icm_address_rx @ 0x780 : 64;
        sw_steering_vport_icm_address_tx @ 0x7c0 : 64;
    }

    /// Output of `SET_ROCE_ADDRESS`.
    pub struct SetRoceAddressOut = "set_roce_address_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `SET_ROCE_ADDRESS`.
    pub struct SetRoceAddressIn = "set_roce_address_in", 0x30 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        roce_address_index @ 0x40 : 16;
        vhca_port_num @ 0x5c : 4;
        roce_address @ 0x80 : RoceAddrLayout;
    }

    /// Output of `SET_L2_TABLE_ENTRY`.
    pub struct SetL2TableEntryOut = "set_l2_table_entry_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `SET_L2_TABLE_ENTRY`.
    pub struct SetL2TableEntryIn = "set_l2_table_entry_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        table_index @ 0xa8 : 24;
        silent_mode_valid @ 0xf0 : 1;
        silent_mode @ 0xf1 : 1;
        vlan_valid @ 0xf3 : 1;
        vlan @ 0xf4 : 12;
        mac_address @ 0x100 : MacAddressLayout;
    }

    /// Output of `QUERY_VPORT_STATE`.
    pub struct QueryVportStateOut = "query_vport_state_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        max_tx_speed @ 0x60 : 16;
        admin_state @ 0x78 : 4;
        state @ 0x7c : 4;
    }

    /// Input of `QUERY_VPORT_STATE`.
    pub struct QueryVportStateIn = "query_vport_state_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        vport_number @ 0x50 : 16;
    }

    /// Output of `QUERY_ROCE_ADDRESS`.
    pub struct QueryRoceAddressOut = "query_roce_address_out", 0x30 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        roce_address @ 0x80 : RoceAddrLayout;
    }

    /// Input of `QUERY_ROCE_ADDRESS`.
    pub struct QueryRoceAddressIn = "query_roce_address_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        roce_address_index @ 0x40 : 16;
        vhca_port_num @ 0x5c : 4;
    }

    /// Output of `QUERY_NIC_VPORT_CONTEXT`.
    pub struct QueryNicVportContextOut = "query_nic_vport_context_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        nic_vport_context @ 0x80 : NicVportContext;
    }

    /// Input of `QUERY_NIC_VPORT_CONTEXT`.
    pub struct QueryNicVportContextIn = "query_nic_vport_context_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        vport_number @ 0x50 : 16;
        allowed_list_type @ 0x65 : 3;
    }

    /// Output of `QUERY_L2_TABLE_ENTRY`.
    pub struct QueryL2TableEntryOut = "query_l2_table_entry_out", 0x40 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        silent_mode @ 0xf1 : 1;
        vlan_valid @ 0xf3 : 1;
        vlan @ 0xf4 : 12;
        mac_address @ 0x100 : MacAddressLayout;
    }

    /// Input of `QUERY_L2_TABLE_ENTRY`.
    pub struct QueryL2TableEntryIn = "query_l2_table_entry_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        silent_mode_query @ 0x80 : 1;
        table_index @ 0xa8 : 24;
    }

    /// Output of `QUERY_HCA_VPORT_PKEY`.
    pub struct QueryHcaVportPkeyOut = "query_hca_vport_pkey_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        pkey @ 0x80 : tail;
    }

    /// Input of `QUERY_HCA_VPORT_PKEY`.
    pub struct QueryHcaVportPkeyIn = "query_hca_vport_pkey_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        port_num @ 0x4c : 4;
        vport_number @ 0x50 : 16;
        pkey_index @ 0x70 : 16;
    }

    /// Output of `QUERY_HCA_VPORT_GID`.
    pub struct QueryHcaVportGidOut = "query_hca_vport_gid_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        gids_num @ 0x60 : 16;
        gid @ 0x80 : tail;
    }

    /// Input of `QUERY_HCA_VPORT_GID`.
    pub struct QueryHcaVportGidIn = "query_hca_vport_gid_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        port_num @ 0x4c : 4;
        vport_number @ 0x50 : 16;
        gid_index @ 0x70 : 16;
    }

    /// Output of `QUERY_HCA_VPORT_CONTEXT`.
    pub struct QueryHcaVportContextOut = "query_hca_vport_context_out", 0x210 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        hca_vport_context @ 0x80 : HcaVportContext;
    }

    /// Input of `QUERY_HCA_VPORT_CONTEXT`.
    pub struct QueryHcaVportContextIn = "query_hca_vport_context_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        port_num @ 0x4c : 4;
        vport_number @ 0x50 : 16;
    }

    /// Output of `QUERY_ESW_VPORT_CONTEXT`.
    pub struct QueryEswVportContextOut = "query_esw_vport_context_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        esw_vport_context @ 0x80 : EswVportContext;
    }

    /// Input of `QUERY_ESW_VPORT_CONTEXT`.
    pub struct QueryEswVportContextIn = "query_esw_vport_context_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        vport_number @ 0x50 : 16;
    }

    /// Output of `DESTROY_ESW_VPORT`.
    pub struct DestroyEswVportOut = "destroy_esw_vport_out", 0xc bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_ESW_VPORT`.
    pub struct DestroyEswVportIn = "destroy_esw_vport_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        vport_num @ 0x50 : 16;
    }

    /// Output of `MODIFY_ESW_VPORT_CONTEXT`.
    pub struct ModifyEswVportContextOut = "modify_esw_vport_context_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Which fields `MODIFY_ESW_VPORT_CONTEXT` changes.
    pub struct EswVportContextFieldsSelect = "esw_vport_context_fields_select", 0x4 bytes {
        fdb_to_vport_reg_c_id @ 0x1b : 1;
        vport_cvlan_insert @ 0x1c : 1;
        vport_svlan_insert @ 0x1d : 1;
        vport_cvlan_strip @ 0x1e : 1;
        vport_svlan_strip @ 0x1f : 1;
    }

    /// Input of `MODIFY_ESW_VPORT_CONTEXT`.
    pub struct ModifyEswVportContextIn = "modify_esw_vport_context_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        vport_number @ 0x50 : 16;
        field_select @ 0x60 : EswVportContextFieldsSelect;
        esw_vport_context @ 0x80 : EswVportContext;
    }

    /// Output of `CREATE_ESW_VPORT`.
    pub struct CreateEswVportOut = "create_esw_vport_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        vport_num @ 0x70 : 16;
    }

    /// Input of `CREATE_ESW_VPORT`.
    pub struct CreateEswVportIn = "create_esw_vport_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        managed_vhca_id @ 0x50 : 16;
    }

    /// Output of `MODIFY_VPORT_STATE`.
    pub struct ModifyVportStateOut = "modify_vport_state_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `MODIFY_VPORT_STATE`.
    pub struct ModifyVportStateIn = "modify_vport_state_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        vport_number @ 0x50 : 16;
        max_tx_speed @ 0x60 : 16;
        ingress_connect @ 0x70 : 1;
        egress_connect @ 0x71 : 1;
        ingress_connect_valid @ 0x72 : 1;
        egress_connect_valid @ 0x73 : 1;
        admin_state @ 0x78 : 4;
    }

    /// Output of `MODIFY_NIC_VPORT_CONTEXT`.
    pub struct ModifyNicVportContextOut = "modify_nic_vport_context_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Which fields `MODIFY_NIC_VPORT_CONTEXT` changes.
    pub struct ModifyNicVportFieldSelect = "modify_nic_vport_field_select", 0x4 bytes {
        affiliation @ 0x12 : 1;
        disable_uc_local_lb @ 0x14 : 1;
        disable_mc_local_lb @ 0x15 : 1;
        node_guid @ 0x16 : 1;
        port_guid @ 0x17 : 1;
        min_inline @ 0x18 : 1;
        mtu @ 0x19 : 1;
        change_event @ 0x1a : 1;
        promisc @ 0x1b : 1;
        permanent_address @ 0x1c : 1;
        addresses_list @ 0x1d : 1;
        roce_en @ 0x1e : 1;
    }

    /// Input of `MODIFY_NIC_VPORT_CONTEXT`.
    pub struct ModifyNicVportContextIn = "modify_nic_vport_context_in", 0x200 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        vport_number @ 0x50 : 16;
        field_select @ 0x60 : ModifyNicVportFieldSelect;
        nic_vport_context @ 0x800 : NicVportContext;
    }

    /// Output of `MODIFY_HCA_VPORT_CONTEXT`.
    pub struct ModifyHcaVportContextOut = "modify_hca_vport_context_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `MODIFY_HCA_VPORT_CONTEXT`.
    pub struct ModifyHcaVportContextIn = "modify_hca_vport_context_in", 0x210 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        port_num @ 0x4c : 4;
        vport_number @ 0x50 : 16;
        hca_vport_context @ 0x80 : HcaVportContext;
    }

    /// Output of `DELETE_VXLAN_UDP_DPORT`.
    pub struct DeleteVxlanUdpDportOut = "delete_vxlan_udp_dport_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DELETE_VXLAN_UDP_DPORT`.
    pub struct DeleteVxlanUdpDportIn = "delete_vxlan_udp_dport_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        vxlan_udp_port @ 0x70 : 16;
    }

    /// Output of `DELETE_L2_TABLE_ENTRY`.
    pub struct DeleteL2TableEntryOut = "delete_l2_table_entry_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DELETE_L2_TABLE_ENTRY`.
    pub struct DeleteL2TableEntryIn = "delete_l2_table_entry_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        table_index @ 0xa8 : 24;
    }

    /// Output of `ADD_VXLAN_UDP_DPORT`.
    pub struct AddVxlanUdpDportOut = "add_vxlan_udp_dport_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `ADD_VXLAN_UDP_DPORT`.
    pub struct AddVxlanUdpDportIn = "add_vxlan_udp_dport_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        vxlan_udp_port @ 0x70 : 16;
    }
}
