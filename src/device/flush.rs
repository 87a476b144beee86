//! Flushing of receive queues in error: each posted entry completes with an error (PRM "Receive Queue", field
//! `flush_in_error_en`; `infiniband/hw/mlx5` sets it for the queues of user space, mlx5e does not).
//!
//! Receive queues have no doorbell register, so that what is posted after the queue went into error is only seen
//! when the queue is put into error again.

use std::collections::VecDeque;

use super::cq::{CQE, Completion};
use super::hca::{Event, Hca};
use super::rq::{ReceiveMemory, ReceiveQueue};
use crate::dma::{Bus, Stream};
use crate::log_limit::limited;
use crate::prm::cqe::ErrCqe;
use crate::prm::eq::QpEvents;
use crate::prm::event::{EventQueueType, EventType};
use crate::prm::values::{CqeOpcode, CqeSyndrome, WqState};

/// `vendor_err_synd` of a flushed entry, as hardware has it.
pub const FLUSHED: u8 = 0xf9;
/// Entries that one portion of work flushes at most.
const ENTRIES_PER_PORTION: usize = 64;

/// Receive queues with entries to flush.
#[derive(Debug, Default)]
pub struct FlushSchedule {
    queues: VecDeque<u32>,
}

impl FlushSchedule {
    /// Whether queues wait.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Forgets all queues, as a teardown does.
    pub fn clear(&mut self) {
        self.queues.clear();
    }
}

/// How many entries are posted and not consumed; `None` if that cannot be read or is more than the ring holds.
fn outstanding(rq: &ReceiveQueue, rqn: u32, bus: &mut Bus) -> Option<u16> {
    let ReceiveMemory::Inline(wq) = &rq.memory else { return Some(0) };
    let count = wq.posted_receives(Stream::Qp(rqn), bus)?.wrapping_sub(rq.consumed);
    (u64::from(count) <= 1 << wq.log_size).then_some(count)
}

impl Hca {
    /// A receive queue went into error: its posted entries are flushed if its context asks for it.
    pub fn flush_rq(&mut self, rqn: u32) {
        let asked = self.objects.rqs.get(rqn).is_some_and(|entry| entry.object.context.flush_in_error_en() != 0);
        if asked && !self.flushes.queues.contains(&rqn) {
            self.flushes.queues.push_back(rqn);
        }
    }

    /// Flushes a portion.
    pub fn run_flushes(&mut self, bus: &mut Bus, now: u64) {
        for _ in 0..ENTRIES_PER_PORTION {
            let Some(rqn) = self.flushes.queues.pop_front() else { break };
            if self.flush_next(rqn, bus, now) {
                self.flushes.queues.push_back(rqn);
            }
        }
    }

    /// Flushes the next entry of a queue; whether there may be more.
    fn flush_next(&mut self, rqn: u32, bus: &mut Bus, now: u64) -> bool {
        let Some(rq) = self.objects.rqs.get_mut(rqn).map(|entry| &mut entry.object) else { return false };
        if rq.state != WqState::ERR {
            return false;
        }
        let (cqn, index) = (rq.context.cqn(), rq.consumed);
        match outstanding(rq, rqn, bus) {
            Some(0) => return false,
            Some(_) => rq.consumed = index.wrapping_add(1),
            None => {
                self.rq_catastrophe(rqn);
                return false;
            }
        }
        let mut cqe = ErrCqe::wrap([0; CQE]);
        cqe.set_opcode(CqeOpcode::RESP_ERR.0.into());
        cqe.set_syndrome(CqeSyndrome::WR_FLUSH_ERR.0.into());
        cqe.set_vendor_err_synd(FLUSHED.into());
        cqe.set_qpn(rqn);
        cqe.set_srqn_user_index(rq.context.user_index());
        cqe.set_wqe_counter(index.into());
        if self.complete(cqn, &cqe.into_inner(), bus, now) == Completion::Dropped {
            self.rq_catastrophe(rqn);
            return false;
        }
        true
    }

    /// A queue's record or its completions cannot be accessed: the driver learns it by event.
    fn rq_catastrophe(&mut self, rqn: u32) {
        limited!(warn, target: "cx10::rq", "rqn={rqn:#x}: catastrophic error");
        let mut event = QpEvents::zeroed();
        event.set_type(EventQueueType::RQ.0.into());
        event.set_qpn_rqn_sqn(rqn);
        let mut data = [0; 28];
        data.copy_from_slice(event.as_bytes());
        self.raise(Event { event_type: EventType::WQ_CATAS_ERROR.0, sub_type: 0, data, eqn: None });
    }
}
