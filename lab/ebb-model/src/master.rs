//! The master: one durable state machine, so each of its steps is atomic here.

use crate::client::{Client, Hold};
use crate::message::Message;
use crate::names::{ClientName, Epoch, Node, Nodes, Version};
use crate::state::State;
use crate::{Mutant, Protocol};

/// The record of the master.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Master {
    /// Of the file.
    pub epoch: Epoch,
    /// The holder of the write lease.
    pub holder: Option<ClientName>,
    /// A recovery under way.
    pub recovery: Option<Recovery>,
    /// Members.
    pub set: Nodes,
    /// Raised at each change of the set.
    pub generation: u8,
    /// Readers' min_version.
    pub committed: Version,
    /// Whether a recovery found the metablock never written and freed it: it reads as a hole.
    pub freed: bool,
}

/// A recovery under way. All but its epoch is in memory: when the process that runs it dies, another begins again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Recovery {
    /// The version to which all members are made equal, once it was decided.
    pub base: Option<Version>,
}

impl Master {
    /// Whether a lease may be granted.
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        self.holder.is_none() && self.recovery.is_none() && !self.freed
    }
}

/// `Acquire` for reading.
pub fn grant_read(state: &mut State, client: ClientName) {
    state.clients[client.index()] = Client::Reader { min_version: state.master.committed };
}

/// `Acquire` for writing: raises the epoch.
pub fn grant_write(protocol: &Protocol, state: &mut State, client: ClientName) {
    let master = &mut state.master;
    if master.epoch == 0 || !protocol.is(Mutant::LeaseKeepsEpoch) {
        master.epoch += 1;
    }
    master.holder = Some(client);
    let hold = Hold::granted(master.epoch, master.set, master.generation, master.committed);
    state.clients[client.index()] = Client::Holder(hold);
}

/// `Commit`: refused when the epoch is over or the lease was given back.
pub fn on_commit(state: &mut State, epoch: Epoch, version: Version, release: bool) {
    let master = &mut state.master;
    if epoch != master.epoch || master.holder.is_none() {
        return;
    }
    master.committed = master.committed.max(version);
    if release {
        master.holder = None;
    }
}

/// `ChangeSet`: compare-and-swap on epoch and generation.
pub fn on_change_set(protocol: &Protocol, state: &mut State, epoch: Epoch, generation: u8, set: Nodes) {
    let master = &mut state.master;
    let current = epoch == master.epoch && master.holder.is_some();
    if generation != master.generation || (!current && !protocol.is(Mutant::SetChangeIgnoresEpoch)) {
        return;
    }
    master.set = set;
    master.generation += 1;
    state.network.send(Message::SetChanged { epoch, generation: master.generation });
}

/// `BeginRecovery`: of a file whose holder's session is over, or whose recovery died.
pub fn begin_recovery(state: &mut State) {
    let master = &mut state.master;
    master.epoch += 1;
    master.holder = None;
    master.recovery = Some(Recovery { base: None });
    for node in master.set.iter() {
        state.network.send(Message::Promise { node, epoch: master.epoch });
    }
}

/// Versions reported for the recovery under way, the highest for each node.
#[must_use]
pub fn reported_versions(state: &State) -> Vec<(Node, Version)> {
    let mut reported: Vec<(Node, Version)> = Vec::new();
    for message in state.network.iter() {
        if let Message::Reported { node, epoch, version } = message
            && epoch == state.master.epoch
        {
            reported.retain(|entry| entry.0 != node);
            // Messages are in order of node, then version: the last is the highest.
            reported.push((node, version));
        }
    }
    reported
}

/// Enough members have answered: the highest version wins, the others pull, and all are stamped. A metablock without a
/// write is freed.
pub fn decide(protocol: &Protocol, state: &mut State) {
    let reported = reported_versions(state);
    let versions = reported.iter().map(|entry| entry.1);
    let lowest = protocol.is(Mutant::RecoveryPicksLowest);
    let Some(base) = (if lowest { versions.min() } else { versions.max() }) else { return };
    if base == Version::ZERO {
        state.master.freed = true;
        state.master.recovery = None;
        return;
    }
    let epoch = state.master.epoch;
    state.master.recovery = Some(Recovery { base: Some(base) });
    for (node, version) in reported {
        if version < base {
            state.network.send(Message::Pull { node, epoch, at: base });
        }
        let base = if lowest { version } else { base };
        state.network.send(Message::Stamp { node, epoch, base });
    }
}

/// Members that a decided recovery has stamped so far.
#[must_use]
pub fn stamped(state: &State) -> Nodes {
    let epoch = state.master.epoch;
    Node::all().filter(|node| state.network.has(Message::Stamped { node: *node, epoch })).collect()
}

/// `FinishRecovery`: the set is made of the members that were stamped in time.
pub fn finish_recovery(state: &mut State) {
    let set = stamped(state);
    let master = &mut state.master;
    if set != master.set {
        master.set = set;
        master.generation += 1;
    }
    master.committed = Version::stamp(master.epoch);
    master.recovery = None;
}

/// Repair of a file without a lease holder: a node is asked to pull the committed version.
pub fn ask_repair(state: &mut State, node: Node) {
    let (epoch, at) = (state.master.epoch, state.master.committed);
    state.network.send(Message::Pull { node, epoch, at });
    state.repairs += 1;
}

/// Whether a node has pulled the committed version, under the epoch that still stands.
#[must_use]
pub fn has_pulled(state: &State, wanted: Node) -> bool {
    let master = &state.master;
    state.network.iter().any(|message| match message {
        Message::Pulled { node, epoch, version } => {
            node == wanted && epoch == master.epoch && version >= master.committed
        }
        _ => false,
    })
}

/// Whether a node's replica counts as excess: the recorded set does without it, and no process may be about to add it.
#[must_use]
pub fn is_excess(protocol: &Protocol, state: &State, node: Node) -> bool {
    let master = &state.master;
    // A holder's pull looks the same from here; a mutant that ignores holders ignores it, too.
    let copying = || {
        let asked =
            |message| matches!(message, Message::Pull { node: to, epoch, .. } if to == node && epoch == master.epoch);
        has_pulled(state, node) || state.network.iter().any(asked)
    };
    let another_pulled = || Node::all().any(|other| !master.set.has(other) && has_pulled(state, other));
    let outside = match master.set.has(node) {
        true => protocol.is(Mutant::DeletesBeforeRecorded) && another_pulled(),
        false => true,
    };
    outside
        && (master.is_quiet() || (protocol.is(Mutant::JudgesUnderHolder) && master.recovery.is_none()))
        && (!copying() || protocol.is(Mutant::JudgesDuringCopy) || protocol.is(Mutant::JudgesUnderHolder))
        && state.replica(node).received.version != Version::ZERO
}

/// The master has asked which replica the node has, and its map, not older than the answer, does without it.
pub fn judge_excess(state: &mut State, node: Node) {
    let epoch = state.master.epoch;
    state.network.send(Message::DeleteExcess { node, epoch });
    state.excess += 1;
}

/// `MasterChangeSet`.
pub fn repair(state: &mut State, node: Node) {
    state.master.set = state.master.set.with(node);
    state.master.generation += 1;
}
