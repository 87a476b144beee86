//! A toy device: a register file with a doorbell, that records what reaches it.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};

use cx10::dma::Iova;
use cx10::dma::irq::Interrupts;
use cx10::dma::map::MemoryMap;
use cx10::engine::{Device, Work};
use cx10::transport::backend::set_vectors;
use cx10::transport::layout::{Layout, irq, region};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

pub const BAR0_SIZE: u64 = 0x4000;
pub const VECTORS: u32 = 16;

/// A write of `vector` here makes the device work and then signal that vector.
pub const DOORBELL: u64 = 0x3000;
/// A write here makes the next call fail with that errno.
pub const FAIL: u64 = 0x3008;
/// A write of an I/O virtual address here makes the device add one to the eight bytes there.
pub const DMA: u64 = 0x3010;
/// A write of microseconds here makes the device ask for a call after that time, and then count it at TICKS.
pub const TIMER: u64 = 0x3018;
/// Deadlines met, read-only.
pub const TICKS: u64 = 0x3020;
/// A write here keeps the device busy for that many calls of `run`; reads how many are left.
pub const BUSY: u64 = 0x3028;

/// What reached the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Read(u32, u64, usize),
    Write(u32, u64, Vec<u8>),
    Map { flags: u32, offset: u64, address: u64, size: u64, fd: bool },
    Unmap { flags: u32, address: u64, size: u64 },
    Reset,
    SetIrqs { index: u32, flags: u32, start: u32, count: u32, fds: usize },
}

/// The record of a device that lives in another thread.
#[derive(Clone, Default)]
pub struct Record(Arc<Mutex<Vec<Call>>>);

impl Record {
    fn push(&self, call: Call) {
        self.0.lock().expect("record").push(call);
    }

    /// Takes what was recorded so far.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.0.lock().expect("record"))
    }
}

pub struct Toy {
    layout: Layout,
    record: Record,
    /// Do not record; for measurements.
    pub quiet: bool,
    bar: Vec<u8>,
    config: Vec<u8>,
    memory: MemoryMap,
    interrupts: Interrupts,
    rung: Vec<u32>,
    fail: Option<i32>,
    timer: Option<u64>,
    deadline: Option<u64>,
    busy: u64,
    pub runs: u64,
}

impl Toy {
    pub fn new() -> Toy {
        Toy::with(Layout::pci(BAR0_SIZE, VECTORS))
    }

    /// BAR0 and the number of vectors must not be smaller than those of `new`.
    pub fn with(layout: Layout) -> Toy {
        Toy {
            bar: vec![0; layout.regions[region::BAR0 as usize].size as usize],
            config: (0..4096u32).map(|i| (i ^ (i >> 8)) as u8).collect(),
            interrupts: Interrupts::new(layout.irqs[irq::MSIX as usize].count as u16),
            layout,
            record: Record::default(),
            quiet: false,
            memory: MemoryMap::new(),
            rung: Vec::new(),
            fail: None,
            timer: None,
            deadline: None,
            busy: 0,
            runs: 0,
        }
    }

    pub fn record(&self) -> Record {
        self.record.clone()
    }

    fn note(&self, call: impl FnOnce() -> Call) {
        if !self.quiet {
            self.record.push(call());
        }
    }

    fn failing(&mut self) -> io::Result<()> {
        match self.fail.take() {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(()),
        }
    }

    fn register(&mut self, offset: u64, value: u64) {
        match offset {
            DOORBELL => self.rung.push(value as u32),
            FAIL => self.fail = Some(value as i32),
            DMA => self.dma(Iova(value)),
            TIMER => self.timer = Some(value * 1000),
            BUSY => self.busy = value,
            _ => {}
        }
    }

    fn dma(&mut self, at: Iova) {
        let mut bytes = [0; 8];
        if self.memory.read(at, &mut bytes).is_ok() {
            let next = u64::from_le_bytes(bytes).wrapping_add(1).to_le_bytes();
            let _ = self.memory.write(at, &next);
        }
    }

    fn bytes(&mut self, region: u32) -> io::Result<&mut Vec<u8>> {
        match region {
            region::BAR0 => Ok(&mut self.bar),
            region::CONFIG => Ok(&mut self.config),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
}

impl ServerBackend for Toy {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.note(|| Call::Read(region, offset, data.len()));
        self.failing()?;
        let at = offset as usize;
        let len = data.len();
        data.copy_from_slice(&self.bytes(region)?[at..at + len]);
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        self.note(|| Call::Write(region, offset, data.to_vec()));
        self.failing()?;
        let at = offset as usize;
        self.bytes(region)?[at..at + data.len()].copy_from_slice(data);
        if region == region::BAR0 && data.len() <= 8 {
            let mut value = [0; 8];
            value[..data.len()].copy_from_slice(data);
            self.register(offset, u64::from_le_bytes(value));
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        self.note(|| Call::Map { flags: flags.bits(), offset, address, size, fd: fd.is_some() });
        self.failing()?;
        Ok(self.memory.map_request(flags.bits(), offset, address, size, fd.as_ref())?)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        self.note(|| Call::Unmap { flags: flags.bits(), address, size });
        self.failing()?;
        self.memory.unmap_request(flags.bits(), address, size)?;
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.note(|| Call::Reset);
        self.failing()?;
        self.bar.fill(0);
        self.rung.clear();
        (self.timer, self.deadline, self.busy) = (None, None, 0);
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> io::Result<()> {
        self.note(|| Call::SetIrqs { index, flags, start, count, fds: fds.len() });
        self.failing()?;
        set_vectors(&mut self.interrupts, flags, start, count, fds)
    }
}

impl Device for Toy {
    fn layout(&self) -> Layout {
        self.layout.clone()
    }

    fn run(&mut self, now: u64) -> Work {
        self.runs += 1;
        for vector in self.rung.drain(..) {
            self.interrupts.raise(vector);
        }
        if let Some(after) = self.timer.take() {
            self.deadline = Some(now + after);
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            let at = TICKS as usize;
            self.bar[at] = self.bar[at].wrapping_add(1);
        }
        if self.busy > 0 {
            self.busy -= 1;
            let left = (self.busy as u32).to_le_bytes();
            self.bar[BUSY as usize..][..4].copy_from_slice(&left);
        }
        Work { more: self.busy > 0, next_deadline: self.deadline, ..Work::default() }
    }
}
