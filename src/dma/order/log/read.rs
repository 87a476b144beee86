//! Reads an order log, chunk by chunk.

use std::borrow::Cow;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use super::super::policy::Illegal;
use super::super::rules::{Omit, Rule};
use super::super::settings::Settings;
use super::super::{Choice, Fence, Horizon, Kind, MAX_PARTS, Range, Scope, Stream, Tick, TxnId};
use super::{
    APPLY, DISCARD, DRAIN, END, Ending, Event, FULL, ISSUE, Issued, Last, LogError, MAGIC, MAX_CHUNK, MAX_HEADER,
    Source, VERSION, Why,
};
use crate::dma::{Iova, KeyOrder};

/// Longest name of a device.
const MAX_DEVICE: usize = 256;

/// A log on the way through it.
#[derive(Clone, Debug)]
struct Input {
    source: Source,
    at: u64,
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = match &self.source {
            Source::File(file) => file.read_at(buf, self.at)?,
            Source::Bytes(bytes) => {
                let rest = usize::try_from(self.at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                let count = rest.len().min(buf.len());
                buf[..count].copy_from_slice(&rest[..count]);
                count
            }
        };
        self.at += count as u64;
        Ok(count)
    }
}

/// Reads the events of a log. After an error there are no more.
#[derive(Clone, Debug)]
pub struct Reader {
    /// With what it was made.
    pub settings: Settings,
    /// For which device.
    pub device: String,
    /// Events so far.
    pub events: u64,
    /// How the log ends, when its end was read.
    pub ending: Option<Ending>,
    input: Input,
    chunk: Vec<u8>,
    /// Where the chunk begins in the file, and how much of it was read.
    begins: u64,
    used: usize,
    last: Last,
    failed: bool,
}

impl Reader {
    /// Reads the header.
    pub(super) fn new(source: Source) -> Result<Reader, LogError> {
        let mut input = Input { source, at: 0 };
        let head = bytes(&mut input, MAGIC.len() + 10)?;
        let magic = &head[..head.len().min(MAGIC.len())];
        if !MAGIC.starts_with(magic) || magic.is_empty() {
            return Err(LogError::NotALog);
        }
        let Ok::<[u8; 18], _>(head) = head.try_into() else {
            return Err(LogError::Truncated { at: input.at, events: 0 });
        };
        let found = u16::from_le_bytes([head[8], head[9]]);
        if found != VERSION {
            return Err(LogError::Version { found });
        }
        let len = u32::from_le_bytes([head[10], head[11], head[12], head[13]]) as usize;
        if len > MAX_HEADER {
            return Err(LogError::Header("it is too long".to_owned()));
        }
        let text = bytes(&mut input, len)?;
        if text.len() < len {
            return Err(LogError::Truncated { at: input.at, events: 0 });
        }
        if crc32fast::hash(&text) != u32::from_le_bytes([head[14], head[15], head[16], head[17]]) {
            return Err(LogError::Header("its checksum is wrong".to_owned()));
        }
        let (settings, device) = parse_header(&text).map_err(LogError::Header)?;
        let (chunk, begins, used, last) = (Vec::new(), input.at, 0, Last::default());
        Ok(Reader { settings, device, events: 0, ending: None, input, chunk, begins, used, last, failed: false })
    }

    /// The error that something in the chunk at hand is wrong.
    pub(in crate::dma::order) fn damaged(&self, what: &'static str) -> LogError {
        LogError::Damaged { at: self.begins, what }
    }

    fn step(&mut self) -> Result<Option<Event<'static>>, LogError> {
        while self.used == self.chunk.len() {
            self.next_chunk()?;
        }
        let mut rest = Bytes(&self.chunk[self.used..]);
        let decoded = decode(&mut rest, &mut self.last);
        self.used = self.chunk.len() - rest.0.len();
        let ending = match decoded.ok_or_else(|| self.damaged("an event makes no sense"))? {
            Decoded::Event(event) => {
                self.events += 1;
                return Ok(Some(event));
            }
            Decoded::End => Ending::Complete,
            Decoded::Full => Ending::Limit,
        };
        if self.used < self.chunk.len() || !bytes(&mut self.input, 1)?.is_empty() {
            return Err(self.damaged("something follows its end"));
        }
        self.ending = Some(ending);
        Ok(None)
    }

    fn next_chunk(&mut self) -> Result<(), LogError> {
        let truncated = LogError::Truncated { at: self.input.at, events: self.events };
        self.begins = self.input.at;
        let Ok::<[u8; 8], _>(head) = bytes(&mut self.input, 8)?.try_into() else { return Err(truncated) };
        let word = |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
        let len = word(0) as usize;
        if len > MAX_CHUNK {
            return Err(self.damaged("a chunk is too long"));
        }
        self.chunk.clear();
        self.used = 0;
        (&mut self.input).take(len as u64).read_to_end(&mut self.chunk)?;
        if self.chunk.len() < len {
            return Err(truncated);
        }
        if crc32fast::hash(&self.chunk) != word(4) {
            return Err(self.damaged("a checksum is wrong"));
        }
        Ok(())
    }
}

impl Iterator for Reader {
    type Item = Result<Event<'static>, LogError>;

    fn next(&mut self) -> Option<Result<Event<'static>, LogError>> {
        if self.failed || self.ending.is_some() {
            return None;
        }
        let result = self.step();
        self.failed = result.is_err();
        result.transpose()
    }
}

/// So many bytes, or what is left.
fn bytes(input: &mut Input, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
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
    let mut counts = Vec::new();
    if flag(7) {
        let mut left = count;
        for _ in 0..steps {
            let count = usize::try_from(bytes.number()?).ok()?;
            left = left.checked_sub(count)?;
            counts.push(count as u16);
        }
        if left > 0 {
            return None;
        }
    }
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
        counts: Cow::Owned(counts),
        ranges,
    })
}

fn parse_header(text: &[u8]) -> Result<(Settings, String), String> {
    let header: serde_json::Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let device = header["device"].as_str().ok_or("no device")?.to_owned();
    if device.len() > MAX_DEVICE || device.chars().any(char::is_control) {
        return Err("its device has no name".to_owned());
    }
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
