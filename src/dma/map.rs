//! The VMM's memory map: which I/O virtual addresses are backed by what.
//!
//! A map is what DMA_MAP messages made it. Maps never overlap; a map without a descriptor is known but cannot
//! be accessed (ROM and legacy windows of the VMM); a read-only map refuses stores. An access may run across
//! maps that touch each other. It is checked from end to end before the first byte moves, so a refused access
//! changes nothing.
//!
//! Limits: [`MAX_MAPS`] maps; addresses and sizes in multiples of [`GRANULE`]. Bytes are copied in the order
//! of [`Mapping`]; who needs a publication order uses [`MemoryMap::write_release`].
//!
//! Sources: vfio-user as QEMU speaks it; Linux `drivers/vfio/vfio_iommu_type1.c:vfio_dma_do_map` and
//! `vfio_dma_do_unmap` for overlap, wrap and bisection.

mod access;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use slab::Slab;

use super::Iova;
use crate::sys::{Mapping, Protection};

/// Most maps at a time, announced as `max_dma_maps`. Each may cost one mapping of this process, of which the kernel
/// allows 65530 (`vm.max_map_count`); running out of those would make our own allocations fail.
pub const MAX_MAPS: usize = 32768;

/// Addresses and sizes of maps are multiples of this; what a vfio-user client assumes.
pub const GRANULE: u64 = 4096;

/// DMA_MAP: the device may read.
pub const MAP_READ: u32 = 1 << 0;
/// DMA_MAP: the device may write.
pub const MAP_WRITE: u32 = 1 << 1;
/// DMA_UNMAP: report dirty pages. Not supported.
pub const UNMAP_GET_DIRTY: u32 = 1 << 0;
/// DMA_UNMAP: every map; address and size are zero.
pub const UNMAP_ALL: u32 = 1 << 1;

/// Why a DMA access was refused; `at` is the first address that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaError {
    /// No map covers the address.
    #[error("{at} is not mapped")]
    Unmapped {
        /// Where.
        at: Iova,
    },
    /// The map forbids stores.
    #[error("{at} is mapped read-only")]
    ReadOnly {
        /// Where.
        at: Iova,
    },
    /// The map forbids loads.
    #[error("{at} is mapped write-only")]
    WriteOnly {
        /// Where.
        at: Iova,
    },
    /// The map has no memory behind it: it came without a descriptor, or its file was truncated.
    #[error("{at} has no memory behind it")]
    NoBacking {
        /// Where.
        at: Iova,
    },
    /// A single access whose address is not a multiple of its size.
    #[error("{at} is not naturally aligned")]
    Misaligned {
        /// Where.
        at: Iova,
    },
    /// Address plus length wraps.
    #[error("address range wraps")]
    Overflow,
}

/// Which side of a copy was refused, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyRefused {
    /// The load.
    #[error("source: {0}")]
    Source(DmaError),
    /// The store.
    #[error("target: {0}")]
    Target(DmaError),
}

/// Why a map or unmap was refused.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Nothing to map, or flags that ask for neither reading nor writing, or unknown flags.
    #[error("size or flags make no sense")]
    Invalid,
    /// Address or size is not a multiple of [`GRANULE`].
    #[error("not a multiple of the page size")]
    Misaligned,
    /// The range wraps.
    #[error("address range wraps")]
    Overflow,
    /// Part of the range is mapped already.
    #[error("overlaps an existing map")]
    Overlap,
    /// [`MAX_MAPS`] reached.
    #[error("too many maps")]
    TooMany,
    /// An unmap would cut a map in two.
    #[error("cuts through an existing map")]
    Bisects,
    /// Dirty page tracking is not implemented.
    #[error("not supported")]
    Unsupported,
    /// The descriptor cannot be mapped that way.
    #[error("cannot map the descriptor: {0}")]
    File(#[from] io::Error),
}

impl From<MapError> for io::Error {
    fn from(error: MapError) -> io::Error {
        io::Error::from_raw_os_error(match error {
            MapError::Invalid | MapError::Misaligned | MapError::Overflow | MapError::Bisects => libc::EINVAL,
            MapError::Overlap => libc::EEXIST,
            MapError::TooMany => libc::ENOSPC,
            MapError::Unsupported => libc::EOPNOTSUPP,
            MapError::File(error) => return error,
        })
    }
}

/// What the device may do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Loads.
    Read,
    /// Stores.
    Write,
    /// Both.
    ReadWrite,
}

impl Rights {
    fn from_flags(flags: u32) -> Option<Rights> {
        match flags {
            MAP_READ => Some(Rights::Read),
            MAP_WRITE => Some(Rights::Write),
            f if f == MAP_READ | MAP_WRITE => Some(Rights::ReadWrite),
            _ => None,
        }
    }
}

/// A description of one map, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapInfo {
    /// First address.
    pub iova: Iova,
    /// Bytes.
    pub size: u64,
    /// What the device may do.
    pub rights: Rights,
    /// There is memory behind it.
    pub backed: bool,
}

#[derive(Debug)]
struct Map {
    start: u64,
    /// The last address, so that a map may end at the top of the address space.
    last: u64,
    rights: Rights,
    memory: Option<Mapping>,
}

impl Map {
    /// Whether an address is in it, and where.
    #[inline]
    fn offset_of(&self, at: u64) -> Option<u64> {
        (self.start <= at && at <= self.last).then(|| at - self.start)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Load,
    Store,
}

/// The maps of one VMM.
#[derive(Debug, Default)]
pub struct MemoryMap {
    maps: Slab<Map>,
    /// Where in `maps`, by first address.
    by_start: BTreeMap<u64, usize>,
    /// Where the last load and the last store were found: most accesses of a VMM's few maps need no search. A map that
    /// is there now is right wherever it came from, so nothing forgets these.
    recent: [Cell<usize>; 2],
    generation: u64,
}

/// The last address of a range, or `None` if the range is empty or wraps.
fn last_of(iova: u64, size: u64) -> Option<u64> {
    iova.checked_add(size.checked_sub(1)?)
}

impl MemoryMap {
    /// An empty map.
    pub fn new() -> MemoryMap {
        MemoryMap::default()
    }

    /// Number of maps.
    pub fn len(&self) -> usize {
        self.maps.len()
    }

    /// No map at all.
    pub fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    /// Changes whenever a range goes away, so that a cached translation can be recognised as stale.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The maps in address order.
    pub fn iter(&self) -> impl Iterator<Item = MapInfo> + '_ {
        self.by_start.values().filter_map(|slot| self.maps.get(*slot)).map(|map| MapInfo {
            iova: Iova(map.start),
            size: (map.last - map.start).wrapping_add(1),
            rights: map.rights,
            backed: map.memory.is_some(),
        })
    }

    /// Adds a map of `size` bytes at `iova`; `fd` from `offset` on is behind it, or nothing.
    pub fn map(
        &mut self,
        iova: Iova,
        size: u64,
        rights: Rights,
        fd: Option<BorrowedFd<'_>>,
        offset: u64,
    ) -> Result<(), MapError> {
        if size == 0 {
            return Err(MapError::Invalid);
        }
        let last = last_of(iova.0, size).ok_or(MapError::Overflow)?;
        if iova.0 % GRANULE != 0 || size % GRANULE != 0 {
            return Err(MapError::Misaligned);
        }
        if self.overlapping(iova.0, last).is_some() {
            return Err(MapError::Overlap);
        }
        if self.maps.len() >= MAX_MAPS {
            return Err(MapError::TooMany);
        }
        let protection = match rights {
            Rights::Read => Protection::ReadOnly,
            Rights::Write | Rights::ReadWrite => Protection::ReadWrite,
        };
        let memory = fd.map(|fd| Mapping::new(fd, offset, size, protection)).transpose()?;
        let slot = self.maps.insert(Map { start: iova.0, last, rights, memory });
        self.by_start.insert(iova.0, slot);
        Ok(())
    }

    /// Drops every map inside the range and returns the number of bytes that were mapped. A range that cuts
    /// through a map is refused and changes nothing; a range in which nothing is mapped is fine.
    pub fn unmap(&mut self, iova: Iova, size: u64) -> Result<u64, MapError> {
        if size == 0 {
            return Err(MapError::Invalid);
        }
        let last = last_of(iova.0, size).ok_or(MapError::Overflow)?;
        let cut_below =
            iova.0.checked_sub(1).and_then(|below| self.at_or_below(below)).is_some_and(|m| m.last >= iova.0);
        let cut_above = self.at_or_below(last).is_some_and(|map| map.start >= iova.0 && map.last > last);
        if cut_below || cut_above {
            return Err(MapError::Bisects);
        }
        let mut bytes = 0u64;
        while let Some((&start, &slot)) = self.by_start.range(iova.0..=last).next() {
            self.by_start.remove(&start);
            if let Some(map) = self.maps.try_remove(slot) {
                bytes = bytes.saturating_add((map.last - start).saturating_add(1));
            }
        }
        if bytes > 0 {
            self.generation += 1;
        }
        Ok(bytes)
    }

    /// Drops every map.
    pub fn unmap_all(&mut self) {
        self.maps.clear();
        self.by_start.clear();
        self.generation += 1;
    }

    /// A DMA_MAP request with the flag bits of the wire.
    pub fn map_request(
        &mut self,
        flags: u32,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<&File>,
    ) -> Result<(), MapError> {
        let rights = Rights::from_flags(flags).ok_or(MapError::Invalid)?;
        self.map(Iova(address), size, rights, fd.map(AsFd::as_fd), offset)
    }

    /// A DMA_UNMAP request with the flag bits of the wire (not those that vfio_user 0.1.7 gives names to).
    pub fn unmap_request(&mut self, flags: u32, address: u64, size: u64) -> Result<u64, MapError> {
        match flags {
            0 => self.unmap(Iova(address), size),
            UNMAP_ALL if address == 0 && size == 0 => {
                let bytes = self.iter().fold(0u64, |sum, map| sum.saturating_add(map.size));
                self.unmap_all();
                Ok(bytes)
            }
            f if f & UNMAP_GET_DIRTY != 0 => Err(MapError::Unsupported),
            _ => Err(MapError::Invalid),
        }
    }

    /// The map with the highest start that is not above an address.
    fn at_or_below(&self, at: u64) -> Option<&Map> {
        let (_, slot) = self.by_start.range(..=at).next_back()?;
        self.maps.get(*slot)
    }

    fn overlapping(&self, first: u64, last: u64) -> Option<u64> {
        let map = self.at_or_below(last)?;
        (map.last >= first).then_some(map.start)
    }

    #[inline]
    fn find(&self, at: u64, way: Way) -> Option<&Map> {
        let recent = self.maps.get(self.recent[way as usize].get());
        match recent {
            Some(map) if map.offset_of(at).is_some() => Some(map),
            _ => self.search(at, way),
        }
    }

    #[cold]
    fn search(&self, at: u64, way: Way) -> Option<&Map> {
        let (_, slot) = self.by_start.range(..=at).next_back()?;
        let map = self.maps.get(*slot).filter(|map| map.offset_of(at).is_some())?;
        self.recent[way as usize].set(*slot);
        Some(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memfd;
    use std::os::fd::OwnedFd;

    const RW: Rights = Rights::ReadWrite;

    fn ram(size: u64) -> OwnedFd {
        memfd("cx10-map-test", size, true).unwrap()
    }

    fn with(maps: &[(u64, u64)]) -> (OwnedFd, MemoryMap) {
        let fd = ram(0x10_0000);
        let mut map = MemoryMap::new();
        for (iova, size) in maps {
            map.map(Iova(*iova), *size, RW, Some(fd.as_fd()), iova & 0xf_f000).unwrap();
        }
        (fd, map)
    }

    fn starts(map: &MemoryMap) -> Vec<u64> {
        map.iter().map(|m| m.iova.0).collect()
    }

    #[test]
    fn bytes_land_at_the_offset_of_the_file() {
        let fd = ram(0x10000);
        let mut map = MemoryMap::new();
        map.map(Iova(0x10_0000), 0x2000, RW, Some(fd.as_fd()), 0x3000).unwrap();
        map.write(Iova(0x10_1ffc), &[1, 2, 3, 4]).unwrap();
        let check = Mapping::new(fd.as_fd(), 0, 0x10000, Protection::ReadOnly).unwrap();
        let mut got = [0; 4];
        check.read(0x4ffc, &mut got).unwrap();
        assert_eq!(got, [1, 2, 3, 4]);
    }

    #[test]
    fn an_access_runs_across_maps_that_touch() {
        let (_fd, map) = with(&[(0x1000, 0x1000), (0x2000, 0x1000), (0x3000, 0x2000)]);
        let bytes: Vec<u8> = (0..0x1800u32).map(|i| i as u8 ^ (i >> 8) as u8).collect();
        map.write(Iova(0x1f00), &bytes).unwrap();
        let mut back = vec![0; bytes.len()];
        map.read(Iova(0x1f00), &mut back).unwrap();
        assert_eq!(back, bytes);
    }

    #[test]
    fn a_hole_is_reported_where_it_begins_and_nothing_is_written() {
        let (_fd, map) = with(&[(0x1000, 0x1000), (0x3000, 0x1000)]);
        assert_eq!(map.write(Iova(0x1ffe), &[9; 4]), Err(DmaError::Unmapped { at: Iova(0x2000) }));
        let mut got = [0xff; 2];
        map.read(Iova(0x1ffe), &mut got).unwrap();
        assert_eq!(got, [0, 0]);
        assert_eq!(map.read(Iova(0xfff), &mut got), Err(DmaError::Unmapped { at: Iova(0xfff) }));
        assert_eq!(map.read(Iova(0), &mut []), Ok(()));
    }

    #[test]
    fn a_range_that_wraps_is_refused() {
        let (_fd, map) = with(&[(u64::MAX - 0xfff, 0x1000)]);
        assert_eq!(map.read(Iova(u64::MAX), &mut [0; 2]), Err(DmaError::Overflow));
        assert_eq!(map.read(Iova(u64::MAX), &mut [0; 1]), Ok(()), "the last byte of the address space is fine");
        let mut map = map;
        assert!(matches!(map.map(Iova(0xffff_ffff_ffff_f000), 0x2000, RW, None, 0), Err(MapError::Overflow)));
        assert!(matches!(map.unmap(Iova(0x2000), u64::MAX), Err(MapError::Overflow)));
    }

    #[test]
    fn a_read_only_map_refuses_stores_and_a_write_only_map_loads() {
        let fd = ram(0x2000);
        let mut map = MemoryMap::new();
        map.map(Iova(0x1000), 0x1000, Rights::Read, Some(fd.as_fd()), 0).unwrap();
        map.map(Iova(0x2000), 0x1000, Rights::Write, Some(fd.as_fd()), 0x1000).unwrap();
        assert_eq!(map.write(Iova(0x1004), &[1]), Err(DmaError::ReadOnly { at: Iova(0x1004) }));
        assert_eq!(map.store_release_u8(Iova(0x1004), 1), Err(DmaError::ReadOnly { at: Iova(0x1004) }));
        assert_eq!(map.read(Iova(0x1004), &mut [0]), Ok(()));
        assert_eq!(map.read(Iova(0x2004), &mut [0]), Err(DmaError::WriteOnly { at: Iova(0x2004) }));
        assert_eq!(map.read(Iova(0x1fff), &mut [0; 2]), Err(DmaError::WriteOnly { at: Iova(0x2000) }));
        assert_eq!(
            map.compare_exchange_u64(Iova(0x2000), [0; 8], [1; 8]),
            Err(DmaError::WriteOnly { at: Iova(0x2000) })
        );
        assert_eq!(map.write(Iova(0x2004), &[1]), Ok(()));
    }

    #[test]
    fn a_map_without_descriptor_is_known_but_not_accessible() {
        let mut map = MemoryMap::new();
        map.map(Iova(0xc0000), 0x8000, Rights::Read, None, 0).unwrap();
        assert_eq!(map.read(Iova(0xc0010), &mut [0; 4]), Err(DmaError::NoBacking { at: Iova(0xc0010) }));
        assert_eq!(map.write(Iova(0xc0010), &[0; 4]), Err(DmaError::ReadOnly { at: Iova(0xc0010) }));
        assert!(matches!(map.map(Iova(0xc0000), 0x8000, RW, None, 0), Err(MapError::Overlap)));
        assert_eq!(map.unmap(Iova(0xc0000), 0x8000).unwrap(), 0x8000);
    }

    #[test]
    fn what_was_found_before_is_forgotten_with_its_map() {
        let (fd, mut map) = with(&[(0x1000, 0x1000), (0x2000, 0x1000)]);
        map.write(Iova(0x1000), &[1]).unwrap();
        map.read(Iova(0x1000), &mut [0]).unwrap();
        map.unmap(Iova(0x1000), 0x1000).unwrap();
        let gone = Err(DmaError::Unmapped { at: Iova(0x1000) });
        assert_eq!(map.read(Iova(0x1000), &mut [0]), gone);
        // The new map takes the place of the old one in memory, not in the address space.
        map.map(Iova(0x5000), 0x1000, Rights::Read, Some(fd.as_fd()), 0x1000).unwrap();
        assert_eq!(map.write(Iova(0x1000), &[1]), gone);
        assert_eq!(map.write(Iova(0x5000), &[1]), Err(DmaError::ReadOnly { at: Iova(0x5000) }));
        let mut byte = [0];
        assert_eq!(map.read(Iova(0x5000), &mut byte), Ok(()));
        assert_eq!(byte, [1]);
        map.unmap_all();
        assert_eq!(map.read(Iova(0x5000), &mut byte), Err(DmaError::Unmapped { at: Iova(0x5000) }));
    }

    #[test]
    fn overlaps_are_refused_on_every_side() {
        let (fd, mut map) = with(&[(0x4000, 0x4000)]);
        for (iova, size) in [(0x4000, 0x4000), (0x3000, 0x2000), (0x7000, 0x2000), (0x5000, 0x1000), (0x2000, 0x8000)] {
            let result = map.map(Iova(iova), size, RW, Some(fd.as_fd()), 0);
            assert!(matches!(result, Err(MapError::Overlap)), "{iova:#x}+{size:#x}");
        }
        map.map(Iova(0x3000), 0x1000, RW, Some(fd.as_fd()), 0).unwrap();
        map.map(Iova(0x8000), 0x1000, RW, Some(fd.as_fd()), 0).unwrap();
        assert_eq!(starts(&map), [0x3000, 0x4000, 0x8000]);
    }

    #[test]
    fn senseless_maps_are_refused() {
        let (fd, mut map) = with(&[]);
        let mut try_map = |iova, size, offset| map.map(Iova(iova), size, RW, Some(fd.as_fd()), offset);
        assert!(matches!(try_map(0x1000, 0, 0), Err(MapError::Invalid)));
        assert!(matches!(try_map(0x1001, 0x1000, 0), Err(MapError::Misaligned)));
        assert!(matches!(try_map(0x1000, 0x1001, 0), Err(MapError::Misaligned)));
        assert!(matches!(try_map(0x1000, 0x20_0000, 0), Err(MapError::File(_))), "beyond the end of the file");
        assert!(matches!(try_map(0x1000, 0x1000, u64::MAX - 0xfff), Err(MapError::File(_))));
        for flags in [0, 4, 7, 0x8000_0001] {
            assert!(matches!(map.map_request(flags, 0, 0x1000, 0x1000, None), Err(MapError::Invalid)), "{flags:#x}");
        }
        assert!(map.is_empty());
    }

    #[test]
    fn an_unmap_drops_every_map_inside_the_range() {
        let (_fd, mut map) = with(&[(0, 0x1000), (0x2000, 0x1000), (0x8000, 0x1000), (0xffff_ffff_ffff_f000, 0x1000)]);
        assert_eq!(map.unmap(Iova(0x1000), 0x5000).unwrap(), 0x1000);
        assert_eq!(starts(&map), [0, 0x8000, 0xffff_ffff_ffff_f000]);
        assert_eq!(map.unmap(Iova(0x1000), 0x1000).unwrap(), 0, "a range without maps is fine");
        assert_eq!(map.unmap(Iova(0x8000), u64::MAX - 0x7fff).unwrap(), 0x2000, "up to the top");
        assert_eq!(starts(&map), [0]);
        assert_eq!(map.read(Iova(0x8000), &mut [0]), Err(DmaError::Unmapped { at: Iova(0x8000) }));
    }

    #[test]
    fn an_unmap_that_cuts_a_map_is_refused_and_changes_nothing() {
        let (_fd, mut map) = with(&[(0x2000, 0x1000), (0x4000, 0x2000), (0x8000, 0x2000)]);
        for (iova, size) in [(0x5000, 0x1000), (0x4000, 0x1000), (0x2000, 0x7000), (0x5000, 0x6000), (0x8001, 1)] {
            assert!(matches!(map.unmap(Iova(iova), size), Err(MapError::Bisects)), "{iova:#x}+{size:#x}");
        }
        assert!(matches!(map.unmap(Iova(0x4000), 0), Err(MapError::Invalid)));
        assert_eq!(starts(&map), [0x2000, 0x4000, 0x8000]);
    }

    #[test]
    fn unmap_all_is_bit_one_and_takes_no_range() {
        let (_fd, mut map) = with(&[(0x2000, 0x1000), (0x4000, 0x2000)]);
        assert!(matches!(map.unmap_request(UNMAP_ALL, 0x2000, 0x1000), Err(MapError::Invalid)));
        assert!(matches!(map.unmap_request(UNMAP_GET_DIRTY, 0x2000, 0x1000), Err(MapError::Unsupported)));
        assert!(matches!(map.unmap_request(4, 0, 0), Err(MapError::Invalid)));
        assert_eq!(map.len(), 2);
        let before = map.generation();
        assert_eq!(map.unmap_request(UNMAP_ALL, 0, 0).unwrap(), 0x3000);
        assert!(map.is_empty());
        assert_ne!(map.generation(), before);
    }

    #[test]
    fn the_number_of_maps_is_bounded() {
        let mut map = MemoryMap::new();
        for i in 0..MAX_MAPS as u64 {
            map.map(Iova(i * 0x1000), 0x1000, RW, None, 0).unwrap();
        }
        let result = map.map(Iova(MAX_MAPS as u64 * 0x1000), 0x1000, RW, None, 0);
        assert!(matches!(result, Err(MapError::TooMany)));
        assert_eq!(map.unmap(Iova(0), MAX_MAPS as u64 * 0x1000).unwrap(), MAX_MAPS as u64 * 0x1000);
    }

    #[test]
    fn a_truncated_file_reads_as_no_backing() {
        let fd = memfd("cx10-map-test", 0x4000, false).unwrap();
        let mut map = MemoryMap::new();
        map.map(Iova(0x1000), 0x4000, RW, Some(fd.as_fd()), 0).unwrap();
        File::from(fd).set_len(0).unwrap();
        assert_eq!(map.read(Iova(0x1000), &mut [0; 8]), Err(DmaError::NoBacking { at: Iova(0x1000) }));
        assert_eq!(map.write(Iova(0x2000), &[0; 8]), Err(DmaError::NoBacking { at: Iova(0x2000) }));
    }

    #[test]
    fn publication_and_atomics_work_on_bytes_as_they_lie_in_memory() {
        let (_fd, map) = with(&[(0x1000, 0x1000)]);
        map.store_release_u64(Iova(0x1008), [1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let mut got = [0; 8];
        map.read(Iova(0x1008), &mut got).unwrap();
        assert_eq!(got, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(map.compare_exchange_u64(Iova(0x1008), got, [9; 8]), Ok(got));
        assert_eq!(map.load_acquire_u8(Iova(0x100f)), Ok(9));
        assert_eq!(map.store_release_u64(Iova(0x1004), [0; 8]), Err(DmaError::Misaligned { at: Iova(0x1004) }));
    }
}
