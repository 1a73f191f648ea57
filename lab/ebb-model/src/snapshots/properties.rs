//! Properties that must hold in every state, and properties that must be reached in some.

use stateright::Property;

use super::state::{INDEXES, Owner, Shown, Snapshot, State, Taken};
use super::{Mutant, Snapshots};

/// What a snapshot is for.
pub const EXACT: &str = "a living snapshot reads exactly what the file had, with all that fsync had acknowledged";
/// By whatever way.
pub const FIXED: &str = "nothing changes what a snapshot has";
/// The live file.
pub const FRESH: &str = "the file reads what fsync acknowledged";
/// Disks get free.
pub const FREED: &str = "a record has somebody who needs it, or will be looked at";

/// All of them.
#[must_use]
pub fn all() -> Vec<Property<Snapshots>> {
    let mut all = vec![
        Property::always(EXACT, |model: &Snapshots, state: &State| {
            state.living().all(|(_, taken)| is_exact(model, state, taken))
        }),
        Property::always(FIXED, |_: &Snapshots, state: &State| !state.seen.frozen_changed),
        Property::always(FRESH, |_: &Snapshots, state: &State| !state.exists || is_fresh(state)),
        Property::always(FREED, |_: &Snapshots, state: &State| is_needed(state)),
    ];
    all.extend(reached());
    all
}

/// Every recorded member has exactly the version of the snapshot, and answers with it.
fn is_exact(model: &Snapshots, state: &State, taken: &Taken) -> bool {
    let reads = |index: usize, shown: &Shown| {
        let Some(record) = state.records[shown.block] else { return false };
        let members = if model.is(Mutant::ListsItsOwnMembers) { shown.members } else { record.members };
        let has_owner = matches!(record.owner, Owner::Live | Owner::Kept(_));
        let is_whole = shown.version.writes.includes(taken.firm[index]);
        has_owner && is_whole && state.all_have(members, shown.block, shown.version)
    };
    taken.map.iter().enumerate().all(|(index, shown)| shown.is_none_or(|shown| reads(index, &shown)))
}

/// Every recorded member has what was acknowledged. Without a holder it has exactly what is committed.
fn is_fresh(state: &State) -> bool {
    (0..INDEXES).all(|index| {
        let Some(block) = state.map[index] else { return true };
        let Some(record) = state.records[block].filter(|record| record.owner == Owner::Live) else { return false };
        let has_firm =
            |node| state.served(node, block).is_some_and(|version| version.writes.includes(state.firm[index]));
        let has_all = super::state::nodes_of(record.members).all(has_firm);
        has_all && (!state.is_idle() || state.all_have(record.members, block, record.version))
    })
}

/// A replica of what is not recorded can be judged at any time.
fn is_needed(state: &State) -> bool {
    let is_alone = |record: &super::state::Record| record.is_sealed && record.owner != Owner::Ballast;
    (0..).zip(&state.records).filter_map(|(block, record)| Some((block, record.as_ref()?))).all(|(block, record)| {
        match record.owner {
            Owner::Live => state.map.contains(&Some(block)),
            Owner::Kept(number) => match &state.snapshots[usize::from(number)] {
                Snapshot::Living(taken) => taken.map.iter().flatten().any(|shown| shown.block == block),
                Snapshot::Removed => true,
                Snapshot::Gone => false,
            },
            Owner::Heir(_) => state.holder.is_some(),
            Owner::Ballast => state.records.iter().flatten().any(is_alone),
        }
    })
}

/// Situations that must be reachable, or the other properties would hold for want of anything happening.
fn reached() -> Vec<Property<Snapshots>> {
    vec![
        Property::sometimes("a file is written after a snapshot", |_: &Snapshots, state: &State| {
            let differs = |taken: &Taken| taken.firm[0] != state.firm[0] && state.is_idle();
            state.exists && state.living().any(|(_, taken)| differs(taken))
        }),
        Property::sometimes("two snapshots show different metablocks", |_: &Snapshots, state: &State| {
            let mut living = state.living();
            let pair = living.next().zip(living.next());
            pair.is_some_and(|((_, one), (_, other))| one.map[0] != other.map[0])
        }),
        Property::sometimes("what was frozen is written in place", |_: &Snapshots, state: &State| {
            state.seen.thawed_by_removal
        }),
        Property::sometimes("a lost holder writes after a snapshot", |_: &Snapshots, state: &State| {
            state.seen.late_write
        }),
        Property::sometimes("a removed snapshot leaves something to an older one", |_: &Snapshots, state: &State| {
            state.seen.kept_for_older
        }),
        Property::sometimes("a copy is overtaken", |_: &Snapshots, state: &State| state.seen.move_refused),
        Property::sometimes("what only snapshots have gets another member", |_: &Snapshots, state: &State| {
            state.seen.kept_moved
        }),
        Property::sometimes("what only snapshots have is sealed", |_: &Snapshots, state: &State| {
            state.seen.kept_sealed
        }),
        Property::sometimes("a slot dies with a snapshot", |_: &Snapshots, state: &State| state.seen.slot_died),
        Property::sometimes("everything goes in the end", |_: &Snapshots, state: &State| {
            let is_gone = |snapshot: &Snapshot| *snapshot == Snapshot::Gone;
            let is_empty = state.nodes.iter().flatten().all(Option::is_none);
            !state.snapshots.is_empty() && state.snapshots.iter().all(is_gone) && !state.exists && is_empty
        }),
    ]
}
