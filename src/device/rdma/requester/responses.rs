//! What comes back to the sending side: acknowledgements, refusals, the data of READs, and silence (IBTA 9.7.5 to 9.7.8).

use super::{protection, refused};
use crate::device::qp::State;
use crate::device::rdma::complete::MOST_LOOKS;
use crate::device::rdma::entry::{EntryError, Ring};
use crate::device::rdma::memory::{Keys, Memory, MemoryError, MoveError, Reach};
use crate::device::rdma::packet::{Operation, Packet, Payload, SHORT, Transport, aeth, psn_add, psn_diff, rnr_delay};
use crate::device::rdma::state::{Failure, Started, transport};
use crate::device::rdma::{PART_COST, Portion};
use crate::dma::{StoreClass, Stream};
use crate::mkey::translate::Access;
use crate::prm::values::{CqeSyndrome, WqeOpcode};

impl Portion<'_> {
    /// A response came.
    pub(in crate::device::rdma) fn receive_response(&mut self, packet: &Packet) {
        let qpn = packet.head.dest;
        let Some(qp) = self.qp(qpn) else { return };
        let requester = &qp.flow.requester;
        if qp.flow.dead || qp.state() != State::Rts || !transport(qp.service()).is_some_and(Transport::reliable) {
            return;
        }
        if requester.stall.is_some_and(|stall| stall.resend) {
            // It comes again: one before it was dropped.
            return;
        }
        // Responses to what is complete, or was never sent, are ghosts.
        if psn_diff(packet.head.psn, requester.unacked) < 0 || psn_diff(packet.head.psn, requester.sent) >= 0 {
            return;
        }
        if self.bus.reorders() {
            // All that the peer had done is visible when what it acknowledges is complete.
            let acknowledged = self.bus.acknowledged(Stream::Responder(packet.head.source));
            if let Some(qp) = self.qp(qpn) {
                qp.flow.requester.acknowledged = acknowledged;
            }
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
                    until = psn_add(started.first, started.received >> settings.log_mtu);
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
        if requester.rnr_until.is_some() {
            // Nothing was sent since: it tells of what is waited for already.
            requester.go_back(psn, settings.mtu);
            return;
        }
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
    pub(in crate::device::rdma) fn timer_expired(&mut self, qpn: u32) {
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
                if requester.stall.is_some() {
                    // Waiting for a page of its own is no silence of the peer.
                    requester.progress_at = now;
                }
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
        let settings = &qp.flow.settings;
        let (mtu, log_mtu, packets) = (settings.mtu, settings.log_mtu, settings.packets(packet.len));
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
        let expected = psn_add(read.first, read.received >> log_mtu);
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
            && packets == packet.head.packets()
            && matches!(packet.head.operation, Operation::ReadLast | Operation::ReadOnly) == last;
        if !fits {
            let failure = Failure { syndrome: CqeSyndrome::BAD_RESP_ERR, vendor: 0x82 };
            return self.fail_started(qpn, read.first, failure);
        }
        if !self.acknowledge(qpn, read.first) {
            return self.implied_nak(qpn);
        }
        let put = match self.put_response(qpn, &read, packet, StoreClass::Payload) {
            Ok(Some(put)) => put,
            Ok(None) => return,
            Err(failure) => return self.fail_started(qpn, read.first, failure),
        };
        let mut next = packet.head.next_psn();
        if put < packet.len {
            next = packet.head.first(put / mtu).next_psn();
            self.cut = Some(next);
        }
        self.responded(qpn, read.first, put);
        self.acknowledge(qpn, next);
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
        match self.put_response(qpn, &atomic, &value, StoreClass::AtomicResult) {
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(failure) => return self.fail_started(qpn, atomic.first, failure),
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

    /// Puts what a response brings; answers how many bytes of it are received, or `None` if it comes again because a page
    /// is waited for.
    fn put_response(
        &mut self,
        qpn: u32,
        started: &Started,
        packet: &Packet,
        class: StoreClass,
    ) -> Result<Option<u32>, Failure> {
        self.load_reading(qpn, started)?;
        let gone = protection(MemoryError::Gone);
        let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
        let qp = keys.objects.qps.get(qpn).map(|entry| &entry.object).ok_or(gone)?;
        let entry = qp.flow.requester.reading.as_deref().ok_or(gone)?;
        let (bytes, at) = entry.data();
        let (who, mtu) = (qp.flow.settings.who(qpn), qp.flow.settings.mtu);
        let len = u64::from(packet.len);
        let mut target = Reach::list(keys, who, Access::LocalWrite, bytes, at, started.received.into(), len);
        let mut memory = Memory { keys, device: &mut self.hca.memic, bus: self.bus };
        let put = match memory.put(packet, &mut target, class, mtu) {
            Ok(put) => put,
            Err(MoveError::Target(error)) if self.scatter_fault(qpn, started, packet.len, error) => return Ok(None),
            Err(MoveError::Source(error) | MoveError::Target(error)) => return Err(protection(error)),
        };
        self.spent += put.len as usize + put.parts * PART_COST;
        Ok(Some(put.len))
    }
}
