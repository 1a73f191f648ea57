//! What the master has recorded, what nodes have, and what clients believe.

use crate::names::Writes;
use crate::raid::state::{Places, Version};

/// Nodes. New metablocks lie on the first two of them.
pub const NODES: usize = 3;
/// Metablocks of the file, by index.
pub const INDEXES: usize = 2;
/// Ids that there are: the first two are the file's from the beginning, heirs get the others.
pub const BLOCKS: usize = 5;
/// Snapshots, by number.
pub const SNAPSHOTS: usize = 3;
/// The promise of a member that serves decoding alone.
pub const RETIRED: u8 = u8::MAX;

/// A replica on a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Replica {
    /// Its content, by name.
    pub version: Version,
    /// Epoch below which it refuses, or [`RETIRED`].
    pub promised: u8,
}

/// Who has a metablock. There is one record of it, whoever that is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Owner {
    /// The live file.
    Live,
    /// Snapshots alone. The newest of them, when this was recorded.
    Kept(u8),
    /// A holder fills it. It is to take the place of the one that the file has at this index.
    Heir(usize),
    /// The RAID set alone, for the sake of its other slot.
    Ballast,
}

/// The record of a metablock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Record {
    /// Who has it.
    pub owner: Owner,
    /// Committed.
    pub version: Version,
    /// Nodes that are to have it.
    pub members: Places,
    /// It is a slot of the RAID set.
    pub is_sealed: bool,
}

/// A snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Snapshot {
    /// It can be read.
    Living(Taken),
    /// It was removed, and what it alone had is being freed.
    Removed,
    /// That is done. Nobody looks for what it had any more.
    Gone,
}

/// What a snapshot shows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Taken {
    /// The next free id at that entry of the log: what the file had then has lower ones.
    pub next: usize,
    /// The file's metablocks.
    pub map: [Option<Shown>; INDEXES],
    /// What fsync had acknowledged, by index. For the judgement alone.
    pub firm: [Writes; INDEXES],
}

/// A metablock in a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shown {
    /// Its id.
    pub block: usize,
    /// Exactly this is read.
    pub version: Version,
    /// Where it lay. The design has no such list: [`super::Mutant::ListsItsOwnMembers`] reads by it.
    pub members: Places,
}

/// A metablock as a client knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Known {
    /// Its id.
    pub block: usize,
    /// Its members.
    pub members: Places,
    /// Writes go to an heir.
    pub is_frozen: bool,
    /// The content with the client's own writes.
    pub written: Version,
}

/// A client that holds the write lease, or believes so.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Client {
    /// Of its lease.
    pub epoch: u8,
    /// By index.
    pub map: [Option<Known>; INDEXES],
}

/// A write on its way, for good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sent {
    /// The metablock.
    pub block: usize,
    /// Of the lease.
    pub epoch: u8,
    /// What a member has to have.
    pub before: Version,
    /// What it has then.
    pub after: Version,
}

/// A copy that the master has made in place of a member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Move {
    /// The metablock.
    pub block: usize,
    /// The member that it replaces.
    pub from: usize,
    /// Where to.
    pub to: usize,
    /// The recorded version when it began.
    pub version: Version,
    /// The file's epoch then.
    pub epoch: u8,
    /// The copy is there.
    pub is_copied: bool,
}

/// The used part of the bounds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Used {
    /// Leases.
    pub leases: u8,
    /// Writes.
    pub writes: u8,
    /// Holders that were given up.
    pub losses: u8,
    /// Cuts and removals of the file.
    pub ends: u8,
    /// RAID sets.
    pub seals: u8,
    /// Copies by the master.
    pub moves: u8,
}

/// What the last step showed, for the judgement alone.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Seen {
    /// The content of a metablock changed that a snapshot has.
    pub frozen_changed: bool,
    /// A client that had lost its lease wrote after a snapshot.
    pub late_write: bool,
    /// A holder wrote in place what a removed snapshot had.
    pub thawed_by_removal: bool,
    /// What a removed snapshot had stays for an older one.
    pub kept_for_older: bool,
    /// A copy was not recorded, as the metablock or its file is another by now.
    pub move_refused: bool,
    /// What only snapshots have got another member.
    pub kept_moved: bool,
    /// What only snapshots have became a slot.
    pub kept_sealed: bool,
    /// A slot died with the last snapshot.
    pub slot_died: bool,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// Logged: the file has a name.
    pub exists: bool,
    /// Logged: the live file's metablocks.
    pub map: [Option<usize>; INDEXES],
    /// Logged: metablocks by id.
    pub records: [Option<Record>; BLOCKS],
    /// Logged: the next free id.
    pub next: usize,
    /// Logged: fencing epoch of the file.
    pub epoch: u8,
    /// Logged: who writes, by place.
    pub holder: Option<usize>,
    /// Logged with a lease: of what the file has, lower ids are frozen until the lease ends, and its recovery if it is lost.
    pub frozen_below: usize,
    /// Logged: the holder was given up, and its writes have not been found yet.
    pub is_recovering: bool,
    /// Logged: snapshots in the order in which they were taken.
    pub snapshots: Vec<Snapshot>,
    /// The master's memory.
    pub moving: Option<Move>,
    /// Two clients. The one whose lease was taken away may go on beside its successor.
    pub clients: [Option<Client>; 2],
    /// Replicas by node and id.
    pub nodes: [[Option<Replica>; BLOCKS]; NODES],
    /// Writes on their way.
    pub sent: Vec<Sent>,
    /// What fsync acknowledged, by index. For the judgement alone.
    pub firm: [Writes; INDEXES],
    /// The used part of the bounds.
    pub used: Used,
    /// What the last step showed.
    pub seen: Seen,
}

impl State {
    /// A file of two metablocks, with a write in each.
    #[must_use]
    pub fn written() -> Self {
        let version = Version { writes: Writes::NONE.with(0), stamp: 0 };
        let members = Places::of(&[0, 1]);
        let record = Record { owner: Owner::Live, version, members, is_sealed: false };
        let has_both = |node: &usize| members.has(*node);
        let replica = |node: usize, block: usize| {
            (block < INDEXES && has_both(&node)).then_some(Replica { version, promised: 1 })
        };
        Self {
            exists: true,
            map: [Some(0), Some(1)],
            records: std::array::from_fn(|block| (block < INDEXES).then_some(record)),
            next: INDEXES,
            epoch: 1,
            holder: None,
            frozen_below: 0,
            is_recovering: false,
            snapshots: Vec::new(),
            moving: None,
            clients: [None, None],
            nodes: std::array::from_fn(|node| std::array::from_fn(|block| replica(node, block))),
            sent: Vec::new(),
            firm: [version.writes; INDEXES],
            used: Used { writes: 1, ..Used::default() },
            seen: Seen::default(),
        }
    }

    /// Snapshots that can be read, the newest first, with their numbers.
    pub fn living(&self) -> impl Iterator<Item = (u8, &Taken)> {
        self.snapshots.iter().enumerate().rev().filter_map(|(number, snapshot)| match snapshot {
            Snapshot::Living(taken) => Some((number as u8, taken)),
            Snapshot::Removed | Snapshot::Gone => None,
        })
    }

    /// The newest snapshot that has a metablock, if the file has it now or loses it just now. Ids rise: a snapshot has what is older
    /// than itself.
    #[must_use]
    pub fn newest_with(&self, block: usize) -> Option<u8> {
        self.living().find(|(_, taken)| block < taken.next).map(|(number, _)| number)
    }

    /// Whether nobody writes the file, or may have written it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.holder.is_none() && !self.is_recovering
    }

    /// The version of a replica that answers readers.
    #[must_use]
    pub fn served(&self, node: usize, block: usize) -> Option<Version> {
        self.nodes[node][block].filter(|replica| replica.promised < RETIRED).map(|replica| replica.version)
    }

    /// Whether all of these nodes have exactly this version.
    #[must_use]
    pub fn all_have(&self, members: Places, block: usize, version: Version) -> bool {
        nodes_of(members).all(|node| self.served(node, block) == Some(version))
    }
}

/// The nodes of a set, in order.
pub fn nodes_of(members: Places) -> impl Iterator<Item = usize> {
    (0..NODES).filter(move |node| members.has(*node))
}
