//! The protocol holds in every state; every planted mistake is found; the reductions change nothing.

use std::collections::BTreeSet;

use stateright::{Checker, Expectation, HasDiscoveries, Model, StateRecorder};

use crate::symmetry::representative;
use crate::{Bounds, Mutant, Protocol, State, properties};

/// Explores everything within the bounds; the names of the `sometimes` properties that were reached.
fn holds_in_every_state(name: &str, bounds: Bounds) -> BTreeSet<&'static str> {
    let checker = Protocol::new(bounds).checker().spawn_bfs().join();
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
    let sometimes = properties::reached::all().into_iter().map(|property| property.name);
    sometimes.filter(|name| !absent.iter().any(|part| name.contains(part))).collect()
}

#[test]
fn a_writer_a_recovery_and_a_second_writer() {
    let reached = holds_in_every_state("leases", Bounds::LEASES);
    assert_eq!(reached, expected(&["replaced", "repaired"]));
}

#[test]
fn a_holder_changes_a_set_and_the_master_repairs_it() {
    let reached = holds_in_every_state("sets", Bounds::SETS);
    assert_eq!(reached, expected(&["crashed", "next holder"]));
}

#[test]
fn recoveries_die_and_begin_again() {
    let reached = holds_in_every_state("recoveries", Bounds::RECOVERIES);
    assert_eq!(reached, expected(&["replaced", "repaired", "next holder"]));
}

#[test]
fn every_planted_mistake_is_found() {
    for mutant in Mutant::ALL {
        let checker = Protocol::with(*mutant).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
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
    for mutant in Mutant::ALL {
        holds_in_every_state(&format!("case of {mutant:?}"), mutant.bounds());
    }
}

/// Every state that can be reached.
fn all_states(protocol: Protocol) -> Vec<State> {
    let (recorder, states) = StateRecorder::new_with_accessor();
    protocol.checker().visitor(recorder).spawn_bfs().join();
    states()
}

/// The processes and the history, without the network.
fn processes(state: &State) -> String {
    format!("{:?}", (&state.replicas, &state.clients, &state.master, &state.history))
}

/// Goal: forgetting messages hides no behaviour. Method: the states of all processes that are reached with and
/// without are the same, in cases small enough to do without.
#[test]
fn forgetting_hides_nothing() {
    let cases = [
        Bounds { writes: 1, epoch: 1, crashes: 1, replacements: 0, repairs: 0 },
        Bounds { writes: 1, epoch: 1, crashes: 0, replacements: 1, repairs: 0 },
    ];
    for bounds in cases {
        let whole = Protocol { renames: false, forgets: false, ..Protocol::new(bounds) };
        let reduced = Protocol { forgets: true, ..whole };
        let of = |protocol| all_states(protocol).iter().map(processes).collect::<BTreeSet<_>>();
        let (whole, reduced) = (of(whole), of(reduced));
        assert!(reduced.is_subset(&whole), "forgetting invents states");
        let hidden: Vec<_> = whole.difference(&reduced).take(1).collect();
        assert!(hidden.is_empty(), "{bounds:?}: hidden, of {} against {}: {hidden:?}", whole.len(), reduced.len());
        println!("{bounds:?}: {} states of the processes both ways", whole.len());
    }
}

/// Goal: renaming nodes hides no state. Method: renaming every state that is reached under fixed names gives exactly
/// the states that are reached when each step renames.
#[test]
fn renaming_hides_nothing() {
    let bounds = Bounds { writes: 1, epoch: 1, crashes: 1, replacements: 1, repairs: 0 };
    let renamed = Protocol::new(bounds);
    let fixed = Protocol { renames: false, ..renamed };
    let print = |state: State| format!("{state:?}");
    let of_fixed: BTreeSet<_> = all_states(fixed).into_iter().map(|state| print(representative(state))).collect();
    let of_renamed: BTreeSet<_> = all_states(renamed).into_iter().map(|state| print(representative(state))).collect();
    assert_eq!(of_fixed.len(), of_renamed.len());
    assert!(of_fixed == of_renamed, "renaming each step reaches other states");
    println!("{} states both ways", of_fixed.len());
}
