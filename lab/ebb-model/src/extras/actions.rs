//! The actions of the model.

use super::state::{Copy, Map, Replica, State};
use super::{Extras, Mutant};

/// One step. See the table in [`super`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A client gets the write lease.
    TakeLease,
    /// Its write returns.
    Write,
    /// It commits and gives the lease back; or it dies, and a recovery finds the same.
    GiveBack,
    /// The master begins an extra copy.
    BeginCopy,
    /// The volume reads one half of the set's content, then the other, and has the copy.
    Pull,
    /// The master records the copy, or does not.
    EndCopy,
    /// The master takes the extra copy back: it is read no more.
    TakeBack,
    /// The master decides to delete the volume's replica.
    Judge,
    /// A deletion arrives. It may arrive again.
    Delete(u8),
    /// The master's process dies, and another one reads the log.
    Restart,
    /// The volume reports its replica to the master.
    Report,
    /// The reader gets a read lease, with the map.
    Acquire,
    /// It loses it.
    Recall,
    /// The master sends the reader a hint whether there is an extra copy.
    Hint,
    /// The reader hears it, perhaps late.
    Hear(bool),
    /// The reader reads.
    Read,
    /// A client gets the map without a lease.
    TakeMap,
    /// And reads by it.
    ReadByMap,
}

/// Everything that may happen now.
pub fn enumerate(model: &Extras, state: &State, actions: &mut Vec<Action>) {
    let bounds = model.bounds;
    let mut may = |is_possible: bool, action: Action| {
        if is_possible {
            actions.push(action);
        }
    };
    // Read leases are recalled first.
    may(!state.is_held && state.reader.is_none() && state.epoch < bounds.leases, Action::TakeLease);
    may(state.is_held && state.written < bounds.writes, Action::Write);
    may(state.is_held, Action::GiveBack);
    let is_wanted = !state.recorded && state.copy.is_none() && !state.stray;
    let is_idle = !state.is_held || model.is(Mutant::CopiesUnderLease);
    may(is_wanted && is_idle && state.copies < bounds.copies, Action::BeginCopy);
    may(state.copy.is_some_and(|copy| !copy.is_placed), Action::Pull);
    may(state.copy.is_some_and(|copy| copy.is_placed), Action::EndCopy);
    may(state.recorded, Action::TakeBack);
    let is_quiet = state.copy.is_none() || model.is(Mutant::DeletesUnderCopy);
    may(state.stray && is_quiet && state.volume.is_some(), Action::Judge);
    state.deletions.iter().for_each(|life| may(true, Action::Delete(*life)));
    may(state.restarts < bounds.restarts, Action::Restart);
    may(state.volume.is_some(), Action::Report);
    may(!state.is_held && state.reader.is_none(), Action::Acquire);
    may(state.reader.is_some(), Action::Recall);
    may(true, Action::Hint);
    state.hints.iter().for_each(|extra| may(state.reader.is_some(), Action::Hear(*extra)));
    may(state.reader.is_some(), Action::Read);
    may(state.split.is_none(), Action::TakeMap);
    may(state.split.is_some(), Action::ReadByMap);
}

/// Does one of them.
pub fn perform(model: &Extras, state: &mut State, action: Action) {
    match action {
        Action::TakeLease => {
            (state.epoch, state.is_held) = (state.epoch + 1, true);
            if !model.is(Mutant::LeaseKeepsExtras) {
                // In the same entry of the log: no client writes while it is recorded.
                drop_extra(state);
            }
        }
        Action::Write => state.written += 1,
        Action::GiveBack => (state.committed, state.is_held) = (state.written, false),
        Action::BeginCopy => {
            state.copies += 1;
            let (epoch, at) = (state.epoch, state.committed);
            state.copy = Some(Copy { epoch, at, half: None, is_placed: false });
        }
        Action::Pull => pull(state),
        Action::EndCopy => end_copy(model, state),
        Action::TakeBack => drop_extra(state),
        Action::Judge => request_deletion(state),
        Action::Delete(life) => {
            let is_meant = |replica: &Replica| replica.life == life || model.is(Mutant::DeletesAnyLife);
            if state.volume.as_ref().is_some_and(is_meant) {
                state.volume = None;
            }
        }
        Action::Restart => {
            (state.restarts, state.copy, state.stray) = (state.restarts + 1, None, false);
        }
        Action::Report => state.stray |= !state.recorded,
        Action::Acquire => state.reader = Some(Map { version: state.committed, extra: state.recorded }),
        Action::Recall => state.reader = None,
        Action::Hint => drop(state.hints.insert(state.recorded)),
        Action::Hear(extra) => state.reader = state.reader.map(|map| Map { extra, ..map }),
        Action::Read => read(model, state, state.reader),
        Action::TakeMap => state.split = Some(Map { version: state.committed, extra: state.recorded }),
        Action::ReadByMap => {
            let extra = model.is(Mutant::MapsUseExtras) && state.split.is_some_and(|map| map.extra);
            read(model, state, state.split.map(|map| Map { extra, ..map }));
        }
    }
}

fn drop_extra(state: &mut State) {
    state.stray |= state.recorded;
    state.recorded = false;
}

/// The set may be written to between the halves. The pulled replica has another life than any before.
fn pull(state: &mut State) {
    let Some(copy) = &mut state.copy else { return };
    match copy.half {
        None => copy.half = Some(state.written),
        Some(half) => {
            copy.is_placed = true;
            let content = (half == state.written).then_some(half);
            state.volume = Some(Replica { version: copy.at, content, life: state.copies });
        }
    }
}

/// Compare-and-swap on the file's epoch, while it has no lease holder.
fn end_copy(model: &Extras, state: &mut State) {
    let Some(copy) = state.copy.take() else { return };
    let is_same = copy.epoch == state.epoch || model.is(Mutant::RecordsOvertaken);
    let is_idle = !state.is_held || model.is(Mutant::CopiesUnderLease);
    if is_same && is_idle {
        (state.recorded, state.stray) = (true, false);
    } else {
        state.stray = true;
    }
}

/// The deletion names the life that was looked at.
fn request_deletion(state: &mut State) {
    let Some(replica) = state.volume else { return };
    if !state.recorded {
        state.deletions.insert(replica.life);
    }
    state.stray = false;
}

fn read(model: &Extras, state: &mut State, map: Option<Map>) {
    let Some(map) = map else { return };
    let answers = |replica: &&Replica| replica.version >= map.version || model.is(Mutant::AnswersBelow);
    // If the extra copy does not answer, a member of the set does, which has every write that has returned.
    if let Some(replica) = state.volume.as_ref().filter(|_| map.extra).filter(answers) {
        state.was_stale |= replica.content.is_none_or(|content| content < state.written);
        state.was_served = true;
    }
}
