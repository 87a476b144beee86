//! One pending transaction: its parts, its bytes, and what applying a part does.

use super::super::rules::Access;
use super::super::{Choice, Memory, NewTxn, Payload, TxnId};
use super::Slots;
use crate::dma::Iova;
use crate::dma::bus::AtomicOp;

/// A range of memory and where its bytes are in the transaction.
#[derive(Clone, Copy, Debug)]
struct Piece {
    at: Iova,
    len: u32,
    offset: u32,
}

/// Ranges that are moved in one step.
#[derive(Clone, Copy, Debug)]
struct Part {
    first: u16,
    end: u16,
    done: bool,
}

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Store,
    /// A store whose bytes a read brings when it is done.
    Fed,
    Load,
    /// A load for the write in that slot.
    Feed(u16),
    Atomic(AtomicOp),
    Signal(u32),
}

/// A pending transaction. One that is done stays for its buffers until its slot is used again.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub id: TxnId,
    pub access: Access,
    pub keys: [u32; 2],
    pub body: Body,
    pieces: Vec<Piece>,
    parts: Vec<Part>,
    /// Bytes of all pieces.
    pub len: u32,
    pub undone: u16,
    pub ascending: bool,
    pub owner_last: bool,
    /// How many of those that it waits for are not done.
    pub waiting: u16,
    /// Those that wait for this one.
    pub dependents: Slots,
    /// `len` bytes, and behind them what was left from before.
    pub data: Vec<u8>,
    /// The bytes did not come: a read failed.
    pub gone: bool,
    pub note: u64,
}

impl Pending {
    pub fn new(id: TxnId, access: Access) -> Pending {
        Pending {
            id,
            access,
            keys: [0; 2],
            body: Body::Load,
            pieces: Vec::new(),
            parts: Vec::new(),
            len: 0,
            undone: 0,
            ascending: false,
            owner_last: false,
            waiting: 0,
            dependents: Slots::default(),
            data: Vec::new(),
            gone: false,
            note: 0,
        }
    }

    /// Takes over where a transaction goes. By `halves` its only range is first read, then written.
    pub fn place(&mut self, txn: &NewTxn<'_>, halves: bool) {
        self.pieces.clear();
        self.len = 0;
        for range in txn.ranges {
            self.pieces.push(Piece { at: range.at, len: range.len, offset: self.len });
            self.len += range.len;
        }
        self.parts.clear();
        let mut first = 0;
        let ones = if txn.steps.is_empty() { txn.ranges.len() } else { 0 };
        for count in txn.steps.iter().copied().chain(std::iter::repeat_n(1, ones)) {
            self.parts.push(Part { first, end: first + count, done: false });
            first += count;
        }
        match txn.payload {
            Payload::Signal(_) => self.parts.push(Part { first: 0, end: 0, done: false }),
            Payload::Atomic(_) if halves => self.parts.push(Part { first: 0, end: 1, done: false }),
            _ => {}
        }
        self.undone = self.parts.len() as u16;
    }

    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Whether a part is done, or there is none.
    pub fn is_done(&self, index: usize) -> bool {
        self.parts.get(index).is_none_or(|part| part.done)
    }

    #[inline]
    pub fn part_enabled(&self, index: usize) -> bool {
        let Some(part) = self.parts.get(index) else { return false };
        let turn = !self.ascending || index + usize::from(self.undone) == self.parts.len();
        let owner = self.owner_last && index + 1 == self.parts.len() && self.undone > 1;
        !part.done && turn && !owner && self.waiting == 0
    }

    /// The parts that can be applied.
    pub fn enabled(&self, choices: &mut Vec<Choice>) {
        for index in 0..self.parts.len() {
            if self.part_enabled(index) {
                choices.push(Choice { txn: self.id, part: index as u16 });
            }
        }
    }

    /// Whether it has a byte in `len` ones at `at`.
    pub fn touches(&self, at: Iova, len: u64) -> bool {
        self.pieces.iter().any(|piece| touch((at.0, len), (piece.at.0, u64::from(piece.len))))
    }

    /// Does what a part does; false if memory refused.
    pub fn perform(&mut self, choice: Choice, memory: &mut dyn Memory) -> bool {
        let index = usize::from(choice.part);
        let part = &mut self.parts[index];
        part.done = true;
        self.undone -= 1;
        let pieces = &self.pieces[usize::from(part.first)..usize::from(part.end)];
        let Piece { at, offset, .. } = pieces.first().copied().unwrap_or(Piece { at: Iova(0), len: 0, offset: 0 });
        let bytes = |piece: &Piece| piece.offset as usize..(piece.offset + piece.len) as usize;
        match self.body {
            Body::Store | Body::Fed => {
                let mut done = !self.gone;
                for piece in pieces {
                    let bytes = self.data.get(bytes(piece)).filter(|_| !self.gone);
                    done &= bytes.is_some_and(|bytes| memory.write(piece.at, bytes).is_ok());
                }
                done
            }
            Body::Load | Body::Feed(_) => {
                let mut done = true;
                for piece in pieces {
                    let Some(bytes) = self.data.get_mut(bytes(piece)) else { return false };
                    let read = memory.read(piece.at, bytes).is_ok();
                    if !read {
                        bytes.fill(0);
                    }
                    done &= read;
                }
                if self.body == Body::Load {
                    let end = pieces.last().map_or(0, |piece| piece.offset + piece.len);
                    memory.sampled(choice, self.data.get(offset as usize..end as usize).unwrap_or_default());
                }
                // Nothing is stored where the source could not be read: the write finds no bytes and fails as well.
                self.gone |= !done;
                done
            }
            Body::Atomic(op) if self.parts.len() == 1 => match memory.update_u64(at, op) {
                Ok(old) => {
                    memory.sampled(choice, &old.to_le_bytes());
                    true
                }
                Err(_) => false,
            },
            Body::Atomic(op) => {
                let mut word = [0; 8];
                let Some(kept) = self.data.get_mut(..8) else { return false };
                if index == 0 {
                    self.gone = memory.read(at, &mut word).is_err();
                    kept.copy_from_slice(&word);
                    memory.sampled(choice, &word);
                    return !self.gone;
                }
                word.copy_from_slice(kept);
                !self.gone && memory.write(at, &op.apply(u64::from_le_bytes(word)).to_le_bytes()).is_ok()
            }
            Body::Signal(vector) => {
                memory.signal(vector);
                true
            }
        }
    }
}

/// Whether two ranges have a byte in common; an end beyond the address space counts as its end.
fn touch(a: (u64, u64), b: (u64, u64)) -> bool {
    let last = |(at, len): (u64, u64)| at.saturating_add(len - 1);
    a.1 > 0 && b.1 > 0 && a.0 <= last(b) && b.0 <= last(a)
}

/// What is known of a pending transaction.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(super) pending: &'a Pending,
}

impl<'a> View<'a> {
    /// Its number.
    pub fn id(&self) -> TxnId {
        self.pending.id
    }

    /// What the rules see.
    pub fn access(&self) -> &'a Access {
        &self.pending.access
    }

    /// Number of its parts.
    pub fn parts(&self) -> u16 {
        self.pending.parts.len() as u16
    }

    /// Whether a part is applied.
    pub fn is_applied(&self, part: u16) -> bool {
        self.pending.is_done(part.into())
    }

    /// No part is applied.
    pub fn is_untouched(&self) -> bool {
        usize::from(self.pending.undone) == self.pending.parts.len()
    }

    /// What [`super::Pool::set_note`] left.
    pub fn note(&self) -> u64 {
        self.pending.note
    }

    /// Whether all that it waits for is done.
    pub fn is_ready(&self) -> bool {
        self.pending.waiting == 0
    }
}
