//! Random litmus programs, and the smallest one that still fails.
//!
//! A program is a pure function of a seed and a number, so that a failure can be had again. All kinds, attributes, fences,
//! knobs, chains, domains and dependencies occur.

use super::format::{
    Ack, AtomicKnob, Attribute, Fence, Fence2, Kind, Knobs, RawScope, Source, StepKind, StepSource, TransactionSource,
    Value,
};
use super::program::Program;

/// SplitMix64: small, well mixed, and the same for ever.
struct Dice(u64);

impl Dice {
    fn new(seed: u64, number: u64) -> Dice {
        let mut dice = Dice(seed);
        dice.0 = dice.next() ^ number;
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Program `number` of a seed: two to four transactions and up to two processors.
pub fn program(seed: u64, number: u64) -> Program {
    let mut dice = Dice::new(seed, number);
    loop {
        // A draft may wait for itself; such a one is no program.
        let mut source = draft(&mut dice);
        source.name = format!("random-{seed}-{number}");
        if let Ok(program) = Program::new(source) {
            return program;
        }
    }
}

const GRANULES: [&str; 4] = ["x", "y", "z", "w"];
const KINDS: [Kind; 16] = [
    Kind::Write,
    Kind::Write,
    Kind::Write,
    Kind::Write,
    Kind::Write,
    Kind::Read,
    Kind::Read,
    Kind::Read,
    Kind::Atomic,
    Kind::Atomic,
    Kind::Cqe,
    Kind::Cqe,
    Kind::Eqe,
    Kind::Msi,
    Kind::Command,
    Kind::Control,
];

fn draft(dice: &mut Dice) -> Source {
    let mut registers = 0;
    let mut register = || {
        registers += 1;
        format!("r{registers}")
    };
    let mut value = 0;
    let mut device: Vec<TransactionSource> = Vec::new();
    let (queues, places) = (1 + dice.below(3), 2 + dice.below(GRANULES.len() - 1));
    for i in 0..2 + dice.below(3) {
        let kind = dice.pick(&KINDS);
        let start = dice.below(places);
        let single = matches!(kind, Kind::Atomic | Kind::Msi);
        let cells = if single || dice.chance(65) { 1 } else { 2 + dice.below(2) };
        let at: Vec<String> = (start..places.min(start + cells)).map(|g| GRANULES[g].to_string()).collect();
        let known: Vec<String> = device.iter().flat_map(|t| t.into.iter().flatten().cloned()).collect();
        let mut stored = || {
            value += 1;
            if !known.is_empty() && dice.chance(15) {
                return Value::Register { reg: known[dice.below(known.len())].clone(), plus: value * 10 };
            }
            Value::Number(value)
        };
        let values = if kind.loads() { Vec::new() } else { at.iter().map(|_| stored()).collect() };
        let into =
            if kind.stores() { Vec::new() } else { at.iter().map(|_| dice.chance(85).then(&mut register)).collect() };
        let attribute = |dice: &mut Dice| dice.chance(25).then(|| dice.pick(&[Attribute::Strict, Attribute::Relaxed]));
        let request = matches!(kind, Kind::Write | Kind::Read | Kind::Atomic | Kind::Control);
        let chained = matches!(kind, Kind::Cqe | Kind::Eqe | Kind::Msi);
        device.push(TransactionSource {
            kind,
            queue: format!("q{}", dice.below(queues)),
            at,
            values,
            into,
            waw: attribute(dice),
            raw: attribute(dice),
            fence: (request && dice.chance(25)).then(|| dice.pick(&[Fence::Local, Fence::Read, Fence::Strong])),
            after: Vec::new(),
            label: Some(format!("t{i}")),
            node: dice.chance(10).then(|| "A".to_string()),
            chain: (chained && dice.chance(60)).then(|| "Q".to_string()),
        });
    }
    let mut cpus: Vec<Vec<StepSource>> = Vec::new();
    for c in 0..dice.below(3) {
        let mut steps = Vec::new();
        for s in 0..1 + dice.below(3) {
            let load = dice.chance(65);
            value += 1;
            steps.push(StepSource {
                kind: if load { StepKind::Load } else { StepKind::Store },
                at: GRANULES[dice.below(places)].to_string(),
                into: load.then(&mut register),
                value: (!load).then_some(Value::Number(value)),
                label: Some(format!("c{c}_{s}")),
                after: Vec::new(),
            });
        }
        cpus.push(steps);
    }
    let mut labels: Vec<String> = device.iter().filter_map(|t| t.label.clone()).collect();
    labels.extend(cpus.iter().flatten().filter_map(|s| s.label.clone()));
    let after = |dice: &mut Dice| {
        let count = if dice.chance(20) { 1 + dice.below(2) } else { 0 };
        (0..count).map(|_| labels[dice.below(labels.len())].clone()).collect::<Vec<_>>()
    };
    for t in &mut device {
        t.after = after(dice);
    }
    for step in cpus.iter_mut().flatten() {
        step.after = after(dice);
    }
    let set = Knobs {
        raw_scope: dice.pick(&[RawScope::Qp, RawScope::Qp, RawScope::Bytes, RawScope::Function]),
        atomic: dice.pick(&[AtomicKnob::Man, AtomicKnob::Man, AtomicKnob::PcieRo, AtomicKnob::Rmw]),
        ack: dice.pick(&[Ack::Visible, Ack::Visible, Ack::Receive]),
        fence2: dice.pick(&[Fence2::Ibta, Fence2::Ibta, Fence2::Pr1780]),
    };
    let mut source = Source { set, device, cpus, ..Source::default() };
    tidy(&mut source);
    source
}

/// Drops labels that nobody uses and references to what is gone.
fn tidy(source: &mut Source) {
    let Source { device, cpus, .. } = source;
    let mut labels: Vec<String> = device.iter().filter_map(|t| t.label.clone()).collect();
    labels.extend(cpus.iter().flatten().filter_map(|s| s.label.clone()));
    let mut registers: Vec<String> = device.iter().flat_map(|t| t.into.iter().flatten().cloned()).collect();
    registers.extend(cpus.iter().flatten().filter_map(|s| s.into.clone()));
    let known = |value: &mut Value| {
        if let Value::Register { reg, plus } = value {
            if !registers.contains(reg) {
                *value = Value::Number(*plus + 1);
            }
        }
    };
    let mut used = Vec::new();
    for t in device.iter_mut() {
        t.after.retain(|l| labels.contains(l));
        t.after.sort();
        t.after.dedup();
        t.values.iter_mut().for_each(known);
        used.extend(t.after.iter().cloned());
    }
    for step in cpus.iter_mut().flatten() {
        step.after.retain(|l| labels.contains(l));
        step.after.sort();
        step.after.dedup();
        step.value.iter_mut().for_each(known);
        used.extend(step.after.iter().cloned());
    }
    for label in device.iter_mut().map(|t| &mut t.label).chain(cpus.iter_mut().flatten().map(|s| &mut s.label)) {
        label.take_if(|l| !used.contains(l));
    }
}

/// The smallest program that can be had from one by leaving things out, and that still fails.
pub fn shrink(program: &Program, mut fails: impl FnMut(&Program) -> bool) -> Program {
    let mut best = program.clone();
    // Each success makes the program smaller, so this ends.
    while let Some(smaller) = smaller(&best.source).into_iter().find_map(|source| {
        let candidate = Program::new(source).ok()?;
        fails(&candidate).then_some(candidate)
    }) {
        best = smaller;
    }
    best
}

/// Everything that one step of leaving out can lead to, the largest steps first.
fn smaller(from: &Source) -> Vec<Source> {
    let mut found = Vec::new();
    let mut keep = |change: &dyn Fn(&mut Source)| {
        let mut source = from.clone();
        change(&mut source);
        tidy(&mut source);
        source.ask.clear();
        if source != *from {
            found.push(source);
        }
    };
    for i in 0..from.device.len() {
        keep(&|s| drop(s.device.remove(i)));
    }
    for c in 0..from.cpus.len() {
        keep(&|s| drop(s.cpus.remove(c)));
        for step in 0..from.cpus[c].len() {
            keep(&|s| drop(s.cpus[c].remove(step)));
        }
    }
    for (i, t) in from.device.iter().enumerate() {
        for cell in 0..t.at.len() {
            keep(&|s| {
                let t = &mut s.device[i];
                t.at.remove(cell);
                if cell < t.values.len() {
                    t.values.remove(cell);
                }
                if cell < t.into.len() {
                    t.into.remove(cell);
                }
            });
        }
        keep(&|s| s.device[i].fence = None);
        keep(&|s| s.device[i].waw = None);
        keep(&|s| s.device[i].raw = None);
        keep(&|s| s.device[i].node = None);
        keep(&|s| s.device[i].chain = None);
        for l in 0..t.after.len() {
            keep(&|s| drop(s.device[i].after.remove(l)));
        }
    }
    for (c, steps) in from.cpus.iter().enumerate() {
        for (n, step) in steps.iter().enumerate() {
            for l in 0..step.after.len() {
                keep(&|s| drop(s.cpus[c][n].after.remove(l)));
            }
        }
    }
    keep(&|s| s.set.raw_scope = RawScope::default());
    keep(&|s| s.set.atomic = AtomicKnob::default());
    keep(&|s| s.set.ack = Ack::default());
    keep(&|s| s.set.fence2 = Fence2::default());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::litmus::Mode;
    use crate::litmus::compare::{Effort, compare};

    #[test]
    fn engine_and_model_agree_on_random_programs() {
        let mut outcomes = 0;
        for number in 0..300 {
            let p = program(1, number);
            let mode = Mode::ALL[number as usize % Mode::ALL.len()];
            let c = compare(&p, mode, &Effort::default()).unwrap_or_else(|e| panic!("{} {mode}: {e}", p.source));
            let extra: Vec<String> = c.unsound().map(|(o, _)| p.show(o)).collect();
            let missing: Vec<String> = c.missing().map(|o| p.show(o)).collect();
            assert!(c.agrees(), "{} {mode}: unsound {extra:?}, missing {missing:?}", p.source);
            outcomes += c.model.len();
        }
        assert!(outcomes > 1000, "the programs are not all trivial: {outcomes} outcomes");
    }
}
