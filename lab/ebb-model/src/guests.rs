//! Copies that lie away from home: "Guests" of `docs/power/placement-and-repair.md` as a fourth, small model.
//!
//! One metablock with two copies, whose homes the layout has chosen once and for all, and two more nodes. Plans switch
//! nodes off and on. A copy whose home is off lies with an active node, as a guest. So may a copy from the beginning
//! whose home had too much to write. It goes home when the home is on, and has time: a copy, a change of the set, and
//! then the guest is deleted. A holder writes and is given up meanwhile; copies are begun and come to nothing; pulls
//! and deletions come late; a node dies.
//!
//! [`properties`] says: every recorded member has the writes that fsync acknowledged; the homes stay those that the
//! layout chose while their nodes live; no node has, or is to have, two copies; no plan's sleep leaves only copies that
//! sleep; and copies away from home can go home. [`mutant`] lists the bugs that the tests seed.
//!
//! **How it follows the code.**
//!
//! | here | code |
//! |---|---|
//! | [`Member::home`](state::Member::home) | `Member.home`, recorded with the set; 0 there is the node itself here |
//! | `Action::Lodge` | `ChooseReplacement`, `PullReplica`, `ChangeSet` of a holder; the first model takes them apart |
//! | `Action::GoHome`, `Action::Pull`, `Action::Record` | `ebb-master` `away`, `repair::copy`: `PullReplica`, `MasterChangeSet` |
//! | `Action::MakeUp` | `repair::choose_repair`, `placement::place` |
//! | `Action::Adopt` | `away::choose_move` where the home is lost |
//! | `Action::Judge`, `Action::Delete` | `deletes`: `DescribeReplicas`, `DeleteReplicas` with a life |
//! | `Action::Recover` | `recovery`, in one step; the first model takes it apart |
//! | `Action::Off` | a plan that `ebb_power::reach::admit` lets through: a node with the data stays on |
//!
//! It leaves out crashes that lose unsynced writes, which the first model has, and blinking, which the third has.
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
    /// Writes by all holders together (at most 8).
    pub writes: u8,
    /// Highest epoch: each write lease and each recovery takes one.
    pub epoch: u8,
    /// How often a plan switches a node off.
    pub switches: u8,
    /// Copies that the master begins.
    pub copies: u8,
    /// Nodes that die.
    pub deaths: u8,
}

impl Bounds {
    /// Homes are switched off while a file is written, and guests go home while it is written again.
    pub const WRITES: Self = Self { writes: 2, epoch: 2, switches: 2, copies: 2, deaths: 0 };
    /// Guests move on when their hosts are switched off, and copies are begun again.
    pub const MOVES: Self = Self { writes: 1, epoch: 1, switches: 3, copies: 3, deaths: 0 };
    /// The holder is given up.
    pub const RECOVERIES: Self = Self { writes: 1, epoch: 2, switches: 2, copies: 2, deaths: 0 };
    /// A node dies at any moment.
    pub const DEATHS: Self = Self { writes: 1, epoch: 2, switches: 1, copies: 2, deaths: 1 };
}

/// The model: its bounds, and the seeded bug, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Guests {
    /// How much may happen.
    pub bounds: Bounds,
    /// `None`: the protocol as documented.
    pub mutant: Option<Mutant>,
}

impl Guests {
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

impl Model for Guests {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::granted(), State::granted_away()]
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
