//! `cx10 conform` on Debian's kernels.

use super::{is_wanted, kept};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

/// What is said of each row of Linux 7.3 and 6.12. That another version is `ready` is a reason to change this; that one has
/// become worse is a reason to look for the defect.
const EXPECTED: &[(&str, &str, &str)] = &[
    ("flags/reg_mr_write", "ready", "ready"),
    ("flags/reg_mr_ioctl", "ready", "absent"),
    ("flags/reg_mr_ioctl_fd", "finding", "absent"),
    ("flags/rereg_mr", "ready", "ready"),
    ("flags/dmabuf_mr", "finding", "finding"),
    ("flags/dm_mr", "finding", "finding"),
    ("flags/odp_mr", "ready", "ready"),
    ("flags/odp_implicit_mr", "ready", "finding"),
    ("flags/devx_umem", "finding", "finding"),
    ("flags/devx_umem_dmabuf", "finding", "finding"),
    ("flags/devx_mkey", "ready", "ready"),
    ("flags/mw_type_1", "finding", "finding"),
    ("flags/mw_type_2", "finding", "finding"),
    // The driver of 6.12 fills its key cache with strong keys when it loads.
    ("internal/boot", "ready", "finding"),
    ("internal/netdev", "ready", "ready"),
    ("internal/kernel_pd", "ready", "finding"),
    ("internal/mw_type_1", "finding", "finding"),
    ("internal/mw_type_2", "finding", "finding"),
    ("internal/dm_mr", "finding", "finding"),
    ("internal/odp_null", "finding", "absent"),
    ("internal/rsc_dump", "finding", "finding"),
    ("internal/fw_tracer", "finding", "finding"),
    ("internal/data_direct", "finding", "finding"),
    ("internal/sw_steering", "absent", "absent"),
    ("internal/vdpa", "absent", "absent"),
    ("internal/live_migration", "absent", "absent"),
    // A kernel warns of itself when its first work request on a key is refused.
    ("enforcement/reg_mr_write/strong", "finding", "finding"),
    ("enforcement/reg_mr_write/relaxed", "ready", "ready"),
    ("enforcement/rereg_relaxed_mr/strong", "ready", "ready"),
    ("enforcement/rereg_relaxed_mr/relaxed", "ready", "ready"),
    ("enforcement/dmabuf_mr/strong", "ready", "ready"),
    ("enforcement/dmabuf_mr/relaxed", "ready", "ready"),
    ("enforcement/dm_mr/strong", "ready", "ready"),
    ("enforcement/odp_mr/strong", "ready", "ready"),
    ("enforcement/odp_mr/relaxed", "ready", "ready"),
    ("enforcement/odp_implicit_mr/relaxed", "finding", "finding"),
    ("enforcement/devx_mkey/strong", "ready", "ready"),
    ("enforcement/devx_mkey/relaxed", "ready", "ready"),
    ("enforcement/mw_type_1/strong", "ready", "ready"),
    ("enforcement/mw_type_2/strong", "ready", "ready"),
    ("enforcement/after", "ready", "ready"),
    ("unordered/ordered", "ready", "ready"),
    ("unordered/unordered", "ready", "ready"),
    ("unordered/unordered_after", "ready", "ready"),
    ("protocols/nvme", "ready", "ready"),
    ("protocols/nfs", "ready", "ready"),
    ("protocols/iser", "ready", "ready"),
    ("protocols/srp", "ready", "ready"),
    // 7.3 has no module; on 6.12 both ends are on one machine, where it falls back to TCP.
    ("protocols/smc", "absent", "absent"),
    ("protocols/rds", "ready", "ready"),
];

/// Runs `cx10 conform`: its exit status and what it printed.
fn conform(options: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cx10"));
    command.arg("conform").args(options).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().expect("cx10 starts");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn rows(file: &Path) -> Vec<Value> {
    let result: Value = serde_json::from_slice(&std::fs::read(file).expect("a result")).expect("JSON");
    result["kernels"][0]["rows"].as_array().expect("rows").clone()
}

/// Identifiers and verdicts.
fn answers(rows: &[Value]) -> Vec<(&str, &str)> {
    rows.iter().filter_map(|row| Some((row["id"].as_str()?, row["verdict"].as_str()?))).collect()
}

/// Walks a kernel, protocols under one policy, and compares with the table.
fn walk(kernel: &str, expected: &[(&str, &str)]) -> Option<Vec<Value>> {
    if !is_wanted(kernel) {
        return None;
    }
    let kept = kept(&format!("conform-{kernel}"));
    let (json, html) = (kept.join("result.json"), kept.join("result.html"));
    let (json_path, html) = (json.to_str().expect("UTF-8"), html.to_str().expect("UTF-8"));
    let (status, text) =
        conform(&["--kernel", kernel, "--policy", "random", "--cells", "--json", json_path, "--html", html]);
    println!("{text}");
    assert_eq!(status, Some(2), "there are findings");
    let rows = rows(&json);
    assert_eq!(answers(&rows), expected);
    assert!(std::fs::read_to_string(html).expect("a page").contains("id=\"k0-flags-reg-mr-write\""));
    let (status, text) = conform(&["--quiet", "--from", json_path, "--expect", json_path]);
    assert_eq!((status, text.trim()), (Some(0), "as expected"));
    Some(rows)
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn conform_tells_what_linux_7_3_does_with_keys_and_flags() {
    let expected: Vec<_> = EXPECTED.iter().map(|(id, verdict, _)| (*id, *verdict)).collect();
    let Some(rows) = walk("7.3", &expected) else { return };
    let cell = |row: usize, column: usize| &rows[row]["cells"][column];
    // The unknown bit is refused; relaxed keys reach the device, strong ones where nothing was asked for.
    assert_eq!(cell(0, 13)["outcome"], "EINVAL");
    assert_eq!((&cell(0, 0)["detail"], &cell(0, 1)["detail"]), (&"strong".into(), &"relaxed".into()));
    let outcomes = |id: &str| -> Vec<&str> {
        let row = rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("no row {id}"));
        row["cells"].as_array().into_iter().flatten().filter_map(|cell| cell["outcome"].as_str()).collect()
    };
    // A device with the UMR capabilities is asked by a work request, which fails in another way than a command.
    assert_eq!(outcomes("enforcement/reg_mr_write/strong"), ["EINVAL", "EFAULT", "EFAULT", "EFAULT", "ok"]);
    assert_eq!(outcomes("enforcement/devx_mkey/strong"), ["EREMOTEIO", "EREMOTEIO", "EREMOTEIO", "EREMOTEIO", "ok"]);
    assert_eq!(outcomes("enforcement/after"), ["ok"; 5]);
    let refusal = &rows.iter().find(|row| row["id"] == "enforcement/mw_type_1/strong").expect("a row")["cells"][0];
    assert!(refusal["detail"].as_str().expect("why").contains("relaxed_ordering_write must be 1"), "{refusal}");
}

#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn conform_tells_what_linux_6_12_does_with_keys_and_flags() {
    let expected: Vec<_> = EXPECTED.iter().map(|(id, _, verdict)| (*id, *verdict)).collect();
    walk("6.12", &expected);
}

/// Processes whose parent is `parent` and in whose command line there is `word`.
fn children(parent: u32, word: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        // Behind the name, which may have anything in it: state, parent.
        let stat = read("stat");
        let fields = stat.rsplit(") ").next().unwrap_or_default();
        fields.split(' ').nth(1) == Some(&parent.to_string()) && read("cmdline").contains(word)
    };
    pids.filter(is_child).collect()
}

/// A guest that stands still stands for one that hangs in its kernel: its row says so within the limit of the step, and
/// the walk goes on with another guest.
#[test]
#[ignore = "boots QEMU; run by scripts/test guest"]
fn conform_goes_on_where_a_guest_does_not_answer() {
    if !is_wanted("7.3") {
        return;
    }
    let json = kept("conform-hang").join("result.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cx10"));
    command.args(["conform", "--only", "flags", "--json"]).arg(&json).stdin(Stdio::null());
    let mut walk = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("cx10 starts");
    let mut log = BufReader::new(walk.stderr.take().expect("its log"));
    let mut line = String::new();
    while !line.contains("rereg_mr") {
        line.clear();
        assert_ne!(log.read_line(&mut line).expect("UTF-8"), 0, "it ended");
    }
    let qemu = children(walk.id(), "qemu-system");
    assert_eq!(qemu.len(), 1, "one guest");
    let stopped = Command::new("kill").arg("-STOP").arg(qemu[0].to_string()).status().expect("kill");
    assert!(stopped.success());
    let mut rest = String::new();
    log.read_to_string(&mut rest).expect("UTF-8");
    println!("{rest}");
    assert_eq!(walk.wait().expect("its end").code(), Some(2));
    assert!(rest.contains("7.3: no answer for "), "the user is told meanwhile");
    let rows = rows(&json);
    let expected: Vec<_> = EXPECTED
        .iter()
        .filter(|(id, ..)| id.starts_with("flags/"))
        .map(|(id, verdict, _)| (*id, if *id == "flags/rereg_mr" { "crash" } else { *verdict }))
        .collect();
    assert_eq!(answers(&rows), expected);
    assert!(!Path::new(&format!("/proc/{}", qemu[0])).exists(), "the guest is gone");
}
