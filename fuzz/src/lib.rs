//! Fuzz targets of cx10.
//!
//! Each module interprets arbitrary bytes as what a hostile party could do, and asserts what must hold whatever it
//! did. [`libfuzzer_sys`] makes the bytes; `scripts/fuzz` builds and runs the targets with coverage feedback on a stable
//! compiler.
//!
//! | target | the hostile party | it holds |
//! |---|---|---|
//! | [`mailbox`] | a guest driver | command entries, mailboxes, doorbells |
//! | [`bar`] | a guest kernel and its VMM | BAR 0, configuration space, resets, memory maps |
//! | [`vfio_user`] | a VMM | the socket: messages and descriptors |
//! | [`config`] | a user | profiles, configuration files, `--set` |
//! | [`litmus`] | a file | litmus programs |
//! | [`order`] | a file | recorded orders, overtakes, and their repetition |
//! | [`trace`] | a file | what `cx10 trace` reads |
//! | [`wire`] | a driver and its peers | frames |
//! | [`ethernet`] | a driver and its peers | Ethernet queues, flow tables, frames |
//! | [`packet`] | peers | RoCE frames |
//! | [`paging`] | a driver | queue pairs without pages, dumps, the tracer, device memory |
//! | [`wqe`] | a poster of work | work requests that change memory keys |
//!
//! Besides never panicking, hanging or growing, the function must be usable by the next driver after any input; see
//! [`machine::Machine::finish`].

pub mod bar;
pub mod config;
pub mod ethernet;
pub mod grammar;
pub mod input;
pub mod litmus;
pub mod machine;
pub mod mailbox;
pub mod order;
pub mod packet;
pub mod paging;
pub mod templates;
pub mod trace;
pub mod vfio_user;
pub mod wire;
pub mod work;
pub mod wqe;

use std::alloc::System;
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use cap::Cap;

/// No input needs more than this; an allocation beyond it ends the process.
const HEAP_LIMIT: usize = 384 << 20;
/// What may be kept between inputs: summaries have bounded lists, tables keep their capacity.
const HEAP_GROWTH: usize = 8 << 20;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, HEAP_LIMIT);

/// A party that the device distrusts cannot make it write more lines at one place in one input.
const LINES: u32 = 100;

/// Formats messages as any logger would, counts them by their place, and throws them away.
struct Sink(Mutex<BTreeMap<(&'static str, u32), u32>>);

static SINK: Sink = Sink(Mutex::new(BTreeMap::new()));

impl log::Log for Sink {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let _ = std::io::Write::write_fmt(&mut std::io::sink(), *record.args());
        let place = (record.file_static().unwrap_or_default(), record.line().unwrap_or_default());
        let count = self.0.lock().map_or(0, |mut places| {
            let count = places.entry(place).or_default();
            *count += 1;
            *count
        });
        assert!(count <= LINES, "the log is flooded: {}", record.args());
    }

    fn flush(&self) {}
}

/// Called once before the first input.
pub fn init() {
    // Replaying an input with CX10_LOG set shows what the device says.
    if std::env::var_os("CX10_LOG").is_some() {
        cx10::cli::init_logging(&Default::default());
        return;
    }
    let _ = log::set_logger(&SINK);
    log::set_max_level(log::LevelFilter::Warn);
}

/// Runs one input on a target.
pub fn one(target: fn(&[u8]), data: &[u8]) {
    forget_log();
    target(data);
}

fn forget_log() {
    if let Ok(mut places) = SINK.0.lock() {
        places.clear();
    }
}

/// Asserts that no more heap is in use than after the first input. To be called when an input's objects are gone.
pub fn assert_nothing_kept() {
    static BASE: OnceLock<usize> = OnceLock::new();
    let now = HEAP.allocated();
    let base = *BASE.get_or_init(|| now);
    assert!(now <= base + HEAP_GROWTH, "{now} bytes of heap in use, {base} after the first input");
}
