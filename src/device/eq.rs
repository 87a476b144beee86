//! Event queues (PRM "Event Queues"; kernel `eq.c`, `struct mlx5_eqe`).
//!
//! An entry is written with its owner byte last; then, if the queue is armed, its vector is signalled and the
//! queue is no longer armed. Arming with a consumer index behind the producer signals at once, so no wake-up is
//! lost.
//!
//! A queue whose doorbells are polled ([`super::poll`]) may miss what the driver wrote, and signals its vector with
//! every entry, armed or not: an interrupt too many is legal. Its consumer index may be behind what the driver has
//! taken. When it looks full, the event waits and the vector is signalled once more; the driver answers with its
//! index. Only if that does not help for [`PATIENCE_NS`] it is overrun.

use super::hca::Event;
use super::objects::Charged;
use super::page_list::PageList;
use crate::dma::{Bus, Store, StoreClass, Stream, Wait};
use crate::log_limit::limited;
use crate::prm::eq::Eqc;
use crate::prm::event::EventType;

/// Bytes of one entry.
pub const EQE_SIZE: usize = 64;

const STATE_ARMED: u32 = 0x9;
const STATE_FIRED: u32 = 0xa;
/// `eqc.status`: an entry could not be written or there was no room for it.
const STATUS_WRITE_FAILURE: u32 = 0xa;
const INDEX_MASK: u32 = 0xff_ffff;

/// How long a polled queue may look full before it counts as overrun.
pub const PATIENCE_NS: u64 = 200_000_000;

/// What happened to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is in the queue.
    Delivered,
    /// The queue was full; it is dead.
    Overrun,
    /// The queue looks full, which may be out of date: the event is to be posted again later.
    Full,
    /// The queue could not be written; it is dead.
    Unwritable,
    /// The queue was dead already.
    Dead,
}

/// An event queue.
#[derive(Debug)]
pub struct EventQueue {
    /// The context as the driver wrote it; the indices and states below are the live ones.
    pub context: Eqc<Vec<u8>>,
    /// Which event types come here, bit n of the whole for type n.
    pub event_bitmask: [u64; 4],
    buffer: PageList,
    log_size: u32,
    vector: u32,
    producer: u32,
    consumer: u32,
    armed: bool,
    failed: bool,
    polled: bool,
    /// When it began to look full.
    full_since: Option<u64>,
}

impl Charged for EventQueue {
    fn extra(&self) -> u64 {
        8 * self.buffer.pages() as u64
    }
}

impl EventQueue {
    /// A queue of `1 << log_size` entries in `buffer`.
    pub fn new(context: Eqc<Vec<u8>>, event_bitmask: [u64; 4], buffer: PageList) -> EventQueue {
        let log_size = context.log_eq_size();
        let vector = context.intr();
        let armed = context.st() == STATE_ARMED;
        EventQueue {
            context,
            event_bitmask,
            buffer,
            log_size,
            vector,
            producer: 0,
            consumer: 0,
            armed,
            failed: false,
            polled: false,
            full_since: None,
        }
    }

    /// Whether its doorbells are polled for, so that some may be missed.
    pub fn set_polled(&mut self, polled: bool) {
        self.polled = polled;
    }

    /// The UAR page that its doorbells come through.
    pub fn uar(&self) -> u32 {
        self.context.uar_page()
    }

    /// Its memory.
    pub fn buffer(&self) -> &PageList {
        &self.buffer
    }

    /// Its pages, as a query returns them.
    pub fn pas(&self) -> Vec<u8> {
        self.buffer.to_pas()
    }

    /// Whether events of `event_type` come here.
    pub fn takes(&self, event_type: u8) -> bool {
        self.event_bitmask[usize::from(event_type) / 64] >> (event_type % 64) & 1 != 0
    }

    /// The context with the live state, as a query returns it.
    pub fn queried(&self) -> Eqc<Vec<u8>> {
        let mut context = self.context.clone();
        context.set_status(if self.failed { STATUS_WRITE_FAILURE } else { 0 });
        context.set_st(if self.armed { STATE_ARMED } else { STATE_FIRED });
        context.set_consumer_counter(self.consumer & INDEX_MASK);
        context.set_producer_counter(self.producer & INDEX_MASK);
        context
    }

    /// Whether there is no room for an event.
    pub fn is_full(&self) -> bool {
        self.occupancy() >= 1 << self.log_size
    }

    fn occupancy(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & INDEX_MASK
    }

    /// Writes an event, and signals the vector if armed.
    pub fn post(&mut self, eqn: u32, event: &Event, bus: &mut Bus, now: u64) -> Posted {
        if self.failed {
            return Posted::Dead;
        }
        if self.is_full() {
            if self.polled && now.saturating_sub(*self.full_since.get_or_insert(now)) < PATIENCE_NS {
                return Posted::Full;
            }
            limited!(warn, target: "cx10::eq", "eqn={eqn:#x}: full, event {:#x} is lost", event.event_type);
            self.failed = true;
            return Posted::Overrun;
        }
        let slot = u64::from(self.producer & ((1 << self.log_size) - 1));
        let mut eqe = [0; EQE_SIZE];
        eqe[1] = event.event_type;
        eqe[3] = event.sub_type;
        eqe[0x20..0x3c].copy_from_slice(&event.data);
        eqe[0x3f] = (self.producer >> self.log_size & 1) as u8;
        // What the event tells of is to be seen first: the completions of a queue, the output of a command.
        let chain = event.announces();
        let done = (event.event_type == EventType::CMD.0).then(|| bus.horizon(Stream::Command)).flatten();
        let wait = Wait { after: done, ..Wait::default() };
        let stored = match self.buffer.entry(slot * EQE_SIZE as u64, EQE_SIZE as u64) {
            Some(at) => {
                let store = Store { chain, wait, ..Store::device(StoreClass::Eqe, Stream::Eq(eqn)) };
                bus.store(store, at, &eqe).is_ok()
            }
            None => false,
        };
        if !stored {
            limited!(warn, target: "cx10::eq", "eqn={eqn:#x}: entry {slot} cannot be written");
            self.failed = true;
            return Posted::Unwritable;
        }
        self.producer = self.producer.wrapping_add(1) & INDEX_MASK;
        if self.armed || self.polled {
            self.armed = false;
            bus.signal(Stream::Eq(eqn), self.vector);
        }
        Posted::Delivered
    }

    /// The driver may have armed the queue unseen: signals it if entries are not known to be taken.
    pub fn nudge(&mut self, eqn: u32, bus: &mut Bus) {
        if self.polled && self.occupancy() != 0 {
            bus.signal(Stream::Eq(eqn), self.vector);
        }
    }

    /// The driver moved its consumer index and perhaps armed the queue.
    pub fn doorbell(&mut self, eqn: u32, ci: u32, arm: bool, bus: &mut Bus) {
        let ci = ci & INDEX_MASK;
        // Polled registers are read in an order of their own, so an older index may come later.
        if !self.polled || ci.wrapping_sub(self.consumer) & INDEX_MASK <= INDEX_MASK / 2 {
            if ci != self.consumer {
                self.full_since = None;
            }
            self.consumer = ci;
        }
        if !arm {
            return;
        }
        // A consumer index ahead of the producer is the guest's mistake; it reads as a full lap of pending events.
        if self.occupancy() != 0 {
            self.armed = false;
            bus.signal(Stream::Eq(eqn), self.vector);
        } else {
            self.armed = true;
        }
    }
}
