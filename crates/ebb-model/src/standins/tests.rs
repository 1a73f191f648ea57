//! What was logged for sleepers is never lost; every planted mistake is found.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use super::properties::{self, reached};
use super::{Bounds, Mutant, Standins, State};

/// Explores everything within the bounds; the names of the `sometimes` properties that were reached.
fn holds_in_every_state(name: &str, bounds: Bounds) -> BTreeSet<&'static str> {
    let checker = Standins::new(bounds).checker().spawn_bfs().join();
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
fn members_sleep() {
    let reached = holds_in_every_state("sleeps", Bounds::SLEEPS);
    assert_eq!(reached, expected(&["lost log", "goes on without", "begins again"]));
}

#[test]
fn a_disk_is_lost() {
    let reached = holds_in_every_state("losses", Bounds::LOSSES);
    assert_eq!(reached, expected(&["begins again", "member sleeps and", "that woke", "goes on without"]));
}

#[test]
fn a_disk_is_lost_and_recoveries_begin_again() {
    let reached = holds_in_every_state("again", Bounds::AGAIN);
    assert_eq!(reached, expected(&["spread over both", "next holder"]));
}

#[test]
fn the_next_holder_logs_too() {
    let reached = holds_in_every_state("leases", Bounds::LEASES);
    assert_eq!(reached, expected(&["lost log", "goes on without", "member sleeps and", "that woke"]));
}

#[test]
fn every_planted_mistake_is_found() {
    for mutant in Mutant::ALL {
        let checker = Standins::with(*mutant).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
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

/// The reduced states that are reached, and how many states it took.
fn reached_states(protocol: Standins) -> (BTreeSet<u64>, usize) {
    let hash = |state: &State| {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    };
    let mut waiting = protocol.init_states();
    let mut known: BTreeSet<u64> = waiting.iter().map(hash).collect();
    let mut seen = BTreeSet::new();
    while let Some(state) = waiting.pop() {
        seen.insert(hash(&state.clone().reduced()));
        waiting.extend(protocol.next_states(&state).into_iter().filter(|next| known.insert(hash(next))));
    }
    (seen, known.len())
}

/// Goal: the reductions hide no behaviour. Method: what is reached with and without them is the same, in cases small enough
/// to do without.
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
