//! From the Seal to the deletion of copies.

use crate::raid::actions::encode::stays;
use crate::raid::state::{Bytes, Deletion, FROZEN, METABLOCKS, NODES, Places, State};
use crate::raid::{Action, Mutant, Raid};

pub(super) fn enumerate(protocol: &Raid, state: &State, actions: &mut Vec<Action>) {
    if let Some(raid) = &state.raid {
        for (at, slot) in raid.slots.iter().enumerate() {
            let asked = |place: &usize| {
                let node = &state.nodes[*place];
                let has_promised = node.disk[slot.metablock].is_none_or(|replica| replica.promised >= FROZEN);
                let may_tell = node.version(slot.metablock) == Some(slot.version) || !has_promised;
                node.is_up && !state.frozen[at].has(*place) && may_tell
            };
            let members = state.slot_members(slot);
            // One after the other: the order says nothing.
            actions.extend(members.iter().find(asked).map(|place| Action::Freeze(at, place)));
            let leaving = state.slot_sources(slot).0 & !members.0;
            if leaving != 0 && members.iter().all(|place| state.nodes[place].is_lost) {
                actions.push(Action::Readmit(at));
            }
        }
        if chosen(state).is_some() {
            actions.push(Action::Thin);
        }
        let leaves = state.files.iter().any(|file| file.exists && file.leaving != Places::default());
        if leaves && (is_sound(protocol, state) || protocol.is(Mutant::DropsWithoutALook)) {
            actions.push(Action::DropCopies);
        }
    }
    // One stray at a time, and it may be slow: two say no more than one.
    let may_judge = state.deletions.is_empty();
    for place in (0..NODES).filter(|place| may_judge && state.nodes[*place].is_up) {
        for metablock in 0..METABLOCKS {
            if is_stray(protocol, state, place, metablock) {
                actions.push(Action::Judge(place, metablock));
            }
        }
    }
    let deletes = |at: &usize| state.nodes[state.deletions[*at].node].is_up;
    actions.extend((0..state.deletions.len()).filter(deletes).map(Action::Delete));
}

/// A replica that neither the log nor the leader's memory names. The checks of an attempt are kept while its term lasts.
fn is_stray(protocol: &Raid, state: &State, place: usize, metablock: usize) -> bool {
    let Some(replica) = state.nodes[place].disk[metablock] else { return false };
    let is_attempt =
        state.attempt.as_ref().is_some_and(|attempt| attempt.check == metablock && attempt.term == state.term);
    let asked = state.deletions.contains(&Deletion { node: place, metablock, life: replica.life });
    let is_heir = metablock == crate::raid::state::HEIR && protocol.is(Mutant::HeirIsAStray);
    let is_swapped = state.files[0].metablock == metablock;
    let is_named = state.is_named(place, metablock) && (!is_heir || is_swapped);
    // Excess of a file that is held waits.
    let waits = state.owner(metablock).is_some_and(|at| state.files[at].holder.is_some() && !state.files[at].is_frozen);
    !is_named && !is_attempt && !asked && !waits
}

/// S-7: the member must tell exactly the version that the RAID set names.
pub(super) fn freeze(protocol: &Raid, state: &mut State, slot: usize, place: usize) {
    let Some(raid) = &state.raid else { return };
    let named = raid.slots[slot];
    let node = &mut state.nodes[place];
    if node.disk[named.metablock].is_none() {
        return;
    }
    node.promise(named.metablock, FROZEN);
    if node.version(named.metablock) == Some(named.version) || protocol.is(Mutant::BelievesAnyMember) {
        state.frozen[slot] = state.frozen[slot].with(place);
    }
}

/// The members that stay: frozen, all on different nodes, none beside the check.
fn chosen(state: &State) -> Option<[usize; 2]> {
    let raid = state.raid.as_ref()?;
    let is_thin = |slot: usize| state.slot_members(&raid.slots[slot]).iter().count() <= 1;
    if is_thin(0) && is_thin(1) {
        return None;
    }
    let members = [0, 1].map(|slot| {
        let members = state.slot_members(&raid.slots[slot]);
        Places(members.0 & state.frozen[slot].0).without(raid.node)
    });
    stays(members)
}

pub(super) fn thin(state: &mut State) {
    let Some(chosen) = chosen(state) else { return };
    let Some(raid) = &mut state.raid else { return };
    raid.generation += 1;
    let slots = raid.slots;
    for (at, slot) in slots.iter().enumerate() {
        let stays = Places::of(&[chosen[at]]);
        if slot.dead.is_some() {
            raid.slots[at].dead = Some(stays);
            continue;
        }
        for file in state.files.iter_mut().filter(|file| file.exists && file.metablock == slot.metablock) {
            file.leaving = Places((file.leaving.0 | file.members.0) & !stays.0);
            file.members = stays;
        }
    }
}

/// S-8a: every slot and the row is there, frozen and at its version.
fn is_sound(protocol: &Raid, state: &State) -> bool {
    let Some(raid) = &state.raid else { return false };
    let row = &state.nodes[raid.node];
    let of = raid.slots.map(|slot| slot.version);
    let has_row = row.is_up
        && row.disk[raid.check]
            .is_some_and(|row| row.bytes == Bytes::Check(of) && row.promised >= FROZEN && !row.is_spoiled);
    let is_there = |place: usize, metablock: usize, version| {
        let node = &state.nodes[place];
        let frozen = node.disk[metablock].is_some_and(|replica| replica.promised >= FROZEN);
        let tells = node.version(metablock) == Some(version) || protocol.is(Mutant::BelievesAnyMember);
        node.is_up && frozen && tells
    };
    has_row
        && raid.slots.iter().all(|slot| {
            let members = state.slot_members(slot);
            members != Places::default() && members.iter().all(|place| is_there(place, slot.metablock, slot.version))
        })
}

pub(super) fn drop_copies(state: &mut State) {
    for at in 0..state.files.len() {
        let file = state.files[at];
        for place in file.leaving.iter() {
            request_deletion(state, place, file.metablock);
        }
        state.files[at].leaving = Places::default();
    }
    // Everything was found to be sound, so the next loss may come.
    state.believe_sound();
}

/// The copy that leaves becomes a member again, without being copied.
pub(super) fn readmit(state: &mut State, slot: usize) {
    let Some(raid) = &mut state.raid else { return };
    raid.generation += 1;
    let metablock = raid.slots[slot].metablock;
    state.frozen = [Places::default(); 2];
    for file in state.files.iter_mut().filter(|file| file.exists && file.metablock == metablock) {
        (file.members, file.leaving) = (file.leaving, Places::default());
    }
}

pub(super) fn request_deletion(state: &mut State, place: usize, metablock: usize) {
    let Some(replica) = state.nodes[place].disk[metablock] else { return };
    let deletion = Deletion { node: place, metablock, life: replica.life };
    if !state.deletions.contains(&deletion) {
        state.deletions.push(deletion);
    }
}

pub(super) fn delete(state: &mut State, at: usize) {
    let deletion = state.deletions.remove(at);
    let replica = &mut state.nodes[deletion.node].disk[deletion.metablock];
    if replica.is_some_and(|replica| replica.life == deletion.life) {
        *replica = None;
    }
}
