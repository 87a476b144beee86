//! The sending side of a queue pair: entries are started, cut into packets, and completed when they are acknowledged
//! (IBTA 9.7.2 to 9.7.8, 9.8; kernel `infiniband/hw/mlx5/wr.c`).
//!
//! Go-back-N: a lost or refused packet is sent again with all behind it. Entries are read from the ring anew for
//! that; the driver may not touch them before they are completed, and if it does they fail.

use super::complete::{MOST_LOOKS, vendor};
use super::entry::{EntryError, Ring, SendEntry};
use super::memory::{Keys, MemoryError, Reach, payload};
use super::packet::{Head, Operation, Packet, Payload, Remote, SHORT, Transport, aeth, psn_add, psn_diff, rnr_delay};
use super::state::{Failure, Started, transport};
use super::umr::Poster;
use super::{PART_COST, Portion, TRAIN_PARTS, most_parts};
use crate::device::qp::{Service, State, WQEBB};
use crate::dma::{StoreClass, Stream};
use crate::mkey::translate::Access;
use crate::prm::values::{CqeSyndrome, WqeOpcode};

/// Sequence numbers that may wait for acknowledgement; half of the circle would be ambiguous.
const WINDOW: i32 = 1 << 20;
/// Entries of a queue pair that may be under way: what a guest can make the device remember is bounded.
const MAX_STARTED: usize = 512;
/// What an entry counts for beside its bytes, in bytes.
const ENTRY_COST: usize = 256;

/// Fences of the control segment.
mod fence {
    pub const SMALL: u8 = 1;
    pub const READS: u8 = 2;
    pub const STRONG: u8 = 3;
    pub const SMALL_AND_READS: u8 = 4;
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

    /// How many basic blocks wait at the queue's index; `None` if that cannot be known.
    fn posted(&mut self, qpn: u32) -> Option<u16> {
        let bus = &mut *self.bus;
        let qp = self.hca.objects.qps.get_mut(qpn).map(|entry| &mut entry.object)?;
        let requester = &mut qp.flow.requester;
        if requester.posted == requester.next {
            let at = qp.record?.checked_add(4)?;
            requester.posted = bus.load_dbrec(Stream::Qp(qpn), at).ok()? as u16;
        }
        Some(requester.posted.wrapping_sub(requester.next))
    }

    /// Reads the entry at the queue's index. `None` if there is none, or after a catastrophe.
    fn fetch_next(&mut self, qpn: u32) -> Option<(Box<SendEntry>, Result<(), EntryError>)> {
        let geometry = self.qp(qpn)?.geometry();
        if geometry.sq_bytes == 0 {
            return None;
        }
        let Some(available) = self.posted(qpn) else {
            self.catastrophe(qpn, "the send doorbell record cannot be read");
            return None;
        };
        if available == 0 {
            return None;
        }
        if u64::from(available) * WQEBB > geometry.sq_bytes {
            self.catastrophe(qpn, "more is posted than the send ring holds");
            return None;
        }
        let index = self.qp(qpn)?.flow.requester.next;
        self.fetch(qpn, index, available)
    }

    fn fetch(&mut self, qpn: u32, index: u16, available: u16) -> Option<(Box<SendEntry>, Result<(), EntryError>)> {
        let bus = &mut *self.bus;
        let qp = self.hca.objects.qps.get_mut(qpn).map(|entry| &mut entry.object)?;
        let geometry = qp.geometry();
        let ring = Ring { buffer: &qp.buffer, start: geometry.rq_bytes, bytes: geometry.sq_bytes };
        let requester = &mut qp.flow.requester;
        requester.loaded = None;
        let mut entry = requester.entry.take().unwrap_or_default();
        match entry.fetch(ring, qpn, index, available, bus) {
            Ok(result) => Some((entry, result)),
            Err(_) => {
                requester.entry = Some(entry);
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
        let begun = match outcome {
            Ok(Some(begun)) => begun,
            Ok(None) => return Step::Idle,
            Err(failure) => {
                requester.stopped = true;
                Begun { failure: Some(failure), ..Begun::default() }
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
            failure: begun.failure,
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
        let settings = qp.flow.settings;
        let requester = &qp.flow.requester;
        let held = match entry.fence {
            fence::SMALL => requester.small_fences > 0,
            fence::READS | fence::SMALL_AND_READS => requester.reads > 0,
            fence::STRONG => !requester.started.is_empty(),
            _ => false,
        };
        if held {
            return Ok(None);
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
                let uid = self.hca.objects.qps.get(qpn).map_or(0, |entry| entry.uid);
                let poster = Poster {
                    qpn,
                    pd: settings.pd,
                    uid,
                    reserved_lkey: settings.reserved_lkey,
                    fast_register: settings.fast_register,
                    registers: service == Service::RegUmr,
                };
                self.spent += self.hca.umr_cost(entry.immediate, entry.body());
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
        Ok(Some(Begun { packets: len.div_ceil(settings.mtu).max(1), len, small_fence, failure: None }))
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
        let Some((mut entry, fetched)) = self.fetch(qpn, started.index, u16::MAX) else { return false };
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
        let settings = qp.flow.settings;
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
        let offset = qp.flow.requester.offset;
        let left = started.len.saturating_sub(offset);
        let most = self.train_bytes(&settings, qp.flow.requester.scattered);
        let (count, last) = if started.responds() { (0, true) } else { (left.min(most), left <= most) };
        let train = count.div_ceil(settings.mtu).max(1) - 1;
        let operation = operation(started.opcode, offset == 0, last);
        let packet_index = offset / settings.mtu;
        let mut head = Head {
            transport,
            operation,
            source: qpn,
            dest: settings.remote_qpn,
            psn: psn_add(started.first, packet_index),
            train,
            ack_request: transport.reliable()
                && (last || (packet_index + train + 1) / settings.ack_every > packet_index / settings.ack_every),
            solicited: last && entry.solicited && (operation.is_send() || operation.has_immediate()),
            immediate: if operation.has_immediate() || operation.invalidates() { entry.immediate } else { 0 },
            srqn: entry.srqn,
            ..Head::default()
        };
        if started.responds() {
            let Remote { va, key, len } = entry.remote;
            head.remote = Remote { va: va.wrapping_add(offset.into()), key, len: len.saturating_sub(offset) };
            head.operands = entry.operands;
        } else if operation.is_write() {
            head.remote = entry.remote;
        }
        let addressed = if transport == Transport::Ud {
            self.address_datagram(service, &settings, entry, &mut head)
        } else {
            self.address_connected(&settings, &mut head)
        };
        let payload = if count == 0 {
            Ok((Payload::None, 0))
        } else {
            let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
            let (bytes, at) = entry.data();
            let mut reach =
                Reach::list(keys, settings.who(qpn), Access::LocalRead, bytes, at, offset.into(), count.into());
            payload(&mut reach, Payload::Entry { offset }, most_parts(train), self.bus)
        };
        let (payload, parts) = match payload {
            Ok(payload) => payload,
            Err(MemoryError::Scattered) => {
                // Packet by packet, then; a walk that was in vain counts as well.
                self.spent += TRAIN_PARTS * PART_COST;
                if let Some(qp) = self.qp(qpn) {
                    qp.flow.requester.scattered = true;
                }
                return Step::Done;
            }
            Err(error) => {
                self.fail_started(qpn, started.first, protection(error));
                return Step::Done;
            }
        };
        self.spent += ENTRY_COST / 2 + count as usize + parts * PART_COST;
        let now = self.now;
        let Some(qp) = self.qp(qpn) else { return Step::Idle };
        let requester = &mut qp.flow.requester;
        let next = if started.responds() { started.end() } else { head.next_psn() };
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
            self.transmit(Packet { head, len: count, payload });
        }
        if last && !transport.reliable() {
            self.complete_sends(qpn);
        }
        Step::Done
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
        requester.cursor = requester.started.len();
        requester.offset = 0;
        self.complete_sends(qpn);
    }

    /// A response came.
    pub(super) fn receive_response(&mut self, packet: &Packet) {
        let qpn = packet.head.dest;
        let Some(qp) = self.qp(qpn) else { return };
        let requester = &qp.flow.requester;
        if qp.flow.dead || qp.state() != State::Rts || !transport(qp.service()).is_some_and(Transport::reliable) {
            return;
        }
        // Responses to what is complete, or was never sent, are ghosts.
        if psn_diff(packet.head.psn, requester.unacked) < 0 || psn_diff(packet.head.psn, requester.sent) >= 0 {
            return;
        }
        match packet.head.operation {
            Operation::Ack => self.receive_ack(qpn, packet.head.psn, packet.head.aeth),
            Operation::AtomicAck => self.receive_atomic(qpn, packet),
            _ => self.receive_data(qpn, packet),
        }
    }

    /// All before `psn` is acknowledged, as far as no response with data is missing; answers whether none is.
    fn acknowledge(&mut self, qpn: u32, psn: u32) -> bool {
        let now = self.now;
        let Some(qp) = self.qp(qpn) else { return false };
        let settings = qp.flow.settings;
        let requester = &mut qp.flow.requester;
        let mut until = psn;
        let mut whole = true;
        if requester.reads > 0 {
            for started in &requester.started {
                if psn_diff(until, started.first) <= 0 {
                    break;
                }
                if started.responds() && started.received < started.len {
                    until = psn_add(started.first, started.received / settings.mtu);
                    // What comes next of it may be what the answer is about.
                    whole = psn_diff(until, psn) >= 0;
                    break;
                }
            }
        }
        if psn_diff(until, requester.unacked) > 0 {
            requester.unacked = until;
            requester.progress_at = now;
            requester.retries = settings.retries;
            requester.rnr_retries = settings.rnr_retries;
        }
        self.complete_sends(qpn);
        whole
    }

    /// The response to something behind a READ came, so the READ's own is lost (IBTA 9.7.5.1.1: implied NAK).
    fn implied_nak(&mut self, qpn: u32) {
        self.count_for(qpn, |counters| &mut counters.implied_nak_seq_err);
        self.retry_once(qpn);
    }

    fn receive_ack(&mut self, qpn: u32, psn: u32, word: u32) {
        let code = (word >> 24) as u8;
        match code & 0xe0 {
            0 => {
                if !self.acknowledge(qpn, psn_add(psn, 1)) {
                    self.implied_nak(qpn);
                }
            }
            aeth::RNR => {
                if self.acknowledge(qpn, psn) {
                    self.not_ready(qpn, psn, code & 0x1f);
                } else {
                    self.implied_nak(qpn);
                }
            }
            _ => {
                let whole = self.acknowledge(qpn, psn);
                match code {
                    aeth::SEQUENCE => {
                        self.count_for(qpn, |counters| &mut counters.packet_seq_err);
                        self.retry_once(qpn);
                    }
                    _ if !whole => self.implied_nak(qpn),
                    aeth::INVALID_REQUEST => self.refused(qpn, psn, CqeSyndrome::REMOTE_INVAL_REQ_ERR, code),
                    aeth::ACCESS => self.refused(qpn, psn, CqeSyndrome::REMOTE_ACCESS_ERR, code),
                    aeth::OPERATION => self.refused(qpn, psn, CqeSyndrome::REMOTE_OP_ERR, code),
                    _ => self.refused(qpn, psn, CqeSyndrome::BAD_RESP_ERR, code),
                }
            }
        }
    }

    /// The peer refused the message that `psn` belongs to.
    fn refused(&mut self, qpn: u32, psn: u32, syndrome: CqeSyndrome, code: u8) {
        let Some(qp) = self.qp(qpn) else { return };
        let hit = qp.flow.requester.started.iter().find(|started| {
            let ahead = psn_diff(psn, started.first);
            ahead >= 0 && (ahead as u32) < started.packets
        });
        if let Some(first) = hit.map(|started| started.first) {
            // Packets of it that came before are acknowledged; it fails as a whole.
            self.fail_started(qpn, first, Failure { syndrome, vendor: code });
        }
    }

    /// The receiver has no entry: wait, then go on from there.
    fn not_ready(&mut self, qpn: u32, psn: u32, code: u8) {
        let now = self.now;
        self.hca.rdma.traffic.receiver_not_ready += 1;
        let Some(qp) = self.qp(qpn) else { return };
        let settings = qp.flow.settings;
        let requester = &mut qp.flow.requester;
        const FOR_EVER: u8 = 7;
        if requester.rnr_retries == 0 && settings.rnr_retries != FOR_EVER {
            let front = requester.started.iter().find(|started| started.packets > 0).map(|started| started.first);
            if let Some(first) = front {
                let failure = Failure { syndrome: CqeSyndrome::RNR_RETRY_EXC_ERR, vendor: aeth::RNR | code };
                self.fail_started(qpn, first, failure);
            }
            return;
        }
        requester.rnr_retries = requester.rnr_retries.saturating_sub(1);
        requester.go_back(psn, settings.mtu);
        let until = now.saturating_add(rnr_delay(code.into()));
        requester.rnr_until = Some(until);
        self.count(settings.counter_set, |counters| &mut counters.rnr_nak_retry_err);
        self.set_timer(qpn, Some(until));
    }

    /// A response tells of a loss: retries, unless that was done for this loss. A second loss at the same place is left to
    /// the timer.
    fn retry_once(&mut self, qpn: u32) {
        let Some(qp) = self.qp(qpn) else { return };
        let requester = &mut qp.flow.requester;
        if requester.went_back.replace(requester.unacked) != Some(requester.unacked) {
            self.retry(qpn);
        }
    }

    /// Sends again what is not acknowledged, as long as retries are left.
    fn retry(&mut self, qpn: u32) {
        let now = self.now;
        let Some(qp) = self.qp(qpn) else { return };
        let settings = qp.flow.settings;
        let requester = &mut qp.flow.requester;
        if requester.retries == 0 {
            let front = requester.started.iter().find(|started| started.packets > 0).map(|started| started.first);
            if let Some(first) = front {
                let failure = Failure { syndrome: CqeSyndrome::TRANSPORT_RETRY_EXC_ERR, vendor: 0x81 };
                self.fail_started(qpn, first, failure);
            }
            return;
        }
        requester.retries -= 1;
        requester.progress_at = now;
        let from = requester.unacked;
        requester.go_back(from, settings.mtu);
        self.hca.rdma.traffic.retries += 1;
        self.schedule(qpn);
    }

    /// The timer of a queue pair went off.
    pub(super) fn timer_expired(&mut self, qpn: u32) {
        let now = self.now;
        let Some(qp) = self.qp(qpn) else { return };
        let settings = qp.flow.settings;
        match qp.state() {
            State::Err => {
                qp.flow.looked = (qp.flow.looked + 1).min(MOST_LOOKS);
                self.schedule(qpn);
            }
            State::Rts => {
                let requester = &mut qp.flow.requester;
                if let Some(until) = requester.rnr_until {
                    if until > now {
                        self.set_timer(qpn, Some(until));
                    } else {
                        requester.rnr_until = None;
                        requester.progress_at = now;
                        self.schedule(qpn);
                    }
                } else if requester.waits() && settings.ack_timeout != 0 {
                    let due = requester.progress_at.saturating_add(settings.ack_timeout);
                    if due > now {
                        self.set_timer(qpn, Some(due));
                    } else {
                        requester.went_back = None;
                        self.count(settings.counter_set, |counters| &mut counters.local_ack_timeout_err);
                        self.hca.rdma.traffic.timeouts += 1;
                        self.retry(qpn);
                    }
                }
            }
            _ => {}
        }
    }

    /// Data of a READ.
    fn receive_data(&mut self, qpn: u32, packet: &Packet) {
        let Some(qp) = self.qp(qpn) else { return };
        let mtu = qp.flow.settings.mtu;
        let requester = &qp.flow.requester;
        let wanted = requester.started.iter().find(|started| started.responds() && started.received < started.len);
        // A READ of no bytes is answered by one packet without data.
        let empty = requester.started.iter().find(|started| started.responds() && started.len == 0);
        let read = match (wanted.copied(), empty.copied()) {
            (Some(read), Some(empty)) if psn_diff(empty.first, read.first) < 0 => empty,
            (Some(read), _) => read,
            (None, Some(empty)) => empty,
            (None, None) => return,
        };
        let expected = psn_add(read.first, read.received / mtu);
        let ahead = psn_diff(packet.head.psn, expected);
        if ahead < 0 {
            return;
        }
        if ahead > 0 {
            return self.implied_nak(qpn);
        }
        let left = read.len - read.received;
        let most = mtu.saturating_mul(packet.head.packets());
        let last = left <= most;
        let fits = read.opcode == WqeOpcode::RDMA_READ
            && packet.len == left.min(most)
            && packet.len.div_ceil(mtu).max(1) == packet.head.packets()
            && matches!(packet.head.operation, Operation::ReadLast | Operation::ReadOnly) == last;
        if !fits {
            let failure = Failure { syndrome: CqeSyndrome::BAD_RESP_ERR, vendor: 0x82 };
            return self.fail_started(qpn, read.first, failure);
        }
        if !self.acknowledge(qpn, read.first) {
            return self.implied_nak(qpn);
        }
        if let Err(failure) = self.put_response(qpn, &read, packet, StoreClass::Payload) {
            return self.fail_started(qpn, read.first, failure);
        }
        self.responded(qpn, read.first, packet.len);
        self.acknowledge(qpn, packet.head.next_psn());
    }

    /// The original value of an atomic operation.
    fn receive_atomic(&mut self, qpn: u32, packet: &Packet) {
        let Some(qp) = self.qp(qpn) else { return };
        let waiting = qp.flow.requester.started.iter().find(|started| started.responds() && started.received == 0);
        let Some(atomic) = waiting.copied() else { return };
        match psn_diff(packet.head.psn, atomic.first) {
            ahead if ahead < 0 => return,
            0 => {}
            _ => return self.implied_nak(qpn),
        }
        if atomic.opcode == WqeOpcode::RDMA_READ {
            let failure = Failure { syndrome: CqeSyndrome::BAD_RESP_ERR, vendor: 0x83 };
            return self.fail_started(qpn, atomic.first, failure);
        }
        // The value comes back in the byte order in which it was in memory.
        let mut bytes = [0; SHORT];
        let original = packet.head.original;
        let big = self.hca.atomics_big_endian;
        bytes[..8].copy_from_slice(&if big { original.to_be_bytes() } else { original.to_le_bytes() });
        let value = Packet { head: packet.head, len: 8, payload: Payload::Short { bytes } };
        if !self.acknowledge(qpn, atomic.first) {
            return self.implied_nak(qpn);
        }
        if let Err(failure) = self.put_response(qpn, &atomic, &value, StoreClass::AtomicResult) {
            return self.fail_started(qpn, atomic.first, failure);
        }
        self.responded(qpn, atomic.first, 8);
        self.acknowledge(qpn, psn_add(packet.head.psn, 1));
    }

    fn responded(&mut self, qpn: u32, first: u32, bytes: u32) {
        let Some(qp) = self.qp(qpn) else { return };
        let requester = &mut qp.flow.requester;
        let found = requester.started.iter_mut().find(|started| started.responds() && started.first == first);
        if let Some(started) = found {
            started.received = started.received.saturating_add(bytes);
        }
    }

    /// Makes sure that the entry whose responses come in is at hand.
    fn load_reading(&mut self, qpn: u32, started: &Started) -> Result<(), Failure> {
        let bus = &mut *self.bus;
        let changed = refused(EntryError::Changed);
        let qp = self.hca.objects.qps.get_mut(qpn).map(|entry| &mut entry.object).ok_or(changed)?;
        let service = qp.service();
        let geometry = qp.geometry();
        let ring = Ring { buffer: &qp.buffer, start: geometry.rq_bytes, bytes: geometry.sq_bytes };
        let requester = &mut qp.flow.requester;
        if requester.reading_loaded == Some(started.index) {
            return Ok(());
        }
        let entry = requester.reading.get_or_insert_default();
        requester.reading_loaded = None;
        let fetched = entry.fetch(ring, qpn, started.index, u16::MAX, bus).map_err(|_| changed)?;
        if fetched.is_err() || entry.opcode != started.opcode || entry.parse(service) != Ok(started.len) {
            return Err(changed);
        }
        requester.reading_loaded = Some(started.index);
        Ok(())
    }

    fn put_response(&mut self, qpn: u32, started: &Started, packet: &Packet, class: StoreClass) -> Result<(), Failure> {
        self.load_reading(qpn, started)?;
        let gone = protection(MemoryError::Gone);
        let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
        let qp = keys.objects.qps.get(qpn).map(|entry| &entry.object).ok_or(gone)?;
        let entry = qp.flow.requester.reading.as_deref().ok_or(gone)?;
        let (bytes, at) = entry.data();
        let who = qp.flow.settings.who(qpn);
        let len = u64::from(packet.len);
        let mut target = Reach::list(keys, who, Access::LocalWrite, bytes, at, started.received.into(), len);
        let mut memory = super::memory::Memory { keys, device: &mut self.hca.memic, bus: self.bus };
        let put = memory.put(packet, &mut target, class).map_err(|error| match error {
            super::memory::MoveError::Source(error) | super::memory::MoveError::Target(error) => protection(error),
        });
        let parts = put?;
        self.spent += parts * PART_COST;
        let more = matches!(packet.head.operation, Operation::ReadFirst | Operation::ReadMiddle);
        if parts > TRAIN_PARTS && packet.head.train > 0 && more {
            // The rest of it comes packet by packet.
            if let Some(sender) = self.qp(packet.head.source) {
                sender.flow.responder.scattered = true;
            }
        }
        Ok(())
    }
}

/// What starting an entry comes to.
#[derive(Clone, Copy, Debug, Default)]
struct Begun {
    packets: u32,
    len: u32,
    small_fence: bool,
    failure: Option<Failure>,
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
