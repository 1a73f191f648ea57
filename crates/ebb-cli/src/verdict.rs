//! The verdict of a command on the object that it inspected, and its exit code.

/// What a command found. Of several faults the last one in this order counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// Done, and healthy if something was inspected.
    Good,
    /// Something is wrong, but everything can be read.
    Unhealthy,
    /// Some data cannot be read now because a power plan keeps their nodes off.
    OutOfReachByPlan,
    /// Some data cannot be read now because their nodes do not answer.
    OutOfReachByFailure,
    /// Every replica that is left of some data is damaged.
    Damaged,
    /// No replica is left of some data.
    Missing,
}

/// The exit codes for help texts.
pub const EXIT_CODES: &str = "Exit codes: 0 healthy; 1 unhealthy, and everything can be read, or the command failed; \
     2 usage error; 3 refused. For data that cannot be read: 4 out of reach by plan, 5 out of reach by failure, \
     6 damaged, 7 missing; the highest one counts.";

impl Verdict {
    /// The exit code. Codes 2 and 3 are for commands that were not carried out.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Good => crate::program::GOOD,
            Self::Unhealthy => crate::program::UNHEALTHY,
            Self::OutOfReachByPlan => 4,
            Self::OutOfReachByFailure => 5,
            Self::Damaged => 6,
            Self::Missing => 7,
        }
    }

    /// The verdict as a word for JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "healthy",
            Self::Unhealthy => "unhealthy",
            Self::OutOfReachByPlan => "out_of_reach_by_plan",
            Self::OutOfReachByFailure => "out_of_reach_by_failure",
            Self::Damaged => "damaged",
            Self::Missing => "missing",
        }
    }
}

impl From<bool> for Verdict {
    fn from(is_healthy: bool) -> Self {
        if is_healthy { Self::Good } else { Self::Unhealthy }
    }
}

impl From<()> for Verdict {
    fn from((): ()) -> Self {
        Self::Good
    }
}
