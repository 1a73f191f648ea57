//! Invariants that hold under all faults. One file for each property; each names the source of the promise.
//!
//! A checker takes observations and returns the violations, in sentences. It knows nothing of how the system works, so
//! it cannot share its mistakes.

pub mod append;
pub mod atomic;
pub mod available;
pub mod copies;
pub mod cut;
pub mod disks;
pub mod fresh;
pub mod gray;
pub mod healthy;
pub mod linear;
pub mod locks;
pub mod names;
pub mod placed;
pub mod replicas;
pub mod synced;
pub mod torn;
pub mod whole;

use serde::Serialize;

use crate::history::History;

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Violation {
    /// Which property, by the name of its file.
    pub invariant: &'static str,
    /// The observation.
    pub detail: String,
}

impl Violation {
    pub(crate) fn new(invariant: &'static str, detail: impl Into<String>) -> Self {
        Self { invariant, detail: detail.into() }
    }
}

/// Checks everything that a history of reads and writes shows.
#[must_use]
pub fn check_history(history: &History) -> Vec<Violation> {
    let mut violations = history.complaints().to_vec();
    violations.extend(cut::check(history));
    let mut with_snapshots = history.clone();
    cut::as_reads(history).into_iter().for_each(|read| with_snapshots.read(read));
    let history = &with_snapshots;
    violations.extend(torn::check(history));
    violations.extend(whole::check(history));
    violations.extend(fresh::check(history));
    violations.extend(atomic::check(history));
    violations.extend(append::check(history));
    violations.extend(locks::check(history));
    violations.extend(linear::check(history));
    violations
}
