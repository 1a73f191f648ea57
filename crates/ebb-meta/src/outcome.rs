//! Result of a command: a reply for the caller, and effects for the leader's services.

use ebb_types::{DatasetId, Epoch, InodeId, MetablockId, RaidSetId, Result, SessionId};
use ebb_wire::pb;

/// Outcome of one command.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The answer to the caller. A refusal changed nothing.
    pub reply: Result<Reply>,
    /// What the leader's services have to know, in order. A repeated request has no effects.
    pub effects: Vec<Effect>,
}

impl Applied {
    pub(crate) fn refused(error: ebb_types::Error) -> Self {
        Self { reply: Err(error), effects: Vec::new() }
    }
}

/// Successful answer to a command. Nearly all are of the largest variant, so boxing it would cost more than it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// Done, without further data.
    None,
    /// Answer to a client's mutation.
    Meta(pb::MetaReply),
    /// Id of the session that was opened.
    Session(SessionId),
    /// Ids of a node and its volumes.
    Node(pb::RegisterNodeReply),
    /// A write lease. It has the first metablocks of the file's map, at most [`crate::METABLOCKS_PER_REPLY`]. `GetMap`
    /// returns the rest.
    Lease {
        /// Attributes of the file, with the epoch of the lease.
        attr: pb::Attr,
        /// In order of index.
        metablocks: Vec<pb::Metablock>,
    },
    /// Epoch of a recovery that has started.
    Epoch(Epoch),
    /// Ids that were taken, from this one on.
    Ids {
        /// The first.
        first: MetablockId,
        /// How many.
        count: u32,
    },
}

/// A change that the leader's services act on. The state has it already, so an effect that is lost with the leader does
/// no harm.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// A set has changed. `old` is empty for a grant. `new` is empty for a freed metablock.
    SetChanged {
        /// File that it belongs (or belonged) to. 0: a RAID set's.
        inode: InodeId,
        /// The file's, or the RAID set's dataset.
        dataset: DatasetId,
        /// The metablock.
        metablock: MetablockId,
        /// Members before.
        old: Vec<pb::Member>,
        /// Members now.
        new: Vec<pb::Member>,
    },
    /// The extra copies of a metablock have changed.
    ExtrasChanged {
        /// File that it belongs (or belonged) to.
        inode: InodeId,
        /// The metablock.
        metablock: MetablockId,
        /// Extra copies before.
        old: Vec<pb::Member>,
        /// Extra copies now.
        new: Vec<pb::Member>,
    },
    /// The inode has no name left. `Reap` frees it once no session has it open.
    Orphaned(InodeId),
    /// The inode is gone.
    Freed(InodeId),
    /// Attributes or entries of this inode changed. Sessions other than `by` may have them cached.
    Changed {
        /// What changed.
        inode: InodeId,
        /// The session that changed it, and knows. 0 stands for the master.
        by: SessionId,
    },
    /// A queued lock request is over: granted, or refused as it would wait for ever.
    LockGranted {
        /// The session of the request.
        session: SessionId,
        /// The locked file.
        inode: InodeId,
        /// The owner within the session.
        owner: u64,
        /// Whether it is a whole-file lock, not a byte range.
        flock: bool,
        /// Whether it was refused, as it would have closed a cycle of waiters.
        deadlock: bool,
    },
    /// A write lease is over. It was given back or fenced off, or its session or file is gone.
    LeaseEnded {
        /// The file.
        inode: InodeId,
        /// Its last holder.
        session: SessionId,
    },
    /// The members that are left out of a set have changed. The record has the present ones. This effect follows
    /// [`Effect::SetChanged`].
    LeftOutChanged {
        /// The metablock.
        metablock: MetablockId,
        /// Left out before.
        old: Vec<pb::LeftOut>,
    },
    /// Replicas that no record of a metablock names: those of rows, ballast and heirs, and copies that leave a slot. What is in `old` alone
    /// is to be deleted, if the metablock is still there; otherwise the list of deleted replicas has it.
    BesideChanged {
        /// The metablock.
        metablock: MetablockId,
        /// Before.
        old: Vec<pb::Member>,
        /// Now.
        new: Vec<pb::Member>,
    },
    /// The set of a metablock that snapshots alone have. Otherwise as [`Effect::BesideChanged`]. `old` is empty when its file has just
    /// lost it, and `new` when no snapshot has it any more.
    KeptChanged {
        /// The dataset of the snapshots.
        dataset: DatasetId,
        /// The metablock.
        metablock: MetablockId,
        /// Members before.
        old: Vec<pb::Member>,
        /// Members now.
        new: Vec<pb::Member>,
    },
    /// A RAID set was recorded, has changed, or has ended.
    RaidSetChanged(RaidSetId),
    /// The file's holder is gone and did not give the lease back.
    NeedsRecovery(InodeId),
}

/// Sizes of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Inodes, orphans among them.
    pub inodes: u64,
    /// Metablocks of all files.
    pub metablocks: u64,
    /// Open sessions.
    pub sessions: u64,
    /// Write leases with a holder.
    pub held: u64,
    /// Registered nodes.
    pub nodes: u64,
    /// Inodes without a name that have not been freed.
    pub orphans: u64,
    /// Replicas of freed metablocks whose deletion has not been confirmed.
    pub deleted: u64,
}
