//! A client: where it believes the file to be, and the one operation that it has under way.

use crate::names::{ClientName, Epoch, Writes};
use crate::sharing::history::History;
use crate::sharing::log::Log;
use crate::sharing::message::{Answer, Reply, Request, Seat, Wish};
use crate::sharing::state::{Holder, State};
use crate::sharing::{Mutant, Sharing};

/// Where a client believes the file to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Belief {
    /// It has no part in it.
    #[default]
    Nowhere,
    /// At the proxy.
    Joined {
        /// Which stay.
        seat: Seat,
        /// Something was written there, and no sync has covered it.
        unsynced: bool,
    },
    /// Here, under the write lease.
    Holds {
        /// Of the lease.
        epoch: Epoch,
        /// The file as this client has it.
        log: Log,
        /// How much of it is known to be synced.
        synced: u8,
    },
}

/// An operation under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operation {
    /// Its number; another one for each place that a write is tried at.
    pub number: u8,
    /// Its kind.
    pub wish: Wish,
    /// The stay that it was sent to and no answer came from.
    pub to: Option<Seat>,
    /// Of an fsync: the writes that it is to promise. Of a read: the writes that fsync had promised when it began.
    pub writes: Writes,
    /// Of a read: the log that a client had been shown when it began.
    pub seen: Log,
}

/// A client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Client {
    /// Where the file is.
    pub place: Belief,
    /// The operation that it waits for.
    pub operation: Option<Operation>,
    /// Its handles still have to report EIO.
    pub sticky: bool,
    /// The last stay of which it heard that it ended with everything synced.
    pub kept: Option<Seat>,
    /// Of the last operation.
    pub last_number: u8,
    /// How many stays there had been when the last one that it joined began: it joins none of those again.
    pub joined: usize,
}

impl Client {
    /// The stay that it takes part in.
    #[must_use]
    pub const fn seat(&self) -> Option<Seat> {
        match self.place {
            Belief::Joined { seat, .. } => Some(seat),
            Belief::Nowhere | Belief::Holds { .. } => None,
        }
    }

    fn next_number(&mut self) -> u8 {
        self.last_number += 1;
        self.last_number
    }

    /// The stay is over. Unsynced writes of it may be gone, unless the proxy kept them.
    fn leave(&mut self, protocol: &Sharing, kept: bool) {
        let Belief::Joined { seat, unsynced } = self.place else { return };
        self.place = Belief::Nowhere;
        if kept {
            self.kept = Some(seat);
        } else if unsynced && !protocol.is(Mutant::ForgetsUnsynced) {
            self.sticky = true;
        }
    }

    /// A handle reports the error, if there is one.
    fn hears_of_loss(&mut self, name: ClientName, history: &mut History) -> bool {
        if self.sticky {
            self.sticky = false;
            history.warn(name);
            return true;
        }
        false
    }
}

/// A program calls write, fsync or read.
pub fn begin_operation(state: &mut State, name: ClientName, wish: fn(u8) -> Wish) {
    let (client, history) = (&mut state.clients[name.index()], &mut state.history);
    let is_write = matches!(wish(0), Wish::Write(_));
    if is_write && client.hears_of_loss(name, history) {
        return;
    }
    let wish = if is_write { wish(history.begin_write(name)) } else { wish(0) };
    let (writes, seen) = match wish {
        Wish::Write(_) => (Writes::NONE, Log::default()),
        Wish::Sync => (history.open(name), Log::default()),
        Wish::Read => (history.firm, history.seen),
    };
    let number = client.next_number();
    client.operation = Some(Operation { number, wish, to: None, writes, seen });
    state.syncs += u8::from(wish == Wish::Sync);
    state.reads += u8::from(wish == Wish::Read);
}

/// An answer to a join comes: perhaps that stay is over by now.
pub fn join(state: &mut State, name: ClientName, place: usize) {
    let client = &mut state.clients[name.index()];
    client.place = Belief::Joined { seat: state.seats[place], unsynced: false };
    client.joined = place + 1;
}

/// The operation is sent to the stay that this client takes part in; sending it again is sending it once.
pub fn send(state: &mut State, name: ClientName) {
    let client = &mut state.clients[name.index()];
    let (Some(seat), Some(operation)) = (client.seat(), &mut client.operation) else { return };
    operation.to = Some(seat);
    state.network.request(Request { client: name, number: operation.number, seat, wish: operation.wish });
}

/// The answer to a request.
pub fn hear(protocol: &Sharing, state: &mut State, reply: Reply) {
    let name = reply.client;
    let client = &mut state.clients[name.index()];
    let Some(operation) = client.operation else { return };
    let seat = reply.seat;
    match (reply.answer, operation.wish) {
        (Answer::Moved { kept }, _) => {
            let is_same = reply.boot == seat.boot;
            if client.seat() == Some(seat) {
                client.leave(protocol, kept && is_same);
            }
            if is_same || protocol.is(Mutant::TrustsAnyProcess) {
                retry(client);
            } else {
                find_gone(protocol, state, name);
            }
        }
        (Answer::Done, Wish::Write(write)) => {
            client.operation = None;
            match &mut client.place {
                Belief::Joined { seat: here, unsynced } if *here == seat => *unsynced = true,
                // The stay ended before its answer came.
                _ if client.kept != Some(seat) && !protocol.is(Mutant::ForgetsLateAnswers) => client.sticky = true,
                _ => {}
            }
            state.history.answered = state.history.answered.with(write);
            state.history.proxied = state.history.proxied.with(write);
        }
        (Answer::Done, _) => {
            if let Belief::Joined { seat: here, unsynced } = &mut client.place
                && *here == seat
            {
                *unsynced = false;
            }
            finish_sync(state, name);
        }
        (Answer::Content(log), _) => {
            client.operation = None;
            state.history.show(name, &log, &operation.seen, operation.writes);
        }
        (Answer::Failed, Wish::Write(write)) => {
            client.operation = None;
            state.history.unknown = state.history.unknown.with(write);
        }
        (Answer::Failed, _) => {
            client.sticky = true;
            finish_sync(state, name);
        }
    }
}

/// An fsync returns: with success, or with an earlier error.
pub fn finish_sync(state: &mut State, name: ClientName) {
    let client = &mut state.clients[name.index()];
    let Some(operation) = client.operation.take() else { return };
    if !client.hears_of_loss(name, &mut state.history) {
        state.history.promise(operation.writes);
    }
}

/// The operation was not carried out, or changed nothing: tried again wherever the file is, under another number.
fn retry(client: &mut Client) {
    let number = client.next_number();
    if let Some(operation) = &mut client.operation {
        operation.number = number;
        operation.to = None;
    }
}

/// No answer came, and the stay that was meant is over for this client.
pub fn find_gone(protocol: &Sharing, state: &mut State, name: ClientName) {
    let client = &mut state.clients[name.index()];
    match client.operation.map(|operation| operation.wish) {
        Some(Wish::Write(_)) if !protocol.is(Mutant::RepeatsUnknown) => give_up(state, name),
        Some(_) => retry(client),
        None => {}
    }
}

/// A write fails, done or not.
pub fn give_up(state: &mut State, name: ClientName) {
    let operation = state.clients[name.index()].operation.take();
    if let Some(Operation { wish: Wish::Write(write), .. }) = operation {
        state.history.unknown = state.history.unknown.with(write);
    }
}

/// The master says that the file is not at that proxy any more; how its stay ended it does not know.
pub fn ask_master(protocol: &Sharing, state: &mut State, name: ClientName) {
    state.clients[name.index()].leave(protocol, false);
}

/// Gets the write lease.
pub fn take_lease(state: &mut State, name: ClientName) {
    state.master.epoch += 1;
    state.master.holder = Some(Holder::Client(name));
    let (epoch, log) = (state.master.epoch, state.store.received);
    state.store.fence = epoch;
    state.clients[name.index()].place = Belief::Holds { epoch, log, synced: log.len() };
}

/// Carries its operation out under its own lease.
pub fn do_here(state: &mut State, name: ClientName) {
    let client = &mut state.clients[name.index()];
    let Belief::Holds { epoch, log, synced } = &mut client.place else { return };
    match client.operation.map(|operation| operation.wish) {
        Some(Wish::Write(write)) => {
            log.push(write);
            client.operation = None;
            state.history.answered = state.history.answered.with(write);
        }
        Some(Wish::Sync) if state.store.obeys(*epoch) => {
            state.store.on_write(log);
            state.store.sync();
            *synced = log.len();
            finish_sync(state, name);
        }
        Some(Wish::Read) => client.operation = None,
        Some(Wish::Sync) | None => {}
    }
}

/// Gives its lease back, everything synced.
pub fn release(state: &mut State, name: ClientName) {
    let client = &mut state.clients[name.index()];
    let Belief::Holds { log, .. } = client.place else { return };
    state.store.on_write(&log);
    state.store.sync();
    state.master.holder = None;
    client.place = Belief::Nowhere;
}

/// Finds that its lease is over.
pub fn notice(state: &mut State, name: ClientName) {
    let client = &mut state.clients[name.index()];
    let Belief::Holds { log, synced, .. } = client.place else { return };
    client.sticky |= log.len() > synced;
    client.place = Belief::Nowhere;
}
