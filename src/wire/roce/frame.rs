//! From headers and payload to frames and back; see the limits in [`super`].

use super::{Aeth, AtomicEth, Deth, Extensions, Headers, MASK_24, Opcode, Reth};
use crate::wire::layers::be16;
use crate::wire::{MAC_HEADER, checksum};

/// Addresses of the network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    V4 {
        /// From.
        source: [u8; 4],
        /// To.
        dest: [u8; 4],
    },
    /// IPv6.
    V6 {
        /// From.
        source: [u8; 16],
        /// To.
        dest: [u8; 16],
        /// Flow label, 20 bits.
        flow_label: u32,
    },
}

/// Where a frame comes from and goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// MAC address of the sender.
    pub source_mac: [u8; 6],
    /// MAC address of the next receiver.
    pub dest_mac: [u8; 6],
    /// The 802.1Q tag, priority and number.
    pub tag: Option<u16>,
    /// Network layer.
    pub network: Network,
    /// Traffic class, or type of service.
    pub traffic_class: u8,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// UDP port of the sender; spreads flows over paths.
    pub udp_source: u16,
}

/// UDP port of RoCE v2.
pub const UDP_PORT: u16 = 4791;
/// Longest payload of a packet: the largest path MTU.
pub const MAX_PAYLOAD: usize = 4096;
/// Longest frame: tag, IPv6, the longest extension headers, payload, CRC.
pub const MAX_FRAME: usize = MAC_HEADER + 4 + IPV6 + UDP + BTH + 32 + MAX_PAYLOAD + ICRC;

const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const BTH: usize = 12;
const ICRC: usize = 4;
const VLAN: u16 = 0x8100;
const TYPE_V4: u16 = 0x0800;
const TYPE_V6: u16 = 0x86dd;
const PROTOCOL_UDP: u8 = 17;

/// Why headers cannot be put into a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The opcode is none that has a public format.
    #[error("opcode {0:?} has no format")]
    Opcode(Opcode),
    /// The extension headers are not those of the opcode.
    #[error("opcode {0:?} has other extension headers")]
    Extensions(Opcode),
    /// A number does not fit.
    #[error("{0} does not fit")]
    Field(&'static str),
    /// There is too much payload, or payload where none may be.
    #[error("{0} bytes of payload")]
    Payload(usize),
}

/// Why a frame is no RoCE v2 packet, or none that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is something else: another protocol or port.
    #[error("not RoCE v2")]
    Foreign,
    /// It ends before its headers or lengths do.
    #[error("too short")]
    Short,
    /// The IPv4 header has options, a wrong checksum, or is that of a fragment.
    #[error("bad IPv4 header")]
    Ipv4,
    /// Lengths of network layer, UDP and transport do not agree.
    #[error("lengths do not agree")]
    Length,
    /// An unknown version of the transport headers.
    #[error("transport header version {0}")]
    Version(u8),
    /// An unknown opcode.
    #[error("unknown opcode {0:?}")]
    Opcode(Opcode),
    /// Payload where none may be.
    #[error("payload behind opcode {0:?}")]
    Payload(Opcode),
    /// The invariant CRC is wrong.
    #[error("wrong CRC")]
    Crc,
}

/// A frame that was taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Where from and where to.
    pub addresses: Addresses,
    /// What it says.
    pub headers: Headers,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Puts a packet into `out`, whose bytes before are dropped and whose memory is used again.
pub fn encode(addresses: &Addresses, headers: &Headers, payload: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let opcode = headers.opcode;
    let extensions = opcode.extensions().ok_or(EncodeError::Opcode(opcode))?;
    if headers.extensions() != extensions {
        return Err(EncodeError::Extensions(opcode));
    }
    if payload.len() > MAX_PAYLOAD || (!payload.is_empty() && !opcode.takes_payload()) {
        return Err(EncodeError::Payload(payload.len()));
    }
    let fits = |value: u32, max: u32, name| if value <= max { Ok(()) } else { Err(EncodeError::Field(name)) };
    fits(headers.dest_qpn, MASK_24, "queue pair")?;
    fits(headers.psn, MASK_24, "sequence number")?;
    fits(headers.xrceth.unwrap_or(0), MASK_24, "shared receive queue")?;
    fits(headers.deth.map_or(0, |deth| deth.source_qpn), MASK_24, "source queue pair")?;
    fits(headers.aeth.map_or(0, |aeth| aeth.msn), MASK_24, "message sequence number")?;
    let pad = payload.len().wrapping_neg() % 4;
    let transport = BTH + extensions.bytes() + payload.len() + pad + ICRC;

    out.clear();
    out.extend(addresses.dest_mac);
    out.extend(addresses.source_mac);
    if let Some(tag) = addresses.tag {
        out.extend(VLAN.to_be_bytes());
        out.extend(tag.to_be_bytes());
    }
    let at = out.len() + 2;
    match addresses.network {
        Network::V4 { source, dest } => {
            out.extend(TYPE_V4.to_be_bytes());
            let Addresses { traffic_class, hop_limit, .. } = *addresses;
            out.extend(header_v4(source, dest, traffic_class, hop_limit, (UDP + transport) as u16));
        }
        Network::V6 { source, dest, flow_label } => {
            fits(flow_label, 0xf_ffff, "flow label")?;
            out.extend(TYPE_V6.to_be_bytes());
            let Addresses { traffic_class, hop_limit, .. } = *addresses;
            out.extend(header_v6(source, dest, traffic_class, flow_label, hop_limit, (UDP + transport) as u16));
        }
    }
    for word in [addresses.udp_source, UDP_PORT, (UDP + transport) as u16, 0] {
        out.extend(word.to_be_bytes());
    }
    let flag = |set: bool, bit: u32| u32::from(set) << bit;
    let second = flag(headers.solicited, 7) | flag(headers.migrated, 6) | (pad as u32) << 4;
    out.extend([opcode.0, second as u8]);
    out.extend(headers.pkey.to_be_bytes());
    out.extend((flag(headers.fecn, 31) | flag(headers.becn, 30) | headers.dest_qpn).to_be_bytes());
    out.extend((flag(headers.ack_request, 31) | headers.psn).to_be_bytes());
    put_extensions(headers, out);
    out.extend_from_slice(payload);
    out.extend(std::iter::repeat_n(0, pad));
    let crc = icrc(&out[at..]);
    out.extend(crc.to_le_bytes());
    Ok(())
}

fn put_extensions(headers: &Headers, out: &mut Vec<u8>) {
    if let Some(deth) = headers.deth {
        out.extend(deth.qkey.to_be_bytes());
        out.extend(deth.source_qpn.to_be_bytes());
    }
    if let Some(srqn) = headers.xrceth {
        out.extend(srqn.to_be_bytes());
    }
    if let Some(reth) = headers.reth {
        out.extend(reth.va.to_be_bytes());
        out.extend(reth.rkey.to_be_bytes());
        out.extend(reth.len.to_be_bytes());
    }
    if let Some(atomic) = headers.atomic {
        out.extend(atomic.va.to_be_bytes());
        out.extend(atomic.rkey.to_be_bytes());
        out.extend(atomic.swap_add.to_be_bytes());
        out.extend(atomic.compare.to_be_bytes());
    }
    if let Some(aeth) = headers.aeth {
        out.extend((u32::from(aeth.syndrome) << 24 | aeth.msn).to_be_bytes());
    }
    if let Some(original) = headers.atomic_ack {
        out.extend(original.to_be_bytes());
    }
    for word in [headers.immediate, headers.ieth].into_iter().flatten() {
        out.extend(word.to_be_bytes());
    }
}

/// Bytes that are taken off the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_be_bytes)
    }

    /// The first `len` bytes; what is behind them is not looked at.
    fn limit(&mut self, len: usize) -> Result<(), DecodeError> {
        self.0 = self.0.get(..len).ok_or(DecodeError::Short)?;
        Ok(())
    }
}

/// Takes a frame apart. Bytes behind the network layer's packet are padding of short frames.
pub fn decode(frame: &[u8]) -> Result<Frame<'_>, DecodeError> {
    let mut reader = Reader(frame);
    let (dest_mac, source_mac) = (reader.take()?, reader.take()?);
    let mut kind = reader.u16()?;
    let mut tag = None;
    if kind == VLAN {
        tag = Some(reader.u16()?);
        kind = reader.u16()?;
    }
    let packet = reader.0;
    let (network, traffic_class, hop_limit, header) = match kind {
        TYPE_V4 => ipv4(&mut reader)?,
        TYPE_V6 => ipv6(&mut reader)?,
        _ => return Err(DecodeError::Foreign),
    };
    let packet = &packet[..header + reader.0.len()];
    let (udp_source, port, len, _) = (reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?);
    if port != UDP_PORT {
        return Err(DecodeError::Foreign);
    }
    if usize::from(len) != UDP + reader.0.len() {
        return Err(DecodeError::Length);
    }
    let (covered, crc) = packet.split_last_chunk().ok_or(DecodeError::Short)?;
    let transport = reader.0.len().checked_sub(ICRC).ok_or(DecodeError::Short)?;
    reader.limit(transport)?;
    let addresses = Addresses { source_mac, dest_mac, tag, network, traffic_class, hop_limit, udp_source };
    let (headers, payload) = transport_headers(reader)?;
    if icrc(covered) != u32::from_le_bytes(*crc) {
        return Err(DecodeError::Crc);
    }
    Ok(Frame { addresses, headers, payload })
}

/// Addresses, traffic class, hop limit, and the length of the header.
type NetworkHeader = (Network, u8, u8, usize);

/// The IPv4 header before `len` bytes of UDP.
pub fn header_v4(source: [u8; 4], dest: [u8; 4], traffic_class: u8, hop_limit: u8, len: u16) -> [u8; IPV4] {
    let mut ip = [0; IPV4];
    ip[..2].copy_from_slice(&[0x45, traffic_class]);
    ip[2..4].copy_from_slice(&len.wrapping_add(IPV4 as u16).to_be_bytes());
    // No identification, as nothing may be fragmented.
    ip[6..10].copy_from_slice(&[0x40, 0, hop_limit, PROTOCOL_UDP]);
    ip[12..16].copy_from_slice(&source);
    ip[16..].copy_from_slice(&dest);
    let checksum = checksum::ones(&ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    ip
}

/// The IPv6 header before `len` bytes of UDP.
pub fn header_v6(
    source: [u8; 16],
    dest: [u8; 16],
    traffic_class: u8,
    flow_label: u32,
    hop_limit: u8,
    len: u16,
) -> [u8; IPV6] {
    let mut ip = [0; IPV6];
    let first = 6 << 28 | u32::from(traffic_class) << 20 | flow_label & 0xf_ffff;
    ip[..4].copy_from_slice(&first.to_be_bytes());
    ip[4..6].copy_from_slice(&len.to_be_bytes());
    ip[6..8].copy_from_slice(&[PROTOCOL_UDP, hop_limit]);
    ip[8..24].copy_from_slice(&source);
    ip[24..].copy_from_slice(&dest);
    ip
}

fn ipv4(reader: &mut Reader<'_>) -> Result<NetworkHeader, DecodeError> {
    let header: [u8; IPV4] = *reader.0.first_chunk().ok_or(DecodeError::Short)?;
    let [version, traffic_class, ..] = header;
    let fragment = be16(&header, 6) & 0x3fff != 0;
    if version != 0x45 || checksum::ones(&header) != 0 || fragment {
        return Err(DecodeError::Ipv4);
    }
    if header[9] != PROTOCOL_UDP {
        return Err(DecodeError::Foreign);
    }
    reader.limit(be16(&header, 2).into())?;
    let (_, source, dest) = (reader.take::<12>()?, reader.take()?, reader.take()?);
    Ok((Network::V4 { source, dest }, traffic_class, header[8], IPV4))
}

fn ipv6(reader: &mut Reader<'_>) -> Result<NetworkHeader, DecodeError> {
    let first = reader.u32()?;
    let (len, next, hop_limit) = (reader.u16()?, reader.u8()?, reader.u8()?);
    if first >> 28 != 6 || next != PROTOCOL_UDP {
        return Err(DecodeError::Foreign);
    }
    let (source, dest) = (reader.take()?, reader.take()?);
    reader.limit(len.into())?;
    Ok((Network::V6 { source, dest, flow_label: first & 0xf_ffff }, (first >> 20) as u8, hop_limit, IPV6))
}

/// What lies between the UDP header and the CRC.
fn transport_headers(mut reader: Reader<'_>) -> Result<(Headers, &[u8]), DecodeError> {
    let (opcode, second, pkey) = (Opcode(reader.u8()?), reader.u8()?, reader.u16()?);
    let (third, fourth) = (reader.u32()?, reader.u32()?);
    if second & 0xf != 0 {
        return Err(DecodeError::Version(second & 0xf));
    }
    let extensions = opcode.extensions().ok_or(DecodeError::Opcode(opcode))?;
    let mut headers = Headers::new(opcode, third & MASK_24, fourth & MASK_24);
    headers.solicited = second & 0x80 != 0;
    headers.migrated = second & 0x40 != 0;
    headers.pkey = pkey;
    headers.fecn = third >> 31 != 0;
    headers.becn = third >> 30 & 1 != 0;
    headers.ack_request = fourth >> 31 != 0;
    for extension in extensions.iter() {
        match extension {
            Extensions::DETH => {
                headers.deth = Some(Deth { qkey: reader.u32()?, source_qpn: reader.u32()? & MASK_24 });
            }
            Extensions::XRCETH => headers.xrceth = Some(reader.u32()? & MASK_24),
            Extensions::RETH => {
                headers.reth = Some(Reth { va: reader.u64()?, rkey: reader.u32()?, len: reader.u32()? });
            }
            Extensions::ATOMIC => {
                let (va, rkey) = (reader.u64()?, reader.u32()?);
                headers.atomic = Some(AtomicEth { va, rkey, swap_add: reader.u64()?, compare: reader.u64()? });
            }
            Extensions::AETH => {
                let word = reader.u32()?;
                headers.aeth = Some(Aeth { syndrome: (word >> 24) as u8, msn: word & MASK_24 });
            }
            Extensions::ATOMIC_ACK => headers.atomic_ack = Some(reader.u64()?),
            Extensions::IMMEDIATE => headers.immediate = Some(reader.u32()?),
            _ => headers.ieth = Some(reader.u32()?),
        }
    }
    let padded = reader.0;
    let pad = usize::from(second >> 4 & 3);
    let len = padded.len().checked_sub(pad).ok_or(DecodeError::Length)?;
    if padded.len() % 4 != 0 || len > MAX_PAYLOAD {
        return Err(DecodeError::Length);
    }
    if !padded.is_empty() && !opcode.takes_payload() {
        return Err(DecodeError::Payload(opcode));
    }
    Ok((headers, &padded[..len]))
}

/// The invariant CRC of a packet from its IP header to the end of its padding (IBTA annex A17.3.4, volume 1 7.8.1). What
/// a router may change counts as all ones; so does a link header that RoCE does not have.
pub(super) fn icrc(packet: &[u8]) -> u32 {
    const LINK: usize = 8;
    let v4 = packet.first().is_some_and(|first| first >> 4 == 4);
    let network = if v4 { IPV4 } else { IPV6 };
    let headers = (network + UDP + BTH).min(packet.len());
    let mut masked = [0xff; LINK + IPV6 + UDP + BTH];
    let masked = &mut masked[..LINK + headers];
    masked[LINK..].copy_from_slice(&packet[..headers]);
    // The checksums of IPv4 and UDP; congestion bits beside the number of the queue pair.
    let changing: &[usize] = if v4 { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
    for at in changing.iter().copied().chain([network + 6, network + 7, network + UDP + 4]) {
        if let Some(byte) = masked.get_mut(LINK + at) {
            *byte = 0xff;
        }
    }
    if !v4 {
        // The version stays.
        if let Some(byte) = masked.get_mut(LINK) {
            *byte |= 0x0f;
        }
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(masked);
    crc.update(&packet[headers..]);
    crc.finalize()
}
