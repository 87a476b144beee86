//! Counter objects: Q counters, which queues count their errors and retries in, and flow counters, which steering
//! rules count packets in (PRM "Queue Counters", "Flow Counters"; kernel `infiniband/hw/mlx5/counters.c`,
//! `fs_counters.c`).

use super::objects::Charged;
use super::vport::Traffic;
use crate::prm::counters::QueryQCounterOut;
use crate::prm::macros::paste;

macro_rules! q_counter {
    ($($field:ident,)*) => {
        /// A Q counter set, by the names of QUERY_Q_COUNTER.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the names are the PRM's")]
        pub struct QCounter {
            $(pub $field: u32,)*
        }

        impl QCounter {
            /// Writes the counters into the output of QUERY_Q_COUNTER.
            pub fn fill(&self, out: &mut QueryQCounterOut<Vec<u8>>) {
                paste! { $(out.[<set_ $field>](self.$field);)* }
            }
        }
    };
}

q_counter! {
    rx_write_requests,
    rx_read_requests,
    rx_atomic_requests,
    rx_dct_connect,
    out_of_buffer,
    out_of_sequence,
    duplicate_request,
    rnr_nak_retry_err,
    packet_seq_err,
    implied_nak_seq_err,
    local_ack_timeout_err,
    req_rnr_retries_exceeded,
    resp_local_length_error,
    req_local_length_error,
    resp_local_qp_error,
    local_operation_error,
    resp_local_protection,
    req_local_protection,
    resp_cqe_error,
    req_cqe_error,
    req_mw_binding,
    req_bad_response,
    req_remote_invalid_request,
    resp_remote_invalid_request,
    req_remote_access_errors,
    resp_remote_access_errors,
    req_remote_operation_errors,
    req_transport_retries_exceeded,
    cq_overflow,
    resp_cqe_flush_error,
    req_cqe_flush_error,
    roce_adp_retrans,
    roce_adp_retrans_to,
    roce_slow_restart,
    roce_slow_restart_cnps,
    roce_slow_restart_trans,
}

impl Charged for QCounter {}

/// A flow counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounter {
    /// Packets that hit rules with this counter.
    pub traffic: Traffic,
}

impl Charged for FlowCounter {}
