//! The outcomes of a program, derived from axioms.
//!
//! An execution chooses, for each load, the store that it reads from (rf) and, for each granule, an order of its stores
//! (co); what a load must precede follows (fr: the stores behind the one that it read). It is allowed if
//! `must U program order of the processors U dependencies U rf U co U fr` has no cycle and nothing is stored between the two
//! halves of an atomic. The set of all allowed outcomes is what a correct engine can produce, no more and no less.
//!
//! Nothing here knows the engine. The relation `must` is written down from `docs/ordering.md` (5.2: what the fabric
//! orders, what the device orders, and the order inside a transaction) on its own terms, so that a mistake in the rules of
//! [`crate::dma`] is not repeated here.
//!
//! Limits: the number of candidate executions is bounded; a program beyond it is refused, never half explored.

use super::Mode;
use super::program::{
    Ack, Actor, AtomicKnob, Attribute, Expression, Fence, Fence2, Kind, Knobs, Operation, Outcome, Program, RawScope,
    Transaction, limits,
};
use std::collections::BTreeSet;

/// Steps of the search before a program counts as too large. Some ten seconds of work in a build without optimisation.
pub const DEFAULT_STEPS: u64 = 5_000_000;

/// The program is too large for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// There are too many candidate executions.
    #[error("the model gave up after {0} steps: the program has too many executions")]
    Steps(u64),
    /// There are too many outcomes.
    #[error("the program has more than {0} outcomes")]
    Outcomes(usize),
}

/// All outcomes that the contract allows.
pub fn outcomes(program: &Program, mode: Mode, max_steps: u64) -> Result<BTreeSet<Outcome>, TooLarge> {
    let graph = Graph::new(program, mode);
    let mut search = Search { graph: &graph, program, found: BTreeSet::new(), steps: 0, max_steps };
    if let Some(order) = graph.base.clone() {
        search.granule(0, &order)?;
    }
    Ok(search.found)
}

/// True if the contract says that `earlier` is done before `later` begins. Both are transactions of one program, `earlier`
/// was issued first.
pub fn must_precede(earlier: &Transaction, later: &Transaction, mode: Mode, knobs: Knobs) -> bool {
    // Nothing is ordered across memory domains; only dependencies reach over.
    earlier.node == later.node && (fabric(earlier, later, mode, knobs) || device(earlier, later, mode, knobs))
}

/// The attribute that a transaction's own key gives it.
fn relaxed_write(t: &Transaction, mode: Mode) -> bool {
    mode.relaxed_only() || t.waw.unwrap_or(mode.waw()) == Attribute::Relaxed
}

fn relaxed_read(t: &Transaction, mode: Mode) -> bool {
    t.raw.unwrap_or(mode.raw()) == Attribute::Relaxed
}

/// What PCIe orders in the whole function: posted writes push, unless the later one is relaxed.
fn fabric(earlier: &Transaction, later: &Transaction, mode: Mode, knobs: Knobs) -> bool {
    let posted = earlier.kind.stores();
    if !mode.pcie() || !posted {
        return false;
    }
    match later.kind {
        Kind::Write => !relaxed_write(later, mode),
        Kind::Read => !relaxed_read(later, mode),
        Kind::Atomic => knobs.atomic != AtomicKnob::PcieRo || !relaxed_write(later, mode),
        // The device's own accesses go through no key.
        Kind::Cqe | Kind::Eqe | Kind::Msi | Kind::Command | Kind::Control => true,
    }
}

/// What the device orders on every fabric.
fn device(earlier: &Transaction, later: &Transaction, mode: Mode, knobs: Knobs) -> bool {
    let queue = earlier.queue == later.queue;
    let chain = earlier.chain.is_some() && earlier.chain == later.chain;
    let data = matches!(earlier.kind, Kind::Write | Kind::Read | Kind::Atomic);
    // A fence is of a work request of the queue. Events and interrupts are those of an event queue.
    let event = |t: &Transaction| matches!(t.kind, Kind::Eqe | Kind::Msi);
    let fenced = match later.fence {
        None => false,
        Some(Fence::Local) => true,
        Some(Fence::Read) if knobs.fence2 == Fence2::Ibta => matches!(earlier.kind, Kind::Read | Kind::Atomic),
        Some(Fence::Strong | Fence::Read) => knobs.ack == Ack::Visible || earlier.kind != Kind::Write,
    };
    if queue && fenced && !event(earlier) && !event(later) {
        return true;
    }
    match (later.kind, earlier.kind) {
        (Kind::Write | Kind::Read, Kind::Atomic) => queue,
        (Kind::Write, Kind::Write) => queue && !relaxed_write(later, mode),
        (Kind::Read, Kind::Write) if relaxed_read(later, mode) => false,
        (Kind::Read, Kind::Write) => match knobs.raw_scope {
            RawScope::Qp => queue,
            RawScope::Bytes => queue && overlap(earlier, later),
            RawScope::Function => true,
        },
        (Kind::Atomic, Kind::Write) => queue && (knobs.atomic != AtomicKnob::PcieRo || !relaxed_write(later, mode)),
        (Kind::Atomic, Kind::Read) => queue,
        // Made of a read and a write, they exclude each other for the same bytes by being done in turn.
        (Kind::Atomic, Kind::Atomic) => queue || knobs.atomic == AtomicKnob::Rmw && overlap(earlier, later),
        (Kind::Cqe, Kind::Cqe) => chain,
        (Kind::Cqe, _) => queue && data,
        (Kind::Eqe, Kind::Cqe | Kind::Eqe) | (Kind::Msi, Kind::Cqe | Kind::Eqe) => chain,
        _ => false,
    }
}

fn overlap(a: &Transaction, b: &Transaction) -> bool {
    a.cells.iter().any(|x| b.cells.iter().any(|y| x.granule == y.granule))
}

/// True if granule `first` of a transaction lands before granule `second`. Entries have their owner last everywhere;
/// strict writes ascend on PCIe.
fn within(t: &Transaction, first: usize, second: usize, mode: Mode) -> bool {
    match t.kind {
        Kind::Write => mode.pcie() && !relaxed_write(t, mode) && first < second,
        Kind::Cqe | Kind::Eqe | Kind::Msi | Kind::Command => second + 1 == t.cells.len() && first < second,
        Kind::Read | Kind::Atomic | Kind::Control => false,
    }
}

/// What happens at one granule.
#[derive(Clone, Copy)]
enum Effect {
    Load { into: Option<usize> },
    Store { value: Expression },
    Add { value: Expression, into: Option<usize> },
}

#[derive(Clone, Copy)]
struct Event {
    granule: usize,
    effect: Effect,
}

/// A strict order of events, transitively closed: bit `j` of `behind[i]` says that `i` comes before `j`.
#[derive(Clone)]
struct Order {
    behind: Vec<u64>,
}

impl Order {
    fn before(&self, a: usize, b: usize) -> bool {
        self.behind[a] & (1 << b) != 0
    }

    /// Orders `a` before `b`. False if that closes a cycle.
    fn add(&mut self, a: usize, b: usize) -> bool {
        if a == b || self.before(b, a) {
            return false;
        }
        if self.before(a, b) {
            return true;
        }
        let gained = self.behind[b] | (1 << b);
        for i in 0..self.behind.len() {
            if i == a || self.before(i, a) {
                self.behind[i] |= gained;
            }
        }
        true
    }
}

/// Events of a program and everything that orders them whatever is read.
struct Graph {
    events: Vec<Event>,
    /// Registers of the program, and hidden ones.
    registers: usize,
    /// Writers and readers of each granule; an atomic is a writer.
    writers: Vec<Vec<usize>>,
    readers: Vec<Vec<usize>>,
    /// `None` if the program's dependencies contradict the order: nothing can happen then.
    base: Option<Order>,
}

impl Graph {
    fn new(program: &Program, mode: Mode) -> Graph {
        let mut events = Vec::new();
        let mut registers = program.registers.len();
        let mut halves = Vec::new();
        let mut of_transaction = Vec::new();
        for t in &program.transactions {
            let first = events.len();
            for cell in &t.cells {
                let granule = cell.granule;
                match (t.kind, cell.value) {
                    (Kind::Atomic, Some(value)) if program.source.set.atomic == AtomicKnob::Rmw => {
                        // Two events: what the first one reads, the second one writes with the sum.
                        let old = cell.into.unwrap_or(registers);
                        registers += usize::from(cell.into.is_none());
                        let sum = match value {
                            Expression::Number(n) => Expression::Register(old, n),
                            Expression::Register(..) => value,
                        };
                        events.push(Event { granule, effect: Effect::Load { into: Some(old) } });
                        events.push(Event { granule, effect: Effect::Store { value: sum } });
                        halves.push((events.len() - 2, events.len() - 1));
                    }
                    (Kind::Atomic, Some(value)) => {
                        events.push(Event { granule, effect: Effect::Add { value, into: cell.into } })
                    }
                    (_, Some(value)) => events.push(Event { granule, effect: Effect::Store { value } }),
                    (_, None) => events.push(Event { granule, effect: Effect::Load { into: cell.into } }),
                }
            }
            of_transaction.push(first..events.len());
        }
        let mut of_step = Vec::new();
        for steps in &program.cpus {
            of_step.push(events.len());
            for step in steps {
                let effect = match step.operation {
                    Operation::Load(into) => Effect::Load { into },
                    Operation::Store(value) => Effect::Store { value },
                };
                events.push(Event { granule: step.granule, effect });
            }
        }
        debug_assert!(events.len() <= limits::EVENTS);
        let of = |actor: Actor| match actor {
            Actor::Transaction(i) => of_transaction[i].clone(),
            Actor::Step(c, s) => of_step[c] + s..of_step[c] + s + 1,
        };
        let mut edges = halves;
        let mut all_before = |a: std::ops::Range<usize>, b: std::ops::Range<usize>| {
            edges.extend(a.flat_map(|x| b.clone().map(move |y| (x, y))));
        };
        for (j, later) in program.transactions.iter().enumerate() {
            for (i, earlier) in program.transactions[..j].iter().enumerate() {
                if must_precede(earlier, later, mode, program.source.set) {
                    all_before(of_transaction[i].clone(), of_transaction[j].clone());
                }
            }
            for &actor in &later.after {
                all_before(of(actor), of_transaction[j].clone());
            }
            for (first, second) in (0..later.cells.len()).flat_map(|s| (0..s).map(move |f| (f, s))) {
                if within(later, first, second, mode) {
                    let (a, b) = (of_transaction[j].start + first, of_transaction[j].start + second);
                    all_before(a..a + 1, b..b + 1);
                }
            }
        }
        for (c, steps) in program.cpus.iter().enumerate() {
            for (s, step) in steps.iter().enumerate() {
                let this = of(Actor::Step(c, s));
                if s > 0 {
                    all_before(of(Actor::Step(c, s - 1)), this.clone());
                }
                for &actor in &step.after {
                    all_before(of(actor), this.clone());
                }
            }
        }
        let mut base = Order { behind: vec![0; events.len()] };
        let sound = edges.into_iter().all(|(a, b)| base.add(a, b));
        let mut writers = vec![Vec::new(); program.granules.len()];
        let mut readers = vec![Vec::new(); program.granules.len()];
        for (i, event) in events.iter().enumerate() {
            match event.effect {
                Effect::Load { .. } => readers[event.granule].push(i),
                Effect::Store { .. } | Effect::Add { .. } => writers[event.granule].push(i),
            }
        }
        Graph { events, registers, writers, readers, base: sound.then_some(base) }
    }
}

struct Search<'a> {
    graph: &'a Graph,
    program: &'a Program,
    found: BTreeSet<Outcome>,
    steps: u64,
    max_steps: u64,
}

impl Search<'_> {
    fn step(&mut self) -> Result<(), TooLarge> {
        self.steps += 1;
        if self.steps > self.max_steps { Err(TooLarge::Steps(self.max_steps)) } else { Ok(()) }
    }

    /// Chooses co and rf of granule `g`, then of those behind it.
    fn granule(&mut self, g: usize, order: &Order) -> Result<(), TooLarge> {
        self.step()?;
        if g == self.program.granules.len() {
            let outcome = self.outcome(order);
            self.found.insert(outcome);
            if self.found.len() > limits::OUTCOMES {
                return Err(TooLarge::Outcomes(limits::OUTCOMES));
            }
            return Ok(());
        }
        self.coherence(g, &mut Vec::new(), order)
    }

    /// Extends co by each store that may come next.
    fn coherence(&mut self, g: usize, placed: &mut Vec<usize>, order: &Order) -> Result<(), TooLarge> {
        self.step()?;
        let writers = &self.graph.writers[g];
        if placed.len() == writers.len() {
            return self.reads(g, 0, placed, order);
        }
        for &w in writers {
            let blocked = |v: &usize| *v != w && !placed.contains(v) && order.before(*v, w);
            if placed.contains(&w) || writers.iter().any(blocked) {
                continue;
            }
            let mut next = order.clone();
            if placed.last().is_none_or(|&last| next.add(last, w)) {
                placed.push(w);
                self.coherence(g, placed, &next)?;
                placed.pop();
            }
        }
        Ok(())
    }

    /// Chooses what the `r`th load of granule `g` reads: the initial value or any store. An atomic needs no choice: it reads
    /// what is just before it in co, or something would have been stored between its halves.
    fn reads(&mut self, g: usize, r: usize, co: &[usize], order: &Order) -> Result<(), TooLarge> {
        self.step()?;
        let Some(&load) = self.graph.readers[g].get(r) else { return self.granule(g + 1, order) };
        for position in 0..=co.len() {
            let mut next = order.clone();
            let rf = position == 0 || next.add(co[position - 1], load);
            let fr = position == co.len() || rf && next.add(load, co[position]);
            if rf && fr {
                self.reads(g, r + 1, co, &next)?;
            }
        }
        Ok(())
    }

    /// The outcome of an execution. Every sequence that agrees with a complete order has the same loads and final values.
    fn outcome(&self, order: &Order) -> Outcome {
        let mut sequence: Vec<usize> = (0..self.graph.events.len()).collect();
        // Whoever has more behind it comes first: a transitively closed order makes that a valid sequence.
        sequence.sort_by_key(|&e| std::cmp::Reverse(order.behind[e].count_ones()));
        let mut registers = vec![0; self.graph.registers];
        let mut memory = vec![0u64; self.program.granules.len()];
        for e in sequence {
            let Event { granule, effect } = self.graph.events[e];
            let old = memory[granule];
            let into = match effect {
                Effect::Load { into } => into,
                Effect::Store { value } => {
                    memory[granule] = value.value(&registers);
                    None
                }
                Effect::Add { value, into } => {
                    memory[granule] = old.wrapping_add(value.value(&registers));
                    into
                }
            };
            if let Some(register) = into {
                registers[register] = old;
            }
        }
        registers.truncate(self.program.registers.len());
        registers.extend(memory);
        registers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::litmus::program::parse;

    fn program(text: &str) -> Program {
        parse(text).unwrap().remove(0)
    }

    #[test]
    fn a_program_that_contradicts_its_order_has_no_outcome() {
        // The strict second write waits for the first, which is told to wait for the second.
        let text = r#"{"device": [{"kind": "W", "queue": "q", "at": ["x"], "values": [1], "after": ["l"]},
            {"kind": "W", "queue": "q", "at": ["y"], "values": [1], "label": "l"}]}"#;
        assert_eq!(outcomes(&program(text), Mode::S, 1000).unwrap().len(), 0);
        assert_eq!(outcomes(&program(text), Mode::R, 1000).unwrap().len(), 1);
    }

    #[test]
    fn values_follow_registers() {
        let text = r#"{"device": [{"kind": "R", "queue": "q", "at": ["x"], "into": ["a"]},
            {"kind": "W", "queue": "q", "at": ["y"], "values": [{"reg": "a", "plus": 5}]}],
            "cpus": [[{"kind": "store", "at": "x", "value": 7}]]}"#;
        let p = program(text);
        let shown: Vec<String> = outcomes(&p, Mode::NU, 1000).unwrap().iter().map(|o| p.show(o)).collect();
        assert_eq!(shown, ["a=0 x@end=7 y@end=5", "a=7 x@end=7 y@end=12"]);
    }

    #[test]
    fn work_is_bounded() {
        let writes =
            (0..12).map(|i| format!(r#"{{"kind": "W", "queue": "q{i}", "at": ["x", "y"], "values": [{i}, 1]}}"#));
        let text = format!(r#"{{"device": [{}]}}"#, writes.collect::<Vec<_>>().join(","));
        assert_eq!(outcomes(&program(&text), Mode::NU, 10_000), Err(TooLarge::Steps(10_000)));
    }
}
