//! Limits of the bytes that wait for a node that sleeps at times: no more than it can take within an interval (BlinkFS,
//! Sec. 4.1: writes are admitted at the rate at which the log drains).
//!
//! A node takes a number of bytes a second while it serves ([`Pace`], measured on the node). The plan says for how long
//! it serves within the next interval. The product is the limit: more bytes would not be on the node one interval from
//! now. A lease holder compares it with the bytes that it keeps for the node ([`room`]). The handoff log, which all
//! holders share, compares it with the logged bytes that the node cannot have taken yet ([`Owed`]).

mod owed;
mod pace;

use ebb_types::NodeId;

pub use owed::{Ask, Owed};
pub use pace::Pace;

use crate::Timetable;

/// Assumed write rate of a node until it reports one: half of a slow disk's. In bytes a second.
pub const ASSUMED_BYTES_PER_SEC: u64 = 32 << 20;

/// The pace that a node reports, or the assumed one if it reports 0, which means unknown.
#[must_use]
pub const fn pace_or_assumed(bytes_per_sec: u64) -> u64 {
    if bytes_per_sec == 0 { ASSUMED_BYTES_PER_SEC } else { bytes_per_sec }
}

/// Limit of the bytes that may wait for a node at a moment and still be on it one interval later. `None`: there is no
/// limit. Either no plan lets the node sleep within that time, or none ever wakes it, so that waiting is no use.
///
/// A node may have no turn within the interval because only an announced plan wakes it. Then the bytes are on it one
/// interval after its wake. With no room at all, writes would wait until that plan is near.
#[must_use]
pub fn room(plans: &Timetable, node: NodeId, at_ms: u64, bytes_per_sec: u64) -> Option<u64> {
    let interval_ms = plans.at(at_ms)?.interval_ms;
    let wake_ms = plans.next_wake_ms(node, at_ms)?;
    let serves_ms = plans.serves_ms(node, at_ms, at_ms.saturating_add(interval_ms));
    if serves_ms == 0 {
        return Some(taken(bytes_per_sec, plans.serves_ms(node, wake_ms, wake_ms.saturating_add(interval_ms))));
    }
    (serves_ms < interval_ms).then(|| taken(bytes_per_sec, serves_ms))
}

/// Bytes that a node takes in `serves_ms`.
fn taken(bytes_per_sec: u64, serves_ms: u64) -> u64 {
    let bytes = u128::from(bytes_per_sec) * u128::from(serves_ms) / 1000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
