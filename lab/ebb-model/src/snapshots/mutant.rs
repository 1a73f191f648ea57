//! Seeded bugs. Each changes one rule, at the one line that asks [`Snapshots::is`](super::Snapshots::is) for it.

use super::Bounds;

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// A snapshot is taken while a client has the write lease: what is committed counts.
    TakesBesideAHolder,
    /// One is taken before the recovery of a lost holder is over.
    TakesBeforeTheRecovery,
    /// A write lease does not bring the map anew.
    WritesByAnOldMap,
    /// A member applies a write whatever it has, and whatever it has promised.
    TakesLateWrites,
    /// A recovery stamps what a snapshot has.
    StampsTheFrozen,
    /// An heir has the id of the metablock whose place it takes.
    HeirTakesTheOldId,
    /// What is frozen is free for its holder as soon as the snapshot is removed, whatever the holder has begun.
    ThawsUnderALease,
    /// What the file loses is freed.
    FreesWithTheFile,
    /// What the file loses stays for the snapshot that was taken last, whether it is there or not.
    KeepsForTheLastTaken,
    /// Only the snapshot that was taken last freezes.
    ForgetsOlderSnapshots,
    /// The end of a snapshot frees what it had without a look for an older one: the second drop of one count.
    DropsTwice,
    /// The end of a snapshot leaves what it had to one that was taken after the file lost it.
    LooksAtNewer,
    /// The end of a snapshot frees nothing.
    NeverDrops,
    /// Replicas that no file's map names are strays.
    KeptIsAStray,
    /// A slot dies with the file.
    SealForgetsSnapshots,
    /// A RAID set ends with the first of its slots.
    FreesBallast,
    /// A snapshot has its own list of members.
    ListsItsOwnMembers,
    /// A copy is recorded without a comparison of versions.
    MovesBlindly,
    /// A copy of what was frozen is recorded whoever writes it by now.
    MovesWhatIsThawed,
}

const NONE: Bounds = Bounds::NONE;

impl Mutant {
    /// Every mistake.
    pub const ALL: &'static [Self] = &[
        Self::TakesBesideAHolder,
        Self::TakesBeforeTheRecovery,
        Self::WritesByAnOldMap,
        Self::TakesLateWrites,
        Self::StampsTheFrozen,
        Self::HeirTakesTheOldId,
        Self::ThawsUnderALease,
        Self::FreesWithTheFile,
        Self::KeepsForTheLastTaken,
        Self::ForgetsOlderSnapshots,
        Self::DropsTwice,
        Self::LooksAtNewer,
        Self::NeverDrops,
        Self::KeptIsAStray,
        Self::SealForgetsSnapshots,
        Self::FreesBallast,
        Self::ListsItsOwnMembers,
        Self::MovesBlindly,
        Self::MovesWhatIsThawed,
    ];

    /// Small bounds within which it shows.
    #[must_use]
    pub const fn bounds(self) -> Bounds {
        match self {
            Self::TakesLateWrites => Bounds { leases: 1, writes: 3, snapshots: 1, ..NONE },
            Self::TakesBesideAHolder | Self::WritesByAnOldMap | Self::HeirTakesTheOldId | Self::ThawsUnderALease => {
                Bounds { leases: 1, writes: 2, snapshots: 1, ..NONE }
            }
            Self::TakesBeforeTheRecovery | Self::StampsTheFrozen => {
                Bounds { leases: 1, writes: 2, losses: 1, snapshots: 1, ..NONE }
            }
            Self::FreesWithTheFile | Self::KeptIsAStray | Self::NeverDrops => Bounds { ends: 1, snapshots: 1, ..NONE },
            Self::KeepsForTheLastTaken | Self::DropsTwice => Bounds { ends: 1, snapshots: 2, ..NONE },
            Self::LooksAtNewer => Bounds { leases: 1, ends: 1, snapshots: 2, ..NONE },
            Self::ForgetsOlderSnapshots => Bounds { leases: 1, writes: 2, snapshots: 2, ..NONE },
            Self::SealForgetsSnapshots => Bounds { ends: 1, snapshots: 1, seals: 1, ..NONE },
            Self::FreesBallast => Bounds { leases: 1, ends: 1, seals: 1, ..NONE },
            Self::ListsItsOwnMembers => Bounds { snapshots: 1, moves: 1, ..NONE },
            Self::MovesBlindly | Self::MovesWhatIsThawed => {
                Bounds { leases: 1, writes: 2, snapshots: 1, moves: 1, ..NONE }
            }
        }
    }
}
