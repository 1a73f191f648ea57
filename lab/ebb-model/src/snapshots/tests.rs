//! A snapshot stays as it was, in every state; every seeded bug is found.

use super::{Bounds, Mutant, Snapshots};
use crate::explore::{each_case_holds, holds_and_reaches, is_found};

#[test]
fn files_are_written_beside_their_snapshots() {
    holds_and_reaches("writes", Snapshots::new(Bounds::WRITES), &["copy", "gets", "sealed", "slot", "everything"]);
}

#[test]
fn files_end_before_their_snapshots() {
    holds_and_reaches("ends", Snapshots::new(Bounds::ENDS), &["lost holder", "copy", "gets", "sealed", "slot"]);
}

#[test]
fn shared_metablocks_are_moved() {
    holds_and_reaches("moves", Snapshots::new(Bounds::MOVES), &["lost holder", "sealed", "slot"]);
}

#[test]
fn shared_metablocks_are_encoded() {
    holds_and_reaches("raid", Snapshots::new(Bounds::RAID), &["copy", "gets"]);
}

#[test]
fn slots_that_snapshots_have_are_moved() {
    holds_and_reaches("slots", Snapshots::new(Bounds::SLOTS), &["lost holder"]);
}

#[test]
fn every_seeded_bug_is_found() {
    for mutant in Mutant::ALL {
        is_found(&format!("{mutant:?}"), Snapshots::with(*mutant));
    }
}

/// Without its mistake, each mutant's case holds: so the checker had found the mistake.
#[test]
fn the_small_cases_hold_without_their_mistake() {
    each_case_holds(Mutant::ALL.iter().map(|mutant| mutant.bounds()), Snapshots::new);
}
