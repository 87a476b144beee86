//! The matrix as one HTML page that needs nothing else: no script, no font, no picture from elsewhere.
//!
//! Everything that comes from a guest is escaped. Details are `<details>` elements, so that the page works from a file.

use super::keys::Key;
use super::result::{Cell, Kernel, Matrix, Row};
use std::fmt::Write as _;

const STYLE: &str = "\
:root{--line:#d8dee4;--soft:#57606a;--ready:#1a7f37;--absent:#6e7781;--finding:#b35900;--crash:#b3122b;--back:#f6f8fa}\
*{box-sizing:border-box}body{font:15px/1.5 system-ui,sans-serif;color:#1f2328;margin:0 auto;max-width:1100px;padding:24px}\
h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:32px 0 8px}h3{font-size:16px;margin:20px 0 6px}\
p{margin:6px 0}.soft{color:var(--soft)}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:5px 10px;border-bottom:1px solid var(--line);vertical-align:top}\
th{font-weight:600}thead th{border-bottom:2px solid var(--line)}tr.section th{background:var(--back);padding-top:10px}\
.matrix{overflow-x:auto}.matrix a{text-decoration:none}\
.badge{display:inline-block;min-width:68px;padding:0 9px;border-radius:11px;color:#fff;font-size:13px;text-align:center}\
.ready{background:var(--ready)}.absent{background:var(--absent)}.finding{background:var(--finding)}.crash{background:var(--crash)}\
details{border:1px solid var(--line);border-radius:6px;margin:6px 0;padding:0 12px}details[open]{padding-bottom:10px}\
summary{cursor:pointer;padding:7px 0;overflow-wrap:anywhere}summary .badge{margin-right:8px}\
.good{color:var(--ready)}.bad{color:var(--crash);font-weight:600}\
code,pre{font:12.5px/1.45 ui-monospace,monospace}pre{background:var(--back);padding:8px;margin:4px 0;white-space:pre-wrap;overflow-wrap:anywhere}\
svg{width:100%;height:auto;display:block;border:1px solid var(--line);border-radius:6px}svg text{font:11px system-ui,sans-serif;fill:#57606a}\
.legend span{margin-right:16px}.dot{display:inline-block;width:10px;height:10px;border-radius:50%;margin-right:5px}";

/// The page.
pub fn page(matrix: &Matrix) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    let names: Vec<String> = matrix.kernels.iter().map(|kernel| escape(&kernel.name)).collect();
    let _ = write!(
        out,
        "<title>Conformance of Linux {}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
        names.join(", ")
    );
    let _ = writeln!(out, "<h1>Ready for hardware without ordering?</h1>");
    let kernels: Vec<String> =
        matrix.kernels.iter().map(|k| format!("{} (Linux {})", escape(&k.name), escape(&k.release))).collect();
    let _ = writeln!(
        out,
        "<p class=\"soft\">{} on device {}, cx10 {}</p>",
        kernels.join(", "),
        escape(&matrix.profile),
        escape(&matrix.version)
    );
    table(matrix, &mut out);
    for (number, kernel) in matrix.kernels.iter().enumerate() {
        details(number, kernel, &mut out);
    }
    out.push_str("</body>\n</html>\n");
    out
}

fn table(matrix: &Matrix, out: &mut String) {
    out.push_str("<div class=\"matrix\"><table>\n<thead><tr><th>Path</th>");
    for kernel in &matrix.kernels {
        let _ = write!(out, "<th>{}</th>", escape(&kernel.name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    let mut section = "";
    for (id, title) in matrix.rows() {
        let this = id.split('/').next().unwrap_or_default();
        if this != section {
            section = this;
            let span = matrix.kernels.len() + 1;
            let title = escape(super::section_title(section));
            let _ = writeln!(out, "<tr class=\"section\"><th colspan=\"{span}\">{title}</th></tr>");
        }
        let _ = write!(out, "<tr><td>{}</td>", escape(title));
        for (number, kernel) in matrix.kernels.iter().enumerate() {
            match kernel.row(id) {
                Some(row) => {
                    let _ = write!(
                        out,
                        "<td><a href=\"#{}\" title=\"{}\">{}</a></td>",
                        anchor(number, id),
                        escape(&row.says),
                        badge(row)
                    );
                }
                None => out.push_str("<td>-</td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn badge(row: &Row) -> String {
    let name = row.verdict.name();
    format!("<span class=\"badge {name}\">{name}</span>")
}

/// Identifiers are ours, but a stored result may come from anywhere.
fn anchor(kernel: usize, id: &str) -> String {
    let id: String = id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("k{kernel}-{id}")
}

fn details(number: usize, kernel: &Kernel, out: &mut String) {
    let _ = writeln!(out, "<h2>{}: Linux {}</h2>", escape(&kernel.name), escape(&kernel.release));
    let mut sections: Vec<&str> = Vec::new();
    for row in &kernel.rows {
        let section = row.id.split('/').next().unwrap_or_default();
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
    for section in sections {
        let _ = writeln!(out, "<h3>{}</h3>", escape(super::section_title(section)));
        let rows: Vec<&Row> =
            kernel.rows.iter().filter(|row| row.id.split('/').next().unwrap_or_default() == section).collect();
        rows.iter().for_each(|row| answer(number, row, out));
        timeline(&rows, out);
    }
}

fn answer(number: usize, row: &Row, out: &mut String) {
    let _ = writeln!(
        out,
        "<details id=\"{}\"><summary>{}<b>{}</b>: {}</summary>",
        anchor(number, &row.id),
        badge(row),
        escape(&row.title),
        escape(&row.says)
    );
    out.push_str("<table><thead><tr><th>Try</th><th>Outcome</th><th>Detail</th></tr></thead><tbody>\n");
    row.cells.iter().for_each(|cell| attempt(cell, out));
    out.push_str("</tbody></table></details>\n");
}

fn attempt(cell: &Cell, out: &mut String) {
    let class = match cell.good {
        Some(true) => "good",
        Some(false) => "bad",
        None => "soft",
    };
    let _ = write!(
        out,
        "<tr><td>{}</td><td class=\"{class}\">{}</td><td>{}",
        escape(&cell.column),
        escape(&cell.outcome),
        escape(&cell.detail)
    );
    let refused: Vec<&Key> = cell.keys.iter().filter(|key| key.verdict == "refused").collect();
    if !refused.is_empty() || !cell.log.is_empty() {
        out.push_str("<pre>");
        for key in refused {
            let _ = writeln!(out, "{}", escape(key.decoded.trim()));
        }
        for line in &cell.log {
            let _ = writeln!(out, "kernel: {}", escape(line));
        }
        out.push_str("</pre>");
    }
    out.push_str("</td></tr>\n");
}

/// Colour of a key in the timeline, and what it stands for.
fn colour(key: &Key) -> (&'static str, &'static str) {
    match (key.verdict.as_str(), key.relaxed, key.unordered) {
        ("refused", ..) => ("#b3122b", "refused"),
        (_, false, _) => ("#b35900", "strong"),
        (_, true, false) => ("#1a7f37", "relaxed"),
        (_, true, true) => ("#0969da", "unordered"),
    }
}

const WIDTH: f64 = 1000.0;
const LABELS: f64 = 270.0;
const LANE: f64 = 20.0;
/// A walk makes some thousand keys; more than so many in a lane are a blot anyway.
const MOST_DOTS: usize = 500;

/// Keys over device time, one lane a row.
fn timeline(rows: &[&Row], out: &mut String) {
    let lanes: Vec<(&Row, Vec<&Key>)> = rows
        .iter()
        .map(|row| (*row, row.cells.iter().flat_map(|cell| &cell.keys).take(MOST_DOTS).collect::<Vec<_>>()))
        .filter(|(_, keys)| !keys.is_empty())
        .collect();
    let times = || lanes.iter().flat_map(|(_, keys)| keys.iter().map(|key| key.time)).filter(|time| time.is_finite());
    let (from, to) = (times().fold(f64::INFINITY, f64::min), times().fold(f64::NEG_INFINITY, f64::max));
    if lanes.is_empty() || !from.is_finite() {
        return;
    }
    let span = (to - from).max(1e-6);
    let height = LANE * (lanes.len() as f64 + 1.5);
    out.push_str("<p class=\"legend soft\">Keys over device time: ");
    for (fill, name) in
        [("#1a7f37", "relaxed"), ("#0969da", "unordered"), ("#b35900", "strong"), ("#b3122b", "refused")]
    {
        let _ = write!(out, "<span><i class=\"dot\" style=\"background:{fill}\"></i>{name}</span>");
    }
    let _ =
        writeln!(out, "</p>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"keys over device time\">");
    for (lane, (row, keys)) in lanes.iter().enumerate() {
        let y = LANE * (lane as f64 + 0.8);
        let end = WIDTH - 12.0;
        let _ = writeln!(
            out,
            "<text x=\"8\" y=\"{:.1}\">{}</text><line x1=\"{LABELS}\" y1=\"{y:.1}\" x2=\"{end}\" y2=\"{y:.1}\" stroke=\"#d8dee4\"/>",
            y + 4.0,
            escape(&row.title)
        );
        for key in keys {
            let x = LABELS + 8.0 + (key.time - from) / span * (end - LABELS - 16.0);
            let (fill, _) = colour(key);
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" fill-opacity=\"0.75\"><title>{:.6} s: {}</title></circle>",
                key.time,
                escape(&key.line())
            );
        }
    }
    let y = LANE * (lanes.len() as f64 + 1.1);
    let _ = writeln!(
        out,
        "<text x=\"{LABELS}\" y=\"{y:.1}\">{from:.3} s</text><text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{to:.3} s</text>\n</svg>",
        WIDTH - 12.0
    );
}

/// Text for HTML, in elements and in attributes with double quotes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::result::{SCHEMA, Verdict};
    use super::*;

    fn matrix(log: &str) -> Matrix {
        let key =
            Key { time: 1.5, kind: "free".into(), verdict: "refused".into(), decoded: log.into(), ..Key::default() };
        let cell = Cell {
            column: "bit 21".into(),
            outcome: "EINVAL".into(),
            good: Some(false),
            detail: log.into(),
            keys: vec![key],
            log: vec![log.into()],
            trouble: String::new(),
        };
        let row = Row {
            id: "flags/reg_mr_write".into(),
            title: "reg_mr".into(),
            verdict: Verdict::Finding,
            says: log.into(),
            cells: vec![cell],
        };
        let kernel = Kernel { name: "7.3".into(), release: log.into(), rows: vec![row] };
        Matrix { schema: SCHEMA, version: "0".into(), profile: "p".into(), complete: true, kernels: vec![kernel] }
    }

    #[test]
    fn what_the_guest_says_cannot_become_markup() {
        let page = page(&matrix("\"><script>alert(1)</script>\u{1b}[31m"));
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("&quot;&gt;&lt;script&gt;alert(1)"), "{page}");
        assert!(!page.contains('\u{1b}'));
    }

    #[test]
    fn each_row_has_a_badge_that_leads_to_its_details_and_its_keys_are_in_the_timeline() {
        let page = page(&matrix("why"));
        assert!(
            page.contains("href=\"#k0-flags-reg-mr-write\" title=\"why\"><span class=\"badge finding\">"),
            "{page}"
        );
        assert!(page.contains("<details id=\"k0-flags-reg-mr-write\">"), "{page}");
        assert_eq!(page.matches("<circle").count(), 1, "{page}");
        assert!(!page.contains("http"), "nothing from elsewhere: {page}");
    }
}
