//! What a VMM owns: guest memory and interrupt eventfds.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cx10::sys::{self, Mapping, Protection};

/// Guest memory: a memfd, mapped here and to be mapped by the device.
pub struct Ram {
    fd: OwnedFd,
    memory: Mapping,
}

impl Ram {
    /// Memory whose size is fixed, as QEMU makes it.
    pub fn new(size: u64) -> Ram {
        Ram::with(size, true)
    }

    /// Memory that can be truncated.
    pub fn shrinkable(size: u64) -> Ram {
        Ram::with(size, false)
    }

    fn with(size: u64, sealed: bool) -> Ram {
        let fd = sys::memfd("guest-ram", size, sealed).expect("memfd");
        let memory = Mapping::new(fd.as_fd(), 0, size, Protection::ReadWrite).expect("map guest memory");
        Ram { fd, memory }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub fn size(&self) -> u64 {
        self.memory.len()
    }

    /// The memory, with its atomic accesses.
    pub fn memory(&self) -> &Mapping {
        &self.memory
    }

    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(offset, &mut bytes).expect("read guest memory");
        bytes
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.memory.write(offset, bytes).expect("write guest memory");
    }

    /// Big-endian, as the device's structures are.
    pub fn read_be32(&self, offset: u64) -> u32 {
        u32::from_be(self.memory.read_u32(offset).expect("read guest memory"))
    }

    /// Big-endian, as the device's structures are.
    pub fn write_be32(&self, offset: u64, value: u32) {
        self.memory.write_u32(offset, value.to_be()).expect("write guest memory");
    }

    /// Big-endian, as the device's structures are.
    pub fn read_be64(&self, offset: u64) -> u64 {
        u64::from_be(self.memory.read_u64(offset).expect("read guest memory"))
    }

    /// Big-endian, as the device's structures are.
    pub fn write_be64(&self, offset: u64, value: u64) {
        self.memory.write_u64(offset, value.to_be()).expect("write guest memory");
    }

    /// Takes the memory away behind everybody's back.
    pub fn truncate(&self, size: u64) {
        File::from(self.fd.try_clone().expect("dup")).set_len(size).expect("truncate");
    }
}

/// An eventfd as a VMM uses it for an interrupt.
pub struct Event(File);

impl Event {
    pub fn new() -> Event {
        Event(File::from(sys::eventfd(true).expect("eventfd")))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes the counter if it is not zero.
    pub fn take(&self) -> Option<u64> {
        let mut count = [0; 8];
        (&self.0).read_exact(&mut count).ok().map(|()| u64::from_ne_bytes(count))
    }

    /// Waits for the interrupt; the counter, or `None` if it did not come in time.
    pub fn wait(&self, timeout: Duration) -> Option<u64> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(count) = self.take() {
                return Some(count);
            }
            if Instant::now() >= end {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}
