//! Members that are made again by decoding.

use crate::raid::state::{Bytes, FROZEN, NODES, Places, RETIRED, Rebuild, Slot, State};
use crate::raid::{Action, Mutant, Raid};

pub(super) fn enumerate(protocol: &Raid, state: &State, actions: &mut Vec<Action>) {
    for (at, file) in state.files.iter().enumerate() {
        let left = file.members.iter().filter(|place| !state.is_gone(*place, file.metablock));
        let is_short = file.exists && !file.is_frozen && file.holder.is_none() && left.count() < 2;
        let is_clear = |place: &usize| state.nodes[*place].is_up && state.nodes[*place].disk[file.metablock].is_none();
        if is_short && source(state, at).is_some() {
            actions.extend((0..NODES).find(is_clear).map(|to| Action::MakeUp(at, to)));
        }
    }
    if state.rebuild.is_some() {
        actions.push(Action::RecordRebuild);
        return;
    }
    for lost in lost(state) {
        // What waits there for its deletion would take the new member with it.
        let is_clear = |place: usize| state.nodes[place].disk[lost].is_none();
        let free = |place: &usize| state.nodes[*place].is_up && is_clear(*place) && !is_taken(state, *place);
        if rebuilt(protocol, state, lost).is_some() {
            actions.extend((0..NODES).filter(free).map(|to| Action::Rebuild(lost, to)));
        }
    }
}

/// A member of a file in copies that answers at the committed version.
fn source(state: &State, at: usize) -> Option<usize> {
    let file = &state.files[at];
    let serves = |place: &usize| {
        let node = &state.nodes[*place];
        node.is_up && node.version(file.metablock) == Some(file.version)
    };
    file.members.iter().find(serves)
}

/// In one step: the first model takes it apart.
pub(super) fn make_up(state: &mut State, at: usize, to: usize) {
    let Some(source) = source(state, at) else { return };
    let file = state.files[at];
    state.nodes[to].store(file.metablock, Bytes::Data(file.version), file.epoch, true);
    state.files[at].members = Places::of(&[source, to]);
    state.heal();
}

/// Slots whose every recorded member is gone, and a row that is.
fn lost(state: &State) -> Vec<usize> {
    let Some(raid) = &state.raid else { return Vec::new() };
    let all_gone = |slot: &&Slot| state.slot_sources(slot).iter().all(|place| state.is_gone(place, slot.metablock));
    let mut all: Vec<usize> = raid.slots.iter().filter(all_gone).map(|slot| slot.metablock).collect();
    if state.is_gone(raid.node, raid.check) {
        all.push(raid.check);
    }
    all
}

/// A node that has a member of the RAID set already (S-9).
fn is_taken(state: &State, place: usize) -> bool {
    state
        .raid
        .as_ref()
        .is_some_and(|raid| raid.node == place || raid.slots.iter().any(|slot| state.slot_members(slot).has(place)))
}

/// What the lost member contained: compared with what its record names (S-14).
fn rebuilt(protocol: &Raid, state: &State, metablock: usize) -> Option<Bytes> {
    let raid = state.raid.as_ref()?;
    let is_at = |slot: &Slot| {
        let any = protocol.is(Mutant::RebuildsFromAnyReplica);
        let places = if any { Places(u8::MAX) } else { state.slot_sources(slot) };
        let mut versions = places
            .iter()
            .filter(|place| state.nodes[*place].is_up)
            .filter_map(|place| state.nodes[place].version(slot.metablock));
        if any { versions.next() } else { versions.find(|version| *version == slot.version) }
    };
    if metablock == raid.check {
        let [Some(one), Some(other)] = [is_at(&raid.slots[0]), is_at(&raid.slots[1])] else { return None };
        return Some(Bytes::Check([one, other]));
    }
    let decoded = state.decoded(state.slot(metablock)?, |node| node.is_up)?;
    Some(Bytes::Data(decoded))
}

pub(super) fn rebuild(protocol: &Raid, state: &mut State, metablock: usize, to: usize) {
    let (Some(bytes), Some(raid)) = (rebuilt(protocol, state, metablock), &state.raid) else { return };
    let slot = raid.slots.iter().find(|slot| slot.metablock == metablock);
    let promised = if slot.is_some_and(|slot| slot.dead.is_some()) { RETIRED } else { FROZEN };
    state.rebuild = Some(Rebuild { metablock, to, generation: raid.generation });
    state.nodes[to].store(metablock, bytes, promised, true);
}

/// `MoveFrozen`: compare-and-swap on the generation.
pub(super) fn record(state: &mut State) {
    let Some(rebuild) = state.rebuild.take() else { return };
    let Some(raid) = &mut state.raid else { return };
    if raid.generation != rebuild.generation {
        return;
    }
    raid.generation += 1;
    let moved = Places::of(&[rebuild.to]);
    if raid.check == rebuild.metablock {
        raid.node = rebuild.to;
    }
    for slot in raid.slots.iter_mut().filter(|slot| slot.metablock == rebuild.metablock && slot.dead.is_some()) {
        slot.dead = Some(moved);
    }
    for file in state.files.iter_mut().filter(|file| file.exists && file.metablock == rebuild.metablock) {
        (file.members, file.leaving) = (moved, Places::default());
    }
    state.seen.rebuilt = true;
    state.heal();
}
