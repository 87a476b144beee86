//! The device under unmodified kernels: each test boots one kernel and runs checks of `tests/guest/` in it.
//!
//! Ignored by a plain `cargo test`, because a boot takes tens of seconds without hardware virtualisation;
//! `scripts/test guest` runs them. What cannot run fails. `CX10_GUEST_KERNELS` restricts the kernels, `CX10_GUEST_CHECKS`
//! the checks (words of their names).
//!
//! The checks are Python in the guest, started by hand like this, in `tests/guest`:
//!
//!     scripts/run -p connectx7 -- python3 run.py pingpong rdma_cm
//!     scripts/run -- python3 suite.py test_qpex

#[path = "guest/conform.rs"]
mod conform;

use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// A check takes seconds; what hangs for so long is broken.
const TIMEOUT_SECONDS: &str = "900";

fn source(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest").join(name)
}

/// Whether `text` matches `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// The kernel messages that are allowed in every run.
const ALWAYS_ALLOWED: &str = "kernel-log.allow";
/// Those about the driver's cache of keys, where the device refuses it.
const KEY_CACHE: &str = "key-cache.allow";

/// Patterns of the allow-list `file`; every one has a reason above it.
fn allowed(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(source(file)).unwrap();
    let mut patterns = Vec::new();
    let mut reason = false;
    for line in text.lines() {
        if line.starts_with('#') {
            reason = !line.starts_with("# ---");
        } else if line.is_empty() {
            reason = false;
        } else {
            assert!(reason, "{file}: {line:?} has no reason above it");
            patterns.push(line.to_string());
        }
    }
    patterns
}

/// Messages of level warning or worse that nobody has allowed, of the time since init or about the device.
fn complaints(report: &Value) -> Vec<String> {
    let allowed = allowed(ALWAYS_ALLOWED);
    let log = report["exit"]["kernel_log"].as_array().expect("the report has the kernel log");
    let booted = report["times"]["stages"]["booted"].as_f64().expect("the guest has booted");
    let device = report["guest"]["devices"][0]["bdf"].as_str().unwrap_or("mlx5");
    log.iter()
        .filter(|line| line["level"].as_u64().is_some_and(|level| level <= 4))
        .filter_map(|line| Some((line["time"].as_f64()?, line["text"].as_str()?)))
        .filter(|(time, text)| *time >= booted || text.contains(device) || text.contains("mlx5"))
        .map(|(_, text)| text)
        .filter(|text| !allowed.iter().any(|pattern| matches(pattern, text)))
        .map(str::to_string)
        .collect()
}

/// What the device still holds after the driver has left it.
fn leaks(device: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let pages = &device["pages"];
    if pages["given"] != pages["reclaimed"] || pages["held"] != 0 || pages["dropped_by_reset"] != 0 {
        found.push(format!("pages are left: {pages}"));
    }
    if device["objects_alive"] != serde_json::json!({}) {
        found.push(format!("objects are left: {}", device["objects_alive"]));
    }
    let created: u64 =
        device["keys"]["created"].as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum();
    if created == 0 || device["keys"]["destroyed"] != created {
        found.push(format!("{created} keys created, {} destroyed", device["keys"]["destroyed"]));
    }
    found
}

/// Refusals that `refuses` does not explain.
fn wrong_refusals(device: &Value, refuses: Refuses) -> Vec<String> {
    let refused = device["keys"]["refused"].as_array().expect("the report has the refusals");
    // User contexts (uid not 0) may be refused for other reasons than ordering, which the scripts judge.
    let wrong = |refusal: &&Value| match refuses {
        Refuses::Nothing => refusal["uid"] == 0 || refusal["ordering"] == true,
        Refuses::Script => false,
        Refuses::KeyCache => {
            let path = refusal["driver_path"].as_str().unwrap_or_default();
            let expected = ["CREATE_MKEY", "free", "MTT", "free umr_en", "relaxed_ordering_write"];
            ["via", "kind", "access_mode", "flags", "field"].map(|name| &refusal[name]) != expected
                || refusal["uid"] != 0
                || !path.contains("mlx5_mkey_cache_init")
        }
    };
    let wrong: Vec<_> = refused.iter().filter(wrong).collect();
    let mut found = Vec::new();
    if !wrong.is_empty() {
        found.push(format!("keys were refused: {}", serde_json::json!(wrong)));
    }
    if refuses == Refuses::KeyCache {
        // The RDMA driver allocates two XRC domains whenever it loads, and fills a cache of 16 sizes, giving up on a
        // size at the first refusal.
        let commands = &device["commands"];
        let loads = commands["by_opcode"]["ALLOC_XRCD"].as_u64().unwrap_or(0) / 2;
        let count: u64 = refused.iter().filter_map(|refusal| refusal["count"].as_u64()).sum();
        if !(loads..=16 * loads).contains(&count) || loads == 0 {
            found.push(format!("{count} keys were refused when the driver loaded {loads} times"));
        }
        if commands["failures"].as_array().map_or(0, Vec::len) != 1 {
            found.push(format!("other commands failed: {}", commands["failures"]));
        }
    }
    found
}

/// One boot: which kernel on which profile, and what runs in it.
struct Boot<'a> {
    name: &'a str,
    kernel: &'a str,
    profile: &'a str,
    /// The directory that the guest sees as its own, below `tests/`.
    directory: &'a str,
    /// The script in it, which prints JSON lines, and its arguments.
    script: &'a [&'a str],
    /// Further options of `cx10 run`.
    options: &'a [&'a str],
    /// Whether the script leaves the driver unbound, so that nothing may be left in the device.
    unbinds: bool,
    /// Further kernel messages that belong to what the script does.
    expected: &'a [&'a str],
    /// Which keys the profile refuses.
    refuses: Refuses,
}

/// Whose keys are refused in a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refuses {
    /// Nobody's for their ordering, and none of the driver's.
    Nothing,
    /// Those that the script asks for; it judges them itself.
    Script,
    /// Those of the driver's cache, and nothing else.
    KeyCache,
}

/// Where the report, the results, the console and the trace of a run are left.
fn kept(name: &str) -> PathBuf {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guest-{name}"));
    std::fs::create_dir_all(&kept).unwrap();
    kept
}

/// What became of a `cx10 run`.
struct Ran {
    status: ExitStatus,
    /// What the command printed.
    output: String,
    /// Lines of standard error.
    log: Vec<String>,
    /// If there was a boot.
    report: Option<Value>,
}

/// Runs a command in a guest that sees `directory`.
fn run_guest(kept: &Path, directory: &Path, options: &[&str], command: &[&str]) -> Ran {
    let json = kept.join("report.json");
    let _ = std::fs::remove_file(&json);
    let mut child = Command::new(env!("CARGO_BIN_EXE_cx10"))
        .args(["run", "--timeout", TIMEOUT_SECONDS])
        .args(options)
        .arg("--json")
        .arg(&json)
        .arg("--keep-console")
        .arg(kept.join("console.log"))
        .arg("--trace")
        .arg(kept.join("trace.jsonl"))
        .arg("--")
        .args(command)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cx10 starts");
    let stderr = child.stderr.take().expect("piped");
    let log = std::thread::spawn(move || {
        let lines = BufReader::new(stderr).lines().map_while(Result::ok);
        lines.inspect(|line| eprintln!("{line}")).collect::<Vec<_>>()
    });
    let output = child.wait_with_output().expect("cx10 ends");
    Ran {
        status: output.status,
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        log: log.join().expect("the log is read"),
        report: std::fs::read(&json).ok().and_then(|text| serde_json::from_slice(&text).ok()),
    }
}

/// Whether this kernel is to be tested.
fn is_wanted(kernel: &str) -> bool {
    let wanted = std::env::var("CX10_GUEST_KERNELS").unwrap_or_else(|_| "7.3 6.12".into());
    let is_wanted = wanted.split_whitespace().any(|name| name == kernel);
    if !is_wanted {
        println!("{kernel}: left out by CX10_GUEST_KERNELS={wanted}");
    }
    is_wanted
}

/// Boots, runs, judges; the report if there was a boot.
fn boot(run: &Boot<'_>) -> Option<Value> {
    let Boot { name, kernel, .. } = *run;
    if !is_wanted(kernel) {
        return None;
    }
    let checks = std::env::var("CX10_GUEST_CHECKS").ok().filter(|_| run.unbinds).unwrap_or_default();
    let options: Vec<&str> =
        ["--kernel", kernel, "--profile", run.profile].into_iter().chain(run.options.iter().copied()).collect();
    let command: Vec<&str> =
        ["python3"].into_iter().chain(run.script.iter().copied()).chain(checks.split_whitespace()).collect();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(run.directory);
    let kept = kept(name);
    let Ran { status, output, log, report } = run_guest(&kept, &directory, &options, &command);

    // Every result, for tables.
    std::fs::write(kept.join("checks.jsonl"), &output).unwrap();
    let mut failed = Vec::new();
    let mut passed = 0u64;
    let mut done = None;
    for line in output.lines() {
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            println!("{name}: {line}");
            continue;
        };
        if let Some(count) = value["done"].as_u64() {
            done = Some(count);
        }
        if value["suite"].is_object() {
            println!("{name}: {value}");
        }
        let Some(check) = value["check"].as_str() else { continue };
        let (ok, seconds) = (value["ok"] == true, &value["seconds"]);
        println!("{name}: {} {check} ({seconds} s)", if ok { "ok    " } else { "FAILED" });
        if ok {
            passed += 1;
            if let Some(detail) = value["detail"].as_str().filter(|detail| !detail.is_empty() && *detail != "passed") {
                println!("{name}:        {detail}");
            }
        } else {
            failed.push(format!("{check}: {}", value["detail"].as_str().unwrap_or_default()));
        }
    }
    let place = format!("report, results, console and trace are in {}", kept.display());
    let Some(report) = report else { panic!("{name}: no report ({status}); {place}") };
    for problem in report["guest"]["problems"].as_array().into_iter().flatten() {
        failed.push(format!("bring-up: {problem}"));
    }
    let unexpected = |text: &String| !run.expected.iter().any(|pattern| matches(pattern, text));
    failed.extend(complaints(&report).into_iter().filter(unexpected).map(|text| format!("kernel log: {text}")));
    for failure in report["device"]["internal_failures"].as_array().into_iter().flatten() {
        failed.push(format!("device: {failure}"));
    }
    failed.extend(wrong_refusals(&report["device"], run.refuses));
    // Only a run of all checks ends with the driver unbound.
    if run.unbinds && checks.is_empty() {
        failed.extend(log.iter().filter(|line| line.contains("torn down with objects alive")).cloned());
        failed.extend(leaks(&report["device"]));
    }
    if done != Some(passed) && failed.is_empty() {
        failed.push(format!("{passed} checks reported, {done:?} announced ({status})"));
    }
    assert!(failed.is_empty(), "{name}: {} failures; {place}\n  {}", failed.len(), failed.join("\n  "));
    assert!(passed > 0, "{name}: no check ran");
    Some(report)
}

/// Every way of life of the driver, and its user's tools.
fn life(kernel: &str, refuses: Refuses) {
    let argument = format!("--allow={KEY_CACHE}");
    let (script, expected) = match refuses {
        Refuses::KeyCache => (vec!["checks.py", &argument], allowed(KEY_CACHE)),
        _ => (vec!["checks.py"], Vec::new()),
    };
    boot(&Boot {
        name: kernel,
        kernel,
        profile: "connectx10-c2c",
        directory: "guest",
        script: &script,
        options: &[],
        unbinds: true,
        expected: &expected.iter().map(String::as_str).collect::<Vec<_>>(),
        refuses,
    });
}

/// What the driver says of a refused key; the syndrome is that of the ordering policy.
const REFUSED_KEY: [&str; 3] = [
    "*CREATE_MKEY(0x200) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x230001)*",
    "*create mkey failed*",
    // Its messages come at a limited rate.
    "mlx5_cmd_out_err: * callbacks suppressed",
];

/// Every kind of key, asked for from user space.
fn keys(profile: &str, refuses: Refuses) {
    boot(&Boot {
        name: &format!("keys-{profile}"),
        kernel: "7.3",
        profile,
        directory: "",
        script: &["guest/devx_mkeys.py"],
        options: &[],
        unbinds: false,
        expected: if refuses == Refuses::Script { &REFUSED_KEY } else { &[] },
        refuses,
    });
}

/// RDMA traffic: checks of the modules that `script` names.
fn rdma(name: &str, profile: &str, script: &[&str], options: &[&str]) -> Option<Value> {
    rdma_on("7.3", name, profile, script, options)
}

fn rdma_on(kernel: &str, name: &str, profile: &str, script: &[&str], options: &[&str]) -> Option<Value> {
    let (refuses, said): (_, &[&str]) =
        if profile == "connectx10-c2c" { (Refuses::Script, &REFUSED_KEY) } else { (Refuses::Nothing, &[]) };
    let expected: Vec<&str> = said.iter().chain(&TOOLS).copied().collect();
    boot(&Boot {
        name: &format!("rdma-{name}"),
        kernel,
        profile,
        directory: "",
        script,
        options,
        unbinds: false,
        expected: &expected,
        refuses,
    })
}

/// What the kernel says of the things that the checks do with it.
const TOOLS: [&str; 3] = [
    // NVMe says so at each connection.
    "nvme nvme*",
    "nvmet: *",
    "RDS/IB: *",
];

/// The refusals of a run on a strict device, each with the reason that a user needs.
fn all_refusals_name_the_ordering(report: &Value) {
    let refused = report["device"]["keys"]["refused"].as_array().expect("a list");
    assert!(!refused.is_empty(), "nothing was refused");
    for refusal in refused {
        assert_eq!(refusal["field"], "relaxed_ordering_write", "{refusal}");
        let path = refusal["driver_path"].as_str().unwrap_or_default();
        assert!(path.contains("IBV_ACCESS_RELAXED_ORDERING") || path.contains("ibv_reg_dm_mr"), "{refusal}");
    }
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn linux_7_3() {
    life("7.3", Refuses::Nothing);
}

/// Its driver fills a cache of keys when it loads, which are all refused.
#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn linux_6_12() {
    life("6.12", Refuses::KeyCache);
}

/// The network device as a receiver.
fn ethernet(kernel: &str, profile: &str) {
    boot(&Boot {
        name: &format!("ethernet-{kernel}"),
        kernel,
        profile,
        directory: "guest",
        script: &["ethernet.py"],
        options: &[],
        unbinds: false,
        // Of the port in promiscuous mode.
        expected: &["*S-tagged traffic will be dropped while C-tag vlan stripping is enabled"],
        refuses: Refuses::Nothing,
    });
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn ethernet_frames_reach_linux_7_3() {
    ethernet("7.3", "connectx10-c2c");
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn ethernet_frames_reach_linux_6_12() {
    ethernet("6.12", "connectx7");
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn strict_keys_are_refused_as_the_table_says() {
    keys("connectx10-c2c", Refuses::Script);
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn the_same_keys_are_granted_where_strong_ordering_is_allowed() {
    keys("connectx7", Refuses::Nothing);
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn rdma_tools_run_on_a_strict_device_as_far_as_they_ask_for_relaxed_ordering() {
    let modules = ["guest/run.py", "pingpong", "rdma_cm", "perftest", "storage", "rds"];
    let report = rdma("strict", "connectx10-c2c", &modules, &[]);
    report.iter().for_each(all_refusals_name_the_ordering);
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn rdma_tools_run_where_strong_ordering_is_allowed() {
    rdma("tools", "connectx7", &["guest/run.py", "pingpong", "rdma_cm", "perftest_strong"], &[]);
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn rdma_survives_a_wire_that_loses_doubles_and_delays() {
    const FAULTS: [&str; 6] = [
        "--wire-fault",
        "drop:service=rc,every=797",
        "--wire-fault",
        "duplicate:service=rc,every=311",
        "--wire-fault",
        "delay:us=2000,service=rc,every=613",
    ];
    let modules = ["guest/run.py", "storage", "rds", "faults"];
    let Some(report) = rdma("faults", "connectx10-c2c", &modules, &FAULTS) else { return };
    for fault in report["device"]["wire_faults"].as_array().expect("a list") {
        assert!(fault["hit"].as_u64() > Some(10), "hardly a packet was hit: {fault}");
    }
    let traffic = &report["device"]["rdma"];
    assert_eq!((&traffic["failed"], &traffic["refused"]), (&0.into(), &0.into()), "requests failed: {traffic}");
    assert!(traffic["retries"].as_u64() > Some(10), "nothing was sent again: {traffic}");
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn rdma_reaches_device_memory_and_dma_bufs() {
    rdma("memory", "connectx7", &["guest/run.py", "memory"], &[]);
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn rdma_reaches_device_memory_and_dma_bufs_on_linux_6_12() {
    rdma_on("6.12", "memory-6.12", "connectx7", &["guest/run.py", "memory"], &[]);
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn device_memory_and_dma_bufs_are_judged_on_a_strict_device() {
    let report = rdma("memory-strict", "connectx10-c2c", &["guest/run.py", "memory"], &[]);
    report.iter().for_each(all_refusals_name_the_ordering);
}

/// On-demand paging by the scheme that the profile has and the kernel prefers.
fn on_demand_paging(kernel: &str, profile: &str, options: &[&str]) -> Option<Value> {
    let strict = profile == "connectx10-c2c";
    let mut expected: Vec<&str> = if strict { REFUSED_KEY.to_vec() } else { Vec::new() };
    expected.extend(strict.then_some("*Failed to register MKEY -22*"));
    let said = allowed(KEY_CACHE);
    expected.extend(said.iter().filter(|_| strict && kernel == "6.12").map(String::as_str));
    boot(&Boot {
        name: &format!("odp-{kernel}-{profile}-{}", options.len()),
        kernel,
        profile,
        directory: "",
        script: &["guest/run.py", "odp"],
        options,
        unbinds: false,
        expected: &expected,
        refuses: if strict { Refuses::Script } else { Refuses::Nothing },
    })
}

/// Page faults that the device raised in a run.
fn page_faults(report: &Value) -> u64 {
    report["device"]["rdma"]["page_faults"].as_u64().expect("a number")
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn memory_is_paged_on_demand_by_linux_7_3() {
    let report = on_demand_paging("7.3", "connectx7", &[]);
    report.iter().for_each(|report| assert!(page_faults(report) > 100));
}

/// The scheme in which an event names key and address.
#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn memory_is_paged_on_demand_by_key_and_address() {
    let report = on_demand_paging("7.3", "connectx7", &["--set", "caps_max.odp.mem_page_fault=1"]);
    report.iter().for_each(|report| assert!(page_faults(report) > 100));
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn memory_is_paged_on_demand_by_linux_6_12() {
    let report = on_demand_paging("6.12", "connectx7", &[]);
    report.iter().for_each(|report| assert!(page_faults(report) > 100));
}

/// On a strict device, in another legal order; the driver's null keys are refused.
#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn memory_is_paged_on_demand_where_keys_are_judged() {
    let order = ["--order", "random", "--seed", "1", "--check"];
    if let Some(report) = on_demand_paging("7.3", "connectx10-c2c", &order) {
        assert!(page_faults(&report) > 50);
        let refused = report["device"]["keys"]["refused"].as_array().expect("a list").clone();
        let null = |refusal: &Value| refusal["kind"] == "null" && refusal["field"] == "relaxed_ordering_write";
        assert!(refused.iter().any(null), "{refused:?}");
    }
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn memory_is_paged_on_demand_where_keys_are_judged_by_linux_6_12() {
    let report = on_demand_paging("6.12", "connectx10-c2c", &[]);
    report.iter().for_each(|report| assert!(page_faults(report) > 50));
}

/// What a strict device makes the driver say that makes keys for dumps and traces when it loads.
const REFUSED_DIAGNOSTICS: [&str; 4] = [
    "*FWTracer: Failed to create mkey*",
    "*Failed to init FW tracer*",
    "*Resource dump: Failed to create mkey*",
    "*Failed to init Resource dump*",
];

fn diagnostics(kernel: &str, profile: &str, options: &[&str]) -> Option<Value> {
    let strict = profile == "connectx10-c2c";
    let mut expected: Vec<&str> = if strict { vec![REFUSED_KEY[0]] } else { Vec::new() };
    let key_cache = allowed(KEY_CACHE);
    if strict {
        expected.extend(REFUSED_DIAGNOSTICS);
        expected.extend(key_cache.iter().filter(|_| kernel == "6.12").map(String::as_str));
    }
    boot(&Boot {
        name: &format!("diagnostics-{kernel}-{profile}"),
        kernel,
        profile,
        directory: "",
        script: &["guest/run.py", "diagnostics"],
        options,
        unbinds: false,
        expected: &expected,
        refuses: if strict { Refuses::Script } else { Refuses::Nothing },
    })
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn dumps_and_traces_reach_the_tools_of_linux_7_3() {
    diagnostics("7.3", "connectx7", &[]);
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn dumps_and_traces_reach_the_tools_of_linux_6_12() {
    diagnostics("6.12", "connectx7", &[]);
}

/// The keys of the driver itself for both, on a device that has them and judges.
#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn the_drivers_keys_for_dumps_and_traces_are_refused_on_a_strict_device() {
    const HAS_BOTH: [&str; 8] = [
        "--set",
        "firmware.tracer=true",
        "--set",
        "caps.general.debug=1",
        "--set",
        "caps.debug.resource_dump=1",
        "--set",
        "caps.debug.core_dump_general=1",
    ];
    let Some(report) = diagnostics("7.3", "connectx10-c2c", &HAS_BOTH) else { return };
    let refused = report["device"]["keys"]["refused"].as_array().expect("a list");
    let paths: Vec<&str> = refused.iter().filter_map(|refusal| refusal["driver_path"].as_str()).collect();
    for part in ["firmware tracer", "resource dump"] {
        assert!(paths.iter().any(|path| path.starts_with(part)), "{part} is not in {paths:?}");
    }
}

/// One of the tests asks for the longest completion queue there is, half a gigabyte.
const SUITE_MEMORY: [&str; 2] = ["--mem", "2G"];

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn rdma_cores_own_tests_pass() {
    rdma("suite", "connectx7", &["guest/suite.py"], &SUITE_MEMORY);
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn rdma_cores_own_tests_fail_on_a_strict_device_only_at_refused_keys() {
    let report = rdma("suite-strict", "connectx10-c2c", &["guest/suite.py"], &SUITE_MEMORY);
    report.iter().for_each(all_refusals_name_the_ordering);
}

/// Longer than a program on a slow machine needs to look.
const LONG: [&str; 4] = ["--set", "order.hold=5000", "--set", "order.max_delay=5000"];

/// What a program of `observers/` in one version came to, in one run.
struct Observed {
    program: String,
    wrong: bool,
    iterations: u64,
    /// Iterations that found stale data.
    stale: u64,
}

/// Runs programs of `observers/` in one guest.
fn observe(name: &str, options: &[&str], arguments: &str) -> (Vec<Observed>, Ran) {
    let kept = kept(&format!("order-{name}"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/observers");
    let built = Command::new(script).arg(&kept).status().expect("scripts/observers starts");
    assert!(built.success(), "scripts/observers: {built}");
    let command = ["sh", "-c", &format!("ip link set eth0 up && exec ./order {arguments}")];
    let ran = run_guest(&kept, &kept, &[&["--quiet"], options].concat(), &command);
    println!("{name}: {}\n{}", ran.status, ran.output);
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {line}: {error}"));
        Observed {
            program: value["program"].as_str().expect("a name").to_string(),
            wrong: value["version"] == "wrong",
            iterations: value["iterations"].as_u64().expect("a count"),
            stale: value["failures"].as_u64().expect("a count"),
        }
    };
    (ran.output.lines().map(line).collect(), ran)
}

/// All programs under one policy, checked.
fn observe_policy(policy: &str) -> (Vec<Observed>, Value) {
    let options = [&["--order", policy, "--seed", "1", "--check"][..], &LONG].concat();
    let (observed, ran) = observe(policy, &options, "all");
    // 1: a program found stale data. All others are failures of the run.
    assert!(matches!(ran.status.code(), Some(0 | 1)), "{policy}: {}", ran.status);
    assert_eq!(observed.len(), 20, "{policy}: ten programs in two versions");
    assert!(observed.iter().all(|one| one.iterations == 100), "{policy}: some did not run to the end");
    (observed, ran.report.expect("a report"))
}

/// Every access was allowed, and none was lost.
fn is_legal(name: &str, report: &Value) {
    let order = &report["device"]["order"];
    let found = (&order["check"]["legal"], &order["check"]["violations"], &order["lost"]);
    assert_eq!(found, (&true.into(), &0.into(), &0.into()), "{name}: {order}");
}

/// What a policy must bring to light; the right versions never fail, and every access is legal. Returns all that it found.
fn stale_under(policy: &str, wrong: &[&str]) -> Vec<String> {
    let (observed, report) = observe_policy(policy);
    for one in observed.iter().filter(|one| !one.wrong) {
        assert_eq!(one.stale, 0, "{policy}: {} relies on nothing but what is promised", one.program);
    }
    let found: Vec<_> = observed.into_iter().filter(|one| one.stale > 0).map(|one| one.program).collect();
    let silent: Vec<_> = wrong.iter().filter(|name| !found.iter().any(|found| found == *name)).collect();
    assert!(silent.is_empty(), "{policy}: no stale data in 100 iterations of {silent:?}");
    is_legal(policy, &report);
    found
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn in_order_hides_what_programs_rely_on() {
    let (observed, _) = observe_policy("in-order");
    // Some wrong programs race with the device itself, in whatever order it performs its accesses: two change or send on a
    // buffer that is in use, four rely on the turns in which two queue pairs are served.
    let races = ["forward", "reuse", "flag-other-qp", "cqe-other-qp", "flush-read", "atomic-flag"];
    let expected = |one: &Observed| one.stale == 0 || one.wrong && races.contains(&one.program.as_str());
    let found: Vec<_> = observed.iter().filter(|one| !expected(one)).map(|one| &one.program).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn every_reordering_policy_finds_what_it_is_for_and_breaks_no_promise() {
    let mut found = BTreeSet::new();
    for (policy, wrong) in [
        ("random", &["last-byte", "flag", "cqe-other-qp", "read-after-write", "atomic-flag"][..]),
        ("tail-first", &["last-byte", "cqe-other-qp", "atomic-flag"]),
        ("hold-one", &["last-byte", "flag", "flag-other-qp", "cqe-other-qp", "atomic-flag"]),
        ("lifo", &["read-after-write", "atomic-flag"]),
        ("qp-skew", &["cqe-other-qp", "atomic-flag"]),
        ("read-early", &["read-after-write"]),
        ("read-late", &["reuse"]),
        ("pct(3)", &["flush-read", "atomic-flag"]),
    ] {
        found.extend(stale_under(policy, wrong));
    }
    assert_eq!(found.len(), 10, "no policy found stale data in some wrong program: {found:?}");
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn programs_that_rely_on_nothing_pass_with_every_seed_of_a_range() {
    const SEEDS: u64 = 5;
    let options = [&["--order", "random", "--seed", "1..5", "--check"][..], &LONG].concat();
    let (observed, ran) = observe("seeds", &options, "-n 20 all right");
    assert!(ran.status.success(), "{}", ran.status);
    assert_eq!(observed.iter().map(|one| one.iterations).sum::<u64>(), 10 * 20 * SEEDS);
    let report = ran.report.expect("a report");
    is_legal("seeds", &report);
    let seeds = |list: &Value| {
        list.as_array().expect("a list").iter().map(|one| one["seed"].as_u64().expect("a seed")).collect::<Vec<_>>()
    };
    let all: Vec<_> = (1..=SEEDS).collect();
    assert_eq!(seeds(&report["exit"]["runs"]), all);
    assert_eq!(seeds(&report["device"]["order"]["lives"]), all, "each run had a life of the device to itself");
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn a_pipe_that_the_host_closes_breaks_that_of_the_command() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cx10"))
        .args([
            "run",
            "-q",
            "--seed",
            "7",
            "--timeout",
            "120",
            "--",
            "sh",
            "-c",
            "echo $CX10_SEED; yes | head -n 1; exec yes",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cx10 starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let first: Vec<_> = (0..3).map(|_| lines.next().expect("a line").expect("text")).collect();
    assert_eq!(first, ["7", "y", "y"]);
    drop(lines);
    // That of a command which SIGPIPE ended.
    assert_eq!(child.wait().expect("cx10 ends").code(), Some(141));
}

/// Twenty milliseconds for each access: data, completion, event and interrupt together take longer than many timeouts.
const LONGEST: [&str; 4] = ["--set", "order.hold=20000", "--set", "order.max_delay=20000"];

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn kernel_users_of_rdma_work_when_accesses_are_late_and_nothing_is_sent_twice() {
    let options = [&["--order", "random", "--seed", "1", "--check"][..], &LONGEST].concat();
    // Without the one that resets a controller: the kernel warns of what it had to wait with.
    let checks = ["guest/run.py", "storage", "rds", "--", "keeps_its_files", "direct_transfers", "rds"];
    let Some(report) = rdma("late", "connectx10-c2c", &checks, &options) else { return };
    is_legal("late", &report);
    let rdma = &report["device"]["rdma"];
    assert!(rdma["requests"].as_u64() > Some(1000), "{rdma}");
    for count in ["retries", "failed"] {
        assert_eq!(rdma[count], 0, "{rdma}");
    }
}

/// The tests of rdma-core that move data, in an order that holds a piece of each message back. `scripts/order-suites` runs all.
#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn rdma_cores_tests_of_data_pass_when_a_piece_of_each_message_is_late() {
    // Some of them exchange thousands of messages, one at a time.
    const SHORT: [&str; 4] = ["--set", "order.hold=500", "--set", "order.max_delay=500"];
    let options = ["--order", "hold-one", "--seed", "1", "--check", "--set", "order.profile=cx10-unordered"];
    let options = [&options[..], &SHORT].concat();
    let tests =
        ["guest/suite.py", "test_qpex", "test_cqex", "test_cq_events", "test_mlx5_mkey", "test_mr.", "test_srq"];
    let Some(report) = rdma("suite-hold", "connectx7", &tests, &options) else { return };
    is_legal("suite-hold", &report);
    assert!(report["device"]["order"]["held"].as_u64() > Some(100), "{}", report["device"]["order"]);
}

/// The last row that a tool of perftest prints, and there the smallest time.
fn smallest_time(output: &str, tool: &str) -> f64 {
    let mut lines = output.lines().skip_while(|line| !line.contains(tool));
    let row = lines.find(|line| line.trim_start().starts_with("4096 ")).unwrap_or_else(|| panic!("{tool}: {output}"));
    row.split_whitespace().nth(2).expect("t_min").parse().expect("a number")
}

/// ib_write_lat takes a message for complete when its last byte has changed, and looks at no other: it does not hang, and does
/// not fail, it tells a latency in which the data have not come. ib_send_lat waits for a completion.
#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn ib_write_lat_measures_less_than_the_data_take_and_ib_send_lat_does_not() {
    let mut options = vec!["--order", "tail-first", "--seed", "1", "--check", "--set", "mkey.strict=off"];
    options.extend(LONGEST);
    let tool = |tool: &str| {
        let run = format!("{tool} -d mlx5_0 -x 1 -F -s 4096 -n 20");
        format!("echo {tool}; {run} >/dev/null & sleep 3; {run} 127.0.0.1 || exit 1; wait; ")
    };
    let script = tool("ib_write_lat") + &tool("ib_send_lat");
    let kept = kept("latency");
    let ran = run_guest(&kept, &kept, &options, &["sh", "-c", &script]);
    println!("latency: {}\n{}", ran.status, ran.output);
    assert!(ran.status.success(), "{}", ran.status);
    // Data are read 20 ms late and stored 20 ms later, but for their last bytes, which are stored at once.
    let (write, send) = (smallest_time(&ran.output, "ib_write_lat"), smallest_time(&ran.output, "ib_send_lat"));
    assert!((20_000.0..40_000.0).contains(&write) && send >= 40_000.0, "{write} us and {send} us");
    is_legal("latency", &ran.report.expect("a report"));
    let hint = ran.log.iter().find(|line| line.starts_with("hint ")).expect("a hint");
    assert!(hint.contains("before the rest") && hint.contains("ib_write_lat"), "{hint}");
}

/// A device that announces data before they are there must not pass for a good one.
#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn completions_before_their_data_are_noticed() {
    let options = [&["--illegal", "completion-first"][..], &LONGEST].concat();
    let (observed, ran) = observe("illegal", &options, "-n 10 all right");
    assert_eq!(ran.status.code(), Some(1));
    let stale: Vec<_> = observed.iter().filter(|one| one.stale > 0).map(|one| one.program.as_str()).collect();
    for program in ["last-byte", "flag", "flush-read", "read-after-write"] {
        assert!(stale.contains(&program), "{program} did not notice; {stale:?} did");
    }
    // Strict keys for the tests that do not ask for relaxed ones, and the unordered contract, which lets data wait as long.
    let options = [&["--profile", "connectx7", "--set", "order.profile=cx10-unordered"][..], &options].concat();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let script = "python3 guest/run.py rds; python3 guest/suite.py test_qpex";
    let ran = run_guest(&kept("illegal"), &directory, &options, &["sh", "-c", script]);
    let failed: Vec<&str> = ran.output.lines().filter(|line| line.contains(r#""ok": false"#)).collect();
    println!("{}", ran.output);
    for check in ["rds_carries_messages", "test_qp_ex_rc_rdma_write", "test_qp_ex_rc_send", "test_qp_ex_ud_send"] {
        assert!(failed.iter().any(|line| line.contains(check)), "{check} did not notice");
    }
}

#[test]
fn a_star_stands_for_any_text() {
    assert!(matches("a*c", "abbc") && matches("a*", "a") && matches("*b*", "abc") && matches("abc", "abc"));
    assert!(!matches("a*c", "ab") && !matches("abc", "abcd") && !matches("*x", "xy") && !matches("ab", "a"));
}

#[test]
fn every_allowed_message_has_a_reason() {
    assert!(!allowed(ALWAYS_ALLOWED).is_empty());
    assert!(!allowed(KEY_CACHE).is_empty());
}
