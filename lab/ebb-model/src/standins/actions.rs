//! The actions of the model.

use crate::names::Version;
use crate::replica::{Copy, Replica};
use crate::standins::holder::{self, Holder};
use crate::standins::log::{Append, Entry, Log};
use crate::standins::state::{ALWAYS_ON, MEMBERS, State};
use crate::standins::{Mutant, Standins, recovery};

/// One step of one process. Nodes and logs go by their place, holders by the order of their leases.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A holder's program writes.
    Write(usize),
    /// A member receives a write.
    Deliver(usize, Entry),
    /// A member syncs its received writes, and reports to this holder.
    Sync(usize, usize),
    /// A holder's fsync has writes logged that members lack, up to this one.
    Log(usize, Version),
    /// It goes on behind the call that is under way.
    LogMore(usize, Version),
    /// A log takes a call of a holder.
    Append(usize, Append),
    /// A holder commits the writes that all members have.
    Commit(usize),
    /// A holder gives its lease back.
    Release(usize),
    /// A holder replaces this member, whose disk is gone or whose node is switched off. Writes are logged meanwhile.
    Replace(usize, usize),
    /// A client gets the lease.
    Take,
    /// The master gives a file without a lease holder its second member back.
    Repair(usize),
    /// A log is cut: only writes that may still be needed stay.
    Tidy(usize),
    /// A log that was lost counts as whole again: nothing that it held can be needed.
    Trust,

    /// The holder is given up, or a recovery begun again.
    BeginRecovery,
    /// The always-on node's log is read.
    ReadOwn,
    /// Another node's log is read, for the own one was lost.
    ReadMirror(usize),
    /// A member promises.
    Promise(usize),
    /// A member applies the logged writes that it lacks.
    Replay(usize),
    /// A member is made equal and stamped.
    Stamp(usize),
    /// The new set is recorded.
    Finish,

    /// A node falls asleep.
    Sleep(usize),
    /// It wakes.
    Wake(usize),
    /// A process dies, and starts again with its synced state.
    Crash(usize),
    /// A disk is lost.
    Lose(usize),
}

/// Everything that may happen in a state.
pub fn enumerate(protocol: &Standins, state: &State, actions: &mut Vec<Action>) {
    for place in 0..state.holders.len() {
        holder_actions(protocol, state, place, actions);
    }
    for place in 0..=MEMBERS {
        if state.log_answers(place) {
            actions.extend(state.appends.iter().map(|append| Action::Append(place, *append)));
            if !state.log(place).entries.is_empty() && recovery::is_over(protocol, state, place) {
                actions.push(Action::Tidy(place));
            }
        }
        fault_actions(protocol, state, place, actions);
    }
    for place in 0..MEMBERS {
        if state.nodes[place].answers() {
            actions.extend(state.sent.iter().map(|entry| Action::Deliver(place, *entry)));
            actions.extend((0..state.holders.len()).map(|holder| Action::Sync(place, holder)));
        }
    }
    master_actions(protocol, state, actions);
}

fn is_current(state: &State, holder: &Holder) -> bool {
    state.master.held && state.master.epoch == holder.epoch
}

fn holder_actions(protocol: &Standins, state: &State, place: usize, actions: &mut Vec<Action>) {
    let holder = &state.holders[place];
    if state.history.writes < protocol.bounds.writes && is_current(state, holder) {
        actions.push(Action::Write(place));
    }
    if state.calls < protocol.bounds.calls {
        let upto = |after: Version| {
            let own = state.sent.iter().map(|entry| entry.version);
            own.filter(move |version| version.epoch == holder.epoch && *version > after)
        };
        actions.extend(upto(holder.safe()).map(|upto| Action::Log(place, upto)));
        if holder::may_go_on(holder) {
            actions.extend(upto(holder.asked()).map(|upto| Action::LogMore(place, upto)));
        }
    }
    if !is_current(state, holder) {
        return;
    }
    if committable(protocol, holder) > state.master.committed {
        actions.push(Action::Commit(place));
    }
    if committable(protocol, holder) == holder.last || protocol.is(Mutant::GivesBackLogged) {
        actions.push(Action::Release(place));
    }
    let gone = (0..MEMBERS).filter(|node| !state.nodes[*node].answers() && state.nodes[1 - node].answers());
    actions.extend(gone.map(|node| Action::Replace(place, node)));
}

fn committable(protocol: &Standins, holder: &Holder) -> Version {
    if protocol.is(Mutant::CommitsLogged) { holder.safe() } else { holder.settled() }
}

fn fault_actions(protocol: &Standins, state: &State, place: usize, actions: &mut Vec<Action>) {
    let (bounds, node) = (&protocol.bounds, state.nodes.get(place));
    match node {
        Some(node) if node.is_lost => return,
        Some(node) if !node.is_awake => actions.push(Action::Wake(place)),
        Some(_) if state.sleeps < bounds.sleeps => actions.push(Action::Sleep(place)),
        _ => {}
    }
    if state.losses < bounds.losses {
        actions.push(Action::Lose(place));
    }
    let has_more = node.is_some_and(|node| node.replica.received != node.replica.synced);
    if state.crashes < bounds.crashes && (has_more || state.log(place).unsynced > 0) {
        actions.push(Action::Crash(place));
    }
}

fn master_actions(protocol: &Standins, state: &State, actions: &mut Vec<Action>) {
    let master = &state.master;
    let may_raise = master.epoch < protocol.bounds.epoch;
    if may_raise && !state.is_at_rest() {
        actions.push(Action::BeginRecovery);
    }
    if let Some(lost_at) = state.always_on.lost_at {
        let is_past = master.recovery.is_none() && (master.epoch > lost_at || !master.held);
        if is_past || protocol.is(Mutant::TrustsTooEarly) {
            actions.push(Action::Trust);
        }
    }
    if let Some(recovery) = &master.recovery {
        if !recovery.dead {
            recovery_actions(protocol, state, recovery, actions);
        }
        return;
    }
    if master.held {
        return;
    }
    if may_raise && master.set == [true; MEMBERS] {
        actions.push(Action::Take);
    }
    for place in 0..MEMBERS {
        let source = &state.nodes[1 - place];
        let has_it = source.answers() && master.set[1 - place] && source.replica.synced.version >= master.committed;
        let is_wanted = state.nodes[place].is_lost || (!master.set[place] && state.nodes[place].is_awake);
        if has_it && is_wanted {
            actions.push(Action::Repair(place));
        }
    }
}

fn recovery_actions(protocol: &Standins, state: &State, recovery: &recovery::Recovery, actions: &mut Vec<Action>) {
    let epoch = state.master.epoch;
    if !recovery.read[ALWAYS_ON] {
        actions.push(Action::ReadOwn);
        return;
    }
    if !state.always_on.is_whole() {
        let unread = (0..MEMBERS).filter(|place| !recovery.read[*place] && state.nodes[*place].answers());
        actions.extend(unread.map(Action::ReadMirror));
    }
    if !recovery.has_gathered(protocol, state) {
        return;
    }
    let goal = recovery.goal(protocol, state.master.committed);
    for place in 0..MEMBERS {
        let node = &state.nodes[place];
        if !node.answers() || !state.master.set[place] || node.replica.fence() > epoch || recovery.stamped[place] {
            continue;
        }
        match recovery.reported[place] {
            None => actions.push(Action::Promise(place)),
            Some(reported) => {
                let has_more = recovery.found.iter().any(|entry| entry.version > reported);
                if has_more && recovery.base.is_none() {
                    actions.push(Action::Replay(place));
                }
                if goal.is_some() {
                    actions.push(Action::Stamp(place));
                }
            }
        }
    }
    let may_leave_out = state.losses < protocol.bounds.losses;
    if recovery.stamped != [false; MEMBERS] && (may_leave_out || !recovery::is_one_left_out(state)) {
        actions.push(Action::Finish);
    }
}

/// Carries one action out.
pub fn perform(protocol: &Standins, state: &mut State, action: Action) {
    match action {
        Action::Write(place) => holder::write(state, place),
        Action::Deliver(place, entry) => {
            let replica = &mut state.nodes[place].replica;
            deliver(replica, &entry);
            // Where nothing crashes, received writes are as good as synced ones.
            if protocol.bounds.crashes == 0 {
                replica.sync();
            }
        }
        Action::Sync(place, holder) => sync(state, place, holder),
        Action::Log(place, upto) => holder::log(protocol, state, place, upto, false),
        Action::LogMore(place, upto) => holder::log(protocol, state, place, upto, true),
        Action::Append(place, append) => log_append(protocol, state, place, &append),
        Action::Commit(place) => state.master.committed = committable(protocol, &state.holders[place]),
        Action::Release(place) => {
            state.master.committed = committable(protocol, &state.holders[place]).max(state.master.committed);
            state.master.held = false;
        }
        Action::Replace(holder, place) => replace(state, holder, place),
        Action::Take => {
            state.master.epoch += 1;
            state.master.held = true;
            state.holders.push(Holder::new(state.master.epoch, state.master.committed));
        }
        Action::Repair(place) => {
            give_replica(state, place);
            state.master.set[place] = true;
        }
        Action::Tidy(place) => {
            let log = state.log_mut(place);
            log.entries.clear();
            log.unsynced = 0;
        }
        Action::Trust => state.always_on.lost_at = None,
        Action::BeginRecovery => recovery::begin_recovery(state),
        Action::ReadOwn => recovery::read(protocol, state, ALWAYS_ON),
        Action::ReadMirror(place) => recovery::read(protocol, state, place),
        Action::Promise(place) => recovery::promise(state, place),
        Action::Replay(place) => recovery::replay(state, place),
        Action::Stamp(place) => recovery::stamp(protocol, state, place),
        Action::Finish => recovery::finish(state),
        Action::Sleep(place) => {
            state.nodes[place].is_awake = false;
            state.sleeps += 1;
        }
        Action::Wake(place) => wake(protocol, state, place),
        Action::Crash(place) => crash(state, place),
        Action::Lose(place) => lose(protocol, state, place),
    }
    holder::acknowledge(state);
}

/// Refused below the fence; applied behind its predecessor; else a gap, or done already.
fn deliver(replica: &mut Replica, entry: &Entry) {
    if entry.version.epoch >= replica.fence() && replica.received.version == entry.predecessor {
        let writes = replica.received.writes.with(entry.write);
        replica.received = Copy { version: entry.version, writes };
    }
}

fn sync(state: &mut State, place: usize, holder: usize) {
    let (replica, holder) = (&mut state.nodes[place].replica, &mut state.holders[holder]);
    if holder.epoch >= replica.fence() {
        replica.sync();
        holder.known[place] = holder.known[place].max(replica.synced.version);
    }
}

fn log_append(protocol: &Standins, state: &mut State, place: usize, append: &Append) {
    let is_own = place == ALWAYS_ON;
    let is_of_holder = state.master.held && state.master.epoch == append.epoch;
    let is_taken = state.log(place).takes(append.epoch) && (!is_own || is_of_holder);
    if !is_taken && !protocol.is(Mutant::LogsTakeOldEpochs) {
        return;
    }
    let of_call = |entry: &&Entry| {
        entry.version.epoch == append.epoch && entry.version > append.after && entry.version <= append.upto
    };
    let entries: Vec<Entry> = state.sent.iter().filter(of_call).copied().collect();
    let is_behind = |first: &Entry| state.log(place).is_behind(append, first.predecessor);
    if !entries.first().is_none_or(is_behind) && !protocol.is(Mutant::LogsTakeGaps) {
        return;
    }
    let is_synced = !protocol.is(Mutant::AnswersBeforeSynced);
    state.log_mut(place).append(append.epoch, append.cut, entries.into_iter(), is_synced);
    holder::on_logged(protocol, state, append, place);
}

/// A new node has the content that the other one has synced. A node that was switched off keeps its log.
fn give_replica(state: &mut State, place: usize) -> Version {
    let (epoch, copy) = (state.master.epoch, state.nodes[1 - place].replica.synced);
    let node = &mut state.nodes[place];
    if node.is_lost {
        node.log = Log::default();
    }
    (node.is_lost, node.is_awake) = (false, true);
    node.replica = Replica { received: copy, synced: copy, promised: epoch.max(node.replica.promised), boot: 0 };
    copy.version
}

fn replace(state: &mut State, holder: usize, place: usize) {
    let at = give_replica(state, place);
    let known = &mut state.holders[holder].known;
    known[1 - place] = known[1 - place].max(at);
    known[place] = at;
}

fn wake(protocol: &Standins, state: &mut State, place: usize) {
    state.nodes[place].is_awake = true;
    if protocol.is(Mutant::DrainForgets) {
        for holder in &mut state.holders {
            holder.known[place] = holder.last;
        }
    }
}

fn crash(state: &mut State, place: usize) {
    state.crashes += 1;
    state.log_mut(place).crash();
    if let Some(node) = state.nodes.get_mut(place) {
        node.replica.received = node.replica.synced;
    } else {
        restart_master(state);
    }
}

fn lose(protocol: &Standins, state: &mut State, place: usize) {
    state.losses += 1;
    if let Some(node) = state.nodes.get_mut(place) {
        node.is_lost = true;
        node.replica = Replica { promised: node.replica.promised, ..Replica::default() };
        node.log = Log::default();
    } else {
        let epoch = state.master.epoch;
        state.always_on.lose(epoch, !protocol.is(Mutant::LossIsNotNoticed));
        restart_master(state);
    }
}

fn restart_master(state: &mut State) {
    if let Some(recovery) = &mut state.master.recovery {
        *recovery = recovery::Recovery { dead: true, ..recovery::Recovery::default() };
    }
}
