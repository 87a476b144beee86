//! Keys over device time: bars above a row's line are keys that were granted, bars below are refused ones.
//!
//! Each guest's device has a time of its own, so guests stand side by side. Keys of one moment share a bar, which keeps
//! thousands readable; the list below the picture has them all, alike ones of a try in one line.

use super::super::keys::Key;
use super::super::result::{Kernel, Row};
use super::{anchor, cut, escape};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a key is in the picture, in the order of stacking.
const CLASSES: [&str; 4] = ["relaxed", "unordered", "strong", "refused"];
const REFUSED: usize = 3;

const WIDTH: f64 = 1180.0;
const LABELS: f64 = 270.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 22.0;
const LANE: f64 = 36.0;
const BOTTOM: f64 = 20.0;
/// Line of a lane, from its top, and the room above and below it.
const LINE: f64 = 23.0;
const UP: f64 = 20.0;
const DOWN: f64 = 11.0;
/// A bar and the space behind it.
const BAR: f64 = 8.0;
/// Height of a key where few are made at once.
const ONE_KEY: f64 = 6.0;
/// Keys named in the text of a bar.
const MOST_NAMED: usize = 8;
/// Later than any device's clock, which counts nanoseconds in 64 bits.
const MOST_TIME: f64 = 2e10;

/// A key and where it comes from.
struct Asked<'a> {
    lane: usize,
    column: &'a str,
    key: &'a Key,
    time: f64,
}

impl Asked<'_> {
    fn class(&self) -> usize {
        let name = if self.key.verdict == "refused" { "refused" } else { self.key.ordering() };
        CLASSES.iter().position(|class| *class == name).unwrap_or(REFUSED)
    }
}

/// A guest's place in the picture.
struct Guest {
    from: f64,
    to: f64,
    x: f64,
    width: f64,
}

impl Guest {
    /// A moment's bar, counted from the left.
    fn bar(&self, time: f64) -> u32 {
        let bars = (self.width / BAR).floor().max(1.0);
        let at = (time - self.from) / (self.to - self.from).max(1e-6) * bars;
        at.min(bars - 1.0).max(0.0) as u32
    }
}

/// The timeline of a part of the walk.
pub(super) fn timeline(number: usize, kernel: &Kernel, rows: &[&Row], out: &mut String) {
    let rows: Vec<&Row> =
        rows.iter().copied().filter(|row| row.cells.iter().any(|cell| !cell.keys.is_empty())).collect();
    let mut asked = Vec::new();
    for (lane, row) in rows.iter().enumerate() {
        for cell in &row.cells {
            let time = |key: &Key| if key.time.is_finite() { key.time.clamp(0.0, MOST_TIME) } else { 0.0 };
            asked.extend(cell.keys.iter().map(|key| Asked { lane, column: &cell.column, key, time: time(key) }));
        }
    }
    if asked.is_empty() {
        return;
    }
    asked.sort_by(|a, b| a.key.guest.cmp(&b.key.guest).then(a.time.total_cmp(&b.time)));
    let guests = guests(&asked);
    let _ = write!(out, "<h4>Keys over device time</h4>\n<ul class=\"legend soft\"><li>{}:</li>", count(asked.len()));
    for (at, class) in CLASSES.iter().enumerate() {
        let keys = asked.iter().filter(|asked| asked.class() == at).count();
        let _ = write!(out, "<li><span class=\"swatch {class}\"></span>{keys} {class}</li>");
    }
    out.push_str("<li>granted above the line, refused below it</li></ul>\n");
    picture(number, &rows, &asked, &guests, out);
    if guests.len() > 1 || kernel.guests.len() > 1 {
        settings(kernel, &guests, out);
    }
    list(number, &rows, &asked, out);
}

fn count(keys: usize) -> String {
    if keys == 1 { "1 key".to_owned() } else { format!("{keys} keys") }
}

/// Places for the guests: as wide as they are long, but none too narrow to be seen.
fn guests(asked: &[Asked<'_>]) -> BTreeMap<u32, Guest> {
    let mut guests: BTreeMap<u32, Guest> = BTreeMap::new();
    for Asked { key, time, .. } in asked {
        let guest = guests.entry(key.guest).or_insert(Guest { from: *time, to: *time, x: 0.0, width: 0.0 });
        (guest.from, guest.to) = (guest.from.min(*time), guest.to.max(*time));
    }
    let number = guests.len() as f64;
    let space = WIDTH - LABELS - RIGHT;
    let gap = (space / number / 4.0).min(8.0);
    let least = (space / number / 2.0).min(60.0);
    let free = space - gap * (number - 1.0) - least * number;
    let total: f64 = guests.values().map(|guest| guest.to - guest.from).sum();
    let mut x = LABELS;
    for guest in guests.values_mut() {
        let share = if total > 0.0 { (guest.to - guest.from) / total } else { 1.0 / number };
        (guest.x, guest.width) = (x, least + free * share);
        x += guest.width + gap;
    }
    guests
}

fn picture(number: usize, rows: &[&Row], asked: &[Asked<'_>], guests: &BTreeMap<u32, Guest>, out: &mut String) {
    let bottom = TOP + LANE * rows.len() as f64;
    let _ = writeln!(
        out,
        "<div class=\"scroll timeline\" tabindex=\"0\"><svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{} over device time\">",
        bottom + BOTTOM,
        count(asked.len())
    );
    for (guest, place) in guests {
        axis(*guest, place, guests.len() > 1, bottom, out);
    }
    let end = WIDTH - RIGHT;
    for (lane, row) in rows.iter().enumerate() {
        let y = TOP + LANE * lane as f64 + LINE;
        let _ = writeln!(
            out,
            "<line class=\"axis\" x1=\"{LABELS}\" y1=\"{y:.1}\" x2=\"{end}\" y2=\"{y:.1}\"/><a href=\"#{}\"><text x=\"8\" y=\"{y:.1}\">{}</text></a>",
            anchor(number, &row.id),
            escape(&cut(&row.title, 42))
        );
    }
    let mut bars: BTreeMap<(usize, u32, u32), Vec<&Asked<'_>>> = BTreeMap::new();
    for one in asked {
        let bar = guests.get(&one.key.guest).map_or(0, |guest| guest.bar(one.time));
        bars.entry((one.lane, one.key.guest, bar)).or_default().push(one);
    }
    let refused = |keys: &[&Asked<'_>]| keys.iter().filter(|one| one.class() == REFUSED).count();
    let most_down = bars.values().map(|keys| refused(keys)).max().unwrap_or_default();
    let most_up = bars.values().map(|keys| keys.len() - refused(keys)).max().unwrap_or_default();
    let (up, down) = ((UP / most_up.max(1) as f64).min(ONE_KEY), (DOWN / most_down.max(1) as f64).min(ONE_KEY));
    for ((lane, guest, bar), keys) in &bars {
        let x = guests.get(guest).map_or(LABELS, |place| place.x) + f64::from(*bar) * BAR;
        let y = TOP + LANE * *lane as f64 + LINE;
        stack(x, y, (up, down), keys, &rows[*lane].title, out);
    }
    out.push_str("</svg></div>\n");
}

/// A guest's ground, name and times.
fn axis(guest: u32, place: &Guest, several: bool, bottom: f64, out: &mut String) {
    let Guest { from, to, x, width } = *place;
    let height = bottom - TOP + 4.0;
    let _ = writeln!(
        out,
        "<rect class=\"guest\" x=\"{x:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"{height:.1}\"/>",
        TOP - 2.0
    );
    if several && width >= 16.0 {
        let name = if width >= 56.0 { "guest " } else { "" };
        let _ = writeln!(out, "<text class=\"tick\" x=\"{:.1}\" y=\"14\">{name}{guest}</text>", x + 2.0);
    }
    if width < 50.0 {
        return;
    }
    let y = bottom + 15.0;
    let marks = (width / 130.0).floor();
    let digits = if to - from < 1.0 { 3 } else { 1 };
    let _ = writeln!(out, "<text class=\"tick\" x=\"{x:.1}\" y=\"{y:.1}\">{from:.digits$} s</text>");
    for mark in 1..=marks as u32 {
        let part = f64::from(mark) / marks;
        let anchor = if f64::from(mark) < marks { "middle" } else { "end" };
        let _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{:.digits$} s</text>",
            x + width * part,
            from + (to - from) * part
        );
    }
}

/// The keys of one moment.
fn stack(x: f64, y: f64, (up, down): (f64, f64), keys: &[&Asked<'_>], title: &str, out: &mut String) {
    let times = || keys.iter().map(|one| one.time);
    let (from, to) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    let _ = write!(out, "<g class=\"bar\" data-keys=\"{}\"><title>{}: ", keys.len(), escape(&cut(title, 80)));
    let _ = if from == to { writeln!(out, "{from:.6} s") } else { writeln!(out, "{from:.6} to {to:.6} s") };
    for one in keys.iter().take(MOST_NAMED) {
        let _ = writeln!(out, "{}: {}", escape(&cut(one.column, 40)), escape(&cut(&one.key.line(), 200)));
    }
    if keys.len() > MOST_NAMED {
        let _ = writeln!(out, "and {} more", keys.len() - MOST_NAMED);
    }
    out.push_str("</title>");
    let mut above = 0.0;
    for (at, class) in CLASSES.iter().enumerate() {
        let number = keys.iter().filter(|one| one.class() == at).count();
        if number == 0 {
            continue;
        }
        let (unit, from) = if at == REFUSED { (down, 0.5) } else { (up, above) };
        let height = (unit * number as f64).max(2.0);
        let top = if at == REFUSED { y + from } else { y - from - height };
        if at != REFUSED {
            above += height;
        }
        let width = BAR - 1.0;
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width}\" height=\"{height:.1}\"/>"
        );
    }
    out.push_str("</g>\n");
}

/// What the devices of the guests were set to.
fn settings(kernel: &Kernel, guests: &BTreeMap<u32, Guest>, out: &mut String) {
    out.push_str("<ul class=\"guests soft\">\n");
    for guest in guests.keys() {
        let at = usize::try_from(*guest).ok().and_then(|guest| guest.checked_sub(1));
        let Some(set) = at.and_then(|at| kernel.guests.get(at)) else { continue };
        let set = if set.is_empty() { "the device as it is" } else { set };
        let _ = writeln!(out, "<li>guest {guest}: <span class=\"mono\">{}</span></li>", escape(set));
    }
    out.push_str("</ul>\n");
}

/// Keys of one try that are alike.
struct Line<'a> {
    first: &'a Asked<'a>,
    last: f64,
    keys: usize,
    indexes: Option<(u32, u32)>,
}

fn list(number: usize, rows: &[&Row], asked: &[Asked<'_>], out: &mut String) {
    let mut places: BTreeMap<_, usize> = BTreeMap::new();
    let mut lines: Vec<Line<'_>> = Vec::new();
    for one in asked {
        let key = one.key;
        let kind = (&key.kind, &key.via, &key.verdict, order(key), &key.reason, &key.path);
        let at = *places.entry((one.lane, one.column, key.guest, kind)).or_insert(lines.len());
        if at == lines.len() {
            lines.push(Line { first: one, last: one.time, keys: 0, indexes: None });
        }
        let line = &mut lines[at];
        (line.keys, line.last) = (line.keys + 1, one.time);
        if let Some(index) = key.index {
            let (least, most) = line.indexes.unwrap_or((index, index));
            line.indexes = Some((least.min(index), most.max(index)));
        }
    }
    let note = if lines.len() < asked.len() { "; alike ones of a try in one line" } else { "" };
    let _ = write!(
        out,
        "<details class=\"keys\"><summary>List of {}{note}</summary>\n<div class=\"anchor\" id=\"{}--keys\"></div>\n\
         <div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>",
        count(asked.len()),
        anchor(number, super::section_of(&rows[0].id))
    );
    for head in ["Guest", "Time, s", "Path", "Try", "Keys", "Number", "Kind", "By", "Verdict", "Order", "Why"] {
        let class = if matches!(head, "Guest" | "Time, s" | "Keys") { " class=\"number\"" } else { "" };
        let _ = write!(out, "<th scope=\"col\"{class}>{head}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    lines.iter().for_each(|line| key_line(number, rows, line, out));
    out.push_str("</tbody></table></div></details>\n");
}

fn key_line(number: usize, rows: &[&Row], line: &Line<'_>, out: &mut String) {
    let Line { first, last, keys, indexes } = line;
    let (key, row) = (first.key, rows[first.lane]);
    let guest = if key.guest == 0 { String::new() } else { key.guest.to_string() };
    let until = if *last > first.time { format!(" to {last:.6}") } else { String::new() };
    let index = match indexes {
        Some((least, most)) if least == most => format!("{least:#x}"),
        Some((least, most)) => format!("{least:#x} to {most:#x}"),
        None => String::new(),
    };
    let why = if key.path.is_empty() { key.reason.clone() } else { format!("{}; likely {}", key.reason, key.path) };
    let _ = write!(
        out,
        "<tr class=\"{}\" data-keys=\"{keys}\"><td class=\"number\">{guest}</td><td class=\"number\">{:.6}{until}</td>\
         <td><a href=\"#{}\">{}</a></td>",
        CLASSES[first.class()],
        first.time,
        anchor(number, &row.id),
        escape(&cut(&row.title, 80))
    );
    for (class, text) in [
        ("", first.column),
        ("number", &keys.to_string()),
        ("mono", &index),
        ("", &key.kind),
        ("mono", &key.via),
        ("", &key.verdict),
        ("", &order(key)),
        ("soft", &why),
    ] {
        let _ = write!(out, "<td class=\"{class}\">{}</td>", escape(&cut(text, 400)));
    }
    out.push_str("</tr>\n");
}

/// The ordering, and that of reads where it differs.
fn order(key: &Key) -> String {
    let reads = match (key.relaxed, key.relaxed_read) {
        (true, false) => ", reads strong",
        (false, true) => ", reads relaxed",
        _ => "",
    };
    format!("{}{reads}", key.ordering())
}
