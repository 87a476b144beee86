//! `cx10 shrink`: which overtakes of a recorded run a failure needs.
//!
//! The command under test is run again and again. A directory, named by [`VARIABLE`] in its environment, has the log
//! and the overtakes that are allowed in this run; `cx10 run` and `cx10 serve` take their order from there and leave
//! a mark, so that a command which never starts the device is not mistaken for one that passes or fails.

use super::EXIT_CLEAN;
use crate::dma::order::describe;
use crate::dma::order::log::{Log, LogError};
use crate::dma::order::overtakes::{Overtake, smallest};
use crate::dma::order::program::{self, NoProgram};
use crate::files;
use crate::litmus;
use crate::run::progress::Progress;
use crate::run::workdir::WorkDir;
use crate::sys::{self, SignalFd, process};
use clap::{Args, ValueHint};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Names the directory in the environment of the command.
pub const VARIABLE: &str = "CX10_SHRINK";
/// The recorded order, in that directory.
pub const LOG: &str = "order.log";
/// The overtakes that a run may have, one a line; without this file the order is that of the log, exactly.
pub const OVERTAKES: &str = "overtakes";
/// Made by a device that follows the order.
pub const FOLLOWED: &str = "followed";

/// There is nothing to find.
const EXIT_NOTHING: u8 = 4;
/// A limit was reached.
const EXIT_LIMIT: u8 = 5;

/// Most overtakes of a log.
pub const MOST: usize = 1 << 20;
/// Most sentences that are told.
const SENTENCES: usize = 32;
/// How often a command with all overtakes is run at least before it is said to pass.
const FIRST_TRIES: u32 = 3;
/// How often a child is looked at.
const TICK: Duration = Duration::from_millis(20);
/// Time for the command to end when asked; `cx10 run` lets its guest and device end in order.
const ASKED_LIMIT: Duration = Duration::from_secs(30);
/// Bytes and lines of the command's output that an error shows.
const TAIL: usize = 8192;
const TAIL_LINES: usize = 12;
/// Time for the last of the output to arrive.
const OUTPUT_LIMIT: Duration = Duration::from_secs(1);

/// `cx10 shrink`.
#[derive(Clone, Debug, Args)]
pub struct ShrinkArgs {
    /// Order that a failing run recorded (cx10 run --order-log FILE)
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Most runs of CMD
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Limits")]
    pub max_runs: u32,
    /// No run begins later than so many seconds after the first; 0 sets no limit
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, help_heading = "Limits")]
    pub max_time: u64,
    /// End a run of CMD after so many seconds; that is an outcome like a status; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 900, help_heading = "Limits")]
    pub timeout: u64,
    /// For a failure that comes and goes: a set passes when it passed so many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Limits")]
    pub tries: u32,
    /// Write the program to a file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Keep the smallest set so far in a file, for cx10 run --replay FILE --overtakes FILE
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub keep: Option<PathBuf>,
    /// Show what CMD prints, on standard error
    #[arg(long, help_heading = "Output")]
    pub show_output: bool,
    /// Command that starts cx10 and fails
    #[arg(last = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// How a run of the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Status(i32),
    Signal(i32),
    Time(u64),
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ending::Status(0) => f.write_str("passed"),
            Ending::Status(code) => write!(f, "status {code}"),
            Ending::Signal(signal) => write!(f, "signal {signal}"),
            Ending::Time(seconds) => write!(f, "no end after {seconds} s"),
        }
    }
}

const PASSED: Ending = Ending::Status(0);

/// Why no smallest set was found.
#[derive(Debug, thiserror::Error)]
pub enum ShrinkError {
    /// The log cannot be used.
    #[error("{}: {error}", path.display())]
    Log {
        /// Its file.
        path: PathBuf,
        /// Why.
        error: LogError,
    },
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The command cannot be started.
    #[error("cannot start {program}: {error}")]
    Start {
        /// Which.
        program: String,
        /// What the system said.
        error: io::Error,
    },
    /// No device took its order from the directory.
    #[error(
        "CMD ended ({ending}), and no device followed the recorded order; does it start cx10 run or cx10 serve, and does \
         {VARIABLE} of the environment reach it?{output}"
    )]
    NotFollowed {
        /// How it ended.
        ending: String,
        /// What it said last.
        output: String,
    },
    /// The failure is not one of the recorded order.
    #[error("{0}")]
    Nothing(String),
    /// A limit was reached before anything was known.
    #[error("{0} reached before it was known whether CMD fails")]
    Limit(String),
    /// A signal ended everything before anything was known.
    #[error("ended by signal {0}")]
    Signal(i32),
    /// Anything else.
    #[error("{0}")]
    System(String),
}

impl ShrinkError {
    /// Exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            ShrinkError::Nothing(_) => EXIT_NOTHING,
            ShrinkError::Limit(_) => EXIT_LIMIT,
            ShrinkError::Signal(signal) => signal_code(*signal),
            _ => super::EXIT_USAGE,
        }
    }
}

fn signal_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

fn system(error: impl std::fmt::Display) -> ShrinkError {
    ShrinkError::System(error.to_string())
}

fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> ShrinkError {
    let path = path.into();
    move |error| ShrinkError::File { path, error }
}

/// Runs the command, within the limits.
struct Runner<'a> {
    args: &'a ShrinkArgs,
    work: WorkDir,
    signals: SignalFd,
    progress: Progress,
    started: Instant,
    runs: u32,
    all: usize,
    /// What the last run said.
    output: Arc<Mutex<Output>>,
    /// It was said that the command leaves processes behind.
    told_left: bool,
}

/// A command that is ended with all that it started.
struct Group(Child);

impl Group {
    /// Asks whatever still runs, waits, kills. How the command ended, and whether it had left anything.
    fn end(&mut self, patience: Duration) -> io::Result<(ExitStatus, bool)> {
        let mut kill = Some(Instant::now() + patience);
        let mut left = false;
        let mut status = None;
        // Until the command is waited for the group's number is its own, then that of what it left.
        let _ = process::signal_group(&self.0, libc::SIGTERM);
        loop {
            status = status.map_or_else(|| self.0.try_wait(), |status| Ok(Some(status)))?;
            if let Some(status) = status {
                if !process::group_remains(&self.0)? {
                    return Ok((status, left));
                }
                left = true;
            }
            if kill.is_some_and(|when| Instant::now() >= when) {
                let _ = process::signal_group(&self.0, libc::SIGKILL);
                kill = None;
            }
            std::thread::sleep(TICK);
        }
    }
}

/// What a command said last.
#[derive(Debug, Default)]
struct Output {
    last: VecDeque<u8>,
    /// Bytes before those.
    cut: u64,
}

impl Output {
    /// Follows what comes out of a pipe, to its end or for as long as there is a process.
    fn follow(from: OwnedFd) -> (Arc<Mutex<Output>>, JoinHandle<()>) {
        let output = Arc::<Mutex<Output>>::default();
        let ours = Arc::clone(&output);
        let thread = std::thread::spawn(move || {
            let mut from = File::from(from);
            let mut buffer = vec![0; 1 << 16];
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) => ours.lock().unwrap_or_else(PoisonError::into_inner).add(&buffer[..count]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        });
        (output, thread)
    }

    fn add(&mut self, bytes: &[u8]) {
        self.last.extend(bytes);
        let more = self.last.len().saturating_sub(TAIL);
        self.last.drain(..more);
        self.cut += more as u64;
    }

    /// The last lines, and how much was before them.
    fn tail(&mut self) -> String {
        let bytes = self.last.make_contiguous();
        let mut ends = bytes.iter().enumerate().rev().skip(1).filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let from = ends.nth(TAIL_LINES - 1).unwrap_or(0);
        let text = String::from_utf8_lossy(&bytes[from..]);
        let before = self.cut + from as u64;
        let head = if before > 0 { format!("\n  | [{before} bytes before this]") } else { String::new() };
        text.lines().fold(head, |text, line| text + "\n  | " + line)
    }
}

impl Runner<'_> {
    /// One run, with some overtakes or in the exact order of the log.
    fn run(&mut self, set: Option<&[Overtake]>) -> Result<Ending, ShrinkError> {
        let args = self.args;
        if self.runs >= args.max_runs {
            return Err(ShrinkError::Limit(format!("the limit of {} runs was", args.max_runs)));
        }
        if args.max_time > 0 && self.started.elapsed() >= Duration::from_secs(args.max_time) {
            return Err(ShrinkError::Limit(format!("the limit of {} s was", args.max_time)));
        }
        self.runs += 1;
        let what = match set {
            None => "the exact order".to_owned(),
            Some([]) => "in order".to_owned(),
            Some(set) => format!("{} of {} overtakes", set.len(), self.all),
        };
        self.progress.step(&format!("run {}: {what}", self.runs));
        let overtakes = self.work.path(OVERTAKES);
        match set {
            Some(set) => fs::write(&overtakes, lines(set)).map_err(at(&overtakes))?,
            None => forget(overtakes)?,
        }
        let followed = self.work.path(FOLLOWED);
        forget(followed.clone())?;
        let ending = self.follow()?;
        if !followed.exists() {
            let output = if args.show_output { String::new() } else { self.tail() };
            return Err(ShrinkError::NotFollowed { ending: ending.to_string(), output });
        }
        self.progress.note(&format!("run {}: {what}: {ending}", self.runs));
        Ok(ending)
    }

    fn follow(&mut self) -> Result<Ending, ShrinkError> {
        let args = self.args;
        let mut command = Command::new(&args.command[0]);
        // The directory's name in the environment, and the order in the directory.
        command.args(&args.command[1..]).env(VARIABLE, self.work.path("")).stdin(Stdio::null());
        let reader = if args.show_output {
            command.stdout(io::stderr()).stderr(Stdio::inherit());
            None
        } else {
            let (from, to) = process::pipe().map_err(system)?;
            command.stdout(to.try_clone().map_err(system)?).stderr(to);
            let (output, reader) = Output::follow(from);
            self.output = output;
            Some(reader)
        };
        // A group of its own, so that a script ends with what it started, and Ctrl-C is for us to pass on.
        command.process_group(0);
        process::unblock_signals(&mut command);
        sys::die_with_parent(&mut command, libc::SIGTERM);
        let program = args.command[0].to_string_lossy().into_owned();
        let child = command.spawn().map_err(|error| ShrinkError::Start { program, error })?;
        // Our copies of the pipe's end.
        drop(command);
        let ending = self.wait(Group(child));
        // A process that left the group may hold the pipe for ever.
        let end = Instant::now() + OUTPUT_LIMIT;
        while reader.as_ref().is_some_and(|reader| !reader.is_finished()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        ending
    }

    /// Waits for a command; nothing of its group is left then.
    fn wait(&mut self, mut group: Group) -> Result<Ending, ShrinkError> {
        let limit = (self.args.timeout > 0).then(|| Duration::from_secs(self.args.timeout));
        let started = Instant::now();
        loop {
            if process::has_ended(&group.0).map_err(system)? {
                let (status, left) = group.end(ASKED_LIMIT).map_err(system)?;
                if left && !std::mem::replace(&mut self.told_left, true) {
                    self.progress.note("CMD left processes behind; they are ended before the next run");
                }
                let signal = status.signal().map(Ending::Signal);
                return Ok(status.code().map(Ending::Status).or(signal).unwrap_or(Ending::Status(i32::MAX)));
            }
            if let Some(signal) = self.signals.take().map_err(system)? {
                group.end(ASKED_LIMIT).map_err(system)?;
                return Err(ShrinkError::Signal(signal));
            }
            if limit.is_some_and(|limit| started.elapsed() >= limit) {
                group.end(ASKED_LIMIT).map_err(system)?;
                return Ok(Ending::Time(self.args.timeout));
            }
            std::thread::sleep(TICK);
        }
    }

    /// What the command said last.
    fn tail(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).tail()
    }

    /// Whether a set fails as before, in one of some runs.
    fn fails(&mut self, set: &[Overtake], as_before: Ending) -> Result<bool, ShrinkError> {
        for _ in 0..self.args.tries {
            let ending = self.run(Some(set))?;
            if ending == as_before {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How the command fails with everything that was recorded; not otherwise than by the recorded order.
    fn verify(&mut self, all: &[Overtake]) -> Result<Ending, ShrinkError> {
        let mut failure = None;
        for _ in 0..self.args.tries.max(FIRST_TRIES) {
            let ending = self.run(Some(all))?;
            if ending != PASSED {
                failure = Some(ending);
                break;
            }
        }
        let Some(failure) = failure else {
            let exact = self.run(None)?;
            return Err(ShrinkError::Nothing(if exact == PASSED {
                "CMD passes with the recorded order: the failure does not come from it, or comes too seldom (record \
                 another one, or raise --tries)"
                    .to_owned()
            } else {
                format!(
                    "CMD fails in the exact order of the log ({exact}), but passes when the same overtakes may happen: the \
                     failure hangs on the time between accesses that are in order, which this command cannot take away"
                )
            }));
        };
        for _ in 0..self.args.tries {
            let ending = self.run(Some(&[]))?;
            if ending != PASSED {
                return Err(ShrinkError::Nothing(format!(
                    "CMD fails with everything in order too ({ending}): the failure is not one of order{}",
                    if self.args.show_output { String::new() } else { self.tail() }
                )));
            }
        }
        Ok(failure)
    }
}

fn forget(path: PathBuf) -> Result<(), ShrinkError> {
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ShrinkError::File { path, error }),
        _ => Ok(()),
    }
}

fn lines(set: &[Overtake]) -> String {
    set.iter().fold(String::new(), |mut text, overtake| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{overtake}");
        text
    })
}

/// Finds the smallest set. Returns the exit code.
pub fn shrink(args: &ShrinkArgs, quiet: bool) -> Result<u8, ShrinkError> {
    // What cannot be written is told now, not after hours of search.
    for path in args.output.iter().chain(&args.keep) {
        if super::same_file(path, &args.file) {
            return Err(ShrinkError::System(format!("{}: the result would overwrite the log", path.display())));
        }
        files::can_be_written(path).map_err(at(path))?;
    }
    let work = WorkDir::new().map_err(system)?;
    let failed = |error| ShrinkError::Log { path: args.file.clone(), error };
    // A copy: the command may write its own log to the same file.
    let log = Log::copy(&args.file, &work.path(LOG)).map_err(failed)?;
    if let Some(warning) = log.warning() {
        eprintln!("cx10: {}: {warning}; what was overtaken there is not looked at", args.file.display());
    }
    let mut all = log.overtakes(MOST).map_err(failed)?;
    // Reads of the device for itself happen when they happen, in each run.
    all.retain(|overtake| !overtake.later.control);
    if all.is_empty() {
        let events = log.count;
        let file = args.file.display();
        return Err(ShrinkError::Nothing(format!(
            "{file}: nothing was overtaken in {events} events; the run was in order"
        )));
    }
    let signals = SignalFd::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]).map_err(system)?;
    let progress = Progress::new(quiet);
    process::adopt_orphans().map_err(system)?;
    let mut runner = Runner {
        args,
        work,
        signals,
        progress,
        started: Instant::now(),
        runs: 0,
        all: all.len(),
        output: Arc::default(),
        told_left: false,
    };
    let failure = runner.verify(&all)?;
    runner.keep(&all)?;
    let mut stopped = None;
    let kept = smallest(&all, |set| match runner.fails(set, failure).and_then(|fails| runner.kept(set, fails)) {
        Ok(fails) => Some(fails),
        Err(error) => {
            stopped = Some(error);
            None
        }
    });
    runner.progress.finish();
    let code = match stopped {
        None => EXIT_CLEAN,
        Some(ShrinkError::Limit(limit)) => {
            eprintln!("cx10: {limit} reached; a smaller set may exist");
            EXIT_LIMIT
        }
        Some(ShrinkError::Signal(signal)) => {
            eprintln!("cx10: ended by signal {signal}; a smaller set may exist");
            signal_code(signal)
        }
        Some(error) => {
            eprintln!("cx10: {error}");
            eprintln!("cx10: the search ends here; a smaller set may exist");
            error.exit_code()
        }
    };
    if !quiet {
        tell(&log, &all, &kept, failure, runner.runs).map_err(failed)?;
    }
    print(args, &log, &kept, quiet)?;
    Ok(code)
}

impl Runner<'_> {
    fn keep(&self, set: &[Overtake]) -> Result<(), ShrinkError> {
        match &self.args.keep {
            Some(path) => fs::write(path, lines(set)).map_err(at(path)),
            None => Ok(()),
        }
    }

    fn kept(&self, set: &[Overtake], fails: bool) -> Result<bool, ShrinkError> {
        if fails {
            self.keep(set)?;
        }
        Ok(fails)
    }
}

/// The result in words.
fn tell(log: &Log, all: &[Overtake], kept: &[Overtake], failure: Ending, runs: u32) -> Result<(), LogError> {
    let fails = if kept.len() == 1 { "is" } else { "are" };
    eprintln!("cx10: {} of {} overtakes {fails} enough to fail ({failure}), after {runs} runs:", kept.len(), all.len());
    for sentence in describe::sentences(log, &kept[..kept.len().min(SENTENCES)])? {
        eprintln!("  - {sentence}");
    }
    if kept.len() > SENTENCES {
        eprintln!("  - and {} more", kept.len() - SENTENCES);
    }
    Ok(())
}

/// The result as a program.
fn print(args: &ShrinkArgs, log: &Log, kept: &[Overtake], quiet: bool) -> Result<(), ShrinkError> {
    let program = match program::print(log, kept) {
        Err(error @ NoProgram::TooMany { .. }) => {
            eprintln!("cx10: {error}; --keep saves the set");
            return Ok(());
        }
        result => result.map_err(system)?,
    };
    let text = format!("{program:#}\n");
    match &args.output {
        Some(path) => fs::write(path, &text).map_err(at(path))?,
        None => match io::stdout().lock().write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(at("standard output")(error)),
            _ => {}
        },
    }
    if quiet {
        return Ok(());
    }
    let mode = program::mode(&log.settings.rules);
    match (litmus::program::parse(&text), &args.output) {
        (Err(error), _) => eprintln!("cx10: cx10 litmus cannot run the program: {error}"),
        (Ok(_), Some(path)) => {
            eprintln!("cx10: cx10 litmus --file {} --mode {mode} runs the program", path.display());
        }
        (Ok(_), None) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ignores_being_asked_is_killed_although_its_leader_has_ended() {
        process::adopt_orphans().unwrap();
        // The shell ends when asked, its child does not.
        let script = "(trap '' TERM; echo ready; sleep 600) & wait";
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 6]).unwrap();
        let (status, left) = Group(child).end(Duration::from_millis(200)).unwrap();
        assert_eq!((status.signal(), left), (Some(libc::SIGTERM), true));
        // All that held the pipe are gone.
        assert_eq!(stdout.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn of_the_output_the_last_lines_are_kept_and_the_rest_is_counted() {
        let mut output = Output::default();
        assert_eq!(output.tail(), "");
        output.add(b"one\ntwo");
        assert_eq!(output.tail(), "\n  | one\n  | two");
        for line in 0..100_000 {
            output.add(format!("\nline {line}").as_bytes());
        }
        assert_eq!(output.last.len(), TAIL);
        let all = 7 + (0..100_000).map(|line| format!("\nline {line}").len()).sum::<usize>();
        let shown = TAIL_LINES * "line 99999\n".len() - 1;
        let lines = (99_988..100_000).map(|line| format!("\n  | line {line}")).collect::<String>();
        assert_eq!(output.tail(), format!("\n  | [{} bytes before this]{lines}", all - shown));
        output.add(&[b'x'; TAIL * 3]);
        assert_eq!(output.tail().len(), format!("\n  | [{} bytes before this]\n  | ", all + TAIL * 2).len() + TAIL);
    }
}
