//! Writes logged for sleeping members are never lost; every seeded bug is found.

use std::collections::BTreeSet;

use super::{Bounds, Mutant, Standins};
use crate::explore::{each_case_holds, holds_and_reaches, is_found, print_of, prints};

#[test]
fn members_sleep() {
    holds_and_reaches("sleeps", Standins::new(Bounds::SLEEPS), &["lost log", "goes on without", "begins again"]);
}

#[test]
fn a_disk_is_lost() {
    holds_and_reaches(
        "losses",
        Standins::new(Bounds::LOSSES),
        &["begins again", "member sleeps and", "that woke", "goes on without"],
    );
}

#[test]
fn a_disk_is_lost_and_recoveries_begin_again() {
    holds_and_reaches("again", Standins::new(Bounds::AGAIN), &["spread over both", "next holder", "two calls"]);
}

#[test]
fn the_next_holder_logs_too() {
    holds_and_reaches(
        "leases",
        Standins::new(Bounds::LEASES),
        &["lost log", "goes on without", "member sleeps and", "that woke"],
    );
}

#[test]
fn every_seeded_bug_is_found() {
    for mutant in Mutant::ALL {
        is_found(&format!("{mutant:?}"), Standins::with(*mutant));
    }
}

/// Without its mistake, each mutant's case holds: so the checker had found the mistake.
#[test]
fn the_small_cases_hold_without_their_mistake() {
    each_case_holds(Mutant::ALL.iter().map(|mutant| mutant.bounds()), Standins::new);
}

/// The reduced states that are reached, and how many states it took.
fn reached_states(protocol: Standins) -> (BTreeSet<u64>, usize) {
    prints(&protocol, |state| print_of(&state.clone().reduced()))
}

/// Goal: the reductions hide no behaviour. Method: the same is reached with and without them, in cases small enough to
/// do without.
#[test]
fn reductions_hide_nothing() {
    for bounds in [
        Bounds { writes: 1, epoch: 2, calls: 1, sleeps: 1, losses: 1, crashes: 0 },
        Bounds { writes: 1, epoch: 3, calls: 1, sleeps: 1, losses: 0, crashes: 0 },
        Bounds { writes: 2, epoch: 1, calls: 2, sleeps: 1, losses: 0, crashes: 0 },
    ] {
        let reduced = Standins::new(bounds);
        let ((whole, whole_count), (reduced, count)) =
            (reached_states(Standins { reduces: false, ..reduced }), reached_states(reduced));
        println!("{bounds:?}: {whole_count} states without reductions, {count} with");
        assert!(whole == reduced, "{bounds:?}: {} and {} reduced states", whole.len(), reduced.len());
    }
}
