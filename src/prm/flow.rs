//! Flow tables, groups, entries and their actions. Source of every layout: `mlx5_ifc.h`.

use super::devx::{GeneralObjInCmdHdr, GeneralObjOutCmdHdr};
use super::flow_match::FteMatchParam;

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Input of `SYNC_STEERING`.
    pub struct SyncSteeringIn = "sync_steering_in", 0x20 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `SYNC_STEERING`.
    pub struct SyncSteeringOut = "sync_steering_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Flow entry destination.
    pub struct DestFormatStruct = "dest_format_struct", 0x8 bytes {
        destination_type @ 0x0 : 8;
        destination_id @ 0x8 : 24;
        destination_eswitch_owner_vhca_id_valid @ 0x20 : 1;
        packet_reformat @ 0x21 : 1;
        destination_table_type @ 0x28 : 8;
        destination_eswitch_owner_vhca_id @ 0x30 : 16;
    }

    /// Flow counter in a destination list.
    pub struct FlowCounterList = "flow_counter_list", 0x8 bytes {
        flow_counter_id @ 0x0 : 32;
    }

    /// Flow entry destination with packet reformat.
    pub struct ExtendedDestFormat = "extended_dest_format", 0x10 bytes {
        destination_entry @ 0x0 : DestFormatStruct;
        packet_reformat_id @ 0x40 : 32;
    }

    /// Element of a flow entry's destination list: destination or counter.
    pub struct DestFormatFlowCounterListAuto = "dest_format_flow_counter_list_auto", 0x10 bytes {
        extended_dest_format @ 0x0 : ExtendedDestFormat;
        flow_counter_list @ 0x0 : FlowCounterList, alias;
    }

    /// VLAN tag that a flow entry pushes.
    pub struct Vlan = "vlan", 0x4 bytes {
        ethtype @ 0x0 : 16;
        prio @ 0x10 : 3;
        cfi @ 0x13 : 1;
        vid @ 0x14 : 12;
    }

    /// Control part of a flow meter's ASO execution.
    pub struct ExeAsoCtrlFlowMeter = "exe_aso_ctrl_flow_meter", 0x4 bytes {
        return_reg_id @ 0x0 : 4;
        aso_type @ 0x4 : 4;
        action @ 0x1c : 1;
        init_color @ 0x1d : 2;
        meter_id @ 0x1f : 1;
    }

    /// Control part of an ASO execution, by its type.
    pub struct ExeAsoCtrl = "exe_aso_ctrl", 0x4 bytes {
        exe_aso_ctrl_flow_meter @ 0x0 : ExeAsoCtrlFlowMeter;
    }

    /// ASO that a flow entry executes.
    pub struct ExecuteAso = "execute_aso", 0x8 bytes {
        valid @ 0x0 : 1;
        aso_object_id @ 0x8 : 24;
        exe_aso_ctrl @ 0x20 : ExeAsoCtrl;
    }

    /// Flow entry context.
    pub struct FlowContext = "flow_context", 0x300 bytes {
        push_vlan @ 0x0 : Vlan;
        group_id @ 0x20 : 32;
        flow_tag @ 0x48 : 24;
        action @ 0x70 : 16;
        extended_destination @ 0x80 : 1;
        uplink_hairpin_en @ 0x81 : 1;
        flow_source @ 0x82 : 2;
        encrypt_decrypt_type @ 0x84 : 4;
        destination_list_size @ 0x88 : 24;
        flow_counter_list_size @ 0xa8 : 24;
        packet_reformat_id @ 0xc0 : 32;
        modify_header_id @ 0xe0 : 32;
        push_vlan_2 @ 0x100 : Vlan;
        encrypt_decrypt_obj_id @ 0x120 : 32;
        match_value @ 0x200 : FteMatchParam;
        execute_aso @ 0x1200 : [ExecuteAso; 4];
        destination @ 0x1800 : tail;
    }

    /// Output of `SET_FLOW_TABLE_ENTRY`.
    pub struct SetFteOut = "set_fte_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `SET_FLOW_TABLE_ENTRY`.
    pub struct SetFteIn = "set_fte_in", 0x340 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        other_eswitch @ 0x41 : 1;
        vport_number @ 0x50 : 16;
        table_type @ 0x80 : 8;
        eswitch_owner_vhca_id @ 0x90 : 16;
        table_id @ 0xa8 : 24;
        ignore_flow_level @ 0xc0 : 1;
        modify_enable_mask @ 0xd8 : 8;
        flow_index @ 0x100 : 32;
        flow_context @ 0x200 : FlowContext;
    }

    /// Flow entry destination.
    pub struct DestFormat = "dest_format", 0x8 bytes {
        destination_type @ 0x0 : 8;
        destination_id @ 0x8 : 24;
        destination_eswitch_owner_vhca_id_valid @ 0x20 : 1;
        packet_reformat @ 0x21 : 1;
        destination_eswitch_owner_vhca_id @ 0x30 : 16;
    }

    /// Root addresses of a flow table that software steers.
    pub struct SwOwnerIcmRootParams = "sw_owner_icm_root_params", 0x10 bytes {
        sw_owner_icm_root_1 @ 0x0 : 64;
        sw_owner_icm_root_0 @ 0x40 : 64;
    }

    /// Rule table context parameters of a flow table.
    pub struct RtcParams = "rtc_params", 0x10 bytes {
        rtc_id_0 @ 0x0 : 32;
        rtc_id_1 @ 0x20 : 32;
    }

    /// Flow table context.
    pub struct FlowTableContext = "flow_table_context", 0x28 bytes {
        reformat_en @ 0x0 : 1;
        decap_en @ 0x1 : 1;
        sw_owner @ 0x2 : 1;
        termination_table @ 0x3 : 1;
        table_miss_action @ 0x4 : 4;
        level @ 0x8 : 8;
        rtc_valid @ 0x10 : 1;
        log_size @ 0x18 : 8;
        table_miss_id @ 0x28 : 24;
        lag_master_next_table_id @ 0x48 : 24;
        sws @ 0xc0 : SwOwnerIcmRootParams;
        hws @ 0xc0 : RtcParams, alias;
    }

    /// Output of `QUERY_FLOW_TABLE`.
    pub struct QueryFlowTableOut = "query_flow_table_out", 0x40 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        flow_table_context @ 0xc0 : FlowTableContext;
    }

    /// Input of `QUERY_FLOW_TABLE`.
    pub struct QueryFlowTableIn = "query_flow_table_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        table_type @ 0x80 : 8;
        table_id @ 0xa8 : 24;
    }

    /// Output of `QUERY_FLOW_TABLE_ENTRY`.
    pub struct QueryFteOut = "query_fte_out", 0x340 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        flow_context @ 0x200 : FlowContext;
    }

    /// Input of `QUERY_FLOW_TABLE_ENTRY`.
    pub struct QueryFteIn = "query_fte_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        table_type @ 0x80 : 8;
        table_id @ 0xa8 : 24;
        flow_index @ 0x100 : 32;
    }

    /// Match mask of a match definer.
    pub struct MatchDefinerMatchMask = "match_definer_match_mask", 0x40 bytes {
        match_dw_8 @ 0xa0 : 32;
        match_dw_7 @ 0xc0 : 32;
        match_dw_6 @ 0xe0 : 32;
        match_dw_5 @ 0x100 : 32;
        match_dw_4 @ 0x120 : 32;
        match_dw_3 @ 0x140 : 32;
        match_dw_2 @ 0x160 : 32;
        match_dw_1 @ 0x180 : 32;
        match_dw_0 @ 0x1a0 : 32;
        match_byte_7 @ 0x1c0 : 8;
        match_byte_6 @ 0x1c8 : 8;
        match_byte_5 @ 0x1d0 : 8;
        match_byte_4 @ 0x1d8 : 8;
        match_byte_3 @ 0x1e0 : 8;
        match_byte_2 @ 0x1e8 : 8;
        match_byte_1 @ 0x1f0 : 8;
        match_byte_0 @ 0x1f8 : 8;
    }

    /// Match definer object.
    pub struct MatchDefiner = "match_definer", 0x80 bytes {
        modify_field_select @ 0x0 : 64;
        format_id @ 0x90 : 16;
        format_select_dw3 @ 0x100 : 8;
        format_select_dw2 @ 0x108 : 8;
        format_select_dw1 @ 0x110 : 8;
        format_select_dw0 @ 0x118 : 8;
        format_select_dw7 @ 0x120 : 8;
        format_select_dw6 @ 0x128 : 8;
        format_select_dw5 @ 0x130 : 8;
        format_select_dw4 @ 0x138 : 8;
        format_select_dw8 @ 0x158 : 8;
        format_select_byte3 @ 0x180 : 8;
        format_select_byte2 @ 0x188 : 8;
        format_select_byte1 @ 0x190 : 8;
        format_select_byte0 @ 0x198 : 8;
        format_select_byte7 @ 0x1a0 : 8;
        format_select_byte6 @ 0x1a8 : 8;
        format_select_byte5 @ 0x1b0 : 8;
        format_select_byte4 @ 0x1b8 : 8;
        match_mask @ 0x200 : [32; 16];
        match_mask_format @ 0x200 : MatchDefinerMatchMask, alias;
    }

    /// Input of `CREATE_MATCH_DEFINER`.
    pub struct CreateMatchDefinerIn = "create_match_definer_in", 0x90 bytes {
        general_obj_in_cmd_hdr @ 0x0 : GeneralObjInCmdHdr;
        obj_context @ 0x80 : MatchDefiner;
    }

    /// Output of `CREATE_MATCH_DEFINER`.
    pub struct CreateMatchDefinerOut = "create_match_definer_out", 0x10 bytes {
        general_obj_out_cmd_hdr @ 0x0 : GeneralObjOutCmdHdr;
    }

    /// Output of `QUERY_FLOW_GROUP`.
    pub struct QueryFlowGroupOut = "query_flow_group_out", 0x400 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        start_flow_index @ 0xe0 : 32;
        end_flow_index @ 0x120 : 32;
        match_criteria_enable @ 0x1f8 : 8;
        match_criteria @ 0x200 : FteMatchParam;
    }

    /// Input of `QUERY_FLOW_GROUP`.
    pub struct QueryFlowGroupIn = "query_flow_group_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        table_type @ 0x80 : 8;
        table_id @ 0xa8 : 24;
        group_id @ 0xc0 : 32;
    }

    /// Input of `PACKET_REFORMAT_CONTEXT`.
    pub struct PacketReformatContextIn = "packet_reformat_context_in", 0x8 bytes {
        reformat_type @ 0x0 : 8;
        reformat_param_0 @ 0xc : 4;
        reformat_data_size @ 0x16 : 10;
        reformat_param_1 @ 0x20 : 8;
        reformat_data @ 0x30 : [u8; 2];
        more_reformat_data @ 0x40 : tail;
    }

    /// Output of `QUERY_PACKET_REFORMAT_CONTEXT`.
    pub struct QueryPacketReformatContextOut = "query_packet_reformat_context_out", 0x1c bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        packet_reformat_context @ 0xe0 : tail;
    }

    /// Input of `QUERY_PACKET_REFORMAT_CONTEXT`.
    pub struct QueryPacketReformatContextIn = "query_packet_reformat_context_in", 0x20 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        packet_reformat_id @ 0x40 : 32;
    }

    /// Output of `ALLOC_PACKET_REFORMAT_CONTEXT`.
    pub struct AllocPacketReformatContextOut = "alloc_packet_reformat_context_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        packet_reformat_id @ 0x40 : 32;
    }

    /// Input of `ALLOC_PACKET_REFORMAT_CONTEXT`.
    pub struct AllocPacketReformatContextIn = "alloc_packet_reformat_context_in", 0x24 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        packet_reformat_context @ 0xe0 : PacketReformatContextIn;
    }

    /// Output of `DEALLOC_PACKET_REFORMAT_CONTEXT`.
    pub struct DeallocPacketReformatContextOut = "dealloc_packet_reformat_context_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DEALLOC_PACKET_REFORMAT_CONTEXT`.
    pub struct DeallocPacketReformatContextIn = "dealloc_packet_reformat_context_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        packet_reformat_id @ 0x40 : 32;
    }

    /// Input of `SET_ACTION`.
    pub struct SetActionIn = "set_action_in", 0x8 bytes {
        action_type @ 0x0 : 4;
        field @ 0x4 : 12;
        offset @ 0x13 : 5;
        length @ 0x1b : 5;
        data @ 0x20 : 32;
    }

    /// Input of `ADD_ACTION`.
    pub struct AddActionIn = "add_action_in", 0x8 bytes {
        action_type @ 0x0 : 4;
        field @ 0x4 : 12;
        data @ 0x20 : 32;
    }

    /// Input of `COPY_ACTION`.
    pub struct CopyActionIn = "copy_action_in", 0x8 bytes {
        action_type @ 0x0 : 4;
        src_field @ 0x4 : 12;
        src_offset @ 0x13 : 5;
        length @ 0x1b : 5;
        dst_field @ 0x24 : 12;
        dst_offset @ 0x33 : 5;
    }

    /// Modify-header action, by type.
    pub struct SetAddCopyActionInAuto = "set_add_copy_action_in_auto", 0x8 bytes {
        set_action_in @ 0x0 : SetActionIn;
        add_action_in @ 0x0 : AddActionIn, alias;
        copy_action_in @ 0x0 : CopyActionIn, alias;
    }

    /// Output of `ALLOC_MODIFY_HEADER_CONTEXT`.
    pub struct AllocModifyHeaderContextOut = "alloc_modify_header_context_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        modify_header_id @ 0x40 : 32;
    }

    /// Input of `ALLOC_MODIFY_HEADER_CONTEXT`.
    pub struct AllocModifyHeaderContextIn = "alloc_modify_header_context_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        table_type @ 0x60 : 8;
        num_of_actions @ 0x78 : 8;
        actions @ 0x80 : tail;
    }

    /// Output of `DEALLOC_MODIFY_HEADER_CONTEXT`.
    pub struct DeallocModifyHeaderContextOut = "dealloc_modify_header_context_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DEALLOC_MODIFY_HEADER_CONTEXT`.
    pub struct DeallocModifyHeaderContextIn = "dealloc_modify_header_context_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        modify_header_id @ 0x40 : 32;
    }

    /// Input of `QUERY_MODIFY_HEADER_CONTEXT`.
    pub struct QueryModifyHeaderContextIn = "query_modify_header_context_in", 0x20 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        modify_header_id @ 0x40 : 32;
    }

    /// Output of `DESTROY_FLOW_TABLE`.
    pub struct DestroyFlowTableOut = "destroy_flow_table_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_FLOW_TABLE`.
    pub struct DestroyFlowTableIn = "destroy_flow_table_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        other_eswitch @ 0x41 : 1;
        vport_number @ 0x50 : 16;
        table_type @ 0x80 : 8;
        eswitch_owner_vhca_id @ 0x90 : 16;
        table_id @ 0xa8 : 24;
    }

    /// Output of `DESTROY_FLOW_GROUP`.
    pub struct DestroyFlowGroupOut = "destroy_flow_group_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_FLOW_GROUP`.
    pub struct DestroyFlowGroupIn = "destroy_flow_group_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        other_eswitch @ 0x41 : 1;
        vport_number @ 0x50 : 16;
        table_type @ 0x80 : 8;
        eswitch_owner_vhca_id @ 0x90 : 16;
        table_id @ 0xa8 : 24;
        group_id @ 0xc0 : 32;
    }

    /// Output of `DELETE_FLOW_TABLE_ENTRY`.
    pub struct DeleteFteOut = "delete_fte_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DELETE_FLOW_TABLE_ENTRY`.
    pub struct DeleteFteIn = "delete_fte_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        other_eswitch @ 0x41 : 1;
        vport_number @ 0x50 : 16;
        table_type @ 0x80 : 8;
        eswitch_owner_vhca_id @ 0x90 : 16;
        table_id @ 0xa8 : 24;
        flow_index @ 0x100 : 32;
    }

    /// Output of `CREATE_FLOW_TABLE`.
    pub struct CreateFlowTableOut = "create_flow_table_out", 0x10 bytes {
        status @ 0x0 : 8;
        icm_address_63_40 @ 0x8 : 24;
        syndrome @ 0x20 : 32;
        icm_address_39_32 @ 0x40 : 8;
        table_id @ 0x48 : 24;
        icm_address_31_0 @ 0x60 : 32;
    }

    /// Input of `CREATE_FLOW_TABLE`.
    pub struct CreateFlowTableIn = "create_flow_table_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        other_eswitch @ 0x41 : 1;
        vport_number @ 0x50 : 16;
        table_type @ 0x80 : 8;
        eswitch_owner_vhca_id @ 0x90 : 16;
        flow_table_context @ 0xc0 : FlowTableContext;
    }

    /// Output of `CREATE_FLOW_GROUP`.
    pub struct CreateFlowGroupOut = "create_flow_group_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        group_id @ 0x48 : 24;
    }

    /// Input of `CREATE_FLOW_GROUP`.
    pub struct CreateFlowGroupIn = "create_flow_group_in", 0x400 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        other_eswitch @ 0x41 : 1;
        vport_number @ 0x50 : 16;
        table_type @ 0x80 : 8;
        group_type @ 0x8c : 4;
        eswitch_owner_vhca_id @ 0x90 : 16;
        table_id @ 0xa8 : 24;
        source_eswitch_owner_vhca_id_valid @ 0xc0 : 1;
        start_flow_index @ 0xe0 : 32;
        end_flow_index @ 0x120 : 32;
        match_definer_id @ 0x150 : 16;
        match_criteria_enable @ 0x1f8 : 8;
        match_criteria @ 0x200 : FteMatchParam;
    }

    /// Output of `SET_FLOW_TABLE_ROOT`.
    pub struct SetFlowTableRootOut = "set_flow_table_root_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `SET_FLOW_TABLE_ROOT`.
    pub struct SetFlowTableRootIn = "set_flow_table_root_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        other_eswitch @ 0x41 : 1;
        vport_number @ 0x50 : 16;
        eswitch_owner_vhca_id @ 0x70 : 16;
        table_type @ 0x80 : 8;
        table_of_other_vport @ 0x8f : 1;
        table_vport_number @ 0x90 : 16;
        table_id @ 0xa8 : 24;
        underlay_qpn @ 0xc8 : 24;
        table_eswitch_owner_vhca_id_valid @ 0xe0 : 1;
        table_eswitch_owner_vhca_id @ 0xf0 : 16;
    }

    /// Output of `MODIFY_FLOW_TABLE`.
    pub struct ModifyFlowTableOut = "modify_flow_table_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `MODIFY_FLOW_TABLE`.
    pub struct ModifyFlowTableIn = "modify_flow_table_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        other_eswitch @ 0x41 : 1;
        vport_number @ 0x50 : 16;
        modify_field_select @ 0x70 : 16;
        table_type @ 0x80 : 8;
        eswitch_owner_vhca_id @ 0x90 : 16;
        table_id @ 0xa8 : 24;
        flow_table_context @ 0xc0 : FlowTableContext;
    }
}
