//! The pool: transactions that were issued and are not done, each with the set of those that it waits for.
//!
//! The wait set is fixed at issue. A transaction whose wait set is done is *ready*; then its parts are applied in any
//! order, but for strict writes on PCIe (ascending) and entries with an owner or status byte (that byte last). A schedule
//! of the pool is any sequence of enabled parts; who chooses among them is none of its business.
//!
//! Limits: [`MAX_TRANSACTIONS`] pending, so that a wait set is four words.

mod pending;
mod slots;

use std::collections::BTreeMap;

use self::pending::{Body, Pending};
use super::coverage::class;
use super::knobs::{AtomicMode, Fabric, Rules};
use super::rules::{Access, Rule, concerns, must_wait};
use super::{Choice, Horizon, Kind, MAX_PARTS, MAX_TRANSACTIONS, Memory, NewTxn, Payload, Scope, Stream, TxnId};

pub use self::pending::View;
pub use self::slots::Slots;

/// A buffer up to this size stays with its slot; larger ones are shared by all slots.
const SMALL_BUFFER: usize = 4096;

/// Bytes of large buffers that are kept for later.
const SPARE_BYTES: usize = 2 << 20;

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
    /// Large buffers that nothing uses, the one that was used last at the end: it is likeliest to be in the cache.
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
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
            spare: Vec::new(),
            spare_bytes: 0,
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

    /// Numbers the transactions of each stream from 1 again.
    pub fn renumber(&mut self) {
        self.streams.clear();
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

    /// The pending transactions that one waits for and whatever those wait for, in the order of issue.
    pub fn predecessors(&self, id: TxnId) -> Vec<TxnId> {
        let Some(slot) = self.slot_of(id) else { return Vec::new() };
        let mut set = Slots::default();
        set.insert(slot);
        let mut ids = self.with_waits(set);
        ids.pop();
        ids
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

    /// Takes a transaction in. One without ranges is done at once, but for a signal.
    pub fn issue(&mut self, txn: &NewTxn<'_>) -> Result<TxnId, Refused> {
        let source = match txn.payload {
            Payload::From(read) => Some(self.source(read, txn)?),
            Payload::Bytes(bytes) if bytes.len() as u64 != txn.len() => return Err(Refused::Malformed),
            Payload::Atomic(_) if txn.ranges.len() != 1 || txn.len() != 8 => return Err(Refused::Malformed),
            Payload::Signal(_) if !txn.ranges.is_empty() => return Err(Refused::Malformed),
            _ => None,
        };
        let stepped: usize = txn.steps.iter().map(|count| usize::from(*count)).sum();
        let steps = txn.steps.is_empty() || stepped == txn.ranges.len();
        if txn.ranges.len() > MAX_PARTS || txn.len() > u64::from(u32::MAX) || !steps {
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
        let fits = source.body == Body::Load && u64::from(source.len) == txn.len();
        if fits { Ok(slot) } else { Err(Refused::Malformed) }
    }

    fn insert(&mut self, arrival: &Arrival, txn: &NewTxn<'_>) -> u16 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Pending::new(arrival.id, arrival.access));
            self.slots.len() as u16 - 1
        });
        let pending = &mut self.slots[usize::from(slot)];
        pending.id = arrival.id;
        pending.access = arrival.access;
        pending.keys = txn.keys;
        pending.note = 0;
        pending.waiting = arrival.waits.len();
        pending.dependents = Slots::default();
        pending.gone = false;
        // The read, then the write.
        pending.place(txn, self.rules.atomic == AtomicMode::Rmw || self.rules.omit.has(Rule::Indivisible));
        let strict = txn.kind == Kind::Write && self.rules.fabric == Fabric::Pcie && !arrival.access.relaxed_write;
        pending.ascending =
            (strict && !self.rules.omit.has(Rule::Ascending)) || matches!(txn.payload, Payload::Atomic(_));
        pending.owner_last =
            matches!(txn.kind, Kind::Cqe | Kind::Eqe | Kind::Command) && !self.rules.omit.has(Rule::OwnerLast);
        pending.body = match txn.payload {
            Payload::Bytes(_) => Body::Store,
            Payload::From(_) => Body::Fed,
            Payload::Sample => Body::Load,
            Payload::Atomic(op) => Body::Atomic(op),
            Payload::Signal(vector) => Body::Signal(vector),
        };
        let len = pending.len as usize;
        if !matches!(pending.body, Body::Fed | Body::Signal(_)) {
            self.give_buffer(slot, len);
        }
        if let Payload::Bytes(bytes) = txn.payload {
            self.slots[usize::from(slot)].data[..len].copy_from_slice(bytes);
        }
        for earlier in arrival.waits.iter() {
            self.slots[usize::from(earlier)].dependents.insert(slot);
        }
        let class = class(&arrival.access);
        self.order.push(Entry { id: arrival.id, stream: arrival.access.stream, slot, class });
        self.counts[txn.kind as usize] += 1;
        self.bytes += len as u64;
        slot
    }

    /// Sees to it that a slot has a buffer of at least `len` bytes. What is in it does not matter.
    fn give_buffer(&mut self, slot: u16, len: usize) {
        let data = &mut self.slots[usize::from(slot)].data;
        if len > SMALL_BUFFER && data.len() < len {
            *data = self.spare.pop().unwrap_or_default();
            self.spare_bytes -= data.capacity();
        }
        if data.len() < len {
            data.resize(len, 0);
        }
    }

    /// Takes back the large buffer of a slot, if it has one.
    fn take_buffer(&mut self, slot: u16) {
        let data = &mut self.slots[usize::from(slot)].data;
        if data.capacity() > SMALL_BUFFER {
            let data = std::mem::take(data);
            if self.spare_bytes + data.capacity() <= SPARE_BYTES {
                self.spare_bytes += data.capacity();
                self.spare.push(data);
            }
        }
    }

    /// Every part that can be applied now, in the order of issue.
    pub fn enabled(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        for entry in &self.order {
            self.slots[usize::from(entry.slot)].enabled(&mut choices);
        }
        choices
    }

    /// The parts of one transaction that can be applied now.
    pub fn enabled_in(&self, id: TxnId, choices: &mut Vec<Choice>) {
        if let Some(slot) = self.slot_of(id) {
            self.slots[usize::from(slot)].enabled(choices);
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
        let failed = !pending.perform(choice, memory);
        self.failures += u64::from(failed);
        if pending.undone > 0 {
            let next = if pending.ascending { index + 1 } else { pending.part_count() - 1 };
            if (pending.ascending || (pending.owner_last && pending.undone == 1)) && pending.part_enabled(next) {
                fresh.push(Choice { txn: choice.txn, part: next as u16 });
            }
            return Applied { finished: false, failed };
        }
        if let Body::Feed(write) = pending.body {
            let (data, gone) = (std::mem::take(&mut pending.data), pending.gone);
            let target = &mut self.slots[usize::from(write)];
            target.gone = gone;
            let unused = std::mem::replace(&mut target.data, data);
            self.slots[usize::from(slot)].data = unused;
        }
        let dependents = self.slots[usize::from(slot)].dependents;
        self.retire(slot);
        for later in dependents.iter() {
            let pending = &mut self.slots[usize::from(later)];
            pending.waiting -= 1;
            if pending.waiting == 0 {
                pending.enabled(fresh);
            }
        }
        Applied { finished: true, failed }
    }

    fn retire(&mut self, slot: u16) {
        self.take_buffer(slot);
        let pending = &self.slots[usize::from(slot)];
        self.bytes -= u64::from(pending.len);
        self.counts[pending.access.kind as usize] -= 1;
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
        // What waits is younger, so one pass from the youngest on is enough.
        for entry in self.order.iter().rev() {
            if self.slots[usize::from(entry.slot)].dependents.meets(&set) {
                set.insert(entry.slot);
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
            Scope::Range(at, len) => pending.touches(at, len),
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

fn overlap(txn: &NewTxn<'_>, earlier: &Pending) -> bool {
    txn.ranges.iter().any(|range| earlier.touches(range.at, range.len.into()))
}

#[cfg(test)]
pub(in crate::dma::order) mod tests;
