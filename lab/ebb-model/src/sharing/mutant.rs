//! Seeded bugs. Each changes one rule, at the one line that asks [`Sharing::is`](crate::sharing::Sharing::is) for it.

use crate::sharing::Bounds;

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// The proxy carries a repeated request out again.
    ForgetsAnswers,
    /// The proxy looks at the epoch before it looks whether it has done a request already.
    LooksAtEpochFirst,
    /// The proxy carries out requests of an earlier stay.
    IgnoresEpoch,
    /// A client takes "moved" for "not done" whichever process says so.
    TrustsAnyProcess,
    /// A client repeats unanswered requests at the next holder.
    RepeatsUnknown,
    /// The proxy answers a write before the members have it.
    AnswersBeforeReceived,
    /// The proxy answers fsync when the members have received.
    SyncsByReceived,
    /// The proxy shows writes of others before they are synced.
    ShowsUnsynced,
    /// The proxy counts writes during a sync as synced.
    MarksWhatCameLater,
    /// The proxy answers reads under a lease that is over.
    ReadsWithoutLease,
    /// The proxy gives its lease back before everything is synced.
    GivesBackUnsynced,
    /// The proxy says of every stay that it ended well.
    TellsKept,
    /// A client forgets, with the stay, that something was written there and not synced.
    ForgetsUnsynced,
    /// A client records a write only if the stay has not ended before the answer came.
    ForgetsLateAnswers,
}

impl Mutant {
    /// Every mistake.
    pub const ALL: &'static [Self] = &[
        Self::ForgetsAnswers,
        Self::LooksAtEpochFirst,
        Self::IgnoresEpoch,
        Self::TrustsAnyProcess,
        Self::RepeatsUnknown,
        Self::AnswersBeforeReceived,
        Self::SyncsByReceived,
        Self::ShowsUnsynced,
        Self::MarksWhatCameLater,
        Self::ReadsWithoutLease,
        Self::GivesBackUnsynced,
        Self::TellsKept,
        Self::ForgetsUnsynced,
        Self::ForgetsLateAnswers,
    ];

    /// Small bounds within which it shows.
    #[must_use]
    pub const fn bounds(self) -> Bounds {
        match self {
            Self::ForgetsAnswers => Bounds { writes: 1, syncs: 0, reads: 0, epoch: 1, deaths: 0, power_cuts: 0 },
            Self::LooksAtEpochFirst => Bounds { writes: 1, syncs: 0, reads: 0, epoch: 2, deaths: 0, power_cuts: 0 },
            Self::TrustsAnyProcess | Self::RepeatsUnknown => {
                Bounds { writes: 1, syncs: 0, reads: 0, epoch: 3, deaths: 1, power_cuts: 0 }
            }
            Self::AnswersBeforeReceived => Bounds { writes: 1, syncs: 0, reads: 0, epoch: 2, deaths: 1, power_cuts: 0 },
            Self::SyncsByReceived => Bounds { writes: 1, syncs: 1, reads: 0, epoch: 2, deaths: 1, power_cuts: 1 },
            Self::ShowsUnsynced => Bounds { writes: 1, syncs: 0, reads: 1, epoch: 1, deaths: 0, power_cuts: 0 },
            Self::MarksWhatCameLater => Bounds { writes: 2, syncs: 0, reads: 2, epoch: 1, deaths: 0, power_cuts: 0 },
            Self::ReadsWithoutLease => Bounds { writes: 1, syncs: 1, reads: 1, epoch: 3, deaths: 0, power_cuts: 0 },
            Self::IgnoresEpoch => Bounds { writes: 1, syncs: 1, reads: 0, epoch: 3, deaths: 0, power_cuts: 1 },
            Self::GivesBackUnsynced | Self::TellsKept | Self::ForgetsUnsynced | Self::ForgetsLateAnswers => {
                Bounds { writes: 1, syncs: 1, reads: 0, epoch: 2, deaths: 1, power_cuts: 1 }
            }
        }
    }
}
