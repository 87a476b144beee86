//! What a user sees when hardware refuses: each call's errno, the kernel's log line and the device's reason, side by side
//! for every way in which a device may enforce.

use super::result::{Cell, Row, Verdict};
use super::walk::{Outcome, Trial, Walk, is_missing, missing, row, trouble};
use crate::run::RunError;

/// A device: name, settings, and whether it judges at all.
const DEVICES: &[(&str, &[&str], bool)] = &[
    ("create", &["mkey.strict=create", WRITE_UMR_OFF, READ_UMR_OFF], true),
    ("create+umr", &["mkey.strict=create", WRITE_UMR, READ_UMR], true),
    ("enable", &["mkey.strict=enable", WRITE_UMR_OFF, READ_UMR_OFF], true),
    ("enable+umr", &["mkey.strict=enable", WRITE_UMR, READ_UMR], true),
    ("off", &["mkey.strict=off", WRITE_UMR_OFF, READ_UMR_OFF], false),
];
const WRITE_UMR: &str = "caps.general.relaxed_ordering_write_umr=1";
const READ_UMR: &str = "caps.general.relaxed_ordering_read_umr=1";
const WRITE_UMR_OFF: &str = "caps.general.relaxed_ordering_write_umr=0";
const READ_UMR_OFF: &str = "caps.general.relaxed_ordering_read_umr=0";

const STRONG: u32 = 7;
const RELAXED: u32 = 7 | 1 << 20;

/// A call: path in the guest, flags, title, and whether what it asks for is relaxed.
const CALLS: &[(&str, u32, &str, bool)] = &[
    ("reg_mr_write", STRONG, "reg_mr, strong", false),
    ("reg_mr_write", RELAXED, "reg_mr, relaxed", true),
    ("rereg_relaxed_mr", STRONG, "rereg_mr from relaxed to strong", false),
    ("rereg_relaxed_mr", RELAXED, "rereg_mr from relaxed to relaxed", true),
    ("dmabuf_mr", STRONG, "reg_dmabuf_mr, strong", false),
    ("dmabuf_mr", RELAXED, "reg_dmabuf_mr, relaxed", true),
    ("dm_mr", STRONG, "region on device memory", false),
    ("odp_mr", STRONG, "on-demand region, strong", false),
    ("odp_mr", RELAXED, "on-demand region, relaxed", true),
    ("odp_implicit_mr", RELAXED, "on-demand region, implicit, relaxed", true),
    ("devx_mkey", STRONG, "DEVX key, strong", false),
    ("devx_mkey", RELAXED, "DEVX key, relaxed", true),
    ("mw_type_1", STRONG, "memory window, type 1", false),
    ("mw_type_2", STRONG, "memory window, type 2", false),
];

/// Walks the section.
pub fn walk(walk: &mut Walk<'_>) -> Result<(), RunError> {
    let mut cells: Vec<Vec<Cell>> = vec![Vec::new(); CALLS.len()];
    let mut after = Vec::new();
    for (device, settings, strict) in DEVICES {
        walk.progress.step(&format!("{}: mkey.strict {device}", walk.options.kernel));
        let arguments: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        walk.device(&arguments)?;
        for ((path, access, _, relaxed), cells) in CALLS.iter().zip(&mut cells) {
            let trial = walk.register(path, *access)?;
            cells.push(cell(&trial, device, *strict, *relaxed));
        }
        // The driver's own queue pair for work requests on keys must have survived all that was refused.
        let trial = walk.register("reg_mr_write", RELAXED)?;
        after.push(cell(&trial, device, *strict, true));
    }
    for ((path, access, title, _), cells) in CALLS.iter().zip(cells) {
        let kind = if *access == RELAXED { "relaxed" } else { "strong" };
        walk.rows.push(answer(&format!("enforcement/{path}/{kind}"), title, cells));
    }
    walk.rows.push(answer("enforcement/after", "reg_mr, relaxed, after all that was refused", after));
    Ok(())
}

fn cell(trial: &Trial, device: &str, strict: bool, relaxed: bool) -> Cell {
    let mut cell = trial.cell(device);
    let refused = trial.keys.iter().find(|key| key.verdict == "refused");
    if let Some(key) = refused.filter(|_| cell.detail.is_empty()) {
        cell.detail = format!("{}: {}", key.via, key.reason);
    }
    cell.good = cell.good.or(match &trial.outcome {
        Outcome::Unavailable(_) | Outcome::Crash(_) | Outcome::Failed(_) => None,
        // Who asks for what the device grants must get it; who does not must have been refused by the device.
        Outcome::Errno(_) => Some(strict && !relaxed && refused.is_some()),
        Outcome::Done(_) => Some(true),
    });
    cell
}

fn answer(id: &str, title: &str, mut cells: Vec<Cell>) -> Row {
    let words: Vec<String> = cells.iter().map(|cell| format!("{}: {}", cell.column, cell.outcome)).collect();
    let says = words.join(", ");
    // A call that one device has and another has not is no missing call.
    if cells.iter().all(is_missing) {
        cells.iter_mut().for_each(|cell| cell.good = None);
        let why = cells.first().map(missing).unwrap_or_default();
        return row(id, title, Verdict::Absent, why, cells);
    }
    for cell in cells.iter_mut().filter(|cell| is_missing(cell) && !cell.detail.starts_with("not tried")) {
        cell.good = Some(false);
    }
    let (verdict, says) = match (trouble(&cells), cells.iter().find(|cell| cell.good == Some(false))) {
        (Some((verdict, what)), _) => (verdict, format!("{says}; {what}")),
        (None, Some(cell)) => (Verdict::Finding, format!("{says}; {}: {}", cell.column, reason(cell))),
        (None, None) => (Verdict::Ready, says),
    };
    row(id, title, verdict, says, cells)
}

/// Why a cell is bad.
fn reason(cell: &Cell) -> &str {
    match cell.detail.as_str() {
        "" => "no key is refused, and the call fails all the same",
        detail => detail,
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Key;
    use super::super::session::LogLine;
    use super::*;

    fn trial(outcome: Outcome, log: &str) -> Trial {
        let key = Key { verdict: "refused".into(), via: "UMR".into(), reason: "why".into(), ..Key::default() };
        Trial { outcome, log: vec![LogLine { level: 4, text: log.into() }], keys: vec![key] }
    }

    #[test]
    fn a_clean_refusal_of_a_strong_key_is_as_it_should_be_and_a_kernel_warning_is_not() {
        let refused = || Outcome::Errno("EINVAL".into());
        assert_eq!(cell(&trial(refused(), "mlx5_core: failed"), "create", true, false).good, Some(true));
        assert_eq!(cell(&trial(refused(), "WARNING: CPU: 0"), "create", true, false).good, Some(false));
        assert_eq!(cell(&trial(refused(), ""), "create", true, true).good, Some(false), "a relaxed key");
        assert_eq!(cell(&trial(refused(), ""), "off", false, false).good, Some(false), "nobody judges");
    }

    #[test]
    fn a_crash_in_any_cell_is_the_rows_answer() {
        let bad = cell(&trial(Outcome::Errno("EINVAL".into()), ""), "create", true, true);
        let crash = cell(&trial(Outcome::Crash("no answer for 50 s".into()), ""), "enable", true, true);
        let row = answer("e/x", "x", vec![bad, crash]);
        assert_eq!((row.verdict, row.says.ends_with("enable: no answer for 50 s")), (Verdict::Crash, true));
    }

    #[test]
    fn a_call_that_only_some_devices_have_is_a_finding_and_one_that_none_has_is_absent() {
        let tried = |name: &str, device: &str| cell(&trial(Outcome::Errno(name.into()), ""), device, false, true);
        let row = answer("e/x", "x", vec![tried("EOPNOTSUPP", "create"), tried("EOPNOTSUPP", "off")]);
        assert_eq!((row.verdict, row.cells[0].good), (Verdict::Absent, None));
        let done = cell(&trial(Outcome::Done(serde_json::Map::new()), ""), "off", false, true);
        let row = answer("e/x", "x", vec![tried("EOPNOTSUPP", "create"), done]);
        assert_eq!(row.verdict, Verdict::Finding);
    }

    #[test]
    fn the_devices_reason_stands_beside_the_errno() {
        let cell = cell(&trial(Outcome::Errno("EFAULT".into()), ""), "enable+umr", true, false);
        assert_eq!((cell.outcome.as_str(), cell.detail.as_str()), ("EFAULT", "UMR: why"));
        let row = answer("e/x", "x", vec![cell]);
        assert_eq!((row.verdict, row.says.as_str()), (Verdict::Ready, "enable+umr: EFAULT"));
    }
}
