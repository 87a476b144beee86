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

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};

use super::Iova;
use crate::sys::{AccessError, BULK, Mapping, MoveError, Protection};

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
    /// The last address, so that a map may end at the top of the address space.
    last: u64,
    rights: Rights,
    memory: Option<Mapping>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Load,
    Store,
}

/// The maps of one VMM.
#[derive(Debug, Default)]
pub struct MemoryMap {
    /// By first address.
    maps: BTreeMap<u64, Map>,
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
        self.maps.iter().map(|(start, map)| MapInfo {
            iova: Iova(*start),
            size: (map.last - start).wrapping_add(1),
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
        self.maps.insert(iova.0, Map { last, rights, memory });
        Ok(())
    }

    /// Drops every map inside the range and returns the number of bytes that were mapped. A range that cuts
    /// through a map is refused and changes nothing; a range in which nothing is mapped is fine.
    pub fn unmap(&mut self, iova: Iova, size: u64) -> Result<u64, MapError> {
        if size == 0 {
            return Err(MapError::Invalid);
        }
        let last = last_of(iova.0, size).ok_or(MapError::Overflow)?;
        let cut_below = self.maps.range(..iova.0).next_back().is_some_and(|(_, map)| map.last >= iova.0);
        let cut_above = self.maps.range(iova.0..=last).next_back().is_some_and(|(_, map)| map.last > last);
        if cut_below || cut_above {
            return Err(MapError::Bisects);
        }
        let mut bytes = 0u64;
        while let Some((&start, map)) = self.maps.range(iova.0..=last).next() {
            bytes = bytes.saturating_add((map.last - start).saturating_add(1));
            self.maps.remove(&start);
        }
        if bytes > 0 {
            self.generation += 1;
        }
        Ok(bytes)
    }

    /// Drops every map.
    pub fn unmap_all(&mut self) {
        self.maps.clear();
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

    /// Reads guest memory.
    pub fn read(&self, iova: Iova, dst: &mut [u8]) -> Result<(), DmaError> {
        let len = dst.len();
        self.check(iova, len as u64, Way::Load)?;
        let mut done = 0;
        self.pieces(iova, len, |memory, offset, piece| {
            done += piece;
            memory.read(offset, &mut dst[done - piece..done])
        })
    }

    /// Writes guest memory.
    pub fn write(&self, iova: Iova, src: &[u8]) -> Result<(), DmaError> {
        self.check(iova, src.len() as u64, Way::Store)?;
        let mut done = 0;
        self.pieces(iova, src.len(), |memory, offset, piece| {
            done += piece;
            memory.write(offset, &src[done - piece..done])
        })
    }

    /// Whether all of a range can be read.
    pub fn check_read(&self, iova: Iova, len: u64) -> Result<(), DmaError> {
        self.check(iova, len, Way::Load)
    }

    /// Whether `len` bytes from `iova` on can be written.
    pub fn check_write(&self, iova: Iova, len: u64) -> Result<(), DmaError> {
        self.check(iova, len, Way::Store)
    }

    /// Writes guest memory, and publishes: the last byte becomes visible last. It is stored with release ordering,
    /// together with the rest of the naturally aligned word of up to eight bytes that it ends.
    pub fn write_release(&self, iova: Iova, src: &[u8]) -> Result<(), DmaError> {
        self.check(iova, src.len() as u64, Way::Store)?;
        let mut done = 0;
        self.pieces(iova, src.len(), |memory, offset, piece| {
            done += piece;
            let part = &src[done - piece..done];
            if done == src.len() { memory.write_release(offset, part) } else { memory.write(offset, part) }
        })
    }

    /// Moves `len` bytes of guest memory to `to` as if all were loaded first, and publishes them as
    /// [`MemoryMap::write_release`] does. Both sides are checked before the first byte is stored. Fewer than [`BULK`]
    /// bytes stay whole words, as in a read and a write.
    ///
    /// Limit: memory that the VMM mapped at two addresses may overlap without our knowing; then the result is that of
    /// some order of copying.
    pub fn copy(&self, from: Iova, to: Iova, len: u64) -> Result<(), CopyRefused> {
        self.check(from, len, Way::Load).map_err(CopyRefused::Source)?;
        self.check(to, len, Way::Store).map_err(CopyRefused::Target)?;
        if len < BULK as u64 {
            let mut words = [0; BULK];
            let words = &mut words[..len as usize];
            self.read(from, words).map_err(CopyRefused::Source)?;
            return self.write_release(to, words).map_err(CopyRefused::Target);
        }
        // Who tells by the last bytes that all others have changed is right on both sides: these are loaded first and
        // stored last.
        const TAIL: u64 = 8;
        let body = len - TAIL;
        let mut tail = [0; TAIL as usize];
        self.read(Iova(from.0 + body), &mut tail).map_err(CopyRefused::Source)?;
        fence(Ordering::Acquire);
        self.move_pieces(from.0, to.0, body)?;
        self.write_release(Iova(to.0 + body), &tail).map_err(CopyRefused::Target)
    }

    /// The body of a copy whose ranges `check` accepted; `len` is at least one.
    fn move_pieces(&self, from: u64, to: u64, len: u64) -> Result<(), CopyRefused> {
        let upwards = to > from && to - from < len;
        let mut done = 0;
        while done < len {
            // Bytes that a later step still needs are not overwritten: from the end if the target lies above.
            let left = len - done;
            let probe = if upwards { left - 1 } else { done };
            let (source, target) = (Iova(from + probe), Iova(to + probe));
            let (from_start, from_map, from_memory) = self.backed(source).map_err(CopyRefused::Source)?;
            let (to_start, to_map, to_memory) = self.backed(target).map_err(CopyRefused::Target)?;
            let step = if upwards {
                (source.0 - from_start).min(target.0 - to_start).min(left - 1) + 1
            } else {
                (from_map.last - source.0).min(to_map.last - target.0).min(left - 1) + 1
            };
            let back = if upwards { step - 1 } else { 0 };
            let (source, target) = (source.0 - back, target.0 - back);
            from_memory.copy_to(source - from_start, to_memory, target - to_start, step as usize).map_err(|error| {
                match error {
                    MoveError::Source(error) => CopyRefused::Source(refused(error, Iova(source))),
                    MoveError::Target(error) => CopyRefused::Target(refused(error, Iova(target))),
                }
            })?;
            done += step;
        }
        Ok(())
    }

    /// Replaces eight aligned bytes, as they are in memory, by what `change` makes of them, in one step; returns what
    /// was there. `change` may be asked several times.
    pub fn update_u64(&self, iova: Iova, change: impl Fn([u8; 8]) -> [u8; 8]) -> Result<[u8; 8], DmaError> {
        if iova.0 % 8 != 0 {
            return Err(DmaError::Misaligned { at: iova });
        }
        self.check(iova, 8, Way::Load)?;
        let change = |word: u64| u64::from_ne_bytes(change(word.to_ne_bytes()));
        self.word(iova, 8, Way::Store, |memory, offset| memory.update_u64(offset, change)).map(u64::to_ne_bytes)
    }

    /// The map at an address, its start and its memory.
    fn backed(&self, at: Iova) -> Result<(u64, &Map, &Mapping), DmaError> {
        let (start, map) = self.find(at.0).ok_or(DmaError::Unmapped { at })?;
        Ok((start, map, map.memory.as_ref().ok_or(DmaError::NoBacking { at })?))
    }

    /// Stores one byte after every earlier store of this thread: the publication of an ownership bit.
    pub fn store_release_u8(&self, iova: Iova, value: u8) -> Result<(), DmaError> {
        self.word(iova, 1, Way::Store, |memory, offset| memory.store_release_u8(offset, value))
    }

    /// Stores eight aligned bytes at once, as they are in memory, after every earlier store.
    pub fn store_release_u64(&self, iova: Iova, value: [u8; 8]) -> Result<(), DmaError> {
        let value = u64::from_ne_bytes(value);
        self.word(iova, 8, Way::Store, |memory, offset| memory.store_release_u64(offset, value))
    }

    /// Loads one byte; what was stored before it is seen by later loads.
    pub fn load_acquire_u8(&self, iova: Iova) -> Result<u8, DmaError> {
        self.word(iova, 1, Way::Load, |memory, offset| memory.load_acquire_u8(offset))
    }

    /// Compares and exchanges eight aligned bytes, as they are in memory; returns what was there.
    pub fn compare_exchange_u64(&self, iova: Iova, current: [u8; 8], new: [u8; 8]) -> Result<[u8; 8], DmaError> {
        self.check(iova, 8, Way::Load)?;
        let (current, new) = (u64::from_ne_bytes(current), u64::from_ne_bytes(new));
        self.word(iova, 8, Way::Store, |memory, offset| memory.compare_exchange_u64(offset, current, new))
            .map(u64::to_ne_bytes)
    }

    fn find(&self, at: u64) -> Option<(u64, &Map)> {
        let (start, map) = self.maps.range(..=at).next_back()?;
        (at <= map.last).then_some((*start, map))
    }

    fn overlapping(&self, first: u64, last: u64) -> Option<u64> {
        let (start, map) = self.maps.range(..=last).next_back()?;
        (map.last >= first).then_some(*start)
    }

    fn check(&self, iova: Iova, len: u64, way: Way) -> Result<(), DmaError> {
        if len == 0 {
            return Ok(());
        }
        let last = last_of(iova.0, len).ok_or(DmaError::Overflow)?;
        let mut at = iova.0;
        loop {
            let here = Iova(at);
            let (_, map) = self.find(at).ok_or(DmaError::Unmapped { at: here })?;
            match (way, map.rights) {
                (Way::Store, Rights::Read) => return Err(DmaError::ReadOnly { at: here }),
                (Way::Load, Rights::Write) => return Err(DmaError::WriteOnly { at: here }),
                _ => {}
            }
            if map.memory.as_ref().is_none_or(Mapping::is_torn) {
                return Err(DmaError::NoBacking { at: here });
            }
            if map.last >= last {
                return Ok(());
            }
            at = map.last + 1;
        }
    }

    /// Walks a range that `check` accepted, map by map.
    fn pieces(
        &self,
        iova: Iova,
        len: usize,
        mut access: impl FnMut(&Mapping, u64, usize) -> Result<(), AccessError>,
    ) -> Result<(), DmaError> {
        let mut at = iova.0;
        let mut left = len;
        while left > 0 {
            let here = Iova(at);
            let (start, map) = self.find(at).ok_or(DmaError::Unmapped { at: here })?;
            let memory = map.memory.as_ref().ok_or(DmaError::NoBacking { at: here })?;
            let in_map = (map.last - at).saturating_add(1);
            let piece = usize::try_from(in_map).map_or(left, |n| n.min(left));
            access(memory, at - start, piece).map_err(|error| refused(error, here))?;
            left -= piece;
            if left > 0 {
                at = map.last + 1;
            }
        }
        Ok(())
    }

    fn word<T>(
        &self,
        iova: Iova,
        size: u64,
        way: Way,
        access: impl FnOnce(&Mapping, u64) -> Result<T, AccessError>,
    ) -> Result<T, DmaError> {
        if iova.0 % size != 0 {
            return Err(DmaError::Misaligned { at: iova });
        }
        self.check(iova, size, way)?;
        let (start, map) = self.find(iova.0).ok_or(DmaError::Unmapped { at: iova })?;
        let memory = map.memory.as_ref().ok_or(DmaError::NoBacking { at: iova })?;
        access(memory, iova.0 - start).map_err(|error| refused(error, iova))
    }
}

/// What an access error of a mapping means at an address. Bounds and rights were checked before, so what is
/// left is memory that went away.
fn refused(error: AccessError, at: Iova) -> DmaError {
    match error {
        AccessError::ReadOnly => DmaError::ReadOnly { at },
        AccessError::Misaligned => DmaError::Misaligned { at },
        AccessError::OutOfBounds | AccessError::Torn => DmaError::NoBacking { at },
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
