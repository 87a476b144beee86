//! `cx10 shrink` as its users meet it: with a command that fails when certain overtakes are allowed.

use cx10::dma::order::log::{Log, Writer};
use cx10::dma::order::overtakes::{Overtake, parse_lines};
use cx10::dma::order::{
    Choice, Kind, Memory, NewTxn, Order, Payload, Policy, Profile as Contract, Range, Settings, Stream,
};
use cx10::dma::{DmaError, Iova, KeyOrder};
use cx10::profile::Profile;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Memory that nobody looks at.
struct Nowhere;

impl Memory for Nowhere {
    fn read(&mut self, _: Iova, _: &mut [u8]) -> Result<(), DmaError> {
        Ok(())
    }
    fn write(&mut self, _: Iova, _: &[u8]) -> Result<(), DmaError> {
        Ok(())
    }
    fn update_u64(&mut self, _: Iova, _: cx10::dma::bus::AtomicOp) -> Result<u64, DmaError> {
        Ok(0)
    }
    fn signal(&mut self, _: u32) {}
    fn sampled(&mut self, _: Choice, _: &[u8]) {}
}

/// A directory that goes away with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("cx10-shrink-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// A log of writes through one key, under a policy; answers its overtakes.
    fn record(&self, policy: Policy) -> Vec<Overtake> {
        let settings = Settings::with(policy, Contract::Cx10Unordered, 3);
        let device = Profile::with("connectx10-c2c", &[]).unwrap().identity();
        let file = fs::File::create(self.0.join("o.log")).unwrap();
        let mut order = Order::new(settings.clone());
        order.keep_log(Writer::new(Box::new(file), &settings, &device, u64::MAX).unwrap());
        for index in 0..60u64 {
            order.set_now(index * 20);
            let ranges = [Range { at: Iova(0x1000 + index * 8), len: 8 }];
            let data = NewTxn::device(Kind::Write, Stream::Responder(0x12), &ranges, Payload::Bytes(&[1; 8]));
            let order_of_key = KeyOrder { relaxed_write: true, ..KeyOrder::default() };
            order.issue(&NewTxn { order: order_of_key, keys: [0x40, 0], ..data }, &mut Nowhere).unwrap();
            order.advance(index * 20, &mut Nowhere);
        }
        while let Some(due) = order.next_due() {
            order.advance(due, &mut Nowhere);
        }
        drop(order);
        Log::open(&self.0.join("o.log")).unwrap().overtakes(100_000).unwrap()
    }

    /// A command that follows the order, as far as anyone can tell, and does `then`.
    fn script(&self, then: &str) -> String {
        let path = self.0.join("cmd");
        let text = format!(
            "#!/bin/sh\nallowed=$CX10_SHRINK/overtakes\n: >\"$CX10_SHRINK/followed\"\necho run >>{}\n{then}\n",
            self.path("runs")
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.0.join("runs")).map_or(0, |text| text.lines().count())
    }

    fn shrink(&self, options: &[&str], command: &str) -> Output {
        let log = self.path("o.log");
        let mut process = cx10();
        process.arg("shrink").args(options).args([log.as_str(), "--", command]);
        process.output().unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn cx10() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cx10"));
    command.env_remove("CX10_LOG").env_remove("CX10_SHRINK").stdin(Stdio::null());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A shell condition: all of these are allowed.
fn allowed(needed: &[&Overtake]) -> String {
    let greps: Vec<String> = needed.iter().map(|overtake| format!("grep -qxF '{overtake}' \"$allowed\"")).collect();
    greps.join(" && ")
}

#[test]
fn the_overtakes_that_a_failure_needs_are_found_told_and_printed_as_a_program() {
    let dir = Dir::new("found");
    let all = dir.record(Policy::Random);
    assert!(all.len() > 50, "{}", all.len());
    let needed = [&all[7], &all[all.len() - 9]];
    // A log that the command writes again must not be the one that is read.
    let command = dir.script(&format!("echo >{}; if {}; then exit 9; fi", dir.path("o.log"), allowed(&needed)));
    let keep = dir.path("set");
    let output = dir.shrink(&["--keep", &keep], &command);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(parse_lines(&fs::read_to_string(keep).unwrap()).unwrap(), needed.map(|overtake| *overtake));
    assert!(text.contains(&format!("run 1: {0} of {0} overtakes: status 9\n", all.len())), "{text}");
    assert!(text.contains("run 2: in order: passed\n"), "{text}");
    assert!(text.contains(&format!("2 of {} overtakes are enough to fail (status 9)", all.len())), "{text}");
    assert!(text.contains("this device keeps no order between writes") && text.contains("key 0x40"), "{text}");
    let program: Value = serde_json::from_slice(&output.stdout).unwrap();
    let transactions = program["device"].as_array().unwrap();
    assert!((2..=4).contains(&transactions.len()), "{program:#}");
    assert_eq!((&transactions[0]["kind"], &transactions[0]["queue"]), (&"W".into(), &"responder_0x12".into()));
    assert!(dir.runs() < 100, "{} runs", dir.runs());

    // The program is one that `cx10 litmus` runs, and whose outcome it allows.
    let file = dir.path("p.json");
    fs::write(&file, &output.stdout).unwrap();
    let litmus = cx10().args(["litmus", "--file", &file, "--mode", "NU", "--json"]).output().unwrap();
    assert_eq!(litmus.status.code(), Some(0), "{}", stderr(&litmus));
    let answer: Value = serde_json::from_slice(&litmus.stdout).unwrap();
    assert_eq!(answer["allowed"], true, "{answer}");
}

#[test]
fn a_failure_that_is_not_of_the_order_is_told_from_one_that_does_not_come_again() {
    let dir = Dir::new("nothing");
    dir.record(Policy::Random);
    let refused = |then: &str| {
        let output = dir.shrink(&[], &dir.script(then));
        assert_eq!((output.status.code(), output.stdout.len()), (Some(4), 0), "{}", stderr(&output));
        stderr(&output)
    };
    let always = refused("echo out of memory; exit 1");
    assert!(always.contains("fails with everything in order too (status 1)"), "{always}");
    assert!(always.contains("\n  | out of memory\n"), "{always}");
    assert!(refused("exit 0").contains("passes with the recorded order"));
    assert_eq!(dir.runs(), 2 + 4, "all overtakes three times, then the exact order");
    let exact = refused("[ -e \"$allowed\" ] || exit 3");
    assert!(exact.contains("fails in the exact order of the log (status 3)"), "{exact}");
    dir.record(Policy::InOrder);
    assert!(refused("exit 1").contains("nothing was overtaken"));
}

#[test]
fn a_status_that_is_not_the_failure_counts_as_a_pass() {
    let dir = Dir::new("other");
    let all = dir.record(Policy::Random);
    let needed = [&all[20]];
    let few = format!("if [ $(wc -l <\"$allowed\") = 1 ] && {}; then exit 9; fi", allowed(&needed));
    let command =
        dir.script(&format!("{few}; if {}; then exit 9; fi; [ -s \"$allowed\" ] && exit 5; exit 0", allowed(&needed)));
    let output = dir.shrink(&[], &command);
    assert!(stderr(&output).contains(&format!("1 of {} overtakes is enough to fail (status 9)", all.len())));
    assert!(stderr(&output).contains("overtakes: status 5\n"));
}

#[test]
fn limits_end_the_search_with_the_smallest_set_so_far() {
    let dir = Dir::new("limits");
    let all = dir.record(Policy::Random);
    let command = dir.script(&format!("if {}; then exit 9; fi", allowed(&[&all[5]])));
    let output = dir.shrink(&["--max-runs", "4"], &command);
    assert_eq!((output.status.code(), dir.runs()), (Some(5), 4), "{}", stderr(&output));
    assert!(stderr(&output).contains("the limit of 4 runs was reached; a smaller set may exist"));
    assert!(!output.stdout.is_empty());
    let early = dir.shrink(&["--max-runs", "1"], &dir.script("exit 0"));
    assert_eq!((early.status.code(), early.stdout.len()), (Some(5), 0));
    assert!(stderr(&early).contains("before it was known whether CMD fails"));

    // A hang is an outcome too, and what hangs is ended with all its children.
    let command = dir.script("if [ -s \"$allowed\" ]; then sleep 600; fi");
    let began = Instant::now();
    let output = dir.shrink(&["--timeout", "1", "--max-runs", "3"], &command);
    assert!(stderr(&output).contains("overtakes: no end after 1 s\n"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(5));
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn what_a_command_leaves_behind_is_ended_before_the_next_run() {
    let dir = Dir::new("left");
    dir.record(Policy::Random);
    // A run that finds something of the run before says so.
    let left =
        format!("for pid in $(cat {0}); do kill -0 $pid && echo $pid >>{1}; done", dir.path("pids"), dir.path("alive"));
    let command = dir.script(&format!("touch {0}; {left}; sleep 600 & echo $! >>{0}; exit 0", dir.path("pids")));
    let output = dir.shrink(&[], &command);
    assert_eq!((output.status.code(), dir.runs()), (Some(4), 4), "{}", stderr(&output));
    assert_eq!(stderr(&output).matches("CMD left processes behind").count(), 1, "{}", stderr(&output));
    assert!(!dir.0.join("alive").exists());
    let pids = fs::read_to_string(dir.path("pids")).unwrap();
    assert!(pids.lines().count() == 4 && pids.lines().all(|pid| !Path::new("/proc").join(pid).exists()), "{pids}");
}

#[test]
fn the_commands_output_is_not_kept_beyond_its_last_lines() {
    let dir = Dir::new("output");
    dir.record(Policy::Random);
    let kept = format!("du -sk \"$CX10_SHRINK\" >>{}", dir.path("sizes"));
    let command = dir.script(&format!("head -c 20000000 /dev/zero | tr '\\0' x; {kept}; echo; echo bad luck; exit 1"));
    let output = dir.shrink(&[], &command);
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("  | [19991818 bytes before this]\n  | xxx"), "{}", &stderr(&output)[..2000]);
    assert!(stderr(&output).ends_with("xxx\n  | bad luck\n"));
    let sizes = fs::read_to_string(dir.path("sizes")).unwrap();
    let small = |line: &str| line.split_whitespace().next().unwrap().parse::<u32>().unwrap() < 1000;
    assert!(sizes.lines().all(small), "{sizes}");
}

#[test]
fn what_ends_the_search_does_not_lose_what_was_found() {
    let dir = Dir::new("ends");
    let all = dir.record(Policy::Random);
    let broken = format!("[ $(wc -l <{}) = 5 ] && rm \"$CX10_SHRINK/followed\"", dir.path("runs"));
    let command = dir.script(&format!("{broken}; if {}; then exit 9; fi", allowed(&[&all[5]])));
    let output = dir.shrink(&[], &command);
    assert_eq!((output.status.code(), dir.runs()), (Some(1), 5), "{}", stderr(&output));
    assert!(stderr(&output).contains("no device followed the recorded order"), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("a smaller set may exist") && stderr(&output).contains("enough to fail (status 9)")
    );
    assert!(output.stdout.starts_with(b"{"));
}

#[test]
fn a_result_that_cannot_be_written_is_told_before_the_search() {
    let dir = Dir::new("unwritten");
    dir.record(Policy::Random);
    let (log, nowhere, new) = (dir.path("o.log"), dir.path("nowhere/x"), dir.path("new"));
    let command = dir.script("exit 1");
    let linked = dir.path("linked");
    std::os::unix::fs::symlink(&log, &linked).unwrap();
    for (path, reason) in [
        (&nowhere, "No such file"),
        (&dir.0.display().to_string(), "Is a directory"),
        (&log, "the result would overwrite the log"),
        (&linked, "the result would overwrite the log"),
    ] {
        for option in ["--keep", "--output"] {
            let output = dir.shrink(&[option, path], &command);
            assert_eq!(output.status.code(), Some(1));
            let text = stderr(&output);
            assert!(text.starts_with(&format!("cx10: {path}: {reason}")), "{text}");
        }
    }
    assert!(dir.runs() == 0 && Log::open(Path::new(&log)).is_ok());
    assert_eq!(dir.shrink(&["--keep", &new], &command).status.code(), Some(4));
    assert!(!Path::new(&new).exists());
}

#[test]
fn a_signal_ends_the_command_and_the_search() {
    let dir = Dir::new("signal");
    dir.record(Policy::Random);
    let mut process = cx10();
    let command = dir.script("sleep 600");
    process.args(["shrink", &dir.path("o.log"), "--", &command]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = process.spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while dir.runs() == 0 {
        assert!(Instant::now() < end, "the command did not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("ended by signal 2"));
}

#[test]
fn a_signal_in_the_search_ends_it_with_the_smallest_set_so_far() {
    let dir = Dir::new("interrupted");
    let all = dir.record(Policy::Random);
    let hang = format!("[ $(wc -l <{}) -lt 4 ] || sleep 600", dir.path("runs"));
    let command = dir.script(&format!("{hang}; if {}; then exit 9; fi", allowed(&[&all[5]])));
    let mut process = cx10();
    process.args(["shrink", &dir.path("o.log"), "--", &command]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = process.spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while dir.runs() < 4 {
        assert!(Instant::now() < end, "the fourth run did not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), dir.runs()), (Some(130), 4), "{}", stderr(&output));
    assert!(stderr(&output).contains("ended by signal 2; a smaller set may exist"), "{}", stderr(&output));
    assert!(output.stdout.starts_with(b"{"));
}

#[test]
fn what_cannot_be_shrunk_is_refused_with_the_reason() {
    let dir = Dir::new("refused");
    dir.record(Policy::Random);
    let log = dir.path("o.log");
    let whole = fs::read(&log).unwrap();
    let script = dir.script("exit 1");
    let refused = |command: &str| {
        let output = dir.shrink(&[], command);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{}", stderr(&output));
        stderr(&output)
    };
    assert!(refused("/nonexistent/cmd").contains("cx10: cannot start /nonexistent/cmd: No such file"));
    let foreign = refused("/bin/false");
    assert!(foreign.contains("no device followed the recorded order") && foreign.contains("CX10_SHRINK"), "{foreign}");

    let mut other = whole.clone();
    other[8] += 1;
    for (bytes, reason) in [
        (&b"{}"[..], "not an order log of cx10"),
        (&whole[..whole.len() - 1], "the log is cut off at byte "),
        (&other[..], "the log has format version 3; this program reads version 2"),
    ] {
        fs::write(&log, bytes).unwrap();
        let error = refused(&script);
        assert!(error.starts_with(&format!("cx10: {log}: ")) && error.contains(reason), "{error}");
    }
    assert_eq!(dir.runs(), 0);
    fs::remove_file(&log).unwrap();
    assert!(refused(&script).contains("No such file"));

    // The device itself refuses the log of another one, and what it says is shown.
    fs::write(&log, &whole).unwrap();
    let program = env!("CARGO_BIN_EXE_cx10");
    let output = cx10()
        .args(["shrink", &log, "--", program, "serve", "--socket", &dir.path("s"), "-p", "connectx7"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("| cx10: ") && stderr(&output).contains("another device configuration"));
    assert!(cx10().args(["shrink", &log]).output().unwrap().status.code() == Some(1), "a command is needed");
}

#[test]
fn the_device_takes_its_order_from_the_directory_before_its_options() {
    let dir = Dir::new("device");
    let all = dir.record(Policy::Random);
    fs::rename(dir.path("o.log"), dir.path("order.log")).unwrap();
    let (socket, report, own) = (dir.path("s"), dir.path("r.json"), dir.path("own.log"));
    let serve = |options: &[&str]| {
        let mut process = cx10();
        process.args(["serve", "--socket", &socket, "--report", &report]).args(options).stderr(Stdio::piped());
        let directory = !options.contains(&"--overtakes");
        if directory {
            process.env("CX10_SHRINK", &dir.0);
        }
        let child = process.spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while !Path::new(&socket).exists() {
            assert!(Instant::now() < end, "the device does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
        assert_eq!(report["order"]["check"].is_null(), !options.contains(&"order.check=true"), "{options:?}");
        report["policy"].as_str().unwrap().to_owned()
    };
    let options = ["--order", "lifo", "--seed", "8", "--order-log", &own];
    assert_eq!(serve(&options), "repeated order of random, seed 3, contract cx10-unordered");
    assert!(dir.0.join("followed").exists() && !Path::new(&own).exists());
    fs::write(dir.path("overtakes"), format!("{}\n", all[0])).unwrap();
    assert_eq!(serve(&options), "chosen overtakes of random, seed 3, contract cx10-unordered");

    // The same by options.
    let (log, set) = (dir.path("order.log"), dir.path("overtakes"));
    let policy = serve(&["--replay", &log, "--overtakes", &set, "--set", "order.check=true"]);
    assert_eq!(policy, "chosen overtakes of random, seed 3, contract cx10-unordered");
    fs::write(&set, "nonsense\n").unwrap();
    let output = cx10().args(["serve", "--socket", &socket, "--replay", &log, "--overtakes", &set]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("\"nonsense\" is no overtake"), "{}", stderr(&output));
    let alone = cx10().args(["serve", "--socket", &socket, "--overtakes", &set]).output().unwrap();
    assert!(stderr(&alone).contains("--replay"), "{}", stderr(&alone));
}
