//! Keys without order between a READ and an earlier WRITE of the same queue pair (`mkc.order_read_after_write`).
//!
//! Shown both ways with the ordering engine: under a policy that holds writes back and lets reads go early, a READ through
//! such a key returns older data; through another key it never does, nor when it is posted after the WRITE's completion.

use super::result::{Cell, Row, Verdict};
use super::walk::{Outcome, Trial, Walk, row, trouble};
use crate::run::RunError;
use serde_json::{Value, json};
use std::time::Duration;

const ROUNDS: u64 = 100;

/// Long enough for a guest under emulation to look.
const DEVICE: &[&str] = &[
    "--set",
    "order.policy=read-early",
    "--set",
    "order.seed=1",
    "--set",
    "order.check=true",
    "--set",
    "order.max_delay=5000",
    "--set",
    "order.hold=5000",
];

/// Identifier, title, whether the key asks for no order, whether the READ waits for the WRITE's completion, and whether
/// older data is expected.
const CASES: &[(&str, &str, bool, bool, bool)] = &[
    ("ordered", "READ behind a WRITE, key with order", false, false, false),
    ("unordered", "READ behind a WRITE, key without order", true, false, true),
    ("unordered_after", "READ after the WRITE's completion, key without order", true, true, false),
];

/// Walks the section.
pub fn walk(walk: &mut Walk<'_>) -> Result<(), RunError> {
    walk.device(DEVICE)?;
    for (id, title, unordered, wait, older) in CASES {
        walk.progress.step(&format!("{}: {title}", walk.options.kernel));
        let request = json!({"do": "read_after_write", "unordered_key": unordered, "rounds": ROUNDS, "wait": wait});
        let trial = walk.step(&request, Duration::from_secs(60))?;
        walk.rows.push(answer(id, title, *older, &trial));
    }
    Ok(())
}

fn answer(id: &str, title: &str, expected: bool, trial: &Trial) -> Row {
    let mut cell: Cell = trial.cell("read-early");
    let older = match &trial.outcome {
        Outcome::Done(result) => result.get("older").and_then(Value::as_u64),
        _ => None,
    };
    let (verdict, says) = match (trouble(std::slice::from_ref(&cell)), older, &trial.outcome) {
        (Some(answer), ..) => answer,
        (None, Some(older), _) => {
            cell.good = Some((older > 0) == expected);
            let verdict = if cell.good == Some(true) { Verdict::Ready } else { Verdict::Finding };
            (verdict, format!("{older} of {ROUNDS} READs returned older data"))
        }
        (None, None, Outcome::Unavailable(why) | Outcome::Crash(why) | Outcome::Failed(why)) => {
            (Verdict::Absent, why.clone())
        }
        (None, None, Outcome::Errno(name)) => (Verdict::Absent, format!("no such key ({name})")),
        (None, None, Outcome::Done(_)) => (Verdict::Absent, "the guest gave no count".to_owned()),
    };
    row(&format!("unordered/{id}"), title, verdict, says, vec![cell])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(older: u64, expected: bool) -> Verdict {
        let result = json!({"rounds": ROUNDS, "older": older}).as_object().cloned().unwrap();
        let trial = Trial { outcome: Outcome::Done(result), log: Vec::new(), keys: Vec::new() };
        answer("x", "x", expected, &trial).verdict
    }

    #[test]
    fn older_data_is_expected_with_one_kind_of_key_only() {
        assert_eq!(verdict(40, true), Verdict::Ready);
        assert_eq!(verdict(0, true), Verdict::Finding);
        assert_eq!(verdict(0, false), Verdict::Ready);
        assert_eq!(verdict(1, false), Verdict::Finding);
    }
}
