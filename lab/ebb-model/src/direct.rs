//! Direct writes: "Direct writes" of `docs/protocol.md` as a sixth, small model.
//!
//! Two metablocks on the same two members, two clients that each write over both of them by a ticket, and a write by
//! way of the proxy between them. Clients put bytes with the members. When the proxy learns that the bytes are there,
//! it gives versions and has the members apply the writes. Members crash and lose unsynced bytes, also put ones; the
//! proxy dies and a recovery takes the longest content; puts, reports and applications come late and repeatedly.
//!
//! | action | stands for |
//! |---|---|
//! | `AskTicket` | `SharedOp` with `direct`; `ebb-proxy` tickets |
//! | `Deliver(Put)` | `PutStaged`; `ebb-block` staging |
//! | `Report`, `Commit`, `CommitRest` | `SharedOp` with `apply`; `ebb-proxy` carry; `ebb-client` direct |
//! | `Abort` | a ticket's time is over, or its client gives it up; `DropStaged` |
//! | `Enter`, `Write`, `WriteRest` | `SharedOp` with `write` |
//! | `Deliver(Apply)` | `WriteReplica` with `staged`, or with the bytes |
//! | `FetchBack` | `ReadStaged`, or `ReadLogged` |
//! | `Sleep`, `Wake` | a power plan |
//! | `Log`, `Deliver(Log)` | `LogWrites` with `staged`, or with the bytes; the log of one node stands for all |
//! | `Answer`, `Fsync`, `Read` | the answers of the proxy |
//! | `Sync`, `Settle` | `SyncReplicas`; `DropStaged` of writes that every member has synced |
//! | `Crash`, `ProxyDies`, `Recover` | a process; `ebb-master` recovery |

mod actions;
mod mutant;
mod state;
#[cfg(test)]
mod tests;

pub use actions::Action;
pub use mutant::Mutant;
pub use state::{Message, State};

use stateright::{Model, Property};

use state::{MEMBERS, is_in};

/// One version, one content; and no write twice.
pub const CONTENT: &str = "every member has, place by place, what the proxy gave that place";
/// A write that was given up has no effect.
pub const DISCARDED: &str = "what was given up is never applied";
/// Tickets are places in a queue.
pub const ORDERED: &str = "no write comes before one that overlaps it and was there first";
/// Both metablocks or none, while the proxy lives.
pub const WHOLE: &str = "a read shows all of a write or nothing of it";
/// An answered write survives the proxy.
pub const SURVIVES: &str = "what was answered is there after the proxy is lost, unless power fails too";
/// A write that fsync acknowledged is with every member, or logged.
pub const SYNCED: &str = "what fsync acknowledged every member has synced, or it is logged";
/// A write that was read stays.
pub const STAYS: &str = "what was read never goes away";

/// If a recovery leaves half of a write, the write had been promised to no client.
pub const HALVES: &str = "a write of which half is left was neither answered nor read nor synced";
/// With [`Variant::RollsForward`] only.
pub const COMPLETED: &str =
    "a recovery completes a direct write of which a member knows, and whose bytes a member keeps";

/// The way in which a recovery treats a write over both metablocks that only one of them has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// As documented: each metablock is recovered by itself.
    Separate,
    /// Members record in memory the direct writes that they have applied, and the metablocks that these cover. They
    /// keep put bytes until the recovery is over. The recovery completes writes of which it finds half.
    RollsForward,
}

/// Bounds on the number of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Direct writes.
    pub direct: u8,
    /// Whether there is a write by way of the proxy, too.
    pub via: bool,
    /// Crashes of members.
    pub crashes: u8,
    /// Deaths of the proxy.
    pub deaths: u8,
    /// Whether members sync and clients read: without failures this proves nothing.
    pub syncs: bool,
    /// How often a member falls asleep.
    pub sleeps: u8,
}

impl Bounds {
    /// Two direct writes and one that is none, in turns.
    pub const TURNS: Self = Self { direct: 2, via: true, crashes: 0, deaths: 0, syncs: false, sleeps: 0 };
    /// A member loses the bytes that it was given.
    pub const CRASHES: Self = Self { direct: 2, via: false, crashes: 1, deaths: 0, syncs: true, sleeps: 0 };
    /// The proxy dies.
    pub const DEATHS: Self = Self { direct: 2, via: false, crashes: 0, deaths: 1, syncs: true, sleeps: 0 };
    /// Both, around one write.
    pub const BOTH: Self = Self { direct: 1, via: true, crashes: 1, deaths: 1, syncs: true, sleeps: 0 };
    /// The proxy dies, and so does every member's memory, around one write.
    pub const MEMORY: Self = Self { direct: 1, via: false, crashes: 2, deaths: 1, syncs: true, sleeps: 0 };
    /// The proxy dies twice.
    pub const AGAIN: Self = Self { direct: 1, via: false, crashes: 0, deaths: 2, syncs: true, sleeps: 0 };
    /// A member sleeps. The other one, or the proxy, fails around one write.
    pub const SLEEPS: Self = Self { direct: 1, via: false, crashes: 1, deaths: 1, syncs: true, sleeps: 1 };
    /// Every case.
    pub const ALL: [Self; 7] =
        [Self::TURNS, Self::CRASHES, Self::DEATHS, Self::BOTH, Self::MEMORY, Self::AGAIN, Self::SLEEPS];
}

/// The model: its bounds, and the seeded bug, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Direct {
    /// Bounds on the number of events.
    pub bounds: Bounds,
    /// The recovery's variant.
    pub variant: Variant,
    /// `None`: the protocol as it should be.
    pub mutant: Option<Mutant>,
}

impl Direct {
    /// The documented protocol within these bounds.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self { bounds, variant: Variant::Separate, mutant: None }
    }

    /// The variant whose recovery completes writes.
    #[must_use]
    pub const fn rolling_forward(bounds: Bounds) -> Self {
        Self { bounds, variant: Variant::RollsForward, mutant: None }
    }

    /// The protocol with a seeded bug, within bounds in which it shows.
    #[must_use]
    pub const fn with(mutant: Mutant) -> Self {
        Self { bounds: mutant.bounds(), variant: mutant.variant(), mutant: Some(mutant) }
    }

    /// Whether this is the seeded bug.
    #[must_use]
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

impl Model for Direct {
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
            Property::always(CONTENT, |_: &Self, state: &State| state.is_one_content()),
            Property::always(DISCARDED, |_: &Self, state: &State| state.has_nothing_of(state.aborted)),
            Property::always(ORDERED, |_: &Self, state: &State| !state.was_overtaken),
            Property::always(WHOLE, |_: &Self, state: &State| !state.was_torn),
            Property::always(SURVIVES, |_: &Self, state: &State| !state.was_lost),
            Property::always(SYNCED, |_: &Self, state: &State| state.is_safe(state.fsynced)),
            Property::always(STAYS, |_: &Self, state: &State| state.is_safe(state.shown)),
            Property::always(HALVES, |_: &Self, state: &State| !state.has_promised_half()),
            Property::always(COMPLETED, |_: &Self, state: &State| !state.was_not_completed),
            Property::sometimes("a recovery leaves half of a direct write", |_: &Self, state: &State| {
                (0..state::VIA).any(|write| state.was_left_half(write))
            }),
            Property::sometimes("a recovery leaves half of a write through the proxy", |_: &Self, state: &State| {
                state.was_left_half(state::VIA)
            }),
            Property::sometimes("a recovery finds a write in the log alone", |_: &Self, state: &State| {
                state.was_replayed && state.answered != 0
            }),
            Property::sometimes(
                "a member that slept fills a place after a crash of the other",
                |_: &Self, state: &State| {
                    state.was_fetched && state.sleeps > 0 && state.crashes > 0 && state.epoch == 0 && state.settled > 0
                },
            ),
            Property::sometimes("a recovery completes a write", |_: &Self, state: &State| state.was_completed),
            Property::sometimes(
                "a member takes bytes that were put before it crashed elsewhere",
                |_: &Self, state: &State| state.was_fetched && state.crashes > 0 && state.answered != 0,
            ),
            Property::sometimes("a ticket is given up, and its bytes arrive", |_: &Self, state: &State| {
                state.aborted != 0 && state.members.iter().any(|member| !member.staged.is_empty())
            }),
            Property::sometimes("both direct writes are answered", |_: &Self, state: &State| state.answered & 3 == 3),
            Property::sometimes("a write by way of the proxy comes between", |_: &Self, state: &State| {
                state.placed[0].len() == 3 && state.placed[0][1] == state::VIA && state.answered == 7
            }),
            Property::sometimes("a recovery finds one metablock ahead of the other", |_: &Self, state: &State| {
                state.epoch > 0 && state.placed[0].len() != state.placed[1].len()
            }),
            Property::sometimes("under the next proxy a write is answered", |_: &Self, state: &State| {
                state.was_answered_after
            }),
            Property::sometimes("what fsync acknowledged outlives the proxy", |_: &Self, state: &State| {
                state.epoch > 0 && state.fsynced != 0
            }),
            Property::sometimes("everything put is dropped in the end", |_: &Self, state: &State| {
                state.settled != 0 && (0..MEMBERS).all(|member| state.members[member].staged.is_empty())
            }),
            Property::sometimes("two were read", |_: &Self, state: &State| {
                is_in(0, state.shown) && is_in(1, state.shown)
            }),
        ]
    }
}
