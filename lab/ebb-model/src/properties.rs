//! Properties that must hold in every state, and properties that must be reached in some. One file for each promise.

use stateright::Property;

use crate::Protocol;

pub mod acknowledged_survives;
pub mod committed_is_synced;
pub mod one_content;
pub mod one_writer;
pub mod reached;
pub mod reads_advance;
pub mod set_rebuilds;
pub mod stale_never_serves;

/// All of them.
#[must_use]
pub fn all() -> Vec<Property<Protocol>> {
    let mut all = vec![
        Property::always(acknowledged_survives::NAME, acknowledged_survives::holds),
        Property::always(reads_advance::NAME, reads_advance::holds),
        Property::always(one_writer::NAME, one_writer::holds),
        Property::always(stale_never_serves::NAME, stale_never_serves::holds),
        Property::always(set_rebuilds::NAME, set_rebuilds::holds),
        Property::always(committed_is_synced::NAME, committed_is_synced::holds),
        Property::always(one_content::NAME, one_content::holds),
    ];
    all.extend(reached::all());
    all
}
