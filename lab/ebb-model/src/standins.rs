//! Members that sleep, and the logs that stand in for them: "Stand-ins" of
//! `docs/power/sleeping-nodes.md` as a third, small model.
//!
//! One metablock on two nodes, each with a replica and a handoff log, and the always-on node, which has a log alone. A
//! holder writes; a member sleeps, and the writes that it lacks are logged on the always-on node and on one that is
//! awake; it wakes and gets them; logs are cut. The holder is given up, recovery reads the logs, has members make up
//! for missing writes, goes on without a member that sleeps, dies and begins again. One disk is lost for good, or one
//! process crashes and loses unsynced writes. Messages come late and repeatedly.
//!
//! [`properties`] says: the writes that fsync acknowledged can be put together from the rest, after any one failure;
//! every member has them before the file has another holder; and every node that may answer a read has them. [`mutant`]
//! lists the bugs that the tests seed.
//!
//! **How it follows the code.**
//!
//! | here | code |
//! |---|---|
//! | [`holder::Holder`]: `known`, `logged`, `cut` | `Channel` of `ebb-client`: `settled` is the least of its peers' `synced`, `logged`, `cut` |
//! | `Action::Log`: from the settled or logged version, up to some write | `handoff.rs`: `lack`; `Channel::pending` |
//! | `Action::LogMore`: the calls of one fsync are under way together | `handoff.rs`: `log_on_nodes` |
//! | a log takes a call only behind its `base`, or behind what it holds | `Book::gap`, `HandoffLog::behind_others` |
//! | `Action::Deliver` | `WriteReplica`, and `FeedReplica`, by which the member gets the same write from the log |
//! | `Action::Append` at the always-on node | `ebb-master` `handoff::append`: the file's own epoch, and held; then `Book::check` |
//! | `Action::Append` at a node | `HandoffLog::append`: `Book::check`, one record, one sync |
//! | acknowledged when the always-on node and another one have logged | `handoff.rs`: `log_on_nodes`, then `logged` |
//! | `Action::Replace`, with `Action::Log` before and after it | `write/repair.rs`; `ebb-client` `lack.rs`: `holds_settled` |
//! | `Action::Tidy` | `ebb-master` `handoff::is_over`; `ebb-block` `handoff::tidy`, whose answer names versions, so that a late one cuts no more |
//! | `Action::ReadOwn`, `Action::ReadMirror` | `handoff::gather`: promise, read; all nodes that live if the own log is not whole |
//! | `Action::Promise`, `Action::Replay`, `Action::Stamp`, `Action::Finish` | `recovery::run`: `promise`, `handoff::replay`, `settle_all`, `finish` |
//! | `Action::Lose` of the always-on node's log | `HandoffLog::open` finds damage or nothing, and the master starts anew |
//! | `Action::Trust` | `ebb-master` `doubt`: no file is left that was held, or not recovered, when the log was found damaged |
//!
//! It leaves out everything that the first model shows of members (lengths, boot ids, stamps that come late), and
//! clocks. The code also looks, after the logs have answered, whether its session is still believed; here a holder
//! never learns that its lease is over, and the logs' fences alone protect. A log of several files is several logs.
//!
//! Reading order: [`log`], [`holder`], [`recovery`], [`state`], then [`actions`], [`properties`], [`mutant`].

pub mod actions;
pub mod holder;
pub mod log;
pub mod mutant;
pub mod properties;
pub mod recovery;
pub mod state;
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
    /// Writes by all holders together (at most 8).
    pub writes: u8,
    /// Highest epoch: each write lease and each recovery takes one.
    pub epoch: Epoch,
    /// How often holders have something logged. Each call may be taken late, and more than once.
    pub calls: u8,
    /// How often a node falls asleep.
    pub sleeps: u8,
    /// Disks that are lost for good: a node with replica and log, or the always-on node's log. A member that a recovery
    /// goes on without counts as one.
    pub losses: u8,
    /// Processes that lose unsynced writes.
    pub crashes: u8,
}

impl Bounds {
    /// A member sleeps, a process crashes, and the holder is given up.
    pub const SLEEPS: Self = Self { writes: 2, epoch: 2, calls: 2, sleeps: 1, losses: 0, crashes: 1 };
    /// One disk is lost at any moment.
    pub const LOSSES: Self = Self { writes: 2, epoch: 2, calls: 2, sleeps: 0, losses: 1, crashes: 0 };
    /// The same with recoveries that die and begin again.
    pub const AGAIN: Self = Self { writes: 1, epoch: 3, calls: 1, sleeps: 1, losses: 1, crashes: 0 };
    /// Two holders have their writes logged, and recoveries die, with calls coming late.
    pub const LEASES: Self = Self { writes: 2, epoch: 3, calls: 2, sleeps: 0, losses: 0, crashes: 0 };
}

/// The model: its bounds, and the seeded bug, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Standins {
    /// How much may happen.
    pub bounds: Bounds,
    /// `None`: the protocol as documented.
    pub mutant: Option<Mutant>,
    /// Whether calls that can never matter again are dropped, and states that differ in the names of nodes only are one.
    pub reduces: bool,
}

impl Standins {
    /// The documented protocol within these bounds.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self { bounds, mutant: None, reduces: true }
    }

    /// The protocol with a seeded bug, within bounds in which it shows.
    #[must_use]
    pub const fn with(mutant: Mutant) -> Self {
        Self { bounds: mutant.bounds(), mutant: Some(mutant), reduces: true }
    }

    /// Whether this is the seeded bug.
    #[must_use]
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

impl Model for Standins {
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
        if self.reduces {
            next = next.reduced();
        }
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
