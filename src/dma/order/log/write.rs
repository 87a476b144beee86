//! Writes an order log.

use std::io::{self, Write};

use super::super::policy::Illegal;
use super::super::rules::Rule;
use super::super::settings::Settings;
use super::super::{Scope, Stream, Tick};
use super::{APPLY, DISCARD, DRAIN, END, Event, FULL, ISSUE, Last, MAGIC, VERSION};
use crate::dma::KeyOrder;

/// A chunk is written when it has this many bytes.
const CHUNK: usize = 32 << 10;

/// Bytes before those of a chunk: length and checksum.
const HEAD: u64 = 8;

/// Bytes of the chunk that ends a log.
const LAST: u64 = HEAD + 1;

/// Writes a log.
pub struct Writer {
    out: Box<dyn Write + Send>,
    chunk: Vec<u8>,
    last: Last,
    written: u64,
    limit: u64,
    cut: Option<String>,
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
        Ok(Writer { out, chunk: Vec::with_capacity(CHUNK * 2), last: Last::default(), written, limit, cut: None })
    }

    /// Adds an event. A failure to write is logged once and ends the log.
    pub fn event(&mut self, event: &Event<'_>) {
        if self.cut.is_some() {
            return;
        }
        encode(event, &mut self.chunk, &mut self.last);
        if self.chunk.len() >= CHUNK {
            self.flush();
        }
    }

    /// Writes what is buffered, so that the file has all up to here.
    pub fn flush(&mut self) {
        if self.cut.is_some() || self.chunk.is_empty() {
            return;
        }
        if self.written + HEAD + self.chunk.len() as u64 + LAST <= self.limit {
            return self.write();
        }
        self.chunk.clear();
        self.end(FULL);
        self.give_up(format!("it reached its limit of {} bytes", self.limit));
    }

    /// Why the log ends before its run does.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    fn give_up(&mut self, why: String) {
        if self.cut.is_none() {
            log::warn!(target: "cx10::order", "the order log ends here: {why}");
            self.cut = Some(why);
        }
    }

    fn end(&mut self, ending: u8) {
        self.chunk.push(ending);
        self.write();
    }

    fn write(&mut self) {
        let mut head = (self.chunk.len() as u32).to_le_bytes().to_vec();
        head.extend(crc32fast::hash(&self.chunk).to_le_bytes());
        let result = self.out.write_all(&head).and_then(|()| self.out.write_all(&self.chunk));
        self.written += HEAD + self.chunk.len() as u64;
        self.chunk.clear();
        if let Err(error) = result.and_then(|()| self.out.flush()) {
            self.give_up(format!("it cannot be written: {error}"));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.flush();
        if self.cut.is_none() {
            self.end(END);
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
                issued.counts.iter().any(|count| *count != 1),
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
            if issued.counts.iter().any(|count| *count != 1) {
                issued.counts.iter().for_each(|count| put(out, (*count).into()));
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
