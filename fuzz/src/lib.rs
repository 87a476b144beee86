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
//! | [`trace`] | a file | what `cx10 trace` reads |
//! | [`wire`] | a driver and its peers | frames |
//!
//! Besides never panicking, hanging or growing, the function must be usable by the next driver after any input; see
//! [`machine::Machine::finish`].

pub mod bar;
pub mod config;
pub mod grammar;
pub mod input;
pub mod machine;
pub mod mailbox;
pub mod templates;
pub mod trace;
pub mod vfio_user;
pub mod wire;
pub mod work;

use std::alloc::System;
use std::sync::OnceLock;

use cap::Cap;

/// No input needs more than this; an allocation beyond it ends the process.
const HEAP_LIMIT: usize = 384 << 20;
/// What may be kept between inputs: summaries have bounded lists, tables keep their capacity.
const HEAP_GROWTH: usize = 8 << 20;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, HEAP_LIMIT);

/// Formats messages as any logger would, and throws them away.
struct Sink;

impl log::Log for Sink {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let _ = std::io::Write::write_fmt(&mut std::io::sink(), *record.args());
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
    let _ = log::set_logger(&Sink);
    log::set_max_level(log::LevelFilter::Warn);
}

/// Asserts that no more heap is in use than after the first input. To be called when an input's objects are gone.
pub fn assert_nothing_kept() {
    static BASE: OnceLock<usize> = OnceLock::new();
    let now = HEAP.allocated();
    let base = *BASE.get_or_init(|| now);
    assert!(now <= base + HEAP_GROWTH, "{now} bytes of heap in use, {base} after the first input");
}
