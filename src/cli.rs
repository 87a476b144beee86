//! The command line: definitions and what the small subcommands do.
//!
//! One clap model serves parsing, `--help`, the manual pages (`cx10 man`) and the shell completions (`cx10 completions`).
//! The large subcommands live in [`crate::run`] and [`crate::engine`]; `main.rs` connects them.

pub mod conform;
pub mod help;
pub mod litmus;
pub mod run;
pub mod serve;
pub mod show;
pub mod shrink;

use crate::config::{self, ConfigError, FaultRule, Sources};
use crate::dma::order::log::Log;
use crate::dma::order::overtakes::{Overtake, parse_lines};
use crate::dma::order::rules::Omit;
use crate::dma::order::settings::MAX_SEEDS;
use crate::dma::order::{Illegal, Policy};
use crate::profile::Profile;
use crate::trace;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Nothing was refused and nothing failed. Runs end with the code of [`trace::report::Verdict::exit_code`].
pub const EXIT_CLEAN: u8 = 0;
/// Usage or set-up error.
pub const EXIT_USAGE: u8 = 1;

/// cx10 emulates an NVIDIA ConnectX-10 NVLink-C2C function (mlx5, 15b3:2101) that QEMU attaches over vfio-user. An unmodified
/// Linux kernel drives it with mlx5_core, mlx5e and mlx5_ib; memory keys that do not ask for relaxed ordering are refused, as
/// the hardware refuses them.
#[derive(Debug, Parser)]
#[command(
    name = "cx10",
    version,
    about = "An emulated ConnectX-10 that holds software to its memory-ordering contract"
)]
#[command(long_about, after_long_help = help::TOP, max_term_width = 100)]
#[command(propagate_version = true, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// Options of every subcommand.
    #[command(flatten)]
    pub log: LogArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Logging options.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// More log output (-v info, -vv debug: a line per command, -vvv trace)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Less log output (-q errors only, -qq none)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "verbose")]
    pub quiet: u8,
    /// Log filter by target, for example `warn,cx10::cmd=debug` [default: $CX10_LOG]
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the device and a Linux guest in QEMU, report what happened
    #[command(after_long_help = help::RUN)]
    Run(Box<RunArgs>),
    /// Serve the device on a vfio-user socket, for a VMM started by hand
    #[command(after_long_help = help::SERVE)]
    Serve(ServeArgs),
    /// Is a kernel ready for hardware that refuses strong ordering? Walk every way of registering memory
    #[command(after_long_help = help::CONFORM)]
    Conform(Box<conform::ConformArgs>),
    /// Print a trace in readable form, like strace
    #[command(after_long_help = help::TRACE)]
    Trace(TraceArgs),
    /// Run the ordering contract as small programs on this build: every schedule, against a model
    #[command(after_long_help = help::LITMUS)]
    Litmus(litmus::LitmusArgs),
    /// Find the smallest change of order that makes a command fail, from a recorded run
    #[command(after_long_help = help::SHRINK)]
    Shrink(shrink::ShrinkArgs),
    /// List and show device profiles and configuration keys
    #[command(after_long_help = help::PROFILE, subcommand_required = true, arg_required_else_help = true)]
    Profile(ProfileArgs),
    /// Print a shell completion script
    #[command(after_long_help = help::COMPLETIONS)]
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
    /// Print a manual page, or write all of them into a directory
    #[command(after_long_help = help::MAN)]
    Man {
        /// Subcommand whose page to print, for example `run` or `profile show` (none: the page of cx10)
        subcommand: Vec<String>,
        /// Write the pages of cx10 and all subcommands into this directory instead
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "subcommand")]
        out: Option<PathBuf>,
    },
}

/// Which device: profile, file, overrides.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// Device profile: a name of `cx10 profile list`, or the path of a TOML file [default: connectx10-c2c]
    #[arg(short, long, value_name = "PROFILE", value_hint = ValueHint::FilePath)]
    pub profile: Option<String>,
    /// Configuration file (TOML) laid over the profile
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Set one key, laid over profile and file; may be repeated, the last one wins
    #[arg(short, long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// How doorbells reach the device: as messages, or in memory that the device polls, which keeps a processor busy
    /// [default: trap]
    #[arg(long, value_enum, value_name = "HOW")]
    pub doorbells: Option<DoorbellsArg>,
    /// Lose, double or delay packets: ACTION:KEY=VALUE,... (see `cx10 help serve`); may be repeated, all together replace the faults
    /// of profile and file
    #[arg(long = "wire-fault", value_name = "SPEC", value_parser = FaultRule::parse)]
    pub wire_faults: Vec<FaultRule>,
    /// Order of memory accesses.
    #[command(flatten)]
    pub order: OrderArgs,
}

/// `--doorbells`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DoorbellsArg {
    /// Each doorbell is a message of the VMM; idle costs nothing
    Trap,
    /// The VMM maps the doorbell pages and the device polls them: fast, and busy while a VMM is attached
    Poll,
}

impl From<DoorbellsArg> for config::Doorbells {
    fn from(arg: DoorbellsArg) -> config::Doorbells {
        match arg {
            DoorbellsArg::Trap => config::Doorbells::Trap,
            DoorbellsArg::Poll => config::Doorbells::Poll,
        }
    }
}

/// In which order the device performs its memory accesses.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Order")]
pub struct OrderArgs {
    /// Policy: in-order, random, lifo, tail-first, hold-one, qp-skew, read-early, read-late or pct(DEPTH); `cx10 help serve` describes them
    /// [default: in-order]
    #[arg(long, value_name = "POLICY", value_parser = parse_policy)]
    pub order: Option<Policy>,
    /// Seed that all decisions about order are derived from; the same seed decides the same way. With FIRST..LAST each start of
    /// the driver has the next one, and `cx10 run` runs its command with each
    #[arg(long, value_name = "N|FIRST..LAST", value_parser = parse_seeds)]
    pub seed: Option<Seeds>,
    /// Check every access against a second implementation of the contract; a run with a forbidden one ends with code 3
    #[arg(long)]
    pub check: bool,
    /// Break a promise on purpose, to see whether tests notice: completion-first, owner-first, eqe-first, msi-first,
    /// raw-break, atomic-torn or drain-skip
    #[arg(long, value_name = "MODE", value_parser = parse_illegal)]
    pub illegal: Option<Illegal>,
    /// Write what was issued and performed, and when, to a file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub order_log: Option<PathBuf>,
    /// Perform accesses in the order that a file of --order-log recorded, with its policy and contract
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["order", "seed"])]
    pub replay: Option<PathBuf>,
    /// Of the recorded order, only the overtakes that a file of `cx10 shrink --keep` lists; all else as issued
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "replay")]
    pub overtakes: Option<PathBuf>,
    /// Directory of the `cx10 shrink` that runs this program, which has the order.
    #[arg(skip)]
    pub shrink: Option<PathBuf>,
}

/// A recorded order, and how much of it is wanted.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The log, with the settings of the run.
    pub log: Log,
    /// Only these overtakes of it; `None` is the exact order.
    pub overtakes: Option<Vec<Overtake>>,
}

/// Longest line of a list of overtakes.
const OVERTAKE: u64 = 128;

fn parse_policy(text: &str) -> Result<Policy, String> {
    Policy::parse(text).map_err(|error| error.to_string())
}

fn parse_illegal(text: &str) -> Result<Illegal, String> {
    Illegal::parse(text).map_err(|error| error.to_string())
}

/// `--seed`: one seed, or a range with both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

fn parse_seeds(text: &str) -> Result<Seeds, String> {
    let seed = |text: &str| {
        let value = config::keys::parse_int(text).and_then(|value| u64::try_from(value).ok());
        value.ok_or_else(|| format!("`{text}` is not a number from 0 to {:#x}", i64::MAX))
    };
    let Some((first, last)) = text.split_once("..") else { return Ok(Seeds { first: seed(text)?, count: 1 }) };
    let (first, last) = (seed(first)?, seed(last)?);
    match last.checked_sub(first) {
        None => Err(format!("the range ends before it begins; did you mean {last}..{first}?")),
        Some(more) if more >= MAX_SEEDS => Err(format!("{} seeds are more than {MAX_SEEDS}", more.saturating_add(1))),
        Some(more) => Ok(Seeds { first, count: more + 1 }),
    }
}

/// Why an order cannot be repeated.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct ReplayError {
    path: PathBuf,
    reason: String,
}

fn same_file(a: &Path, b: &Path) -> bool {
    let name = |path: &Path| std::fs::metadata(path).ok().map(|facts| (facts.dev(), facts.ino()));
    name(a).is_some_and(|ours| name(b) == Some(ours))
}

impl OrderArgs {
    /// The order to repeat on a device, if there is one.
    pub fn recorded(&self, profile: &Profile) -> Result<Option<Recorded>, ReplayError> {
        if let Some(path) = self.order_log.as_ref().or(self.replay.as_ref()).filter(|_| profile.order.seeds > 1) {
            let reason =
                "a log has the order of one seed, not of a range; run again with the seed that you want to look at";
            return Err(ReplayError { path: path.clone(), reason: reason.to_owned() });
        }
        let Some(path) = &self.replay else { return Ok(None) };
        let failed = |reason: String| ReplayError { path: path.clone(), reason };
        let mut log = Log::open(path).map_err(|error| failed(error.to_string()))?;
        if self.order_log.as_ref().is_some_and(|own| same_file(own, path)) {
            return Err(failed("--order-log would overwrite it while it is read".to_owned()));
        }
        log.expect_device(&profile.identity()).map_err(|error| failed(error.to_string()))?;
        if let Some(mode) = log.settings.illegal.filter(|mode| Some(*mode) != self.illegal) {
            return Err(failed(format!(
                "it was recorded in an illegal mode; repeat it with --illegal {}",
                mode.name()
            )));
        }
        if log.settings.rules.omit != Omit::NOTHING {
            return Err(failed(
                "it was recorded with rules of the contract left out, which only tests can do".to_owned(),
            ));
        }
        log.settings.illegal = self.illegal;
        log.settings.check |= self.check || profile.order.check;
        let overtakes = self.overtakes.as_ref().map(|path| {
            let failed = |reason: String| ReplayError { path: path.clone(), reason };
            let file = File::open(path).map_err(|error| failed(error.to_string()))?;
            let text = read_bounded(file, shrink::MOST as u64 * OVERTAKE).map_err(|error| failed(error.to_string()))?;
            let overtakes = parse_lines(&text).map_err(|error| failed(error.to_string()))?;
            match overtakes.len() {
                0..=shrink::MOST => Ok(overtakes),
                count => Err(failed(format!("it has {count} overtakes, more than {}", shrink::MOST))),
            }
        });
        Ok(Some(Recorded { log, overtakes: overtakes.transpose()? }))
    }

    /// Takes the order from the directory of a `cx10 shrink`. It goes before the options, so that the command that
    /// failed can be given to `cx10 shrink` as it is.
    pub fn follow_shrink(&mut self, directory: &Path) {
        let overtakes = directory.join(shrink::OVERTAKES);
        self.replay = Some(directory.join(shrink::LOG));
        self.overtakes = overtakes.exists().then_some(overtakes);
        (self.order, self.seed, self.order_log) = (None, None, None);
        self.shrink = Some(directory.to_owned());
    }

    /// What the options stand for among the settings.
    fn sets(&self) -> impl Iterator<Item = String> {
        let policy = self.order.map(|policy| format!("order.policy={policy}"));
        let seed = self.seed.map(|seeds| format!("order.seed={}", seeds.first));
        let seeds = self.seed.map(|seeds| format!("order.seeds={}", seeds.count));
        let check = self.check.then(|| "order.check=true".to_owned());
        [policy, seed, seeds, check].into_iter().flatten()
    }
}

/// Reads a text that may be anything: endless, or no text.
fn read_bounded(input: impl Read, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    if input.take(most + 1).read_to_end(&mut bytes)? as u64 > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has more than {most} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

impl DeviceArgs {
    /// Every `--set`, with what the other options stand for behind them.
    pub fn all_sets(&self) -> Vec<String> {
        let doorbells = self.doorbells.map(|arg| format!("doorbells={}", config::Doorbells::from(arg).name()));
        let faults: Vec<String> = self.wire_faults.iter().map(FaultRule::to_string).collect();
        let faults = (!faults.is_empty()).then(|| format!("wire.fault={}", faults.join(" ")));
        self.sets.iter().cloned().chain(doorbells).chain(faults).chain(self.order.sets()).collect()
    }

    /// Reads and checks the configuration.
    pub fn load(&self) -> Result<Profile, ConfigError> {
        let sources = Sources { profile: self.profile.clone(), file: self.config.clone(), sets: self.all_sets() };
        let mut profile = config::load(&sources)?;
        profile.order.illegal = self.order.illegal;
        Ok(profile)
    }

    /// The same, and tells what is surprising in it: once for each device, by the process that has it.
    pub fn load_telling(&self) -> Result<Profile, ConfigError> {
        let profile = self.load()?;
        for warning in profile.warnings() {
            log::warn!(target: "cx10::config", "{warning}");
        }
        Ok(profile)
    }
}

/// What to record.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Records")]
pub struct RecordArgs {
    /// Write every command, key and event to a file as JSON lines (read it with `cx10 trace FILE`)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Write long page lists and opaque data in full
    #[arg(long, requires = "trace")]
    pub trace_full: bool,
}

impl RecordArgs {
    /// Opens the trace, if one is wanted.
    pub fn open(&self, profile: &Profile, syndrome: trace::SyndromeText) -> std::io::Result<trace::Trace> {
        let Some(path) = &self.trace else { return Ok(trace::Trace::off()) };
        let header = trace::Header { profile: profile.name.clone(), config: profile.to_json(true) };
        trace::Trace::to_file(path, &header, trace::Options { full: self.trace_full }, syndrome)
    }
}

/// How the guest's CPU is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Accel {
    /// KVM if it works here, else TCG
    #[default]
    Auto,
    /// KVM, or an error
    Kvm,
    /// Emulation
    Tcg,
}

/// `cx10 run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Device options.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Trace options.
    #[command(flatten)]
    pub record: RecordArgs,
    /// Write the report as JSON
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Records")]
    pub json: Option<PathBuf>,
    /// Keep what the guest printed on its console
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Records")]
    pub keep_console: Option<PathBuf>,
    /// Guest kernel: 7.3 or 6.12 (Debian packages), a bzImage, or a kernel build tree
    #[arg(short, long, value_name = "KERNEL", default_value = "7.3", value_parser = clap::builder::NonEmptyStringValueParser::new(), value_hint = ValueHint::AnyPath, help_heading = "Guest")]
    pub kernel: String,
    /// Guest CPUs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=255), help_heading = "Guest")]
    pub smp: u32,
    /// Guest memory, with suffix M or G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size, help_heading = "Guest")]
    pub mem: Size,
    /// Interactive shell in the guest, on this terminal
    #[arg(long, help_heading = "Guest", conflicts_with = "guest_command")]
    pub shell: bool,
    /// Extra kernel command line
    #[arg(long, value_name = "TEXT", help_heading = "Guest")]
    pub append: Option<String>,
    /// Give up after so many seconds, counted anew for each seed; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 600, help_heading = "Guest")]
    pub timeout: u64,
    /// How to run the guest's CPUs
    #[arg(long, value_enum, default_value_t, value_name = "HOW", help_heading = "QEMU")]
    pub accel: Accel,
    /// QEMU to use [default: one on PATH that has vfio-user-pci, else a packaged one]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath, help_heading = "QEMU")]
    pub qemu: Option<PathBuf>,
    /// One more argument for QEMU; may be repeated
    #[arg(long = "qemu-arg", value_name = "ARG", allow_hyphen_values = true, help_heading = "QEMU")]
    pub qemu_args: Vec<OsString>,
    /// Take newer versions of QEMU, kernel and guest packages, if there are any
    #[arg(long, help_heading = "QEMU")]
    pub update_images: bool,
    /// Print the effective configuration as TOML and exit
    #[arg(long, help_heading = "Device")]
    pub print_config: bool,
    /// Command to run in the guest, in the host's current directory (read-only there); its exit status becomes that of cx10
    #[arg(last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub guest_command: Vec<OsString>,
}

/// `cx10 serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Unix socket to listen on; an old socket at this path is replaced
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, required_unless_present = "print_config")]
    pub socket: Option<PathBuf>,
    /// Device options.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Trace options.
    #[command(flatten)]
    pub record: RecordArgs,
    /// Write a summary of the run as JSON when it ends
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Records")]
    pub report: Option<PathBuf>,
    /// End when the first VMM disconnects instead of waiting for the next
    #[arg(long)]
    pub once: bool,
    /// Print the effective configuration as TOML and exit
    #[arg(long, help_heading = "Device")]
    pub print_config: bool,
}

/// `cx10 trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// Trace to read; `-` is standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Only commands of this name, for example CREATE_MKEY; may be repeated
    #[arg(short, long = "op", value_name = "OPCODE")]
    pub opcodes: Vec<String>,
    /// Only events of this kind: command, key, object, reset, eqe, irq, dma_error, doorbell, vmm; may be repeated
    #[arg(short, long = "event", value_name = "KIND")]
    pub events: Vec<String>,
    /// Only what went wrong: failed commands, refused keys, DMA errors
    #[arg(long)]
    pub failed: bool,
    /// Only commands of this user context (DEVX uid)
    #[arg(long, value_name = "UID", value_parser = parse_uid)]
    pub uid: Option<u64>,
    /// All fields of long structures
    #[arg(long)]
    pub full: bool,
    /// Go on at the end of the file, like tail -f
    #[arg(short, long, conflicts_with = "count")]
    pub follow: bool,
    /// Count commands by name and outcome instead of printing them, like strace -c
    #[arg(short, long)]
    pub count: bool,
}

/// `cx10 profile`.
#[derive(Clone, Debug, Args)]
pub struct ProfileArgs {
    /// What to show.
    #[command(subcommand)]
    pub command: ProfileCommand,
}

/// Subcommands of `cx10 profile`.
#[derive(Clone, Debug, Subcommand)]
pub enum ProfileCommand {
    /// List the profiles that are compiled in
    List,
    /// Print the effective configuration as TOML
    Show {
        /// Profile [default: connectx10-c2c]
        name: Option<String>,
        /// Configuration file laid over the profile
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        config: Option<PathBuf>,
        /// Set one key; may be repeated
        #[arg(short, long = "set", value_name = "KEY=VALUE")]
        sets: Vec<String>,
    },
    /// Print the keys in which two profiles differ
    Diff {
        /// First profile
        from: String,
        /// Second profile
        to: String,
    },
    /// List configuration keys with their range and meaning
    Keys {
        /// Only this section or key, for example `mkey`
        section: Option<String>,
    },
    /// List capability fields with their width and value
    Fields {
        /// Capability type, for example `general`; none lists the types
        cap_type: Option<String>,
        /// Only fields whose name contains this
        filter: Option<String>,
        /// Profile whose values to show
        #[arg(short, long, value_name = "PROFILE")]
        profile: Option<String>,
    },
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

fn parse_size(text: &str) -> Result<Size, String> {
    let error = || format!("`{text}` is not a size; write for example 512M or 2G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "K" | "KIB" => 1u64 << 10,
        "" | "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        _ => return Err(error()),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(error)?;
    // The smallest guest that boots a Debian kernel with mlx5, and what a memfd can map anywhere.
    if !((256 << 20)..=(1 << 40)).contains(&bytes) {
        return Err(format!("{text} is out of range, expected 256M to 1024G"));
    }
    Ok(Size(bytes))
}

fn parse_uid(text: &str) -> Result<u64, String> {
    let value = config::keys::parse_int(text).and_then(|v| u16::try_from(v).ok());
    value.map(u64::from).ok_or_else(|| format!("`{text}` is not a number from 0 to 0xffff"))
}

/// The clap model.
pub fn model() -> clap::Command {
    Cli::command()
}

/// Parses the command line. Usage errors print themselves and end with [`EXIT_USAGE`] (clap's own would be 2, which means
/// something else here); `--help` and `--version` end with 0.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, u8> {
    let mut cli = Cli::try_parse_from(args).map_err(|error| {
        // Nothing to be done if even stderr is gone.
        let _ = error.print();
        if error.use_stderr() { EXIT_USAGE } else { EXIT_CLEAN }
    })?;
    if let Some(directory) = std::env::var_os(shrink::VARIABLE) {
        match &mut cli.command {
            Command::Run(args) => args.device.order.follow_shrink(directory.as_ref()),
            Command::Serve(args) => args.device.order.follow_shrink(directory.as_ref()),
            _ => {}
        }
    }
    Ok(cli)
}

/// Starts logging to stderr.
pub fn init_logging(args: &LogArgs) {
    use log::LevelFilter::*;
    let level = match (args.quiet, args.verbose) {
        (2.., _) => Off,
        (1, _) => Error,
        (0, 0) => Warn,
        (0, 1) => Info,
        (0, 2) => Debug,
        (0, _) => Trace,
    };
    let mut builder = env_logger::Builder::new();
    match args.log.clone().or_else(|| std::env::var("CX10_LOG").ok()) {
        Some(filter) => builder.filter_level(level).parse_filters(&filter),
        // -v is about this program; libraries join in at -vvv only.
        None => builder.filter_level(if level == Trace { Trace } else { level.min(Warn) }).filter_module("cx10", level),
    };
    builder.format_timestamp_millis().format_target(true);
    // A second call (tests) keeps the first logger.
    let _ = builder.try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_sound() {
        model().debug_assert();
    }

    #[test]
    fn sizes_are_read_with_units() {
        assert_eq!(parse_size("512M"), Ok(Size(512 << 20)));
        assert_eq!(parse_size("2g"), Ok(Size(2 << 30)));
        assert_eq!(parse_size("1024"), Ok(Size(1 << 30)));
        for bad in ["", "M", "2T", "16M", "2000000G", "-1G", "99999999999999999999G", "1.5G"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_guest_command_follows_two_dashes() {
        let cli = Cli::try_parse_from(["cx10", "run", "--smp", "4", "--", "ibv_devinfo", "-v"]).unwrap();
        let Command::Run(run) = cli.command else { panic!() };
        assert_eq!(run.guest_command, ["ibv_devinfo", "-v"]);
        assert_eq!(cli.log.verbose, 0, "options behind -- belong to the guest command");
        assert!(Cli::try_parse_from(["cx10", "run", "--shell", "--", "true"]).is_err());
    }
}
