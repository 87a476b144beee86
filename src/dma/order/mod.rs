//! The ordering engine: guest memory accesses that were issued but not yet performed, and when each may be.
//!
//! A device whose fabric keeps no order is free to perform its accesses in any order that the contract allows. This
//! module holds issued accesses as *transactions* in a pool, decides from the rules which must wait for which, lets
//! a policy choose among what is left, and applies. `docs/ordering.md` states the contract in full.
//!
//! The device never waits for the pool: what needs a value at once (a work queue entry, a doorbell record, the old value
//! of an atomic) is performed when issued, after what it must wait for. All waits of a transaction are fixed when it is
//! issued: its wait set is those pending transactions that must be done first. That is how a device keeps order on a
//! fabric that keeps none: it waits for acknowledgements.
//!
//! Limits: at most [`MAX_TRANSACTIONS`] pending transactions of at most [`MAX_PARTS`] parts.
//!
//! Sources: PCI Express Base Specification 2.4.1 (ordering table) and 2.4.2, 2.4.3 (granularity) for fabric `pcie`; IBTA
//! volume 1, 9.5 and 10.8.3.3 (fence) and the memory registration manual page of rdma-core for the rules of a queue pair.

pub mod checker;
pub mod coverage;
pub mod describe;
pub mod engine;
pub mod knobs;
pub mod log;
pub mod overtakes;
pub mod policy;
pub mod pool;
pub mod program;
pub mod replay;
pub mod rules;
pub mod settings;
mod split;

pub use engine::Order;
pub use knobs::{Limits, Profile, Rules};
pub use policy::{Illegal, Policy};
pub use pool::{Applied, Pool, Refused};
pub use settings::{SettingError, Settings};

use crate::dma::bus::AtomicOp;
use crate::dma::map::DmaError;
use crate::dma::{Iova, KeyOrder};
use serde::{Deserialize, Serialize};

/// Most pending transactions that any limit can allow.
pub const MAX_TRANSACTIONS: usize = 256;

/// Most parts of one transaction.
pub const MAX_PARTS: usize = 4096;

/// Time in microseconds of the function's clock.
pub type Tick = u64;

/// What a transaction is. The letters are those of litmus programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// `W`: message payload into memory, READ and atomic responses included.
    #[serde(rename = "W")]
    Write,
    /// `R`: message payload out of memory.
    #[serde(rename = "R")]
    Read,
    /// `A`: an atomic operation.
    #[serde(rename = "A")]
    Atomic,
    /// `C`: a completion queue entry.
    #[serde(rename = "C")]
    Cqe,
    /// `E`: an event queue entry.
    #[serde(rename = "E")]
    Eqe,
    /// `I`: an MSI-X message.
    #[serde(rename = "I")]
    Msi,
    /// `M`: the output of a command, its status last.
    #[serde(rename = "M")]
    Command,
    /// `K`: a read by the device for itself: doorbell record, work queue entry, translation, command input.
    #[serde(rename = "K")]
    Control,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 8] =
        [Kind::Write, Kind::Read, Kind::Atomic, Kind::Cqe, Kind::Eqe, Kind::Msi, Kind::Command, Kind::Control];

    /// The letter in litmus programs and reports.
    pub fn letter(self) -> char {
        match self {
            Kind::Write => 'W',
            Kind::Read => 'R',
            Kind::Atomic => 'A',
            Kind::Cqe => 'C',
            Kind::Eqe => 'E',
            Kind::Msi => 'I',
            Kind::Command => 'M',
            Kind::Control => 'K',
        }
    }

    /// True if the transaction only stores.
    pub fn stores(self) -> bool {
        matches!(self, Kind::Write | Kind::Cqe | Kind::Eqe | Kind::Msi | Kind::Command)
    }

    /// True if the transaction only loads.
    pub fn loads(self) -> bool {
        matches!(self, Kind::Read | Kind::Control)
    }
}

/// The queue on whose behalf a transaction is made. A queue pair has two streams that owe each other nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// The requester of a queue pair: its work queue, gathered payload, response data, completions of its requests.
    Requester(u32),
    /// The responder of a queue pair: what a peer's requests write and read, receive completions.
    Responder(u32),
    /// A send or receive queue of Ethernet, or a shared receive queue.
    Queue(u32),
    /// A completion queue's own accesses: its doorbell record.
    Cq(u32),
    /// An event queue: its entries and their interrupts.
    Eq(u32),
    /// The command interface.
    Command,
}

/// The fence of the work queue entry that a transaction belongs to (`fm_ce_se[7:5]`; kernel
/// `include/linux/mlx5/qp.h`, `MLX5_FENCE_MODE_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fence {
    /// 0: none.
    #[default]
    None,
    /// 1, initiator small fence: everything earlier of the stream, visible locally.
    Local,
    /// 2 and 4, fence: earlier READs and atomics of the stream, and at a requester what they brought.
    Read,
    /// 3, strong ordering: everything earlier of the stream, as far as acknowledgements tell (knob `ack`).
    Strong,
}

/// Everything that a stream had issued up to a point, its control reads excepted. What carries a horizon waits for all
/// of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Horizon {
    /// Whose transactions.
    pub stream: Stream,
    /// The sequence number in the stream of the last one; the first transaction of a stream has number 1.
    pub seq: u64,
}

/// A transaction, in the order of issue; the first one of a pool has number 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId(pub u64);

/// One part of a transaction: the smallest step of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Choice {
    /// The transaction.
    pub txn: TxnId,
    /// Which of its parts.
    pub part: u16,
}

/// A range of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub at: Iova,
    /// Bytes.
    pub len: u32,
}

/// What a transaction moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Stores these bytes; as many as all ranges have.
    Bytes(&'a [u8]),
    /// Stores what that read, which is pending, brings; it waits for the read to be done.
    From(TxnId),
    /// Loads; what is loaded goes to [`Memory::sampled`], or to the write that names this transaction.
    Sample,
    /// Performs an atomic operation on the eight bytes of its only range; the old value goes to [`Memory::sampled`].
    Atomic(AtomicOp),
    /// Signals an interrupt vector. No ranges.
    Signal(u32),
}

/// A transaction to be issued. Ranges are in the order of the bytes. The pool makes parts of them as `steps` says; the
/// engine decides that itself, and cuts ranges smaller before. For kinds C, E and M the last range is the one with the
/// owner or status byte, and is applied last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewTxn<'a> {
    /// What it is.
    pub kind: Kind,
    /// For whom.
    pub stream: Stream,
    /// C: its completion queue. E, I: the completion queue that is announced.
    pub chain: Option<u32>,
    /// The attributes of the key that it goes through; strong for the device's own accesses.
    pub order: KeyOrder,
    /// The fence of its work queue entry.
    pub fence: Fence,
    /// What it waits for beyond the rules: acknowledgements, dependencies.
    pub after: [Option<Horizon>; 2],
    /// The indices of the memory keys it goes through (key and, for an indirect one, the leaf), 0 for none; for drains.
    pub keys: [u32; 2],
    /// Memory domain. No order is kept between domains, but for `after` and the payload of a copy.
    pub node: u8,
    /// Where.
    pub ranges: &'a [Range],
    /// How many ranges each part has; if it is empty, one.
    pub steps: &'a [u16],
    /// What.
    pub payload: Payload<'a>,
}

impl<'a> NewTxn<'a> {
    /// A transaction of the device itself: no key, no fence, nothing to wait for beyond the rules.
    pub fn device(kind: Kind, stream: Stream, ranges: &'a [Range], payload: Payload<'a>) -> NewTxn<'a> {
        NewTxn {
            kind,
            stream,
            chain: None,
            order: KeyOrder::default(),
            fence: Fence::None,
            after: [None; 2],
            keys: [0; 2],
            node: 0,
            ranges,
            steps: &[],
            payload,
        }
    }

    /// Bytes of all ranges.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|range| u64::from(range.len)).sum()
    }

    /// Whether it moves no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a drain covers. Whatever the covered transactions wait for is applied too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// One stream.
    Stream(Stream),
    /// Both streams of a queue pair.
    Qp(u32),
    /// The entries of a completion queue, and with them the data that they complete.
    Cq(u32),
    /// The entries of an event queue and their interrupts.
    Eq(u32),
    /// Everything that goes through a memory key.
    Key(u32),
    /// Everything that touches a range of addresses: first address and bytes.
    Range(Iova, u64),
}

/// Guest memory, as the pool needs it. Ranges were checked when the transaction was issued and are drained before they
/// go away, so a refusal is not expected; the pool counts it and goes on.
pub trait Memory {
    /// Fills `buf`, with acquire ordering towards what the caller does next.
    fn read(&mut self, at: Iova, buf: &mut [u8]) -> Result<(), DmaError>;
    /// Stores `bytes`; everything stored before is visible first, and the last byte is stored last.
    fn write(&mut self, at: Iova, bytes: &[u8]) -> Result<(), DmaError>;
    /// One indivisible read-modify-write of eight aligned bytes; answers the old value.
    fn update_u64(&mut self, at: Iova, op: AtomicOp) -> Result<u64, DmaError>;
    /// Raises an interrupt vector.
    fn signal(&mut self, vector: u32);
    /// What a part of a read or an atomic brought, when nothing else takes it.
    fn sampled(&mut self, choice: Choice, bytes: &[u8]) {
        let _ = (choice, bytes);
    }
}
