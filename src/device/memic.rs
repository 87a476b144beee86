//! MEMIC: memory on the device that a driver maps through BAR 0 (PRM "Device Memory"; kernel `dm.c`).
//!
//! Behind the memory, BAR 0 shows it again once for each operation: what is written or read there is done to the byte of
//! the memory in one step (rdma-core `mlx5dv_dm_map_op_addr(3)`, `tests/test_mlx5_dm_ops.py`). Only allocations that
//! the driver has asked an operation for are shown there.

use super::hca::Hca;
use super::objects::Charged;
use crate::log_limit::limited;

/// Offset of the memory in BAR 0.
pub const BAR_OFFSET: u64 = 16 << 20;
/// Bytes of the memory; the driver's page bitmap handles at most 256 pages.
pub const SIZE: u64 = 1 << 20;

/// Allocations are multiples of this.
pub const GRANULE: u64 = 64;

/// An allocated range, by BAR 0 offsets as the commands use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemicRange {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Operations that are shown, bit n for operation n.
    pub operations: u32,
}

/// Operations on device memory: `memic_operation_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A byte that is written is added to the one in memory.
    Increment = 0,
    /// A byte that is read is 1 afterwards.
    TestAndSet = 1,
}

impl Operation {
    /// Every one, in the order of their numbers.
    const ALL: [Operation; 2] = [Operation::Increment, Operation::TestAndSet];

    /// The operation with this number.
    pub fn from_number(number: u32) -> Option<Operation> {
        Operation::ALL.get(number as usize).copied()
    }

    /// Where `at`, an offset in BAR 0, is shown for the operation.
    pub fn shown(self, at: u64) -> u64 {
        at + SIZE * (1 + self as u64)
    }
}

impl Charged for MemicRange {}

impl MemicRange {
    /// A range for which no operation is shown.
    pub fn new(start: u64, len: u64) -> MemicRange {
        MemicRange { start, len, operations: 0 }
    }

    /// Whether `len` bytes from `start` lie in this range.
    pub fn contains(&self, start: u64, len: u64) -> bool {
        start.checked_sub(self.start).is_some_and(|at| at <= self.len && len <= self.len - at)
    }

    fn overlaps(&self, start: u64, len: u64) -> bool {
        start < self.start + self.len && self.start < start + len
    }
}

/// The lowest place for `len` bytes, aligned to `align` (a power of two), in `range` beside what is `taken`.
pub fn place(mut taken: Vec<MemicRange>, range: MemicRange, len: u64, align: u64) -> Option<u64> {
    taken.sort_by_key(|other| other.start);
    let mut start = range.start.checked_next_multiple_of(align)?;
    for other in taken {
        if range.contains(start, len) && other.overlaps(start, len) {
            start = (other.start + other.len).checked_next_multiple_of(align)?;
        }
    }
    range.contains(start, len).then_some(start)
}

/// The bytes of the device memory.
#[derive(Debug)]
pub struct DeviceMemory {
    bytes: Box<[u8]>,
}

impl DeviceMemory {
    /// Zeroed memory.
    pub fn new() -> DeviceMemory {
        DeviceMemory { bytes: vec![0; SIZE as usize].into_boxed_slice() }
    }

    /// Clears the memory, as a reset does.
    pub fn reset(&mut self) {
        self.bytes.fill(0);
    }

    /// Clears a range, by BAR 0 offsets: its next owner must not see what this one left.
    pub fn clear(&mut self, range: MemicRange) {
        let Some(at) = range.start.checked_sub(BAR_OFFSET).and_then(|at| usize::try_from(at).ok()) else { return };
        let Some(rest) = self.bytes.get_mut(at..) else { return };
        rest.iter_mut().take(usize::try_from(range.len).unwrap_or(usize::MAX)).for_each(|byte| *byte = 0);
    }

    /// Reads at `at` from the start of the memory; beyond its end reads 0.
    pub fn read(&self, at: u64, buf: &mut [u8]) {
        buf.fill(0);
        let Some(from) = usize::try_from(at).ok().and_then(|at| self.bytes.get(at..)) else { return };
        for (to, byte) in buf.iter_mut().zip(from) {
            *to = *byte;
        }
    }

    /// Writes at `at`; what lies beyond the end is dropped.
    pub fn write(&mut self, at: u64, data: &[u8]) {
        let Some(to) = usize::try_from(at).ok().and_then(|at| self.bytes.get_mut(at..)) else { return };
        for (to, byte) in to.iter_mut().zip(data) {
            *to = *byte;
        }
    }
}

/// What an access behind [`BAR_OFFSET`] reaches.
enum Reached {
    /// The memory, from its start.
    Memory(u64),
    /// A byte of it, for an operation.
    Operation(Operation, u64),
    /// Nothing.
    Nothing,
}

impl Hca {
    fn reach_memic(&self, at: u64, len: usize) -> Reached {
        let Some(shown) = (at / SIZE).checked_sub(1) else { return Reached::Memory(at) };
        let operation = u32::try_from(shown).ok().and_then(Operation::from_number);
        let Some(operation) = operation else { return Reached::Nothing };
        let at = at % SIZE;
        let ranges = self.objects.memics.iter().map(|(_, entry)| &entry.object);
        let mut shows = ranges.filter(|range| range.operations >> operation as u32 & 1 != 0);
        // Operations are on bytes; `memic_increment_size` and `memic_test_and_set_size` say no more.
        if len != 1 || !shows.any(|range| range.contains(BAR_OFFSET + at, 1)) {
            limited!(warn, target: "cx10::device", "{operation:?} of {len} bytes at {at:#x} of the device memory is not offered");
            return Reached::Nothing;
        }
        Reached::Operation(operation, at)
    }

    /// The processor reads behind [`BAR_OFFSET`].
    pub fn read_memic(&mut self, at: u64, buf: &mut [u8]) {
        match self.reach_memic(at, buf.len()) {
            Reached::Memory(at) => self.memic.read(at, buf),
            Reached::Operation(operation, at) => {
                self.memic.read(at, buf);
                if operation == Operation::TestAndSet {
                    self.memic.write(at, &[1]);
                }
            }
            Reached::Nothing => buf.fill(0),
        }
    }

    /// The processor writes behind [`BAR_OFFSET`].
    pub fn write_memic(&mut self, at: u64, data: &[u8]) {
        match self.reach_memic(at, data.len()) {
            Reached::Memory(at) => self.memic.write(at, data),
            Reached::Operation(Operation::Increment, at) => {
                let mut byte = [0];
                self.memic.read(at, &mut byte);
                let sum = byte[0].wrapping_add(data.first().copied().unwrap_or(0));
                self.memic.write(at, &[sum]);
            }
            // Nothing is written where a read sets.
            Reached::Operation(Operation::TestAndSet, _) | Reached::Nothing => {}
        }
    }
}

impl Default for DeviceMemory {
    fn default() -> DeviceMemory {
        DeviceMemory::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_aligned_free_and_inside() {
        let range = MemicRange::new;
        let taken = [range(0x1000, 0x40), range(0x1080, 0x80)];
        let find = |within, len, align| place(taken.to_vec(), within, len, align);
        let page = range(0x1000, 0x1000);
        assert_eq!(find(page, 0x40, 0x40), Some(0x1040));
        assert_eq!(find(page, 0x80, 0x40), Some(0x1100));
        assert_eq!(find(page, 0x40, 0x1000), None);
        assert_eq!(find(range(0x1000, 0x2000), 0x40, 0x1000), Some(0x2000));
        assert_eq!(find(page, 0xf00, 0x40), Some(0x1100));
        assert_eq!(find(page, 0xf01, 0x40), None);
        assert_eq!(find(range(u64::MAX - 0x40, 0x40), 0x40, 0x40), None);
    }

    #[test]
    fn accesses_stay_inside() {
        let mut memory = DeviceMemory::new();
        memory.write(SIZE - 2, &[1, 2, 3, 4]);
        memory.write(u64::MAX, &[9]);
        let mut bytes = [0xff; 4];
        memory.read(SIZE - 3, &mut bytes);
        assert_eq!(bytes, [0, 1, 2, 0]);
        memory.read(SIZE + 5, &mut bytes);
        assert_eq!(bytes, [0; 4]);
    }
}
