//! The actions of the model.

use super::state::{Request, State};
use super::{Mutant, Opens};

/// One step. See the table in [`super`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The client asks for the file to be made, and opened.
    Make,
    /// It asks for it to be opened.
    Open,
    /// It gives up waiting: its request may have been carried out, or be carried out later.
    GiveUp,
    /// It says, with another request, that it does not wait for the answer to having made the file any more.
    Acknowledge,
    /// It closes a handle.
    Close,
    /// It says that it has no handle any more.
    Forget,
    /// It believes that it said so, and the message was lost.
    BeSilent,
    /// It reports its open files to a new master process.
    Reclaim,
    /// A request arrives. It may arrive again.
    Deliver(Request),
    /// The word arrives that the file is closed. It may arrive again.
    DeliverForget(u8),
    /// The report reaches a new master process.
    DeliverReclaim(bool, u8),
    /// An answer arrives.
    Hear(Request),
    /// The client is asked whether it has the file open.
    HearAsk,
    /// Others take the last name.
    Unlink,
    /// The master asks the clients that count as having a file without a name open.
    Ask,
    /// It frees the file.
    Free,
    /// Its process dies, and another one reads the log.
    Restart,
}

/// Everything that may happen now.
pub fn enumerate(model: &Opens, state: &State, actions: &mut Vec<Action>) {
    let bounds = model.bounds;
    let mut may = |is_possible: bool, action: Action| {
        if is_possible {
            actions.push(action);
        }
    };
    may(!state.has_begun, Action::Make);
    let is_quiet = !state.is_making && state.opening.is_none();
    may(state.has_begun && is_quiet && state.openings < bounds.opens, Action::Open);
    may(!is_quiet, Action::GiveUp);
    may(state.is_unacknowledged && !state.is_making, Action::Acknowledge);
    may(state.handles > 0, Action::Close);
    let is_closed = state.handles == 0 && state.opening.is_none() && state.is_registered;
    may(is_closed && state.forgotten < bounds.forgets, Action::Forget);
    may(is_closed, Action::BeSilent);
    may(state.is_reclaiming, Action::Reclaim);
    state.requests.iter().for_each(|request| may(true, Action::Deliver(*request)));
    state.forgets.iter().for_each(|before| may(true, Action::DeliverForget(*before)));
    state.reclaims.iter().for_each(|(is_open, number)| may(true, Action::DeliverReclaim(*is_open, *number)));
    state.answers.iter().for_each(|answer| may(true, Action::Hear(*answer)));
    may(state.is_asked && state.forgotten < bounds.forgets, Action::HearAsk);
    may(state.is_named, Action::Unlink);
    may(must_ask(model, state), Action::Ask);
    may(may_free(model, state), Action::Free);
    may(state.restarts < bounds.restarts, Action::Restart);
}

/// Does one of them.
pub fn perform(model: &Opens, state: &mut State, action: Action) {
    match action {
        Action::Make => {
            (state.has_begun, state.is_making) = (true, true);
            state.requests.insert(Request::Make);
        }
        Action::Open => {
            state.openings += 1;
            state.opening = Some(state.openings);
            state.requests.insert(Request::Open(state.openings));
        }
        Action::GiveUp => {
            // A client that was opening knows that it may count. One that was making knows of no file.
            state.is_registered |= state.opening.is_some();
            (state.is_making, state.opening) = (false, None);
        }
        Action::Acknowledge => state.is_unacknowledged = false,
        Action::Close => state.handles -= 1,
        Action::Forget => say_closed(state),
        Action::BeSilent => state.is_registered = false,
        Action::Reclaim => {
            let is_open = state.is_registered || state.handles > 0 || state.opening.is_some();
            state.reclaims.insert((is_open, state.openings));
        }
        Action::Deliver(Request::Make) => make(state),
        Action::Deliver(Request::Open(number)) => open(state, number),
        Action::DeliverForget(before) => {
            let is_meant = |noted: &u8| *noted <= before || model.is(Mutant::ForgetsAreNotNumbered);
            state.noted = state.noted.filter(|noted| !is_meant(noted));
        }
        Action::DeliverReclaim(is_open, number) => {
            state.is_reclaiming = false;
            if is_open && state.is_made && !state.is_freed {
                record_open(state, number);
            }
        }
        Action::Hear(answer) => hear(state, answer),
        Action::HearAsk => hear_ask(model, state),
        Action::Unlink => state.is_named = false,
        Action::Ask => state.is_asked = true,
        Action::Free => state.is_freed = true,
        Action::Restart => {
            state.restarts += 1;
            let is_unacknowledged = state.is_unacknowledged && !state.is_freed && !model.is(Mutant::MakersAreForgotten);
            (state.noted, state.is_reclaiming) = (is_unacknowledged.then_some(0), true);
            state.answers.clear();
        }
    }
}

fn record_open(state: &mut State, number: u8) {
    state.noted = Some(state.noted.unwrap_or(0).max(number));
}

/// Answered, and not done twice, when it is repeated; refused when the answer has been acknowledged.
fn make(state: &mut State) {
    if !state.is_made {
        (state.is_made, state.is_named, state.is_unacknowledged) = (true, true, true);
    }
    if !state.is_unacknowledged {
        return;
    }
    if !state.is_freed {
        record_open(state, 0);
    }
    state.answers.insert(Request::Make);
}

/// A file that has lost its name can be opened only by a client that counts as having it open.
fn open(state: &mut State, number: u8) {
    if state.is_made && !state.is_freed && (state.is_named || state.noted.is_some()) {
        record_open(state, number);
        state.answers.insert(Request::Open(number));
    }
}

fn hear(state: &mut State, answer: Request) {
    let is_awaited = match answer {
        Request::Make => std::mem::take(&mut state.is_making),
        Request::Open(number) => state.opening.take_if(|opening| *opening == number).is_some(),
    };
    if is_awaited {
        state.handles += 1;
        state.is_registered = true;
    }
}

fn say_closed(state: &mut State) {
    state.is_registered = false;
    state.forgotten += 1;
    state.forgets.insert(state.openings);
}

/// The client waits for calls that may bring a handle.
fn hear_ask(model: &Opens, state: &mut State) {
    state.is_asked = false;
    let is_making = state.is_making && !model.is(Mutant::AnswersWhileMaking);
    let is_opening = state.opening.is_some() && !model.is(Mutant::AnswersWhileOpening);
    let is_silent = model.is(Mutant::OnlyRegistered) && !state.is_registered;
    if state.handles == 0 && !is_making && !is_opening && !is_silent {
        say_closed(state);
    }
}

fn must_ask(model: &Opens, state: &State) -> bool {
    let is_kept = state.is_made && !state.is_named && state.noted.is_some();
    is_kept && !state.is_freed && !model.is(Mutant::NeverAsks)
}

fn may_free(model: &Opens, state: &State) -> bool {
    let is_known = !state.is_reclaiming || model.is(Mutant::FreesBeforeReclaim);
    state.is_made && !state.is_named && !state.is_freed && state.noted.is_none() && is_known
}

/// Whether a question and its answer, if they come through, have the file freed.
pub fn is_freed_by_asking(model: &Opens, state: &State) -> bool {
    let mut state = state.clone();
    if state.is_reclaiming {
        let delivery = Action::DeliverReclaim(state.is_registered, state.openings);
        perform(model, &mut state, delivery);
    }
    if must_ask(model, &state) {
        perform(model, &mut state, Action::HearAsk);
        let last = state.openings;
        if state.forgets.contains(&last) {
            perform(model, &mut state, Action::DeliverForget(last));
        }
    }
    may_free(model, &state)
}
