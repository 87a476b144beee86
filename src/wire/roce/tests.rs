use proptest::prelude::*;

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

fn addresses() -> Addresses {
    Addresses {
        source_mac: [2, 0, 0, 0, 0, 1],
        dest_mac: [2, 0, 0, 0, 0, 2],
        tag: None,
        network: Network::V4 { source: [192, 168, 1, 1], dest: [192, 168, 1, 2] },
        traffic_class: 0,
        hop_limit: 64,
        udp_source: 0xc000,
    }
}

/// Packets whose CRC another implementation computed, from the IPv4 header on.
const ACK: &str = "45000030000040004011b769c0a80101c0a80102c00012b7001c00001100ffff00000012001234561f0000016352b379";
const SEND: &str =
    "45000034000040004011b765c0a80101c0a80102c00012b70020000004b0ffff000000128000000168656c6c6f0000007e1840e6";

fn known() -> [(Vec<u8>, Headers, &'static [u8]); 2] {
    let plain = |opcode, psn| Headers { migrated: false, ..Headers::new(Opcode(opcode), 0x12, psn) };
    let ack = Headers { aeth: Some(Aeth { syndrome: 0x1f, msn: 1 }), ..plain(0x11, 0x12_3456) };
    let send = Headers { solicited: true, ack_request: true, ..plain(0x04, 1) };
    let frame = |packet| [&MACS[..], &[8, 0], &hex(packet)].concat();
    [(frame(ACK), ack, b""), (frame(SEND), send, b"hello")]
}

#[test]
fn known_packets_are_encoded_and_decoded() {
    for (frame, headers, payload) in known() {
        let mut out = Vec::new();
        encode(&addresses(), &headers, payload, &mut out).unwrap();
        assert_eq!(out, frame);
        assert_eq!(decode(&frame), Ok(Frame { addresses: addresses(), headers, payload }));
    }
}

#[test]
fn a_flipped_bit_is_noticed_or_of_no_meaning() {
    let (frame, headers, payload) = known()[1].clone();
    for bit in 0..frame.len() * 8 {
        let mut wrong = frame.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        let Ok(found) = decode(&wrong) else { continue };
        // MAC addresses have the frame check sequence; the checksum of UDP and reserved bits say nothing; congestion is
        // what a router may tell.
        let (udp_checksum, congestion) = (40..42, 46);
        let mac = bit / 8 < 12;
        assert!(mac || udp_checksum.contains(&(bit / 8)) || bit / 8 == congestion, "bit {bit}: {found:?}");
        assert_eq!(
            (found.headers.psn, found.headers.dest_qpn, found.payload),
            (headers.psn, headers.dest_qpn, payload)
        );
    }
}

#[test]
fn a_frame_cut_anywhere_is_refused_and_padding_is_not_seen() {
    for (frame, headers, payload) in known() {
        for cut in 0..frame.len() {
            assert!(decode(&frame[..cut]).is_err(), "{cut} bytes");
        }
        let padded = [&frame[..], &[0xee; 30]].concat();
        let found = decode(&padded).unwrap();
        assert_eq!((found.headers, found.payload), (headers, payload));
    }
}

/// A frame of a valid packet after `edit`, with checksum and CRC made right again.
fn edited(network: Network, opcode: u8, payload: &[u8], edit: impl FnOnce(&mut Vec<u8>, usize)) -> Vec<u8> {
    let mut headers = Headers::new(Opcode(opcode), 1, 2);
    let extensions = headers.opcode.extensions().unwrap();
    fill(&mut headers, extensions, 0);
    let mut out = Vec::new();
    encode(&Addresses { network, ..addresses() }, &headers, payload, &mut out).unwrap();
    edit(&mut out, 14);
    if matches!(network, Network::V4 { .. }) {
        out[24..26].fill(0);
        let checksum = crate::wire::checksum::ones(&out[14..34]);
        out[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
    let end = out.len() - 4;
    let crc = frame::icrc(&out[14..end]);
    out[end..].copy_from_slice(&crc.to_le_bytes());
    out
}

fn fill(headers: &mut Headers, extensions: Extensions, seed: u64) {
    let word = seed as u32;
    let narrow = word & MASK_24;
    let has = |extension| extensions.contains(extension);
    headers.deth = has(Extensions::DETH).then_some(Deth { qkey: word, source_qpn: narrow });
    headers.xrceth = has(Extensions::XRCETH).then_some(narrow);
    headers.reth = has(Extensions::RETH).then_some(Reth { va: seed, rkey: word ^ 1, len: word ^ 2 });
    let atomic = AtomicEth { va: seed, rkey: word ^ 1, swap_add: seed ^ 2, compare: seed ^ 3 };
    headers.atomic = has(Extensions::ATOMIC).then_some(atomic);
    headers.aeth = has(Extensions::AETH).then_some(Aeth { syndrome: word as u8, msn: narrow });
    headers.atomic_ack = has(Extensions::ATOMIC_ACK).then_some(seed);
    headers.immediate = has(Extensions::IMMEDIATE).then_some(word);
    headers.ieth = has(Extensions::IETH).then_some(word ^ 1);
}

const V4: Network = Network::V4 { source: [10, 0, 0, 1], dest: [10, 0, 0, 2] };
const V6: Network = Network::V6 { source: [1; 16], dest: [2; 16], flow_label: 5 };

#[test]
fn packets_that_contradict_themselves_are_refused() {
    let decoded = |frame: &[u8]| decode(frame).map(|frame| frame.payload.len());
    for (network, udp) in [(V4, 34), (V6, 54)] {
        let edit = |edit: &dyn Fn(&mut Vec<u8>)| edited(network, 4, b"hello", |frame, _| edit(frame));
        let bth = udp + 8;
        assert_eq!(decoded(&edit(&|_| {})), Ok(5));
        assert_eq!(decoded(&edit(&|f| f[udp + 3] ^= 1)), Err(DecodeError::Foreign), "another port");
        assert_eq!(decoded(&edit(&|f| f[udp + 5] -= 4)), Err(DecodeError::Length), "UDP ends before IP");
        assert_eq!(decoded(&edit(&|f| f[udp + 5] += 4)), Err(DecodeError::Length), "UDP ends behind IP");
        assert_eq!(decoded(&edit(&|f| f[bth + 1] |= 1)), Err(DecodeError::Version(1)));
        assert_eq!(decoded(&edit(&|f| f[bth] = 0x1c)), Err(DecodeError::Opcode(Opcode(0x1c))));
        assert_eq!(decoded(&edit(&|f| f[bth] = 0x11)), Err(DecodeError::Payload(Opcode(0x11))));
        assert_eq!(decoded(&edit(&|f| f[bth] = 0x0a)), Err(DecodeError::Short), "no room for the header of a write");
        let last = edit(&|f| *f.last_mut().unwrap() = 0);
        assert_eq!(decoded(&last), Ok(5));
        let mut wrong = last;
        *wrong.last_mut().unwrap() ^= 0x80;
        assert_eq!(decoded(&wrong), Err(DecodeError::Crc));
        let empty = edited(network, 4, b"", |f, _| f[bth + 1] |= 0x30);
        assert_eq!(decoded(&empty), Err(DecodeError::Length), "more padding than there is");
        let protocol = if udp == 34 { 23 } else { 20 };
        assert_eq!(decoded(&edit(&|f| f[protocol] = 6)), Err(DecodeError::Foreign));
    }
    let v4 = |edit: &dyn Fn(&mut Vec<u8>)| decoded(&edited(V4, 4, b"hello", |frame, _| edit(frame)));
    assert_eq!(v4(&|f| f[20] |= 0x20), Err(DecodeError::Ipv4), "a fragment");
    assert_eq!(v4(&|f| f[21] = 1), Err(DecodeError::Ipv4), "a fragment");
    assert_eq!(v4(&|f| f[14] = 0x46), Err(DecodeError::Ipv4), "options");
    assert_eq!(v4(&|f| f[17] -= 1), Err(DecodeError::Length));
    assert_eq!(v4(&|f| f[17] = 19), Err(DecodeError::Short));
    assert_eq!(v4(&|f| f[16] = 0xff), Err(DecodeError::Short));
    let mut checksum = edited(V4, 4, b"hello", |_, _| {});
    checksum[25] ^= 1;
    assert_eq!(decoded(&checksum), Err(DecodeError::Ipv4));
    let mut unaligned = edited(V4, 4, b"hello", |_, _| {});
    unaligned[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(decoded(&unaligned), Err(DecodeError::Foreign));
}

#[test]
fn lengths_that_are_no_multiple_of_four_are_refused() {
    // One byte of padding is taken out, and all lengths agree.
    let frame = edited(V4, 4, b"hello", |frame, _| {
        frame.remove(14 + 20 + 8 + 12 + 5);
        frame[17] -= 1;
        frame[34 + 5] -= 1;
        frame[42 + 1] -= 0x10;
    });
    assert_eq!(decode(&frame), Err(DecodeError::Length));
}

#[test]
fn what_cannot_be_said_is_not_encoded() {
    let mut out = vec![1, 2, 3];
    let mut encoded = |headers: &Headers, payload: &[u8]| encode(&addresses(), headers, payload, &mut out);
    let send = Headers::new(Opcode(4), 1, 2);
    assert_eq!(encoded(&send, &[0; MAX_PAYLOAD]), Ok(()));
    assert_eq!(encoded(&send, &[0; MAX_PAYLOAD + 1]), Err(EncodeError::Payload(MAX_PAYLOAD + 1)));
    assert_eq!(encoded(&Headers { psn: 1 << 24, ..send }, b""), Err(EncodeError::Field("sequence number")));
    assert_eq!(encoded(&Headers { dest_qpn: 1 << 24, ..send }, b""), Err(EncodeError::Field("queue pair")));
    assert_eq!(encoded(&Headers { immediate: Some(1), ..send }, b""), Err(EncodeError::Extensions(Opcode(4))));
    assert_eq!(encoded(&Headers::new(Opcode(5), 1, 2), b""), Err(EncodeError::Extensions(Opcode(5))));
    assert_eq!(encoded(&Headers::new(Opcode(0x1e), 1, 2), b""), Err(EncodeError::Opcode(Opcode(0x1e))));
    let ack = Headers { aeth: Some(Aeth::default()), ..Headers::new(Opcode(0x11), 1, 2) };
    assert_eq!(encoded(&ack, b"x"), Err(EncodeError::Payload(1)));
    let network = Network::V6 { source: [0; 16], dest: [0; 16], flow_label: 1 << 20 };
    let wide = encode(&Addresses { network, ..addresses() }, &send, b"", &mut out);
    assert_eq!(wide, Err(EncodeError::Field("flow label")));
}

#[test]
fn the_longest_frame_is_the_longest() {
    let mut longest = 0;
    let mut out = Vec::new();
    for opcode in (0..=0xff).map(Opcode) {
        let Some(extensions) = opcode.extensions() else { continue };
        let mut headers = Headers::new(opcode, 1, 2);
        fill(&mut headers, extensions, 7);
        let payload: &[u8] = if opcode.takes_payload() { &[0; MAX_PAYLOAD] } else { &[] };
        encode(&Addresses { network: V6, tag: Some(1), ..addresses() }, &headers, payload, &mut out).unwrap();
        longest = longest.max(out.len());
    }
    assert!(longest <= MAX_FRAME && longest + 8 >= MAX_FRAME, "{longest} of {MAX_FRAME}");
}

#[test]
fn opcodes_have_the_extension_headers_of_the_table() {
    use Extensions as E;
    for (opcode, wanted) in [
        (0x00, E::empty()),
        (0x03, E::IMMEDIATE),
        (0x06, E::RETH),
        (0x0b, E::RETH | E::IMMEDIATE),
        (0x0c, E::RETH),
        (0x0e, E::empty()),
        (0x0f, E::AETH),
        (0x12, E::AETH | E::ATOMIC_ACK),
        (0x13, E::ATOMIC),
        (0x17, E::IETH),
        (0x2b, E::RETH | E::IMMEDIATE),
        (0x64, E::DETH),
        (0x65, E::DETH | E::IMMEDIATE),
        (0x81, E::empty()),
        (0xa0, E::XRCETH),
        (0xab, E::XRCETH | E::RETH | E::IMMEDIATE),
        (0xad, E::AETH),
        (0xb1, E::AETH),
        (0xb4, E::XRCETH | E::ATOMIC),
    ] {
        assert_eq!(Opcode(opcode).extensions(), Some(wanted), "{opcode:#x}");
    }
    let known = |upper: u8| (0..0x20).filter(|low| Opcode(upper | low).extensions().is_some()).count();
    assert_eq!([0x00, 0x20, 0x40, 0x60, 0x80, 0xa0, 0xc0, 0xe0].map(known), [23, 12, 0, 2, 1, 23, 0, 0]);
}

fn network() -> impl Strategy<Value = Network> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(source, dest)| Network::V4 { source, dest }),
        (any::<[u8; 16]>(), any::<[u8; 16]>(), 0..1u32 << 20).prop_map(|(source, dest, flow_label)| Network::V6 {
            source,
            dest,
            flow_label
        }),
    ]
}

prop_compose! {
    fn places()(
        source_mac: [u8; 6],
        dest_mac: [u8; 6],
        tag: Option<u16>,
        network in network(),
        traffic_class: u8,
        hop_limit: u8,
        udp_source: u16,
    ) -> Addresses {
        Addresses { source_mac, dest_mac, tag, network, traffic_class, hop_limit, udp_source }
    }
}

prop_compose! {
    fn packets()(
        opcode in prop::sample::select((0..=0xff).map(Opcode).filter(|o| o.extensions().is_some()).collect::<Vec<_>>()),
        flags: [bool; 5],
        pkey: u16,
        dest_qpn in 0..=MASK_24,
        psn in 0..=MASK_24,
        seed: u64,
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) -> (Headers, Vec<u8>) {
        let [solicited, migrated, fecn, becn, ack_request] = flags;
        let plain = Headers::new(opcode, dest_qpn, psn);
        let mut headers = Headers { solicited, migrated, fecn, becn, ack_request, pkey, ..plain };
        fill(&mut headers, opcode.extensions().unwrap(), seed);
        (headers, if opcode.takes_payload() { payload } else { Vec::new() })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_decoded(addresses in places(), packet in packets()) {
        let (headers, payload) = packet;
        let mut out = Vec::new();
        encode(&addresses, &headers, &payload, &mut out).unwrap();
        prop_assert_eq!(decode(&out), Ok(Frame { addresses, headers, payload: &payload }));
    }

    #[test]
    fn the_crc_is_that_of_the_bits_one_by_one(addresses in places(), packet in packets()) {
        let (headers, payload) = packet;
        let mut out = Vec::new();
        encode(&addresses, &headers, &payload, &mut out).unwrap();
        let at = if addresses.tag.is_some() { 18 } else { 14 };
        let mut packet = out[at..out.len() - 4].to_vec();
        let udp = match addresses.network {
            Network::V4 { .. } => {
                packet[1] = 0xff;
                packet[8] = 0xff;
                packet[10..12].fill(0xff);
                20
            }
            Network::V6 { .. } => {
                packet[0] |= 0xf;
                packet[1..4].fill(0xff);
                packet[7] = 0xff;
                40
            }
        };
        packet[udp + 6..udp + 8].fill(0xff);
        packet[udp + 12] = 0xff;
        let mut register = 0xdebb_20e3u32;
        for bit in packet.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1)) {
            let out = (register ^ u32::from(bit)) & 1;
            register = (register >> 1) ^ (0xedb8_8320 * out);
        }
        prop_assert_eq!(&out[out.len() - 4..], &(!register).to_le_bytes());
    }

    #[test]
    fn any_bytes_are_survived_and_what_is_decoded_is_encoded_the_same(
        packet in packets(),
        addresses in places(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let (headers, payload) = packet;
        let mut frame = Vec::new();
        encode(&addresses, &headers, &payload, &mut frame).unwrap();
        for (at, byte) in edits {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        if let Ok(found) = decode(&frame) {
            let mut again = Vec::new();
            encode(&found.addresses, &found.headers, found.payload, &mut again).unwrap();
            prop_assert_eq!(decode(&again), Ok(found));
        }
    }
}
