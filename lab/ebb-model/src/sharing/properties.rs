//! Properties that must hold in every state, and properties that must be reached in some.

use stateright::Property;

use crate::names::Writes;
use crate::sharing::Sharing;
use crate::sharing::client::Belief;
use crate::sharing::log::Log;
use crate::sharing::state::{Holder, State};

/// Each write is carried out once at most.
pub const ONCE: &str = "a write is carried out once at most";
/// A write comes behind all that had been answered when it began.
pub const IN_ORDER: &str = "a write never comes before what had been answered when it began";
/// Writes that fsync acknowledged are on disks.
pub const FIRM: &str = "what fsync acknowledged is synced";
/// A write of another client, once shown, never goes away.
pub const SEEN: &str = "what was read of others never goes away";
/// Every write that the proxy answered survives it.
pub const SURVIVES: &str = "what the proxy answered survives it, unless power fails too";

/// All of them.
#[must_use]
pub fn all() -> Vec<Property<Sharing>> {
    let mut all = vec![
        Property::always(ONCE, |_: &Sharing, state: &State| files(state).all(|log| is_once(&log))),
        Property::always(IN_ORDER, |_: &Sharing, state: &State| files(state).all(|log| is_in_order(state, &log))),
        Property::always(FIRM, |_: &Sharing, state: &State| state.store.synced.writes().includes(state.history.firm)),
        Property::always(SEEN, |_: &Sharing, state: &State| {
            !state.history.went_back && state.store.synced.begins_with(&state.history.seen)
        }),
        Property::always(SURVIVES, |_: &Sharing, state: &State| {
            state.power_cuts > 0 || state.store.received.writes().includes(state.history.proxied)
        }),
    ];
    all.extend(reached());
    all
}

/// The file as the members have it, and as its holder has it.
fn files(state: &State) -> impl Iterator<Item = Log> {
    let epoch = state.master.epoch;
    let held = match state.master.holder {
        Some(Holder::Proxy(boot)) if boot == state.proxy.boot => {
            state.proxy.stay.as_ref().filter(|stay| stay.epoch == epoch).map(|stay| stay.log)
        }
        Some(Holder::Client(name)) => match state.clients[name.index()].place {
            Belief::Holds { epoch: of, log, .. } if of == epoch => Some(log),
            _ => None,
        },
        _ => None,
    };
    [state.store.received].into_iter().chain(held)
}

fn is_once(log: &Log) -> bool {
    log.writes().0.count_ones() == u32::from(log.len())
}

fn is_in_order(state: &State, log: &Log) -> bool {
    let mut behind = Writes::NONE;
    log.iter().rev().all(|write| {
        let is_good = state.history.writes[usize::from(write)].after.0 & behind.0 == 0;
        behind = behind.with(write);
        is_good
    })
}

/// Situations that must be reachable, or the other properties would hold for want of anything happening.
#[must_use]
pub fn reached() -> Vec<Property<Sharing>> {
    vec![
        Property::sometimes("both clients write through one stay", |_: &Sharing, state: &State| {
            let of = |wanted: u8| {
                (0..).zip(&state.history.writes).any(|(number, record)| {
                    record.client.0 == wanted && state.history.proxied.0 & (1_u8 << number) != 0
                })
            };
            of(0) && of(1) && state.seats.len() == 1
        }),
        Property::sometimes("a file comes back from the proxy and goes there again", |_: &Sharing, state: &State| {
            state.proxy.kept != 0 && state.proxy.stay.as_ref().is_some_and(|stay| stay.log.len() > 1 && stay.synced > 0)
        }),
        Property::sometimes("a client writes under its own lease behind the proxy", |_: &Sharing, state: &State| {
            let of_holder = state.history.answered.0 & !state.history.proxied.0;
            state.proxy.kept != 0
                && state.store.synced.iter().is_sorted_by_key(|write| of_holder & (1 << write) != 0)
                && state.store.synced.writes().0 & of_holder != 0
                && state.store.synced.writes().0 & state.history.proxied.0 != 0
        }),
        Property::sometimes("a write of which nobody can say was done", |_: &Sharing, state: &State| {
            state.store.synced.writes().0 & state.history.unknown.0 != 0
        }),
        Property::sometimes("a write of which nobody can say was not done", |_: &Sharing, state: &State| {
            state.proxy.boot > 0
                && state.store.synced == state.store.received
                && !state.store.synced.writes().includes(state.history.unknown)
                && state.network.requests.is_empty()
        }),
        Property::sometimes("an fsync through the proxy returns", |_: &Sharing, state: &State| {
            state.history.firm.0 & state.history.proxied.0 != 0
        }),
        Property::sometimes("an answered write is lost, and its writer is told", |_: &Sharing, state: &State| {
            let lost = state.history.proxied.0 & !state.store.received.writes().0;
            state.master.holder.is_none() && lost & state.history.warned.0 != 0
        }),
        Property::sometimes(
            "a write that no fsync has promised is seen by another client",
            |_: &Sharing, state: &State| !state.history.firm.includes(state.history.seen.writes()),
        ),
    ]
}
