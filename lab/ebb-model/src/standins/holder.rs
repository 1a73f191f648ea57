//! The holder of a write lease: its knowledge of members, and the writes that it had logged.

use crate::names::{Epoch, Version, Writes};
use crate::standins::log::{Append, Entry};
use crate::standins::state::{ALWAYS_ON, MEMBERS, State};
use crate::standins::{Mutant, Standins};

/// Calls of a holder that are under way at the same time.
const CALLS_MAX: usize = 2;

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
    /// The calls that are under way, each behind the one before it.
    pub attempts: Vec<Attempt>,
}

impl Holder {
    /// A holder of members that all have `at`.
    #[must_use]
    pub const fn new(epoch: Epoch, at: Version) -> Self {
        Self { epoch, last: at, known: [at; MEMBERS], logged: at, cut: at, attempts: Vec::new() }
    }

    /// Up to where it has asked logs to go.
    #[must_use]
    pub fn asked(&self) -> Version {
        self.attempts.last().map_or_else(|| self.safe(), |attempt| attempt.append.upto)
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

/// Whether it may send a call more that goes on where the last one ends.
#[must_use]
pub fn may_go_on(holder: &Holder) -> bool {
    (1..CALLS_MAX).contains(&holder.attempts.len()) && holder.asked() < holder.last
}

/// fsync has writes logged that are neither settled nor logged yet, up to `upto`. It begins anew, or goes on behind the
/// call that is under way.
pub fn log(protocol: &Standins, state: &mut State, place: usize, upto: Version, goes_on: bool) {
    let received = state.nodes.iter().map(|node| node.replica.received.version);
    let (least, most) = (received.clone().min().unwrap_or_default(), received.max().unwrap_or_default());
    let holder = &mut state.holders[place];
    let mut after = if goes_on { holder.asked() } else { holder.safe() };
    if protocol.is(Mutant::StartsAfterReceived) {
        after = after.max(most.min(holder.last));
    }
    let durable = if protocol.is(Mutant::CutsWhatWasReceived) { least } else { holder.settled() };
    let cut = durable.min(holder.logged).max(holder.cut);
    let append = Append { epoch: holder.epoch, after, upto, cut, base: holder.safe() };
    if !goes_on {
        holder.attempts.clear();
    }
    holder.attempts.push(Attempt { append, answered: 0 });
    state.calls += 1;
    if !state.appends.contains(&append) {
        state.appends.push(append);
        state.appends.sort_unstable();
    }
}

/// A log has taken a call. If the holder waits for this call, and enough logs have taken it and those before it, its
/// writes are safe.
pub fn on_logged(protocol: &Standins, state: &mut State, append: &Append, place: usize) {
    let alone = protocol.is(Mutant::AcknowledgesWithOne);
    for holder in &mut state.holders {
        let Some(attempt) = holder.attempts.iter_mut().find(|attempt| attempt.append == *append) else { continue };
        attempt.answered |= 1 << place;
        let is_over = |attempt: &Attempt| {
            let has_mirror = attempt.answered & !(1 << ALWAYS_ON) != 0;
            attempt.answered & (1 << ALWAYS_ON) != 0 && (has_mirror || alone)
        };
        while let Some(first) = holder.attempts.first().copied().filter(is_over) {
            holder.logged = holder.logged.max(first.append.upto);
            holder.cut = holder.cut.max(first.append.cut);
            holder.attempts.remove(0);
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
