//! Frames of any bytes: headers are found inside them or not at all, checksums that were filled in are right, and the
//! segments of a large send are the whole of it.

use cx10::wire::checksum::{fill_l3, fill_l4};
use cx10::wire::layers::{L3, L4, Layers, layers};
use cx10::wire::segment::{MIN_MSS, segment};

use crate::input::Input;
use crate::work::frame;

/// Runs one input.
pub fn run(data: &[u8]) {
    let input = &mut Input::new(data);
    let how = input.u8();
    let mut bytes = if how & 1 != 0 { frame(input.below(128), input) } else { Vec::new() };
    if how & 2 != 0 {
        let mss = usize::from(input.u16());
        let len = input.below(0x4000);
        let mut payload = input.rest().to_vec();
        payload.resize(len, how);
        split(&bytes, &payload, mss);
    } else {
        bytes.extend_from_slice(input.rest());
        let found = layers(&bytes, how & 4 != 0);
        inside(&bytes, &found);
        let found = layers(&bytes, true);
        filled(&mut bytes, &found);
    }
    crate::assert_nothing_kept();
}

fn inside(frame: &[u8], found: &Layers) {
    assert!(found.end <= frame.len(), "a packet ends behind its frame");
    if let Some((l3, at)) = found.l3 {
        let header = if l3 == L3::V4 { 20 } else { 40 };
        assert!(at >= 14 && at + header <= frame.len(), "a network header at {at} of {}", frame.len());
    }
    if let Some((l4, at)) = found.l4 {
        let (_, ip) = found.l3.expect("a transport header has a network header");
        let header = if l4 == L4::Tcp { 20 } else { 8 };
        assert!(at > ip && at + header <= frame.len(), "a transport header at {at} of {}", frame.len());
    }
}

/// Checksums are right, and the rest of the frame is as it was.
fn filled(frame: &mut [u8], found: &Layers) {
    let before = frame.to_vec();
    fill_l3(frame, found);
    fill_l4(frame, found);
    let fields = [
        found.l3.filter(|(l3, _)| *l3 == L3::V4).map(|(_, at)| at + 10),
        found.l4.map(|(l4, at)| if l4 == L4::Tcp { at + 16 } else { at + 6 }),
    ];
    for (at, (new, old)) in frame.iter().zip(&before).enumerate() {
        let is_field = fields.iter().flatten().any(|field| (*field..field + 2).contains(&at));
        assert!(is_field || new == old, "byte {at} is no checksum and changed");
    }
    if let Some((L3::V4, at)) = found.l3 {
        let header = usize::from(frame[at] & 0xf) * 4;
        assert_eq!(sum(&frame[at..at + header]), 0xffff, "the header checksum is wrong");
    }
    let (Some((l3, ip)), Some((l4, at))) = (found.l3, found.l4) else { return };
    let covered = &frame[at..found.end.max(at)];
    let addresses = match l3 {
        L3::V4 => &frame[ip + 12..ip + 20],
        L3::V6 => &frame[ip + 8..ip + 40],
    };
    let protocol = if l4 == L4::Tcp { 6 } else { 17 };
    let field = if l4 == L4::Tcp { 16 } else { 6 };
    let untouched = frame[at + field..at + field + 2] == before[at + field..at + field + 2];
    let pseudo = [addresses, &(covered.len() as u32).to_be_bytes(), &[0, 0, 0, protocol]].concat();
    let whole = sum(&[&pseudo[..], covered].concat());
    // A datagram whose length and packet disagree has no checksum that everybody would call right.
    let agrees = l4 == L4::Tcp || usize::from(u16::from_be_bytes([frame[at + 4], frame[at + 5]])) == covered.len();
    assert!(whole == 0xffff || !agrees || untouched, "the transport checksum is wrong");
}

fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = bytes.chunks(2).map(|w| u64::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn split(headers: &[u8], payload: &[u8], mss: usize) {
    let mut frames = Vec::new();
    if segment(headers, payload, mss, |frame| frames.push(frame.to_vec())).is_err() {
        assert!(frames.is_empty(), "half a message was sent");
        return;
    }
    assert!(mss >= MIN_MSS && frames.len() == payload.len().div_ceil(mss).max(1));
    let parts: Vec<u8> = frames.iter().flat_map(|frame| frame[headers.len()..].to_vec()).collect();
    assert!(parts == payload, "the segments are not the message");
    let wanted = layers(headers, false);
    for mut frame in frames {
        assert!(frame.len() <= headers.len() + mss);
        let found = layers(&frame, true);
        assert_eq!((found.l3, found.l4, found.end), (wanted.l3, wanted.l4, frame.len()));
        let sent = frame.clone();
        filled(&mut frame, &found);
        assert!(frame == sent, "a segment's checksums are wrong");
    }
}
