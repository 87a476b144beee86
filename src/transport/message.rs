//! vfio-user messages: numbers, header, request payloads.
//!
//! Everything is in native byte order; the protocol never leaves the machine. Parsing only looks at bytes; what
//! a value means for the device is checked in [`super::server`].
//!
//! Sources: the vfio-user protocol as QEMU 11.1.3 speaks it (`hw/vfio-user/protocol.h`), and Linux
//! `include/uapi/linux/vfio.h` for the structures that it carries.

use std::fmt;

/// Bytes of the header that every message starts with.
pub const HEADER_SIZE: usize = 16;

/// Most data bytes of one REGION_READ or REGION_WRITE, announced as `max_data_xfer_size`. Clients read the
/// whole configuration space (4096 bytes) at once; BAR accesses are at most eight bytes.
pub const MAX_DATA: usize = 64 * 1024;

/// The longest message taken: header, region access, data.
pub const MAX_MESSAGE: usize = HEADER_SIZE + RegionAccess::SIZE + MAX_DATA;

/// The longest JSON text taken in VERSION.
pub const MAX_VERSION_DATA: usize = 4096;

/// A command number; unknown ones stay representable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Command(pub u16);

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl Command {
            $($(#[$doc])* pub const $name: Command = Command($value);)*

            /// The protocol's name of the command.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Command::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

commands! {
    /// Version and capabilities.
    VERSION = 1;
    /// Guest memory appears.
    DMA_MAP = 2;
    /// Guest memory goes away.
    DMA_UNMAP = 3;
    /// Number of regions and interrupts.
    GET_INFO = 4;
    /// One region.
    GET_REGION_INFO = 5;
    /// ioeventfds of a region; not supported.
    GET_REGION_IO_FDS = 6;
    /// One interrupt index.
    GET_IRQ_INFO = 7;
    /// Eventfds, masks and loopback triggers.
    SET_IRQS = 8;
    /// Read of a region.
    REGION_READ = 9;
    /// Write to a region.
    REGION_WRITE = 10;
    /// Server to client only.
    DMA_READ = 11;
    /// Server to client only.
    DMA_WRITE = 12;
    /// Device reset.
    RESET = 13;
    /// Dirty page tracking; not supported.
    DIRTY_PAGES = 14;
    /// Many small region writes.
    REGION_WRITE_MULTI = 15;
    /// Optional features (migration); not supported.
    DEVICE_FEATURE = 16;
    /// Migration data; not supported.
    MIG_DATA_READ = 17;
    /// Migration data; not supported.
    MIG_DATA_WRITE = 18;
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "command {:#x}", self.0),
        }
    }
}

/// Header flags.
pub mod flag {
    /// The bits that hold the message type.
    pub const TYPE: u32 = 0xf;
    /// Type: command.
    pub const COMMAND: u32 = 0;
    /// Type: reply.
    pub const REPLY: u32 = 1;
    /// The sender wants no reply and gets none.
    pub const NO_REPLY: u32 = 1 << 4;
    /// The reply carries an error.
    pub const ERROR: u32 = 1 << 5;
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the sender of a command, repeated in its reply.
    pub id: u16,
    /// What the message is.
    pub command: Command,
    /// Bytes, header included.
    pub size: u32,
    /// See [`flag`].
    pub flags: u32,
    /// errno of an error reply.
    pub error: u32,
}

impl Header {
    /// Parses the first [`HEADER_SIZE`] bytes, or `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        Some(Header {
            id: u16_at(bytes, 0)?,
            command: Command(u16_at(bytes, 2)?),
            size: u32_at(bytes, 4)?,
            flags: u32_at(bytes, 8)?,
            error: u32_at(bytes, 12)?,
        })
    }

    /// The bytes on the wire.
    pub fn to_bytes(self) -> [u8; HEADER_SIZE] {
        let mut out = [0; HEADER_SIZE];
        out[0..2].copy_from_slice(&self.id.to_ne_bytes());
        out[2..4].copy_from_slice(&self.command.0.to_ne_bytes());
        out[4..8].copy_from_slice(&self.size.to_ne_bytes());
        out[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        out[12..16].copy_from_slice(&self.error.to_ne_bytes());
        out
    }

    /// The sender wants no reply.
    pub fn no_reply(&self) -> bool {
        self.flags & flag::NO_REPLY != 0
    }

    /// The message type bits.
    pub fn kind(&self) -> u32 {
        self.flags & flag::TYPE
    }

    /// The header of a good reply with `payload` bytes behind it.
    pub fn reply(&self, payload: usize) -> Header {
        Header { size: (HEADER_SIZE + payload) as u32, flags: flag::REPLY, error: 0, ..*self }
    }

    /// The whole of an error reply.
    pub fn error_reply(&self, errno: i32) -> Header {
        let error = u32::try_from(errno).ok().filter(|e| *e != 0).unwrap_or(libc::EIO as u32);
        Header { size: HEADER_SIZE as u32, flags: flag::REPLY | flag::ERROR, error, ..*self }
    }
}

/// Native-endian integer at an offset.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// Native-endian integer at an offset.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Native-endian integer at an offset.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Payload of DMA_MAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    /// Bytes of this structure that the client knows.
    pub argsz: u32,
    /// Access rights.
    pub flags: u32,
    /// Offset in the descriptor.
    pub offset: u64,
    /// I/O virtual address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl DmaMap {
    /// Bytes on the wire.
    pub const SIZE: usize = 32;

    /// Parses a payload; longer ones may hold fields of later versions.
    pub fn parse(p: &[u8]) -> Option<DmaMap> {
        Some(DmaMap {
            argsz: u32_at(p, 0)?,
            flags: u32_at(p, 4)?,
            offset: u64_at(p, 8)?,
            address: u64_at(p, 16)?,
            size: u64_at(p, 24)?,
        })
    }
}

/// Payload of DMA_UNMAP, and of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaUnmap {
    /// Bytes of this structure that the client knows.
    pub argsz: u32,
    /// Whether everything, whether with dirty pages.
    pub flags: u32,
    /// I/O virtual address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl DmaUnmap {
    /// Bytes on the wire.
    pub const SIZE: usize = 24;

    /// Parses a payload.
    pub fn parse(p: &[u8]) -> Option<DmaUnmap> {
        Some(DmaUnmap { argsz: u32_at(p, 0)?, flags: u32_at(p, 4)?, address: u64_at(p, 8)?, size: u64_at(p, 16)? })
    }
}

/// Payload of GET_INFO, GET_REGION_INFO and GET_IRQ_INFO requests, as far as the server reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoRequest {
    /// Bytes of the structure that the client has room for.
    pub argsz: u32,
    /// Region or interrupt index; not part of GET_INFO.
    pub index: u32,
}

impl InfoRequest {
    /// Bytes of GET_INFO and GET_IRQ_INFO on the wire.
    pub const SIZE: usize = 16;
    /// Bytes of GET_REGION_INFO on the wire, without capabilities.
    pub const REGION_SIZE: usize = 32;

    /// Parses a payload of at least `size` bytes.
    pub fn parse(p: &[u8], size: usize) -> Option<InfoRequest> {
        let p = p.get(..size)?;
        Some(InfoRequest { argsz: u32_at(p, 0)?, index: u32_at(p, 8)? })
    }
}

/// Fixed part of the payload of SET_IRQS; DATA_BOOL has one byte per vector behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs {
    /// Bytes of structure and data.
    pub argsz: u32,
    /// One DATA and one ACTION bit.
    pub flags: u32,
    /// Interrupt index.
    pub index: u32,
    /// First vector.
    pub start: u32,
    /// Vectors.
    pub count: u32,
}

impl SetIrqs {
    /// Bytes on the wire.
    pub const SIZE: usize = 20;

    /// No data: the action applies to every vector.
    pub const DATA_NONE: u32 = 1 << 0;
    /// One byte per vector says whether the action applies.
    pub const DATA_BOOL: u32 = 1 << 1;
    /// One eventfd per vector, or none to take them away.
    pub const DATA_EVENTFD: u32 = 1 << 2;
    /// Mask.
    pub const ACTION_MASK: u32 = 1 << 3;
    /// Unmask.
    pub const ACTION_UNMASK: u32 = 1 << 4;
    /// Set up or fire.
    pub const ACTION_TRIGGER: u32 = 1 << 5;

    /// Parses a payload.
    pub fn parse(p: &[u8]) -> Option<SetIrqs> {
        Some(SetIrqs {
            argsz: u32_at(p, 0)?,
            flags: u32_at(p, 4)?,
            index: u32_at(p, 8)?,
            start: u32_at(p, 12)?,
            count: u32_at(p, 16)?,
        })
    }
}

/// Payload of REGION_READ and REGION_WRITE before the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAccess {
    /// Offset in the region.
    pub offset: u64,
    /// Region index.
    pub region: u32,
    /// Data bytes.
    pub count: u32,
}

impl RegionAccess {
    /// Bytes on the wire, without data.
    pub const SIZE: usize = 16;

    /// Parses a payload.
    pub fn parse(p: &[u8]) -> Option<RegionAccess> {
        Some(RegionAccess { offset: u64_at(p, 0)?, region: u32_at(p, 8)?, count: u32_at(p, 12)? })
    }

    /// The bytes on the wire.
    pub fn to_bytes(self) -> [u8; RegionAccess::SIZE] {
        let mut out = [0; RegionAccess::SIZE];
        out[0..8].copy_from_slice(&self.offset.to_ne_bytes());
        out[8..12].copy_from_slice(&self.region.to_ne_bytes());
        out[12..16].copy_from_slice(&self.count.to_ne_bytes());
        out
    }
}

/// Payload of REGION_WRITE_MULTI: a count and that many entries.
#[derive(Clone, Copy, Debug)]
pub struct WriteMulti<'a> {
    entries: &'a [u8],
}

impl<'a> WriteMulti<'a> {
    /// Bytes of the count.
    pub const COUNT_SIZE: usize = 8;
    /// Bytes of an entry: a region access and eight data bytes.
    pub const ENTRY_SIZE: usize = RegionAccess::SIZE + 8;

    /// Parses a payload that holds exactly as many entries as it says.
    pub fn parse(p: &'a [u8]) -> Option<WriteMulti<'a>> {
        let count = usize::try_from(u64_at(p, 0)?).ok()?;
        let entries = p.get(WriteMulti::COUNT_SIZE..)?;
        (entries.len() == count.checked_mul(WriteMulti::ENTRY_SIZE)?).then_some(WriteMulti { entries })
    }

    /// The entries in the order in which they were made; the data is cut to the count, `None` if the count
    /// is more than eight.
    pub fn iter(self) -> impl Iterator<Item = (RegionAccess, Option<&'a [u8]>)> {
        self.entries.chunks_exact(WriteMulti::ENTRY_SIZE).filter_map(|entry| {
            let access = RegionAccess::parse(entry)?;
            Some((access, entry[RegionAccess::SIZE..].get(..access.count as usize)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_wire() {
        let header = Header { id: 0x1234, command: Command::SET_IRQS, size: 36, flags: 0x10, error: 7 };
        assert_eq!(Header::parse(&header.to_bytes()), Some(header));
        assert_eq!(Header::parse(&header.to_bytes()[..15]), None);
        assert!(header.no_reply());
    }

    #[test]
    fn an_error_reply_never_carries_zero() {
        let header = Header { id: 1, command: Command::RESET, size: 16, flags: 0, error: 0 };
        assert_eq!(header.error_reply(libc::EINVAL).error, 22);
        assert_eq!(header.error_reply(0).error, libc::EIO as u32);
        assert_eq!(header.error_reply(-5).error, libc::EIO as u32);
        assert_eq!(header.error_reply(22).flags, 0x21);
        assert_eq!(header.reply(4).flags, 1);
        assert_eq!(header.reply(4).size, 20);
    }

    #[test]
    fn every_payload_refuses_to_be_short() {
        let bytes = [0xffu8; 64];
        for len in 0..64 {
            let p = &bytes[..len];
            assert_eq!(DmaMap::parse(p).is_some(), len >= DmaMap::SIZE);
            assert_eq!(DmaUnmap::parse(p).is_some(), len >= DmaUnmap::SIZE);
            assert_eq!(InfoRequest::parse(p, InfoRequest::SIZE).is_some(), len >= InfoRequest::SIZE);
            assert_eq!(SetIrqs::parse(p).is_some(), len >= SetIrqs::SIZE);
            assert_eq!(RegionAccess::parse(p).is_some(), len >= RegionAccess::SIZE);
        }
    }

    #[test]
    fn a_multi_write_must_hold_exactly_its_entries() {
        let mut p = Vec::new();
        p.extend_from_slice(&2u64.to_ne_bytes());
        for (offset, count) in [(8u64, 4u32), (16, 9)] {
            p.extend_from_slice(&RegionAccess { offset, region: 0, count }.to_bytes());
            p.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        }
        let entries: Vec<_> = WriteMulti::parse(&p).unwrap().iter().collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].1, Some(&[1u8, 2, 3, 4][..]));
        assert_eq!(entries[1].1, None, "more than eight bytes do not fit into an entry");
        assert!(WriteMulti::parse(&p[..p.len() - 1]).is_none());
        p.push(0);
        assert!(WriteMulti::parse(&p).is_none());
        p[..8].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert!(WriteMulti::parse(&p).is_none());
        assert!(WriteMulti::parse(&[0; 7]).is_none());
    }

    #[test]
    fn unknown_commands_stay_representable() {
        assert_eq!(format!("{:?}", Command(0x77)), "command 0x77");
        assert_eq!(format!("{:?}", Command::DMA_MAP), "DMA_MAP");
    }
}
