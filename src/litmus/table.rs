//! The programs of the contract: `docs/ordering.md`, the litmus table, with the verdict and the number of outcomes by mode.

use super::program::{self, Program};

/// The table, in the interchange format.
pub const TEXT: &str = include_str!("table.json");

/// All programs, in the order of the table.
pub fn programs() -> Vec<Program> {
    match program::parse(TEXT) {
        Ok(programs) => programs,
        Err(error) => panic!("the table of programs is not valid: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::litmus::{Mode, explore, oracle};

    #[test]
    fn the_model_agrees_with_every_verdict_and_count() {
        let programs = programs();
        assert_eq!(programs.len(), 61);
        let mut wrong = Vec::new();
        for p in &programs {
            for mode in Mode::ALL {
                let set = oracle::outcomes(p, mode, oracle::DEFAULT_STEPS).unwrap();
                let verdict = set.iter().any(|o| p.answers(o));
                let found = (verdict, set.len());
                let stated = (p.source.allowed[&mode], p.source.outcomes[&mode]);
                if found != stated {
                    wrong.push(format!("{} {mode}: found {found:?}, stated {stated:?}", p.source.name));
                }
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn the_engine_has_exactly_the_outcomes_of_the_model() {
        let mut wrong = Vec::new();
        let mut states = 0;
        for p in &programs() {
            for mode in Mode::ALL {
                let model = oracle::outcomes(p, mode, oracle::DEFAULT_STEPS).unwrap();
                let engine = explore::explore(p, mode, &explore::Options::default()).unwrap();
                states += engine.states;
                let found: std::collections::BTreeSet<_> = engine.outcomes.keys().cloned().collect();
                if found != model {
                    let extra: Vec<String> = found.difference(&model).map(|o| p.show(o)).collect();
                    let missing: Vec<String> = model.difference(&found).map(|o| p.show(o)).collect();
                    wrong.push(format!("{} {mode}: unsound {extra:?}, missing {missing:?}", p.source.name));
                }
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
        println!("{states} states");
    }
}
