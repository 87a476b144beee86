//! What a command answers when it fails: the PRM status and a syndrome of our own.
//!
//! Each check has its own syndrome, so that one number in a kernel log names the check. Families declare theirs
//! with [`syndromes!`]; [`meaning`] finds the text for the decoded trace.

use std::fmt;

use crate::prm::TooShort;
use crate::prm::status::Status;

/// The `syndrome` dword of a command's output: which check refused it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Syndrome(pub u32);

impl fmt::Debug for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// A refused command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status} (syndrome {syndrome:?}: {})", meaning(.syndrome.0).unwrap_or("unknown"))]
pub struct CmdError {
    /// The PRM status.
    pub status: Status,
    /// Which check refused.
    pub syndrome: Syndrome,
}

impl CmdError {
    /// A refusal with `status` by the check `syndrome`.
    pub const fn new(status: Status, syndrome: Syndrome) -> CmdError {
        CmdError { status, syndrome }
    }
}

impl From<TooShort> for CmdError {
    fn from(_: TooShort) -> CmdError {
        CmdError::new(Status::BAD_INP_LEN_ERR, common::INPUT_TOO_SHORT)
    }
}

/// Declares a family's syndromes: a base number, then one constant and text for each check.
///
/// ```
/// cx10::cmdif::error::syndromes! {
///     /// Checks of the example family.
///     pub mod example = 0x00ff_0000;
///     1 NO_SUCH_THING "the thing does not exist";
/// }
/// assert_eq!(example::NO_SUCH_THING.0, 0x00ff_0001);
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __syndromes {
    ($(#[$doc:meta])* pub mod $name:ident = $base:literal; $($number:literal $id:ident $text:literal;)*) => {
        $(#[$doc])*
        pub mod $name {
            use $crate::cmdif::error::Syndrome;
            $(#[doc = $text] pub const $id: Syndrome = Syndrome($base + $number);)*
            /// Every syndrome of this family with its text.
            pub const TABLE: &[(Syndrome, &str)] = &[$(($id, $text)),*];
        }
    };
}
pub use crate::__syndromes as syndromes;

syndromes! {
    /// Checks that every command goes through.
    pub mod common = 0x0001_0000;
    1 INPUT_TOO_SHORT "inlen is shorter than the command's fixed input";
    2 OUTPUT_TOO_SHORT "outlen is shorter than the status and syndrome";
    3 UNKNOWN_OPCODE "this device does not implement the opcode";
    4 UNKNOWN_OP_MOD "this device does not implement the opcode modifier";
    5 WRONG_STATE "the command is not allowed in the present HCA state";
    6 PRIVILEGED "the command is not allowed with a user context's uid";
    7 UNKNOWN_UID "the uid names no user context";
    8 INTERNAL_ERROR "the function is in internal error";
    9 OTHER_FUNCTION "the command names another function, and there is none";
    10 OTHER_VPORT "the command names another vport, and there is none";
    11 NOT_CAPABLE "the capability for this is not advertised";
    12 NO_ICM_PAGES "the driver has not given enough pages";
}

syndromes! {
    /// Checks of object tables.
    pub mod objects = 0x0002_0000;
    1 NO_SUCH_OBJECT "the object number does not exist";
    2 IN_USE "other objects still refer to this one";
    3 TABLE_FULL "the number of objects that the capabilities allow is reached";
    4 NOT_OWNER "the object belongs to another user context";
    5 NO_SUCH_DEPENDENCY "an object that the context names does not exist";
    6 DEPENDENCY_NOT_OWNED "an object that the context names belongs to another user context";
}

syndromes! {
    /// Checks of page lists.
    pub mod pas = 0x0003_0000;
    1 PAGE_SIZE "the page size is below 4 KiB or beyond 62 bits";
    2 PAGE_OFFSET "the offset lies beyond the first page";
    3 TOO_LONG "the buffer's length overflows";
    4 TOO_FEW "the page list does not cover the buffer";
    5 MISALIGNED "a page address is not aligned to the page size";
}

syndromes! {
    /// Checks of firmware pages.
    pub mod pages = 0x0004_0000;
    1 MISALIGNED "a page address is zero or not aligned to 4 KiB";
    2 ALREADY_GIVEN "the page was given before";
    3 NOT_MAPPED "the page is not in memory that the device can reach";
    4 COUNT "the number of entries does not fit the input";
    5 TOO_MANY "more pages are given at a time than the device ever asks for";
}

/// The text of a syndrome, for the trace, the log and the report.
pub fn meaning(syndrome: u32) -> Option<&'static str> {
    tables().flatten().find(|(s, _)| s.0 == syndrome).map(|(_, text)| *text)
}

/// Every syndrome of every family, with its text.
pub fn tables() -> impl Iterator<Item = &'static [(Syndrome, &'static str)]> {
    super::SYNDROME_TABLES.iter().copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_syndrome_is_unique_and_has_a_text() {
        let mut seen = BTreeSet::new();
        for (syndrome, text) in tables().flatten() {
            assert!(seen.insert(*syndrome), "{syndrome:?} is declared twice");
            assert!(!text.is_empty());
        }
    }

    #[test]
    fn a_syndrome_is_explained() {
        assert_eq!(meaning(common::UNKNOWN_OPCODE.0), Some("this device does not implement the opcode"));
        assert_eq!(meaning(0), None);
    }
}
