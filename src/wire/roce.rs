//! Transport headers of RoCE v2 (IBTA volume 1, chapter 9; annex A17), as plain data.
//!
//! [`Headers`] is what a packet says apart from its payload and its addresses. Which extension headers a packet has is a
//! matter of its opcode alone: [`Opcode::extensions`].

use std::fmt;

use bitflags::bitflags;

/// Numbers of queue pairs and packet sequence numbers have this many bits.
pub const MASK_24: u32 = 0xff_ffff;

/// The transport service of an opcode, its bits 7..5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
}

impl Service {
    /// The opcode of an operation of this service.
    pub const fn opcode(self, operation: Operation) -> Opcode {
        let service = match self {
            Service::Rc => 0x00,
            Service::Uc => 0x20,
            Service::Ud => 0x60,
            Service::Xrc => 0xa0,
        };
        Opcode(service | operation as u8)
    }
}

/// What a packet does, the low five bits of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are IBTA's")]
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImmediate = 0x03,
    SendOnly = 0x04,
    SendOnlyImmediate = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImmediate = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImmediate = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
}

impl Operation {
    /// All operations in the order of their codes.
    pub const ALL: [Operation; 23] = {
        use Operation::*;
        [
            SendFirst,
            SendMiddle,
            SendLast,
            SendLastImmediate,
            SendOnly,
            SendOnlyImmediate,
            WriteFirst,
            WriteMiddle,
            WriteLast,
            WriteLastImmediate,
            WriteOnly,
            WriteOnlyImmediate,
            ReadRequest,
            ReadResponseFirst,
            ReadResponseMiddle,
            ReadResponseLast,
            ReadResponseOnly,
            Acknowledge,
            AtomicAcknowledge,
            CompareSwap,
            FetchAdd,
            SendLastInvalidate,
            SendOnlyInvalidate,
        ]
    };

    const BY_CODE: [Option<Operation>; 32] = {
        let mut by_code = [None; 32];
        let mut i = 0;
        while i < Operation::ALL.len() {
            by_code[Operation::ALL[i] as usize] = Some(Operation::ALL[i]);
            i += 1;
        }
        by_code
    };

    /// Whether it goes from a responder to a requester.
    pub const fn is_response(self) -> bool {
        use Operation::*;
        matches!(
            self,
            ReadResponseFirst
                | ReadResponseMiddle
                | ReadResponseLast
                | ReadResponseOnly
                | Acknowledge
                | AtomicAcknowledge
        )
    }

    /// Whether it may carry payload.
    pub const fn has_payload(self) -> bool {
        use Operation::*;
        !matches!(self, ReadRequest | Acknowledge | AtomicAcknowledge | CompareSwap | FetchAdd)
    }

    /// Whether it is the first or the only packet of a message or of a response.
    pub const fn is_first(self) -> bool {
        use Operation::*;
        !matches!(
            self,
            SendMiddle
                | SendLast
                | SendLastImmediate
                | SendLastInvalidate
                | WriteMiddle
                | WriteLast
                | WriteLastImmediate
                | ReadResponseMiddle
                | ReadResponseLast
        )
    }

    /// Whether it is the last or the only packet of a message or of a response.
    pub const fn is_last(self) -> bool {
        use Operation::*;
        !matches!(self, SendFirst | SendMiddle | WriteFirst | WriteMiddle | ReadResponseFirst | ReadResponseMiddle)
    }
}

/// A base transport header's opcode; any byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opcode(pub u8);

impl Opcode {
    /// Congestion notification (annex A17.9.3); no operation of a transport service.
    pub const CNP: Opcode = Opcode(0x81);

    /// The transport service, if it is one of ours.
    pub const fn service(self) -> Option<Service> {
        match self.0 >> 5 {
            0 => Some(Service::Rc),
            1 => Some(Service::Uc),
            3 => Some(Service::Ud),
            5 => Some(Service::Xrc),
            _ => None,
        }
    }

    /// The operation, if the service has it.
    pub fn operation(self) -> Option<Operation> {
        use Operation::*;
        let operation = Operation::BY_CODE[usize::from(self.0 & 0x1f)]?;
        let allowed = match self.service()? {
            Service::Rc | Service::Xrc => true,
            Service::Uc => operation <= WriteOnlyImmediate,
            Service::Ud => matches!(operation, SendOnly | SendOnlyImmediate),
        };
        allowed.then_some(operation)
    }

    /// The extension headers between the base transport header and the payload, in the order in which they lie;
    /// `None` if the opcode is unknown.
    pub fn extensions(self) -> Option<Extensions> {
        use Operation::*;
        if self == Opcode::CNP {
            return Some(Extensions::empty());
        }
        let operation = self.operation()?;
        let mut extensions = match operation {
            SendLastImmediate | SendOnlyImmediate | WriteLastImmediate => Extensions::IMMEDIATE,
            WriteFirst | WriteOnly | ReadRequest => Extensions::RETH,
            WriteOnlyImmediate => Extensions::RETH | Extensions::IMMEDIATE,
            ReadResponseFirst | ReadResponseLast | ReadResponseOnly | Acknowledge => Extensions::AETH,
            AtomicAcknowledge => Extensions::AETH | Extensions::ATOMIC_ACK,
            CompareSwap | FetchAdd => Extensions::ATOMIC,
            SendLastInvalidate | SendOnlyInvalidate => Extensions::IETH,
            SendFirst | SendMiddle | SendLast | SendOnly | WriteMiddle | WriteLast | ReadResponseMiddle => {
                Extensions::empty()
            }
        };
        match self.service()? {
            Service::Xrc if !operation.is_response() => extensions |= Extensions::XRCETH,
            Service::Ud => extensions |= Extensions::DETH,
            _ => {}
        }
        Some(extensions)
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.service(), self.operation()) {
            (Some(service), Some(operation)) => write!(f, "{service:?}{operation:?}"),
            _ if *self == Opcode::CNP => write!(f, "Cnp"),
            _ => write!(f, "{:#04x}", self.0),
        }
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
mod tests {
    use super::*;

    #[test]
    fn opcodes_have_the_codes_of_the_table() {
        use Operation::*;
        for (opcode, code) in [
            (Service::Rc.opcode(SendFirst), 0x00),
            (Service::Rc.opcode(SendOnlyInvalidate), 0x17),
            (Service::Uc.opcode(WriteOnlyImmediate), 0x2b),
            (Service::Ud.opcode(SendOnly), 0x64),
            (Service::Ud.opcode(SendOnlyImmediate), 0x65),
            (Service::Xrc.opcode(Acknowledge), 0xb1),
            (Service::Xrc.opcode(ReadResponseFirst), 0xad),
        ] {
            assert_eq!(opcode, Opcode(code));
        }
        let known =
            |service| (0..=0xff).map(Opcode).filter(move |o| o.service() == Some(service) && o.operation().is_some());
        assert_eq!(known(Service::Rc).count(), 23);
        assert_eq!(known(Service::Xrc).count(), 23);
        assert_eq!(known(Service::Uc).count(), 12);
        assert_eq!(known(Service::Ud).map(|o| o.0).collect::<Vec<_>>(), [0x64, 0x65]);
        for unknown in [0x15, 0x18, 0x1c, 0x2c, 0x31, 0x40, 0x60, 0x80, 0xff] {
            assert_eq!(Opcode(unknown).extensions(), None, "{unknown:#x}");
        }
    }

    #[test]
    fn extensions_follow_from_the_opcode() {
        use Operation::*;
        let of = |service: Service, operation| service.opcode(operation).extensions().unwrap();
        assert_eq!(of(Service::Rc, WriteOnlyImmediate), Extensions::RETH | Extensions::IMMEDIATE);
        assert_eq!(of(Service::Rc, ReadResponseMiddle), Extensions::empty());
        assert_eq!(of(Service::Rc, AtomicAcknowledge), Extensions::AETH | Extensions::ATOMIC_ACK);
        assert_eq!(of(Service::Ud, SendOnlyImmediate), Extensions::DETH | Extensions::IMMEDIATE);
        assert_eq!(of(Service::Xrc, CompareSwap), Extensions::XRCETH | Extensions::ATOMIC);
        assert_eq!(of(Service::Xrc, Acknowledge), Extensions::AETH, "no header of the connection on a response");
        assert_eq!(Opcode::CNP.extensions(), Some(Extensions::empty()));
    }

    #[test]
    fn first_and_last_partition_messages() {
        use Operation::*;
        let first: Vec<_> = Operation::ALL.into_iter().filter(|o| o.is_first() && !o.is_last()).collect();
        assert_eq!(first, [SendFirst, WriteFirst, ReadResponseFirst]);
        let middle: Vec<_> = Operation::ALL.into_iter().filter(|o| !o.is_first() && !o.is_last()).collect();
        assert_eq!(middle, [SendMiddle, WriteMiddle, ReadResponseMiddle]);
        let last = Operation::ALL.into_iter().filter(|o| !o.is_first() && o.is_last()).count();
        assert_eq!(last, 6);
    }
}
