//! Limits of steps: the one place that orders kinds of work, and limits their part of a node.

/// Priority of a step. The lesser one comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Priority {
    /// A set lacks copies, or has another fault.
    Mend,
    /// A copy's node is about to be switched off.
    Leave,
    /// A copy is not where it should be.
    Move,
    /// A copy beyond those that are wanted.
    Spare,
}

/// Maximum number of extra copies in progress.
const SPARE_MAX: usize = 2;
/// Extra copies get one part in this many of a node's copy rate. Programs and repair have the rest.
const SPARE_PART: u64 = 4;

impl Priority {
    /// Maximum weight of all copies in progress on a node at which a step may start. `all` is the maximum for any step.
    #[must_use]
    pub const fn weight_max(self, all: usize) -> usize {
        match self {
            Self::Mend | Self::Leave | Self::Spare => all,
            // Repair keeps the larger part of a node's limit.
            Self::Move => all / 2,
        }
    }

    /// Bytes per second that its copies may take of a node's rate `all`; 0 means no limit.
    #[must_use]
    pub const fn rate(self, all: u64) -> u64 {
        match self {
            Self::Mend | Self::Leave | Self::Move => all,
            Self::Spare => all / SPARE_PART,
        }
    }

    /// Maximum number of copies of this priority in progress. `None` means that only the nodes' limits apply.
    #[must_use]
    pub const fn running_max(self) -> Option<usize> {
        match self {
            Self::Spare => Some(SPARE_MAX),
            Self::Mend | Self::Leave | Self::Move => None,
        }
    }

    /// Whether a copy starts only if its two nodes are awake together soon. The file's writers pause during the copy.
    #[must_use]
    pub const fn waits_for_meeting(self) -> bool {
        matches!(self, Self::Leave | Self::Move)
    }

    /// Whether the target node must be idle, because programs come first.
    #[must_use]
    pub const fn waits_for_idle(self) -> bool {
        matches!(self, Self::Move)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repair_goes_first_and_has_the_largest_share() {
        let all = [Priority::Mend, Priority::Leave, Priority::Move, Priority::Spare];
        assert!(all.is_sorted());
        let weights = all.map(|priority| priority.weight_max(16));
        let rates = all.map(|priority| priority.rate(200));
        assert_eq!((weights, rates), ([16, 16, 8, 16], [200, 200, 200, 50]));
        assert_eq!(all.map(Priority::running_max), [None, None, None, Some(2)]);
    }
}
