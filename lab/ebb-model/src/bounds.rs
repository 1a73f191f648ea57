//! Bounds on the number of events. They make the state space finite.

use crate::names::Epoch;

/// Upper bounds. Messages have none: all are delivered in all orders, any number of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Writes by all clients together (at most 8).
    pub writes: u8,
    /// Highest epoch: each write lease and each recovery takes one.
    pub epoch: Epoch,
    /// Crashes of members.
    pub crashes: u8,
    /// Members replaced by a holder.
    pub replacements: u8,
    /// Members added by the master to files without a lease holder.
    pub repairs: u8,
    /// Replicas outside the set that the master takes for excess.
    pub excess: u8,
}

impl Bounds {
    /// A writer, a recovery and a second writer, with a member crashing and late messages of the first writer.
    pub const LEASES: Self = Self { writes: 2, epoch: 3, crashes: 1, replacements: 0, repairs: 0, excess: 0 };
    /// A holder replaces a member or goes on without it, is recovered or releases; the master gives the set a member
    /// back, while the next holder may write already.
    pub const SETS: Self = Self { writes: 2, epoch: 2, crashes: 0, replacements: 1, repairs: 1, excess: 0 };
    /// A member that was left out turns up late and is deleted as excess, while it or another one may join the set.
    pub const EXCESS: Self = Self { writes: 1, epoch: 2, crashes: 0, replacements: 1, repairs: 1, excess: 1 };
    /// One write, and recoveries that die and begin again.
    pub const RECOVERIES: Self = Self { writes: 1, epoch: 4, crashes: 1, replacements: 0, repairs: 0, excess: 0 };
}
