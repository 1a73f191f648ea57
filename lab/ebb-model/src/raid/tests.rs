//! Encoding loses nothing, whatever happens beside it; every seeded bug is found.

use super::{Bounds, Mutant, Raid};
use crate::explore::{each_case_holds, holds_and_reaches, is_found};

#[test]
fn files_are_written_while_they_are_encoded() {
    holds_and_reaches(
        "writers",
        Raid::new(Bounds::WRITERS),
        &["ballast", "was frozen", "thawed", "made again", "another"],
    );
}

#[test]
fn what_is_frozen_is_written() {
    holds_and_reaches("thaws", Raid::new(Bounds::THAWS), &["made again", "another"]);
}

#[test]
fn disks_are_lost_and_rot() {
    holds_and_reaches(
        "losses",
        Raid::new(Bounds::LOSSES),
        &["overtaken", "ballast", "was frozen", "thawed", "another"],
    );
}

#[test]
fn files_are_removed_and_what_is_left_is_encoded_again() {
    holds_and_reaches("repacking", Raid::new(Bounds::REPACKING), &["was frozen", "made again"]);
}

#[test]
fn the_lead_changes_and_nodes_crash() {
    holds_and_reaches(
        "crashes",
        Raid::new(Bounds::CRASHES),
        &["ballast", "was frozen", "thawed", "made again", "another"],
    );
}

#[test]
fn every_seeded_bug_is_found() {
    for mutant in Mutant::ALL {
        is_found(&format!("{mutant:?}"), Raid::with(*mutant));
    }
}

/// Without its mistake, each mutant's case holds: so the checker had found the mistake.
#[test]
fn the_small_cases_hold_without_their_mistake() {
    each_case_holds(Mutant::ALL.iter().map(|mutant| mutant.bounds()), Raid::new);
}
