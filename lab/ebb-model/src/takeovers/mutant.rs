//! Seeded bugs. Each changes one rule, at the one line that asks [`Takeovers::is`](super::Takeovers::is) for it.

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// The master does not count a takeover.
    Uncounted,
    /// It counts one of a client that has lost its lease.
    AnyoneCounts,
    /// A client keeps the count that it knew when it takes a lease.
    LeaseWithoutCount,
    /// A takeover begins, and goes on, beside writes of its own client.
    GateStaysOpen,
    /// A lease goes back while a write that entered under it has not acted yet.
    LeavesWritesBehind,
    /// A client whose takeover got no answer keeps its lease, with the old count.
    KeepsUnsureLease,
    /// The answer to an attempt that was given up counts for the next one.
    AnswersAreNotNumbered,
    /// The proxy keeps a file that was taken over.
    StayGoesOn,
    /// It answers, and gives the file back then.
    AnswersFirst,
}

impl Mutant {
    /// Every mistake.
    pub const ALL: &'static [Self] = &[
        Self::Uncounted,
        Self::AnyoneCounts,
        Self::LeaseWithoutCount,
        Self::GateStaysOpen,
        Self::LeavesWritesBehind,
        Self::KeepsUnsureLease,
        Self::AnswersAreNotNumbered,
        Self::StayGoesOn,
        Self::AnswersFirst,
    ];
}
