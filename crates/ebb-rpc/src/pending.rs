//! Calls that wait for their answer on one connection.

use std::collections::BTreeMap;

use bytes::Bytes;
use ebb_runtime::Moment;
use ebb_types::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::departure::Departure;

/// A good answer before it is decoded.
#[derive(Debug)]
pub(crate) struct RawReply {
    pub message: Bytes,
    pub payload: Bytes,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The peer answered.
    Answered(Result<RawReply>),
    /// The connection broke; the request may have been done.
    Broken(Error),
    /// Nothing was done: the connection broke before a byte of the request was written, or the peer said that it did not take
    /// it. It can go out again on another connection.
    NotTaken(Error),
}

/// The calls of one connection. Each is forgotten when its ticket is dropped.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    closed: Option<Error>,
}

#[derive(Debug)]
struct Waiting {
    outcome: oneshot::Sender<Outcome>,
    departure: Departure,
    sent: bool,
}

impl Pending {
    /// A number for a new call and the place where its outcome will appear; an error if the connection is closed.
    pub fn register(&self, departure: &Departure) -> Result<(u64, oneshot::Receiver<Outcome>)> {
        let mut table = self.0.lock();
        if let Some(error) = &table.closed {
            return Err(error.clone());
        }
        table.next += 1;
        let request = table.next;
        let (outcome, receiver) = oneshot::channel();
        table.waiting.insert(request, Waiting { outcome, departure: departure.clone(), sent: false });
        Ok((request, receiver))
    }

    /// Records that bytes of the request are about to be written; false if its caller does not wait any more.
    pub fn mark_sent(&self, request: u64) -> bool {
        match self.0.lock().waiting.get_mut(&request) {
            Some(waiting) => {
                waiting.sent = true;
                true
            }
            None => false,
        }
    }

    /// Whether the caller still waits for this call.
    pub fn is_waiting(&self, request: u64) -> bool {
        self.0.lock().waiting.contains_key(&request)
    }

    /// The peer says that what a call waits for is held up.
    pub fn tell_held_up(&self, request: u64, now: Moment) {
        if let Some(waiting) = self.0.lock().waiting.get(&request) {
            waiting.departure.hear_held_up(now);
        }
    }

    /// Forgets a call that its caller gave up.
    pub fn forget(&self, request: u64) {
        self.0.lock().waiting.remove(&request);
    }

    /// Hands an answer to its call, if the caller still waits for it.
    pub fn answer(&self, request: u64, answer: Result<RawReply>) {
        let waiting = self.0.lock().waiting.remove(&request);
        if let Some(waiting) = waiting {
            // A caller that gave up in this very moment is fine.
            let _ = waiting.outcome.send(Outcome::Answered(answer));
        }
    }

    /// The connection broke: ends every call; later ones are refused with `error`. The first error stays.
    pub fn close(&self, error: &Error) {
        self.end(error, |waiting| waiting.sent);
    }

    /// The peer said goodbye: it has answered all that it took. Ends every call that still waits; later ones are refused.
    pub fn turn_away(&self, error: &Error) {
        self.end(error, |_| false);
    }

    fn end(&self, error: &Error, may_be_done: impl Fn(&Waiting) -> bool) {
        let waiting = {
            let mut table = self.0.lock();
            table.closed.get_or_insert_with(|| error.clone());
            std::mem::take(&mut table.waiting)
        };
        for waiting in waiting.into_values() {
            let end = if may_be_done(&waiting) { Outcome::Broken } else { Outcome::NotTaken };
            // A caller that gave up in this very moment is fine.
            let _ = waiting.outcome.send(end(error.clone()));
        }
    }

    pub fn is_closed(&self) -> bool {
        self.0.lock().closed.is_some()
    }

    /// Calls in progress.
    pub fn len(&self) -> usize {
        self.0.lock().waiting.len()
    }
}
