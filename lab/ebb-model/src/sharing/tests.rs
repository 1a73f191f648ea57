//! The protocol of shared files holds in every state; every seeded bug is found; forgetting changes nothing.

use std::collections::BTreeSet;

use super::message::Network;
use super::{Bounds, Mutant, Sharing, State};
use crate::explore::{each_case_holds, holds_and_reaches, is_found, print_of, prints};

#[test]
fn a_file_moves_to_the_proxy_and_back_and_again() {
    holds_and_reaches("moves", Sharing::new(Bounds::MOVES), &["was not done", "is told", "is seen"]);
}

#[test]
fn the_proxy_dies_and_power_fails() {
    holds_and_reaches("deaths", Sharing::new(Bounds::DEATHS), &["is seen"]);
}

#[test]
fn writes_of_others_are_shown_while_the_proxy_is_lost() {
    holds_and_reaches(
        "reads",
        Sharing::new(Bounds::READS),
        &["own lease", "comes back", "both clients", "an fsync", "is told"],
    );
}

#[test]
fn every_seeded_bug_is_found() {
    for mutant in Mutant::ALL {
        is_found(&format!("{mutant:?}"), Sharing::with(*mutant));
    }
}

/// Without its mistake, each mutant's case holds: so the checker had found the mistake.
#[test]
fn the_small_cases_hold_without_their_mistake() {
    each_case_holds(Mutant::ALL.iter().map(|mutant| mutant.bounds()), Sharing::new);
}

/// The processes and the history, without the network.
fn processes(protocol: Sharing) -> (BTreeSet<u64>, usize) {
    prints(&protocol, |state| print_of(&State { network: Network::default(), ..state.clone() }))
}

/// Goal: forgetting messages hides no behaviour. Method: the states of all processes that are reached with and without
/// are the same, in cases small enough to do without.
#[test]
fn forgetting_hides_nothing() {
    for bounds in [
        Bounds { writes: 1, syncs: 1, reads: 0, epoch: 2, deaths: 1, power_cuts: 1 },
        Bounds { writes: 1, syncs: 0, reads: 1, epoch: 2, deaths: 1, power_cuts: 0 },
        Bounds { writes: 2, syncs: 0, reads: 0, epoch: 2, deaths: 0, power_cuts: 0 },
    ] {
        let reduced = Sharing::new(bounds);
        let ((whole, whole_count), (reduced, count)) =
            (processes(Sharing { forgets: false, ..reduced }), processes(reduced));
        println!("{bounds:?}: {whole_count} states without forgetting, {count} with");
        assert!(whole == reduced, "{bounds:?}: {} and {} of the processes", whole.len(), reduced.len());
    }
}
