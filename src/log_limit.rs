//! Log lines that a guest can cause without end are shown for a while and then ever more rarely, so that a guest can
//! neither fill a disk nor hide that it goes on.
//!
//! The limit counts per place in the code and for the life of the process; it looks at no clock, because the device
//! has none. Nothing but the log depends on it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines that are shown before the limit begins.
const SHOWN: u64 = 16;

/// Counts the occurrences at one place.
#[derive(Debug, Default)]
pub struct Limit(AtomicU64);

impl Limit {
    /// No occurrence yet.
    pub const fn new() -> Limit {
        Limit(AtomicU64::new(0))
    }

    /// Counts an occurrence. Answers its note if it is to be shown: one of the first, or twice as many as last time.
    pub fn admit(&self) -> Option<Note> {
        let count = self.0.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        (count <= SHOWN || count.is_power_of_two()).then_some(Note(count))
    }
}

/// What a line says about those that are not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note(u64);

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            SHOWN => write!(f, " (said {SHOWN} times; from now on seldom)"),
            count if count > SHOWN => write!(f, " (said {count} times)"),
            _ => Ok(()),
        }
    }
}

/// As `log::warn!` or `log::error!` with a target, but limited: `limited!(warn, target: "cx10::x", "...")`.
#[macro_export]
#[doc(hidden)]
macro_rules! __limited {
    ($level:ident, target: $target:expr, $($message:tt)+) => {{
        static LIMIT: $crate::log_limit::Limit = $crate::log_limit::Limit::new();
        if let Some(note) = LIMIT.admit() {
            log::$level!(target: $target, "{}{note}", format_args!($($message)+));
        }
    }};
}
pub use crate::__limited as limited;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_occurrences_make_few_lines_and_the_last_count_is_near() {
        let limit = Limit::new();
        let shown: Vec<String> = (0..1_000_000).filter_map(|_| limit.admit()).map(|note| note.to_string()).collect();
        assert_eq!(shown.len(), 16 + 15);
        assert!(shown[..15].iter().all(String::is_empty));
        assert_eq!(shown[15], " (said 16 times; from now on seldom)");
        assert_eq!(shown[30], " (said 524288 times)");
    }

    #[test]
    fn each_place_has_a_limit_of_its_own() {
        let place = |n: u32| {
            static FIRST: Limit = Limit::new();
            static SECOND: Limit = Limit::new();
            if n == 0 { FIRST.admit() } else { SECOND.admit() }
        };
        assert_eq!((0..100).filter_map(|_| place(0)).count(), 16 + 2);
        assert_eq!(place(1), Some(Note(1)));
    }
}
