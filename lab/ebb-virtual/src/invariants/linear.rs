//! One order of all operations explains every answer that clients got about the names of one directory.
//!
//! Source: `docs/semantics.md`, "Names": each change is atomic, and seen by all at once.

use super::Violation;
use crate::history::History;
use crate::names::NAMES_MAX;
use crate::names::check::{Verdict, check as judge};

/// Checks all operations on names. A history that cannot be decided is a violation, too: clients keep to a load that
/// the checker bears.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    match judge([None; NAMES_MAX], history.names()) {
        Verdict::Linear => Vec::new(),
        Verdict::Illegal(why) => vec![Violation::new("linear", why)],
        Verdict::Undecided(why) => {
            let operations = history.names().len();
            vec![Violation::new("linear", format!("{operations} operations on names cannot be judged: {why}"))]
        }
    }
}
