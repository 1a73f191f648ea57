//! Mistakes to plant. Each changes one rule, at the one line that asks [`Opens::is`](super::Opens::is) for it.

/// A planted mistake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// Who is asked says nothing unless it believes that it counts as having the file open.
    OnlyRegistered,
    /// The master asks nobody: who counts once does so until it says otherwise.
    NeverAsks,
    /// Who is asked answers although the answer to its making the file may be on its way.
    AnswersWhileMaking,
    /// Who is asked answers although it is just opening the file.
    AnswersWhileOpening,
    /// That a file is closed is taken for said after every open.
    ForgetsAreNotNumbered,
    /// A new master process frees what nobody has told it about yet.
    FreesBeforeReclaim,
    /// It does not count those who may still be told that they made a file.
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
