//! Seeded bugs. Each changes one rule, at the one line that asks [`Guests::is`](crate::guests::Guests::is) for it.

use crate::guests::Bounds;

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// The replica that a home had before it was switched off counts when it is on again.
    OldCopyCounts,
    /// A guest's return home is recorded without regard to changes of the set and its file.
    RecordsBlindly,
    /// The guest is deleted when the home has the copy, before that is recorded.
    GuestGoesFirst,
    /// A deletion hits any life of a replica.
    DeletesAnyLife,
    /// Excess is judged while the copy that comes home is not yet recorded.
    JudgesWhileMoving,
    /// A guest whose host is switched off moves on, and its host is recorded as its home.
    HostBecomesHome,
    /// A recovery records guests as members like others.
    RecoveryForgetsHomes,
    /// Missing copies are made up for on the active nodes alone, as if there were no others.
    MakesUpWithoutHomes,
    /// A guest lies where another member belongs.
    GuestAtAnothersHome,
    /// A guest's going home is recorded though the home sleeps by then.
    RecordsWhileHomeSleeps,
    /// A guest waits for a home that is dead.
    WaitsForTheDead,
}

impl Mutant {
    /// Every mistake.
    pub const ALL: &'static [Self] = &[
        Self::OldCopyCounts,
        Self::RecordsBlindly,
        Self::GuestGoesFirst,
        Self::DeletesAnyLife,
        Self::JudgesWhileMoving,
        Self::HostBecomesHome,
        Self::RecoveryForgetsHomes,
        Self::MakesUpWithoutHomes,
        Self::GuestAtAnothersHome,
        Self::RecordsWhileHomeSleeps,
        Self::WaitsForTheDead,
    ];

    /// Small bounds within which it shows.
    #[must_use]
    pub const fn bounds(self) -> Bounds {
        match self {
            Self::OldCopyCounts => Bounds { writes: 2, epoch: 1, switches: 1, copies: 1, deaths: 0 },
            Self::RecordsBlindly => Bounds { writes: 2, epoch: 2, switches: 1, copies: 1, deaths: 0 },
            Self::GuestGoesFirst | Self::DeletesAnyLife | Self::JudgesWhileMoving => {
                Bounds { writes: 1, epoch: 1, switches: 1, copies: 1, deaths: 0 }
            }
            Self::HostBecomesHome | Self::GuestAtAnothersHome => {
                Bounds { writes: 1, epoch: 1, switches: 2, copies: 0, deaths: 0 }
            }
            Self::RecoveryForgetsHomes => Bounds { writes: 1, epoch: 2, switches: 1, copies: 0, deaths: 0 },
            Self::MakesUpWithoutHomes => Bounds { writes: 1, epoch: 2, switches: 1, copies: 1, deaths: 0 },
            Self::RecordsWhileHomeSleeps => Bounds { writes: 1, epoch: 1, switches: 3, copies: 1, deaths: 0 },
            Self::WaitsForTheDead => Bounds { writes: 1, epoch: 1, switches: 1, copies: 1, deaths: 1 },
        }
    }
}
