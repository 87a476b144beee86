//! Loads, stores and copies of guest memory. Every access is checked from end to end before the first byte moves, and
//! none allocates.

use std::sync::atomic::{Ordering, fence};

use super::{CopyRefused, DmaError, Map, MemoryMap, Rights, Way, last_of};
use crate::dma::Iova;
use crate::sys::{AccessError, BULK, Mapping, MoveError};

/// Who tells by the last bytes of a long copy that all others have changed is right on both sides: these are loaded
/// first and stored last.
const TAIL: u64 = 8;

/// A copy of at most `N` bytes, by way of as many.
#[inline]
fn copy_words<const N: usize>(
    len: u64,
    load: impl FnOnce(&mut [u8]) -> Result<(), CopyRefused>,
    store: impl FnOnce(&[u8]) -> Result<(), CopyRefused>,
) -> Result<(), CopyRefused> {
    let mut words = [0; N];
    let words = &mut words[..len as usize];
    load(words)?;
    store(words)
}

impl MemoryMap {
    /// Reads guest memory.
    #[inline]
    pub fn read(&self, iova: Iova, dst: &mut [u8]) -> Result<(), DmaError> {
        match self.span(iova, dst.len() as u64, Way::Load)? {
            Span::Whole(memory, offset) => memory.read(offset, dst).map_err(|error| refused(error, iova)),
            Span::Parts => {
                let mut done = 0;
                self.pieces(iova, dst.len(), Way::Load, |memory, offset, piece| {
                    done += piece;
                    memory.read(offset, &mut dst[done - piece..done])
                })
            }
        }
    }

    /// Writes guest memory.
    pub fn write(&self, iova: Iova, src: &[u8]) -> Result<(), DmaError> {
        self.span(iova, src.len() as u64, Way::Store)?;
        let mut done = 0;
        self.pieces(iova, src.len(), Way::Store, |memory, offset, piece| {
            done += piece;
            memory.write(offset, &src[done - piece..done])
        })
    }

    /// Whether all of a range can be read. Who asks is going to: its beginning is brought near meanwhile.
    pub fn check_read(&self, iova: Iova, len: u64) -> Result<(), DmaError> {
        if let Span::Whole(memory, offset) = self.span(iova, len, Way::Load)? {
            memory.prefetch(offset, len);
        }
        Ok(())
    }

    /// Whether `len` bytes from `iova` on can be written.
    pub fn check_write(&self, iova: Iova, len: u64) -> Result<(), DmaError> {
        self.span(iova, len, Way::Store).map(|_| ())
    }

    /// Writes guest memory, and publishes: the last byte becomes visible last. It is stored with release ordering,
    /// together with the rest of the naturally aligned word of up to eight bytes that it ends.
    #[inline]
    pub fn write_release(&self, iova: Iova, src: &[u8]) -> Result<(), DmaError> {
        match self.span(iova, src.len() as u64, Way::Store)? {
            Span::Whole(memory, offset) => memory.write_release(offset, src).map_err(|error| refused(error, iova)),
            Span::Parts => {
                let mut done = 0;
                self.pieces(iova, src.len(), Way::Store, |memory, offset, piece| {
                    done += piece;
                    let part = &src[done - piece..done];
                    if done == src.len() { memory.write_release(offset, part) } else { memory.write(offset, part) }
                })
            }
        }
    }

    /// Moves `len` bytes of guest memory to `to` as if all were loaded first, and publishes them as
    /// [`MemoryMap::write_release`] does. Both sides are checked before the first byte is stored. Fewer than [`BULK`]
    /// bytes stay whole words, as in a read and a write.
    ///
    /// Limit: memory that the VMM mapped at two addresses may overlap without our knowing; then the result is that of
    /// some order of copying.
    pub fn copy(&self, from: Iova, to: Iova, len: u64) -> Result<(), CopyRefused> {
        let source = self.span(from, len, Way::Load).map_err(CopyRefused::Source)?;
        let target = self.span(to, len, Way::Store).map_err(CopyRefused::Target)?;
        let (Span::Whole(source, offset), Span::Whole(target, target_offset)) = (source, target) else {
            return self.copy_parts(from, to, len);
        };
        let at_source = |error| CopyRefused::Source(refused(error, from));
        let at_target = |error| CopyRefused::Target(refused(error, to));
        if len < BULK as u64 {
            let load = |words: &mut [u8]| source.read(offset, words).map_err(at_source);
            let store = |words: &[u8]| target.write_release(target_offset, words).map_err(at_target);
            // Clearing the words is much of what a short copy costs.
            return match len {
                8 => copy_words::<8>(8, load, store),
                0..=16 => copy_words::<16>(len, load, store),
                _ => copy_words::<BULK>(len, load, store),
            };
        }
        let moved = source.copy_release(offset, target, target_offset, len as usize);
        moved.map_err(|error| not_moved(error, from, to))
    }

    /// A copy between ranges that `span` accepted and that lie in several maps, or are empty.
    #[cold]
    fn copy_parts(&self, from: Iova, to: Iova, len: u64) -> Result<(), CopyRefused> {
        if len < BULK as u64 {
            let load = |words: &mut [u8]| self.read(from, words).map_err(CopyRefused::Source);
            return copy_words::<BULK>(len, load, |words| self.write_release(to, words).map_err(CopyRefused::Target));
        }
        let body = len - TAIL;
        let mut tail = [0; TAIL as usize];
        self.read(Iova(from.0 + body), &mut tail).map_err(CopyRefused::Source)?;
        fence(Ordering::Acquire);
        self.move_parts(from.0, to.0, body)?;
        self.write_release(Iova(to.0 + body), &tail).map_err(CopyRefused::Target)
    }

    /// Moves at least one byte between ranges that `span` accepted, map by map.
    fn move_parts(&self, from: u64, to: u64, len: u64) -> Result<(), CopyRefused> {
        let upwards = to > from && to - from < len;
        let mut done = 0;
        while done < len {
            // Bytes that a later step still needs are not overwritten: from the end if the target lies above.
            let left = len - done;
            let probe = if upwards { left - 1 } else { done };
            let (source, target) = (from + probe, to + probe);
            let (from_map, from_memory) = self.backed(source, Way::Load).map_err(CopyRefused::Source)?;
            let (to_map, to_memory) = self.backed(target, Way::Store).map_err(CopyRefused::Target)?;
            let (step, back) = if upwards {
                let step = (source - from_map.start).min(target - to_map.start).min(left - 1) + 1;
                (step, step - 1)
            } else {
                ((from_map.last - source).min(to_map.last - target).min(left - 1) + 1, 0)
            };
            let (source, target) = (source - back, target - back);
            let moved = from_memory.copy_to(source - from_map.start, to_memory, target - to_map.start, step as usize);
            moved.map_err(|error| not_moved(error, Iova(source), Iova(target)))?;
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
        self.span(iova, 8, Way::Load)?;
        let change = |word: u64| u64::from_ne_bytes(change(word.to_ne_bytes()));
        self.word(iova, 8, Way::Store, |memory, offset| memory.update_u64(offset, change)).map(u64::to_ne_bytes)
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
        self.span(iova, 8, Way::Load)?;
        let (current, new) = (u64::from_ne_bytes(current), u64::from_ne_bytes(new));
        self.word(iova, 8, Way::Store, |memory, offset| memory.compare_exchange_u64(offset, current, new))
            .map(u64::to_ne_bytes)
    }

    /// The map at an address and its memory, if it allows the access.
    #[inline]
    fn backed(&self, at: u64, way: Way) -> Result<(&Map, &Mapping), DmaError> {
        let here = Iova(at);
        let map = self.find(at, way).ok_or(DmaError::Unmapped { at: here })?;
        match (way, map.rights) {
            (Way::Store, Rights::Read) => return Err(DmaError::ReadOnly { at: here }),
            (Way::Load, Rights::Write) => return Err(DmaError::WriteOnly { at: here }),
            _ => {}
        }
        match &map.memory {
            Some(memory) if !memory.is_torn() => Ok((map, memory)),
            _ => Err(DmaError::NoBacking { at: here }),
        }
    }

    /// Checks an access from end to end.
    #[inline]
    fn span(&self, iova: Iova, len: u64, way: Way) -> Result<Span<'_>, DmaError> {
        match self.recent(iova.0, len, way) {
            Some((memory, offset)) => Ok(Span::Whole(memory, offset)),
            None => self.spread(iova, len, way),
        }
    }

    /// The memory of the map that was found last, if all of an access lies there and is allowed.
    #[inline]
    fn recent(&self, at: u64, len: u64, way: Way) -> Option<(&Mapping, u64)> {
        let map = self.maps.get(self.recent[way as usize].get())?;
        let offset = at.checked_sub(map.start)?;
        let last = offset.checked_add(len.checked_sub(1)?)?;
        let forbidden = if way == Way::Load { Rights::Write } else { Rights::Read };
        if last > map.last - map.start || map.rights == forbidden {
            return None;
        }
        map.memory.as_ref().filter(|memory| !memory.is_torn()).map(|memory| (memory, offset))
    }

    /// As [`MemoryMap::span`], wherever it lies.
    #[cold]
    fn spread(&self, iova: Iova, len: u64, way: Way) -> Result<Span<'_>, DmaError> {
        if len == 0 {
            return Ok(Span::Parts);
        }
        let last = last_of(iova.0, len).ok_or(DmaError::Overflow)?;
        let (map, memory) = self.backed(iova.0, way)?;
        if map.last >= last {
            return Ok(Span::Whole(memory, iova.0 - map.start));
        }
        let mut end = map.last;
        while end < last {
            end = self.backed(end + 1, way)?.0.last;
        }
        Ok(Span::Parts)
    }

    /// Walks a range that `span` accepted, map by map.
    fn pieces(
        &self,
        iova: Iova,
        len: usize,
        way: Way,
        mut access: impl FnMut(&Mapping, u64, usize) -> Result<(), AccessError>,
    ) -> Result<(), DmaError> {
        let mut at = iova.0;
        let mut left = len;
        while left > 0 {
            let (map, memory) = self.backed(at, way)?;
            let in_map = (map.last - at).saturating_add(1);
            let piece = usize::try_from(in_map).map_or(left, |n| n.min(left));
            access(memory, at - map.start, piece).map_err(|error| refused(error, Iova(at)))?;
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
        // Maps are multiples of a granule, so an aligned word lies in one.
        let (map, memory) = self.backed(iova.0, way)?;
        access(memory, iova.0 - map.start).map_err(|error| refused(error, iova))
    }
}

/// A range that may be accessed.
#[derive(Clone, Copy)]
enum Span<'a> {
    /// All of it lies at an offset of one mapping.
    Whole(&'a Mapping, u64),
    /// It is empty or lies in several.
    Parts,
}

/// What an error of a move means for the two addresses that it began at.
fn not_moved(error: MoveError, from: Iova, to: Iova) -> CopyRefused {
    match error {
        MoveError::Source(error) => CopyRefused::Source(refused(error, from)),
        MoveError::Target(error) => CopyRefused::Target(refused(error, to)),
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
