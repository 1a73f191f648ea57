//! The master: its record, and a recovery that is under way.

use crate::names::{Epoch, Version, Writes};
use crate::replica::Copy;
use crate::standins::log::{Entry, made_up};
use crate::standins::state::{ALWAYS_ON, MEMBERS, State};
use crate::standins::{Mutant, Standins};

/// The record of the master.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Master {
    /// Of the file.
    pub epoch: Epoch,
    /// Whether a client has the write lease under it.
    pub held: bool,
    /// Synced by the whole set.
    pub committed: Version,
    /// By node: whether its replica is a member.
    pub set: [bool; MEMBERS],
    /// The file is being recovered.
    pub recovery: Option<Recovery>,
}

/// A recovery, under the file's epoch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Recovery {
    /// The process that began it is gone: it must be begun again.
    pub dead: bool,
    /// By place: whether this log's promise and writes are there.
    pub read: [bool; MEMBERS + 1],
    /// The logged writes that were found.
    pub found: Vec<Entry>,
    /// By member: the version that it reported.
    pub reported: [Option<Version>; MEMBERS],
    /// The version to which members are made equal, once one has it.
    pub base: Option<Version>,
    /// By member: whether it is at (epoch, 0).
    pub stamped: [bool; MEMBERS],
}

impl Recovery {
    /// Whether all logs were read that must be.
    #[must_use]
    pub fn has_gathered(&self, protocol: &Standins, state: &State) -> bool {
        let node_is_read = |place: usize| {
            let node = &state.nodes[place];
            self.read[place] || node.is_lost || (!node.is_awake && protocol.is(Mutant::SkipsWhoSleeps))
        };
        self.read[ALWAYS_ON] && (state.always_on.is_whole() || (0..MEMBERS).all(node_is_read))
    }

    /// The version that members are to reach, if enough is known to go on.
    #[must_use]
    pub fn goal(&self, protocol: &Standins, committed: Version) -> Option<Version> {
        if self.base.is_some() {
            return self.base;
        }
        let base = self.reported.iter().flatten().max().copied()?;
        let logged = self.found.last().map_or(Version::ZERO, |entry| entry.version);
        let is_whole = base >= logged || protocol.is(Mutant::GoesOnWithoutLogged);
        (base >= committed && is_whole).then_some(base)
    }
}

/// The holder is given up, or a recovery died: it begins, under an epoch of its own.
pub fn begin_recovery(state: &mut State) {
    state.master.epoch += 1;
    state.master.held = false;
    state.history.again |= state.master.recovery.is_some() && state.history.replayed;
    state.master.recovery = Some(Recovery::default());
}

/// A log takes nothing below the epoch any more; its writes are read.
pub fn read(protocol: &Standins, state: &mut State, place: usize) {
    let epoch = state.master.epoch;
    let Some(mut recovery) = state.master.recovery.take() else { return };
    let log = state.log_mut(place);
    log.promise(epoch);
    recovery.read[place] = true;
    if !protocol.is(Mutant::RecoveryIgnoresLogs) {
        recovery.found.extend(log.entries.iter().copied());
    }
    recovery.found.sort_unstable();
    recovery.found.dedup();
    if protocol.is(Mutant::PromiseDropsWrites) {
        log.entries.clear();
    }
    state.master.recovery = Some(recovery);
}

/// A member promises the epoch and reports its version.
pub fn promise(state: &mut State, place: usize) {
    let replica = &mut state.nodes[place].replica;
    replica.promised = state.master.epoch;
    replica.sync();
    let version = replica.synced.version;
    if let Some(recovery) = &mut state.master.recovery {
        recovery.reported[place] = Some(version);
    }
}

/// A member that has promised applies the logged writes that it lacks, as far as each follows the one before.
pub fn replay(state: &mut State, place: usize) {
    let Some(recovery) = &mut state.master.recovery else { return };
    let before = state.nodes.iter().fold(Writes::NONE, |all, node| all.and(node.replica.synced.writes));
    let replica = &mut state.nodes[place].replica;
    replica.received = made_up(replica.received, &recovery.found);
    replica.sync();
    recovery.reported[place] = Some(replica.synced.version);
    if replica.synced.writes.0 & state.history.firm.0 & !before.0 != 0 {
        state.history.replayed = true;
        state.history.mirrored |= !state.always_on.is_whole();
    }
}

/// A member is made equal to the others, and is at (epoch, 0).
pub fn stamp(protocol: &Standins, state: &mut State, place: usize) {
    let (epoch, committed) = (state.master.epoch, state.master.committed);
    let Some(recovery) = &mut state.master.recovery else { return };
    let Some(base) = recovery.goal(protocol, committed) else { return };
    // A member that has the base is stamped as it is; another one pulls from a member that is still there.
    let has_base = |other: &usize| recovery.reported[*other] == Some(base) && state.nodes[*other].answers();
    let Some(source) = [place, 1 - place].into_iter().find(has_base) else { return };
    recovery.base = Some(base);
    recovery.stamped[place] = true;
    let content = state.nodes[source].replica.synced.writes;
    let replica = &mut state.nodes[place].replica;
    replica.received = Copy { version: Version::stamp(epoch), writes: content };
    replica.promised = epoch;
    replica.sync();
}

/// The set is recorded. A member that sleeps by the plan is waited for. A member that was not reached is not in the
/// set, which counts as the failure of one disk: one copy is left.
pub fn finish(state: &mut State) {
    state.losses += u8::from(is_one_left_out(state));
    let Some(recovery) = state.master.recovery.take() else { return };
    state.master.set = recovery.stamped;
    state.master.committed = Version::stamp(state.master.epoch);
}

/// Whether a member that is there would not be in the set.
#[must_use]
pub fn is_one_left_out(state: &State) -> bool {
    let is_left_out = |recovery: &Recovery, place: usize| {
        state.master.set[place] && !recovery.stamped[place] && !state.nodes[place].is_lost
    };
    state.master.recovery.as_ref().is_some_and(|recovery| (0..MEMBERS).any(|place| is_left_out(recovery, place)))
}

/// Whether the writes in a log are not needed any more.
#[must_use]
pub fn is_over(protocol: &Standins, state: &State, place: usize) -> bool {
    let (master, log) = (&state.master, state.log(place));
    if master.recovery.is_some() && !protocol.is(Mutant::JudgesDuringRecovery) {
        return false;
    }
    let is_past = master.epoch > log.epoch || (master.epoch == log.epoch && !master.held);
    is_past || log.last().is_none_or(|last| master.committed >= last)
}
