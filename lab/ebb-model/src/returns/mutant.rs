//! Seeded bugs. Each changes one rule, at the one line that asks [`Returns::is`](super::Returns::is) for it.

use super::Bounds;

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// Every replica that the map does not name is deleted, without regard to the content of the set.
    DeletesByTheMapAlone,
    /// It is deleted when the set has as many members as wanted, without regard to their content.
    CountsMembersUnasked,
    /// A deletion hits any replica that the node has when it comes.
    DeletionHitsAnyLife,
    /// A replica in no set is judged while it is being taken into the set.
    JudgesDuringCopy,
    /// A member that was left out rejoins with any content.
    RejoinsWithoutComparing,
    /// It rejoins with the content that the recovery left it with, though there were later writes.
    RejoinsAfterAWrite,
    /// It is recorded though a holder came meanwhile.
    RecordsWithoutComparing,
    /// A recovery goes on without a member that does not answer at once.
    DoesNotWait,
    /// A recovery goes on without a member that had promised and fell silent before it was stamped.
    DoesNotWaitForStamps,
    /// A member that was left out and has missed a write is kept for ever, and no copy takes its place.
    KeepsTheUnfit,
}

impl Mutant {
    /// Every mistake.
    pub const ALL: &'static [Self] = &[
        Self::DeletesByTheMapAlone,
        Self::CountsMembersUnasked,
        Self::DeletionHitsAnyLife,
        Self::JudgesDuringCopy,
        Self::RejoinsWithoutComparing,
        Self::RejoinsAfterAWrite,
        Self::RecordsWithoutComparing,
        Self::DoesNotWait,
        Self::DoesNotWaitForStamps,
        Self::KeepsTheUnfit,
    ];

    /// Where it shows.
    #[must_use]
    pub const fn bounds(self) -> Bounds {
        match self {
            Self::CountsMembersUnasked => Bounds::LOSSES,
            Self::DeletionHitsAnyLife => Bounds::AGAIN,
            Self::KeepsTheUnfit => Bounds::FEW,
            _ => Bounds::RETURNS,
        }
    }
}
