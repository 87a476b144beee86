//! Checked litmus programs.
//!
//! [`Program`] is what the oracle and the explorer run: every name of a [`Source`] resolved to an index, every size bounded,
//! so that no file can make them panic or run away. The bounds are in [`limits`].

pub use super::format::{
    Ack, AtomicKnob, Attribute, Fence, Fence2, Kind, Knobs, RawScope, Source, StepKind, StepSource, TransactionSource,
    Value, limits,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Why a program cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The text is no program.
    #[error("{0}")]
    Syntax(String),
    /// Something is out of bounds.
    #[error("{place}: {what} is {found}, the limit is {limit}")]
    Limit {
        /// Where.
        place: String,
        /// What is too large.
        what: &'static str,
        /// How large it is.
        found: u64,
        /// How large it may be.
        limit: u64,
    },
    /// The program contradicts itself.
    #[error("{place}: {problem}")]
    Invalid {
        /// Where.
        place: String,
        /// What is wrong.
        problem: String,
    },
}

impl ProgramError {
    /// The same error, in a program of a file of many.
    fn within(self, outer: &str) -> ProgramError {
        match self {
            ProgramError::Syntax(text) => ProgramError::Syntax(format!("{outer}: {text}")),
            ProgramError::Limit { place, what, found, limit } => {
                ProgramError::Limit { place: format!("{outer}: {place}"), what, found, limit }
            }
            ProgramError::Invalid { place, problem } => {
                ProgramError::Invalid { place: format!("{outer}: {place}"), problem }
            }
        }
    }
}

fn invalid(place: &str, problem: impl Into<String>) -> ProgramError {
    ProgramError::Invalid { place: place.to_string(), problem: problem.into() }
}

fn limit(place: &str, what: &'static str, found: usize, limit: usize) -> Result<(), ProgramError> {
    if found <= limit {
        return Ok(());
    }
    Err(ProgramError::Limit { place: place.to_string(), what, found: found as u64, limit: limit as u64 })
}

/// A value with its register resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expression {
    /// A number.
    Number(u64),
    /// A register's content, plus a number.
    Register(usize, u64),
}

impl Expression {
    /// Its value, with these registers.
    pub fn value(self, registers: &[u64]) -> u64 {
        match self {
            Expression::Number(n) => n,
            Expression::Register(r, plus) => registers.get(r).copied().unwrap_or(0).wrapping_add(plus),
        }
    }
}

/// One granule of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Granule.
    pub granule: usize,
    /// What is stored or added, if this is not a load.
    pub value: Option<Expression>,
    /// Register that receives what is read.
    pub into: Option<usize>,
}

/// Who performs something that others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// Device transaction.
    Transaction(usize),
    /// Processor and step.
    Step(usize, usize),
}

/// A checked device transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// What it is.
    pub kind: Kind,
    /// Queue.
    pub queue: usize,
    /// Memory domain.
    pub node: usize,
    /// Chain of an entry or interrupt.
    pub chain: Option<usize>,
    /// Granules.
    pub cells: Vec<Cell>,
    /// Own write-after-write attribute.
    pub waw: Option<Attribute>,
    /// Own read-after-write attribute.
    pub raw: Option<Attribute>,
    /// Fence.
    pub fence: Option<Fence>,
    /// What must be done first, registers that it uses included.
    pub after: Vec<Actor>,
}

/// What a processor's step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Load into a register.
    Load(Option<usize>),
    /// Store.
    Store(Expression),
}

/// A checked step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub operation: Operation,
    /// Granule.
    pub granule: usize,
    /// What must be done first, beside the steps before it.
    pub after: Vec<Actor>,
}

/// One coordinate of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A register.
    Register(usize),
    /// Final value of a granule.
    Final(usize),
}

/// All registers, then all final values.
pub type Outcome = Vec<u64>;

/// A program that can be run: names resolved, sizes checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program as it was written.
    pub source: Source,
    /// Transactions in issue order.
    pub transactions: Vec<Transaction>,
    /// Processors.
    pub cpus: Vec<Vec<Step>>,
    /// Names of granules.
    pub granules: Vec<String>,
    /// Names of registers.
    pub registers: Vec<String>,
    /// Number of queues.
    pub queues: usize,
    /// Number of memory domains.
    pub nodes: usize,
    /// Number of chains.
    pub chains: usize,
    /// The outcome in question.
    pub ask: Vec<(Slot, u64)>,
}

/// Names in order of appearance. Programs are small: a scan is enough.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn index(&mut self, place: &str, what: &str, name: &str) -> Result<usize, ProgramError> {
        if name.is_empty() {
            return Err(invalid(place, format!("the name of a {what} is empty")));
        }
        limit(place, "the length of a name", name.len(), limits::NAME)?;
        if name.chars().any(|c| c.is_control() || c.is_whitespace() || c == '@') {
            return Err(invalid(place, format!("the {what} {name:?} has a character that names cannot have")));
        }
        if let Some(index) = self.find(name) {
            return Ok(index);
        }
        self.0.push(name.to_string());
        Ok(self.0.len() - 1)
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|n| n == name)
    }
}

/// Reads one program, or a file of many: `{"tests": [PROGRAM, ...]}`.
pub fn parse(text: &str) -> Result<Vec<Program>, ProgramError> {
    if text.len() as u64 > limits::FILE {
        return Err(ProgramError::Limit {
            place: "file".into(),
            what: "its size in bytes",
            found: text.len() as u64,
            limit: limits::FILE,
        });
    }
    /// A table of programs. The meaning of the modes is fixed; a table may repeat it.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        #[serde(default)]
        modes: BTreeMap<super::Mode, super::ModeSource>,
        tests: Vec<Source>,
    }
    let syntax = |e: serde_json::Error| ProgramError::Syntax(e.to_string());
    let peek: serde_json::Value = serde_json::from_str(text).map_err(syntax)?;
    if peek.get("tests").is_none() {
        let source: Source = serde_json::from_str(text).map_err(syntax)?;
        return Ok(vec![Program::new(source)?]);
    }
    let table: Table = serde_json::from_str(text).map_err(syntax)?;
    for (mode, stated) in table.modes {
        if stated != mode.source() {
            return Err(invalid("modes", format!("{mode} is stated differently from what it means here")));
        }
    }
    limit("file", "the number of programs", table.tests.len(), limits::PROGRAMS)?;
    let named = |(index, source): (usize, Source)| {
        let outer = if source.name.is_empty() { format!("tests[{index}]") } else { source.name.clone() };
        Program::new(source).map_err(|e| e.within(&outer))
    };
    table.tests.into_iter().enumerate().map(named).collect()
}

impl Program {
    /// Checks a program and resolves its names.
    pub fn new(source: Source) -> Result<Program, ProgramError> {
        Builder::default().build(source)
    }

    /// Names of an outcome's coordinates, as `ask` spells them.
    pub fn slots(&self) -> impl Iterator<Item = String> + '_ {
        self.registers.iter().cloned().chain(self.granules.iter().map(|g| format!("{g}@end")))
    }

    /// True if this outcome is the one in question.
    pub fn answers(&self, outcome: &[u64]) -> bool {
        self.ask.iter().all(|(slot, value)| {
            let index = match slot {
                Slot::Register(r) => *r,
                Slot::Final(g) => self.registers.len() + g,
            };
            outcome.get(index) == Some(value)
        })
    }

    /// An outcome as text, `a=1 b=0 x@end=1`.
    pub fn show(&self, outcome: &[u64]) -> String {
        let parts: Vec<String> = self.slots().zip(outcome).map(|(name, value)| format!("{name}={value}")).collect();
        parts.join(" ")
    }

    /// Number of granule accesses and steps.
    pub fn events(&self) -> usize {
        self.transactions.iter().map(|t| t.cells.len()).sum::<usize>() + self.cpus.iter().map(Vec::len).sum::<usize>()
    }
}

#[derive(Default)]
struct Builder {
    queues: Names,
    nodes: Names,
    chains: Names,
    granules: Names,
    registers: Names,
    labels: Vec<(String, Actor)>,
    /// Who fills each register.
    fills: Vec<Actor>,
}

impl Builder {
    fn build(mut self, source: Source) -> Result<Program, ProgramError> {
        limit("name", "its length", source.name.len(), limits::TITLE)?;
        limit("title", "its length", source.title.len(), limits::TITLE)?;
        limit("device", "the number of transactions", source.device.len(), limits::TRANSACTIONS)?;
        limit("cpus", "the number of processors", source.cpus.len(), limits::CPUS)?;
        // An atomic in two halves counts twice.
        let halves = |t: &&TransactionSource| t.kind == Kind::Atomic && source.set.atomic == AtomicKnob::Rmw;
        let cells: usize = source.device.iter().map(|t| t.at.len()).sum();
        let cells = cells + source.device.iter().filter(halves).count();
        let steps: usize = source.cpus.iter().map(Vec::len).sum();
        limit("program", "the number of granule accesses and steps", cells + steps, limits::EVENTS)?;
        if cells + steps == 0 {
            return Err(invalid("program", "there is nothing in it"));
        }
        // Registers and labels first: they may be used before the place that defines them.
        for (i, t) in source.device.iter().enumerate() {
            let place = format!("device[{i}]");
            self.check_shape(&place, t)?;
            for name in t.into.iter().flatten() {
                self.define_register(&place, name, Actor::Transaction(i))?;
            }
            self.define_label(&place, t.label.as_deref(), Actor::Transaction(i))?;
        }
        for (c, steps) in source.cpus.iter().enumerate() {
            limit(&format!("cpus[{c}]"), "the number of steps", steps.len(), limits::STEPS)?;
            for (s, step) in steps.iter().enumerate() {
                let place = format!("cpus[{c}][{s}]");
                if let Some(name) = &step.into {
                    self.define_register(&place, name, Actor::Step(c, s))?;
                }
                self.define_label(&place, step.label.as_deref(), Actor::Step(c, s))?;
            }
        }
        let mut transactions = Vec::new();
        for (i, t) in source.device.iter().enumerate() {
            let place = format!("device[{i}]");
            let checked = self.transaction(&place, t)?;
            let computed = |c: &Cell| matches!(c.value, Some(Expression::Register(..)));
            if t.kind == Kind::Atomic && source.set.atomic == AtomicKnob::Rmw && checked.cells.iter().any(computed) {
                return Err(invalid(&place, "with `atomic` = `rmw`, what is added must be a number"));
            }
            transactions.push(checked);
        }
        let mut cpus = Vec::new();
        for (c, steps) in source.cpus.iter().enumerate() {
            let steps = steps.iter().enumerate().map(|(s, step)| self.step(&format!("cpus[{c}][{s}]"), step));
            cpus.push(steps.collect::<Result<Vec<_>, _>>()?);
        }
        refuse_cycles(&transactions, &cpus)?;
        let mut ask = Vec::new();
        for (name, value) in &source.ask {
            let slot = match name.strip_suffix("@end") {
                Some(granule) => self.granules.find(granule).map(Slot::Final),
                None => self.registers.find(name).map(Slot::Register),
            };
            let slot = slot.ok_or_else(|| invalid("ask", format!("the program has no {name:?}")))?;
            ask.push((slot, *value));
        }
        Ok(Program {
            source,
            transactions,
            cpus,
            granules: self.granules.0,
            registers: self.registers.0,
            queues: self.queues.0.len(),
            nodes: self.nodes.0.len(),
            chains: self.chains.0.len(),
            ask,
        })
    }

    /// Which fields a kind has, and how many entries.
    fn check_shape(&self, place: &str, t: &TransactionSource) -> Result<(), ProgramError> {
        limit(place, "the number of granules", t.at.len(), limits::CELLS)?;
        let (cells, letter) = (t.at.len(), t.kind.letter());
        if cells == 0 {
            return Err(invalid(place, "`at` names no granule"));
        }
        if matches!(t.kind, Kind::Atomic | Kind::Msi) && cells != 1 {
            return Err(invalid(place, format!("{letter} has one granule, not {cells}")));
        }
        if let Some(twice) = t.at.iter().enumerate().find(|(i, name)| t.at[..*i].contains(name)) {
            return Err(invalid(place, format!("`at` names {:?} twice", twice.1)));
        }
        if t.kind.loads() && !t.values.is_empty() {
            return Err(invalid(place, format!("{letter} only reads, it has no `values`")));
        }
        if !t.kind.loads() && t.values.len() != cells {
            let found = t.values.len();
            return Err(invalid(place, format!("`at` names {cells} granules, but `values` has {found} entries")));
        }
        if t.kind.stores() && !t.into.is_empty() {
            return Err(invalid(place, format!("{letter} only writes, it has no `into`")));
        }
        if !t.into.is_empty() && t.into.len() != cells {
            let found = t.into.len();
            return Err(invalid(place, format!("`at` names {cells} granules, but `into` has {found} entries")));
        }
        if t.fence.is_some() && matches!(t.kind, Kind::Eqe | Kind::Msi | Kind::Command) {
            return Err(invalid(place, format!("{letter} belongs to no work request, it has no `fence`")));
        }
        if t.chain.is_some() && !matches!(t.kind, Kind::Cqe | Kind::Eqe | Kind::Msi) {
            return Err(invalid(place, format!("{letter} belongs to no completion queue, it has no `chain`")));
        }
        Ok(())
    }

    fn define_register(&mut self, place: &str, name: &str, by: Actor) -> Result<(), ProgramError> {
        if self.registers.find(name).is_some() {
            return Err(invalid(place, format!("register {name:?} is filled twice")));
        }
        self.registers.index(place, "register", name)?;
        self.fills.push(by);
        Ok(())
    }

    fn define_label(&mut self, place: &str, label: Option<&str>, by: Actor) -> Result<(), ProgramError> {
        let Some(label) = label else { return Ok(()) };
        limit(place, "the length of a label", label.len(), limits::NAME)?;
        if self.labels.iter().any(|(l, _)| l == label) {
            return Err(invalid(place, format!("label {label:?} is given twice")));
        }
        self.labels.push((label.to_string(), by));
        Ok(())
    }

    fn after(&self, place: &str, labels: &[String]) -> Result<Vec<Actor>, ProgramError> {
        limit(place, "the number of labels in `after`", labels.len(), limits::AFTER)?;
        let find = |label: &String| {
            let found = self.labels.iter().find(|(l, _)| l == label);
            found.map(|(_, by)| *by).ok_or_else(|| invalid(place, format!("nothing has the label {label:?}")))
        };
        labels.iter().map(find).collect()
    }

    /// Resolves a value. Who uses a register waits for who fills it.
    fn expression(&self, place: &str, value: &Value, after: &mut Vec<Actor>) -> Result<Expression, ProgramError> {
        let bounded = |what, n: u64| match n <= limits::VALUE {
            true => Ok(n),
            false => Err(ProgramError::Limit { place: place.to_string(), what, found: n, limit: limits::VALUE }),
        };
        match value {
            Value::Number(n) => Ok(Expression::Number(bounded("a value", *n)?)),
            Value::Register { reg, plus } => {
                let register = self.registers.find(reg);
                let register = register.ok_or_else(|| invalid(place, format!("nothing fills register {reg:?}")))?;
                if !after.contains(&self.fills[register]) {
                    after.push(self.fills[register]);
                }
                Ok(Expression::Register(register, bounded("`plus`", *plus)?))
            }
        }
    }

    fn transaction(&mut self, place: &str, t: &TransactionSource) -> Result<Transaction, ProgramError> {
        let mut after = self.after(place, &t.after)?;
        let mut cells = Vec::new();
        for (i, name) in t.at.iter().enumerate() {
            let granule = self.granules.index(place, "granule", name)?;
            let value = t.values.get(i).map(|v| self.expression(place, v, &mut after)).transpose()?;
            let into = t.into.get(i).and_then(|r| r.as_ref()).and_then(|r| self.registers.find(r));
            cells.push(Cell { granule, value, into });
        }
        let chained = matches!(t.kind, Kind::Cqe | Kind::Eqe | Kind::Msi);
        let queue = self.queues.index(place, "queue", &t.queue)?;
        let chain = t.chain.clone().unwrap_or_else(|| format!("cq_{}", t.queue));
        Ok(Transaction {
            kind: t.kind,
            queue,
            node: self.nodes.index(place, "node", t.node.as_deref().unwrap_or("B"))?,
            chain: if chained { Some(self.chains.index(place, "chain", &chain)?) } else { None },
            cells,
            waw: t.waw,
            raw: t.raw,
            fence: t.fence,
            after,
        })
    }

    fn step(&mut self, place: &str, step: &StepSource) -> Result<Step, ProgramError> {
        let mut after = self.after(place, &step.after)?;
        let granule = self.granules.index(place, "granule", &step.at)?;
        let operation = match (step.kind, &step.into, &step.value) {
            (StepKind::Load, into, None) => Operation::Load(into.as_ref().and_then(|r| self.registers.find(r))),
            (StepKind::Store, None, Some(value)) => Operation::Store(self.expression(place, value, &mut after)?),
            (StepKind::Load, _, Some(_)) => return Err(invalid(place, "a load has no `value`")),
            (StepKind::Store, Some(_), _) => return Err(invalid(place, "a store has no `into`")),
            (StepKind::Store, None, None) => return Err(invalid(place, "a store needs a `value`")),
        };
        Ok(Step { operation, granule, after })
    }
}

/// Refuses programs in which something waits for itself, whatever the mode.
fn refuse_cycles(transactions: &[Transaction], cpus: &[Vec<Step>]) -> Result<(), ProgramError> {
    let mut left: Vec<(Actor, Vec<Actor>)> = Vec::new();
    for (i, t) in transactions.iter().enumerate() {
        left.push((Actor::Transaction(i), t.after.clone()));
    }
    for (c, steps) in cpus.iter().enumerate() {
        for (s, step) in steps.iter().enumerate() {
            let mut after = step.after.clone();
            after.extend(s.checked_sub(1).map(|before| Actor::Step(c, before)));
            left.push((Actor::Step(c, s), after));
        }
    }
    // Takes away what waits for nothing that is left, until nothing changes.
    loop {
        let before = left.len();
        let waiting: Vec<Actor> = left.iter().map(|(actor, _)| *actor).collect();
        left.retain(|(_, after)| after.iter().any(|a| waiting.contains(a)));
        if left.len() == before {
            break;
        }
    }
    let Some((actor, _)) = left.first() else { return Ok(()) };
    let place = match actor {
        Actor::Transaction(i) => format!("device[{i}]"),
        Actor::Step(c, s) => format!("cpus[{c}][{s}]"),
    };
    Err(invalid(&place, "it waits for itself through `after` or a register"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::litmus::table;

    fn refused(text: &str) -> String {
        parse(text).map(|p| p[0].source.to_string()).unwrap_err().to_string()
    }

    /// A program with this transaction and this processor.
    fn with(transaction: &str, step: &str) -> String {
        format!(r#"{{"device": [{transaction}], "cpus": [[{step}]]}}"#)
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let write = r#"{"kind": "W", "queue": "q", "at": ["x"], "values": [1]}"#;
        let load = r#"{"kind": "load", "at": "x", "into": "a"}"#;
        let cases = [
            (with(r#"{"kind": "W", "queue": "q", "at": ["x"], "vales": [1]}"#, load), "unknown field `vales`"),
            (with(r#"{"kind": "X", "queue": "q", "at": ["x"]}"#, load), "unknown variant `X`"),
            (with(r#"{"kind": "W", "at": ["x"], "values": [1]}"#, load), "missing field `queue`"),
            (with(r#"{"kind": "W", "queue": "q", "at": ["x"], "values": [-1]}"#, load), "a number or"),
            (
                with(r#"{"kind": "W", "queue": "q", "at": ["x"], "values": [4294967296]}"#, load),
                "the limit is 4294967295",
            ),
            (
                with(r#"{"kind": "W", "queue": "q", "at": ["x"], "values": [{"reg": "z"}]}"#, load),
                "nothing fills register",
            ),
            (
                with(r#"{"kind": "W", "queue": "q", "at": ["x"], "values": [{"rag": "z"}]}"#, load),
                "unknown field `rag`",
            ),
            (with(r#"{"kind": "W", "queue": "q", "at": [], "values": []}"#, load), "device[0]: `at` names no granule"),
            (with(r#"{"kind": "W", "queue": "q", "at": ["x", "x"], "values": [1, 2]}"#, load), "names \"x\" twice"),
            (with(r#"{"kind": "W", "queue": "q", "at": ["x", "y"], "values": [1]}"#, load), "`values` has 1 entries"),
            (with(r#"{"kind": "R", "queue": "q", "at": ["x"], "values": [1]}"#, load), "R only reads"),
            (with(r#"{"kind": "R", "queue": "q", "at": ["x"], "into": ["a", null]}"#, load), "`into` has 2 entries"),
            (
                with(r#"{"kind": "R", "queue": "q", "at": ["x"], "into": ["a"]}"#, load),
                "register \"a\" is filled twice",
            ),
            (with(r#"{"kind": "C", "queue": "q", "at": ["x"], "values": [1], "into": ["b"]}"#, load), "C only writes"),
            (
                with(r#"{"kind": "A", "queue": "q", "at": ["x", "y"], "values": [1, 1]}"#, load),
                "A has one granule, not 2",
            ),
            (
                with(r#"{"kind": "W", "queue": "q", "at": ["x"], "values": [1], "chain": "c"}"#, load),
                "it has no `chain`",
            ),
            (
                with(r#"{"kind": "E", "queue": "q", "at": ["x"], "values": [1], "fence": "read"}"#, load),
                "it has no `fence`",
            ),
            (
                with(r#"{"kind": "W", "queue": "q", "at": ["x"], "values": [1], "after": ["l"]}"#, load),
                "nothing has the label",
            ),
            (with(r#"{"kind": "W", "queue": "q", "at": ["x@end"], "values": [1]}"#, load), "names cannot have"),
            (with(write, r#"{"kind": "load", "at": "x", "value": 1}"#), "cpus[0][0]: a load has no `value`"),
            (with(write, r#"{"kind": "store", "at": "x"}"#), "a store needs a `value`"),
            (with(write, r#"{"kind": "store", "at": "x", "into": "a", "value": 1}"#), "a store has no `into`"),
            (with(write, r#"{"kind": "load", "at": "x", "label": "l", "after": ["l"]}"#), "it waits for itself"),
            (r#"{"device": [], "cpus": []}"#.to_string(), "there is nothing in it"),
            (format!(r#"{{"device": [{write}], "ask": {{"q": 1}}}}"#), "ask: the program has no \"q\""),
            (format!(r#"{{"device": [{write}], "set": {{"granule": 4}}}}"#), "unknown field `granule`"),
            (format!(r#"{{"device": [{write}], "set": {{"ack": "maybe"}}}}"#), "unknown variant `maybe`"),
            (format!(r#"{{"device": [{write}], "allowed": {{"XX": true}}}}"#), "unknown variant `XX`"),
            (
                format!(r#"{{"tests": [{{"name": "T", "device": [{write}]}}, {{"device": []}}]}}"#),
                "tests[1]: program: there is",
            ),
            (
                r#"{"modes": {"S": {"fabric": "none", "waw": "SO", "raw": "SO", "ro_only": false}}, "tests": []}"#
                    .into(),
                "modes: S is stated",
            ),
            (r#"{"device": ["#.to_string(), "line 1 column"),
            (String::new(), "EOF"),
            ("[".repeat(100_000), "recursion limit"),
        ];
        for (text, expected) in cases {
            let error = refused(&text);
            assert!(error.contains(expected), "{text:.200}: {error}");
        }
    }

    #[test]
    fn sizes_are_bounded() {
        let write = |i: usize| format!(r#"{{"kind": "W", "queue": "q{i}", "at": ["x"], "values": [1]}}"#);
        let device = |n: usize| format!(r#"{{"device": [{}]}}"#, (0..n).map(write).collect::<Vec<_>>().join(","));
        assert!(parse(&device(limits::TRANSACTIONS)).is_ok());
        assert_eq!(
            refused(&device(limits::TRANSACTIONS + 1)),
            "device: the number of transactions is 17, the limit is 16"
        );
        let steps = vec![r#"{"kind": "load", "at": "x"}"#; limits::STEPS + 1].join(",");
        assert!(refused(&format!(r#"{{"device": [], "cpus": [[{steps}]]}}"#)).contains("cpus[0]: the number of steps"));
        let cpus = ["[]"; limits::CPUS + 1].join(",");
        assert!(refused(&format!(r#"{{"device": [], "cpus": [{cpus}]}}"#)).contains("the number of processors"));
        let name = "n".repeat(limits::NAME + 1);
        assert!(refused(&device(1).replace("\"x\"", &format!("\"{name}\""))).contains("length of a name"));
        assert!(refused(&" ".repeat(limits::FILE as usize + 1)).contains("its size in bytes"));
    }

    #[test]
    fn a_program_is_written_as_it_is_read() {
        for p in table::programs() {
            let text = serde_json::to_string(&p.source).unwrap();
            assert_eq!(parse(&text).unwrap(), [p]);
        }
    }

    #[test]
    fn a_register_is_a_dependency() {
        let text = r#"{"device": [{"kind": "R", "queue": "q", "at": ["x"], "into": ["a"]},
            {"kind": "W", "queue": "p", "at": ["y"], "values": [{"reg": "a", "plus": 2}]}]}"#;
        let p = &parse(text).unwrap()[0];
        assert_eq!(p.transactions[1].after, [Actor::Transaction(0)]);
        assert_eq!(p.source.to_string(), "q: R(a=x); p: W(y=a+2)");
    }
}
