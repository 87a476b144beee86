//! Keys that the driver makes for itself: each is provoked, and the strict device says what it thinks of it.

use super::keys::Key;
use super::result::{Row, Verdict};
use super::session::Step;
use super::walk::{Outcome, Trial, Walk, row, trouble};
use crate::run::RunError;
use serde_json::{Value, json};
use std::time::Duration;

/// What a key is for, how it is provoked, and what does not work without it.
struct Site {
    id: &'static str,
    title: &'static str,
    /// Step of the guest; without one the key is made at boot.
    request: Option<fn() -> Value>,
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

/// Local and remote access, relaxed.
const RELAXED: u32 = 7 | 1 << 20;

const SITES: &[Site] = &[
    Site {
        id: "netdev",
        title: "netdev (mlx5e)",
        request: Some(|| rebind("mlx5_core.eth")),
        path: "",
        breaks: "the network device",
    },
    Site {
        id: "kernel_pd",
        title: "protection domains of the kernel (mlx5_ib)",
        request: Some(|| rebind("mlx5_ib.rdma")),
        path: "",
        breaks: "the RDMA device and every protocol in the kernel",
    },
    Site {
        id: "mw_type_1",
        title: "memory window, type 1",
        request: Some(|| register("mw_type_1", RELAXED)),
        path: "",
        breaks: "ibv_alloc_mw",
    },
    Site {
        id: "mw_type_2",
        title: "memory window, type 2",
        request: Some(|| register("mw_type_2", RELAXED)),
        path: "",
        breaks: "ibv_alloc_mw",
    },
    Site {
        id: "dm_mr",
        title: "device memory (MEMIC)",
        request: Some(|| register("dm_mr", 7)),
        path: "",
        breaks: "ibv_reg_dm_mr",
    },
    Site {
        id: "odp_null",
        title: "on-demand paging, implicit region",
        request: Some(|| register("odp_implicit_mr", RELAXED)),
        path: "",
        breaks: "implicit on-demand regions",
    },
];

/// Keys of the driver's diagnostics: made whenever it loads.
const DIAGNOSTIC_SITES: &[Site] = &[
    Site {
        id: "rsc_dump",
        title: "resource dump",
        request: None,
        path: "rsc_dump",
        breaks: "resource dumps (devlink health, rdma resource)",
    },
    Site {
        id: "fw_tracer",
        title: "firmware tracer",
        request: None,
        path: "fw_tracer",
        breaks: "messages of the firmware (event mlx5_fw, devlink health reporter fw)",
    },
];

const DATA_DIRECT_SITES: &[Site] =
    &[Site { id: "data_direct", title: "data direct", request: None, path: "data direct", breaks: "the RDMA device" }];

/// Sites whose capability cx10 does not have, and why nothing can be said of them here.
const NOT_OFFERED: &[(&str, &str, &str)] = &[
    ("sw_steering", "steering by software", "the device does not offer it (sw_owner): it needs an e-switch manager"),
    (
        "vdpa",
        "vDPA (mlx5_vdpa)",
        "the driver makes it on a virtual function or a subfunction only, which the device has not",
    ),
    ("live_migration", "live migration (mlx5_vfio_pci)", "the device has no virtual functions"),
];

/// What the device has to offer beyond its profile so that a driver makes a key.
const DIAGNOSTICS: &[&str] = &[
    "--set",
    "firmware.tracer=true",
    "--set",
    "caps.general.debug=1",
    "--set",
    "caps.debug.resource_dump=1",
    "--set",
    "caps.debug.core_dump_general=1",
];
const DATA_DIRECT: &[&str] = &[
    "--set",
    "caps.general.hca_cap_2=1",
    "--set",
    "caps.general_2.query_vuid=1",
    "--set",
    "caps.general.data_direct=1",
];

/// Walks the section on the device as it is, which is strict unless the user has said otherwise.
pub fn walk(walk: &mut Walk<'_>) -> Result<(), RunError> {
    walk.device(&[])?;
    let at_boot = probe(&boot(walk)?);
    walk.rows.push(at_boot);
    for (device, sites) in [(&[][..], SITES), (DIAGNOSTICS, DIAGNOSTIC_SITES), (DATA_DIRECT, DATA_DIRECT_SITES)] {
        if !device.is_empty() {
            walk.device(device)?;
        }
        for site in sites {
            walk.progress.step(&format!("{}: {}", walk.options.kernel, site.title));
            let mut trial = match site.request {
                Some(request) => walk.step(&request(), Duration::from_secs(60))?,
                None => boot(walk)?,
            };
            trial.keys.retain(|key| site.path.is_empty() || key.path.contains(site.path));
            walk.rows.push(answer(site, &trial));
        }
    }
    for (id, title, why) in NOT_OFFERED {
        walk.rows.push(row(&format!("internal/{id}"), title, Verdict::Absent, *why, Vec::new()));
    }
    Ok(())
}

/// The keys from the first command to the moment that the driver is up.
fn boot(walk: &mut Walk<'_>) -> Result<Trial, RunError> {
    Ok(match walk.boot()? {
        Ok(Step { result, log, keys }) => Trial { outcome: Outcome::Done(result), log, keys },
        Err(how) => Trial { outcome: Outcome::Crash(how), log: Vec::new(), keys: Vec::new() },
    })
}

fn probe(trial: &Trial) -> Row {
    let site = Site {
        id: "boot",
        title: "everything until the driver is up",
        request: None,
        path: "",
        breaks: "nothing that keeps the driver from coming up",
    };
    answer(&site, trial)
}

fn answer(site: &Site, trial: &Trial) -> Row {
    let mut cell = trial.cell("provoked");
    if site.request.is_none() {
        cell.column = "at boot".to_owned();
    }
    let (verdict, says) = match (trouble(std::slice::from_ref(&cell)), trial.keys.is_empty()) {
        (Some(answer), _) => answer,
        (None, true) => (Verdict::Absent, no_key(&trial.outcome)),
        (None, false) => judge(&trial.keys, site.breaks),
    };
    cell.good = match verdict {
        Verdict::Ready => Some(true),
        Verdict::Absent => None,
        Verdict::Finding | Verdict::Crash => Some(false),
    };
    row(&format!("internal/{}", site.id), site.title, verdict, says, vec![cell])
}

/// Why no key was asked for.
fn no_key(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Errno(name) => format!("no key was asked for ({name})"),
        Outcome::Done(_) => "no key was asked for".to_owned(),
        Outcome::Unavailable(why) | Outcome::Crash(why) | Outcome::Failed(why) => why.clone(),
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
