//! The function behind the vfio-user server: regions, interrupts and memory maps.
//!
//! A guest's mistake is never an error here, the function answers it as a device does. Errors go to the VMM only
//! for what the VMM itself did wrong.

use std::fs::File;
use std::io;

use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use super::layout::{irq, region};
use super::message::SetIrqs;
use crate::device::Function;
use crate::device::function::ResetKind;
use crate::dma::Iova;
use crate::dma::irq::Interrupts;
use crate::dma::order::Scope;
use crate::sys;

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
        // The memory is the VMM's again when this is answered.
        self.bus_mut().drain(if size == 0 { Scope::All } else { Scope::Range(Iova(address), size) });
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
        set_vectors(self.irq_mut(), flags, start, count, fds)
    }
}

/// SET_IRQS for vectors that are signalled through eventfds and masked by the VMM.
///
/// QEMU sends a request without descriptor when the guest enables MSI-X, one descriptor for each vector that is
/// unmasked (again on every later unmask), and `count` 0 when MSI-X is switched off. Anything but an eventfd is
/// refused, because a write to it could wait or have effects of its own.
///
/// Source: Linux `drivers/vfio/pci/vfio_pci_intrs.c:vfio_pci_set_msi_trigger`.
pub fn set_vectors(interrupts: &mut Interrupts, flags: u32, start: u32, count: u32, fds: Vec<File>) -> io::Result<()> {
    const FIRE: u32 = SetIrqs::DATA_NONE | SetIrqs::ACTION_TRIGGER;
    const ASSIGN: u32 = SetIrqs::DATA_EVENTFD | SetIrqs::ACTION_TRIGGER;
    let end = start.checked_add(count).filter(|end| *end <= interrupts.count()).ok_or(errno(libc::EINVAL))?;
    let complete = fds.is_empty() || fds.len() == count as usize;
    match flags {
        FIRE if count == 0 && start == 0 => interrupts.disconnect_all(),
        FIRE if count > 0 => (start..end).for_each(|vector| interrupts.raise(vector)),
        ASSIGN if count > 0 && complete && fds.iter().all(sys::is_eventfd) => {
            let mut fds = fds.into_iter();
            for vector in start..end {
                interrupts.connect(vector, fds.next());
            }
        }
        _ => return Err(errno(libc::EINVAL)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    const FIRE: u32 = SetIrqs::DATA_NONE | SetIrqs::ACTION_TRIGGER;
    const ASSIGN: u32 = SetIrqs::DATA_EVENTFD | SetIrqs::ACTION_TRIGGER;

    fn event() -> File {
        File::from(sys::eventfd(true).unwrap())
    }

    fn taken(mut event: &File) -> Option<u64> {
        let mut count = [0; 8];
        event.read_exact(&mut count).ok().map(|()| u64::from_ne_bytes(count))
    }

    fn set(irqs: &mut Interrupts, flags: u32, start: u32, count: u32, fds: &[&File]) -> Result<(), Option<i32>> {
        let fds = fds.iter().map(|fd| fd.try_clone().unwrap()).collect();
        set_vectors(irqs, flags, start, count, fds).map_err(|error| error.raw_os_error())
    }

    #[test]
    fn the_requests_of_qemu_work_in_its_order() {
        let mut irqs = Interrupts::new(4);
        set(&mut irqs, ASSIGN, 0, 1, &[]).unwrap();
        assert!(!irqs.connected(0), "the placeholder assigns nothing");
        let (a, b) = (event(), event());
        set(&mut irqs, ASSIGN, 3, 1, &[&a]).unwrap();
        set(&mut irqs, ASSIGN, 3, 1, &[&b]).unwrap();
        irqs.raise(3);
        assert_eq!((taken(&a), taken(&b)), (None, Some(1)), "the later eventfd replaces the earlier one");
        set(&mut irqs, FIRE, 0, 0, &[]).unwrap();
        assert!(!irqs.connected(3));
    }

    #[test]
    fn a_request_without_data_fires_the_vectors() {
        let mut irqs = Interrupts::new(4);
        let (a, b) = (event(), event());
        set(&mut irqs, ASSIGN, 1, 2, &[&a, &b]).unwrap();
        set(&mut irqs, FIRE, 2, 1, &[]).unwrap();
        assert_eq!((taken(&a), taken(&b)), (None, Some(1)));
    }

    #[test]
    fn senseless_requests_are_refused_and_change_nothing() {
        let mut irqs = Interrupts::new(4);
        let a = event();
        set(&mut irqs, ASSIGN, 0, 1, &[&a]).unwrap();
        for (flags, start, count, fds) in [
            (ASSIGN, 3, 2, &[][..]),
            (ASSIGN, u32::MAX, u32::MAX, &[]),
            (ASSIGN, 0, 2, &[&a]),
            (ASSIGN, 0, 0, &[]),
            (FIRE, 1, 0, &[]),
            (SetIrqs::DATA_NONE | SetIrqs::ACTION_MASK, 0, 1, &[]),
            (0, 0, 1, &[]),
        ] {
            assert_eq!(set(&mut irqs, flags, start, count, fds), Err(Some(libc::EINVAL)), "{flags:#x} {start} {count}");
        }
        assert!(irqs.connected(0));
    }

    #[test]
    fn only_eventfds_are_taken() {
        let mut irqs = Interrupts::new(4);
        let null = File::options().write(true).open("/dev/null").unwrap();
        assert_eq!(set(&mut irqs, ASSIGN, 0, 1, &[&null]), Err(Some(libc::EINVAL)));
        assert!(!irqs.connected(0));
    }

    #[test]
    fn a_full_counter_is_a_pending_interrupt_even_if_the_descriptor_blocks() {
        let mut irqs = Interrupts::new(1);
        let full = File::from(sys::eventfd(false).unwrap());
        (&full).write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        set(&mut irqs, ASSIGN, 0, 1, &[&full]).unwrap();
        irqs.raise(0);
        assert_eq!(irqs.counters(), (1, 0));
    }
}
