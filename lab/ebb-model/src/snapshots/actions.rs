//! The actions of the model.

mod copies;
mod master;
mod writer;

use super::state::{Seen, State};
use super::{Mutant, Snapshots};

/// One step. See the table in [`super`]. Clients, indexes, nodes, ids and messages go by their place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A client takes the write lease.
    TakeLease(usize),
    /// It asks for a grant at an index that is frozen as it knows: for an heir.
    Grant(usize, usize),
    /// The next member of the heir of an index pulls.
    Pull(usize),
    /// The heir takes its place.
    Swap(usize, usize),
    /// A client writes, and sends that.
    Write(usize, usize),
    /// A node receives a write.
    Deliver(usize, usize),
    /// A client cuts the file before its second metablock.
    Cut(usize),
    /// It commits, and gives the lease back.
    GiveBack(usize),
    /// It learns that its lease is over, or dies.
    Notice(usize),

    /// The master gives the holder up.
    Expire,
    /// It recovers the file.
    Recover,
    /// The file loses its name.
    RemoveFile,
    /// A snapshot is taken.
    Take,
    /// One is removed.
    Remove(usize),
    /// A metablock that it had is looked at.
    Prune(usize),
    /// None is left to be looked at.
    EndPrune(usize),

    /// Two metablocks become the slots of a RAID set, and keep one copy each.
    Seal(usize, usize),
    /// The members of ballast are retired.
    Retire(usize),
    /// A copy of this metablock is to take the place of a member.
    BeginMove(usize),
    /// It is made.
    Copy,
    /// It is recorded, or refused.
    RecordMove,
    /// The replicas of a metablock that no record names are deleted.
    Judge(usize),
}

/// Everything that may happen now.
pub fn enumerate(model: &Snapshots, state: &State, actions: &mut Vec<Action>) {
    writer::enumerate(model, state, actions);
    master::enumerate(model, state, actions);
    copies::enumerate(model, state, actions);
}

/// Does one of them.
pub fn perform(model: &Snapshots, state: &mut State, action: Action) {
    // It tells of one step: what was seen before is no part of what may happen now.
    state.seen = Seen::default();
    match action {
        Action::TakeLease(client) => writer::take_lease(model, state, client),
        Action::Grant(client, index) => writer::grant(model, state, client, index),
        Action::Pull(index) => writer::pull(state, index),
        Action::Swap(client, index) => writer::swap(model, state, client, index),
        Action::Write(client, index) => writer::write(state, client, index),
        Action::Deliver(node, at) => writer::deliver(state, node, at),
        Action::Cut(client) => writer::cut(model, state, client),
        Action::GiveBack(client) => writer::give_back(state, client),
        Action::Notice(client) => state.clients[client] = None,
        Action::Expire => master::expire(state),
        Action::Recover => master::recover(model, state),
        Action::RemoveFile => master::remove_file(model, state),
        Action::Take => master::take_snapshot(state),
        Action::Remove(number) => master::remove_snapshot(state, number),
        Action::Prune(block) => master::prune(model, state, block),
        Action::EndPrune(number) => state.snapshots[number] = super::state::Snapshot::Gone,
        Action::Seal(one, other) => copies::seal(state, [one, other]),
        Action::Retire(block) => copies::retire(state, block),
        Action::BeginMove(block) => copies::begin_move(state, block),
        Action::Copy => copies::copy(state),
        Action::RecordMove => copies::record_move(model, state),
        Action::Judge(block) => copies::delete_unnamed(model, state, block),
    }
    writer::acknowledge(state);
    if !model.is(Mutant::TakesLateWrites) {
        writer::forget(state);
    }
}
