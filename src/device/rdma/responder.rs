//! The receiving side of connected queue pairs: sequence, access, placement, answers (IBTA 9.7.4, 9.7.5, 9.8.3).
//!
//! Answers go out in the order of sequence numbers: an acknowledgement behind a READ waits until the READ's data is
//! sent, and an atomic operation is done when its turn comes, so that it is ordered after the READs before it.

mod answers;

use super::complete::vendor;
use super::memory::{Keys, Memory, MemoryError, MoveError, Reach};
use super::packet::{Head, Operation, Packet, Remote, Transport, aeth, psn_add, psn_diff};
use super::receive::NoEntry;
use super::state::{Failure, Incoming, Job, Resource, ResponderStall, Settings, transport};
use super::{PART_COST, Portion};
use crate::device::qp::State;
use crate::dma::StoreClass;
use crate::mkey::translate::Access;
use crate::prm::event::EventType;
use crate::prm::values::CqeSyndrome;

/// Answers that may wait; more are not acknowledged and come again.
const MAX_JOBS: usize = 256;
/// What a packet counts for beside its bytes, in bytes.
const PACKET_COST: usize = 1024;

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
    /// A page is not there yet.
    Faulted,
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
        if self.bus.reorders() {
            self.follow_fence(qpn, head.source);
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
        if responder.stall.is_some_and(ResponderStall::holds_requests) {
            responder.nak_sent = true;
            return self.answer(qpn, head.psn, aeth::RNR | settings.min_rnr);
        }
        responder.nak_sent = false;
        if stranger {
            return self.refuse_in_turn(qpn, head.psn, Refusal::Invalid);
        }
        match self.execute(qpn, &settings, packet) {
            Ok(()) => {}
            Err(Refusal::Lost) => {}
            Err(Refusal::NotReady | Refusal::Faulted) => {
                // What comes behind it comes again.
                if let Some(qp) = self.qp(qpn) {
                    qp.flow.responder.nak_sent = true;
                }
                self.answer(qpn, head.psn, aeth::RNR | settings.min_rnr);
            }
            Err(refusal) => self.refuse_in_turn(qpn, head.psn, refusal),
        }
    }

    /// What strong ordering made the sender of a request wait for is there before what the request does.
    #[cold]
    fn follow_fence(&mut self, qpn: u32, source: u32) {
        let fenced = self.qp(source).and_then(|sender| sender.flow.requester.fenced);
        if let Some(qp) = self.qp(qpn).filter(|_| fenced.is_some()) {
            qp.flow.responder.after = fenced;
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
        if let Some(cut) = self.place(qpn, settings, packet, message)? {
            if let Some(qp) = self.qp(qpn) {
                qp.flow.responder.expected = cut;
            }
            return Ok(());
        }
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

    /// Puts a packet of a SEND or WRITE where it belongs. If only the first packets of a train are received, its sender
    /// goes on with the sequence number that is answered.
    fn place(
        &mut self,
        qpn: u32,
        settings: &Settings,
        packet: &Packet,
        message: Option<Incoming>,
    ) -> Result<Option<u32>, Refusal> {
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
        let placed = if !send {
            let Remote { len, .. } = incoming.remote;
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
            self.put_key(qpn, settings, packet, (incoming.remote, incoming.offset))?
        } else {
            self.put_receive(qpn, settings, packet, incoming.offset)?
        };
        self.spent += placed as usize;
        let whole = placed == packet.len;
        incoming.offset = incoming.offset.saturating_add(placed);
        if let Some(qp) = self.qp(qpn) {
            qp.flow.responder.message = (!operation.ends() || !whole).then_some(incoming);
        }
        let cut = (!whole).then(|| head.first(placed / settings.mtu).next_psn());
        self.cut = cut;
        Ok(cut)
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
            if let Err(error) = self.hca.invalidate_remote(head.immediate, pd, qpn, self.bus) {
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

    /// Puts a packet of a WRITE to `remote`, behind its first `offset` bytes; answers how many bytes of it are received.
    fn put_key(
        &mut self,
        qpn: u32,
        settings: &Settings,
        packet: &Packet,
        (remote, offset): (Remote, u32),
    ) -> Result<u32, Refusal> {
        if packet.len == 0 {
            return Ok(0);
        }
        let (key, va) = (remote.key, remote.va.wrapping_add(offset.into()));
        let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
        let (who, access) = (settings.who(qpn), Access::RemoteWrite);
        let mut memory = Memory { keys, device: &mut self.hca.memic, bus: self.bus };
        let put = match memory.put_piece(packet, (who, access, key, va), StoreClass::Payload) {
            Some(put) => put,
            None => {
                let mut target = Reach::key(keys, who, access, key, va, packet.len.into());
                memory.put(packet, &mut target, StoreClass::Payload, settings.mtu)
            }
        };
        let put = match put {
            Ok(put) => put,
            Err(MoveError::Source(_)) => return Err(Refusal::Lost),
            Err(MoveError::Target(error)) => {
                let faulted = self.write_fault(qpn, settings, (remote, offset), packet.len, error);
                return Err(if faulted { Refusal::Faulted } else { Refusal::Access(error) });
            }
        };
        self.spent += put.parts * PART_COST;
        Ok(put.len)
    }

    /// Puts a packet into the receive entry in use; answers how many bytes of it are received.
    fn put_receive(&mut self, qpn: u32, settings: &Settings, packet: &Packet, offset: u32) -> Result<u32, Refusal> {
        if packet.len == 0 {
            return Ok(0);
        }
        let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
        let gone = Refusal::Operation(MemoryError::Gone);
        let entry = keys.objects.qps.get(qpn).and_then(|entry| entry.object.flow.responder.entry.as_deref());
        let entry = entry.ok_or(gone)?;
        let (bytes, at) = entry.data();
        let mut target =
            Reach::list(keys, entry.who(qpn), Access::LocalWrite, bytes, at, offset.into(), packet.len.into());
        let mut memory = Memory { keys, device: &mut self.hca.memic, bus: self.bus };
        let put = match memory.put(packet, &mut target, StoreClass::Payload, settings.mtu) {
            Ok(put) => put,
            Err(MoveError::Source(_)) => return Err(Refusal::Lost),
            Err(MoveError::Target(MemoryError::Short)) => return Err(Refusal::TooLong),
            Err(MoveError::Target(error)) => {
                let faulted = self.receive_fault(qpn, offset, packet.len, error);
                return Err(if faulted { Refusal::Faulted } else { Refusal::Operation(error) });
            }
        };
        self.spent += put.parts * PART_COST;
        Ok(put.len)
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
        let packets = if atomic { 1 } else { settings.packets(remote.len) };
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
            fence: head.fence,
            original: None,
            msn,
        });
        let job = match atomic {
            true => Job::Atomic { psn: head.psn, msn, again: false },
            false => {
                Job::Read { remote, pd: settings.pd, offset: 0, psn: head.psn, msn, again: false, fence: head.fence }
            }
        };
        responder.jobs.push_back(job);
        self.schedule(qpn);
        Ok(())
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
            Refusal::Invalid | Refusal::NotReady | Refusal::Lost | Refusal::Faulted => {
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
            Ok(Some(cut)) => {
                if let Some(qp) = self.qp(qpn) {
                    qp.flow.responder.expected = cut;
                }
            }
            Ok(None) => {
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
