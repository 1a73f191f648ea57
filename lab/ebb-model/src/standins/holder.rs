//! The holder of a write lease: its knowledge of members, and the writes that it had logged.

use crate::names::{Epoch, Version, Writes};
use crate::standins::log::{Append, Entry};
use crate::standins::state::{ALWAYS_ON, MEMBERS, State};
use crate::standins::{Mutant, Standins};

/// A call to the logs that is under way, and the logs that have answered it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Attempt {
    /// The call.
    pub append: Append,
    /// Bits by place.
    pub answered: u8,
}

/// A client with the write lease. It never learns that the lease is over.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Holder {
    /// Of the lease.
    pub epoch: Epoch,
    /// The last version given out.
    pub last: Version,
    /// By member: the version that it has synced, as far as it reported.
    pub known: [Version; MEMBERS],
    /// Up to here writes are logged.
    pub logged: Version,
    /// Up to here the logs were asked to cut.
    pub cut: Version,
    /// The call that is under way.
    pub attempt: Option<Attempt>,
}

impl Holder {
    /// A holder of members that all have `at`.
    #[must_use]
    pub const fn new(epoch: Epoch, at: Version) -> Self {
        Self { epoch, last: at, known: [at; MEMBERS], logged: at, cut: at, attempt: None }
    }

    /// The version that every member has synced.
    #[must_use]
    pub fn settled(&self) -> Version {
        self.known.into_iter().min().unwrap_or(self.last)
    }

    /// Up to where fsync returns.
    #[must_use]
    pub fn safe(&self) -> Version {
        self.settled().max(self.logged)
    }
}

/// A program writes.
pub fn write(state: &mut State, place: usize) {
    let write = state.history.writes;
    state.history.writes += 1;
    let holder = &mut state.holders[place];
    let version = holder.last.successor(holder.epoch);
    state.sent.push(Entry { version, predecessor: holder.last, write });
    holder.last = version;
}

/// fsync has the writes logged that are neither settled nor logged yet.
pub fn log(protocol: &Standins, state: &mut State, place: usize) {
    let received = state.nodes.iter().map(|node| node.replica.received.version);
    let (least, most) = (received.clone().min().unwrap_or_default(), received.max().unwrap_or_default());
    let holder = &mut state.holders[place];
    let mut after = holder.safe();
    if protocol.is(Mutant::StartsAfterReceived) {
        after = after.max(most.min(holder.last));
    }
    let durable = if protocol.is(Mutant::CutsWhatWasReceived) { least } else { holder.settled() };
    let cut = durable.min(holder.logged).max(holder.cut);
    let append = Append { epoch: holder.epoch, after, upto: holder.last, cut };
    holder.attempt = Some(Attempt { append, answered: 0 });
    state.calls += 1;
    if !state.appends.contains(&append) {
        state.appends.push(append);
        state.appends.sort_unstable();
    }
}

/// A log has taken a call. If the holder waits for this call, and enough logs have taken it, its writes are safe.
pub fn on_logged(protocol: &Standins, state: &mut State, append: &Append, place: usize) {
    let alone = protocol.is(Mutant::AcknowledgesWithOne);
    for holder in &mut state.holders {
        let Some(attempt) = holder.attempt.as_mut().filter(|attempt| attempt.append == *append) else { continue };
        attempt.answered |= 1 << place;
        let has_mirror = attempt.answered & !(1 << ALWAYS_ON) != 0;
        if attempt.answered & (1 << ALWAYS_ON) != 0 && (has_mirror || alone) {
            holder.logged = holder.logged.max(append.upto);
            holder.cut = holder.cut.max(append.cut);
            holder.attempt = None;
        }
    }
}

/// fsync returns as soon as it may: every safe write counts as acknowledged.
pub fn acknowledge(state: &mut State) {
    for holder in &state.holders {
        let safe = holder.safe();
        let of = state.sent.iter().filter(|entry| entry.version.epoch == holder.epoch && entry.version <= safe);
        let acknowledged = of.fold(Writes::NONE, |all, entry| all.with(entry.write));
        state.history.firm = state.history.firm.and(acknowledged);
    }
}
