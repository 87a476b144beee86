//! Counters: Q counters, vport counters, flow counters, vNIC diagnostics. Source of every layout: `mlx5_ifc.h`.

crate::prm::layout! {
    #![list = LAYOUTS]

    /// vNIC diagnostic counters.
    pub struct VnicDiagnosticStatistics = "vnic_diagnostic_statistics", 0x200 bytes {
        counter_error_queues @ 0x0 : 32;
        total_error_queues @ 0x20 : 32;
        send_queue_priority_update_flow @ 0x40 : 32;
        nic_receive_steering_discard @ 0x80 : 64;
        receive_discard_vport_down @ 0xc0 : 64;
        transmit_discard_vport_down @ 0x100 : 64;
        async_eq_overrun @ 0x140 : 32;
        comp_eq_overrun @ 0x160 : 32;
        invalid_command @ 0x1a0 : 32;
        quota_exceeded_command @ 0x1c0 : 32;
        internal_rq_out_of_buffer @ 0x1e0 : 32;
        cq_overrun @ 0x200 : 32;
        eth_wqe_too_small @ 0x220 : 32;
        generated_pkt_steering_fail @ 0x300 : 64;
        handled_pkt_steering_fail @ 0x340 : 64;
        bar_uar_access @ 0x380 : 32;
        odp_local_triggered_page_fault @ 0x3a0 : 32;
        odp_remote_triggered_page_fault @ 0x3c0 : 32;
    }

    /// Packets and octets.
    pub struct TrafficCounter = "traffic_counter", 0x10 bytes {
        packets @ 0x0 : 64;
        octets @ 0x40 : 64;
    }

    /// Output of `QUERY_VNIC_ENV`.
    pub struct QueryVnicEnvOut = "query_vnic_env_out", 0x210 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        vport_env @ 0x80 : VnicDiagnosticStatistics;
    }

    /// Input of `QUERY_VNIC_ENV`.
    pub struct QueryVnicEnvIn = "query_vnic_env_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        vport_number @ 0x50 : 16;
    }

    /// Output of `QUERY_VPORT_COUNTER`.
    pub struct QueryVportCounterOut = "query_vport_counter_out", 0x210 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        received_errors @ 0x80 : TrafficCounter;
        transmit_errors @ 0x100 : TrafficCounter;
        received_ib_unicast @ 0x180 : TrafficCounter;
        transmitted_ib_unicast @ 0x200 : TrafficCounter;
        received_ib_multicast @ 0x280 : TrafficCounter;
        transmitted_ib_multicast @ 0x300 : TrafficCounter;
        received_eth_broadcast @ 0x380 : TrafficCounter;
        transmitted_eth_broadcast @ 0x400 : TrafficCounter;
        received_eth_unicast @ 0x480 : TrafficCounter;
        transmitted_eth_unicast @ 0x500 : TrafficCounter;
        received_eth_multicast @ 0x580 : TrafficCounter;
        transmitted_eth_multicast @ 0x600 : TrafficCounter;
        local_loopback @ 0x680 : TrafficCounter;
    }

    /// Input of `QUERY_VPORT_COUNTER`.
    pub struct QueryVportCounterIn = "query_vport_counter_in", 0x20 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        port_num @ 0x4c : 4;
        vport_number @ 0x50 : 16;
        clear @ 0xc0 : 1;
    }

    /// Output of `QUERY_Q_COUNTER`.
    pub struct QueryQCounterOut = "query_q_counter_out", 0x100 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        rx_write_requests @ 0x80 : 32;
        rx_read_requests @ 0xc0 : 32;
        rx_atomic_requests @ 0x100 : 32;
        rx_dct_connect @ 0x140 : 32;
        out_of_buffer @ 0x180 : 32;
        out_of_sequence @ 0x1c0 : 32;
        duplicate_request @ 0x200 : 32;
        rnr_nak_retry_err @ 0x240 : 32;
        packet_seq_err @ 0x280 : 32;
        implied_nak_seq_err @ 0x2c0 : 32;
        local_ack_timeout_err @ 0x300 : 32;
        req_rnr_retries_exceeded @ 0x380 : 32;
        resp_local_length_error @ 0x3c0 : 32;
        req_local_length_error @ 0x3e0 : 32;
        resp_local_qp_error @ 0x400 : 32;
        local_operation_error @ 0x420 : 32;
        resp_local_protection @ 0x440 : 32;
        req_local_protection @ 0x460 : 32;
        resp_cqe_error @ 0x480 : 32;
        req_cqe_error @ 0x4a0 : 32;
        req_mw_binding @ 0x4c0 : 32;
        req_bad_response @ 0x4e0 : 32;
        req_remote_invalid_request @ 0x500 : 32;
        resp_remote_invalid_request @ 0x520 : 32;
        req_remote_access_errors @ 0x540 : 32;
        resp_remote_access_errors @ 0x560 : 32;
        req_remote_operation_errors @ 0x580 : 32;
        req_transport_retries_exceeded @ 0x5a0 : 32;
        cq_overflow @ 0x5c0 : 32;
        resp_cqe_flush_error @ 0x5e0 : 32;
        req_cqe_flush_error @ 0x600 : 32;
        roce_adp_retrans @ 0x640 : 32;
        roce_adp_retrans_to @ 0x660 : 32;
        roce_slow_restart @ 0x680 : 32;
        roce_slow_restart_cnps @ 0x6a0 : 32;
        roce_slow_restart_trans @ 0x6c0 : 32;
    }

    /// Input of `QUERY_Q_COUNTER`.
    pub struct QueryQCounterIn = "query_q_counter_in", 0x20 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        other_vport @ 0x40 : 1;
        vport_number @ 0x50 : 16;
        clear @ 0xc0 : 1;
        aggregate @ 0xc1 : 1;
        counter_set_id @ 0xf8 : 8;
    }

    /// Output of `QUERY_FLOW_COUNTER`.
    pub struct QueryFlowCounterOut = "query_flow_counter_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        flow_statistics @ 0x80 : tail;
    }

    /// Input of `QUERY_FLOW_COUNTER`.
    pub struct QueryFlowCounterIn = "query_flow_counter_in", 0x20 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        clear @ 0xc0 : 1;
        num_of_counters @ 0xd0 : 16;
        flow_counter_id @ 0xe0 : 32;
    }

    /// Output of `DEALLOC_Q_COUNTER`.
    pub struct DeallocQCounterOut = "dealloc_q_counter_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DEALLOC_Q_COUNTER`.
    pub struct DeallocQCounterIn = "dealloc_q_counter_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        counter_set_id @ 0x58 : 8;
    }

    /// Output of `DEALLOC_FLOW_COUNTER`.
    pub struct DeallocFlowCounterOut = "dealloc_flow_counter_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
    }

    /// Input of `DEALLOC_FLOW_COUNTER`.
    pub struct DeallocFlowCounterIn = "dealloc_flow_counter_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        flow_counter_id @ 0x40 : 32;
    }

    /// Output of `ALLOC_Q_COUNTER`.
    pub struct AllocQCounterOut = "alloc_q_counter_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        counter_set_id @ 0x58 : 8;
    }

    /// Input of `ALLOC_Q_COUNTER`.
    pub struct AllocQCounterIn = "alloc_q_counter_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        uid @ 0x10 : 16;
        op_mod @ 0x30 : 16;
    }

    /// Output of `ALLOC_FLOW_COUNTER`.
    pub struct AllocFlowCounterOut = "alloc_flow_counter_out", 0x10 bytes {
        status @ 0x0 : 8;
        syndrome @ 0x20 : 32;
        flow_counter_id @ 0x40 : 32;
    }

    /// Input of `ALLOC_FLOW_COUNTER`.
    pub struct AllocFlowCounterIn = "alloc_flow_counter_in", 0x10 bytes {
        opcode @ 0x0 : 16;
        op_mod @ 0x30 : 16;
        flow_counter_bulk_log_size @ 0x73 : 5;
        flow_counter_bulk @ 0x78 : 8;
    }
}
