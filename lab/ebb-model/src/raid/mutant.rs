//! Seeded bugs. Each changes one rule, at the one line that asks [`Raid::is`](crate::raid::Raid::is) for it.

use crate::raid::Bounds;

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// The Seal does not compare versions.
    SealsBlindly,
    /// The Seal does not ask whether a client holds a file.
    SealsBesideAHolder,
    /// The check is not synced before the Seal.
    SealsUnsynced,
    /// A Seal of another term is taken, though its check may have been found to be a stray.
    SealsAcrossTerms,
    /// A member that does not tell the version of the RAID set counts as frozen, and as sound.
    BelievesAnyMember,
    /// Copies are deleted without another look at what stays.
    DropsWithoutALook,
    /// A holder writes to what its map calls frozen.
    WritesInPlace,
    /// A write lease does not bring the map anew.
    WritesByAnOldMap,
    /// Writes go to an heir before it has taken its place.
    WritesToAnHeirBeforeItsSwap,
    /// An heir takes its place before its members have the bytes.
    SwapsBeforePulls,
    /// A recovery stamps what is frozen.
    StampsTheFrozen,
    /// Ballast goes with its file.
    FreesBallast,
    /// Ballast is served as before.
    NeverRetires,
    /// A replica of an heir that has not taken its place is a stray.
    HeirIsAStray,
    /// A member is made again from replicas that no record names.
    RebuildsFromAnyReplica,
    /// A RAID set ends when its repacking begins.
    DissolvesFirst,
}

const ENCODING: Bounds = Bounds::ENCODING;

impl Mutant {
    /// Every mistake.
    pub const ALL: &'static [Self] = &[
        Self::SealsBlindly,
        Self::SealsBesideAHolder,
        Self::SealsUnsynced,
        Self::SealsAcrossTerms,
        Self::BelievesAnyMember,
        Self::DropsWithoutALook,
        Self::WritesInPlace,
        Self::WritesByAnOldMap,
        Self::WritesToAnHeirBeforeItsSwap,
        Self::SwapsBeforePulls,
        Self::StampsTheFrozen,
        Self::FreesBallast,
        Self::NeverRetires,
        Self::HeirIsAStray,
        Self::RebuildsFromAnyReplica,
        Self::DissolvesFirst,
    ];

    /// Small bounds within which it shows.
    #[must_use]
    pub const fn bounds(self) -> Bounds {
        match self {
            Self::SealsBlindly | Self::SealsBesideAHolder | Self::WritesInPlace | Self::WritesByAnOldMap => {
                Bounds { leases: 1, writes: 2, ..ENCODING }
            }
            Self::SealsUnsynced => Bounds { crashes: 1, ..ENCODING },
            Self::SealsAcrossTerms => Bounds { restarts: 1, ..ENCODING },
            Self::BelievesAnyMember | Self::DropsWithoutALook => Bounds { losses: 1, spoils: 1, ..ENCODING },
            Self::WritesToAnHeirBeforeItsSwap => Bounds { leases: 1, writes: 2, thaws: 1, recoveries: 1, ..ENCODING },
            Self::SwapsBeforePulls | Self::HeirIsAStray | Self::NeverRetires => {
                Bounds { leases: 1, thaws: 1, ..ENCODING }
            }
            Self::StampsTheFrozen => Bounds { leases: 1, recoveries: 1, ..ENCODING },
            Self::FreesBallast => Bounds { removals: 1, losses: 1, ..ENCODING },
            Self::RebuildsFromAnyReplica => Bounds { leases: 1, recoveries: 1, absences: 1, losses: 1, ..ENCODING },
            Self::DissolvesFirst => Bounds { removals: 1, losses: 1, attempts: 2, ..ENCODING },
        }
    }
}
