//! Internet checksums of frames that leave and of frames that come in (RFC 1071, 768, 793, 8200).

use super::layers::{L3, L4, Layers, be16, put16};

/// Adds the 16-bit words of `bytes`, an odd last byte as a high one.
fn sum(mut sum: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(2);
    for word in words.by_ref() {
        sum += u64::from(u16::from_be_bytes([word[0], word[1]]));
    }
    if let [last] = words.remainder() {
        sum += u64::from(*last) << 8;
    }
    sum
}

/// The ones' complement sum, not inverted.
fn carry(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn fold(sum: u64) -> u16 {
    !carry(sum)
}

/// The ones' complement sum of `bytes`, not inverted, as a receiver gets it.
pub fn ones_complement(bytes: &[u8]) -> u16 {
    carry(sum(0, bytes))
}

/// Whether the network header is right: an IPv4 header with its checksum, or an IPv6 header.
pub fn l3_is_right(frame: &[u8], layers: &Layers) -> bool {
    match layers.l3 {
        Some((L3::V4, at)) => carry(sum(0, &frame[at..at + usize::from(frame[at] & 0xf) * 4])) == 0xffff,
        Some((L3::V6, _)) => true,
        None => false,
    }
}

/// Whether the frame has a TCP or UDP checksum, and it is right; a datagram over IPv4 need not have one.
pub fn l4_is_right(frame: &[u8], layers: &Layers) -> bool {
    let (Some((l3, ip)), Some((l4, at))) = (layers.l3, layers.l4) else { return false };
    if l4 == L4::Udp && be16(frame, at + 6) == 0 {
        return l3 == L3::V4;
    }
    carry(l4_sum(frame, layers.end, (l3, ip), (l4, at))) == 0xffff
}

/// The sum over pseudo header, transport header and payload.
fn l4_sum(frame: &[u8], end: usize, (l3, ip): (L3, usize), (l4, at): (L4, usize)) -> u64 {
    let protocol = if l4 == L4::Tcp { 6 } else { 17 };
    let addresses = match l3 {
        L3::V4 => ip + 12..ip + 20,
        L3::V6 => ip + 8..ip + 40,
    };
    let pseudo = sum((end - at) as u64 + protocol, &frame[addresses]);
    sum(pseudo, &frame[at..end])
}

/// The checksum of some bytes: what a field that was 0 has to be, and 0 if a field in them is right.
pub fn ones(bytes: &[u8]) -> u16 {
    fold(sum(0, bytes))
}

/// Writes the IPv4 header checksum, if the frame has an IPv4 header.
pub fn fill_l3(frame: &mut [u8], layers: &Layers) {
    let Some((L3::V4, at)) = layers.l3 else { return };
    let header = usize::from(frame[at] & 0xf) * 4;
    put16(frame, at + 10, 0);
    let checksum = fold(sum(0, &frame[at..at + header]));
    put16(frame, at + 10, checksum);
}

/// Writes the TCP or UDP checksum over the pseudo header and everything up to the end of the packet, if the frame has
/// such a header. What the field held before, as a driver's partial sum, does not matter.
pub fn fill_l4(frame: &mut [u8], layers: &Layers) {
    let (Some(l3), Some((l4, at))) = (layers.l3, layers.l4) else { return };
    let field = match l4 {
        L4::Tcp => at + 16,
        L4::Udp => at + 6,
    };
    put16(frame, field, 0);
    let mut checksum = fold(l4_sum(frame, layers.end, l3, (l4, at)));
    // 0 means "none" in UDP.
    if checksum == 0 && l4 == L4::Udp {
        checksum = 0xffff;
    }
    put16(frame, field, checksum);
}

#[cfg(test)]
mod tests {
    use super::super::layers::layers;
    use super::super::layers::tests::{tcp, v4, v6};
    use super::*;

    #[test]
    fn a_known_header_has_its_known_checksum() {
        // RFC 1071's method on the example header of many textbooks.
        let mut frame = vec![0; 14];
        frame[12] = 8;
        frame.extend([0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7]);
        frame.resize(14 + 0x73, 0);
        let layers = layers(&frame, true);
        fill_l3(&mut frame, &layers);
        assert_eq!(frame[24..26], [0xb8, 0x61]);
    }

    #[test]
    fn checksums_cover_the_packet_and_not_its_padding() {
        for mut frame in [v4(6, &[tcp(7, 0x18), vec![1, 2, 3]].concat()), v6(6, &[tcp(7, 0x18), vec![9]].concat())] {
            frame.resize(100, 0xee);
            let found = layers(&frame, true);
            fill_l3(&mut frame, &found);
            fill_l4(&mut frame, &found);
            assert!(l3_is_right(&frame, &found) && l4_is_right(&frame, &found));
            frame[found.end - 1] ^= 1;
            assert!(!l4_is_right(&frame, &found));
            frame[20] ^= 1;
            assert_eq!(l3_is_right(&frame, &found), found.l3.is_some_and(|(l3, _)| l3 == L3::V6));
        }
    }

    #[test]
    fn a_udp_checksum_is_never_zero() {
        // Two bytes of payload chosen so that the sum is all ones.
        let mut frame = v4(17, &[0, 1, 0, 2, 0, 10, 0, 0, 0, 0]);
        let found = layers(&frame, true);
        fill_l4(&mut frame, &found);
        let missing = u16::from_be_bytes([frame[40], frame[41]]);
        frame[42..44].copy_from_slice(&missing.to_be_bytes());
        fill_l4(&mut frame, &found);
        assert_eq!(frame[40..42], [0xff, 0xff]);
    }

    #[test]
    fn only_datagrams_over_ipv4_may_be_without_checksum() {
        for (frame, right) in [(v4(17, &[0, 1, 0, 2, 0, 8, 0, 0]), true), (v6(17, &[0, 1, 0, 2, 0, 8, 0, 0]), false)] {
            assert_eq!(l4_is_right(&frame, &layers(&frame, true)), right);
        }
        let frame = v4(6, &tcp(1, 0));
        assert!(!l4_is_right(&frame, &layers(&frame, true)), "a TCP checksum of 0 is a checksum");
        assert!(!l4_is_right(&[0; 60], &layers(&[0; 60], true)) && !l3_is_right(&[0; 60], &layers(&[0; 60], true)));
    }

    #[test]
    fn a_sum_over_a_right_packet_is_all_ones() {
        assert_eq!(ones_complement(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2, "the example of RFC 1071");
        assert_eq!(ones_complement(&[0xff]), 0xff00, "an odd byte is the high one");
        assert_eq!(ones_complement(&[]), 0);
    }
}
