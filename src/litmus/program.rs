//! Litmus programs: the interchange format and its checked form.
//!
//! A program is a handful of device transactions in issue order and a few sequential processors. [`Source`] is the JSON
//! text, strict: an unknown field is an error that names it. [`Program`] is what the oracle and the explorer run: every name
//! resolved to an index, every size bounded, so that no file can make them panic or run away.
//!
//! Limits are in [`limits`]. Facts: `docs/ordering.md`, the litmus table and the model behind it.

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Bounds of a program. They are generous for what a person writes and small enough that masks are machine words.
pub mod limits {
    /// Bytes of a program file.
    pub const FILE: u64 = 1 << 20;
    /// Programs in one file.
    pub const PROGRAMS: usize = 1000;
    /// Device transactions.
    pub const TRANSACTIONS: usize = 16;
    /// Granules of one transaction.
    pub const CELLS: usize = 16;
    /// Processors.
    pub const CPUS: usize = 8;
    /// Steps of one processor.
    pub const STEPS: usize = 16;
    /// Granule accesses of the device and steps of all processors together.
    pub const EVENTS: usize = 64;
    /// Labels that one transaction or step waits for.
    pub const AFTER: usize = 16;
    /// Bytes of a name of a queue, granule, register, label, node or chain.
    pub const NAME: usize = 64;
    /// Bytes of a title or of the name of a program.
    pub const TITLE: usize = 256;
    /// Largest value. Sums of all of them fit into a register.
    pub const VALUE: u64 = u32::MAX as u64;
}

/// Kind of a device transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Data write.
    #[serde(rename = "W")]
    Write,
    /// Data read.
    #[serde(rename = "R")]
    Read,
    /// Atomic fetch-and-add.
    #[serde(rename = "A")]
    Atomic,
    /// Completion queue entry.
    #[serde(rename = "C")]
    Cqe,
    /// Event queue entry.
    #[serde(rename = "E")]
    Eqe,
    /// Interrupt message.
    #[serde(rename = "I")]
    Msi,
    /// Control read: doorbell record, work queue entry.
    #[serde(rename = "K")]
    Control,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 7] = [Kind::Write, Kind::Read, Kind::Atomic, Kind::Cqe, Kind::Eqe, Kind::Msi, Kind::Control];

    /// The letter of the interchange format.
    pub fn letter(self) -> char {
        match self {
            Kind::Write => 'W',
            Kind::Read => 'R',
            Kind::Atomic => 'A',
            Kind::Cqe => 'C',
            Kind::Eqe => 'E',
            Kind::Msi => 'I',
            Kind::Control => 'K',
        }
    }

    /// True if the transaction only stores.
    pub fn stores(self) -> bool {
        matches!(self, Kind::Write | Kind::Cqe | Kind::Eqe | Kind::Msi)
    }

    /// True if the transaction only loads.
    pub fn loads(self) -> bool {
        matches!(self, Kind::Read | Kind::Control)
    }
}

/// An ordering attribute of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Attribute {
    /// Strict order.
    #[serde(rename = "SO")]
    Strict,
    /// Relaxed order.
    #[serde(rename = "RO")]
    Relaxed,
}

/// The fence of the work queue entry that a transaction belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fence {
    /// Behind everything earlier of the queue, as far as it is visible locally.
    Local,
    /// Behind earlier reads and atomics of the queue.
    Read,
    /// Behind everything earlier of the queue.
    Strong,
}

/// Knob `raw_scope`: which earlier writes a read with strict read-after-write order waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawScope {
    /// All of its queue.
    #[default]
    Qp,
    /// Those of its queue to the same bytes.
    Bytes,
    /// All of the function.
    Function,
}

/// Knob `atomic`: how an atomic is ordered against writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtomicKnob {
    /// As the manual page says: key attributes do not matter.
    #[default]
    Man,
    /// A relaxed PCIe AtomicOp: may pass earlier writes.
    PcieRo,
}

/// Knob `ack`: what the acknowledgement of a write means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ack {
    /// The write is visible.
    #[default]
    Visible,
    /// The write was accepted.
    Receive,
}

/// Knob `fence2`: what the read fence waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fence2 {
    /// Reads and atomics.
    #[default]
    Ibta,
    /// Everything, as the newer manual page says.
    Pr1780,
}

/// Knobs that a program fixes; what is not named has its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Knobs {
    /// Which writes a strict read waits for.
    #[serde(skip_serializing_if = "is_default")]
    pub raw_scope: RawScope,
    /// How atomics are ordered.
    #[serde(skip_serializing_if = "is_default")]
    pub atomic: AtomicKnob,
    /// What an acknowledgement means.
    #[serde(skip_serializing_if = "is_default")]
    pub ack: Ack,
    /// What the read fence waits for.
    #[serde(skip_serializing_if = "is_default")]
    pub fence2: Fence2,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A value to be stored or added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(u64),
    /// What a register holds, plus a number.
    Register {
        /// Register name.
        reg: String,
        /// What is added.
        plus: u64,
    },
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or {\"reg\": NAME, \"plus\": NUMBER}")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
                Ok(Value::Number(number))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Register {
                    reg: String,
                    #[serde(default)]
                    plus: u64,
                }
                let Register { reg, plus } = Register::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(Value::Register { reg, plus })
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// A device transaction as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransactionSource {
    /// What it is.
    pub kind: Kind,
    /// Stream: a queue pair and direction.
    pub queue: String,
    /// Granules at ascending addresses; the last one of an entry is its owner byte.
    pub at: Vec<String>,
    /// What is stored, or added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Value>,
    /// Registers that receive what is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub into: Vec<Option<String>>,
    /// Write-after-write order of this key, instead of the mode's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waw: Option<Attribute>,
    /// Read-after-write order of this key, instead of the mode's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Attribute>,
    /// Fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// Labels that must be done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Its own label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Memory domain; `B` if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Completion queue whose chain an entry or interrupt belongs to; `cq_QUEUE` if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

/// A step of a processor as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSource {
    /// Load or store.
    pub kind: StepKind,
    /// Granule.
    pub at: String,
    /// Register that a load fills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// What is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Its own label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Labels that must be done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

/// Kind of a processor's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// Load.
    Load,
    /// Store.
    Store,
}

/// A program in the interchange format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Short name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Knobs that it fixes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub set: Knobs,
    /// Transactions in issue order.
    pub device: Vec<TransactionSource>,
    /// Processors, each sequential.
    #[serde(default)]
    pub cpus: Vec<Vec<StepSource>>,
    /// The outcome in question.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ask: BTreeMap<String, u64>,
    /// Whether that outcome is said to be allowed, by mode.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allowed: BTreeMap<super::Mode, bool>,
    /// How many outcomes there are said to be, by mode.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outcomes: BTreeMap<super::Mode, usize>,
}

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
        let cells: usize = source.device.iter().map(|t| t.at.len()).sum();
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
            transactions.push(self.transaction(&format!("device[{i}]"), t)?);
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
        if t.kind == Kind::Atomic && cells != 1 {
            return Err(invalid(place, format!("an atomic has one granule, not {cells}")));
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

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(n) => write!(f, "{n}"),
            Value::Register { reg, plus: 0 } => write!(f, "{reg}"),
            Value::Register { reg, plus } => write!(f, "{reg}+{plus}"),
        }
    }
}

impl fmt::Display for TransactionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |a: Attribute| if a == Attribute::Strict { "SO" } else { "RO" };
        write!(f, "{}: ", self.queue)?;
        if !self.after.is_empty() {
            write!(f, "after {} ", self.after.join(","))?;
        }
        match self.fence {
            Some(Fence::Local) => write!(f, "fence=local ")?,
            Some(Fence::Read) => write!(f, "fence=read ")?,
            Some(Fence::Strong) => write!(f, "fence=strong ")?,
            None => {}
        }
        if let Some(waw) = self.waw {
            write!(f, "[WAW={}]", word(waw))?;
        }
        if let Some(raw) = self.raw {
            write!(f, "[RAW={}]", word(raw))?;
        }
        let cells: Vec<String> = self
            .at
            .iter()
            .enumerate()
            .map(|(i, at)| {
                let into = self.into.get(i).and_then(|r| r.as_deref()).map(|r| format!("{r}=")).unwrap_or_default();
                match (self.kind, self.values.get(i)) {
                    (Kind::Atomic, Some(v)) => format!("{into}{at}+={v}"),
                    (_, Some(v)) => format!("{at}={v}"),
                    (_, None) => format!("{into}{at}"),
                }
            })
            .collect();
        write!(f, "{}({})", self.kind.letter(), cells.join(","))?;
        if let Some(node) = &self.node {
            write!(f, "@{node}")?;
        }
        if let Some(chain) = self.chain.as_ref().filter(|c| **c != format!("cq_{}", self.queue)) {
            write!(f, " chain={chain}")?;
        }
        if let Some(label) = &self.label {
            write!(f, " #{label}")?;
        }
        Ok(())
    }
}

impl fmt::Display for StepSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.after.is_empty() {
            write!(f, "after {} ", self.after.join(","))?;
        }
        match (&self.value, &self.into) {
            (Some(value), _) => write!(f, "{}:={value}", self.at)?,
            (None, Some(into)) => write!(f, "{into}={}", self.at)?,
            (None, None) => write!(f, "{}", self.at)?,
        }
        if let Some(label) = &self.label {
            write!(f, " #{label}")?;
        }
        Ok(())
    }
}

/// The program in one line: transactions, then each processor behind `||`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device: Vec<String> = self.device.iter().map(ToString::to_string).collect();
        write!(f, "{}", device.join("; "))?;
        for steps in &self.cpus {
            let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
            write!(f, " || {}", steps.join("; "))?;
        }
        Ok(())
    }
}
