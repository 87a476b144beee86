//! Keys that the driver makes for itself: each is provoked, and the strict device says what it thinks of it.

use super::keys::Key;
use super::result::{Cell, Row, Verdict};
use super::walk::{Outcome, Trial, Walk, row};
use crate::run::RunError;
use serde_json::{Value, json};
use std::time::Duration;

/// What a key is for, how it is provoked, and what does not work without it.
struct Site {
    id: &'static str,
    title: &'static str,
    /// Step of the guest.
    request: fn() -> Value,
    /// Part of the likely driver path by which the step's keys are told from others; empty for all.
    path: &'static str,
    /// What a refusal takes from the user.
    breaks: &'static str,
}

/// Rebinding a driver makes its keys anew.
fn rebind(driver: &str) -> Value {
    json!({"do": "rebind", "driver": driver})
}

fn register(path: &str, access: u32) -> Value {
    json!({"do": "register", "path": path, "access": access})
}

fn program(argv: &[&str]) -> Value {
    json!({"do": "run", "argv": argv})
}

/// The PCI function in the guest.
const FUNCTION: &str = "pci/0000:01:00.0";

/// Local and remote access, relaxed.
const RELAXED: u32 = 7 | 1 << 20;

const SITES: &[Site] = &[
    Site {
        id: "netdev",
        title: "netdev (mlx5e)",
        request: || rebind("mlx5_core.eth"),
        path: "",
        breaks: "the network device",
    },
    Site {
        id: "kernel_pd",
        title: "protection domains of the kernel (mlx5_ib)",
        request: || rebind("mlx5_ib.rdma"),
        path: "",
        breaks: "the RDMA device and every protocol in the kernel",
    },
    Site {
        id: "mw_type_1",
        title: "memory window, type 1",
        request: || register("mw_type_1", RELAXED),
        path: "",
        breaks: "ibv_alloc_mw",
    },
    Site {
        id: "mw_type_2",
        title: "memory window, type 2",
        request: || register("mw_type_2", RELAXED),
        path: "",
        breaks: "ibv_alloc_mw",
    },
    Site {
        id: "dm_mr",
        title: "device memory (MEMIC)",
        request: || register("dm_mr", 7),
        path: "",
        breaks: "ibv_reg_dm_mr",
    },
    Site {
        id: "odp_null",
        title: "on-demand paging, implicit region",
        request: || register("odp_implicit_mr", RELAXED),
        path: "",
        breaks: "implicit on-demand regions",
    },
    Site {
        id: "rsc_dump",
        title: "resource dump",
        request: || program(&["devlink", "-j", "health", "dump", "show", FUNCTION, "reporter", "fw"]),
        path: "rsc_dump",
        breaks: "resource dumps of the health reporters",
    },
    Site {
        id: "fw_tracer",
        title: "firmware tracer",
        request: || program(&["devlink", "dev", "reload", FUNCTION]),
        path: "fw_tracer",
        breaks: "traces of the firmware (event mlx5_fw)",
    },
];

/// Sites whose capability cx10 does not have, and why nothing can be said of them here.
const NOT_OFFERED: &[(&str, &str, &str)] = &[
    ("sw_steering", "steering by software", "the device does not offer it (sw_owner)"),
    ("data_direct", "data direct", "the device does not offer it (data_direct)"),
    ("vdpa", "vDPA (mlx5_vdpa)", "the device does not offer virtio emulation"),
    ("live_migration", "live migration (mlx5_vfio_pci)", "the device has no virtual functions"),
];

/// Walks the section on the device as it is, which is strict unless the user has said otherwise.
pub fn walk(walk: &mut Walk<'_>) -> Result<Vec<Row>, RunError> {
    walk.device(&[])?;
    let mut rows = vec![boot(walk)?];
    for site in SITES {
        walk.progress.step(&format!("{}: {}", walk.options.kernel, site.title));
        let mut trial = walk.step(&(site.request)(), Duration::from_secs(60))?;
        trial.keys.retain(|key| site.path.is_empty() || key.path.contains(site.path));
        rows.push(answer(site, &trial));
    }
    for (id, title, why) in NOT_OFFERED {
        rows.push(row(&format!("internal/{id}"), title, Verdict::Absent, *why, Vec::new()));
    }
    Ok(rows)
}

/// The keys from the first command to the moment that the driver is up.
fn boot(walk: &mut Walk<'_>) -> Result<Row, RunError> {
    let (id, title) = ("internal/boot", "everything until the driver is up");
    Ok(match walk.boot_keys()? {
        Err(how) => row(id, title, Verdict::Crash, how, Vec::new()),
        Ok(keys) => {
            let (verdict, says) = judge(&keys, "nothing: the driver came up");
            let outcome = if verdict == Verdict::Ready { "ok" } else { "refused" };
            let cell = Cell {
                column: "probe".to_owned(),
                outcome: outcome.to_owned(),
                good: Some(verdict == Verdict::Ready),
                detail: String::new(),
                keys,
                log: Vec::new(),
            };
            row(id, title, verdict, says, vec![cell])
        }
    })
}

fn answer(site: &Site, trial: &Trial) -> Row {
    let mut cell = trial.cell("provoked");
    let (verdict, says) = match &trial.outcome {
        Outcome::Crash(how) => (Verdict::Crash, how.lines().next().unwrap_or_default().to_owned()),
        Outcome::Unavailable(why) if trial.keys.is_empty() => (Verdict::Absent, why.clone()),
        _ => match trial.trouble() {
            Some(trouble) => (Verdict::Finding, format!("the kernel complains of itself: {trouble}")),
            None if trial.keys.is_empty() => (Verdict::Absent, missing(&trial.outcome)),
            None => judge(&trial.keys, site.breaks),
        },
    };
    cell.good = match verdict {
        Verdict::Ready => Some(true),
        Verdict::Absent => None,
        Verdict::Finding | Verdict::Crash => Some(false),
    };
    row(&format!("internal/{}", site.id), site.title, verdict, says, vec![cell])
}

/// Why no key was asked for.
fn missing(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Errno(name) => format!("no key was asked for ({name})"),
        Outcome::Done(result) => match result.get("err").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            Some(text) => format!("no key was asked for ({})", text.lines().next().unwrap_or_default()),
            None => "no key was asked for".to_owned(),
        },
        Outcome::Unavailable(why) | Outcome::Crash(why) => why.clone(),
    }
}

fn judge(keys: &[Key], breaks: &str) -> (Verdict, String) {
    let refused: Vec<&Key> = keys.iter().filter(|key| key.verdict == "refused").collect();
    let Some(first) = refused.first() else {
        let strong = keys.iter().filter(|key| !key.relaxed && key.kind != "free").count();
        let says = format!("{} keys, all relaxed", keys.len());
        return match strong {
            0 => (Verdict::Ready, says),
            strong => (Verdict::Finding, format!("{} keys, {strong} of them strong", keys.len())),
        };
    };
    let from = if first.path.is_empty() { "an unknown place" } else { &first.path };
    let says = format!(
        "{} of {} keys refused: {} ({}), {}, from {from}; without it: {breaks}",
        refused.len(),
        keys.len(),
        first.kind,
        first.ordering(),
        first.reason
    );
    (Verdict::Finding, says)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: &str, verdict: &str, relaxed: bool) -> Key {
        Key { kind: kind.into(), verdict: verdict.into(), relaxed, reason: "why".into(), ..Key::default() }
    }

    fn trial(outcome: Outcome, keys: Vec<Key>) -> Trial {
        Trial { outcome, log: Vec::new(), keys }
    }

    #[test]
    fn a_site_is_ready_if_it_asked_for_relaxed_keys_and_absent_if_for_none() {
        let done = || Outcome::Done(serde_json::Map::new());
        let relaxed = answer(&SITES[0], &trial(done(), vec![key("pa", "created", true)]));
        assert_eq!((relaxed.verdict, relaxed.says.as_str()), (Verdict::Ready, "1 keys, all relaxed"));
        assert_eq!(answer(&SITES[0], &trial(done(), Vec::new())).verdict, Verdict::Absent);
        let gone = answer(&SITES[0], &trial(Outcome::Unavailable("no driver".into()), Vec::new()));
        assert_eq!((gone.verdict, gone.says.as_str()), (Verdict::Absent, "no driver"));
    }

    #[test]
    fn a_refused_key_is_a_finding_that_says_what_breaks() {
        let keys = vec![key("pa", "created", true), key("window", "refused", false)];
        let refused = answer(&SITES[2], &trial(Outcome::Errno("EINVAL".into()), keys));
        assert_eq!(refused.verdict, Verdict::Finding);
        assert!(refused.says.contains("1 of 2 keys refused: window (strong), why"), "{}", refused.says);
        assert!(refused.says.ends_with("without it: ibv_alloc_mw"), "{}", refused.says);
    }
}
