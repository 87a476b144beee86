//! A frame as match parameters: the words that the mask of a flow group is laid over (PRM "Flow Table Entry Match
//! Parameters"; kernel `mlx5_ifc.h:fte_match_param`).
//!
//! Lengths in headers are not compared with what is there, as hardware parses headers alone. Behind fragments no
//! transport header is looked for. Words of what is not parsed (tunnels, metadata registers) stay 0; masks that name
//! them are refused when a group is created.

use super::MATCH_BYTES;
use crate::wire::layers::{L3, L4, Layers, Tag, be16, be32};

/// Match parameters in words.
pub const MATCH_WORDS: usize = MATCH_BYTES / 4;
/// Where the second set, of miscellaneous parameters, begins.
const MISC: usize = 16;

/// `l4_type`.
const L4_TCP: u32 = 1;
const L4_UDP: u32 = 2;

fn tag_word(tag: Option<Tag>) -> u32 {
    tag.map_or(0, |tag| tag.tci.into())
}

/// Fills `words` with what the frame has. `layers` are those of the frame without regard to lengths.
pub fn describe(frame: &[u8], layers: &Layers, words: &mut [u32; MATCH_WORDS]) {
    words.fill(0);
    let word = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
    words[0] = be32(frame, 6);
    words[1] = word(be16(frame, 10), layers.kind);
    words[2] = be32(frame, 0);
    words[3] = word(be16(frame, 4), 0) | tag_word(layers.tags[0]);
    if let Some(tag) = layers.tags[0] {
        words[4] |= if tag.service { 1 << 14 } else { 1 << 15 };
    }
    if let Some(tag) = layers.tags[1] {
        words[MISC + 2] = tag_word(Some(tag)) << 16;
        words[MISC + 3] = if tag.service { 1 << 29 } else { 1 << 31 };
    }
    if let Some((l3, at)) = layers.l3 {
        network(frame, l3, at, words);
        words[4] |= u32::from(layers.protocol) << 24 | u32::from(layers.fragment) << 13;
    }
    if let Some((l4, at)) = layers.l4 {
        let ports = be32(frame, at);
        match l4 {
            L4::Tcp => {
                words[4] |= u32::from(be16(frame, at + 12) & 0x1ff);
                words[5] = ports;
                words[6] |= L4_TCP << 30;
            }
            L4::Udp => {
                words[6] |= L4_UDP << 30;
                words[7] = ports;
            }
        }
    }
}

/// Adds the send queue that a frame leaves from.
pub fn describe_sender(sqn: u32, words: &mut [u32; MATCH_WORDS]) {
    words[MISC] |= sqn & 0xff_ffff;
}

fn network(frame: &[u8], l3: L3, at: usize, words: &mut [u32; MATCH_WORDS]) {
    let (version, class, ttl) = match l3 {
        L3::V4 => {
            words[6] |= u32::from(frame[at] & 0xf) << 12;
            words[11] = be32(frame, at + 12);
            words[15] = be32(frame, at + 16);
            (4, frame[at + 1].into(), frame[at + 8])
        }
        L3::V6 => {
            for i in 0..4 {
                words[8 + i] = be32(frame, at + 8 + 4 * i);
                words[12 + i] = be32(frame, at + 24 + 4 * i);
            }
            let first = be32(frame, at);
            words[MISC + 7] = first & 0xf_ffff;
            (6, first >> 20 & 0xff, frame[at + 7])
        }
    };
    // The code point stands before the congestion bits, as in the header.
    words[4] |= class << 16 | version << 9;
    words[6] |= u32::from(ttl);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prm::flow_match::FteMatchParam;
    use crate::wire::layers::layers;

    fn described(frame: &[u8]) -> FteMatchParam<Vec<u8>> {
        let mut words = [1; MATCH_WORDS];
        describe(frame, &layers(frame, false), &mut words);
        FteMatchParam::new(words.iter().flat_map(|word| word.to_be_bytes()).collect()).expect("the whole set")
    }

    fn frame(tags: &[u8], rest: &[&[u8]]) -> Vec<u8> {
        let mut frame = vec![0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0x21, 0x43, 0x65, 0x87];
        frame.extend(tags);
        frame.extend(rest.concat());
        frame
    }

    /// TTL 77, code point 0x2a, congestion bits 1.
    fn ipv4(protocol: u8, fragment: [u8; 2]) -> Vec<u8> {
        let mut header = vec![8, 0, 0x45, 0x2a << 2 | 1, 0, 99, 0, 1, fragment[0], fragment[1], 77, protocol, 0, 0];
        header.extend([192, 0, 2, 1, 198, 51, 100, 2]);
        header
    }

    const TCP: [u8; 20] = [0, 80, 0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 2, 0x51, 0x18, 0, 0, 0, 0, 0, 0];

    #[test]
    fn a_tcp_packet_over_ipv4_is_described() {
        let p = described(&frame(&[], &[&ipv4(6, [0x40, 0]), &TCP]));
        let outer = p.outer_headers();
        assert_eq!((outer.dmac_47_16(), outer.dmac_15_0()), (0x1234_5678, 0x9abc));
        assert_eq!((outer.smac_47_16(), outer.smac_15_0()), (0xdef0_2143, 0x6587));
        assert_eq!((outer.ethertype(), outer.ip_version(), outer.ip_protocol(), outer.frag()), (0x800, 4, 6, 0));
        assert_eq!((outer.ip_dscp(), outer.ip_ecn(), outer.ttl_hoplimit(), outer.ipv4_ihl()), (0x2a, 1, 77, 5));
        assert_eq!((outer.tcp_sport(), outer.tcp_dport(), outer.tcp_flags(), outer.l4_type()), (80, 0x1234, 0x118, 1));
        assert_eq!((outer.udp_sport(), outer.udp_dport(), outer.cvlan_tag(), outer.svlan_tag()), (0, 0, 0, 0));
        let (source, target) = (outer.src_ipv4_src_ipv6(), outer.dst_ipv4_dst_ipv6());
        assert_eq!((source.ipv4_layout().ipv4(), target.ipv4_layout().ipv4()), (0xc000_0201, 0xc633_6402));
        assert_eq!(source.ipv6_simple_layout().ipv6_127_96(), 0);
        assert!(p.as_bytes()[0x40..].iter().all(|byte| *byte == 0), "nothing else");
    }

    #[test]
    fn a_tagged_udp_packet_over_ipv6_is_described() {
        let mut header = vec![0x86, 0xdd, 0x6b, 0x5c, 0xde, 0xf1, 0, 8, 17, 9];
        header.extend((1..=32).collect::<Vec<u8>>());
        let p =
            described(&frame(&[0x88, 0xa8, 0xb1, 0x23, 0x81, 0, 0x4f, 0xff], &[&header, &[0, 7, 0, 8, 0, 8, 0, 0]]));
        let (outer, misc) = (p.outer_headers(), p.misc_parameters());
        assert_eq!((outer.first_prio(), outer.first_cfi(), outer.first_vid()), (5, 1, 0x123));
        assert_eq!((outer.svlan_tag(), outer.cvlan_tag()), (1, 0));
        assert_eq!((misc.outer_second_prio(), misc.outer_second_cfi(), misc.outer_second_vid()), (2, 0, 0xfff));
        assert_eq!((misc.outer_second_cvlan_tag(), misc.outer_second_svlan_tag()), (1, 0));
        assert_eq!((outer.ethertype(), outer.ip_version(), outer.ip_protocol()), (0x86dd, 6, 17));
        assert_eq!((outer.ip_dscp(), outer.ip_ecn(), outer.ttl_hoplimit()), (0x2d, 1, 9));
        assert_eq!(misc.outer_ipv6_flow_label(), 0xc_def1);
        assert_eq!((outer.udp_sport(), outer.udp_dport(), outer.l4_type(), outer.tcp_dport()), (7, 8, 2, 0));
        assert_eq!(outer.src_ipv4_src_ipv6().ipv6_layout().ipv6()[..], (1..=16).collect::<Vec<u8>>());
        assert_eq!(outer.dst_ipv4_dst_ipv6().ipv6_layout().ipv6()[..], (17..=32).collect::<Vec<u8>>());
    }

    #[test]
    fn the_sender_is_a_parameter_of_its_own() {
        let mut words = [0; MATCH_WORDS];
        describe_sender(0x12_3456, &mut words);
        let p = FteMatchParam::new(words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>()).unwrap();
        assert_eq!(p.misc_parameters().source_sqn(), 0x12_3456);
    }

    #[test]
    fn fragments_have_no_ports_and_lengths_do_not_matter() {
        let p = described(&frame(&[0x81, 0, 0, 5], &[&ipv4(17, [0x20, 0]), &[0, 7, 0, 8, 0, 8, 0, 0]]));
        let outer = p.outer_headers();
        assert_eq!((outer.frag(), outer.ip_protocol(), outer.udp_sport(), outer.l4_type()), (1, 17, 0, 0));
        assert_eq!((outer.cvlan_tag(), outer.svlan_tag(), outer.first_vid()), (1, 0, 5));
    }

    #[test]
    fn a_frame_cut_anywhere_is_described_as_far_as_it_goes() {
        let whole = frame(&[0x81, 0, 0, 5], &[&ipv4(6, [0, 0]), &TCP]);
        for cut in 0..whole.len() {
            let p = described(&whole[..cut]);
            assert_eq!(p.outer_headers().ip_version(), if cut >= 38 { 4 } else { 0 }, "{cut} bytes");
            assert_eq!(p.outer_headers().tcp_dport(), 0, "{cut} bytes");
        }
    }
}
