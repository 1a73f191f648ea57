//! Properties that must hold in every state, and properties that must be reached in some.

use stateright::Property;

use crate::raid::Raid;
use crate::raid::state::{Bytes, File, Node, RETIRED, Slot, State};

/// Every acknowledged write can be read, whatever single loss there was.
pub const KEPT: &str = "what fsync acknowledged can be put together from what is left";
/// A record tells the truth about contents.
pub const CODE: &str = "a recorded check is the code of its slots' versions, and they have these versions";
/// Reads with a lease, of a file without a holder.
pub const FRESH: &str = "what is committed has what fsync acknowledged";
/// No deletion hits what is needed.
pub const NAMED: &str = "nothing that a record names is gone, except with its disk";
/// What a file has lost is not read.
pub const FORGOTTEN: &str = "the members of ballast that answer are retired, or can be";

/// All of them.
#[must_use]
pub fn all() -> Vec<Property<Raid>> {
    let mut all = vec![
        Property::always(KEPT, |_: &Raid, state: &State| {
            (0..state.files.len()).all(|at| !state.files[at].exists || is_kept(state, at))
        }),
        Property::always(CODE, |_: &Raid, state: &State| is_coded(state)),
        Property::always(FRESH, |_: &Raid, state: &State| {
            let is_fresh = |(at, file): (usize, &File)| file.version.writes.includes(state.firm[at]);
            state.files.iter().enumerate().filter(|(_, file)| file.exists && file.holder.is_none()).all(is_fresh)
        }),
        Property::always(NAMED, |_: &Raid, state: &State| are_named_there(state)),
        Property::always(FORGOTTEN, are_forgotten),
    ];
    all.extend(reached());
    all
}

/// From a recorded member, or by decoding. A node that is cut off has its disk all the same.
fn is_kept(state: &State, at: usize) -> bool {
    let (file, firm) = (&state.files[at], state.firm[at]);
    let sources = file.members.iter().chain(file.leaving.iter());
    let mut versions = sources.filter_map(|place| state.nodes[place].version(file.metablock));
    if versions.any(|version| version.writes.includes(firm)) {
        return true;
    }
    let has_disk = |node: &Node| !node.is_lost;
    let decoded = state.slot(file.metablock).and_then(|slot| state.decoded(slot, has_disk));
    decoded.is_some_and(|version| version.writes.includes(firm))
}

fn is_coded(state: &State) -> bool {
    let Some(raid) = &state.raid else { return true };
    let of = raid.slots.map(|slot| slot.version);
    let row = state.nodes[raid.node].disk[raid.check];
    let is_code = row.is_none_or(|row| row.is_spoiled || row.bytes == Bytes::Check(of));
    let is_at = |slot: &Slot| {
        let mut versions =
            state.slot_sources(slot).iter().filter_map(|place| state.nodes[place].version(slot.metablock));
        versions.all(|version| version == slot.version)
    };
    is_code && raid.slots.iter().all(is_at)
}

fn are_named_there(state: &State) -> bool {
    let is_there = |place: usize, metablock: usize| {
        let node = &state.nodes[place];
        node.is_lost || node.disk[metablock].is_some()
    };
    let has = |file: &File| file.members.iter().chain(file.leaving.iter()).all(|place| is_there(place, file.metablock));
    let has_raid = state.raid.as_ref().is_none_or(|raid| {
        let ballast = raid.slots.iter().filter(|slot| slot.dead.is_some());
        is_there(raid.node, raid.check)
            && ballast
                .into_iter()
                .all(|slot| state.slot_members(slot).iter().all(|place| is_there(place, slot.metablock)))
    });
    state.files.iter().filter(|file| file.exists).all(has) && has_raid
}

fn are_forgotten(protocol: &Raid, state: &State) -> bool {
    let Some(raid) = &state.raid else { return true };
    let mut actions = Vec::new();
    crate::raid::actions::enumerate(protocol, state, &mut actions);
    raid.slots.iter().enumerate().all(|(at, slot)| {
        let Some(members) = slot.dead else { return true };
        members.iter().all(|place| {
            let replica = state.nodes[place].disk[slot.metablock].filter(|_| state.nodes[place].is_up);
            replica.is_none_or(|replica| {
                replica.promised == RETIRED || actions.contains(&crate::raid::Action::Retire(at, place))
            })
        })
    })
}

/// Situations that must be reachable, or the other properties would hold for want of anything happening.
#[must_use]
pub fn reached() -> Vec<Property<Raid>> {
    vec![
        Property::sometimes("encoded: every slot has one copy, and no other is left", |_: &Raid, state: &State| {
            state.raid.as_ref().is_some_and(|raid| {
                let is_thin = |slot: &Slot| {
                    let copies = state.nodes.iter().filter(|node| node.disk[slot.metablock].is_some());
                    slot.dead.is_none() && copies.count() == 1
                };
                raid.slots.iter().all(is_thin)
            })
        }),
        Property::sometimes("an encoding is overtaken by a writer", |_: &Raid, state: &State| state.seen.overtaken),
        Property::sometimes("a slot is decoded with ballast", |_: &Raid, state: &State| {
            let is_gone = |place: usize| !state.nodes[place].is_up;
            state.raid.as_ref().is_some_and(|raid| {
                (0..2).any(|at| {
                    let slot = &raid.slots[at];
                    slot.dead.is_none()
                        && raid.slots[1 - at].dead.is_some()
                        && state.slot_sources(slot).iter().all(is_gone)
                        && state.decoded(at, |node| node.is_up).is_some()
                })
            })
        }),
        Property::sometimes("a write goes to what was frozen", |_: &Raid, state: &State| {
            let file = &state.files[0];
            file.exists
                && file.metablock == crate::raid::state::HEIR
                && state.firm[0] != crate::names::Writes::NONE.with(0)
        }),
        Property::sometimes("a slot is thawed before its RAID set is thin", |_: &Raid, state: &State| {
            state.seen.thawed_early
        }),
        Property::sometimes("a member is made again by decoding", |_: &Raid, state: &State| state.seen.rebuilt),
        Property::sometimes("a RAID set takes the place of another", |_: &Raid, state: &State| state.seen.repacked),
    ]
}
