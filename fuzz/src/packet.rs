//! RoCE v2 frames: what is decoded lies inside the frame and means the same when it is encoded again; what is encoded is
//! decoded; nothing that is damaged is taken for whole.

use cx10::device::rdma::frame;
use cx10::device::rdma::packet::{Address, Head, Operation, Remote, Transport};
use cx10::wire::roce::{self, DecodeError, MAX_FRAME, MAX_PAYLOAD};

use crate::input::Input;

/// Runs one input.
pub fn run(data: &[u8]) {
    let input = &mut Input::new(data);
    match input.u8() % 3 {
        0 => foreign(&mut input.rest().to_vec()),
        1 => {
            let mut bytes = sound(input);
            for _ in 0..1 + input.below(4) {
                let at = input.below(bytes.len());
                bytes[at] ^= input.u8();
            }
            foreign(&mut bytes);
        }
        _ => said(input),
    }
    crate::assert_nothing_kept();
}

/// A frame that somebody else made, as it is and with its CRC made right.
fn foreign(bytes: &mut Vec<u8>) {
    bytes.truncate(2 * MAX_FRAME);
    whole(bytes);
    let crc = roce::decode(bytes) == Err(DecodeError::Crc);
    let Some((start, end)) = bounds(bytes) else { return };
    let sum = slow_crc(&bytes[start..end]);
    bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
    let again = roce::decode(bytes);
    assert_ne!(again, Err(DecodeError::Crc), "a CRC computed bit by bit is refused");
    assert!(!crc || again.is_ok(), "with the right CRC there is another mistake");
    whole(bytes);
}

/// If a frame is decoded, it says the same when it is encoded again.
fn whole(bytes: &[u8]) {
    let device = frame::decode(bytes);
    let Ok(found) = roce::decode(bytes) else {
        assert!(device.is_err());
        return;
    };
    assert!(found.payload.len() <= MAX_PAYLOAD);
    assert!(found.payload.is_empty() || bytes.as_ptr_range().contains(&found.payload.as_ptr()), "another's payload");
    let mut again = Vec::new();
    roce::encode(&found.addresses, &found.headers, found.payload, &mut again).expect("what was said can be said");
    assert_eq!(roce::decode(&again), Ok(found));
    let Ok((head, payload)) = device else { return };
    assert_eq!(payload, found.payload);
    // An address may look like one of the other family.
    if frame::encode(&head, payload, &mut again).is_ok() {
        assert_eq!(frame::decode(&again), Ok((head, payload)));
    }
}

/// Where the part of a frame lies that its CRC covers, by the lengths in its headers.
fn bounds(bytes: &[u8]) -> Option<(usize, usize)> {
    let word = |at: usize| Some(usize::from(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])));
    let tag = if word(12)? == 0x8100 { 4 } else { 0 };
    let start = 14 + tag;
    let end = match word(12 + tag)? {
        0x0800 => start + word(start + 2)?,
        0x86dd => start + 40 + word(start + 4)?,
        _ => return None,
    };
    let end = end.checked_sub(4)?;
    (end > start && end + 4 <= bytes.len()).then_some((start, end))
}

fn slow_crc(packet: &[u8]) -> u32 {
    let mut masked = packet.to_vec();
    let mut mask = |at: usize, bits: u8| {
        if let Some(byte) = masked.get_mut(at) {
            *byte |= bits;
        }
    };
    let network = if packet[0] >> 4 == 4 {
        [1, 8, 10, 11].into_iter().for_each(|at| mask(at, 0xff));
        20
    } else {
        mask(0, 0x0f);
        [1, 2, 3, 7].into_iter().for_each(|at| mask(at, 0xff));
        40
    };
    [6, 7, 12].into_iter().for_each(|at| mask(network + at, 0xff));
    let mut register = 0xdebb_20e3u32;
    for bit in masked.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1)) {
        let out = (register ^ u32::from(bit)) & 1;
        register = (register >> 1) ^ (0xedb8_8320 * out);
    }
    !register
}

fn gid(input: &mut Input<'_>) -> [u8; 16] {
    let mut gid = [0; 16];
    if input.one_in(2) {
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&input.u32().to_be_bytes());
    } else {
        gid = (u128::from(input.u64()) << 64 | u128::from(input.u64())).to_be_bytes();
    }
    gid
}

fn mac(input: &mut Input<'_>) -> [u8; 6] {
    let [mac @ .., _, _] = input.u64().to_be_bytes();
    mac
}

/// Any head: numbers may be too large, and fields be set that its operation has no header for.
fn head(input: &mut Input<'_>) -> Head {
    let address = Address {
        source: gid(input),
        dest: gid(input),
        source_mac: mac(input),
        dest_mac: mac(input),
        vlan: input.one_in(3).then(|| input.u16()),
        traffic_class: input.u8(),
        hop_limit: input.u8(),
        flow_label: input.number(21) as u32,
        udp_source: input.u16(),
    };
    let transport = input.pick(&[Transport::Rc, Transport::Uc, Transport::Ud, Transport::Xrc]);
    Head {
        transport,
        operation: input.pick(&Operation::CODES).0,
        dest: input.number(25) as u32,
        psn: input.number(25) as u32,
        ack_request: input.one_in(2),
        solicited: input.one_in(2),
        remote: Remote { va: input.number(64), key: input.u32(), len: input.number(32) as u32 },
        aeth: input.u32(),
        original: input.number(64),
        q_key: input.u32(),
        source_qp: input.number(25) as u32,
        immediate: input.u32(),
        srqn: input.number(25) as u32,
        address,
        ..Head::default()
    }
}

/// A frame that is right.
fn sound(input: &mut Input<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let head = head(input);
    let payload = input.below(300);
    let payload = input.bytes(payload);
    if frame::encode(&head, payload, &mut out).is_err() {
        let plain = Head { address: Address { vlan: head.address.vlan, ..Address::default() }, ..Head::default() };
        frame::encode(&plain, payload, &mut out).expect("a plain packet");
    }
    out
}

/// What is encoded is decoded, but for what has no place in a frame.
fn said(input: &mut Input<'_>) {
    let head = head(input);
    let mut payload = vec![input.u8(); input.below(MAX_PAYLOAD + 20)];
    let start = input.rest();
    let start = &start[..start.len().min(payload.len())];
    payload[..start.len()].copy_from_slice(start);
    let mut out = Vec::new();
    if frame::encode(&head, &payload, &mut out).is_err() {
        return;
    }
    assert!(out.len() <= MAX_FRAME);
    let (found, bytes) = frame::decode(&out).expect("our own frame");
    assert_eq!(bytes, payload);
    let told = |head: &Head| (head.transport, head.operation, head.dest, head.psn, head.ack_request, head.solicited);
    assert_eq!(told(&found), told(&head));
    assert_eq!((found.address.source, found.address.dest), (head.address.source, head.address.dest));
    let mut again = Vec::new();
    frame::encode(&found, bytes, &mut again).expect("what was said can be said");
    // A tag may have a priority, which a packet does not keep.
    let vlan = out[12..14] == [0x81, 0];
    assert!(vlan || again == out, "the same packet has another frame");
}
