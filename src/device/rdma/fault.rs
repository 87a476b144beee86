//! Faults of the wire: which packets are lost, doubled or late (key `wire.fault`).
//!
//! A rule counts the packets that agree with it, whoever hits them, so that what one rule does never moves another. The
//! first rule that wants a packet gets it; one that comes too late for it takes its next. Counts go on over resets of the
//! function: the wire does not know of them.
//!
//! Late packets wait in [`Delayed`]. Its room is bounded, because a guest chooses how much it sends; a packet that finds
//! none is not late.

use std::collections::BTreeMap;

use super::Portion;
use super::memory::{Keys, Memory};
use super::packet::{Head, Operation, Packet, Payload, Transport};
use crate::config::fault::{Action, FaultRule, PacketKind, Service};
use crate::trace::report::WireFault;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Deliver,
    /// It is lost.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// It arrives so many nanoseconds later.
    Delay(u64),
}

#[derive(Clone, Debug)]
struct Rule {
    rule: FaultRule,
    seen: u64,
    hit: u64,
}

/// The rules in force.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rules: Vec<Rule>,
}

impl Faults {
    /// No packet has been seen yet.
    pub fn new(rules: &[FaultRule]) -> Faults {
        Faults { rules: rules.iter().map(|rule| Rule { rule: *rule, seen: 0, hit: 0 }).collect() }
    }

    /// Whether there are no rules.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Decides about a packet that is sent.
    #[inline]
    pub fn judge(&mut self, head: &Head) -> Fate {
        if self.rules.is_empty() { Fate::Deliver } else { self.ask(head) }
    }

    #[cold]
    fn ask(&mut self, head: &Head) -> Fate {
        let mut fate = Fate::Deliver;
        for rule in self.rules.iter_mut().filter(|rule| agrees(&rule.rule, head)) {
            rule.seen += 1;
            if fate == Fate::Deliver && rule.wants() {
                rule.hit += 1;
                fate = match rule.rule.action {
                    Action::Drop => Fate::Drop,
                    Action::Duplicate => Fate::Duplicate,
                    Action::Delay { microseconds } => Fate::Delay(microseconds.saturating_mul(1000)),
                };
                let Head { source, dest, psn, .. } = head;
                log::debug!(
                    target: "cx10::wire",
                    "{fate:?}: {:?} {:?} from {source:#x} to {dest:#x}, psn {psn:#x}, by {}",
                    head.transport, head.operation, rule.rule
                );
            }
        }
        fate
    }

    /// What each rule came to.
    pub fn report(&self) -> Vec<WireFault> {
        let report = |rule: &Rule| WireFault { rule: rule.rule.to_string(), seen: rule.seen, hit: rule.hit };
        self.rules.iter().map(report).collect()
    }
}

impl Rule {
    /// Whether the packet that was just counted is one that the rule hits.
    fn wants(&self) -> bool {
        let left = self.rule.times.is_none_or(|times| self.hit < times);
        left && self.seen.checked_sub(self.rule.nth).is_some_and(|after| after % self.rule.every == 0)
    }
}

fn agrees(rule: &FaultRule, head: &Head) -> bool {
    let service = match head.transport {
        Transport::Rc => Service::Rc,
        Transport::Uc => Service::Uc,
        Transport::Ud => Service::Ud,
        Transport::Xrc => Service::Xrc,
    };
    rule.qpn.is_none_or(|qpn| qpn == head.source || qpn == head.dest)
        && rule.source.is_none_or(|qpn| qpn == head.source)
        && rule.dest.is_none_or(|qpn| qpn == head.dest)
        && rule.service.is_none_or(|wanted| wanted == service)
        && rule.psn.is_none_or(|psn| psn == head.psn)
        && is_kind(rule.kind, head.operation)
}

fn is_kind(kind: PacketKind, operation: Operation) -> bool {
    match kind {
        PacketKind::Any => true,
        PacketKind::Request => !operation.is_response(),
        PacketKind::Response => operation.is_response(),
        PacketKind::Send => operation.is_send(),
        PacketKind::Write => operation.is_write(),
        PacketKind::Read => operation == Operation::ReadRequest,
        PacketKind::Atomic => operation.is_atomic(),
        PacketKind::ReadResponse => {
            use Operation as O;
            matches!(operation, O::ReadFirst | O::ReadMiddle | O::ReadLast | O::ReadOnly)
        }
        PacketKind::AtomicResponse => operation == Operation::AtomicAck,
        PacketKind::Ack => operation == Operation::Ack,
    }
}

/// Packets that are on their way at a time.
const MAX_DELAYED: usize = 4096;
/// Bytes of their payload.
const MAX_DELAYED_BYTES: usize = 16 << 20;

/// Packets that arrive later. What arrives at the same time keeps its order.
#[derive(Debug, Default)]
pub struct Delayed {
    /// By time of arrival and order of sending.
    packets: BTreeMap<(u64, u64), Packet>,
    sent: u64,
    bytes: usize,
}

fn held(packet: &Packet) -> usize {
    match &packet.payload {
        Payload::Held(bytes) => bytes.len(),
        _ => 0,
    }
}

impl Delayed {
    /// Keeps a packet, whose payload does not refer to its sender any more, until `at`; a packet for which there is no
    /// room is given back.
    #[must_use]
    pub fn push(&mut self, at: u64, packet: Packet) -> Option<Packet> {
        let bytes = self.bytes + held(&packet);
        if self.packets.len() >= MAX_DELAYED || bytes > MAX_DELAYED_BYTES {
            return Some(packet);
        }
        self.bytes = bytes;
        self.packets.insert((at, self.sent), packet);
        self.sent += 1;
        None
    }

    /// The first packet that has arrived by now.
    pub fn pop(&mut self, now: u64) -> Option<Packet> {
        let first = self.packets.first_entry().filter(|first| first.key().0 <= now)?;
        let packet = first.remove();
        self.bytes -= held(&packet);
        Some(packet)
    }

    /// When the first packet arrives.
    pub fn next_deadline(&self) -> Option<u64> {
        self.packets.first_key_value().map(|((at, _), _)| *at)
    }

    /// Loses everything, as an unplugged cable does.
    pub fn clear(&mut self) {
        *self = Delayed::default();
    }
}

/// Late packets that a portion of work looks at.
const ARRIVALS_PER_PORTION: usize = 64;

impl Portion<'_> {
    /// Does to a packet what the wire does.
    pub(super) fn suffer(&mut self, packet: Packet, fate: Fate) {
        match fate {
            Fate::Deliver => self.arrive(&packet),
            Fate::Drop => {}
            Fate::Duplicate => {
                // The first may end the message, and the guest may then use its memory for something else.
                let second = self.hold(&packet);
                self.arrive(&packet);
                // What cannot be read was found out by the receiver of the first.
                if let Some(second) = second {
                    self.arrive(&second);
                }
            }
            Fate::Delay(nanoseconds) => {
                let at = self.now.saturating_add(nanoseconds);
                // What cannot be read is found out by the receiver.
                let back = match self.hold(&packet) {
                    Some(held) => self.hca.rdma.delayed.push(at, held),
                    None => Some(packet),
                };
                if let Some(packet) = back {
                    self.arrive(&packet);
                }
            }
        }
    }

    /// The same packet with bytes of its own.
    pub(super) fn hold(&mut self, packet: &Packet) -> Option<Packet> {
        let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
        let mut memory = Memory { keys, device: &mut self.hca.memic, bus: self.bus };
        memory.hold(packet).ok()
    }

    /// Receives late packets whose time has come.
    pub(super) fn late_arrivals(&mut self) {
        for _ in 0..ARRIVALS_PER_PORTION {
            if !self.hca.rdma.spreading.is_empty() {
                return;
            }
            let Some(packet) = self.hca.rdma.delayed.pop(self.now) else { return };
            if self.hca.vport_is_up() {
                self.arrive(&packet);
            }
        }
    }
}

#[cfg(test)]
mod tests;
