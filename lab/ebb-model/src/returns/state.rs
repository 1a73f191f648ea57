//! The state of the master, the holder and the nodes.

use std::collections::BTreeSet;

/// Nodes.
pub const NODES: usize = 3;
/// Copies that there are to be.
pub const WANTED: usize = 2;

/// Epoch and number of the write.
pub type Version = (u8, u8);

/// Whether the master hears of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Presence {
    /// It answers.
    #[default]
    Up,
    /// It is silent, and may be back soon.
    Silent,
    /// It has been silent for so long that nothing waits for it.
    Gone,
}

/// The replica on a node's disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Replica {
    /// Its version.
    pub version: Version,
    /// Writes that it includes.
    pub content: u8,
    /// Which replica of this node it is: another one after each copy.
    pub life: u8,
}

/// A node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Node {
    /// Whether it answers.
    pub presence: Presence,
    /// Its replica.
    pub replica: Option<Replica>,
    /// Lower epochs are refused.
    pub promised: u8,
}

/// A member that a recovery went on without.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LeftOut {
    /// Which.
    pub node: usize,
    /// The version from which the others were stamped.
    pub base: Version,
    /// The recovery's.
    pub epoch: u8,
}

/// The writer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Holder {
    /// Of its last write.
    pub last: Version,
    /// The version that it follows.
    pub before: Version,
    /// Writes up to its last one.
    pub content: u8,
}

/// The set that a recovery has made equal and not recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Settled {
    /// The version that won.
    pub base: Version,
    /// The writes that it includes.
    pub content: u8,
    /// Nodes that were stamped.
    pub stamped: u8,
}

/// A node that has a copy, or was stamped, and is to be recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Joining {
    /// Which.
    pub node: usize,
    /// The file's when it began.
    pub epoch: u8,
    /// The set then.
    pub set: u8,
    /// Without a copy.
    pub rejoins: bool,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The nodes.
    pub nodes: [Node; NODES],
    /// Recorded: members, as bits.
    pub set: u8,
    /// Recorded: the committed version.
    pub committed: Version,
    /// The writes that it includes.
    pub content: u8,
    /// Recorded: the file's epoch.
    pub epoch: u8,
    /// Recorded: its size is unknown.
    pub recovering: bool,
    /// Its holder is gone, and no recovery has begun.
    pub orphaned: bool,
    /// Recorded: the members that were left out.
    pub left_out: Vec<LeftOut>,
    /// In the master's memory: members that have promised, as bits.
    pub answered: u8,
    /// In the master's memory.
    pub settled: Option<Settled>,
    /// In the master's memory.
    pub joining: Option<Joining>,
    /// In the master's memory: nodes that were left out and whose content differs from the set's, as bits.
    pub unfit: u8,
    /// The writer.
    pub holder: Option<Holder>,
    /// On their way: which life of which node is to go.
    pub deletions: BTreeSet<(usize, u8)>,
    /// Writes that were begun.
    pub writes: u8,
    /// Writes of which fsync said that they are safe.
    pub acknowledged: u8,
    /// Times that nodes were switched off.
    pub downs: u8,
    /// Copies that were made.
    pub copies: u8,
    /// Disks that were lost.
    pub losses: u8,
    /// A member came back without a copy.
    pub has_rejoined: bool,
    /// Something was deleted.
    pub was_deleted: bool,
    /// Something broke: the master took a good copy away.
    pub was_lowered: bool,
    /// A recovery went on without a member that had not been silent for long.
    pub was_hasty: bool,
}

impl State {
    /// Two nodes have the file's first version; it has no lease holder.
    pub fn granted() -> Self {
        let mut nodes = [Node::default(); NODES];
        for node in &mut nodes[..WANTED] {
            *node = Node { replica: Some(Replica { version: (1, 0), content: 0, life: 1 }), promised: 1, ..*node };
        }
        Self {
            nodes,
            set: (1 << WANTED) - 1,
            committed: (1, 0),
            content: 0,
            epoch: 1,
            recovering: false,
            orphaned: false,
            left_out: Vec::new(),
            answered: 0,
            settled: None,
            joining: None,
            unfit: 0,
            holder: None,
            deletions: BTreeSet::new(),
            writes: 0,
            acknowledged: 0,
            downs: 0,
            copies: 0,
            losses: 0,
            has_rejoined: false,
            was_deleted: false,
            was_lowered: false,
            was_hasty: false,
        }
    }

    /// Whether a node is a member.
    pub fn is_member(&self, node: usize) -> bool {
        self.set & (1 << node) != 0
    }

    /// The members.
    pub fn members(&self) -> impl Iterator<Item = usize> + '_ {
        (0..NODES).filter(|node| self.is_member(*node))
    }

    /// Whether a node answers.
    pub fn is_up(&self, node: usize) -> bool {
        self.nodes[node].presence == Presence::Up
    }

    /// Whether the file has no writer and no recovery.
    pub fn is_idle(&self) -> bool {
        self.holder.is_none() && !self.recovering && !self.orphaned
    }

    /// Whether a node has the committed version, or one above it.
    pub fn is_good(&self, node: usize) -> bool {
        self.nodes[node].replica.is_some_and(|replica| replica.version >= self.committed)
    }

    /// Members that answer and have the committed content.
    pub fn good_members(&self) -> usize {
        self.members().filter(|node| self.is_up(*node) && self.is_good(*node)).count()
    }

    /// Nodes whose disk has all of this. They need not answer.
    pub fn nodes_with(&self, content: u8) -> usize {
        let has = |node: &&Node| node.replica.is_some_and(|replica| content & !replica.content == 0);
        self.nodes.iter().filter(has).count()
    }

    /// Whether every member has the committed content. A lost disk is not an act of any process.
    pub fn members_are_equal(&self) -> bool {
        self.members()
            .filter_map(|node| self.nodes[node].replica)
            .all(|replica| replica.version >= self.committed && self.content & !replica.content == 0)
            && self.members().filter(|node| self.nodes[*node].replica.is_none()).count() <= usize::from(self.losses)
    }

    /// Whether a recovery waits for a member.
    pub fn waits(&self) -> bool {
        self.members().any(|node| self.nodes[node].presence == Presence::Silent)
    }

    /// Whether a member that was left out may have exactly the set's content: there was no commit since.
    pub fn may_rejoin(&self, one: &LeftOut) -> bool {
        self.committed == (one.epoch, 0)
    }
}
