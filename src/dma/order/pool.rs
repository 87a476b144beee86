//! The pool: transactions that were issued and are not done, each with the set of those that it waits for.
//!
//! The wait set is fixed at issue. A transaction whose wait set is done is *ready*; then its parts are applied in any
//! order, but for strict writes on PCIe (ascending) and entries with an owner or status byte (that byte last). A schedule
//! of the pool is any sequence of enabled parts; who chooses among them is none of its business.
//!
//! Limits: [`MAX_TRANSACTIONS`] pending, so that a wait set is four words.

use std::collections::BTreeMap;

use super::coverage::class;
use super::knobs::{AtomicMode, Fabric, Rules};
use super::rules::{Access, Rule, concerns, must_wait};
use super::{Choice, Horizon, Kind, MAX_PARTS, MAX_TRANSACTIONS, Memory, NewTxn, Payload, Scope, Stream, TxnId};
use crate::dma::Iova;
use crate::dma::bus::AtomicOp;

/// A buffer larger than this is given back when its transaction is done.
const KEEP_BUFFER: usize = 64 << 10;

/// Why a transaction was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// [`MAX_TRANSACTIONS`] are pending.
    #[error("the pool is full")]
    Full,
    /// Too many ranges, or such as do not fit the payload, or a source that is no pending read of that length.
    #[error("the transaction makes no sense")]
    Malformed,
}

/// What an applied part did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The whole transaction is done.
    pub finished: bool,
    /// Memory refused the access.
    pub failed: bool,
}

/// A set of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots([u64; MAX_TRANSACTIONS / 64]);

impl Slots {
    #[inline]
    fn insert(&mut self, slot: u16) {
        self.0[usize::from(slot) / 64] |= 1 << (slot % 64);
    }

    #[inline]
    fn remove(&mut self, slot: u16) {
        self.0[usize::from(slot) / 64] &= !(1 << (slot % 64));
    }

    #[inline]
    fn has(&self, slot: u16) -> bool {
        self.0[usize::from(slot) / 64] & (1 << (slot % 64)) != 0
    }

    /// Nothing is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; MAX_TRANSACTIONS / 64]
    }

    fn add(&mut self, other: &Slots) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    fn iter(self) -> impl Iterator<Item = u16> {
        self.0.into_iter().enumerate().flat_map(|(index, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(index as u16 * 64 + bit as u16)
            })
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Part {
    at: Iova,
    len: u32,
    offset: u32,
    done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Store,
    /// A store whose bytes a read brings when it is done.
    Fed,
    Load,
    /// A load for the write in that slot.
    Feed(u16),
    Atomic(AtomicOp),
    Signal(u32),
}

/// A pending transaction.
#[derive(Clone, Debug)]
struct Pending {
    id: TxnId,
    access: Access,
    keys: [u32; 2],
    body: Body,
    parts: Vec<Part>,
    undone: u16,
    ascending: bool,
    owner_last: bool,
    waits: Slots,
    /// Those that wait for this one.
    dependents: Slots,
    data: Vec<u8>,
    note: u64,
}

impl Pending {
    fn part_enabled(&self, index: usize) -> bool {
        let Some(part) = self.parts.get(index) else { return false };
        let turn = !self.ascending || index + usize::from(self.undone) == self.parts.len();
        let owner = self.owner_last && index + 1 == self.parts.len() && self.undone > 1;
        !part.done && turn && !owner && self.waits.is_empty()
    }
}

/// A transaction that has arrived: numbered, its waits known. What is performed at once never gets further.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its number.
    pub id: TxnId,
    /// What the rules see.
    pub access: Access,
    /// What it waits for.
    pub waits: Slots,
}

/// What is known of a pending transaction.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pending: &'a Pending,
}

impl View<'_> {
    /// Its number.
    pub fn id(&self) -> TxnId {
        self.pending.id
    }

    /// What the rules see.
    pub fn access(&self) -> &Access {
        &self.pending.access
    }

    /// Number of its parts.
    pub fn parts(&self) -> u16 {
        self.pending.parts.len() as u16
    }

    /// Whether a part is applied.
    pub fn is_applied(&self, part: u16) -> bool {
        self.pending.parts.get(usize::from(part)).is_none_or(|part| part.done)
    }

    /// No part is applied.
    pub fn is_untouched(&self) -> bool {
        usize::from(self.pending.undone) == self.pending.parts.len()
    }

    /// What [`Pool::set_note`] left.
    pub fn note(&self) -> u64 {
        self.pending.note
    }

    /// Whether all that it waits for is done.
    pub fn is_ready(&self) -> bool {
        self.pending.waits.is_empty()
    }

    /// Address and length of a part.
    pub fn range(&self, part: u16) -> Option<(Iova, u32)> {
        self.pending.parts.get(usize::from(part)).map(|part| (part.at, part.len))
    }
}

/// The last numbers of a stream. Control reads have numbers of their own: how often a device looks at a doorbell record
/// depends on the guest's timing, and the other numbers, from which decisions derive, must not.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    control: u64,
    other: u64,
}

/// A pending transaction in the list of all: what searches look at, close together.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: TxnId,
    stream: Stream,
    slot: u16,
    class: u8,
}

/// Issued transactions that are not done.
#[derive(Clone, Debug)]
pub struct Pool {
    rules: Rules,
    slots: Vec<Pending>,
    free: Vec<u16>,
    /// What is pending, in the order of issue.
    order: Vec<Entry>,
    issued: u64,
    /// The last numbers of each stream. Streams are queues of the function; their numbers are used again, so this is
    /// bounded by how many can exist.
    streams: BTreeMap<Stream, Numbers>,
    counts: [u16; Kind::ALL.len()],
    bytes: u64,
    failures: u64,
}

impl Pool {
    /// An empty pool.
    pub fn new(rules: Rules) -> Pool {
        Pool {
            rules,
            slots: Vec::new(),
            free: Vec::new(),
            order: Vec::new(),
            issued: 0,
            streams: BTreeMap::new(),
            counts: [0; Kind::ALL.len()],
            bytes: 0,
            failures: 0,
        }
    }

    /// The rules in force.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Pending transactions.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Bytes of pending transactions.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Parts that memory refused.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Everything that a stream has issued, control reads excepted.
    pub fn horizon(&self, stream: Stream) -> Horizon {
        Horizon { stream, seq: self.streams.get(&stream).map_or(0, |numbers| numbers.other) }
    }

    /// The number that the next transaction of a kind will have in its stream.
    pub fn next_seq(&self, stream: Stream, kind: Kind) -> u64 {
        let numbers = self.streams.get(&stream).copied().unwrap_or_default();
        1 + if kind == Kind::Control { numbers.control } else { numbers.other }
    }

    /// The pending transaction of a stream with a number.
    pub fn find(&self, stream: Stream, control: bool, seq: u64) -> Option<View<'_>> {
        self.pending().find(|view| {
            let access = view.access();
            access.seq == seq && access.stream == stream && (access.kind == Kind::Control) == control
        })
    }

    /// Whether a transaction of a stream is still pending up to a horizon.
    pub fn is_pending(&self, horizon: Horizon) -> bool {
        self.pending().any(|view| horizon.covers(view.access()))
    }

    /// Whether a transaction is done. One that was never issued is not.
    pub fn is_done(&self, id: TxnId) -> bool {
        id.0 <= self.issued && self.slot_of(id).is_none()
    }

    /// The pending transactions in the order of issue.
    pub fn pending(&self) -> impl Iterator<Item = View<'_>> {
        self.order.iter().map(|entry| View { pending: &self.slots[usize::from(entry.slot)] })
    }

    /// A pending transaction.
    pub fn get(&self, id: TxnId) -> Option<View<'_>> {
        self.slot_of(id).map(|slot| View { pending: &self.slots[usize::from(slot)] })
    }

    /// Leaves a number with a pending transaction, which means nothing to the pool.
    pub fn set_note(&mut self, id: TxnId, note: u64) {
        if let Some(slot) = self.slot_of(id) {
            self.slots[usize::from(slot)].note = note;
        }
    }

    /// What a pending transaction still waits for.
    pub fn waits(&self, id: TxnId) -> Option<Slots> {
        self.slot_of(id).map(|slot| self.slots[usize::from(slot)].waits)
    }

    /// Pending transactions that were issued before one.
    pub fn older(&self, id: TxnId) -> impl Iterator<Item = View<'_>> {
        let count = self.order.partition_point(|entry| entry.id < id);
        self.order[..count].iter().map(|entry| View { pending: &self.slots[usize::from(entry.slot)] })
    }

    /// Class and stream of pending transactions that were issued before one: the oldest and the youngest of them, so that
    /// a count of what is overtaken costs little where much is pending.
    pub(super) fn older_classes(&self, id: TxnId) -> impl Iterator<Item = (u8, Stream)> {
        const EACH: usize = 24;
        let older = &self.order[..self.order.partition_point(|entry| entry.id < id)];
        let (oldest, rest) = older.split_at(older.len().min(EACH));
        let youngest = &rest[rest.len().saturating_sub(EACH)..];
        oldest.iter().chain(youngest).map(|entry| (entry.class, entry.stream))
    }

    fn slot_of(&self, id: TxnId) -> Option<u16> {
        let place = self.order.binary_search_by_key(&id, |entry| entry.id).ok()?;
        Some(self.order[place].slot)
    }

    /// Numbers a transaction and finds out what it waits for, without keeping it.
    pub fn arrive(&mut self, txn: &NewTxn<'_>) -> Arrival {
        self.issued += 1;
        let numbers = self.streams.entry(txn.stream).or_default();
        let seq = if txn.kind == Kind::Control { &mut numbers.control } else { &mut numbers.other };
        *seq += 1;
        let access = Access {
            kind: txn.kind,
            stream: txn.stream,
            seq: *seq,
            chain: txn.chain,
            relaxed_write: self.rules.relaxes_write(txn.order.relaxed_write)
                && matches!(txn.kind, Kind::Write | Kind::Atomic),
            relaxed_read: self.rules.relaxes_read(txn.order.relaxed_read_after_write) && txn.kind == Kind::Read,
            fence: txn.fence,
            after: txn.after,
            node: txn.node,
        };
        Arrival { id: TxnId(self.issued), access, waits: self.waits_of(&access, txn) }
    }

    fn waits_of(&self, access: &Access, txn: &NewTxn<'_>) -> Slots {
        let mut waits = Slots::default();
        let concerned = concerns(access, &self.rules);
        if !Kind::ALL.iter().any(|kind| concerned.has(*kind) && self.counts[*kind as usize] > 0) {
            return waits;
        }
        for entry in &self.order {
            let earlier = &self.slots[usize::from(entry.slot)];
            if concerned.has(earlier.access.kind)
                && must_wait(access, &earlier.access, &self.rules, || overlap(txn, earlier)).is_some()
            {
                waits.insert(entry.slot);
            }
        }
        waits
    }

    /// Takes a transaction in; one part for each of its ranges. One without ranges is done at once, but for a signal.
    pub fn issue(&mut self, txn: &NewTxn<'_>) -> Result<TxnId, Refused> {
        let source = match txn.payload {
            Payload::From(read) => Some(self.source(read, txn)?),
            Payload::Bytes(bytes) if bytes.len() as u64 != txn.len() => return Err(Refused::Malformed),
            Payload::Atomic(_) if txn.ranges.len() != 1 || txn.len() != 8 => return Err(Refused::Malformed),
            Payload::Signal(_) if !txn.ranges.is_empty() => return Err(Refused::Malformed),
            _ => None,
        };
        if txn.ranges.len() > MAX_PARTS || txn.len() > u64::from(u32::MAX) {
            return Err(Refused::Malformed);
        }
        if self.is_full() {
            return Err(Refused::Full);
        }
        let mut arrival = self.arrive(txn);
        if let Some(source) = source {
            arrival.waits.insert(source);
        }
        if txn.ranges.is_empty() && !matches!(txn.payload, Payload::Signal(_)) {
            return Ok(arrival.id);
        }
        let slot = self.insert(&arrival, txn);
        if let Some(source) = source {
            self.slots[usize::from(source)].body = Body::Feed(slot);
        }
        Ok(arrival.id)
    }

    /// No more can be taken in.
    pub fn is_full(&self) -> bool {
        self.order.len() >= MAX_TRANSACTIONS
    }

    /// The slot of a read that can feed a write.
    fn source(&self, read: TxnId, txn: &NewTxn<'_>) -> Result<u16, Refused> {
        let slot = self.slot_of(read).ok_or(Refused::Malformed)?;
        let source = &self.slots[usize::from(slot)];
        let fits = source.body == Body::Load && source.data.len() as u64 == txn.len();
        if fits { Ok(slot) } else { Err(Refused::Malformed) }
    }

    fn insert(&mut self, arrival: &Arrival, txn: &NewTxn<'_>) -> u16 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Pending {
                id: arrival.id,
                access: arrival.access,
                keys: [0; 2],
                body: Body::Load,
                parts: Vec::new(),
                undone: 0,
                ascending: false,
                owner_last: false,
                waits: Slots::default(),
                dependents: Slots::default(),
                data: Vec::new(),
                note: 0,
            });
            self.slots.len() as u16 - 1
        });
        let len = txn.len();
        let kind = txn.kind;
        let pending = &mut self.slots[usize::from(slot)];
        pending.id = arrival.id;
        pending.access = arrival.access;
        pending.keys = txn.keys;
        pending.note = 0;
        pending.waits = arrival.waits;
        pending.dependents = Slots::default();
        pending.body = match txn.payload {
            Payload::Bytes(bytes) => {
                pending.data.clear();
                pending.data.extend_from_slice(bytes);
                Body::Store
            }
            Payload::From(_) => Body::Fed,
            Payload::Sample => {
                // What is left from before is overwritten, or zeroed if memory refuses.
                pending.data.resize(len as usize, 0);
                Body::Load
            }
            Payload::Atomic(op) => {
                pending.data.resize(8, 0);
                Body::Atomic(op)
            }
            Payload::Signal(vector) => Body::Signal(vector),
        };
        pending.parts.clear();
        let mut offset = 0;
        for range in txn.ranges {
            pending.parts.push(Part { at: range.at, len: range.len, offset, done: false });
            offset += range.len;
        }
        match txn.payload {
            Payload::Signal(_) => pending.parts.push(Part { at: Iova(0), len: 0, offset: 0, done: false }),
            Payload::Atomic(_) if self.rules.atomic == AtomicMode::Rmw || self.rules.omit.has(Rule::Indivisible) => {
                // The read, then the write.
                let half = pending.parts[0];
                pending.parts.push(half);
            }
            _ => {}
        }
        pending.undone = pending.parts.len() as u16;
        let strict = kind == Kind::Write && self.rules.fabric == Fabric::Pcie && !arrival.access.relaxed_write;
        pending.ascending =
            (strict && !self.rules.omit.has(Rule::Ascending)) || matches!(txn.payload, Payload::Atomic(_));
        pending.owner_last =
            matches!(kind, Kind::Cqe | Kind::Eqe | Kind::Command) && !self.rules.omit.has(Rule::OwnerLast);
        for earlier in arrival.waits.iter() {
            self.slots[usize::from(earlier)].dependents.insert(slot);
        }
        let class = class(&arrival.access);
        self.order.push(Entry { id: arrival.id, stream: arrival.access.stream, slot, class });
        self.counts[kind as usize] += 1;
        self.bytes += len;
        slot
    }

    /// Every part that can be applied now, in the order of issue.
    pub fn enabled(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        for entry in &self.order {
            self.enabled_of(entry.slot, &mut choices);
        }
        choices
    }

    fn enabled_of(&self, slot: u16, choices: &mut Vec<Choice>) {
        let pending = &self.slots[usize::from(slot)];
        for index in 0..pending.parts.len() {
            if pending.part_enabled(index) {
                choices.push(Choice { txn: pending.id, part: index as u16 });
            }
        }
    }

    /// The parts of one transaction that can be applied now.
    pub fn enabled_in(&self, id: TxnId, choices: &mut Vec<Choice>) {
        if let Some(slot) = self.slot_of(id) {
            self.enabled_of(slot, choices);
        }
    }

    /// Whether a part can be applied now.
    pub fn is_enabled(&self, choice: Choice) -> bool {
        self.slot_of(choice.txn).is_some_and(|slot| self.slots[usize::from(slot)].part_enabled(choice.part.into()))
    }

    /// Applies a part. One that is not enabled is left alone and told as failed.
    pub fn apply(&mut self, choice: Choice, memory: &mut dyn Memory) -> Applied {
        self.apply_telling(choice, memory, &mut Vec::new())
    }

    /// Applies a part and adds to `fresh` the parts that it made applicable.
    pub fn apply_telling(&mut self, choice: Choice, memory: &mut dyn Memory, fresh: &mut Vec<Choice>) -> Applied {
        let index = usize::from(choice.part);
        let slot = self.slot_of(choice.txn).filter(|slot| self.slots[usize::from(*slot)].part_enabled(index));
        let Some(slot) = slot else {
            return Applied { finished: false, failed: true };
        };
        let pending = &mut self.slots[usize::from(slot)];
        let failed = !perform(pending, index, choice, memory);
        self.failures += u64::from(failed);
        pending.parts[index].done = true;
        pending.undone -= 1;
        if pending.undone > 0 {
            let next = if pending.ascending { index + 1 } else { pending.parts.len() - 1 };
            if (pending.ascending || (pending.owner_last && pending.undone == 1)) && pending.part_enabled(next) {
                fresh.push(Choice { txn: choice.txn, part: next as u16 });
            }
            return Applied { finished: false, failed };
        }
        if let Body::Feed(write) = pending.body {
            let data = std::mem::take(&mut pending.data);
            let spare = std::mem::replace(&mut self.slots[usize::from(write)].data, data);
            self.slots[usize::from(slot)].data = spare;
        }
        let dependents = pending_dependents(&mut self.slots[usize::from(slot)]);
        self.retire(slot);
        for later in dependents.iter() {
            let pending = &mut self.slots[usize::from(later)];
            pending.waits.remove(slot);
            if pending.waits.is_empty() {
                self.enabled_of(later, fresh);
            }
        }
        Applied { finished: true, failed }
    }

    fn retire(&mut self, slot: u16) {
        let pending = &mut self.slots[usize::from(slot)];
        let len: u64 = pending.parts.iter().map(|part| u64::from(part.len)).sum();
        // The halves of an atomic are the same bytes.
        let counted = if matches!(pending.body, Body::Atomic(_)) { 8 } else { len };
        self.bytes -= counted;
        self.counts[pending.access.kind as usize] -= 1;
        if pending.data.capacity() > KEEP_BUFFER {
            pending.data = Vec::new();
        }
        let id = pending.id;
        if let Ok(place) = self.order.binary_search_by_key(&id, |entry| entry.id) {
            self.order.remove(place);
        }
        self.free.push(slot);
    }

    /// The pending transactions of a scope and whatever they wait for, in an order in which they can be applied.
    pub fn closure(&self, scope: Scope) -> Vec<TxnId> {
        let mut set = Slots::default();
        for entry in &self.order {
            if self.covers(scope, &self.slots[usize::from(entry.slot)]) {
                set.insert(entry.slot);
            }
        }
        self.with_waits(set)
    }

    /// The transactions of a set and whatever they wait for, in the order of issue.
    pub fn with_waits(&self, mut set: Slots) -> Vec<TxnId> {
        if set.is_empty() {
            return Vec::new();
        }
        // Waits only ever name older ones, so one pass from the youngest on is enough.
        for entry in self.order.iter().rev() {
            if set.has(entry.slot) {
                set.add(&self.slots[usize::from(entry.slot)].waits);
            }
        }
        let mut ids: Vec<TxnId> = set.iter().map(|slot| self.slots[usize::from(slot)].id).collect();
        ids.sort_unstable();
        ids
    }

    fn covers(&self, scope: Scope, pending: &Pending) -> bool {
        let stream = pending.access.stream;
        match scope {
            Scope::All => true,
            Scope::Stream(wanted) => stream == wanted,
            Scope::Qp(number) => stream == Stream::Requester(number) || stream == Stream::Responder(number),
            Scope::Cq(number) => pending.access.chain == Some(number) || stream == Stream::Cq(number),
            Scope::Eq(number) => stream == Stream::Eq(number),
            Scope::Key(index) => index != 0 && pending.keys.contains(&index),
            Scope::Range(at, len) => {
                pending.parts.iter().any(|part| touch((at.0, len), (part.at.0, u64::from(part.len))))
            }
        }
    }

    /// Forgets everything that is pending, without applying it.
    pub fn discard(&mut self) -> usize {
        let dropped = self.order.len();
        while let Some(entry) = self.order.last().copied() {
            self.retire(entry.slot);
        }
        dropped
    }
}

fn pending_dependents(pending: &mut Pending) -> Slots {
    std::mem::take(&mut pending.dependents)
}

/// Whether two ranges have a byte in common; an end beyond the address space counts as its end.
fn touch(a: (u64, u64), b: (u64, u64)) -> bool {
    let last = |(at, len): (u64, u64)| at.saturating_add(len - 1);
    a.1 > 0 && b.1 > 0 && a.0 <= last(b) && b.0 <= last(a)
}

fn overlap(txn: &NewTxn<'_>, earlier: &Pending) -> bool {
    txn.ranges.iter().any(|range| {
        let wanted = (range.at.0, u64::from(range.len));
        earlier.parts.iter().any(|part| touch(wanted, (part.at.0, u64::from(part.len))))
    })
}

/// Does what a part does; false if memory refused.
fn perform(pending: &mut Pending, index: usize, choice: Choice, memory: &mut dyn Memory) -> bool {
    let part = pending.parts[index];
    let from = part.offset as usize;
    let to = from + part.len as usize;
    match pending.body {
        Body::Store | Body::Fed => pending.data.get(from..to).is_some_and(|bytes| memory.write(part.at, bytes).is_ok()),
        Body::Load | Body::Feed(_) => {
            let Some(bytes) = pending.data.get_mut(from..to) else { return false };
            let done = memory.read(part.at, bytes).is_ok();
            if pending.body == Body::Load {
                if !done {
                    bytes.fill(0);
                }
                memory.sampled(choice, bytes);
            } else if !done {
                // Nothing is stored where the source could not be read: the write finds no bytes and fails as well.
                pending.data.clear();
            }
            done
        }
        Body::Atomic(op) if pending.parts.len() == 1 => match memory.update_u64(part.at, op) {
            Ok(old) => {
                memory.sampled(choice, &old.to_le_bytes());
                true
            }
            Err(_) => false,
        },
        Body::Atomic(op) => {
            let mut word = [0; 8];
            let Some(kept) = pending.data.get_mut(..8) else { return false };
            if index == 0 {
                let done = memory.read(part.at, &mut word).is_ok();
                kept.copy_from_slice(&word);
                memory.sampled(choice, &word);
                done
            } else {
                word.copy_from_slice(kept);
                memory.write(part.at, &op.apply(u64::from_le_bytes(word)).to_le_bytes()).is_ok()
            }
        }
        Body::Signal(vector) => {
            memory.signal(vector);
            true
        }
    }
}

#[cfg(test)]
pub(in crate::dma::order) mod tests;
