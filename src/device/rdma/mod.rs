//! RDMA: queue pairs that run (PRM "Queue Pairs"; IBTA chapters 9 and 10).
//!
//! A doorbell, a packet or a timer gives a queue pair a turn. In its turn it sends answers first ([`responder`]), then
//! requests ([`requester`]), one packet at a time, until it has nothing to send or has spent its share; queue pairs
//! take turns in the order in which they asked. A side whose memory is not there waits for it ([`paging`]). A packet to the function itself is received at once, within the
//! sender's turn; any other leaves through the port. Queue pairs in error flush what is posted ([`complete`]).
//!
//! Every packet takes the same way whether it stays or leaves, so that faults of the wire ([`fault`]) hit both.

pub mod complete;
pub mod datagram;
pub mod entry;
pub mod fault;
pub mod frame;
pub mod memory;
pub mod packet;
pub mod paging;
pub mod receive;
pub mod requester;
pub mod responder;
pub mod state;
pub mod umr;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};

use self::fault::{Delayed, Fate};
use self::packet::{Packet, Payload, Transport};
use self::requester::Step;
use self::state::{Job, Settings};
use super::hca::Hca;
use super::qp::State;
use super::switch::Sender;
use crate::dma::Bus;
use crate::log_limit::limited;
use crate::trace::report::Rdma;

/// Bytes that a queue pair may move in a turn; what takes time without moving bytes counts as some. Bytes count on both
/// sides: where they are sent and where they are received.
const BYTES_PER_TURN: usize = 256 << 10;
/// Bytes that travel at once inside the function. The longer a train, the less of its time goes into looks at entries
/// and keys; a longer one would keep others waiting. A multiple of every packet's size.
const TRAIN_BYTES: u32 = 256 << 10;
/// Parts of memory that the data of a train may be in, at its source and at its target; steps where accesses are
/// reordered, so that trains do not depend on how pages lie.
const TRAIN_PARTS: usize = 256;
/// What finding a part of memory counts for, in bytes.
const PART_COST: usize = 256;
/// Bytes that all of them may move in a portion of work: a tenth of a millisecond, or twice that for bytes out of cache.
const BYTES_PER_PORTION: usize = 1 << 20;
/// Turns in a portion of work.
const TURNS_PER_PORTION: usize = 64;
/// Timers that a portion of work looks at.
const TIMERS_PER_PORTION: usize = 64;
/// What a turn counts for beside what is done in it, in bytes.
const TURN_COST: usize = 2048;

/// Parts that the source of a packet, or of a train with `train` packets behind the first, may be in.
fn most_parts(train: u32) -> usize {
    if train == 0 { usize::MAX } else { TRAIN_PARTS }
}

/// Queue pairs that wait for their turn or for a time.
#[derive(Debug, Default)]
pub struct Schedule {
    ready: VecDeque<u32>,
    timers: BTreeSet<(u64, u32)>,
    delayed: Delayed,
    /// The queue pair of general services.
    pub general: Option<u32>,
    /// The frame that is being made.
    frame: Vec<u8>,
    /// Multicast datagrams with members that have not received them, from a number on: one, unless the wire doubled it,
    /// for nobody sends and nothing arrives meanwhile.
    spreading: VecDeque<(Packet, u32)>,
    /// Queue pairs with an acknowledgement that goes out at the end of the present turn.
    acknowledging: Vec<u32>,
    /// What the report says of the traffic.
    pub traffic: Rdma,
}

impl Schedule {
    /// Whether queue pairs wait for their turn, or a datagram for its receivers.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty() || !self.spreading.is_empty()
    }

    /// How many queue pairs wait for their turn.
    pub fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// When the first timer goes off, or the first late packet arrives.
    pub fn next_deadline(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(at, _)| *at);
        [timer, self.delayed.next_deadline()].into_iter().flatten().min()
    }

    /// Forgets who waits, as a teardown does.
    pub fn clear(&mut self) {
        self.ready.clear();
        self.timers.clear();
        self.general = None;
        self.delayed = Delayed::default();
        self.spreading.clear();
        self.acknowledging.clear();
    }
}

/// A portion of work.
pub(in crate::device) struct Portion<'a> {
    hca: &'a mut Hca,
    bus: &'a mut Bus,
    now: u64,
    spent: usize,
    /// The receiver of the train that was just sent took only its first packets; what comes next.
    cut: Option<u32>,
}

impl Hca {
    /// A doorbell for a queue pair came through `uar`. Returns whether the queue pair exists and takes doorbells there.
    pub fn ring_qp(&mut self, uar: u32, qpn: u32) -> bool {
        if self.objects.qps.get(qpn).is_none_or(|entry| entry.object.uar() != Some(uar)) {
            return false;
        }
        self.schedule_qp(qpn);
        true
    }

    /// Lets a queue pair take a turn.
    pub fn schedule_qp(&mut self, qpn: u32) {
        if self.internal_error() {
            return;
        }
        let Some(entry) = self.objects.qps.get_mut(qpn) else { return };
        if !std::mem::replace(&mut entry.object.flow.scheduled, true) {
            self.rdma.ready.push_back(qpn);
        }
    }

    /// Does a portion of the queue pairs' work.
    pub fn run_rdma(&mut self, bus: &mut Bus, now: u64) {
        if !self.rdma.is_ready() && self.rdma.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        let mut portion = Portion { hca: self, bus, now, spent: 0, cut: None };
        portion.go_on_spreading();
        if !portion.hca.rdma.spreading.is_empty() {
            return;
        }
        portion.late_arrivals();
        portion.acknowledge_received();
        portion.expire_timers();
        for _ in 0..TURNS_PER_PORTION {
            if portion.spent >= BYTES_PER_PORTION {
                break;
            }
            let Some(qpn) = portion.hca.rdma.ready.pop_front() else { break };
            let Some(qp) = portion.qp(qpn) else { continue };
            qp.flow.scheduled = false;
            if portion.turn(qpn) {
                portion.schedule(qpn);
            }
        }
    }

    /// Forgets the timer of a queue pair that is destroyed or reset.
    pub fn forget_qp_timer(&mut self, qpn: u32, timer: Option<u64>) {
        if let Some(at) = timer {
            self.rdma.timers.remove(&(at, qpn));
        }
    }
}

impl Portion<'_> {
    fn schedule(&mut self, qpn: u32) {
        self.hca.schedule_qp(qpn);
    }

    /// Gives a queue pair a turn by itself at a time, instead of the time that was set before.
    fn set_timer(&mut self, qpn: u32, at: Option<u64>) {
        let Some(qp) = self.qp(qpn) else { return };
        let old = std::mem::replace(&mut qp.flow.timer, at);
        if old == at {
            return;
        }
        self.hca.forget_qp_timer(qpn, old);
        if let Some(at) = at {
            self.hca.rdma.timers.insert((at, qpn));
        }
    }

    fn expire_timers(&mut self) {
        for _ in 0..TIMERS_PER_PORTION {
            let Some((at, qpn)) = self.hca.rdma.timers.first().copied().filter(|(at, _)| *at <= self.now) else {
                return;
            };
            self.hca.rdma.timers.remove(&(at, qpn));
            let Some(qp) = self.qp(qpn) else { continue };
            if qp.flow.timer == Some(at) {
                qp.flow.timer = None;
                self.timer_expired(qpn);
            }
        }
    }

    /// One turn of a queue pair; whether it wants another.
    fn turn(&mut self, qpn: u32) -> bool {
        self.spent += TURN_COST;
        let limit = self.spent + BYTES_PER_TURN;
        let more = loop {
            let Some(qp) = self.qp(qpn) else { break false };
            let in_error = matches!(qp.state(), State::Err | State::SqErr);
            let answers = !qp.flow.responder.jobs.is_empty();
            let answered = answers && self.answer_step(qpn) == Step::Done;
            let done = if in_error { self.flush(qpn) } else { self.send_step(qpn) == Step::Done };
            if !answered && !done {
                break false;
            }
            if in_error {
                self.spent += TURN_COST;
            }
            if self.spent >= limit || !self.hca.rdma.spreading.is_empty() {
                break true;
            }
        };
        self.acknowledge_received();
        self.watch_for_acknowledgement(qpn);
        more
    }

    /// Sends the acknowledgements of what was received in a turn.
    fn acknowledge_received(&mut self) {
        // What they cause is no request, so no more of them join.
        while let Some(qpn) = self.hca.rdma.acknowledging.pop() {
            let first = self.qp(qpn).and_then(|qp| qp.flow.responder.jobs.front().copied());
            if let Some(Job::Ack { .. }) = first {
                self.answer_step(qpn);
            }
            if self.qp(qpn).is_some_and(|qp| !qp.flow.responder.jobs.is_empty()) {
                self.schedule(qpn);
            }
        }
    }

    /// Sets the timer of a queue pair that waits for an acknowledgement and has none.
    fn watch_for_acknowledgement(&mut self, qpn: u32) {
        let Some(qp) = self.qp(qpn) else { return };
        let flow = &qp.flow;
        if flow.timer.is_some() || qp.state() != State::Rts || flow.settings.ack_timeout == 0 {
            return;
        }
        let requester = &flow.requester;
        if requester.rnr_until.is_none() && requester.waits() && !flow.dead {
            let at = requester.progress_at.saturating_add(flow.settings.ack_timeout);
            self.set_timer(qpn, Some(at));
        }
    }

    /// Sends a packet, which then arrives unless the wire has a fault.
    fn transmit(&mut self, packet: &Packet) {
        let traffic = &mut self.hca.rdma.traffic;
        traffic.packets += u64::from(packet.head.packets());
        traffic.bytes += u64::from(packet.len);
        if !self.hca.vport_is_up() {
            self.hca.vport.env.transmit_discard_vport_down += 1;
            return;
        }
        match self.hca.faults.judge(&packet.head) {
            Fate::Deliver => self.arrive(packet),
            fate => self.suffer(packet.clone(), fate),
        }
    }

    /// Bytes of the `left` ones of a message to a peer that travel at once: one packet, or a train of them where nothing
    /// on the way looks at packets.
    fn train_bytes(&self, settings: &Settings, left: u32, scattered: bool) -> u32 {
        let alone = scattered || left <= settings.mtu || !self.hca.faults.is_empty();
        if alone || !self.hca.is_own_mac(&settings.path.dest_mac) { settings.mtu } else { TRAIN_BYTES }
    }

    /// A packet arrives: at the function itself, or beyond the port.
    fn arrive(&mut self, packet: &Packet) {
        if self.hca.is_local(packet) {
            self.deliver(packet);
        } else {
            self.depart(packet);
        }
    }

    /// A packet leaves the function as a frame.
    fn depart(&mut self, packet: &Packet) {
        let Some(Packet { payload: Payload::Held(bytes), .. }) = self.hold(packet) else { return };
        let mut out = std::mem::take(&mut self.hca.rdma.frame);
        match frame::encode(&packet.head, &bytes, &mut out) {
            Ok(()) => {
                let mut cost = 0;
                self.hca.transmit(&out, Sender::default(), &mut cost, self.bus, self.now);
                self.spent += bytes.len() + cost;
            }
            Err(error) => limited!(warn, target: "cx10::rdma", "qpn={:#x}: not sent: {error}", packet.head.source),
        }
        self.hca.rdma.frame = out;
    }

    /// A packet for the function came.
    fn deliver(&mut self, packet: &Packet) {
        let head = &packet.head;
        if head.transport == Transport::Ud {
            return self.receive_datagram(packet);
        }
        if !head.operation.is_response() {
            return self.receive_request(packet);
        }
        let Some(settings) = self.qp(head.dest).map(|qp| qp.flow.settings) else { return };
        if self.addresses_match(&settings, head) {
            self.receive_response(packet);
            // What waited for it may go on.
            self.schedule(head.dest);
        }
    }
}

impl Hca {
    /// Whether a packet stays in the function.
    fn is_local(&self, packet: &Packet) -> bool {
        let mac = &packet.head.address.dest_mac;
        const GROUP: u8 = 1;
        mac[0] & GROUP != 0 || self.is_own_mac(mac)
    }

    fn is_own_mac(&self, mac: &[u8; 6]) -> bool {
        *mac == self.vport.mac() || self.vport.unicast.contains(mac)
    }
}
