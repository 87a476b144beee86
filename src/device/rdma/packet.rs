//! Packets between queue pairs (IBTA 1.5 chapter 9; headers as in RoCE v2).
//!
//! A packet says where its payload is instead of carrying it, so that a packet that stays inside the function moves
//! guest memory to guest memory once. Its pieces were checked against the sender's keys when the packet was made: what
//! goes wrong afterwards is a matter of the receiver. A packet that has to wait, or that leaves the function, is given
//! its bytes first ([`Payload::Held`]).
//!
//! Inside the function, full packets of one message that follow each other travel as one, a train: it has the sequence
//! number of the first, the operation that one packet of that length would have, and counts for all of them. A receiver
//! whose memory is in very many parts takes only the first packets of a train ([`Head::first`]); its sender goes on from
//! there.

use crate::dma::Fence;
use crate::mkey::translate::Piece;

/// Largest sequence number.
pub const PSN_MASK: u32 = 0xff_ffff;

/// The sequence number `count` after `psn`.
pub fn psn_add(psn: u32, count: u32) -> u32 {
    psn.wrapping_add(count) & PSN_MASK
}

/// How far `a` is ahead of `b` on the circle of sequence numbers; negative if it is behind.
pub fn psn_diff(a: u32, b: u32) -> i32 {
    // 24 bits, sign-extended.
    ((a.wrapping_sub(b) << 8) as i32) >> 8
}

/// The transport in the upper bits of a BTH opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
}

impl Transport {
    /// The upper bits of the opcode.
    pub fn code(self) -> u8 {
        match self {
            Transport::Rc => 0x00,
            Transport::Uc => 0x20,
            Transport::Ud => 0x60,
            Transport::Xrc => 0xa0,
        }
    }

    /// Whether requests are acknowledged.
    pub fn reliable(self) -> bool {
        matches!(self, Transport::Rc | Transport::Xrc)
    }
}

/// What a packet does: the lower five bits of a BTH opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// First packet of a SEND.
    SendFirst,
    /// Middle packet of a SEND.
    SendMiddle,
    /// Last packet of a SEND.
    SendLast,
    /// Last packet of a SEND with immediate.
    SendLastImm,
    /// Only packet of a SEND.
    #[default]
    SendOnly,
    /// Only packet of a SEND with immediate.
    SendOnlyImm,
    /// First packet of an RDMA WRITE.
    WriteFirst,
    /// Middle packet of an RDMA WRITE.
    WriteMiddle,
    /// Last packet of an RDMA WRITE.
    WriteLast,
    /// Last packet of an RDMA WRITE with immediate.
    WriteLastImm,
    /// Only packet of an RDMA WRITE.
    WriteOnly,
    /// Only packet of an RDMA WRITE with immediate.
    WriteOnlyImm,
    /// RDMA READ request.
    ReadRequest,
    /// First response to an RDMA READ.
    ReadFirst,
    /// Middle response to an RDMA READ.
    ReadMiddle,
    /// Last response to an RDMA READ.
    ReadLast,
    /// Only response to an RDMA READ.
    ReadOnly,
    /// Acknowledgement, positive or negative.
    Ack,
    /// Response to an atomic operation.
    AtomicAck,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// Last packet of a SEND with invalidate.
    SendLastInval,
    /// Only packet of a SEND with invalidate.
    SendOnlyInval,
    /// Compare and swap with masks; the vendor's own.
    MaskedCompareSwap,
    /// Fetch and add with field boundaries; the vendor's own.
    MaskedFetchAdd,
}

impl Operation {
    /// Every operation with its code. The two masked atomics have none that is public; these are reserved by IBTA.
    pub const CODES: [(Operation, u8); 25] = [
        (Operation::SendFirst, 0x00),
        (Operation::SendMiddle, 0x01),
        (Operation::SendLast, 0x02),
        (Operation::SendLastImm, 0x03),
        (Operation::SendOnly, 0x04),
        (Operation::SendOnlyImm, 0x05),
        (Operation::WriteFirst, 0x06),
        (Operation::WriteMiddle, 0x07),
        (Operation::WriteLast, 0x08),
        (Operation::WriteLastImm, 0x09),
        (Operation::WriteOnly, 0x0a),
        (Operation::WriteOnlyImm, 0x0b),
        (Operation::ReadRequest, 0x0c),
        (Operation::ReadFirst, 0x0d),
        (Operation::ReadMiddle, 0x0e),
        (Operation::ReadLast, 0x0f),
        (Operation::ReadOnly, 0x10),
        (Operation::Ack, 0x11),
        (Operation::AtomicAck, 0x12),
        (Operation::CompareSwap, 0x13),
        (Operation::FetchAdd, 0x14),
        (Operation::SendLastInval, 0x16),
        (Operation::SendOnlyInval, 0x17),
        (Operation::MaskedCompareSwap, 0x1e),
        (Operation::MaskedFetchAdd, 0x1f),
    ];

    /// Whether the packet answers a request.
    pub fn is_response(self) -> bool {
        use Operation as O;
        matches!(self, O::ReadFirst | O::ReadMiddle | O::ReadLast | O::ReadOnly | O::Ack | O::AtomicAck)
    }

    /// Whether the packet begins a message.
    pub fn starts(self) -> bool {
        use Operation as O;
        !matches!(
            self,
            O::SendMiddle
                | O::SendLast
                | O::SendLastImm
                | O::SendLastInval
                | O::WriteMiddle
                | O::WriteLast
                | O::WriteLastImm
        )
    }

    /// Whether the packet ends a message.
    pub fn ends(self) -> bool {
        use Operation as O;
        !matches!(self, O::SendFirst | O::SendMiddle | O::WriteFirst | O::WriteMiddle)
    }

    /// The same with more of the message to come.
    pub fn unended(self) -> Operation {
        use Operation as O;
        match self {
            O::SendOnly | O::SendOnlyImm | O::SendOnlyInval => O::SendFirst,
            O::SendLast | O::SendLastImm | O::SendLastInval => O::SendMiddle,
            O::WriteOnly | O::WriteOnlyImm => O::WriteFirst,
            O::WriteLast | O::WriteLastImm => O::WriteMiddle,
            O::ReadOnly => O::ReadFirst,
            O::ReadLast => O::ReadMiddle,
            other => other,
        }
    }

    /// Whether the packet belongs to a SEND.
    pub fn is_send(self) -> bool {
        use Operation as O;
        matches!(
            self,
            O::SendFirst
                | O::SendMiddle
                | O::SendLast
                | O::SendLastImm
                | O::SendLastInval
                | O::SendOnly
                | O::SendOnlyImm
                | O::SendOnlyInval
        )
    }

    /// Whether the packet belongs to an RDMA WRITE.
    pub fn is_write(self) -> bool {
        use Operation as O;
        matches!(self, O::WriteFirst | O::WriteMiddle | O::WriteLast | O::WriteLastImm | O::WriteOnly | O::WriteOnlyImm)
    }

    /// Whether the packet carries immediate data.
    pub fn has_immediate(self) -> bool {
        use Operation as O;
        matches!(self, O::SendLastImm | O::SendOnlyImm | O::WriteLastImm | O::WriteOnlyImm)
    }

    /// Whether the packet carries a key to invalidate.
    pub fn invalidates(self) -> bool {
        matches!(self, Operation::SendLastInval | Operation::SendOnlyInval)
    }

    /// Whether the packet asks for an atomic operation.
    pub fn is_atomic(self) -> bool {
        use Operation as O;
        matches!(self, O::CompareSwap | O::FetchAdd | O::MaskedCompareSwap | O::MaskedFetchAdd)
    }
}

/// Remote memory that a request names (RETH, and the first part of AtomicETH).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address in the key.
    pub va: u64,
    /// The key.
    pub key: u32,
    /// Bytes of the whole message.
    pub len: u32,
}

/// Operands of an atomic operation; masks of plain ones are all ones, or no boundaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operands {
    /// What is swapped in or added.
    pub swap_add: u64,
    /// What is compared with.
    pub compare: u64,
    /// Which bits are swapped, or where fields of an addition end.
    pub swap_add_mask: u64,
    /// Which bits are compared.
    pub compare_mask: u64,
}

/// Where a packet comes from and goes to on the network.
///
/// In this order the addresses that every receiver compares lie in whole words, as they are copied: a load from two
/// stores waits for both to reach the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Address {
    /// Source GID.
    pub source: [u8; 16],
    /// Destination GID.
    pub dest: [u8; 16],
    /// Source MAC address.
    pub source_mac: [u8; 6],
    /// Destination MAC address.
    pub dest_mac: [u8; 6],
    /// VLAN identifier of the source address.
    pub vlan: Option<u16>,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Flow label.
    pub flow_label: u32,
    /// UDP source port.
    pub udp_source: u16,
}

/// What the headers of a packet say. Fields that its operation has no header for are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Transport.
    pub transport: Transport,
    /// What it does.
    pub operation: Operation,
    /// Number of the queue pair that sends it; on the wire only in datagrams.
    pub source: u32,
    /// Number of the queue pair that it is for.
    pub dest: u32,
    /// Sequence number.
    pub psn: u32,
    /// Packets of the same message behind this one that travel with it.
    pub train: u32,
    /// Whether an acknowledgement is asked for.
    pub ack_request: bool,
    /// Solicited event.
    pub solicited: bool,
    /// RETH, or address and key of AtomicETH.
    pub remote: Remote,
    /// Operands of an atomic operation.
    pub operands: Operands,
    /// AETH: syndrome in the upper 8 bits, message sequence number below.
    pub aeth: u32,
    /// AtomicAckETH.
    pub original: u64,
    /// Queue key of a datagram.
    pub q_key: u32,
    /// Source queue pair of a datagram.
    pub source_qp: u32,
    /// Immediate data, or the key to invalidate.
    pub immediate: u32,
    /// XRC shared receive queue.
    pub srqn: u32,
    /// Where from and where to.
    pub address: Address,
    /// The fence of the send entry that it belongs to. Not on the wire.
    pub fence: Fence,
}

impl Head {
    /// Packets that it stands for.
    pub fn packets(&self) -> u32 {
        self.train + 1
    }

    /// What its first packets say by themselves, when more of the message are behind them.
    pub fn first(&self, packets: u32) -> Head {
        let operation = self.operation.unended();
        Head { operation, train: packets.max(1) - 1, ack_request: false, solicited: false, immediate: 0, ..*self }
    }

    /// The sequence number of the last of them.
    pub fn last_psn(&self) -> u32 {
        psn_add(self.psn, self.train)
    }

    /// The sequence number behind them.
    pub fn next_psn(&self) -> u32 {
        psn_add(self.psn, self.packets())
    }
}

/// A part of a payload whose place is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes of the send entry that the sender is working on, from its start.
    Inline {
        /// First byte.
        from: u16,
        /// Bytes.
        len: u16,
    },
    /// Memory behind a key.
    Piece(Piece),
}

impl Part {
    /// Bytes.
    pub fn len(&self) -> u64 {
        match self {
            Part::Inline { len, .. } => u64::from(*len),
            Part::Piece(piece) => piece.len,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Parts that a packet names directly; payloads in more parts are walked to anew.
pub const MAX_PARTS: usize = 2;

/// Bytes that a packet carries itself.
pub const SHORT: usize = 40;

/// Where the bytes of a packet are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// There are none.
    #[default]
    None,
    /// In a few parts.
    Parts {
        /// The parts.
        parts: [Option<Part>; MAX_PARTS],
    },
    /// In the data segments of the send entry that the sender is working on.
    Entry {
        /// Bytes of the message before these.
        offset: u32,
    },
    /// In memory of the sender, which a READ request named.
    Key {
        /// The key.
        key: u32,
        /// The address in it.
        va: u64,
        /// Its protection domain.
        pd: u32,
    },
    /// Here, a few: the value of an atomic operation, a header.
    Short {
        /// The bytes, from the first on.
        bytes: [u8; SHORT],
    },
    /// Here.
    Held(Vec<u8>),
}

/// A packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Its headers.
    pub head: Head,
    /// Bytes of payload.
    pub len: u32,
    /// Where they are.
    pub payload: Payload,
}

/// Negative acknowledgements and the like, as the upper byte of AETH has them.
pub mod aeth {
    /// Acknowledged; the responder does not limit credits.
    pub const ACK: u8 = 0x1f;
    /// Receiver not ready; the timer code in the lower five bits.
    pub const RNR: u8 = 0x20;
    /// Sequence error.
    pub const SEQUENCE: u8 = 0x60;
    /// Invalid request.
    pub const INVALID_REQUEST: u8 = 0x61;
    /// Remote access error.
    pub const ACCESS: u8 = 0x62;
    /// Remote operational error.
    pub const OPERATION: u8 = 0x63;
}

/// Nanoseconds that a receiver-not-ready timer code stands for (IBTA 9.7.5.2.8, table 45).
pub fn rnr_delay(code: u32) -> u64 {
    const MICROSECONDS: [u64; 32] = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840, 5_120, 7_680,
        10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680, 491_520,
    ];
    MICROSECONDS[(code & 31) as usize] * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_go_around() {
        assert_eq!(psn_add(PSN_MASK, 2), 1);
        assert_eq!(psn_diff(1, PSN_MASK), 2);
        assert_eq!(psn_diff(PSN_MASK, 1), -2);
        assert_eq!(psn_diff(7, 7), 0);
        assert_eq!(psn_diff(0x7f_ffff, 0), 0x7f_ffff);
        assert_eq!(psn_diff(0x80_0000, 0), -0x80_0000);
    }

    #[test]
    fn the_first_packets_of_a_train_start_what_it_starts_and_end_nothing() {
        for (operation, _) in Operation::CODES {
            let train = Head { operation, psn: PSN_MASK, train: 9, ack_request: true, ..Head::default() };
            let head = train.first(4);
            assert_eq!((head.psn, head.next_psn(), head.ack_request), (PSN_MASK, 3, false));
            assert_eq!(head.operation.starts(), operation.starts(), "{operation:?}");
            if operation.is_send() || operation.is_write() {
                assert!(!head.operation.ends(), "{operation:?}");
                assert_eq!(head.operation.is_send(), operation.is_send(), "{operation:?}");
                assert!(!head.operation.has_immediate() && !head.operation.invalidates(), "{operation:?}");
            }
        }
        let reads = [Operation::ReadOnly, Operation::ReadLast].map(Operation::unended);
        assert_eq!(reads, [Operation::ReadFirst, Operation::ReadMiddle]);
    }

    #[test]
    fn receiver_not_ready_codes_are_those_of_the_table() {
        assert_eq!([0, 1, 12, 31, 32].map(rnr_delay), [655_360_000, 10_000, 640_000, 491_520_000, 655_360_000]);
    }

    #[test]
    fn every_operation_has_one_code_and_starts_or_ends_or_is_in_the_middle() {
        let mut codes: Vec<u8> = Operation::CODES.iter().map(|(_, code)| *code).collect();
        codes.dedup();
        assert_eq!(codes.len(), Operation::CODES.len());
        let middle: Vec<_> = Operation::CODES.iter().filter(|(op, _)| !op.starts() && !op.ends()).collect();
        assert_eq!(middle, [&(Operation::SendMiddle, 1), &(Operation::WriteMiddle, 7)]);
    }
}
