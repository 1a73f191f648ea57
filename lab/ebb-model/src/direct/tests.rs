//! Direct writes keep their promises in every state; every seeded bug is found.

use super::{Bounds, Direct, Mutant};
use crate::explore::is_found;

/// Without sleep there is nothing to be logged.
fn holds_and_reaches(name: &str, model: Direct, absent: &[&str]) {
    let of_sleep: &[&str] = if model.bounds.sleeps == 0 { &["in the log alone", "that slept"] } else { &[] };
    crate::explore::holds_and_reaches(name, model, &[absent, of_sleep].concat());
}

#[test]
fn direct_writes_take_turns_with_others() {
    let absent = ["crashed", "recovery", "under the next proxy", "outlives", "dropped in the end", "two were read"];
    holds_and_reaches("direct, turns", Direct::new(Bounds::TURNS), &absent);
}

#[test]
fn bytes_that_a_member_has_lost_come_from_the_place_of_the_put() {
    let absent = ["by way of the proxy", "recovery", "under the next proxy", "outlives"];
    holds_and_reaches("direct, crashes", Direct::new(Bounds::CRASHES), &absent);
}

#[test]
fn answered_writes_survive_the_proxy() {
    let absent = ["crashed", "by way of the proxy", "through the proxy", "completes"];
    holds_and_reaches("direct, deaths", Direct::new(Bounds::DEATHS), &absent);
}

#[test]
fn a_member_and_the_proxy_fail() {
    let absent = ["both direct", "by way of the proxy", "two were read", "completes"];
    holds_and_reaches("direct, both", Direct::new(Bounds::BOTH), &absent);
}

/// The case for completing writes: as long as no member loses its memory, nothing is left half there.
#[test]
fn a_recovery_that_completes_writes_leaves_no_half_while_members_remember() {
    let absent = ["crashed", "by way of the proxy", "through the proxy", "leaves half of a direct write"];
    holds_and_reaches("direct, rolling forward", Direct::rolling_forward(Bounds::DEATHS), &absent);
    let absent = ["crashed", "both direct", "two were read", "by way", "through", "leaves half of a direct write"];
    holds_and_reaches("direct, rolling forward again", Direct::rolling_forward(Bounds::AGAIN), &absent);
}

/// The case against: this recovery leaves halves where a member that knew of a write has lost its memory, and halves of
/// writes that went through the proxy. So it allows no stronger promise to a writer than a recovery that completes
/// nothing.
#[test]
fn a_recovery_that_completes_writes_leaves_halves_where_members_forget_and_of_proxied_writes() {
    let absent = ["both direct", "two were read", "by way of the proxy", "through the proxy"];
    holds_and_reaches("direct, rolling forward, memory", Direct::rolling_forward(Bounds::MEMORY), &absent);
    let absent = ["both direct", "by way of the proxy", "two were read"];
    holds_and_reaches("direct, rolling forward, both", Direct::rolling_forward(Bounds::BOTH), &absent);
}

/// A write is answered that is in the log and with the members that are awake.
#[test]
fn a_member_sleeps_and_another_or_the_proxy_fails() {
    let absent = ["both direct", "by way of the proxy", "through the proxy", "two were read", "completes"];
    holds_and_reaches("direct, sleeps", Direct::new(Bounds::SLEEPS), &absent);
}

#[test]
fn every_seeded_bug_is_found() {
    for mutant in Mutant::ALL {
        is_found(&format!("{mutant:?}"), Direct::with(*mutant));
    }
}
