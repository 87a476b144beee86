//! The sending side of a queue pair: entries are started, cut into packets, and completed when they are acknowledged
//! (IBTA 9.7.2 to 9.7.8, 9.8; kernel `infiniband/hw/mlx5/wr.c`).
//!
//! Go-back-N: a lost or refused packet is sent again with all behind it. Entries are read from the ring anew for
//! that; the driver may not touch them before they are completed, and if it does they fail.

mod responses;

use super::complete::vendor;
use super::entry::{EntryError, Ring, SendEntry, Unreadable};
use super::memory::{Keys, MemoryError, Reach, payload, payload_piece};
use super::packet::{Head, Operation, Packet, Part, Payload, Remote, Transport, psn_add, psn_diff};
use super::paging::UNRESOLVED;
use super::state::{Failure, Stall, Started, transport};
use super::umr::Poster;
use super::{PART_COST, Portion, TRAIN_PARTS, most_parts};
use crate::device::qp::{QueuePair, Service, State, WQEBB};
use crate::dma::{Bus, Stream};
use crate::mkey::translate::Access;
use crate::prm::values::{CqeSyndrome, WqeOpcode};

/// Sequence numbers that may wait for acknowledgement; half of the circle would be ambiguous.
const WINDOW: i32 = 1 << 20;
/// Entries of a queue pair that may be under way: what a guest can make the device remember is bounded.
const MAX_STARTED: usize = 512;
/// What an entry counts for beside its bytes, in bytes.
const ENTRY_COST: usize = 1024;
/// What a byte that a UMR goes through counts for.
const UMR_COST: usize = 4;

/// Fences of the control segment.
mod fence {
    use crate::dma::Fence;

    pub const SMALL: u8 = 1;
    pub const READS: u8 = 2;
    pub const STRONG: u8 = 3;
    pub const SMALL_AND_READS: u8 = 4;

    /// What the accesses of an entry wait for.
    pub fn of(field: u8) -> Fence {
        match field {
            SMALL => Fence::Local,
            READS | SMALL_AND_READS => Fence::Read,
            STRONG => Fence::Strong,
            _ => Fence::None,
        }
    }
}

/// How one step of a sending side went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Something was done.
    Done,
    /// There is nothing to do until something else happens.
    Idle,
}

impl Portion<'_> {
    /// One step: a packet of the entry that is being sent, or the start of the next.
    pub(super) fn send_step(&mut self, qpn: u32) -> Step {
        let Some(qp) = self.qp(qpn) else { return Step::Idle };
        let requester = &qp.flow.requester;
        if qp.flow.dead || qp.state() != State::Rts || requester.rnr_until.is_some() {
            return Step::Idle;
        }
        if let Some(stall) = requester.stall {
            return self.stalled(qpn, stall);
        }
        if requester.cursor >= requester.started.len() {
            if let Some(until) = requester.flush_until {
                return self.flush_rest(qpn, until);
            }
            let started = self.start_next(qpn);
            let sends = self.qp(qpn).is_some_and(|qp| qp.flow.requester.cursor < qp.flow.requester.started.len());
            if started == Step::Idle || !sends {
                return started;
            }
        }
        self.send_packet(qpn)
    }

    /// Nothing is sent while a page is waited for. If it does not come, the entry that needs it fails.
    #[cold]
    fn stalled(&mut self, qpn: u32, stall: Stall) -> Step {
        if !stall.failed {
            return Step::Idle;
        }
        if let Some(qp) = self.qp(qpn) {
            let requester = &mut qp.flow.requester;
            requester.stall = None;
            if stall.resend {
                // What is before it is asked for again all the same.
                requester.went_back = None;
                requester.go_back(requester.unacked, qp.flow.settings.mtu);
            }
        }
        self.fail_started(qpn, stall.first, protection(UNRESOLVED));
        Step::Done
    }

    /// Reads the entry at the queue's index. `None` if there is none, or after a catastrophe.
    fn fetch_next(&mut self, qpn: u32) -> Option<(Box<SendEntry>, Result<(), EntryError>)> {
        let bus = &mut *self.bus;
        let qp = self.hca.objects.qps.get_mut(qpn).map(|entry| &mut entry.object)?;
        let size = qp.geometry().sq_bytes;
        if size == 0 {
            return None;
        }
        let requester = &mut qp.flow.requester;
        if requester.posted == requester.next {
            let record = qp.record.and_then(|at| at.checked_add(4));
            let Some(posted) = record.and_then(|at| bus.load_dbrec(Stream::Requester(qpn), at).ok()) else {
                self.catastrophe(qpn, "the send doorbell record cannot be read");
                return None;
            };
            requester.posted = posted as u16;
        }
        let index = requester.next;
        let available = requester.posted.wrapping_sub(index);
        if available == 0 {
            return None;
        }
        if u64::from(available) * WQEBB > size {
            self.catastrophe(qpn, "more is posted than the send ring holds");
            return None;
        }
        match fetch(qp, qpn, index, available, bus) {
            Ok(fetched) => Some(fetched),
            Err(Unreadable) => {
                self.catastrophe(qpn, "the send ring cannot be read");
                None
            }
        }
    }

    /// Takes the next posted entry off the ring without executing it: its index and opcode.
    pub(super) fn next_entry(&mut self, qpn: u32) -> Option<(u16, WqeOpcode)> {
        let (entry, _) = self.fetch_next(qpn)?;
        let taken = (entry.index, entry.opcode);
        let qp = self.qp(qpn)?;
        let requester = &mut qp.flow.requester;
        requester.next = requester.next.wrapping_add(entry.blocks);
        requester.entry = Some(entry);
        Some(taken)
    }

    /// Starts the next entry, if its fence and the limits let it.
    fn start_next(&mut self, qpn: u32) -> Step {
        let Some(qp) = self.qp(qpn) else { return Step::Idle };
        let service = qp.service();
        let requester = &qp.flow.requester;
        let busy = requester.started.len() >= MAX_STARTED || psn_diff(requester.psn, requester.unacked) >= WINDOW;
        if requester.stopped || busy {
            return Step::Idle;
        }
        let Some((mut entry, fetched)) = self.fetch_next(qpn) else { return Step::Idle };
        self.spent += ENTRY_COST;
        let outcome = match fetched {
            Ok(()) => self.start(qpn, service, &mut entry),
            Err(error) => Err(Failure { syndrome: error.syndrome(), vendor: error as u8 }),
        };
        let (index, opcode, ce, blocks) = (entry.index, entry.opcode, entry.ce, entry.blocks);
        let now = self.now;
        let Some(qp) = self.qp(qpn) else { return Step::Idle };
        let requester = &mut qp.flow.requester;
        requester.entry = Some(entry);
        let (begun, failure) = match outcome {
            Ok(Some(begun)) => (begun, None),
            Ok(None) => return Step::Idle,
            Err(failure) => {
                requester.stopped = true;
                (Begun::default(), Some(failure))
            }
        };
        requester.scattered = false;
        requester.loaded = Some(index);
        requester.next = requester.next.wrapping_add(blocks);
        if requester.started.is_empty() {
            requester.progress_at = now;
        }
        let first = requester.psn;
        let started = Started {
            index,
            opcode,
            ce,
            first,
            packets: begun.packets,
            len: begun.len,
            received: 0,
            small_fence: begun.small_fence,
            failure,
        };
        requester.psn = psn_add(first, begun.packets);
        requester.reads += usize::from(started.responds());
        requester.small_fences += usize::from(begun.small_fence);
        requester.started.push_back(started);
        log::trace!(target: "cx10::rdma", "qpn={qpn:#x} index={index:#x}: {opcode}, {} bytes", begun.len);
        requester.offset = 0;
        if begun.packets == 0 {
            // Nothing to send: it is complete when all before it are.
            requester.cursor = requester.started.len();
            self.complete_sends(qpn);
        }
        self.hca.rdma.traffic.requests += 1;
        Step::Done
    }

    /// Looks at an entry: what to send of it, or `None` if it has to wait.
    fn start(&mut self, qpn: u32, service: Service, entry: &mut SendEntry) -> Result<Option<Begun>, Failure> {
        let Some(qp) = self.qp(qpn) else { return Ok(None) };
        let requester = &mut qp.flow.requester;
        let held = match entry.fence {
            fence::SMALL => requester.small_fences > 0,
            fence::READS | fence::SMALL_AND_READS => requester.reads > 0,
            fence::STRONG => !requester.started.is_empty(),
            _ => false,
        };
        if held {
            return Ok(None);
        }
        if entry.fence == fence::STRONG {
            // What is sent from now on comes after all that was acknowledged.
            requester.fenced = requester.acknowledged;
        }
        let reads = requester.reads;
        if entry.opmod != 0 {
            return Err(refused(EntryError::Opcode));
        }
        match entry.opcode {
            WqeOpcode::NOP => return Ok(Some(Begun::default())),
            WqeOpcode::UMR => {
                if !matches!(service, Service::Rc | Service::Uc | Service::Xrc | Service::RegUmr) {
                    return Err(refused(EntryError::Opcode));
                }
                let Some(of) = self.hca.objects.qps.get(qpn) else { return Ok(None) };
                let settings = &of.object.flow.settings;
                let poster = Poster {
                    qpn,
                    pd: settings.pd,
                    uid: of.uid,
                    reserved_lkey: settings.reserved_lkey,
                    fast_register: settings.fast_register,
                    registers: service == Service::RegUmr,
                };
                self.spent += UMR_COST * self.hca.umr_cost(entry.immediate, entry.body());
                let result = self.hca.execute_umr(&poster, entry.immediate, entry.body(), self.bus);
                return match result {
                    Ok(()) => Ok(Some(Begun::default())),
                    Err(error) => {
                        log::debug!(target: "cx10::rdma", "qpn={qpn:#x} index={:#x}: UMR: {error}", entry.index);
                        Err(Failure { syndrome: error.syndrome(), vendor: error.vendor() })
                    }
                };
            }
            _ => {}
        }
        let len = entry.parse(service).map_err(refused)?;
        let transport = transport(service).ok_or(refused(EntryError::Opcode))?;
        let datagram = transport == Transport::Ud;
        let Some(of) = self.hca.objects.qps.get(qpn) else { return Ok(None) };
        let settings = &of.object.flow.settings;
        if u64::from(len) > settings.longest || (datagram && len > settings.mtu) {
            return Err(refused(EntryError::Length));
        }
        let responds = matches!(
            entry.opcode,
            WqeOpcode::RDMA_READ
                | WqeOpcode::ATOMIC_CS
                | WqeOpcode::ATOMIC_FA
                | WqeOpcode::ATOMIC_MASKED_CS
                | WqeOpcode::ATOMIC_MASKED_FA
        );
        if responds && reads >= settings.reads_out {
            return Ok(None);
        }
        let small_fence = responds && entry.data_keys().any(|key| self.asks_small_fence(key));
        Ok(Some(Begun { packets: settings.packets(len), len, small_fence }))
    }

    /// `small_fence_on_rdma_read_response` of a key.
    fn asks_small_fence(&self, key: u32) -> bool {
        self.hca.objects.mkeys.get(key >> 8).is_some_and(|entry| entry.object.context.small_fence)
    }

    /// Makes sure that the entry being sent is at hand; it is read anew after a step back.
    fn load_current(&mut self, qpn: u32, started: Started) -> bool {
        let Some(qp) = self.qp(qpn) else { return false };
        if qp.flow.requester.loaded == Some(started.index) {
            return true;
        }
        let service = qp.service();
        let bus = &mut *self.bus;
        let Some(qp) = self.hca.objects.qps.get_mut(qpn).map(|entry| &mut entry.object) else { return false };
        let Ok((mut entry, fetched)) = fetch(qp, qpn, started.index, u16::MAX, bus) else {
            self.catastrophe(qpn, "the send ring cannot be read");
            return false;
        };
        let same = fetched.is_ok() && entry.opcode == started.opcode && entry.parse(service) == Ok(started.len);
        let Some(qp) = self.qp(qpn) else { return false };
        qp.flow.requester.entry = Some(entry);
        if !same {
            self.fail_started(qpn, started.first, refused(EntryError::Changed));
            return false;
        }
        qp.flow.requester.loaded = Some(started.index);
        true
    }

    /// Sends the next packet of the entry at the cursor.
    fn send_packet(&mut self, qpn: u32) -> Step {
        let Some(qp) = self.qp(qpn) else { return Step::Idle };
        let service = qp.service();
        let requester = &mut qp.flow.requester;
        let Some(started) = requester.started.get(requester.cursor).copied() else { return Step::Idle };
        if started.packets == 0 {
            requester.cursor += 1;
            requester.offset = 0;
            return Step::Done;
        }
        if !self.load_current(qpn, started) {
            return Step::Done;
        }
        let Some(qp) = self.hca.objects.qps.get(qpn).map(|entry| &entry.object) else { return Step::Idle };
        let Some(entry) = qp.flow.requester.entry.as_deref() else { return Step::Idle };
        let Some(transport) = transport(service) else { return Step::Idle };
        // Not copied: a copy takes as long as a look-up.
        let settings = &qp.flow.settings;
        let offset = qp.flow.requester.offset;
        let left = started.len.saturating_sub(offset);
        let most = self.train_bytes(settings, left, qp.flow.requester.scattered);
        let (count, last) = if started.responds() { (0, true) } else { (left.min(most), left <= most) };
        let train = settings.packets(count) - 1;
        let operation = operation(started.opcode, offset == 0, last);
        let packet_index = offset >> settings.log_mtu;
        let due = |packet: u32| packet >> settings.log_ack_every;
        let head = Head {
            transport,
            operation,
            source: qpn,
            dest: settings.remote_qpn,
            psn: psn_add(started.first, packet_index),
            train,
            ack_request: transport.reliable() && (last || due(packet_index + train + 1) > due(packet_index)),
            solicited: last && entry.solicited && (operation.is_send() || operation.has_immediate()),
            immediate: if operation.has_immediate() || operation.invalidates() { entry.immediate } else { 0 },
            srqn: entry.srqn,
            fence: fence::of(entry.fence),
            ..Head::default()
        };
        let mut packet = Packet { head, len: count, payload: Payload::None };
        let head = &mut packet.head;
        if started.responds() {
            let Remote { va, key, len } = entry.remote;
            head.remote = Remote { va: va.wrapping_add(offset.into()), key, len: len.saturating_sub(offset) };
            head.operands = entry.operands;
        } else if operation.is_write() {
            head.remote = entry.remote;
        }
        let addressed = if transport == Transport::Ud {
            self.address_datagram(service, settings, entry, head)
        } else {
            self.address_connected(settings, head)
        };
        let next = if started.responds() { started.end() } else { head.next_psn() };
        let parts = if count == 0 {
            Ok(0)
        } else {
            let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
            let who = settings.who(qpn);
            let (bytes, at) = entry.data();
            match payload_piece(keys, who, bytes.get(at..).unwrap_or_default(), count.into(), self.bus) {
                Some(piece) => piece.map(|piece| {
                    packet.payload = Payload::Parts { parts: [Some(Part::Piece(piece)), None] };
                    1
                }),
                None => {
                    let mut reach = Reach::list(keys, who, Access::LocalRead, bytes, at, offset.into(), count.into());
                    let found = payload(&mut reach, Payload::Entry { offset }, most_parts(train), self.bus);
                    found.map(|(payload, parts)| {
                        packet.payload = payload;
                        parts
                    })
                }
            }
        };
        let parts = match parts {
            Ok(parts) => parts,
            Err(MemoryError::Scattered) => {
                // Packet by packet, then; a walk that was in vain counts as well.
                self.spent += TRAIN_PARTS * PART_COST;
                if let Some(qp) = self.qp(qpn) {
                    qp.flow.requester.scattered = true;
                }
                return Step::Done;
            }
            Err(error) => {
                self.spent += ENTRY_COST;
                if !self.gather_fault(qpn, &started, offset, count, error) {
                    self.fail_started(qpn, started.first, protection(error));
                }
                return Step::Done;
            }
        };
        self.spent += ENTRY_COST / 2 + count as usize + parts * PART_COST;
        let now = self.now;
        let Some(qp) = self.qp(qpn) else { return Step::Idle };
        let requester = &mut qp.flow.requester;
        if !requester.waits() {
            requester.progress_at = now;
        }
        if psn_diff(next, requester.sent) > 0 {
            requester.sent = next;
        }
        if last {
            requester.cursor += 1;
            requester.offset = 0;
        } else {
            requester.offset = offset + count;
        }
        if !transport.reliable() {
            requester.unacked = next;
        }
        if addressed {
            self.transmit(&packet);
            if let Some(psn) = self.cut.take() {
                self.resend_alone(qpn, psn);
            }
        }
        if last && !transport.reliable() {
            self.complete_sends(qpn);
        }
        Step::Done
    }

    /// The receiver took what was before `psn` of a train; the rest of its message goes packet by packet.
    fn resend_alone(&mut self, qpn: u32, psn: u32) {
        let Some(qp) = self.qp(qpn) else { return };
        let reliable = transport(qp.service()).is_some_and(Transport::reliable);
        let requester = &mut qp.flow.requester;
        requester.scattered = true;
        if requester.go_back(psn, qp.flow.settings.mtu) && !reliable {
            requester.unacked = psn;
        }
    }

    /// Fails the entry that starts at `first`, when all before it are complete. Nothing behind it is sent.
    pub(super) fn fail_started(&mut self, qpn: u32, first: u32, failure: Failure) {
        let Some(qp) = self.qp(qpn) else { return };
        let requester = &mut qp.flow.requester;
        requester.stopped = true;
        let found = requester.started.iter().position(|started| started.first == first && started.packets > 0);
        let Some(at) = found else { return };
        // What is behind it is flushed; it is found there again.
        let mut blocks = requester.next;
        if let Some(next) = requester.started.get(at + 1) {
            blocks = next.index;
        }
        for dropped in requester.started.range(at..) {
            if dropped.responds() {
                requester.reading_loaded = None;
                requester.reads = requester.reads.saturating_sub(1);
                requester.small_fences = requester.small_fences.saturating_sub(usize::from(dropped.small_fence));
            }
        }
        requester.started.truncate(at + 1);
        requester.next = blocks;
        requester.posted = blocks;
        if let Some(started) = requester.started.back_mut() {
            // It is complete as soon as it is the oldest.
            started.packets = 0;
            started.failure = Some(failure);
        }
        requester.psn = first;
        if psn_diff(requester.sent, first) > 0 {
            requester.sent = first;
        }
        if psn_diff(requester.unacked, first) > 0 {
            requester.unacked = first;
        }
        // What is before it may have to be sent again first.
        if requester.cursor >= at {
            requester.cursor = requester.started.len();
            requester.offset = 0;
        }
        self.complete_sends(qpn);
    }
}

/// Reads the entry at `index`, of which `available` basic blocks are posted.
fn fetch(
    qp: &mut QueuePair,
    qpn: u32,
    index: u16,
    available: u16,
    bus: &mut Bus,
) -> Result<(Box<SendEntry>, Result<(), EntryError>), Unreadable> {
    let geometry = qp.geometry();
    let ring = Ring { buffer: &qp.buffer, start: geometry.rq_bytes, bytes: geometry.sq_bytes };
    let requester = &mut qp.flow.requester;
    requester.loaded = None;
    let mut entry = requester.entry.take().unwrap_or_default();
    match entry.fetch(ring, qpn, index, available, bus) {
        Ok(result) => Ok((entry, result)),
        Err(Unreadable) => {
            requester.entry = Some(entry);
            Err(Unreadable)
        }
    }
}

/// What starting an entry comes to.
#[derive(Clone, Copy, Debug, Default)]
struct Begun {
    packets: u32,
    len: u32,
    small_fence: bool,
}

fn refused(error: EntryError) -> Failure {
    Failure { syndrome: error.syndrome(), vendor: error as u8 }
}

/// The failure of local memory.
fn protection(error: MemoryError) -> Failure {
    let syndrome = match error {
        MemoryError::Short => CqeSyndrome::LOCAL_LENGTH_ERR,
        _ => CqeSyndrome::LOCAL_PROT_ERR,
    };
    Failure { syndrome, vendor: vendor(error) }
}

/// The operation of a packet by its place in the message.
fn operation(opcode: WqeOpcode, first: bool, last: bool) -> Operation {
    use Operation as P;
    use WqeOpcode as O;
    match (opcode, first, last) {
        (O::RDMA_READ, ..) => P::ReadRequest,
        (O::ATOMIC_CS, ..) => P::CompareSwap,
        (O::ATOMIC_FA, ..) => P::FetchAdd,
        (O::ATOMIC_MASKED_CS, ..) => P::MaskedCompareSwap,
        (O::ATOMIC_MASKED_FA, ..) => P::MaskedFetchAdd,
        (O::RDMA_WRITE | O::RDMA_WRITE_IMM, true, false) => P::WriteFirst,
        (O::RDMA_WRITE | O::RDMA_WRITE_IMM, false, false) => P::WriteMiddle,
        (O::RDMA_WRITE, false, true) => P::WriteLast,
        (O::RDMA_WRITE, true, true) => P::WriteOnly,
        (O::RDMA_WRITE_IMM, false, true) => P::WriteLastImm,
        (O::RDMA_WRITE_IMM, true, true) => P::WriteOnlyImm,
        (_, true, false) => P::SendFirst,
        (_, false, false) => P::SendMiddle,
        (O::SEND_IMM, false, true) => P::SendLastImm,
        (O::SEND_IMM, true, true) => P::SendOnlyImm,
        (O::SEND_INVAL, false, true) => P::SendLastInval,
        (O::SEND_INVAL, true, true) => P::SendOnlyInval,
        (_, false, true) => P::SendLast,
        (_, true, true) => P::SendOnly,
    }
}
