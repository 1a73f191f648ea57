//! What the master, the volume and the clients know.

use std::collections::BTreeSet;

/// A replica on the volume beside the set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Replica {
    /// What it says of itself.
    pub version: u8,
    /// The writes in it, by the last one's number; none: parts of two.
    pub content: Option<u8>,
    /// Tells it from what the volume had of the metablock before.
    pub life: u8,
}

/// A copy under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Copy {
    /// The file's, when it was begun.
    pub epoch: u8,
    /// The version that is copied.
    pub at: u8,
    /// What the set had when the first half was read; none: nothing has been read yet.
    pub half: Option<u8>,
    /// It is on the volume.
    pub is_placed: bool,
}

/// What a reader goes by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Map {
    /// Nothing below is accepted.
    pub version: u8,
    /// Whether there is an extra copy.
    pub extra: bool,
}

/// All of it. A version is the number of the last write in it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct State {
    /// Writes that the set has; each has returned.
    pub written: u8,
    /// Logged: what is committed.
    pub committed: u8,
    /// Logged: the file's epoch, one for each write lease.
    pub epoch: u8,
    /// Logged: somebody has the write lease.
    pub is_held: bool,
    /// Logged: there is an extra copy.
    pub recorded: bool,
    /// In the master's memory: a copy under way.
    pub copy: Option<Copy>,
    /// In the master's memory: the volume has something that is not recorded.
    pub stray: bool,
    /// On the volume.
    pub volume: Option<Replica>,
    /// Deletions on their way, by the life that they are meant for.
    pub deletions: BTreeSet<u8>,
    /// Hints on their way to the reader: whether there is an extra copy.
    pub hints: BTreeSet<bool>,
    /// The reader's map, while it has a read lease.
    pub reader: Option<Map>,
    /// The map of one who reads without a lease.
    pub split: Option<Map>,
    /// Copies begun so far; the last one's life.
    pub copies: u8,
    /// Starts of the master's process after the first.
    pub restarts: u8,
    /// A read missed a write that had returned, or showed parts of two.
    pub was_stale: bool,
    /// An extra copy was read.
    pub was_served: bool,
}
