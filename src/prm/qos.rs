//! Scheduling, rate limits and link aggregation. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Attributes of a TSAR scheduling element.
    pub struct TsarElement = "tsar_element", 0x4 bytes {
        traffic_class @ 0x0 : 4;
        tsar_type @ 0x8 : 8;
    }

    /// Attributes of a vport scheduling element.
    pub struct VportElement = "vport_element", 0x4 bytes {
        eswitch_owner_vhca_id_valid @ 0x4 : 1;
        eswitch_owner_vhca_id @ 0x5 : 11;
        vport_number @ 0x10 : 16;
    }

    /// Attributes of a vport traffic class scheduling element.
    pub struct VportTcElement = "vport_tc_element", 0x4 bytes {
        traffic_class @ 0x0 : 4;
        eswitch_owner_vhca_id_valid @ 0x4 : 1;
        eswitch_owner_vhca_id @ 0x5 : 11;
        vport_number @ 0x10 : 16;
    }

    /// Attributes of a scheduling element, by its type.
    pub struct ElementAttributes = "element_attributes", 0x4 bytes {
        tsar @ 0x0 : TsarElement;
        vport @ 0x0 : VportElement, alias;
        vport_tc @ 0x0 : VportTcElement, alias;
    }

    /// Scheduling element context.
    pub struct SchedulingContext = "scheduling_context", 0x40 bytes {
        element_type @ 0x0 : 8;
        element_attributes @ 0x20 : ElementAttributes;
        parent_element_id @ 0x40 : 32;
        bw_share @ 0xa0 : 32;
        max_average_bw @ 0xc0 : 32;
        max_bw_obj_id @ 0xe0 : 32;
    }

    /// Output of `QUERY_SCHEDULING_ELEMENT`.
    pub struct QuerySchedulingElementOut = "query_scheduling_element_out", 0x80 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        scheduling_context @ 0x100 : SchedulingContext;
    }

    /// Input of `QUERY_SCHEDULING_ELEMENT`.
    pub struct QuerySchedulingElementIn = "query_scheduling_element_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        scheduling_hierarchy @ 0x40 : 8;
        scheduling_element_id @ 0x60 : 32;
    }

    /// Output of `MODIFY_SCHEDULING_ELEMENT`.
    pub struct ModifySchedulingElementOut = "modify_scheduling_element_out", 0x40 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `MODIFY_SCHEDULING_ELEMENT`.
    pub struct ModifySchedulingElementIn = "modify_scheduling_element_in", 0x80 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        scheduling_hierarchy @ 0x40 : 8;
        scheduling_element_id @ 0x60 : 32;
        modify_bitmask @ 0xa0 : 32;
        scheduling_context @ 0x100 : SchedulingContext;
    }

    /// Output of `DESTROY_SCHEDULING_ELEMENT`.
    pub struct DestroySchedulingElementOut = "destroy_scheduling_element_out", 0x40 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_SCHEDULING_ELEMENT`.
    pub struct DestroySchedulingElementIn = "destroy_scheduling_element_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        scheduling_hierarchy @ 0x40 : 8;
        scheduling_element_id @ 0x60 : 32;
    }

    /// Output of `CREATE_SCHEDULING_ELEMENT`.
    pub struct CreateSchedulingElementOut = "create_scheduling_element_out", 0x40 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        scheduling_element_id @ 0x80 : 32;
    }

    /// Input of `CREATE_SCHEDULING_ELEMENT`.
    pub struct CreateSchedulingElementIn = "create_scheduling_element_in", 0x80 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        scheduling_hierarchy @ 0x40 : 8;
        scheduling_context @ 0x100 : SchedulingContext;
    }

    /// Output of `SET_PP_RATE_LIMIT`.
    pub struct SetPpRateLimitOut = "set_pp_rate_limit_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Packet pacing rate.
    pub struct SetPpRateLimitContext = "set_pp_rate_limit_context", 0x30 bytes {
        rate_limit @ 0x0 : 32;
        burst_upper_bound @ 0x20 : 32;
        typical_packet_size @ 0x50 : 16;
    }

    /// Input of `SET_PP_RATE_LIMIT`.
    pub struct SetPpRateLimitIn = "set_pp_rate_limit_in", 0x40 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        rate_limit_index @ 0x50 : 16;
        ctx @ 0x80 : SetPpRateLimitContext;
    }

    /// Link aggregation context.
    pub struct Lagc = "lagc", 0x8 bytes {
        fdb_selection_mode @ 0x0 : 1;
        port_select_mode @ 0x15 : 3;
        lag_state @ 0x1d : 3;
        active_port @ 0x2c : 4;
        tx_remap_affinity_2 @ 0x34 : 4;
        tx_remap_affinity_1 @ 0x3c : 4;
    }

    /// Output of `CREATE_LAG`.
    pub struct CreateLagOut = "create_lag_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `CREATE_LAG`.
    pub struct CreateLagIn = "create_lag_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        ctx @ 0x40 : Lagc;
    }

    /// Output of `MODIFY_LAG`.
    pub struct ModifyLagOut = "modify_lag_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `MODIFY_LAG`.
    pub struct ModifyLagIn = "modify_lag_in", 0x18 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        field_select @ 0x60 : 32;
        ctx @ 0x80 : Lagc;
    }

    /// Output of `QUERY_LAG`.
    pub struct QueryLagOut = "query_lag_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        ctx @ 0x40 : Lagc;
    }

    /// Input of `QUERY_LAG`.
    pub struct QueryLagIn = "query_lag_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `DESTROY_LAG`.
    pub struct DestroyLagOut = "destroy_lag_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_LAG`.
    pub struct DestroyLagIn = "destroy_lag_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `CREATE_VPORT_LAG`.
    pub struct CreateVportLagOut = "create_vport_lag_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `CREATE_VPORT_LAG`.
    pub struct CreateVportLagIn = "create_vport_lag_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `DESTROY_VPORT_LAG`.
    pub struct DestroyVportLagOut = "destroy_vport_lag_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_VPORT_LAG`.
    pub struct DestroyVportLagIn = "destroy_vport_lag_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
    }
}
