//! Members that come back: "Recovery", "Rejoining" and "Deletion" of `docs/protocol.md` as an eighth, small model.
//!
//! One metablock that is to have two copies, three nodes, holders that write, die and are recovered. Nodes are switched
//! off and come back, before they were given up or long after; one loses its disk. Recoveries wait, go on, die and
//! begin again; members that were left out rejoin; copies make sets complete; a replica in no set is judged, and
//! deleted late. A member's content is on its disk here: the first model has writes that are not.
//!
//! | action | stands for |
//! |---|---|
//! | `Acquire`, `BeginWrite`, `Send`, `Commit`, `Release`, `HolderDies` | a holder, as in the first model |
//! | `Begin`, `Promise`, `Settle`, `Finish` | `BeginRecovery`, `PromiseEpoch`, `PullReplica` and `StampReplica`, `FinishRecovery`: `ebb-master` recovery |
//! | `Rejoin`, `Copy`, `Mend`, `Record` | `ebb-master` repair: `PromiseEpoch` and `StampReplica`; `PullReplica`; `MasterChangeSet` |
//! | `Judge`, `Delete` | `DescribeReplicas` of the set's members; `DeleteReplicas`: `ebb-master` deletes |
//! | `Down`, `TimePasses`, `Up`, `LoseDisk` | nodes; time after which a silent node is waited for no longer |
//!
//! Between the look at the members and the deletion no disk is lost here. The master looks just before it deletes. A
//! disk that is lost in that moment, and another copy that is then deleted, are more than the one failure that must
//! cost nothing.

mod actions;
mod mutant;
mod state;
#[cfg(test)]
mod tests;

pub use actions::Action;
pub use mutant::Mutant;
pub use state::State;

use stateright::{Model, Property};

/// No act of a master lowers the number of good copies too far.
pub const KEPT: &str = "the number of nodes with the committed content never falls below what is wanted, or what there was, by an act of the master";
/// A member has the content of its set.
pub const EQUAL: &str = "every member of the recorded set has what is committed, unless its disk was lost";
/// A recovery waits for a member that boots.
pub const WAITED: &str = "a recovery goes on without a member only if it was silent for long";
/// Nothing waits for ever.
pub const COMPLETE: &str = "when all nodes are there, sets become complete, and what is in no set goes";
/// As ever.
pub const SURVIVES: &str = "what was acknowledged is committed content";

/// How much may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Nodes.
    pub nodes: usize,
    /// Writes.
    pub writes: u8,
    /// Epochs, of holders and recoveries together.
    pub epochs: u8,
    /// Times that a node is switched off.
    pub downs: u8,
    /// Copies.
    pub copies: u8,
    /// Disks that are lost.
    pub losses: u8,
}

impl Bounds {
    /// Nodes come back early and late.
    pub const RETURNS: Self = Self { nodes: 3, writes: 2, epochs: 4, downs: 2, copies: 1, losses: 0 };
    /// And a disk is lost.
    pub const LOSSES: Self = Self { nodes: 3, writes: 1, epochs: 4, downs: 2, copies: 2, losses: 1 };
    /// Recoveries begin again and again.
    pub const AGAIN: Self = Self { nodes: 3, writes: 1, epochs: 5, downs: 2, copies: 2, losses: 0 };
    /// There are as many nodes as copies.
    pub const FEW: Self = Self { nodes: 2, writes: 2, epochs: 5, downs: 3, copies: 2, losses: 0 };
    /// Every case.
    pub const ALL: [Self; 4] = [Self::RETURNS, Self::LOSSES, Self::AGAIN, Self::FEW];
}

/// The model: its bounds, and the seeded bug, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Returns {
    /// How much may happen.
    pub bounds: Bounds,
    /// `None`: the protocol as documented.
    pub mutant: Option<Mutant>,
}

impl Returns {
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

impl Model for Returns {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::granted()]
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
        vec![
            Property::always(KEPT, |_: &Self, state: &State| !state.was_lowered),
            Property::always(EQUAL, |_: &Self, state: &State| state.members_are_equal()),
            Property::always(WAITED, |_: &Self, state: &State| !state.was_hasty),
            Property::always(COMPLETE, |model: &Self, state: &State| actions::becomes_complete(model, state)),
            Property::always(SURVIVES, |_: &Self, state: &State| state.acknowledged & !state.content == 0),
            Property::sometimes("a recovery has gone on without a member", |_: &Self, state: &State| {
                !state.left_out.is_empty() && !state.recovering
            }),
            Property::sometimes("a member that was left out is back without a copy", |_: &Self, state: &State| {
                state.has_rejoined && state.copies == 0
            }),
            Property::sometimes("a member that was left out has missed a write", |_: &Self, state: &State| {
                state.holder.is_none() && state.left_out.iter().any(|one| state.committed != (one.epoch, 0))
            }),
            Property::sometimes("what was in no set has been deleted", |_: &Self, state: &State| state.was_deleted),
            Property::sometimes("a deletion comes after its node has joined the set", |_: &Self, state: &State| {
                state.deletions.iter().any(|(node, _)| state.is_member(*node))
            }),
            Property::sometimes("a recovery waits", |_: &Self, state: &State| {
                state.recovering && state.settled.is_none() && state.waits()
            }),
            Property::sometimes("a disk was lost, and the set is whole again", |_: &Self, state: &State| {
                state.losses > 0 && state.good_members() == state::WANTED
            }),
        ]
    }
}
