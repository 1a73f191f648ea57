//! Files without a name: "Removed files" of `docs/protocol.md` as a seventh, small model.
//!
//! One file, a client that makes, opens and closes it, others that take its name away, and the master. The master
//! counts in its memory which clients have it open, and frees it when none has. Requests and answers come late,
//! repeatedly, or never; calls are given up; the master's process dies, and the next one learns from the client. An
//! answer of a process that died before it arrived never comes: its connections are gone before the next process
//! answers.
//!
//! | action | stands for |
//! |---|---|
//! | `Make`, `Open`, `Close`, `GiveUp` | `ebb-client/src/handles.rs`, `lease.rs` |
//! | `Forget`, `BeSilent` | `ebb-client/src/lease/returns.rs` |
//! | `Deliver` | `ebb-master/src/acquire.rs`, `leases.rs`, `shared.rs`: `Create`, `Acquire`, `Forget`, `Reclaim` |
//! | `Hear` | their answers, and `PollReply.nameless` (`ebb-client/src/lease/returns.rs`) |
//! | `Unlink`, `Ask`, `Free`, `Restart` | `ebb-master/src/upkeep.rs`, `sessions.rs` |
//! | `Reclaim` | `ebb-client/src/session/poll.rs` |

mod actions;
mod mutant;
mod state;
#[cfg(test)]
mod tests;

pub use actions::Action;
pub use mutant::Mutant;
pub use state::State;

use stateright::{Model, Property};

/// A client that has a file open can use it, also after its names are gone.
pub const KEPT: &str = "a file that is open is there";
/// No space is lost for ever.
pub const FREED: &str = "a file without a name that nobody has open is freed by asking who has it open";

/// How much may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Times that the client asks the master to open the file.
    pub opens: u8,
    /// Times that it says that it has closed it.
    pub forgets: u8,
    /// Starts of the master's process after the first.
    pub restarts: u8,
}

impl Bounds {
    /// Everything twice.
    pub const ALL: Self = Self { opens: 2, forgets: 3, restarts: 1 };
}

/// The model: its bounds, and the seeded bug, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Opens {
    /// How much may happen.
    pub bounds: Bounds,
    /// `None`: the protocol as documented.
    pub mutant: Option<Mutant>,
}

impl Opens {
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

impl Model for Opens {
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
            Property::always(KEPT, |_: &Self, state: &State| !(state.is_freed && state.handles > 0)),
            Property::always(FREED, |model: &Self, state: &State| {
                !state.is_forsaken() || actions::is_freed_by_asking(model, state)
            }),
            Property::sometimes("a file is freed", |_: &Self, state: &State| state.is_freed),
            Property::sometimes("a late request makes a closed file count as open", |_: &Self, state: &State| {
                state.is_forsaken() && !state.is_registered && state.noted.is_some()
            }),
            Property::sometimes("a late word of closing finds the file open again", |_: &Self, state: &State| {
                state.noted.is_some_and(|number| state.forgets.iter().any(|before| *before < number))
            }),
            Property::sometimes("the answer to who made it finds it without a name", |_: &Self, state: &State| {
                state.is_making && state.is_made && !state.is_named
            }),
        ]
    }
}
