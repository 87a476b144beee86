//! Every schedule of a program on the real pool.
//!
//! The explorer issues a program's transactions to a [`Pool`], and at each point tries everything that can happen next:
//! each part that the pool offers, the next step of each processor, the issue of the next transaction. States that were seen
//! before are not entered again, so the result is the set of all outcomes, with one schedule for each.
//!
//! Memory is a toy: one word for each granule. It checks that the pool touches nothing but what a part says. A value
//! that depends on a register is stored as a marker and filled in when the store lands.
//!
//! What a transaction waits for by `after` is left to the pool where the pool can be told exactly that; other
//! dependencies the explorer holds back itself, as the device does by not issuing.
//!
//! A program with too many schedules is run once more with those left out that cannot matter: see [`Options::reduced`].
//!
//! Limits: the number of states is bounded; a program beyond it is refused, never half explored.

use super::Mode;
use super::program::{
    Ack, Actor, AtomicKnob, Attribute, Expression, Fence, Fence2, Kind, Knobs, Operation, Outcome, Program, RawScope,
    Step, Transaction, limits,
};
use crate::dma::bus::AtomicOp;
use crate::dma::map::DmaError;
use crate::dma::order::knobs::{self, Rules};
use crate::dma::order::pool::Pool;
use crate::dma::order::rules::Omit;
use crate::dma::order::{self as engine, Choice, Horizon, Memory, NewTxn, Payload, Range, TxnId};
use crate::dma::{Iova, KeyOrder, Stream};
use std::collections::{BTreeMap, HashSet};

/// States before a program counts as too large. Less than 100 MB.
pub const DEFAULT_STATES: usize = 200_000;
/// States before schedules that cannot matter are left out.
const FULL_STATES: usize = 40_000;

/// Address of the first granule.
const BASE: u64 = 0x1000;
/// Bytes of a granule.
const GRANULE: u64 = 8;
/// Marks a stored word as the place of a value that is computed when it lands. Values are far smaller.
const MARK: u64 = 1 << 63;

/// How a program is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// States before the explorer gives up.
    pub max_states: usize,
    /// Rules of the engine that are left out, to see that a program notices.
    pub omit: Omit,
    /// Issue at any time, so that the pool is found part-way through the work of earlier transactions. Else all
    /// are issued first, which is quicker and has the same outcomes in a correct engine.
    pub interleave: bool,
    /// An access to a granule that nobody else touches comes as soon as it can, and nothing else is tried there: in
    /// a correct engine it commutes with everything.
    pub reduce: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { max_states: DEFAULT_STATES, omit: Omit::NOTHING, interleave: true, reduce: false }
    }
}

impl Options {
    /// The same for a program that is too large otherwise.
    pub fn reduced(self) -> Options {
        Options { interleave: false, reduce: true, ..self }
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The next transaction is issued.
    Issue(u8),
    /// A part of a transaction is applied.
    Apply(u8, u8),
    /// A processor takes its next step.
    Step(u8, u8),
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Exploration {
    /// Every outcome, with the first schedule that led to it.
    pub outcomes: BTreeMap<Outcome, Vec<Move>>,
    /// Different states that were entered.
    pub states: usize,
    /// Schedules that cannot matter were left out, see [`Options::reduced`].
    pub reduced: bool,
}

/// Why a program could not be explored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExploreError {
    /// There are too many states.
    #[error("the explorer gave up after {0} states: the program has too many schedules")]
    TooLarge(usize),
    /// There are too many outcomes.
    #[error("the program has more than {0} outcomes")]
    Outcomes(usize),
    /// The pool did what it must never do, whatever the order.
    #[error("the engine failed: {0}")]
    Engine(String),
}

/// The rules that a mode and a program's knobs stand for.
pub fn rules(mode: Mode, set: Knobs, omit: Omit) -> Rules {
    Rules {
        fabric: if mode.pcie() { knobs::Fabric::Pcie } else { knobs::Fabric::None },
        ro_only: mode.relaxed_only(),
        strict: knobs::Strict::Reject,
        keys: knobs::Keys::AsGiven,
        raw_scope: match set.raw_scope {
            RawScope::Qp => knobs::RawScope::Qp,
            RawScope::Bytes => knobs::RawScope::Bytes,
            RawScope::Function => knobs::RawScope::Function,
        },
        ack: match set.ack {
            Ack::Visible => knobs::Ack::Visible,
            Ack::Receive => knobs::Ack::Receive,
        },
        atomic: match set.atomic {
            AtomicKnob::Man => knobs::AtomicMode::Man,
            AtomicKnob::PcieRo => knobs::AtomicMode::PcieRo,
            AtomicKnob::Rmw => knobs::AtomicMode::Rmw,
        },
        fence2: match set.fence2 {
            Fence2::Ibta => knobs::Fence2::Ibta,
            Fence2::Pr1780 => knobs::Fence2::Pr1780,
        },
        omit,
        ..Rules::default()
    }
}

/// All outcomes of the real engine. A program with too many schedules is tried again with fewer.
pub fn explore(program: &Program, mode: Mode, options: &Options) -> Result<Exploration, ExploreError> {
    if options.reduce {
        return explore_once(program, mode, options);
    }
    let full = Options { max_states: options.max_states.min(FULL_STATES), ..*options };
    match explore_once(program, mode, &full) {
        Err(ExploreError::TooLarge(_)) => explore_once(program, mode, &options.reduced()),
        done => done,
    }
}

fn explore_once(program: &Program, mode: Mode, options: &Options) -> Result<Exploration, ExploreError> {
    let plan = Plan::new(program, mode);
    let start = State {
        pool: Pool::new(rules(mode, program.source.set, options.omit)),
        ids: Vec::new(),
        applied: vec![0; program.transactions.len()],
        steps: vec![0; program.cpus.len()],
        machine: Machine {
            memory: vec![0; program.granules.len()],
            registers: vec![0; program.registers.len()],
            held: vec![0; program.transactions.len()],
        },
    };
    let mut walk = Walk { plan: &plan, options, seen: HashSet::new(), path: Vec::new(), found: Exploration::default() };
    walk.enter(start)?;
    walk.found.states = walk.seen.len();
    walk.found.reduced = options.reduce;
    Ok(walk.found)
}

/// What does not change while a program runs.
struct Plan<'a> {
    program: &'a Program,
    mode: Mode,
    streams: Vec<Stream>,
    /// Per transaction: what the pool is told to wait for, and what is held back here.
    told: Vec<[Option<Horizon>; 2]>,
    held: Vec<Vec<Actor>>,
    /// Per granule: only one transaction or step touches it.
    private: Vec<bool>,
}

impl<'a> Plan<'a> {
    fn new(program: &'a Program, mode: Mode) -> Plan<'a> {
        let stream = |t: &Transaction| match (t.kind, t.chain) {
            // An event queue for each chain; entries and interrupts are its, not the queue pair's.
            (Kind::Eqe | Kind::Msi, Some(chain)) => Stream::Eq(chain as u32),
            _ => Stream::Responder(t.queue as u32),
        };
        let streams: Vec<Stream> = program.transactions.iter().map(stream).collect();
        let mut told = Vec::new();
        let mut held = Vec::new();
        for (i, t) in program.transactions.iter().enumerate() {
            let mut horizons = [None; 2];
            let mut rest = t.after.clone();
            for horizon in &mut horizons {
                let Some((covered, h)) =
                    rest.iter().find_map(|a| exact_horizon(*a, i, &program.transactions, &streams, &rest))
                else {
                    break;
                };
                *horizon = Some(h);
                rest.retain(|a| !covered.contains(a));
            }
            told.push(horizons);
            held.push(rest);
        }
        let mut users = vec![0; program.granules.len()];
        program.transactions.iter().flat_map(|t| &t.cells).for_each(|c| users[c.granule] += 1);
        program.cpus.iter().flatten().for_each(|step| users[step.granule] += 1);
        let private = users.into_iter().map(|n| n == 1).collect();
        Plan { program, mode, streams, told, held, private }
    }

    fn key(&self, t: &Transaction) -> KeyOrder {
        let own = |attribute: Option<Attribute>, mode| attribute.unwrap_or(mode) == Attribute::Relaxed;
        if !matches!(t.kind, Kind::Write | Kind::Read | Kind::Atomic) {
            return KeyOrder::default();
        }
        KeyOrder {
            relaxed_write: own(t.waw, self.mode.waw()),
            relaxed_read: false,
            relaxed_read_after_write: own(t.raw, self.mode.raw()),
        }
    }
}

/// If `wanted` and others of `after` are together all that a stream has issued up to `wanted`: these, and the horizon
/// that says so. Only what was issued before transaction `user` has a horizon that it can carry.
fn exact_horizon(
    wanted: Actor,
    user: usize,
    transactions: &[Transaction],
    streams: &[Stream],
    after: &[Actor],
) -> Option<(Vec<Actor>, Horizon)> {
    let Actor::Transaction(last) = wanted else { return None };
    if last >= user {
        return None;
    }
    let stream = streams[last];
    // Control reads are numbered apart: no horizon covers them.
    if transactions[last].kind == Kind::Control {
        return None;
    }
    let counts = |i: &usize| streams[*i] == stream && transactions[*i].kind != Kind::Control;
    let covered: Vec<Actor> = (0..=last).filter(counts).map(Actor::Transaction).collect();
    if !covered.iter().all(|a| after.contains(a)) {
        return None;
    }
    let seq = covered.len() as u64;
    Some((covered, Horizon { stream, seq }))
}

#[derive(Clone)]
struct Machine {
    memory: Vec<u64>,
    registers: Vec<u64>,
    /// By transaction: what the first half of an atomic has read, while the second is due. The pool has it too, but
    /// does not show it, and it tells states apart.
    held: Vec<u64>,
}

#[derive(Clone)]
struct State {
    pool: Pool,
    /// The pool's names of what was issued.
    ids: Vec<TxnId>,
    /// Parts that were applied, by transaction.
    applied: Vec<u32>,
    /// Steps that were taken, by processor.
    steps: Vec<usize>,
    machine: Machine,
}

impl State {
    fn done(&self, actor: Actor) -> bool {
        match actor {
            Actor::Transaction(i) => self.ids.get(i).is_some_and(|id| self.pool.is_done(*id)),
            Actor::Step(c, s) => self.steps[c] > s,
        }
    }

    fn step(&self, program: &Program, cpu: usize) -> Option<Step> {
        let step = program.cpus[cpu].get(self.steps[cpu])?;
        step.after.iter().all(|a| self.done(*a)).then(|| step.clone())
    }

    /// What tells this state from others. What the pool offers is part of it: two states are only the same if the engine
    /// treats them so.
    fn fingerprint(&self, enabled: &[Choice]) -> Box<[u8]> {
        let mut bytes = Vec::with_capacity(96);
        // Seven bits a byte: most numbers here are small.
        let mut push = |mut number: u64| {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        };
        push(self.ids.len() as u64);
        self.applied.iter().for_each(|parts| push(u64::from(*parts)));
        self.steps.iter().for_each(|s| push(*s as u64));
        let Machine { memory, registers, held } = &self.machine;
        memory.iter().chain(registers).chain(held).for_each(|value| push(*value));
        enabled.iter().for_each(|c| push(c.txn.0 << 6 | u64::from(c.part)));
        bytes.into()
    }
}

struct Walk<'a> {
    plan: &'a Plan<'a>,
    options: &'a Options,
    seen: HashSet<Box<[u8]>>,
    path: Vec<Move>,
    found: Exploration,
}

impl Walk<'_> {
    fn enter(&mut self, mut state: State) -> Result<(), ExploreError> {
        let program = self.plan.program;
        let all = program.transactions.len();
        while !self.options.interleave && state.ids.len() < all {
            self.path.push(Move::Issue(state.ids.len() as u8));
            issue(self.plan, &mut state)?;
        }
        let enabled = state.pool.enabled();
        if !self.seen.insert(state.fingerprint(&enabled)) {
            return Ok(());
        }
        if self.seen.len() > self.options.max_states {
            return Err(ExploreError::TooLarge(self.options.max_states));
        }
        let mut moves = Vec::new();
        if state.ids.len() < all {
            moves.push((Move::Issue(state.ids.len() as u8), false));
        }
        for choice in &enabled {
            let Some(i) = state.ids.iter().position(|id| *id == choice.txn) else {
                return Err(ExploreError::Engine(format!("it offers {choice:?}, which nobody issued")));
            };
            if self.plan.held[i].iter().all(|a| state.done(*a)) {
                let cell = program.transactions[i].cells.get(usize::from(choice.part));
                let private = cell.is_some_and(|c| self.plan.private[c.granule]);
                moves.push((Move::Apply(i as u8, choice.part as u8), private));
            }
        }
        for cpu in 0..program.cpus.len() {
            if let Some(step) = state.step(program, cpu) {
                moves.push((Move::Step(cpu as u8, state.steps[cpu] as u8), self.plan.private[step.granule]));
            }
        }
        if let Some(alone) = moves.iter().copied().find(|(_, private)| self.options.reduce && *private) {
            moves = vec![alone];
        }
        for (by, _) in &moves {
            let mut next = state.clone();
            self.perform(*by, &mut next)?;
            let depth = self.path.len();
            self.path.push(*by);
            self.enter(next)?;
            self.path.truncate(depth);
        }
        let finished = state.steps.iter().zip(&program.cpus).all(|(taken, steps)| *taken == steps.len());
        if finished && state.ids.len() == all && state.pool.is_empty() {
            let outcome: Outcome = state.machine.registers.iter().chain(&state.machine.memory).copied().collect();
            self.found.outcomes.entry(outcome).or_insert_with(|| self.path.clone());
            if self.found.outcomes.len() > limits::OUTCOMES {
                return Err(ExploreError::Outcomes(limits::OUTCOMES));
            }
        }
        Ok(())
    }

    fn perform(&self, by: Move, state: &mut State) -> Result<(), ExploreError> {
        match by {
            Move::Issue(_) => issue(self.plan, state)?,
            Move::Apply(i, part) => {
                let i = usize::from(i);
                apply(self.plan, state, i, Choice { txn: state.ids[i], part: part.into() })?;
            }
            Move::Step(cpu, _) => {
                let cpu = usize::from(cpu);
                if let Some(step) = state.step(self.plan.program, cpu) {
                    take(&mut state.machine, &step);
                    state.steps[cpu] += 1;
                }
            }
        }
        Ok(())
    }
}

fn take(machine: &mut Machine, step: &Step) {
    match step.operation {
        Operation::Load(Some(register)) => machine.registers[register] = machine.memory[step.granule],
        Operation::Load(None) => {}
        Operation::Store(value) => machine.memory[step.granule] = value.value(&machine.registers),
    }
}

/// Issues the next transaction.
fn issue(plan: &Plan<'_>, state: &mut State) -> Result<(), ExploreError> {
    let i = state.ids.len();
    let t = &plan.program.transactions[i];
    let address = |granule: usize| Iova(BASE + granule as u64 * GRANULE);
    let mut ranges: Vec<Range> =
        t.cells.iter().map(|c| Range { at: address(c.granule), len: GRANULE as u32 }).collect();
    let words: Vec<u64> = t.cells.iter().enumerate().map(|(c, cell)| encode(i, c, cell.value)).collect();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let payload = match t.kind {
        Kind::Write | Kind::Cqe | Kind::Eqe | Kind::Command => Payload::Bytes(&bytes),
        Kind::Read | Kind::Control => Payload::Sample,
        Kind::Atomic => Payload::Atomic(AtomicOp::FetchAdd { add: words[0], boundary: 0 }),
        Kind::Msi => {
            ranges.clear();
            Payload::Signal(i as u32)
        }
    };
    let txn = NewTxn {
        chain: t.chain.map(|chain| chain as u32),
        order: plan.key(t),
        fence: match t.fence {
            None => engine::Fence::None,
            Some(Fence::Local) => engine::Fence::Local,
            Some(Fence::Read) => engine::Fence::Read,
            Some(Fence::Strong) => engine::Fence::Strong,
        },
        after: plan.told[i],
        node: t.node as u8,
        ..NewTxn::device(t.kind, plan.streams[i], &ranges, payload)
    };
    let id = state.pool.issue(&txn).map_err(|e| ExploreError::Engine(format!("it refuses transaction {i}: {e}")))?;
    state.ids.push(id);
    Ok(())
}

fn apply(plan: &Plan<'_>, state: &mut State, txn: usize, choice: Choice) -> Result<(), ExploreError> {
    let mut toy = Toy { plan, machine: &mut state.machine, txn, fault: None };
    let applied = state.pool.apply(choice, &mut toy);
    let fault = toy.fault.or_else(|| applied.failed.then(|| "it could not apply what it offered".to_string()));
    if let Some(fault) = fault {
        return Err(ExploreError::Engine(format!("transaction {txn}, part {}: {fault}", choice.part)));
    }
    if applied.finished {
        state.machine.held[txn] = 0;
    }
    state.applied[txn] |= 1 << choice.part.min(31);
    Ok(())
}

/// A value as the pool carries it.
fn encode(txn: usize, cell: usize, value: Option<Expression>) -> u64 {
    match value {
        None => 0,
        Some(Expression::Number(n)) => n,
        Some(Expression::Register(..)) => MARK | (txn as u64) << 8 | cell as u64,
    }
}

/// Guest memory, a word for each granule.
struct Toy<'a> {
    plan: &'a Plan<'a>,
    machine: &'a mut Machine,
    txn: usize,
    fault: Option<String>,
}

impl Toy<'_> {
    fn blame(&mut self, problem: impl Into<String>) -> DmaError {
        self.fault.get_or_insert(problem.into());
        DmaError::Unmapped { at: Iova(0) }
    }

    /// The granule at an address, if the transaction has it.
    fn granule(&mut self, at: Iova, len: usize) -> Result<usize, DmaError> {
        let offset = at.0.wrapping_sub(BASE);
        let granule = (offset / GRANULE) as usize;
        let mine = self.plan.program.transactions[self.txn].cells.iter().any(|c| c.granule == granule);
        if offset % GRANULE != 0 || len as u64 != GRANULE || !mine {
            return Err(self.blame(format!("it touches {len} bytes at {at}, which are not its own")));
        }
        Ok(granule)
    }

    fn decode(&mut self, word: u64) -> Result<u64, DmaError> {
        if word & MARK == 0 {
            return Ok(word);
        }
        let (txn, cell) = ((word & !MARK) >> 8, (word & 0xff) as usize);
        let cells = &self.plan.program.transactions[self.txn].cells;
        match cells.get(cell).and_then(|c| c.value).filter(|_| txn == self.txn as u64) {
            Some(value) => Ok(value.value(&self.machine.registers)),
            None => Err(self.blame(format!("it stores {word:#x}, which it was not given"))),
        }
    }
}

impl Memory for Toy<'_> {
    fn read(&mut self, at: Iova, buf: &mut [u8]) -> Result<(), DmaError> {
        let granule = self.granule(at, buf.len())?;
        buf.copy_from_slice(&self.machine.memory[granule].to_le_bytes());
        Ok(())
    }

    fn write(&mut self, at: Iova, bytes: &[u8]) -> Result<(), DmaError> {
        let granule = self.granule(at, bytes.len())?;
        let mut word = [0; GRANULE as usize];
        word.copy_from_slice(bytes);
        self.machine.memory[granule] = self.decode(u64::from_le_bytes(word))?;
        Ok(())
    }

    fn update_u64(&mut self, at: Iova, op: AtomicOp) -> Result<u64, DmaError> {
        let granule = self.granule(at, GRANULE as usize)?;
        let AtomicOp::FetchAdd { add, boundary: 0 } = op else {
            return Err(self.blame("it performs another operation than the one that it was given"));
        };
        let old = self.machine.memory[granule];
        self.machine.memory[granule] = old.wrapping_add(self.decode(add)?);
        Ok(old)
    }

    fn signal(&mut self, vector: u32) {
        let program = self.plan.program;
        let t = &program.transactions[self.txn];
        match t.cells.first().and_then(|c| c.value.map(|v| (c.granule, v))) {
            Some((granule, value)) if vector as usize == self.txn && t.kind == Kind::Msi => {
                self.machine.memory[granule] = value.value(&self.machine.registers);
            }
            _ => {
                self.blame(format!("it signals vector {vector}, which it was not given"));
            }
        }
    }

    fn sampled(&mut self, choice: Choice, bytes: &[u8]) {
        let cell = self.plan.program.transactions[self.txn].cells.get(usize::from(choice.part));
        let word: Result<[u8; GRANULE as usize], _> = bytes.try_into();
        match (cell, word) {
            (Some(cell), Ok(word)) => {
                let value = u64::from_le_bytes(word);
                if let Some(register) = cell.into {
                    self.machine.registers[register] = value;
                }
                if self.plan.program.transactions[self.txn].kind == Kind::Atomic {
                    self.machine.held[self.txn] = value;
                }
            }
            _ => {
                self.blame("it reports a sample of what it did not read");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::litmus::program::parse;
    use crate::litmus::table;

    #[test]
    fn schedules_that_are_left_out_do_not_matter() {
        let quick = Options::default().reduced();
        for p in table::programs() {
            for mode in Mode::ALL {
                let full = explore(&p, mode, &Options::default()).unwrap();
                let reduced = explore(&p, mode, &quick).unwrap();
                assert!(full.outcomes.keys().eq(reduced.outcomes.keys()), "{} {mode}", p.source.name);
                assert!(reduced.reduced && !full.reduced);
            }
        }
    }

    #[test]
    fn a_wide_program_is_explored_and_a_wider_one_refused() {
        let text = |places: usize| {
            let write = |i| format!(r#"{{"kind": "W", "queue": "q{i}", "at": ["x{i}"], "values": [1]}}"#);
            let load = |i| format!(r#"{{"kind": "load", "at": "x{i}", "into": "r{i}"}}"#);
            let device: Vec<String> = (0..12).map(write).collect();
            let cpu: Vec<String> = (0..places).map(load).collect();
            format!(r#"{{"device": [{}], "cpus": [[{}]]}}"#, device.join(","), cpu.join(","))
        };
        let run = |text: &str| {
            let options = Options { max_states: 2000, ..Options::default() };
            explore(&parse(text).unwrap()[0], Mode::NU, &options)
        };
        let found = run(&text(3)).unwrap();
        assert_eq!((found.outcomes.len(), found.reduced), (8, true));
        assert_eq!(run(&text(12)).unwrap_err(), ExploreError::TooLarge(2000));
    }
}
