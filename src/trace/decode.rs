//! Commands as trace lines: names and fields by the PRM layouts.
//!
//! Fields that are zero are left out, the header fields have places of their own. Two commands carry another structure inside:
//! QUERY_HCA_CAP and SET_HCA_CAP a capability area, ACCESS_REG a register; both are decoded by their own layouts.

use super::{CommandRecord, Options, SyndromeText, line, put, tables};
use crate::prm::{Layout, Value as Prm};
use serde_json::{Map, Value};

const QUERY_HCA_CAP: u16 = 0x100;
const SET_HCA_CAP: u16 = 0x109;
const ACCESS_REG: u16 = 0x805;

/// Where the inner structure of QUERY_HCA_CAP, SET_HCA_CAP and ACCESS_REG starts, in input and output alike.
const INNER: usize = 0x10;

/// Byte arrays up to this length are written in full.
const SHORT_BYTES: usize = 16;

/// Bytes shown of data that has no layout.
const RAW_BYTES: usize = 64;

/// Fields with places of their own in the line.
const HEADER: [&str; 5] = ["opcode", "uid", "op_mod", "status", "syndrome"];

fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

/// The line of one command.
pub fn command(record: &CommandRecord<'_>, options: Options, meaning: SyndromeText) -> Map<String, Value> {
    let (input, output) = (record.input, record.output);
    let opcode = be16(input, 0);
    let op_mod = be16(input, 6);
    let layouts = tables::layouts(opcode, op_mod);
    let mut map = line(record.time_ns, "command");
    put(&mut map, "slot", record.slot);
    put(&mut map, "token", record.token);
    put(&mut map, "op", tables::opcode_name(opcode).map_or_else(|| format!("OPCODE_{opcode:#05x}"), str::to_string));
    put(&mut map, "opcode", opcode);
    put(&mut map, "op_mod", op_mod);
    put(&mut map, "uid", be16(input, 2));
    put(&mut map, "in_len", input.len());
    put(&mut map, "in", fields(opcode, op_mod, input, layouts.map(|l| l.0), input, options));
    if record.delivery != 0 {
        put(&mut map, "delivery", record.delivery);
        let name = tables::delivery_name(record.delivery);
        put(&mut map, "delivery_name", name.map_or_else(|| format!("{:#x}", record.delivery), str::to_string));
        // The command may have run all the same: then its output could not be written.
        if output.is_empty() {
            return map;
        }
    }
    put(&mut map, "out_len", output.len());
    put(&mut map, "out", fields(opcode, op_mod, output, layouts.map(|l| l.1), input, options));
    let status = output.first().copied().unwrap_or(0);
    put(&mut map, "status", tables::status_name(status).map_or_else(|| format!("STATUS_{status:#x}"), str::to_string));
    put(&mut map, "status_code", status);
    let syndrome = be32(output, 4);
    if status != 0 || syndrome != 0 {
        put(&mut map, "syndrome", syndrome);
        if let Some(text) = meaning(syndrome) {
            put(&mut map, "meaning", text);
        }
    }
    map
}

/// Decoded fields of one direction.
fn fields(
    opcode: u16,
    op_mod: u16,
    bytes: &[u8],
    layout: Option<&'static Layout>,
    input: &[u8],
    options: Options,
) -> Map<String, Value> {
    let mut map = Map::new();
    let inner = match opcode {
        QUERY_HCA_CAP | SET_HCA_CAP => {
            tables::cap_layout(op_mod >> 1).map(|(name, layout)| (format!("caps.{name}"), Some(layout)))
        }
        ACCESS_REG => Some(tables::register(be16(input, 0xa))),
        _ => None,
    };
    let head = match inner {
        Some(_) => &bytes[..bytes.len().min(INNER)],
        None => bytes,
    };
    match layout {
        Some(layout) => add(&mut map, "", layout, head, options),
        None => {
            if let Some(rest) = head.get(8..) {
                raw(&mut map, "raw", rest, options);
            }
        }
    }
    let (Some((name, layout)), Some(area)) = (inner, bytes.get(INNER..)) else { return map };
    let Some(layout) = layout else {
        raw(&mut map, &name, area, options);
        return map;
    };
    add(&mut map, &name, layout, area, options);
    // A register longer than its layout: the rest is not lost.
    if let Some(rest) = area.get(layout.bytes()..).filter(|_| !layout.has_tail()) {
        raw(&mut map, &format!("{name}.rest"), rest, options);
    }
    map
}

fn add(map: &mut Map<String, Value>, prefix: &str, layout: &Layout, bytes: &[u8], options: Options) {
    let name = |path: &str| match prefix {
        "" => short(path).to_string(),
        _ => format!("{prefix}.{path}"),
    };
    layout.walk(bytes, |path, value| {
        if value.is_zero() || (prefix.is_empty() && HEADER.contains(&path)) {
            return;
        }
        match value {
            Prm::Number(n) => put(map, &name(path), n),
            Prm::Bytes(b) => raw(map, &name(path), b, options),
        }
    });
}

/// `memory_key_mkey_entry.free` → `mkc.free`: the driver's short name for the one structure that is looked at most.
fn short(path: &str) -> std::borrow::Cow<'_, str> {
    match path.strip_prefix("memory_key_mkey_entry.") {
        Some(rest) => format!("mkc.{rest}").into(),
        None => path.into(),
    }
}

/// Bytes: a text if they are one, hex if they are short or everything is wanted, else their number and the first of them.
fn raw(map: &mut Map<String, Value>, name: &str, bytes: &[u8], options: Options) {
    if bytes.iter().all(|b| *b == 0) {
        return;
    }
    if let Some(text) = as_text(bytes) {
        put(map, name, text);
    } else if bytes.len() <= SHORT_BYTES || options.full {
        put(map, name, hex(bytes));
    } else {
        let mut summary = Map::new();
        put(&mut summary, "bytes", bytes.len());
        put(&mut summary, "head", hex(&bytes[..bytes.len().min(RAW_BYTES)]));
        put(map, name, summary);
    }
}

/// Printable text of at least four characters, padded with zeros.
fn as_text(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().rposition(|b| *b != 0)? + 1;
    let text = &bytes[..end];
    (end >= 4 && text.iter().all(|b| (b' '..=b'~').contains(b))).then(|| std::str::from_utf8(text).ok())?
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}
