//! The report of a run.

use std::collections::BTreeMap;

use ebb_client::Metrics;
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
    /// The world's faults, by their names: a torn write, a failed sync, a segment held back.
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
    /// Operations on names.
    pub names: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// Reads by descriptors of a block server on the client's host, as clients counted them until shortly before their ends.
    pub short_circuit_reads: u64,
    /// Reads that extra copies answered, as clients counted them until shortly before their ends.
    pub extra_reads: u64,
    /// Metablocks that were thawed, and reads that were decoded, as clients counted them until shortly before their ends.
    pub thawed: u64,
    /// See `thawed`.
    pub degraded_reads: u64,
    /// The most copies that were seen away from homes that no plan lets sleep, in runs under power.
    pub away_from_on: u64,
    /// Nodes that were called gray.
    pub gray: u64,
    /// The longest operation of each kind in milliseconds, in runs with one fault at a time.
    pub slowest: BTreeMap<String, u64>,
    /// How the proxy was used, and the faults that its users met.
    pub proxy: ProxyUse,
    /// Broken promises; empty in a good run.
    pub violations: Vec<Violation>,
}

/// Operations on shared files, as clients counted them until shortly before their ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ProxyUse {
    /// Carried out by a proxy.
    pub done: u64,
    /// Sent again for want of an answer.
    pub repeated: u64,
    /// Found that their file was elsewhere.
    pub moved: u64,
    /// Failed because it was not known whether they had been carried out.
    pub unknown: u64,
    /// Stays of files at a proxy that a client found lost.
    pub lost: u64,
    /// Writes whose bytes went to the members directly.
    pub direct: u64,
}

impl ProxyUse {
    /// Of all clients together.
    #[must_use]
    pub fn of<'a>(counts: impl Iterator<Item = &'a Metrics>) -> Self {
        counts.fold(Self::default(), |sum, one| {
            sum.with(Self {
                done: one.proxied_operations,
                repeated: one.repeated_operations,
                moved: one.moved_operations,
                unknown: one.unknown_operations,
                lost: one.lost_stays,
                direct: one.direct_writes,
            })
        })
    }

    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            done: self.done + other.done,
            repeated: self.repeated + other.repeated,
            moved: self.moved + other.moved,
            unknown: self.unknown + other.unknown,
            lost: self.lost + other.lost,
            direct: self.direct + other.direct,
        }
    }
}
