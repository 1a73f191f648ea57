//! Situations that must be reachable, or the other properties would hold for want of anything happening.

use stateright::Property;

use crate::client::Hold;
use crate::message::Message;
use crate::names::{Node, Writes};
use crate::{Protocol, State};

/// All of them.
#[must_use]
pub fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::sometimes("a write is acknowledged", |_: &Protocol, state: &State| {
            state.history.acknowledged != Writes::NONE
        }),
        Property::sometimes("a read shows an acknowledged write", |_: &Protocol, state: &State| {
            state.history.seen.0 & state.history.acknowledged.0 != 0
        }),
        Property::sometimes(
            "a recovered file shows a write that was never acknowledged",
            |_: &Protocol, state: &State| recovered(state) && state.history.seen.0 & !state.history.acknowledged.0 != 0,
        ),
        Property::sometimes("a recovery leaves members out of the set", |_: &Protocol, state: &State| {
            recovered(state) && state.master.set.len() < 3
        }),
        Property::sometimes("a recovery keeps all three members", |_: &Protocol, state: &State| {
            recovered(state) && state.master.set.len() == 3
        }),
        Property::sometimes("a recovery frees a metablock that nobody wrote to", |_: &Protocol, state: &State| {
            state.master.freed
        }),
        Property::sometimes(
            "a holder believes in its lease after its file was recovered",
            |_: &Protocol, state: &State| {
                recovered(state)
                    && state
                        .clients
                        .iter()
                        .filter_map(|client| client.hold())
                        .any(|hold| hold.epoch < state.master.epoch)
            },
        ),
        Property::sometimes("a write is acknowledged although a member crashed", |_: &Protocol, state: &State| {
            state.crashes() > 0 && state.history.acknowledged != Writes::NONE
        }),
        Property::sometimes(
            "a write is acknowledged by a set with a replaced member",
            |_: &Protocol, state: &State| {
                state.replacements > 0
                    && state.master.generation > 0
                    && state.clients.iter().any(|client| {
                        let ours = |hold: &Hold| {
                            hold.generation == state.master.generation && hold.epoch == state.master.epoch
                        };
                        client.hold().is_some_and(|hold| {
                            ours(hold)
                                && hold.current > hold.base
                                && state
                                    .history
                                    .acknowledged_records()
                                    .any(|record| record.epoch == hold.epoch && record.seq == hold.current.seq)
                        })
                    })
            },
        ),
        Property::sometimes("a set is repaired to three by the master", |_: &Protocol, state: &State| {
            state.repairs > 0 && state.master.is_quiet() && state.master.set.len() == 3
        }),
        Property::sometimes("a member had been deleted as excess before it joined", |_: &Protocol, state: &State| {
            let was_deleted = |node: Node| state.network.has(Message::DeleteExcess { node, epoch: state.master.epoch });
            state.excess > 0
                && state.repairs > 0
                && state.master.is_quiet()
                && state.master.set.len() == 3
                && !Node::all().any(was_deleted)
        }),
        Property::sometimes(
            "a late deletion of excess is under way beside a whole set",
            |_: &Protocol, state: &State| {
                state.master.set.len() == 3
                    && Node::all().any(|node| {
                        !state.master.set.has(node)
                            && state.network.has(Message::DeleteExcess { node, epoch: state.master.epoch })
                    })
            },
        ),
        Property::sometimes(
            "a read shows writes of a recovered and of the next holder",
            |_: &Protocol, state: &State| {
                let seen = |epoch: u8| {
                    state
                        .history
                        .numbered()
                        .any(|(number, record)| record.epoch == epoch && state.history.seen.0 & (1 << number) != 0)
                };
                seen(1) && seen(3)
            },
        ),
    ]
}

/// A recovery was finished, and no write has come since.
fn recovered(state: &State) -> bool {
    let master = &state.master;
    master.is_quiet() && master.committed.seq == 0 && master.committed.epoch > 0
}
