//! Shared receive queues: receive memory pools, XRC SRQs, and the SRQs of interface step 0 (PRM "Receive Memory
//! Pool", "XRC SRQ", "SRQ"; kernel `drivers/infiniband/hw/mlx5/srq_cmd.c`).
//!
//! The three differ in their contexts; the entries, the doorbell record and the limit are the same and live in
//! [`Pool`]. They share one number space (the driver keeps them in one table), split between their object tables.

use super::hca::{Event, Hca};
use super::objects::Charged;
use super::page_list::PageList;
use crate::dma::{Bus, Iova, Stream};
use crate::prm::eq::QpEvents;
use crate::prm::event::EventType;
use crate::prm::srq::{Rmpc, Srqc, XrcSrqc};
use crate::prm::values::{RmpState, SrqState};

/// Receive work queue entries that several queues share: a linked list of `1 << log_size` entries.
#[derive(Debug)]
pub struct Pool {
    /// Its pages.
    pub buffer: PageList,
    /// Its doorbell record; the first word counts the entries that software posted.
    pub record: Iova,
    /// log2 of the number of entries.
    pub log_size: u32,
    /// log2 of the bytes of an entry.
    pub log_stride: u32,
    consumed: u16,
    posted: u16,
    limit: u16,
    next: u16,
    /// The driver was told that it cannot be used.
    broken: bool,
}

impl Pool {
    /// A pool from which nothing was taken.
    pub fn new(buffer: PageList, record: Iova, log_size: u32, log_stride: u32) -> Pool {
        Pool { buffer, record, log_size, log_stride, consumed: 0, posted: 0, limit: 0, next: 0, broken: false }
    }

    /// Bytes of the entries.
    pub fn bytes(log_size: u32, log_stride: u32) -> u64 {
        1u64 << (log_size + log_stride)
    }

    /// Entries that were taken, counted around 16 bits.
    pub fn consumed(&self) -> u16 {
        self.consumed
    }

    /// Entries that software posted, counted around 16 bits, as the record said last.
    pub fn posted(&self) -> u16 {
        self.posted
    }

    /// The limit that is armed, or 0.
    pub fn limit(&self) -> u16 {
        self.limit
    }

    /// Index of the entry that is taken next.
    pub fn next(&self) -> u16 {
        self.next
    }

    /// How many entries wait as far as is known without a look at the doorbell record.
    pub fn known(&self) -> u16 {
        self.posted.wrapping_sub(self.consumed)
    }

    /// The entry at [`Pool::next`] is taken, and `following` comes after it. Returns whether fewer entries wait than the
    /// limit, which is then disarmed.
    pub fn consume(&mut self, following: u16, number: u32, bus: &mut Bus) -> bool {
        self.consumed = self.consumed.wrapping_add(1);
        // The index is the guest's; the ring has no other entries.
        self.next = following & (((1u32 << self.log_size) - 1) as u16);
        if self.limit == 0 || self.known() >= self.limit {
            return false;
        }
        let due = self.available(number, bus) < self.limit;
        if due {
            self.limit = 0;
        }
        due
    }

    /// How many entries wait to be taken, by the doorbell record. A record that cannot be read adds none.
    pub fn available(&mut self, number: u32, bus: &mut Bus) -> u16 {
        if let Ok(posted) = bus.load_dbrec(Stream::Queue(number), self.record) {
            self.posted = posted as u16;
        }
        self.posted.wrapping_sub(self.consumed)
    }

    /// The same; `None` if the record cannot be read.
    pub fn look(&mut self, number: u32, bus: &mut Bus) -> Option<u16> {
        self.posted = bus.load_dbrec(Stream::Queue(number), self.record).ok()? as u16;
        Some(self.known())
    }

    /// It cannot be used. Returns whether that is new.
    pub fn mark_broken(&mut self) -> bool {
        !std::mem::replace(&mut self.broken, true)
    }

    /// Arms the limit event. Returns whether fewer entries wait than that already; then the event is due at once and
    /// the limit disarmed.
    pub fn arm(&mut self, number: u32, limit: u16, bus: &mut Bus) -> bool {
        let due = limit != 0 && self.available(number, bus) < limit;
        self.limit = if due { 0 } else { limit };
        due
    }
}

/// A receive memory pool.
#[derive(Debug)]
pub struct Rmp {
    /// The context as the driver wrote it, with its present state.
    pub context: Rmpc<Vec<u8>>,
    /// Its entries.
    pub pool: Pool,
}

/// An XRC shared receive queue.
#[derive(Debug)]
pub struct XrcSrq {
    /// The context as the driver wrote it.
    pub context: XrcSrqc<Vec<u8>>,
    /// Its entries.
    pub pool: Pool,
}

/// A shared receive queue of interface step 0.
#[derive(Debug)]
pub struct Srq {
    /// The context as the driver wrote it.
    pub context: Srqc<Vec<u8>>,
    /// Its entries.
    pub pool: Pool,
}

impl Charged for Pool {
    fn extra(&self) -> u64 {
        8 * self.buffer.pages() as u64
    }
}

impl Charged for Rmp {
    fn extra(&self) -> u64 {
        self.pool.extra()
    }
}

impl Charged for XrcSrq {
    fn extra(&self) -> u64 {
        self.pool.extra()
    }
}

impl Charged for Srq {
    fn extra(&self) -> u64 {
        self.pool.extra()
    }
}

impl Rmp {
    /// Its state.
    pub fn state(&self) -> RmpState {
        RmpState(self.context.state() as u8)
    }

    /// The context with the live state, as a query returns it.
    pub fn queried(&mut self, number: u32, bus: &mut Bus) -> Rmpc<Vec<u8>> {
        self.pool.available(number, bus);
        let mut context = self.context.clone();
        let mut wq = context.wq_mut();
        wq.set_lwm(u32::from(self.pool.limit));
        wq.set_hw_counter(u32::from(self.pool.consumed));
        wq.set_sw_counter(u32::from(self.pool.posted));
        context
    }
}

impl XrcSrq {
    /// The context with the live state, as a query returns it.
    pub fn queried(&mut self, number: u32, bus: &mut Bus) -> XrcSrqc<Vec<u8>> {
        let available = self.pool.available(number, bus);
        let mut context = self.context.clone();
        context.set_state(u32::from(SrqState::GOOD.0));
        context.set_lwm(u32::from(self.pool.limit));
        context.set_wqe_cnt(u32::from(available));
        context
    }
}

impl Srq {
    /// The context with the live state, as a query returns it.
    pub fn queried(&mut self, number: u32, bus: &mut Bus) -> Srqc<Vec<u8>> {
        let available = self.pool.available(number, bus);
        let mut context = self.context.clone();
        context.set_state(u32::from(SrqState::GOOD.0));
        context.set_lwm(u32::from(self.pool.limit));
        context.set_wqe_cnt(u32::from(available));
        context
    }
}

impl Hca {
    /// Tells the driver that a shared receive queue fell below its limit.
    pub fn srq_limit_reached(&mut self, number: u32) {
        self.srq_event(number, EventType::SRQ_RQ_LIMIT);
    }

    /// Tells the driver that a shared receive queue cannot be used.
    pub fn srq_catastrophe(&mut self, number: u32) {
        self.srq_event(number, EventType::SRQ_CATAS_ERROR);
    }

    fn srq_event(&mut self, number: u32, event: EventType) {
        let mut events = QpEvents::zeroed();
        events.set_qpn_rqn_sqn(number);
        let mut data = [0; 28];
        data.copy_from_slice(events.as_bytes());
        self.raise(Event { event_type: event.0, sub_type: 0, data, eqn: None });
    }
}
