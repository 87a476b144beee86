//! Progress on standard error: a spinner on a terminal, one line per step elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Shows what is going on.
#[derive(Debug)]
pub struct Progress {
    quiet: bool,
    started: Instant,
    /// On a terminal only.
    bar: RefCell<Option<ProgressBar>>,
}

impl Progress {
    /// Starts showing; with `quiet` nothing is ever shown.
    pub fn new(quiet: bool) -> Progress {
        let terminal = !quiet && std::io::stderr().is_terminal();
        let bar = terminal.then(|| {
            let bar = ProgressBar::new_spinner();
            // A malformed template is a mistake in this line; the default style is a fair answer to it.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}") {
                bar.set_style(style);
            }
            // The spinner's thread must leave signals to the thread that cleans up.
            crate::sys::without_signals(|| bar.enable_steady_tick(Duration::from_millis(120)));
            bar
        });
        Progress { quiet, started: Instant::now(), bar: RefCell::new(bar) }
    }

    /// A step has begun.
    pub fn step(&self, what: &str) {
        if self.quiet {
            return;
        }
        match &*self.bar.borrow() {
            Some(bar) => bar.set_message(what.to_string()),
            None => eprintln!("cx10: [{:5.1} s] {what}", self.started.elapsed().as_secs_f64()),
        }
    }

    /// A line that stays.
    pub fn note(&self, what: &str) {
        if self.quiet {
            return;
        }
        match &*self.bar.borrow() {
            Some(bar) => bar.println(format!("cx10: {what}")),
            None => eprintln!("cx10: {what}"),
        }
    }

    /// Runs something that writes to the terminal itself.
    pub fn suspend<T>(&self, f: impl FnOnce() -> T) -> T {
        match &*self.bar.borrow() {
            Some(bar) => bar.suspend(f),
            None => f(),
        }
    }

    /// Nothing more is shown: the report or the guest's command has the terminal.
    pub fn finish(&self) {
        if let Some(bar) = self.bar.borrow_mut().take() {
            bar.finish_and_clear();
        }
    }
}
