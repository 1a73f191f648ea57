//! The protocol of shared files holds in every state; every planted mistake is found; forgetting changes nothing.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use super::message::Network;
use super::properties::{self, reached};
use super::{Bounds, Mutant, Sharing, State};

/// Explores everything within the bounds; the names of the `sometimes` properties that were reached.
fn holds_in_every_state(name: &str, bounds: Bounds) -> BTreeSet<&'static str> {
    let checker = Sharing::new(bounds).checker().spawn_bfs().join();
    println!(
        "{name}: {} steps, {} states, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    assert!(checker.is_done(), "{name} was not explored to its end");
    for property in properties::all() {
        if property.expectation == Expectation::Always {
            checker.assert_no_discovery(property.name);
        }
    }
    checker.discoveries().into_keys().collect()
}

/// All that must be reached somewhere, of which each case adds its part.
fn expected(absent: &[&str]) -> BTreeSet<&'static str> {
    let sometimes = reached().into_iter().map(|property| property.name);
    sometimes.filter(|name| !absent.iter().any(|part| name.contains(part))).collect()
}

#[test]
fn a_file_moves_to_the_proxy_and_back_and_again() {
    let reached = holds_in_every_state("moves", Bounds::MOVES);
    assert_eq!(reached, expected(&["was not done", "is told", "is seen"]));
}

#[test]
fn the_proxy_dies_and_power_fails() {
    let reached = holds_in_every_state("deaths", Bounds::DEATHS);
    assert_eq!(reached, expected(&["is seen"]));
}

#[test]
fn what_others_wrote_is_shown_while_the_proxy_is_lost() {
    let reached = holds_in_every_state("reads", Bounds::READS);
    assert_eq!(reached, expected(&["own lease", "comes back", "both clients", "an fsync", "is told"]));
}

#[test]
fn every_planted_mistake_is_found() {
    for mutant in Mutant::ALL {
        let checker = Sharing::with(*mutant).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let always = properties::all().into_iter().filter(|property| property.expectation == Expectation::Always);
        let found: Vec<_> =
            always.filter_map(|property| Some((property.name, checker.discovery(property.name)?))).collect();
        assert!(!found.is_empty(), "{mutant:?} was not found in {} states", checker.unique_state_count());
        for (name, path) in found {
            println!("{mutant:?}: broke \"{name}\" in {} steps", path.into_actions().len());
        }
    }
}

/// Without its mistake, each mutant's case holds: what was found there was the mistake.
#[test]
fn the_small_cases_hold_without_their_mistake() {
    let mut done = Vec::new();
    for bounds in Mutant::ALL.iter().map(|mutant| mutant.bounds()) {
        if !done.contains(&bounds) {
            holds_in_every_state(&format!("{bounds:?}"), bounds);
            done.push(bounds);
        }
    }
}

/// The processes and the history, without the network.
fn processes(protocol: Sharing) -> (BTreeSet<u64>, usize) {
    let hash = |state: &State| {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    };
    let mut waiting = protocol.init_states();
    let mut known: BTreeSet<u64> = waiting.iter().map(hash).collect();
    let mut seen = BTreeSet::new();
    while let Some(state) = waiting.pop() {
        seen.insert(hash(&State { network: Network::default(), ..state.clone() }));
        waiting.extend(protocol.next_states(&state).into_iter().filter(|next| known.insert(hash(next))));
    }
    (seen, known.len())
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
