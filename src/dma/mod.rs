//! Guest memory as the function sees it: addresses, access classes and the one bus they go through.
//!
//! Nothing outside this module touches guest memory. A caller names what an access is (its class, its
//! stream and the attributes of the key it goes through); the bus decides when it lands. Callers never order
//! accesses by hand, except that the parts of one publication are handed over in order.

pub mod bus;
pub mod irq;
pub mod map;
pub mod order;

use std::fmt;

pub use bus::Bus;
pub use map::{DmaError, MemoryMap};
pub use order::{Fence, Horizon, Stream};

/// An I/O virtual address: what the guest's driver writes into contexts and rings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Iova(pub u64);

impl Iova {
    /// The address `len` bytes further on, or `None` if that wraps.
    pub fn checked_add(self, len: u64) -> Option<Iova> {
        self.0.checked_add(len).map(Iova)
    }
}

impl fmt::Debug for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// What a store to guest memory is. The class decides what it must wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreClass {
    /// Message payload into a registered region.
    Payload,
    /// The returned value or the target of an atomic operation.
    AtomicResult,
    /// A completion queue entry.
    Cqe,
    /// An event queue entry.
    Eqe,
    /// Command output: inline bytes and output mailboxes.
    CmdOut,
    /// The ownership byte of a command entry; publishes the command's output.
    CmdStatus,
}

/// What a load from guest memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoadClass {
    /// Message payload gathered from a registered region.
    Payload,
    /// A work queue entry.
    Wqe,
    /// A doorbell record.
    DbRec,
    /// Command entry and input mailboxes.
    CmdIn,
    /// Translation entries that live in guest memory.
    Translation,
    /// The read half of an atomic operation.
    Atomic,
}

/// The ordering attributes of the key that an access goes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyOrder {
    /// `mkc.relaxed_ordering_write`.
    pub relaxed_write: bool,
    /// `mkc.relaxed_ordering_read`.
    pub relaxed_read: bool,
    /// `mkc.order_read_after_write` asks for relaxed read-after-write.
    pub relaxed_read_after_write: bool,
}

/// What an access waits for beyond what its class and its stream ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// The fence of its work queue entry.
    pub fence: Fence,
    /// What had been acknowledged, or what it depends on.
    pub after: Option<Horizon>,
}

/// Everything about a store but its address and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// What is stored.
    pub class: StoreClass,
    /// For whom.
    pub stream: Stream,
    /// Through which kind of key; the default for the device's own accesses.
    pub key: KeyOrder,
    /// The index of that key; 0 for none.
    pub index: u32,
    /// The completion queue that the entry is for, or that it announces.
    pub chain: Option<u32>,
    /// What it waits for.
    pub wait: Wait,
}

/// Everything about a load but its address and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// What is loaded.
    pub class: LoadClass,
    /// For whom.
    pub stream: Stream,
    /// Through which kind of key; the default for the device's own accesses.
    pub key: KeyOrder,
    /// The index of that key; 0 for none.
    pub index: u32,
    /// What it waits for.
    pub wait: Wait,
}

impl Store {
    /// A store by the device itself, through no key.
    pub fn device(class: StoreClass, stream: Stream) -> Store {
        Store { class, stream, key: KeyOrder::default(), index: 0, chain: None, wait: Wait::default() }
    }
}

impl Load {
    /// A load by the device itself, through no key.
    pub fn device(class: LoadClass, stream: Stream) -> Load {
        Load { class, stream, key: KeyOrder::default(), index: 0, wait: Wait::default() }
    }

    /// A load of payload, through a key.
    pub fn payload(stream: Stream, key: KeyOrder, index: u32, wait: Wait) -> Load {
        Load { class: LoadClass::Payload, stream, key, index, wait }
    }
}
