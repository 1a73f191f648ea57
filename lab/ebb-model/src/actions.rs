//! The actions of the model.

use crate::client::{self, Client, Evidence};
use crate::message::Message;
use crate::names::{ClientName, Node, Version};
use crate::state::State;
use crate::{Mutant, Protocol, master};

/// One step of one process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A request reaches its member or the master.
    Deliver(Message),
    /// A pull is carried out from a node that serves the version.
    Pull(Message, Node),
    /// A member's process or host fails and starts again.
    Crash(Node),

    /// A client gets a read lease.
    AcquireRead(ClientName),
    /// A read lease was recalled, or its client's clock ended it.
    DropRead(ClientName),
    /// A read from this node returns to its caller.
    Read(ClientName, Node),
    /// A client gets the write lease.
    AcquireWrite(ClientName),
    /// The holder writes.
    Write(ClientName),
    /// The holder's fsync returns.
    Acknowledge(ClientName),
    /// The holder commits in the background.
    Commit(ClientName),
    /// The holder gives its lease back, everything synced and committed.
    Release(ClientName),
    /// A holder finds that its lease is over, or its process dies and another starts.
    Notice(ClientName),
    /// The holder gives a member up: the first goes, the second, if any, comes.
    Replace(ClientName, Node, Option<Node>),
    /// The new member has pulled: the holder proposes the new set.
    Propose(ClientName),
    /// The new set is recorded: the holder goes on.
    Adopt(ClientName),

    /// The master gives the holder up, or another master begins a recovery again.
    BeginRecovery,
    /// The master has heard enough members.
    Decide,
    /// The master has stamped enough members.
    FinishRecovery,
    /// The master asks a node to pull.
    AskRepair(Node),
    /// The master records it as a member.
    Repair(Node),
    /// The master has a node delete its replica of a freed metablock.
    Delete(Node),
    /// The master judges a node's replica to be in excess.
    JudgeExcess(Node),
}

/// Everything that may happen in a state.
pub fn enumerate(protocol: &Protocol, state: &State, actions: &mut Vec<Action>) {
    deliveries(state, actions);
    if state.crashes() < protocol.bounds.crashes {
        let can_lose = |node: &Node| {
            let replica = state.replica(*node);
            replica.received != replica.synced || protocol.mutant.is_some()
        };
        actions.extend(Node::all().filter(can_lose).map(Action::Crash));
    }
    for name in ClientName::all() {
        match &state.clients[name.index()] {
            Client::Idle => idle_actions(protocol, state, name, actions),
            Client::Reader { .. } => {
                actions.push(Action::DropRead(name));
                actions.extend(Node::all().map(|node| Action::Read(name, node)));
            }
            Client::Holder(_) => holder_actions(protocol, state, name, actions),
        }
    }
    master_actions(protocol, state, actions);
}

fn deliveries(state: &State, actions: &mut Vec<Action>) {
    for message in state.network.iter() {
        match message {
            Message::Write { .. }
            | Message::Sync { .. }
            | Message::Promise { .. }
            | Message::Stamp { .. }
            | Message::Commit { .. }
            | Message::DeleteExcess { .. }
            | Message::ChangeSet { .. } => actions.push(Action::Deliver(message)),
            Message::Pull { node, at, .. } => {
                let serves = |source: &Node| *source != node && state.replica(*source).serves(at).is_some();
                actions.extend(Node::all().filter(serves).map(|source| Action::Pull(message, source)));
            }
            Message::Answer { .. }
            | Message::SetChanged { .. }
            | Message::Reported { .. }
            | Message::Pulled { .. }
            | Message::Stamped { .. } => {}
        }
    }
}

fn idle_actions(protocol: &Protocol, state: &State, name: ClientName, actions: &mut Vec<Action>) {
    if !state.master.is_quiet() {
        return;
    }
    actions.push(Action::AcquireRead(name));
    let readers = state.clients.iter().any(|client| client.min_version().is_some());
    let may_write = state.master.epoch < protocol.bounds.epoch && has_writes_left(protocol, state);
    if may_write && (!readers || protocol.is(Mutant::GrantsOverReaders)) {
        actions.push(Action::AcquireWrite(name));
    }
}

fn has_writes_left(protocol: &Protocol, state: &State) -> bool {
    state.history.writes.len() < usize::from(protocol.bounds.writes)
}

fn holder_actions(protocol: &Protocol, state: &State, name: ClientName, actions: &mut Vec<Action>) {
    let Some(hold) = state.clients[name.index()].hold() else { return };
    if state.master.epoch > hold.epoch {
        actions.push(Action::Notice(name));
    }
    if let Some(change) = hold.change {
        if !change.proposed && change.joining.is_some_and(|node| hold.has_pulled(state, node)) {
            actions.push(Action::Propose(name));
        }
        if state.network.has(Message::SetChanged { epoch: hold.epoch, generation: hold.generation + 1 }) {
            actions.push(Action::Adopt(name));
        }
        return;
    }
    if has_writes_left(protocol, state) {
        actions.push(Action::Write(name));
    }
    actions.push(Action::Acknowledge(name));
    let committable = hold.committable(protocol, state);
    if committable > hold.base {
        actions.push(Action::Commit(name));
    }
    if committable == hold.current || protocol.is(Mutant::ReleasesAfterGivingUp) {
        actions.push(Action::Release(name));
    }
    if state.replacements < protocol.bounds.replacements {
        for failed in hold.set.iter() {
            let rest = hold.set.without(failed);
            if !rest.is_empty() && hold.held_by_all(state, rest, Evidence::Synced) == hold.current {
                let outside = Node::all().filter(|node| !hold.set.has(*node));
                actions.extend(outside.map(Some).chain([None]).map(|joining| Action::Replace(name, failed, joining)));
            }
        }
    }
}

fn master_actions(protocol: &Protocol, state: &State, actions: &mut Vec<Action>) {
    let master = &state.master;
    if (master.holder.is_some() || master.recovery.is_some()) && master.epoch < protocol.bounds.epoch {
        actions.push(Action::BeginRecovery);
    }
    if let Some(recovery) = master.recovery {
        if recovery.base.is_none() && !master::reported_versions(state).is_empty() {
            actions.push(Action::Decide);
        }
        if recovery.base.is_some() && !master::stamped(state).is_empty() {
            actions.push(Action::FinishRecovery);
        }
    }
    if master.freed {
        actions.extend(Node::all().map(Action::Delete));
    }
    if state.excess < protocol.bounds.excess && !master.freed {
        let excess = Node::all().filter(|node| master::is_excess(protocol, state, *node));
        actions.extend(excess.map(Action::JudgeExcess));
    }
    if master.is_quiet() && master.set.len() < 3 && master.committed != Version::ZERO {
        for node in Node::all().filter(|node| !master.set.has(*node)) {
            if master::has_pulled(state, node) {
                actions.push(Action::Repair(node));
            } else if state.repairs < protocol.bounds.repairs {
                actions.push(Action::AskRepair(node));
            }
        }
    }
}

/// Carries one action out.
pub fn perform(protocol: &Protocol, state: &mut State, action: Action) {
    match action {
        Action::Deliver(message) => deliver(protocol, state, message),
        Action::Pull(message, source) => pull(protocol, state, message, source),
        Action::Crash(node) => state.replicas[node.index()].crash(protocol),
        Action::AcquireRead(client) => master::grant_read(state, client),
        Action::DropRead(client) | Action::Notice(client) => state.clients[client.index()] = Client::Idle,
        Action::Read(client, node) => read(protocol, state, client, node),
        Action::AcquireWrite(client) => master::grant_write(protocol, state, client),
        Action::Write(client) => client::write(state, client),
        Action::Acknowledge(client) => client::acknowledge(protocol, state, client),
        Action::Commit(client) => client::commit(protocol, state, client, false),
        Action::Release(client) => client::commit(protocol, state, client, true),
        Action::Replace(client, failed, joining) => {
            state.replacements += 1;
            client::replace(protocol, state, client, failed, joining);
        }
        Action::Propose(client) => client::propose(protocol, state, client),
        Action::Adopt(client) => client::adopt(state, client),
        Action::BeginRecovery => master::begin_recovery(state),
        Action::Decide => master::decide(protocol, state),
        Action::FinishRecovery => master::finish_recovery(state),
        Action::AskRepair(node) => master::ask_repair(state, node),
        Action::Repair(node) => master::repair(state, node),
        Action::Delete(node) => state.replicas[node.index()].delete(protocol),
        Action::JudgeExcess(node) => master::judge_excess(state, node),
    }
}

fn deliver(protocol: &Protocol, state: &mut State, message: Message) {
    let reply = match message {
        Message::Write { node, version, predecessor, write } => {
            state.replicas[node.index()].on_write(protocol, node, version, predecessor, write)
        }
        Message::Sync { node, epoch } => state.replicas[node.index()].on_sync(protocol, node, epoch),
        Message::Promise { node, epoch } => state.replicas[node.index()].on_promise(protocol, node, epoch),
        Message::Stamp { node, epoch, base } => state.replicas[node.index()].on_stamp(protocol, node, epoch, base),
        Message::Commit { epoch, version, release } => {
            master::on_commit(state, epoch, version, release);
            None
        }
        Message::ChangeSet { epoch, generation, set } => {
            master::on_change_set(protocol, state, epoch, generation, set);
            None
        }
        Message::DeleteExcess { node, epoch } => {
            state.replicas[node.index()].on_delete_excess(epoch);
            None
        }
        Message::Answer { .. }
        | Message::SetChanged { .. }
        | Message::Reported { .. }
        | Message::Pull { .. }
        | Message::Pulled { .. }
        | Message::Stamped { .. } => None,
    };
    if let Some(reply) = reply {
        state.network.send(reply);
    }
}

/// The source serves its synced version, and syncs first if it must.
fn pull(protocol: &Protocol, state: &mut State, message: Message, source: Node) {
    let Message::Pull { node, epoch, at } = message else { return };
    let Some(copy) = state.replica(source).serves(at) else { return };
    if let Some(reply) = state.replicas[node.index()].on_pull(protocol, node, epoch, at, copy) {
        if state.replica(source).synced != copy {
            state.replicas[source.index()].sync();
        }
        if !protocol.is(Mutant::DeletionHitsAnyLife) {
            // Another life: a deletion that was decided before does not mean it.
            let hits = |other| matches!(other, Message::DeleteExcess { node: of, .. } if of == node);
            state.network.retain(|other| !hits(other));
        }
        state.network.send(reply);
    }
}

fn read(protocol: &Protocol, state: &mut State, client: ClientName, node: Node) {
    let Some(copy) = state.read(protocol, client, node) else { return };
    if state.replica(node).synced != copy {
        state.replicas[node.index()].sync();
    }
    state.history.seen = state.history.seen.and(copy.writes);
}
