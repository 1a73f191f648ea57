//! The actions of the model.

mod deaths;
mod encode;
mod faults;
mod repair;
mod thin;
mod writer;

use crate::raid::Raid;
use crate::raid::state::State;

/// One step of one process. Files, slots, nodes and messages go by their place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A client takes a file's write lease.
    TakeLease(usize),
    /// Its program writes.
    Write(usize),
    /// A node receives a write.
    Deliver(usize, usize),
    /// The client gives the lease back, and commits.
    GiveBack(usize),
    /// The client is given up, and the file recovered.
    Recover(usize),

    /// The master asks a block server to encode these two metablocks.
    BeginEncode([usize; 2]),
    /// The encoder reads a slot.
    ReadSlot(usize),
    /// It sends the check metablock to its node.
    SendCheck,
    /// The node receives it.
    DeliverCheck(usize),
    /// It syncs the check metablock, is asked for a promise, and tells its content.
    Prove,
    /// The master records the RAID set, or refuses to.
    Seal,

    /// A member of a slot promises to be frozen, and tells its version.
    Freeze(usize, usize),
    /// The master records that each slot has one member.
    Thin,
    /// The other copies are deleted, if every slot and row was found sound.
    DropCopies,
    /// One of them becomes a member again, as the member is lost.
    Readmit(usize),
    /// A replica that no record names is found, and its deletion sent.
    Judge(usize, usize),
    /// A node carries a deletion out.
    Delete(usize),

    /// The holder gets an heir of the frozen metablock.
    GrantHeir,
    /// A member of the heir pulls.
    PullHeir(usize),
    /// The heir takes the frozen metablock's place.
    Swap,
    /// A member of ballast is retired.
    Retire(usize, usize),
    /// A file is removed.
    Remove(usize),

    /// A file that is short of a copy gets one.
    MakeUp(usize, usize),
    /// A lost member is made again at another node, by decoding.
    Rebuild(usize, usize),
    /// The member that was made is recorded.
    RecordRebuild,

    /// A disk is lost with its node.
    Lose(usize),
    /// A replica loses its content.
    Spoil(usize, usize),
    /// A node crashes and starts again.
    Crash(usize),
    /// A node is cut off.
    Leave(usize),
    /// It is back.
    Return(usize),
    /// The lead changes: what is in memory alone is gone.
    Restart,
}

/// Everything that may happen in a state.
pub fn enumerate(protocol: &Raid, state: &State, actions: &mut Vec<Action>) {
    writer::enumerate(protocol, state, actions);
    encode::enumerate(protocol, state, actions);
    thin::enumerate(protocol, state, actions);
    deaths::enumerate(protocol, state, actions);
    repair::enumerate(protocol, state, actions);
    faults::enumerate(protocol, state, actions);
}

/// Carries one action out.
pub fn perform(protocol: &Raid, state: &mut State, action: Action) {
    match action {
        Action::TakeLease(file) => writer::take_lease(protocol, state, file),
        Action::Write(file) => writer::write(state, file),
        Action::Deliver(place, sent) => writer::deliver(state, place, sent),
        Action::GiveBack(file) => writer::give_back(state, file),
        Action::Recover(file) => writer::recover(protocol, state, file),
        Action::BeginEncode(slots) => encode::begin_encode(protocol, state, slots),
        Action::ReadSlot(slot) => encode::read_slot(state, slot),
        Action::SendCheck => encode::send_check(state),
        Action::DeliverCheck(at) => encode::deliver_check(state, at),
        Action::Prove => encode::prove(protocol, state),
        Action::Seal => encode::seal(protocol, state),
        Action::Freeze(slot, place) => thin::freeze(protocol, state, slot, place),
        Action::Thin => thin::thin(state),
        Action::DropCopies => thin::drop_copies(state),
        Action::Readmit(slot) => thin::readmit(state, slot),
        Action::Judge(place, metablock) => thin::request_deletion(state, place, metablock),
        Action::Delete(at) => thin::delete(state, at),
        Action::GrantHeir => deaths::grant_heir(state),
        Action::PullHeir(place) => deaths::pull_heir(state, place),
        Action::Swap => deaths::swap(protocol, state),
        Action::Retire(slot, place) => deaths::retire(state, slot, place),
        Action::Remove(file) => deaths::remove(protocol, state, file),
        Action::MakeUp(file, to) => repair::make_up(state, file, to),
        Action::Rebuild(metablock, to) => repair::rebuild(protocol, state, metablock, to),
        Action::RecordRebuild => repair::record(state),
        Action::Lose(place) => faults::lose(state, place),
        Action::Spoil(place, metablock) => faults::spoil(state, place, metablock),
        Action::Crash(place) => faults::crash(state, place),
        Action::Leave(place) => {
            state.nodes[place].is_up = false;
            state.used.absences += 1;
        }
        Action::Return(place) => state.nodes[place].is_up = true,
        Action::Restart => faults::restart(state),
    }
    writer::acknowledge(state);
}
