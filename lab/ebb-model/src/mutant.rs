//! Mistakes to plant. Each changes one rule, at the one line that asks [`crate::Protocol::is`] for it.

use crate::Bounds;

/// A planted mistake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// A member notes a promised epoch in memory only.
    PromiseNotDurable,
    /// A member that deleted its replica takes writes for it as if it had never had one.
    DeleteForgetsPromise,
    /// A member tells its version first and promises never.
    TellsWithoutPromise,
    /// A recovery takes the lowest version told as its base, and leaves members above it as they are.
    RecoveryPicksLowest,
    /// A member stamps whatever version it has.
    StampsAnyBase,
    /// fsync returns when all members have received.
    AcknowledgesReceived,
    /// The holder commits what all members have received.
    CommitsReceived,
    /// A sync answered by a member's new boot is taken to cover what its old boot had received.
    IgnoresBoot,
    /// A member syncs for a holder whose epoch is too old, and the holder takes its newer version for done.
    SyncIgnoresEpoch,
    /// A member applies a write whatever came before it.
    AppliesOutOfOrder,
    /// The master compares a set change with the generation only.
    SetChangeIgnoresEpoch,
    /// The holder proposes a new member that has not pulled yet.
    JoinsBeforeSynced,
    /// The holder goes on with the new set before the master has recorded it.
    GoesOnBeforeRecorded,
    /// A pull copies whatever the target has already.
    PullGoesBack,
    /// A write lease does not raise the epoch.
    LeaseKeepsEpoch,
    /// The master grants a write lease while a read lease is out.
    GrantsOverReaders,
    /// A reader takes what a replica below its min_version has.
    ReadsBelowMinVersion,
    /// A holder that gave up a write which some members have gives its lease back as if nothing had been sent.
    ReleasesAfterGivingUp,
    /// A deletion of excess hits whatever replica the node has when it comes, also one that has joined since.
    DeletionHitsAnyLife,
    /// The master takes a copy for a move, and its source for excess, before the new set is recorded.
    DeletesBeforeRecorded,
    /// The master judges what is in excess while a holder may be taking that very replica into the set.
    JudgesUnderHolder,
    /// The same, while the master itself is about to record it.
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

    /// Whether the rules of [`crate::forget`] still say the truth with this mistake planted. Where in doubt they do not.
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
