//! Copies away from home lose nothing and come home; every seeded bug is found.

use super::{Bounds, Guests, Mutant};
use crate::explore::{each_case_holds, holds_and_reaches, is_found};

#[test]
fn a_file_is_written_while_homes_are_off_and_guests_go_home() {
    holds_and_reaches("writes", Guests::new(Bounds::WRITES), &["dead"]);
}

#[test]
fn guests_move_on_and_copies_are_begun_again() {
    holds_and_reaches("moves", Guests::new(Bounds::MOVES), &["dead", "holder writes", "made up"]);
}

#[test]
fn holders_are_given_up_while_copies_are_away() {
    holds_and_reaches("recoveries", Guests::new(Bounds::RECOVERIES), &["dead", "holder writes"]);
}

#[test]
fn a_node_dies_while_copies_are_away() {
    holds_and_reaches("deaths", Guests::new(Bounds::DEATHS), &["holder writes"]);
}

#[test]
fn every_seeded_bug_is_found() {
    for mutant in Mutant::ALL {
        is_found(&format!("{mutant:?}"), Guests::with(*mutant));
    }
}

/// Without its mistake, each mutant's case holds: so the checker had found the mistake.
#[test]
fn the_small_cases_hold_without_their_mistake() {
    each_case_holds(Mutant::ALL.iter().map(|mutant| mutant.bounds()), Guests::new);
}
