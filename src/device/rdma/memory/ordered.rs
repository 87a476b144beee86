//! Payload where accesses are reordered: the same transactions however the guest's pages lie.
//!
//! Payload is walked in steps that end at each page boundary of either side, so that steps do not depend on which pages
//! follow each other in memory. From memory to memory, steps between the same keys are one transaction, until it has
//! [`CHUNK`] bytes or [`STEPS`] steps. Anything else is one transaction a step. So a run and its repetition agree on what
//! is issued, whatever pages the guest's kernel hands out.
//!
//! Limit: pages of a key are at least as large as [`PAGE`], and keep an address's place in its page.

use super::{Chunk, Memory, MemoryError, MoveError, Put, Reach, Route, TRAIN_PARTS, advance};
use crate::device::rdma::packet::{Packet, Part};
use crate::dma::order::Range;
use crate::dma::{Iova, Load, Store, StoreClass};
use crate::mkey::translate::{Piece, Place};

/// Bytes of a transaction at most: a quarter of what may be pending by default. Each has a cost of its own.
const CHUNK: u64 = 256 << 10;
/// Steps of a transaction at most: enough for a chunk between keys whose pages begin at different places.
const STEPS: usize = 130;
/// The smallest page of a guest.
const PAGE: u64 = 4096;

/// Bytes from a piece's first one to the end of a page.
fn to_border(piece: &Piece) -> u64 {
    match piece.place {
        Place::Memory(at) => PAGE - at.0 % PAGE,
        Place::Device(at) => PAGE - at % PAGE,
        Place::Nowhere => u64::MAX,
    }
}

/// Bytes of the first step of a chunk.
pub(super) fn first_step(chunk: &Chunk<'_>) -> u64 {
    match chunk {
        Chunk::Bytes(bytes) => bytes.len() as u64,
        Chunk::Piece(piece) => to_border(piece).min(piece.len),
    }
}

/// How many steps a piece has.
pub(super) fn steps(piece: &Piece) -> usize {
    let first = to_border(piece).min(piece.len);
    (piece.len - first).div_ceil(PAGE) as usize + 1
}

/// Ranges of one side, those that follow each other as one.
struct Ranges {
    list: [Range; STEPS],
    count: usize,
}

impl Ranges {
    fn new() -> Ranges {
        Ranges { list: [Range { at: Iova(0), len: 0 }; STEPS], count: 0 }
    }

    fn add(&mut self, at: Iova, len: u64) {
        let len = len as u32;
        match self.list[..self.count].last_mut() {
            Some(last) if last.at.0.wrapping_add(last.len.into()) == at.0 => last.len += len,
            _ => {
                self.list[self.count] = Range { at, len };
                self.count += 1;
            }
        }
    }

    fn as_slice(&self) -> &[Range] {
        &self.list[..self.count]
    }
}

/// A transaction that is collected: from memory to memory, through the same keys.
struct Run {
    way: Option<(Load, Store)>,
    from: Ranges,
    to: Ranges,
    len: u64,
    steps: usize,
}

impl Run {
    fn add(&mut self, way: (Load, Store), from: Iova, to: Iova, len: u64) {
        self.way = Some(way);
        self.from.add(from, len);
        self.to.add(to, len);
        self.len += len;
        self.steps += 1;
    }

    fn is_full(&self) -> bool {
        self.len >= CHUNK || self.steps >= STEPS
    }
}

impl<'a> Memory<'a> {
    /// As [`Memory::put`].
    pub(super) fn put_in_runs(
        &mut self,
        packet: &'a Packet,
        target: &mut Reach<'_>,
        class: StoreClass,
        mtu: u32,
    ) -> Result<Put, MoveError> {
        let mut walk = None;
        let (mut source, entry) = self.source(packet, &mut walk).map_err(MoveError::Source)?;
        let route = Route::of(&packet.head, target.who.qpn, class).fenced(&packet.head, self.keys.objects);
        let mut run = Run { way: None, from: Ranges::new(), to: Ranges::new(), len: 0, steps: 0 };
        let mut chunk = Chunk::Bytes(&[]);
        let (mut parts, mut done) = (0, 0);
        while let Some(part) = target.advance().map_err(MoveError::Target)? {
            let Part::Piece(mut piece) = part else { return Err(MoveError::Target(MemoryError::Short)) };
            while piece.len > 0 {
                if chunk.len() == 0 {
                    let next = source.next(entry).map_err(MoveError::Source)?;
                    chunk = next.ok_or(MoveError::Source(MemoryError::Gone))?;
                }
                if parts >= TRAIN_PARTS && packet.head.train > 0 && done >= u64::from(mtu) {
                    self.flush(&mut run)?;
                    return Ok(Put { parts, len: done as u32 / mtu * mtu });
                }
                let len = first_step(&chunk).min(first_step(&Chunk::Piece(piece))).min(CHUNK - run.len);
                match (chunk, piece.place) {
                    (Chunk::Piece(from @ Piece { place: Place::Memory(source), .. }), Place::Memory(to)) => {
                        let way = (route.load(&from), route.store(&piece));
                        if run.way.is_some_and(|known| known != way) {
                            self.flush(&mut run)?;
                        }
                        run.add(way, source, to, len);
                        if run.is_full() {
                            self.flush(&mut run)?;
                        }
                    }
                    _ => {
                        self.flush(&mut run)?;
                        self.step(chunk, piece, len, &route)?;
                    }
                }
                parts += 1;
                done += len;
                chunk.advance(len);
                advance(&mut piece, len);
            }
        }
        self.flush(&mut run)?;
        Ok(Put { parts, len: packet.len })
    }

    fn flush(&mut self, run: &mut Run) -> Result<(), MoveError> {
        if let Some((load, store)) = run.way.take() {
            self.bus.copy_ranges(load, run.from.as_slice(), store, run.to.as_slice())?;
        }
        (run.from.count, run.to.count, run.len, run.steps) = (0, 0, 0, 0);
        Ok(())
    }
}
