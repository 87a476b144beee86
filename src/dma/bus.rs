//! The one path between the function and guest memory.
//!
//! Under the in-order policy every access is performed where it is issued: a store is a plain copy whose last
//! byte is written last with release ordering, so that an observer that sees the last byte sees the rest. Bus
//! mastering gates everything: with the enable bit clear no access leaves the function (PCI Local Bus 3.0,
//! command register bit 2).

use super::map::{DmaError, MemoryMap};
use super::{Iova, Load, LoadClass, Store, StoreClass, Stream};

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

/// Guest memory behind the function's bus-master enable bit.
#[derive(Debug, Default)]
pub struct Bus {
    map: MemoryMap,
    enabled: bool,
    counters: BusCounters,
}

impl Bus {
    /// A bus with no memory behind it and mastering disabled.
    pub fn new() -> Bus {
        Bus::default()
    }

    /// Follows the bus-master enable bit of the PCI command register.
    pub fn set_bus_master(&mut self, enabled: bool) {
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

    /// The VMM's maps, to change them. Unmapping waits for nothing under in-order: nothing is in flight.
    pub fn map_mut(&mut self) -> &mut MemoryMap {
        &mut self.map
    }

    /// Access counts so far.
    pub fn counters(&self) -> BusCounters {
        self.counters
    }

    /// Fills `buf` from guest memory at `at`.
    pub fn load(&mut self, load: Load, at: Iova, buf: &mut [u8]) -> Result<(), BusError> {
        let result =
            if self.enabled { self.map.read(at, buf).map_err(BusError::from) } else { Err(BusError::MasterDisabled) };
        match result {
            Ok(()) => self.counters.loads += 1,
            Err(error) => self.fault(error, at, format_args!("load of {:?} by {:?}", load.class, load.stream)),
        }
        result
    }

    /// Writes `data` to guest memory at `at`.
    pub fn store(&mut self, store: Store, at: Iova, data: &[u8]) -> Result<(), BusError> {
        let result = if self.enabled { self.put(at, data) } else { Err(BusError::MasterDisabled) };
        match result {
            Ok(()) => self.counters.stores += 1,
            Err(error) => self.fault(error, at, format_args!("store of {:?} by {:?}", store.class, store.stream)),
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

    /// Writes all bytes but the last, then the last one with release ordering: it may be an owner.
    fn put(&self, at: Iova, data: &[u8]) -> Result<(), BusError> {
        let Some((last, body)) = data.split_last() else { return Ok(()) };
        self.map.check_write(at, data.len() as u64)?;
        self.map.write(at, body)?;
        let end = Iova(at.0 + body.len() as u64);
        Ok(self.map.store_release_u8(end, *last)?)
    }

    /// Reads a big-endian 32-bit doorbell record word.
    pub fn load_dbrec(&mut self, stream: Stream, at: Iova) -> Result<u32, BusError> {
        let mut word = [0; 4];
        self.load(Load::device(LoadClass::DbRec, stream), at, &mut word)?;
        Ok(u32::from_be_bytes(word))
    }

    /// Stores one queue entry whose last byte is its owner.
    pub fn publish(&mut self, class: StoreClass, stream: Stream, at: Iova, entry: &[u8]) -> Result<(), BusError> {
        self.store(Store::device(class, stream), at, entry)
    }
}
