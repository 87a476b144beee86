//! The two directions of one connection: framed receive with descriptors, batched send.
//!
//! Nothing here allocates once a connection runs, except for messages that carry descriptors. What a client
//! can make us hold is bounded: one receive buffer, [`SEND_LIMIT`] plus one reply of send buffer, and the
//! descriptors of a few receives.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::message::{HEADER_SIZE, Header, MAX_MESSAGE};
use crate::sys;

/// With this many bytes waiting to be sent no further message is handled.
pub const SEND_LIMIT: usize = 256 * 1024;

/// Receives with descriptors whose message is not complete yet. An orderly client can cause two.
const MAX_BATCHES: usize = 4;

/// The stream cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A size that does not even cover the header.
    TooSmall(Header),
    /// A size beyond [`MAX_MESSAGE`].
    TooLarge(Header),
    /// Descriptors in the middle of a message, over and over.
    Descriptors,
}

/// One message, still in the receive buffer.
#[derive(Debug)]
pub struct Frame {
    /// Its header.
    pub header: Header,
    /// Where its payload is; see [`Receiver::payload`].
    pub payload: Range<usize>,
    /// The descriptors that came with it.
    pub fds: Vec<OwnedFd>,
    /// Descriptors came but could not be taken, or came in the middle of the message.
    pub fds_lost: bool,
}

/// What [`Receiver::fill`] found.
#[derive(Debug)]
pub enum Filled {
    /// Bytes arrived.
    Some,
    /// Nothing there now.
    Nothing,
    /// The peer has closed.
    End,
    /// The socket failed.
    Failed(io::Error),
}

/// Descriptors that arrived with the bytes before a position of the stream.
#[derive(Debug)]
struct Batch {
    end: u64,
    fds: Vec<OwnedFd>,
    lost: bool,
}

/// The receiving direction.
#[derive(Debug)]
pub struct Receiver {
    buf: Box<[u8]>,
    start: usize,
    end: usize,
    /// Position in the stream of the first byte of `buf`.
    base: u64,
    batches: VecDeque<Batch>,
    arrived: Vec<OwnedFd>,
}

impl Default for Receiver {
    fn default() -> Self {
        Receiver {
            buf: vec![0; 2 * MAX_MESSAGE].into_boxed_slice(),
            start: 0,
            end: 0,
            base: 0,
            batches: VecDeque::with_capacity(MAX_BATCHES),
            arrived: Vec::with_capacity(sys::MAX_FDS),
        }
    }
}

impl Receiver {
    /// Whether a whole message (or an unusable header) is there already.
    pub fn is_ready(&self) -> bool {
        let have = &self.buf[self.start..self.end];
        match Header::parse(have) {
            None => false,
            Some(header) => !framed(&header) || have.len() >= header.size as usize,
        }
    }

    /// Takes the next whole message.
    pub fn take_frame(&mut self) -> Result<Option<Frame>, Framing> {
        let have = &self.buf[self.start..self.end];
        let Some(header) = Header::parse(have) else { return Ok(None) };
        let size = header.size as usize;
        if size < HEADER_SIZE {
            return Err(Framing::TooSmall(header));
        }
        if size > MAX_MESSAGE {
            return Err(Framing::TooLarge(header));
        }
        if have.len() < size {
            return Ok(None);
        }
        let payload = self.start + HEADER_SIZE..self.start + size;
        self.start += size;
        let (fds, fds_lost) = self.take_fds(self.base + self.start as u64);
        Ok(Some(Frame { header, payload, fds, fds_lost }))
    }

    /// The payload of the frame that `take_frame` returned last.
    pub fn payload(&self, frame: &Frame) -> &[u8] {
        &self.buf[frame.payload.clone()]
    }

    /// Receives once. To be called when no whole message is left; invalidates frames.
    pub fn fill(&mut self, stream: &UnixStream) -> Result<Filled, Framing> {
        if self.start == self.end {
            self.base += self.end as u64;
            (self.start, self.end) = (0, 0);
        } else if self.buf.len() - self.end < MAX_MESSAGE {
            self.buf.copy_within(self.start..self.end, 0);
            self.base += self.start as u64;
            (self.start, self.end) = (0, self.end - self.start);
        }
        let received = loop {
            match sys::receive(stream.as_fd(), &mut self.buf[self.end..], &mut self.arrived) {
                Ok(received) => break received,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return Ok(Filled::Nothing),
                    _ => return Ok(Filled::Failed(error)),
                },
            }
        };
        self.end += received.bytes;
        if received.fds > 0 || received.fds_lost {
            if self.batches.len() >= MAX_BATCHES {
                return Err(Framing::Descriptors);
            }
            let fds = self.arrived.drain(..).collect();
            self.batches.push_back(Batch { end: self.base + self.end as u64, fds, lost: received.fds_lost });
        }
        Ok(if received.bytes == 0 { Filled::End } else { Filled::Some })
    }

    /// The descriptors of the message that ends at stream position `end`.
    ///
    /// A client sends a message with one call and its descriptors ride on the first byte, so they belong to
    /// the last message that begins before the end of the receive that brought them.
    fn take_fds(&mut self, end: u64) -> (Vec<OwnedFd>, bool) {
        let mut taken: Option<Batch> = None;
        while self.batches.front().is_some_and(|batch| batch.end <= end) {
            let batch = self.batches.pop_front();
            // A second batch inside the same message: descriptors in its middle.
            let middle = taken.is_some();
            taken = batch.map(|batch| Batch { lost: batch.lost || middle, ..batch });
        }
        match taken {
            Some(batch) if batch.lost => (Vec::new(), true),
            Some(batch) => (batch.fds, false),
            None => (Vec::new(), false),
        }
    }
}

fn framed(header: &Header) -> bool {
    (HEADER_SIZE..=MAX_MESSAGE).contains(&(header.size as usize))
}

/// The sending direction. Replies gather here and leave with one call.
#[derive(Debug, Default)]
pub struct Sender {
    buf: Vec<u8>,
    sent: usize,
    /// Descriptors and the position in `buf` of the byte they ride on.
    fds: VecDeque<(usize, Arc<OwnedFd>)>,
}

impl Sender {
    /// Bytes that have not left yet.
    pub fn pending(&self) -> usize {
        self.buf.len() - self.sent
    }

    /// No more replies should be made before some have left.
    pub fn is_full(&self) -> bool {
        self.pending() >= SEND_LIMIT
    }

    /// Appends a message.
    pub fn push(&mut self, header: Header, payload: &[u8]) {
        self.buf.extend_from_slice(&header.to_bytes());
        self.buf.extend_from_slice(payload);
    }

    /// Appends a message with a descriptor.
    pub fn push_with_fd(&mut self, header: Header, payload: &[u8], fd: Arc<OwnedFd>) {
        self.fds.push_back((self.buf.len(), fd));
        self.push(header, payload);
    }

    /// Appends a message whose last `len` bytes are written by `fill`; takes it back if that fails.
    pub fn push_filled<E>(
        &mut self,
        header: Header,
        head: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mark = self.buf.len();
        self.push(header, head);
        let data = self.buf.len();
        self.buf.resize(data + len, 0);
        let result = fill(&mut self.buf[data..]);
        if result.is_err() {
            self.buf.truncate(mark);
        }
        result
    }

    /// Sends what the socket takes; `true` if nothing is left.
    pub fn flush(&mut self, stream: &UnixStream) -> io::Result<bool> {
        while self.sent < self.buf.len() {
            let fd = self.fds.front().filter(|(at, _)| *at == self.sent).map(|(_, fd)| fd.clone());
            let next = self.fds.iter().map(|(at, _)| *at).find(|at| *at > self.sent);
            let piece = &self.buf[self.sent..next.unwrap_or(self.buf.len())];
            let result = match &fd {
                Some(fd) => sys::send(stream.as_fd(), piece, &[fd.as_fd()]),
                None => sys::send(stream.as_fd(), piece, &[]),
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.sent += bytes;
                    if fd.is_some() {
                        self.fds.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.compact();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        self.buf.clear();
        self.sent = 0;
        Ok(true)
    }

    fn compact(&mut self) {
        if self.sent >= SEND_LIMIT / 4 {
            self.buf.drain(..self.sent);
            self.fds.iter_mut().for_each(|(at, _)| *at -= self.sent);
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Command;
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::BorrowedFd;

    fn message(id: u16, size: u32, body: usize) -> Vec<u8> {
        let header = Header { id, command: Command::RESET, size, flags: 0, error: 0 };
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(HEADER_SIZE + body, id as u8);
        bytes
    }

    fn plain(id: u16, body: usize) -> Vec<u8> {
        message(id, (HEADER_SIZE + body) as u32, body)
    }

    fn put(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        assert_eq!(sys::send(stream.as_fd(), bytes, fds).unwrap(), bytes.len());
    }

    fn ids(receiver: &mut Receiver) -> Vec<(u16, usize)> {
        let mut ids = Vec::new();
        while let Some(frame) = receiver.take_frame().unwrap() {
            assert!(!frame.fds_lost);
            assert!(receiver.payload(&frame).iter().all(|b| *b == frame.header.id as u8));
            ids.push((frame.header.id, frame.fds.len()));
        }
        ids
    }

    #[test]
    fn messages_are_framed_however_the_bytes_arrive() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut receiver = Receiver::default();
        let bytes = [plain(1, 0), plain(2, 5), plain(3, 40)].concat();
        let mut got = Vec::new();
        for byte in &bytes {
            put(&a, &[*byte], &[]);
            assert!(matches!(receiver.fill(&b), Ok(Filled::Some)));
            got.extend(ids(&mut receiver));
        }
        assert_eq!(got, [(1, 0), (2, 0), (3, 0)]);
        put(&a, &bytes, &[]);
        assert!(matches!(receiver.fill(&b), Ok(Filled::Some)));
        assert!(receiver.is_ready());
        assert_eq!(ids(&mut receiver), [(1, 0), (2, 0), (3, 0)]);
        assert!(!receiver.is_ready());
        assert!(matches!(receiver.fill(&b), Ok(Filled::Nothing)));
        drop(a);
        assert!(matches!(receiver.fill(&b), Ok(Filled::End)));
    }

    #[test]
    fn a_stream_of_large_messages_wraps_the_buffer() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut receiver = Receiver::default();
        let big = plain(7, MAX_MESSAGE - HEADER_SIZE);
        let writer = std::thread::spawn(move || {
            for _ in 0..20 {
                (&a).write_all(&big).unwrap();
            }
        });
        let mut count = 0;
        while count < 20 {
            match receiver.fill(&b).unwrap() {
                Filled::Nothing => std::thread::yield_now(),
                Filled::Some => count += ids(&mut receiver).len(),
                other => panic!("{other:?}"),
            }
        }
        writer.join().unwrap();
    }

    #[test]
    fn unusable_sizes_are_told_from_short_messages() {
        for (size, want) in [
            (0u32, true),
            (15, true),
            (16, false),
            (MAX_MESSAGE as u32, false),
            (MAX_MESSAGE as u32 + 1, true),
            (u32::MAX, true),
        ] {
            let (a, b) = UnixStream::pair().unwrap();
            let mut receiver = Receiver::default();
            put(&a, &message(1, size, 0), &[]);
            receiver.fill(&b).unwrap();
            assert_eq!(receiver.take_frame().is_err(), want, "size {size:#x}");
        }
    }

    #[test]
    fn descriptors_stay_with_their_message() {
        let (a, b) = UnixStream::pair().unwrap();
        let fd = sys::eventfd(true).unwrap();
        let mut receiver = Receiver::default();
        put(&a, &plain(1, 4), &[]);
        put(&a, &plain(2, 4), &[fd.as_fd(), fd.as_fd()]);
        put(&a, &plain(3, 4), &[]);
        put(&a, &plain(4, 4), &[fd.as_fd()]);
        let mut got = Vec::new();
        while let Ok(Filled::Some) = receiver.fill(&b) {
            got.extend(ids(&mut receiver));
        }
        assert_eq!(got, [(1, 0), (2, 2), (3, 0), (4, 1)]);
    }

    #[test]
    fn descriptors_stay_with_a_message_that_arrives_in_parts() {
        let (a, b) = UnixStream::pair().unwrap();
        let fd = sys::eventfd(true).unwrap();
        let mut receiver = Receiver::default();
        let (first, second) = (plain(1, 20), plain(2, 20));
        put(&a, &first[..3], &[fd.as_fd()]);
        receiver.fill(&b).unwrap();
        assert_eq!(ids(&mut receiver), []);
        put(&a, &first[3..], &[]);
        put(&a, &second[..18], &[fd.as_fd(), fd.as_fd()]);
        receiver.fill(&b).unwrap();
        assert_eq!(ids(&mut receiver), [(1, 1)]);
        put(&a, &second[18..], &[]);
        receiver.fill(&b).unwrap();
        assert_eq!(ids(&mut receiver), [(2, 2)]);
    }

    #[test]
    fn descriptors_in_the_middle_of_a_message_are_refused_with_it() {
        let (a, b) = UnixStream::pair().unwrap();
        let fd = sys::eventfd(true).unwrap();
        let mut receiver = Receiver::default();
        let bytes = plain(1, 20);
        for piece in [&bytes[..3], &bytes[3..]] {
            put(&a, piece, &[fd.as_fd()]);
            receiver.fill(&b).unwrap();
        }
        let frame = receiver.take_frame().unwrap().unwrap();
        assert!(frame.fds_lost);
        assert!(frame.fds.is_empty());
    }

    #[test]
    fn descriptors_cannot_be_piled_up_on_an_unfinished_message() {
        let (a, b) = UnixStream::pair().unwrap();
        let fd = sys::eventfd(true).unwrap();
        let mut receiver = Receiver::default();
        let mut results = Vec::new();
        for byte in &plain(1, 20)[..10] {
            put(&a, &[*byte], &[fd.as_fd(); 16]);
            results.push(receiver.fill(&b).is_ok());
        }
        assert_eq!(results.iter().filter(|ok| **ok).count(), MAX_BATCHES);
    }

    #[test]
    fn a_reply_that_failed_to_be_filled_leaves_nothing_behind() {
        let (a, b) = UnixStream::pair().unwrap();
        let header = Header { id: 1, command: Command::RESET, size: 16, flags: 0, error: 0 };
        let mut sender = Sender::default();
        sender.push_filled(header.reply(4), &[], 4, |_| Err(())).unwrap_err();
        assert_eq!(sender.pending(), 0);
        sender
            .push_filled(header.reply(4), &[], 4, |data| {
                data.fill(5);
                Ok::<(), ()>(())
            })
            .unwrap();
        assert!(sender.flush(&a).unwrap());
        let mut got = [0; 20];
        (&b).read_exact(&mut got).unwrap();
        assert_eq!(got[16..], [5; 4]);
    }

    #[test]
    fn descriptors_ride_on_the_first_byte_of_their_message() {
        let (a, b) = UnixStream::pair().unwrap();
        let fd = Arc::new(sys::eventfd(true).unwrap());
        let header = Header { id: 1, command: Command::RESET, size: 16, flags: 0, error: 0 };
        let mut sender = Sender::default();
        sender.push(header, &[]);
        sender.push_with_fd(header, &[0; 4], fd.clone());
        sender.push_with_fd(header, &[0; 8], fd);
        sender.push(header, &[]);
        assert!(sender.flush(&a).unwrap());
        let mut fds = Vec::new();
        let mut sizes = Vec::new();
        while let Ok(received) = sys::receive(b.as_fd(), &mut [0; 256], &mut fds) {
            sizes.push((received.bytes, received.fds));
        }
        assert_eq!(sizes, [(36, 1), (40, 1)]);
    }

    #[test]
    fn a_client_that_does_not_read_is_waited_for_with_bounded_memory() {
        let (a, b) = UnixStream::pair().unwrap();
        let header = Header { id: 1, command: Command::RESET, size: 16, flags: 0, error: 0 };
        let mut sender = Sender::default();
        let mut pushed = 0usize;
        for _ in 0..3 {
            while !sender.is_full() {
                sender.push(header, &[0x5a; 4096]);
                pushed += 4112;
            }
            assert!(!sender.flush(&a).unwrap());
        }
        assert!(sender.buf.capacity() < 4 * SEND_LIMIT);
        let mut read = 0;
        let mut buf = vec![0; 1 << 16];
        while read < pushed {
            read += (&b).read(&mut buf).unwrap();
            sender.flush(&a).unwrap();
        }
        assert_eq!((read, sender.pending()), (pushed, 0));
    }
}
