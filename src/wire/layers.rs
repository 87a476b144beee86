//! Where the headers of a frame are: Ethernet with VLAN tags, IPv4 or IPv6 with extension headers, TCP or UDP.

use super::MAC_HEADER;

/// VLAN tags that are looked behind at most.
const MAX_VLANS: usize = 2;
/// EtherTypes of VLAN tags.
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;
/// IPv6 extension headers that are looked behind at most.
const MAX_EXTENSIONS: usize = 8;

/// Network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L3 {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Transport layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L4 {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Whether it is a service tag (IEEE 802.1ad) and not a customer's (802.1Q).
    pub service: bool,
    /// Priority, drop eligibility and VLAN.
    pub tci: u16,
}

/// The headers of a frame. Offsets are from the start of the frame; every header lies inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// VLAN tags, the outermost first.
    pub tags: [Option<Tag>; MAX_VLANS],
    /// EtherType behind the tags.
    pub kind: u16,
    /// What the network layer carries, by its IP protocol number; 0 without a network layer.
    pub protocol: u8,
    /// Where that begins; it may lie beyond the frame.
    pub payload: usize,
    /// Whether the packet is a fragment.
    pub fragment: bool,
    /// Network layer and where it begins.
    pub l3: Option<(L3, usize)>,
    /// Transport layer and where it begins; absent behind fragments.
    pub l4: Option<(L4, usize)>,
    /// One past the last byte that the network layer says belongs to the packet; padding follows.
    pub end: usize,
}

/// A 16-bit field in network order, 0 beyond the end.
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b))
}

/// A 32-bit field in network order, 0 beyond the end.
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
}

/// Sets a 16-bit field in network order, if it is inside.
pub fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(slot) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *slot = value.to_be_bytes();
    }
}

/// Sets a 32-bit field in network order, if it is inside.
pub fn put32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(slot) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *slot = value.to_be_bytes();
    }
}

/// Bytes of a TCP header with its options; 0 if it is not inside the frame.
pub fn tcp_header(frame: &[u8], at: usize) -> usize {
    let len = frame.get(at + 12).map_or(0, |offset| usize::from(offset >> 4) * 4);
    if len >= 20 && at + len <= frame.len() { len } else { 0 }
}

/// Finds the headers of a frame. `whole` is false for headers whose payload comes separately: lengths in them are
/// then not compared with what is there.
pub fn layers(frame: &[u8], whole: bool) -> Layers {
    let mut layers = Layers { end: frame.len(), ..Layers::default() };
    let (mut at, mut kind) = (MAC_HEADER, be16(frame, 12));
    for tag in &mut layers.tags {
        if (kind == CUSTOMER_TAG || kind == SERVICE_TAG) && at + 4 <= frame.len() {
            *tag = Some(Tag { service: kind == SERVICE_TAG, tci: be16(frame, at) });
            kind = be16(frame, at + 2);
            at += 4;
        }
    }
    layers.kind = kind;
    match kind {
        0x0800 => ipv4(frame, at, whole, &mut layers),
        0x86dd => ipv6(frame, at, whole, &mut layers),
        _ => {}
    }
    layers
}

fn ipv4(frame: &[u8], at: usize, whole: bool, layers: &mut Layers) {
    let Some(first) = frame.get(at) else { return };
    let header = usize::from(first & 0xf) * 4;
    let total = usize::from(be16(frame, at + 2));
    if first >> 4 != 4 || header < 20 || at + header > frame.len() {
        return;
    }
    if whole && (total < header || at + total > frame.len()) {
        return;
    }
    layers.l3 = Some((L3::V4, at));
    if whole {
        layers.end = at + total;
    }
    layers.protocol = frame[at + 9];
    layers.payload = at + header;
    layers.fragment = be16(frame, at + 6) & 0x3fff != 0;
    if !layers.fragment {
        layers.l4 = transport(frame, layers.protocol, at + header, layers.end);
    }
}

fn ipv6(frame: &[u8], at: usize, whole: bool, layers: &mut Layers) {
    const HEADER: usize = 40;
    const FRAGMENT: u8 = 44;
    if frame.get(at).is_none_or(|first| first >> 4 != 6) || at + HEADER > frame.len() {
        return;
    }
    let end = at + HEADER + usize::from(be16(frame, at + 4));
    if whole && end > frame.len() {
        return;
    }
    layers.l3 = Some((L3::V6, at));
    if whole {
        layers.end = end;
    }
    let (mut next, mut offset) = (frame[at + 6], at + HEADER);
    (layers.protocol, layers.payload) = (next, offset);
    for _ in 0..MAX_EXTENSIONS {
        // Hop-by-hop options, routing, destination options. A fragment's transport header cannot be relied on.
        if !matches!(next, 0 | 43 | 60) {
            break;
        }
        let Some([following, len]) = frame.get(offset..).and_then(|rest| rest.first_chunk()) else { return };
        next = *following;
        offset += 8 + usize::from(*len) * 8;
        (layers.protocol, layers.payload) = (next, offset);
    }
    if next == FRAGMENT {
        layers.fragment = true;
        if let Some(carried) = frame.get(offset) {
            (layers.protocol, layers.payload) = (*carried, offset + 8);
        }
        return;
    }
    layers.l4 = transport(frame, next, offset, layers.end);
}

fn transport(frame: &[u8], protocol: u8, at: usize, end: usize) -> Option<(L4, usize)> {
    match protocol {
        6 if tcp_header(&frame[..end.min(frame.len())], at) > 0 => Some((L4::Tcp, at)),
        17 if at + 8 <= end => Some((L4::Udp, at)),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An Ethernet frame with IPv4, without options, and `payload` behind it.
    pub fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        let total = (20 + payload.len()) as u16;
        frame.extend([0x45, 0, (total >> 8) as u8, total as u8, 0, 1, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        frame.extend(payload);
        frame
    }

    /// An Ethernet frame with IPv6 and `payload` behind it.
    pub fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
        let len = payload.len() as u16;
        frame.extend([0x60, 0, 0, 0, (len >> 8) as u8, len as u8, next, 64]);
        for host in [1, 2] {
            frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        frame.extend(payload);
        frame
    }

    /// A TCP header without options.
    pub fn tcp(seq: u32, flags: u8) -> Vec<u8> {
        let mut header = vec![0x12, 0x34, 0, 80];
        header.extend(seq.to_be_bytes());
        header.extend([0, 0, 0, 1, 0x50, flags, 0x10, 0, 0, 0, 0, 0]);
        header
    }

    #[test]
    fn headers_are_found_behind_tags_and_extensions() {
        let place = |layers: Layers| (layers.l3, layers.l4, layers.end, layers.protocol);
        let frame = v4(6, &tcp(1, 0x10));
        assert_eq!(place(layers(&frame, true)), (Some((L3::V4, 14)), Some((L4::Tcp, 34)), 54, 6));
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x88, 0xa8, 0, 1, 0x81, 0, 0xe0, 2]);
        let found = layers(&tagged, true);
        assert_eq!((found.l4, found.kind), (Some((L4::Tcp, 42)), 0x0800));
        assert_eq!(found.tags, [Some(Tag { service: true, tci: 1 }), Some(Tag { service: false, tci: 0xe002 })]);
        let mut payload = vec![17, 0, 1, 2, 3, 4, 5, 6];
        payload.extend([0, 1, 0, 2, 0, 8, 0, 0]);
        let frame = v6(60, &payload);
        assert_eq!(place(layers(&frame, true)), (Some((L3::V6, 14)), Some((L4::Udp, 62)), 70, 17));
    }

    #[test]
    fn lengths_that_do_not_fit_leave_layers_out() {
        let frame = v4(6, &tcp(1, 0x10));
        for cut in 0..frame.len() {
            let found = layers(&frame[..cut], true);
            assert_eq!((found.l3, found.l4), (None, None), "{cut} bytes");
        }
        let mut short_header = frame.clone();
        short_header[14] = 0x44;
        assert_eq!(layers(&short_header, true).l3, None);
        let mut fragment = frame.clone();
        fragment[20] = 0x20;
        assert_eq!((layers(&fragment, true).l3, layers(&fragment, true).l4), (Some((L3::V4, 14)), None));
        assert!(layers(&fragment, true).fragment && layers(&fragment, true).protocol == 6);
        let mut padded = frame;
        padded.resize(60, 0);
        assert_eq!(layers(&padded, true).end, 54);
        let fragment = layers(&v6(44, &[17, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 2, 0, 8, 0, 0]), true);
        assert_eq!((fragment.l4, fragment.fragment, fragment.protocol), (None, true, 17));
    }

    #[test]
    fn any_bytes_are_survived() {
        let mut seed = 1u32;
        for kind in [[8, 0], [0x86, 0xdd], [0x81, 0]] {
            for len in 0..120 {
                let mut frame: Vec<u8> = (0..len)
                    .map(|_| {
                        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        (seed >> 24) as u8
                    })
                    .collect();
                if len > 14 {
                    frame[12..14].copy_from_slice(&kind);
                    frame[14] = if kind[0] == 8 { 0x45 } else { 0x60 };
                }
                for whole in [true, false] {
                    let found = layers(&frame, whole);
                    assert!(found.end <= frame.len());
                    assert!(found.l4.is_none_or(|(_, at)| at < frame.len()));
                }
            }
        }
    }
}
