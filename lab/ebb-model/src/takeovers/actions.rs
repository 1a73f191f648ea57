//! The actions of the model.

use super::state::{Age, Handle, Hold, Holder, Message, Seen, State, TAKER, Takeover, Term};
use super::{Mutant, Takeovers};

/// One step. See the table in [`super`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A client opens the file once more.
    Open(usize),
    /// It takes the write lease.
    Acquire(usize),
    /// It takes part in a stay at the proxy, which begins one if there is none.
    Join(usize),
    /// It gives its lease back.
    GiveBack(usize),
    /// It learns that its lease or stay is over.
    Notice(usize),
    /// The master takes a client's lease away. The client does not know.
    Expire,
    /// A write of this handle is checked under a lease.
    Enter(usize, usize),
    /// It changes the file.
    Act(usize),
    /// A write of this handle is checked, and sent to the proxy.
    Send(usize, usize),
    /// The taker begins.
    Begin,
    /// It hears the answer to this attempt, the count.
    Hear(u8, u8),
    /// It stops waiting for an answer.
    GiveUp,
    /// A message arrives at the proxy or at the master.
    Deliver(Message),
    /// The proxy gives back a file that was taken over, and answers.
    EndStay,
    /// It gives a quiet file back.
    ProxyGivesBack,
    /// Its process dies, and the file is recovered.
    ProxyDies,
}

/// Everything that may happen now.
pub fn enumerate(model: &Takeovers, state: &State, actions: &mut Vec<Action>) {
    let bounds = model.bounds;
    let may_grant = state.grants < bounds.grants;
    for (number, client) in state.clients.iter().enumerate() {
        // A task that takes the file over has the gate to itself.
        let is_shut = number == TAKER && matches!(state.takeover, Takeover::Counting(_));
        let passes = !is_shut || model.is(Mutant::GateStaysOpen);
        let is_quiet = client.entered.is_none() || model.is(Mutant::LeavesWritesBehind);
        if client.handles.len() < bounds.handles && !is_shut {
            actions.push(Action::Open(number));
        }
        let handles = 0..client.handles.len();
        match client.hold {
            Hold::Nothing => {
                if may_grant && state.holder == Holder::Nobody {
                    actions.push(Action::Acquire(number));
                }
                if state.stay.is_some() || may_grant && state.holder == Holder::Nobody {
                    actions.push(Action::Join(number));
                }
            }
            Hold::Lease(_) => {
                if is_quiet && !is_shut {
                    actions.push(Action::GiveBack(number));
                }
                if passes && client.entered.is_none() {
                    actions.extend(handles.map(|handle| Action::Enter(number, handle)));
                }
            }
            // One write at a time is on its way: what it meets does not depend on others.
            Hold::Shared(_) if !state.has_write() => {
                actions.extend(handles.map(|handle| Action::Send(number, handle)));
            }
            Hold::Shared(_) => {}
        }
        if client.entered.is_some() {
            actions.push(Action::Act(number));
        }
        if client.hold != Hold::Nothing {
            actions.push(Action::Notice(number));
        }
    }
    let taker = &state.clients[TAKER];
    let is_alone = taker.entered.is_none() || model.is(Mutant::GateStaysOpen);
    if state.takeover == Takeover::None && state.attempts < bounds.attempts && is_alone && taker.hold != Hold::Nothing {
        actions.push(Action::Begin);
    }
    if matches!(state.takeover, Takeover::Counting(_) | Takeover::Asking) {
        actions.push(Action::GiveUp);
    }
    for message in &state.messages {
        actions.push(match message {
            Message::Counted(attempt, count) => Action::Hear(*attempt, *count),
            other => Action::Deliver(*other),
        });
    }
    if state.stay.is_some() {
        actions.push(if state.ends.is_some() { Action::EndStay } else { Action::ProxyGivesBack });
    }
    if state.losses < bounds.losses {
        actions.extend([Action::Expire, Action::ProxyDies]);
    }
}

/// Does one of them.
pub fn perform(model: &Takeovers, state: &mut State, action: Action) {
    // It tells of one step: what was seen before is no part of what may happen now.
    state.seen = Seen::default();
    match action {
        Action::Open(client) => open(state, client),
        Action::Acquire(client) => {
            let term = grant(state, Holder::Client(client));
            let count = if model.is(Mutant::LeaseWithoutCount) { 0 } else { term.count };
            state.clients[client].hold = Hold::Lease(Term { count, ..term });
        }
        Action::Join(client) => {
            let stay = state.stay.unwrap_or_else(|| grant(state, Holder::Proxy));
            state.stay = Some(stay);
            state.clients[client].hold = Hold::Shared(stay);
        }
        Action::GiveBack(client) => {
            if is_holder(state, client) {
                state.holder = Holder::Nobody;
            }
            state.clients[client].hold = Hold::Nothing;
        }
        Action::Notice(client) => notice(state, client),
        Action::Expire => {
            if let Holder::Client(_) = state.holder {
                recover(state);
            }
        }
        Action::Enter(client, handle) => {
            let Hold::Lease(term) = state.clients[client].hold else { return };
            if passes_check(state, (client, handle), term) {
                state.clients[client].entered = Some((handle, term.epoch));
            }
        }
        Action::Act(client) => {
            let Some((handle, epoch)) = state.clients[client].entered.take() else { return };
            change(state, (client, handle), epoch);
        }
        Action::Send(client, handle) => {
            let Hold::Shared(term) = state.clients[client].hold else { return };
            if passes_check(state, (client, handle), term) {
                state.messages.insert(Message::Write(client, handle, term.epoch));
            }
        }
        Action::Begin => begin_takeover(state),
        Action::Hear(attempt, count) => hear(model, state, attempt, count),
        Action::GiveUp => {
            // Without an answer the lease counts as lost: it would have an old count.
            if matches!(state.takeover, Takeover::Counting(_)) && !model.is(Mutant::KeepsUnsureLease) {
                state.clients[TAKER].hold = Hold::Nothing;
            }
            state.takeover = Takeover::None;
        }
        Action::Deliver(message) => deliver(model, state, message),
        Action::EndStay => {
            if !model.is(Mutant::StayGoesOn) {
                end_stay(state);
            }
            if let Some(attempt) = state.ends.take()
                && !model.is(Mutant::AnswersFirst)
            {
                state.messages.insert(Message::Counted(attempt, state.count));
            }
        }
        Action::ProxyGivesBack => end_stay(state),
        Action::ProxyDies => {
            if state.stay.is_some() {
                end_stay(state);
                state.ends = None;
                recover(state);
            }
        }
    }
}

fn grant(state: &mut State, holder: Holder) -> Term {
    state.grants += 1;
    state.epoch += 1;
    state.holder = holder;
    Term { epoch: state.epoch, count: state.count }
}

fn is_holder(state: &State, client: usize) -> bool {
    let Hold::Lease(term) = state.clients[client].hold else { return false };
    state.holder == Holder::Client(client) && term.epoch == state.epoch
}

/// The holder is gone: members promise not to take its epoch any more.
fn recover(state: &mut State) {
    state.losses += 1;
    state.holder = Holder::Nobody;
    state.epoch += 1;
    state.promised = state.epoch;
}

fn end_stay(state: &mut State) {
    if state.stay.take().is_some() && state.holder == Holder::Proxy {
        state.holder = Holder::Nobody;
    }
}

fn notice(state: &mut State, client: usize) {
    let is_over = match state.clients[client].hold {
        Hold::Nothing => false,
        Hold::Lease(_) => !is_holder(state, client),
        Hold::Shared(term) => state.stay != Some(term),
    };
    if is_over {
        state.clients[client].hold = Hold::Nothing;
    }
}

/// The count comes with the lease that the client has, or from the master's record. A lease that the master has taken away is not
/// believed by then: its time is over.
fn open(state: &mut State, client: usize) {
    let seen = match state.clients[client].hold {
        Hold::Lease(term) if is_holder(state, client) => term.count,
        _ => state.count,
    };
    let age = if state.may_be_counted() { Age::Between } else { Age::Fresh };
    state.clients[client].handles.push(Handle { seen, age });
}

fn passes_check(state: &mut State, (client, handle): (usize, usize), term: Term) -> bool {
    let Handle { seen, age } = state.clients[client].handles[handle];
    let passes = seen >= term.count;
    if !passes {
        state.seen.fresh_refused |= age == Age::Fresh;
        state.seen.older_refused |= age == Age::Older && state.is_answered();
    }
    passes
}

/// Members take the change, unless they have promised a higher epoch.
fn change(state: &mut State, (client, handle): (usize, usize), epoch: u8) {
    if epoch < state.promised || !state.is_answered() {
        return;
    }
    match state.clients[client].handles[handle].age {
        Age::Older => state.seen.older_wrote = true,
        Age::Fresh => state.seen.fresh_wrote = true,
        Age::Between => {}
    }
}

/// The handle that takes over is checked, too.
fn begin_takeover(state: &mut State) {
    let (Hold::Lease(term) | Hold::Shared(term)) = state.clients[TAKER].hold else { return };
    if !passes_check(state, (TAKER, 0), term) {
        return;
    }
    state.attempts += 1;
    // If no answer comes, it may be older than its own takeover.
    state.clients[TAKER].handles[0].age = Age::Between;
    for (client, handle) in [(0, 0), (0, 1), (TAKER, 1)] {
        if let Some(handle) = state.clients[client].handles.get_mut(handle) {
            handle.age = Age::Older;
        }
    }
    let attempt = state.attempts;
    let (takeover, message) = match state.clients[TAKER].hold {
        Hold::Lease(_) => (Takeover::Counting(term.epoch), Message::Count(term.epoch, attempt)),
        _ => (Takeover::Asking, Message::TakeOver(term.epoch, attempt)),
    };
    state.takeover = takeover;
    state.messages.insert(message);
}

fn hear(model: &Takeovers, state: &mut State, attempt: u8, count: u8) {
    state.messages.remove(&Message::Counted(attempt, count));
    // Nobody waits for the answer to an attempt that was given up.
    if attempt != state.attempts && !model.is(Mutant::AnswersAreNotNumbered) {
        return;
    }
    match state.takeover {
        Takeover::Counting(epoch) => {
            if let Hold::Lease(term) = &mut state.clients[TAKER].hold
                && term.epoch == epoch
            {
                term.count = count;
            }
            state.seen.by_lease = true;
        }
        Takeover::Asking => state.seen.by_proxy = true,
        Takeover::None | Takeover::Answered => return,
    }
    state.clients[TAKER].handles[0] = Handle { seen: count, age: Age::Fresh };
    state.takeover = Takeover::Answered;
}

fn deliver(model: &Takeovers, state: &mut State, message: Message) {
    state.messages.remove(&message);
    let stays = |epoch: u8, state: &State| state.stay.is_some_and(|stay| stay.epoch == epoch);
    match message {
        Message::Write(client, handle, epoch) => {
            if stays(epoch, state) {
                change(state, (client, handle), epoch);
            } else {
                state.seen.late_write |= state.is_answered();
            }
        }
        Message::TakeOver(epoch, attempt) => {
            let is_recorded = state.holder == Holder::Proxy && state.epoch == epoch;
            if stays(epoch, state) && is_recorded {
                state.count += 1;
                state.ends = Some(attempt);
                if model.is(Mutant::AnswersFirst) {
                    state.messages.insert(Message::Counted(attempt, state.count));
                }
            } else if state.takeover == Takeover::Asking && attempt == state.attempts {
                // The file has moved: it is tried again where it is.
                state.takeover = Takeover::None;
            }
        }
        Message::Count(epoch, attempt) => {
            let is_held = state.holder == Holder::Client(TAKER) && state.epoch == epoch;
            if is_held || model.is(Mutant::AnyoneCounts) {
                state.count += if model.is(Mutant::Uncounted) { 0 } else { 1 };
                state.messages.insert(Message::Counted(attempt, state.count));
            } else if state.takeover == Takeover::Counting(epoch) && attempt == state.attempts {
                state.takeover = Takeover::None;
                state.clients[TAKER].hold = Hold::Nothing;
            }
        }
        Message::Counted(..) => {}
    }
}
