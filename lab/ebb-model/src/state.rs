//! One state of everything.

use crate::client::Client;
use crate::history::History;
use crate::master::Master;
use crate::message::Network;
use crate::names::{CLIENTS, ClientName, NODES, Node, Nodes, Version};
use crate::replica::{Copy, Replica};
use crate::{Mutant, Protocol};

/// All processes, the network, the true history, and the used part of the bounds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// By node.
    pub replicas: [Replica; NODES],
    /// By client.
    pub clients: [Client; CLIENTS],
    /// The master.
    pub master: Master,
    /// The messages that were sent.
    pub network: Network,
    /// The history.
    pub history: History,
    /// Replacements begun.
    pub replacements: u8,
    /// Repairs begun.
    pub repairs: u8,
    /// Replicas taken for excess.
    pub excess: u8,
}

impl State {
    /// A metablock just granted to three members, with a fourth node as spare. No client has a lease.
    #[must_use]
    pub fn granted() -> Self {
        Self {
            replicas: [Replica::default(); NODES],
            clients: [Client::Idle; CLIENTS],
            master: Master {
                epoch: 0,
                holder: None,
                recovery: None,
                set: [Node(0), Node(1), Node(2)].into_iter().collect::<Nodes>(),
                generation: 0,
                committed: Version::ZERO,
                freed: false,
            },
            network: Network::default(),
            history: History::default(),
            replacements: 0,
            repairs: 0,
            excess: 0,
        }
    }

    /// The replica on a node.
    #[must_use]
    pub fn replica(&self, node: Node) -> &Replica {
        &self.replicas[node.index()]
    }

    /// Crashes of members so far.
    #[must_use]
    pub fn crashes(&self) -> u8 {
        self.replicas.iter().map(|replica| replica.boot).sum()
    }

    /// The content that this client would get from this node, if it has a read lease and the node does not answer
    /// "stale". The node may be any: a reader's map may be as old as it likes.
    #[must_use]
    pub fn read(&self, protocol: &Protocol, client: ClientName, node: Node) -> Option<Copy> {
        let min_version = self.clients[client.index()].min_version()?;
        let bound = if protocol.is(Mutant::ReadsBelowMinVersion) { Version::ZERO } else { min_version };
        self.replica(node).serves(bound)
    }

    /// Every read that could be made now.
    pub fn reads(&self, protocol: &Protocol) -> impl Iterator<Item = Copy> {
        ClientName::all()
            .flat_map(|client| Node::all().map(move |node| (client, node)))
            .filter_map(move |(client, node)| self.read(protocol, client, node))
    }
}
