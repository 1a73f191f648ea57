//! Direct writes keep what is promised in every state; every planted mistake is found.

use super::{Bounds, Direct, Mutant};
use crate::explore::{holds_and_reaches, is_found};

#[test]
fn direct_writes_take_turns_with_others() {
    let absent = ["crashed", "recovery", "under the next proxy", "outlives", "dropped in the end", "two were read"];
    holds_and_reaches("direct, turns", Direct::new(Bounds::TURNS), &absent);
}

#[test]
fn what_a_member_has_lost_comes_from_where_it_was_put() {
    let absent = ["by way of the proxy", "recovery", "under the next proxy", "outlives"];
    holds_and_reaches("direct, crashes", Direct::new(Bounds::CRASHES), &absent);
}

#[test]
fn what_was_answered_survives_the_proxy() {
    let absent = ["crashed", "by way of the proxy"];
    holds_and_reaches("direct, deaths", Direct::new(Bounds::DEATHS), &absent);
}

#[test]
fn a_member_and_the_proxy_fail() {
    let absent = ["both direct", "by way of the proxy", "two were read"];
    holds_and_reaches("direct, both", Direct::new(Bounds::BOTH), &absent);
}

#[test]
fn every_planted_mistake_is_found() {
    for mutant in Mutant::ALL {
        is_found(&format!("{mutant:?}"), Direct::with(*mutant));
    }
}
