//! `cx10 run` against stand-ins for QEMU and the device (`tests/run/`): every way in which a run can end.

use cx10::run::accel::Decided;
use cx10::run::images::Images;
use cx10::run::{DeviceUnderTest, NoDevice, RunError, RunOptions, RunOutcome, run_with};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn stand_in(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run").join(name)
}

struct Device(&'static str);

impl DeviceUnderTest for Device {
    fn start(&mut self, socket: &Path, report: &Path) -> io::Result<Option<Child>> {
        Command::new(stand_in("device")).arg(socket).arg(report).arg(self.0).stderr(Stdio::piped()).spawn().map(Some)
    }
}

fn options(play: &str) -> RunOptions {
    RunOptions { qemu_args: vec![play.into()], quiet: true, share_cwd: false, ..RunOptions::default() }
}

fn go(options: &RunOptions, device: &mut dyn DeviceUnderTest) -> Result<RunOutcome, RunError> {
    // The boot files are read, not booted.
    let images = Images {
        qemu: stand_in("qemu"),
        root: "/nonexistent/root".into(),
        kernel: "/nonexistent/kernel".into(),
        initramfs: stand_in("device"),
        modules: None,
        cache: std::env::temp_dir(),
    };
    run_with(options, &images, Decided::Tcg, device, None)
}

#[test]
fn a_run_without_a_command_collects_guest_and_device() {
    let outcome = go(&options("guest"), &mut Device("good")).unwrap();
    assert_eq!(outcome.exit_code, 0);
    let report = &outcome.report;
    assert_eq!(report.guest.as_ref().unwrap().devices[0].driver.as_deref(), Some("mlx5_core"));
    assert_eq!(report.device.as_ref().unwrap().commands.served, 5);
    assert_eq!(report.times.stages["booted"], 1.5);
    assert_eq!(report.exit.as_ref().unwrap().status, None);
}

#[test]
fn the_commands_status_is_the_exit_code_unless_the_device_failed() {
    let options = RunOptions { command: vec!["x".into()], ..options("command") };
    let outcome = go(&options, &mut Device("good")).unwrap();
    assert_eq!(outcome.exit_code, 7);
    assert_eq!(outcome.report.exit.unwrap().kernel_log[0].text, "mlx5_core: warned");
    assert_eq!(go(&options, &mut Device("failed")).unwrap().exit_code, 3);
}

#[test]
fn a_line_that_is_no_json_is_passed_over() {
    let outcome = go(&options("garbled"), &mut NoDevice).unwrap();
    assert_eq!(outcome.report.guest.unwrap().release, "1.2.3");
}

#[test]
fn a_qemu_that_refuses_its_arguments_is_quoted() {
    let error = go(&options("broken"), &mut NoDevice).unwrap_err();
    assert!(error.to_string().contains("this option is not known"), "{error}");
    assert_eq!(error.exit_code(), 1);
}

#[test]
fn a_guest_that_panics_is_shown_by_its_console() {
    let error = go(&options("panic"), &mut Device("good")).unwrap_err();
    assert!(matches!(error, RunError::QemuEnded { .. }), "{error:?}");
    assert!(error.to_string().contains("Kernel panic - not syncing"), "{error}");
}

#[test]
fn a_device_that_crashes_ends_the_run_at_once() {
    let start = Instant::now();
    let error = go(&options("hang"), &mut Device("crash")).unwrap_err();
    assert!(matches!(&error, RunError::DeviceEnded(why) if why.contains("134")), "{error:?}");
    assert_eq!(error.exit_code(), 3);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_device_that_leaves_no_summary_is_an_error() {
    let error = go(&options("guest"), &mut Device("mute")).unwrap_err();
    assert!(error.to_string().contains("without a summary"), "{error}");
}

#[test]
fn a_guest_that_hangs_is_ended_after_the_time_limit() {
    let options = RunOptions { timeout: Some(Duration::from_secs(1)), ..options("hang") };
    let start = Instant::now();
    let error = go(&options, &mut NoDevice).unwrap_err();
    assert!(error.to_string().contains("no end after 1 s (last: booted)"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let images = Images {
        qemu: "/nonexistent/qemu".into(),
        root: "/r".into(),
        kernel: "/k".into(),
        initramfs: stand_in("device"),
        modules: None,
        cache: std::env::temp_dir(),
    };
    let error = run_with(&options("guest"), &images, Decided::Tcg, &mut NoDevice, None).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/qemu"), "{error}");
}

#[test]
fn a_device_that_refuses_its_options_is_quoted_and_is_no_failure_of_cx10() {
    let error = go(&options("guest"), &mut Device("refuse")).unwrap_err();
    assert_eq!(error.to_string(), "/some/file: No space left on device");
    assert_eq!(error.exit_code(), 1);
    let error = go(&options("guest"), &mut Device("abort")).unwrap_err();
    assert_eq!(error.to_string(), "the device ended unexpectedly (exit status: 134, some assertion failed)");
    assert_eq!(error.exit_code(), 3);
}

#[test]
fn a_run_that_ends_early_tells_its_seed_and_what_the_seeds_before_came_to() {
    let limit = Some(Duration::from_secs(1));
    let options = RunOptions { timeout: limit, seeds: Some([4, 9]), ..options("seeds") };
    let error = go(&options, &mut NoDevice).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("no end after 1 s (last: seed 6)"), "{text}");
    let told = "\nseed 6 was at work; --seed 6 repeats it\nbefore:\n  exit status 0 with 1 of 2 seeds\n  exit status 9 with seeds 4";
    assert!(text.ends_with(told), "{text}");
    assert_eq!(error.exit_code(), 1);
}

#[test]
fn a_command_is_told_its_only_seed_too_and_a_file_that_cannot_be_written_costs_no_other() {
    let json = std::env::temp_dir().join(format!("cx10-supervise-{}.json", std::process::id()));
    let options = RunOptions {
        seed: Some(u64::MAX),
        json: Some(json.clone()),
        keep_console: Some("/nonexistent/console".into()),
        ..options("seed")
    };
    let error = go(&options, &mut NoDevice).unwrap_err();
    assert_eq!(error.to_string(), "/nonexistent/console: No such file or directory (os error 2)");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(json).unwrap();
    assert_eq!(report["exit"]["status"], 0);
}
