//! Packets as RoCE v2 frames: what [`super::packet`] says in the form of [`crate::wire::roce`].
//!
//! Limits: the masked atomics have no public format and stay inside the function. There is one partition, the default one.
//! Congestion marks are not set and not heeded; nothing is ever slowed down.

use super::complete::is_v4;
use super::packet::{Address, Head, Operands, Operation, Remote, Transport};
use crate::wire::roce::{
    self, Addresses, Aeth, AtomicEth, DecodeError, Deth, EncodeError, Extensions, Headers, Network, Opcode, Reth,
};

/// The default partition, without the bit of full membership.
const PARTITION: u16 = 0x7fff;
/// Bits of a VLAN identifier in a tag.
const VLAN_ID: u16 = 0xfff;
/// Bytes that an atomic operation is about.
const WORD: u32 = 8;

/// Why a packet has no frame, or a frame no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The packet cannot be said on a wire.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Several packets that travel as one inside the function.
    #[error("a train of {0} packets")]
    Train(u32),
    /// One address is of IPv4, the other of IPv6.
    #[error("addresses of two families")]
    Families,
    /// The frame cannot be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Another partition.
    #[error("partition {0:#06x}")]
    Partition(u16),
    /// The frame only tells of congestion.
    #[error("a congestion notification")]
    Congestion,
}

/// Puts a packet into `out`, in place of what is there.
pub fn encode(head: &Head, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
    if head.train != 0 {
        return Err(FrameError::Train(head.packets()));
    }
    let address = &head.address;
    let network = match (is_v4(&address.source), is_v4(&address.dest)) {
        (true, true) => Network::V4 { source: last_four(&address.source), dest: last_four(&address.dest) },
        (false, false) => {
            let Address { source, dest, flow_label, .. } = *address;
            Network::V6 { source, dest, flow_label }
        }
        _ => return Err(FrameError::Families),
    };
    let addresses = Addresses {
        source_mac: address.source_mac,
        dest_mac: address.dest_mac,
        tag: address.vlan,
        network,
        traffic_class: address.traffic_class,
        hop_limit: address.hop_limit,
        udp_source: address.udp_source,
    };
    Ok(roce::encode(&addresses, &headers(head), payload, out)?)
}

fn headers(head: &Head) -> Headers {
    let code = Operation::CODES.iter().find(|(operation, _)| *operation == head.operation).map_or(0xff, |(_, c)| *c);
    let opcode = Opcode(head.transport.code() | code);
    let there = opcode.extensions().unwrap_or(Extensions::empty());
    let has = |extension| there.contains(extension);
    let Remote { va, key: rkey, len } = head.remote;
    let Operands { swap_add, compare, .. } = head.operands;
    Headers {
        solicited: head.solicited,
        ack_request: head.ack_request,
        deth: has(Extensions::DETH).then_some(Deth { qkey: head.q_key, source_qpn: head.source_qp }),
        xrceth: has(Extensions::XRCETH).then_some(head.srqn),
        reth: has(Extensions::RETH).then_some(Reth { va, rkey, len }),
        atomic: has(Extensions::ATOMIC).then_some(AtomicEth { va, rkey, swap_add, compare }),
        aeth: has(Extensions::AETH).then_some(Aeth { syndrome: (head.aeth >> 24) as u8, msn: head.aeth & 0xff_ffff }),
        atomic_ack: has(Extensions::ATOMIC_ACK).then_some(head.original),
        immediate: has(Extensions::IMMEDIATE).then_some(head.immediate),
        ieth: has(Extensions::IETH).then_some(head.immediate),
        ..Headers::new(opcode, head.dest, head.psn)
    }
}

/// Takes a frame apart: what it says, and its payload. The sender's queue pair is only known of datagrams.
pub fn decode(frame: &[u8]) -> Result<(Head, &[u8]), FrameError> {
    let frame = roce::decode(frame)?;
    let headers = &frame.headers;
    if headers.pkey & PARTITION != PARTITION {
        return Err(FrameError::Partition(headers.pkey));
    }
    if headers.opcode == Opcode::CNP {
        return Err(FrameError::Congestion);
    }
    let unknown = DecodeError::Opcode(headers.opcode);
    let Opcode(code) = headers.opcode;
    let transport = [Transport::Rc, Transport::Uc, Transport::Ud, Transport::Xrc];
    let transport = transport.into_iter().find(|transport| transport.code() == code & 0xe0).ok_or(unknown)?;
    let operation = Operation::CODES.iter().find(|(_, known)| *known == code & 0x1f).ok_or(unknown)?.0;
    let reth = headers.reth.map(|Reth { va, rkey, len }| Remote { va, key: rkey, len });
    let word = headers.atomic.map(|atomic| Remote { va: atomic.va, key: atomic.rkey, len: WORD });
    let deth = headers.deth.unwrap_or_default();
    let head = Head {
        transport,
        operation,
        source: deth.source_qpn,
        dest: headers.dest_qpn,
        psn: headers.psn,
        train: 0,
        ack_request: headers.ack_request,
        solicited: headers.solicited,
        remote: reth.or(word).unwrap_or_default(),
        operands: headers.atomic.map_or(Operands::default(), |atomic| operands(operation, &atomic)),
        aeth: headers.aeth.map_or(0, |aeth| u32::from(aeth.syndrome) << 24 | aeth.msn),
        original: headers.atomic_ack.unwrap_or(0),
        q_key: deth.qkey,
        source_qp: deth.source_qpn,
        immediate: headers.immediate.or(headers.ieth).unwrap_or(0),
        srqn: headers.xrceth.unwrap_or(0),
        address: address(&frame.addresses),
        ..Head::default()
    };
    Ok((head, frame.payload))
}

fn operands(operation: Operation, atomic: &AtomicEth) -> Operands {
    let &AtomicEth { swap_add, compare, .. } = atomic;
    if operation == Operation::CompareSwap {
        Operands { swap_add, compare, swap_add_mask: u64::MAX, compare_mask: u64::MAX }
    } else {
        // No boundaries: one field of 64 bits.
        Operands { swap_add, ..Operands::default() }
    }
}

fn address(addresses: &Addresses) -> Address {
    let (source, dest, flow_label) = match addresses.network {
        Network::V4 { source, dest } => (mapped(source), mapped(dest), 0),
        Network::V6 { source, dest, flow_label } => (source, dest, flow_label),
    };
    Address {
        source,
        dest,
        source_mac: addresses.source_mac,
        dest_mac: addresses.dest_mac,
        // A tag with number 0 only has a priority (IEEE 802.1Q 9.6).
        vlan: addresses.tag.map(|tag| tag & VLAN_ID).filter(|vlan| *vlan != 0),
        traffic_class: addresses.traffic_class,
        hop_limit: addresses.hop_limit,
        flow_label,
        udp_source: addresses.udp_source,
    }
}

fn last_four(gid: &[u8; 16]) -> [u8; 4] {
    [gid[12], gid[13], gid[14], gid[15]]
}

/// An IPv4 address as a GID.
fn mapped(address: [u8; 4]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&address);
    gid
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gids() -> impl Strategy<Value = ([u8; 16], [u8; 16])> {
        prop_oneof![
            any::<([u8; 4], [u8; 4])>().prop_map(|(source, dest)| (mapped(source), mapped(dest))),
            any::<([u8; 16], [u8; 16])>().prop_filter("IPv6", |(source, dest)| !is_v4(source) && !is_v4(dest)),
        ]
    }

    prop_compose! {
        fn addresses()(
            (source, dest) in gids(),
            source_mac: [u8; 6],
            dest_mac: [u8; 6],
            vlan in prop::option::of(1..0xfffu16),
            traffic_class: u8,
            hop_limit: u8,
            flow_label in 0..1u32 << 20,
            udp_source: u16,
        ) -> Address {
            let flow_label = if is_v4(&source) { 0 } else { flow_label };
            Address { source, dest, source_mac, dest_mac, vlan, traffic_class, hop_limit, flow_label, udp_source }
        }
    }

    /// A head with exactly the fields that its operation has headers for.
    fn head(transport: Transport, operation: Operation, address: Address, seed: u64) -> Head {
        use Operation as O;
        let narrow = seed as u32 & 0xff_ffff;
        let datagram = transport == Transport::Ud;
        let remote = Remote { va: seed, key: narrow ^ 1, len: narrow ^ 2 };
        let announces = matches!(operation, O::WriteFirst | O::WriteOnly | O::WriteOnlyImm | O::ReadRequest);
        let answers = operation.is_response() && operation != O::ReadMiddle;
        Head {
            transport,
            operation,
            source: if datagram { narrow } else { 0 },
            dest: narrow ^ 3,
            psn: narrow ^ 4,
            train: 0,
            ack_request: seed & 1 != 0,
            solicited: seed & 2 != 0,
            remote: match operation {
                _ if announces => remote,
                _ if operation.is_atomic() => Remote { len: 8, ..remote },
                _ => Remote::default(),
            },
            operands: match operation {
                O::CompareSwap => {
                    Operands { swap_add: seed ^ 5, compare: seed ^ 6, swap_add_mask: u64::MAX, compare_mask: u64::MAX }
                }
                O::FetchAdd => Operands { swap_add: seed ^ 5, ..Operands::default() },
                _ => Operands::default(),
            },
            aeth: if answers { seed as u32 } else { 0 },
            original: if operation == O::AtomicAck { seed } else { 0 },
            q_key: if datagram { seed as u32 } else { 0 },
            source_qp: if datagram { narrow } else { 0 },
            immediate: if operation.has_immediate() || operation.invalidates() { seed as u32 ^ 7 } else { 0 },
            srqn: if transport == Transport::Xrc && !operation.is_response() { narrow ^ 8 } else { 0 },
            address,
            ..Head::default()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_packet_that_has_a_frame_comes_back_from_it(address in addresses(), seed: u64) {
            let mut out = Vec::new();
            let mut frames = 0;
            for transport in [Transport::Rc, Transport::Uc, Transport::Ud, Transport::Xrc] {
                for (operation, _) in Operation::CODES {
                    let head = head(transport, operation, address, seed);
                    let payload: &[u8] = if operation.is_send() { b"hello" } else { b"" };
                    match encode(&head, payload, &mut out) {
                        Ok(()) => {
                            frames += 1;
                            prop_assert_eq!(decode(&out), Ok((head, payload)));
                        }
                        Err(error) => prop_assert!(matches!(error, FrameError::Encode(EncodeError::Opcode(_)))),
                    }
                }
            }
            prop_assert_eq!(frames, 23 + 12 + 2 + 23);
        }
    }

    fn plain() -> Head {
        let address = Address { source: mapped([10, 0, 0, 1]), dest: mapped([10, 0, 0, 2]), ..Address::default() };
        head(Transport::Rc, Operation::SendOnly, address, 0)
    }

    #[test]
    fn masked_atomics_trains_and_mixed_addresses_have_no_frame() {
        let mut out = Vec::new();
        assert_eq!(encode(&Head { train: 2, ..plain() }, b"", &mut out), Err(FrameError::Train(3)));
        for operation in [Operation::MaskedCompareSwap, Operation::MaskedFetchAdd] {
            let refused = encode(&Head { operation, ..plain() }, b"", &mut out).unwrap_err();
            assert!(matches!(refused, FrameError::Encode(EncodeError::Opcode(_))), "{refused}");
        }
        let mut mixed = plain();
        mixed.address.source = [1; 16];
        assert_eq!(encode(&mixed, b"", &mut out), Err(FrameError::Families));
    }

    #[test]
    fn other_partitions_and_congestion_notifications_are_no_packets() {
        let mut out = Vec::new();
        encode(&plain(), b"", &mut out).unwrap();
        let found = roce::decode(&out).unwrap();
        let with = |headers: Headers, payload: &[u8]| {
            let mut frame = Vec::new();
            roce::encode(&found.addresses, &headers, payload, &mut frame).unwrap();
            decode(&frame).map(|(head, _)| head.dest)
        };
        assert_eq!(with(Headers { pkey: 0x7fff, ..found.headers }, b""), Ok(plain().dest), "a limited member");
        assert_eq!(with(Headers { pkey: 0x8001, ..found.headers }, b""), Err(FrameError::Partition(0x8001)));
        assert_eq!(with(Headers::new(Opcode::CNP, 1, 0), &[0; 16]), Err(FrameError::Congestion));
    }

    #[test]
    fn a_tag_that_only_has_a_priority_is_no_vlan() {
        let mut out = Vec::new();
        encode(&plain(), b"", &mut out).unwrap();
        let found = roce::decode(&out).unwrap();
        for (tag, vlan) in [(None, None), (Some(0xe000), None), (Some(0xe005), Some(5))] {
            let mut frame = Vec::new();
            roce::encode(&Addresses { tag, ..found.addresses }, &found.headers, b"", &mut frame).unwrap();
            assert_eq!(decode(&frame).unwrap().0.address.vlan, vlan);
        }
    }
}
