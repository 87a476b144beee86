//! The bus when a policy reorders: every access becomes a transaction of the ordering engine.
//!
//! What the VMM's maps do not allow is refused when an access is issued, as without a policy. What the device needs at
//! once is loaded at once, after what has to come before it; all else lands when the engine says so. Memory that went
//! away meanwhile is the VMM's own doing, since it gets its memory back drained: such an access is counted and lost.

use std::sync::atomic::{Ordering, fence};

use super::{AtomicOp, Bus, BusError, CopyError};
use crate::dma::irq::Interrupts;
use crate::dma::map::{DmaError, MemoryMap};
use crate::dma::order::knobs::Fabric;
use crate::dma::order::{Kind, Memory, NewTxn, Order, Payload, Range, Scope};
use crate::dma::{Horizon, Iova, Load, LoadClass, Store, StoreClass, Stream};
use crate::log_limit::limited;

/// Nanoseconds of a tick of the engine.
const TICK: u64 = 1000;

/// What the engine applies to.
struct Target<'a> {
    map: &'a MemoryMap,
    irq: &'a mut Interrupts,
}

impl Target<'_> {
    fn noted<T>(result: Result<T, DmaError>) -> Result<T, DmaError> {
        if let Err(error) = &result {
            limited!(warn, target: "cx10::dma", "a delayed access is lost: {error}");
        }
        result
    }
}

impl Memory for Target<'_> {
    fn read(&mut self, at: Iova, buf: &mut [u8]) -> Result<(), DmaError> {
        let result = self.map.read(at, buf);
        fence(Ordering::Acquire);
        Target::noted(result)
    }

    fn write(&mut self, at: Iova, bytes: &[u8]) -> Result<(), DmaError> {
        fence(Ordering::Release);
        Target::noted(self.map.write_release(at, bytes))
    }

    fn update_u64(&mut self, at: Iova, op: AtomicOp) -> Result<u64, DmaError> {
        let change = |word| op.apply(u64::from_le_bytes(word)).to_le_bytes();
        Target::noted(self.map.update_u64(at, change).map(u64::from_le_bytes))
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

fn range(at: Iova, len: u64) -> Result<Range, DmaError> {
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
        let target = Target { map: &self.map, irq: &mut self.irq };
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
            limited!(error, target: "cx10::dma", "store of {:?} by {:?}: {refused}", store.class, store.stream);
            order.drain(Scope::All, &mut target);
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

    #[cold]
    pub(super) fn copy_ordered(
        &mut self,
        load: &Load,
        from: Iova,
        store: &Store,
        to: Iova,
        len: u64,
    ) -> Result<(), CopyError> {
        let source = |error: DmaError| CopyError::Source(error.into());
        let target = |error: DmaError| CopyError::Target(error.into());
        self.map.check_read(from, len).map_err(source)?;
        self.map.check_write(to, len).map_err(target)?;
        let ranges = ([range(from, len).map_err(source)?], [range(to, len).map_err(target)?]);
        let (read, write) = (reading(load, &ranges.0), writing(store, &ranges.1, Payload::Sample));
        let Some((order, mut memory)) = self.engine() else { return Ok(()) };
        if let Err(refused) = order.copy(&read, &write, &mut memory) {
            limited!(error, target: "cx10::dma", "copy by {:?}: {refused}", store.stream);
            order.drain(Scope::All, &mut memory);
            self.map.copy(from, to, len)?;
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
            order.drain(Scope::All, &mut target);
            self.irq.raise(vector);
        }
    }
}
