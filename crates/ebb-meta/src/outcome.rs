//! What applying a command gives: a reply for the caller and effects for the leader's services.

use ebb_types::{DatasetId, Epoch, InodeId, MetablockId, Result, SessionId};
use ebb_wire::pb;

/// Outcome of one command.
#[derive(Clone, Debug)]
pub struct Applied {
    /// For whoever proposed the command. A refusal changed nothing.
    pub reply: Result<Reply>,
    /// What the leader's services have to know, in the order in which it came about. None for a repeated request.
    pub effects: Vec<Effect>,
}

impl Applied {
    pub(crate) fn refused(error: ebb_types::Error) -> Self {
        Self { reply: Err(error), effects: Vec::new() }
    }
}

/// Good answer to a command. Nearly all are the largest variant: boxing it would cost more than it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// Done, and nothing to tell.
    None,
    /// To a client's mutation.
    Meta(pb::MetaReply),
    /// Id of the session that was opened.
    Session(SessionId),
    /// Ids of a node and its volumes.
    Node(pb::RegisterNodeReply),
    /// A write lease: the file as it is under the lease's epoch, and the first metablocks of its map (at most
    /// [`crate::METABLOCKS_PER_REPLY`]; `GetMap` tells the rest).
    Lease {
        /// With the epoch of the lease.
        attr: pb::Attr,
        /// In order of index.
        metablocks: Vec<pb::Metablock>,
    },
    /// Epoch that a recovery has begun under.
    Epoch(Epoch),
}

/// Something that the leader's services act on: it is in the state already, and lost with the leader at no harm.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// The set of a metablock. Of a grant `old` is empty, of a freed metablock `new` is.
    SetChanged {
        /// File that it belongs (or belonged) to.
        inode: InodeId,
        /// The file's dataset.
        dataset: DatasetId,
        /// The metablock.
        metablock: MetablockId,
        /// Members before.
        old: Vec<pb::Member>,
        /// Members now.
        new: Vec<pb::Member>,
    },
    /// The extra copies of a metablock.
    ExtrasChanged {
        /// File that it belongs (or belonged) to.
        inode: InodeId,
        /// The metablock.
        metablock: MetablockId,
        /// Those before.
        old: Vec<pb::Member>,
        /// Those now.
        new: Vec<pb::Member>,
    },
    /// The inode has lost its last name; it goes with `Reap` once no session has it open.
    Orphaned(InodeId),
    /// The inode is gone.
    Freed(InodeId),
    /// Attributes or entries of this inode changed; sessions other than `by` (0: the master) may have them cached.
    Changed {
        /// What changed.
        inode: InodeId,
        /// Who did it, and knows.
        by: SessionId,
    },
    /// A queued lock request is over: granted, or refused because waiting on would never end.
    LockGranted {
        /// Whose request it was.
        session: SessionId,
        /// The locked file.
        inode: InodeId,
        /// The owner within the session.
        owner: u64,
        /// A whole-file lock, not a byte range.
        flock: bool,
        /// Refused: it would have closed a circle of waiters.
        deadlock: bool,
    },
    /// A write lease is over: given back, fenced off, or its session or file is gone.
    LeaseEnded {
        /// The file.
        inode: InodeId,
        /// Its last holder.
        session: SessionId,
    },
    /// Who is left out of a set. `old` were so before; who is now, the record tells. After [`Effect::SetChanged`].
    LeftOutChanged {
        /// The metablock.
        metablock: MetablockId,
        /// Before.
        old: Vec<pb::LeftOut>,
    },
    /// The file's holder is gone without giving the lease back.
    NeedsRecovery(InodeId),
}

/// Sizes of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Inodes, with orphans.
    pub inodes: u64,
    /// Metablocks in the maps of files.
    pub metablocks: u64,
    /// Open sessions.
    pub sessions: u64,
    /// Write leases that are held.
    pub held: u64,
    /// Registered nodes.
    pub nodes: u64,
    /// Inodes without a name that have not been reaped.
    pub orphans: u64,
    /// Replicas of freed metablocks that are not yet known to be gone from their volumes.
    pub deleted: u64,
}
