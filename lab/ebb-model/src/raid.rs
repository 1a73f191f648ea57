//! RAID sets over metablocks: copies are given up for a check metablock, as another small model.
//!
//! Three files of one metablock each, with two copies; RAID sets of two slots and one row. An encoder reads the slots,
//! writes the check, and proves it. The leader seals the RAID set, freezes its members, thins their sets, and deletes the
//! copies. Meanwhile clients take leases, write, are given up and recovered. A write to the first file after its Seal
//! thaws it: an heir takes its place. Files are removed, and what the RAID set needs of them stays as ballast, until a
//! repacking has put the living slot into another RAID set. Disks are lost, nodes crash and are cut off, leaders change.
//!
//! [`properties`] says: what fsync acknowledged can be put together from what is left after any one loss; a recorded
//! check is the code of exactly its slots' versions; what is frozen has one version; nothing that a record names is
//! deleted; what a file has lost can be retired. [`mutant`] lists the bugs that the tests seed.
//!
//! It leaves out bytes and sums (a content is a set of writes), lengths, pieces of a metablock, several RAID sets at a
//! time, room, and blinking.
//!
//! Reading order: [`state`], [`actions`], [`properties`], [`mutant`].

pub mod actions;
pub mod mutant;
pub mod properties;
pub mod state;
#[cfg(test)]
mod tests;

pub use actions::Action;
pub use mutant::Mutant;
pub use state::State;

use stateright::{Model, Property};

/// How much may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// Leases that clients take.
    pub leases: u8,
    /// Writes by all holders together (at most 8).
    pub writes: u8,
    /// Holders that are given up.
    pub recoveries: u8,
    /// Attempts to encode (at most 3).
    pub attempts: u8,
    /// Disks that are lost with their nodes.
    pub losses: u8,
    /// Replicas that lose their content. Each loss of either kind waits until the last one has been made good.
    pub spoils: u8,
    /// Nodes that crash, and lose what they have not synced.
    pub crashes: u8,
    /// Changes of the lead.
    pub restarts: u8,
    /// Nodes that are cut off for a while.
    pub absences: u8,
    /// Files that are removed.
    pub removals: u8,
    /// Frozen metablocks that are written.
    pub thaws: u8,
}

impl Bounds {
    /// Encoding alone.
    pub const ENCODING: Self = Self {
        leases: 0,
        writes: 1,
        recoveries: 0,
        attempts: 1,
        losses: 0,
        spoils: 0,
        crashes: 0,
        restarts: 0,
        absences: 0,
        removals: 0,
        thaws: 0,
    };
    /// Writers come and go while files are encoded, twice.
    pub const WRITERS: Self = Self { leases: 2, writes: 3, recoveries: 1, attempts: 2, ..Self::ENCODING };
    /// What was encoded is written, beside a node that is cut off.
    pub const THAWS: Self = Self { leases: 2, writes: 3, thaws: 1, absences: 1, ..Self::ENCODING };
    /// A node is lost, a replica spoiled, and another node is cut off.
    pub const LOSSES: Self = Self { losses: 1, spoils: 1, absences: 1, ..Self::ENCODING };
    /// Files are removed, and a slot that lives gets into another RAID set.
    pub const REPACKING: Self = Self { removals: 1, attempts: 2, absences: 1, ..Self::ENCODING };
    /// Unsynced bytes are lost, and what leaders had in memory.
    pub const CRASHES: Self = Self { leases: 1, writes: 2, attempts: 2, crashes: 1, restarts: 2, ..Self::ENCODING };
}

/// The model: its bounds, and the seeded bug, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Raid {
    /// How much may happen.
    pub bounds: Bounds,
    /// `None`: the protocol as documented.
    pub mutant: Option<Mutant>,
}

impl Raid {
    /// The documented protocol within these bounds.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self { bounds, mutant: None }
    }

    /// The protocol with a seeded bug, within bounds in which it shows.
    #[must_use]
    pub const fn with(mutant: Mutant) -> Self {
        Self { bounds: mutant.bounds(), mutant: Some(mutant) }
    }

    /// Whether this is the seeded bug.
    #[must_use]
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

impl Model for Raid {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::written()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions::enumerate(self, state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        actions::perform(self, &mut next, action);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
