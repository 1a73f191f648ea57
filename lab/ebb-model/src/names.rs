//! Names and numbers of the model, as small as they can be: millions of states hold them.

use std::fmt;

/// Nodes: three members and a spare.
pub const NODES: usize = 4;
/// Clients.
pub const CLIENTS: usize = 2;

/// Fencing number of the file. 0: no lease was ever granted.
pub type Epoch = u8;

/// A node with one volume, and so at most one replica of the metablock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u8);

impl Node {
    /// Every node.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..NODES).map(|index| Self(u8::try_from(index).expect("few nodes")))
    }

    /// Place in arrays by node.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// A client process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName(pub u8);

impl ClientName {
    /// Every client.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..CLIENTS).map(|index| Self(u8::try_from(index).expect("few clients")))
    }

    /// Place in arrays by client.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Debug for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// `(epoch, seq)` of the metablock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version {
    /// Of the file when the write was made.
    pub epoch: Epoch,
    /// Of the write within the epoch; 0: the stamp of a recovery.
    pub seq: u8,
}

impl Version {
    /// Granted, never written.
    pub const ZERO: Self = Self { epoch: 0, seq: 0 };

    /// The version that a recovery stamps.
    #[must_use]
    pub const fn stamp(epoch: Epoch) -> Self {
        Self { epoch, seq: 0 }
    }

    /// Version of the next write under `epoch`.
    #[must_use]
    pub const fn successor(self, epoch: Epoch) -> Self {
        if self.epoch == epoch { Self { epoch, seq: self.seq + 1 } } else { Self { epoch, seq: 1 } }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}

/// A set of nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nodes(pub u8);

impl Nodes {
    /// Whether the node is in.
    #[must_use]
    pub const fn has(self, node: Node) -> bool {
        self.0 & (1 << node.0) != 0
    }

    /// With this node too.
    #[must_use]
    pub const fn with(self, node: Node) -> Self {
        Self(self.0 | (1 << node.0))
    }

    /// Without this node.
    #[must_use]
    pub const fn without(self, node: Node) -> Self {
        Self(self.0 & !(1 << node.0))
    }

    /// How many.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes in it.
    pub fn iter(self) -> impl Iterator<Item = Node> {
        Node::all().filter(move |node| self.has(*node))
    }
}

impl FromIterator<Node> for Nodes {
    fn from_iter<I: IntoIterator<Item = Node>>(nodes: I) -> Self {
        nodes.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// A set of writes, by their number in the history: the content of a replica, the result of a read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Writes(pub u8);

impl Writes {
    /// No write: the metablock reads as zero.
    pub const NONE: Self = Self(0);

    /// With this write too.
    #[must_use]
    pub const fn with(self, write: u8) -> Self {
        Self(self.0 | (1 << write))
    }

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it includes all of `other`.
    #[must_use]
    pub const fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Debug for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries((0..8).filter(|bit| self.0 & (1 << bit) != 0)).finish()
    }
}
