//! Flushing of receive queues in error: each posted entry completes with an error (PRM "Receive Queue", field
//! `flush_in_error_en`; `infiniband/hw/mlx5` sets it for the queues of user space, mlx5e does not).
//!
//! Receive queues have no doorbell register, so that what is posted after the queue went into error is only seen
//! when the queue is put into error again.

use std::collections::VecDeque;

use super::cq::Completion;
use super::hca::Hca;
use super::receive::error_cqe;
use super::rq::{ReceiveMemory, ReceiveQueue};
use crate::dma::{Bus, Stream};
use crate::prm::values::{CqeSyndrome, WqState};

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
        if rq.state != WqState::ERR || rq.catastrophic {
            return false;
        }
        let (cqn, user_index, index) = (rq.context.cqn(), rq.context.user_index(), rq.consumed);
        match outstanding(rq, rqn, bus) {
            Some(0) => return false,
            Some(count) => {
                rq.consumed = index.wrapping_add(1);
                rq.posted = index.wrapping_add(count);
            }
            None => {
                self.rq_catastrophe(rqn);
                return false;
            }
        }
        let cqe = error_cqe(rqn, user_index, index, CqeSyndrome::WR_FLUSH_ERR, FLUSHED);
        if self.complete(cqn, &cqe, bus, now) == Completion::Dropped {
            self.rq_catastrophe(rqn);
            return false;
        }
        true
    }
}
