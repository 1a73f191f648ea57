//! Files that a client takes over: "Takeovers" in `docs/protocol.md` as a tenth, small model.
//!
//! One file, two clients with handles of it, the proxy and the master. The second client takes the file over, under its own lease or by
//! way of the proxy. Requests arrive late, answers get lost, leases are lost while their holders trust them, and the proxy dies.
//!
//! | action | stands for |
//! |---|---|
//! | `Open` | `ebb-client/src/handles.rs` |
//! | `Acquire`, `GiveBack`, `Notice` | `ebb-client/src/lease.rs`, `lease/recall.rs` |
//! | `Join` | `JoinShared`; `ebb-proxy/src/files.rs` |
//! | `Expire` | the end of a session, and the recovery of its file; `ebb-master` |
//! | `Enter`, `Act` | `ebb-client/src/write.rs`, in front of the gate and behind it |
//! | `Send`, `Deliver(Write)` | `SharedOp` with `write` |
//! | `Begin`, `Deliver(Count)`, `Hear`, `GiveUp` | `ebb-client/src/takeover.rs`; `MetaOp.take_over` |
//! | `Deliver(TakeOver)`, `EndStay` | `SharedOp` with `take_over`; `ebb-proxy/src/carry.rs`, `front.rs` |
//! | `ProxyDies`, `ProxyGivesBack` | a process; `ebb-proxy/src/files.rs` |

mod actions;
mod mutant;
mod state;
#[cfg(test)]
mod tests;

pub use actions::Action;
pub use mutant::Mutant;
pub use state::State;

use stateright::{Model, Property};

/// What a takeover is for.
pub const FENCED: &str = "no older handle changes the file after a takeover was answered";
/// Nobody else is kept from writing.
pub const FRESH: &str = "a handle that was opened after all takeovers is not refused";

/// How much may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Handles of each client.
    pub handles: usize,
    /// Leases that the master gives.
    pub grants: u8,
    /// Attempts to take the file over.
    pub attempts: u8,
    /// Leases that are lost, or proxies that die.
    pub losses: u8,
}

impl Bounds {
    /// Two attempts, and a loss.
    pub const ALL: Self = Self { handles: 2, grants: 3, attempts: 2, losses: 1 };
}

/// The model: its bounds, and the seeded bug, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Takeovers {
    /// How much may happen.
    pub bounds: Bounds,
    /// `None`: the protocol as documented.
    pub mutant: Option<Mutant>,
}

impl Takeovers {
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

impl Model for Takeovers {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::opened()]
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
            Property::always(FENCED, |_: &Self, state: &State| !state.seen.older_wrote),
            Property::always(FRESH, |_: &Self, state: &State| !state.seen.fresh_refused),
            Property::sometimes("a lease's holder takes over", |_: &Self, state: &State| state.seen.by_lease),
            Property::sometimes("a file is taken over by way of the proxy", |_: &Self, state: &State| {
                state.seen.by_proxy
            }),
            Property::sometimes("an older handle is refused after a takeover", |_: &Self, state: &State| {
                state.seen.older_refused
            }),
            Property::sometimes(
                "a write that was sent before a takeover arrives after it",
                |_: &Self, state: &State| state.seen.late_write,
            ),
            Property::sometimes("a handle opened after a takeover writes", |_: &Self, state: &State| {
                state.seen.fresh_wrote
            }),
            Property::sometimes("a takeover whose answer was lost is done again", |_: &Self, state: &State| {
                state.is_answered() && state.count == 2
            }),
        ]
    }
}
