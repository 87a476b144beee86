//! Walks one kernel: boots guests with the device that a section wants, asks for steps, goes on after a crash.

use super::keys::{Key, Known};
use super::result::{Cell, Row, Verdict};
use super::session::{LogLine, Lost, Session, Step};
use crate::run::accel::Decided;
use crate::run::console;
use crate::run::images::Images;
use crate::run::progress::Progress;
use crate::run::report::Report;
use crate::run::workdir::WorkDir;
use crate::run::{RunError, RunOptions, RunOutcome};
use crate::trace::{self, human};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::time::Duration;

/// A kernel that crashes in every step is not booted for ever.
const MOST_BOOTS_LOST: u32 = 4;
/// Nor is one that has never come up.
const MOST_NEVER_UP: u32 = 2;

/// What a step came to.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It came back with this.
    Done(Map<String, Value>),
    /// It came back, and said that something it needs is missing.
    Unavailable(String),
    /// The call failed with this errno.
    Errno(String),
    /// The kernel broke, it did not come back, or the guest is gone; in words.
    Crash(String),
    /// The walk's own program failed, which says nothing of the kernel; in words.
    Failed(String),
}

/// A step with what it left.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What it came to.
    pub outcome: Outcome,
    /// What the kernel logged.
    pub log: Vec<LogLine>,
    /// Keys that the device was asked for.
    pub keys: Vec<Key>,
}

impl Trial {
    /// The line in which the kernel complained of itself: of an oops or a warning with a trace.
    fn trouble(&self) -> Option<&str> {
        let line = |is: fn(&str) -> bool| self.log.iter().map(|line| line.text.as_str()).find(|line| is(line));
        line(console::is_broken).or_else(|| line(console::is_trouble))
    }

    /// As a cell; one in which the kernel complained of itself or was lost is bad whatever the call came to.
    pub fn cell(&self, column: &str) -> Cell {
        let (outcome, detail) = match &self.outcome {
            Outcome::Done(_) => ("ok".to_owned(), String::new()),
            Outcome::Unavailable(why) => ("absent".to_owned(), why.clone()),
            Outcome::Errno(name) => (name.clone(), String::new()),
            Outcome::Crash(how) => ("crash".to_owned(), how.clone()),
            Outcome::Failed(how) => ("failed".to_owned(), how.clone()),
        };
        // Warnings; what drivers say of themselves otherwise is only looked at for trouble.
        let log = self.log.iter().filter(|line| line.level <= 4).map(|line| line.text.clone()).collect();
        let trouble = self.trouble().unwrap_or_default().to_owned();
        let good =
            (!trouble.is_empty() || matches!(self.outcome, Outcome::Crash(_) | Outcome::Failed(_))).then_some(false);
        Cell { column: column.to_owned(), outcome, good, detail, keys: self.keys.clone(), log, trouble }
    }
}

/// The answer of a row in one of whose cells the kernel was lost, broke or complained of itself: whatever else the row
/// found does not count beside it.
pub fn trouble(cells: &[Cell]) -> Option<(Verdict, String)> {
    if let Some(cell) = cells.iter().find(|cell| cell.outcome == "crash") {
        return Some((Verdict::Crash, format!("{}: {}", cell.column, in_a_line(&cell.detail))));
    }
    if let Some(cell) = cells.iter().find(|cell| console::is_broken(&cell.trouble)) {
        return Some((Verdict::Crash, format!("{}: the kernel broke: {}", cell.column, cell.trouble)));
    }
    if let Some(cell) = cells.iter().find(|cell| !cell.trouble.is_empty()) {
        return Some((Verdict::Finding, format!("{}: the kernel complains of itself: {}", cell.column, cell.trouble)));
    }
    let cell = cells.iter().find(|cell| cell.outcome == "failed")?;
    Some((Verdict::Finding, format!("{}: could not be tried: {}", cell.column, in_a_line(&cell.detail))))
}

/// Errnos with which a kernel says that it does not have a call.
const NOT_THERE: [&str; 5] = ["EOPNOTSUPP", "ENOTSUP", "EPROTONOSUPPORT", "ENOTTY", "ENOSYS"];

/// How a guest was lost, in one line, with the fault of its kernel if there was one.
fn in_a_line(how: &str) -> String {
    let (first, headline) = (how.lines().next().unwrap_or_default(), console::headline(how));
    if headline == first { first.to_owned() } else { format!("{first}: {headline}") }
}

/// Whether a try found nothing to try: what it needs is missing, or the kernel says that it does not have the call.
pub fn is_missing(cell: &Cell) -> bool {
    cell.trouble.is_empty() && (cell.outcome == "absent" || NOT_THERE.contains(&cell.outcome.as_str()))
}

/// Whether the guest was lost in a try.
pub fn is_lost(cell: &Cell) -> bool {
    cell.outcome == "crash" || console::is_broken(&cell.trouble)
}

/// Why there was nothing to try.
pub fn missing(cell: &Cell) -> String {
    match cell.detail.as_str() {
        "" => format!("the kernel or its driver does not have it ({})", cell.outcome),
        why => why.to_owned(),
    }
}

/// The walk of one kernel.
pub struct Walk<'a> {
    /// Guest and QEMU.
    pub options: RunOptions,
    /// Images of this kernel.
    pub images: &'a Images,
    /// How the guest's CPUs are run.
    pub accel: Decided,
    /// Arguments of the device that every section has.
    pub serve: Vec<OsString>,
    /// Where the traces are.
    pub work: &'a WorkDir,
    /// Policies under which protocols run.
    pub policies: Vec<String>,
    /// What is shown meanwhile.
    pub progress: &'a Progress,
    /// `uname -r`, once a guest has come up.
    pub release: String,
    /// Settings of the device of each guest that was booted.
    pub guests: Vec<String>,
    /// Answers so far.
    pub rows: Vec<Row>,
    /// Settings of the device beyond `serve`.
    settings: Vec<String>,
    session: Option<Session>,
    boots_lost: u32,
    never_up: u32,
}

impl<'a> Walk<'a> {
    /// Nothing is booted yet.
    pub fn new(
        options: RunOptions,
        images: &'a Images,
        accel: Decided,
        serve: Vec<OsString>,
        work: &'a WorkDir,
        progress: &'a Progress,
    ) -> Walk<'a> {
        let policies = super::protocols::POLICIES.iter().map(|policy| (*policy).to_owned()).collect();
        let (release, guests, settings) = (String::new(), Vec::new(), Vec::new());
        Walk {
            options,
            images,
            accel,
            serve,
            work,
            policies,
            progress,
            release,
            guests,
            settings,
            rows: Vec::new(),
            session: None,
            boots_lost: 0,
            never_up: 0,
        }
    }

    /// From here on the device has these arguments; the next step boots a guest.
    pub fn device(&mut self, settings: &[&str]) -> Result<(), RunError> {
        self.settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        self.boots_lost = 0;
        self.end()
    }

    /// Ends the guest.
    pub fn end(&mut self) -> Result<(), RunError> {
        match self.session.take().map(Session::end) {
            Some(Ok(RunOutcome { report: Report { device: Some(device), .. }, .. }))
                if device.verdict() == trace::report::Verdict::Internal =>
            {
                Err(RunError::Check)
            }
            // A guest that does not end in time, or fails at its end, has answered all the same.
            None | Some(Ok(_) | Err(RunError::QemuEnded { .. } | RunError::Stopped { .. })) => Ok(()),
            Some(Err(error)) => Err(error),
        }
    }

    /// What came of the boot; boots if need be.
    pub fn boot(&mut self) -> Result<Result<Step, String>, RunError> {
        Ok(self.session()?.map(|session| session.boot.clone()))
    }

    /// What is known of keys in this guest.
    pub fn known(&self) -> Option<&Known> {
        self.session.as_ref().map(|session| &session.known)
    }

    fn session(&mut self) -> Result<Result<&mut Session, String>, RunError> {
        if self.session.is_none() {
            if let Some(why) = self.given_up() {
                return Ok(Err(why));
            }
            self.progress.step(&format!("{}: booting", self.options.kernel));
            let mut serve = self.serve.clone();
            serve.extend(self.settings.iter().map(OsString::from));
            let trace = self.work.path("trace.jsonl");
            let settings: Vec<&str> =
                self.settings.iter().map(String::as_str).filter(|word| *word != "--set").collect();
            self.guests.push(settings.join(" "));
            let guest = u32::try_from(self.guests.len()).unwrap_or(u32::MAX);
            match Session::boot(&self.options, self.images, self.accel, serve, &trace, guest) {
                Ok(session) => {
                    self.release.clone_from(&session.release);
                    self.session = Some(session);
                }
                Err(lost) => return Ok(Err(self.lost(lost)?)),
            }
        }
        match &mut self.session {
            Some(session) => Ok(Ok(session)),
            None => Ok(Err("no guest".to_owned())),
        }
    }

    /// Why no guest is booted any more.
    fn given_up(&self) -> Option<String> {
        let never_up = self.release.is_empty() && self.never_up >= MOST_NEVER_UP;
        let times = if never_up { self.never_up } else { self.boots_lost };
        let is_over = never_up || self.boots_lost >= MOST_BOOTS_LOST;
        is_over.then(|| format!("not tried: this kernel was lost {times} times and is not booted again"))
    }

    fn lost(&mut self, lost: Lost) -> Result<String, RunError> {
        self.boots_lost += 1;
        self.never_up += 1;
        let how = match lost {
            Lost::Gone(how) => how,
            Lost::Stop(error) => return Err(error),
        };
        self.session = None;
        self.progress.note(&format!("{}: {}", self.options.kernel, human::harmless(&in_a_line(&how))));
        Ok(how)
    }

    /// One step. An error ends the walk; a guest that is lost is an outcome.
    pub fn step(&mut self, request: &Value, limit: Duration) -> Result<Trial, RunError> {
        let none = |outcome| Trial { outcome, log: Vec::new(), keys: Vec::new() };
        let request = request.as_object().cloned().unwrap_or_default();
        if let Some(why) = self.given_up().filter(|_| self.session.is_none()) {
            return Ok(none(Outcome::Unavailable(why)));
        }
        let answer = match self.session()? {
            Ok(session) => session.step(&request, limit),
            Err(how) => return Ok(none(Outcome::Crash(how))),
        };
        match answer {
            Ok(Step { result, log, keys }) => {
                let hung = result.contains_key("hung");
                let trial = Trial { outcome: read(result), log, keys };
                // What such a kernel does next is not its answer to the next question.
                if hung || trial.trouble().is_some_and(console::is_broken) {
                    self.boots_lost += 1;
                    self.end()?;
                }
                Ok(trial)
            }
            Err(lost) => Ok(none(Outcome::Crash(self.lost(lost)?))),
        }
    }

    /// [`Walk::step`] that makes a key by one of the paths of user space.
    pub fn register(&mut self, path: &str, access: u32) -> Result<Trial, RunError> {
        self.step(&json!({"do": "register", "path": path, "access": access}), Duration::from_secs(20))
    }
}

fn read(result: Map<String, Value>) -> Outcome {
    let text = |name: &str| result.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(why) = text("unavailable") {
        return Outcome::Unavailable(why);
    }
    if let Some(name) = text("errno") {
        return Outcome::Errno(name);
    }
    if let Some(signal) = text("died") {
        // The kernel ends a program in whose call it breaks, and its log says so; else the program has left its own stack.
        let stack = text("where").unwrap_or_default();
        return Outcome::Failed(format!("the walk's own program ended with {signal}\n{stack}").trim_end().to_owned());
    }
    if let Some(stack) = result.get("hung") {
        let at = stack.as_array().and_then(|lines| lines.first()).and_then(Value::as_str).unwrap_or("user space");
        return Outcome::Crash(format!("no return, in {at}"));
    }
    if let Some(error) = text("error") {
        return Outcome::Failed(format!("the walk's own program failed: {error}"));
    }
    Outcome::Done(result)
}

/// A row that is one answer.
pub fn row(id: &str, title: &str, verdict: Verdict, says: impl Into<String>, cells: Vec<Cell>) -> Row {
    Row { id: id.to_owned(), title: title.to_owned(), verdict, says: says.into(), cells }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_the_guest_are_told_apart() {
        let outcome = |text: &str| read(serde_json::from_str(text).unwrap());
        assert!(matches!(outcome(r#"{"lkey":5}"#), Outcome::Done(map) if map["lkey"] == 5));
        assert!(matches!(outcome(r#"{"unavailable":"udmabuf"}"#), Outcome::Unavailable(why) if why == "udmabuf"));
        assert!(matches!(outcome(r#"{"errno":"EINVAL"}"#), Outcome::Errno(name) if name == "EINVAL"));
        assert!(matches!(outcome(r#"{"died":"SIGKILL"}"#), Outcome::Failed(how) if how.contains("SIGKILL")));
        assert!(
            matches!(outcome(r#"{"hung":["[<0>] mlx5_cmd_exec"]}"#), Outcome::Crash(how) if how.contains("mlx5_cmd_exec"))
        );
        assert!(matches!(outcome(r#"{"error":"TypeError: x"}"#), Outcome::Failed(how) if how.contains("TypeError")));
    }

    #[test]
    fn a_warning_of_the_kernel_about_itself_is_trouble_and_other_warnings_are_not() {
        let trial = |text: &str| {
            let log = vec![LogLine { level: 4, text: text.to_owned() }];
            Trial { outcome: Outcome::Errno("EINVAL".into()), log, keys: Vec::new() }
        };
        assert!(trial("WARNING: CPU: 0 PID: 1 at drivers/infiniband/hw/mlx5/umr.c:1").trouble().is_some());
        assert_eq!(trial("WARNING: CPU: 0").cell("none").good, Some(false));
        assert_eq!(trial("mlx5_core 0000:01:00.0: CREATE_MKEY(0x200) failed").cell("none").good, None);
        assert!(trial("mlx5_core 0000:01:00.0: CREATE_MKEY(0x200) failed").trouble().is_none());
    }
}
