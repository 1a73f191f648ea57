//! Properties that must hold in every state, and properties that must be reached in some.

use std::collections::BTreeSet;

use stateright::Property;

use crate::guests::actions::enumerate;
use crate::guests::state::{COPIES, Member, Moving, State};
use crate::guests::{Action, Guests};
use crate::names::Writes;

/// Every recorded member has the writes that fsync acknowledged.
pub const REBUILDS: &str = "every member that lives has what fsync acknowledged";
/// The layout's homes stay.
pub const HOMES: &str = "a whole set belongs to the homes that the layout chose, while they live";
/// No node has two copies.
pub const APART: &str = "no node has two copies, or is to have them";
/// Sleep.
pub const REACH: &str = "while nobody is dead a member is always awake";
/// Progress.
pub const ENDS: &str = "where all are on, what is away can go home";

/// All of them.
#[must_use]
pub fn all() -> Vec<Property<Guests>> {
    let mut all = vec![
        Property::always(REBUILDS, |_: &Guests, state: &State| {
            let mut living =
                state.master.set.iter().map(|member| &state.nodes[member.node]).filter(|node| !node.is_dead);
            living.all(|node| node.writes().includes(state.firm))
        }),
        Property::always(HOMES, |_: &Guests, state: &State| {
            let homes: BTreeSet<usize> = state.master.set.iter().map(|member| member.home).collect();
            state.deaths > 0 || homes.iter().all(|home| *home < COPIES)
        }),
        Property::always(APART, |_: &Guests, state: &State| {
            let set = &state.master.set;
            set.iter().enumerate().all(|(at, one)| {
                let others = set.iter().enumerate().filter(|(other, _)| *other != at);
                others
                    .map(|(_, other)| other)
                    .all(|other| other.node != one.node && other.node != one.home && other.home != one.home)
            })
        }),
        Property::always(REACH, |_: &Guests, state: &State| state.deaths > 0 || state.awake().next().is_some()),
        Property::always(ENDS, ends),
    ];
    all.extend(reached());
    all
}

fn ends(protocol: &Guests, state: &State) -> bool {
    let away = state.master.set.iter().any(Member::is_guest);
    let is_steady = state.nodes.iter().all(|node| node.is_on || node.is_dead) && !state.master.is_held;
    if !away || !is_steady || state.master.moving.is_some() || state.copies >= protocol.bounds.copies {
        return true;
    }
    let mut actions = Vec::new();
    enumerate(protocol, state, &mut actions);
    actions.iter().any(|action| {
        matches!(
            action,
            Action::GoHome(_) | Action::Adopt(_) | Action::MakeUp(..) | Action::Judge(_) | Action::Delete(_)
        )
    })
}

/// Situations that must be reachable, or the other properties would hold for want of anything happening.
#[must_use]
pub fn reached() -> Vec<Property<Guests>> {
    vec![
        Property::sometimes("fsync returns with a guest in the set", |_: &Guests, state: &State| {
            state.firm != Writes::NONE && state.master.is_held && state.master.set.iter().any(Member::is_guest)
        }),
        Property::sometimes("all copies are guests", |_: &Guests, state: &State| {
            state.firm != Writes::NONE && state.master.set.iter().all(Member::is_guest)
        }),
        Property::sometimes("a guest came home, and nothing is left of it", |_: &Guests, state: &State| {
            let strays =
                (0..state.nodes.len()).any(|place| !state.is_member(place) && state.nodes[place].replica.is_some());
            state.came_home && !strays && state.firm != Writes::NONE && !state.master.set.iter().any(Member::is_guest)
        }),
        Property::sometimes("a holder writes while a guest is on its way home", |_: &Guests, state: &State| {
            let goes_home = |moving: &Moving| moving.is_whole && moving.leaves.is_some();
            state.master.is_held && state.writes > 1 && state.master.moving.as_ref().is_some_and(goes_home)
        }),
        Property::sometimes("what is missing is made up for by a guest", |_: &Guests, state: &State| {
            state.master.moving.as_ref().is_some_and(|moving| moving.is_whole && moving.joins.is_guest())
        }),
        Property::sometimes("a home is dead while its copy is away", |_: &Guests, state: &State| {
            state.master.set.iter().any(|member| member.is_guest() && state.nodes[member.home].is_dead)
        }),
        Property::sometimes("a guest's host is dead", |_: &Guests, state: &State| {
            state.master.set.iter().any(|member| member.is_guest() && state.nodes[member.node].is_dead)
        }),
    ]
}
