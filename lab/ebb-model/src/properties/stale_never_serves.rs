//! A stale replica never serves: all that may be read at a time is one content.

use crate::{Protocol, State};

/// Its name in reports.
pub const NAME: &str = "stale never serves";

/// All reads that could be made now return the same.
pub fn holds(protocol: &Protocol, state: &State) -> bool {
    let mut reads = state.reads(protocol).map(|copy| copy.writes);
    let Some(first) = reads.next() else { return true };
    reads.all(|writes| writes == first)
}
