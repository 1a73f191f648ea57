//! What a run tells.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::invariants::Violation;

/// The result of a run. The same seed and options give the same report.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// The seed; with the options, all that is needed to see it again.
    pub seed: u64,
    /// Hash over everything that happened, 16 hexadecimal digits.
    pub trace_hash: String,
    /// Virtual time that passed.
    pub virtual_seconds: f64,
    /// What the world did, by its names: a torn write, a failed sync, a segment held back.
    pub faults: BTreeMap<String, u64>,
    /// Faults that were begun, by the names of [`crate::faults::kind::Kind`].
    pub injected: BTreeMap<String, u64>,
    /// Writes begun.
    pub writes: u64,
    /// Writes that returned successfully.
    pub acked: u64,
    /// Of those, the ones that an fsync has promised to keep.
    pub firm: u64,
    /// Reads that returned.
    pub reads: u64,
    /// Locks that were had for a while.
    pub locks: u64,
    /// Broken promises; empty in a good run.
    pub violations: Vec<Violation>,
}
