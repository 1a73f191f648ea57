//! Seeded bugs. Each changes one rule, at the one line that asks [`Direct::is`](super::Direct::is) for it.

use super::{Bounds, Variant};

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// A member that has lost the put bytes reports that it has applied them.
    AppliesNothing,
    /// Tickets have only a number as their identity: the next process of the proxy gives the same ones.
    TicketsWithoutProcess,
    /// For bytes that a member has lost, another member's present content at that place is fetched.
    FetchesWhatIsThere,
    /// A report is carried out before tickets that overlap and were given earlier are over.
    Overtakes,
    /// A write by way of the proxy does not wait for tickets that were given before it came.
    ViaOvertakes,
    /// A report that comes after its ticket was given up is carried out.
    AppliesWhatWasGivenUp,
    /// A report that comes again is carried out again.
    RepeatsReports,
    /// The client reports before all members have its bytes, and the proxy answers when one of them has applied.
    AnswersEarly,
    /// fsync returns when members have received.
    FsyncGoesByReceived,
    /// A read is answered before the writes that it shows are synced.
    ShowsUnsynced,
    /// A read does not wait for its turn on the range.
    ReadsBetween,
    /// A member applies writes that an earlier proxy sent.
    IgnoresEpochs,
    /// A recovery takes the lowest version.
    RecoveryTakesTheShortest,
    /// A member drops put bytes when it promises the recovery's epoch, and not when the recovery is over.
    PromiseDropsPuts,
    /// A node that has lost the put bytes reports that it has logged them.
    LogsNothing,
    /// A recovery reads no log.
    RecoveryIgnoresLog,
    /// A recovery completes a write with a member's present content in the other metablock.
    CompletesFromContent,
    /// A recovery carries out every kept write, also one that no member has applied.
    CompletesWhatNobodyApplied,
}

impl Mutant {
    /// Every mistake.
    pub const ALL: &'static [Self] = &[
        Self::AppliesNothing,
        Self::TicketsWithoutProcess,
        Self::FetchesWhatIsThere,
        Self::Overtakes,
        Self::ViaOvertakes,
        Self::AppliesWhatWasGivenUp,
        Self::RepeatsReports,
        Self::AnswersEarly,
        Self::FsyncGoesByReceived,
        Self::ShowsUnsynced,
        Self::ReadsBetween,
        Self::IgnoresEpochs,
        Self::RecoveryTakesTheShortest,
        Self::PromiseDropsPuts,
        Self::LogsNothing,
        Self::RecoveryIgnoresLog,
        Self::CompletesFromContent,
        Self::CompletesWhatNobodyApplied,
    ];

    /// Where it shows.
    #[must_use]
    pub const fn bounds(self) -> Bounds {
        match self {
            Self::AppliesNothing
            | Self::FetchesWhatIsThere
            | Self::FsyncGoesByReceived
            | Self::ShowsUnsynced
            | Self::ReadsBetween => Bounds::CRASHES,
            Self::TicketsWithoutProcess
            | Self::IgnoresEpochs
            | Self::PromiseDropsPuts
            | Self::CompletesFromContent
            | Self::CompletesWhatNobodyApplied => Bounds::DEATHS,
            Self::LogsNothing | Self::RecoveryIgnoresLog => Bounds::SLEEPS,
            Self::AnswersEarly | Self::RecoveryTakesTheShortest => Bounds::BOTH,
            _ => Bounds::TURNS,
        }
    }

    /// Of which protocol it is a mistake.
    #[must_use]
    pub const fn variant(self) -> Variant {
        match self {
            Self::PromiseDropsPuts | Self::CompletesFromContent | Self::CompletesWhatNobodyApplied => {
                Variant::RollsForward
            }
            _ => Variant::Separate,
        }
    }
}
