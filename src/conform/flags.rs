//! Optional access flags on every way to register memory.
//!
//! Bits 20 to 29 of the access flags are optional: a kernel accepts each and may ignore it
//! (`IB_UVERBS_ACCESS_OPTIONAL_RANGE`); a driver that cannot honour one makes a stronger key, never an error. Other bits
//! that nobody knows are refused. Bit 20 asks for relaxed ordering; a kernel that honours it must not lose it on the way.
//! Bit 21 on top of it asks for no order between a READ and an earlier WRITE.

use super::keys::Key;
use super::result::{Cell, Verdict};
use super::walk::{Outcome, Trial, Walk, is_lost, is_missing, missing, row, trouble};
use crate::run::RunError;

/// Local write, remote write, remote read.
const BASE: u32 = 7;
const RELAXED: u32 = 1 << 20;
const UNORDERED: u32 = 1 << 21 | RELAXED;
const ALL_OPTIONAL: u32 = 0x3ff << 20;
/// Nobody's, and not in the optional range.
const UNKNOWN: u32 = 1 << 15;

/// How a path treats access flags.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// As registration does.
    Flags,
    /// The user writes the key's bits; there is one for relaxed ordering and one for no order.
    KeyBits,
    /// None at all.
    Nothing,
}

/// The paths: name in the guest, title, what they take.
const PATHS: [(&str, &str, Takes); 13] = [
    ("reg_mr_write", "reg_mr, write command", Takes::Flags),
    ("reg_mr_ioctl", "reg_mr, ioctl", Takes::Flags),
    ("reg_mr_ioctl_fd", "reg_mr, ioctl, on a dma-buf", Takes::Flags),
    ("rereg_mr", "rereg_mr of the access flags", Takes::Flags),
    ("dmabuf_mr", "reg_dmabuf_mr, ioctl", Takes::Flags),
    ("dm_mr", "region on device memory (MEMIC)", Takes::Flags),
    ("odp_mr", "on-demand region, explicit", Takes::Flags),
    ("odp_implicit_mr", "on-demand region, implicit", Takes::Flags),
    ("devx_umem", "DEVX user memory", Takes::Flags),
    ("devx_umem_dmabuf", "DEVX user memory on a dma-buf", Takes::Flags),
    ("devx_mkey", "DEVX key", Takes::KeyBits),
    ("mw_type_1", "memory window, type 1", Takes::Nothing),
    ("mw_type_2", "memory window, type 2", Takes::Nothing),
];

/// Columns of the table: name and flags.
fn columns(takes: Takes) -> Vec<(String, u32)> {
    let named = |name: &str, flags: u32| (name.to_owned(), flags);
    match takes {
        Takes::Nothing => vec![named("none", 0)],
        Takes::KeyBits => vec![named("none", 0), named("RELAXED", RELAXED), named("UNORDERED", UNORDERED)],
        Takes::Flags => {
            let mut list = vec![named("none", 0), named("RELAXED", RELAXED), named("UNORDERED", UNORDERED)];
            list.extend((21..30).map(|bit| (format!("bit {bit}"), 1 << bit)));
            list.extend([named("all optional", ALL_OPTIONAL), named("unknown bit 15", UNKNOWN)]);
            list
        }
    }
}

/// Walks the section. The device judges no key, so that what the kernel asks for is seen.
pub fn walk(walk: &mut Walk<'_>) -> Result<(), RunError> {
    walk.device(&["--set", "mkey.strict=off"])?;
    for (path, title, takes) in PATHS {
        walk.progress.step(&format!("{}: {title}", walk.options.kernel));
        let mut cells = Vec::new();
        for (column, flags) in columns(takes) {
            let trial = walk.register(path, BASE | flags)?;
            let key = made(&trial, walk);
            cells.push(cell(&trial, takes, &column, flags, key.as_ref()));
            // One path must not use up the boots that others need.
            if cells.first().is_some_and(is_missing) || cells.last().is_some_and(is_lost) {
                break;
            }
        }
        let (verdict, says) = judge(takes, &cells);
        walk.rows.push(row(&format!("flags/{path}"), title, verdict, says, cells));
    }
    Ok(())
}

/// The key that a successful call named.
fn made(trial: &Trial, walk: &Walk<'_>) -> Option<Key> {
    let Outcome::Done(result) = &trial.outcome else { return None };
    let number =
        |name: &str| result.get(name).and_then(serde_json::Value::as_u64).and_then(|key| u32::try_from(key).ok());
    let key = number("lkey").filter(|key| *key != 0).or_else(|| number("rkey"))?;
    walk.known().and_then(|known| known.of(key)).cloned()
}

fn cell(trial: &Trial, takes: Takes, column: &str, flags: u32, key: Option<&Key>) -> Cell {
    let mut cell = trial.cell(column);
    if let Some(key) = key {
        cell.detail = key.ordering().to_owned();
    }
    let accepted = match trial.outcome {
        Outcome::Done(_) => true,
        Outcome::Errno(_) => false,
        Outcome::Unavailable(_) | Outcome::Crash(_) | Outcome::Failed(_) => return cell,
    };
    if cell.good.is_some() || flags == 0 && is_missing(&cell) {
        return cell;
    }
    // A kernel may ignore UNORDERED, user space that writes the key itself does not.
    let own = column == "UNORDERED" && takes == Takes::KeyBits;
    let lost = flags & RELAXED != 0 && key.is_some_and(|key| !key.relaxed || own && !key.unordered);
    cell.good = Some(if flags == UNKNOWN { !accepted } else { accepted && !lost });
    cell
}

fn judge(takes: Takes, cells: &[Cell]) -> (Verdict, String) {
    if let Some(answer) = trouble(cells) {
        return answer;
    }
    // The first try, without any flag, tells whether there is such a path.
    if let Some(cell) = cells.first().filter(|cell| is_missing(cell)) {
        return (Verdict::Absent, missing(cell));
    }
    let plain = cells.first().map_or("", |cell| cell.outcome.as_str());
    if plain != "ok" {
        return (Verdict::Finding, format!("fails without any flag: {plain}"));
    }
    let bad: Vec<&Cell> = cells.iter().filter(|cell| cell.good == Some(false)).collect();
    let mut faults = Vec::new();
    let rejected: Vec<&&Cell> = bad.iter().filter(|cell| cell.outcome != "ok").collect();
    if let Some(first) = rejected.first() {
        let names: Vec<&str> = rejected.iter().map(|cell| cell.column.as_str()).collect();
        faults.push(format!("rejects optional flags ({}): {}", first.outcome, shortened(&names)));
    }
    if bad.iter().any(|cell| cell.outcome == "ok" && cell.column.starts_with("unknown")) {
        faults.push("accepts a flag that nobody knows".to_owned());
    }
    if bad.iter().any(|cell| cell.outcome == "ok" && !cell.column.starts_with("unknown")) {
        faults.push("loses a flag: the key that reaches the device asks for more order".to_owned());
    }
    if !faults.is_empty() {
        return (Verdict::Finding, faults.join("; "));
    }
    let strong = cells.first().is_some_and(|cell| cell.detail == "strong");
    match takes {
        Takes::Nothing if strong => {
            (Verdict::Finding, "takes no flags, and its key is strong: such a device refuses it".to_owned())
        }
        Takes::Nothing => (Verdict::Ready, "takes no flags".to_owned()),
        Takes::KeyBits => (Verdict::Ready, "the bits that user space writes reach the device".to_owned()),
        Takes::Flags if cells.iter().any(|cell| cell.column == "UNORDERED" && cell.detail == "unordered") => {
            (Verdict::Ready, "optional flags are accepted; RELAXED and UNORDERED reach the key".to_owned())
        }
        Takes::Flags if cells.iter().any(|cell| cell.column == "RELAXED" && cell.detail == "relaxed") => {
            (Verdict::Ready, "optional flags are accepted; RELAXED reaches the key, UNORDERED is ignored".to_owned())
        }
        Takes::Flags => (Verdict::Ready, "optional flags are accepted; no key is made".to_owned()),
    }
}

/// Names of columns, neighbouring bits as one.
fn shortened(names: &[&str]) -> String {
    let bit = |name: &str| name.strip_prefix("bit ").and_then(|bit| bit.parse::<u32>().ok());
    let follows = |a: &&str, b: &&str| bit(a).is_some_and(|bit_a| bit(b) == Some(bit_a + 1));
    let words = names.chunk_by(follows).map(|run| match run {
        [first, .., last] if run.len() > 2 => {
            format!("bits {} to {}", bit(first).unwrap_or_default(), bit(last).unwrap_or_default())
        }
        run => run.join(", "),
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(column: &str, flags: u32, answer: &str, order: Option<&str>) -> Cell {
        let outcome = match answer {
            "ok" => Outcome::Done(serde_json::Map::new()),
            "absent" => Outcome::Unavailable("udmabuf: no such device".into()),
            "crash" => Outcome::Crash("the kernel ended the program with SIGKILL".into()),
            errno => Outcome::Errno(errno.into()),
        };
        let key = order.map(|order| Key {
            relaxed: order != "strong",
            unordered: order == "unordered",
            index: Some(1),
            ..Key::default()
        });
        cell(&Trial { outcome, log: Vec::new(), keys: Vec::new() }, Takes::Flags, column, flags, key.as_ref())
    }

    #[test]
    fn a_key_that_user_space_writes_must_be_as_it_was_written() {
        let trial = Trial { outcome: Outcome::Done(serde_json::Map::new()), log: Vec::new(), keys: Vec::new() };
        let key = Key { relaxed: true, ..Key::default() };
        let good = |takes| cell(&trial, takes, "UNORDERED", UNORDERED, Some(&key)).good;
        assert_eq!((good(Takes::Flags), good(Takes::KeyBits)), (Some(true), Some(false)));
    }

    fn path(answers: impl Fn(u32) -> (&'static str, Option<&'static str>)) -> (Verdict, String) {
        let cells: Vec<Cell> = columns(Takes::Flags)
            .iter()
            .map(|(column, flags)| {
                let (answer, order) = answers(*flags);
                tried(column, *flags, answer, order)
            })
            .collect();
        judge(Takes::Flags, &cells)
    }

    #[test]
    fn each_optional_bit_is_tried_alone_and_all_together() {
        let flags: Vec<u32> = columns(Takes::Flags).iter().map(|(_, flags)| *flags).collect();
        assert_eq!(flags.len(), 14);
        assert!((20..30).all(|bit| flags.contains(&(1 << bit))));
        assert!(flags.contains(&UNORDERED) && flags.contains(&ALL_OPTIONAL) && flags.contains(&UNKNOWN));
    }

    #[test]
    fn a_path_that_accepts_what_is_optional_and_nothing_else_is_ready() {
        let (verdict, says) = path(|flags| match flags {
            UNKNOWN => ("EINVAL", None),
            flags if flags & RELAXED != 0 => ("ok", Some("relaxed")),
            _ => ("ok", Some("strong")),
        });
        assert_eq!(verdict, Verdict::Ready);
        assert!(says.contains("UNORDERED is ignored"), "{says}");
    }

    #[test]
    fn rejected_optional_bits_are_named() {
        let (verdict, says) = path(|flags| match flags {
            0 => ("ok", Some("strong")),
            RELAXED => ("ok", Some("relaxed")),
            _ => ("EINVAL", None),
        });
        assert_eq!(verdict, Verdict::Finding);
        assert_eq!(says, "rejects optional flags (EINVAL): UNORDERED, bits 21 to 29, all optional");
        assert_eq!(shortened(&["bit 21", "bit 22", "bit 24", "all"]), "bit 21, bit 22, bit 24, all");
    }

    #[test]
    fn a_lost_flag_an_unknown_flag_and_a_crash_are_findings() {
        let refuse = |flags: u32| if flags == UNKNOWN { "EINVAL" } else { "ok" };
        let (verdict, says) = path(|flags| (refuse(flags), (flags != UNKNOWN).then_some("strong")));
        assert_eq!((verdict, says.contains("loses a flag")), (Verdict::Finding, true));
        let (verdict, says) = path(|flags| ("ok", Some(if flags & RELAXED == 0 { "strong" } else { "relaxed" })));
        assert_eq!((verdict, says.as_str()), (Verdict::Finding, "accepts a flag that nobody knows"));
        let (verdict, _) = path(|flags| if flags == UNORDERED { ("crash", None) } else { ("ok", None) });
        assert_eq!(verdict, Verdict::Crash);
    }

    #[test]
    fn a_kernel_that_warns_of_itself_is_told_before_anything_else() {
        let warned = |text: &str, outcome: Outcome| {
            let log = vec![super::super::session::LogLine { level: 4, text: text.to_owned() }];
            cell(&Trial { outcome, log, keys: Vec::new() }, Takes::Flags, "none", 0, None)
        };
        let warning = "WARNING: CPU: 0 PID: 1 at drivers/infiniband/hw/mlx5/mr.c:1";
        for outcome in [Outcome::Done(serde_json::Map::new()), Outcome::Errno("EOPNOTSUPP".into())] {
            let (verdict, says) = judge(Takes::Flags, &[warned(warning, outcome)]);
            assert_eq!((verdict, says), (Verdict::Finding, format!("none: the kernel complains of itself: {warning}")));
        }
        let oops = warned("Oops: 0002 [#1] SMP", Outcome::Errno("EFAULT".into()));
        assert_eq!(judge(Takes::Flags, &[oops]).0, Verdict::Crash);
    }

    #[test]
    fn a_call_that_the_kernel_lacks_is_absent() {
        assert_eq!(path(|_| ("EPROTONOSUPPORT", None)).0, Verdict::Absent);
        assert_eq!(path(|_| ("absent", None)).0, Verdict::Absent);
        assert_eq!(path(|_| ("EINVAL", None)), (Verdict::Finding, "fails without any flag: EINVAL".to_owned()));
    }
}
