//! Whole nodes, with the data moved onto them at each change (BlinkFS, Sec. 2.2).
//!
//! The plan says which nodes are on. The manager sees to it that data have moved before the others sleep, because
//! [`crate::reach::admit`] refuses the plan until then.

use super::activation::{Active, on_for_good};
use super::{Ask, Schedule};

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    let mut on = std::collections::BTreeSet::new();
    let mut spent = 0.0;
    let living = ask.living();
    for node in &living {
        spent += ask.extra(*node);
        if !ask.affords(spent) {
            break;
        }
        on.insert(*node);
    }
    if on.is_empty() {
        return ask.all_off("too little power for one node");
    }
    let why = format!("{} of {} nodes on, with all data on them", on.len(), living.len());
    on_for_good(ask, Active { on, ..Active::default() }, why)
}

/// The data that must move when the active set of a layout without spare copies changes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Migration {
    /// Active nodes before.
    pub from: u32,
    /// Active nodes after.
    pub to: u32,
    /// Bytes that move so that every active node holds the same amount.
    pub bytes: f64,
}

/// Migration of data that are spread evenly over the active nodes. On the way down the leaving nodes hand over their
/// data. On the way up the new nodes get their part. The last node has all data before it sleeps, and hands out parts
/// when it wakes.
#[must_use]
pub fn migration(from: u32, to: u32, data_bytes: f64) -> Migration {
    let (holders_before, holders_after) = (from.max(1), to.max(1));
    let moved = f64::from(holders_before.abs_diff(holders_after)) / f64::from(holders_before.max(holders_after));
    Migration { from, to, bytes: data_bytes * moved }
}
