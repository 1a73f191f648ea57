//! The proxy: one process at a time, one stay of the file at a time.

use crate::names::{CLIENTS, ClientName, Epoch};
use crate::sharing::history::History;
use crate::sharing::log::Log;
use crate::sharing::message::{Answer, Reply, Request, Seat, Wish};
use crate::sharing::state::{Holder, State};
use crate::sharing::{Mutant, Sharing};

/// The state of a process of the proxy. All of it is in memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Proxy {
    /// Which process.
    pub boot: u8,
    /// The file, while it believes to hold it.
    pub stay: Option<Stay>,
    /// By client: the answer to its newest write.
    pub answers: [Newest; CLIENTS],
    /// Epochs of stays that ended with everything synced, one bit each.
    pub kept: u8,
}

/// The newest write of a client that has been heard of. A request says below which number its client waits for nothing;
/// here it waits for one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Newest {
    /// Its number; 0: none.
    pub number: u8,
    /// The answer, once there is one.
    pub answer: Option<Answer>,
}

/// The file held.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Stay {
    /// Of the lease.
    pub epoch: Epoch,
    /// The file.
    pub log: Log,
    /// How much of it all members have said that they received.
    pub passed: u8,
    /// How much is known to be synced.
    pub synced: u8,
    /// A sync under way, and how far it goes.
    pub syncing: Option<u8>,
    /// Operations under way, in order.
    pub work: Vec<Work>,
}

/// An operation under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Work {
    /// The client.
    pub client: ClientName,
    /// Its number.
    pub number: u8,
    /// The stay that was meant.
    pub seat: Seat,
    /// The step that is left.
    pub step: Step,
}

/// The event that an operation waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Step {
    /// That all members have received so much of the log.
    Pass(u8),
    /// That so much is synced.
    Sync(u8),
    /// That the writes of others in this log are synced.
    Settle(Log),
}

impl Stay {
    /// Whether an operation can be answered, and how.
    #[must_use]
    pub fn outcome(&self, protocol: &Sharing, history: &History, work: &Work) -> Option<Answer> {
        let is_done = match work.step {
            Step::Pass(goal) => self.passed >= goal,
            Step::Sync(goal) => self.synced >= goal || (protocol.is(Mutant::SyncsByReceived) && self.passed >= goal),
            Step::Settle(log) => !self.concerns(history, work.client, &log) || protocol.is(Mutant::ShowsUnsynced),
        };
        is_done.then_some(match work.step {
            Step::Settle(log) => Answer::Content(log),
            Step::Pass(_) | Step::Sync(_) => Answer::Done,
        })
    }

    /// Whether a sync must come before a client is shown this.
    fn concerns(&self, history: &History, client: ClientName, log: &Log) -> bool {
        log.iter().skip(usize::from(self.synced)).any(|write| history.writer(write) != client)
    }

    /// Whether something waits for a sync.
    #[must_use]
    pub fn wants_sync(&self, protocol: &Sharing, history: &History) -> bool {
        let waits = |work: &&Work| !matches!(work.step, Step::Pass(_));
        self.work.iter().filter(waits).any(|work| self.outcome(protocol, history, work).is_none())
    }
}

/// Takes the write lease.
pub fn take_lease(state: &mut State) {
    state.master.epoch += 1;
    let (epoch, log, boot) = (state.master.epoch, state.store.received, state.proxy.boot);
    state.master.holder = Some(Holder::Proxy(boot));
    state.store.fence = epoch;
    let known = log.len();
    state.proxy.stay = Some(Stay { epoch, log, passed: known, synced: known, syncing: None, work: Vec::new() });
    state.seats.push(Seat { boot, epoch });
}

/// A request comes, perhaps late, perhaps again.
pub fn on_request(protocol: &Sharing, state: &mut State, request: Request) {
    let Request { client, number, seat, wish } = request;
    let proxy = &mut state.proxy;
    if seat.boot != proxy.boot {
        reply(state, request, Answer::Moved { kept: false });
        return;
    }
    let moved = Answer::Moved { kept: protocol.is(Mutant::TellsKept) || proxy.kept & (1 << seat.epoch) != 0 };
    let holds = |stay: &Stay| stay.epoch == seat.epoch || protocol.is(Mutant::IgnoresEpoch);
    if protocol.is(Mutant::LooksAtEpochFirst) && !proxy.stay.as_ref().is_some_and(holds) {
        reply(state, request, moved);
        return;
    }
    if let Wish::Write(_) = wish
        && !protocol.is(Mutant::ForgetsAnswers)
    {
        let newest = &mut proxy.answers[client.index()];
        if number < newest.number {
            return;
        }
        if number == newest.number {
            if let Some(answer) = newest.answer {
                reply(state, request, answer);
            }
            return;
        }
        *newest = Newest { number, answer: None };
    }
    let is_valid =
        |stay: &Stay| state.master.holder == Some(Holder::Proxy(proxy.boot)) && state.master.epoch == stay.epoch;
    let Some(stay) = proxy.stay.as_mut().filter(|stay| holds(stay)) else {
        answer(state, request, moved);
        return;
    };
    let step = match wish {
        Wish::Write(write) => {
            stay.log.push(write);
            Step::Pass(if protocol.is(Mutant::AnswersBeforeReceived) { 0 } else { stay.log.len() })
        }
        Wish::Sync => Step::Sync(stay.log.len()),
        // It believes in its lease no longer than its clock allows.
        Wish::Read if !is_valid(stay) && !protocol.is(Mutant::ReadsWithoutLease) => return,
        Wish::Read => Step::Settle(stay.log),
    };
    if !stay.work.iter().any(|work| (work.client, work.number) == (client, number)) {
        stay.work.push(Work { client, number, seat, step });
        stay.work.sort_unstable();
    }
}

/// Sends its writes to the members, which confirm that they received them.
pub fn pass_on(state: &mut State) {
    let Some(stay) = &mut state.proxy.stay else { return };
    state.store.on_write(&stay.log);
    stay.passed = stay.log.len();
}

/// Begins to sync everything so far.
pub fn begin_sync(state: &mut State) {
    if let Some(stay) = &mut state.proxy.stay {
        stay.syncing = Some(stay.log.len());
    }
}

/// All members have synced the writes that were there when the sync began.
pub fn end_sync(protocol: &Sharing, state: &mut State) {
    let Some(stay) = &mut state.proxy.stay else { return };
    let Some(goal) = stay.syncing.take() else { return };
    state.store.on_write(&stay.log.prefix(goal));
    state.store.sync();
    stay.passed = stay.passed.max(goal);
    stay.synced = if protocol.is(Mutant::MarksWhatCameLater) { stay.log.len() } else { stay.synced.max(goal) };
}

/// Answers an operation that is done.
pub fn finish(protocol: &Sharing, state: &mut State, work: Work) {
    let Some(stay) = &mut state.proxy.stay else { return };
    let Some(outcome) = stay.outcome(protocol, &state.history, &work) else { return };
    stay.work.retain(|other| *other != work);
    resolve(state, work, outcome);
}

/// Gives the lease back, everything synced. Operations that wait for nothing else are answered; the others find out.
pub fn give_back(protocol: &Sharing, state: &mut State) {
    let Some(mut stay) = state.proxy.stay.take() else { return };
    if !protocol.is(Mutant::GivesBackUnsynced) {
        state.store.on_write(&stay.log);
        state.store.sync();
    }
    state.master.holder = None;
    state.proxy.kept |= 1 << stay.epoch;
    stay.passed = stay.log.len();
    let work = std::mem::take(&mut stay.work);
    for work in work {
        if let Some(outcome) = stay.outcome(protocol, &state.history, &work) {
            resolve(state, work, outcome);
        }
    }
}

/// Finds that the lease is over.
pub fn notice(protocol: &Sharing, state: &mut State) {
    let Some(mut stay) = state.proxy.stay.take() else { return };
    let work = std::mem::take(&mut stay.work);
    for work in work {
        let outcome = match work.step {
            Step::Pass(_) | Step::Sync(_) => Answer::Failed,
            Step::Settle(_) => stay.outcome(protocol, &state.history, &work).unwrap_or(Answer::Moved { kept: false }),
        };
        resolve(state, work, outcome);
    }
}

/// The process ends, and another one starts.
pub fn die(state: &mut State) {
    state.proxy = Proxy { boot: state.proxy.boot + 1, ..Proxy::default() };
}

fn resolve(state: &mut State, work: Work, outcome: Answer) {
    // The answer of a write is kept; which wish it was no longer matters.
    let wish = if matches!(work.step, Step::Pass(_)) { Wish::Write(0) } else { Wish::Sync };
    let request = Request { client: work.client, number: work.number, seat: work.seat, wish };
    answer(state, request, outcome);
}

fn answer(state: &mut State, request: Request, answer: Answer) {
    let newest = &mut state.proxy.answers[request.client.index()];
    if matches!(request.wish, Wish::Write(_)) && newest.number == request.number {
        newest.answer = Some(answer);
    }
    reply(state, request, answer);
}

fn reply(state: &mut State, request: Request, answer: Answer) {
    let Request { client, number, seat, .. } = request;
    state.network.reply(Reply { client, number, seat, boot: state.proxy.boot, answer });
}
