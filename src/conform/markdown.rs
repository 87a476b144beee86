//! The matrix as Markdown, for a page of documentation or the summary of a build.

use super::result::{Kernel, Matrix, Row, section_of};
use std::fmt::Write as _;

/// A section whose rows were tried in so few ways at most has a table of them.
const MOST_COLUMNS: usize = 9;

const INTRODUCTION: &str = "\
# Kernels and hardware without order

What `cx10 conform` has found. `ready`: as hardware needs it that keeps no order between memory accesses and refuses keys
that ask for one. `finding`: not so, and why. `absent`: the kernel, its modules or the device do not have it, or it could
not be tried. `crash`: the kernel broke, or did not come back. In tables of tries **bold** is what is not as it should be.

";

/// A table of verdicts, then for each kernel what is said of each row.
pub fn page(matrix: &Matrix) -> String {
    let mut out = String::from(INTRODUCTION);
    for kernel in &matrix.kernels {
        let _ = writeln!(
            out,
            "- {}: Linux {}, device {}",
            text(&kernel.name),
            text(&kernel.release),
            text(&matrix.profile)
        );
    }
    if !matrix.complete {
        out.push_str("\nIncomplete: the walk was ended by an error.\n");
    }
    let names: Vec<String> = matrix.kernels.iter().map(|kernel| text(&kernel.name)).collect();
    for section in matrix.sections() {
        let title = super::section_title(section);
        let _ = writeln!(out, "\n## {title}\n\n| | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
        for (id, title) in matrix.rows() {
            if section_of(id) == section {
                let verdict = |kernel: &Kernel| kernel.row(id).map_or("-", |row| row.verdict.name());
                let verdicts: Vec<&str> = matrix.kernels.iter().map(verdict).collect();
                let _ = writeln!(out, "| {} | {} |", text(title), verdicts.join(" | "));
            }
        }
        for kernel in &matrix.kernels {
            let rows: Vec<&Row> = kernel.rows.iter().filter(|row| row.section() == section).collect();
            let _ = writeln!(out, "\n### {title}, {}\n", text(&kernel.name));
            tries(&rows, &mut out);
            for row in rows {
                let _ = writeln!(out, "- {}, **{}**: {}", text(&row.title), row.verdict.name(), text(&row.says));
            }
        }
    }
    out
}

/// Rows by columns: what each try came to, bold where it is bad.
fn tries(rows: &[&Row], out: &mut String) {
    let mut columns: Vec<&str> = Vec::new();
    for cell in rows.iter().flat_map(|row| &row.cells) {
        if !columns.contains(&cell.column.as_str()) {
            columns.push(&cell.column);
        }
    }
    if rows.iter().all(|row| row.cells.len() <= 1) || columns.len() > MOST_COLUMNS {
        return;
    }
    let heads: Vec<String> = columns.iter().map(|column| text(column)).collect();
    let _ = writeln!(out, "| | {} |\n|---|{}", heads.join(" | "), "---|".repeat(columns.len()));
    for row in rows {
        let outcome = |column: &&str| match row.cells.iter().find(|cell| cell.column == *column) {
            Some(cell) if cell.good == Some(false) => format!("**{}**", text(&cell.outcome)),
            Some(cell) => text(&cell.outcome),
            None => "-".to_owned(),
        };
        let outcomes: Vec<String> = columns.iter().map(outcome).collect();
        let _ = writeln!(out, "| {} | {} |", text(&row.title), outcomes.join(" | "));
    }
    out.push('\n');
}

/// What a kernel or a guest has said must not change the page: no markup, no tables, one line.
fn text(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // Within a name it is no markup.
            '_' if out.ends_with(char::is_alphanumeric) && chars.peek().is_some_and(|next| next.is_alphanumeric()) => {
                out.push(c);
            }
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&' | '~' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::result::{Cell, SCHEMA, Verdict};
    use super::*;

    fn cell(column: &str, good: bool) -> Cell {
        let outcome = if good { "ok" } else { "EINVAL" };
        Cell { column: column.into(), outcome: outcome.into(), good: Some(good), ..Cell::default() }
    }

    fn matrix(says: &str, cells: Vec<Cell>) -> Matrix {
        let (id, title) = ("enforcement/x".to_owned(), "reg_mr".to_owned());
        let row = Row { id, title, verdict: Verdict::Finding, says: says.to_owned(), cells };
        let kernel = Kernel { name: "7.3".into(), release: "7.3.4".into(), guests: Vec::new(), rows: vec![row] };
        let older = Kernel { name: "6.12".into(), release: "6.12.1".into(), guests: Vec::new(), rows: Vec::new() };
        Matrix {
            schema: SCHEMA,
            version: String::new(),
            profile: "p".into(),
            options: Vec::new(),
            complete: true,
            kernels: vec![kernel, older],
        }
    }

    #[test]
    fn a_page_has_verdicts_of_all_kernels_and_the_tries_of_each() {
        let page = page(&matrix("why", vec![cell("create", true), cell("off", false)]));
        assert!(page.contains("| | 7.3 | 6.12 |\n|---|---|---|\n| reg_mr | finding | - |\n"), "{page}");
        assert!(page.contains("| | create | off |\n|---|---|---|\n| reg_mr | ok | **EINVAL** |\n"), "{page}");
        assert!(page.contains("- reg_mr, **finding**: why\n"), "{page}");
    }

    #[test]
    fn one_try_or_many_make_no_table_of_tries() {
        assert!(!page(&matrix("", vec![cell("create", true)])).contains("| | create"));
        let many = (0..10).map(|n| cell(&n.to_string(), true)).collect();
        assert!(!page(&matrix("", many)).contains("| | 0"));
    }

    #[test]
    fn what_a_guest_says_is_text() {
        let page = page(&matrix("<b>|\n# x `y` [z](u) _w_", Vec::new()));
        assert!(page.contains(r"\<b\>\| \# x \`y\` \[z\](u) \_w\_"), "{page}");
    }
}
