//! The function behind the vfio-user server: regions, interrupts and memory maps.
//!
//! A guest's mistake is never an error here, the function answers it as a device does. Errors go to the VMM only
//! for what the VMM itself did wrong.

use std::fs::File;
use std::io;

use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use super::layout::{Layout, irq, region};
use crate::device::Function;
use crate::device::function::{BAR0_SIZE, ResetKind};
use crate::engine::{Device, Work};

const DATA_NONE: u32 = 1 << 0;
const DATA_EVENTFD: u32 = 1 << 2;
const ACTION_TRIGGER: u32 = 1 << 5;

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl ServerBackend for Function {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match region {
            region::BAR0 => self.bar_read(offset, data),
            region::CONFIG => self.config_read(offset, data),
            _ => return Err(errno(libc::EINVAL)),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            region::BAR0 => self.bar_write(offset, data),
            region::CONFIG => self.config_write(offset, data),
            _ => return Err(errno(libc::EINVAL)),
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
        self.bus_mut().map_mut().map_request(flags.bits(), offset, address, size, fd.as_ref()).map_err(io::Error::from)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        self.bus_mut().map_mut().unmap_request(flags.bits(), address, size).map(drop).map_err(io::Error::from)
    }

    fn reset(&mut self) -> io::Result<()> {
        Function::reset(self, ResetKind::Vmm);
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> io::Result<()> {
        if index != irq::MSIX {
            // Only MSI-X exists; switching off what does not exist is fine.
            return if count == 0 { Ok(()) } else { Err(errno(libc::EINVAL)) };
        }
        let interrupts = self.irq_mut();
        match (flags, count) {
            (f, 0) if f == DATA_NONE | ACTION_TRIGGER => interrupts.disconnect_all(),
            (f, _) if f == DATA_NONE | ACTION_TRIGGER => {
                for vector in start..start.saturating_add(count).min(interrupts.count()) {
                    interrupts.raise(vector);
                }
            }
            (f, _) if f == DATA_EVENTFD | ACTION_TRIGGER => {
                let end = start.checked_add(count).filter(|end| *end <= interrupts.count());
                let end = end.ok_or(errno(libc::EINVAL))?;
                let mut fds = fds.into_iter();
                for vector in start..end {
                    interrupts.connect(vector, fds.next());
                }
            }
            _ => return Err(errno(libc::EINVAL)),
        }
        Ok(())
    }
}

impl Device for Function {
    fn layout(&self) -> Layout {
        Layout::pci(BAR0_SIZE, self.irq().count())
    }

    fn run(&mut self, _now: u64) -> Work {
        let progress = self.work();
        Work { more: progress.more, next_deadline: None }
    }
}
