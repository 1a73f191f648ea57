//! Properties that must hold in every state, and properties that must be reached in some.

use stateright::Property;

use crate::names::Writes;
use crate::standins::Standins;
use crate::standins::holder::Holder;
use crate::standins::log::{Entry, made_up, writes};
use crate::standins::state::{ALWAYS_ON, Node, State};

/// The acknowledged writes can be put together from the rest.
pub const REBUILDS: &str = "what fsync acknowledged can be put together from what is left";
/// It is with every member before the file has another holder.
pub const WITH_ALL: &str = "what fsync acknowledged under a lease is with every member before the next one";
/// Every replica that may answer a read has it.
pub const READS: &str = "no read is answered by who has not what fsync acknowledged";
/// What was logged can be given to members.
pub const NO_GAPS: &str = "the predecessor of a logged write is logged, or with every member";
/// The whole set has synced every committed write.
pub const COMMITTED: &str = "what is committed is synced by the whole set";

/// All of them.
#[must_use]
pub fn all() -> Vec<Property<Standins>> {
    let mut all = vec![
        Property::always(REBUILDS, |_: &Standins, state: &State| rebuilds(state)),
        Property::always(WITH_ALL, |_: &Standins, state: &State| {
            let firm = firm_before(state);
            members(state).all(|node| node.replica.synced.writes.includes(firm))
        }),
        Property::always(READS, |_: &Standins, state: &State| {
            !state.is_at_rest() || servers(state).all(|node| node.replica.synced.writes.includes(state.history.firm))
        }),
        Property::always(NO_GAPS, |_: &Standins, state: &State| {
            let own = &state.always_on;
            has_no_gap(state, &logged(state)) && (!own.is_whole() || has_no_gap(state, &own.entries))
        }),
        Property::always(COMMITTED, |_: &Standins, state: &State| {
            members(state).all(|node| node.replica.synced.version >= state.master.committed)
        }),
    ];
    all.extend(reached());
    all
}

/// Members of the recorded set whose disks are there.
fn members(state: &State) -> impl Iterator<Item = &Node> {
    let in_set = state.nodes.iter().zip(state.master.set).filter(|(node, in_set)| *in_set && !node.is_lost);
    in_set.map(|(node, _)| node)
}

/// Nodes with a replica that min_version lets serve, in the set or not.
fn servers(state: &State) -> impl Iterator<Item = &Node> {
    state.nodes.iter().filter(|node| !node.is_lost && node.replica.serves(state.master.committed).is_some())
}

/// Everything in any log.
fn logged(state: &State) -> Vec<Entry> {
    let logs = state.nodes.iter().map(|node| &node.log).chain([&state.always_on]);
    let mut all: Vec<Entry> = logs.flat_map(|log| log.entries.iter().copied()).collect();
    all.sort_unstable();
    all
}

/// A member that was lost and is not replaced yet has nothing, and counts for nothing here.
fn has_no_gap(state: &State, entries: &[Entry]) -> bool {
    entries.iter().all(|entry| {
        let before = entry.predecessor;
        let is_logged = entries.iter().any(|other| other.version == before);
        is_logged || members(state).all(|node| node.replica.received.version >= before)
    })
}

fn rebuilds(state: &State) -> bool {
    let logged = logged(state);
    members(state).any(|node| made_up(node.replica.synced, &logged).writes.includes(state.history.firm))
}

/// The writes that were acknowledged under leases that are certainly over. While a file is recovered it counts as
/// having no holder, and members differ.
fn firm_before(state: &State) -> Writes {
    let master = &state.master;
    if master.recovery.is_some() {
        return Writes::NONE;
    }
    let is_over = |entry: &&Entry| !master.held || entry.version.epoch < master.epoch;
    let over = state.sent.iter().filter(is_over).fold(Writes::NONE, |all, entry| all.with(entry.write));
    Writes(over.0 & state.history.firm.0)
}

/// Acknowledged, and with no member: only in logs.
fn logged_only(state: &State) -> u8 {
    let on_disks = state.nodes.iter().fold(Writes::NONE, |all, node| all.and(node.replica.synced.writes));
    state.history.firm.0 & !on_disks.0
}

/// Situations that must be reachable, or the other properties would hold for want of anything happening.
#[must_use]
pub fn reached() -> Vec<Property<Standins>> {
    vec![
        Property::sometimes(
            "fsync returns while a member sleeps and no member has it",
            |_: &Standins, state: &State| state.nodes.iter().any(|node| !node.is_awake) && logged_only(state) != 0,
        ),
        Property::sometimes(
            "a member that woke has everything, and the logs are empty",
            |_: &Standins, state: &State| {
                let firm = state.history.firm;
                firm != Writes::NONE
                    && state.sleeps > 0
                    && !state.appends.is_empty()
                    && logged(state).is_empty()
                    && members(state).all(|node| node.is_awake && node.replica.synced.writes.includes(firm))
            },
        ),
        Property::sometimes("what was logged is spread over both nodes' logs", |_: &Standins, state: &State| {
            let [one, two] = [0, 1].map(|place| writes(&state.nodes[place].log.entries));
            one.0 & !two.0 != 0 && two.0 & !one.0 != 0 && logged_only(state) & (one.0 | two.0) == one.0 | two.0
        }),
        Property::sometimes(
            "two calls to logs are under way, and the later one waits",
            |_: &Standins, state: &State| {
                let waits = |holder: &Holder| {
                    let later = holder.attempts.get(1).map(|attempt| &attempt.append);
                    later.is_some_and(|later| !state.always_on.is_behind(later, later.after))
                };
                state.holders.iter().any(waits)
            },
        ),
        Property::sometimes("a recovery brings members what was only logged", |_: &Standins, state: &State| {
            state.is_at_rest() && state.history.replayed
        }),
        Property::sometimes("a recovery goes on without a member that sleeps", |_: &Standins, state: &State| {
            let sleeper = state.nodes.iter().zip(state.master.set).any(|(node, in_set)| !node.is_awake && !in_set);
            state.is_at_rest() && sleeper && state.history.firm != Writes::NONE
        }),
        Property::sometimes("a recovery that had brought something begins again", |_: &Standins, state: &State| {
            state.history.again && state.is_at_rest()
        }),
        Property::sometimes("what the lost log held is found in another node's", |_: &Standins, state: &State| {
            state.is_at_rest() && state.history.mirrored
        }),
        Property::sometimes("a call to a log is late and refused", |_: &Standins, state: &State| {
            let epoch = state.master.epoch;
            state.is_at_rest()
                && state.appends.iter().any(|append| {
                    append.epoch < epoch
                        && !state.always_on.takes(append.epoch)
                        && state.log(ALWAYS_ON).last().is_none()
                })
        }),
        Property::sometimes("the next holder's writes are logged, too", |_: &Standins, state: &State| {
            let is_first = |entry: &Entry| entry.version.epoch == 1;
            let of = |writes: u8, first: bool| {
                state.sent.iter().any(|entry| writes & (1 << entry.write) != 0 && is_first(entry) == first)
            };
            of(state.history.firm.0, true) && of(logged_only(state), false)
        }),
    ]
}
