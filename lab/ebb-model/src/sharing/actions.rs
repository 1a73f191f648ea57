//! The actions of the model.

use crate::names::{ClientName, Writes};
use crate::sharing::Sharing;
use crate::sharing::client::{self, Belief, Client};
use crate::sharing::message::{Reply, Request, Wish};
use crate::sharing::proxy::{self, Work};
use crate::sharing::state::{Holder, State};

/// One step of one process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A program writes.
    BeginWrite(ClientName),
    /// A program calls fsync.
    BeginSync(ClientName),
    /// A program reads.
    BeginRead(ClientName),
    /// A client gets the write lease.
    Take(ClientName),
    /// A client hears that it joins this stay, counted from 0; the answer may be late.
    Join(ClientName, usize),
    /// A client sends its operation to the proxy.
    Send(ClientName),
    /// An answer of the proxy arrives.
    Hear(Reply),
    /// A client hears from the master that the file is not at that proxy any more.
    AskMaster(ClientName),
    /// No answer came, and the stay that was meant is over.
    FindGone(ClientName),
    /// A write's time is up.
    GiveUp(ClientName),
    /// A client carries its operation out under its own lease.
    DoHere(ClientName),
    /// An fsync of a client that takes no part in the file: nothing is left to sync.
    SyncNothing(ClientName),
    /// A client gives its lease back.
    Release(ClientName),
    /// A client finds that its lease is over.
    Notice(ClientName),

    /// The proxy gets the write lease.
    ProxyTakes,
    /// A request arrives at the proxy.
    Deliver(Request),
    /// The members have received everything.
    PassOn,
    /// The proxy begins to sync.
    BeginProxySync,
    /// Its sync ends.
    EndProxySync,
    /// The proxy answers an operation.
    Finish(Work),
    /// The proxy gives the file back.
    GiveBack,
    /// The proxy finds that its lease is over.
    ProxyNotices,
    /// The proxy's process dies, and another one starts.
    ProxyDies,
    /// All members lose unsynced writes.
    LosePower,
    /// The master gives the holder up, and the file is recovered.
    Recover,
}

/// Everything that may happen in a state.
pub fn enumerate(protocol: &Sharing, state: &State, actions: &mut Vec<Action>) {
    for name in ClientName::all() {
        client_actions(protocol, state, name, actions);
    }
    actions.extend(state.network.requests.iter().copied().map(Action::Deliver));
    actions.extend(state.network.replies.iter().copied().filter(|reply| is_awaited(state, reply)).map(Action::Hear));
    proxy_actions(protocol, state, actions);
    if state.power_cuts < protocol.bounds.power_cuts && state.store.received != state.store.synced {
        actions.push(Action::LosePower);
    }
    if state.master.holder.is_some() && state.master.epoch < protocol.bounds.epoch {
        actions.push(Action::Recover);
    }
}

/// Whether an answer is to the operation that its client has under way, as it was sent last.
pub fn is_awaited(state: &State, reply: &Reply) -> bool {
    let operation = state.clients[reply.client.index()].operation;
    operation.is_some_and(|operation| (operation.number, operation.to) == (reply.number, Some(reply.seat)))
}

fn client_actions(protocol: &Sharing, state: &State, name: ClientName, actions: &mut Vec<Action>) {
    let client = &state.clients[name.index()];
    let Some(operation) = &client.operation else {
        begin_actions(protocol, state, name, actions);
        place_actions(state, client, name, actions);
        return;
    };
    let is_free = state.master.holder.is_none() && state.master.epoch < protocol.bounds.epoch;
    match client.place {
        Belief::Nowhere => {
            if is_free && matches!(operation.wish, Wish::Write(_)) && operation.to.is_none() {
                actions.push(Action::Take(name));
            }
            if operation.to.is_none() {
                actions.extend((client.joined..state.seats.len()).map(|place| Action::Join(name, place)));
                if operation.wish == Wish::Sync {
                    actions.push(Action::SyncNothing(name));
                }
            }
        }
        Belief::Joined { .. } if operation.to.is_none() => actions.push(Action::Send(name)),
        Belief::Joined { .. } => {}
        Belief::Holds { .. } => actions.push(Action::DoHere(name)),
    }
    if operation.to.is_some() {
        if operation.to != client.seat() {
            actions.push(Action::FindGone(name));
        }
        if matches!(operation.wish, Wish::Write(_)) {
            actions.push(Action::GiveUp(name));
        }
    }
    place_actions(state, client, name, actions);
}

fn begin_actions(protocol: &Sharing, state: &State, name: ClientName, actions: &mut Vec<Action>) {
    if state.history.writes.len() < usize::from(protocol.bounds.writes) {
        actions.push(Action::BeginWrite(name));
    }
    if state.syncs < protocol.bounds.syncs && state.history.open(name) != Writes::NONE {
        actions.push(Action::BeginSync(name));
    }
    if state.reads < protocol.bounds.reads {
        actions.push(Action::BeginRead(name));
    }
}

/// The ways in which a client's part in the file may change, independent of its operation.
fn place_actions(state: &State, client: &Client, name: ClientName, actions: &mut Vec<Action>) {
    match client.place {
        Belief::Joined { seat, .. } if state.master.holder != Some(Holder::Proxy(seat.boot)) => {
            actions.push(Action::AskMaster(name));
        }
        Belief::Holds { epoch, .. } => {
            if state.master.epoch > epoch {
                actions.push(Action::Notice(name));
            } else {
                actions.push(Action::Release(name));
            }
        }
        Belief::Nowhere | Belief::Joined { .. } => {}
    }
}

fn proxy_actions(protocol: &Sharing, state: &State, actions: &mut Vec<Action>) {
    let proxy = &state.proxy;
    if proxy.boot < protocol.bounds.deaths {
        actions.push(Action::ProxyDies);
    }
    let Some(stay) = &proxy.stay else {
        if state.master.holder.is_none() && state.master.epoch < protocol.bounds.epoch {
            actions.push(Action::ProxyTakes);
        }
        return;
    };
    let finished = stay.work.iter().filter(|work| stay.outcome(protocol, &state.history, work).is_some());
    actions.extend(finished.copied().map(Action::Finish));
    if state.store.obeys(stay.epoch) {
        if stay.log.len() > stay.passed.min(state.store.received.len()) {
            actions.push(Action::PassOn);
        }
        match stay.syncing {
            Some(_) => actions.push(Action::EndProxySync),
            None if stay.wants_sync(protocol, &state.history) => actions.push(Action::BeginProxySync),
            None => {}
        }
    }
    if state.master.holder == Some(Holder::Proxy(proxy.boot)) && state.master.epoch == stay.epoch {
        actions.push(Action::GiveBack);
    } else {
        actions.push(Action::ProxyNotices);
    }
}

/// Carries one action out.
pub fn perform(protocol: &Sharing, state: &mut State, action: Action) {
    match action {
        Action::BeginWrite(name) => client::begin_operation(state, name, Wish::Write),
        Action::BeginSync(name) => client::begin_operation(state, name, |_| Wish::Sync),
        Action::BeginRead(name) => client::begin_operation(state, name, |_| Wish::Read),
        Action::Take(name) => client::take_lease(state, name),
        Action::Join(name, place) => client::join(state, name, place),
        Action::Send(name) => client::send(state, name),
        Action::Hear(reply) => client::hear(protocol, state, reply),
        Action::AskMaster(name) => client::ask_master(protocol, state, name),
        Action::FindGone(name) => client::find_gone(protocol, state, name),
        Action::GiveUp(name) => client::give_up(state, name),
        Action::DoHere(name) => client::do_here(state, name),
        Action::SyncNothing(name) => client::finish_sync(state, name),
        Action::Release(name) => client::release(state, name),
        Action::Notice(name) => client::notice(state, name),
        Action::ProxyTakes => proxy::take_lease(state),
        Action::Deliver(request) => proxy::on_request(protocol, state, request),
        Action::PassOn => proxy::pass_on(state),
        Action::BeginProxySync => proxy::begin_sync(state),
        Action::EndProxySync => proxy::end_sync(protocol, state),
        Action::Finish(work) => proxy::finish(protocol, state, work),
        Action::GiveBack => proxy::give_back(protocol, state),
        Action::ProxyNotices => proxy::notice(protocol, state),
        Action::ProxyDies => proxy::die(state),
        Action::LosePower => {
            state.store.lose_power();
            state.power_cuts += 1;
        }
        Action::Recover => recover(state),
    }
}

/// The members promise the next epoch, sync their received writes, and are made equal.
fn recover(state: &mut State) {
    state.master.epoch += 1;
    state.master.holder = None;
    state.store.fence = state.master.epoch;
    state.store.sync();
}
