//! What steps may use: the one place that says which work goes before which, and how much of a node it may take.

/// Which steps go first. The lesser one does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Priority {
    /// Something lacks copies, or is wrong otherwise.
    Mend,
    /// A copy's node is about to be switched off.
    Leave,
    /// A copy lies elsewhere than it should.
    Move,
    /// A copy more than is wanted.
    Spare,
}

/// Extra copies under way at a time.
const SPARE_MAX: usize = 2;
/// Extra copies take one part in so many of what copies of a node may take: users and repair have the rest.
const SPARE_PART: u64 = 4;

impl Priority {
    /// Weight of all copies under way on a node, up to which a step may begin there; `all` is the most for any.
    #[must_use]
    pub const fn weight_max(self, all: usize) -> usize {
        match self {
            Self::Mend | Self::Leave | Self::Spare => all,
            // Repair has the larger part of what a node may do.
            Self::Move => all / 2,
        }
    }

    /// Bytes a second that its copies may take of a node's; 0: no limit.
    #[must_use]
    pub const fn rate(self, all: u64) -> u64 {
        match self {
            Self::Mend | Self::Leave | Self::Move => all,
            Self::Spare => all / SPARE_PART,
        }
    }

    /// Copies of this priority under way at a time; none: as many as nodes take part in.
    #[must_use]
    pub const fn running_max(self) -> Option<usize> {
        match self {
            Self::Spare => Some(SPARE_MAX),
            Self::Mend | Self::Leave | Self::Move => None,
        }
    }

    /// Whether a copy begins only when its two nodes serve together soon: writers to its file wait while it is under way.
    #[must_use]
    pub const fn waits_for_meeting(self) -> bool {
        matches!(self, Self::Leave | Self::Move)
    }

    /// Whether the node that takes the copy must be idle: programs go first.
    #[must_use]
    pub const fn waits_for_idle(self) -> bool {
        matches!(self, Self::Move)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_copies_goes_first_and_has_most() {
        let all = [Priority::Mend, Priority::Leave, Priority::Move, Priority::Spare];
        assert!(all.is_sorted());
        let weights = all.map(|priority| priority.weight_max(16));
        let rates = all.map(|priority| priority.rate(200));
        assert_eq!((weights, rates), ([16, 16, 8, 16], [200, 200, 200, 50]));
        assert_eq!(all.map(Priority::running_max), [None, None, None, Some(2)]);
    }
}
