//! Completions of queue pairs, and what an error does to one (PRM "Completion Queue Entry", "QP Error"; kernel
//! `infiniband/hw/mlx5/cq.c`).

use super::Portion;
use super::memory::MemoryError;
use super::packet::{Head, Operation};
use super::receive::NoEntry;
use super::requester::Step;
use super::state::{Failure, Started};
use crate::device::counters::QCounter;
use crate::device::cq::{CQE, Completed, Completion};
use crate::device::flush::FLUSHED;
use crate::device::hca::{Event, Hca};
use crate::device::qp::{QueuePair, Service, State};
use crate::dma::Stream;
use crate::log_limit::limited;
use crate::mkey::translate::KeyError;
use crate::prm::cqe::{Cqe, ErrCqe};
use crate::prm::eq::QpEvents;
use crate::prm::event::{EventQueueType, EventType};
use crate::prm::values::{CqeOpcode, CqeSyndrome, WqeOpcode};

/// `ctrl.ce`: complete always; complete always and ask for an event.
const CE_ALWAYS: u8 = 2;
const CE_EVENT: u8 = 3;

/// Doublings of the time between two looks at the receive ring of a queue pair in error.
pub const MOST_LOOKS: u32 = 12;

/// The queue pair number of general services on the wire.
pub const GSI_QPN: u32 = 1;
/// How flushed entries fail.
const FLUSH: Failure = Failure { syndrome: CqeSyndrome::WR_FLUSH_ERR, vendor: FLUSHED };

/// The only partition key.
pub const P_KEY: u32 = 0xffff;

/// `vendor_err_synd` of memory that cannot be accessed: what was wrong with it.
pub fn vendor(error: MemoryError) -> u8 {
    match error {
        MemoryError::Key(error) => match error {
            KeyError::NoSuchKey => 0x51,
            KeyError::WrongVariant => 0x52,
            KeyError::Free => 0x53,
            KeyError::WrongPd => 0x54,
            KeyError::WrongQp => 0x55,
            KeyError::Rights => 0x56,
            KeyError::Bounds => 0x57,
            KeyError::NotPresent | KeyError::Absent => 0x58,
            KeyError::PageRights => 0x59,
            KeyError::TooDeep => 0x5a,
        },
        MemoryError::Bus(_) => 0x5b,
        MemoryError::Short => 0x5c,
        MemoryError::Gone => 0x5d,
        MemoryError::Scattered => 0x5e,
    }
}

impl Hca {
    /// Raises an event of a queue pair.
    pub(super) fn qp_event(&mut self, qpn: u32, event: EventType) {
        let mut events = QpEvents::zeroed();
        events.set_type(EventQueueType::QP.0.into());
        events.set_qpn_rqn_sqn(qpn);
        let mut data = [0; 28];
        data.copy_from_slice(events.as_bytes());
        self.raise(Event { event_type: event.0, sub_type: 0, data, eqn: None });
    }

    /// Counts in a Q counter set.
    pub(in crate::device) fn count_q(&mut self, set: u32, counter: fn(&mut QCounter) -> &mut u32) {
        if let Some(entry) = self.objects.q_counters.get_mut(set) {
            let counter = counter(&mut entry.object);
            *counter = counter.wrapping_add(1);
        }
    }
}

impl Portion<'_> {
    /// The queue pair.
    #[inline]
    pub(super) fn qp(&mut self, qpn: u32) -> Option<&mut QueuePair> {
        self.hca.objects.qps.get_mut(qpn).map(|entry| &mut entry.object)
    }

    pub(super) fn count(&mut self, set: u32, counter: fn(&mut QCounter) -> &mut u32) {
        if set != 0 {
            self.hca.count_q(set, counter);
        }
    }

    /// Counts in the counter set of a queue pair.
    pub(super) fn count_for(&mut self, qpn: u32, counter: fn(&mut QCounter) -> &mut u32) {
        let set = self.qp(qpn).map_or(0, |qp| qp.flow.settings.counter_set);
        self.count(set, counter);
    }

    /// Completes entries from the oldest on, as far as they are acknowledged.
    pub(super) fn complete_sends(&mut self, qpn: u32) {
        use super::packet::psn_diff;
        loop {
            let now = self.now;
            let Some(qp) = self.qp(qpn) else { return };
            let requester = &mut qp.flow.requester;
            let front = loop {
                let Some(front) = requester.started.front().copied() else { return };
                if qp.flow.dead || psn_diff(requester.unacked, front.end()) < 0 {
                    return;
                }
                requester.started.pop_front();
                if requester.cursor == 0 {
                    requester.offset = 0;
                }
                requester.cursor = requester.cursor.saturating_sub(1);
                requester.progress_at = now;
                let silent = front.ce != CE_ALWAYS && front.ce != CE_EVENT;
                if !silent || front.responds() || front.failure.is_some() {
                    break front;
                }
            };
            if front.responds() {
                // The next one at this index is another entry.
                requester.reading_loaded = None;
                requester.reads = requester.reads.saturating_sub(1);
                if front.small_fence {
                    requester.small_fences = requester.small_fences.saturating_sub(1);
                }
            }
            if let Some(failure) = front.failure {
                self.fail_send(qpn, &front, failure);
                return;
            }
            if front.ce == CE_ALWAYS || front.ce == CE_EVENT {
                self.post_send(qpn, &front);
            }
        }
    }

    fn post_send(&mut self, qpn: u32, started: &Started) {
        let now = self.now;
        let Some(qp) = self.qp(qpn) else { return };
        let settings = &qp.flow.settings;
        let cqn = settings.cqn_send;
        let of = Completed { stream: Stream::Requester(qpn), after: qp.flow.requester.acknowledged };
        let mut cqe = Cqe::wrap([0; CQE]);
        cqe.set_opcode(CqeOpcode::REQ.0.into());
        cqe.set_send_wqe_opcode(started.opcode.0.into());
        cqe.set_qpn(qpn);
        cqe.set_srqn_user_index(settings.user_index);
        cqe.set_wqe_counter(started.index.into());
        // Bytes that came back; the driver asks for READs only.
        cqe.set_byte_cnt(if started.responds() { started.received } else { 0 });
        cqe.set_timestamp(now);
        self.post(qpn, cqn, &cqe.into_inner(), of);
    }

    /// Posts a completion; `false` if there is no room for it. The queue pair then cannot go on.
    fn post(&mut self, qpn: u32, cqn: u32, cqe: &[u8; CQE], of: Completed) -> bool {
        if self.hca.complete(cqn, cqe, of, self.bus, self.now) == Completion::Posted {
            return true;
        }
        let Some(qp) = self.qp(qpn) else { return false };
        if std::mem::replace(&mut qp.flow.dead, true) {
            return false;
        }
        let set = qp.flow.settings.counter_set;
        self.count(set, |counters| &mut counters.cq_overflow);
        self.enter_error(qpn);
        self.hca.qp_event(qpn, EventType::WQ_CATAS_ERROR);
        false
    }

    /// An entry failed: its completion says why, and the queue pair stops.
    fn fail_send(&mut self, qpn: u32, started: &Started, failure: Failure) {
        log::debug!(
            target: "cx10::rdma",
            "qpn={qpn:#x} index={:#x}: {} fails, syndrome {} vendor {:#x}",
            started.index, started.opcode, failure.syndrome, failure.vendor
        );
        self.hca.rdma.traffic.failed += 1;
        self.post_send_error(qpn, started.index, started.opcode, failure);
        self.count_failure(qpn, failure.syndrome);
        let Some(qp) = self.qp(qpn) else { return };
        if matches!(qp.service(), Service::Uc | Service::Ud | Service::Qp1) && qp.state() == State::Rts {
            // Unreliable services stop sending only (IBTA 10.3.1.7).
            qp.set_state(State::SqErr);
            let requester = &mut qp.flow.requester;
            requester.cursor = 0;
            requester.offset = 0;
            self.schedule(qpn);
        } else {
            self.enter_error(qpn);
        }
    }

    fn count_failure(&mut self, qpn: u32, syndrome: CqeSyndrome) {
        let counter: fn(&mut QCounter) -> &mut u32 = match syndrome {
            CqeSyndrome::LOCAL_LENGTH_ERR => |c| &mut c.req_local_length_error,
            CqeSyndrome::LOCAL_QP_OP_ERR => |c| &mut c.local_operation_error,
            CqeSyndrome::LOCAL_PROT_ERR => |c| &mut c.req_local_protection,
            CqeSyndrome::MW_BIND_ERR => |c| &mut c.req_mw_binding,
            CqeSyndrome::BAD_RESP_ERR => |c| &mut c.req_bad_response,
            CqeSyndrome::REMOTE_INVAL_REQ_ERR => |c| &mut c.req_remote_invalid_request,
            CqeSyndrome::REMOTE_ACCESS_ERR => |c| &mut c.req_remote_access_errors,
            CqeSyndrome::REMOTE_OP_ERR => |c| &mut c.req_remote_operation_errors,
            CqeSyndrome::TRANSPORT_RETRY_EXC_ERR => |c| &mut c.req_transport_retries_exceeded,
            CqeSyndrome::RNR_RETRY_EXC_ERR => |c| &mut c.req_rnr_retries_exceeded,
            _ => return,
        };
        self.count_for(qpn, counter);
    }

    /// Posts a completion with an error for a send entry.
    pub(super) fn post_send_error(&mut self, qpn: u32, index: u16, opcode: WqeOpcode, failure: Failure) {
        let Some(qp) = self.qp(qpn) else { return };
        let settings = &qp.flow.settings;
        let (cqn, set) = (settings.cqn_send, settings.counter_set);
        let of = Completed { stream: Stream::Requester(qpn), after: qp.flow.requester.acknowledged };
        let mut cqe = ErrCqe::wrap([0; CQE]);
        cqe.set_opcode(CqeOpcode::REQ_ERR.0.into());
        cqe.set_syndrome(failure.syndrome.0.into());
        cqe.set_vendor_err_synd(failure.vendor.into());
        cqe.set_send_wqe_opcode(opcode.0.into());
        cqe.set_qpn(qpn);
        cqe.set_srqn_user_index(settings.user_index);
        cqe.set_wqe_counter(index.into());
        self.count(set, |counters| &mut counters.req_cqe_error);
        if failure.syndrome == CqeSyndrome::WR_FLUSH_ERR {
            self.count(set, |counters| &mut counters.req_cqe_flush_error);
        }
        self.post(qpn, cqn, &cqe.into_inner(), of);
    }

    /// Completes the receive entry in use, if there is one, with a message that `head` ended; `false` if the completion
    /// is lost.
    pub(super) fn post_receive(&mut self, qpn: u32, head: &Head, bytes: u32) -> bool {
        let now = self.now;
        let Some(qp) = self.qp(qpn) else { return false };
        let general = qp.service() == Service::Qp1;
        let responder = &mut qp.flow.responder;
        if !std::mem::replace(&mut responder.taken, false) {
            return true;
        }
        let Some(entry) = &responder.entry else { return false };
        let mut cqe = Cqe::wrap([0; CQE]);
        let opcode = match head.operation {
            Operation::WriteLastImm | Operation::WriteOnlyImm => CqeOpcode::RESP_WR_IMM,
            operation if operation.has_immediate() => CqeOpcode::RESP_SEND_IMM,
            operation if operation.invalidates() => CqeOpcode::RESP_SEND_INV,
            _ => CqeOpcode::RESP_SEND,
        };
        cqe.set_opcode(opcode.0.into());
        cqe.set_se(u32::from(head.solicited));
        cqe.set_qpn(qpn);
        cqe.set_srqn_user_index(entry.user_index);
        cqe.set_wqe_counter(entry.index.into());
        cqe.set_immediate(if general { P_KEY } else { head.immediate });
        cqe.set_byte_cnt(bytes);
        cqe.set_timestamp(now);
        cqe.set_grh(1);
        const L3_IPV6: u32 = 1;
        const L3_IPV4: u32 = 2;
        cqe.set_roce_l3_type(if is_v4(&head.address.dest) { L3_IPV4 } else { L3_IPV6 });
        cqe.set_rqpn(if head.source_qp != 0 { head.source_qp } else { head.source });
        let cqn = entry.cqn;
        self.post(qpn, cqn, &cqe.into_inner(), Stream::Responder(qpn).into())
    }

    /// Completes the receive entry in use with an error; `false` if there is none.
    pub(super) fn post_receive_error(&mut self, qpn: u32, failure: Failure) -> bool {
        self.drop_stale_receive(qpn);
        let Some(qp) = self.qp(qpn) else { return false };
        let set = qp.flow.settings.counter_set;
        let responder = &mut qp.flow.responder;
        if !std::mem::replace(&mut responder.taken, false) {
            return false;
        }
        let Some(entry) = &responder.entry else { return false };
        let mut cqe = ErrCqe::wrap([0; CQE]);
        cqe.set_opcode(CqeOpcode::RESP_ERR.0.into());
        cqe.set_syndrome(failure.syndrome.0.into());
        cqe.set_vendor_err_synd(failure.vendor.into());
        cqe.set_qpn(qpn);
        cqe.set_srqn_user_index(entry.user_index);
        cqe.set_wqe_counter(entry.index.into());
        let cqn = entry.cqn;
        self.count(set, |counters| &mut counters.resp_cqe_error);
        let counter: Option<fn(&mut QCounter) -> &mut u32> = match failure.syndrome {
            CqeSyndrome::WR_FLUSH_ERR => Some(|c| &mut c.resp_cqe_flush_error),
            CqeSyndrome::LOCAL_LENGTH_ERR => Some(|c| &mut c.resp_local_length_error),
            CqeSyndrome::LOCAL_PROT_ERR => Some(|c| &mut c.resp_local_protection),
            CqeSyndrome::LOCAL_QP_OP_ERR => Some(|c| &mut c.resp_local_qp_error),
            CqeSyndrome::REMOTE_INVAL_REQ_ERR => Some(|c| &mut c.resp_remote_invalid_request),
            _ => None,
        };
        if let Some(counter) = counter {
            self.count(set, counter);
        }
        self.post(qpn, cqn, &cqe.into_inner(), Stream::Responder(qpn).into());
        true
    }

    /// Moves a queue pair to the error state: what is under way is dropped, what is posted gets flushed.
    pub(super) fn enter_error(&mut self, qpn: u32) {
        let Some(qp) = self.qp(qpn) else { return };
        if qp.state() == State::Err {
            return;
        }
        log::debug!(target: "cx10::rdma", "qpn={qpn:#x}: {:?} -> Err", qp.state());
        qp.set_state(State::Err);
        self.hca.qp_in_error(qpn);
    }

    /// A ring or record cannot be read, or makes no sense.
    pub(super) fn catastrophe(&mut self, qpn: u32, what: &str) {
        limited!(warn, target: "cx10::rdma", "qpn={qpn:#x}: catastrophic error: {what}");
        let Some(qp) = self.qp(qpn) else { return };
        if std::mem::replace(&mut qp.flow.dead, true) {
            return;
        }
        self.enter_error(qpn);
        self.hca.qp_event(qpn, EventType::WQ_CATAS_ERROR);
    }

    /// One step of flushing; whether there is more to do at once.
    pub(super) fn flush(&mut self, qpn: u32) -> bool {
        let Some(qp) = self.qp(qpn) else { return false };
        let (state, shared) = (qp.state(), qp.flow.settings.shared);
        if qp.flow.dead {
            if std::mem::take(&mut qp.flow.last_entry_due) {
                self.hca.last_wqe_reached(qpn);
            }
            return false;
        }
        let requester = &mut qp.flow.requester;
        if let Some(started) = requester.started.pop_front() {
            self.post_send_error(qpn, started.index, started.opcode, FLUSH);
            return true;
        }
        match self.next_entry(qpn) {
            Some((index, opcode)) => {
                self.post_send_error(qpn, index, opcode, FLUSH);
                return true;
            }
            None if self.qp(qpn).is_none_or(|qp| qp.flow.dead) => return false,
            None => {}
        }
        if state != State::Err {
            return false;
        }
        if self.post_receive_error(qpn, FLUSH) {
            return true;
        }
        if shared.is_some() {
            let told = self.qp(qpn).is_some_and(|qp| std::mem::take(&mut qp.flow.last_entry_due));
            if told {
                self.hca.last_wqe_reached(qpn);
            }
            return false;
        }
        match self.receives_left(qpn) {
            Some(0) => {
                self.look_again(qpn);
                false
            }
            Some(_) => match self.take_receive(qpn, 0) {
                Ok(()) => {
                    if let Some(qp) = self.qp(qpn) {
                        qp.flow.looked = 0;
                    }
                    self.post_receive_error(qpn, FLUSH)
                }
                Err(NoEntry::Empty) => false,
                Err(_) => {
                    self.catastrophe(qpn, "the receive ring cannot be read");
                    false
                }
            },
            None => {
                self.catastrophe(qpn, "the receive doorbell record makes no sense");
                false
            }
        }
    }

    /// Flushes entries that were posted before the driver let the queue pair go on.
    pub(super) fn flush_rest(&mut self, qpn: u32, until: u16) -> Step {
        let Some(qp) = self.qp(qpn) else { return Step::Idle };
        if qp.flow.requester.next == until {
            qp.flow.requester.flush_until = None;
            return Step::Done;
        }
        let Some((index, opcode)) = self.next_entry(qpn) else { return Step::Idle };
        self.post_send_error(qpn, index, opcode, FLUSH);
        Step::Done
    }

    /// Receive rings have no doorbell: in error the record is looked at again and again, ever more seldom, because
    /// drivers post a last entry there and wait for it (kernel `mlx5_ib_drain_rq`).
    fn look_again(&mut self, qpn: u32) {
        const FIRST: u64 = 1_000_000;
        let now = self.now;
        let Some(qp) = self.qp(qpn) else { return };
        if !qp.flow.settings.own_ring || qp.flow.timer.is_some_and(|at| at > now) {
            return;
        }
        let delay = FIRST << qp.flow.looked;
        self.set_timer(qpn, Some(now.saturating_add(delay)));
    }
}

/// Whether a GID is an IPv4 address.
pub fn is_v4(gid: &[u8; 16]) -> bool {
    gid[..10] == [0; 10] && gid[10..12] == [0xff; 2]
}

impl Hca {
    /// Looks soon at what is posted to a queue pair that is in error: a driver says so before it posts its last entry.
    pub fn look_at_receives(&mut self, qpn: u32) {
        let Some(qp) = self.objects.qps.get_mut(qpn).map(|entry| &mut entry.object) else { return };
        qp.flow.looked = 0;
        let timer = qp.flow.timer.take();
        self.forget_qp_timer(qpn, timer);
        self.schedule_qp(qpn);
    }

    /// A queue pair is in error: its posted entries are flushed, and the driver learns that it holds none of a shared
    /// receive queue any more.
    pub fn qp_in_error(&mut self, qpn: u32) {
        let Some(qp) = self.objects.qps.get_mut(qpn).map(|entry| &mut entry.object) else { return };
        let requester = &mut qp.flow.requester;
        requester.rnr_until = None;
        requester.stall = None;
        requester.cursor = 0;
        requester.offset = 0;
        qp.flow.responder.stall = None;
        qp.flow.responder.jobs.clear();
        qp.flow.responder.message = None;
        qp.flow.looked = 0;
        // An XRC target takes from whichever queue a request names; it has no last entry of its own. The event goes out
        // when the entry in use, if there is one, is flushed.
        qp.flow.last_entry_due = qp.flow.settings.shared.is_some() && qp.service() != Service::Xrc;
        self.schedule_qp(qpn);
    }
}

#[cfg(test)]
mod tests {
    use super::is_v4;

    #[test]
    fn mapped_addresses_are_ipv4() {
        let mut gid = [0; 16];
        assert!(!is_v4(&gid));
        gid[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        assert!(is_v4(&gid));
        gid[0] = 0xfe;
        assert!(!is_v4(&gid));
    }
}
