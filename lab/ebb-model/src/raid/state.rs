//! One state of everything.

use crate::names::Writes;

/// Nodes, by place: 0 to 2 have the first two files' copies and the check metablock, 3 is spare.
pub const NODES: usize = 4;
/// Files, of one metablock each. The third one takes part in repacking alone.
pub const FILES: usize = 3;
/// Metablocks by number: those of the files, the heir of the first one, and check metablocks, one for each attempt.
pub const METABLOCKS: usize = 7;
/// The metablock that takes the place of the first file's.
pub const HEIR: usize = 3;
/// The first check metablock.
pub const FIRST_CHECK: usize = 4;

/// The promise of a member that never changes again: above every real epoch.
pub const FROZEN: u8 = 254;
/// The promise of a member that serves decoding alone.
pub const RETIRED: u8 = 255;

/// A set of nodes, by places.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Places(pub u8);

impl Places {
    /// Of these.
    #[must_use]
    pub fn of(places: &[usize]) -> Self {
        Self(places.iter().fold(0, |mask, place| mask | (1 << place)))
    }

    /// Whether a node is in.
    #[must_use]
    pub const fn has(self, place: usize) -> bool {
        self.0 & (1 << place) != 0
    }

    /// With this one.
    #[must_use]
    pub const fn with(self, place: usize) -> Self {
        Self(self.0 | (1 << place))
    }

    /// Without this one.
    #[must_use]
    pub const fn without(self, place: usize) -> Self {
        Self(self.0 & !(1 << place))
    }

    /// In order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..NODES).filter(move |place| self.has(*place))
    }
}

/// A content with its name: the writes in it, and how many recoveries have stamped it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Version {
    /// The content.
    pub writes: Writes,
    /// Of the last recovery.
    pub stamp: u8,
}

/// The bytes of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bytes {
    /// Of a file.
    Data(Version),
    /// The code of these two slots' contents.
    Check([Version; 2]),
}

/// A replica on a node's disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Replica {
    /// Its bytes.
    pub bytes: Bytes,
    /// Epoch below which it refuses, or [`FROZEN`], or [`RETIRED`].
    pub promised: u8,
    /// Another one with each replica, so that a deletion names one replica and no later one.
    pub life: u8,
    /// A crash does not take it.
    pub is_synced: bool,
    /// It has lost its content: an old disk, or rot. Its sums show that to any reader.
    pub is_spoiled: bool,
}

/// A node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Node {
    /// It answers.
    pub is_up: bool,
    /// Its disk is gone for good, with the node.
    pub is_lost: bool,
    /// By metablock.
    pub disk: [Option<Replica>; METABLOCKS],
    /// Lives that its disk has drawn.
    pub lives: u8,
}

impl Node {
    /// The version of a data replica that is sound.
    #[must_use]
    pub fn version(&self, metablock: usize) -> Option<Version> {
        match self.disk[metablock].filter(|replica| !replica.is_spoiled)?.bytes {
            Bytes::Data(version) => Some(version),
            Bytes::Check(_) => None,
        }
    }

    /// Stores a new replica, which is another life.
    pub fn store(&mut self, metablock: usize, bytes: Bytes, promised: u8, is_synced: bool) {
        self.lives += 1;
        self.disk[metablock] = Some(Replica { bytes, promised, life: self.lives, is_synced, is_spoiled: false });
    }

    /// Promises at least this for a replica that is there.
    pub fn promise(&mut self, metablock: usize, epoch: u8) {
        if let Some(replica) = &mut self.disk[metablock] {
            replica.promised = replica.promised.max(epoch);
        }
    }
}

/// A client with the write lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Holder {
    /// The map that the lease brought: the metablock.
    pub metablock: usize,
    /// Its members.
    pub members: Places,
    /// Whether it is frozen.
    pub is_frozen: bool,
    /// The content with its own writes.
    pub written: Version,
}

/// A file's record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct File {
    /// It was not removed.
    pub exists: bool,
    /// Its metablock.
    pub metablock: usize,
    /// Those that are to have it.
    pub members: Places,
    /// Those that have a copy still, which the RAID set has made needless.
    pub leaving: Places,
    /// Committed.
    pub version: Version,
    /// Never changes again.
    pub is_frozen: bool,
    /// Fencing number.
    pub epoch: u8,
    /// Who writes.
    pub holder: Option<Holder>,
    /// The members of a metablock that is to take the frozen one's place.
    pub heir: Option<Places>,
}

/// A place of a data metablock in a RAID set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot {
    /// The metablock.
    pub metablock: usize,
    /// The version that the check metablock was made of.
    pub version: Version,
    /// Ballast: no file has it any more, and these members have it.
    pub dead: Option<Places>,
}

/// A RAID set's record: two slots and one row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RaidSet {
    /// The slots.
    pub slots: [Slot; 2],
    /// The check metablock.
    pub check: usize,
    /// Its node.
    pub node: usize,
    /// Raised with each change.
    pub generation: u8,
}

/// An encoding, as the block server has it that makes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Attempt {
    /// The master's term when it was begun.
    pub term: u8,
    /// The metablocks.
    pub slots: [usize; 2],
    /// What was read of each.
    pub read: [Option<Version>; 2],
    /// The check metablock to be written.
    pub check: usize,
    /// Where.
    pub node: usize,
    /// The check is on its way, or written.
    pub is_sent: bool,
    /// The check was synced, frozen and told its content.
    pub is_proved: bool,
    /// The RAID set that it takes the place of, by generation.
    pub dissolves: Option<u8>,
}

/// A write of a check metablock, under way for good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SentCheck {
    /// Where to.
    pub node: usize,
    /// The metablock.
    pub check: usize,
    /// What it is the code of.
    pub of: [Version; 2],
}

/// A write of a file, under way for good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sent {
    /// The metablock.
    pub metablock: usize,
    /// Of the lease.
    pub epoch: u8,
    /// What a member must have before it may apply it.
    pub before: Version,
    /// Its content afterwards.
    pub after: Version,
}

/// A deletion under way, for good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Deletion {
    /// Where.
    pub node: usize,
    /// What.
    pub metablock: usize,
    /// Which replica of it.
    pub life: u8,
}

/// A member that is made anew by decoding, or moved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rebuild {
    /// What.
    pub metablock: usize,
    /// Where to.
    pub to: usize,
    /// The RAID set's, when it was begun.
    pub generation: u8,
}

/// The used part of the bounds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Used {
    /// Leases taken.
    pub leases: u8,
    /// Writes.
    pub writes: u8,
    /// Recoveries.
    pub recoveries: u8,
    /// Attempts to encode.
    pub attempts: u8,
    /// Disks lost.
    pub losses: u8,
    /// Replicas spoiled.
    pub spoils: u8,
    /// Crashes of nodes.
    pub crashes: u8,
    /// Changes of the lead.
    pub restarts: u8,
    /// Nodes cut off for a while.
    pub absences: u8,
    /// Removals.
    pub removals: u8,
    /// Heirs granted.
    pub thaws: u8,
}

/// What has happened, for the properties that ask whether it can.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Seen {
    /// A Seal was refused, because a writer had been quicker.
    pub overtaken: bool,
    /// A slot died while its RAID set was not thin yet.
    pub thawed_early: bool,
    /// A member was made again by decoding.
    pub rebuilt: bool,
    /// A RAID set took the place of another one.
    pub repacked: bool,
}

/// All processes, the network, the true history.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct State {
    /// By place.
    pub nodes: [Node; NODES],
    /// The log: files.
    pub files: [File; FILES],
    /// The log: the RAID set.
    pub raid: Option<RaidSet>,
    /// The master's term.
    pub term: u8,
    /// The leader's memory: nodes that have promised FROZEN and told the recorded version, by slot.
    pub frozen: [Places; 2],
    /// The leader's memory: a rebuild.
    pub rebuild: Option<Rebuild>,
    /// The encoder.
    pub attempt: Option<Attempt>,
    /// Check metablocks under way.
    pub checks: Vec<SentCheck>,
    /// Writes under way.
    pub sent: Vec<Sent>,
    /// Deletions under way.
    pub deletions: Vec<Deletion>,
    /// What fsync acknowledged, by file.
    pub firm: [Writes; FILES],
    /// The used part of the bounds.
    pub used: Used,
    /// There was a loss that has not been made good yet.
    pub is_hurt: bool,
    /// What has happened.
    pub seen: Seen,
}

/// The first copies of each file: the one that is to stay, and the other one.
const COPIES: [[usize; 2]; FILES] = [[0, 2], [1, 2], [0, 3]];

impl State {
    /// Three files with a write each, on two nodes each; nobody writes.
    #[must_use]
    pub fn written() -> Self {
        let disk = [None; METABLOCKS];
        let node = Node { is_up: true, is_lost: false, disk, lives: 0 };
        let mut nodes = [(); NODES].map(|()| node.clone());
        let version = Version { writes: Writes::NONE.with(0), stamp: 0 };
        for (file, places) in COPIES.iter().enumerate() {
            for place in places {
                nodes[*place].store(file, Bytes::Data(version), 1, true);
            }
        }
        let files = [0, 1, 2].map(|file: usize| File {
            exists: true,
            metablock: file,
            members: Places::of(&COPIES[file]),
            leaving: Places::default(),
            version,
            is_frozen: false,
            epoch: 1,
            holder: None,
            heir: None,
        });
        Self {
            nodes,
            files,
            raid: None,
            term: 1,
            frozen: [Places::default(); 2],
            rebuild: None,
            attempt: None,
            checks: Vec::new(),
            sent: Vec::new(),
            deletions: Vec::new(),
            firm: [version.writes; FILES],
            used: Used { writes: 1, ..Used::default() },
            is_hurt: false,
            seen: Seen::default(),
        }
    }

    /// The file that has a metablock.
    #[must_use]
    pub fn owner(&self, metablock: usize) -> Option<usize> {
        self.files.iter().position(|file| file.exists && file.metablock == metablock)
    }

    /// The slot of a metablock in the RAID set.
    #[must_use]
    pub fn slot(&self, metablock: usize) -> Option<usize> {
        self.raid.as_ref()?.slots.iter().position(|slot| slot.metablock == metablock)
    }

    /// The recorded members of a slot, alive or ballast, without those that leave.
    #[must_use]
    pub fn slot_members(&self, slot: &Slot) -> Places {
        slot.dead
            .unwrap_or_else(|| self.owner(slot.metablock).map_or(Places::default(), |file| self.files[file].members))
    }

    /// The recorded members of a slot with those that leave: all that a decoder may use.
    #[must_use]
    pub fn slot_sources(&self, slot: &Slot) -> Places {
        let leaving = match slot.dead {
            Some(_) => Places::default(),
            None => self.owner(slot.metablock).map_or(Places::default(), |file| self.files[file].leaving),
        };
        Places(self.slot_members(slot).0 | leaving.0)
    }

    /// The content of a slot by decoding: the other slot and the row, each at exactly its version. `reach` says which
    /// nodes can be asked.
    #[must_use]
    pub fn decoded(&self, wanted: usize, reach: impl Fn(&Node) -> bool) -> Option<Version> {
        let raid = self.raid.as_ref()?;
        let other = &raid.slots[1 - wanted];
        let has_other = self.slot_sources(other).iter().any(|place| {
            let node = &self.nodes[place];
            reach(node) && node.version(other.metablock) == Some(other.version)
        });
        let row = &self.nodes[raid.node];
        let Bytes::Check(of) = row.disk[raid.check].filter(|row_replica| reach(row) && !row_replica.is_spoiled)?.bytes
        else {
            return None;
        };
        (has_other && of[1 - wanted] == other.version).then_some(of[wanted])
    }

    /// Whether a copy is gone, with its node or by itself.
    #[must_use]
    pub fn is_gone(&self, place: usize, metablock: usize) -> bool {
        let node = &self.nodes[place];
        node.is_lost || node.disk[metablock].is_some_and(|replica| replica.is_spoiled)
    }

    /// Something was made good. The next loss may come if nothing else is short of a copy.
    pub fn heal(&mut self) {
        let lacks = |raid: &RaidSet| {
            let all_gone =
                |slot: &Slot| self.slot_sources(slot).iter().all(|place| self.is_gone(place, slot.metablock));
            self.is_gone(raid.node, raid.check) || raid.slots.iter().any(all_gone)
        };
        self.is_hurt = self.raid.as_ref().is_some_and(lacks);
        self.is_hurt |= self.is_short_of_copies();
    }

    /// The RAID set was found to be sound: what was found is believed, right or wrong.
    pub fn believe_sound(&mut self) {
        self.is_hurt = self.is_short_of_copies();
    }

    fn is_short_of_copies(&self) -> bool {
        let is_short = |file: &File| {
            let left = file.members.iter().filter(|place| !self.is_gone(*place, file.metablock));
            file.exists && !file.is_frozen && left.count() < 2
        };
        self.files.iter().any(is_short)
    }

    /// Whether a node may have a replica of a metablock, by the log and the leader's memory.
    #[must_use]
    pub fn is_named(&self, place: usize, metablock: usize) -> bool {
        let has = |file: &File| {
            file.exists && file.metablock == metablock && (file.members.has(place) || file.leaving.has(place))
        };
        let is_heir = metablock == HEIR && self.files[0].heir.is_some_and(|members| members.has(place));
        let is_checked = self.raid.as_ref().is_some_and(|raid| {
            let is_ballast = |slot: &Slot| slot.metablock == metablock && slot.dead.is_some_and(|dead| dead.has(place));
            (raid.check == metablock && raid.node == place) || raid.slots.iter().any(is_ballast)
        });
        let comes = self.rebuild.is_some_and(|rebuild| rebuild.metablock == metablock && rebuild.to == place);
        self.files.iter().any(has) || is_heir || is_checked || comes
    }
}
