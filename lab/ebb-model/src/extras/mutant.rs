//! Seeded bugs. Each changes one rule, at the one line that asks [`Extras::is`](super::Extras::is) for it.

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mutant {
    /// A write lease leaves the extra copy recorded.
    LeaseKeepsExtras,
    /// A copy is recorded although a writer had the lease meanwhile.
    RecordsOvertaken,
    /// A copy is begun and recorded while a writer has the lease.
    CopiesUnderLease,
    /// A volume answers a read that names a newer version than it has.
    AnswersBelow,
    /// A client that reads by a map without a lease asks extra copies, too.
    MapsUseExtras,
    /// A deletion takes any replica of the metablock that the volume has.
    DeletesAnyLife,
    /// A replica on a volume that is not recorded is deleted although a copy is under way.
    DeletesUnderCopy,
}

impl Mutant {
    /// Every mistake.
    pub const ALL: &'static [Self] = &[
        Self::LeaseKeepsExtras,
        Self::RecordsOvertaken,
        Self::CopiesUnderLease,
        Self::AnswersBelow,
        Self::MapsUseExtras,
        Self::DeletesAnyLife,
        Self::DeletesUnderCopy,
    ];
}
