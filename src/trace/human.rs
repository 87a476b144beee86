//! The human form of a trace: one line an event, in the manner of strace.
//!
//! ```text
//! 0.001234 [3] CREATE_MKEY mkc.lr=1 mkc.relaxed_ordering_write=1 … = OK mkey_index=0x101
//! 0.001301 [2] CREATE_MKEY uid=0x1 mkc.lr=1 … = BAD_PARAM (syndrome 0x1f0001: relaxed_ordering_write must be 1)
//! ```
//!
//! Numbers up to 9 are decimal, others hex; fields that are zero are not written. An event of a kind that this program does
//! not know is printed with all its fields, so that a newer trace can be read as far as its header allows.

use super::FORMAT;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::time::Duration;

/// Longest line that is read; the longest that is written is far shorter.
const MAX_LINE: u64 = 16 << 20;

/// Fields shown of one direction of a command, unless all are wanted.
const MAX_FIELDS: usize = 32;

/// How often `--follow` looks for more.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);

/// What to show, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only commands with one of these names (case does not matter); all events if empty.
    pub opcodes: Vec<String>,
    /// Only events of these kinds (`command`, `key`, `irq`, …); all if empty.
    pub events: Vec<String>,
    /// Only what went wrong: failed commands, refused keys, DMA errors.
    pub failed: bool,
    /// Only commands of this user context.
    pub uid: Option<u64>,
    /// All fields of long structures.
    pub full: bool,
    /// Go on at the end of the file.
    pub follow: bool,
    /// Print a table of commands and outcomes instead of the events, like strace -c.
    pub count: bool,
}

/// Why a trace cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Reading failed.
    #[error("{0}")]
    Read(io::Error),
    /// Writing failed.
    #[error("output: {0}")]
    Write(io::Error),
    /// Not a trace at all.
    #[error("not a cx10 trace: {0}")]
    Foreign(String),
    /// A format of a later version.
    #[error("trace format {0} is newer than this program (which reads {FORMAT})")]
    Newer(u64),
    /// A line is not one of ours.
    #[error("line {0}: {1}")]
    Line(u64, String),
    /// The last line has no end: the writer was killed, or still writes.
    #[error("line {0} is cut off: the writer was interrupted, or is still at work (see --follow)")]
    Cut(u64),
}

/// How many events were read and shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events in the file.
    pub read: u64,
    /// Events printed.
    pub shown: u64,
}

/// Commands of one name.
#[derive(Default)]
struct Tally {
    calls: u64,
    failed: u64,
    /// How many commands ended with each way of failing.
    outcomes: BTreeMap<String, u64>,
}

/// Table of commands and outcomes.
#[derive(Default)]
struct Tallies(BTreeMap<String, Tally>);

impl Tallies {
    fn add(&mut self, event: &Map<String, Value>) {
        let kind = text(event, "ev");
        let name = match kind {
            "command" => text(event, "op").to_string(),
            "key" => format!("({} key {})", text(event, "kind"), text(event, "verdict")),
            _ => format!("({kind})"),
        };
        let tally = self.0.entry(name).or_default();
        tally.calls += 1;
        if is_failure(event) {
            tally.failed += 1;
            let outcome = match (kind, event.get("delivery_name").and_then(Value::as_str)) {
                ("command", Some(delivery)) => format!("delivery {delivery}"),
                ("command", None) => {
                    let syndrome = format!("{:#x}", number(event, "syndrome"));
                    let meaning = event.get("meaning").and_then(Value::as_str).unwrap_or(&syndrome);
                    format!("{}: {meaning}", text(event, "status"))
                }
                _ => text(event, "reason").to_string(),
            };
            *tally.outcomes.entry(outcome).or_default() += 1;
        }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{:>8} {:>8}  command", "calls", "failed")?;
        let mut rows: Vec<_> = self.0.iter().collect();
        rows.sort_by_key(|(name, tally)| (name.starts_with('('), std::cmp::Reverse(tally.calls)));
        for (name, tally) in rows {
            let failed = if tally.failed == 0 { String::new() } else { tally.failed.to_string() };
            put_line(out, &format!("{:>8} {failed:>8}  {name}", tally.calls))?;
            for (outcome, count) in &tally.outcomes {
                put_line(out, &format!("{:>8} {count:>8}    {outcome}", ""))?;
            }
        }
        Ok(())
    }
}

/// Prints a trace.
pub fn print(mut input: impl BufRead, mut out: impl Write, options: &Options) -> Result<Counts, TraceError> {
    let mut counts = Counts::default();
    let mut tallies = Tallies::default();
    let mut number = 0;
    let mut line = Vec::new();
    loop {
        let whole = read_line(&mut input, &mut line)?;
        if line.is_empty() || !whole {
            if options.follow {
                out.flush().map_err(TraceError::Write)?;
                std::thread::sleep(FOLLOW_EVERY);
                continue;
            }
            if line.is_empty() {
                break;
            }
        }
        number += 1;
        if line.len() as u64 >= MAX_LINE {
            return Err(if number == 1 {
                TraceError::Foreign("the first line does not end".into())
            } else {
                TraceError::Line(number, "longer than 16 MiB".into())
            });
        }
        let parsed = serde_json::from_slice::<Map<String, Value>>(&line);
        if number == 1 {
            let header = parsed.map_err(|_| TraceError::Foreign("the first line is not a header".into()))?;
            put_line(&mut out, &self::header(&header)?).map_err(TraceError::Write)?;
        } else {
            let event = match parsed {
                Ok(event) => event,
                Err(_) if !whole => return finish(out, Err(TraceError::Cut(number))),
                Err(error) => return finish(out, Err(TraceError::Line(number, error.to_string()))),
            };
            counts.read += 1;
            if options.wants(&event) {
                counts.shown += 1;
                if options.count {
                    tallies.add(&event);
                } else {
                    put_line(&mut out, &self::event(&event, options.full)).map_err(TraceError::Write)?;
                }
            }
        }
        line.clear();
    }
    if number == 0 {
        return Err(TraceError::Foreign("the file is empty".into()));
    }
    if options.count {
        tallies.print(&mut out).map_err(TraceError::Write)?;
    }
    finish(out, Ok(counts))
}

/// Writes a line. Control characters are written as escapes: a trace may come from anywhere, and what it holds must not
/// drive the reader's terminal.
fn put_line(out: &mut impl Write, line: &str) -> io::Result<()> {
    writeln!(out, "{}", harmless(line))
}

/// Text with its control characters as escapes.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

fn finish(mut out: impl Write, result: Result<Counts, TraceError>) -> Result<Counts, TraceError> {
    out.flush().map_err(TraceError::Write)?;
    result
}

/// Appends up to the end of the line. False if the line is not complete yet.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, TraceError> {
    let room = MAX_LINE.saturating_sub(line.len() as u64);
    input.take(room).read_until(b'\n', line).map_err(TraceError::Read)?;
    Ok(line.ends_with(b"\n") || line.len() as u64 >= MAX_LINE)
}

fn header(header: &Map<String, Value>) -> Result<String, TraceError> {
    let format = header.get("cx10_trace").and_then(Value::as_u64);
    let format = format.ok_or_else(|| TraceError::Foreign("the first line has no `cx10_trace`".into()))?;
    if format > FORMAT {
        return Err(TraceError::Newer(format));
    }
    Ok(format!("# cx10 {}, profile {}", text(header, "version"), text(header, "profile")))
}

fn text<'a>(map: &'a Map<String, Value>, name: &str) -> &'a str {
    map.get(name).and_then(Value::as_str).unwrap_or("?")
}

fn number(map: &Map<String, Value>, name: &str) -> u64 {
    map.get(name).and_then(Value::as_u64).unwrap_or(0)
}

impl Options {
    fn wants(&self, event: &Map<String, Value>) -> bool {
        let kind = text(event, "ev");
        if !self.events.is_empty() && !self.events.iter().any(|e| e.eq_ignore_ascii_case(kind)) {
            return false;
        }
        if !self.opcodes.is_empty() {
            let op = text(event, "op");
            if kind != "command" || !self.opcodes.iter().any(|o| o.eq_ignore_ascii_case(op)) {
                return false;
            }
        }
        if self.uid.is_some_and(|uid| event.get("uid").and_then(Value::as_u64) != Some(uid)) {
            return false;
        }
        !self.failed || is_failure(event)
    }
}

fn is_failure(event: &Map<String, Value>) -> bool {
    match text(event, "ev") {
        "command" => number(event, "status_code") != 0 || number(event, "delivery") != 0,
        "key" => text(event, "verdict") == "refused",
        "dma_error" => true,
        _ => false,
    }
}

/// One event in human form.
pub fn event(event: &Map<String, Value>, full: bool) -> String {
    let ns = number(event, "t");
    let mut line = format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000);
    match text(event, "ev") {
        "command" => command(&mut line, event, full),
        "key" => key(&mut line, event),
        kind => {
            line.push_str(&format!("     {kind}"));
            let rest = event.iter().filter(|(k, _)| !matches!(k.as_str(), "t" | "ev"));
            for (name, value) in rest {
                line.push_str(&format!(" {name}={}", show(value)));
            }
        }
    }
    line
}

fn command(line: &mut String, event: &Map<String, Value>, full: bool) {
    line.push_str(&format!(" [{}] {}", number(event, "slot"), text(event, "op")));
    for name in ["uid", "op_mod"] {
        if number(event, name) != 0 {
            line.push_str(&format!(" {name}={:#x}", number(event, name)));
        }
    }
    fields(line, event.get("in"), full);
    if number(event, "delivery") != 0 {
        line.push_str(&format!(" = DELIVERY ERROR {}", text(event, "delivery_name")));
    }
    if !event.contains_key("status") {
        return;
    }
    line.push_str(&format!(" = {}", text(event, "status")));
    if let Some(syndrome) = event.get("syndrome").and_then(Value::as_u64) {
        match event.get("meaning").and_then(Value::as_str) {
            Some(meaning) => line.push_str(&format!(" (syndrome {syndrome:#x}: {meaning})")),
            None => line.push_str(&format!(" (syndrome {syndrome:#x})")),
        }
    }
    fields(line, event.get("out"), full);
}

fn fields(line: &mut String, map: Option<&Value>, full: bool) {
    let Some(map) = map.and_then(Value::as_object) else { return };
    let shown = if full { map.len() } else { map.len().min(MAX_FIELDS) };
    for (name, value) in map.iter().take(shown) {
        line.push_str(&format!(" {name}={}", show(value)));
    }
    if shown < map.len() {
        line.push_str(&format!(" …+{}", map.len() - shown));
    }
}

fn key(line: &mut String, event: &Map<String, Value>) {
    let (kind, via, verdict) = (text(event, "kind"), text(event, "via"), text(event, "verdict"));
    line.push_str(&format!("     key {kind} by {via} {verdict}"));
    if verdict == "refused" {
        line.push_str(&format!(": {} ({}={}", text(event, "reason"), text(event, "field"), number(event, "value")));
        for name in ["access_mode", "uid", "pd", "start_addr", "length", "access", "flags"] {
            if let Some(value) = event.get(name).filter(|v| v.as_str() != Some("")) {
                line.push_str(&format!(" {name}={}", show(value)));
            }
        }
        line.push(')');
        let path = text(event, "driver_path");
        if !path.is_empty() && path != "?" {
            line.push_str(&format!(" likely {path}"));
        }
    } else {
        for (name, value) in
            event.iter().filter(|(k, _)| matches!(k.as_str(), "index" | "relaxed" | "relaxed_read" | "unordered"))
        {
            line.push_str(&format!(" {name}={}", show(value)));
        }
    }
}

/// A value: small numbers decimal, others hex; texts quoted where they would be misread.
fn show(value: &Value) -> String {
    match value {
        Value::Number(n) => match n.as_u64() {
            Some(n) if n > 9 => format!("{n:#x}"),
            _ => n.to_string(),
        },
        Value::Bool(b) => b.to_string(),
        Value::String(s) if !s.is_empty() && s.bytes().all(|b| b.is_ascii_graphic() && b != b'"') => s.clone(),
        Value::String(s) => format!("{s:?}"),
        Value::Object(map) if map.contains_key("bytes") => format!("<{} bytes>", number(map, "bytes")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"cx10_trace":1,"version":"0.1.0","profile":"connectx10-c2c","config":{}}"#;
    const OK: &str = r#"{"t":1234567,"ev":"command","slot":3,"token":9,"op":"CREATE_MKEY","opcode":512,"op_mod":0,"uid":0,"in_len":272,"in":{"mkc.lr":1,"mkc.len":4096},"out_len":16,"out":{"mkey_index":257},"status":"OK","status_code":0}"#;
    const BAD: &str = r#"{"t":2000001000,"ev":"command","slot":2,"token":9,"op":"CREATE_MKEY","opcode":512,"op_mod":0,"uid":1,"in_len":272,"in":{"mkc.lr":1},"out_len":16,"out":{},"status":"BAD_PARAM","status_code":3,"syndrome":16,"meaning":"relaxed_ordering_write must be 1"}"#;
    const IRQ: &str = r#"{"t":5,"ev":"irq","vector":12}"#;

    fn run(text: &str, options: &Options) -> (String, Result<Counts, TraceError>) {
        let mut out = Vec::new();
        let result = print(text.as_bytes(), &mut out, options);
        (String::from_utf8(out).unwrap(), result)
    }

    fn trace(lines: &[&str]) -> String {
        [&[HEADER], lines].concat().join("\n") + "\n"
    }

    #[test]
    fn a_command_reads_like_a_line_of_strace() {
        let (out, result) = run(&trace(&[OK, BAD]), &Options::default());
        assert_eq!(
            out.lines().collect::<Vec<_>>(),
            [
                "# cx10 0.1.0, profile connectx10-c2c",
                "0.001234 [3] CREATE_MKEY mkc.lr=1 mkc.len=0x1000 = OK mkey_index=0x101",
                "2.000001 [2] CREATE_MKEY uid=0x1 mkc.lr=1 = BAD_PARAM (syndrome 0x10: relaxed_ordering_write must be 1)",
            ]
        );
        assert_eq!(result.unwrap(), Counts { read: 2, shown: 2 });
    }

    #[test]
    fn filters_select_by_opcode_failure_user_and_kind() {
        let text = trace(&[OK, IRQ, BAD]);
        let shown = |options: Options| run(&text, &options).1.unwrap().shown;
        assert_eq!(shown(Options { failed: true, ..Options::default() }), 1);
        assert_eq!(shown(Options { opcodes: vec!["create_mkey".into()], ..Options::default() }), 2);
        assert_eq!(shown(Options { opcodes: vec!["CREATE_CQ".into()], ..Options::default() }), 0);
        assert_eq!(shown(Options { events: vec!["irq".into()], ..Options::default() }), 1);
        assert_eq!(shown(Options { uid: Some(1), ..Options::default() }), 1);
    }

    #[test]
    fn commands_are_counted_with_their_outcomes() {
        let (out, _) = run(&trace(&[OK, BAD, BAD, IRQ]), &Options { count: true, ..Options::default() });
        assert_eq!(
            out.lines().skip(1).collect::<Vec<_>>(),
            [
                "   calls   failed  command",
                "       3        2  CREATE_MKEY",
                "                2    BAD_PARAM: relaxed_ordering_write must be 1",
                "       1           (irq)",
            ]
        );
    }

    #[test]
    fn an_unknown_event_is_printed_with_its_fields() {
        let (out, _) = run(&trace(&[r#"{"t":0,"ev":"moon","phase":10,"who":"a b"}"#]), &Options::default());
        assert_eq!(out.lines().nth(1).unwrap(), r#"0.000000     moon phase=0xa who="a b""#);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let header = r#"{"cx10_trace":1,"version":"\u001b[2J","profile":"p\u009b"}"#;
        let moon = r#"{"t":0,"ev":"mo\non","a\u0007":1}"#;
        let bad = BAD.replace("CREATE_MKEY", "CREATE\\u001b").replace("must be 1", "\\r").replace("mkc.lr", "\\u0000");
        let text = [header, moon, &bad].join("\n");
        for count in [false, true] {
            let (out, result) = run(&text, &Options { count, ..Options::default() });
            assert_eq!(result.unwrap(), Counts { read: 2, shown: 2 });
            assert!(!out.chars().any(|c| c.is_control() && c != '\n'), "{out:?}");
        }
        let (out, _) = run(&text, &Options::default());
        assert_eq!(
            out.lines().collect::<Vec<_>>(),
            [
                r"# cx10 \u{1b}[2J, profile p\u{9b}",
                r"0.000000     mo\non a\u{7}=1",
                r"2.000001 [2] CREATE\u{1b} uid=0x1 \u{0}=1 = BAD_PARAM (syndrome 0x10: relaxed_ordering_write \r)",
            ]
        );
    }

    #[test]
    fn long_structures_are_cut_unless_all_is_wanted() {
        let many: Vec<_> = (0..100).map(|i| format!("\"f{i}\":1")).collect();
        let text = OK.replace(r#""mkc.lr":1,"mkc.len":4096"#, &many.join(","));
        assert!(run(&trace(&[&text]), &Options::default()).0.contains(" f31=1 …+68 = OK"));
        assert!(run(&trace(&[&text]), &Options { full: true, ..Options::default() }).0.contains(" f99=1 = OK"));
    }

    #[test]
    fn foreign_and_broken_files_are_refused_with_a_reason() {
        let error = |text: &str| run(text, &Options::default()).1.unwrap_err().to_string();
        assert_eq!(error(""), "not a cx10 trace: the file is empty");
        assert_eq!(error("\x7fELF\0\0"), "not a cx10 trace: the first line is not a header");
        assert_eq!(error("{\"a\":1}\n"), "not a cx10 trace: the first line has no `cx10_trace`");
        assert_eq!(error("{\"cx10_trace\":2}\n"), "trace format 2 is newer than this program (which reads 1)");
        assert!(error(&trace(&["[1]"])).starts_with("line 2: "));
        assert!(error(&(trace(&[OK]) + &OK[..80])).starts_with("line 3 is cut off"));
    }

    #[test]
    fn everything_before_a_cut_is_printed() {
        let (out, result) = run(&(trace(&[OK]) + &BAD[..50]), &Options::default());
        assert_eq!(out.lines().count(), 2);
        assert!(matches!(result, Err(TraceError::Cut(3))));
    }

    #[test]
    fn values_of_the_wrong_type_do_not_panic() {
        let odd = r#"{"t":-1,"ev":7,"op":[],"slot":"x","in":3,"status":null}"#;
        let command = r#"{"t":"x","ev":"command","op":[],"slot":-4,"in":[1],"out":"y","status":1.5,"syndrome":{}}"#;
        let key = r#"{"ev":"key","verdict":"refused","value":"x","field":3}"#;
        assert!(run(&trace(&[odd, command, key]), &Options::default()).1.is_ok());
    }
}
