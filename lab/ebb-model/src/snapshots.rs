//! What snapshots and the live file share, as an eleventh, small model. It goes before the code.
//!
//! One file of two metablocks with two copies each, three nodes, two clients that hold the write lease one after the other, and the
//! master. A snapshot is one entry of the log. From then on what it shows is **frozen**: a write goes to an heir, a new metablock that
//! takes the place in the live file. What the live file has lost and a snapshot shows is **kept**. A metablock has one record, whoever
//! has it. Nothing is counted: ids rise, so a snapshot has what is older than itself and was lost after it.
//!
//! Clients lose their leases while they trust them, and die. Writes come late and repeatedly, or never. The file is cut and removed.
//! Snapshots are removed in any order, and what they had is looked at step by step. The master moves copies, and seals two metablocks
//! into a RAID set. Replicas that nothing names are deleted.
//!
//! | action | stands for |
//! |---|---|
//! | `TakeLease`, `GiveBack`, `Notice`, `Expire`, `Recover` | as in the first model, for every metablock that is not frozen |
//! | `Grant`, `Pull`, `Swap` | `Grant` with `heir_of`, `PullReplica`, `Swap`; `ebb-client/src/write/thaw.rs`, `ebb-meta/src/raid/thaw.rs` |
//! | `Write`, `Deliver` | `WriteReplica`, to each member |
//! | `Cut`, `RemoveFile` | `SetAttr`, `Reap` |
//! | `Take`, `Remove`, `Prune`, `EndPrune` | `TakeSnapshot`, `RemoveSnapshot`, `PruneSnapshot` (log) |
//! | `Seal`, `Retire` | the steps of [`crate::raid`] as one; `RetireReplica` |
//! | `BeginMove`, `Copy`, `RecordMove` | a step of repair; `PullReplica`, `MasterChangeSet` or `MoveFrozen` |
//! | `Judge` | `DeleteReplicas` of what is freed or in excess |
//!
//! It leaves out:
//! - names and attributes, which the log orders, and lengths
//! - decoding, disks that are lost, and the lives of replicas: [`crate::raid`] and the first model have them
//! - recalls before a snapshot: whatever the master asks of clients, the entry is refused while one holds the file
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Leases that clients take.
    pub leases: u8,
    /// Writes, with the one that is there at first.
    pub writes: u8,
    /// How many of the file's metablocks are written: the first, or both.
    pub written: usize,
    /// Holders that are given up.
    pub losses: u8,
    /// Snapshots.
    pub snapshots: usize,
    /// Cuts and removals of the file.
    pub ends: u8,
    /// RAID sets.
    pub seals: u8,
    /// Copies by the master.
    pub moves: u8,
}

impl Bounds {
    /// Nothing.
    pub const NONE: Self =
        Self { leases: 0, writes: 1, written: 1, losses: 0, snapshots: 0, ends: 0, seals: 0, moves: 0 };
    /// Three holders, one of which is given up.
    pub const WRITES: Self = Self { leases: 3, writes: 3, losses: 1, snapshots: 3, ..Self::NONE };
    /// The file is cut and removed, and both of its metablocks are written.
    pub const ENDS: Self = Self { leases: 1, writes: 3, written: 2, snapshots: 3, ends: 2, ..Self::NONE };
    /// A copy goes to another node.
    pub const MOVES: Self = Self { leases: 2, writes: 2, snapshots: 2, ends: 1, moves: 1, ..Self::NONE };
    /// Metablocks become slots.
    pub const RAID: Self = Self { leases: 2, writes: 2, losses: 1, snapshots: 2, ends: 1, seals: 1, ..Self::NONE };
    /// Slots go to another node, and die.
    pub const SLOTS: Self = Self { leases: 1, writes: 2, snapshots: 2, ends: 2, seals: 1, moves: 1, ..Self::NONE };
}

/// The model: its bounds, and the seeded bug, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Snapshots {
    /// How much may happen.
    pub bounds: Bounds,
    /// `None`: the protocol as documented.
    pub mutant: Option<Mutant>,
}

impl Snapshots {
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

impl Model for Snapshots {
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
