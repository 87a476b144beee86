//! The device under unmodified kernels: each test boots one kernel and runs `tests/guest/checks.py` in it.
//!
//! Ignored by a plain `cargo test`, because a boot takes tens of seconds without hardware virtualisation;
//! `scripts/test guest` runs them. What cannot run fails. `CX10_GUEST_KERNELS` restricts the kernels, `CX10_GUEST_CHECKS`
//! the checks (words of their names).

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

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

/// Patterns of the allow-list; every one has a reason above it.
fn allowed() -> Vec<String> {
    let text = std::fs::read_to_string(source("kernel-log.allow")).unwrap();
    let mut patterns = Vec::new();
    let mut reason = false;
    for line in text.lines() {
        if line.starts_with('#') {
            reason = !line.starts_with("# ---");
        } else if line.is_empty() {
            reason = false;
        } else {
            assert!(reason, "kernel-log.allow: {line:?} has no reason above it");
            patterns.push(line.to_string());
        }
    }
    patterns
}

/// Messages of level warning or worse that nobody has allowed, of the time since init or about the device.
fn complaints(report: &Value) -> Vec<String> {
    let allowed = allowed();
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

/// One boot: which kernel on which profile, and what runs in it.
struct Boot<'a> {
    name: &'a str,
    kernel: &'a str,
    profile: &'a str,
    /// The directory that the guest sees as its own, below `tests/`.
    directory: &'a str,
    /// The script in it, which prints JSON lines.
    script: &'a str,
    /// Whether the script leaves the driver unbound, so that nothing may be left in the device.
    unbinds: bool,
    /// Further kernel messages that belong to what the script does.
    expected: &'a [&'a str],
}

fn boot(run: &Boot<'_>) {
    let Boot { name, kernel, .. } = *run;
    let wanted = std::env::var("CX10_GUEST_KERNELS").unwrap_or_else(|_| "7.3 6.12".into());
    if !wanted.split_whitespace().any(|name| name == kernel) {
        println!("{kernel}: left out by CX10_GUEST_KERNELS={wanted}");
        return;
    }
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guest-{name}"));
    std::fs::create_dir_all(&kept).unwrap();
    let (json, console, trace) = (kept.join("report.json"), kept.join("console.log"), kept.join("trace.jsonl"));
    let _ = std::fs::remove_file(&json);

    let checks = std::env::var("CX10_GUEST_CHECKS").ok().filter(|_| run.unbinds).unwrap_or_default();
    let mut child = Command::new(env!("CARGO_BIN_EXE_cx10"))
        .args(["run", "--kernel", kernel, "--profile", run.profile, "--timeout", TIMEOUT_SECONDS, "--json"])
        .arg(&json)
        .arg("--keep-console")
        .arg(&console)
        .arg("--trace")
        .arg(&trace)
        .args(["--", "python3", run.script])
        .args(checks.split_whitespace())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(run.directory))
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
    let log = log.join().expect("the log is read");

    let mut failed = Vec::new();
    let mut passed = 0u64;
    let mut done = None;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            println!("{name}: {line}");
            continue;
        };
        if let Some(count) = value["done"].as_u64() {
            done = Some(count);
        }
        let Some(check) = value["check"].as_str() else { continue };
        let (ok, seconds) = (value["ok"] == true, &value["seconds"]);
        println!("{name}: {} {check} ({seconds} s)", if ok { "ok    " } else { "FAILED" });
        if ok {
            passed += 1;
        } else {
            failed.push(format!("{check}: {}", value["detail"].as_str().unwrap_or_default()));
        }
    }
    let place = format!("report, console and trace are in {}", kept.display());
    let report = std::fs::read(&json).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let Some(report) = report else { panic!("{name}: no report (exit {}); {place}", output.status) };
    for problem in report["guest"]["problems"].as_array().into_iter().flatten() {
        failed.push(format!("bring-up: {problem}"));
    }
    let unexpected = |text: &String| !run.expected.iter().any(|pattern| matches(pattern, text));
    failed.extend(complaints(&report).into_iter().filter(unexpected).map(|text| format!("kernel log: {text}")));
    for failure in report["device"]["internal_failures"].as_array().into_iter().flatten() {
        failed.push(format!("device: {failure}"));
    }
    // The driver's own keys all pass; only the script that asks for others has any refused.
    if run.unbinds && report["device"]["keys"]["refused"] != serde_json::json!([]) {
        failed.push(format!("keys of the driver were refused: {}", report["device"]["keys"]["refused"]));
    }
    // Only a run of all checks ends with the driver unbound.
    if run.unbinds && checks.is_empty() {
        failed.extend(log.iter().filter(|line| line.contains("torn down with objects alive")).cloned());
        failed.extend(leaks(&report["device"]));
    }
    if done != Some(passed) && failed.is_empty() {
        failed.push(format!("{passed} checks reported, {done:?} announced (exit {})", output.status));
    }
    assert!(failed.is_empty(), "{name}: {} failures; {place}\n  {}", failed.len(), failed.join("\n  "));
    assert!(passed > 0, "{name}: no check ran");
}

/// Every way of life of the driver, and its user's tools.
fn life(kernel: &str) {
    boot(&Boot {
        name: kernel,
        kernel,
        profile: "connectx10-c2c",
        directory: "guest",
        script: "checks.py",
        unbinds: true,
        expected: &[],
    });
}

/// Every kind of key, asked for from user space.
fn keys(profile: &str, expected: &[&str]) {
    boot(&Boot {
        name: &format!("keys-{profile}"),
        kernel: "7.3",
        profile,
        directory: "",
        script: "guest/devx_mkeys.py",
        unbinds: false,
        expected,
    });
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn linux_7_3() {
    life("7.3");
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn linux_6_12() {
    life("6.12");
}

/// The network device as a receiver.
fn ethernet(kernel: &str, profile: &str) {
    boot(&Boot {
        name: &format!("ethernet-{kernel}"),
        kernel,
        profile,
        directory: "guest",
        script: "ethernet.py",
        unbinds: false,
        // Of the port in promiscuous mode.
        expected: &["*S-tagged traffic will be dropped while C-tag vlan stripping is enabled"],
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
    keys(
        "connectx10-c2c",
        &[
            // What the driver says of a refused key; the syndrome is that of the ordering policy.
            "*CREATE_MKEY(0x200) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x230001)*",
            "*create mkey failed*",
        ],
    );
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn the_same_keys_are_granted_where_strong_ordering_is_allowed() {
    keys("connectx7", &[]);
}

#[test]
fn a_star_stands_for_any_text() {
    assert!(matches("a*c", "abbc") && matches("a*", "a") && matches("*b*", "abc") && matches("abc", "abc"));
    assert!(!matches("a*c", "ab") && !matches("abc", "abcd") && !matches("*x", "xy") && !matches("ab", "a"));
}

#[test]
fn every_allowed_message_has_a_reason() {
    assert!(!allowed().is_empty());
}
