//! Flushing of receive queues in error: each posted entry completes with an error (PRM "Receive Queue", field
//! `flush_in_error_en`; `infiniband/hw/mlx5` sets it for the queues of user space, mlx5e does not).
//!
//! Receive queues have no doorbell register, and what is posted to a queue in error must be flushed, too. So the record
//! of such a queue is looked at again and again, ever more seldom, and at once when the driver puts the queue into
//! error anew.

use std::collections::{BTreeSet, VecDeque};

use super::cq::Completion;
use super::hca::Hca;
use super::receive::error_cqe;
use super::rq::{ReceiveMemory, ReceiveQueue};
use crate::dma::{Bus, Stream};
use crate::prm::values::{CqeSyndrome, WqState};

/// `vendor_err_synd` of a flushed entry, as hardware has it.
pub const FLUSHED: u8 = 0xf9;
/// Entries that one portion of work flushes at most, and looks that it takes.
const ENTRIES_PER_PORTION: usize = 64;
/// The first look at a record comes after so many nanoseconds, every further one after twice the time.
const FIRST_LOOK: u64 = 1_000_000;
const MOST_DOUBLINGS: u32 = 12;

/// Receive queues with entries to flush, and those to look at again.
#[derive(Debug, Default)]
pub struct FlushSchedule {
    queues: VecDeque<u32>,
    looks: BTreeSet<(u64, u32)>,
}

impl FlushSchedule {
    /// Whether no queue waits for its turn.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// When the first queue is to be looked at again.
    pub fn next_deadline(&self) -> Option<u64> {
        self.looks.first().map(|(at, _)| *at)
    }

    /// Forgets all queues, as a teardown does.
    pub fn clear(&mut self) {
        *self = FlushSchedule::default();
    }

    /// Forgets a queue that is destroyed or leaves the error state. If it waits for its turn, that comes to nothing.
    pub fn forget(&mut self, rqn: u32, rq: &mut ReceiveQueue) {
        if let Some(at) = rq.look_at.take() {
            self.looks.remove(&(at, rqn));
        }
        rq.looks = 0;
    }
}

/// How many entries are posted and not consumed; `None` if that cannot be read or is more than the ring holds.
fn outstanding(rq: &ReceiveQueue, rqn: u32, bus: &mut Bus) -> Option<u16> {
    let ReceiveMemory::Inline(wq) = &rq.memory else { return Some(0) };
    let count = wq.posted_receives(Stream::Queue(rqn), bus)?.wrapping_sub(rq.consumed);
    (u64::from(count) <= 1 << wq.log_size).then_some(count)
}

impl Hca {
    /// A receive queue went into error: its posted entries are flushed if its context asks for it.
    pub fn flush_rq(&mut self, rqn: u32) {
        let Some(rq) = self.objects.rqs.get_mut(rqn).map(|entry| &mut entry.object) else { return };
        self.flushes.forget(rqn, rq);
        if rq.context.flush_in_error_en() != 0 && !std::mem::replace(&mut rq.flush_waits, true) {
            self.flushes.queues.push_back(rqn);
        }
    }

    /// Flushes a portion.
    pub fn run_flushes(&mut self, bus: &mut Bus, now: u64) {
        for _ in 0..ENTRIES_PER_PORTION {
            let Some((_, rqn)) = self.flushes.looks.first().copied().filter(|(at, _)| *at <= now) else { break };
            self.flushes.looks.pop_first();
            if let Some(rq) = self.objects.rqs.get_mut(rqn).map(|entry| &mut entry.object) {
                rq.look_at = None;
                if !std::mem::replace(&mut rq.flush_waits, true) {
                    self.flushes.queues.push_back(rqn);
                }
            }
        }
        for _ in 0..ENTRIES_PER_PORTION {
            let Some(rqn) = self.flushes.queues.pop_front() else { break };
            let Some(rq) = self.objects.rqs.get_mut(rqn).map(|entry| &mut entry.object) else { continue };
            rq.flush_waits = false;
            if self.flush_next(rqn, bus, now) {
                if let Some(rq) = self.objects.rqs.get_mut(rqn).map(|entry| &mut entry.object) {
                    rq.flush_waits = true;
                    self.flushes.queues.push_back(rqn);
                }
            }
        }
    }

    /// Flushes the next entry of a queue; whether there may be more now.
    fn flush_next(&mut self, rqn: u32, bus: &mut Bus, now: u64) -> bool {
        let Some(rq) = self.objects.rqs.get_mut(rqn).map(|entry| &mut entry.object) else { return false };
        if rq.state != WqState::ERR || rq.catastrophic {
            return false;
        }
        let (cqn, user_index, index) = (rq.context.cqn(), rq.context.user_index(), rq.consumed);
        match outstanding(rq, rqn, bus) {
            Some(0) => {
                self.look_again(rqn, now);
                return false;
            }
            Some(count) => {
                rq.consumed = index.wrapping_add(1);
                rq.posted = index.wrapping_add(count);
                rq.looks = 0;
            }
            None => {
                self.rq_catastrophe(rqn);
                return false;
            }
        }
        let cqe = error_cqe(rqn, user_index, index, CqeSyndrome::WR_FLUSH_ERR, FLUSHED);
        if self.complete(cqn, &cqe, Stream::Queue(rqn).into(), bus, now) == Completion::Dropped {
            self.rq_catastrophe(rqn);
            return false;
        }
        true
    }

    /// Nothing is posted now; the queue is looked at again later.
    fn look_again(&mut self, rqn: u32, now: u64) {
        let Some(rq) = self.objects.rqs.get_mut(rqn).map(|entry| &mut entry.object) else { return };
        // Entries of a pool are not the queue's to flush.
        if !matches!(rq.memory, ReceiveMemory::Inline(_)) || rq.look_at.is_some() {
            return;
        }
        let at = now.saturating_add(FIRST_LOOK << rq.looks);
        rq.looks = (rq.looks + 1).min(MOST_DOUBLINGS);
        rq.look_at = Some(at);
        self.flushes.looks.insert((at, rqn));
    }
}
