//! One state of everything.

use crate::names::Writes;

/// Nodes; the first two are the homes that the layout chose.
pub const NODES: usize = 4;
/// Copies of the metablock.
pub const COPIES: usize = 2;

/// A replica on a node's disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Replica {
    /// The writes that it includes.
    pub writes: Writes,
    /// Another one with each copy, so that a deletion names one replica and no later one.
    pub life: u8,
}

/// A node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Node {
    /// Under the plan in force.
    pub is_on: bool,
    /// For good.
    pub is_dead: bool,
    /// The replica on its disk.
    pub replica: Option<Replica>,
    /// Epoch below which it refuses.
    pub promised: u8,
    /// Lives that its disk has drawn.
    pub lives: u8,
}

impl Node {
    /// Whether it answers.
    #[must_use]
    pub const fn answers(&self) -> bool {
        self.is_on && !self.is_dead
    }

    /// The writes that its replica includes; none without a replica.
    #[must_use]
    pub fn writes(&self) -> Writes {
        self.replica.map_or(Writes::NONE, |replica| replica.writes)
    }

    /// Stores a copy, which is another life.
    pub fn store_replica(&mut self, writes: Writes) {
        self.lives += 1;
        self.replica = Some(Replica { writes, life: self.lives });
    }
}

/// A member of the set, by nodes' places.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member {
    /// Where the copy lies.
    pub node: usize,
    /// Where it belongs: the node itself, unless it is a guest.
    pub home: usize,
}

impl Member {
    /// Whether it is away from home.
    #[must_use]
    pub const fn is_guest(&self) -> bool {
        self.node != self.home
    }
}

/// A copy that the master has begun.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Moving {
    /// The member that joins.
    pub joins: Member,
    /// The member whose place it takes, by its node.
    pub leaves: Option<usize>,
    /// Of the file, when it was begun.
    pub epoch: u8,
    /// Of the set, when it was begun.
    pub generation: u8,
    /// The writes that it must include.
    pub at: Writes,
    /// Whether it does.
    pub is_whole: bool,
}

/// The master.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Master {
    /// Of the file.
    pub epoch: u8,
    /// A client has the write lease.
    pub is_held: bool,
    /// The recorded set.
    pub set: Vec<Member>,
    /// Raised at each change of the set.
    pub generation: u8,
    /// The committed writes.
    pub committed: Writes,
    /// A copy under way.
    pub moving: Option<Moving>,
}

/// A write under way, for good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sent {
    /// Of the lease.
    pub epoch: u8,
    /// The content that a member must have before it may apply it.
    pub before: Writes,
    /// Its content afterwards.
    pub after: Writes,
}

/// A pull under way: it may come at any later time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pull {
    /// The node that pulls.
    pub target: usize,
    /// Of the file.
    pub epoch: u8,
    /// The writes that the source must have.
    pub at: Writes,
}

/// A deletion under way, for good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Deletion {
    /// Where.
    pub node: usize,
    /// Which replica.
    pub life: u8,
    /// The epoch that the node promises by it.
    pub epoch: u8,
}

/// All processes, the network, the true history, and the used part of the bounds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct State {
    /// By place.
    pub nodes: [Node; NODES],
    /// The master.
    pub master: Master,
    /// The holder's own writes, on top of those that it found.
    pub written: Writes,
    /// Writes under way.
    pub sent: Vec<Sent>,
    /// Pulls under way.
    pub pulls: Vec<Pull>,
    /// Deletions under way.
    pub deletions: Vec<Deletion>,
    /// The writes that fsync acknowledged.
    pub firm: Writes,
    /// How many writes there were.
    pub writes: u8,
    /// How often a node was switched off.
    pub switches: u8,
    /// Copies that were begun.
    pub copies: u8,
    /// Nodes that died.
    pub deaths: u8,
    /// A guest came home.
    pub came_home: bool,
}

impl State {
    /// A client has the lease of a metablock that was granted, on its homes, and never written.
    #[must_use]
    pub fn granted() -> Self {
        let node = Node { is_on: true, is_dead: false, replica: None, promised: 0, lives: 0 };
        let set = (0..COPIES).map(|place| Member { node: place, home: place }).collect();
        Self {
            nodes: [node; NODES],
            master: Master { epoch: 1, is_held: true, set, generation: 0, committed: Writes::NONE, moving: None },
            written: Writes::NONE,
            sent: Vec::new(),
            pulls: Vec::new(),
            deletions: Vec::new(),
            firm: Writes::NONE,
            writes: 0,
            switches: 0,
            copies: 0,
            deaths: 0,
            came_home: false,
        }
    }

    /// The same, but one home had too much to write when its copy was granted: the copy is a guest, and its home is on.
    #[must_use]
    pub fn granted_away() -> Self {
        let mut state = Self::granted();
        state.master.set[0].node = COPIES;
        state
    }

    /// Whether a node has a copy of the set, or is where one belongs.
    #[must_use]
    pub fn is_taken(&self, place: usize) -> bool {
        self.master.set.iter().any(|member| member.node == place || member.home == place)
    }

    /// Whether a node has a copy of the set.
    #[must_use]
    pub fn is_member(&self, place: usize) -> bool {
        self.master.set.iter().any(|member| member.node == place)
    }

    /// Members that answer.
    pub fn awake(&self) -> impl Iterator<Item = &Member> {
        self.master.set.iter().filter(|member| self.nodes[member.node].answers())
    }

    /// The member that answers and has most.
    #[must_use]
    pub fn best(&self) -> Option<usize> {
        self.awake().map(|member| member.node).max_by_key(|place| self.nodes[*place].writes().0.count_ones())
    }

    /// Places for a copy of this home: there, or with active nodes that have nothing to do with this metablock.
    #[must_use]
    pub fn lodgings(&self, home: usize) -> Vec<Member> {
        if self.nodes[home].answers() {
            return vec![Member { node: home, home }];
        }
        let free = (0..NODES).filter(|place| self.nodes[*place].answers() && !self.is_taken(*place));
        free.map(|node| Member { node, home }).collect()
    }
}
