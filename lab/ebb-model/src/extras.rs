//! Extra copies of often read data: "Extra copies" of `docs/protocol.md` as a fifth, small model.
//!
//! There is one metablock, with one volume beside its set for an extra copy. The set is one thing here: the other
//! models show its inside. A writer, a reader with leases, a reader without and the master act on them.
//!
//! The copy is made while others may take the lease. The lease takes the extra copy away. A replica left on the volume
//! is found and deleted. The master forgets everything that is not in its log. Hints about extra copies, and deletions,
//! come late and repeatedly.
//!
//! | action | stands for |
//! |---|---|
//! | `BeginCopy`, `Pull`, `EndCopy` | `ebb-master/src/copies/extras/copy.rs`, `PullReplica` |
//! | `TakeLease`, `Write`, `GiveBack` | `acquire_write` and `give_lease` of `ebb-meta`, `ebb-client` |
//! | `TakeBack` | the plan of `ebb-master/src/copies/extras.rs` |
//! | `Judge`, `Delete` | `ebb-master/src/deletes.rs`, `DeleteReplicas` |
//! | `Restart`, `Report` | a new master process, and the volume's report to it |
//! | `Acquire`, `Recall`, `Hint`, `Hear`, `Read` | `ebb-client/src/read/fetch.rs` and `extras.rs` |
//! | `TakeMap`, `ReadByMap` | `Client::read_by_map` |

mod actions;
mod mutant;
mod state;
#[cfg(test)]
mod tests;

pub use actions::Action;
pub use mutant::Mutant;
pub use state::State;

use stateright::{Model, Property};

/// A reader sees every write from before its read began.
pub const FRESH: &str = "a read shows every write that had returned when it began";
/// A recorded extra copy has the content of the set.
pub const EQUAL: &str = "an extra copy that is recorded has what the set has";
/// A recorded extra copy is on its volume.
pub const THERE: &str = "an extra copy that is recorded is there";

/// How much may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Write leases.
    pub leases: u8,
    /// Writes.
    pub writes: u8,
    /// Extra copies begun.
    pub copies: u8,
    /// Starts of the master's process after the first.
    pub restarts: u8,
}

impl Bounds {
    /// Everything twice.
    pub const ALL: Self = Self { leases: 2, writes: 2, copies: 2, restarts: 1 };
}

/// The model: its bounds, and the seeded bug, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Extras {
    /// How much may happen.
    pub bounds: Bounds,
    /// `None`: the protocol as documented.
    pub mutant: Option<Mutant>,
}

impl Extras {
    /// The documented protocol within these bounds.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self { bounds, mutant: None }
    }

    /// The protocol with a seeded bug.
    #[must_use]
    pub const fn with(mutant: Mutant) -> Self {
        Self { bounds: Bounds::ALL, mutant: Some(mutant) }
    }

    /// Whether this is the seeded bug.
    #[must_use]
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

impl Model for Extras {
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
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(FRESH, |_: &Self, state: &State| !state.was_stale),
            Property::always(EQUAL, |_: &Self, state: &State| {
                state.volume.is_none_or(|replica| !state.recorded || replica.content == Some(state.written))
            }),
            Property::always(THERE, |_: &Self, state: &State| !state.recorded || state.volume.is_some()),
            Property::sometimes("an extra copy is read", |_: &Self, state: &State| state.was_served),
            Property::sometimes("a copy that a writer overtook is not recorded", |_: &Self, state: &State| {
                state.volume.is_some_and(|replica| replica.content.is_none()) && state.copy.is_none()
            }),
            Property::sometimes("a deletion comes late and finds another copy", |_: &Self, state: &State| {
                state.recorded && !state.deletions.is_empty()
            }),
            Property::sometimes("a reader hears of an extra copy that is no more", |_: &Self, state: &State| {
                !state.recorded && state.reader.is_some_and(|map| map.extra && map.version == state.committed)
            }),
        ]
    }
}
