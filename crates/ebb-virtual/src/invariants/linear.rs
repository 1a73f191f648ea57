//! All that clients were answered of the names of one directory can be explained by one order of what they did.
//!
//! Source: `docs/semantics.md`, "Names": each change is atomic, and seen by all at once.

use super::Violation;
use crate::history::History;
use crate::names::NAMES_MAX;
use crate::names::check::{Verdict, check as judge};

/// Judges everything that was done to names. A history with too much under way at a time to tell has no violation.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    match judge([None; NAMES_MAX], history.names()) {
        Verdict::Linear => Vec::new(),
        Verdict::Illegal(why) => vec![Violation::new("linear", why)],
        Verdict::Undecided(why) => {
            tracing::warn!(why, operations = history.names().len(), "nobody can say whether names are linearizable");
            Vec::new()
        }
    }
}
