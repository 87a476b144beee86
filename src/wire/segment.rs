//! Segmentation of large sends: one set of headers, many packets (kernel `en_tx.c`; the rules are those of
//! `net/core/gso.c` for TCP and for UDP with equal datagrams).

use super::checksum::{fill_l3, fill_l4};
use super::layers::{L3, L4, be16, be32, layers, put16, put32, tcp_header};

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Smallest segment that is made; smaller ones would multiply headers without bound. Linux sends none below 48.
pub const MIN_MSS: usize = 32;

/// Why a large send cannot be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The headers are not TCP or UDP over IP, or do not end where the payload begins.
    #[error("the inline headers are not whole TCP/IP or UDP/IP headers")]
    Headers,
    /// The segment size is out of bounds.
    #[error("the segment size is out of bounds")]
    Mss,
}

/// A large send: packets of at most `mss` bytes of payload behind copies of the headers.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    headers: &'a [u8],
    payload: &'a [u8],
    mss: usize,
    l3: (L3, usize),
    l4: (L4, usize),
}

impl<'a> Segments<'a> {
    /// The packets of a large send, if it can be segmented.
    pub fn new(headers: &'a [u8], payload: &'a [u8], mss: usize) -> Result<Segments<'a>, SegmentError> {
        if !(MIN_MSS..=0xffff).contains(&mss) {
            return Err(SegmentError::Mss);
        }
        let found = layers(headers, false);
        let (Some(l3), Some((l4, at))) = (found.l3, found.l4) else { return Err(SegmentError::Headers) };
        let header = match l4 {
            L4::Tcp => tcp_header(headers, at),
            L4::Udp => 8,
        };
        if header == 0 || at + header != headers.len() {
            return Err(SegmentError::Headers);
        }
        Ok(Segments { headers, payload, mss, l3, l4: (l4, at) })
    }

    /// How many packets there are; at least one.
    pub fn count(&self) -> usize {
        self.payload.len().div_ceil(self.mss).max(1)
    }

    /// Makes packet `i` in `frame`, in place of what is there. Lengths, IPv4 identification, TCP sequence number and
    /// flags, and all checksums are those of a packet of its own.
    pub fn build(&self, i: usize, frame: &mut Vec<u8>) {
        let (headers, (l3, ip), (l4, at)) = (self.headers, self.l3, self.l4);
        let from = self.payload.len().min(i * self.mss);
        let part = &self.payload[from..self.payload.len().min(from + self.mss)];
        frame.clear();
        frame.extend_from_slice(headers);
        frame.extend_from_slice(part);
        let len = frame.len();
        match l3 {
            L3::V4 => {
                put16(frame, ip + 2, (len - ip) as u16);
                put16(frame, ip + 4, be16(headers, ip + 4).wrapping_add(i as u16));
            }
            L3::V6 => put16(frame, ip + 4, (len - ip - 40) as u16),
        }
        match l4 {
            L4::Tcp => {
                put32(frame, at + 4, be32(headers, at + 4).wrapping_add(from as u32));
                let mut flags = headers[at + 13];
                if i + 1 < self.count() {
                    flags &= !(TCP_FIN | TCP_PSH);
                }
                if i > 0 {
                    flags &= !TCP_CWR;
                }
                frame[at + 13] = flags;
            }
            L4::Udp => put16(frame, at + 4, (len - at) as u16),
        }
        let found = layers(frame, true);
        fill_l3(frame, &found);
        fill_l4(frame, &found);
    }
}

/// Makes all packets of a large send one after the other and hands each to `each`.
pub fn segment(headers: &[u8], payload: &[u8], mss: usize, mut each: impl FnMut(&[u8])) -> Result<(), SegmentError> {
    let segments = Segments::new(headers, payload, mss)?;
    let mut frame = Vec::new();
    for i in 0..segments.count() {
        segments.build(i, &mut frame);
        each(&frame);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::layers::tests::{tcp, v4, v6};
    use super::*;

    fn split(headers: &[u8], payload: &[u8], mss: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        segment(headers, payload, mss, |frame| frames.push(frame.to_vec())).expect("whole headers");
        frames
    }

    #[test]
    fn tcp_segments_are_packets_of_their_own() {
        let payload: Vec<u8> = (0..250).map(|i| i as u8).collect();
        let frames = split(&v4(6, &tcp(0xffff_fff0, TCP_CWR | TCP_PSH | TCP_FIN | 0x10)), &payload, 100);
        let seen: Vec<_> = frames.iter().map(|f| (be16(f, 16), be16(f, 18), be32(f, 38), f[47])).collect();
        assert_eq!(
            seen,
            [
                (140, 1, 0xffff_fff0, TCP_CWR | 0x10),
                (140, 2, 0x0000_0054, 0x10),
                (90, 3, 0x0000_00b8, TCP_PSH | TCP_FIN | 0x10)
            ]
        );
        assert_eq!(frames.iter().flat_map(|f| f[54..].to_vec()).collect::<Vec<_>>(), payload);
        for mut frame in frames {
            let before = frame.clone();
            let found = layers(&frame, true);
            assert_eq!(found.end, frame.len());
            fill_l3(&mut frame, &found);
            fill_l4(&mut frame, &found);
            assert_eq!(frame, before, "checksums were right");
        }
    }

    #[test]
    fn udp_segments_have_their_own_lengths() {
        let frames = split(&v6(17, &[0, 1, 0, 2, 0, 0, 0, 0]), &[7; 100], 60);
        let seen: Vec<_> = frames.iter().map(|f| (be16(f, 18), be16(f, 58))).collect();
        assert_eq!(seen, [(68, 68), (48, 48)]);
    }

    #[test]
    fn a_send_that_needs_no_split_is_one_packet() {
        assert_eq!(split(&v4(6, &tcp(1, 0x10)), &[1, 2, 3], 1460).len(), 1);
        assert_eq!(split(&v4(6, &tcp(1, 0x10)), &[], 1460).len(), 1);
        assert_eq!(split(&v4(6, &tcp(1, 0x10)), &[0; 2920], 1460).len(), 2);
    }

    #[test]
    fn headers_that_are_not_whole_are_refused() {
        let headers = v4(6, &tcp(1, 0x10));
        let try_split = |headers: &[u8], mss| segment(headers, &[0; 10], mss, |_| {});
        assert_eq!(try_split(&headers[..headers.len() - 1], 100), Err(SegmentError::Headers));
        assert_eq!(try_split(&[headers.clone(), vec![0]].concat(), 100), Err(SegmentError::Headers));
        assert_eq!(try_split(&v4(1, &[0; 8]), 100), Err(SegmentError::Headers));
        assert_eq!(try_split(&[], 100), Err(SegmentError::Headers));
        assert_eq!(try_split(&headers, MIN_MSS - 1), Err(SegmentError::Mss));
        assert_eq!(try_split(&headers, 0x10000), Err(SegmentError::Mss));
    }
}
