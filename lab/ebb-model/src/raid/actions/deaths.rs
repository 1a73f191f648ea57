//! Slots that die: writes to what is frozen, and removals.

use crate::raid::state::{Bytes, FROZEN, HEIR, NODES, Places, RETIRED, State};
use crate::raid::{Action, Mutant, Raid};

pub(super) fn enumerate(protocol: &Raid, state: &State, actions: &mut Vec<Action>) {
    let (bounds, used) = (&protocol.bounds, &state.used);
    if let Some(holder) = &state.files[0].holder
        && state.files[0].exists
        && holder.is_frozen
    {
        match state.files[0].heir {
            None if used.thaws < bounds.thaws => actions.push(Action::GrantHeir),
            None => {}
            Some(members) => {
                let pulls = |place: &usize| {
                    let node = &state.nodes[*place];
                    node.is_up && node.disk[HEIR].is_none() && source(state).is_some()
                };
                actions.extend(members.iter().filter(pulls).map(Action::PullHeir));
                let version = Some(state.files[0].version);
                let is_whole = members.iter().all(|place| state.nodes[place].version(HEIR) == version);
                if is_whole || protocol.is(Mutant::SwapsBeforePulls) {
                    actions.push(Action::Swap);
                }
            }
        }
    }
    if used.removals < bounds.removals {
        let free = |at: &usize| state.files[*at].exists && state.files[*at].holder.is_none();
        actions.extend((0..2).filter(free).map(Action::Remove));
    }
    if protocol.is(Mutant::NeverRetires) {
        return;
    }
    let Some(raid) = &state.raid else { return };
    for (at, slot) in raid.slots.iter().enumerate() {
        let Some(members) = slot.dead else { continue };
        let asked = |place: &usize| {
            let node = &state.nodes[*place];
            node.is_up && node.disk[slot.metablock].is_some_and(|replica| replica.promised < RETIRED)
        };
        actions.extend(members.iter().filter(asked).map(|place| Action::Retire(at, place)));
    }
}

/// Asked again it is the same heir. Its members are nodes that answer.
pub(super) fn grant_heir(state: &mut State) {
    let up: Vec<usize> = (0..NODES).rev().filter(|place| state.nodes[*place].is_up).take(2).collect();
    if up.len() == 2 {
        state.files[0].heir = Some(Places::of(&up));
        state.used.thaws += 1;
    }
}

/// The frozen content: from a member at its version, or by decoding.
fn source(state: &State) -> Option<crate::raid::state::Version> {
    let file = &state.files[0];
    let sources = Places(file.members.0 | file.leaving.0);
    let has =
        |place: usize| state.nodes[place].is_up && state.nodes[place].version(file.metablock) == Some(file.version);
    if sources.iter().any(has) {
        return Some(file.version);
    }
    let decoded = state.decoded(state.slot(file.metablock)?, |node| node.is_up)?;
    (decoded == file.version).then_some(decoded)
}

pub(super) fn pull_heir(state: &mut State, place: usize) {
    if let Some(version) = source(state) {
        let epoch = state.files[0].epoch;
        state.nodes[place].store(HEIR, Bytes::Data(version), epoch, true);
    }
}

/// Compare-and-swap on the old metablock, under the holder's epoch.
pub(super) fn swap(protocol: &Raid, state: &mut State) {
    let Some(members) = state.files[0].heir else { return };
    if let Some(holder) = &mut state.files[0].holder {
        (holder.metablock, holder.members, holder.is_frozen) = (HEIR, members, false);
    }
    if protocol.is(Mutant::WritesToAnHeirBeforeItsSwap) {
        return;
    }
    state.files[0].heir = None;
    end_metablock(protocol, state, 0);
    let file = &mut state.files[0];
    (file.metablock, file.members, file.leaving) = (HEIR, members, Places::default());
    file.is_frozen = false;
}

/// The file has its metablock no more: a slot dies and is ballast, or the whole RAID set ends with its last slot.
fn end_metablock(protocol: &Raid, state: &mut State, file: usize) {
    let file = state.files[file];
    let Some(at) = state.slot(file.metablock).filter(|_| !protocol.is(Mutant::FreesBallast)) else { return };
    let thin = file.leaving == Places::default() && file.members.iter().count() <= 1;
    state.seen.thawed_early |= !thin && file.metablock != HEIR;
    let Some(raid) = &mut state.raid else { return };
    raid.slots[at].dead = Some(Places(file.members.0 | file.leaving.0));
    raid.generation += 1;
    if raid.slots.iter().all(|slot| slot.dead.is_some()) {
        state.raid = None;
    }
}

pub(super) fn retire(state: &mut State, slot: usize, place: usize) {
    let Some(raid) = &state.raid else { return };
    state.nodes[place].promise(raid.slots[slot].metablock, RETIRED);
}

pub(super) fn remove(protocol: &Raid, state: &mut State, at: usize) {
    state.used.removals += 1;
    end_metablock(protocol, state, at);
    let file = &mut state.files[at];
    file.exists = false;
    (file.members, file.leaving, file.heir) = (Places::default(), Places::default(), None);
    assert!(file.epoch < FROZEN, "epochs end below the promise of the frozen");
}
