//! RAID sets, copies that the master makes, and replicas that go.

use super::Action;
use super::master::is_frozen;
use crate::raid::state::Places;
use crate::snapshots::state::{BLOCKS, Move, NODES, Owner, RETIRED, Record, Replica, State, nodes_of};
use crate::snapshots::{Mutant, Snapshots};

pub(super) fn enumerate(model: &Snapshots, state: &State, actions: &mut Vec<Action>) {
    let (bounds, used) = (model.bounds, &state.used);
    // Copies of what a holder writes are the holder's own affair.
    let is_settled = |block: &usize| {
        state.records[*block].is_some_and(|record| match record.owner {
            Owner::Live => state.is_idle() || is_frozen(model, state, *block),
            Owner::Kept(_) => true,
            Owner::Heir(_) | Owner::Ballast => false,
        })
    };
    if used.seals < bounds.seals {
        for one in (0..BLOCKS).filter(is_settled) {
            actions.extend((one + 1..BLOCKS).filter(is_settled).map(|other| Action::Seal(one, other)));
        }
    }
    if used.moves < bounds.moves && state.moving.is_none() {
        let is_ballast = |block: usize| state.records[block].is_some_and(|record| record.owner == Owner::Ballast);
        let movable = (0..BLOCKS).filter(|block| is_settled(block) || is_ballast(*block));
        actions.extend(movable.map(Action::BeginMove));
    }
    if let Some(moving) = &state.moving {
        actions.push(if moving.is_copied { Action::RecordMove } else { Action::Copy });
    }
    for block in 0..BLOCKS {
        let has = |node: &usize| state.nodes[*node][block].is_some();
        if (0..NODES).filter(has).any(|node| !is_named(model, state, node, block)) {
            actions.push(Action::Judge(block));
        }
        let serves = |node: usize| state.served(node, block).is_some();
        if state.records[block].is_some_and(|record| record.owner == Owner::Ballast) && (0..NODES).any(serves) {
            actions.push(Action::Retire(block));
        }
    }
}

/// Whether a node may have a replica, by the log and the master's memory.
fn is_named(model: &Snapshots, state: &State, node: usize, block: usize) -> bool {
    let is_member = state.records[block].is_some_and(|record| {
        let is_known = !(model.is(Mutant::KeptIsAStray) && matches!(record.owner, Owner::Kept(_)));
        is_known && record.members.has(node)
    });
    is_member || state.moving.is_some_and(|moving| (moving.block, moving.to) == (block, node))
}

/// One copy of each stays, on different nodes if there are.
pub(super) fn seal(state: &mut State, slots: [usize; 2]) {
    state.used.seals += 1;
    let mut taken = Places::default();
    for block in slots {
        let Some(record) = state.records[block] else { continue };
        let other = nodes_of(record.members).find(|node| !taken.has(*node));
        let Some(stays) = other.or(nodes_of(record.members).next()) else { continue };
        taken = taken.with(stays);
        state.seen.kept_sealed |= matches!(record.owner, Owner::Kept(_));
        state.records[block] = Some(Record { members: Places::of(&[stays]), is_sealed: true, ..record });
    }
}

pub(super) fn retire(state: &mut State, block: usize) {
    for replica in state.nodes.iter_mut().filter_map(|disk| disk[block].as_mut()) {
        replica.promised = RETIRED;
    }
}

pub(super) fn delete_unnamed(model: &Snapshots, state: &mut State, block: usize) {
    for node in 0..NODES {
        if !is_named(model, state, node, block) {
            state.nodes[node][block] = None;
        }
    }
}

pub(super) fn begin_move(state: &mut State, block: usize) {
    let Some(record) = state.records[block] else { return };
    let to = (0..NODES).find(|node| !record.members.has(*node) && state.nodes[*node][block].is_none());
    let (Some(from), Some(to)) = (nodes_of(record.members).next(), to) else { return };
    let Record { version, .. } = record;
    state.moving = Some(Move { block, from, to, version, epoch: state.epoch, is_copied: false });
    state.used.moves += 1;
}

/// Exactly the version that was recorded when the copy began; otherwise it comes to nothing.
pub(super) fn copy(state: &mut State) {
    let Some(moving) = &mut state.moving else { return };
    let source = state.nodes[moving.from][moving.block].filter(|replica| replica.version == moving.version);
    let Some(source) = source else {
        state.moving = None;
        return;
    };
    moving.is_copied = true;
    state.nodes[moving.to][moving.block] = Some(Replica { promised: source.promised.max(moving.epoch), ..source });
}

/// One record, whoever has it. It compares members and version, and for what is not frozen that nobody has written meanwhile.
pub(super) fn record_move(model: &Snapshots, state: &mut State) {
    let Some(moving) = state.moving.take() else { return };
    let Some(record) = state.records[moving.block] else { return };
    let is_same = record.version == moving.version || model.is(Mutant::MovesBlindly);
    let is_fixed = record.owner != Owner::Live || is_frozen(model, state, moving.block);
    let is_unwritten = state.is_idle() && state.epoch == moving.epoch;
    let is_safe = is_fixed || is_unwritten || model.is(Mutant::MovesWhatIsThawed);
    if !record.members.has(moving.from) || !is_same || !is_safe {
        state.seen.move_refused = true;
        return;
    }
    state.seen.kept_moved = matches!(record.owner, Owner::Kept(_));
    let members = record.members.without(moving.from).with(moving.to);
    state.records[moving.block] = Some(Record { members, ..record });
}
