//! The decision log: what was issued, what was applied and when, which drains there were.
//!
//! A file begins with [`MAGIC`], the format's version and a header in JSON (all settings and the device that was
//! configured), so that it can be understood without the run. Chunks follow, each with its length and checksum: numbers of
//! seven bits a byte, addresses and times as differences. A transaction costs some thirty bytes, an application some
//! five. The last chunk says how the log ends; a run that was cut off leaves a file without it.
//!
//! [`write`] has the writer, [`read`] the reader, [`follow`] what is pending at each place. A log is never held in memory:
//! it is read from its file once to see that it is whole, and again for each use.
//!
//! Limits: [`MOST_LOG`] and [`MAX_CHUNK`]; a writer stops at its limit of bytes and says so in the log.

pub mod follow;
pub mod read;
pub mod write;

pub use follow::{Applications, Recorded};
pub use read::Reader;
pub use write::Writer;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::overtakes::Identity;
use super::settings::Settings;
use super::{Choice, Fence, Horizon, Kind, Range, Scope, Stream, Tick, TxnId};
use crate::dma::KeyOrder;

/// Most bytes of a log, written or read; that is hours of traffic.
pub const MOST_LOG: u64 = 1 << 30;

/// The first bytes of a log.
pub const MAGIC: &[u8; 8] = b"CX10ORD\n";

/// The version of the format.
pub const VERSION: u16 = 2;

/// No chunk is larger.
pub const MAX_CHUNK: usize = 1 << 20;

/// No header is larger.
const MAX_HEADER: usize = 16 << 10;

const ISSUE: u8 = 1;
const APPLY: u8 = 2;
const DRAIN: u8 = 3;
const DISCARD: u8 = 4;
const END: u8 = 5;
const FULL: u8 = 6;

/// Why a part was applied when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Why {
    /// Its time had come.
    Due = 0,
    /// The pool was full.
    Pressure = 1,
    /// Something that had to be performed at once waited for it.
    Needed = 2,
    /// A drain.
    Drained = 3,
    /// It was performed when it was issued.
    AtOnce = 4,
    /// A recorded order demanded it.
    Recorded = 5,
}

impl Why {
    /// All reasons.
    pub const ALL: [Why; 6] = [Why::Due, Why::Pressure, Why::Needed, Why::Drained, Why::AtOnce, Why::Recorded];
}

/// A transaction as it was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued<'a> {
    /// When.
    pub tick: Tick,
    /// Its number.
    pub id: TxnId,
    /// What it is.
    pub kind: Kind,
    /// For whom.
    pub stream: Stream,
    /// Its number in the stream.
    pub seq: u64,
    /// The completion queue that it belongs to or announces.
    pub chain: Option<u32>,
    /// What its key says.
    pub order: KeyOrder,
    /// Its fence.
    pub fence: Fence,
    /// What it was told to wait for.
    pub after: [Option<Horizon>; 2],
    /// Its keys.
    pub keys: [u32; 2],
    /// Memory domain.
    pub node: u8,
    /// The read whose bytes it stores.
    pub source: Option<TxnId>,
    /// The steps that it has: as `counts` says; else one for each range, two for an atomic in halves, one for a signal and
    /// for what is performed at once.
    pub steps: u16,
    /// How many ranges each step has, where one step can have several.
    pub counts: Cow<'a, [u16]>,
    /// Where.
    pub ranges: Cow<'a, [Range]>,
}

impl Issued<'_> {
    /// The name of the transaction, which is that of its first part.
    pub fn name(&self) -> Identity {
        Identity { stream: self.stream, control: self.kind == Kind::Control, seq: self.seq, part: 0 }
    }

    /// The ranges of a part.
    pub fn part(&self, part: u16) -> &[Range] {
        let part = usize::from(part);
        let (from, count) = match self.counts.get(part) {
            Some(count) => (self.counts[..part].iter().map(|count| usize::from(*count)).sum(), usize::from(*count)),
            None if usize::from(self.steps) == self.ranges.len() => (part, 1),
            // Halves of an atomic are the same bytes.
            None => (0, self.ranges.len()),
        };
        self.ranges.get(from..from + count).unwrap_or_default()
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A transaction was issued.
    Issue(Issued<'a>),
    /// A part was applied.
    Apply {
        /// When.
        tick: Tick,
        /// What.
        choice: Choice,
        /// Why then.
        why: Why,
    },
    /// A drain is over.
    Drain {
        /// When.
        tick: Tick,
        /// What it covered.
        scope: Scope,
    },
    /// Everything pending was forgotten.
    Discard {
        /// When.
        tick: Tick,
    },
}

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With its run.
    Complete,
    /// Where it reached its limit of bytes; the run went on.
    Limit,
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read.
    #[error("cannot read the log: {0}")]
    Io(#[from] io::Error),
    /// A pipe or a directory.
    #[error("not a regular file; an order log is read more than once")]
    NotAFile,
    /// The file is too large.
    #[error("the log has {bytes} bytes, more than {MOST_LOG}")]
    TooLarge {
        /// What it has.
        bytes: u64,
    },
    /// It is something else.
    #[error("not an order log of cx10")]
    NotALog,
    /// It was written by another version of the program.
    #[error("the log has format version {found}; this program reads version {VERSION}")]
    Version {
        /// Its version.
        found: u16,
    },
    /// Its header makes no sense.
    #[error("the log's header is damaged: {0}")]
    Header(String),
    /// It ends too early.
    #[error(
        "the log is cut off at byte {at}, after {events} events: its run goes on or was killed, or its disk was full"
    )]
    Truncated {
        /// Where.
        at: u64,
        /// What could be read.
        events: u64,
    },
    /// A checksum or an event is wrong.
    #[error("the log is damaged at byte {at}: {what}")]
    Damaged {
        /// Where the chunk begins.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// It was written with another device.
    #[error("the log belongs to another device configuration: {found}, not {expected}")]
    Device {
        /// That of the log.
        found: String,
        /// That of the run.
        expected: String,
    },
    /// Too much happened in the run.
    #[error("more than {most} overtakes; record a shorter run")]
    Overtakes {
        /// How many there may be.
        most: usize,
    },
}

/// Where a log is read from.
#[derive(Clone, Debug)]
enum Source {
    File(Arc<File>),
    Bytes(Arc<[u8]>),
}

/// The differences that numbers are written as.
#[derive(Clone, Debug, Default)]
struct Last {
    tick: Tick,
    id: u64,
    at: u64,
}

/// A log that was read from end to end and found whole.
#[derive(Clone, Debug)]
pub struct Log {
    /// With what it was made.
    pub settings: Settings,
    /// For which device.
    pub device: String,
    /// How it ends.
    pub ending: Ending,
    /// Events.
    pub count: u64,
    /// Parts applied, those of control reads excepted.
    pub parts: u64,
    source: Source,
}

impl Log {
    /// Opens a log. The file must stay as it is while the log is in use.
    pub fn open(path: &Path) -> Result<Log, LogError> {
        Log::whole(Source::File(Arc::new(open(path)?)))
    }

    /// Opens a copy of a log, so that the file can change.
    pub fn copy(path: &Path, to: &Path) -> Result<Log, LogError> {
        io::copy(&mut open(path)?.take(MOST_LOG), &mut File::create(to)?)?;
        Log::open(to)
    }

    /// A log in memory.
    pub fn read(bytes: &[u8]) -> Result<Log, LogError> {
        Log::whole(Source::Bytes(bytes.into()))
    }

    fn whole(source: Source) -> Result<Log, LogError> {
        let mut applications = Applications::new(Reader::new(source.clone())?);
        let mut parts = 0;
        for recorded in &mut applications {
            parts += u64::from(!recorded?.part.control);
        }
        let Reader { settings, device, events: count, ending, .. } = applications.into_reader();
        // The reader ends with an ending or an error.
        let ending = ending.unwrap_or(Ending::Complete);
        Ok(Log { settings, device, ending, count, parts, source })
    }

    /// Its events.
    pub fn events(&self) -> Result<Reader, LogError> {
        Reader::new(self.source.clone())
    }

    /// The applications in their order.
    pub fn applications(&self) -> Result<Applications, LogError> {
        Ok(Applications::new(self.events()?))
    }

    /// The transactions of these names, whose part is 0.
    pub fn find(&self, names: &BTreeSet<Identity>) -> Result<BTreeMap<Identity, Issued<'static>>, LogError> {
        let mut found = BTreeMap::new();
        for event in self.events()? {
            if found.len() == names.len() {
                break;
            }
            let Event::Issue(issued) = event? else { continue };
            let name = issued.name();
            if names.contains(&name) {
                found.entry(name).or_insert(issued);
            }
        }
        Ok(found)
    }

    /// Refuses a log of another device configuration.
    pub fn expect_device(&self, expected: &str) -> Result<(), LogError> {
        if self.device == expected {
            return Ok(());
        }
        Err(LogError::Device { found: self.device.clone(), expected: expected.to_owned() })
    }

    /// What a user must know of a log that is less than its run.
    pub fn warning(&self) -> Option<String> {
        (self.ending == Ending::Limit).then(|| {
            format!(
                "the log was cut at its limit of bytes, after {} events: the order of the rest of its run is not known",
                self.count
            )
        })
    }
}

/// Opens a file that can be a log.
fn open(path: &Path) -> Result<File, LogError> {
    // Opening a pipe that nobody writes to would wait.
    let facts = std::fs::metadata(path)?;
    if !facts.is_file() {
        return Err(LogError::NotAFile);
    }
    if facts.len() > MOST_LOG {
        return Err(LogError::TooLarge { bytes: facts.len() });
    }
    Ok(File::open(path)?)
}

#[cfg(test)]
mod tests;
