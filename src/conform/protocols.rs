//! Kernel protocols over RDMA: their fast-registration keys are relaxed, and their data survives every legal order.

use super::keys::Key;
use super::result::{Cell, Row, Verdict};
use super::walk::{Outcome, Trial, Walk, row, trouble};
use crate::run::RunError;
use serde_json::{Value, json};
use std::time::Duration;

/// Name in the guest and title.
const PROTOCOLS: &[(&str, &str)] = &[
    ("nvme", "NVMe over RDMA"),
    ("nfs", "NFS over RDMA"),
    ("iser", "iSER (iSCSI)"),
    ("srp", "SRP (SCSI)"),
    ("smc", "SMC-R (sockets)"),
    ("rds", "RDS"),
];

/// Every legal policy. One queue in three priorities is depth enough to show that depth changes nothing.
pub const POLICIES: &[&str] =
    &["in-order", "random", "lifo", "tail-first", "hold-one", "qp-skew", "read-early", "read-late", "pct(3)"];

/// Time for one protocol under one policy.
const LIMIT: Duration = Duration::from_secs(180);

/// Walks the section.
pub fn walk(walk: &mut Walk<'_>) -> Result<(), RunError> {
    let mut cells: Vec<Vec<Cell>> = vec![Vec::new(); PROTOCOLS.len()];
    for policy in walk.policies.clone() {
        let name = format!("order.policy={policy}");
        let held = ["order.seed=1", "order.check=true", "order.max_delay=2000", "order.hold=2000"];
        let arguments: Vec<&str> = std::iter::once(name.as_str()).chain(held).flat_map(|set| ["--set", set]).collect();
        walk.device(&arguments)?;
        for ((protocol, title), cells) in PROTOCOLS.iter().zip(&mut cells) {
            // What is not there is asked for once.
            if cells.first().is_some_and(|cell: &Cell| cell.outcome == "absent") {
                continue;
            }
            walk.progress.step(&format!("{}: {title}, {policy}", walk.options.kernel));
            let trial = walk.step(&json!({"do": "protocol", "name": protocol}), LIMIT)?;
            cells.push(cell(&trial, &policy));
        }
    }
    for ((name, title), cells) in PROTOCOLS.iter().zip(cells) {
        walk.rows.push(answer(&format!("protocols/{name}"), title, cells));
    }
    Ok(())
}

fn cell(trial: &Trial, policy: &str) -> Cell {
    let mut cell = trial.cell(policy);
    if let Outcome::Done(result) = &trial.outcome {
        let text = |name: &str| result.get(name).and_then(Value::as_str).map(str::to_owned);
        let (outcome, detail) = match (text("changed"), text("failed"), result.get("bytes").and_then(Value::as_u64)) {
            (Some(what), ..) => ("changed", what),
            (_, Some(what), _) => ("failed", what),
            (.., Some(bytes)) => ("ok", format!("{bytes} bytes compared")),
            _ => ("failed", "no answer".to_owned()),
        };
        (cell.outcome, cell.detail) = (outcome.to_owned(), detail);
    }
    cell.good = cell.good.or(match cell.outcome.as_str() {
        "absent" => None,
        "ok" => Some(trial.keys.iter().all(|key| key.verdict != "refused")),
        _ => Some(false),
    });
    cell
}

fn answer(id: &str, title: &str, mut cells: Vec<Cell>) -> Row {
    // What was there must not go from one policy to the next.
    for cell in cells.iter_mut().skip(1).filter(|cell| cell.outcome == "absent") {
        cell.good = Some(false);
    }
    let keys = || cells.iter().flat_map(|cell| &cell.keys);
    // The key of a protection domain has no translation; all others of a protocol are for fast registration, whether they
    // are lists of pages (`free`, `mtt`) or of pieces with gaps, which look like memory windows.
    let fast = |key: &&Key| key.kind != "pa";
    let strong = keys().filter(fast).filter(|key| !key.relaxed).count();
    let refused = keys().filter(|key| key.verdict == "refused").count();
    let words = format!("{} of {} policies", cells.iter().filter(|cell| cell.outcome == "ok").count(), cells.len());
    let (verdict, says) = match (trouble(&cells), cells.iter().find(|cell| cell.good == Some(false))) {
        (Some(answer), _) => answer,
        _ if cells.first().is_some_and(|cell| cell.outcome == "absent") => {
            (Verdict::Absent, cells.first().map(|cell| cell.detail.clone()).unwrap_or_default())
        }
        (None, Some(cell)) => (Verdict::Finding, format!("{}: {} ({})", cell.column, cell.outcome, cell.detail)),
        (None, None) if refused > 0 => (Verdict::Finding, format!("{refused} keys refused")),
        (None, None) if strong > 0 => (Verdict::Finding, format!("{strong} fast-registration keys are strong")),
        (None, None) => {
            let count = |verdict: &str| keys().filter(fast).filter(|key| key.verdict == verdict).count();
            let keys = match (count("created"), count("enabled")) {
                (0, 0) => "no fast-registration key".to_owned(),
                (made, used) => format!("{made} fast-registration keys, used {used} times, all relaxed"),
            };
            (Verdict::Ready, format!("data survives {words}; {keys}"))
        }
    };
    row(id, title, verdict, says, cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(result: Value, keys: Vec<Key>) -> Cell {
        let outcome = Outcome::Done(result.as_object().cloned().unwrap());
        cell(&Trial { outcome, log: Vec::new(), keys }, "random")
    }

    fn key(relaxed: bool) -> Key {
        Key { kind: "free".into(), verdict: "created".into(), relaxed, ..Key::default() }
    }

    #[test]
    fn data_that_survives_with_relaxed_keys_is_ready() {
        let row = answer("p/x", "x", vec![tried(json!({"bytes": 5}), vec![key(true)])]);
        assert_eq!(row.verdict, Verdict::Ready);
        assert_eq!(row.says, "data survives 1 of 1 policies; 1 fast-registration keys, used 0 times, all relaxed");
        let none = answer("p/x", "x", vec![tried(json!({"bytes": 5}), vec![])]);
        assert_eq!(none.says, "data survives 1 of 1 policies; no fast-registration key");
    }

    #[test]
    fn changed_data_a_failure_and_a_strong_key_are_findings() {
        let absent = Outcome::Unavailable("no module".into());
        let absent = cell(&Trial { outcome: absent, log: Vec::new(), keys: Vec::new() }, "lifo");
        let gone = answer("p/x", "x", vec![tried(json!({"bytes": 5}), vec![]), absent]);
        assert_eq!((gone.verdict, gone.says.as_str()), (Verdict::Finding, "lifo: absent (no module)"));
        let changed = answer("p/x", "x", vec![tried(json!({"changed": "file"}), vec![])]);
        assert_eq!((changed.verdict, changed.says.as_str()), (Verdict::Finding, "random: changed (file)"));
        assert_eq!(answer("p/x", "x", vec![tried(json!({"failed": "why"}), vec![])]).verdict, Verdict::Finding);
        let strong = answer("p/x", "x", vec![tried(json!({"bytes": 5}), vec![key(false)])]);
        assert_eq!((strong.verdict, strong.says.as_str()), (Verdict::Finding, "1 fast-registration keys are strong"));
    }
}
