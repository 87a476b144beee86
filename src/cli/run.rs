//! `cx10 run`: from the command line to [`crate::run`].

use super::{Accel, DeviceArgs, LogArgs, ReplayError, RunArgs};
use crate::config::{ConfigError, OrderConfig};
use crate::files;
use crate::run::{self, RunError, RunOptions, ServeProcess};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The order cannot be repeated.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// Seeds take turns, and there is nothing to run with each.
    #[error("{0} seeds, but no command to run with each; give it behind --")]
    NoCommand(u32),
    /// One file for two outputs.
    #[error("{}: two outputs cannot go to one file", .0.display())]
    Twice(PathBuf),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Error {
    /// Exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Config(_) | Error::Replay(_) | Error::NoCommand(_) | Error::Twice(_) => super::EXIT_USAGE,
            Error::Run(error) => error.exit_code(),
        }
    }
}

/// Arguments of `cx10 serve` that make the device which `device` describes.
pub(super) fn device_args(device: &DeviceArgs, log: &LogArgs) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| out.extend([name.into(), value.as_ref().into()]);
    if let Some(profile) = &device.profile {
        add("--profile", profile);
    }
    if let Some(config) = &device.config {
        add("--config", config);
    }
    for set in device.all_sets() {
        add("--set", &set);
    }
    if let Some(mode) = device.order.illegal {
        add("--illegal", &mode.name());
    }
    if let Some(file) = &device.order.order_log {
        add("--order-log", file);
    }
    if let Some(file) = &device.order.replay {
        add("--replay", file);
    }
    if let Some(file) = &device.order.overtakes {
        add("--overtakes", file);
    }
    if let Some(filter) = &log.log {
        add("--log", filter);
    }
    out.extend(std::iter::repeat_n("--verbose".into(), usize::from(log.verbose)));
    out.extend(std::iter::repeat_n("--quiet".into(), usize::from(log.quiet)));
    out
}

/// [`device_args`] with what is recorded.
fn serve_args(args: &RunArgs, log: &LogArgs) -> Vec<OsString> {
    let mut out = device_args(&args.device, log);
    if let Some(trace) = &args.record.trace {
        out.extend(["--trace".into(), trace.into()]);
    }
    if args.record.trace_full {
        out.push("--trace-full".into());
    }
    out
}

/// What to run; `seed` is that of a recorded order.
fn options(args: &RunArgs, log: &LogArgs, order: &OrderConfig, seed: Option<u64>) -> RunOptions {
    let last = order.seed.saturating_add(u64::from(order.seeds) - 1);
    RunOptions {
        kernel: args.kernel.clone(),
        command: args.guest_command.clone(),
        seeds: (order.seeds > 1).then_some([order.seed, last]),
        seed: Some(seed.unwrap_or(order.seed)),
        shell: args.shell,
        smp: args.smp,
        memory_mib: args.mem.0 >> 20,
        append: args.append.clone(),
        update: args.update_images,
        qemu: args.qemu.clone(),
        qemu_args: args.qemu_args.clone(),
        accel: match args.accel {
            Accel::Auto => run::Accel::Auto,
            Accel::Kvm => run::Accel::Kvm,
            Accel::Tcg => run::Accel::Tcg,
        },
        timeout: (args.timeout > 0).then(|| Duration::from_secs(args.timeout)),
        json: args.json.clone(),
        keep_console: args.keep_console.clone(),
        quiet: log.quiet > 0,
        ..RunOptions::default()
    }
}

/// Runs a guest. Returns the exit code.
pub fn run(args: &RunArgs, log: &LogArgs) -> Result<u8, Error> {
    // A mistake in the configuration is told before images are made.
    let profile = args.device.load()?;
    let seed = args.device.order.recorded(&profile)?.map(|recorded| recorded.log.settings.seed);
    if profile.order.seeds > 1 && args.guest_command.is_empty() && !args.shell {
        return Err(Error::NoCommand(profile.order.seeds));
    }
    // So is a file that cannot be written.
    let order = &args.device.order;
    let files = [&args.json, &args.keep_console, &args.record.trace, &order.order_log];
    let files: Vec<_> = files.into_iter().flatten().collect();
    for (index, path) in files.iter().enumerate() {
        let is_file = !path.exists() || path.is_file();
        if is_file && files[..index].iter().any(|other| other == path || super::same_file(other, path)) {
            return Err(Error::Twice(path.to_path_buf()));
        }
        files::can_be_written(path).map_err(|source| RunError::File { path: path.to_path_buf(), source })?;
    }
    let mut device = ServeProcess::of_this_program(serve_args(args, log)).map_err(RunError::System)?;
    Ok(run::run(&options(args, log, &profile.order, seed), &mut device)?.exit_code)
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser;

    fn parsed(line: &[&str]) -> (RunArgs, LogArgs) {
        let cli = Cli::try_parse_from(line).unwrap();
        let Command::Run(args) = cli.command else { panic!() };
        (*args, cli.log)
    }

    #[test]
    fn the_device_options_reach_the_device_and_are_ones_that_serve_knows() {
        let (args, log) = parsed(&["cx10", "run", "-vv", "-p", "connectx7", "--set", "a=1", "--set", "b=2", "-t", "x"]);
        let out = serve_args(&args, &log);
        let want = ["--profile", "connectx7", "--set", "a=1", "--set", "b=2", "--verbose", "--verbose", "--trace", "x"];
        assert_eq!(out, want);
        let line = ["cx10", "serve", "--socket", "s"].map(OsString::from).into_iter().chain(out);
        assert!(Cli::try_parse_from(line).is_ok());
    }

    #[test]
    fn options_are_taken_over() {
        let (args, log) = parsed(&["cx10", "run", "-q", "--timeout", "0", "--mem", "2G", "-k", "6.12", "--", "a", "b"]);
        let options = options(&args, &log, &args.device.load().unwrap().order, None);
        assert_eq!(options.timeout, None);
        assert_eq!(options.memory_mib, 2048);
        assert_eq!(options.kernel, "6.12");
        assert_eq!(options.command, ["a", "b"]);
        assert!(options.quiet);
    }
}
