//! The interchange format of litmus programs.
//!
//! [`Source`] is the JSON text: a handful of device transactions in issue order and a few sequential processors. It is
//! strict: an unknown field or word is an error that names it. What the text means together is checked when it becomes a
//! [`super::program::Program`]. `Display` writes a program in one line, as reports show it.

pub use crate::dma::order::Kind;
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
    pub const NAME: usize = 128;
    /// Bytes of a title or of the name of a program.
    pub const TITLE: usize = 256;
    /// Different outcomes in one mode.
    pub const OUTCOMES: usize = 50_000;
    /// Largest value. Sums of all of them fit into a register.
    pub const VALUE: u64 = u32::MAX as u64;
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
    /// Behind everything earlier of the queue, as it is seen locally.
    Local,
    /// Behind earlier reads and atomics of the queue.
    Read,
    /// Behind everything earlier of the queue, as far as acknowledgements tell.
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
    /// A read and a write by the device: one at a time for the same bytes, but a processor's store between them is lost.
    /// Beyond the table of the contract.
    Rmw,
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

/// The knobs that differ from their defaults, `KNOB=VALUE` by spaces.
impl fmt::Display for Knobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The names are those of the interchange format, which leaves defaults out.
        let value = serde_json::to_value(self).unwrap_or_default();
        let parts = value.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or("?")));
        write!(f, "{}", parts.collect::<Vec<_>>().join(" "))
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
        if self.set != Knobs::default() {
            write!(f, " [{}]", self.set)?;
        }
        Ok(())
    }
}
