//! Where the function gets its time from. The function itself never looks at a clock of the host.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// Device time in nanoseconds since the function was created.
pub trait Clock {
    /// Now.
    fn now(&self) -> u64;
}

/// The host's monotonic clock.
#[derive(Debug)]
pub struct MonotonicClock(Instant);

impl MonotonicClock {
    /// A clock that starts now.
    pub fn start() -> MonotonicClock {
        MonotonicClock(Instant::now())
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> u64 {
        // 2^64 ns are 584 years.
        self.0.elapsed().as_nanos() as u64
    }
}

/// A clock that moves when told, for tests and replays.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Rc<Cell<u64>>);

impl ManualClock {
    /// Moves the clock on.
    pub fn advance(&self, nanoseconds: u64) {
        self.0.set(self.0.get().saturating_add(nanoseconds));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> u64 {
        self.0.get()
    }
}
