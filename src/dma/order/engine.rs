//! The engine: pool, policy, clock, bounds, log and checker together; what the bus holds.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::checker::{Checker, Verdict};
use super::coverage::Coverage;
use super::knobs::{Ack, AtomicMode};
use super::log::{Event, Issued, Why, Writer};
use super::overtakes::Identity;
use super::policy::{About, Decider, Illegal, Policy};
use super::pool::{Arrival, Slots};
use super::replay::{PATIENCE, Plan, Replay, name_of};
use super::rules::{Access, Rule};
use super::settings::Settings;
use super::split::{Cuts, split};
use super::{Choice, Horizon, Kind, Memory, NewTxn, Payload, Pool, Refused, Scope, Stream, Tick, TxnId};
use crate::dma::Iova;
use crate::dma::bus::AtomicOp;
use crate::dma::map::DmaError;

/// The bits of a transaction's note that hold the tick of its issue; the others name the part that may be singled out.
const NOTE_TICK: u64 = (1 << 48) - 1;

/// Parts that one call of [`Order::advance`] applies at most; the caller then lets others have their turn.
const PORTION: usize = 512;

/// A part that is to be applied, in the order of its heap: what is due first comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    tick: Tick,
    priority: u64,
    choice: Choice,
}

/// Counts for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions issued.
    pub issued: u64,
    /// Parts applied, by [`Why`].
    pub applied: [u64; Why::ALL.len()],
    /// Parts that a policy delayed.
    pub held: u64,
    /// Writes whose last part came before another.
    pub tails: u64,
    /// Drains.
    pub drains: u64,
    /// Transactions forgotten by a reset.
    pub discarded: u64,
    /// Most transactions that were pending at a time.
    pub most_pending: u64,
    /// Most bytes that were pending at a time.
    pub most_bytes: u64,
    /// The longest time between issue and application, in ticks.
    pub oldest: Tick,
}

/// A life of the function, from its initialization by a driver to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The seed that decided.
    pub seed: u64,
    /// Transactions that had been issued before it.
    pub issued: u64,
    /// Violations that had been found before it.
    pub violations: u64,
}

/// Lives that are told apart; after them the last seed stays.
const MOST_LIVES: usize = 4096;

/// Pending accesses and everything that decides about them.
#[derive(Debug)]
pub struct Order {
    settings: Settings,
    pool: Pool,
    decider: Decider,
    now: Tick,
    due: BinaryHeap<Reverse<Due>>,
    fresh: Vec<Choice>,
    cuts: Cuts,
    counters: Counters,
    lives: Vec<Life>,
    coverage: Coverage,
    checker: Option<Checker>,
    log: Option<Writer>,
    plan: Option<Plan>,
}

impl Order {
    /// An engine without log.
    pub fn new(settings: Settings) -> Order {
        let Settings { policy, illegal, seed, limits, .. } = settings;
        Order {
            pool: Pool::new(settings.pool_rules()),
            decider: Decider { policy, illegal, seed, limits },
            now: 0,
            due: BinaryHeap::new(),
            fresh: Vec::new(),
            cuts: Cuts::default(),
            counters: Counters::default(),
            lives: Vec::new(),
            coverage: Coverage::default(),
            checker: settings.check.then(|| Checker::new(&settings)),
            log: None,
            plan: None,
            settings,
        }
    }

    /// Keeps a log from now on.
    pub fn keep_log(&mut self, log: Writer) {
        self.log = Some(log);
    }

    /// Follows an order that is given instead of the policy's. Before the first transaction.
    pub fn follow(&mut self, plan: Plan) {
        self.plan = Some(plan);
    }

    /// The order that is followed instead of the policy's.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// The replay that is followed.
    pub fn replay(&self) -> Option<&Replay> {
        match &self.plan {
            Some(Plan::Replay(replay)) => Some(replay),
            _ => None,
        }
    }

    /// Writes what the log has buffered. Answers why the log ends before the run does, if it does.
    pub fn flush_log(&mut self) -> Option<&str> {
        let log = self.log.as_mut()?;
        log.flush();
        log.cut()
    }

    /// Why the log ends before the run does, if it does.
    pub fn log_cut(&self) -> Option<&str> {
        self.log.as_ref().and_then(Writer::cut)
    }

    /// What it was told.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What is pending.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The lives so far, if each has a seed of its own.
    pub fn lives(&self) -> &[Life] {
        &self.lives
    }

    /// A driver initializes the function. Where seeds take turns this is the turn of the next, and the accesses of each
    /// stream are numbered anew: a life decides as it would if it were the only one, with that seed.
    pub fn begin_life(&mut self, memory: &mut dyn Memory) {
        if self.settings.seeds <= 1 || self.lives.len() >= MOST_LIVES {
            return;
        }
        self.drain(Scope::All, memory);
        self.pool.renumber();
        if let Some(checker) = &mut self.checker {
            checker.renumber();
        }
        let seed = self.settings.seed_of_life(self.lives.len() as u64);
        self.decider.seed = seed;
        let violations = self.verdict().map_or(0, |verdict| verdict.violations);
        self.lives.push(Life { seed, issued: self.counters.issued, violations });
    }

    /// What was overtaken so far.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// What the checker found, if it looks on.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.checker.as_ref().map(Checker::verdict)
    }

    /// Everything that a stream has issued.
    pub fn horizon(&self, stream: Stream) -> Horizon {
        self.pool.horizon(stream)
    }

    /// What an acknowledgement of everything that a stream has issued tells; nothing under `ack=receive`.
    pub fn ack(&self, stream: Stream) -> Option<Horizon> {
        (self.settings.rules.ack == Ack::Visible).then(|| self.pool.horizon(stream))
    }

    /// Time goes on; nothing is applied. It never goes back.
    pub fn set_now(&mut self, now: Tick) {
        self.now = self.now.max(now);
    }

    /// When the next part is to be applied; nothing is if nothing is pending.
    pub fn next_due(&mut self) -> Option<Tick> {
        self.skip_applied();
        let deadline = self.due.peek().map(|Reverse(due)| due.tick);
        let given = match &self.plan {
            Some(Plan::Replay(replay)) => replay.due(&self.pool, |choice| self.issued_at(choice)).map(|(tick, _)| tick),
            Some(Plan::Only(only)) => self.next_turn(only),
            None => None,
        };
        deadline.into_iter().chain(given).min()
    }

    fn issued_at(&self, choice: Choice) -> Tick {
        self.pool.get(choice.txn).map_or(self.now, |view| view.note() & NOTE_TICK)
    }

    fn skip_applied(&mut self) {
        while let Some(Reverse(due)) = self.due.peek() {
            if self.pool.is_enabled(due.choice) {
                return;
            }
            self.due.pop();
        }
    }

    /// Issues a transaction. It is applied when its policy says so; where the pool is full, others are before that.
    pub fn issue(&mut self, txn: &NewTxn<'_>, memory: &mut dyn Memory) -> Result<TxnId, Refused> {
        self.make_room(1, txn.len(), memory);
        let id = self.take(txn)?;
        self.settle(memory);
        Ok(id)
    }

    /// Issues a read and the write that stores what it brings. Both have the same number of bytes.
    pub fn copy(
        &mut self,
        read: &NewTxn<'_>,
        write: &NewTxn<'_>,
        memory: &mut dyn Memory,
    ) -> Result<(TxnId, TxnId), Refused> {
        if read.len() != write.len() || read.kind != Kind::Read || write.kind != Kind::Write {
            return Err(Refused::Malformed);
        }
        self.make_room(2, read.len() * 2, memory);
        let from = self.take(&NewTxn { payload: Payload::Sample, ..*read })?;
        if self.pool.is_done(from) {
            return Ok((from, from));
        }
        let to = self.take(&NewTxn { payload: Payload::From(from), ..*write })?;
        self.settle(memory);
        Ok((from, to))
    }

    /// Reads at once what the device needs now, after what the rules want to see before it.
    pub fn read_now(&mut self, txn: &NewTxn<'_>, memory: &mut dyn Memory, out: &mut [u8]) -> Result<(), DmaError> {
        let arrival = self.arrive(txn);
        self.give_way(arrival.id, &arrival.access, memory);
        self.force(arrival.waits, memory);
        let mut result = Ok(());
        let mut rest = out;
        for range in txn.ranges {
            let (bytes, after) = rest.split_at_mut((range.len as usize).min(rest.len()));
            rest = after;
            result = result.and(memory.read(range.at, bytes));
        }
        self.performed(txn, &arrival, 1);
        result
    }

    /// Performs an atomic operation at once, after what the rules want to see before it, and answers the old value.
    pub fn atomic_now(&mut self, txn: &NewTxn<'_>, memory: &mut dyn Memory) -> Result<u64, DmaError> {
        let (Payload::Atomic(op), [range]) = (txn.payload, txn.ranges) else {
            return Err(DmaError::Overflow);
        };
        let halves = self.settings.rules.atomic == AtomicMode::Rmw || self.pool.rules().omit.has(Rule::Indivisible);
        if halves {
            return self.read_half_now(txn, memory);
        }
        let arrival = self.arrive(txn);
        self.give_way(arrival.id, &arrival.access, memory);
        self.force(arrival.waits, memory);
        let old = memory.update_u64(range.at, op);
        self.performed(txn, &arrival, 1);
        old
    }

    /// The read of an atomic at once; its write when the policy says so.
    fn read_half_now(&mut self, txn: &NewTxn<'_>, memory: &mut dyn Memory) -> Result<u64, DmaError> {
        self.make_room(1, txn.len(), memory);
        let Ok(id) = self.take(txn) else {
            return Err(DmaError::Overflow);
        };
        if let Some(access) = self.pool.get(id).map(|view| *view.access()) {
            self.give_way(id, &access, memory);
        }
        for earlier in self.pool.predecessors(id) {
            self.finish(earlier, Why::Needed, memory);
        }
        let mut watched = Watched { memory, read: Err(DmaError::Overflow) };
        self.apply(Choice { txn: id, part: 0 }, Why::AtOnce, &mut watched);
        let old = watched.read;
        if old.is_err() {
            // The other half stores nothing.
            self.finish(id, Why::AtOnce, memory);
        }
        self.settle(memory);
        old.map(u64::from_le_bytes)
    }

    /// Applies what is due at `now`, at most a portion. Answers whether more is due.
    pub fn advance(&mut self, now: Tick, memory: &mut dyn Memory) -> bool {
        self.set_now(now);
        for _ in 0..PORTION {
            if self.apply_given(memory) {
                continue;
            }
            match self.due.peek() {
                Some(Reverse(due)) if due.tick <= self.now => {
                    let choice = due.choice;
                    self.due.pop();
                    if self.pool.is_enabled(choice) {
                        self.apply(choice, Why::Due, memory);
                    }
                }
                _ => return false,
            }
        }
        self.next_due().is_some_and(|tick| tick <= self.now)
    }

    /// Applies everything that a scope covers, and what that waits for.
    pub fn drain(&mut self, scope: Scope, memory: &mut dyn Memory) {
        self.counters.drains += 1;
        if self.settings.illegal != Some(Illegal::DrainSkip) {
            for id in self.pool.closure(scope) {
                self.finish(id, Why::Drained, memory);
            }
        }
        self.tell(&Event::Drain { tick: self.now, scope });
    }

    /// Forgets everything that is pending: a reset, or the end of bus mastering.
    pub fn discard(&mut self) {
        self.counters.discarded += self.pool.discard() as u64;
        self.due.clear();
        self.tell(&Event::Discard { tick: self.now });
    }

    fn tell(&mut self, event: &Event<'_>) {
        if let Some(checker) = &mut self.checker {
            checker.event(event);
        }
        if let Some(log) = &mut self.log {
            log.event(event);
        }
    }

    fn told(&self) -> bool {
        self.checker.is_some() || self.log.is_some()
    }

    /// The transaction in its memory domain.
    fn place<'a>(&self, txn: &NewTxn<'a>) -> NewTxn<'a> {
        let far = |border: u64| txn.ranges.first().is_some_and(|range| range.at.0 >= border);
        let node = match self.settings.rules.split_path {
            Some(border) if txn.node == 0 => u8::from(far(border)),
            _ => txn.node,
        };
        NewTxn { node, ..*txn }
    }

    /// Numbers a transaction that is performed at once.
    fn arrive(&mut self, txn: &NewTxn<'_>) -> Arrival {
        self.counters.issued += 1;
        self.pool.arrive(&self.place(txn))
    }

    /// Cuts a transaction and takes it into the pool.
    fn take(&mut self, txn: &NewTxn<'_>) -> Result<TxnId, Refused> {
        let placed = self.place(txn);
        let mut cuts = std::mem::take(&mut self.cuts);
        let seq = self.pool.next_seq(txn.stream, txn.kind);
        let victim = split(&placed, seq, &self.settings.rules, &self.decider, &mut cuts);
        let cut = NewTxn { ranges: &cuts.ranges, steps: &cuts.steps, ..placed };
        let result = self.pool.issue(&cut);
        if let Ok(id) = result {
            self.counters.issued += 1;
            self.pool.set_note(id, u64::from(victim) << 48 | (self.now & NOTE_TICK));
            if self.told() {
                self.tell_issue(id, seq, &cut);
            }
            let mut fresh = std::mem::take(&mut self.fresh);
            self.pool.enabled_in(id, &mut fresh);
            self.fresh = fresh;
            self.schedule();
            self.counters.most_pending = self.counters.most_pending.max(self.pool.len() as u64);
            self.counters.most_bytes = self.counters.most_bytes.max(self.pool.bytes());
        }
        self.cuts = cuts;
        result
    }

    fn tell_issue(&mut self, id: TxnId, seq: u64, txn: &NewTxn<'_>) {
        let source = if let Payload::From(read) = txn.payload { Some(read) } else { None };
        let steps = self.pool.get(id).map_or(0, |view| view.parts());
        let issued = issued(self.now, id, seq, source, steps, txn);
        self.tell(&Event::Issue(issued));
    }

    /// Tells of a transaction that was performed at once, with all its ranges in one step.
    fn performed(&mut self, txn: &NewTxn<'_>, arrival: &Arrival, steps: u16) {
        self.counters.applied[Why::AtOnce as usize] += 1;
        self.coverage.record(&arrival.access, self.pool.older_classes(arrival.id));
        let (stream, control) = (txn.stream, txn.kind == Kind::Control);
        self.follow_up(Identity { stream, control, seq: arrival.access.seq, part: 0 });
        if self.told() {
            let placed = self.place(txn);
            let issued = issued(self.now, arrival.id, arrival.access.seq, None, steps, &placed);
            self.tell(&Event::Issue(issued));
            let choice = Choice { txn: arrival.id, part: 0 };
            self.tell(&Event::Apply { tick: self.now, choice, why: Why::AtOnce });
        }
    }

    /// Decides when the parts that have become applicable are applied.
    fn schedule(&mut self) {
        while let Some(choice) = self.fresh.pop() {
            let Some(view) = self.pool.get(choice.txn) else { continue };
            let access = view.access();
            let about = About {
                kind: access.kind,
                stream: access.stream,
                seq: access.seq,
                id: choice.txn.0,
                part: choice.part,
                parts: view.parts(),
                victim: (view.note() >> 48) as u16,
            };
            let (tick, priority) = match &self.plan {
                // The last moment; before it, the order that is given decides.
                Some(plan) if !plan.is_over() => (self.now.saturating_add(PATIENCE), choice.txn.0),
                _ => self.decider.decide(&about, self.now),
            };
            self.counters.held += u64::from(tick > self.now);
            self.due.push(Reverse(Due { tick, priority, choice }));
        }
    }

    /// Under the in-order policy nothing stays pending, and with a given order nothing whose turn it is.
    fn settle(&mut self, memory: &mut dyn Memory) {
        if self.plan.is_some() {
            while self.apply_given(memory) {}
        } else if self.settings.policy == Policy::InOrder && self.settings.illegal.is_none() {
            for id in self.pool.closure(Scope::All) {
                self.finish(id, Why::Due, memory);
            }
        }
    }

    /// Applies what is due first until there is room.
    fn make_room(&mut self, transactions: usize, bytes: u64, memory: &mut dyn Memory) {
        let limits = self.settings.limits;
        let most = limits.max_transactions as usize;
        while !self.pool.is_empty()
            && (self.pool.len() + transactions > most || self.pool.bytes() + bytes > u64::from(limits.max_bytes))
        {
            self.skip_applied();
            let Some(Reverse(due)) = self.due.peek().copied() else { return };
            let given = match &self.plan {
                Some(Plan::Replay(replay)) => {
                    replay.due(&self.pool, |choice| self.issued_at(choice)).map(|(_, choice)| choice)
                }
                // The oldest overtakes nothing.
                Some(Plan::Only(_)) => self.pool.enabled().first().copied(),
                None => None,
            };
            self.apply(given.unwrap_or(due.choice), Why::Pressure, memory);
        }
    }

    /// Applies a set of transactions with all that they wait for.
    fn force(&mut self, waits: Slots, memory: &mut dyn Memory) {
        if waits.is_empty() {
            return;
        }
        for id in self.pool.with_waits(waits) {
            self.finish(id, Why::Needed, memory);
        }
    }

    /// Applies the rest of a transaction.
    fn finish(&mut self, id: TxnId, why: Why, memory: &mut dyn Memory) {
        let parts = self.pool.get(id).map_or(0, |view| view.parts());
        if matches!(self.plan, Some(Plan::Only(_))) {
            let names = (0..parts).filter_map(|part| name_of(&self.pool, Choice { txn: id, part }));
            for older in self.not_to_be_overtaken(&names.collect::<Vec<_>>(), id) {
                self.finish_alone(older, why, memory);
            }
        }
        self.finish_alone(id, why, memory);
    }

    fn finish_alone(&mut self, id: TxnId, why: Why, memory: &mut dyn Memory) {
        let parts = self.pool.get(id).map_or(0, |view| view.parts());
        for part in 0..parts {
            let choice = Choice { txn: id, part };
            if let Some(name) = self.plan.as_ref().and_then(|_| name_of(&self.pool, choice)) {
                self.catch_up(name, memory);
            }
            if self.pool.is_enabled(choice) {
                self.apply(choice, why, memory);
            }
        }
    }

    fn apply(&mut self, choice: Choice, why: Why, memory: &mut dyn Memory) {
        if let Some(view) = self.pool.get(choice.txn) {
            let access = *view.access();
            let age = self.now.saturating_sub(view.note() & NOTE_TICK);
            self.counters.oldest = self.counters.oldest.max(age);
            if view.is_untouched() {
                self.coverage.record(&access, self.pool.older_classes(choice.txn));
            }
            let early = (0..choice.part).any(|part| !view.is_applied(part));
            self.coverage.record_part(&access, early);
            let last = choice.part + 1 == view.parts();
            self.counters.tails += u64::from(early && last && access.kind == Kind::Write);
        }
        self.counters.applied[why as usize] += 1;
        let name = self.plan.as_ref().and_then(|_| name_of(&self.pool, choice));
        let mut fresh = std::mem::take(&mut self.fresh);
        self.pool.apply_telling(choice, memory, &mut fresh);
        self.fresh = fresh;
        if self.told() {
            self.tell(&Event::Apply { tick: self.now, choice, why });
        }
        if let Some(name) = name {
            self.follow_up(name);
        }
        self.schedule();
    }
}

/// Memory, with a look at the eight bytes that are read.
struct Watched<'a> {
    memory: &'a mut dyn Memory,
    read: Result<[u8; 8], DmaError>,
}

impl Memory for Watched<'_> {
    fn read(&mut self, at: Iova, buf: &mut [u8]) -> Result<(), DmaError> {
        let result = self.memory.read(at, buf);
        self.read = result.map(|()| *buf.first_chunk().unwrap_or(&[0; 8]));
        result
    }

    fn write(&mut self, at: Iova, bytes: &[u8]) -> Result<(), DmaError> {
        self.memory.write(at, bytes)
    }

    fn update_u64(&mut self, at: Iova, op: AtomicOp) -> Result<u64, DmaError> {
        self.memory.update_u64(at, op)
    }

    fn signal(&mut self, vector: u32) {
        self.memory.signal(vector);
    }

    fn sampled(&mut self, choice: Choice, bytes: &[u8]) {
        self.memory.sampled(choice, bytes);
    }
}

fn issued<'a>(tick: Tick, id: TxnId, seq: u64, source: Option<TxnId>, steps: u16, txn: &NewTxn<'a>) -> Issued<'a> {
    Issued {
        tick,
        id,
        kind: txn.kind,
        stream: txn.stream,
        seq,
        chain: txn.chain,
        order: txn.order,
        fence: txn.fence,
        after: txn.after,
        keys: txn.keys,
        node: txn.node,
        source,
        steps,
        counts: Cow::Borrowed(txn.steps),
        ranges: Cow::Borrowed(txn.ranges),
    }
}

#[cfg(test)]
impl Order {
    /// Applies a part whatever the policy says.
    pub(super) fn apply_for_test(&mut self, choice: Choice, memory: &mut dyn Memory) {
        assert!(self.pool.is_enabled(choice));
        self.apply(choice, Why::Due, memory);
    }
}

mod follow;
#[cfg(test)]
pub(in crate::dma::order) mod tests;
