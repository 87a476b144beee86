//! Receive queues and the tables and interfaces that spread packets over them: RQ, RQT, TIR (PRM "Receive Queue",
//! "RQ Table", "Transport Interface Receive"; kernel `transobj.c`).

use super::objects::{Charged, Kind, ObjRef};
use super::wq::WorkQueue;
use crate::prm::queue::Rqc;
use crate::prm::tir::{Rqtc, Tirc};
use crate::prm::values::WqState;

/// Where a receive queue takes its entries from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiveMemory {
    /// A ring of its own.
    Inline(WorkQueue),
    /// A receive memory pool that several queues share.
    Pool(u32),
}

/// A receive queue.
#[derive(Debug)]
pub struct ReceiveQueue {
    /// The context as the driver wrote it, with the fields that it modified.
    pub context: Rqc<Vec<u8>>,
    /// Where its entries come from.
    pub memory: ReceiveMemory,
    /// State.
    pub state: WqState,
    /// Entries consumed since the last reset, modulo 2^16.
    pub consumed: u16,
    /// Entries posted since the last reset, as the record said last.
    pub posted: u16,
    /// The ring could not be read or its completions not be written; only a reset helps.
    pub catastrophic: bool,
    /// It waits for its turn to be flushed.
    pub flush_waits: bool,
    /// When its record is looked at again while it is in error; `looks` is how often it was in vain.
    pub look_at: Option<u64>,
    /// See `look_at`.
    pub looks: u32,
}

impl ReceiveQueue {
    /// A queue in reset.
    pub fn new(context: Rqc<Vec<u8>>, memory: ReceiveMemory) -> ReceiveQueue {
        ReceiveQueue {
            context,
            memory,
            state: WqState::RST,
            consumed: 0,
            posted: 0,
            catastrophic: false,
            flush_waits: false,
            look_at: None,
            looks: 0,
        }
    }

    /// What the queue depends on as its context stands.
    pub fn deps(&self) -> Vec<ObjRef> {
        let mut deps = vec![ObjRef { kind: Kind::Cq, id: self.context.cqn() }];
        match &self.memory {
            ReceiveMemory::Inline(wq) => deps.extend(&wq.umems),
            ReceiveMemory::Pool(rmpn) => deps.push(ObjRef { kind: Kind::Rmp, id: *rmpn }),
        }
        // A queue that only drops packets has neither protection domain nor counters.
        let optional = [(Kind::Pd, self.context.wq().pd()), (Kind::QCounter, self.context.counter_set_id())];
        deps.extend(optional.into_iter().filter(|(_, id)| *id != 0).map(|(kind, id)| ObjRef { kind, id }));
        deps
    }

    /// Moves to `state`; a reset forgets what was consumed.
    pub fn set_state(&mut self, state: WqState) {
        if state == WqState::RST {
            (self.consumed, self.posted, self.catastrophic) = (0, 0, false);
        }
        self.state = state;
    }
}

impl Charged for ReceiveQueue {
    fn extra(&self) -> u64 {
        match &self.memory {
            ReceiveMemory::Inline(wq) => wq.extra(),
            ReceiveMemory::Pool(_) => 0,
        }
    }
}

/// A table of receive queues; a packet's hash selects one.
#[derive(Debug)]
pub struct RqTable {
    /// The context without the list.
    pub context: Rqtc<Vec<u8>>,
    /// Queue numbers in the order of hash values.
    pub queues: Vec<u32>,
}

impl RqTable {
    /// The queues as dependencies.
    pub fn deps(queues: &[u32]) -> Vec<ObjRef> {
        queues.iter().map(|id| ObjRef { kind: Kind::Rq, id: *id }).collect()
    }
}

impl Charged for RqTable {
    /// Room for as many queues as the table may ever have.
    fn extra(&self) -> u64 {
        8 * u64::from(self.context.rqt_max_size())
    }
}

/// A transport interface for receiving.
#[derive(Debug)]
pub struct Tir {
    /// The context.
    pub context: Tirc<Vec<u8>>,
}

impl Charged for Tir {}
