//! The command line as its users meet it: the program itself, its output and its exit status.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn cx10(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cx10")).args(args).env_remove("CX10_LOG").output().expect("cx10 starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs, expects success and silence on stderr, returns stdout.
fn ok(args: &[&str]) -> String {
    let output = cx10(args);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{args:?}");
    stdout(&output)
}

/// Runs, expects exit status 1 and nothing on stdout, returns stderr.
fn refused(args: &[&str]) -> String {
    let output = cx10(args);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{args:?}: {}", stderr(&output));
    stderr(&output)
}

/// A directory that goes away with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("cx10-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn usage_errors_end_with_1() {
    assert!(refused(&["bogus"]).contains("unrecognized subcommand"));
    assert!(refused(&["run", "--kernl", "x"]).contains("'--kernel'"), "the nearest option is named");
    assert!(refused(&["run", "--smp", "0"]).contains("1..=255"));
    assert!(refused(&["run", "--mem", "1T"]).contains("512M or 2G"));
    assert!(refused(&["run", "--accel", "hvf"]).contains("auto, kvm, tcg"));
    assert!(refused(&["serve"]).contains("--socket"));
    assert!(refused(&["-v", "-q", "profile", "list"]).contains("cannot be used with"));
    assert!(refused(&["completions", "tcsh"]).contains("bash"));
    assert_eq!(cx10(&[]).status.code(), Some(1));
}

#[test]
fn help_and_version_end_with_0_and_teach() {
    let top = ok(&["--help"]);
    for word in ["cx10 run", "cx10 serve", "cx10 profile show", "Exit status", "2    the guest broke"] {
        assert!(top.contains(word), "{word}");
    }
    assert_eq!(ok(&["--version"]), format!("cx10 {}\n", env!("CARGO_PKG_VERSION")));
    for sub in ["run", "serve", "trace", "litmus", "shrink", "profile", "completions", "man"] {
        let help = ok(&["help", sub]);
        assert!(help.contains("Examples:"), "cx10 help {sub}");
    }
    let serve = ok(&["serve", "--help"]);
    assert!(serve.contains("vfio-user-pci") && serve.contains("memory-backend-memfd"));
}

#[test]
fn no_help_line_is_wider_than_a_terminal() {
    for args in [
        vec!["--help"],
        vec!["run", "--help"],
        vec!["serve", "--help"],
        vec!["trace", "--help"],
        vec!["shrink", "--help"],
    ] {
        let wide: Vec<_> = ok(&args).lines().filter(|l| l.chars().count() > 130).map(str::to_string).collect();
        assert!(wide.is_empty(), "{args:?}: {wide:?}");
    }
}

#[test]
fn profiles_are_listed_and_shown() {
    let list = ok(&["profile", "list"]);
    assert_eq!(list.lines().count(), 3);
    assert!(list.starts_with("connectx10-c2c   ConnectX-10 NVLink-C2C (15b3:2101), strict keys (default)\n"));
    let shown = ok(&["profile", "show"]);
    assert!(shown.contains("[mkey]\n") && shown.contains("strict = \"create\"\n"));
    assert!(shown.contains("\nmkc_order_write_after_write_ro_only = 1\n"));
    let shown = ok(&["profile", "show", "connectx7", "--set", "mkey.exempt=memic"]);
    assert!(shown.contains("exempt = [\"memic\"]  # --set mkey.exempt=memic\n"));
}

#[test]
fn two_profiles_are_compared() {
    let diff = ok(&["profile", "diff", "connectx10-c2c", "connectx7"]);
    assert!(diff.contains("mkey.strict = \"create\" -> \"off\"\n"));
    assert!(diff.contains("caps.general.mkc_order_write_after_write_ro_only = 1 -> 0\n"));
    assert!(diff.contains("pci.device_id = 0x2101 -> 0x1021\n"));
    assert_eq!(ok(&["profile", "diff", "connectx7", "connectx7"]), "");
}

#[test]
fn the_shown_configuration_is_a_configuration() {
    let dir = Dir::new("config");
    let file = dir.path("c.toml");
    let shown = ok(&["profile", "show", "connectx10", "--set", "pages.boot=5"]);
    std::fs::write(&file, &shown).unwrap();
    let again = ok(&["serve", "--print-config", "--config", &file]);
    assert!(again.contains(&format!("boot = 5  # {file}:")));
    assert!(again.contains("device_id = 0x1027"));
}

#[test]
fn a_profile_and_its_overrides_can_be_printed_by_run_and_serve() {
    for sub in ["run", "serve"] {
        let text = ok(&[sub, "--print-config", "--profile", "connectx7", "--set", "pci.msix_vectors=8"]);
        assert!(text.contains("profile = \"connectx7\"\n") && text.contains("msix_vectors = 8  # --set"), "{sub}");
    }
    for command in ["run", "serve"] {
        let mut process = Command::new(env!("CARGO_BIN_EXE_cx10"));
        process.args([command, "--print-config"]).stdout(std::fs::File::create("/dev/full").unwrap());
        let output = process.output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(1), 1), "{}", stderr(&output));
    }
}

#[test]
fn wrong_configuration_is_named_exactly() {
    let error = |args: &[&str]| refused(&[&["profile", "show"], args].concat());
    assert_eq!(
        error(&["--set", "caps.general.relaxd_ordering_write=1"]),
        "cx10: --set caps.general.relaxd_ordering_write=1: no field `relaxd_ordering_write` in capability type \
         `general`; did you mean `caps.general.relaxed_ordering_write`?\n"
    );
    assert!(error(&["connectx8"]).starts_with("cx10: no profile `connectx8` (did you mean `connectx7`?)"));
    assert!(error(&["--config", "/nonexistent"]).contains("/nonexistent: No such file"));
    let dir = Dir::new("wrong");
    let file = dir.path("c.toml");
    std::fs::write(&file, "[mkey]\n\nstrict = \"maybe\"\n").unwrap();
    assert!(error(&["--config", &file]).starts_with(&format!("cx10: {file}:3: `mkey.strict`: `maybe` is not one of")));
    let serve = refused(&["serve", "--socket", "/tmp/unused", "--set", "mkey.strct=off"]);
    assert!(serve.ends_with("did you mean `mkey.strict`?\n"));
}

#[test]
fn keys_and_fields_are_documented() {
    let keys = ok(&["profile", "keys", "mkey"]);
    assert!(keys.contains("mkey.strict = \"create\"\n    off, create or enable\n"));
    assert!(ok(&["profile", "keys"]).contains("caps.TYPE.FIELD"));
    assert!(refused(&["profile", "keys", "mkeys"]).contains("did you mean `mkey`?"));
    assert!(refused(&["profile", "keys", "caps"]).contains("cx10 profile fields"));
    let fields = ok(&["profile", "fields", "general", "mkc_order"]);
    assert_eq!(
        fields,
        "mkc_order_read_after_write = 0x1  # bit 0x3a8, 1 wide\nmkc_order_write_after_write_ro_only = 0x1  # bit 0x3a9, 1 \
         wide\n"
    );
    assert!(ok(&["profile", "fields"]).contains("general"));
    assert!(refused(&["profile", "fields", "genral"]).contains("did you mean `general`?"));
}

#[test]
fn a_surprising_configuration_is_warned_of() {
    let output = cx10(&["profile", "show", "--set", "mkey.strict=off"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("nothing is refused"));
    assert!(stderr(&cx10(&["-q", "profile", "show", "--set", "mkey.strict=off"])).is_empty());
    assert!(stderr(&cx10(&["--log", "error", "profile", "show", "--set", "mkey.strict=off"])).is_empty());
}

#[test]
fn completions_exist_for_every_shell() {
    for (shell, sign) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef cx10"),
        ("fish", "complete -c cx10"),
        ("elvish", "cx10"),
        ("powershell", "cx10"),
    ] {
        let script = ok(&["completions", shell]);
        assert!(script.contains(sign) && script.contains("print-config"), "{shell}");
    }
}

#[test]
fn manual_pages_are_made_from_the_same_model() {
    let page = ok(&["man"]);
    assert!(page.contains(".TH cx10 1") && page.contains("Exit status"));
    let page = ok(&["man", "run"]);
    assert!(page.contains("cx10\\-run") && page.contains("\\-\\-kernel") && page.contains("Examples:"));
    assert!(ok(&["man", "profile", "show"]).contains("cx10\\-profile\\-show"));
    assert!(ok(&["man", "profile-show"]).contains("cx10\\-profile\\-show"));
    assert!(refused(&["man", "rnu"]).contains("did you mean `run`?"));
    let dir = Dir::new("man");
    ok(&["man", "--out", &dir.path("man1")]);
    let mut pages: Vec<_> =
        std::fs::read_dir(dir.path("man1")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    assert!(pages.contains(&"cx10.1".to_string()) && pages.contains(&"cx10-run.1".to_string()), "{pages:?}");
    assert!(pages.contains(&"cx10-profile-show.1".to_string()));
    assert!(!pages.iter().any(|p| p.contains("help")));
}

const HEADER: &str = r#"{"cx10_trace":1,"version":"0.1.0","profile":"connectx10-c2c","config":{}}"#;

fn command(op: &str, status: u8) -> String {
    format!(
        r#"{{"t":1000,"ev":"command","slot":0,"token":1,"op":"{op}","in":{{"x":1}},"out":{{}},"status":"S{status}","status_code":{status}}}"#
    )
}

#[test]
fn a_trace_is_printed_and_filtered() {
    let dir = Dir::new("trace");
    let file = dir.path("t.jsonl");
    std::fs::write(&file, [HEADER, &command("CREATE_CQ", 0), &command("CREATE_MKEY", 3)].join("\n")).unwrap();
    assert_eq!(
        ok(&["trace", &file]),
        "# cx10 0.1.0, profile connectx10-c2c\n0.000001 [0] CREATE_CQ x=1 = S0\n0.000001 [0] CREATE_MKEY x=1 = S3\n"
    );
    assert_eq!(ok(&["trace", &file, "--failed"]).lines().count(), 2);
    assert_eq!(ok(&["trace", "--op", "create_cq", &file]).lines().count(), 2);
    let none = cx10(&["trace", &file, "--op", "CREATE_QP"]);
    assert_eq!((none.status.code(), stderr(&none).as_str()), (Some(0), "cx10: none of 2 events matches\n"));
}

#[test]
fn a_file_that_is_no_trace_is_refused() {
    let dir = Dir::new("foreign");
    for (text, message) in [
        ("", "the file is empty"),
        ("hello\n", "the first line is not a header"),
        ("{}\n", "no `cx10_trace`"),
        ("{\"cx10_trace\":99}\n", "newer than this program"),
    ] {
        let file = dir.path("t");
        std::fs::write(&file, text).unwrap();
        let error = refused(&["trace", &file]);
        assert!(error.starts_with(&format!("cx10: {file}: ")) && error.contains(message), "{error}");
    }
    assert!(refused(&["trace", &dir.path("missing")]).contains("No such file"));
    assert!(refused(&["trace", &dir.path("")]).contains("directory"));
    let file = dir.path("cut");
    std::fs::write(&file, format!("{HEADER}\n{}", &command("CREATE_CQ", 0)[..40])).unwrap();
    let output = cx10(&["trace", &file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("line 2 is cut off"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = Dir::new("pipe");
    let file = dir.path("t.jsonl");
    let lines: Vec<_> = std::iter::once(HEADER.to_string()).chain((0..50_000).map(|_| command("X", 0))).collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let mut child = start(&["trace", &file]);
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn follow_shows_what_is_appended() {
    let dir = Dir::new("follow");
    let file = dir.path("t.jsonl");
    std::fs::write(&file, format!("{HEADER}\n")).unwrap();
    let mut child = start(&["trace", "--follow", &file]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("# cx10"));
    let mut appended = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
    let text = command("CREATE_CQ", 0) + "\n";
    // In two pieces, as a buffered writer would.
    appended.write_all(&text.as_bytes()[..30]).unwrap();
    std::thread::sleep(Duration::from_millis(250));
    appended.write_all(&text.as_bytes()[30..]).unwrap();
    line.clear();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "0.000001 [0] CREATE_CQ x=1 = S0\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

fn start(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_cx10"))
        .args(args)
        .env_remove("CX10_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cx10 starts")
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn terminate(child: &Child) {
    let status = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().expect("kill");
    assert!(status.success());
}

#[test]
fn serve_ends_on_a_signal_with_report_and_trace_and_without_its_socket() {
    let dir = Dir::new("serve");
    let (socket, trace, report) = (dir.path("s"), dir.path("t.jsonl"), dir.path("r.json"));
    let child = start(&["serve", "--socket", &socket, "--trace", &trace, "--report", &report]);
    wait_for("the socket", || UnixStream::connect(&socket).is_ok());
    terminate(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!Path::new(&socket).exists(), "the socket is removed");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!((&report["verdict"], &report["exit_code"]), (&"clean".into(), &0.into()));
    assert_eq!((&report["profile"], &report["pci_id"]), (&"connectx10-c2c".into(), &"15b3:2101".into()));
    assert!(ok(&["trace", &trace]).starts_with("# cx10"));
}

#[test]
fn serve_says_why_it_cannot_start() {
    let dir = Dir::new("start");
    assert!(refused(&["serve", "--socket", "/nonexistent/s"]).contains("/nonexistent/s"));
    let error = refused(&["serve", "--socket", &dir.path("s"), "--trace", "/nonexistent/t"]);
    assert!(error.contains("/nonexistent/t: No such file"), "{error}");
    let long = dir.path(&"s".repeat(200));
    assert!(refused(&["serve", "--socket", &long]).contains("sss"));
    if Path::new("/dev/full").exists() {
        assert!(refused(&["serve", "--socket", &dir.path("s"), "--trace", "/dev/full"]).contains("No space left"));
    }
    assert!(!Path::new(&dir.path("s")).exists());
}

#[test]
fn litmus_prints_the_table_and_ends_with_0() {
    let text = ok(&["litmus"]);
    for row in ["A1   -   A   A   -   A   A ", "C1   -   -   A   -   -   A ", "G5   -   -   -   A   A   A "] {
        assert!(text.contains(row), "{row}\n{text}");
    }
    assert!(text.contains("engine and model agree"), "{text}");
    assert!(ok(&["litmus", "C", "--mode", "nu"]).contains("12 programs, 1 mode: engine and model agree"));
}

#[test]
fn litmus_prints_the_complete_outcome_set_of_a_file() {
    let dir = Dir::new("litmus");
    let file = dir.path("a2.json");
    std::fs::write(&file, ok(&["litmus", "A2", "--source"])).unwrap();
    let line: serde_json::Value =
        serde_json::from_str(&ok(&["litmus", "--file", &file, "--mode", "NU", "--json"])).unwrap();
    assert_eq!((&line["name"], &line["mode"], &line["count"]), (&"A2".into(), &"NU".into(), &4.into()));
    assert_eq!(line["outcomes"].as_array().unwrap().len(), 4);
    assert_eq!(line["outcomes"][2], serde_json::json!({ "a": 1, "b": 0, "x0@end": 1, "x1@end": 1 }));
    assert_eq!((&line["sound"], &line["complete"]), (&true.into(), &true.into()));
    // All of the table, one line a program and mode.
    std::fs::write(&file, ok(&["litmus", "--source"])).unwrap();
    assert_eq!(ok(&["litmus", "--file", &file, "--json"]), ok(&["litmus", "--json"]));
}

#[test]
fn litmus_ends_with_3_where_a_claim_is_wrong() {
    let dir = Dir::new("litmus-claim");
    let file = dir.path("a1.json");
    std::fs::write(&file, ok(&["litmus", "A1", "--source"]).replace("\"S\": false", "\"S\": true")).unwrap();
    let output = cx10(&["litmus", "--file", &file]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stdout(&output).contains("A1 S: DIFFERS, stated to be allowed, found to be forbidden"),
        "{}",
        stdout(&output)
    );
    assert!(!stdout(&output).contains("A1 R: DIFFERS"));
}

#[test]
fn litmus_refuses_what_it_cannot_run() {
    let dir = Dir::new("litmus-bad");
    let file = dir.path("p.json");
    let run = |text: &str| {
        std::fs::write(&file, text).unwrap();
        refused(&["litmus", "--file", &file])
    };
    assert!(run("{\"devise\": []}").contains("p.json: unknown field `devise`, expected one of"));
    assert!(run("no JSON").contains("line 1 column 2"));
    assert!(run(&" ".repeat((1 << 20) + 1)).contains("it has more than 1048576 bytes"));
    assert!(refused(&["litmus", "--file", "/dev/zero"]).contains("it has more than 1048576 bytes"));
    assert!(refused(&["litmus", "--file", "/"]).contains("directory"));
    assert!(refused(&["litmus", "--file", &dir.path("none")]).contains("No such file"));
    assert!(refused(&["litmus", "A99"]).contains("no program `A99`"));
    assert!(refused(&["litmus", "--set", "raw_scop=qp"]).contains("did you mean `raw_scope`?"));
    assert!(refused(&["litmus", "--set", "ack=visble"]).contains("did you mean `visible`?"));
    assert!(refused(&["litmus", "--mode", "XX"]).contains("possible values: S, R, U, NS, NR, NU"));
    assert!(refused(&["litmus", "--seed", "1"]).contains("--random"));
}

#[test]
fn litmus_runs_random_programs_that_a_seed_repeats() {
    let count = |text: String| text.split(" comparisons").next().map(str::to_string);
    let first = count(ok(&["litmus", "--random", "20", "--seed", "9"]));
    assert!(first.as_ref().unwrap().contains("20 random programs of seed 9: engine and model agree"), "{first:?}");
    assert_eq!(first, count(ok(&["litmus", "--random", "20", "--seed", "9"])));
}

#[test]
fn policies_and_knobs_that_do_not_exist_are_answered_with_the_nearest() {
    for (args, near) in [
        (["--order", "randm"], "\"random\""),
        (["--illegal", "owner"], "\"owner-first\""),
        (["--set", "order.raw_scop=bytes"], "`order.raw_scope`"),
        (["--set", "order.profile=cx10-wors"], "\"cx10-worst\""),
    ] {
        let error = refused(&["serve", "--print-config", args[0], args[1]]);
        assert!(error.contains(&format!("did you mean {near}?")), "{error}");
    }
    let shown = ok(&["serve", "--print-config", "--order", "pct(2)", "--seed", "0x7", "--check"]);
    for line in ["policy = \"pct(2)\"", "seed = 7", "check = true"] {
        assert!(shown.contains(line), "{shown}");
    }
    let late = cx10(&["serve", "--print-config", "--order", "random", "--set", "order.max_delay=20000"]);
    assert!(stderr(&late).contains("acknowledgement timeout"), "{}", stderr(&late));
    let illegal = cx10(&["run", "--print-config", "--illegal", "eqe-first"]);
    assert!(stderr(&illegal).contains("ILLEGAL mode eqe-first"), "{}", stderr(&illegal));
}

#[test]
fn a_range_of_seeds_has_both_ends_and_no_log() {
    let shown = ok(&["serve", "--print-config", "--order", "random", "--seed", "0x7..56"]);
    for line in ["seed = 7", "seeds = 50"] {
        assert!(shown.contains(line), "{shown}");
    }
    for (range, why) in [
        ("9..3", "the range ends before it begins; did you mean 3..9?"),
        ("1..1001", "1001 seeds are more than 1000"),
        ("1..", "`` is not a number"),
        ("1..=5", "`=5` is not a number"),
        ("1..2..3", "`2..3` is not a number"),
        ("-1..5", "`-1` is not a number"),
    ] {
        let error = refused(&["serve", "--print-config", &format!("--seed={range}")]);
        assert!(error.contains(why), "{error}");
    }
    let dir = Dir::new("seeds");
    let (socket, log) = (dir.path("s"), dir.path("o.log"));
    let error = refused(&["serve", "--socket", &socket, "--order", "random", "--seed", "1..2", "--order-log", &log]);
    assert!(error.contains("a log has the order of one seed"), "{error}");
    assert!(!Path::new(&log).exists());
}

#[test]
fn run_says_before_the_boot_what_it_cannot_write_or_has_nothing_to_do_with() {
    let dir = Dir::new("unwritten");
    let (nowhere, new, here) = (dir.path("nowhere/x"), dir.path("new"), dir.path(""));
    for option in ["--json", "--keep-console", "--trace", "--order-log"] {
        assert_eq!(
            refused(&["run", option, &nowhere]),
            format!("cx10: {nowhere}: No such file or directory (os error 2)\n")
        );
        assert_eq!(refused(&["run", option, &here]), format!("cx10: {here}: Is a directory (os error 21)\n"));
        // What can be written is left as it is.
        refused(&["run", option, &new, "--keep-console", &nowhere, "--json", &nowhere]);
        assert!(!Path::new(&new).exists());
    }
    let twice = refused(&["run", "--trace", &new, "--order-log", &new]);
    assert_eq!(twice, format!("cx10: {new}: two outputs cannot go to one file\n"));
    let null = "/dev/null";
    let error = refused(&["run", "--trace", null, "--order-log", null, "--keep-console", null, "--json", &nowhere]);
    assert!(error.contains(&nowhere), "{error}");
    let seeds = refused(&["run", "--seed", "1..3"]);
    assert_eq!(seeds, "cx10: 3 seeds, but no command to run with each; give it behind --\n");
}

#[test]
fn a_recorded_order_is_repeated_on_the_same_device_only() {
    let dir = Dir::new("replay");
    let (socket, log, report) = (dir.path("s"), dir.path("o.log"), dir.path("r.json"));
    let record = ["serve", "--socket", &socket, "--order", "random", "--seed", "5", "--order-log", &log];
    let child = start(&record);
    wait_for("the socket", || Path::new(&socket).exists());
    terminate(&child);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));

    let error = refused(&["serve", "--socket", &socket, "--replay", &log, "-p", "connectx7"]);
    assert!(error.contains("another device configuration"), "{error}");
    assert!(refused(&["serve", "--socket", &socket, "--replay", &log, "--order", "lifo"]).contains("cannot be used"));
    let whole = std::fs::read(&log).unwrap();
    for (bytes, word) in [(&b"{}\n"[..], "not an order log"), (&whole[..whole.len() - 1], "cut off")] {
        let broken = dir.path("broken");
        std::fs::write(&broken, bytes).unwrap();
        let error = refused(&["serve", "--socket", &socket, "--replay", &broken]);
        assert!(error.contains(word), "{error}");
    }

    // What cannot be repeated or reported costs no older trace.
    let trace = dir.path("t.jsonl");
    std::fs::write(&trace, "old").unwrap();
    refused(&["serve", "--socket", &socket, "--replay", &log, "-p", "connectx7", "--trace", &trace]);
    let nowhere = dir.path("nowhere/r.json");
    let error = refused(&["serve", "--socket", &socket, "--report", &nowhere, "--trace", &trace]);
    assert_eq!(error, format!("cx10: {nowhere}: No such file or directory (os error 2)\n"));
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), "old");

    let sets = ["--set", "order.policy=lifo", "--set", "order.seed=5", "--check"];
    let child = start(&[&["serve", "--socket", &socket, "--replay", &log, "--report", &report][..], &sets].concat());
    wait_for("the socket", || Path::new(&socket).exists());
    terminate(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let warned = stderr(&output);
    assert!(
        warned.contains("order.policy = lifo is not heeded, but random: the recorded order has its own"),
        "{warned}"
    );
    assert_eq!(warned.lines().count(), 1, "{warned}");
    let text = std::fs::read_to_string(&report).unwrap();
    assert!(text.contains("repeated order of random, seed 5, contract cx10-unordered"), "{text}");
}

#[test]
fn a_stored_walk_that_cannot_be_used_says_why() {
    let dir = Dir::new("conform");
    let file = dir.path("r.json");
    std::fs::write(&file, "{\"schema\":99}").unwrap();
    assert!(refused(&["conform", "--from", &file]).contains("its form is 99, this program's is 1"));
    std::fs::write(&file, "nonsense").unwrap();
    assert!(refused(&["conform", "--expect", &file]).contains("not a result of cx10 conform"));
    assert!(refused(&["conform", "--expect", &dir.path("none")]).contains("No such file"));
    assert!(refused(&["conform", "--only", "flag"]).contains("did you mean `flags`?"));
    assert!(refused(&["conform", "--set", "mkey.strict=of"]).contains("mkey.strict"));
    assert!(ok(&["conform", "--list"]).starts_with("flags "));
}
