//! The matrix as one HTML page that needs nothing else: no script, no font, no picture from elsewhere.
//!
//! Top down: how each kernel does, the matrix (rows by kernels), then for each kernel and part every try at a glance, the
//! answers with what they are drawn from ([`answers`]), and the keys over device time ([`timeline`]).
//! Everything that comes from a guest is escaped, and the page forbids itself scripts and requests. Details are `<details>`
//! elements; a link into a closed one opens it.

mod answers;
mod timeline;

use super::result::{Kernel, Matrix, Row, Verdict, section_of};
use std::fmt::Write as _;

const STYLE: &str = include_str!("html/page.css");
/// What gets through the escaping by mistake still cannot run or fetch anything.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
const VERDICTS: [(Verdict, &str); 4] = [
    (Verdict::Ready, "as hardware without ordering needs it"),
    (Verdict::Finding, "not as such hardware needs it"),
    (Verdict::Crash, "the kernel crashed or did not come back"),
    (Verdict::Absent, "the kernel, its modules or the device do not have it"),
];

/// The page.
pub fn page(matrix: &Matrix) -> String {
    let names = names(matrix);
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    let _ = write!(
        out,
        "<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>Conformance of Linux {}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<header id=\"top\">\n<h1>Ready for hardware without ordering?</h1>\n\
         <p class=\"soft\">Device {}, cx10 {}</p>\n",
        escape(&names.join(", ")),
        escape(&matrix.profile),
        escape(&matrix.version)
    );
    if !matrix.complete {
        out.push_str("<p class=\"bad-text\">The walk did not come to its end: rows are missing.</p>\n");
    }
    kernels(matrix, &names, &mut out);
    out.push_str("</header>\n<main>\n");
    table(matrix, &names, &mut out);
    for (number, (kernel, name)) in matrix.kernels.iter().zip(&names).enumerate() {
        walk(number, kernel, name, &mut out);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// What a kernel is called: the last part of a path, unless two would be called the same.
fn names(matrix: &Matrix) -> Vec<String> {
    let short: Vec<&str> = matrix.kernels.iter().map(|kernel| super::text::short(&kernel.name)).collect();
    let is_unique = |name: &str| short.iter().filter(|other| **other == name).count() == 1;
    let kernels = matrix.kernels.iter().zip(&short);
    kernels.map(|(kernel, short)| if is_unique(short) { (*short).to_owned() } else { kernel.name.clone() }).collect()
}

fn release(kernel: &Kernel) -> String {
    if kernel.release.is_empty() { "never came up".to_owned() } else { format!("Linux {}", escape(&kernel.release)) }
}

/// How each kernel does, in numbers.
fn kernels(matrix: &Matrix, names: &[String], out: &mut String) {
    out.push_str("<ul class=\"kernels\">\n");
    for (number, (kernel, name)) in matrix.kernels.iter().zip(names).enumerate() {
        let _ = write!(
            out,
            "<li><b><a href=\"#k{number}\" title=\"{}\">{}</a></b> <span class=\"soft\">{}</span><br>",
            escape(&kernel.name),
            escape(name),
            release(kernel)
        );
        for (verdict, _) in VERDICTS {
            let count = kernel.rows.iter().filter(|row| row.verdict == verdict).count();
            if count > 0 {
                let class = verdict.name();
                let _ = write!(out, "<span class=\"badge {class}\">{count} {class}</span>");
            }
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ul>\n");
}

/// Rows by kernels.
fn table(matrix: &Matrix, names: &[String], out: &mut String) {
    out.push_str("<ul class=\"legend soft\">\n");
    for (verdict, meaning) in VERDICTS {
        let _ = writeln!(out, "<li>{} {meaning}</li>", badge(verdict));
    }
    out.push_str(
        "</ul>\n<label class=\"filter\"><input type=\"checkbox\" id=\"worse\"> Only findings and crashes</label>\n\
         <div class=\"scroll\"><table class=\"matrix\">\n<thead><tr><th scope=\"col\">Path</th>",
    );
    for (kernel, name) in matrix.kernels.iter().zip(names) {
        let release = release(kernel);
        let _ = write!(out, "<th scope=\"col\">{}<div class=\"says\">{release}</div></th>", escape(name));
    }
    out.push_str("</tr></thead>\n");
    let rows = matrix.rows();
    for section in sections(rows.iter().map(|(id, _)| *id)) {
        let rows: Vec<_> = rows.iter().filter(|(id, _)| section_of(id) == section).collect();
        let fine = |id: &str| matrix.kernels.iter().filter_map(|kernel| kernel.row(id)).all(is_fine);
        let class = |fine: bool| if fine { " class=\"fine\"" } else { "" };
        let _ = writeln!(
            out,
            "<tbody{}>\n<tr class=\"section\"><th scope=\"rowgroup\" colspan=\"{}\">{}</th></tr>",
            class(rows.iter().all(|(id, _)| fine(id))),
            matrix.kernels.len() + 1,
            escape(super::section_title(section))
        );
        for (id, title) in rows {
            let _ = write!(out, "<tr{}><th scope=\"row\">{}</th>", class(fine(id)), escape(&cut(title, 160)));
            for (number, kernel) in matrix.kernels.iter().enumerate() {
                match kernel.row(id) {
                    Some(row) => {
                        let _ = write!(
                            out,
                            "<td><a href=\"#{}\" title=\"{}\">{}<div class=\"says\">{}</div></a></td>",
                            anchor(number, id),
                            escape(&cut(&row.says, 1000)),
                            badge(row.verdict),
                            escape(&cut(&row.says, 300))
                        );
                    }
                    None => out.push_str("<td class=\"soft\">not walked</td>"),
                }
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n");
    }
    out.push_str("</table></div>\n");
}

/// Everything of one kernel.
fn walk(number: usize, kernel: &Kernel, name: &str, out: &mut String) {
    let _ = writeln!(
        out,
        "<section id=\"k{number}\">\n<h2>{}: {}</h2>\n<p class=\"soft\">{} <a class=\"top\" href=\"#top\">All kernels</a></p>",
        escape(name),
        release(kernel),
        if name == kernel.name { String::new() } else { escape(&kernel.name) }
    );
    if kernel.rows.is_empty() {
        out.push_str("<p>No part was walked.</p>\n");
    }
    for section in sections(kernel.rows.iter().map(|row| row.id.as_str())) {
        let rows: Vec<&Row> = kernel.rows.iter().filter(|row| section_of(&row.id) == section).collect();
        let title = escape(super::section_title(section));
        let _ = writeln!(out, "<h3 id=\"{}\">{title}</h3>", anchor(number, section));
        answers::tries(number, &rows, out);
        rows.iter().for_each(|row| answers::answer(number, row, out));
        timeline::timeline(number, kernel, &rows, out);
    }
    out.push_str("</section>\n");
}

/// Sections of these rows, each once.
fn sections<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut sections: Vec<&str> = Vec::new();
    for section in ids.map(section_of) {
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
    sections
}

fn is_fine(row: &Row) -> bool {
    row.verdict < Verdict::Finding
}

fn badge(verdict: Verdict) -> String {
    let name = verdict.name();
    format!("<span class=\"badge {name}\">{name}</span>")
}

/// Identifiers are ours, but a stored result may come from anywhere.
fn anchor(kernel: usize, id: &str) -> String {
    let id: String = id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("k{kernel}-{id}")
}

/// The beginning of a text.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text.to_owned(),
    }
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
            // Also what turns the direction of text, which would reach beyond the text.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::keys::Key;
    use super::super::result::{Cell, SCHEMA};
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
        let kernel = Kernel { name: "7.3".into(), release: log.into(), guests: Vec::new(), rows: vec![row] };
        Matrix {
            schema: SCHEMA,
            version: "0".into(),
            profile: "p".into(),
            options: Vec::new(),
            complete: true,
            kernels: vec![kernel],
        }
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
        assert_eq!(page.matches("id=\"k0-flags-reg-mr-write\"").count(), 1, "{page}");
        assert_eq!(page.matches("data-keys=\"1\"").count(), 2, "a bar and a line of the list: {page}");
        assert!(!page.contains("http:") && !page.contains("https:"), "nothing from elsewhere: {page}");
    }

    #[test]
    fn a_walk_that_did_not_come_to_its_end_says_so() {
        let mut matrix = matrix("why");
        assert!(!page(&matrix).contains("did not come to its end"));
        matrix.complete = false;
        assert!(page(&matrix).contains("The walk did not come to its end"));
    }

    #[test]
    fn kernels_are_called_by_the_last_part_of_their_path_unless_two_would_be_called_the_same() {
        let mut matrix = matrix("why");
        matrix.kernels.push(Kernel { name: "/a/linux".into(), ..matrix.kernels[0].clone() });
        assert_eq!(names(&matrix), ["7.3", "linux"]);
        matrix.kernels.push(Kernel { name: "/b/linux/".into(), ..matrix.kernels[0].clone() });
        assert_eq!(names(&matrix), ["7.3", "/a/linux", "/b/linux/"]);
    }

    #[test]
    fn tries_that_came_to_the_same_share_a_line_and_a_refused_one_has_its_own() {
        let mut matrix = matrix("why");
        let row = &mut matrix.kernels[0].rows[0];
        let plain = |column: &str, good| Cell {
            column: column.into(),
            good: Some(good),
            keys: Vec::new(),
            log: Vec::new(),
            ..row.cells[0].clone()
        };
        row.cells =
            vec![plain("a", true), plain("b", false), row.cells[0].clone(), plain("c", true), plain("d", false)];
        let page = page(&matrix);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        let (bad, refused, good) = (at("--1\"></div>b, d<"), at("--2\"></div>bit 21<"), at("--0\"></div>a, c<"));
        assert!(bad < refused && refused < good, "what is bad comes first");
        assert!(page.contains("href=\"#k0-flags-reg-mr-write--1\">✗ EINVAL"), "{page}");
    }

    #[test]
    fn hundreds_of_keys_of_one_moment_share_a_bar_and_a_time_that_is_none_breaks_nothing() {
        let mut matrix = matrix("why");
        let keys = &mut matrix.kernels[0].rows[0].cells[0].keys;
        let key = keys[0].clone();
        *keys = (0..500).map(|index| Key { index: Some(index), relaxed: true, ..key.clone() }).collect();
        let wrong = [f64::NAN, f64::INFINITY, f64::MAX, -1.0];
        keys.extend(wrong.map(|time| Key { time, guest: u32::MAX, ..key.clone() }));
        let page = page(&matrix);
        assert!(page.contains("data-keys=\"500\"><title>reg_mr: 1.500000 s"), "{page}");
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
        assert!(page.contains("Refused by the device, 504 times"), "{page}");
    }
}
