//! Completion queues (PRM "Completion Queues"; kernel `include/linux/mlx5/cq.h`, `drivers/infiniband/hw/mlx5/cq.c`).
//!
//! [`Hca::complete`] is the one way in: an entry is written with its owner bit last; the queue then decides whether
//! its event is due. Events wait in [`CqEvents`], each queue at most once, until the function delivers them.
//!
//! Requests for events come by doorbell. Where doorbells are polled ([`super::poll`]) one may be overwritten; then the
//! arm word of the doorbell record tells: it is a request unless it is the one that was seen last. A request has the
//! sequence number of its event, so a word that is seen again asks for an event that is under way. What the word is
//! before the first request cannot be told from a request, and is taken for one; the driver of the kernel marks it.
//!
//! A request is for completions that are beyond its consumer index and that no event has told of. So one that comes
//! after completions nobody knows of has its event at once, and no wake-up is lost; one that comes before the
//! completions of the last event are taken off waits for new ones. On ConnectX-5 perftest waits for ever where it
//! leaves completions of an event in the ring (linux-rdma/perftest issue 137, pull request 203), and its latency tests
//! with events ask again before they look into the ring.
//!
//! The consumer index lives in the doorbell record and is read only when the ring looks full. A full ring, or one
//! that cannot be written, is a CQ error: event type 4, and every later completion is dropped. The queue pairs that
//! complete there are then to be put into error by whoever owns them; [`Completion::Dropped`] tells.

use std::collections::{BTreeSet, VecDeque};

use super::hca::{Event, Hca};
use super::objects::{Charged, Kind, ObjRef};
use super::page_list::PageList;
use crate::dma::{Bus, Horizon, Iova, Store, StoreClass, Stream, Wait};
use crate::log_limit::limited;
use crate::prm::cq::Cqc;
use crate::prm::eq::{CompEvent, CqError};
use crate::prm::event::EventType;
use crate::prm::values::{CqState, CqStatus, CqeOpcode, CqeSize};

/// Bytes of a completion without what may precede it in a 128-byte entry.
pub const CQE: usize = 64;
/// What the kernel's driver writes to the arm word of a queue that is not armed yet: a sequence number that requests
/// have only after two events (`cq.c:mlx5_create_cq`).
const UNARMED: u32 = 2 << 28;
/// Largest value of an index.
pub const INDEX_MASK: u32 = 0xff_ffff;
/// Timers that one portion of work looks at.
const TIMERS_PER_PORTION: usize = 64;
/// `syndrome` of a CQ error event.
const OVERRUN: u32 = 1;
const ACCESS_VIOLATION: u32 = 2;

/// What became of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It is in the ring.
    Posted,
    /// The queue is in error or does not exist; the completion is gone.
    Dropped,
}

/// What a completion tells of: it must not be seen before what it tells of has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// All that was done for this stream.
    pub stream: Stream,
    /// What its peer had done.
    pub after: Option<Horizon>,
}

impl From<Stream> for Completed {
    fn from(stream: Stream) -> Completed {
        Completed { stream, after: None }
    }
}

/// The memory of a queue and the size of its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Its pages.
    pub buffer: PageList,
    /// log2 of the number of entries.
    pub log_size: u32,
    /// Bytes from entry to entry: 64 or 128.
    pub stride: u64,
}

impl Ring {
    /// What it is charged for beyond the queue's context.
    pub fn extra(&self) -> u64 {
        8 * self.buffer.pages() as u64
    }

    fn slot(&self, index: u32) -> Option<Iova> {
        let slot = u64::from(index & ((1 << self.log_size) - 1));
        self.buffer.entry(slot * self.stride, self.stride)
    }

    /// Ownership bit of the entry at `index`: the parity of the lap.
    fn owner(&self, index: u32) -> u8 {
        (index >> self.log_size & 1) as u8
    }
}

/// A request for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arm {
    ci: u32,
    solicited: bool,
}

impl Arm {
    /// The request that an arm word stands for.
    fn of(word: u32) -> Arm {
        Arm { ci: word & INDEX_MASK, solicited: word >> 24 & 1 != 0 }
    }
}

/// Whether the event that was asked for is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Not,
    Now,
    At(u64),
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    /// The context as the driver wrote it; indices and states below are the live ones.
    pub context: Cqc<Vec<u8>>,
    ring: Ring,
    record: Iova,
    record_umem: Option<ObjRef>,
    producer: u32,
    consumer: u32,
    status: CqStatus,
    arm: Option<Arm>,
    /// The arm word that was seen last.
    seen: Option<u32>,
    /// Events made, as far as it matters.
    events: u8,
    last_notified: u32,
    /// Producer index behind the last solicited completion.
    last_solicited: Option<u32>,
    /// Whether it came since the last event.
    solicited_unreported: bool,
    /// Completions since the last event.
    unreported: u32,
    last_event_at: u64,
    last_cqe_at: u64,
    timer: Option<u64>,
    event_waits: bool,
}

impl Charged for CompletionQueue {
    fn extra(&self) -> u64 {
        self.ring.extra()
    }
}

/// Whether `a` is beyond `b` on the circle of indices.
fn ahead(a: u32, b: u32) -> bool {
    let distance = a.wrapping_sub(b) & INDEX_MASK;
    distance != 0 && distance <= INDEX_MASK / 2
}

/// Why a resize is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeError {
    /// The completions that wait do not fit the new ring, or the old one has no room for the marker.
    Outstanding,
    /// The queue is in error.
    InError,
}

impl CompletionQueue {
    /// An empty queue in `ring` whose consumer index is at `record`, which may lie in a user memory object.
    pub fn new(context: Cqc<Vec<u8>>, ring: Ring, record: Iova, record_umem: Option<ObjRef>) -> CompletionQueue {
        CompletionQueue {
            context,
            ring,
            record,
            record_umem,
            producer: 0,
            consumer: 0,
            status: CqStatus::OK,
            arm: None,
            seen: None,
            events: 0,
            last_notified: 0,
            last_solicited: None,
            solicited_unreported: false,
            unreported: 0,
            last_event_at: 0,
            last_cqe_at: 0,
            timer: None,
            event_waits: false,
        }
    }

    /// The UAR page that its doorbells come through.
    pub fn uar(&self) -> u32 {
        self.context.uar_page()
    }

    /// The event queue of its completion events.
    pub fn eqn(&self) -> u32 {
        self.context.c_eqn_or_apu_element()
    }

    /// What it depends on when its ring lies in `ring_umem`.
    pub fn deps(&self, ring_umem: Option<ObjRef>) -> Vec<ObjRef> {
        let mut deps = vec![ObjRef { kind: Kind::Eq, id: self.eqn() }, ObjRef { kind: Kind::Uar, id: self.uar() }];
        deps.extend(self.record_umem);
        deps.extend(ring_umem);
        deps
    }

    /// Its ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Its doorbell record.
    pub fn record(&self) -> Iova {
        self.record
    }

    /// Whether completions are still taken.
    pub fn healthy(&self) -> bool {
        self.status == CqStatus::OK
    }

    /// The context with the live state, as a query returns it.
    pub fn queried(&mut self, cqn: u32, bus: &mut Bus) -> Cqc<Vec<u8>> {
        // A record that cannot be read leaves the index that was seen last.
        let _ = self.read_consumer(cqn, bus);
        let mut context = self.context.clone();
        context.set_status(u32::from(self.status.0));
        context.set_st(u32::from(match self.arm {
            Some(Arm { solicited: true, .. }) => CqState::SOLICITED_NOTIFICATION_REQUEST_ARMED.0,
            Some(Arm { solicited: false, .. }) => CqState::NOTIFICATION_REQUEST_ARMED.0,
            None => CqState::FIRED.0,
        }));
        context.set_last_notified_index(self.last_notified);
        context.set_last_solicit_index(self.last_solicited.unwrap_or(0));
        context.set_consumer_counter(self.consumer);
        context.set_producer_counter(self.producer);
        context
    }

    fn read_consumer(&mut self, cqn: u32, bus: &mut Bus) -> bool {
        match bus.load_dbrec(Stream::Cq(cqn), self.record) {
            Ok(ci) => {
                self.consumer = ci & INDEX_MASK;
                true
            }
            Err(_) => false,
        }
    }

    fn waiting(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & INDEX_MASK
    }

    fn full(&self) -> bool {
        // A consumer index ahead of the producer reads as a ring that is more than full: the guest's mistake.
        self.waiting() >= 1 << self.ring.log_size
    }

    /// Writes a completion; its owner bit is set here. On failure the queue is in error and the syndrome says why.
    fn post(&mut self, cqn: u32, cqe: &[u8; CQE], of: Completed, bus: &mut Bus, now: u64) -> Result<(), u32> {
        if self.context.oi() == 0 && self.full() {
            if !self.read_consumer(cqn, bus) {
                self.status = CqStatus::CQ_WRITE_FAIL;
                return Err(ACCESS_VIOLATION);
            }
            if self.full() {
                self.status = CqStatus::CQ_OVERFLOW;
                return Err(OVERRUN);
            }
        }
        self.write(cqn, cqe, of, bus)?;
        self.unreported = self.unreported.saturating_add(1);
        self.last_cqe_at = now;
        if solicits(cqe) {
            self.last_solicited = Some(self.producer);
            self.solicited_unreported = true;
        }
        Ok(())
    }

    /// Writes an entry at the producer index and moves it on.
    fn write(&mut self, cqn: u32, cqe: &[u8; CQE], of: Completed, bus: &mut Bus) -> Result<(), u32> {
        let mut entry = [0; 2 * CQE];
        entry[CQE..].copy_from_slice(cqe);
        let last = &mut entry[2 * CQE - 1];
        *last = *last & !1 | self.ring.owner(self.producer);
        let entry = &entry[2 * CQE - self.ring.stride as usize..];
        // Collapsed: every completion goes to the first entry.
        let slot = if self.context.cc() != 0 { 0 } else { self.producer };
        let stored = match self.ring.slot(slot) {
            Some(at) => {
                let wait = Wait { after: of.after, ..Wait::default() };
                let store = Store { chain: Some(cqn), wait, ..Store::device(StoreClass::Cqe, of.stream) };
                bus.store(store, at, entry).is_ok()
            }
            None => false,
        };
        if !stored {
            self.status = CqStatus::CQ_WRITE_FAIL;
            return Err(ACCESS_VIOLATION);
        }
        self.producer = self.producer.wrapping_add(1) & INDEX_MASK;
        Ok(())
    }

    /// Whether the queue can move to `ring` now.
    pub fn may_resize(&mut self, cqn: u32, ring: &Ring, bus: &mut Bus) -> Result<(), ResizeError> {
        if !self.healthy() {
            return Err(ResizeError::InError);
        }
        // A record that cannot be read leaves the index that was seen last, which is never too far on.
        let _ = self.read_consumer(cqn, bus);
        // The marker needs a place in the old ring.
        if self.full() || self.waiting() > 1 << ring.log_size {
            return Err(ResizeError::Outstanding);
        }
        Ok(())
    }

    /// Moves on to another ring: the old one gets a marker, indices go on. If the marker cannot be written the queue
    /// is in error, with the syndrome that is returned.
    pub fn resize(&mut self, cqn: u32, ring: Ring, context: Cqc<Vec<u8>>, bus: &mut Bus) -> Result<(), u32> {
        let mut marker = [0; CQE];
        marker[CQE - 1] = CqeOpcode::RESIZE_CQ.0 << 4;
        self.write(cqn, &marker, Stream::Cq(cqn).into(), bus)?;
        self.context = context;
        self.ring = ring;
        Ok(())
    }

    fn moderated(&self) -> bool {
        self.context.cq_period() != 0 && self.context.cq_max_count() != 0
    }

    fn due(&self, now: u64) -> Due {
        const FROM_CQE: u32 = 1;
        let Some(arm) = self.arm.filter(|_| self.healthy()) else { return Due::Not };
        let solicited = self.solicited_unreported && self.last_solicited.is_some_and(|index| ahead(index, arm.ci));
        let wanted = if arm.solicited { solicited } else { self.unreported > 0 && ahead(self.producer, arm.ci) };
        if !wanted {
            return Due::Not;
        }
        let broken = solicited && self.context.scqe_break_moderation_en() != 0;
        if !self.moderated() || broken || self.unreported >= self.context.cq_max_count() {
            return Due::Now;
        }
        let since = if self.context.cq_period_mode() == FROM_CQE { self.last_cqe_at } else { self.last_event_at };
        let deadline = since.saturating_add(u64::from(self.context.cq_period()) * 1000);
        if deadline <= now { Due::Now } else { Due::At(deadline) }
    }
}

/// Whether a completion counts for a queue that is armed for solicited ones: it says so itself, or is an error.
fn solicits(cqe: &[u8; CQE]) -> bool {
    let op_own = cqe[CQE - 1];
    let error = [CqeOpcode::REQ_ERR, CqeOpcode::RESP_ERR, CqeOpcode::SIG_ERR].contains(&CqeOpcode(op_own >> 4));
    error || op_own & 2 != 0
}

/// Bytes from entry to entry for a `cqe_sz`, or `None` if there is no such size.
pub fn stride(cqe_sz: u32) -> Option<u64> {
    match CqeSize(cqe_sz as u8) {
        CqeSize::SIZE_64 => Some(64),
        CqeSize::SIZE_128 | CqeSize::SIZE_128_PAD => Some(128),
        _ => None,
    }
}

/// Completion events on their way to an event queue, and those that moderation holds back.
#[derive(Debug, Default)]
pub struct CqEvents {
    ready: VecDeque<u32>,
    timers: BTreeSet<(u64, u32)>,
}

impl CqEvents {
    /// Whether events wait to be delivered.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the first event that moderation holds back is due.
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = CqEvents::default();
    }

    /// Forgets a queue that is destroyed. An event that is ready is dropped when its turn comes.
    pub fn forget(&mut self, cqn: u32, cq: &CompletionQueue) {
        if let Some(at) = cq.timer {
            self.timers.remove(&(at, cqn));
        }
    }

    fn schedule(&mut self, cqn: u32, cq: &mut CompletionQueue, now: u64) {
        let due = cq.due(now);
        let timer = if let Due::At(at) = due { Some(at) } else { None };
        if cq.timer != timer {
            if let Some(at) = cq.timer {
                self.timers.remove(&(at, cqn));
            }
            if let Some(at) = timer {
                self.timers.insert((at, cqn));
            }
            cq.timer = timer;
        }
        if due == Due::Now {
            cq.arm = None;
            cq.last_notified = cq.producer;
            cq.events = cq.events.saturating_add(1);
            cq.last_event_at = now;
            cq.unreported = 0;
            cq.solicited_unreported = false;
            if !cq.event_waits {
                cq.event_waits = true;
                self.ready.push_back(cqn);
            }
        }
    }
}

impl Hca {
    /// Writes a completion to a queue: `cqe` as the PRM has it, whatever its owner bit.
    pub fn complete(&mut self, cqn: u32, cqe: &[u8; CQE], of: Completed, bus: &mut Bus, now: u64) -> Completion {
        let Some(entry) = self.objects.cqs.get_mut(cqn).filter(|entry| entry.object.healthy()) else {
            return Completion::Dropped;
        };
        match entry.object.post(cqn, cqe, of, bus, now) {
            Ok(()) => {
                self.cq_events.schedule(cqn, &mut entry.object, now);
                Completion::Posted
            }
            Err(syndrome) => {
                self.cq_failed(cqn, syndrome);
                Completion::Dropped
            }
        }
    }

    /// Tells the driver that a queue went into error.
    pub fn cq_failed(&mut self, cqn: u32, syndrome: u32) {
        limited!(warn, target: "cx10::cq", "cqn={cqn:#x}: error, syndrome {syndrome}");
        if syndrome == OVERRUN {
            self.vport.env.cq_overrun = self.vport.env.cq_overrun.wrapping_add(1);
        }
        let mut error = CqError::zeroed();
        error.set_cqn(cqn);
        error.set_syndrome(syndrome);
        let mut data = [0; 28];
        data.copy_from_slice(error.as_bytes());
        self.raise(Event { event_type: EventType::CQ_ERROR.0, sub_type: 0, data, eqn: None });
    }

    /// Asks for an event as the arm word says. Returns whether the queue takes doorbells from `uar`.
    pub fn arm_cq(&mut self, uar: u32, cqn: u32, word: u32, now: u64) -> bool {
        // A page of this number may have been freed and allocated anew; then it is not the queue's any more.
        let page = ObjRef { kind: Kind::Uar, id: uar };
        let Some(entry) = self.objects.cqs.get_mut(cqn).filter(|entry| entry.deps().contains(&page)) else {
            return false;
        };
        entry.object.seen = Some(word);
        entry.object.arm = Some(Arm::of(word));
        self.cq_events.schedule(cqn, &mut entry.object, now);
        true
    }

    /// Looks for a request in the arm word of a queue whose doorbell may have been overwritten.
    pub fn look_at_arm(&mut self, cqn: u32, bus: &mut Bus, now: u64) {
        let Some(entry) = self.objects.cqs.get_mut(cqn) else { return };
        let cq = &mut entry.object;
        let Some(at) = cq.record.checked_add(4) else { return };
        // A record that cannot be read asks for nothing.
        let Ok(word) = bus.load_dbrec(Stream::Cq(cqn), at) else { return };
        if cq.seen == Some(word) || (word == UNARMED && cq.events < 2) {
            return;
        }
        cq.seen = Some(word);
        cq.arm = Some(Arm::of(word));
        self.cq_events.schedule(cqn, cq, now);
    }

    /// Looks again whether a queue's event is due, after its moderation changed.
    pub fn cq_changed(&mut self, cqn: u32, now: u64) {
        if let Some(entry) = self.objects.cqs.get_mut(cqn) {
            self.cq_events.schedule(cqn, &mut entry.object, now);
        }
    }

    /// Makes events ready whose moderation period has passed; whether there are more of them.
    pub fn expire_cq_timers(&mut self, now: u64) -> bool {
        for _ in 0..TIMERS_PER_PORTION {
            let Some(&(at, cqn)) = self.cq_events.timers.first() else { return false };
            if at > now {
                return false;
            }
            self.cq_events.timers.pop_first();
            if let Some(entry) = self.objects.cqs.get_mut(cqn) {
                entry.object.timer = None;
                self.cq_events.schedule(cqn, &mut entry.object, now);
            }
        }
        self.cq_events.next_deadline().is_some_and(|at| at <= now)
    }

    /// The next completion event to deliver.
    pub fn next_completion_event(&mut self) -> Option<Event> {
        loop {
            let cqn = self.cq_events.ready.pop_front()?;
            // The queue may be gone, or be another one with the same number.
            let Some(entry) = self.objects.cqs.get_mut(cqn).filter(|entry| entry.object.event_waits) else {
                continue;
            };
            entry.object.event_waits = false;
            let mut event = CompEvent::zeroed();
            event.set_cq_number(cqn);
            let mut data = [0; 28];
            data.copy_from_slice(event.as_bytes());
            let eqn = Some(entry.object.eqn());
            return Some(Event { event_type: EventType::COMP.0, sub_type: 0, data, eqn });
        }
    }
}
