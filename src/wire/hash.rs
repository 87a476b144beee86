//! Receive hashes: Toeplitz with its symmetric form, and XOR (PRM "TIR Context", `rx_hash_fn`; Microsoft "RSS hashing
//! functions"; kernel `ethtool.h:RXH_XFRM_SYM_OR_XOR` for the symmetric form).

use std::ops::{BitOr, BitXor};

use super::layers::{L3, L4, Layers};

/// Bytes of a Toeplitz key.
pub const KEY: usize = 40;
/// Bytes of two IPv6 addresses and two ports, or an index.
const LONGEST: usize = 36;

/// Header fields that a hash is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Source address.
    pub source: bool,
    /// Destination address.
    pub destination: bool,
    /// Source port.
    pub source_port: bool,
    /// Destination port.
    pub destination_port: bool,
    /// Security parameter index of IPsec.
    pub spi: bool,
}

impl Fields {
    /// No field.
    pub const NONE: Fields =
        Fields { source: false, destination: false, source_port: false, destination_port: false, spi: false };
}

/// The input of a hash, in the order in which hashes take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    bytes: [u8; LONGEST],
    len: usize,
    /// Whether there are addresses in it.
    pub addresses: bool,
    /// What there is of the transport layer.
    pub transport: Option<Transport>,
}

/// What a hash takes from the transport layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Ports of TCP.
    Tcp,
    /// Ports of UDP.
    Udp,
    /// The index of IPsec.
    Spi,
}

impl Tuple {
    /// The `fields` that a frame has. Symmetric, both directions of a flow have the same: of each pair that is asked
    /// for as a whole, "or" stands for the source and "exclusive or" for the destination.
    pub fn of(frame: &[u8], layers: &Layers, fields: Fields, symmetric: bool) -> Tuple {
        let mut tuple = Tuple { bytes: [0; LONGEST], len: 0, addresses: false, transport: None };
        let Some((l3, at)) = layers.l3 else { return tuple };
        let (at, len) = if l3 == L3::V4 { (at + 12, 4) } else { (at + 8, 16) };
        tuple.pair(&frame[at..at + 2 * len], fields.source, fields.destination, symmetric);
        tuple.addresses = fields.source || fields.destination;
        if let Some((l4, at)) = layers.l4.filter(|_| fields.source_port || fields.destination_port) {
            tuple.pair(&frame[at..at + 4], fields.source_port, fields.destination_port, symmetric);
            tuple.transport = Some(if l4 == L4::Tcp { Transport::Tcp } else { Transport::Udp });
        } else if let Some(spi) = spi(frame, layers).filter(|_| fields.spi) {
            tuple.bytes[tuple.len..tuple.len + 4].copy_from_slice(spi);
            tuple.len += 4;
            tuple.transport = Some(Transport::Spi);
        }
        tuple
    }

    /// Appends the wanted halves of `pair`.
    fn pair(&mut self, pair: &[u8], first: bool, second: bool, symmetric: bool) {
        let (from, to) = pair.split_at(pair.len() / 2);
        for (wanted, half, mix) in [(first, from, u8::bitor as fn(u8, u8) -> u8), (second, to, u8::bitxor)] {
            if !wanted {
                continue;
            }
            for (i, byte) in half.iter().enumerate() {
                self.bytes[self.len] = if symmetric && first && second { mix(from[i], to[i]) } else { *byte };
                self.len += 1;
            }
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The security parameter index of a packet that is no fragment (RFC 4302, 4303).
fn spi<'a>(frame: &'a [u8], layers: &Layers) -> Option<&'a [u8]> {
    const ESP: u8 = 50;
    const AH: u8 = 51;
    let at = match layers.protocol {
        ESP if !layers.fragment => layers.payload,
        AH if !layers.fragment => layers.payload + 4,
        _ => return None,
    };
    frame.get(at..at + 4)
}

/// The Toeplitz hash: for each bit of the input that is set, the 32 bits of the key that begin there.
pub fn toeplitz(key: &[u8; KEY], input: &[u8]) -> u32 {
    let mut hash = 0;
    for (i, byte) in input.iter().enumerate() {
        // Eight windows of 32 bits begin in this byte of the key.
        let window = (0..5).fold(0u64, |window, k| window << 8 | u64::from(*key.get(i + k).unwrap_or(&0)));
        for bit in 0..8 {
            if byte & 0x80 >> bit != 0 {
                hash ^= (window >> (8 - bit)) as u32;
            }
        }
    }
    hash
}

/// All bytes folded into one, inverted.
pub fn inverted_xor8(input: &[u8]) -> u32 {
    u32::from(!input.iter().fold(0, |sum, byte| sum ^ byte))
}

#[cfg(test)]
mod tests {
    use super::super::layers::layers;
    use super::super::layers::tests::{tcp, v4, v6};
    use super::*;

    /// The key of the verification suite in Microsoft's "Verifying the RSS hash calculation".
    const SUITE: [u8; KEY] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
        0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
        0xbe, 0xac, 0x01, 0xfa,
    ];
    const ADDRESSES: Fields = Fields { source: true, destination: true, ..Fields::NONE };
    const ALL: Fields =
        Fields { source: true, destination: true, source_port: true, destination_port: true, spi: true };

    #[test]
    fn toeplitz_hashes_are_those_of_the_verification_suite() {
        let mut input = vec![66, 9, 149, 187, 161, 142, 100, 80];
        assert_eq!(toeplitz(&SUITE, &input), 0x323e_8fc2);
        input.extend([0x0a, 0xea, 0x06, 0xe6]);
        assert_eq!(toeplitz(&SUITE, &input), 0x51cc_c178);
        // 3ffe:2501:200:1fff::7 port 2794 to 3ffe:2501:200:3::1 port 1766.
        let mut input = vec![0x3f, 0xfe, 0x25, 1, 2, 0, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 7];
        input.extend([0x3f, 0xfe, 0x25, 1, 2, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(toeplitz(&SUITE, &input), 0x2cc1_8cd5);
        input.extend([0x0a, 0xea, 0x06, 0xe6]);
        assert_eq!(toeplitz(&SUITE, &input), 0x4020_7d3d);
    }

    #[test]
    fn a_tuple_has_the_fields_that_are_asked_for_and_there() {
        let frame = v4(6, &tcp(1, 0));
        let found = layers(&frame, true);
        let bytes = |fields, symmetric| Tuple::of(&frame, &found, fields, symmetric).bytes().to_vec();
        assert_eq!(bytes(ALL, false), [192, 0, 2, 1, 192, 0, 2, 2, 0x12, 0x34, 0, 80]);
        assert_eq!(bytes(ADDRESSES, false), [192, 0, 2, 1, 192, 0, 2, 2]);
        assert_eq!(bytes(ALL, true), [192, 0, 2, 3, 0, 0, 0, 3, 0x12, 0x74, 0x12, 0x64]);
        let one = Fields { destination: true, ..Fields::default() };
        assert_eq!(bytes(one, true), [192, 0, 2, 2], "one half of a pair stays what it is");
        assert!(bytes(Fields::default(), false).is_empty());
        let frame = v6(1, &[0; 8]);
        assert_eq!(Tuple::of(&frame, &layers(&frame, true), ALL, false).bytes(), &frame[22..54], "no ports");
        assert!(Tuple::of(&[0; 60], &layers(&[0; 60], true), ALL, false).bytes().is_empty());
    }

    #[test]
    fn ipsec_packets_hash_by_their_index() {
        for (protocol, header, expected) in
            [(50, [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4]), (51, [6, 4, 0, 0, 9, 8, 7, 6], [9, 8, 7, 6])]
        {
            let frame = v6(protocol, &header);
            let fields = Fields { spi: true, ..Fields::NONE };
            let tuple = Tuple::of(&frame, &layers(&frame, true), fields, true);
            assert_eq!((tuple.bytes(), tuple.transport), (&expected[..], Some(Transport::Spi)));
            let short = &frame[..frame.len() - 5];
            assert_eq!(Tuple::of(short, &layers(short, false), fields, true).transport, None);
        }
    }

    #[test]
    fn both_directions_of_a_flow_have_one_symmetric_hash() {
        let there = v4(6, &tcp(1, 0));
        let mut back = there.clone();
        back[26..30].copy_from_slice(&there[30..34]);
        back[30..34].copy_from_slice(&there[26..30]);
        back[34..36].copy_from_slice(&there[36..38]);
        back[36..38].copy_from_slice(&there[34..36]);
        let hash =
            |frame: &[u8], symmetric| toeplitz(&SUITE, Tuple::of(frame, &layers(frame, true), ALL, symmetric).bytes());
        assert_eq!(hash(&there, true), hash(&back, true));
        assert_ne!(hash(&there, false), hash(&back, false));
    }

    #[test]
    fn the_xor_hash_is_one_inverted_byte() {
        assert_eq!(inverted_xor8(&[0x12, 0x34, 0xff]), 0x26);
        assert_eq!(inverted_xor8(&[]), 0xff);
    }
}
