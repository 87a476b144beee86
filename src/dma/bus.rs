//! The one path between the function and guest memory.
//!
//! Under the in-order policy every access is performed where it is issued: a store is a plain copy whose last
//! byte is written last with release ordering, so that an observer that sees the last byte sees the rest. A copy from
//! guest memory to guest memory takes no detour and allocates nothing; an atomic is one step to the guest's processors
//! as well (little-endian memory, as mlx5 has it on x86 and arm64). Bus mastering gates everything: with the enable bit clear no access leaves the function (PCI Local Bus 3.0,
//! command register bit 2).
//!
//! Under any other policy accesses are transactions of an ordering engine ([`ordered`]).

pub mod ordered;

use super::irq::Interrupts;
use super::map::{CopyRefused, DmaError, MemoryMap};
use super::order::Order;
use super::{Iova, Load, LoadClass, Store, Stream};

/// Why an access did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// Bus mastering is disabled.
    #[error("bus mastering is disabled")]
    MasterDisabled,
    /// The VMM's maps do not allow it.
    #[error(transparent)]
    Map(#[from] DmaError),
}

/// Why a copy did not happen: which side was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The load.
    #[error("source: {0}")]
    Source(BusError),
    /// The store.
    #[error("target: {0}")]
    Target(BusError),
}

impl From<CopyRefused> for CopyError {
    fn from(refused: CopyRefused) -> CopyError {
        match refused {
            CopyRefused::Source(error) => CopyError::Source(error.into()),
            CopyRefused::Target(error) => CopyError::Target(error.into()),
        }
    }
}

/// An atomic operation on eight bytes (IBTA volume 1, 9.4.5 and annex A14 for the masked forms).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Where the bits of `compare_mask` agree with `compare`, the bits of `swap_mask` become those of `swap`.
    CompareSwap {
        /// What is expected.
        compare: u64,
        /// Which bits are compared; all in the plain form.
        compare_mask: u64,
        /// What is stored.
        swap: u64,
        /// Which bits are stored; all in the plain form.
        swap_mask: u64,
    },
    /// Adds field by field.
    FetchAdd {
        /// What is added.
        add: u64,
        /// Each bit set is the top bit of a field, out of which no carry goes; 0 in the plain form.
        boundary: u64,
    },
}

impl AtomicOp {
    /// What becomes of a value.
    pub fn apply(self, old: u64) -> u64 {
        match self {
            AtomicOp::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                let equal = (old ^ compare) & compare_mask == 0;
                if equal { (old & !swap_mask) | (swap & swap_mask) } else { old }
            }
            AtomicOp::FetchAdd { add, boundary } => {
                // The top bits are added without their carries: what comes up from below lands in a clear bit.
                (old & !boundary).wrapping_add(add & !boundary) ^ ((old ^ add) & boundary)
            }
        }
    }
}

/// How many accesses of each kind were made and refused; part of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusCounters {
    /// Loads performed.
    pub loads: u64,
    /// Stores performed.
    pub stores: u64,
    /// Accesses refused by the map or by the bus-master bit.
    pub faults: u64,
}

/// Delayed accesses that were allowed when they were issued and failed when they were performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The VMM truncated the memory behind its map. An adapter does not learn of that either: a posted write that fails is
    /// the fabric's matter (PCI Express advanced error reporting), and its completion says success.
    pub torn: u64,
    /// Nothing that others do explains it: maps go away after what is pending in them.
    pub amiss: u64,
}

/// Guest memory behind the function's bus-master enable bit, and its interrupts.
#[derive(Debug)]
pub struct Bus {
    map: MemoryMap,
    irq: Interrupts,
    enabled: bool,
    counters: BusCounters,
    lost: Lost,
    /// Decides when accesses are performed; without it that is where they are issued.
    order: Option<Box<Order>>,
}

impl Bus {
    /// A bus with no memory behind it, mastering disabled, and `vectors` interrupts.
    pub fn new(vectors: u16) -> Bus {
        Bus {
            map: MemoryMap::default(),
            irq: Interrupts::new(vectors),
            enabled: false,
            counters: BusCounters::default(),
            lost: Lost::default(),
            order: None,
        }
    }

    /// Follows the bus-master enable bit of the PCI command register.
    pub fn set_bus_master(&mut self, enabled: bool) {
        if self.enabled && !enabled {
            self.discard();
        }
        self.enabled = enabled;
    }

    /// Whether the function may master the bus.
    pub fn bus_master(&self) -> bool {
        self.enabled
    }

    /// The VMM's maps.
    pub fn map(&self) -> &MemoryMap {
        &self.map
    }

    /// The VMM's maps, to change them. Who unmaps a range drains it first.
    pub fn map_mut(&mut self) -> &mut MemoryMap {
        &mut self.map
    }

    /// Interrupts.
    pub fn irq(&self) -> &Interrupts {
        &self.irq
    }

    /// Whether accesses may be performed later than they are issued.
    #[inline]
    pub fn reorders(&self) -> bool {
        self.order.is_some()
    }

    /// Interrupts, to connect them.
    pub fn irq_mut(&mut self) -> &mut Interrupts {
        &mut self.irq
    }

    /// Signals an interrupt that belongs to `stream`. It is no access to guest memory, so bus mastering does not gate it.
    pub fn signal(&mut self, stream: Stream, vector: u32) {
        match &self.order {
            None => self.irq.raise(vector),
            Some(_) => self.signal_ordered(stream, vector),
        }
    }

    /// Access counts so far.
    pub fn counters(&self) -> BusCounters {
        self.counters
    }

    /// Whether `len` bytes at `at` can be loaded; a fault is counted as that of a load is.
    pub fn check_load(&mut self, load: Load, at: Iova, len: u64) -> Result<(), BusError> {
        let result = if self.enabled {
            self.map.check_read(at, len).map_err(BusError::from)
        } else {
            Err(BusError::MasterDisabled)
        };
        if let Err(error) = result {
            self.fault(error, at, format_args!("load of {:?} by {:?}", load.class, load.stream));
        }
        result
    }

    /// Fills `buf` from guest memory at `at`.
    #[inline]
    pub fn load(&mut self, load: Load, at: Iova, buf: &mut [u8]) -> Result<(), BusError> {
        if self.enabled && self.order.is_none() {
            match self.map.read(at, buf) {
                Ok(()) => self.counters.loads += 1,
                Err(error) => return Err(self.load_refused(&load, at, error.into())),
            }
            return Ok(());
        }
        self.load_otherwise(&load, at, buf)
    }

    #[cold]
    fn load_otherwise(&mut self, load: &Load, at: Iova, buf: &mut [u8]) -> Result<(), BusError> {
        let result = if self.enabled { self.load_ordered(load, at, buf) } else { Err(BusError::MasterDisabled) };
        match result {
            Ok(()) => self.counters.loads += 1,
            Err(error) => return Err(self.load_refused(load, at, error)),
        }
        Ok(())
    }

    #[cold]
    fn load_refused(&mut self, load: &Load, at: Iova, error: BusError) -> BusError {
        self.fault(error, at, format_args!("load of {:?} by {:?}", load.class, load.stream));
        error
    }

    /// Writes `data` to guest memory at `at`.
    #[inline]
    pub fn store(&mut self, store: Store, at: Iova, data: &[u8]) -> Result<(), BusError> {
        if self.enabled && self.order.is_none() {
            match self.map.write_release(at, data) {
                Ok(()) => self.counters.stores += 1,
                Err(error) => return Err(self.store_refused(&store, at, error.into())),
            }
            return Ok(());
        }
        self.store_otherwise(&store, at, data)
    }

    #[cold]
    fn store_otherwise(&mut self, store: &Store, at: Iova, data: &[u8]) -> Result<(), BusError> {
        let result = if self.enabled { self.store_ordered(store, at, data) } else { Err(BusError::MasterDisabled) };
        match result {
            Ok(()) => self.counters.stores += 1,
            Err(error) => return Err(self.store_refused(store, at, error)),
        }
        Ok(())
    }

    #[cold]
    fn store_refused(&mut self, store: &Store, at: Iova, error: BusError) -> BusError {
        self.fault(error, at, format_args!("store of {:?} by {:?}", store.class, store.stream));
        error
    }

    /// Moves `len` bytes of guest memory from `from` to `to`, as if all were loaded before the first is stored. Both
    /// sides are checked before that; the last byte is written last. Counts as one load and one store.
    #[inline]
    pub fn copy(&mut self, load: Load, from: Iova, store: Store, to: Iova, len: u64) -> Result<(), CopyError> {
        if self.enabled && self.order.is_none() {
            match self.map.copy(from, to, len) {
                Ok(()) => {
                    self.counters.loads += 1;
                    self.counters.stores += 1;
                }
                Err(error) => return Err(self.copy_refused(&load, from, &store, to, error.into())),
            }
            return Ok(());
        }
        self.copy_otherwise(&load, from, &store, to, len)
    }

    #[cold]
    fn copy_otherwise(&mut self, load: &Load, from: Iova, store: &Store, to: Iova, len: u64) -> Result<(), CopyError> {
        let range = |at| ordered::range(at, len);
        let moved = match (range(from), range(to)) {
            _ if !self.enabled => Err(CopyError::Source(BusError::MasterDisabled)),
            (Err(error), _) => Err(CopyError::Source(error.into())),
            (_, Err(error)) => Err(CopyError::Target(error.into())),
            (Ok(source), Ok(target)) => self.copy_ordered(load, &[source], store, &[target]),
        };
        self.copied(moved, (load, from), (store, to))
    }

    /// Counts a copy that was made or refused.
    fn copied(
        &mut self,
        result: Result<(), CopyError>,
        (load, from): (&Load, Iova),
        (store, to): (&Store, Iova),
    ) -> Result<(), CopyError> {
        match result {
            Ok(()) => {
                self.counters.loads += 1;
                self.counters.stores += 1;
            }
            Err(error) => return Err(self.copy_refused(load, from, store, to, error)),
        }
        Ok(())
    }

    #[cold]
    fn copy_refused(&mut self, load: &Load, from: Iova, store: &Store, to: Iova, error: CopyError) -> CopyError {
        match error {
            CopyError::Source(error) => {
                self.fault(error, from, format_args!("load of {:?} by {:?} for a copy", load.class, load.stream));
            }
            CopyError::Target(error) => {
                self.fault(error, to, format_args!("store of {:?} by {:?} of a copy", store.class, store.stream));
            }
        }
        error
    }

    /// Performs an atomic operation on the eight bytes at `at`, which are naturally aligned (else
    /// [`DmaError::Misaligned`]), and returns the value before it. Counts as one load and one store.
    pub fn atomic(&mut self, store: Store, at: Iova, op: AtomicOp) -> Result<u64, BusError> {
        let change = |word| op.apply(u64::from_le_bytes(word)).to_le_bytes();
        let result = match (self.enabled, &self.order) {
            (true, None) => self.map.update_u64(at, change).map(u64::from_le_bytes).map_err(BusError::from),
            (true, Some(_)) => self.atomic_ordered(&store, at, op),
            (false, _) => Err(BusError::MasterDisabled),
        };
        match result {
            Ok(_) => {
                self.counters.loads += 1;
                self.counters.stores += 1;
            }
            Err(error) => self.fault(error, at, format_args!("atomic of {:?} by {:?}", store.class, store.stream)),
        }
        result
    }

    fn fault(&mut self, error: BusError, at: Iova, what: std::fmt::Arguments<'_>) {
        self.counters.faults += 1;
        // A guest can cause these without end; the counter tells how many, the log only shows the first ones.
        if self.counters.faults <= 16 {
            log::warn!(target: "cx10::dma", "{what} at {at}: {error}");
        }
    }

    /// Reads a big-endian 32-bit doorbell record word.
    pub fn load_dbrec(&mut self, stream: Stream, at: Iova) -> Result<u32, BusError> {
        let mut word = [0; 4];
        self.load(Load::device(LoadClass::DbRec, stream), at, &mut word)?;
        Ok(u32::from_be_bytes(word))
    }
}

#[cfg(test)]
mod tests;
