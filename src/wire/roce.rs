//! RoCE v2 frames (IBTA volume 1, chapter 9; annex A17): Ethernet with at most one 802.1Q tag, IPv4 without options or
//! IPv6 without extension headers, UDP, transport headers, payload, invariant CRC.
//!
//! [`Headers`] is what a packet says apart from its payload and its [`Addresses`], as plain data. Which extension headers
//! a packet has is a matter of its opcode alone: [`Opcode::extensions`]. What [`encode`] makes, [`decode`] gives back.
//!
//! A frame is judged whole: lengths, checksum of the IPv4 header, CRC. A UDP checksum is not looked at: senders leave it
//! out, and the CRC says more. Reserved bits are sent as 0 and ignored.

mod frame;

use std::fmt;

use bitflags::bitflags;

pub use frame::{
    Addresses, DecodeError, EncodeError, Frame, MAX_FRAME, MAX_PAYLOAD, Network, UDP_PORT, decode, encode, header_v4,
    header_v6,
};

/// Numbers of queue pairs and packet sequence numbers have this many bits.
pub const MASK_24: u32 = 0xff_ffff;

// Transport services, the upper three bits of an opcode.
const RC: u8 = 0;
const UC: u8 = 1;
const UD: u8 = 3;
const XRC: u8 = 5;
/// Unreliable connections have SENDs and WRITEs only.
const LAST_OF_UC: u8 = 0x0b;

/// A base transport header's opcode; any byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opcode(pub u8);

impl Opcode {
    /// Congestion notification (annex A17.9.3); no operation of a transport service.
    pub const CNP: Opcode = Opcode(0x81);

    /// The extension headers between the base transport header and the payload; `None` if the opcode is unknown.
    pub fn extensions(self) -> Option<Extensions> {
        use Extensions as E;
        if self == Opcode::CNP {
            return Some(E::empty());
        }
        let operation = self.0 & 0x1f;
        let of_reliable = match operation {
            // Parts of SENDs, of WRITEs behind the first, and of READ responses in the middle.
            0x00..=0x02 | 0x04 | 0x07 | 0x08 | 0x0e => E::empty(),
            0x03 | 0x05 | 0x09 => E::IMMEDIATE,
            0x06 | 0x0a | 0x0c => E::RETH,
            0x0b => E::RETH | E::IMMEDIATE,
            0x0d | 0x0f..=0x11 => E::AETH,
            0x12 => E::AETH | E::ATOMIC_ACK,
            0x13 | 0x14 => E::ATOMIC,
            0x16 | 0x17 => E::IETH,
            _ => return None,
        };
        match self.0 >> 5 {
            RC => Some(of_reliable),
            UC if operation <= LAST_OF_UC => Some(of_reliable),
            UD if matches!(operation, 0x04 | 0x05) => Some(of_reliable | E::DETH),
            XRC if self.is_response() => Some(of_reliable),
            XRC => Some(of_reliable | E::XRCETH),
            _ => None,
        }
    }

    fn is_response(self) -> bool {
        matches!(self.0 & 0x1f, 0x0d..=0x12)
    }

    /// Whether a packet with it has payload or can have it.
    fn takes_payload(self) -> bool {
        // READ request, acknowledgements, atomic requests.
        self == Opcode::CNP || !matches!(self.0 & 0x1f, 0x0c | 0x11..=0x14)
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)
    }
}

bitflags! {
    /// A set of extension headers. They lie in a packet in the order of these bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Extensions: u8 {
        /// Datagram: 8 bytes.
        const DETH = 1 << 0;
        /// Extended reliable connection: 4 bytes.
        const XRCETH = 1 << 1;
        /// RDMA: 16 bytes.
        const RETH = 1 << 2;
        /// Atomic: 28 bytes.
        const ATOMIC = 1 << 3;
        /// Acknowledge: 4 bytes.
        const AETH = 1 << 4;
        /// Atomic acknowledge: 8 bytes.
        const ATOMIC_ACK = 1 << 5;
        /// Immediate data: 4 bytes.
        const IMMEDIATE = 1 << 6;
        /// Invalidate: 4 bytes.
        const IETH = 1 << 7;
    }
}

impl Extensions {
    /// Bytes of all of them.
    fn bytes(self) -> usize {
        const SIZES: [usize; 8] = [8, 4, 16, 28, 4, 8, 4, 4];
        SIZES.iter().enumerate().map(|(bit, size)| if self.bits() >> bit & 1 != 0 { *size } else { 0 }).sum()
    }
}

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// Address in the key.
    pub va: u64,
    /// The key.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub len: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address in the key.
    pub va: u64,
    /// The key.
    pub rkey: u32,
    /// What is stored or added.
    pub swap_add: u64,
    /// What is compared.
    pub compare: u64,
}

/// Acknowledge extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aeth {
    /// Kind and value.
    pub syndrome: u8,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Sender's queue pair, 24 bits.
    pub source_qpn: u32,
}

/// Everything that a packet says apart from addresses and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// What the packet does.
    pub opcode: Opcode,
    /// The receiver asks for an event.
    pub solicited: bool,
    /// State of path migration; set on every packet where nothing migrates.
    pub migrated: bool,
    /// Partition key.
    pub pkey: u16,
    /// Congestion was met on the way.
    pub fecn: bool,
    /// The receiver of the other direction met congestion.
    pub becn: bool,
    /// Queue pair of the receiver, 24 bits.
    pub dest_qpn: u32,
    /// The sender asks for an acknowledgement.
    pub ack_request: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
    /// Sender and queue key of a datagram.
    pub deth: Option<Deth>,
    /// Shared receive queue of an extended reliable connection, 24 bits.
    pub xrceth: Option<u32>,
    /// Memory of a write or read.
    pub reth: Option<Reth>,
    /// Memory and operands of an atomic.
    pub atomic: Option<AtomicEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// What an atomic found.
    pub atomic_ack: Option<u64>,
    /// Immediate data, as the number that its four bytes make in network order.
    pub immediate: Option<u32>,
    /// The key that the receiver invalidates.
    pub ieth: Option<u32>,
}

impl Headers {
    /// Headers without extensions, in the default partition.
    pub const fn new(opcode: Opcode, dest_qpn: u32, psn: u32) -> Headers {
        Headers {
            opcode,
            solicited: false,
            migrated: true,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            dest_qpn,
            ack_request: false,
            psn,
            deth: None,
            xrceth: None,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            immediate: None,
            ieth: None,
        }
    }

    /// The extension headers that are there.
    pub fn extensions(&self) -> Extensions {
        let mut there = Extensions::empty();
        there.set(Extensions::DETH, self.deth.is_some());
        there.set(Extensions::XRCETH, self.xrceth.is_some());
        there.set(Extensions::RETH, self.reth.is_some());
        there.set(Extensions::ATOMIC, self.atomic.is_some());
        there.set(Extensions::AETH, self.aeth.is_some());
        there.set(Extensions::ATOMIC_ACK, self.atomic_ack.is_some());
        there.set(Extensions::IMMEDIATE, self.immediate.is_some());
        there.set(Extensions::IETH, self.ieth.is_some());
        there
    }
}

#[cfg(test)]
mod tests;
