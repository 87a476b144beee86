//! The firmware tracer: what the device does, in messages that it writes into a ring of the driver's (kernel
//! `diag/fw_tracer.c`; layouts in [`crate::prm::diag`]).
//!
//! A message is an event with the address of its format in the string database, and one event for each parameter. Events
//! carry the low seven bits of their time; a timestamp event dates those before it. 32 events are a block, whose last one
//! is a timestamp. The driver takes a block when that timestamp is new, so it is written after the rest of the block
//! has landed. A block that is not full is closed when the device dumps its state, or when its first message is
//! [`PATIENCE_NS`] old. An armed tracer tells the driver of blocks by event, once.
//!
//! Traced are commands, the checks that refused them, asynchronous events, refused work requests for keys, and core
//! dumps. The commands that the tracer itself causes are not.

mod strings;

use std::collections::VecDeque;

use super::hca::{Event, Hca};
use crate::cmdif::error::CmdError;
use crate::dma::order::Scope;
use crate::dma::{Bus, Stream};
use crate::log_limit::limited;
use crate::prm::diag::{TracerEvent, TracerStringEvent, TracerTimestampEvent};
use crate::prm::event::EventType;
use crate::prm::opcode::Opcode;

pub use strings::{Section, Strings, strings};

/// Bytes of a block.
pub const BLOCK: usize = 256;
/// Events of a block without the timestamp at its end.
const EVENTS: usize = BLOCK / 8 - 1;
/// Blocks that wait to be written; what comes when there are so many is lost.
const MAX_WAITING: usize = 256;
/// How long a message waits for its block to fill.
pub const PATIENCE_NS: u64 = 100_000_000;
/// `event_id` of a timestamp.
const TIMESTAMP: u32 = 0xff;
/// Bits of a timestamp that its events carry themselves.
const WINDOW: u32 = 7;
const TIME_MASK: u64 = (1 << 53) - 1;

/// What a message is about: its `event_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A command.
    Command = 0x10,
    /// An asynchronous event.
    Event = 0x11,
    /// A memory key.
    Key = 0x12,
    /// A core dump.
    Dump = 0x13,
}

/// First `event_id` of messages, and how many there are.
pub const FIRST_SOURCE: u32 = Source::Command as u32;
/// See [`FIRST_SOURCE`].
pub const SOURCES: u32 = 4;

/// Where the ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The memory key.
    pub key: u32,
    /// The address in it.
    pub start: u64,
    /// log2 of its size in pages of 4 KiB.
    pub log_pages: u32,
}

impl Ring {
    /// Bytes of the ring.
    pub fn len(&self) -> u64 {
        4096 << self.log_pages
    }

    /// Whether it has no bytes; it always has some.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// The tracer.
#[derive(Debug, Default)]
pub struct Tracer {
    /// Whether the driver owns it.
    pub owned: bool,
    ring: Option<Ring>,
    running: bool,
    armed: bool,
    now: u64,
    /// The block that is being filled, and when its first message came.
    events: Vec<[u8; 8]>,
    since: u64,
    /// Blocks that are full.
    full: VecDeque<[u8; BLOCK]>,
    /// The block of the ring that is written next.
    next: u64,
    /// Blocks that were written and not told of.
    untold: bool,
    /// Time of the last message, and whether no timestamp has dated it yet.
    last: u64,
    undated: bool,
    message: u32,
    /// Something was lost before the next message.
    lost: bool,
}

impl Tracer {
    /// Whether messages are taken.
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// The ring, if the driver has named one.
    pub fn ring(&self) -> Option<Ring> {
        self.ring
    }

    /// The time of what happens from now on, in nanoseconds.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
    }

    /// The present time as messages have it.
    pub fn timestamp(&self) -> u64 {
        self.now & TIME_MASK
    }

    /// Forgets the driver and everything else, as a reset does.
    pub fn reset(&mut self) {
        *self = Tracer { now: self.now, ..Tracer::default() };
    }

    /// Names the ring; messages have to be switched on anew.
    pub fn set_ring(&mut self, ring: Ring) {
        *self = Tracer { now: self.now, owned: self.owned, ring: Some(ring), ..Tracer::default() };
    }

    /// Switches messages on or off; on only with a ring.
    pub fn run(&mut self, on: bool) -> bool {
        self.running = on && self.ring.is_some();
        self.running == on
    }

    /// The driver wants an event when there are blocks.
    pub fn arm(&mut self) {
        self.armed = true;
    }

    /// When the block that is being filled is closed in any case.
    pub fn next_deadline(&self) -> Option<u64> {
        (!self.events.is_empty()).then(|| self.since.saturating_add(PATIENCE_NS))
    }

    /// Takes a message: the address of its format and its parameters.
    fn note(&mut self, source: Source, format: u32, params: &[u32]) {
        if !self.running {
            return;
        }
        // Time never stands still between blocks: a block is new if its timestamp is later than that of the last one.
        let mut time = (self.now & TIME_MASK).max(self.last);
        if self.undated && time >> WINDOW != self.last >> WINDOW {
            self.date();
        }
        if self.events.len() + 1 + params.len() > EVENTS {
            self.close();
        }
        if self.full.len() >= MAX_WAITING {
            self.lost = true;
            return;
        }
        if !self.undated {
            time = time.max(self.last + 1);
        }
        (self.last, self.undated) = (time, true);
        if self.events.is_empty() {
            self.since = self.now;
        }
        for (i, word) in [format].iter().chain(params).enumerate() {
            let mut event = TracerStringEvent::zeroed();
            event.set_lost(u32::from(std::mem::take(&mut self.lost)));
            event.set_timestamp(time as u32 & 0x7f);
            event.set_event_id(source as u32);
            event.set_tmsn(self.message & 0x1fff);
            event.set_tdsn(i as u32 & 7);
            event.set_string_param(*word);
            self.push(event.as_bytes());
        }
        self.message = self.message.wrapping_add(1);
    }

    fn push(&mut self, event: &[u8]) {
        if let Ok(event) = event.try_into() {
            self.events.push(event);
        }
    }

    /// A timestamp just behind the last message: all messages of its window before it are dated exactly by it.
    fn date(&mut self) {
        if self.events.len() < EVENTS {
            let stamp = self.stamp();
            self.events.push(stamp);
            self.undated = false;
        }
    }

    fn stamp(&self) -> [u8; 8] {
        let time = self.last + 1;
        let mut event = TracerTimestampEvent::zeroed();
        event.set_event_id(TIMESTAMP);
        event.set_timestamp7_0(time as u32 & 0xff);
        event.set_timestamp39_8((time >> 8) as u32);
        event.set_timestamp52_40((time >> 40) as u32 & 0x1fff);
        event.as_bytes().try_into().unwrap_or_default()
    }

    /// Closes the block that is being filled, if it has messages. What is left of it says the time again.
    pub fn close(&mut self) {
        if self.events.is_empty() {
            return;
        }
        let stamp = self.stamp();
        self.events.resize(EVENTS + 1, stamp);
        let mut block = [0; BLOCK];
        for (slot, event) in block.chunks_exact_mut(8).zip(&self.events) {
            slot.copy_from_slice(event);
        }
        self.events.clear();
        self.undated = false;
        self.full.push_back(block);
    }

    /// A command was answered.
    pub fn command(&mut self, opcode: Opcode, op_mod: u16, uid: u16, slot: u8, result: &Result<(), CmdError>) {
        if !self.running {
            return;
        }
        let strings = strings();
        let (uid, op_mod, slot) = (uid.into(), op_mod.into(), slot.into());
        match result {
            Ok(()) => self.note(Source::Command, strings.command(opcode), &[op_mod, uid, slot]),
            Err(error) => {
                let (status, syndrome) = (error.status.0.into(), error.syndrome.0);
                match strings.refused(opcode) {
                    Some(format) => self.note(Source::Command, format, &[op_mod, uid, slot, status, syndrome]),
                    None => {
                        let params = [opcode.0.into(), op_mod, uid, slot, status, syndrome];
                        self.note(Source::Command, strings.unknown_opcode, &params);
                    }
                }
                if let Some(format) = strings.syndrome(syndrome) {
                    self.note(Source::Command, format, &[]);
                }
            }
        }
    }

    /// An asynchronous event is on its way.
    pub fn event(&mut self, event: &Event) {
        if !self.running || event.event_type == EventType::DEVICE_TRACER.0 {
            return;
        }
        let dword = |at: usize| {
            event.data.get(at..at + 4).map_or(0, |word| u32::from_be_bytes(word.try_into().unwrap_or_default()))
        };
        let params = [event.event_type.into(), event.sub_type.into(), dword(0), dword(24)];
        let strings = strings();
        match strings.event(event.event_type) {
            Some(format) => self.note(Source::Event, format, &params[1..]),
            None => self.note(Source::Event, strings.unknown_event, &params),
        }
    }

    /// A work request that would have changed a key was refused by a check.
    pub fn key_refused(&mut self, syndrome: u32) {
        if !self.running {
            return;
        }
        let strings = strings();
        self.note(Source::Key, strings.key_refused, &[syndrome]);
        if let Some(format) = strings.syndrome(syndrome) {
            self.note(Source::Key, format, &[]);
        }
    }
}

/// Objects of a kind that a core dump lists at most.
const DUMPED: usize = 32;

impl Hca {
    /// Writes the state of the device into the trace, and closes it so that the driver finds all of it.
    pub fn core_dump(&mut self) {
        if !self.tracer.running {
            return;
        }
        let strings = strings();
        let objects = &self.objects;
        let tracer = &mut self.tracer;
        let mut note = |format: u32, params: &[u32]| tracer.note(Source::Dump, format, params);
        let pages = objects.pages.counters();
        note(strings.dump_begin, &[self.issi.into(), pages.lent as u32, self.events_lost as u32]);
        let count = |len: usize| len as u32;
        note(
            strings.dump_objects,
            &[
                count(objects.eqs.len()),
                count(objects.cqs.len()),
                count(objects.qps.len()),
                count(objects.sqs.len()),
                count(objects.rqs.len()),
                count(objects.mkeys.len()),
            ],
        );
        for (eqn, entry) in objects.eqs.iter().take(DUMPED) {
            let eqc = entry.object.queried();
            note(strings.dump_eq, &[eqn, eqc.st(), eqc.status(), eqc.producer_counter(), eqc.consumer_counter()]);
        }
        for (cqn, entry) in objects.cqs.iter().take(DUMPED) {
            let cq = &entry.object;
            note(strings.dump_cq, &[cqn, cq.eqn(), u32::from(cq.healthy()), 1 << cq.ring().log_size]);
        }
        for (qpn, entry) in objects.qps.iter().take(DUMPED) {
            let qp = &entry.object;
            let context = &qp.context;
            let state = u32::from(qp.state().code().0);
            note(strings.dump_qp, &[qpn, state, context.st(), context.remote_qpn(), context.pd()]);
        }
        for (sqn, entry) in objects.sqs.iter().take(DUMPED) {
            let sq = &entry.object;
            note(strings.dump_sq, &[sqn, sq.state.0.into(), sq.executed.into(), u32::from(sq.scheduled)]);
        }
        for (rqn, entry) in objects.rqs.iter().take(DUMPED) {
            let rq = &entry.object;
            note(strings.dump_rq, &[rqn, rq.state.0.into(), rq.consumed.into(), rq.posted.into()]);
        }
        note(strings.dump_end, &[]);
        self.tracer.close();
    }

    /// Writes the blocks of the trace that are full or have waited long enough, and tells the driver if it asked to be.
    pub fn write_traces(&mut self, bus: &mut Bus) {
        let tracer = &mut self.tracer;
        if tracer.next_deadline().is_some_and(|at| at <= tracer.now) {
            tracer.close();
        }
        let Some(ring) = self.tracer.ring else { return };
        while let Some(block) = self.tracer.full.pop_front() {
            let (messages, stamp) = block.split_at(BLOCK - 8);
            let at = ring.start.wrapping_add(self.tracer.next * BLOCK as u64);
            let stored = self.store_through_key(ring.key, at, messages, None, bus).and_then(|()| {
                let landed = bus.horizon(Stream::Command);
                self.store_through_key(ring.key, at.wrapping_add(messages.len() as u64), stamp, landed, bus)
            });
            let tracer = &mut self.tracer;
            if let Err(error) = stored {
                limited!(warn, target: "cx10::device", "the trace through key {:#x} ends: {error}", ring.key);
                (tracer.running, tracer.lost) = (false, true);
                tracer.full.clear();
                tracer.events.clear();
                return;
            }
            tracer.next = (tracer.next + 1) % (ring.len() / BLOCK as u64);
            tracer.untold = true;
        }
        if self.tracer.untold && self.tracer.armed && self.has_room_for_events() {
            (self.tracer.untold, self.tracer.armed) = (false, false);
            // The event tells of memory that has to be there by then, whatever keys the ring's own leads to.
            bus.drain(Scope::Stream(Stream::Command));
            let (event_type, sub_type) = (EventType::DEVICE_TRACER.0, TracerEvent::TRACES_AVAILABLE.0);
            self.raise(Event { event_type, sub_type, data: [0; 28], eqn: None });
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
