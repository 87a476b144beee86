//! From scatter lists and keys to bytes: what a packet's payload is made of, and where it is put.
//!
//! A payload is walked to when its packet is made ([`Reach`]); its first parts go with the packet. Putting it walks to
//! the target and moves each piece once: memory to memory without a buffer between. Where accesses are reordered it moves
//! runs of pieces ([`ordered`]).

mod ordered;

use super::TRAIN_PARTS;
use super::entry::{DATA_SEGMENT, SendEntry};
use super::packet::{Head, MAX_PARTS, Packet, Part, Payload};
use crate::device::memic::DeviceMemory;
use crate::device::objects::Objects;
use crate::device::qp::QueuePair;
use crate::dma::bus::{BusError, CopyError};
use crate::dma::{Bus, Fence, Load, Store, StoreClass, Stream, Wait};
use crate::mkey::translate::{
    Access, KeyError, KeySpace, Missing, Piece, Place, Request, Walk, allowed, direct, resolve,
};
use crate::prm::wqe::DataSeg;

/// Why memory cannot be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// A key does not allow it.
    #[error("key: {0}")]
    Key(#[from] KeyError),
    /// The bus does not allow it.
    #[error("bus: {0}")]
    Bus(#[from] BusError),
    /// The scatter list ends before the data does.
    #[error("the scatter list is too short")]
    Short,
    /// The data is in too many parts for a train.
    #[error("the data is in too many parts")]
    Scattered,
    /// What sent the packet is gone, or works on another entry.
    #[error("the payload is gone")]
    Gone,
}

/// For whom memory is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// Protection domain.
    pub pd: u32,
    /// Queue pair.
    pub qpn: u32,
    /// Whether the reserved lkey may be used.
    pub reserved_lkey: bool,
}

impl Who {
    fn request(self, key: u32, va: u64, len: u64, access: Access) -> Request {
        let Who { pd, qpn, reserved_lkey } = self;
        Request { key, va, len, access, pd, qpn, reserved_lkey }
    }
}

/// What memory is looked up in, but for the device memory and the bus.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    /// All objects.
    pub objects: &'a Objects,
    /// What the capabilities say about keys.
    pub space: &'a KeySpace,
}

/// A walk to bytes: through the segments of a list, or through one key.
#[derive(Debug)]
pub struct Reach<'a> {
    keys: Keys<'a>,
    who: Who,
    access: Access,
    /// The key and the address in it, if that is all.
    to: Option<(u32, u64)>,
    /// Segments that are not walked to yet, and where they begin in their entry.
    segments: &'a [u8],
    at: usize,
    /// Bytes to leave out before the first one.
    skip: u64,
    left: u64,
    walk: Option<Walk<'a>>,
}

/// In a receive entry, the key that ends a list shorter than its stride.
const TERMINATOR: u32 = 0x100;

/// What a segment of a list comes to.
enum Segment {
    /// Bytes in the entry itself.
    Inline { from: u16, len: u16 },
    /// Memory behind a key.
    Memory { key: u32, va: u64, len: u64 },
    /// Nothing that is wanted.
    Passed,
}

impl<'a> Reach<'a> {
    /// `len` bytes behind the first `offset` bytes of a list that begins `at` bytes into its entry.
    #[inline]
    pub fn list(
        keys: Keys<'a>,
        who: Who,
        access: Access,
        entry: &'a [u8],
        at: usize,
        offset: u64,
        len: u64,
    ) -> Reach<'a> {
        let segments = entry.get(at..).unwrap_or_default();
        Reach { keys, who, access, to: None, segments, at, skip: offset, left: len, walk: None }
    }

    /// `len` bytes at `va` of a key.
    #[inline]
    pub fn key(keys: Keys<'a>, who: Who, access: Access, key: u32, va: u64, len: u64) -> Reach<'a> {
        let to = Some((key, va));
        Reach { keys, who, access, to, segments: &[], at: 0, skip: 0, left: len, walk: None }
    }

    /// Whether `len` bytes at `va` of a key may be accessed so, as far as the key itself tells.
    pub fn check_key(keys: Keys<'_>, who: Who, access: Access, key: u32, va: u64, len: u64) -> Result<(), KeyError> {
        allowed(keys.objects, keys.space, &who.request(key, va, len, access))
    }

    /// The next part, or `None` after the last.
    #[inline]
    pub fn advance(&mut self) -> Result<Option<Part>, MemoryError> {
        loop {
            if self.left == 0 {
                return Ok(None);
            }
            if let Some(walk) = &mut self.walk {
                if let Some(piece) = walk.next() {
                    let piece = piece?;
                    self.left -= piece.len.min(self.left);
                    return Ok(Some(Part::Piece(piece)));
                }
                self.walk = None;
            }
            let (key, va, len) = match self.to.take() {
                Some((key, va)) => (key, va, self.left),
                None => match self.segment()? {
                    Segment::Inline { from, len } => return Ok(Some(Part::Inline { from, len })),
                    Segment::Memory { key, va, len } => (key, va, len),
                    Segment::Passed => continue,
                },
            };
            let Keys { objects, space } = self.keys;
            let request = self.who.request(key, va, len, self.access);
            if let Some(piece) = direct(objects, space, &request)? {
                self.left -= piece.len.min(self.left);
                return Ok(Some(Part::Piece(piece)));
            }
            self.walk = Some(resolve(objects, space, &request)?);
        }
    }

    /// Where it meets a page that is not there.
    pub fn missing(mut self) -> Option<Missing> {
        let mut before = 0;
        while self.left > 0 {
            let (key, va, len) = match self.to.take() {
                Some((key, va)) => (key, va, self.left),
                None => match self.segment().ok()? {
                    Segment::Inline { len, .. } => {
                        before += u64::from(len);
                        continue;
                    }
                    Segment::Memory { key, va, len } => (key, va, len),
                    Segment::Passed => continue,
                },
            };
            let Keys { objects, space } = self.keys;
            let mut walk = resolve(objects, space, &self.who.request(key, va, len, self.access)).ok()?;
            for piece in walk.by_ref() {
                match piece {
                    Ok(piece) => before += piece.len,
                    Err(error) if error.is_fault() => return Some(Missing { before, ..walk.missing()? }),
                    Err(_) => return None,
                }
            }
            self.left -= len.min(self.left);
        }
        None
    }

    /// Enters the next segment; inline data is a part of its own.
    #[inline]
    fn segment(&mut self) -> Result<Segment, MemoryError> {
        let segment = DataSeg::new(self.segments.get(..DATA_SEGMENT).ok_or(MemoryError::Short)?);
        let segment = segment.map_err(|_| MemoryError::Short)?;
        let receives = self.access == Access::LocalWrite;
        if segment.inline() != 0 && !receives {
            const HEAD: usize = 4;
            let count = (segment.byte_count() & 0x3ff) as usize;
            let taken = (HEAD + count).next_multiple_of(DATA_SEGMENT);
            let start = self.at + HEAD;
            self.pass(taken);
            let skipped = self.skip.min(count as u64);
            self.skip -= skipped;
            let len = (count as u64 - skipped).min(self.left);
            if len == 0 {
                return Ok(Segment::Passed);
            }
            self.left -= len;
            let from = u16::try_from(start as u64 + skipped).map_err(|_| MemoryError::Short)?;
            return Ok(Segment::Inline { from, len: len as u16 });
        }
        let (len, key, va) = (u64::from(segment.byte_count()), segment.lkey(), segment.addr());
        if receives && len == 0 && key == TERMINATOR {
            return Err(MemoryError::Short);
        }
        self.pass(DATA_SEGMENT);
        if self.skip >= len {
            self.skip -= len;
            return Ok(Segment::Passed);
        }
        let va = va.checked_add(self.skip).ok_or(KeyError::Bounds)?;
        let len = (len - self.skip).min(self.left);
        self.skip = 0;
        Ok(Segment::Memory { key, va, len })
    }

    fn pass(&mut self, bytes: usize) {
        self.segments = self.segments.get(bytes..).unwrap_or_default();
        self.at += bytes;
    }
}

/// Checks that the bytes of `reach` can be read, and makes a payload of them: the parts if they are few, else `many`. Also
/// answers how many parts there are; where accesses are reordered, how many steps. With more than `most` of them it
/// stops: [`MemoryError::Scattered`].
pub fn payload(
    reach: &mut Reach<'_>,
    many: Payload,
    most: usize,
    bus: &mut Bus,
) -> Result<(Payload, usize), MemoryError> {
    let mut parts = [None; MAX_PARTS];
    let (mut count, mut steps) = (0, 0);
    let reorders = bus.reorders();
    while let Some(part) = reach.advance()? {
        steps += match part {
            Part::Piece(piece) if reorders => ordered::steps(&piece),
            _ => 1,
        };
        if steps > most {
            return Err(MemoryError::Scattered);
        }
        if let Part::Piece(Piece { place: Place::Memory(iova), len, order, key }) = part {
            let qpn = reach.who.qpn;
            let stream =
                if reach.access == Access::RemoteRead { Stream::Responder(qpn) } else { Stream::Requester(qpn) };
            let load = Load::payload(stream, order, key, Wait::default());
            bus.check_load(load, iova, len)?;
        }
        if let Some(slot) = parts.get_mut(count) {
            *slot = Some(part);
        }
        count += 1;
    }
    let payload = match count {
        0 => Payload::None,
        1..=MAX_PARTS => Payload::Parts { parts },
        _ => many,
    };
    Ok((payload, steps))
}

/// As [`payload`] for `len` bytes that are all that `segments` name and lie in one piece, as most do: that takes no walk.
/// `None` if it is not so, their key does not allow it, or accesses are reordered; then nothing has happened.
#[inline(always)]
pub fn payload_piece(
    keys: Keys<'_>,
    who: Who,
    segments: &[u8],
    len: u64,
    bus: &mut Bus,
) -> Option<Result<Piece, MemoryError>> {
    if segments.len() != DATA_SEGMENT || bus.reorders() {
        return None;
    }
    let segment = DataSeg::wrap(segments);
    if segment.inline() != 0 || u64::from(segment.byte_count()) != len {
        return None;
    }
    let request = who.request(segment.lkey(), segment.addr(), len, Access::LocalRead);
    let piece = direct(keys.objects, keys.space, &request).ok()??;
    if let Place::Memory(iova) = piece.place {
        let load = Load::payload(Stream::Requester(who.qpn), piece.order, piece.key, Wait::default());
        if let Err(error) = bus.check_load(load, iova, len) {
            return Some(Err(error.into()));
        }
    }
    Some(Ok(piece))
}

/// Where payload comes from: a walk, which lies elsewhere, the parts of a packet, or bytes.
enum Source<'r, 'a> {
    Reach(&'r mut Reach<'a>),
    Parts(std::slice::Iter<'a, Option<Part>>),
    Bytes(&'a [u8]),
    None,
}

/// A part, with its bytes if it has them.
#[derive(Clone, Copy)]
enum Chunk<'a> {
    Bytes(&'a [u8]),
    Piece(Piece),
}

impl Chunk<'_> {
    fn len(&self) -> u64 {
        match self {
            Chunk::Bytes(bytes) => bytes.len() as u64,
            Chunk::Piece(piece) => piece.len,
        }
    }

    /// The first `len` bytes taken off.
    fn advance(&mut self, len: u64) {
        match self {
            Chunk::Bytes(bytes) => *bytes = bytes.get(len as usize..).unwrap_or_default(),
            Chunk::Piece(piece) => advance(piece, len),
        }
    }
}

/// Takes the first `len` bytes off a piece.
fn advance(piece: &mut Piece, len: u64) {
    piece.len -= len.min(piece.len);
    piece.place = match piece.place {
        Place::Memory(iova) => Place::Memory(crate::dma::Iova(iova.0.wrapping_add(len))),
        Place::Device(at) => Place::Device(at.wrapping_add(len)),
        Place::Nowhere => Place::Nowhere,
    };
}

impl<'a> Source<'_, 'a> {
    /// The next chunk; `entry` is what inline parts are in.
    fn next(&mut self, entry: Option<&'a SendEntry>) -> Result<Option<Chunk<'a>>, MemoryError> {
        let part = match self {
            Source::None => return Ok(None),
            Source::Bytes(bytes) => return Ok(Some(std::mem::take(bytes)).filter(|b| !b.is_empty()).map(Chunk::Bytes)),
            Source::Parts(parts) => parts.next().copied().flatten(),
            Source::Reach(reach) => reach.advance()?,
        };
        Ok(match part {
            None => None,
            Some(Part::Piece(piece)) => Some(Chunk::Piece(piece)),
            Some(Part::Inline { from, len }) => {
                let bytes = entry.and_then(|entry| entry.bytes(from.into(), len.into())).ok_or(MemoryError::Gone)?;
                Some(Chunk::Bytes(bytes))
            }
        })
    }
}

/// What became of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// In how many parts the target was.
    pub parts: usize,
    /// Bytes that are received: all, or those of the first packets of a train.
    pub len: u32,
}

/// Which side of a move failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The payload.
    #[error("source: {0}")]
    Source(MemoryError),
    /// Where it was to go.
    #[error("target: {0}")]
    Target(MemoryError),
}

/// On whose behalf payload moves, and what that waits for.
#[derive(Clone, Copy)]
struct Route {
    class: StoreClass,
    /// The side that sends.
    from: Stream,
    load: Wait,
    /// The side that receives.
    to: Stream,
    store: Wait,
}

impl Route {
    /// That of the payload of a packet to `qpn`.
    #[inline]
    fn of(head: &Head, qpn: u32, class: StoreClass) -> Route {
        let none = Wait::default();
        if head.operation.is_response() {
            let (from, to) = (Stream::Responder(head.source), Stream::Requester(qpn));
            return Route { class, from, load: none, to, store: none };
        }
        Route { class, from: Stream::Requester(head.source), load: none, to: Stream::Responder(qpn), store: none }
    }

    /// The same where accesses may be reordered: what the packet's fences hold it behind.
    #[cold]
    fn fenced(mut self, head: &Head, objects: &Objects) -> Route {
        let sender = objects.qps.get(head.source).map(|entry| &entry.object.flow);
        if head.operation.is_response() {
            let after = sender.and_then(|flow| flow.responder.after);
            self.load = Wait { fence: head.fence, after };
            self.store = Wait { fence: head.fence, after: None };
        } else {
            let after = sender.and_then(|flow| flow.requester.fenced);
            // What a small fence waits for is at the requester.
            let fence = if head.fence == Fence::Local { Fence::None } else { head.fence };
            self.load = Wait { fence: head.fence, after };
            self.store = Wait { fence, after };
        }
        self
    }

    fn load(&self, piece: &Piece) -> Load {
        Load::payload(self.from, piece.order, piece.key, self.load)
    }

    fn store(&self, piece: &Piece) -> Store {
        let Route { class, to, store, .. } = *self;
        Store { class, stream: to, key: piece.order, index: piece.key, chain: None, wait: store }
    }
}

impl From<CopyError> for MoveError {
    fn from(error: CopyError) -> MoveError {
        match error {
            CopyError::Source(error) => MoveError::Source(error.into()),
            CopyError::Target(error) => MoveError::Target(error.into()),
        }
    }
}

/// Memory and what leads to it.
#[derive(Debug)]
pub struct Memory<'a> {
    /// Keys.
    pub keys: Keys<'a>,
    /// Device memory.
    pub device: &'a mut DeviceMemory,
    /// Guest memory.
    pub bus: &'a mut Bus,
}

impl<'a> Memory<'a> {
    /// Where the payload of a packet comes from, and the entry that it may be in. `walk` is the place for a walk.
    fn source<'r>(
        &self,
        packet: &'a Packet,
        walk: &'r mut Option<Reach<'a>>,
    ) -> Result<(Source<'r, 'a>, Option<&'a SendEntry>), MemoryError> {
        let keys = self.keys;
        let sender = || keys.objects.qps.get(packet.head.source).map(|entry| &entry.object);
        let entry = |sender: Option<&'a QueuePair>| sender.and_then(|qp| qp.flow.requester.entry.as_deref());
        Ok(match &packet.payload {
            Payload::None => (Source::None, None),
            Payload::Held(bytes) => (Source::Bytes(bytes), None),
            Payload::Short { bytes } => (Source::Bytes(bytes.get(..packet.len as usize).unwrap_or(bytes)), None),
            Payload::Parts { parts } => {
                let inline = parts.iter().any(|part| matches!(part, Some(Part::Inline { .. })));
                (Source::Parts(parts.iter()), if inline { entry(sender()) } else { None })
            }
            Payload::Entry { offset } => {
                let sender = sender().ok_or(MemoryError::Gone)?;
                let send = entry(Some(sender)).ok_or(MemoryError::Gone)?;
                let who = sender.flow.settings.who(packet.head.source);
                let (bytes, at) = send.data();
                let offset = u64::from(*offset);
                let reach = Reach::list(keys, who, Access::LocalRead, bytes, at, offset, packet.len.into());
                (Source::Reach(walk.insert(reach)), Some(send))
            }
            Payload::Key { key, va, pd } => {
                let sender = sender().ok_or(MemoryError::Gone)?;
                let who = Who { pd: *pd, ..sender.flow.settings.who(packet.head.source) };
                let reach = Reach::key(keys, who, Access::RemoteRead, *key, *va, packet.len.into());
                (Source::Reach(walk.insert(reach)), None)
            }
        })
    }

    /// Moves the payload of `packet` to `target`, which has room for it. Of a train to a target in more than
    /// [`TRAIN_PARTS`] parts only the first packets of `mtu` bytes are put, one at least. Bytes behind them may have
    /// come too; they come again.
    pub fn put(
        &mut self,
        packet: &'a Packet,
        target: &mut Reach<'_>,
        class: StoreClass,
        mtu: u32,
    ) -> Result<Put, MoveError> {
        if self.bus.reorders() {
            return self.put_in_runs(packet, target, class, mtu);
        }
        let mut walk = None;
        let (mut source, entry) = self.source(packet, &mut walk).map_err(MoveError::Source)?;
        let route = Route::of(&packet.head, target.who.qpn, class);
        let mut chunk = Chunk::Bytes(&[]);
        let (mut parts, mut done) = (0, 0);
        while let Some(part) = target.advance().map_err(MoveError::Target)? {
            let Part::Piece(mut piece) = part else { return Err(MoveError::Target(MemoryError::Short)) };
            if parts >= TRAIN_PARTS && packet.head.train > 0 && done >= u64::from(mtu) {
                return Ok(Put { parts, len: done as u32 / mtu * mtu });
            }
            parts += 1;
            done += piece.len;
            while piece.len > 0 {
                if chunk.len() == 0 {
                    let next = source.next(entry).map_err(MoveError::Source)?;
                    chunk = next.ok_or(MoveError::Source(MemoryError::Gone))?;
                }
                let len = piece.len.min(chunk.len());
                self.step(chunk, piece, len, &route)?;
                chunk.advance(len);
                advance(&mut piece, len);
            }
        }
        Ok(Put { parts, len: packet.len })
    }

    /// As [`Memory::put`] for one piece of memory behind a key that is the target of a payload in one piece, as most
    /// are: that takes no walk. `None` if it is not so, not allowed, or accesses are reordered; then nothing has happened.
    #[inline(always)]
    pub fn put_piece(
        &mut self,
        packet: &Packet,
        (who, access, key, va): (Who, Access, u32, u64),
        class: StoreClass,
    ) -> Option<Result<Put, MoveError>> {
        let Payload::Parts { parts: [Some(Part::Piece(source)), None] } = &packet.payload else { return None };
        let len = u64::from(packet.len);
        let request = who.request(key, va, len, access);
        let piece = direct(self.keys.objects, self.keys.space, &request).ok()??;
        let (Place::Memory(from), Place::Memory(to)) = (source.place, piece.place) else { return None };
        if source.len != len || self.bus.reorders() {
            return None;
        }
        let route = Route::of(&packet.head, who.qpn, class);
        let copied = self.bus.copy(route.load(source), from, route.store(&piece), to, len);
        Some(copied.map(|()| Put { parts: 1, len: packet.len }).map_err(MoveError::from))
    }

    /// Moves the first `len` bytes of a chunk to a piece.
    fn step(&mut self, chunk: Chunk<'_>, piece: Piece, len: u64, route: &Route) -> Result<(), MoveError> {
        let target = |error: BusError| MoveError::Target(error.into());
        match (chunk, piece.place) {
            (Chunk::Bytes(bytes), Place::Memory(at)) => {
                let bytes = bytes.get(..len as usize).unwrap_or_default();
                self.bus.store(route.store(&piece), at, bytes).map_err(target)
            }
            (Chunk::Piece(from @ Piece { place: Place::Memory(source), .. }), Place::Memory(at)) => {
                self.bus.copy(route.load(&from), source, route.store(&piece), at, len).map_err(MoveError::from)
            }
            _ => self.staged(chunk, piece, len, route),
        }
    }

    /// The same when one side is not guest memory: by way of a small buffer.
    fn staged(&mut self, mut chunk: Chunk<'_>, mut piece: Piece, len: u64, route: &Route) -> Result<(), MoveError> {
        let mut buffer = [0; 512];
        let mut left = len;
        while left > 0 {
            let count = left.min(buffer.len() as u64);
            let buf = &mut buffer[..count as usize];
            match chunk {
                Chunk::Bytes(bytes) => buf.copy_from_slice(bytes.get(..count as usize).unwrap_or_default()),
                Chunk::Piece(from) => match from.place {
                    Place::Nowhere => buf.fill(0),
                    Place::Device(at) => self.device.read(at, buf),
                    Place::Memory(at) => {
                        self.bus.load(route.load(&from), at, buf).map_err(|error| MoveError::Source(error.into()))?;
                    }
                },
            }
            match piece.place {
                Place::Nowhere => {}
                Place::Device(at) => self.device.write(at, buf),
                Place::Memory(at) => {
                    self.bus.store(route.store(&piece), at, buf).map_err(|error| MoveError::Target(error.into()))?;
                }
            }
            chunk.advance(count);
            advance(&mut piece, count);
            left -= count;
        }
        Ok(())
    }

    /// Gives a packet bytes of its own, because it has to wait or to leave.
    pub fn hold(&mut self, packet: &'a Packet) -> Result<Packet, MemoryError> {
        let mut bytes = Vec::with_capacity(packet.len as usize);
        let mut walk = None;
        let (mut source, entry) = self.source(packet, &mut walk)?;
        let reorders = self.bus.reorders();
        let mut route = Route::of(&packet.head, packet.head.dest, StoreClass::Payload);
        if reorders {
            route = route.fenced(&packet.head, self.keys.objects);
        }
        while let Some(mut chunk) = source.next(entry)? {
            while chunk.len() > 0 {
                let len = if reorders { ordered::first_step(&chunk) } else { chunk.len() };
                let from = bytes.len();
                match chunk {
                    Chunk::Bytes(part) => bytes.extend_from_slice(part),
                    Chunk::Piece(piece) => {
                        bytes.resize(from + len as usize, 0);
                        match piece.place {
                            Place::Nowhere => {}
                            Place::Device(at) => self.device.read(at, &mut bytes[from..]),
                            Place::Memory(at) => self.bus.load(route.load(&piece), at, &mut bytes[from..])?,
                        }
                    }
                }
                chunk.advance(len);
            }
        }
        Ok(Packet { head: packet.head, len: packet.len, payload: Payload::Held(bytes) })
    }
}
