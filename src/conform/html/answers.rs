//! Every try of a part at a glance, and each answer with what it is drawn from.

use super::super::keys::Key;
use super::super::result::{Cell, Row};
use super::{anchor, badge, cut, escape, is_fine};
use std::fmt::Write as _;

/// A summary has about two lines.
const MOST_SAID: usize = 240;

/// Rows by what was varied, if that is worth a table.
pub(super) fn tries(kernel: usize, rows: &[&Row], out: &mut String) {
    if rows.iter().all(|row| row.cells.len() <= 2) {
        return;
    }
    let mut columns: Vec<&str> = Vec::new();
    for cell in rows.iter().flat_map(|row| &row.cells) {
        if !columns.contains(&cell.column.as_str()) {
            columns.push(&cell.column);
        }
    }
    out.push_str(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"tries\">\n<thead><tr><th scope=\"col\">Path</th>",
    );
    for column in &columns {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(&cut(column, 40)));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows.iter().filter(|row| !row.cells.is_empty()) {
        let heads = heads(row);
        let id = anchor(kernel, &row.id);
        let _ = write!(out, "<tr><th scope=\"row\"><a href=\"#{id}\">{}</a></th>", escape(&cut(&row.title, 80)));
        for column in &columns {
            match row.cells.iter().position(|cell| cell.column == *column) {
                Some(at) => one_try(&id, heads[at], &row.cells[at], out),
                None => out.push_str("<td></td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn one_try(id: &str, head: usize, cell: &Cell, out: &mut String) {
    let class = match cell.good {
        Some(true) => "good",
        Some(false) => "bad",
        None => "none",
    };
    let small = match word(cell) {
        None | Some("") => String::new(),
        Some(word) => format!("<small>{}</small>", escape(word)),
    };
    let _ = write!(
        out,
        "<td class=\"{class}\" title=\"{}: {}\"><a href=\"#{id}--{head}\">{}{}{small}</a></td>",
        escape(&cut(&cell.column, 100)),
        escape(&cut(if cell.detail.is_empty() { &cell.outcome } else { &cell.detail }, 400)),
        mark(cell),
        escape(&cut(&cell.outcome, 30))
    );
}

/// The detail, if it is short: what the key became is one word. Longer ones are in the answer.
fn word(cell: &Cell) -> Option<&str> {
    Some(cell.detail.as_str()).filter(|detail| detail.len() <= 12)
}

/// So that colour is not needed.
fn mark(cell: &Cell) -> &'static str {
    match cell.good {
        Some(false) => "✗ ",
        _ => "",
    }
}

/// For each try the first that came to the same; those share a line. A try with a message or a refusal stands alone.
fn heads(row: &Row) -> Vec<usize> {
    let is_plain = |cell: &Cell| cell.log.is_empty() && cell.trouble.is_empty() && refused(cell).next().is_none();
    let same = |a: &Cell, b: &Cell| (&a.outcome, a.good, &a.detail) == (&b.outcome, b.good, &b.detail);
    let mut heads: Vec<usize> = Vec::new();
    for (at, cell) in row.cells.iter().enumerate() {
        // Distinct heads are few, or each try is one.
        let like = |head: &usize| is_plain(&row.cells[*head]) && same(&row.cells[*head], cell);
        let head = if is_plain(cell) { heads.iter().copied().find(like) } else { None };
        heads.push(head.unwrap_or(at));
    }
    heads
}

fn refused(cell: &Cell) -> impl Iterator<Item = &Key> {
    cell.keys.iter().filter(|key| key.verdict == "refused")
}

/// Whether an answer has more to show than [`tries`] does.
fn is_telling(row: &Row) -> bool {
    let more = |cell: &Cell| !cell.log.is_empty() || !cell.trouble.is_empty() || refused(cell).next().is_some();
    row.cells.len() <= 2
        || row.cells.iter().any(|cell| more(cell) || (cell.good == Some(false) && word(cell).is_none()))
}

/// One row of the matrix. What is not fine is open if there is something to see.
pub(super) fn answer(kernel: usize, row: &Row, out: &mut String) {
    let id = anchor(kernel, &row.id);
    let said = cut(row.says.lines().next().unwrap_or_default(), MOST_SAID);
    let _ = write!(
        out,
        "<details{}><summary>{}<b>{}</b>: {}</summary>\n<div class=\"anchor\" id=\"{id}\"></div>\n",
        match (is_fine(row), is_telling(row)) {
            (true, _) => " class=\"fine\"",
            (false, true) => " open",
            (false, false) => "",
        },
        badge(row.verdict),
        escape(&cut(&row.title, MOST_SAID)),
        escape(&said)
    );
    if said != row.says {
        let _ = writeln!(out, "<p class=\"detail\">{}</p>", escape(&row.says));
    }
    if row.cells.is_empty() {
        out.push_str("<p class=\"soft\">Nothing was tried.</p>\n</details>\n");
        return;
    }
    let heads = heads(row);
    let mut lines: Vec<usize> = (0..row.cells.len()).filter(|at| heads[*at] == *at).collect();
    lines.sort_by_key(|at| row.cells[*at].good != Some(false));
    out.push_str(
        "<table class=\"answer\"><thead><tr><th>Try</th><th>Outcome</th><th>Detail</th></tr></thead>\n<tbody>\n",
    );
    for head in lines {
        let same = row.cells.iter().zip(&heads).filter(|(_, of)| **of == head);
        let columns: Vec<String> = same.map(|(cell, _)| escape(&cell.column)).collect();
        attempt(&format!("{id}--{head}"), &columns.join(", "), &row.cells[head], out);
    }
    out.push_str("</tbody></table></details>\n");
}

fn attempt(id: &str, columns: &str, cell: &Cell, out: &mut String) {
    let class = match cell.good {
        Some(true) => "",
        Some(false) => " bad-text",
        None => " soft",
    };
    let _ = write!(
        out,
        "<tr><td><div class=\"anchor\" id=\"{id}\"></div>{columns}</td><td class=\"mark{class}\">{}{}</td><td>",
        mark(cell),
        escape(&cell.outcome)
    );
    // The first line is a sentence, more is a console or a stack.
    let (first, more) = cell.detail.split_once('\n').unwrap_or((&cell.detail, ""));
    if !first.is_empty() {
        let _ = write!(out, "<div>{}</div>", escape(first));
    }
    if !more.is_empty() {
        let _ = write!(out, "<pre class=\"log\" tabindex=\"0\">{}</pre>", escape(more));
    }
    refusals(cell, out);
    log(cell, out);
    out.push_str("</td></tr>\n");
}

/// Refused keys, alike ones once.
fn refusals(cell: &Cell, out: &mut String) {
    let alike = |a: &Key, b: &Key| (&a.kind, &a.via, &a.reason, &a.path) == (&b.kind, &b.via, &b.reason, &b.path);
    let mut kinds: Vec<(&Key, usize)> = Vec::new();
    for key in refused(cell) {
        match kinds.iter_mut().find(|(first, _)| alike(first, key)) {
            Some((_, count)) => *count += 1,
            None => kinds.push((key, 1)),
        }
    }
    for (key, count) in kinds {
        let times = if count > 1 { format!(", {count} times, the first:") } else { String::new() };
        let _ =
            write!(out, "<div class=\"note\">Refused by the device{times}</div><pre class=\"refusal\" tabindex=\"0\">");
        for line in [&key.command, &key.decoded].into_iter().filter(|line| !line.is_empty()) {
            let _ = writeln!(out, "{}", escape(line.trim()));
        }
        if key.command.is_empty() && key.decoded.is_empty() {
            let _ = writeln!(out, "{}", escape(&key.line()));
        }
        out.push_str("</pre>");
    }
}

fn log(cell: &Cell, out: &mut String) {
    let is_trouble = |line: &str| !cell.trouble.is_empty() && line.contains(&cell.trouble);
    let missing = !cell.trouble.is_empty() && !cell.log.iter().any(|line| is_trouble(line));
    if cell.log.is_empty() && !missing {
        return;
    }
    out.push_str("<div class=\"note\">Kernel log</div><pre class=\"log\" tabindex=\"0\">");
    if missing {
        let _ = writeln!(out, "<mark>{}</mark>", escape(&cell.trouble));
    }
    for line in &cell.log {
        let line = (is_trouble(line), escape(line));
        let _ = if line.0 { writeln!(out, "<mark>{}</mark>", line.1) } else { writeln!(out, "{}", line.1) };
    }
    out.push_str("</pre>");
}
