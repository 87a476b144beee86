//! One run: starts the device and QEMU, follows the guest, ends everything in the right order.
//!
//! Order at the end: the guest powers off, QEMU ends and its sockets close, the device sees its VMM leave, writes its
//! summary and ends. Whatever does not end by itself is asked (SIGTERM) and then killed, after fixed times.

use super::accel::Decided;
use super::device::DeviceUnderTest;
use super::guest::{self, Event, Params, SeedRun};
use super::images::Images;
use super::progress::Progress;
use super::report::{GuestExit, Report, Times};
use super::streams::{self, Listeners, Message};
use super::workdir::WorkDir;
use super::{RunError, RunOptions, at, qemu};
use crate::sys::{self, SignalFd, process};
use crate::trace::report::RunSummary;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often children and signals are looked at.
const TICK: Duration = Duration::from_millis(50);
/// Time for the device to listen, for QEMU to connect, for a child to end by itself, and to end when asked.
const START_LIMIT: Duration = Duration::from_secs(20);
const END_LIMIT: Duration = Duration::from_secs(20);
const ASKED_LIMIT: Duration = Duration::from_secs(5);

/// A run and what it needs.
pub(super) struct Run<'a> {
    pub options: &'a RunOptions,
    pub images: &'a Images,
    pub accel: Decided,
    pub work: &'a WorkDir,
    pub progress: &'a Progress,
}

/// A child that does not outlive this value.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // Both fail if the child has been waited for, which is what we want.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Guarded {
    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Waits; asks and then kills if it takes too long.
    fn end(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        for (limit, signal) in [(patience, libc::SIGTERM), (ASKED_LIMIT, libc::SIGKILL)] {
            let end = Instant::now() + limit;
            loop {
                // Looked at first: a child that has been waited for must not be signalled.
                if let Some(status) = self.ended()? {
                    return Ok(status);
                }
                if Instant::now() >= end {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            process::send_signal(&self.0, signal)?;
        }
        self.0.wait()
    }
}

/// What is known so far.
#[derive(Default)]
struct Progressed {
    stage: String,
    facts: Option<guest::Facts>,
    exit: Option<GuestExit>,
    stages: BTreeMap<String, f64>,
    /// The present seed, where seeds take turns, and when its run began.
    seed: Option<(String, Instant)>,
    /// The command's runs with the seeds before it.
    runs: Vec<SeedRun>,
    /// Device log held back while a shell has the terminal.
    held_log: Vec<String>,
    raw: Option<process::RawMode>,
    leave: bool,
}

impl Progressed {
    /// Since when the time limit counts.
    fn since(&self, started: Instant) -> Instant {
        self.seed.as_ref().map_or(started, |(_, since)| *since)
    }

    /// An error that ended the run, with what is known of the seeds up to there.
    fn with_seeds(&self, error: RunError) -> RunError {
        let Some((seed, _)) = &self.seed else { return error };
        let mut told = format!("\nseed {seed} was at work; --seed {seed} repeats it");
        if !self.runs.is_empty() {
            let lines = super::report::seed_lines(&self.runs);
            told += &lines.iter().fold("\nbefore:".to_owned(), |text, line| text + "\n  " + line);
        }
        RunError::WithSeeds { error: Box::new(error), told }
    }
}

/// An error if a signal wants us to end.
fn ended_by_signal(signals: &SignalFd) -> Result<(), RunError> {
    while let Some(signal) = signals.take()? {
        if signal != libc::SIGWINCH {
            return Err(RunError::Signal(signal));
        }
    }
    Ok(())
}

impl Run<'_> {
    pub(super) fn go(&self, device: &mut dyn DeviceUnderTest, stdio: Option<UnixStream>) -> Result<Report, RunError> {
        let options = self.options;
        if options.shell && !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Err(RunError::NoTerminal);
        }
        // Before the first thread: all threads inherit the mask.
        let signals = SignalFd::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGWINCH])?;
        let (sender, receiver) = mpsc::sync_channel(1024);

        let socket = self.work.path("device.sock");
        let summary = self.work.path("summary.json");
        self.progress.step("starting the device");
        let start = |source| RunError::Start { program: "the device".into(), source };
        let mut device = device.start(&socket, &summary).map_err(start)?.map(Guarded);
        let mut device_log =
            device.as_mut().and_then(|d| d.0.stderr.take()).map(|log| streams::read_log(log, sender.clone()));
        if let Some(device) = &mut device {
            self.wait_for_socket(device, &socket, &signals, &receiver, &mut device_log)?;
        }

        let share = if options.share_cwd { std::env::current_dir().ok() } else { None };
        self.write_initramfs(device.is_some(), share.is_some())?;
        let mut listeners = Listeners::default();
        for (name, _) in qemu::ports(options) {
            listeners.add(name, &self.work.path(name))?;
        }
        self.progress.step(&format!("starting QEMU ({})", self.accel.name()));
        let started = Instant::now();
        let mut qemu = self.start_qemu(device.is_some().then_some(socket.as_path()), share.as_deref())?;
        let mut connected = BTreeMap::new();
        while !listeners.accept(&mut connected)? {
            ended_by_signal(&signals)?;
            if let Some(status) = qemu.ended()? {
                return Err(self.qemu_ended(status));
            }
            if started.elapsed() > START_LIMIT {
                return Err(self.timeout(START_LIMIT, "QEMU does not start"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let (outputs, window) = self.start_streams(connected, stdio, &sender)?;
        drop(sender);

        let mut known = Progressed { stage: "booting".into(), ..Progressed::default() };
        let ended = self.follow(&signals, &receiver, &mut qemu, &mut device, &mut known, window, started);
        known.raw = None;
        // Errors too leave an orderly end: the device's summary is complete only if its VMM has left.
        let status = match &ended {
            Ok(()) if known.exit.is_some() => qemu.end(END_LIMIT)?,
            _ => qemu.end(Duration::ZERO)?,
        };
        log::debug!(target: "cx10::run", "QEMU: {status}");
        let device_status = device.as_mut().map(|device| device.end(END_LIMIT)).transpose()?;
        self.join(outputs, device_log, &receiver, &mut known);
        self.tell_qemu_log();
        ended.map_err(|error| known.with_seeds(error))?;

        let summary = match device_status {
            None => None,
            Some(status) => {
                let crashed = |_| RunError::DeviceEnded(format!("{status}, without a summary"));
                Some(RunSummary::read_json(&summary).map_err(crashed)?)
            }
        };
        Ok(Report {
            schema: super::report::SCHEMA,
            accel: self.accel,
            memory_mib: options.memory_mib,
            command: options.command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
            guest: known.facts,
            exit: known.exit,
            times: Times { stages: known.stages, total: started.elapsed().as_secs_f64() },
            device: summary,
        })
    }

    fn wait_for_socket(
        &self,
        device: &mut Guarded,
        socket: &Path,
        signals: &SignalFd,
        receiver: &Receiver<Message>,
        log: &mut Option<JoinHandle<()>>,
    ) -> Result<(), RunError> {
        let end = Instant::now() + START_LIMIT;
        loop {
            if socket.exists() {
                return Ok(());
            }
            ended_by_signal(signals)?;
            if let Some(status) = device.ended()? {
                // It has said why, last.
                let mut said = Vec::new();
                while !log.as_ref().is_none_or(JoinHandle::is_finished) && Instant::now() < end {
                    said.extend(receiver.recv_timeout(TICK));
                }
                said.extend(receiver.try_iter());
                let mut lines = said.into_iter().filter_map(|message| match message {
                    Message::DeviceLog(line) => Some(line),
                    _ => None,
                });
                let reason = lines.next_back();
                lines.for_each(|line| self.progress.note(&line));
                return Err(match reason {
                    Some(reason) if status.code() == Some(1) => {
                        RunError::DeviceRefused(reason.strip_prefix("cx10: ").unwrap_or(&reason).to_owned())
                    }
                    Some(reason) => RunError::DeviceEnded(format!("{status}, {reason}")),
                    None => RunError::DeviceEnded(status.to_string()),
                });
            }
            if Instant::now() >= end {
                return Err(self.timeout(START_LIMIT, "the device does not listen"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn write_initramfs(&self, expect_device: bool, share: bool) -> Result<(), RunError> {
        let options = self.options;
        let params = Params {
            shell: options.shell,
            share,
            expect_device,
            window: process::window_size(io::stdout().as_fd()),
            term: std::env::var("TERM").ok(),
            seeds: options.seeds,
            env: options.seed.map(|seed| ("CX10_SEED".to_owned(), seed.to_string())).into_iter().collect(),
            ..Params::default()
        };
        let params = params.command(&options.command);
        let mut archive = fs::read(&self.images.initramfs).map_err(at(&self.images.initramfs))?;
        guest::append_to_initramfs(&mut archive, &params, &options.files).map_err(io::Error::from)?;
        let path = self.work.path("initramfs");
        fs::write(&path, archive).map_err(at(&path))
    }

    fn start_qemu(&self, device: Option<&Path>, share: Option<&Path>) -> Result<Guarded, RunError> {
        let arguments = qemu::arguments(self.options, self.images, self.accel, self.work, device, share);
        log::debug!(target: "cx10::run", "{} {arguments:?}", self.images.qemu.display());
        let log = self.work.path("qemu.log");
        let mut command = Command::new(&self.images.qemu);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(&log).map_err(at(&log))?);
        // Keys of the terminal are for us alone.
        command.process_group(0);
        sys::process::unblock_signals(&mut command);
        sys::die_with_parent(&mut command, libc::SIGKILL);
        let program = || self.images.qemu.display().to_string();
        command.spawn().map(Guarded).map_err(|source| RunError::Start { program: program(), source })
    }

    /// Threads whose end is waited for, and the stream that takes window sizes.
    fn start_streams(
        &self,
        mut connected: BTreeMap<&'static str, UnixStream>,
        stdio: Option<UnixStream>,
        sender: &SyncSender<Message>,
    ) -> Result<(Vec<JoinHandle<()>>, Option<UnixStream>), RunError> {
        let mut threads = Vec::new();
        let mut window = None;
        if let Some(report) = connected.remove("report") {
            window = self.options.shell.then(|| report.try_clone()).transpose()?;
            threads.push(streams::read_events(report, sender.clone()));
        }
        if let Some(terminal) = connected.remove("terminal") {
            streams::copy_keys(terminal.try_clone()?, sender.clone());
            threads.push(streams::copy_out(terminal, io::stdout()));
        }
        if let Some(stdin) = connected.remove("stdin") {
            match stdio.as_ref().map(UnixStream::try_clone).transpose()? {
                Some(from) => streams::copy_in(from, stdin),
                None => streams::copy_in(io::stdin(), stdin),
            }
        }
        if let Some(stdout) = connected.remove("stdout") {
            threads.push(match stdio {
                Some(to) => streams::copy_out(stdout, to),
                None => streams::copy_out(stdout, io::stdout()),
            });
        }
        if let Some(stderr) = connected.remove("stderr") {
            threads.push(streams::copy_out(stderr, io::stderr()));
        }
        Ok((threads, window))
    }

    /// Until the guest has ended. An error is something that ends the run early.
    #[allow(clippy::too_many_arguments)] // The parts of one run, used nowhere else.
    fn follow(
        &self,
        signals: &SignalFd,
        receiver: &Receiver<Message>,
        qemu: &mut Guarded,
        device: &mut Option<Guarded>,
        known: &mut Progressed,
        mut window: Option<UnixStream>,
        started: Instant,
    ) -> Result<(), RunError> {
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(message) => self.take(message, known)?,
                Err(RecvTimeoutError::Timeout) => {}
                // All streams are closed; QEMU is about to end.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
            }
            while let Some(signal) = signals.take()? {
                if signal != libc::SIGWINCH {
                    return Err(RunError::Signal(signal));
                }
                if let (Some(stream), Some([rows, columns])) = (&mut window, process::window_size(io::stdout().as_fd()))
                {
                    // The guest lives without it.
                    let _ = writeln!(stream, "{{\"window\":[{rows},{columns}]}}");
                }
            }
            if known.exit.is_some() || known.leave {
                return Ok(());
            }
            if self.options.stop.load(Ordering::Relaxed) {
                return Err(RunError::Stopped { detail: self.console() });
            }
            if let Some(status) = qemu.ended()? {
                // What it sent last may still be on the way.
                while let Ok(message) = receiver.recv_timeout(TICK) {
                    self.take(message, known)?;
                }
                return if known.exit.is_some() { Ok(()) } else { Err(self.qemu_ended(status)) };
            }
            if let Some(device) = device {
                if let Some(status) = device.ended()? {
                    // Ends before QEMU only if it crashed, or if QEMU crashed just now.
                    std::thread::sleep(Duration::from_millis(200));
                    return Err(match qemu.ended()? {
                        Some(status) => self.qemu_ended(status),
                        None => RunError::DeviceEnded(status.to_string()),
                    });
                }
            }
            let interactive = known.stage == "shell";
            if let Some(limit) =
                self.options.timeout.filter(|limit| !interactive && known.since(started).elapsed() > *limit)
            {
                return Err(self.timeout(limit, &known.stage));
            }
        }
    }

    fn take(&self, message: Message, known: &mut Progressed) -> Result<(), RunError> {
        match message {
            Message::Guest(Event::Stage { name, uptime, detail }) => {
                known.stages.insert(name.clone(), uptime);
                match name.as_str() {
                    "booted" => self.progress.step(&format!("{detail} is up, loading mlx5_core")),
                    "new_id" => self.progress.note(&detail),
                    "bound" => self.progress.step(&format!("driver bound: {detail}")),
                    "netdev" => self.progress.step(&format!("bringing up {detail}")),
                    "rdma" => self.progress.step(&format!("{detail} is active, asking it")),
                    "command" => self.progress.finish(),
                    "shell" => {
                        self.progress.finish();
                        eprintln!("cx10: shell in the guest; leave with exit or Ctrl-]");
                        known.raw = Some(process::RawMode::enter()?);
                    }
                    _ => {}
                }
                known.stage = name;
                if known.stage == "seed" {
                    self.progress.step(&format!("seed {detail}"));
                    known.stage = format!("seed {detail}");
                    known.seed = Some((detail, Instant::now()));
                }
            }
            Message::Guest(Event::Run(run)) => {
                if run.status != 0 {
                    self.progress.note(&format!("seed {}: exit status {}", run.seed, run.status));
                }
                known.runs.push(run);
            }
            Message::Guest(Event::Facts { facts }) => known.facts = Some(*facts),
            Message::Guest(Event::Exit { status, runs, problems, kernel_log, uptime }) => {
                known.exit = Some(GuestExit { status, runs, problems, kernel_log, uptime });
            }
            Message::Garbled(why) => log::warn!(target: "cx10::run", "the guest's report cannot be read: {why}"),
            Message::DeviceLog(line) if known.raw.is_some() => known.held_log.push(line),
            Message::DeviceLog(line) => self.progress.suspend(|| eprintln!("{line}")),
            Message::Leave => known.leave = true,
        }
        Ok(())
    }

    /// Lets the streams run dry.
    fn join(
        &self,
        outputs: Vec<JoinHandle<()>>,
        device_log: Option<JoinHandle<()>>,
        receiver: &Receiver<Message>,
        known: &mut Progressed,
    ) {
        for line in known.held_log.drain(..) {
            eprintln!("{line}");
        }
        let threads: Vec<_> = outputs.into_iter().chain(device_log).collect();
        let end = Instant::now() + ASKED_LIMIT;
        // A thread may wait for room in the channel, so the channel is emptied while waiting.
        loop {
            let done = threads.iter().all(JoinHandle::is_finished);
            while let Ok(message) = receiver.try_recv() {
                // Only a shell's start can fail, and there is none any more.
                let _ = self.take(message, known);
            }
            if done || Instant::now() >= end {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What QEMU printed, less what it prints every time.
    fn qemu_log(&self) -> Vec<String> {
        let text = fs::read(self.work.path("qemu.log")).unwrap_or_default();
        let usual = [
            // The device has no error interrupt by design.
            "Could not enable error recovery for the device",
            // We end it.
            "terminating on signal",
        ];
        String::from_utf8_lossy(&text)
            .lines()
            .filter(|line| !usual.iter().any(|known| line.contains(known)))
            .map(str::to_string)
            .collect()
    }

    fn tell_qemu_log(&self) {
        for line in self.qemu_log() {
            log::warn!(target: "cx10::run", "{line}");
        }
    }

    /// The end of the guest's console, as a tail for an error message.
    fn console(&self) -> String {
        let text = fs::read(self.work.path("console.log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = super::console::end(&text);
        if last.is_empty() {
            return String::new();
        }
        format!("\nlast lines of the guest's console:\n  {}", last.join("\n  "))
    }

    fn qemu_ended(&self, status: ExitStatus) -> RunError {
        let log = self.qemu_log();
        let detail = if log.is_empty() { self.console() } else { format!(": {}", log.join("\n")) };
        RunError::QemuEnded { status: status.to_string(), detail }
    }

    fn timeout(&self, limit: Duration, stage: &str) -> RunError {
        RunError::Timeout { limit, stage: stage.to_string(), detail: self.console() }
    }
}
