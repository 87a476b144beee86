//! MEMIC: memory on the device that a driver maps through BAR 0 (PRM "Device Memory"; kernel `dm.c`).

/// Offset of the memory in BAR 0.
pub const BAR_OFFSET: u64 = 16 << 20;
/// Bytes of the memory; the driver's page bitmap handles at most 256 pages.
pub const SIZE: u64 = 1 << 20;

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

impl Default for DeviceMemory {
    fn default() -> DeviceMemory {
        DeviceMemory::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
