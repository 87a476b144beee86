//! The engine against the model, on one program in one mode.

use super::Mode;
use super::explore::{self, Exploration, ExploreError, Move};
use super::oracle::{self, TooLarge};
use super::program::{Outcome, Program};
use std::collections::BTreeSet;

/// How much work one comparison may be.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Of the explorer.
    pub explore: explore::Options,
    /// Steps of the model.
    pub oracle_steps: u64,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { explore: explore::Options::default(), oracle_steps: oracle::DEFAULT_STEPS }
    }
}

/// The two sets of outcomes.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// In this mode.
    pub mode: Mode,
    /// What the engine can produce, with a schedule for each.
    pub engine: Exploration,
    /// What the contract allows.
    pub model: BTreeSet<Outcome>,
}

/// Why there is nothing to compare.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// The program is too large for the model.
    #[error(transparent)]
    Model(#[from] TooLarge),
    /// It is too large for the explorer, or the engine failed.
    #[error(transparent)]
    Explore(#[from] ExploreError),
}

impl CompareError {
    /// The engine is to blame, not the size of the program.
    pub fn is_engine(&self) -> bool {
        matches!(self, CompareError::Explore(ExploreError::Engine(_)))
    }
}

/// Runs a program both ways.
pub fn compare(program: &Program, mode: Mode, effort: &Effort) -> Result<Comparison, CompareError> {
    let model = oracle::outcomes(program, mode, effort.oracle_steps)?;
    let engine = explore::explore(program, mode, &effort.explore)?;
    Ok(Comparison { mode, engine, model })
}

impl Comparison {
    /// What the engine produces and the contract forbids, with the schedule that did it.
    pub fn unsound(&self) -> impl Iterator<Item = (&Outcome, &[Move])> {
        let outcomes = self.engine.outcomes.iter().filter(|(o, _)| !self.model.contains(*o));
        outcomes.map(|(o, schedule)| (o, schedule.as_slice()))
    }

    /// What the contract allows and the engine never produces.
    pub fn missing(&self) -> impl Iterator<Item = &Outcome> {
        self.model.iter().filter(|o| !self.engine.outcomes.contains_key(*o))
    }

    /// Every outcome of the engine is allowed.
    pub fn is_sound(&self) -> bool {
        self.unsound().next().is_none()
    }

    /// The engine has every allowed outcome.
    pub fn is_complete(&self) -> bool {
        self.missing().next().is_none()
    }

    /// Both.
    pub fn agrees(&self) -> bool {
        self.is_sound() && self.is_complete()
    }

    /// Whether the engine can produce the outcome in question.
    pub fn allows(&self, program: &Program) -> bool {
        self.engine.outcomes.keys().any(|o| program.answers(o))
    }
}

/// A schedule in words, a line each.
pub fn describe(program: &Program, schedule: &[Move]) -> Vec<String> {
    let line = |m: &Move| match *m {
        // Issue is bookkeeping of the device; what lands when is what matters.
        Move::Issue(_) => None,
        Move::Apply(i, part) => {
            let source = &program.source.device[usize::from(i)];
            let place = match source.at.get(usize::from(part)) {
                Some(granule) if source.at.len() > 1 => format!("{granule} of "),
                None => "second half of ".to_string(),
                _ => String::new(),
            };
            Some(format!("device: {place}{source}"))
        }
        Move::Step(cpu, s) => Some(format!("cpu {cpu}:  {}", program.source.cpus[usize::from(cpu)][usize::from(s)])),
    };
    schedule.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::litmus::table;

    fn mixed(name: &str, engine: Mode, model: Mode) -> (Program, Comparison) {
        let p = table::programs().into_iter().find(|p| p.source.name == name).unwrap();
        let engine = explore::explore(&p, engine, &explore::Options::default()).unwrap();
        let allowed = oracle::outcomes(&p, model, oracle::DEFAULT_STEPS).unwrap();
        let c = Comparison { mode: model, engine, model: allowed };
        (p, c)
    }

    #[test]
    fn an_engine_that_is_too_strict_is_incomplete() {
        let (p, c) = mixed("A1", Mode::S, Mode::NU);
        assert!(c.is_sound() && !c.is_complete());
        assert_eq!(c.missing().map(|o| p.show(o)).collect::<Vec<_>>(), ["a=1 b=0 x@end=1 y@end=1"]);
    }

    #[test]
    fn an_engine_that_is_too_free_is_unsound_and_says_how() {
        let (p, c) = mixed("A1", Mode::NU, Mode::S);
        assert!(!c.is_sound() && c.is_complete());
        let (outcome, schedule) = c.unsound().next().unwrap();
        assert_eq!(p.show(outcome), "a=1 b=0 x@end=1 y@end=1");
        let lines = describe(&p, schedule);
        assert_eq!(lines, ["device: q: W(y=1)", "cpu 0:  a=y", "cpu 0:  b=x", "device: q: W(x=1)"]);
    }
}
