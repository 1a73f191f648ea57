//! Messages that can never matter again are dropped: answers without a waiting client, and requests that the proxy
//! would refuse.

use crate::sharing::actions::is_awaited;
use crate::sharing::message::{Request, Wish};
use crate::sharing::state::State;

/// Drops messages that can never matter again. Tests explore small cases with and without and compare the reached
/// states.
pub fn forget(state: &mut State) {
    let mut network = std::mem::take(&mut state.network);
    network.replies.retain(|reply| is_awaited(state, reply));
    network.requests.retain(|request| matters(state, request));
    state.network = network;
}

fn matters(state: &State, request: &Request) -> bool {
    let operation = state.clients[request.client.index()].operation;
    let is_awaited =
        operation.is_some_and(|operation| (operation.number, operation.to) == (request.number, Some(request.seat)));
    // Boots, numbers and epochs only rise: a message that changes nothing now never does.
    let proxy = &state.proxy;
    let changes = match request.wish {
        Wish::Write(_) => proxy.answers[request.client.index()].number < request.number,
        Wish::Sync | Wish::Read => proxy.stay.as_ref().is_some_and(|stay| stay.epoch == request.seat.epoch),
    };
    is_awaited || (proxy.boot == request.seat.boot && changes)
}
