//! Litmus programs: any file is refused with a message or run within its bounds, and engine and model agree on what runs.

use cx10::litmus::compare::{CompareError, Effort, compare};
use cx10::litmus::explore::{ExploreError, Options};
use cx10::litmus::program::{self, Program};
use cx10::litmus::{Mode, random};

use crate::input::Input;

/// Runs one input.
pub fn run(data: &[u8]) {
    let input = &mut Input::new(data);
    let how = input.u8();
    let mode = Mode::ALL[usize::from(how & 0x7f) % Mode::ALL.len()];
    if how & 0x80 != 0 {
        // Text seldom gets as far as these do.
        let (seed, number) = (input.number(64), input.number(64));
        return agree(&random::program(seed, number), mode);
    }
    match program::parse(&String::from_utf8_lossy(input.rest())) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(programs) => programs.iter().take(2).for_each(|p| {
            // What was read is written, and read as the same.
            let text = serde_json::to_string(&p.source).expect("names are text");
            let again = program::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(again, std::slice::from_ref(p));
            agree(p, mode);
        }),
    }
}

fn agree(p: &Program, mode: Mode) {
    let effort = Effort { explore: Options { max_states: 3000, ..Options::default() }, oracle_steps: 30_000 };
    match compare(p, mode, &effort) {
        Ok(c) => {
            let unsound: Vec<String> = c.unsound().map(|(o, _)| p.show(o)).collect();
            let missing: Vec<String> = c.missing().map(|o| p.show(o)).collect();
            assert!(c.agrees(), "{} {mode}: unsound {unsound:?}, missing {missing:?}", p.source);
        }
        Err(CompareError::Explore(error @ ExploreError::Engine(_))) => panic!("{} {mode}: {error}", p.source),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
