//! The decision log: what was issued, what was applied and when, which drains there were.
//!
//! A file begins with [`MAGIC`], the format's version and a header in JSON (all settings and the device that was
//! configured), so that it can be understood without the run. Chunks follow, each with its length and checksum: numbers of
//! seven bits a byte, addresses and times as differences. A transaction costs some thirty bytes, an application some
//! five. The last chunk says that the log is complete; a run that was cut off leaves a file without it.
//!
//! Limits: [`MAX_CHUNK`]; a writer stops at its limit of bytes and says so in the log.

use std::borrow::Cow;
use std::io::{self, Read, Write};

use super::policy::Illegal;
use super::rules::{Omit, Rule};
use super::settings::Settings;
use super::{Choice, Fence, Horizon, Kind, MAX_PARTS, Range, Scope, Stream, Tick, TxnId};
use crate::dma::{Iova, KeyOrder};

/// Most bytes of a log, written or read; that is hours of traffic.
pub const MOST_LOG: u64 = 1 << 30;

/// The first bytes of a log.
pub const MAGIC: &[u8; 8] = b"CX10ORD\n";

/// The version of the format.
pub const VERSION: u16 = 1;

/// No chunk is larger.
pub const MAX_CHUNK: usize = 1 << 20;

/// A chunk is written when it has this many bytes.
const CHUNK: usize = 32 << 10;

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
    /// The steps that it has: one for each range; two for an atomic in halves, one for a signal.
    pub steps: u16,
    /// Where.
    pub ranges: Cow<'a, [Range]>,
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

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read.
    #[error("cannot read the log: {0}")]
    Io(#[from] io::Error),
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
    #[error("the log is cut off at byte {at}, after {events} events")]
    Truncated {
        /// Where.
        at: usize,
        /// What could be read.
        events: usize,
    },
    /// A checksum or an event is wrong.
    #[error("the log is damaged at byte {at}: {what}")]
    Damaged {
        /// Where the chunk begins.
        at: usize,
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
}

/// A log in memory.
#[derive(Clone, Debug)]
pub struct Log {
    /// With what it was made.
    pub settings: Settings,
    /// For which device.
    pub device: String,
    /// What happened.
    pub events: Vec<Event<'static>>,
    /// The run came to its end, and so did the log.
    pub complete: bool,
}

const ISSUE: u8 = 1;
const APPLY: u8 = 2;
const DRAIN: u8 = 3;
const DISCARD: u8 = 4;
const END: u8 = 5;
const FULL: u8 = 6;

/// The differences that numbers are written as.
#[derive(Clone, Debug, Default)]
struct Last {
    tick: Tick,
    id: u64,
    at: u64,
}

/// Writes a log.
pub struct Writer {
    out: Box<dyn Write + Send>,
    chunk: Vec<u8>,
    last: Last,
    written: u64,
    limit: u64,
    failed: bool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("written", &self.written).finish_non_exhaustive()
    }
}

impl Writer {
    /// Begins a log of at most `limit` bytes.
    pub fn new(mut out: Box<dyn Write + Send>, settings: &Settings, device: &str, limit: u64) -> io::Result<Writer> {
        let names = settings.names().into_iter().map(|(knob, value)| (knob.to_owned(), value.into()));
        let omitted: Vec<_> =
            Rule::ALL.iter().filter(|rule| settings.rules.omit.has(**rule)).map(|rule| rule.name()).collect();
        let header = serde_json::json!({
            "format": "cx10 order log",
            "device": device,
            "settings": names.collect::<serde_json::Map<_, _>>(),
            "illegal": settings.illegal.map(Illegal::name),
            "omit": omitted,
        });
        let header = header.to_string();
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_le_bytes());
        head.extend((header.len() as u32).to_le_bytes());
        head.extend(crc32fast::hash(header.as_bytes()).to_le_bytes());
        head.extend(header.as_bytes());
        out.write_all(&head)?;
        let written = head.len() as u64;
        Ok(Writer { out, chunk: Vec::with_capacity(CHUNK * 2), last: Last::default(), written, limit, failed: false })
    }

    /// Adds an event. A failure to write is logged once and ends the log.
    pub fn event(&mut self, event: &Event<'_>) {
        if self.failed {
            return;
        }
        encode(event, &mut self.chunk, &mut self.last);
        if self.chunk.len() >= CHUNK {
            if self.written + self.chunk.len() as u64 > self.limit {
                log::warn!(target: "cx10::order", "the order log reached its limit of {} bytes", self.limit);
                self.chunk.push(FULL);
                self.flush();
                self.failed = true;
            } else {
                self.flush();
            }
        }
    }

    /// Writes what is buffered, so that the file is complete up to here.
    pub fn flush(&mut self) {
        if self.failed || self.chunk.is_empty() {
            return;
        }
        let mut head = (self.chunk.len() as u32).to_le_bytes().to_vec();
        head.extend(crc32fast::hash(&self.chunk).to_le_bytes());
        let result = self.out.write_all(&head).and_then(|()| self.out.write_all(&self.chunk));
        self.written += (head.len() + self.chunk.len()) as u64;
        self.chunk.clear();
        if let Err(error) = result.and_then(|()| self.out.flush()) {
            log::error!(target: "cx10::order", "cannot write the order log: {error}");
            self.failed = true;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.failed {
            self.chunk.push(END);
            self.flush();
        }
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, (number << 1 ^ number >> 63) as u64);
}

fn put_stream(out: &mut Vec<u8>, stream: Stream) {
    let (tag, number) = match stream {
        Stream::Requester(number) => (0, number),
        Stream::Responder(number) => (1, number),
        Stream::Queue(number) => (2, number),
        Stream::Cq(number) => (3, number),
        Stream::Eq(number) => (4, number),
        Stream::Command => (5, 0),
    };
    out.push(tag);
    put(out, number.into());
}

fn put_tick(out: &mut Vec<u8>, last: &mut Last, tick: Tick) {
    put(out, tick.saturating_sub(last.tick));
    last.tick = last.tick.max(tick);
}

fn encode(event: &Event<'_>, out: &mut Vec<u8>, last: &mut Last) {
    match event {
        Event::Issue(issued) => {
            out.push(ISSUE);
            put_tick(out, last, issued.tick);
            put(out, issued.id.0.saturating_sub(last.id));
            last.id = issued.id.0;
            // Which of the rare fields follow.
            let [first, second] = issued.after;
            let flags = [
                issued.chain.is_some(),
                first.is_some(),
                second.is_some(),
                issued.keys != [0; 2],
                issued.node != 0,
                issued.source.is_some(),
                usize::from(issued.steps) != issued.ranges.len(),
            ];
            out.push(issued.kind as u8 | (issued.fence as u8) << 4);
            out.push(flags.iter().rev().fold(0, |set, flag| set << 1 | u8::from(*flag)));
            let KeyOrder { relaxed_write, relaxed_read, relaxed_read_after_write } = issued.order;
            out.push(u8::from(relaxed_write) | u8::from(relaxed_read) << 1 | u8::from(relaxed_read_after_write) << 2);
            put_stream(out, issued.stream);
            put(out, issued.seq);
            if let Some(chain) = issued.chain {
                put(out, chain.into());
            }
            for horizon in issued.after.iter().flatten() {
                put_stream(out, horizon.stream);
                put(out, horizon.seq);
            }
            if issued.keys != [0; 2] {
                put(out, issued.keys[0].into());
                put(out, issued.keys[1].into());
            }
            if issued.node != 0 {
                out.push(issued.node);
            }
            if let Some(source) = issued.source {
                put(out, issued.id.0.saturating_sub(source.0));
            }
            if usize::from(issued.steps) != issued.ranges.len() {
                put(out, issued.steps.into());
            }
            put(out, issued.ranges.len() as u64);
            for range in issued.ranges.iter() {
                put_signed(out, range.at.0.wrapping_sub(last.at) as i64);
                put(out, range.len.into());
                last.at = range.at.0.wrapping_add(range.len.into());
            }
        }
        Event::Apply { tick, choice, why } => {
            out.push(APPLY | (*why as u8) << 4);
            put_tick(out, last, *tick);
            put(out, last.id.saturating_sub(choice.txn.0));
            put(out, choice.part.into());
        }
        Event::Drain { tick, scope } => {
            out.push(DRAIN);
            put_tick(out, last, *tick);
            match *scope {
                Scope::All => out.push(0),
                Scope::Stream(stream) => {
                    out.push(1);
                    put_stream(out, stream);
                }
                Scope::Qp(number) => {
                    out.push(2);
                    put(out, number.into());
                }
                Scope::Cq(number) => {
                    out.push(3);
                    put(out, number.into());
                }
                Scope::Eq(number) => {
                    out.push(4);
                    put(out, number.into());
                }
                Scope::Key(index) => {
                    out.push(5);
                    put(out, index.into());
                }
                Scope::Range(at, len) => {
                    out.push(6);
                    put(out, at.0);
                    put(out, len);
                }
            }
        }
        Event::Discard { tick } => {
            out.push(DISCARD);
            put_tick(out, last, *tick);
        }
    }
}

/// Bytes of a chunk that are not yet read; `None` anywhere means damage.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn word(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    fn stream(&mut self) -> Option<Stream> {
        let tag = self.byte()?;
        let number = self.word()?;
        Some(match tag {
            0 => Stream::Requester(number),
            1 => Stream::Responder(number),
            2 => Stream::Queue(number),
            3 => Stream::Cq(number),
            4 => Stream::Eq(number),
            5 if number == 0 => Stream::Command,
            _ => return None,
        })
    }

    fn horizon(&mut self) -> Option<Horizon> {
        Some(Horizon { stream: self.stream()?, seq: self.number()? })
    }

    fn tick(&mut self, last: &mut Last) -> Option<Tick> {
        last.tick = last.tick.checked_add(self.number()?)?;
        Some(last.tick)
    }
}

enum Decoded {
    Event(Event<'static>),
    End,
    Full,
}

fn decode(bytes: &mut Bytes<'_>, last: &mut Last) -> Option<Decoded> {
    let tag = bytes.byte()?;
    let event = match tag & 0xf {
        ISSUE if tag == ISSUE => Event::Issue(decode_issue(bytes, last)?),
        APPLY => {
            let why = *Why::ALL.get(usize::from(tag >> 4))?;
            let tick = bytes.tick(last)?;
            let txn = TxnId(last.id.checked_sub(bytes.number()?)?);
            Event::Apply { tick, choice: Choice { txn, part: u16::try_from(bytes.number()?).ok()? }, why }
        }
        DRAIN if tag == DRAIN => {
            let tick = bytes.tick(last)?;
            let scope = match bytes.byte()? {
                0 => Scope::All,
                1 => Scope::Stream(bytes.stream()?),
                2 => Scope::Qp(bytes.word()?),
                3 => Scope::Cq(bytes.word()?),
                4 => Scope::Eq(bytes.word()?),
                5 => Scope::Key(bytes.word()?),
                6 => Scope::Range(Iova(bytes.number()?), bytes.number()?),
                _ => return None,
            };
            Event::Drain { tick, scope }
        }
        DISCARD if tag == DISCARD => Event::Discard { tick: bytes.tick(last)? },
        END if tag == END => return Some(Decoded::End),
        FULL if tag == FULL => return Some(Decoded::Full),
        _ => return None,
    };
    Some(Decoded::Event(event))
}

fn decode_issue(bytes: &mut Bytes<'_>, last: &mut Last) -> Option<Issued<'static>> {
    let tick = bytes.tick(last)?;
    let id = last.id.checked_add(bytes.number()?)?;
    last.id = id;
    let what = bytes.byte()?;
    let kind = *Kind::ALL.get(usize::from(what & 0xf))?;
    let fence = *[Fence::None, Fence::Local, Fence::Read, Fence::Strong].get(usize::from(what >> 4))?;
    let flags = bytes.byte()?;
    let flag = |bit: u8| flags & 1 << bit != 0;
    let order = bytes.byte()?;
    let order = KeyOrder {
        relaxed_write: order & 1 != 0,
        relaxed_read: order & 2 != 0,
        relaxed_read_after_write: order & 4 != 0,
    };
    let stream = bytes.stream()?;
    let seq = bytes.number()?;
    let chain = if flag(0) { Some(bytes.word()?) } else { None };
    let first = if flag(1) { Some(bytes.horizon()?) } else { None };
    let second = if flag(2) { Some(bytes.horizon()?) } else { None };
    let keys = if flag(3) { [bytes.word()?, bytes.word()?] } else { [0; 2] };
    let node = if flag(4) { bytes.byte()? } else { 0 };
    let source = if flag(5) { Some(TxnId(id.checked_sub(bytes.number()?)?)) } else { None };
    let steps = if flag(6) { Some(u16::try_from(bytes.number()?).ok()?) } else { None };
    let count = usize::try_from(bytes.number()?).ok().filter(|count| *count <= MAX_PARTS)?;
    let mut ranges = Vec::with_capacity(count.min(64));
    for _ in 0..count {
        let at = last.at.wrapping_add(bytes.signed()? as u64);
        let len = bytes.word()?;
        last.at = at.wrapping_add(len.into());
        ranges.push(Range { at: Iova(at), len });
    }
    let steps = steps.unwrap_or(count as u16);
    let after = [first, second];
    let ranges = Cow::Owned(ranges);
    Some(Issued {
        tick,
        id: TxnId(id),
        kind,
        stream,
        seq,
        chain,
        order,
        fence,
        after,
        keys,
        node,
        source,
        steps,
        ranges,
    })
}

impl Log {
    /// Reads a log from a file.
    pub fn open(path: &std::path::Path) -> Result<Log, LogError> {
        let mut bytes = Vec::new();
        if std::fs::File::open(path)?.take(MOST_LOG + 1).read_to_end(&mut bytes)? as u64 > MOST_LOG {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has more than {MOST_LOG} bytes")).into());
        }
        Log::read(&bytes)
    }

    /// Reads a log that must be complete.
    pub fn read(bytes: &[u8]) -> Result<Log, LogError> {
        let (log, at) = Log::read_prefix(bytes)?;
        if log.complete { Ok(log) } else { Err(LogError::Truncated { at, events: log.events.len() }) }
    }

    /// Reads a log that may be cut off: whole chunks of a run that did not come to its end. Answers also where it ends.
    pub fn read_prefix(bytes: &[u8]) -> Result<(Log, usize), LogError> {
        let (mut log, mut at) = Log::header(bytes)?;
        let mut last = Last::default();
        while !log.complete {
            let Some(head) = bytes.get(at..at + 8) else { break };
            let word = |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
            let damaged = |what| LogError::Damaged { at, what };
            let len = word(0) as usize;
            if len > MAX_CHUNK {
                return Err(damaged("a chunk is too long"));
            }
            let Some(chunk) = bytes.get(at + 8..at + 8 + len) else { break };
            if crc32fast::hash(chunk) != word(4) {
                return Err(damaged("a checksum is wrong"));
            }
            let mut rest = Bytes(chunk);
            while !rest.0.is_empty() && !log.complete {
                match decode(&mut rest, &mut last).ok_or_else(|| damaged("an event makes no sense"))? {
                    Decoded::Event(event) => log.events.push(event),
                    Decoded::End | Decoded::Full => log.complete = true,
                }
            }
            at += 8 + len;
        }
        if log.complete && at != bytes.len() {
            return Err(LogError::Damaged { at, what: "something follows its end" });
        }
        Ok((log, at))
    }

    fn header(bytes: &[u8]) -> Result<(Log, usize), LogError> {
        let magic = bytes.get(..MAGIC.len()).unwrap_or(bytes);
        if !MAGIC.starts_with(magic) || magic.is_empty() {
            return Err(LogError::NotALog);
        }
        let Some(head) = bytes.get(..18) else {
            return Err(LogError::Truncated { at: bytes.len(), events: 0 });
        };
        let found = u16::from_le_bytes([head[8], head[9]]);
        if found != VERSION {
            return Err(LogError::Version { found });
        }
        let len = u32::from_le_bytes([head[10], head[11], head[12], head[13]]) as usize;
        if len > MAX_CHUNK {
            return Err(LogError::Header("it is too long".to_owned()));
        }
        let Some(text) = bytes.get(18..18 + len) else {
            return Err(LogError::Truncated { at: bytes.len(), events: 0 });
        };
        if crc32fast::hash(text) != u32::from_le_bytes([head[14], head[15], head[16], head[17]]) {
            return Err(LogError::Header("its checksum is wrong".to_owned()));
        }
        let (settings, device) = parse_header(text).map_err(LogError::Header)?;
        Ok((Log { settings, device, events: Vec::new(), complete: false }, 18 + len))
    }

    /// Refuses a log of another device configuration.
    pub fn expect_device(&self, expected: &str) -> Result<(), LogError> {
        if self.device == expected {
            return Ok(());
        }
        Err(LogError::Device { found: self.device.clone(), expected: expected.to_owned() })
    }
}

fn parse_header(text: &[u8]) -> Result<(Settings, String), String> {
    let header: serde_json::Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let device = header["device"].as_str().ok_or("no device")?.to_owned();
    let names = header["settings"].as_object().ok_or("no settings")?;
    let names: Option<Vec<_>> = names.iter().map(|(knob, value)| Some((knob.as_str(), value.as_str()?))).collect();
    let mut settings = Settings::from_names(names.ok_or("a setting is no text")?).map_err(|error| error.to_string())?;
    if let Some(illegal) = header["illegal"].as_str() {
        settings.illegal = Some(Illegal::parse(illegal).map_err(|error| error.to_string())?);
    }
    for name in header["omit"].as_array().into_iter().flatten() {
        let rule = Rule::parse(name.as_str().unwrap_or("")).map_err(|error| error.to_string())?;
        settings.rules.omit = settings.rules.omit.union(Omit::NOTHING.and(rule));
    }
    Ok((settings, device))
}

#[cfg(test)]
mod tests;
