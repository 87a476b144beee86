//! The trace: what the guest asked of the device and what it got, one JSON object a line.
//!
//! The first line is a header (format version, program version, profile, effective configuration), every further line is
//! one event. Commands are decoded by PRM field names when they are written, so that a trace can be read without this
//! program. [`human`] turns the lines into the form of `cx10 trace FILE`; [`report`] is the summary of a run.
//!
//! Tracing never disturbs the device: when off, [`Trace::enabled`] is one load and no record is built; when on, writes are
//! buffered; a file that cannot be written is given up with one log line.
//!
//! Limits: lines reach the file when the buffer is full, at [`Trace::flush`] (which the device calls when it becomes idle),
//! and when the last handle goes away. A process that is killed loses at most what one burst of work wrote.

pub mod decode;
pub mod human;
pub mod report;
mod tables;

use crate::config::KeyKind;
use crate::dma::KeyOrder;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use report::{KeyRefusal, RunSummary, Verdict};

/// Version of the line format, in the header as `cx10_trace`. Raised when a field changes its meaning.
pub const FORMAT: u64 = 1;

/// Text of a syndrome, from the table of the command interface.
pub type SyndromeText = fn(u32) -> Option<&'static str>;

/// First line of a trace.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// Name of the profile.
    pub profile: String,
    /// Effective configuration, capabilities included.
    pub config: Value,
}

/// How much is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Write long tails (page lists, mailbox data without a layout) in full instead of their length.
    pub full: bool,
}

/// One command, as it was taken from the queue and answered.
#[derive(Clone, Copy, Debug)]
pub struct CommandRecord<'a> {
    /// Device time in nanoseconds.
    pub time_ns: u64,
    /// Command queue slot.
    pub slot: u8,
    /// Token of the entry.
    pub token: u8,
    /// The whole input, the 16 inline bytes first. Empty if it could not be read (delivery error).
    pub input: &'a [u8],
    /// The whole output, the 16 inline bytes first; `status` is byte 0.
    pub output: &'a [u8],
    /// Delivery status of the entry; 0 is OK.
    pub delivery: u8,
}

/// How a key request was judged.
#[derive(Clone, Debug)]
pub enum KeyVerdict<'a> {
    /// The key exists now.
    Created {
        /// Index of the key.
        index: u32,
        /// The ordering attributes that it asks for.
        order: KeyOrder,
    },
    /// A UMR made the key usable, or changed its ordering.
    Enabled {
        /// Index of the key.
        index: u32,
        /// The ordering attributes that it asks for.
        order: KeyOrder,
    },
    /// The key was refused.
    Refused(&'a KeyRefusal),
}

/// Events other than commands.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A key came into being or was refused.
    Key {
        /// Kind of key.
        kind: KeyKind,
        /// `CREATE_MKEY`, `UMR`, ….
        via: &'a str,
        /// The judgement.
        verdict: KeyVerdict<'a>,
    },
    /// An object was created, destroyed, or changed its state.
    Object {
        /// Kind, for example `cq`.
        kind: &'a str,
        /// Number of the object.
        id: u64,
        /// `created`, `destroyed`, or the name of the new state.
        change: &'a str,
    },
    /// The function was reset, in whole or by a command.
    Reset {
        /// `flr`, `vmm-disconnect`, ….
        kind: &'a str,
    },
    /// A DMA access was refused by the map.
    DmaError {
        /// Guest address.
        iova: u64,
        /// Length in bytes.
        len: u64,
        /// `read` or `write`.
        dir: &'a str,
        /// Access class, for example `Eqe`.
        class: &'a str,
        /// Why.
        reason: &'a str,
    },
    /// An event queue entry was written.
    Eqe {
        /// Event queue.
        eqn: u32,
        /// Event type.
        event_type: u8,
        /// Event subtype.
        sub_type: u8,
    },
    /// An interrupt was raised.
    Irq {
        /// MSI-X vector.
        vector: u32,
    },
    /// A doorbell was rung that nothing serves.
    Doorbell {
        /// Kind of doorbell.
        kind: &'a str,
        /// UAR page.
        uar: u32,
        /// Value written.
        value: u64,
    },
    /// A VMM attached or went away.
    Vmm {
        /// `attached` or `gone`.
        change: &'a str,
    },
}

struct Shared {
    on: AtomicBool,
    lines: AtomicU64,
    /// Something was written since the last flush.
    dirty: AtomicBool,
    options: Options,
    syndrome: SyndromeText,
    sink: Mutex<Sink>,
}

struct Sink {
    writer: Box<dyn Write + Send>,
    name: String,
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Err(error) = self.writer.flush() {
            log::error!(target: "cx10::trace", "{}: {error}; the trace is incomplete", self.name);
        }
    }
}

/// A handle on the trace. Clones write to the same file. [`Trace::off`] writes nothing.
#[derive(Clone, Default)]
pub struct Trace {
    shared: Option<Arc<Shared>>,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").field("enabled", &self.enabled()).finish()
    }
}

impl Trace {
    /// A trace that writes nothing.
    pub fn off() -> Trace {
        Trace::default()
    }

    /// A trace into a file, which is created or emptied. `syndrome` gives the texts of syndromes.
    pub fn to_file(path: &Path, header: &Header, options: Options, syndrome: SyndromeText) -> io::Result<Trace> {
        let file = File::create(path)?;
        Trace::to_writer(
            Box::new(BufWriter::with_capacity(1 << 16, file)),
            &path.display().to_string(),
            header,
            options,
            syndrome,
        )
    }

    /// A trace into any writer; `name` is used in error messages. The writer should buffer.
    pub fn to_writer(
        mut writer: Box<dyn Write + Send>,
        name: &str,
        header: &Header,
        options: Options,
        syndrome: SyndromeText,
    ) -> io::Result<Trace> {
        let line = serde_json::json!({
            "cx10_trace": FORMAT,
            "version": env!("CARGO_PKG_VERSION"),
            "profile": header.profile,
            "config": header.config,
        });
        serde_json::to_writer(&mut writer, &line)?;
        writer.write_all(b"\n")?;
        writer.flush()?;
        Ok(Trace {
            shared: Some(Arc::new(Shared {
                on: AtomicBool::new(true),
                lines: AtomicU64::new(0),
                dirty: AtomicBool::new(false),
                options,
                syndrome,
                sink: Mutex::new(Sink { writer, name: name.to_string() }),
            })),
        })
    }

    /// True if events are written. Ask before building a record.
    pub fn enabled(&self) -> bool {
        self.shared.as_ref().is_some_and(|s| s.on.load(Ordering::Relaxed))
    }

    /// Events written so far.
    pub fn lines(&self) -> u64 {
        self.shared.as_ref().map_or(0, |s| s.lines.load(Ordering::Relaxed))
    }

    /// Writes a command.
    pub fn command(&self, record: &CommandRecord<'_>) {
        if let Some(shared) = self.active() {
            shared.write(decode::command(record, shared.options, shared.syndrome));
        }
    }

    /// Writes another event.
    pub fn event(&self, time_ns: u64, event: &Event<'_>) {
        if let Some(shared) = self.active() {
            shared.write(event_line(time_ns, event));
        }
    }

    /// Hands everything buffered to the file, so that `cx10 trace --follow` shows it. Costs next to nothing when there is
    /// nothing; called whenever the device becomes idle.
    pub fn flush(&self) {
        if let Some(shared) = self.active().filter(|s| s.dirty.swap(false, Ordering::Relaxed)) {
            let mut sink = shared.sink.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = sink.writer.flush() {
                shared.give_up(&sink.name, &error);
            }
        }
    }

    fn active(&self) -> Option<&Shared> {
        self.shared.as_deref().filter(|s| s.on.load(Ordering::Relaxed))
    }
}

impl Shared {
    fn write(&self, line: Map<String, Value>) {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_writer(&mut sink.writer, &line)
            .map_err(io::Error::from)
            .and_then(|()| sink.writer.write_all(b"\n"));
        match written {
            Ok(()) => {
                self.lines.fetch_add(1, Ordering::Relaxed);
                self.dirty.store(true, Ordering::Relaxed);
            }
            Err(error) => self.give_up(&sink.name, &error),
        }
    }

    /// Switches the trace off for good, with one log line.
    fn give_up(&self, name: &str, error: &io::Error) {
        if self.on.swap(false, Ordering::Relaxed) {
            log::error!(target: "cx10::trace", "{name}: {error}; tracing stops here");
        }
    }
}

/// Starts a line: time and kind of event come first.
fn line(time_ns: u64, ev: &str) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("t".into(), time_ns.into());
    map.insert("ev".into(), ev.into());
    map
}

fn put(map: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    map.insert(name.into(), value.into());
}

fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

fn event_line(time_ns: u64, event: &Event<'_>) -> Map<String, Value> {
    let mut map;
    match event {
        Event::Key { kind, via, verdict } => {
            map = line(time_ns, "key");
            put(&mut map, "kind", kind.name());
            put(&mut map, "via", *via);
            match verdict {
                KeyVerdict::Created { index, order } | KeyVerdict::Enabled { index, order } => {
                    let created = matches!(verdict, KeyVerdict::Created { .. });
                    put(&mut map, "verdict", if created { "created" } else { "enabled" });
                    put(&mut map, "index", *index);
                    put(&mut map, "relaxed", order.relaxed_write);
                    put(&mut map, "relaxed_read", order.relaxed_read);
                    put(&mut map, "unordered", order.relaxed_read_after_write);
                }
                KeyVerdict::Refused(refusal) => {
                    put(&mut map, "verdict", "refused");
                    if let Value::Object(fields) = to_value(refusal) {
                        map.extend(fields.into_iter().filter(|(k, _)| !matches!(k.as_str(), "count" | "kind" | "via")));
                    }
                }
            }
        }
        Event::Object { kind, id, change } => {
            map = line(time_ns, "object");
            put(&mut map, "kind", *kind);
            put(&mut map, "id", *id);
            put(&mut map, "change", *change);
        }
        Event::Reset { kind } => {
            map = line(time_ns, "reset");
            put(&mut map, "kind", *kind);
        }
        Event::DmaError { iova, len, dir, class, reason } => {
            map = line(time_ns, "dma_error");
            put(&mut map, "iova", *iova);
            put(&mut map, "len", *len);
            put(&mut map, "dir", *dir);
            put(&mut map, "class", *class);
            put(&mut map, "reason", *reason);
        }
        Event::Eqe { eqn, event_type, sub_type } => {
            map = line(time_ns, "eqe");
            put(&mut map, "eqn", *eqn);
            put(&mut map, "type", *event_type);
            put(&mut map, "sub_type", *sub_type);
        }
        Event::Irq { vector } => {
            map = line(time_ns, "irq");
            put(&mut map, "vector", *vector);
        }
        Event::Doorbell { kind, uar, value } => {
            map = line(time_ns, "doorbell");
            put(&mut map, "kind", *kind);
            put(&mut map, "uar", *uar);
            put(&mut map, "value", *value);
        }
        Event::Vmm { change } => {
            map = line(time_ns, "vmm");
            put(&mut map, "change", *change);
        }
    }
    map
}

#[cfg(test)]
mod tests;
