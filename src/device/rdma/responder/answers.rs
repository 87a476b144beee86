//! Answers of the receiving side: acknowledgements, the data of READs, atomic operations, and all of them once more for
//! a sender who missed them (IBTA 9.7.5, 9.4.5).

use super::{MAX_JOBS, PACKET_COST, Refusal};
use crate::device::qp::State;
use crate::device::rdma::memory::{Keys, MemoryError, Reach, payload};
use crate::device::rdma::packet::{Head, Operation, Packet, Part, Payload, Remote, aeth, psn_add, psn_diff};
use crate::device::rdma::requester::Step;
use crate::device::rdma::state::{Job, Resource, ResponderStall, Settings, transport};
use crate::device::rdma::{PART_COST, Portion, TRAIN_PARTS, most_parts};
use crate::dma::bus::AtomicOp;
use crate::dma::{Fence, Store, StoreClass, Stream, Wait};
use crate::mkey::translate::{Access, KeyError, Place};

impl Portion<'_> {
    /// A request that was executed before: its answer was lost.
    pub(super) fn duplicate(&mut self, qpn: u32, settings: &Settings, packet: &Packet) {
        let head = &packet.head;
        self.count(settings.counter_set, |counters| &mut counters.duplicate_request);
        let Some(qp) = self.qp(qpn) else { return };
        let responder = &mut qp.flow.responder;
        if responder.jobs.len() >= MAX_JOBS {
            return;
        }
        if head.operation != Operation::ReadRequest && !head.operation.is_atomic() {
            // Its own number and no later one: that would say that answers behind it are lost.
            if head.ack_request {
                self.answer(qpn, head.last_psn(), aeth::ACK);
            }
            return;
        }
        let resource = responder.resources.iter().rev().find(|resource| {
            let ahead = psn_diff(head.psn, resource.first);
            ahead >= 0 && (ahead as u32) < resource.packets
        });
        let Some(resource) = resource.copied() else { return };
        if resource.operation != head.operation {
            return;
        }
        let job = if head.operation == Operation::ReadRequest {
            // A part of the READ may be asked for again; it must be a part.
            let ahead = psn_diff(head.psn, resource.first) as u32;
            let skipped = ahead.saturating_mul(settings.mtu);
            let wanted = Remote {
                va: resource.remote.va.wrapping_add(skipped.into()),
                key: resource.remote.key,
                len: resource.remote.len.saturating_sub(skipped),
            };
            if head.remote.va != wanted.va || head.remote.key != wanted.key || head.remote.len > wanted.len {
                return;
            }
            Job::Read {
                remote: head.remote,
                pd: resource.pd,
                offset: 0,
                psn: head.psn,
                msn: resource.msn,
                again: true,
                fence: Fence::None,
            }
        } else {
            Job::Atomic { psn: resource.first, msn: resource.msn, again: true }
        };
        // An answer that waits, or is under way, goes on from where it is asked for now.
        let last = psn_add(resource.first, resource.packets);
        let waiting = responder.jobs.iter_mut().find(|job| match job {
            Job::Read { psn, .. } | Job::Atomic { psn, .. } => {
                psn_diff(*psn, resource.first) >= 0 && psn_diff(*psn, last) < 0
            }
            Job::Ack { .. } | Job::Refuse { .. } => false,
        });
        match waiting {
            // It keeps its place among those that are counted.
            Some(waiting) => *waiting = job.counted_as(waiting),
            None => responder.jobs.push_back(job),
        }
        let first = match responder.jobs.front() {
            Some(Job::Read { psn, .. } | Job::Atomic { psn, .. }) => *psn == head.psn,
            _ => false,
        };
        if first && responder.stall.is_some_and(ResponderStall::holds_answers) {
            return self.not_ready_to_answer(qpn, head.psn);
        }
        self.schedule(qpn);
    }

    /// Answers with an AETH, in its turn. An acknowledgement waits for the end of the sender's turn: until then others
    /// join it. Where packets may be lost each message has its own, so that the loss of one delays one.
    pub(super) fn answer(&mut self, qpn: u32, psn: u32, syndrome: u8) {
        let at_once = syndrome != aeth::ACK || !self.hca.faults.is_empty();
        let Some(qp) = self.qp(qpn) else { return };
        let responder = &mut qp.flow.responder;
        let word = u32::from(syndrome) << 24 | responder.msn;
        if responder.jobs.is_empty() {
            if at_once {
                return self.send_answer(qpn, Operation::Ack, psn, word, 0, (Payload::None, 0), Fence::None);
            }
            responder.jobs.push_back(Job::Ack { psn, aeth: word });
            self.hca.rdma.acknowledging.push(qpn);
            return;
        }
        // Acknowledgements that follow each other are one: the furthest.
        if let Some(Job::Ack { psn: last, aeth }) = responder.jobs.back_mut() {
            if syndrome == aeth::ACK && *aeth >> 24 == u32::from(aeth::ACK) {
                if psn_diff(psn, *last) > 0 {
                    (*last, *aeth) = (psn, word);
                }
                return;
            }
        }
        responder.jobs.push_back(Job::Ack { psn, aeth: word });
        self.schedule(qpn);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one packet")]
    fn send_answer(
        &mut self,
        qpn: u32,
        operation: Operation,
        psn: u32,
        aeth: u32,
        original: u64,
        (payload, len): (Payload, u32),
        fence: Fence,
    ) {
        let Some(qp) = self.qp(qpn) else { return };
        let settings = qp.flow.settings;
        let Some(transport) = transport(qp.service()) else { return };
        let mut head = Head {
            transport,
            operation,
            source: qpn,
            dest: settings.remote_qpn,
            psn,
            train: settings.packets(len) - 1,
            aeth,
            original,
            fence,
            ..Head::default()
        };
        if self.address_connected(&settings, &mut head) {
            self.transmit(&Packet { head, len, payload });
        }
    }

    /// Sends the next answer, or the next part of it.
    pub(in crate::device::rdma) fn answer_step(&mut self, qpn: u32) -> Step {
        let Some(qp) = self.qp(qpn) else { return Step::Idle };
        if qp.flow.dead || !matches!(qp.state(), State::Rtr | State::Rts | State::SqErr | State::Sqd) {
            return Step::Idle;
        }
        let settings = qp.flow.settings;
        let responder = &qp.flow.responder;
        let Some(job) = responder.jobs.front().copied() else { return Step::Idle };
        if responder.stall.is_some_and(ResponderStall::holds_answers) {
            return Step::Idle;
        }
        self.spent += PACKET_COST / 2;
        match job {
            Job::Ack { psn, aeth } => {
                self.drop_job(qpn);
                self.send_answer(qpn, Operation::Ack, psn, aeth, 0, (Payload::None, 0), Fence::None);
            }
            Job::Read { remote, pd, offset, psn, msn, fence, .. } => {
                let settings = Settings { pd, ..settings };
                self.answer_read(qpn, &settings, remote, offset, (psn, msn), fence);
            }
            Job::Atomic { psn, msn, .. } => self.answer_atomic(qpn, &settings, psn, msn),
            Job::Refuse { psn, refusal } => {
                self.drop_job(qpn);
                self.refuse(qpn, psn, refusal);
            }
        }
        Step::Done
    }

    /// The peer of a READ or atomic whose page is waited for tries again, so that it takes no silence for a loss. The answer
    /// goes out as soon as there is one.
    #[cold]
    fn not_ready_to_answer(&mut self, qpn: u32, psn: u32) {
        let Some(qp) = self.qp(qpn) else { return };
        let flow = &qp.flow;
        let word = u32::from(aeth::RNR | flow.settings.min_rnr) << 24 | flow.responder.msn;
        self.send_answer(qpn, Operation::Ack, psn, word, 0, (Payload::None, 0), Fence::None);
    }

    fn drop_job(&mut self, qpn: u32) {
        if let Some(qp) = self.qp(qpn) {
            qp.flow.responder.jobs.pop_front();
            qp.flow.responder.scattered = false;
        }
    }

    fn answer_read(
        &mut self,
        qpn: u32,
        settings: &Settings,
        remote: Remote,
        offset: u32,
        (psn, msn): (u32, u32),
        fence: Fence,
    ) {
        let left = remote.len.saturating_sub(offset);
        let Some(qp) = self.qp(qpn) else { return };
        let scattered = qp.flow.responder.scattered;
        let most = self.train_bytes(settings, left, scattered);
        let count = left.min(most);
        let (first, last) = (offset == 0, left <= most);
        let va = remote.va.wrapping_add(offset.into());
        let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
        let who = settings.who(qpn);
        let data = match count {
            0 => Ok((Payload::None, 0)),
            _ => {
                let mut reach = Reach::key(keys, who, Access::RemoteRead, remote.key, va, count.into());
                let many = Payload::Key { key: remote.key, va, pd: settings.pd };
                payload(&mut reach, many, most_parts(settings.packets(count) - 1), self.bus)
            }
        };
        let (data, parts) = match data {
            Ok(data) => data,
            Err(MemoryError::Scattered) => {
                self.spent += TRAIN_PARTS * PART_COST;
                if let Some(qp) = self.qp(qpn) {
                    qp.flow.responder.scattered = true;
                }
                return;
            }
            Err(error) if self.answer_fault(qpn, settings, false, (remote, offset, count), error) => {
                return self.not_ready_to_answer(qpn, psn_add(psn, offset >> settings.log_mtu));
            }
            Err(error) => {
                let job = self.qp(qpn).and_then(|qp| qp.flow.responder.jobs.front().copied());
                self.drop_job(qpn);
                // Who still needs an answer that was given before keeps the key; this is a late request of one who got it.
                if job.is_some_and(|job| !job.is_new()) {
                    return;
                }
                return self.refuse(qpn, psn_add(psn, offset >> settings.log_mtu), Refusal::Access(error));
            }
        };
        self.spent += count as usize + parts * PART_COST;
        if let Some(Job::Read { offset: done, .. }) = self.qp(qpn).and_then(|qp| qp.flow.responder.jobs.front_mut()) {
            *done = offset + count;
        }
        let operation = match (first, last) {
            (true, true) => Operation::ReadOnly,
            (true, false) => Operation::ReadFirst,
            (false, true) => Operation::ReadLast,
            (false, false) => Operation::ReadMiddle,
        };
        let word = u32::from(aeth::ACK) << 24 | msn;
        self.send_answer(qpn, operation, psn_add(psn, offset >> settings.log_mtu), word, 0, (data, count), fence);
        if let Some(next) = self.cut.take() {
            // The rest of it goes packet by packet.
            let Some(qp) = self.qp(qpn) else { return };
            if let Some(Job::Read { offset: done, psn: first, .. }) = qp.flow.responder.jobs.front_mut() {
                *done = (psn_diff(next, *first).max(0) as u32).saturating_mul(settings.mtu);
                qp.flow.responder.scattered = true;
            }
        } else if last {
            self.drop_job(qpn);
        }
    }

    fn answer_atomic(&mut self, qpn: u32, settings: &Settings, psn: u32, msn: u32) {
        let Some(qp) = self.qp(qpn) else { return };
        let found = qp.flow.responder.resources.iter().rev().find(|resource| resource.first == psn).copied();
        let Some(resource) = found else { return self.drop_job(qpn) };
        let done = match resource.original {
            Some(original) => Ok(original),
            None => self.do_atomic(qpn, &Settings { pd: resource.pd, ..*settings }, &resource),
        };
        if done == Err(Refusal::Faulted) {
            return self.not_ready_to_answer(qpn, psn);
        }
        self.drop_job(qpn);
        let original = match done {
            Ok(original) => original,
            Err(refusal) => return self.refuse(qpn, psn, refusal),
        };
        if let Some(qp) = self.qp(qpn) {
            let saved = qp.flow.responder.resources.iter_mut().rev().find(|resource| resource.first == psn);
            if let Some(saved) = saved {
                saved.original = Some(original);
            }
        }
        let word = u32::from(aeth::ACK) << 24 | msn;
        self.send_answer(qpn, Operation::AtomicAck, psn, word, original, (Payload::None, 0), Fence::None);
    }

    fn do_atomic(&mut self, qpn: u32, settings: &Settings, resource: &Resource) -> Result<u64, Refusal> {
        let Remote { va, key, len } = resource.remote;
        let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
        let mut reach = Reach::key(keys, settings.who(qpn), Access::RemoteAtomic, key, va, len.into());
        let piece = match reach.advance() {
            Ok(Some(Part::Piece(piece))) => piece,
            Ok(_) => return Err(Refusal::Access(MemoryError::Gone)),
            Err(error) => {
                let faulted = self.answer_fault(qpn, settings, true, (resource.remote, 0, len), error);
                return Err(if faulted { Refusal::Faulted } else { Refusal::Access(error) });
            }
        };
        if piece.len != 8 {
            // Eight bytes in two places cannot change as one.
            return Err(Refusal::Access(MemoryError::Key(KeyError::PageRights)));
        }
        let operands = resource.operands;
        let op = match resource.operation {
            Operation::CompareSwap | Operation::MaskedCompareSwap => AtomicOp::CompareSwap {
                compare: operands.compare,
                compare_mask: operands.compare_mask,
                swap: operands.swap_add,
                swap_mask: operands.swap_add_mask,
            },
            _ => AtomicOp::FetchAdd { add: operands.swap_add, boundary: operands.swap_add_mask },
        };
        match piece.place {
            Place::Memory(at) => {
                let stream = Stream::Responder(qpn);
                let after = self.hca.objects.qps.get(qpn).and_then(|entry| entry.object.flow.responder.after);
                let wait = Wait { fence: resource.fence, after };
                let device = Store::device(StoreClass::AtomicResult, stream);
                let store = Store { key: piece.order, index: piece.key, wait, ..device };
                if !self.hca.atomics_big_endian {
                    return self.bus.atomic(store, at, op).map_err(|error| Refusal::Access(error.into()));
                }
                // A processor that writes the word makes the device try again, on the time of all queue pairs.
                let exchanged = exchange(op, |exchange| {
                    self.spent += PACKET_COST / 2;
                    self.bus.atomic(store, at, exchange)
                });
                exchanged.map_err(|error| Refusal::Access(error.into()))?.ok_or(Refusal::Operation(MemoryError::Gone))
            }
            Place::Device(at) => {
                let mut bytes = [0; 8];
                self.hca.memic.read(at, &mut bytes);
                let big = self.hca.atomics_big_endian;
                let original = if big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) };
                let changed = op.apply(original);
                self.hca.memic.write(at, &if big { changed.to_be_bytes() } else { changed.to_le_bytes() });
                Ok(original)
            }
            Place::Nowhere => Ok(0),
        }
    }
}

/// Does an operation on a big-endian word, as one step all the same: what is swapped in was made of what was there. Answers
/// what was there; `None` if a processor writes the word without end.
fn exchange<E>(op: AtomicOp, mut atomic: impl FnMut(AtomicOp) -> Result<u64, E>) -> Result<Option<u64>, E> {
    const TRIES: usize = 1000;
    let mut seen = 0;
    for _ in 0..TRIES {
        let swap = op.apply(u64::swap_bytes(seen)).swap_bytes();
        let found = atomic(AtomicOp::CompareSwap { compare: seen, compare_mask: u64::MAX, swap, swap_mask: u64::MAX })?;
        if found == seen {
            return Ok(Some(found.swap_bytes()));
        }
        seen = found;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_on_a_word_that_never_rests_comes_to_an_end() {
        let add = AtomicOp::FetchAdd { add: 2, boundary: 0 };
        let mut word = 5u64.to_be();
        let mut attempts = 0;
        let mut memory = |op: AtomicOp, disturbed: bool| {
            attempts += 1;
            let found = word;
            word = op.apply(found);
            if disturbed {
                word = word.wrapping_add(1);
            }
            Ok::<_, ()>(found)
        };
        assert_eq!(exchange(add, |op| memory(op, false)), Ok(Some(5)));
        assert_eq!(exchange(add, |op| memory(op, true)), Ok(None));
        assert_eq!(attempts, 1002, "the first knows the word at its second attempt");
    }
}
