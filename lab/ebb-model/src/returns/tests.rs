//! Returns keep their promises in every state; every seeded bug is found.

use super::{Bounds, Mutant, Returns};
use crate::explore::{holds_and_reaches, is_found};

#[test]
fn nodes_come_back_early_and_late() {
    let absent = ["a disk was lost", "after its node has joined"];
    holds_and_reaches("returns", Returns::new(Bounds::RETURNS), &absent);
}

#[test]
fn nodes_come_back_and_a_disk_is_lost() {
    let absent = ["after its node has joined"];
    holds_and_reaches("returns, losses", Returns::new(Bounds::LOSSES), &absent);
}

#[test]
fn recoveries_begin_again() {
    let absent = ["a disk was lost"];
    holds_and_reaches("returns, again", Returns::new(Bounds::AGAIN), &absent);
}

#[test]
fn there_are_as_many_nodes_as_copies() {
    let absent = ["a disk was lost", "what was in no set has been deleted", "after its node has joined"];
    holds_and_reaches("returns, few nodes", Returns::new(Bounds::FEW), &absent);
}

#[test]
fn every_seeded_bug_is_found() {
    for mutant in Mutant::ALL {
        is_found(&format!("{mutant:?}"), Returns::with(*mutant));
    }
}
