//! The protocol of `docs/protocol.md` as a model, small enough to be checked in every reachable state.
//!
//! The model has one metablock, three replicas and a spare, two clients and one master. In it:
//! - Messages are lost, late and repeated.
//! - Members crash and lose what they have not synced.
//! - The master gives a lease holder up while the holder still trusts its lease.
//! - Members are replaced.
//! - Recoveries die and begin again.
//!
//! [`Protocol`] explores all states breadth-first with stateright, and checks each against the [`properties`]. If the
//! code and this model disagree, one of the two is wrong. `docs/protocol-model.md` names the message and the module for
//! each action.
//!
//! **Seeded bugs.** The model must be able to fail. [`Mutant`] lists mistakes that an engineer could make with
//! this protocol. One line seeds each of them. The tests demand that the checker finds every one. In addition,
//! `sometimes` properties demand that the interesting situations are reached.
//!
//! **What it leaves out:**
//! - lengths and truncation;
//! - several metablocks;
//! - bytes: a replica's content is the set of writes that it includes;
//! - the pipeline: a chain delivers the same as a single source, in fewer orders;
//! - time. Clocks appear as one assumption: a *read* lease ends at its client before the master considers it ended. The
//!   model assumes no such thing of a *write* lease. Only epochs protect it.
//!
//! **Other models.** Ten subjects have models of their own:
//! - [`sharing`]: files that several clients write through the proxy. There a whole set of members is one object.
//! - [`standins`]: members that sleep.
//! - [`guests`]: copies away from home.
//! - [`extras`]: extra copies of data that are read often.
//! - [`direct`]: writes to shared files that go to the members directly.
//! - [`opens`]: files that have lost their names.
//! - [`returns`]: members that come back.
//! - [`raid`]: copies that are given up for check metablocks.
//! - [`takeovers`]: files that a client takes over from others.
//! - [`snapshots`]: what snapshots and the live file share.
//!
//! Reading order: [`names`], [`message`], [`replica`], [`client`], [`master`], then [`actions`] (what may happen),
//! [`properties`] (what must hold), [`mutant`], [`forget`] and [`symmetry`] (why the search ends).
#![forbid(unsafe_code)]

pub mod actions;
pub mod bounds;
pub mod client;
pub mod direct;
#[cfg(test)]
pub(crate) mod explore;
pub mod extras;
pub mod forget;
pub mod guests;
pub mod history;
pub mod master;
pub mod message;
pub mod mutant;
pub mod names;
pub mod opens;
pub mod properties;
pub mod raid;
pub mod replica;
pub mod returns;
pub mod sharing;
pub mod snapshots;
pub mod standins;
pub mod state;
pub mod symmetry;
pub mod takeovers;
#[cfg(test)]
mod tests;

pub use actions::Action;
pub use bounds::Bounds;
pub use mutant::Mutant;
pub use state::State;

use stateright::{Model, Property};

/// The model: its bounds, and the seeded bug, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// How much may happen.
    pub bounds: Bounds,
    /// `None`: the protocol as documented.
    pub mutant: Option<Mutant>,
    /// Whether messages that can never matter again are dropped.
    pub forgets: bool,
    /// Whether states that differ in the names of nodes only are one.
    pub renames: bool,
}

impl Protocol {
    /// The documented protocol within these bounds.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self { bounds, mutant: None, forgets: true, renames: true }
    }

    /// The protocol with a seeded bug, within bounds in which it shows.
    #[must_use]
    pub const fn with(mutant: Mutant) -> Self {
        Self { bounds: mutant.bounds(), mutant: Some(mutant), forgets: mutant.allows_forgetting(), renames: true }
    }

    /// Whether this is the seeded bug.
    #[must_use]
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

impl Model for Protocol {
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
        if self.forgets {
            forget::forget(self, &mut next);
        }
        if self.renames {
            next = symmetry::representative(next);
        }
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
