//! Clients: leases, heirs, writes, cuts.

use super::Action;
use super::master::{frozen_below, is_frozen, lose};
use crate::names::Writes;
use crate::raid::state::{Places, Version};
use crate::snapshots::state::{
    BLOCKS, Client, INDEXES, Known, NODES, Owner, Record, Replica, Sent, State, Taken, nodes_of,
};
use crate::snapshots::{Mutant, Snapshots};

pub(super) fn enumerate(model: &Snapshots, state: &State, actions: &mut Vec<Action>) {
    let (bounds, used) = (model.bounds, &state.used);
    let free = state.clients.iter().position(Option::is_none);
    if let Some(free) = free
        && state.exists
        && state.is_idle()
        && used.leases < bounds.leases
    {
        actions.push(Action::TakeLease(free));
    }
    for (number, client) in state.clients.iter().enumerate() {
        let Some(client) = client else { continue };
        let is_holder = is_holder(state, number);
        if !is_holder {
            actions.push(Action::Notice(number));
        }
        for index in 0..bounds.written {
            let Some(known) = client.map[index] else { continue };
            if !known.is_frozen {
                if used.writes < bounds.writes {
                    actions.push(Action::Write(number, index));
                }
            } else if is_holder {
                actions.push(Action::Grant(number, index));
            }
            // A request to swap may come late: when its client has asked for another grant.
            let Some((heir, filled)) = heir_of(state, index).filter(|_| is_holder) else { continue };
            let version = state.map[index].and_then(|block| state.records[block]).map(|record| record.version);
            if version.is_some_and(|version| state.all_have(filled.members, heir, version)) {
                actions.push(Action::Swap(number, index));
            } else {
                actions.push(Action::Pull(index));
            }
        }
        if is_holder && used.ends < bounds.ends && state.map[1].is_some() {
            actions.push(Action::Cut(number));
        }
        if is_holder && all_synced(state, client) {
            actions.push(Action::GiveBack(number));
        }
    }
    for (at, sent) in state.sent.iter().enumerate() {
        let takes = |node: &usize| {
            state.nodes[*node][sent.block].is_some_and(|replica| {
                let is_due = replica.version == sent.before && sent.epoch >= replica.promised;
                is_due || model.is(Mutant::TakesLateWrites) && replica.version != sent.after
            })
        };
        actions.extend((0..NODES).filter(takes).map(|node| Action::Deliver(node, at)));
    }
}

fn is_holder(state: &State, number: usize) -> bool {
    state.holder == Some(number) && state.clients[number].as_ref().is_some_and(|client| client.epoch == state.epoch)
}

/// The heir of what the file has at an index.
fn heir_of(state: &State, index: usize) -> Option<(usize, Record)> {
    let is_heir = |record: &Record| record.owner == Owner::Heir(index);
    (0..BLOCKS).find_map(|block| state.records[block].filter(is_heir).map(|record| (block, record)))
}

/// Whether all members have all that the client wrote.
fn all_synced(state: &State, client: &Client) -> bool {
    let has = |known: &Known| known.is_frozen || state.all_have(known.members, known.block, known.written);
    client.map.iter().flatten().all(has)
}

/// The map comes with the lease.
pub(super) fn take_lease(model: &Snapshots, state: &mut State, number: usize) {
    state.used.leases += 1;
    state.epoch += 1;
    state.frozen_below = frozen_below(model, state);
    state.holder = Some(number);
    let known = |block: usize| {
        let record = state.records[block]?;
        let is_frozen = is_frozen(model, state, block) && !model.is(Mutant::WritesByAnOldMap);
        Some(Known { block, members: record.members, is_frozen, written: record.version })
    };
    let map = state.map.map(|block| known(block?));
    state.clients[number] = Some(Client { epoch: state.epoch, map });
}

/// The answer is an heir, and the same one if it is asked again.
pub(super) fn grant(model: &Snapshots, state: &mut State, number: usize, index: usize) {
    let Some(block) = state.map[index] else { return };
    if !is_frozen(model, state, block) || model.is(Mutant::HeirTakesTheOldId) {
        if let Some(known) = state.clients[number].as_mut().and_then(|client| client.map[index].as_mut()) {
            known.is_frozen = false;
        }
        return;
    }
    if state.next < BLOCKS && heir_of(state, index).is_none() {
        let members = Places::of(&[0, 1]);
        let version = Version::default();
        state.records[state.next] = Some(Record { owner: Owner::Heir(index), version, members, is_sealed: false });
        state.next += 1;
    }
}

/// Exactly what the frozen one has, from any of its members.
pub(super) fn pull(state: &mut State, index: usize) {
    let (Some((heir, filled)), Some(block)) = (heir_of(state, index), state.map[index]) else { return };
    let Some(node) = nodes_of(filled.members).find(|node| state.nodes[*node][heir].is_none()) else { return };
    let Some(record) = state.records[block] else { return };
    if nodes_of(record.members).any(|source| state.served(source, block) == Some(record.version)) {
        state.nodes[node][heir] = Some(Replica { version: record.version, promised: state.epoch });
    }
}

/// It compares the version. Its holder writes neither of both before.
pub(super) fn swap(model: &Snapshots, state: &mut State, number: usize, index: usize) {
    let (Some((heir, record)), Some(block)) = (heir_of(state, index), state.map[index]) else { return };
    let Some(old) = state.records[block] else { return };
    let (version, members) = (old.version, record.members);
    state.records[heir] = Some(Record { owner: Owner::Live, version, ..record });
    state.map[index] = Some(heir);
    lose(model, state, block);
    if let Some(client) = &mut state.clients[number] {
        client.map[index] = Some(Known { block: heir, members, is_frozen: false, written: version });
    }
}

pub(super) fn write(state: &mut State, number: usize, index: usize) {
    let write = state.used.writes;
    let Some(client) = &mut state.clients[number] else { return };
    let epoch = client.epoch;
    let Some(known) = &mut client.map[index] else { return };
    let before = known.written;
    let after = Version { writes: before.writes.with(write), ..before };
    known.written = after;
    state.used.writes += 1;
    let (is_late, block) = (epoch < state.epoch, known.block);
    state.seen.thawed_by_removal = !is_late && block < INDEXES && !state.snapshots.is_empty();
    state.sent.push(Sent { block, epoch, before, after });
    state.seen.late_write = is_late && state.living().next().is_some();
}

pub(super) fn deliver(state: &mut State, node: usize, at: usize) {
    let sent = state.sent[at];
    let shows = |taken: &Taken| taken.map.iter().flatten().any(|shown| shown.block == sent.block);
    let is_member = state.records[sent.block].is_some_and(|record| record.members.has(node));
    let is_shown = state.living().any(|(_, taken)| shows(taken));
    state.seen.frozen_changed = is_member && is_shown;
    if let Some(replica) = &mut state.nodes[node][sent.block] {
        (replica.version, replica.promised) = (sent.after, replica.promised.max(sent.epoch));
    }
}

/// The second metablock goes, and its heir.
pub(super) fn cut(model: &Snapshots, state: &mut State, number: usize) {
    state.used.ends += 1;
    if let Some((heir, _)) = heir_of(state, 1) {
        state.records[heir] = None;
    }
    if let Some(block) = state.map[1].take() {
        lose(model, state, block);
    }
    state.firm[1] = Writes::NONE;
    if let Some(client) = &mut state.clients[number] {
        client.map[1] = None;
    }
}

pub(super) fn give_back(state: &mut State, number: usize) {
    let Some(client) = state.clients[number].take() else { return };
    for known in client.map.iter().flatten().filter(|known| !known.is_frozen) {
        if let Some(record) = &mut state.records[known.block] {
            record.version = known.written;
        }
    }
    (state.holder, state.frozen_below) = (None, 0);
    end_heirs(state);
}

/// An heir that did not take its place ends with its holder.
pub(super) fn end_heirs(state: &mut State) {
    for record in &mut state.records {
        *record = record.filter(|record| !matches!(record.owner, Owner::Heir(_)));
    }
}

/// fsync returns when all members have the writes and take the client's epoch.
pub(super) fn acknowledge(state: &mut State) {
    for client in state.clients.iter().flatten() {
        for (index, known) in client.map.iter().enumerate() {
            let Some(known) = known.filter(|known| !known.is_frozen) else { continue };
            let takes =
                |node: usize| state.nodes[node][known.block].is_some_and(|replica| client.epoch >= replica.promised);
            if state.all_have(known.members, known.block, known.written) && nodes_of(known.members).all(takes) {
                state.firm[index] = state.firm[index].and(known.written.writes);
            }
        }
    }
}

/// Drops writes that no member can ever take: none has what they follow, or will have it by another write.
pub(super) fn forget(state: &mut State) {
    let mut kept: Vec<Sent> = Vec::new();
    for sent in std::mem::take(&mut state.sent) {
        let follows = |replica: &Replica| replica.version == sent.before && replica.promised <= sent.epoch;
        let is_due = (0..NODES).any(|node| state.nodes[node][sent.block].is_some_and(|replica| follows(&replica)));
        if is_due || kept.iter().any(|other| (other.block, other.after) == (sent.block, sent.before)) {
            kept.push(sent);
        }
    }
    state.sent = kept;
}
