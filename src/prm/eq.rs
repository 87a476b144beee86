//! Event queues. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// Event data: command completion, one bit per slot.
    pub struct CmdInterCompEvent = "cmd_inter_comp_event", 0x1c bytes {
        command_completion_vector @ 0x0 : 32;
    }

    /// Event data: a virtual lane is stalled.
    pub struct StallVlEvent = "stall_vl_event", 0x18 bytes {
        port_num @ 0x18 : 1;
        vl @ 0x1c : 4;
    }

    /// Event data: doorbell or BlueFlame congestion.
    pub struct DbBfCongestionEvent = "db_bf_congestion_event", 0x18 bytes {
        event_subtype @ 0x0 : 8;
        congestion_level @ 0x10 : 8;
    }

    /// Event data: GPIO.
    pub struct GpioEvent = "gpio_event", 0x1c bytes {
        gpio_event_hi @ 0x60 : 32;
        gpio_event_lo @ 0x80 : 32;
    }

    /// Event data: port state change.
    pub struct PortStateChangeEvent = "port_state_change_event", 0x1c bytes {
        port_num @ 0x40 : 4;
    }

    /// Event data: CQ error.
    pub struct CqError = "cq_error", 0x1c bytes {
        cqn @ 0x8 : 24;
        syndrome @ 0x58 : 8;
    }

    /// Event data: page fault of an incoming RDMA operation.
    pub struct RdmaPageFaultEvent = "rdma_page_fault_event", 0x1c bytes {
        bytes_committed @ 0x0 : 32;
        r_key @ 0x20 : 32;
        packet_len @ 0x50 : 16;
        rdma_op_len @ 0x60 : 32;
        rdma_va @ 0x80 : 64;
        rdma @ 0xc5 : 1;
        write @ 0xc6 : 1;
        requestor @ 0xc7 : 1;
        qp_number @ 0xc8 : 24;
    }

    /// Event data: page fault of a work queue entry.
    pub struct WqeAssociatedPageFaultEvent = "wqe_associated_page_fault_event", 0x1c bytes {
        bytes_committed @ 0x0 : 32;
        wqe_index @ 0x30 : 16;
        len @ 0x50 : 16;
        rdma @ 0xc5 : 1;
        write_read @ 0xc6 : 1;
        requestor @ 0xc7 : 1;
        qpn @ 0xc8 : 24;
    }

    /// Event data: event of a QP, RQ, SQ or SRQ.
    pub struct QpEvents = "qp_events", 0x1c bytes {
        r#type @ 0xa0 : 8;
        qpn_rqn_sqn @ 0xc8 : 24;
    }

    /// Event data: event of a DCT.
    pub struct DctEvents = "dct_events", 0x1c bytes {
        dct_number @ 0xc8 : 24;
    }

    /// Event data: completion on a CQ.
    pub struct CompEvent = "comp_event", 0x1c bytes {
        cq_number @ 0xc8 : 24;
    }

    /// Event queue context.
    pub struct Eqc = "eqc", 0x40 bytes {
        status @ 0x0 : 4;
        ec @ 0xd : 1;
        oi @ 0xe : 1;
        st @ 0x14 : 4;
        page_offset @ 0x54 : 6;
        log_eq_size @ 0x63 : 5;
        uar_page @ 0x68 : 24;
        intr @ 0xb4 : 12;
        log_page_size @ 0xc3 : 5;
        consumer_counter @ 0x148 : 24;
        producer_counter @ 0x168 : 24;
    }

    /// Output of `QUERY_EQ`.
    pub struct QueryEqOut = "query_eq_out", 0x110 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        eq_context_entry @ 0x80 : Eqc;
        event_bitmask @ 0x2c0 : 64;
        pas @ 0x880 : tail;
    }

    /// Input of `QUERY_EQ`.
    pub struct QueryEqIn = "query_eq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        eq_number @ 0x58 : 8;
    }

    /// Output of `DESTROY_EQ`.
    pub struct DestroyEqOut = "destroy_eq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DESTROY_EQ`.
    pub struct DestroyEqIn = "destroy_eq_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        eq_number @ 0x58 : 8;
    }

    /// Output of `CREATE_EQ`.
    pub struct CreateEqOut = "create_eq_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        eq_number @ 0x58 : 8;
    }

    /// Input of `CREATE_EQ`.
    pub struct CreateEqIn = "create_eq_in", 0x110 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
        eq_context_entry @ 0x80 : Eqc;
        event_bitmask @ 0x2c0 : [64; 4];
        pas @ 0x880 : tail;
    }

    /// Event data: the device asks for pages or gives them back.
    pub struct PagesReqEvent = "pages_req_event", 0x1c bytes {
        function_id @ 0x10 : 16;
        num_pages @ 0x20 : 32;
    }

    /// Event queue entry; the layout of `event_data` follows from `event_type`.
    pub struct Eqe = "eqe", 0x40 bytes {
        event_type @ 0x8 : 8;
        event_sub_type @ 0x18 : 8;
        event_data @ 0x100 : [u8; 28];
        signature @ 0x1f0 : 8;
        owner @ 0x1ff : 1;
    }

    /// Object type and id at the head of an event that belongs to a general object.
    pub struct AffiliatedEventHeader = "affiliated_event_header", 0x8 bytes {
        obj_type @ 0x10 : 16;
        obj_id @ 0x20 : 32;
    }
}
