//! Seeded bugs. Each changes one rule, at the one line that asks [`crate::Protocol::is`] for it.

use crate::Bounds;

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// A member notes a promised epoch in memory only.
    PromiseNotDurable,
    /// A member that deleted its replica takes writes for it as if it had never had one.
    DeleteForgetsPromise,
    /// A member reports its version first and promises never.
    TellsWithoutPromise,
    /// A recovery takes the lowest reported version as its base, and leaves members above it as they are.
    RecoveryPicksLowest,
    /// A member stamps any version that it has.
    StampsAnyBase,
    /// fsync returns when all members have received.
    AcknowledgesReceived,
    /// The holder commits the version that all members have received.
    CommitsReceived,
    /// A sync answered by a member's new boot counts for writes that its old boot had received.
    IgnoresBoot,
    /// A member syncs for a holder whose epoch is too old, and the holder counts the member's newer version as its own.
    SyncIgnoresEpoch,
    /// A member applies a write without regard to its predecessor.
    AppliesOutOfOrder,
    /// The master compares a set change with the generation only.
    SetChangeIgnoresEpoch,
    /// The holder proposes a new member that has not pulled yet.
    JoinsBeforeSynced,
    /// The holder goes on with the new set before the master has recorded it.
    GoesOnBeforeRecorded,
    /// A pull copies without regard to the version that the target already has.
    PullGoesBack,
    /// A write lease does not raise the epoch.
    LeaseKeepsEpoch,
    /// The master grants a write lease while a read lease is out.
    GrantsOverReaders,
    /// A reader accepts the version of a replica that is below its min_version.
    ReadsBelowMinVersion,
    /// A holder that gave up a write which some members have gives its lease back as if nothing had been sent.
    ReleasesAfterGivingUp,
    /// A deletion of excess hits any replica that the node has when it comes, also one that has joined since.
    DeletionHitsAnyLife,
    /// The master treats a copy as a move, and its source as excess, before the new set is recorded.
    DeletesBeforeRecorded,
    /// The master judges excess while a holder may be adding that very replica to the set.
    JudgesUnderHolder,
    /// The master judges excess while it is about to record that very replica itself.
    JudgesDuringCopy,
}

impl Mutant {
    /// Every mistake.
    pub const ALL: &'static [Self] = &[
        Self::PromiseNotDurable,
        Self::DeleteForgetsPromise,
        Self::TellsWithoutPromise,
        Self::RecoveryPicksLowest,
        Self::StampsAnyBase,
        Self::AcknowledgesReceived,
        Self::CommitsReceived,
        Self::IgnoresBoot,
        Self::SyncIgnoresEpoch,
        Self::AppliesOutOfOrder,
        Self::SetChangeIgnoresEpoch,
        Self::JoinsBeforeSynced,
        Self::GoesOnBeforeRecorded,
        Self::PullGoesBack,
        Self::LeaseKeepsEpoch,
        Self::GrantsOverReaders,
        Self::ReadsBelowMinVersion,
        Self::ReleasesAfterGivingUp,
        Self::DeletionHitsAnyLife,
        Self::DeletesBeforeRecorded,
        Self::JudgesUnderHolder,
        Self::JudgesDuringCopy,
    ];

    /// Whether the rules of [`crate::forget`] still say the truth with this seeded bug. Where in doubt they do not.
    #[must_use]
    pub const fn allows_forgetting(self) -> bool {
        matches!(
            self,
            Self::SyncIgnoresEpoch
                | Self::DeletionHitsAnyLife
                | Self::DeletesBeforeRecorded
                | Self::JudgesUnderHolder
                | Self::JudgesDuringCopy
        )
    }

    /// Small bounds within which it shows.
    #[must_use]
    pub const fn bounds(self) -> Bounds {
        let (repairs, excess) = match self {
            Self::DeletionHitsAnyLife | Self::DeletesBeforeRecorded | Self::JudgesDuringCopy => (1, 1),
            Self::JudgesUnderHolder => (0, 1),
            _ => (0, 0),
        };
        let (writes, epoch, crashes, replacements) = match self {
            Self::CommitsReceived
            | Self::GrantsOverReaders
            | Self::ReadsBelowMinVersion
            | Self::ReleasesAfterGivingUp => (1, 1, 0, 0),
            Self::AcknowledgesReceived | Self::IgnoresBoot => (1, 1, 1, 0),
            Self::JoinsBeforeSynced
            | Self::GoesOnBeforeRecorded
            | Self::PullGoesBack
            | Self::DeletionHitsAnyLife
            | Self::DeletesBeforeRecorded
            | Self::JudgesUnderHolder
            | Self::JudgesDuringCopy => (1, 1, 0, 1),
            Self::AppliesOutOfOrder => (2, 1, 0, 0),
            Self::TellsWithoutPromise | Self::StampsAnyBase | Self::DeleteForgetsPromise => (1, 2, 0, 0),
            Self::PromiseNotDurable => (1, 2, 1, 0),
            Self::SetChangeIgnoresEpoch => (1, 2, 0, 1),
            Self::LeaseKeepsEpoch | Self::RecoveryPicksLowest | Self::SyncIgnoresEpoch => (2, 2, 0, 0),
        };
        Bounds { writes, epoch, crashes, replacements, repairs, excess }
    }
}
