//! The matrix as text.

use super::result::{Cell, Matrix, section_of};
use crate::trace::human::harmless;
use std::fmt::Write as _;

/// The table, then what is said of each row; with `cells`, what it is drawn from.
pub fn text(matrix: &Matrix, cells: bool) -> String {
    let mut out = String::new();
    for kernel in &matrix.kernels {
        let _ = writeln!(out, "kernel    {}: Linux {}, device {}", kernel.name, kernel.release, matrix.profile);
    }
    let rows = matrix.rows();
    if !matrix.complete {
        out.push_str("incomplete: the walk was ended by an error\n");
    }
    let titles = rows.iter().map(|(_, title)| *title);
    let titles = titles.chain(matrix.sections().into_iter().map(super::section_title));
    let width = titles.map(|title| title.chars().count()).max().unwrap_or_default();
    let names: Vec<&str> = matrix.kernels.iter().map(|kernel| short(&kernel.name)).collect();
    let mut section = "";
    for (id, title) in &rows {
        let this = section_of(id);
        if this != section {
            section = this;
            let heads: Vec<String> = names.iter().map(|name| format!("{name:<9}")).collect();
            let _ = writeln!(out, "\n{:<width$}  {}", super::section_title(section), heads.join(" ").trim_end());
        }
        let answers: Vec<String> = matrix
            .kernels
            .iter()
            .map(|kernel| format!("{:<9}", kernel.row(id).map_or("-", |row| row.verdict.name())))
            .collect();
        let _ = writeln!(out, "{title:<width$}  {}", answers.join(" ").trim_end());
    }
    for kernel in &matrix.kernels {
        let _ = writeln!(out, "\n{} (Linux {}):", kernel.name, kernel.release);
        for row in &kernel.rows {
            let _ = writeln!(out, "  {:<8} {}: {}", row.verdict.name(), row.title, row.says);
            if cells {
                row.cells.iter().for_each(|cell| out.push_str(&line(cell)));
            }
        }
    }
    // What a guest has said must not drive the user's terminal.
    out.lines().flat_map(|line| [harmless(line), "\n".into()]).collect()
}

/// The last part of a path.
pub(super) fn short(name: &str) -> &str {
    name.trim_end_matches('/').rsplit('/').next().unwrap_or(name)
}

fn line(cell: &Cell) -> String {
    let mark = match cell.good {
        Some(true) => '+',
        Some(false) => '!',
        None => ' ',
    };
    let detail = if cell.detail.is_empty() { String::new() } else { format!(" ({})", cell.detail) };
    let mut out = format!("           {mark} {:<16} {}{detail}\n", cell.column, cell.outcome);
    let refused: Vec<String> = cell.keys.iter().filter(|key| key.verdict == "refused").map(|key| key.line()).collect();
    for (line, times) in counted(&refused) {
        let _ = writeln!(out, "             {line}{times}");
    }
    for (line, times) in counted(&cell.log) {
        let _ = writeln!(out, "             kernel: {line}{times}");
    }
    out
}

/// Lines that follow each other and are alike, once, with how many there were.
fn counted(lines: &[String]) -> Vec<(&str, String)> {
    let alike = lines.chunk_by(|a, b| a == b);
    let times = |count| if count > 1 { format!(", {count} times") } else { String::new() };
    alike.filter_map(|lines| Some((lines.first()?.as_str(), times(lines.len())))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::result::{Kernel, Row, SCHEMA, Verdict};
    use super::*;

    #[test]
    fn what_a_guest_says_does_not_drive_the_terminal() {
        let row = Row { says: "red \x1b[31m\nnext".into(), ..row() };
        let kernel = Kernel { name: "7.3".into(), release: "7.3\x07".into(), guests: Vec::new(), rows: vec![row] };
        let matrix = Matrix {
            schema: SCHEMA,
            version: String::new(),
            profile: String::new(),
            options: Vec::new(),
            complete: true,
            kernels: vec![kernel],
        };
        let text = text(&matrix, true);
        assert!(text.contains("red \\u{1b}[31m\nnext") && text.contains("Linux 7.3\\u{7}"), "{text}");
    }

    fn row() -> Row {
        let (id, title) = ("flags/x".to_owned(), "x".to_owned());
        Row { id, title, verdict: Verdict::Ready, says: String::new(), cells: Vec::new() }
    }

    #[test]
    fn lines_that_are_alike_are_told_once() {
        let lines = ["a", "a", "b", "a"].map(str::to_owned);
        assert_eq!(counted(&lines), [("a", ", 2 times".into()), ("b", String::new()), ("a", String::new())]);
    }
}
