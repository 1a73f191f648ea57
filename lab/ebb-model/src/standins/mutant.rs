//! Seeded bugs. Each changes one rule, at the one line that asks [`Standins::is`](crate::standins::Standins::is)
//! for it.

use crate::standins::Bounds;

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// fsync returns when one log has it.
    AcknowledgesWithOne,
    /// A log answers before it has synced.
    AnswersBeforeSynced,
    /// Writes that at least one member has received are not logged.
    StartsAfterReceived,
    /// A log is cut up to the version that all members have received.
    CutsWhatWasReceived,
    /// A member that wakes counts as having everything.
    DrainForgets,
    /// The holder commits writes that are only logged.
    CommitsLogged,
    /// The holder gives its lease back when everything is logged.
    GivesBackLogged,
    /// Logs take writes under any epoch.
    LogsTakeOldEpochs,
    /// Logs take writes whose predecessors they lack.
    LogsTakeGaps,
    /// Recovery goes by the members alone.
    RecoveryIgnoresLogs,
    /// A log drops a file's writes when it promises an epoch.
    PromiseDropsWrites,
    /// Recovery goes on though no member has all that was logged.
    GoesOnWithoutLogged,
    /// The master judges logs while it recovers.
    JudgesDuringRecovery,
    /// A log that was lost counts as an empty one.
    LossIsNotNoticed,
    /// Where the always-on node's log was lost, only those are asked that are awake.
    SkipsWhoSleeps,
    /// A lost log counts as whole again while its writes may still be needed.
    TrustsTooEarly,
}

impl Mutant {
    /// Every mistake.
    pub const ALL: &'static [Self] = &[
        Self::AcknowledgesWithOne,
        Self::AnswersBeforeSynced,
        Self::StartsAfterReceived,
        Self::CutsWhatWasReceived,
        Self::DrainForgets,
        Self::CommitsLogged,
        Self::GivesBackLogged,
        Self::LogsTakeOldEpochs,
        Self::LogsTakeGaps,
        Self::RecoveryIgnoresLogs,
        Self::PromiseDropsWrites,
        Self::GoesOnWithoutLogged,
        Self::JudgesDuringRecovery,
        Self::LossIsNotNoticed,
        Self::SkipsWhoSleeps,
        Self::TrustsTooEarly,
    ];

    /// Small bounds within which it shows.
    #[must_use]
    pub const fn bounds(self) -> Bounds {
        match self {
            Self::AcknowledgesWithOne => Bounds { writes: 1, epoch: 1, calls: 1, sleeps: 1, losses: 1, crashes: 0 },
            Self::AnswersBeforeSynced => Bounds { writes: 1, epoch: 2, calls: 1, sleeps: 1, losses: 0, crashes: 1 },
            Self::StartsAfterReceived => Bounds { writes: 1, epoch: 1, calls: 1, sleeps: 1, losses: 0, crashes: 1 },
            Self::LogsTakeGaps => Bounds { writes: 2, epoch: 1, calls: 2, sleeps: 0, losses: 0, crashes: 0 },
            // The next write brings the cut.
            Self::CutsWhatWasReceived => Bounds { writes: 2, epoch: 1, calls: 2, sleeps: 1, losses: 0, crashes: 1 },
            Self::DrainForgets | Self::CommitsLogged | Self::GivesBackLogged => {
                Bounds { writes: 1, epoch: 1, calls: 1, sleeps: 1, losses: 0, crashes: 0 }
            }
            Self::LogsTakeOldEpochs
            | Self::RecoveryIgnoresLogs
            | Self::GoesOnWithoutLogged
            | Self::JudgesDuringRecovery => Bounds { writes: 1, epoch: 2, calls: 1, sleeps: 1, losses: 0, crashes: 0 },
            // The recovery that comes after the one that read it.
            Self::PromiseDropsWrites => Bounds { writes: 1, epoch: 3, calls: 1, sleeps: 1, losses: 0, crashes: 0 },
            Self::LossIsNotNoticed | Self::SkipsWhoSleeps | Self::TrustsTooEarly => {
                Bounds { writes: 1, epoch: 2, calls: 1, sleeps: 1, losses: 1, crashes: 0 }
            }
        }
    }
}
