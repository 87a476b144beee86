//! Engines with a rule left out, to see that the programs notice.
//!
//! A table of programs is only worth something if it fails when the engine is wrong. For each rule of the engine there is a
//! mutant that ignores it; a program that finds an outcome outside the model's set kills the mutant.

use super::Mode;
use super::compare::Effort;
use super::explore::{self, ExploreError};
use super::oracle::{self, TooLarge};
use super::program::{Outcome, Program};
use crate::dma::order::rules::{Omit, Rule};
use std::collections::BTreeSet;

/// Who noticed that a rule is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Killer {
    /// Index of the program.
    pub program: usize,
    /// In this mode.
    pub mode: Mode,
    /// The first outcome that the contract forbids.
    pub outcome: Outcome,
}

/// Programs with their sets of allowed outcomes, which no mutant changes.
pub struct Jury<'a> {
    programs: &'a [Program],
    allowed: Vec<(usize, Mode, BTreeSet<Outcome>)>,
}

impl<'a> Jury<'a> {
    /// Derives what is allowed.
    pub fn new(programs: &'a [Program], effort: &Effort) -> Result<Jury<'a>, TooLarge> {
        let mut allowed = Vec::new();
        for (index, program) in programs.iter().enumerate() {
            for mode in Mode::ALL {
                allowed.push((index, mode, oracle::outcomes(program, mode, effort.oracle_steps)?));
            }
        }
        Ok(Jury { programs, allowed })
    }

    /// Runs all programs on an engine without one rule; everyone who notices, in the order of the table.
    pub fn killers<'b>(
        &'b self,
        rule: Rule,
        effort: &Effort,
    ) -> impl Iterator<Item = Result<Killer, ExploreError>> + 'b {
        // All transactions first: it is quicker, and a missing rule shows all the same.
        let options = explore::Options { omit: Omit::NOTHING.and(rule), interleave: false, ..effort.explore };
        self.allowed.iter().filter_map(move |(index, mode, allowed)| {
            let found = match explore::explore(&self.programs[*index], *mode, &options) {
                Ok(found) => found,
                Err(error) => return Some(Err(error)),
            };
            let outcome = found.outcomes.into_keys().find(|o| !allowed.contains(o))?;
            Some(Ok(Killer { program: *index, mode: *mode, outcome }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::litmus::table;

    #[test]
    fn a_program_notices_each_rule_that_is_left_out() {
        let programs = table::programs();
        let effort = Effort::default();
        let jury = Jury::new(&programs, &effort).unwrap();
        let mut unnoticed = Vec::new();
        for rule in Rule::ALL.iter().copied() {
            match jury.killers(rule, &effort).next() {
                None => unnoticed.push(rule),
                Some(killer) => {
                    let killer = killer.unwrap();
                    println!("{rule:?}: {} {}", programs[killer.program].source.name, killer.mode)
                }
            }
        }
        assert_eq!(unnoticed, []);
    }
}
