//! PCI configuration space of the function: identity, capabilities, and what a write means.
//!
//! Layouts and reset values are those of the PCI Express Base Specification (7.5 for type 0 headers, 7.5.3 for
//! the PCI Express capability, 7.8.4 for AER, 7.9.3 for the serial number, 7.9.18 for VPD). QEMU owns the BAR
//! values, the MSI-X capability's control bits and the "next" pointers that the guest reads; everything else that
//! the guest reads comes from here.

mod vpd;
mod vsc;

pub use vpd::Vpd;

/// Size of the configuration space of a PCI Express function.
pub const CONFIG_SIZE: usize = 4096;

/// Where the capabilities stand; the order of a real part.
pub mod at {
    #![expect(missing_docs, reason = "offsets named after their registers")]
    pub const COMMAND: usize = 0x04;
    pub const STATUS: usize = 0x06;
    pub const BAR0: usize = 0x10;
    pub const PM: usize = 0x40;
    pub const PMCSR: usize = PM + 4;
    pub const VPD: usize = 0x48;
    pub const PCIE: usize = 0x60;
    pub const DEVCTL: usize = PCIE + 8;
    pub const MSIX: usize = 0x9c;
    pub const VSC: usize = 0xc0;
    pub const AER: usize = 0x100;
    pub const DSN: usize = 0x150;
}

const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_MASTER: u16 = 1 << 2;
const DEVCTL_RELAX_EN: u16 = 1 << 4;
const DEVCTL_FLR: u16 = 1 << 15;
const PM_STATE: u16 = 0x3;

/// Who the function says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PCI vendor id.
    pub vendor_id: u16,
    /// PCI device id.
    pub device_id: u16,
    /// Revision id.
    pub revision: u8,
    /// Class code, 24 bits.
    pub class: u32,
    /// Subsystem vendor id.
    pub subsystem_vendor_id: u16,
    /// Subsystem id.
    pub subsystem_id: u16,
    /// Size of BAR 0 in bytes, a power of two.
    pub bar0_size: u64,
    /// Number of MSI-X vectors, 1 to 2048.
    pub msix_vectors: u16,
    /// Offset of the MSI-X table in BAR 0.
    pub msix_table: u32,
    /// Offset of the MSI-X pending bits in BAR 0.
    pub msix_pba: u32,
    /// Supported and current link speed as encoded in Link Capabilities: 5 is 32 GT/s, 6 is 64 GT/s.
    pub link_speed: u8,
    /// Supported and negotiated link width in lanes.
    pub link_width: u8,
    /// "Enable Relaxed Ordering" in Device Control after reset.
    pub relaxed_ordering: bool,
    /// Device serial number (EUI-64).
    pub serial_number: u64,
    /// Vital product data.
    pub vpd: Vpd,
}

/// What a write to configuration space asks of the function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigEffect {
    /// The bus-master enable bit has this new value.
    pub bus_master: Option<bool>,
    /// A function-level reset was initiated.
    pub function_level_reset: bool,
}

/// The 4 KiB of configuration space with the bits that software may write.
#[derive(Debug)]
pub struct ConfigSpace {
    bytes: Box<[u8; CONFIG_SIZE]>,
    writable: Box<[u8; CONFIG_SIZE]>,
    write_one_to_clear: Box<[u8; CONFIG_SIZE]>,
    identity: Identity,
    vpd: Vec<u8>,
    gateway: vsc::Gateway,
}

impl ConfigSpace {
    /// The configuration space after a fundamental reset.
    pub fn new(identity: Identity) -> ConfigSpace {
        let vpd = identity.vpd.encode();
        let mut config = ConfigSpace {
            bytes: Box::new([0; CONFIG_SIZE]),
            writable: Box::new([0; CONFIG_SIZE]),
            write_one_to_clear: Box::new([0; CONFIG_SIZE]),
            identity,
            vpd,
            gateway: vsc::Gateway::default(),
        };
        config.reset();
        config
    }

    /// Returns every register to its reset value; a VMM restores the BARs itself.
    pub fn reset(&mut self) {
        self.bytes.fill(0);
        self.writable.fill(0);
        self.write_one_to_clear.fill(0);
        self.header();
        self.power_management();
        self.vital_product_data();
        self.pci_express();
        self.msix();
        self.vendor_specific();
        self.advanced_error_reporting();
        self.serial_number();
    }

    fn header(&mut self) {
        let id = self.identity.clone();
        self.put16(0x00, id.vendor_id);
        self.put16(0x02, id.device_id);
        self.allow16(at::COMMAND, 0x0547); // I/O, memory, master, parity, SERR, INTx disable
        self.put16(at::STATUS, 0x0010); // capability list
        self.clear_on_one16(at::STATUS, 0xf900);
        self.put32(0x08, id.class << 8 | u32::from(id.revision));
        self.allow8(0x0c, 0xff); // cache line size: writable, no effect on PCI Express
        self.put32(at::BAR0, 0xc); // 64-bit, prefetchable
        let mask = !(id.bar0_size - 1);
        self.allow32(at::BAR0, mask as u32 & !0xf);
        self.allow32(at::BAR0 + 4, (mask >> 32) as u32);
        self.put16(0x2c, id.subsystem_vendor_id);
        self.put16(0x2e, id.subsystem_id);
        self.bytes[0x34] = at::PCIE as u8;
        self.allow8(0x3c, 0xff); // interrupt line: scratch for firmware; no INTx pin
    }

    fn power_management(&mut self) {
        self.put16(at::PM, 0x01); // last in the chain
        self.put16(at::PM + 2, 0x0003); // version 3, no D1, no D2, no PME
        self.put16(at::PMCSR, 0x0008); // No_Soft_Reset
        self.allow16(at::PMCSR, PM_STATE);
    }

    fn vital_product_data(&mut self) {
        self.put16(at::VPD, 0x03 | (at::MSIX as u16) << 8);
        self.allow16(at::VPD + 2, 0xffff);
        self.allow32(at::VPD + 4, 0xffff_ffff);
    }

    fn pci_express(&mut self) {
        let id = self.identity.clone();
        let link = u32::from(id.link_width) << 4;
        self.put16(at::PCIE, 0x10 | (at::VPD as u16) << 8);
        self.put16(at::PCIE + 2, 0x0002); // version 2, endpoint
        // Role-based error reporting, function-level reset, extended tags, 1024 B payload.
        self.put32(at::PCIE + 4, 1 << 28 | 1 << 15 | 1 << 5 | 3);
        let relaxed = if id.relaxed_ordering { DEVCTL_RELAX_EN } else { 0 };
        self.put16(at::DEVCTL, 0x2800 | 1 << 8 | relaxed); // 512 B read requests, no snoop, extended tags
        self.allow16(at::DEVCTL, !DEVCTL_FLR);
        self.clear_on_one16(at::PCIE + 0xa, 0x000f);
        let speed = u32::from(id.link_speed);
        self.put32(at::PCIE + 0xc, speed.min(0xf) | link | 1 << 22); // ASPM optionality
        self.allow16(at::PCIE + 0x10, 0x00cb);
        self.put16(at::PCIE + 0x12, (speed | link) as u16 | 1 << 12); // slot clock
        // Completion timeout ranges and disable, 10-bit tags.
        self.put32(at::PCIE + 0x24, 0x1f | 1 << 16 | 1 << 17);
        self.allow16(at::PCIE + 0x28, 0x1fff & !(1 << 5));
        let vector = ((1u32 << speed) - 1) << 1;
        self.put32(at::PCIE + 0x2c, vector);
        self.put16(at::PCIE + 0x30, speed as u16); // target link speed
        self.allow16(at::PCIE + 0x30, 0x000f);
        self.put16(at::PCIE + 0x32, 0x001e); // equalization complete, all phases
    }

    fn msix(&mut self) {
        let id = self.identity.clone();
        self.put16(at::MSIX, 0x11 | (at::VSC as u16) << 8);
        self.put16(at::MSIX + 2, id.msix_vectors - 1);
        self.allow16(at::MSIX + 2, 0xc000);
        self.put32(at::MSIX + 4, id.msix_table); // BAR indicator 0
        self.put32(at::MSIX + 8, id.msix_pba);
    }

    fn vendor_specific(&mut self) {
        self.gateway = vsc::Gateway::default();
        self.put16(at::VSC, 0x09 | (at::PM as u16) << 8);
        self.put16(at::VSC + 2, vsc::LEN as u16);
        for offset in (4..vsc::LEN).step_by(4) {
            self.allow32(at::VSC + offset, 0xffff_ffff);
        }
        self.show_gateway();
    }

    fn show_gateway(&mut self) {
        for (offset, value) in self.gateway.registers() {
            self.put32(at::VSC + offset, value);
        }
    }

    /// Serves the gateway's dwords that a write of `start..end` touched.
    fn gateway_access(&mut self, start: usize, end: usize) {
        let registers = at::VSC + 4..at::VSC + vsc::LEN;
        for at in registers.step_by(4).filter(|at| start < at + 4 && *at < end) {
            let value = u32::from(self.get16(at)) | u32::from(self.get16(at + 2)) << 16;
            self.gateway.write(at - at::VSC, value);
        }
        self.show_gateway();
    }

    fn advanced_error_reporting(&mut self) {
        self.put32(at::AER, 0x0001 | 2 << 16 | (at::DSN as u32) << 20);
        self.clear_on_one32(at::AER + 0x04, 0x05ff_f030);
        self.allow32(at::AER + 0x08, 0x05ff_f030);
        self.put32(at::AER + 0x0c, 0x0046_2030); // default severities
        self.allow32(at::AER + 0x0c, 0x05ff_f030);
        self.clear_on_one32(at::AER + 0x10, 0x0000_f1c1);
        self.put32(at::AER + 0x14, 0x0000_2000); // advisory non-fatal masked
        self.allow32(at::AER + 0x14, 0x0000_f1c1);
        self.put32(at::AER + 0x18, 0x00a0); // ECRC generation and check capable
        self.allow32(at::AER + 0x18, 0x0140);
    }

    fn serial_number(&mut self) {
        let serial = self.identity.serial_number;
        self.put32(at::DSN, 0x0003 | 1 << 16);
        self.put32(at::DSN + 4, serial as u32);
        self.put32(at::DSN + 8, (serial >> 32) as u32);
    }

    /// Reads `buf.len()` bytes at `offset`; beyond the space reads all ones.
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        let start = usize::try_from(offset).unwrap_or(CONFIG_SIZE);
        for (i, byte) in buf.iter_mut().enumerate() {
            *byte = start.checked_add(i).and_then(|at| self.bytes.get(at)).copied().unwrap_or(0xff);
        }
    }

    /// Writes `data` at `offset` as software does: only writable bits change, status bits clear on one.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> ConfigEffect {
        let mut effect = ConfigEffect::default();
        let Some(start) = usize::try_from(offset).ok().filter(|start| *start < CONFIG_SIZE) else {
            return effect;
        };
        let master = self.command() & COMMAND_MASTER;
        let mut reset_requested = false;
        for (at, value) in (start..CONFIG_SIZE).zip(data) {
            let kept = self.bytes[at] & !self.writable[at];
            let cleared = kept & !(value & self.write_one_to_clear[at]);
            self.bytes[at] = cleared | value & self.writable[at];
            reset_requested |= at == at::DEVCTL + 1 && value & (DEVCTL_FLR >> 8) as u8 != 0;
        }
        let end = start.saturating_add(data.len());
        if start <= at::VPD + 3 && end > at::VPD + 3 {
            self.vpd_access();
        }
        if start < at::VSC + vsc::LEN && end > at::VSC + 4 {
            self.gateway_access(start, end);
        }
        if self.command() & COMMAND_MASTER != master {
            effect.bus_master = Some(master == 0);
        }
        effect.function_level_reset = reset_requested;
        effect
    }

    /// Serves a VPD access: software wrote the address register; F tells the direction and, flipped, completion.
    fn vpd_access(&mut self) {
        let address = self.get16(at::VPD + 2);
        if address & 0x8000 != 0 {
            // A write: this VPD has no writable part, so the data is dropped and the access completes.
            self.put16(at::VPD + 2, address & 0x7fff);
            return;
        }
        let mut data = [0; 4];
        for (i, byte) in data.iter_mut().enumerate() {
            *byte = self.vpd.get(usize::from(address) + i).copied().unwrap_or(0);
        }
        self.bytes[at::VPD + 4..at::VPD + 8].copy_from_slice(&data);
        self.put16(at::VPD + 2, address | 0x8000);
    }

    fn command(&self) -> u16 {
        self.get16(at::COMMAND)
    }

    /// Whether software lets the function answer memory accesses: memory space enabled and power state D0.
    pub fn memory_enabled(&self) -> bool {
        self.command() & COMMAND_MEMORY != 0 && self.get16(at::PMCSR) & PM_STATE == 0
    }

    /// Whether software lets the function master the bus.
    pub fn bus_master(&self) -> bool {
        self.command() & COMMAND_MASTER != 0 && self.get16(at::PMCSR) & PM_STATE == 0
    }

    /// "Enable Relaxed Ordering" in Device Control as software left it.
    pub fn relaxed_ordering(&self) -> bool {
        self.get16(at::DEVCTL) & DEVCTL_RELAX_EN != 0
    }

    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn allow8(&mut self, at: usize, mask: u8) {
        self.writable[at] = mask;
    }

    fn allow16(&mut self, at: usize, mask: u16) {
        self.writable[at..at + 2].copy_from_slice(&mask.to_le_bytes());
    }

    fn allow32(&mut self, at: usize, mask: u32) {
        self.writable[at..at + 4].copy_from_slice(&mask.to_le_bytes());
    }

    fn clear_on_one16(&mut self, at: usize, mask: u16) {
        self.write_one_to_clear[at..at + 2].copy_from_slice(&mask.to_le_bytes());
    }

    fn clear_on_one32(&mut self, at: usize, mask: u32) {
        self.write_one_to_clear[at..at + 4].copy_from_slice(&mask.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn identity() -> Identity {
        Identity {
            vendor_id: 0x15b3,
            device_id: 0x2101,
            revision: 0,
            class: 0x02_0000,
            subsystem_vendor_id: 0x15b3,
            subsystem_id: 0x0001,
            bar0_size: 32 << 20,
            msix_vectors: 64,
            msix_table: 0x2000,
            msix_pba: 0x3000,
            link_speed: 6,
            link_width: 16,
            relaxed_ordering: true,
            serial_number: 0x0123_4567_89ab_cdef,
            vpd: Vpd {
                product: "product".into(),
                part_number: "PN".into(),
                engineering_level: "A1".into(),
                serial_number: "SN".into(),
            },
        }
    }

    fn read32(config: &ConfigSpace, at: usize) -> u32 {
        let mut bytes = [0; 4];
        config.read(at as u64, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn the_identity_is_a_connectx_ethernet_function() {
        let config = ConfigSpace::new(identity());
        assert_eq!(read32(&config, 0), 0x2101_15b3);
        assert_eq!(read32(&config, 8), 0x0200_0000);
    }

    #[test]
    fn the_capability_chain_visits_every_capability_once() {
        let config = ConfigSpace::new(identity());
        let mut seen = Vec::new();
        let mut next = read32(&config, 0x34) as usize & 0xff;
        while next != 0 && seen.len() < 16 {
            let header = read32(&config, next);
            seen.push(header & 0xff);
            next = (header >> 8) as usize & 0xff;
        }
        assert_eq!(seen, [0x10, 0x03, 0x11, 0x09, 0x01]);
        assert_eq!(read32(&config, 0x100) & 0xffff, 0x0001);
        assert_eq!(read32(&config, (read32(&config, 0x100) >> 20) as usize) & 0xffff, 0x0003);
    }

    #[test]
    fn relaxed_ordering_is_enabled_after_reset_and_software_can_clear_it() {
        let mut config = ConfigSpace::new(identity());
        assert!(config.relaxed_ordering());
        config.write(at::DEVCTL as u64, &[0, 0]);
        assert!(!config.relaxed_ordering());
        config.reset();
        assert!(config.relaxed_ordering());
    }

    #[test]
    fn a_function_level_reset_is_asked_for_by_bit_15_of_device_control_and_reads_zero() {
        let mut config = ConfigSpace::new(identity());
        assert!(!config.write(at::DEVCTL as u64, &[0x10, 0x28]).function_level_reset);
        assert!(config.write(at::DEVCTL as u64, &[0x10, 0xa8]).function_level_reset);
        assert_eq!(read32(&config, at::DEVCTL) & 0x8000, 0);
    }

    #[test]
    fn bar_sizing_answers_the_size() {
        let mut config = ConfigSpace::new(identity());
        config.write(at::BAR0 as u64, &[0xff; 8]);
        assert_eq!(read32(&config, at::BAR0), 0xfe00_000c);
        assert_eq!(read32(&config, at::BAR0 + 4), 0xffff_ffff);
    }

    #[test]
    fn bus_mastering_follows_the_command_register() {
        let mut config = ConfigSpace::new(identity());
        assert_eq!(config.write(at::COMMAND as u64, &[6, 0]).bus_master, Some(true));
        assert_eq!(config.write(at::COMMAND as u64, &[6, 0]).bus_master, None);
        assert!(config.bus_master() && config.memory_enabled());
        config.write(at::PMCSR as u64, &[3, 0]);
        assert!(!config.bus_master() && !config.memory_enabled());
        config.write(at::PMCSR as u64, &[0, 0]);
        assert_eq!(config.write(at::COMMAND as u64, &[2, 0]).bus_master, Some(false));
    }

    #[test]
    fn vpd_reads_complete_by_raising_the_flag() {
        let mut config = ConfigSpace::new(identity());
        config.write(at::VPD as u64 + 2, &[0, 0]);
        assert_eq!(read32(&config, at::VPD) >> 16, 0x8000);
        assert_eq!(read32(&config, at::VPD + 4).to_le_bytes(), [0x82, 7, 0, b'p']);
        config.write(at::VPD as u64 + 2, &[0, 0x80]);
        assert_eq!(read32(&config, at::VPD) >> 16, 0x0000);
    }

    #[test]
    fn the_gateway_answers_through_configuration_space() {
        let mut config = ConfigSpace::new(identity());
        config.write(at::VSC as u64 + 4, &[0xa, 0, 0, 0]);
        assert_eq!(read32(&config, at::VSC + 4), 0x2000_000a);
        let ticket = read32(&config, at::VSC + 8);
        config.write(at::VSC as u64 + 0xc, &ticket.to_le_bytes());
        assert_eq!(read32(&config, at::VSC + 0xc), ticket);
        config.write(at::VSC as u64 + 0xc, &[0xff; 4]);
        assert_eq!(read32(&config, at::VSC + 0xc), ticket);
    }

    #[test]
    fn accesses_outside_the_space_do_nothing() {
        let mut config = ConfigSpace::new(identity());
        let mut bytes = [0; 4];
        config.read(4094, &mut bytes);
        assert_eq!(bytes, [0, 0, 0xff, 0xff]);
        assert_eq!(config.write(u64::MAX, &[1, 2, 3]), ConfigEffect::default());
        assert_eq!(config.write(4094, &[0xff; 64]), ConfigEffect::default());
    }

    #[test]
    fn status_bits_clear_on_one_and_read_only_bits_stay() {
        let mut config = ConfigSpace::new(identity());
        config.write(0, &[0; 4]);
        assert_eq!(read32(&config, 0), 0x2101_15b3);
        config.write(at::STATUS as u64, &[0xff, 0xff]);
        assert_eq!(read32(&config, at::COMMAND) >> 16, 0x0010);
    }
}
