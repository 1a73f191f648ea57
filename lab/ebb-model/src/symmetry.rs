//! Nodes are alike: states that differ only in the names of nodes are one state.
//!
//! [`representative`] renames nodes so that they stand in a fixed order of all that is known about them. Six to
//! twenty-four states become one. Two nodes that are equal in all of this may stand either way round: then both ways
//! are the same state.

use crate::client::{Change, Client};
use crate::message::Message;
use crate::names::{CLIENTS, NODES, Node, Nodes};
use crate::replica::Replica;
use crate::state::State;

/// The state with its nodes renamed into order.
#[must_use]
pub fn representative(mut state: State) -> State {
    let node = |index: usize| Node(index_to_u8(index));
    let views: [View; NODES] = std::array::from_fn(|index| View::of(&state, node(index)));
    let mut order: [usize; NODES] = std::array::from_fn(|index| index);
    order.sort_by(|left, right| {
        // Messages are gathered only where nothing else distinguishes two nodes: this runs once for each step.
        let by_messages = || messages_about(&state, node(*left)).cmp(&messages_about(&state, node(*right)));
        views[*left].cmp(&views[*right]).then_with(by_messages)
    });
    if order.is_sorted() {
        return state;
    }
    let mut renaming = Renaming([Node(0); NODES]);
    for (new, old) in order.iter().enumerate() {
        renaming.0[*old] = Node(index_to_u8(new));
    }
    renaming.apply(&mut state);
    state
}

fn index_to_u8(index: usize) -> u8 {
    u8::try_from(index).expect("few nodes")
}

/// All that is known about one node, without its name and without messages.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct View {
    member: bool,
    replica: Replica,
    known_to: [(bool, bool, bool); CLIENTS],
}

impl View {
    fn of(state: &State, node: Node) -> Self {
        let known_to = std::array::from_fn(|client| match &state.clients[client] {
            Client::Holder(hold) => {
                let change = hold.change;
                let failed = change.is_some_and(|change| change.failed == node);
                let joining = change.is_some_and(|change| change.joining == Some(node));
                (hold.set.has(node), failed, joining)
            }
            Client::Idle | Client::Reader { .. } => (false, false, false),
        });
        Self { member: state.master.set.has(node), replica: *state.replica(node), known_to }
    }
}

fn messages_about(state: &State, node: Node) -> Vec<Message> {
    let mut messages: Vec<Message> = state.network.iter().filter_map(|message| about(message, node)).collect();
    messages.sort_unstable();
    messages
}

/// A message as one node sees it: with itself as node 0, and sets reduced to whether it is in.
fn about(message: Message, node: Node) -> Option<Message> {
    let mut message = message;
    match &mut message {
        Message::ChangeSet { set, .. } => *set = Nodes(u8::from(set.has(node))),
        other => {
            let name = node_of(other)?;
            if *name != node {
                return None;
            }
            *name = Node(0);
        }
    }
    Some(message)
}

fn node_of(message: &mut Message) -> Option<&mut Node> {
    match message {
        Message::Write { node, .. }
        | Message::Sync { node, .. }
        | Message::Answer { node, .. }
        | Message::Promise { node, .. }
        | Message::Reported { node, .. }
        | Message::Pull { node, .. }
        | Message::Pulled { node, .. }
        | Message::Stamp { node, .. }
        | Message::Stamped { node, .. }
        | Message::DeleteExcess { node, .. } => Some(node),
        Message::Commit { .. } | Message::ChangeSet { .. } | Message::SetChanged { .. } => None,
    }
}

/// New name of each node.
struct Renaming([Node; NODES]);

impl Renaming {
    fn node(&self, node: Node) -> Node {
        self.0[node.index()]
    }

    fn nodes(&self, nodes: Nodes) -> Nodes {
        nodes.iter().map(|node| self.node(node)).collect()
    }

    fn apply(&self, state: &mut State) {
        let old = state.replicas;
        for node in Node::all() {
            state.replicas[self.node(node).index()] = old[node.index()];
        }
        state.master.set = self.nodes(state.master.set);
        for client in &mut state.clients {
            if let Client::Holder(hold) = client {
                hold.set = self.nodes(hold.set);
                hold.change = hold.change.map(|change| Change {
                    failed: self.node(change.failed),
                    joining: change.joining.map(|node| self.node(node)),
                    ..change
                });
            }
        }
        state.network.map(|message| {
            if let Message::ChangeSet { set, .. } = message {
                *set = self.nodes(*set);
            } else if let Some(node) = node_of(message) {
                *node = self.node(*node);
            }
        });
    }
}
