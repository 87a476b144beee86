//! Comparison with a stored walk.

use super::result::{Cell, Kernel, Matrix, Row, SCHEMA, Verdict};
use std::fmt::Write as _;
use std::path::Path;

/// A stored walk has at most so many bytes.
const MOST: u64 = 256 << 20;

/// Why a stored walk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExpectError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// It is not one.
    #[error("not a result of cx10 conform: {0}")]
    Parse(#[from] serde_json::Error),
    /// It is of another version.
    #[error("its form is {found}, this program's is {SCHEMA}")]
    Schema {
        /// Its version.
        found: u32,
    },
    /// A kernel of this walk is not in it.
    #[error("it has no kernel {wanted} (it has {there})")]
    NoKernel {
        /// As it was named on the command line.
        wanted: String,
        /// What it has.
        there: String,
    },
    /// It has no row of a part of this walk.
    #[error("it has no part {0} of kernel {1}; --only compares those that it has")]
    NoPart(String, String),
    /// The walk was ended by an error.
    #[error("it is of a walk that did not come to its end")]
    Incomplete,
}

/// Reads a stored walk.
pub fn read(path: &Path) -> Result<Matrix, ExpectError> {
    use std::io::Read;
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    if file.take(MOST + 1).read_to_string(&mut text)? as u64 > MOST {
        return Err(std::io::Error::other(format!("it has more than {MOST} bytes")).into());
    }
    let value: serde_json::Value = serde_json::from_str(&text)?;
    if let Some(found) = value["schema"].as_u64().filter(|found| *found != u64::from(SCHEMA)) {
        return Err(ExpectError::Schema { found: u32::try_from(found).unwrap_or(u32::MAX) });
    }
    Ok(serde_json::from_value(value)?)
}

/// What differs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// Rows that are worse than they were, or gone.
    pub regressions: Vec<String>,
    /// Rows that are better, or new.
    pub changes: Vec<String>,
    /// What is compared with what, where that is not plain.
    pub notes: Vec<String>,
}

impl Difference {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for line in &self.notes {
            let _ = writeln!(out, "note       {line}");
        }
        for line in &self.regressions {
            let _ = writeln!(out, "regression {line}");
        }
        for line in &self.changes {
            let _ = writeln!(out, "changed    {line}");
        }
        if self.regressions.is_empty() && self.changes.is_empty() {
            out.push_str("as expected\n");
        }
        out
    }
}

/// The stored walk of each of these kernels. They are told apart by name; one kernel is held against the only one that is
/// stored whatever they are called, so that a tree can be compared with the release that it grew from.
pub fn stored<'a>(expected: &'a Matrix, names: &[&str], sections: &[&str]) -> Result<Vec<&'a Kernel>, ExpectError> {
    if !expected.complete {
        return Err(ExpectError::Incomplete);
    }
    let find = |name: &&str| {
        let alone = expected.kernels.len() == 1 && names.len() == 1;
        let kernel = expected.kernels.iter().find(|kernel| alone || kernel.name == *name).ok_or_else(|| {
            let there: Vec<&str> = expected.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            ExpectError::NoKernel { wanted: (*name).to_owned(), there }
        })?;
        match sections.iter().find(|section| kernel.rows.iter().all(|row| row.section() != **section)) {
            Some(section) => Err(ExpectError::NoPart((*section).to_owned(), kernel.name.clone())),
            None => Ok(kernel),
        }
    };
    names.iter().map(find).collect()
}

/// Compares. An incomplete walk is nothing to compare with. Only the kernels and sections that were walked count.
pub fn compare(expected: &Matrix, found: &Matrix, sections: &[&str]) -> Result<Difference, ExpectError> {
    let names: Vec<&str> = found.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let mut difference = Difference::default();
    let unwalked = expected.kernels.iter().filter(|_| names.len() > 1 || expected.kernels.len() > 1);
    for kernel in unwalked.filter(|kernel| !names.contains(&kernel.name.as_str())) {
        difference.notes.push(format!("{} of the stored walk was not walked", kernel.name));
    }
    if found.options != expected.options {
        let list = |options: &[String]| if options.is_empty() { "none".to_owned() } else { options.join(" ") };
        let (is, was) = (list(&found.options), list(&expected.options));
        difference.notes.push(format!("the device's options are {is}, those of the stored walk were {was}"));
    }
    if found.profile != expected.profile {
        difference
            .notes
            .push(format!("the device is {}, that of the stored walk was {}", found.profile, expected.profile));
    }
    for (was, is) in stored(expected, &names, sections)?.into_iter().zip(&found.kernels) {
        if was.name != is.name {
            difference.notes.push(format!("{} is compared with {}", is.name, was.name));
        }
        compare_kernel(was, is, sections, &mut difference);
    }
    Ok(difference)
}

fn compare_kernel(was: &Kernel, is: &Kernel, sections: &[&str], difference: &mut Difference) {
    let walked = |row: &&Row| sections.contains(&row.section());
    for old in was.rows.iter().filter(walked) {
        let Some(new) = is.row(&old.id) else {
            difference.regressions.push(format!("{} {}: was {}, is not there", is.name, old.id, old.verdict.name()));
            continue;
        };
        let mut line = format!(
            "{} {}: was {} ({}), is {} ({})",
            is.name,
            old.id,
            old.verdict.name(),
            old.says,
            new.verdict.name(),
            new.says
        );
        for cell in old.cells.iter().filter(|cell| cell.good == Some(true) && bad(new, &cell.column)) {
            let outcome = new.cells.iter().find(|other| other.column == cell.column).map_or("", |other| &other.outcome);
            let _ = write!(line, "; {}: was {}, is {outcome}", cell.column, cell.outcome);
        }
        let gone = |cell: &&Cell| !new.cells.iter().any(|other| other.column == cell.column);
        let gone: Vec<&str> = old.cells.iter().filter(gone).map(|cell| cell.column.as_str()).collect();
        if !gone.is_empty() && new.verdict != Verdict::Absent {
            difference.notes.push(format!("{} {}: not tried any more: {}", is.name, old.id, gone.join(", ")));
        }
        // A finding in more cells, or one with which the kernel now complains of itself, is worse; so is a row that cannot
        // be looked at any more.
        let worse_cells = || old.cells.iter().any(|cell| cell.good == Some(true) && bad(new, &cell.column));
        let complains = |row: &Row| row.cells.iter().any(|cell| !cell.trouble.is_empty());
        let gone = new.verdict == Verdict::Absent && old.verdict != Verdict::Absent;
        if new.verdict > old.verdict || gone || worse_cells() || complains(new) && !complains(old) {
            difference.regressions.push(line);
        } else if new.verdict < old.verdict || new.says != old.says {
            difference.changes.push(line);
        }
    }
    for new in is.rows.iter().filter(walked).filter(|new| was.row(&new.id).is_none()) {
        let line = format!("{} {}: new, {} ({})", is.name, new.id, new.verdict.name(), new.says);
        // A new question whose answer is bad is not a regression of the kernel, unless it breaks.
        let lines = if new.verdict == Verdict::Crash { &mut difference.regressions } else { &mut difference.changes };
        lines.push(line);
    }
}

fn bad(row: &Row, column: &str) -> bool {
    row.verdict != Verdict::Absent && row.cells.iter().any(|cell| cell.column == column && cell.good == Some(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: &[(&str, Verdict, &str)]) -> Matrix {
        let rows = rows.iter().map(|(id, verdict, says)| Row {
            id: (*id).into(),
            title: (*id).into(),
            verdict: *verdict,
            says: (*says).into(),
            cells: Vec::new(),
        });
        let kernel = Kernel { name: "7.3".into(), release: "7.3.4".into(), guests: Vec::new(), rows: rows.collect() };
        Matrix {
            schema: SCHEMA,
            version: String::new(),
            profile: String::new(),
            options: Vec::new(),
            complete: true,
            kernels: vec![kernel],
        }
    }

    fn cell(column: &str, good: bool) -> Cell {
        Cell { column: column.into(), outcome: "ok".into(), good: Some(good), ..Cell::default() }
    }

    #[test]
    fn a_worse_answer_and_a_lost_row_are_regressions_and_a_better_one_is_a_change() {
        let old = matrix(&[("a/1", Verdict::Ready, ""), ("a/2", Verdict::Finding, "x"), ("a/3", Verdict::Ready, "")]);
        let new = matrix(&[("a/1", Verdict::Finding, "y"), ("a/2", Verdict::Ready, ""), ("a/4", Verdict::Finding, "")]);
        let difference = compare(&old, &new, &["a"]).unwrap();
        assert_eq!(
            difference.regressions,
            ["7.3 a/1: was ready (), is finding (y)", "7.3 a/3: was ready, is not there"]
        );
        assert_eq!(difference.changes.len(), 2, "{:?}", difference.changes);
        assert_eq!(compare(&old, &old, &["a"]).unwrap(), Difference::default());
    }

    #[test]
    fn a_cell_that_turned_bad_is_a_regression_of_a_finding_too() {
        let mut old = matrix(&[("a/1", Verdict::Finding, "x")]);
        let mut new = old.clone();
        old.kernels[0].rows[0].cells = vec![cell("bit 21", true), cell("bit 22", false)];
        new.kernels[0].rows[0].cells = vec![cell("bit 21", false), cell("bit 22", false)];
        let worse = compare(&old, &new, &["a"]).unwrap();
        assert_eq!(worse.regressions.len(), 1);
        assert!(worse.regressions[0].ends_with("; bit 21: was ok, is ok"), "{:?}", worse.regressions);
        assert_eq!(compare(&new, &old, &["a"]).unwrap().regressions.len(), 0);
        new.kernels[0].rows[0].cells.remove(0);
        assert_eq!(compare(&old, &new, &["a"]).unwrap().notes, ["7.3 a/1: not tried any more: bit 21"]);
    }

    #[test]
    fn what_is_compared_with_what_is_said() {
        let old = matrix(&[("a/1", Verdict::Ready, "")]);
        let mut new = old.clone();
        new.options = vec!["--set".into(), "mkey.strict=off".into()];
        new.kernels.push(Kernel { name: "6.12".into(), ..old.kernels[0].clone() });
        let notes = compare(&new, &old, &["a"]).unwrap().notes;
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert_eq!(notes[0], "6.12 of the stored walk was not walked");
        new.complete = false;
        assert!(matches!(compare(&new, &old, &["a"]), Err(ExpectError::Incomplete)));
    }

    #[test]
    fn sections_that_were_not_walked_are_not_missed() {
        let old = matrix(&[("a/1", Verdict::Ready, ""), ("b/1", Verdict::Ready, "")]);
        let new = matrix(&[("a/1", Verdict::Ready, "")]);
        assert_eq!(compare(&old, &new, &["a"]).unwrap(), Difference::default());
        assert_eq!(compare(&old, &new, &["a", "b"]).unwrap().regressions.len(), 1);
        let missing = compare(&new, &old, &["a", "b"]).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "it has no part b of kernel 7.3; --only compares those that it has",
            "what was not stored is not compared"
        );
    }

    #[test]
    fn a_row_that_cannot_be_looked_at_any_more_and_a_new_complaint_are_regressions() {
        let old = matrix(&[("a/1", Verdict::Finding, "x"), ("a/2", Verdict::Finding, "x")]);
        let mut new = matrix(&[("a/1", Verdict::Absent, "no module"), ("a/2", Verdict::Finding, "x")]);
        new.kernels[0].rows[1].cells = vec![Cell { trouble: "WARNING: CPU: 0".into(), ..Cell::default() }];
        assert_eq!(compare(&old, &new, &["a"]).unwrap().regressions.len(), 2);
        let crash =
            matrix(&[("a/1", Verdict::Finding, "x"), ("a/2", Verdict::Finding, "x"), ("a/3", Verdict::Crash, "")]);
        assert_eq!(compare(&old, &crash, &["a"]).unwrap().regressions.len(), 1);
    }

    #[test]
    fn kernels_are_found_by_name_unless_there_is_one_each() {
        let old = matrix(&[("a/1", Verdict::Ready, "")]);
        let mut tree = matrix(&[("a/1", Verdict::Finding, "")]);
        tree.kernels[0].name = "/src/linux".into();
        assert_eq!(compare(&old, &tree, &["a"]).unwrap().regressions.len(), 1);
        tree.kernels.push(Kernel { name: "6.12".into(), release: String::new(), guests: Vec::new(), rows: Vec::new() });
        let missing = compare(&old, &tree, &["a"]).unwrap_err();
        assert_eq!(missing.to_string(), "it has no kernel /src/linux (it has 7.3)");
        tree.kernels[0].name = "7.3".into();
        let missing = compare(&old, &tree, &["a"]).unwrap_err();
        assert_eq!(missing.to_string(), "it has no kernel 6.12 (it has 7.3)", "not passed over in silence");
        // What was stored and not walked is the user's choice.
        assert_eq!(compare(&tree, &old, &["a"]).unwrap().regressions.len(), 0);
    }

    #[test]
    fn new_rows_of_sections_that_were_not_asked_for_do_not_count() {
        let old = matrix(&[("a/1", Verdict::Ready, "")]);
        let new = matrix(&[("a/1", Verdict::Ready, ""), ("b/1", Verdict::Finding, "")]);
        assert_eq!(compare(&old, &new, &["a"]).unwrap(), Difference::default());
        let old = matrix(&[("a/1", Verdict::Ready, ""), ("b/0", Verdict::Ready, "")]);
        let new = matrix(&[("a/1", Verdict::Ready, ""), ("b/0", Verdict::Ready, ""), ("b/1", Verdict::Finding, "")]);
        assert_eq!(compare(&old, &new, &["a", "b"]).unwrap().changes.len(), 1);
    }
}
