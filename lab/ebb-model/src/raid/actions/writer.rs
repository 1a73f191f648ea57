//! Clients that write, and the recovery of what they leave.

use crate::raid::state::{Bytes, FILES, FROZEN, Holder, NODES, Places, Sent, State, Version};
use crate::raid::{Action, Mutant, Raid};

pub(super) fn enumerate(protocol: &Raid, state: &State, actions: &mut Vec<Action>) {
    let (bounds, used) = (&protocol.bounds, &state.used);
    // The third file is there for repacking: nobody writes it.
    for (at, file) in state.files.iter().enumerate().take(FILES - 1).filter(|(_, file)| file.exists) {
        let Some(holder) = &file.holder else {
            if used.leases < bounds.leases {
                actions.push(Action::TakeLease(at));
            }
            continue;
        };
        if used.writes < bounds.writes && (!holder.is_frozen || protocol.is(Mutant::WritesInPlace)) {
            actions.push(Action::Write(at));
        }
        if all_have(state, at) {
            actions.push(Action::GiveBack(at));
        }
        if used.recoveries < bounds.recoveries && can_recover(state, at) {
            actions.push(Action::Recover(at));
        }
    }
    for (sent, message) in state.sent.iter().enumerate() {
        let takes = |place: &usize| {
            let node = &state.nodes[*place];
            let is_due = node.version(message.metablock) == Some(message.before);
            node.is_up && is_due && node.disk[message.metablock].is_some_and(|has| message.epoch >= has.promised)
        };
        actions.extend((0..NODES).filter(takes).map(|place| Action::Deliver(place, sent)));
    }
}

/// Whether every member of the holder's map that is not gone has all of its writes, and there is one. The master has
/// recorded which members are gone: the first model takes that apart.
fn all_have(state: &State, file: usize) -> bool {
    let Some(holder) = &state.files[file].holder else { return false };
    let metablock = holder.metablock;
    let left: Vec<usize> = holder.members.iter().filter(|place| !state.is_gone(*place, metablock)).collect();
    !left.is_empty() && left.iter().all(|place| state.nodes[*place].version(metablock) == Some(holder.written))
}

/// A recovery goes on with the members that answer: any of them has what fsync acknowledged. What is frozen it leaves alone.
fn can_recover(state: &State, file: usize) -> bool {
    let file = &state.files[file];
    file.is_frozen || file.members.iter().any(|place| answers_with(state, place, file.metablock))
}

fn answers_with(state: &State, place: usize, metablock: usize) -> bool {
    state.nodes[place].is_up && state.nodes[place].version(metablock).is_some()
}

pub(super) fn take_lease(protocol: &Raid, state: &mut State, at: usize) {
    let file = &mut state.files[at];
    file.epoch += 1;
    file.holder = Some(Holder {
        metablock: file.metablock,
        members: file.members,
        // S-17: the map comes with the write lease.
        is_frozen: file.is_frozen && !protocol.is(Mutant::WritesByAnOldMap),
        written: file.version,
    });
    state.used.leases += 1;
}

pub(super) fn write(state: &mut State, at: usize) {
    let (write, epoch) = (state.used.writes, state.files[at].epoch);
    let Some(holder) = &mut state.files[at].holder else { return };
    let after = Version { writes: holder.written.writes.with(write), ..holder.written };
    state.sent.push(Sent { metablock: holder.metablock, epoch, before: holder.written, after });
    holder.written = after;
    state.used.writes += 1;
}

pub(super) fn deliver(state: &mut State, place: usize, sent: usize) {
    let sent = state.sent[sent];
    if let Some(replica) = &mut state.nodes[place].disk[sent.metablock] {
        replica.bytes = Bytes::Data(sent.after);
        replica.promised = replica.promised.max(sent.epoch);
    }
}

/// fsync returns when all members have the writes.
pub(super) fn acknowledge(state: &mut State) {
    for at in 0..FILES {
        if let Some(holder) = &state.files[at].holder
            && state.files[at].exists
            && all_have(state, at)
        {
            state.firm[at] = holder.written.writes;
        }
    }
}

/// The commit of what is frozen is refused: nothing changes there.
pub(super) fn give_back(state: &mut State, at: usize) {
    let file = &mut state.files[at];
    let Some(holder) = file.holder.take() else { return };
    if !file.is_frozen && holder.metablock == file.metablock {
        file.version = holder.written;
    }
    // S-16: an heir that has not taken its place is freed.
    file.heir = None;
}

pub(super) fn recover(protocol: &Raid, state: &mut State, at: usize) {
    state.used.recoveries += 1;
    let file = &mut state.files[at];
    (file.holder, file.epoch) = (None, file.epoch + 1);
    file.heir = None;
    // S-10: what is frozen is left out.
    if file.is_frozen && !protocol.is(Mutant::StampsTheFrozen) {
        return;
    }
    let (epoch, metablock) = (file.epoch, file.metablock);
    let found: Vec<usize> = file.members.iter().filter(|place| answers_with(state, *place, metablock)).collect();
    let versions = found.iter().filter_map(|place| state.nodes[*place].version(metablock));
    let Some(best) = versions.max_by_key(|version| (version.stamp, version.writes.0.count_ones())) else { return };
    let stamped = Version { writes: best.writes, stamp: best.stamp + 1 };
    for place in &found {
        if let Some(replica) = &mut state.nodes[*place].disk[metablock] {
            replica.bytes = Bytes::Data(stamped);
            replica.promised = replica.promised.max(epoch);
        }
    }
    let file = &mut state.files[at];
    file.version = stamped;
    file.members = Places::of(&found);
    state.is_hurt |= found.len() < 2;
    assert!(epoch < FROZEN, "epochs end below the promise of the frozen");
}
