//! The master: recoveries, snapshots, and what is lost and freed.

use super::Action;
use super::writer::end_heirs;
use crate::raid::state::Version;
use crate::snapshots::state::{BLOCKS, INDEXES, Owner, Record, Shown, Snapshot, State, Taken, nodes_of};
use crate::snapshots::{Mutant, Snapshots};

pub(super) fn enumerate(model: &Snapshots, state: &State, actions: &mut Vec<Action>) {
    let (bounds, used) = (model.bounds, &state.used);
    if state.holder.is_some() && used.losses < bounds.losses {
        actions.push(Action::Expire);
    }
    if state.is_recovering {
        actions.push(Action::Recover);
    }
    if state.exists && state.is_idle() && used.ends < bounds.ends {
        actions.push(Action::RemoveFile);
    }
    let is_quiet = (state.holder.is_none() || model.is(Mutant::TakesBesideAHolder))
        && (!state.is_recovering || model.is(Mutant::TakesBeforeTheRecovery));
    if state.exists && is_quiet && state.snapshots.len() < bounds.snapshots {
        actions.push(Action::Take);
    }
    for (number, snapshot) in state.snapshots.iter().enumerate() {
        match snapshot {
            Snapshot::Living(_) => actions.push(Action::Remove(number)),
            Snapshot::Removed => {
                let had: Vec<usize> = (0..BLOCKS).filter(|block| is_kept_for(state, *block, number)).collect();
                if had.is_empty() {
                    actions.push(Action::EndPrune(number));
                }
                actions.extend(had.into_iter().map(Action::Prune));
            }
            Snapshot::Gone => {}
        }
    }
}

fn is_kept_for(state: &State, block: usize, number: usize) -> bool {
    state.records[block].is_some_and(|record| record.owner == Owner::Kept(number as u8))
}

/// Whether writes to what the live file has go to an heir: a RAID set has it, or a snapshot. What is frozen when a client takes its lease
/// stays so as long as it holds the file, though the snapshot may go: a client would have to learn that, while an heir is on its way.
pub(super) fn is_frozen(model: &Snapshots, state: &State, block: usize) -> bool {
    let is_sealed = state.records[block].is_some_and(|record| record.is_sealed);
    let below = match state.is_idle() || model.is(Mutant::ThawsUnderALease) {
        true => frozen_below(model, state),
        false => state.frozen_below,
    };
    is_sealed || block < below
}

/// Ids below this one are frozen by snapshots that can be read now.
pub(super) fn frozen_below(model: &Snapshots, state: &State) -> usize {
    let counts =
        |number: u8| usize::from(number) + 1 == state.snapshots.len() || !model.is(Mutant::ForgetsOlderSnapshots);
    state.living().find(|(number, _)| counts(*number)).map_or(0, |(_, taken)| taken.next)
}

/// The live file has this no more.
pub(super) fn lose(model: &Snapshots, state: &mut State, block: usize) {
    let newest = match state.snapshots.len() as u8 {
        0 => None,
        taken if model.is(Mutant::KeepsForTheLastTaken) => Some(taken - 1),
        _ => state.newest_with(block),
    };
    let Some(record) = &mut state.records[block] else { return };
    let is_forgotten = model.is(Mutant::SealForgetsSnapshots) && record.is_sealed;
    match newest.filter(|_| !is_forgotten && !model.is(Mutant::FreesWithTheFile)) {
        Some(number) => record.owner = Owner::Kept(number),
        None => end_record(model, state, block),
    }
}

/// Nothing has it any more, but maybe a RAID set with a slot that lives.
fn end_record(model: &Snapshots, state: &mut State, block: usize) {
    let Some(record) = &mut state.records[block] else { return };
    if !record.is_sealed {
        state.records[block] = None;
        return;
    }
    record.owner = Owner::Ballast;
    let slots = state.records.iter().flatten().filter(|record| record.is_sealed);
    if slots.clone().all(|slot| slot.owner == Owner::Ballast) || model.is(Mutant::FreesBallast) {
        state.records = state.records.map(|record| record.filter(|record| !record.is_sealed));
    }
}

pub(super) fn expire(state: &mut State) {
    state.used.losses += 1;
    (state.holder, state.is_recovering, state.epoch) = (None, true, state.epoch + 1);
    end_heirs(state);
}

/// The highest version wins. What is frozen is left out.
pub(super) fn recover(model: &Snapshots, state: &mut State) {
    for block in state.map.into_iter().flatten() {
        let Some(record) = state.records[block] else { continue };
        if is_frozen(model, state, block) && !model.is(Mutant::StampsTheFrozen) {
            continue;
        }
        let found = nodes_of(record.members).filter_map(|node| Some(state.nodes[node][block]?.version));
        let Some(best) = found.max_by_key(|version| (version.stamp, version.writes.0.count_ones())) else { continue };
        let stamped = Version { writes: best.writes, stamp: best.stamp + 1 };
        for node in nodes_of(record.members) {
            if let Some(replica) = &mut state.nodes[node][block] {
                (replica.version, replica.promised) = (stamped, state.epoch);
            }
        }
        state.records[block] = Some(Record { version: stamped, ..record });
    }
    (state.is_recovering, state.frozen_below) = (false, 0);
}

pub(super) fn remove_file(model: &Snapshots, state: &mut State) {
    state.used.ends += 1;
    state.exists = false;
    for index in 0..INDEXES {
        if let Some(block) = state.map[index].take() {
            lose(model, state, block);
        }
    }
}

/// One entry of the log.
pub(super) fn take_snapshot(state: &mut State) {
    let shown = |block: usize| {
        let Record { version, members, .. } = state.records[block]?;
        Some(Shown { block, version, members })
    };
    let map = state.map.map(|block| shown(block?));
    state.snapshots.push(Snapshot::Living(Taken { next: state.next, map, firm: state.firm }));
}

pub(super) fn remove_snapshot(state: &mut State, number: usize) {
    let has_some = (0..BLOCKS).any(|block| is_kept_for(state, block, number));
    state.snapshots[number] = if has_some { Snapshot::Removed } else { Snapshot::Gone };
}

/// A metablock that the removed snapshot was the newest to have. One that is older has it, or nothing. One that was taken since, when
/// the file had lost it, has not.
pub(super) fn prune(model: &Snapshots, state: &mut State, block: usize) {
    let Some(Record { owner: Owner::Kept(removed), .. }) = state.records[block] else { return };
    if model.is(Mutant::NeverDrops) {
        state.snapshots[usize::from(removed)] = Snapshot::Gone;
        return;
    }
    let may_have = |number: u8| number < removed || model.is(Mutant::LooksAtNewer);
    let has = |(number, taken): &(u8, &Taken)| may_have(*number) && block < taken.next;
    let older = state.living().find(has).map(|(number, _)| number).filter(|_| !model.is(Mutant::DropsTwice));
    let Some(record) = &mut state.records[block] else { return };
    match older {
        Some(number) => {
            record.owner = Owner::Kept(number);
            state.seen.kept_for_older = true;
        }
        None => {
            state.seen.slot_died = record.is_sealed;
            end_record(model, state, block);
        }
    }
}
