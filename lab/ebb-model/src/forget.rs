//! Messages that can never matter again are dropped, so that states which differ only in them are one.
//!
//! Each rule says why delivering the message, now or later, would change nothing. They rest on promises of the protocol
//! (epochs only rise, synced versions only rise), which a mutant may break: see
//! [`Mutant::allows_forgetting`](crate::Mutant::allows_forgetting). A test compares small cases with and without.

use crate::client::Hold;
use crate::message::{Message, Network};
use crate::names::{Epoch, Version};
use crate::state::State;
use crate::{Mutant, Protocol};

/// Drops messages that cannot matter.
pub fn forget(protocol: &Protocol, state: &mut State) {
    let mut network = std::mem::take(&mut state.network);
    if network.iter().any(|message| blanked(message) != message) {
        network.map(|message| *message = blanked(*message));
    }
    let all = network.clone();
    network.retain(|message| matters(protocol, state, &all, message));
    state.network = network;
}

/// The holder goes by synced versions alone: it never reads which boot answered, or the version that had been received.
fn blanked(message: Message) -> Message {
    match message {
        Message::Answer { node, epoch, synced, .. } => {
            Message::Answer { node, epoch, boot: 0, received: Version::ZERO, synced }
        }
        other => other,
    }
}

/// The client that believes to hold the lease of this epoch.
fn holder_of(state: &State, wanted: Epoch) -> Option<&Hold> {
    state.clients.iter().filter_map(|client| client.hold()).find(|hold| hold.epoch == wanted)
}

fn matters(protocol: &Protocol, state: &State, all: &Network, message: Message) -> bool {
    let master = &state.master;
    let this_recovery = |epoch| epoch == master.epoch && master.recovery.is_some();
    let undecided = |epoch| this_recovery(epoch) && master.recovery.is_some_and(|recovery| recovery.base.is_none());
    match message {
        // Refused from now on, or on stable storage already; the sync's answer informs the holder.
        Message::Write { node, version, .. } => {
            let replica = state.replica(node);
            version.epoch >= replica.durable_fence() && replica.synced.version < version
        }
        // Refused from now on, or all writes sent so far are synced, and reported if a client waits. The holder's next
        // write brings a new sync.
        Message::Sync { .. } if protocol.is(Mutant::SyncIgnoresEpoch) => true,
        Message::Sync { node, epoch } => {
            let replica = state.replica(node);
            let holder = holder_of(state, epoch);
            let answered = || {
                let synced = replica.synced.version;
                all.has(Message::Answer { node, epoch, boot: 0, received: Version::ZERO, synced })
            };
            let settled = replica.received == replica.synced
                && !all.iter().any(|other| match other {
                    Message::Write { node: to, version, .. } => {
                        to == node && version.epoch == epoch && replica.synced.version < version
                    }
                    _ => false,
                });
            let known = |hold: &Hold| replica.synced.version <= hold.base || answered();
            epoch >= replica.durable_fence() && !(settled && holder.is_none_or(known))
        }
        // No client waits, it reports nothing above the base, or a later answer reports more.
        Message::Answer { node, epoch, synced, .. } => holder_of(state, epoch).is_some_and(|hold| {
            let more = |other| match other {
                Message::Answer { node: from, epoch: of, synced: newer, .. } => {
                    from == node && of == epoch && newer > synced
                }
                _ => false,
            };
            synced > hold.base && !all.iter().any(more)
        }),
        // The lease is over for the master, or it is recorded already.
        Message::Commit { epoch, version, release } => {
            epoch == master.epoch && master.holder.is_some() && (release || version > master.committed)
        }
        // The compare-and-swap fails from now on.
        Message::ChangeSet { epoch, generation, .. } => {
            epoch == master.epoch && master.holder.is_some() && generation == master.generation
        }
        Message::SetChanged { epoch, generation } => holder_of(state, epoch)
            .is_some_and(|hold| hold.change.is_some_and(|change| change.proposed) && generation > hold.generation),
        // Refused from now on, or promised and reported.
        Message::Promise { node, epoch } => {
            let replica = state.replica(node);
            let is_reported = all.has(Message::Reported { node, epoch, version: replica.synced.version });
            epoch >= replica.durable_fence() && (replica.promised < epoch || (undecided(epoch) && !is_reported))
        }
        Message::Reported { epoch, .. } => undecided(epoch),
        // Refused from now on, or reached and answered (or no process waits).
        Message::Pull { node, epoch, at } => {
            let replica = state.replica(node);
            let pulled = Message::Pulled { node, epoch, version: replica.synced.version };
            let reached = replica.synced.version >= at && replica.promised >= epoch;
            epoch >= replica.durable_fence() && !(reached && (all.has(pulled) || !awaited(state, epoch)))
        }
        // The holder counts it, or the master waits for it.
        Message::Pulled { epoch, version, .. } => {
            let repairs = epoch == master.epoch && master.recovery.is_none() && version >= master.committed;
            repairs || holder_of(state, epoch).is_some_and(|hold| version > hold.base || hold.change.is_some())
        }
        // Refused from now on, past its base, or stamped and reported.
        Message::Stamp { node, epoch, base } => {
            let replica = state.replica(node);
            epoch >= replica.durable_fence()
                && (replica.synced.version <= base
                    || (replica.synced.version == Version::stamp(epoch)
                        && this_recovery(epoch)
                        && !all.has(Message::Stamped { node, epoch })))
        }
        Message::Stamped { epoch, .. } => this_recovery(epoch),
        // There is nothing to delete, and a later replica has another life.
        Message::DeleteExcess { node, .. } => state.replica(node).received.version != Version::ZERO,
    }
}

/// Whether a pull's answer of this epoch could be waited for.
fn awaited(state: &State, epoch: Epoch) -> bool {
    (epoch == state.master.epoch && state.master.recovery.is_none()) || holder_of(state, epoch).is_some()
}
