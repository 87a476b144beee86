//! The programs of the contract, and more that show one rule each.
//!
//! The first 61 are those of `docs/ordering.md`; verdict and number of outcomes in each mode are the contract's. The
//! others (group H) exist because the contract's programs do not notice every rule of the engine that is left out: some
//! rules stand behind others there, or need a kind of access that the contract's programs do not have.

use super::program::{self, Program};

/// The contract's programs, in the interchange format.
pub const CONTRACT: &str = include_str!("table.json");

/// More programs.
pub const MORE: &str = include_str!("more.json");

/// All programs, in the order of the table.
pub fn programs() -> Vec<Program> {
    let parse = |text| match program::parse(text) {
        Ok(programs) => programs,
        Err(error) => panic!("the table of programs is not valid: {error}"),
    };
    [CONTRACT, MORE].into_iter().flat_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::litmus::compare::{Effort, compare};
    use crate::litmus::{Mode, oracle};

    #[test]
    fn the_model_agrees_with_every_verdict_and_count() {
        let programs = programs();
        assert_eq!(programs.iter().filter(|p| !p.source.name.starts_with('H')).count(), 61);
        let mut wrong = Vec::new();
        for p in &programs {
            for mode in Mode::ALL {
                let set = oracle::outcomes(p, mode, oracle::DEFAULT_STEPS).unwrap();
                let found = (set.iter().any(|o| p.answers(o)), set.len());
                let stated = (p.source.allowed.get(&mode).copied(), p.source.outcomes.get(&mode).copied());
                if stated != (Some(found.0), Some(found.1)) {
                    wrong.push(format!("{} {mode}: found {found:?}, stated {stated:?}", p.source.name));
                }
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn the_engine_has_exactly_the_outcomes_of_the_model() {
        for p in &programs() {
            for mode in Mode::ALL {
                let c = compare(p, mode, &Effort::default()).unwrap();
                let extra: Vec<String> = c.unsound().map(|(o, _)| p.show(o)).collect();
                let missing: Vec<String> = c.missing().map(|o| p.show(o)).collect();
                assert!(c.agrees(), "{} {mode}: unsound {extra:?}, missing {missing:?}", p.source.name);
            }
        }
    }
}
