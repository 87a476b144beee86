//! The receiving side of connected queue pairs: sequence, access, placement, answers (IBTA 9.7.4, 9.7.5, 9.8.3).
//!
//! Answers go out in the order of sequence numbers: an acknowledgement behind a READ waits until the READ's data is
//! sent, and an atomic operation is done when its turn comes, so that it is ordered after the READs before it.

use super::complete::vendor;
use super::memory::{Keys, Memory, MemoryError, MoveError, Reach, payload};
use super::packet::{Head, Operation, Packet, Payload, Remote, Transport, aeth, psn_add, psn_diff};
use super::receive::NoEntry;
use super::requester::Step;
use super::state::{Failure, Incoming, Job, Resource, Settings, transport};
use super::{PART_COST, Portion, TRAIN_PARTS, most_parts};
use crate::device::qp::State;
use crate::dma::bus::AtomicOp;
use crate::dma::{Store, StoreClass, Stream};
use crate::mkey::translate::{Access, Place};
use crate::prm::event::EventType;
use crate::prm::values::CqeSyndrome;

/// Answers that may wait; more are not acknowledged and come again.
const MAX_JOBS: usize = 256;
/// What a packet counts for beside its bytes, in bytes.
const PACKET_COST: usize = 256;

/// Why a request is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No receive entry is posted.
    NotReady,
    /// The request makes no sense, or the queue pair does not allow it.
    Invalid,
    /// The receive list is too short.
    TooLong,
    /// The key does not allow it.
    Access(MemoryError),
    /// The receive entry or its memory cannot be used.
    Operation(MemoryError),
    /// The payload is gone: the packet is as good as lost.
    Lost,
    /// The receiver cannot be told of the message.
    Unreported,
    /// The ring cannot be read.
    Broken,
}

impl Portion<'_> {
    /// A request came.
    pub(super) fn receive_request(&mut self, packet: &Packet) {
        let head = &packet.head;
        let qpn = head.dest;
        let Some(qp) = self.qp(qpn) else { return };
        let receives = matches!(qp.state(), State::Rtr | State::Rts | State::SqErr | State::Sqd);
        if qp.flow.dead || !receives || transport(qp.service()) != Some(head.transport) {
            return;
        }
        let mut settings = qp.flow.settings;
        if !self.addresses_match(&settings, head) {
            return;
        }
        if head.transport == Transport::Xrc {
            self.drop_stale_receive(qpn);
        }
        // The keys of a request are those of the receive queue that it names, if that is of the same XRC domain.
        let mut stranger = false;
        if head.transport == Transport::Xrc {
            let named = self.hca.objects.xrc_srqs.get(head.srqn).map(|entry| &entry.object.context);
            let named = named.filter(|context| context.xrcd() == settings.xrcd);
            stranger = named.is_none();
            settings.pd = named.map_or(0, |context| context.pd());
        }
        self.spent += PACKET_COST / 2;
        let Some(qp) = self.qp(qpn) else { return };
        if !std::mem::replace(&mut qp.flow.responder.established, true) && qp.state() == State::Rtr {
            self.hca.qp_event(qpn, EventType::COMM_EST);
        }
        if head.transport == Transport::Uc {
            return self.receive_unreliable(qpn, &settings, packet);
        }
        let Some(qp) = self.qp(qpn) else { return };
        let responder = &mut qp.flow.responder;
        match psn_diff(head.psn, responder.expected) {
            0 => {}
            ahead if ahead > 0 => {
                if !std::mem::replace(&mut responder.nak_sent, true) {
                    let expected = responder.expected;
                    self.count(settings.counter_set, |counters| &mut counters.out_of_sequence);
                    self.answer(qpn, expected, aeth::SEQUENCE);
                }
                return;
            }
            behind if behind.unsigned_abs() >= head.packets() => return self.duplicate(qpn, &settings, packet),
            _ => {
                // A train of which the first part was received before; it comes again from where the rest begins.
                let expected = responder.expected;
                return self.answer(qpn, expected, aeth::SEQUENCE);
            }
        }
        if responder.refusing || responder.jobs.len() >= MAX_JOBS {
            return;
        }
        responder.nak_sent = false;
        if stranger {
            return self.refuse_in_turn(qpn, head.psn, Refusal::Invalid);
        }
        match self.execute(qpn, &settings, packet) {
            Ok(()) => {}
            Err(Refusal::Lost) => {}
            Err(Refusal::NotReady) => {
                // What comes behind it comes again.
                if let Some(qp) = self.qp(qpn) {
                    qp.flow.responder.nak_sent = true;
                }
                self.answer(qpn, head.psn, aeth::RNR | settings.min_rnr);
            }
            Err(refusal) => self.refuse_in_turn(qpn, head.psn, refusal),
        }
    }

    /// Refuses a request when what came before it is answered. Nothing behind it is looked at.
    fn refuse_in_turn(&mut self, qpn: u32, psn: u32, refusal: Refusal) {
        let Some(qp) = self.qp(qpn) else { return };
        let responder = &mut qp.flow.responder;
        if responder.jobs.is_empty() {
            return self.refuse(qpn, psn, refusal);
        }
        responder.refusing = true;
        responder.jobs.push_back(Job::Refuse { psn, refusal });
        self.schedule(qpn);
    }

    /// Executes the request that comes next.
    fn execute(&mut self, qpn: u32, settings: &Settings, packet: &Packet) -> Result<(), Refusal> {
        let head = &packet.head;
        let Some(qp) = self.qp(qpn) else { return Err(Refusal::Lost) };
        let message = qp.flow.responder.message;
        let operation = head.operation;
        if operation == Operation::ReadRequest || operation.is_atomic() {
            if message.is_some() {
                return Err(Refusal::Invalid);
            }
            return self.accept(qpn, settings, head);
        }
        self.place(qpn, settings, packet, message)?;
        let Some(qp) = self.qp(qpn) else { return Ok(()) };
        let responder = &mut qp.flow.responder;
        responder.expected = head.next_psn();
        if operation.ends() {
            responder.msn = psn_add(responder.msn, 1);
            self.finish(qpn, settings.pd, head, packet.len, message)?;
        }
        if head.ack_request {
            self.answer(qpn, head.last_psn(), aeth::ACK);
        }
        Ok(())
    }

    /// Puts a packet of a SEND or WRITE where it belongs.
    fn place(
        &mut self,
        qpn: u32,
        settings: &Settings,
        packet: &Packet,
        message: Option<Incoming>,
    ) -> Result<(), Refusal> {
        let head = &packet.head;
        let operation = head.operation;
        let send = operation.is_send();
        let fits = match message {
            None => operation.starts(),
            Some(message) => !operation.starts() && message.send == send,
        };
        // Of the last packet of a train; those before it are full.
        let len = packet.len.checked_sub(head.train.saturating_mul(settings.mtu));
        let sized = len.is_some_and(|len| match (operation.starts() && head.train == 0, operation.ends()) {
            (_, false) => len == settings.mtu,
            (true, true) => len <= settings.mtu,
            (false, true) => len >= 1 && len <= settings.mtu,
        });
        if !fits || !sized || !(send || operation.is_write()) {
            return Err(Refusal::Invalid);
        }
        let mut incoming = message.unwrap_or(Incoming { send, offset: 0, remote: head.remote, first: head.psn });
        let end = u64::from(incoming.offset) + u64::from(packet.len);
        if end > settings.longest.max(1) {
            return Err(Refusal::Invalid);
        }
        if send && message.is_none() || operation.has_immediate() {
            self.take(qpn, head.srqn)?;
        }
        if !send {
            let Remote { va, key, len } = incoming.remote;
            if message.is_none() {
                if !settings.remote_write {
                    return Err(Refusal::Invalid);
                }
                // The whole range is checked before anything is written; that of a whole message is when it is put.
                if !operation.ends() || packet.len != len {
                    self.check_key(qpn, settings, Access::RemoteWrite, incoming.remote)?;
                }
                self.count(settings.counter_set, |counters| &mut counters.rx_write_requests);
            }
            // The last packet completes the length that the first one announced.
            if end > u64::from(len) || (operation.ends() && end != u64::from(len)) {
                return Err(Refusal::Invalid);
            }
            let at = va.wrapping_add(incoming.offset.into());
            self.put_key(qpn, settings, packet, key, at)?;
        } else {
            self.put_receive(qpn, packet, incoming.offset)?;
        }
        self.spent += packet.len as usize;
        incoming.offset = end as u32;
        if let Some(qp) = self.qp(qpn) {
            qp.flow.responder.message = (!operation.ends()).then_some(incoming);
        }
        Ok(())
    }

    fn take(&mut self, qpn: u32, srqn: u32) -> Result<(), Refusal> {
        self.take_receive(qpn, srqn).map_err(|error| match error {
            NoEntry::Empty => Refusal::NotReady,
            NoEntry::Broken => Refusal::Broken,
            NoEntry::NotThere => Refusal::Invalid,
        })
    }

    /// A message is complete: what it invalidates, and its completion.
    fn finish(&mut self, qpn: u32, pd: u32, head: &Head, len: u32, message: Option<Incoming>) -> Result<(), Refusal> {
        if head.operation.invalidates() {
            if let Err(error) = self.hca.invalidate_remote(head.immediate, pd, qpn) {
                return Err(Refusal::Access(error.into()));
            }
        }
        let bytes = message.map_or(0, |message| message.offset).saturating_add(len);
        if self.post_receive(qpn, head, bytes) { Ok(()) } else { Err(Refusal::Unreported) }
    }

    fn check_key(
        &self,
        qpn: u32,
        settings: &Settings,
        access: Access,
        Remote { va, key, len }: Remote,
    ) -> Result<(), Refusal> {
        let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
        let allowed = Reach::check_key(keys, settings.who(qpn), access, key, va, len.into());
        allowed.map_err(|error| Refusal::Access(error.into()))
    }

    fn put_key(&mut self, qpn: u32, settings: &Settings, packet: &Packet, key: u32, va: u64) -> Result<(), Refusal> {
        if packet.len == 0 {
            return Ok(());
        }
        let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
        let mut target = Reach::key(keys, settings.who(qpn), Access::RemoteWrite, key, va, packet.len.into());
        let mut memory = Memory { keys, device: &mut self.hca.memic, bus: self.bus };
        let put = memory.put(packet, &mut target, StoreClass::Payload).map_err(|error| match error {
            MoveError::Source(_) => Refusal::Lost,
            MoveError::Target(error) => Refusal::Access(error),
        });
        self.count_parts(&packet.head, put?);
        Ok(())
    }

    /// Counts the parts of memory that a packet went to. With many of them the packets behind it travel alone.
    pub(super) fn count_parts(&mut self, head: &Head, parts: usize) {
        self.spent += parts * PART_COST;
        if parts > TRAIN_PARTS && head.train > 0 && !head.operation.ends() {
            if let Some(sender) = self.qp(head.source) {
                sender.flow.requester.scattered = true;
            }
        }
    }

    /// Puts a packet into the receive entry in use.
    fn put_receive(&mut self, qpn: u32, packet: &Packet, offset: u32) -> Result<(), Refusal> {
        if packet.len == 0 {
            return Ok(());
        }
        let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
        let gone = Refusal::Operation(MemoryError::Gone);
        let entry = keys.objects.qps.get(qpn).and_then(|entry| entry.object.flow.responder.entry.as_deref());
        let entry = entry.ok_or(gone)?;
        let (bytes, at) = entry.data();
        let mut target =
            Reach::list(keys, entry.who(qpn), Access::LocalWrite, bytes, at, offset.into(), packet.len.into());
        let mut memory = Memory { keys, device: &mut self.hca.memic, bus: self.bus };
        let put = memory.put(packet, &mut target, StoreClass::Payload).map_err(|error| match error {
            MoveError::Source(_) => Refusal::Lost,
            MoveError::Target(MemoryError::Short) => Refusal::TooLong,
            MoveError::Target(error) => Refusal::Operation(error),
        });
        self.count_parts(&packet.head, put?);
        Ok(())
    }

    /// Accepts a READ or an atomic operation; it is answered in its turn.
    fn accept(&mut self, qpn: u32, settings: &Settings, head: &Head) -> Result<(), Refusal> {
        let operation = head.operation;
        let atomic = operation.is_atomic();
        let masked = matches!(operation, Operation::MaskedCompareSwap | Operation::MaskedFetchAdd);
        let allowed = match atomic {
            true => settings.remote_atomic && (settings.masked_atomics || !masked),
            false => settings.remote_read,
        };
        let mut remote = head.remote;
        if atomic {
            remote.len = 8;
        }
        if !allowed || u64::from(remote.len) > settings.longest.max(8) || (atomic && remote.va % 8 != 0) {
            return Err(Refusal::Invalid);
        }
        let Some(qp) = self.qp(qpn) else { return Err(Refusal::Lost) };
        let waiting = qp.flow.responder.jobs.iter().filter(|job| job.is_new()).count();
        if waiting >= settings.reads_in {
            return Err(Refusal::Invalid);
        }
        let access = if atomic { Access::RemoteAtomic } else { Access::RemoteRead };
        self.check_key(qpn, settings, access, remote)?;
        if atomic {
            self.count(settings.counter_set, |counters| &mut counters.rx_atomic_requests);
        } else {
            self.count(settings.counter_set, |counters| &mut counters.rx_read_requests);
        }
        let Some(qp) = self.qp(qpn) else { return Err(Refusal::Lost) };
        let responder = &mut qp.flow.responder;
        let packets = if atomic { 1 } else { remote.len.div_ceil(settings.mtu).max(1) };
        responder.expected = psn_add(responder.expected, packets);
        responder.msn = psn_add(responder.msn, 1);
        let msn = responder.msn;
        if responder.resources.len() >= settings.reads_in {
            responder.resources.pop_front();
        }
        responder.resources.push_back(Resource {
            first: head.psn,
            packets,
            operation,
            remote,
            pd: settings.pd,
            operands: head.operands,
            original: None,
            msn,
        });
        let job = match atomic {
            true => Job::Atomic { psn: head.psn, msn, again: false },
            false => Job::Read { remote, pd: settings.pd, offset: 0, psn: head.psn, msn, again: false },
        };
        responder.jobs.push_back(job);
        self.schedule(qpn);
        Ok(())
    }

    /// A request that was executed before: its answer was lost.
    fn duplicate(&mut self, qpn: u32, settings: &Settings, packet: &Packet) {
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
            Job::Read { remote: head.remote, pd: resource.pd, offset: 0, psn: head.psn, msn: resource.msn, again: true }
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
        self.schedule(qpn);
    }

    /// Answers with an AETH, in its turn. An acknowledgement waits for the end of the sender's turn: until then others
    /// join it. Where packets may be lost each message has its own, so that the loss of one delays one.
    fn answer(&mut self, qpn: u32, psn: u32, syndrome: u8) {
        let at_once = syndrome != aeth::ACK || !self.hca.faults.is_empty();
        let Some(qp) = self.qp(qpn) else { return };
        let responder = &mut qp.flow.responder;
        let word = u32::from(syndrome) << 24 | responder.msn;
        if responder.jobs.is_empty() {
            if at_once {
                return self.send_answer(qpn, Operation::Ack, psn, word, 0, Payload::None, 0);
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
        payload: Payload,
        len: u32,
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
            train: len.div_ceil(settings.mtu.max(1)).max(1) - 1,
            aeth,
            original,
            ..Head::default()
        };
        if self.address_connected(&settings, &mut head) {
            self.transmit(Packet { head, len, payload });
        }
    }

    /// Sends the next answer, or the next part of it.
    pub(super) fn answer_step(&mut self, qpn: u32) -> Step {
        let Some(qp) = self.qp(qpn) else { return Step::Idle };
        if qp.flow.dead || !matches!(qp.state(), State::Rtr | State::Rts | State::SqErr | State::Sqd) {
            return Step::Idle;
        }
        let settings = qp.flow.settings;
        let Some(job) = qp.flow.responder.jobs.front().copied() else { return Step::Idle };
        self.spent += PACKET_COST / 2;
        match job {
            Job::Ack { psn, aeth } => {
                self.drop_job(qpn);
                self.send_answer(qpn, Operation::Ack, psn, aeth, 0, Payload::None, 0);
            }
            Job::Read { remote, pd, offset, psn, msn, .. } => {
                let settings = Settings { pd, ..settings };
                self.answer_read(qpn, &settings, remote, offset, psn, msn);
            }
            Job::Atomic { psn, msn, .. } => self.answer_atomic(qpn, &settings, psn, msn),
            Job::Refuse { psn, refusal } => {
                self.drop_job(qpn);
                self.refuse(qpn, psn, refusal);
            }
        }
        Step::Done
    }

    fn drop_job(&mut self, qpn: u32) {
        if let Some(qp) = self.qp(qpn) {
            qp.flow.responder.jobs.pop_front();
            qp.flow.responder.scattered = false;
        }
    }

    fn answer_read(&mut self, qpn: u32, settings: &Settings, remote: Remote, offset: u32, psn: u32, msn: u32) {
        let left = remote.len.saturating_sub(offset);
        let Some(qp) = self.qp(qpn) else { return };
        let scattered = qp.flow.responder.scattered;
        let most = self.train_bytes(settings, scattered);
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
                payload(&mut reach, many, most_parts(count.div_ceil(settings.mtu) - 1), self.bus)
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
            Err(error) => {
                let job = self.qp(qpn).and_then(|qp| qp.flow.responder.jobs.front().copied());
                self.drop_job(qpn);
                // Who still needs an answer that was given before keeps the key; this is a late request of one who got it.
                if job.is_some_and(|job| !job.is_new()) {
                    return;
                }
                return self.refuse(qpn, psn_add(psn, offset / settings.mtu), Refusal::Access(error));
            }
        };
        self.spent += count as usize + parts * PART_COST;
        if last {
            self.drop_job(qpn);
        } else if let Some(Job::Read { offset: done, .. }) =
            self.qp(qpn).and_then(|qp| qp.flow.responder.jobs.front_mut())
        {
            *done = offset + count;
        }
        let operation = match (first, last) {
            (true, true) => Operation::ReadOnly,
            (true, false) => Operation::ReadFirst,
            (false, true) => Operation::ReadLast,
            (false, false) => Operation::ReadMiddle,
        };
        let word = u32::from(aeth::ACK) << 24 | msn;
        self.send_answer(qpn, operation, psn_add(psn, offset / settings.mtu), word, 0, data, count);
    }

    fn answer_atomic(&mut self, qpn: u32, settings: &Settings, psn: u32, msn: u32) {
        self.drop_job(qpn);
        let Some(qp) = self.qp(qpn) else { return };
        let found = qp.flow.responder.resources.iter().rev().find(|resource| resource.first == psn).copied();
        let Some(resource) = found else { return };
        let original = match resource.original {
            Some(original) => original,
            None => match self.do_atomic(qpn, &Settings { pd: resource.pd, ..*settings }, &resource) {
                Ok(original) => original,
                Err(error) => return self.refuse(qpn, psn, Refusal::Access(error)),
            },
        };
        if let Some(qp) = self.qp(qpn) {
            let saved = qp.flow.responder.resources.iter_mut().rev().find(|resource| resource.first == psn);
            if let Some(saved) = saved {
                saved.original = Some(original);
            }
        }
        let word = u32::from(aeth::ACK) << 24 | msn;
        self.send_answer(qpn, Operation::AtomicAck, psn, word, original, Payload::None, 0);
    }

    fn do_atomic(&mut self, qpn: u32, settings: &Settings, resource: &Resource) -> Result<u64, MemoryError> {
        let Remote { va, key, len } = resource.remote;
        let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
        let mut reach = Reach::key(keys, settings.who(qpn), Access::RemoteAtomic, key, va, len.into());
        let Some(super::packet::Part::Piece(piece)) = reach.advance()? else { return Err(MemoryError::Gone) };
        if piece.len != 8 {
            // Eight bytes in two places cannot change as one.
            return Err(MemoryError::Key(crate::mkey::translate::KeyError::PageRights));
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
                let store = Store { class: StoreClass::AtomicResult, stream: Stream::Qp(qpn), key: piece.order };
                if !self.hca.atomics_big_endian {
                    return Ok(self.bus.atomic(store, at, op)?);
                }
                // As one step all the same: what is swapped in was made of what was there.
                const TRIES: usize = 1000;
                let mut seen = 0;
                for _ in 0..TRIES {
                    let swap = op.apply(u64::swap_bytes(seen)).swap_bytes();
                    let exchange =
                        AtomicOp::CompareSwap { compare: seen, compare_mask: u64::MAX, swap, swap_mask: u64::MAX };
                    let found = self.bus.atomic(store, at, exchange)?;
                    if found == seen {
                        return Ok(found.swap_bytes());
                    }
                    seen = found;
                }
                // A processor that writes the word without end.
                Err(MemoryError::Gone)
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

    /// Refuses a request for good: the peer learns why, and the queue pair is in error.
    fn refuse(&mut self, qpn: u32, psn: u32, refusal: Refusal) {
        log::debug!(target: "cx10::rdma", "qpn={qpn:#x} psn={psn:#x}: {refusal:?}");
        self.hca.rdma.traffic.refused += 1;
        let (syndrome, local, reason) = match refusal {
            Refusal::Access(error) => (aeth::ACCESS, CqeSyndrome::LOCAL_ACCESS_ERR, vendor(error)),
            Refusal::Operation(error) => (aeth::OPERATION, CqeSyndrome::LOCAL_PROT_ERR, vendor(error)),
            Refusal::TooLong => (aeth::INVALID_REQUEST, CqeSyndrome::LOCAL_LENGTH_ERR, vendor(MemoryError::Short)),
            Refusal::Broken | Refusal::Unreported => (aeth::OPERATION, CqeSyndrome::LOCAL_QP_OP_ERR, 0x84),
            Refusal::Invalid | Refusal::NotReady | Refusal::Lost => {
                (aeth::INVALID_REQUEST, CqeSyndrome::REMOTE_INVAL_REQ_ERR, 0x85)
            }
        };
        let reliable = self.qp(qpn).is_some_and(|qp| transport(qp.service()).is_some_and(Transport::reliable));
        if reliable {
            // What waits before it is answered no more: the queue pair stops here.
            if let Some(qp) = self.qp(qpn) {
                qp.flow.responder.jobs.clear();
            }
            self.answer(qpn, psn, syndrome);
        }
        match refusal {
            Refusal::Access(_) => self.count_for(qpn, |counters| &mut counters.resp_remote_access_errors),
            // With a receive entry its completion counts.
            Refusal::Invalid if !self.qp(qpn).is_some_and(|qp| qp.flow.responder.taken) => {
                self.count_for(qpn, |counters| &mut counters.resp_remote_invalid_request);
            }
            _ => {}
        }
        if refusal == Refusal::Unreported {
            // The event of the completion queue says why.
            return self.enter_error(qpn);
        }
        if refusal == Refusal::Broken {
            return self.catastrophe(qpn, "the receive ring cannot be read");
        }
        if !self.post_receive_error(qpn, Failure { syndrome: local, vendor: reason }) {
            let event = match refusal {
                Refusal::Access(_) => EventType::WQ_ACCESS_ERROR,
                _ => EventType::WQ_INVAL_REQ_ERROR,
            };
            self.hca.qp_event(qpn, event);
        }
        self.enter_error(qpn);
    }

    /// Unreliable connections: what is out of sequence or not allowed is dropped with the rest of its message.
    fn receive_unreliable(&mut self, qpn: u32, settings: &Settings, packet: &Packet) {
        let head = &packet.head;
        let Some(qp) = self.qp(qpn) else { return };
        let responder = &mut qp.flow.responder;
        let ahead = psn_diff(head.psn, responder.expected);
        if ahead != 0 {
            self.count(settings.counter_set, |counters| &mut counters.out_of_sequence);
            let Some(qp) = self.qp(qpn) else { return };
            // The receive entry of a message that is lost serves the next one.
            qp.flow.responder.message = None;
        }
        let Some(qp) = self.qp(qpn) else { return };
        let responder = &mut qp.flow.responder;
        responder.expected = head.next_psn();
        if head.operation.starts() {
            responder.message = None;
        } else if responder.message.is_none() {
            return;
        }
        let message = responder.message;
        let unknown =
            head.operation == Operation::ReadRequest || head.operation.is_atomic() || head.operation.invalidates();
        let result = match unknown {
            true => Err(Refusal::Invalid),
            false => self.place(qpn, settings, packet, message),
        };
        match result {
            Ok(()) => {
                if head.operation.ends() {
                    let bytes = message.map_or(0, |message| message.offset).saturating_add(packet.len);
                    self.post_receive(qpn, head, bytes);
                }
            }
            Err(refusal @ (Refusal::TooLong | Refusal::Operation(_) | Refusal::Broken)) => {
                self.refuse(qpn, head.psn, refusal);
            }
            Err(_) => {
                if let Some(qp) = self.qp(qpn) {
                    qp.flow.responder.message = None;
                }
            }
        }
    }
}
