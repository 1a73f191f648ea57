//! What may wait for a node that sleeps now and then: no more than it takes within an interval (BlinkFS, Sec. 4.1: writes
//! are admitted at the rate at which the log drains).
//!
//! A node takes so many bytes a second while it serves ([`Pace`], measured on the node), and serves for so long within the
//! next interval, by the plan: what is more would not be with it one interval from now. A holder compares that with what
//! it keeps for the node ([`room`]); the log that all holders share compares it with what was logged and, by the plan,
//! cannot have been taken yet ([`Owed`]).

mod owed;
mod pace;

use ebb_types::NodeId;

pub use owed::{Ask, Owed};
pub use pace::Pace;

use crate::Timetable;

/// What a node is taken to write until it has told: a slow disk's half. In bytes a second.
pub const ASSUMED_BYTES_PER_SEC: u64 = 32 << 20;

/// A pace as a node tells it, which says 0 until it knows.
#[must_use]
pub const fn pace_or_assumed(bytes_per_sec: u64) -> u64 {
    if bytes_per_sec == 0 { ASSUMED_BYTES_PER_SEC } else { bytes_per_sec }
}

/// Most bytes that may wait for a node at a moment, if they are to be with it one interval later. None: there is no
/// bound, for no plan lets the node sleep within that time, or none ever wakes it, so that something else must be done.
#[must_use]
pub fn room(plans: &Timetable, node: NodeId, at_ms: u64, bytes_per_sec: u64) -> Option<u64> {
    let interval_ms = plans.at(at_ms)?.interval_ms;
    plans.next_wake_ms(node, at_ms)?;
    let serves_ms = plans.serves_ms(node, at_ms, at_ms.saturating_add(interval_ms));
    (serves_ms < interval_ms).then(|| taken(bytes_per_sec, serves_ms))
}

/// Bytes that are taken in so long.
fn taken(bytes_per_sec: u64, serves_ms: u64) -> u64 {
    let bytes = u128::from(bytes_per_sec) * u128::from(serves_ms) / 1000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
