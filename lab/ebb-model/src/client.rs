//! A client: no lease, a read lease, or the write lease, which makes it the holder.

use crate::message::Message;
use crate::names::{ClientName, Epoch, Node, Nodes, Version};
use crate::state::State;
use crate::{Mutant, Protocol};

/// The lease that a client believes to have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Client {
    /// No lease: a process that just started, or one that gave its lease back or noticed that it was lost.
    #[default]
    Idle,
    /// A read lease, with the min_version that came with it.
    Reader {
        /// Nothing below it is accepted.
        min_version: Version,
    },
    /// The write lease. The belief may be wrong: a holder is not informed that its epoch is over.
    Holder(Hold),
}

/// The knowledge of a holder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hold {
    /// Of its lease.
    pub epoch: Epoch,
    /// Members that must have synced a write before it is acknowledged.
    pub set: Nodes,
    /// Of that set.
    pub generation: u8,
    /// Committed version when the lease was granted.
    pub base: Version,
    /// Of the last write sent.
    pub current: Version,
    /// A member being replaced. Meanwhile nothing is written and nothing acknowledged.
    pub change: Option<Change>,
}

/// Replacement of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Change {
    /// Goes.
    pub failed: Node,
    /// Comes; `None`: the master has no volume to offer, and the set goes on with those that are well.
    pub joining: Option<Node>,
    /// Whether the master was asked to record it.
    pub proposed: bool,
}

impl Change {
    /// The set after it.
    #[must_use]
    pub fn set(&self, before: Nodes) -> Nodes {
        let rest = before.without(self.failed);
        self.joining.map_or(rest, |node| rest.with(node))
    }
}

impl Client {
    /// The holder's knowledge.
    #[must_use]
    pub const fn hold(&self) -> Option<&Hold> {
        match self {
            Self::Holder(hold) => Some(hold),
            Self::Idle | Self::Reader { .. } => None,
        }
    }

    /// The reader's bound.
    #[must_use]
    pub const fn min_version(&self) -> Option<Version> {
        match self {
            Self::Reader { min_version } => Some(*min_version),
            Self::Idle | Self::Holder(_) => None,
        }
    }
}

/// The meaning that a holder gives to an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// Answers that name a synced version: the rule.
    Synced,
    /// Answers that name a received version: a mistake.
    Received,
    /// As `Synced`, but any answer of another boot stands for a sync of all that was received: a mistake.
    SyncedByAnyBoot,
}

impl Hold {
    /// The lease as it is granted.
    #[must_use]
    pub const fn granted(epoch: Epoch, set: Nodes, generation: u8, committed: Version) -> Self {
        Self { epoch, set, generation, base: committed, current: committed, change: None }
    }

    /// The newest version that every one of `members` is known to have, at most `current`, at least `base`.
    #[must_use]
    pub fn held_by_all(&self, state: &State, members: Nodes, evidence: Evidence) -> Version {
        let of = |node| self.held_by(state, node, evidence);
        members.iter().map(of).min().unwrap_or(self.base).clamp(self.base, self.current)
    }

    /// Whether a joining node has reported that it pulled all that was written.
    #[must_use]
    pub fn has_pulled(&self, state: &State, joining: Node) -> bool {
        state.network.iter().any(|message| match message {
            Message::Pulled { node, epoch, version } => {
                node == joining && epoch == self.epoch && version >= self.current
            }
            _ => false,
        })
    }

    fn held_by(&self, state: &State, wanted: Node, evidence: Evidence) -> Version {
        let mut best = Version::ZERO;
        let mut best_received = Version::ZERO;
        let mut boots = [false; 8];
        for message in state.network.iter() {
            match message {
                Message::Answer { node, epoch, boot, received, synced } if node == wanted && epoch == self.epoch => {
                    best = best.max(synced);
                    best_received = best_received.max(received);
                    boots[usize::from(boot)] = true;
                }
                Message::Pulled { node, epoch, version } if node == wanted && epoch == self.epoch => {
                    best = best.max(version);
                }
                _ => {}
            }
        }
        match evidence {
            Evidence::Synced => best,
            Evidence::Received => best.max(best_received),
            Evidence::SyncedByAnyBoot if boots.iter().filter(|seen| **seen).count() > 1 => best.max(best_received),
            Evidence::SyncedByAnyBoot => best,
        }
    }

    /// The version up to which fsync acknowledges.
    #[must_use]
    pub fn acknowledgeable(&self, protocol: &Protocol, state: &State) -> Version {
        let evidence = match protocol.mutant {
            Some(Mutant::AcknowledgesReceived) => Evidence::Received,
            Some(Mutant::IgnoresBoot) => Evidence::SyncedByAnyBoot,
            _ => Evidence::Synced,
        };
        self.held_by_all(state, self.set, evidence)
    }

    /// The version that a commit records.
    #[must_use]
    pub fn committable(&self, protocol: &Protocol, state: &State) -> Version {
        let evidence = if protocol.is(Mutant::CommitsReceived) { Evidence::Received } else { Evidence::Synced };
        self.held_by_all(state, self.set, evidence)
    }
}

/// The next write, sent to every member, with a sync.
pub fn write(state: &mut State, client: ClientName) {
    let Client::Holder(hold) = &mut state.clients[client.index()] else { return };
    let predecessor = hold.current;
    let version = predecessor.successor(hold.epoch);
    hold.current = version;
    let (set, epoch) = (hold.set, hold.epoch);
    let write = state.history.record(client, epoch, version.seq);
    for node in set.iter() {
        state.network.send(Message::Write { node, version, predecessor, write });
        state.network.send(Message::Sync { node, epoch });
    }
}

/// fsync returns.
pub fn acknowledge(protocol: &Protocol, state: &mut State, client: ClientName) {
    let Client::Holder(hold) = state.clients[client.index()] else { return };
    let version = hold.acknowledgeable(protocol, state);
    if version.epoch == hold.epoch {
        let writes = state.history.of_lease(client, hold.epoch, version.seq);
        state.history.acknowledged = state.history.acknowledged.and(writes);
    }
}

/// Commits in the background, or gives the lease back with everything committed.
pub fn commit(protocol: &Protocol, state: &mut State, client: ClientName, release: bool) {
    let Client::Holder(hold) = state.clients[client.index()] else { return };
    let version = hold.committable(protocol, state);
    state.network.send(Message::Commit { epoch: hold.epoch, version, release });
    if release {
        state.clients[client.index()] = Client::Idle;
    }
}

/// Stops writing and has `joining` pull the version that the other members have synced. Without a joining node the
/// smaller set is proposed at once.
pub fn replace(protocol: &Protocol, state: &mut State, client: ClientName, failed: Node, joining: Option<Node>) {
    let Client::Holder(hold) = &mut state.clients[client.index()] else { return };
    hold.change = Some(Change { failed, joining, proposed: false });
    let (epoch, at) = (hold.epoch, hold.current);
    if let Some(node) = joining {
        state.network.send(Message::Pull { node, epoch, at });
    }
    if joining.is_none() || protocol.is(Mutant::JoinsBeforeSynced) {
        propose(protocol, state, client);
    }
}

/// The new set is synced: asks the master to record it.
pub fn propose(protocol: &Protocol, state: &mut State, client: ClientName) {
    let Client::Holder(hold) = &mut state.clients[client.index()] else { return };
    let Some(change) = &mut hold.change else { return };
    change.proposed = true;
    let set = change.set(hold.set);
    state.network.send(Message::ChangeSet { epoch: hold.epoch, generation: hold.generation, set });
    if protocol.is(Mutant::GoesOnBeforeRecorded) {
        adopt(state, client);
    }
}

/// The master has recorded the new set: goes on with it.
pub fn adopt(state: &mut State, client: ClientName) {
    let Client::Holder(hold) = &mut state.clients[client.index()] else { return };
    let Some(change) = hold.change.take() else { return };
    hold.set = change.set(hold.set);
    hold.generation += 1;
}
