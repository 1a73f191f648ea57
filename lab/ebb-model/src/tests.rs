//! The protocol holds in every state; every seeded bug is found; the reductions change nothing.

use std::collections::BTreeSet;

use stateright::Model;

use crate::explore::{holds_and_reaches, holds_in_every_state, is_found, visit_all};
use crate::message::Network;
use crate::symmetry::representative;
use crate::{Bounds, Mutant, Protocol, State};

#[test]
fn a_writer_a_recovery_and_a_second_writer() {
    holds_and_reaches("leases", Protocol::new(Bounds::LEASES), &["replaced", "repaired", "excess"]);
}

#[test]
fn a_holder_changes_a_set_and_the_master_repairs_it() {
    holds_and_reaches("sets", Protocol::new(Bounds::SETS), &["crashed", "next holder", "excess"]);
}

#[test]
fn a_member_that_was_left_out_is_deleted_as_excess() {
    holds_and_reaches("excess", Protocol::new(Bounds::EXCESS), &["crashed", "next holder"]);
}

#[test]
fn recoveries_die_and_begin_again() {
    holds_and_reaches(
        "recoveries",
        Protocol::new(Bounds::RECOVERIES),
        &["replaced", "repaired", "next holder", "excess"],
    );
}

#[test]
fn every_seeded_bug_is_found() {
    for mutant in Mutant::ALL {
        is_found(&format!("{mutant:?}"), Protocol::with(*mutant));
    }
}

/// Without its mistake, each mutant's case holds: so the checker had found the mistake.
#[test]
fn the_small_cases_hold_without_their_mistake() {
    for mutant in Mutant::ALL {
        holds_in_every_state(&format!("case of {mutant:?}"), Protocol::new(mutant.bounds()));
    }
}

/// The processes and the history, without the network and without regard to the names of nodes.
fn processes(state: &State) -> String {
    let mut state = state.clone();
    state.network = Network::default();
    format!("{:?}", representative(state))
}

/// Goal: forgetting messages hides no behaviour. Method: the states of all processes that are reached with and
/// without are the same, in cases small enough to do without.
#[test]
fn forgetting_hides_nothing() {
    let cases = [
        Bounds { writes: 1, epoch: 1, crashes: 1, replacements: 1, repairs: 0, excess: 0 },
        Bounds { writes: 2, epoch: 1, crashes: 0, replacements: 0, repairs: 0, excess: 0 },
        Bounds { writes: 1, epoch: 1, crashes: 0, replacements: 1, repairs: 1, excess: 1 },
    ];
    for bounds in cases {
        let reduced = Protocol::new(bounds);
        let whole = Protocol { forgets: false, ..reduced };
        let of = |protocol: Protocol| {
            let mut seen = BTreeSet::new();
            let mut count = 0_u64;
            visit_all(&protocol, |state| {
                count += 1;
                seen.insert(processes(state));
            });
            (seen, count)
        };
        let ((whole, whole_count), (reduced, count)) = (of(whole), of(reduced));
        println!("{bounds:?}: {whole_count} states without forgetting, {count} with, {} of the processes", whole.len());
        assert!(reduced.is_subset(&whole), "forgetting invents states");
        let hidden: Vec<_> = whole.difference(&reduced).take(1).collect();
        assert!(hidden.is_empty(), "{bounds:?}: hidden, of {} against {}: {hidden:?}", whole.len(), reduced.len());
    }
}

/// Goal: the same where recoveries make it too much to do without. Method: long walks at random, without forgetting,
/// never reach a state of the processes that is not among all that are reached with it.
#[test]
fn walks_without_forgetting_find_nothing_new() {
    let cases = [
        Bounds { writes: 1, epoch: 2, crashes: 1, replacements: 0, repairs: 0, excess: 0 },
        Bounds { writes: 1, epoch: 2, crashes: 0, replacements: 1, repairs: 0, excess: 0 },
        Bounds { writes: 2, epoch: 2, crashes: 0, replacements: 0, repairs: 0, excess: 0 },
    ];
    let mut dice = 7_u64;
    let mut draw = |bound: usize| {
        // The generator of Steele, Lea and Flood (2014), seeded: the same walks each time.
        dice = dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (dice ^ (dice >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        usize::try_from((mixed ^ (mixed >> 27)) >> 33).expect("31 bits") % bound
    };
    for bounds in cases {
        let mut known = BTreeSet::new();
        visit_all(&Protocol::new(bounds), |state| {
            known.insert(processes(state));
        });
        let whole = Protocol { forgets: false, ..Protocol::new(bounds) };
        let mut met = BTreeSet::new();
        for _ in 0..4000 {
            let mut state = State::granted();
            for _ in 0..40 {
                let mut actions = Vec::new();
                whole.actions(&state, &mut actions);
                let action = actions[draw(actions.len())];
                // An action that changes nothing is a step that was not taken.
                let Some(next) = whole.next_state(&state, action) else { continue };
                let print = processes(&next);
                assert!(known.contains(&print), "{bounds:?}: forgetting hides {print}");
                met.insert(print);
                state = next;
            }
        }
        println!("{bounds:?}: walks met {} of {} states of the processes", met.len(), known.len());
        assert!(met.len() * 10 > known.len(), "the walks met too little to judge by");
    }
}

/// Goal: renaming nodes hides no state. Method: renaming every state that is reached under fixed names gives exactly
/// the states that are reached when each step renames.
#[test]
fn renaming_hides_nothing() {
    let bounds = Bounds { writes: 1, epoch: 1, crashes: 1, replacements: 1, repairs: 0, excess: 0 };
    let renamed = Protocol::new(bounds);
    let of = |protocol: Protocol| {
        let mut seen = BTreeSet::new();
        visit_all(&protocol, |state| {
            seen.insert(format!("{:?}", representative(state.clone())));
        });
        seen
    };
    let (of_fixed, of_renamed) = (of(Protocol { renames: false, ..renamed }), of(renamed));
    assert_eq!(of_fixed.len(), of_renamed.len());
    assert!(of_fixed == of_renamed, "renaming each step reaches other states");
}
