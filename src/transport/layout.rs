//! What a device shows over vfio-user: its regions and interrupts.
//!
//! Sources: Linux `include/uapi/linux/vfio.h` (`vfio_region_info`, `vfio_irq_info`), of which vfio-user uses
//! the same numbers.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bitflags::bitflags;

/// Region numbers of a PCI device.
pub mod region {
    /// The first base address register; the others follow.
    pub const BAR0: u32 = 0;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// Regions of a PCI device: six BARs, ROM, configuration space, VGA.
    pub const COUNT: usize = 9;
}

/// Interrupt numbers of a PCI device.
pub mod irq {
    /// Legacy interrupt.
    pub const INTX: u32 = 0;
    /// Message signalled interrupts.
    pub const MSI: u32 = 1;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// Unrecoverable error; QEMU stops the guest.
    pub const ERR: u32 = 3;
    /// Request to give the device back.
    pub const REQ: u32 = 4;
    /// Interrupt indices of a PCI device.
    pub const COUNT: usize = 5;
}

bitflags! {
    /// `VFIO_REGION_INFO_FLAG_*` without CAPS, which follows from the areas.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RegionFlags: u32 {
        /// REGION_READ is allowed.
        const READ = 1 << 0;
        /// REGION_WRITE is allowed.
        const WRITE = 1 << 1;
        /// The client may map (parts of) the region.
        const MMAP = 1 << 2;
    }

    /// `VFIO_IRQ_INFO_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct IrqFlags: u32 {
        /// Signalled through an eventfd.
        const EVENTFD = 1 << 0;
        /// Can be masked and unmasked with SET_IRQS.
        const MASKABLE = 1 << 1;
        /// Masks itself when it fires.
        const AUTOMASKED = 1 << 2;
        /// The set of enabled vectors cannot grow while in use.
        const NORESIZE = 1 << 3;
    }
}

/// A part of a region that the client may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseArea {
    /// Start within the region.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// One region.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// Bytes; 0 for a region that does not exist.
    pub size: u64,
    /// What the client may do with it.
    pub flags: RegionFlags,
    /// Offset of the region in `mmap_fd`.
    pub mmap_offset: u64,
    /// Mappable parts; empty with MMAP set means the whole region.
    pub areas: Vec<SparseArea>,
    /// What to map.
    pub mmap_fd: Option<Arc<OwnedFd>>,
}

/// One interrupt index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Irq {
    /// Vectors.
    pub count: u32,
    /// How they behave.
    pub flags: IrqFlags,
}

/// Everything GET_INFO, GET_REGION_INFO and GET_IRQ_INFO answer.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// RESET is supported.
    pub resettable: bool,
    /// By region number.
    pub regions: Vec<Region>,
    /// By interrupt index.
    pub irqs: Vec<Irq>,
}

impl Layout {
    /// Lets the client map `area` of BAR0, which lies at its offset in `file`.
    pub fn map_bar0(&mut self, area: SparseArea, file: Arc<OwnedFd>) {
        if let Some(bar) = self.regions.get_mut(region::BAR0 as usize) {
            bar.flags |= RegionFlags::MMAP;
            bar.areas.push(area);
            bar.mmap_fd = Some(file);
        }
    }

    /// A PCI device with 4096 bytes of configuration space, one trapped BAR0 and `msix` MSI-X vectors.
    pub fn pci(bar0: u64, msix: u32) -> Layout {
        let rw = RegionFlags::READ | RegionFlags::WRITE;
        let mut regions = vec![Region::default(); region::COUNT];
        regions[region::BAR0 as usize] = Region { size: bar0, flags: rw, ..Region::default() };
        regions[region::CONFIG as usize] = Region { size: 4096, flags: rw, ..Region::default() };
        let mut irqs = vec![Irq::default(); irq::COUNT];
        irqs[irq::MSIX as usize] = Irq { count: msix, flags: IrqFlags::EVENTFD };
        Layout { resettable: true, regions, irqs }
    }
}
