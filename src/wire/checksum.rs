//! Internet checksums of frames that leave (RFC 1071, 768, 793, 8200).

use super::layers::{L3, L4, Layers, put16};

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

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
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
    let (Some((l3, ip)), Some((l4, at))) = (layers.l3, layers.l4) else { return };
    let (protocol, field) = match l4 {
        L4::Tcp => (6, at + 16),
        L4::Udp => (17, at + 6),
    };
    let addresses = match l3 {
        L3::V4 => ip + 12..ip + 20,
        L3::V6 => ip + 8..ip + 40,
    };
    put16(frame, field, 0);
    let len = (layers.end - at) as u64;
    let pseudo = sum(len + protocol, &frame[addresses]);
    let mut checksum = fold(sum(pseudo, &frame[at..layers.end]));
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

    /// Whether the packet's checksum is right: the sum over everything is all ones.
    fn l4_is_right(frame: &[u8]) -> bool {
        let layers = layers(frame, true);
        let ((l3, ip), (l4, at)) = (layers.l3.unwrap(), layers.l4.unwrap());
        let addresses = if l3 == L3::V4 { &frame[ip + 12..ip + 20] } else { &frame[ip + 8..ip + 40] };
        let protocol = if l4 == L4::Tcp { 6 } else { 17 };
        fold(sum(sum((layers.end - at) as u64 + protocol, addresses), &frame[at..layers.end])) == 0
    }

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
            assert!(l4_is_right(&frame));
            frame[60] ^= 1;
            assert!(frame[60..].len() < 50 && found.end > 54);
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
}
