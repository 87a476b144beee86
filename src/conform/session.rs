//! A guest that does one step after another, and the device's trace of each.
//!
//! The programs in `guest/` answer requests on the standard input and output of the guest's command. Behind each step they
//! free a protection domain; what stands before that command in the device's trace belongs to the step.

use super::keys::{Key, Known};
use crate::run::accel::Decided;
use crate::run::images::Images;
use crate::run::{RunError, RunOptions, RunOutcome, ServeProcess, run_with};
use crate::trace::human;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Programs of the guest.
pub const PROGRAMS: &[(&str, &[u8])] = &[
    ("walk.py", include_bytes!("guest/walk.py")),
    ("steps.py", include_bytes!("guest/steps.py")),
    ("paths.py", include_bytes!("guest/paths.py")),
    ("protocols.py", include_bytes!("guest/protocols.py")),
    ("unordered.py", include_bytes!("guest/unordered.py")),
    ("uverbs.py", include_bytes!("guest/uverbs.py")),
];

/// A guest under emulation boots in 20 seconds on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// What the guest itself adds to the limit of a step.
const STEP_MARGIN: Duration = Duration::from_secs(25);
/// A guest that is told to end does so at once, or is hung.
const END_LIMIT: Duration = Duration::from_secs(20);
/// The device writes its trace when it is idle, which may be a little after the guest has its answer.
const TRACE_LIMIT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);
/// So many keys of a step are kept, and so many refused ones with their whole command.
const MOST_KEYS: usize = 20_000;
const MOST_DECODED: usize = 64;
/// An answer has at most so many bytes.
const MOST_ANSWER: usize = 4 << 20;

/// A message of the guest's kernel.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct LogLine {
    /// 0 emergency … 7 debug.
    pub level: u8,
    /// Text.
    pub text: String,
}

/// What the guest said of a step.
#[derive(Debug, Deserialize)]
struct Answer {
    result: Map<String, Value>,
    fence: Option<u64>,
    #[serde(default)]
    log: Vec<LogLine>,
}

/// A step that came back.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Its result.
    pub result: Map<String, Value>,
    /// What the kernel logged.
    pub log: Vec<LogLine>,
    /// Keys that the device was asked for.
    pub keys: Vec<Key>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Lost {
    /// The guest or QEMU ended, or does not answer.
    Gone(String),
    /// The user ended the walk, or it cannot go on.
    Stop(RunError),
}

/// A guest that waits for requests.
pub struct Session {
    stream: UnixStream,
    buffer: Vec<u8>,
    run: Option<JoinHandle<Result<RunOutcome, RunError>>>,
    stop: Arc<AtomicBool>,
    trace: TraceReader,
    /// Every key that was seen.
    pub known: Known,
    /// `uname -r`.
    pub release: String,
    /// Keys and messages of the boot.
    pub boot: Step,
}

impl Session {
    /// Boots a guest whose device has `serve` as arguments and writes its trace to `trace`. `guest` is its number.
    pub fn boot(
        options: &RunOptions,
        images: &Images,
        accel: Decided,
        serve: Vec<std::ffi::OsString>,
        trace: &Path,
        guest: u32,
    ) -> Result<Session, Lost> {
        let stop = |error: io::Error| Lost::Stop(RunError::System(error));
        let mut args = serve;
        args.extend(["--trace".into(), trace.into()]);
        let mut device = ServeProcess::of_this_program(args).map_err(stop)?;
        let (ours, theirs) = UnixStream::pair().map_err(stop)?;
        ours.set_read_timeout(Some(LOOK)).map_err(stop)?;
        // An old trace must not be taken for this one's.
        if let Err(error) = std::fs::remove_file(trace) {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(stop(error));
            }
        }
        let options = RunOptions {
            command: ["python3", "/run/cx10/walk.py"].map(Into::into).to_vec(),
            files: PROGRAMS.to_vec(),
            share_cwd: false,
            quiet: true,
            timeout: None,
            stop: Arc::default(),
            ..options.clone()
        };
        let stop_run = options.stop.clone();
        let images = images.clone();
        let run = std::thread::spawn(move || run_with(&options, &images, accel, &mut device, Some(theirs)));
        let mut session = Session {
            stream: ours,
            buffer: Vec::new(),
            run: Some(run),
            stop: stop_run,
            trace: TraceReader::new(trace, guest),
            known: Known::default(),
            release: String::new(),
            boot: Step::default(),
        };
        session.boot = session.answer(BOOT_LIMIT)?;
        let release = session.boot.result.get("release").and_then(Value::as_str);
        session.release = release.unwrap_or_default().to_owned();
        Ok(session)
    }

    /// Asks for a step.
    pub fn step(&mut self, request: &Map<String, Value>, limit: Duration) -> Result<Step, Lost> {
        let mut request = request.clone();
        request.insert("limit".into(), limit.as_secs().into());
        let mut line = Value::Object(request).to_string();
        line.push('\n');
        if self.stream.write_all(line.as_bytes()).is_err() {
            return Err(self.ended());
        }
        self.answer(limit + STEP_MARGIN)
    }

    /// What the guest says of a step, or of its boot.
    fn answer(&mut self, limit: Duration) -> Result<Step, Lost> {
        let answer: Answer = self.read_line(limit)?;
        let stop = |error: io::Error| Lost::Stop(RunError::System(error));
        let (keys, complete) = self.trace.until(answer.fence).map_err(stop)?;
        if !complete {
            let why = "the device's trace does not have what the guest has done; is the disk full?";
            return Err(stop(io::Error::other(why)));
        }
        Ok(Step { result: answer.result, log: answer.log, keys: self.note(keys) })
    }

    fn note(&mut self, keys: Vec<Key>) -> Vec<Key> {
        keys.iter().for_each(|key| self.known.note(key));
        keys
    }

    /// Ends the guest; one that does not end in time is killed.
    pub fn end(mut self) -> Result<RunOutcome, RunError> {
        // The guest's program ends at the end of its input; if nobody is there to read it, neither is the guest.
        let _ = self.stream.shutdown(Shutdown::Both);
        let end = Instant::now() + END_LIMIT;
        while Instant::now() < end && self.run.as_ref().is_some_and(|run| !run.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.stop.store(true, Ordering::Relaxed);
        match self.run.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            _ => Err(RunError::System(io::Error::other("the run's thread ended in a panic"))),
        }
    }

    fn ended(&mut self) -> Lost {
        match self.run.take().map(JoinHandle::join) {
            Some(Ok(Ok(outcome))) => {
                let status = outcome.report.exit.as_ref().and_then(|exit| exit.status);
                let status = status.map_or("no exit status".to_owned(), |status| format!("exit status {status}"));
                Lost::Gone(format!("the guest's program ended ({status})"))
            }
            Some(Ok(Err(error @ (RunError::QemuEnded { .. } | RunError::Timeout { .. })))) => {
                Lost::Gone(error.to_string())
            }
            Some(Ok(Err(error))) => Lost::Stop(error),
            _ => Lost::Stop(RunError::System(io::Error::other("the run's thread ended in a panic"))),
        }
    }

    /// Ends a guest that does not answer.
    fn silent(&mut self, limit: Duration) -> Lost {
        self.stop.store(true, Ordering::Relaxed);
        let how = format!("no answer for {} s", limit.as_secs());
        match self.run.take().map(JoinHandle::join) {
            Some(Ok(Err(RunError::Stopped { detail }))) => Lost::Gone(how + &detail),
            Some(Ok(Err(error @ RunError::Signal(_)))) => Lost::Stop(error),
            _ => Lost::Gone(how),
        }
    }

    fn read_line<T: for<'a> Deserialize<'a>>(&mut self, limit: Duration) -> Result<T, Lost> {
        let end = Instant::now() + limit;
        loop {
            if let Some(length) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=length).collect();
                return serde_json::from_slice(&line).map_err(|error| {
                    Lost::Gone(format!(
                        "the guest's answer cannot be read: {error}: {}",
                        String::from_utf8_lossy(&line[..line.len().min(200)])
                    ))
                });
            }
            let mut chunk = [0; 65536];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(self.ended()),
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(_) => return Err(self.ended()),
            }
            if self.buffer.len() > MOST_ANSWER {
                return Err(Lost::Gone(format!("the guest's answer has more than {MOST_ANSWER} bytes")));
            }
            if self.run.as_ref().is_none_or(JoinHandle::is_finished) && !self.buffer.contains(&b'\n') {
                return Err(self.ended());
            }
            if Instant::now() >= end {
                return Err(self.silent(limit));
            }
        }
    }
}

impl Drop for Session {
    /// A walk that ends early leaves no guest behind.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(run) = self.run.take() {
            // Its error is not the one that ended the walk.
            let _ = run.join();
        }
    }
}

/// Reads a trace while it is written.
struct TraceReader {
    path: std::path::PathBuf,
    guest: u32,
    file: Option<File>,
    buffer: Vec<u8>,
    /// The last command that failed: a refused key's own event stands behind its command's.
    failed: Option<Map<String, Value>>,
}

impl TraceReader {
    fn new(path: &Path, guest: u32) -> TraceReader {
        TraceReader { path: path.to_owned(), guest, file: None, buffer: Vec::new(), failed: None }
    }

    /// Keys up to the DEALLOC_PD of the domain `fence`, and whether that was there; without a fence, what there is now.
    fn until(&mut self, fence: Option<u64>) -> io::Result<(Vec<Key>, bool)> {
        let end = Instant::now() + TRACE_LIMIT;
        let (mut keys, mut decoded) = (Vec::new(), 0);
        loop {
            if self.file.is_none() {
                self.file = Some(File::open(&self.path)?);
            }
            if let Some(file) = &mut self.file {
                file.read_to_end(&mut self.buffer)?;
            }
            let (mut used, mut found) = (0, false);
            while let Some(length) = self.buffer[used..].iter().position(|byte| *byte == b'\n').filter(|_| !found) {
                // Lines are whole; one that is not JSON would be an error of the device's.
                let event: Map<String, Value> = serde_json::from_slice(&self.buffer[used..used + length])?;
                used += length + 1;
                found = fence.is_some_and(|pd| is_fence(&event, pd));
                if event.get("ev").is_some_and(|ev| ev == "command") {
                    self.failed = event.get("status").is_some_and(|status| status != "OK").then_some(event);
                } else if let Some(mut key) = Key::read(&event).filter(|_| keys.len() < MOST_KEYS) {
                    key.guest = self.guest;
                    decoded += usize::from(!key.decoded.is_empty());
                    if decoded > MOST_DECODED {
                        key.decoded.clear();
                    } else if key.verdict == "refused" {
                        let command = self.failed.take().filter(|command| command.get("op") == event.get("via"));
                        key.command = command.map(|command| human::event(&command, false)).unwrap_or_default();
                    }
                    keys.push(key);
                }
            }
            self.buffer.drain(..used);
            if found {
                return Ok((keys, true));
            }
            if fence.is_none() || Instant::now() >= end {
                return Ok((keys, fence.is_none()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The device gives numbers again as late as it can: no step has freed a domain of this number.
fn is_fence(event: &Map<String, Value>, pd: u64) -> bool {
    event.get("op").and_then(Value::as_str) == Some("DEALLOC_PD")
        && event.get("in").is_some_and(|input| input["pd"] == pd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_keys_before_its_fence_and_the_rest_stays() {
        let path = std::env::temp_dir().join(format!("cx10-conform-trace-{}", std::process::id()));
        let key = |index: u32| {
            format!(
                r#"{{"t":1,"ev":"key","kind":"mtt","via":"UMR","verdict":"enabled","index":{index},"relaxed":true}}"#
            )
        };
        let fence = r#"{"t":2,"ev":"command","op":"DEALLOC_PD","in":{"pd":5}}"#;
        std::fs::write(&path, format!("{{\"cx10_trace\":1}}\n{}\n{fence}\n{}\n{{\"t\":", key(1), key(2))).unwrap();
        let mut reader = TraceReader::new(&path, 3);
        let indexes = |keys: Vec<Key>| keys.iter().filter_map(|key| key.index).collect::<Vec<_>>();
        let (keys, complete) = reader.until(Some(5)).unwrap();
        assert_eq!((indexes(keys), complete), (vec![1], true));
        let (keys, complete) = reader.until(None).unwrap();
        assert_eq!((indexes(keys), complete), (vec![2], true), "the unfinished line waits");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_refused_key_has_its_command_and_its_guest() {
        let path = std::env::temp_dir().join(format!("cx10-conform-refused-{}", std::process::id()));
        let command = |status: &str| {
            format!(r#"{{"t":1,"ev":"command","slot":0,"op":"CREATE_MKEY","in":{{"mkc.pd":5}},"status":"{status}"}}"#)
        };
        let key = |via: &str| format!(r#"{{"t":2,"ev":"key","kind":"mtt","via":"{via}","verdict":"refused"}}"#);
        let irq = r#"{"t":1,"ev":"irq","vector":1}"#;
        let lines = [
            command("BAD_PARAM_ERR"),
            irq.to_owned(),
            key("CREATE_MKEY"),
            key("UMR"),
            command("BAD_PARAM_ERR"),
            command("OK"),
            key("CREATE_MKEY"),
        ];
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let (keys, _) = TraceReader::new(&path, 3).until(None).unwrap();
        assert!(keys[0].command.contains("CREATE_MKEY mkc.pd=5 = BAD_PARAM_ERR"), "{}", keys[0].command);
        let rest: Vec<_> = keys.iter().skip(1).map(|key| (key.via.as_str(), key.command.as_str(), key.guest)).collect();
        assert_eq!(rest, [("UMR", "", 3), ("CREATE_MKEY", "", 3)]);
        std::fs::remove_file(path).unwrap();
    }
}
