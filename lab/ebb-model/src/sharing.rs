//! Files that several clients write, by way of the proxy: "Shared files" of `docs/protocol.md` as a second, smaller model.
//!
//! Two clients, a proxy and the master share one file, which is a log of writes. The file is held by a client or by the
//! proxy, moves from one to the other and back; the proxy's process dies and starts again, is given up while it still
//! believes in its lease, and all members lose power. Messages are lost, late and repeated. A set of members, as the
//! first model shows it, is one thing here ([`store`]): a file that is fenced by epochs, with received and synced
//! content.
//!
//! [`properties`] says: each write is carried out once at most, behind all writes that had been answered when it began;
//! acknowledged writes are on disks; another client's write, once shown, never goes away; and an answered write
//! survives the proxy. [`mutant`] lists the bugs that the tests seed.
//!
//! It leaves out ranges (each write goes to the end, so that one that is done twice shows), several files, and reads of
//! a holder of an exclusive lease. Clocks appear as one assumption: a proxy that is cut off stops answering reads
//! before the master gives its lease to another holder.
//!
//! Reading order: [`log`], [`store`], [`message`], [`client`], [`proxy`], [`history`], [`state`], then [`actions`],
//! [`properties`], [`mutant`], [`forget`].

pub mod actions;
pub mod client;
pub mod forget;
pub mod history;
pub mod log;
pub mod message;
pub mod mutant;
pub mod properties;
pub mod proxy;
pub mod state;
pub mod store;
#[cfg(test)]
mod tests;

pub use actions::Action;
pub use mutant::Mutant;
pub use state::State;

use stateright::{Model, Property};

use crate::names::Epoch;

/// How much may happen. Messages have no bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Writes by all clients together (at most 4).
    pub writes: u8,
    /// Calls of fsync by all clients together.
    pub syncs: u8,
    /// Reads by all clients together.
    pub reads: u8,
    /// Highest epoch: each write lease and each recovery takes one.
    pub epoch: Epoch,
    /// Deaths of the proxy's process.
    pub deaths: u8,
    /// Losses of power by all members together.
    pub power_cuts: u8,
}

impl Bounds {
    /// A file moves to the proxy, back, and to the proxy again, with messages of each stay coming late.
    pub const MOVES: Self = Self { writes: 2, syncs: 1, reads: 0, epoch: 3, deaths: 0, power_cuts: 0 };
    /// The proxy dies and starts again, and the members' power fails as well.
    pub const DEATHS: Self = Self { writes: 2, syncs: 1, reads: 0, epoch: 2, deaths: 1, power_cuts: 1 };
    /// Readers of others' writes, while the proxy is lost.
    pub const READS: Self = Self { writes: 1, syncs: 0, reads: 1, epoch: 3, deaths: 1, power_cuts: 1 };
}

/// The model: its bounds, and the seeded bug, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// How much may happen.
    pub bounds: Bounds,
    /// `None`: the protocol as documented.
    pub mutant: Option<Mutant>,
    /// Whether messages that can never matter again are dropped.
    pub forgets: bool,
}

impl Sharing {
    /// The documented protocol within these bounds.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self { bounds, mutant: None, forgets: true }
    }

    /// The protocol with a seeded bug, within bounds in which it shows.
    #[must_use]
    pub const fn with(mutant: Mutant) -> Self {
        Self { bounds: mutant.bounds(), mutant: Some(mutant), forgets: false }
    }

    /// Whether this is the seeded bug.
    #[must_use]
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

impl Model for Sharing {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions::enumerate(self, state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        actions::perform(self, &mut next, action);
        if self.forgets {
            forget::forget(&mut next);
        }
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
