//! The ordering contract as small programs, run on the real engine and on a model of its own.
//!
//! A litmus program asks which outcomes a few device transactions and processors can have together. [`explore`] drives the
//! real pool of [`crate::dma`] through every schedule; [`oracle`] derives the same set from axioms and shares no code with
//! the engine's rules. The engine is sound if its set is inside the oracle's, complete if it is all of it ([`compare`]).
//! [`table`] has the programs of the contract, [`random`] makes more.

pub mod compare;
pub mod explore;
pub mod format;
pub mod mutants;
pub mod oracle;
pub mod program;
pub mod random;
pub mod table;

use serde::{Deserialize, Serialize};
use std::fmt;

/// A column of the table: what the fabric orders, and which keys there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Strict keys on PCIe.
    S,
    /// Relaxed keys on PCIe.
    R,
    /// Unordered keys on PCIe.
    U,
    /// Strict keys on a fabric without order.
    NS,
    /// Relaxed keys on a fabric without order; strict writes do not exist.
    NR,
    /// Unordered keys on a fabric without order; strict writes do not exist. The default of the C2C profile.
    NU,
}

impl Mode {
    /// All modes, in the order of the columns.
    pub const ALL: [Mode; 6] = [Mode::S, Mode::R, Mode::U, Mode::NS, Mode::NR, Mode::NU];

    /// The name of the column.
    pub fn name(self) -> &'static str {
        match self {
            Mode::S => "S",
            Mode::R => "R",
            Mode::U => "U",
            Mode::NS => "NS",
            Mode::NR => "NR",
            Mode::NU => "NU",
        }
    }

    /// True if the fabric keeps the order of PCIe.
    pub fn pcie(self) -> bool {
        matches!(self, Mode::S | Mode::R | Mode::U)
    }

    /// True if every key has relaxed write order, whatever a program asks for.
    pub fn relaxed_only(self) -> bool {
        matches!(self, Mode::NR | Mode::NU)
    }

    /// Write-after-write attribute of keys that say nothing.
    pub fn waw(self) -> program::Attribute {
        match self {
            Mode::S | Mode::NS => program::Attribute::Strict,
            Mode::R | Mode::U | Mode::NR | Mode::NU => program::Attribute::Relaxed,
        }
    }

    /// Read-after-write attribute of keys that say nothing.
    pub fn raw(self) -> program::Attribute {
        match self {
            Mode::U | Mode::NU => program::Attribute::Relaxed,
            Mode::S | Mode::R | Mode::NS | Mode::NR => program::Attribute::Strict,
        }
    }

    /// The mode as a table of programs states it.
    pub fn source(self) -> ModeSource {
        ModeSource {
            fabric: if self.pcie() { FabricSource::Pcie } else { FabricSource::None },
            waw: self.waw(),
            raw: self.raw(),
            ro_only: self.relaxed_only(),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A mode written out, as a file with many programs may carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeSource {
    /// What the fabric orders.
    pub fabric: FabricSource,
    /// Write-after-write attribute of keys.
    pub waw: program::Attribute,
    /// Read-after-write attribute of keys.
    pub raw: program::Attribute,
    /// Strict writes do not exist.
    pub ro_only: bool,
}

/// The fabric of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FabricSource {
    /// PCIe order.
    Pcie,
    /// No order.
    None,
}
