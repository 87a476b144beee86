//! `cx10 run`: the device, QEMU and a guest together; the report at the end.
//!
//! [`run`] makes what is missing (QEMU, guest root, kernel: [`images`]), starts the device ([`DeviceUnderTest`], normally
//! a child process `cx10 serve`, so that a crash of it is told apart from a crash of QEMU), starts QEMU, follows the
//! guest over virtio-serial ports ([`guest`], [`streams`]) and collects everything into a [`Report`].
//!
//! Limits: x86-64 hosts and guests. One device in the guest. Children die with this process, also if it is killed
//! (parent-death signal); the working directory of a killed run is removed by the next one.

pub mod accel;
pub mod console;
pub mod device;
pub mod guest;
pub mod images;
pub mod progress;
pub mod qemu;
pub mod report;
pub mod streams;
mod supervise;
mod tools;
pub mod workdir;

pub use accel::Accel;
pub use device::{DeviceUnderTest, NoDevice, ServeProcess};
pub use report::Report;

use crate::sys::SignalFd;
use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What to run. The device itself is described by the [`DeviceUnderTest`].
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Kernel series with a Debian package (`7.3`), kernel build tree, or kernel image.
    pub kernel: String,
    /// Command to run in the guest, in the host's current directory; empty for none.
    pub command: Vec<OsString>,
    /// The first and the last of the seeds that take turns: the command is run once with each.
    pub seeds: Option<[u64; 2]>,
    /// The seed that the command is told of, where there is one only.
    pub seed: Option<u64>,
    /// Interactive shell on this terminal instead of a command.
    pub shell: bool,
    /// Guest CPUs.
    pub smp: u32,
    /// Guest memory in MiB.
    pub memory_mib: u64,
    /// Additional kernel command line.
    pub append: Option<String>,
    /// Where images are kept; `None` is `$CX10_CACHE`, else `cx10` in the user's cache directory.
    pub cache: Option<PathBuf>,
    /// Look for newer package versions although the images are there.
    pub update: bool,
    /// QEMU to use; `None` chooses one that is new enough.
    pub qemu: Option<PathBuf>,
    /// Additional QEMU arguments.
    pub qemu_args: Vec<OsString>,
    /// How to run the guest's CPUs.
    pub accel: Accel,
    /// End the run after this time, counted from the start of QEMU, and anew with each seed.
    pub timeout: Option<Duration>,
    /// Set from another thread, it ends the run.
    pub stop: Arc<AtomicBool>,
    /// Write the report as JSON to this file.
    pub json: Option<PathBuf>,
    /// Keep what the guest printed on its console in this file.
    pub keep_console: Option<PathBuf>,
    /// Programs for the guest, by name: they lie in `/run/cx10`.
    pub files: Vec<(&'static str, &'static [u8])>,
    /// Share the host's current directory with the guest, read-only, at `/host`.
    pub share_cwd: bool,
    /// Print no progress and no report.
    pub quiet: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            kernel: "7.3".to_string(),
            command: Vec::new(),
            seeds: None,
            seed: None,
            shell: false,
            smp: 2,
            memory_mib: 1024,
            append: None,
            cache: None,
            update: false,
            qemu: None,
            qemu_args: Vec::new(),
            accel: Accel::Auto,
            timeout: Some(Duration::from_secs(600)),
            stop: Arc::default(),
            json: None,
            keep_console: None,
            files: Vec::new(),
            share_cwd: true,
            quiet: false,
        }
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Images could not be made; the recipe has said why.
    #[error("the guest images cannot be made ({0})")]
    Images(String),
    /// A file or socket cannot be used.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program cannot be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// Which.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// KVM was asked for and does not work.
    #[error("KVM does not work here: {0}")]
    NoKvm(String),
    /// The device cannot be had as it was asked for: a file that cannot be written, for example.
    #[error("{0}")]
    DeviceRefused(String),
    /// The device ended before or while the guest used it.
    #[error("the device ended unexpectedly ({0})")]
    DeviceEnded(String),
    /// The device's own verdict, where there is no report to tell it.
    #[error("a check of cx10 failed: what this guest has shown is not the kernel's doing")]
    Check,
    /// QEMU ended before the guest said that it was done.
    #[error("QEMU ended unexpectedly ({status}){detail}")]
    QemuEnded {
        /// Its exit status.
        status: String,
        /// What it or the guest's console said last.
        detail: String,
    },
    /// The time is over.
    #[error("no end after {} s (last: {stage}){detail}", .limit.as_secs())]
    Timeout {
        /// The time.
        limit: Duration,
        /// What the guest was doing.
        stage: String,
        /// What the guest's console said last.
        detail: String,
    },
    /// [`RunOptions::stop`] ended the run.
    #[error("the run was ended{detail}")]
    Stopped {
        /// What the guest's console said last.
        detail: String,
    },
    /// A signal ended the run.
    #[error("ended by signal {0}")]
    Signal(i32),
    /// Something ended the run while seeds took turns.
    #[error("{error}{told}")]
    WithSeeds {
        /// What.
        error: Box<RunError>,
        /// With which seed, and what the seeds before it came to.
        told: String,
    },
    /// A terminal is needed for a shell.
    #[error("--shell needs a terminal on standard input and output")]
    NoTerminal,
    /// Anything else.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl RunError {
    /// Exit code: set-up errors are 1, a signal is 128 and its number as in a shell, the device's own crash is 3.
    pub fn exit_code(&self) -> u8 {
        match self {
            RunError::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            RunError::DeviceEnded(_) | RunError::Check => 3,
            RunError::WithSeeds { error, .. } => error.exit_code(),
            _ => 1,
        }
    }
}

/// What a run came to.
#[derive(Debug)]
pub struct RunOutcome {
    /// Everything that is known about it.
    pub report: Report,
    /// Exit code for the process, see [`Report::exit_code`].
    pub exit_code: u8,
}

/// Adds a path to an I/O error.
pub(crate) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> RunError {
    let path = path.into();
    move |source| RunError::File { path, source }
}

/// Runs a guest on the device. Progress goes to standard error; the report to standard output, or to standard error if
/// the guest's command owns standard output.
pub fn run(options: &RunOptions, device: &mut dyn DeviceUnderTest) -> Result<RunOutcome, RunError> {
    let progress = progress::Progress::new(options.quiet);
    let images = images::ensure(options, &progress)?;
    // From here on there is something to clean up: signals wait until somebody looks at them.
    let signals = SignalFd::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
    let work = workdir::WorkDir::new()?;
    let accel = accel::decide(options, &images, &work, &progress, &signals)?;
    run_in(options, &images, accel, &work, &progress, device, None)
}

/// [`run`] with images and accelerator already chosen. The command has `stdio` as standard input and output, or ours.
pub fn run_with(
    options: &RunOptions,
    images: &images::Images,
    accel: accel::Decided,
    device: &mut dyn DeviceUnderTest,
    stdio: Option<UnixStream>,
) -> Result<RunOutcome, RunError> {
    let progress = progress::Progress::new(options.quiet);
    run_in(options, images, accel, &workdir::WorkDir::new()?, &progress, device, stdio)
}

fn run_in(
    options: &RunOptions,
    images: &images::Images,
    accel: accel::Decided,
    work: &workdir::WorkDir,
    progress: &progress::Progress,
    device: &mut dyn DeviceUnderTest,
    stdio: Option<UnixStream>,
) -> Result<RunOutcome, RunError> {
    let report = supervise::Run { options, images, accel, work, progress }.go(device, stdio);
    progress.finish();
    // What the console said is most wanted when the run failed. A file that cannot be written must not cost the rest.
    let console = work.path("console.log");
    let console = match &options.keep_console {
        Some(path) if console.exists() => std::fs::copy(&console, path).map(drop).map_err(at(path)),
        _ => Ok(()),
    };
    let report = report?;
    let json = match &options.json {
        Some(path) => report.write_json(path).map_err(at(path)),
        None => Ok(()),
    };
    if !options.quiet {
        report.print(!options.command.is_empty() || options.shell);
    }
    console.and(json)?;
    Ok(RunOutcome { exit_code: report.exit_code(), report })
}
