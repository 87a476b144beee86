//! The bus when a policy reorders: every access becomes a transaction of the ordering engine.
//!
//! What the VMM's maps do not allow is refused when an access is issued, as without a policy. What the device needs at
//! once is loaded at once, after what has to come before it; all else lands when the engine says so. An access that fails
//! then is counted and lost ([`Lost`]): nobody waits for an answer any more. A guest cannot bring that about, since maps
//! are drained before they go: only a VMM that truncates memory can, or a mistake of ours.

use std::sync::atomic::{Ordering, fence};

use super::{AtomicOp, Bus, BusError, CopyError, Lost};
use crate::dma::irq::Interrupts;
use crate::dma::map::{DmaError, MemoryMap};
use crate::dma::order::knobs::Fabric;
use crate::dma::order::{Kind, Memory, NewTxn, Order, Payload, Range, Refused, Scope};
use crate::dma::{Horizon, Iova, Load, LoadClass, Store, StoreClass, Stream};
use crate::log_limit::limited;

/// Nanoseconds of a tick of the engine.
const TICK: u64 = 1000;

/// What the engine applies to.
struct Target<'a> {
    map: &'a MemoryMap,
    irq: &'a mut Interrupts,
    lost: &'a mut Lost,
}

impl Target<'_> {
    fn noted<T>(&mut self, result: Result<T, DmaError>) -> Result<T, DmaError> {
        if let Err(error) = &result {
            match error {
                DmaError::NoBacking { .. } => self.lost.torn += 1,
                _ => self.lost.amiss += 1,
            }
            limited!(warn, target: "cx10::dma", "a delayed access is lost: {error}");
        }
        result
    }
}

impl Memory for Target<'_> {
    fn read(&mut self, at: Iova, buf: &mut [u8]) -> Result<(), DmaError> {
        let result = self.map.read(at, buf);
        fence(Ordering::Acquire);
        self.noted(result)
    }

    fn write(&mut self, at: Iova, bytes: &[u8]) -> Result<(), DmaError> {
        fence(Ordering::Release);
        let result = self.map.write_release(at, bytes);
        self.noted(result)
    }

    fn update_u64(&mut self, at: Iova, op: AtomicOp) -> Result<u64, DmaError> {
        let change = |word| op.apply(u64::from_le_bytes(word)).to_le_bytes();
        let result = self.map.update_u64(at, change).map(u64::from_le_bytes);
        self.noted(result)
    }

    fn signal(&mut self, vector: u32) {
        self.irq.raise(vector);
    }
}

fn store_kind(class: StoreClass) -> Kind {
    match class {
        StoreClass::Payload | StoreClass::AtomicResult => Kind::Write,
        StoreClass::Cqe => Kind::Cqe,
        StoreClass::Eqe => Kind::Eqe,
        StoreClass::CmdOut | StoreClass::CmdStatus => Kind::Command,
    }
}

fn load_kind(class: LoadClass) -> Kind {
    match class {
        LoadClass::Payload => Kind::Read,
        LoadClass::Atomic => Kind::Atomic,
        LoadClass::Wqe | LoadClass::DbRec | LoadClass::CmdIn | LoadClass::Translation => Kind::Control,
    }
}

pub(super) fn range(at: Iova, len: u64) -> Result<Range, DmaError> {
    Ok(Range { at, len: u32::try_from(len).map_err(|_| DmaError::Overflow)? })
}

fn writing<'a>(store: &Store, ranges: &'a [Range], payload: Payload<'a>) -> NewTxn<'a> {
    NewTxn {
        kind: store_kind(store.class),
        stream: store.stream,
        chain: store.chain,
        order: store.key,
        fence: store.wait.fence,
        after: [store.wait.after, None],
        keys: [store.index, 0],
        node: 0,
        ranges,
        steps: &[],
        payload,
    }
}

fn reading<'a>(load: &Load, ranges: &'a [Range]) -> NewTxn<'a> {
    NewTxn {
        kind: load_kind(load.class),
        stream: load.stream,
        chain: None,
        order: load.key,
        fence: load.wait.fence,
        after: [load.wait.after, None],
        keys: [load.index, 0],
        node: 0,
        ranges,
        steps: &[],
        payload: Payload::Sample,
    }
}

impl Bus {
    /// Gives accesses to an ordering engine from now on, or performs them where they are issued again. What is pending
    /// in an engine before is performed.
    pub fn reorder(&mut self, order: Option<Order>) {
        self.drain(Scope::All);
        self.order = order.map(Box::new);
    }

    /// The ordering engine.
    pub fn order(&self) -> Option<&Order> {
        self.order.as_deref()
    }

    /// The ordering engine, to give it a log.
    pub fn order_mut(&mut self) -> Option<&mut Order> {
        self.order.as_deref_mut()
    }

    /// The engine and what it applies to.
    fn engine(&mut self) -> Option<(&mut Order, Target<'_>)> {
        let target = Target { map: &self.map, irq: &mut self.irq, lost: &mut self.lost };
        self.order.as_deref_mut().map(|order| (order, target))
    }

    /// Time goes on; what is due at `now`, in nanoseconds of the function's clock, is performed. Whether more is due.
    pub fn advance(&mut self, now: u64) -> bool {
        self.engine().is_some_and(|(order, mut target)| order.advance(now / TICK, &mut target))
    }

    /// When the next pending access is due, in nanoseconds of the function's clock.
    pub fn next_due(&mut self) -> Option<u64> {
        self.order.as_mut()?.next_due().map(|tick| tick.saturating_mul(TICK))
    }

    /// All that was issued for `stream` so far, for what must come after it.
    #[inline]
    pub fn horizon(&self, stream: Stream) -> Option<Horizon> {
        self.order.as_ref().map(|order| order.horizon(stream))
    }

    /// What an acknowledgement of all that was issued for `stream` promises to be visible.
    #[inline]
    pub fn acknowledged(&self, stream: Stream) -> Option<Horizon> {
        self.order.as_ref().and_then(|order| order.ack(stream))
    }

    /// What was lost.
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// What the engine does not take, which it always should, is performed at once and counted as amiss.
    #[cold]
    fn refused(&mut self, refused: Refused, store: &Store) {
        limited!(error, target: "cx10::dma", "store of {:?} by {:?}: {refused}", store.class, store.stream);
        self.lost.amiss += 1;
        self.drain(Scope::All);
    }

    /// Performs all that is pending in `scope`.
    pub fn drain(&mut self, scope: Scope) {
        if let Some((order, mut target)) = self.engine() {
            order.drain(scope, &mut target);
        }
    }

    /// A driver initializes the function.
    pub fn begin_life(&mut self) {
        if let Some((order, mut target)) = self.engine() {
            order.begin_life(&mut target);
        }
    }

    /// Drops all that is pending.
    pub fn discard(&mut self) {
        if let Some(order) = &mut self.order {
            order.discard();
        }
    }

    /// A processor reads a register: where the fabric keeps order, its answer comes after all stores before it.
    pub fn answer_read(&mut self) {
        if self.order.as_ref().is_some_and(|order| order.settings().rules.fabric == Fabric::Pcie) {
            self.drain(Scope::All);
        }
    }

    #[cold]
    pub(super) fn store_ordered(&mut self, store: &Store, at: Iova, data: &[u8]) -> Result<(), BusError> {
        let len = data.len() as u64;
        self.map.check_write(at, len)?;
        let whole = range(at, len)?;
        // What publishes an entry is its last byte.
        let publishes = matches!(store.class, StoreClass::Cqe | StoreClass::Eqe | StoreClass::CmdStatus);
        let ranges = match at.checked_add(len.saturating_sub(1)) {
            Some(last) if publishes && len > 1 => [Range { len: whole.len - 1, ..whole }, Range { at: last, len: 1 }],
            _ => [whole, Range { len: 0, ..whole }],
        };
        let ranges = if ranges[1].len == 0 { &ranges[..1] } else { &ranges[..] };
        let txn = writing(store, ranges, Payload::Bytes(data));
        let Some((order, mut target)) = self.engine() else { return Ok(()) };
        if let Err(refused) = order.issue(&txn, &mut target) {
            self.refused(refused, store);
            self.map.write_release(at, data)?;
        }
        Ok(())
    }

    #[cold]
    pub(super) fn load_ordered(&mut self, load: &Load, at: Iova, buf: &mut [u8]) -> Result<(), BusError> {
        self.map.check_read(at, buf.len() as u64)?;
        let ranges = [range(at, buf.len() as u64)?];
        let txn = reading(load, &ranges);
        let Some((order, mut target)) = self.engine() else { return Ok(()) };
        Ok(order.read_now(&txn, &mut target, buf)?)
    }

    /// As [`Bus::copy`] between as many bytes in several ranges, as one transaction. Where accesses are reordered only.
    #[cold]
    pub fn copy_ranges(&mut self, load: Load, from: &[Range], store: Store, to: &[Range]) -> Result<(), CopyError> {
        let at = |ranges: &[Range]| ranges.first().map_or(Iova(0), |range| range.at);
        let moved = if self.enabled {
            self.copy_ordered(&load, from, &store, to)
        } else {
            Err(CopyError::Source(BusError::MasterDisabled))
        };
        self.copied(moved, (&load, at(from)), (&store, at(to)))
    }

    #[cold]
    pub(super) fn copy_ordered(
        &mut self,
        load: &Load,
        from: &[Range],
        store: &Store,
        to: &[Range],
    ) -> Result<(), CopyError> {
        for range in from {
            self.map.check_read(range.at, range.len.into()).map_err(|error| CopyError::Source(error.into()))?;
        }
        for range in to {
            self.map.check_write(range.at, range.len.into()).map_err(|error| CopyError::Target(error.into()))?;
        }
        let (read, write) = (reading(load, from), writing(store, to, Payload::Sample));
        let Some((order, mut memory)) = self.engine() else { return Ok(()) };
        if let Err(refused) = order.copy(&read, &write, &mut memory) {
            self.refused(refused, store);
            let mut bytes = Vec::new();
            for range in from {
                let start = bytes.len();
                bytes.resize(start + range.len as usize, 0);
                self.map.read(range.at, &mut bytes[start..]).map_err(|error| CopyError::Source(error.into()))?;
            }
            for range in to {
                let rest = bytes.split_off(bytes.len().min(range.len as usize));
                let part = std::mem::replace(&mut bytes, rest);
                self.map.write_release(range.at, &part).map_err(|error| CopyError::Target(error.into()))?;
            }
        }
        Ok(())
    }

    #[cold]
    pub(super) fn atomic_ordered(&mut self, store: &Store, at: Iova, op: AtomicOp) -> Result<u64, BusError> {
        const WORD: u64 = 8;
        if at.0 % WORD != 0 {
            return Err(DmaError::Misaligned { at }.into());
        }
        self.map.check_read(at, WORD)?;
        self.map.check_write(at, WORD)?;
        let ranges = [range(at, WORD)?];
        let txn = NewTxn { kind: Kind::Atomic, ..writing(store, &ranges, Payload::Atomic(op)) };
        let Some((order, mut target)) = self.engine() else { return Ok(0) };
        Ok(order.atomic_now(&txn, &mut target)?)
    }

    #[cold]
    pub(super) fn signal_ordered(&mut self, stream: Stream, vector: u32) {
        let txn = NewTxn::device(Kind::Msi, stream, &[], Payload::Signal(vector));
        let Some((order, mut target)) = self.engine() else { return };
        if let Err(refused) = order.issue(&txn, &mut target) {
            limited!(error, target: "cx10::dma", "interrupt of {stream:?}: {refused}");
            self.lost.amiss += 1;
            self.drain(Scope::All);
            self.irq.raise(vector);
        }
    }
}
