//! Encoding up to the Seal.

use crate::raid::state::{Attempt, Bytes, FIRST_CHECK, FROZEN, NODES, Places, RaidSet, SentCheck, Slot, State};
use crate::raid::{Action, Mutant, Raid};

pub(super) fn enumerate(protocol: &Raid, state: &State, actions: &mut Vec<Action>) {
    if state.used.attempts < protocol.bounds.attempts {
        actions.extend(candidates(state).map(Action::BeginEncode));
    }
    for at in 0..state.checks.len() {
        if state.nodes[state.checks[at].node].is_up {
            actions.push(Action::DeliverCheck(at));
        }
    }
    let Some(attempt) = &state.attempt else { return };
    for slot in [0, 1] {
        if attempt.read[slot].is_none() && version_served(state, attempt.slots[slot]).is_some() {
            actions.push(Action::ReadSlot(slot));
        }
    }
    if attempt.read.iter().all(Option::is_some) && !attempt.is_sent {
        actions.push(Action::SendCheck);
    }
    let node = &state.nodes[attempt.node];
    if attempt.is_sent && !attempt.is_proved && node.is_up && node.disk[attempt.check].is_some() {
        actions.push(Action::Prove);
    }
    if attempt.is_proved {
        actions.push(Action::Seal);
    }
}

/// The first two files make a RAID set. Once one of them is ballast, the other one makes another with the third.
fn candidates(state: &State) -> impl Iterator<Item = [usize; 2]> {
    let fresh = |at: usize| state.files[at].exists && !state.files[at].is_frozen && state.files[at].holder.is_none();
    let slots = match &state.raid {
        None => (fresh(0) && fresh(1)).then_some([state.files[0].metablock, state.files[1].metablock]),
        Some(raid) => {
            let alive: Vec<&Slot> = raid.slots.iter().filter(|slot| slot.dead.is_none()).collect();
            (alive.len() == 1 && fresh(2)).then(|| [alive[0].metablock, state.files[2].metablock])
        }
    };
    slots.into_iter()
}

pub(super) fn begin_encode(protocol: &Raid, state: &mut State, slots: [usize; 2]) {
    let members = slots.map(|slot| state.owner(slot).map_or(Places::default(), |file| state.files[file].members));
    // The node of the check: none of the copies that stay, as S-9 says, and one that has no check already.
    let stays = stays(members);
    let free = |place: &usize| {
        let has_check = state.nodes[*place].disk[FIRST_CHECK..].iter().any(Option::is_some);
        state.nodes[*place].is_up && !has_check && stays.is_none_or(|stays| !stays.contains(place))
    };
    let Some(node) = (0..NODES).rev().filter(free).min_by_key(|place| *place == 3 && state.raid.is_none()) else {
        return;
    };
    let check = FIRST_CHECK + usize::from(state.used.attempts);
    state.used.attempts += 1;
    let dissolves = state.raid.as_ref().map(|raid| raid.generation);
    if protocol.is(Mutant::DissolvesFirst) {
        state.raid = None;
    }
    let dissolves = dissolves.filter(|_| state.raid.is_some());
    let (read, term) = ([None; 2], state.term);
    state.attempt = Some(Attempt { term, slots, read, check, node, is_sent: false, is_proved: false, dissolves });
}

/// Two different nodes, one of each slot.
pub(super) fn stays(members: [Places; 2]) -> Option<[usize; 2]> {
    let pairs = members[0].iter().flat_map(|one| members[1].iter().map(move |other| [one, other]));
    pairs.into_iter().find(|[one, other]| one != other)
}

/// What a member of a metablock serves: the recorded version alone (S-1).
fn version_served(state: &State, metablock: usize) -> Option<crate::raid::state::Version> {
    let file = &state.files[state.owner(metablock)?];
    let serves = |place: usize| state.nodes[place].is_up && state.nodes[place].version(metablock) == Some(file.version);
    file.members.iter().any(serves).then_some(file.version)
}

pub(super) fn read_slot(state: &mut State, slot: usize) {
    let Some(attempt) = state.attempt else { return };
    let read = version_served(state, attempt.slots[slot]);
    if let Some(attempt) = &mut state.attempt {
        attempt.read[slot] = read;
    }
}

pub(super) fn send_check(state: &mut State) {
    let Some(attempt) = &mut state.attempt else { return };
    let [Some(one), Some(other)] = attempt.read else { return };
    attempt.is_sent = true;
    state.checks.push(SentCheck { node: attempt.node, check: attempt.check, of: [one, other] });
}

/// It is no longer under way then: one write, not repeated. It may come when the attempt is long over.
pub(super) fn deliver_check(state: &mut State, at: usize) {
    let sent = state.checks.remove(at);
    state.nodes[sent.node].store(sent.check, Bytes::Check(sent.of), 1, false);
}

/// S-3, S-3a: synced, frozen and compared before the Seal.
pub(super) fn prove(protocol: &Raid, state: &mut State) {
    let Some(attempt) = &mut state.attempt else { return };
    let [Some(one), Some(other)] = attempt.read else { return };
    let Some(replica) = &mut state.nodes[attempt.node].disk[attempt.check] else { return };
    if replica.bytes != Bytes::Check([one, other]) {
        return;
    }
    replica.promised = FROZEN;
    replica.is_synced = !protocol.is(Mutant::SealsUnsynced);
    attempt.is_proved = true;
}

/// S-4: one entry, compare-and-swap for every slot, all or nothing.
pub(super) fn seal(protocol: &Raid, state: &mut State) {
    let Some(attempt) = state.attempt.take() else { return };
    let [Some(one), Some(other)] = attempt.read else { return };
    let read = [one, other];
    let is_current = [0, 1].into_iter().all(|slot| {
        let owner = state.owner(attempt.slots[slot]).map(|at| &state.files[at]);
        owner.is_some_and(|file| {
            // As many copies as are wanted, never the least number.
            let is_whole = file.members.iter().count() == 2 || file.is_frozen;
            let is_idle = file.holder.is_none() || file.is_frozen || protocol.is(Mutant::SealsBesideAHolder);
            (file.version == read[slot] || protocol.is(Mutant::SealsBlindly)) && is_idle && is_whole
        })
    });
    let is_of_this_term = attempt.term == state.term || protocol.is(Mutant::SealsAcrossTerms);
    let generation = state.raid.as_ref().map(|raid| raid.generation);
    if !is_current || !is_of_this_term || generation != attempt.dissolves {
        state.seen.overtaken |= !is_current;
        return;
    }
    state.seen.repacked |= generation.is_some();
    let slots = [0, 1].map(|slot| Slot { metablock: attempt.slots[slot], version: read[slot], dead: None });
    for slot in &slots {
        if let Some(at) = state.owner(slot.metablock) {
            state.files[at].is_frozen = true;
        }
    }
    let generation = generation.map_or(1, |generation| generation + 1);
    state.raid = Some(RaidSet { slots, check: attempt.check, node: attempt.node, generation });
    state.frozen = [Places::default(); 2];
    state.rebuild = None;
}
