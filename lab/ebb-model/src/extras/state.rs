//! The state of the master, the volume and the clients.

use std::collections::BTreeSet;

/// A replica on the volume beside the set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Replica {
    /// Its version by its own word.
    pub version: u8,
    /// The writes in it, by the last one's number; none: parts of two.
    pub content: Option<u8>,
    /// Distinguishes it from earlier replicas of the metablock on the volume.
    pub life: u8,
}

/// A copy under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Copy {
    /// The file's, when it was begun.
    pub epoch: u8,
    /// The version that is copied.
    pub at: u8,
    /// The set's version when the first half was read; none: nothing has been read yet.
    pub half: Option<u8>,
    /// It is on the volume.
    pub is_placed: bool,
}

/// The map that a reader uses.
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
    /// Logged: the committed version.
    pub committed: u8,
    /// Logged: the file's epoch, one for each write lease.
    pub epoch: u8,
    /// Logged: the writer has the write lease.
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
    /// The map of the client that reads without a lease.
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
