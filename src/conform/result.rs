//! What a walk found, in the form that is stored, compared and shown.

use super::keys::Key;
use serde::{Deserialize, Serialize};

/// Version of the stored form. Raised when a field changes its meaning.
pub const SCHEMA: u32 = 1;

/// What a row says of a kernel. The order is from best to worst; a comparison calls a step towards the end a regression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As hardware without ordering needs it.
    Ready,
    /// The kernel, its modules or the device do not have this, or it could not be tried; the row says which.
    Absent,
    /// Not as such hardware needs it; the row says what is wrong.
    Finding,
    /// The kernel crashed or did not come back.
    Crash,
}

impl Verdict {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ready => "ready",
            Verdict::Absent => "absent",
            Verdict::Finding => "finding",
            Verdict::Crash => "crash",
        }
    }
}

/// One try: a call with one set of flags, an action, a run under one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// What was varied.
    pub column: String,
    /// `ok`, an errno, or a word.
    pub outcome: String,
    /// Whether that is what hardware without ordering needs; absent where it does not matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub good: Option<bool>,
    /// More about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Keys that the device was asked for meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Key>,
    /// What the kernel logged meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
    /// The line in which the kernel complained of itself, with a warning or an oops.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trouble: String,
}

/// One question and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `section/name`, stable.
    pub id: String,
    /// For people.
    pub title: String,
    /// The answer.
    pub verdict: Verdict,
    /// The answer in words.
    pub says: String,
    /// What it is drawn from.
    pub cells: Vec<Cell>,
}

/// A kernel that was walked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// As it was named on the command line.
    pub name: String,
    /// `uname -r`; empty if it never came up.
    pub release: String,
    /// Settings of the device of each guest that was booted, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guests: Vec<String>,
    /// Answers.
    pub rows: Vec<Row>,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of this program.
    pub version: String,
    /// Device profile.
    pub profile: String,
    /// Options of the device.
    #[serde(default)]
    pub options: Vec<String>,
    /// Whether the walk came to its end.
    #[serde(default = "yes")]
    pub complete: bool,
    /// Kernels in the order they were named.
    pub kernels: Vec<Kernel>,
}

fn yes() -> bool {
    true
}

impl Matrix {
    /// The worst answer. A kernel that has nothing to walk is not ready.
    pub fn worst(&self) -> Verdict {
        let worst = |kernel: &Kernel| match kernel.rows.iter().map(|row| row.verdict).max() {
            Some(Verdict::Absent) if kernel.rows.iter().all(|row| row.verdict == Verdict::Absent) => Verdict::Finding,
            worst => worst.unwrap_or(Verdict::Finding),
        };
        self.kernels.iter().map(worst).max().unwrap_or(Verdict::Finding)
    }

    /// Leaves rows of these sections only.
    pub fn retain(&mut self, sections: &[&str]) {
        for kernel in &mut self.kernels {
            kernel.rows.retain(|row| sections.contains(&row.section()));
        }
    }

    /// Names of the sections that some kernel has rows of, in the order of the walk.
    pub fn sections(&self) -> Vec<&str> {
        let mut sections: Vec<&str> = self.rows().iter().map(|(id, _)| section_of(id)).collect();
        sections.dedup();
        sections
    }

    /// Every row that some kernel has, in the order of the walk: identifier and title.
    pub fn rows(&self) -> Vec<(&str, &str)> {
        let mut rows: Vec<(&str, &str)> = Vec::new();
        for row in self.kernels.iter().flat_map(|kernel| &kernel.rows) {
            if !rows.iter().any(|(id, _)| *id == row.id) {
                rows.push((&row.id, &row.title));
            }
        }
        rows
    }
}

/// The section of a row, by its identifier.
pub fn section_of(id: &str) -> &str {
    id.split('/').next().unwrap_or_default()
}

impl Row {
    /// Name of its section.
    pub fn section(&self) -> &str {
        section_of(&self.id)
    }
}

impl Kernel {
    /// The row with this identifier.
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_with_nothing_to_walk_is_not_ready() {
        let kernel = |verdicts: &[Verdict]| {
            let row = |verdict: &Verdict| Row {
                id: "a/x".into(),
                title: String::new(),
                verdict: *verdict,
                says: String::new(),
                cells: Vec::new(),
            };
            Kernel {
                name: String::new(),
                release: String::new(),
                guests: Vec::new(),
                rows: verdicts.iter().map(row).collect(),
            }
        };
        let worst = |kernels: &[Kernel]| {
            let (version, profile) = (String::new(), String::new());
            Matrix { schema: SCHEMA, version, profile, options: Vec::new(), complete: true, kernels: kernels.to_vec() }
                .worst()
        };
        let (ready, absent) = (kernel(&[Verdict::Ready, Verdict::Absent]), kernel(&[Verdict::Absent; 2]));
        assert_eq!(worst(std::slice::from_ref(&ready)), Verdict::Absent);
        assert_eq!(worst(&[ready, absent]), Verdict::Finding);
        assert_eq!(worst(&[]), Verdict::Finding);
    }
}
