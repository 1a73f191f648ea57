//! Checks that compilers do not make. Each file in `tidy/` is one check: a function from the tree to findings.

use std::fmt;

use crate::failure::Failure;
use crate::tree::Tree;

mod arrows;
mod errors;
mod invariants;
mod links;
mod long_files;
mod map;
mod messages;
mod promises;
mod reminders;
mod sentences;
mod strays;
mod unsafe_code;
mod vague_names;
mod words;

/// A problem and its place.
#[derive(PartialEq, Eq, Debug)]
pub struct Finding {
    /// File, from the root.
    pub path: String,
    /// Line, or 0 for the file as a whole.
    pub line: usize,
    /// The problem and the remedy.
    pub text: String,
}

impl Finding {
    fn new(path: impl Into<String>, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.into(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.text),
            line => write!(f, "{}:{line}: {}", self.path, self.text),
        }
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

/// All checks. To add one: a file and a line.
const CHECKS: &[(&str, Check)] = &[
    ("map", map::check),
    ("arrows", arrows::check),
    ("invariants", invariants::check),
    ("errors", errors::check),
    ("messages", messages::check),
    ("promises", promises::check),
    ("reminders", reminders::check),
    ("long files", long_files::check),
    ("strays", strays::check),
    ("unsafe code", unsafe_code::check),
    ("vague names", vague_names::check),
    ("words", words::check),
    ("links", links::check),
    ("sentences", sentences::check),
];

/// Runs every check and prints its findings.
pub fn run() -> Result<(), Failure> {
    println!("== tidy");
    let tree = Tree::load().map_err(|sentence| {
        println!("{sentence}\n== tidy: FAILED");
        Failure::new("tidy", vec![sentence])
    })?;
    let mut lines = Vec::new();
    for (name, check) in CHECKS {
        lines.extend(check(&tree).iter().map(|finding| format!("{finding} [{name}]")));
    }
    lines.iter().for_each(|line| println!("{line}"));
    if lines.is_empty() {
        println!("== tidy: ok ({} checks, {} files)", CHECKS.len(), tree.files.len());
        return Ok(());
    }
    println!("== tidy: FAILED ({} findings)", lines.len());
    Err(Failure::new("tidy", lines))
}

/// Cells of a markdown table's row, trimmed; `None` for other lines and for the line under the head.
fn table_cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    if inner.chars().all(|letter| matches!(letter, '-' | '|' | ' ' | ':')) {
        return None;
    }
    Some(inner.split('|').map(str::trim).collect())
}

/// The first thing between backquotes.
fn quoted(text: &str) -> Option<&str> {
    text.split('`').nth(1)
}
