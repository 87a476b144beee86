//! The initialization segment at the start of BAR 0 (PRM "Initialization Segment"; kernel
//! `mlx5_ifc_initial_seg_bits`, `struct mlx5_init_seg`).
//!
//! Every dword is big-endian. The segment only holds registers; what a write means is told to the function as an
//! [`Effect`].

/// Size of the segment.
pub const SIZE: u64 = 0x2010;

const FW_REV: u64 = 0x0000;
const CMDIF_REV_FW_SUB: u64 = 0x0004;
const CMDQ_ADDR_H: u64 = 0x0010;
const CMDQ_ADDR_L_SZ: u64 = 0x0014;
const CMD_DBELL: u64 = 0x0018;
const INITIALIZING: u64 = 0x01fc;
const ASSERT_VAR: u64 = 0x0200;
const ASSERT_EXIT_PTR: u64 = 0x0220;
const HEALTH_TIME: u64 = 0x022c;
const HEALTH_FW_VER: u64 = 0x0230;
const HEALTH_HW_ID: u64 = 0x0234;
const HEALTH_RFR_SEVERITY: u64 = 0x0238;
const HEALTH_SYND: u64 = 0x023c;
const INTERNAL_TIMER_H: u64 = 0x1000;
const INTERNAL_TIMER_L: u64 = 0x1004;
const HEALTH_COUNTER: u64 = 0x1010;

/// Command interface revision that the driver demands (kernel `CMD_IF_REV`).
const CMDIF_REV: u32 = 5;
/// log2 of the number of command slots.
pub const LOG_CMDQ_SIZE: u32 = 5;
/// log2 of the distance of two command slots.
pub const LOG_CMDQ_STRIDE: u32 = 6;
/// The health counter moves this often, in nanoseconds.
const HEALTH_TICK: u64 = 10_000_000;

/// The `nic_interface` field: who may use the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicInterface {
    /// A full driver.
    Full,
    /// Disabled: quiet until a driver sets it to full.
    Disabled,
    /// Software reset requested.
    SoftwareReset,
    /// Any other value as written.
    Other(u8),
}

impl NicInterface {
    fn from_bits(bits: u32) -> NicInterface {
        match bits & 7 {
            0 => NicInterface::Full,
            1 => NicInterface::Disabled,
            7 => NicInterface::SoftwareReset,
            other => NicInterface::Other(other as u8),
        }
    }

    fn bits(self) -> u32 {
        match self {
            NicInterface::Full => 0,
            NicInterface::Disabled => 1,
            NicInterface::SoftwareReset => 7,
            NicInterface::Other(bits) => u32::from(bits),
        }
    }
}

/// The syndrome of the health buffer (kernel `health.c`, `MLX5_HEALTH_SYNDR_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Health {
    /// No error.
    Good = 0x0,
    /// An internal check failed.
    FirmwareError = 0x1,
    /// The command queue could not be read or written.
    FetchPciError = 0xa,
    /// The queue of asynchronous events overran.
    AsyncEqOverrun = 0xc,
    /// An event queue could not be written.
    EqError = 0xd,
}

/// Firmware version as the segment shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirmwareVersion {
    /// Major.
    pub major: u16,
    /// Minor.
    pub minor: u16,
    /// Sub-minor.
    pub sub: u16,
}

/// What a write to the segment asks of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The command queue stands at this address from now on, and the interface is in this state.
    CommandQueue(u64, NicInterface),
    /// These command slots have commands.
    CommandDoorbell(u32),
}

/// The registers of the segment.
#[derive(Debug)]
pub struct InitSegment {
    version: FirmwareVersion,
    hw_id: u32,
    cmdq_addr_h: u32,
    cmdq_addr_l: u32,
    nic_interface: NicInterface,
    initializing: bool,
    health: Health,
}

impl InitSegment {
    /// The segment after reset, initialization over.
    pub fn new(version: FirmwareVersion, hw_id: u32) -> InitSegment {
        InitSegment {
            version,
            hw_id,
            cmdq_addr_h: 0,
            cmdq_addr_l: 0,
            nic_interface: NicInterface::Full,
            initializing: false,
            health: Health::Good,
        }
    }

    /// Returns the registers to their reset values.
    pub fn reset(&mut self) {
        *self = InitSegment::new(self.version, self.hw_id);
    }

    /// Shows the address of the command queue.
    pub fn set_command_queue(&mut self, address: u64) {
        self.cmdq_addr_h = (address >> 32) as u32;
        self.cmdq_addr_l = address as u32 & !0xfff;
    }

    /// Shows the state of the interface.
    pub fn set_nic_interface(&mut self, state: NicInterface) {
        self.nic_interface = state;
    }

    /// The state of the interface.
    pub fn nic_interface(&self) -> NicInterface {
        self.nic_interface
    }

    /// Reports an internal error through the health buffer and asks for a reset. The first error stays until then.
    pub fn set_health(&mut self, health: Health) {
        if self.health == Health::Good {
            self.health = health;
        }
    }

    /// What the health buffer reports.
    pub fn health(&self) -> Health {
        self.health
    }

    /// The dword at `offset`, a multiple of 4, at device time `now` in nanoseconds.
    fn word(&self, offset: u64, now: u64) -> u32 {
        let version = self.version;
        match offset {
            FW_REV => u32::from(version.minor) << 16 | u32::from(version.major),
            CMDIF_REV_FW_SUB => CMDIF_REV << 16 | u32::from(version.sub),
            CMDQ_ADDR_H => self.cmdq_addr_h,
            CMDQ_ADDR_L_SZ => self.cmdq_addr_l | self.nic_interface.bits() << 8 | LOG_CMDQ_SIZE << 4 | LOG_CMDQ_STRIDE,
            INITIALIZING => u32::from(self.initializing) << 31,
            ASSERT_VAR..=0x0214 | ASSERT_EXIT_PTR..=0x0224 => 0,
            HEALTH_RFR_SEVERITY if self.health == Health::Good => 0,
            // Request for reset, severity valid, severity "error".
            HEALTH_RFR_SEVERITY => (1 << 7 | 1 << 3 | 3) << 24,
            HEALTH_TIME => (now / 1_000_000_000) as u32,
            HEALTH_FW_VER => {
                u32::from(version.major & 0xff) << 24 | u32::from(version.minor & 0xff) << 16 | u32::from(version.sub)
            }
            HEALTH_HW_ID => self.hw_id,
            HEALTH_SYND => (self.health as u32) << 16,
            INTERNAL_TIMER_H => (now >> 32) as u32,
            INTERNAL_TIMER_L => now as u32,
            // Never 0 and never all ones: the driver takes those for a dead device.
            HEALTH_COUNTER => (now / HEALTH_TICK % 0xffff_fffe) as u32 + 1,
            _ => 0,
        }
    }

    /// Reads `buf.len()` bytes at `offset`.
    pub fn read(&self, offset: u64, buf: &mut [u8], now: u64) {
        for (at, byte) in (offset..).zip(buf.iter_mut()) {
            *byte = self.word(at & !3, now).to_be_bytes()[(at & 3) as usize];
        }
    }

    /// Writes `data` at `offset`; `effect` gets what it means, in the order of the dwords. Only whole, aligned
    /// dwords reach a register: the driver never writes less.
    pub fn write(&mut self, offset: u64, data: &[u8], mut effect: impl FnMut(Effect)) {
        if offset % 4 != 0 || data.len() % 4 != 0 {
            log::debug!(target: "cx10::iseg", "write of {} bytes at {offset:#x} ignored", data.len());
            return;
        }
        for (at, word) in (offset..).step_by(4).zip(data.chunks_exact(4)) {
            let value = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
            match at {
                CMDQ_ADDR_H => self.cmdq_addr_h = value,
                CMDQ_ADDR_L_SZ => {
                    self.cmdq_addr_l = value & !0xfff;
                    let requested = NicInterface::from_bits(value >> 8);
                    effect(Effect::CommandQueue(
                        u64::from(self.cmdq_addr_h) << 32 | u64::from(self.cmdq_addr_l),
                        requested,
                    ));
                }
                CMD_DBELL => effect(Effect::CommandDoorbell(value)),
                _ => log::debug!(target: "cx10::iseg", "write of {value:#x} to read-only {at:#x} ignored"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> InitSegment {
        InitSegment::new(FirmwareVersion { major: 48, minor: 47, sub: 1026 }, 0x2101)
    }

    fn word(segment: &InitSegment, at: u64, now: u64) -> u32 {
        let mut bytes = [0; 4];
        segment.read(at, &mut bytes, now);
        u32::from_be_bytes(bytes)
    }

    #[test]
    fn the_driver_finds_revision_5_and_32_slots_of_64_bytes() {
        let segment = segment();
        assert_eq!(word(&segment, 0x0, 0), 47 << 16 | 48);
        assert_eq!(word(&segment, 0x4, 0), 5 << 16 | 1026);
        assert_eq!(word(&segment, 0x14, 0) & 0xff, 0x56);
        assert_eq!(word(&segment, 0x1fc, 0), 0);
    }

    #[test]
    fn the_command_queue_address_takes_effect_with_its_low_half() {
        let mut segment = segment();
        let mut effects = Vec::new();
        segment.write(0x10, &[0, 0, 0, 1, 0x16, 0x1e, 0xf0, 0], |e| effects.push(e));
        assert_eq!(effects, [Effect::CommandQueue(0x1_161e_f000, NicInterface::Full)]);
        assert_eq!(word(&segment, 0x14, 0), 0x161e_f056);
        effects.clear();
        segment.write(0x14, &[0x16, 0x1e, 0xf7, 0], |e| effects.push(e));
        assert_eq!(effects, [Effect::CommandQueue(0x1_161e_f000, NicInterface::SoftwareReset)]);
        effects.clear();
        segment.write(0x18, &[0x80, 0, 0, 1], |e| effects.push(e));
        assert_eq!(effects, [Effect::CommandDoorbell(0x8000_0001)]);
    }

    #[test]
    fn the_health_counter_moves_and_is_never_zero_or_all_ones() {
        let segment = segment();
        assert_eq!(word(&segment, 0x1010, 0), 1);
        assert_eq!(word(&segment, 0x1010, HEALTH_TICK), 2);
        assert_eq!(word(&segment, 0x1010, HEALTH_TICK * 0xffff_fffd), 0xffff_fffe);
        assert_eq!(word(&segment, 0x1010, HEALTH_TICK * 0xffff_fffe), 1);
    }

    #[test]
    fn the_internal_timer_counts_nanoseconds() {
        let segment = segment();
        assert_eq!(word(&segment, 0x1000, 0x5_0000_0007), 5);
        assert_eq!(word(&segment, 0x1004, 0x5_0000_0007), 7);
    }

    #[test]
    fn odd_accesses_read_bytes_and_write_nothing() {
        let mut segment = segment();
        let mut byte = [0xaa];
        segment.read(0x5, &mut byte, 0);
        assert_eq!(byte, [5]);
        let mut effects = Vec::new();
        segment.write(0x15, &[0; 4], |e| effects.push(e));
        segment.write(0x18, &[0; 3], |e| effects.push(e));
        assert!(effects.is_empty());
    }
}
