//! Seeded bugs. Each changes one rule, at the one line that asks [`Opens::is`](super::Opens::is) for it.

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// A client that is asked answers only if it believes that it counts as having the file open.
    OnlyRegistered,
    /// The master never asks: a client that counts once does so until it reports the close.
    NeverAsks,
    /// A client that is asked answers although the answer to its making the file may be on its way.
    AnswersWhileMaking,
    /// A client that is asked answers although it is just opening the file.
    AnswersWhileOpening,
    /// That a file is closed is taken for said after every open.
    ForgetsAreNotNumbered,
    /// A new master process frees files before the clients have reported to it.
    FreesBeforeReclaim,
    /// It does not count clients that may still get the answer that they made a file.
    MakersAreForgotten,
}

impl Mutant {
    /// Every mistake.
    pub const ALL: &'static [Self] = &[
        Self::OnlyRegistered,
        Self::NeverAsks,
        Self::AnswersWhileMaking,
        Self::AnswersWhileOpening,
        Self::ForgetsAreNotNumbered,
        Self::FreesBeforeReclaim,
        Self::MakersAreForgotten,
    ];
}
