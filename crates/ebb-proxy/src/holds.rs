//! Calls that are held, and answers that wait for their clients. These are plain values: moments come in as arguments.
//!
//! A call has a number in its client's session. It is held until one of these comes:
//! - the client has the answer, or has given up;
//! - the client's patience is over;
//! - the session is over.
//!
//! A held call may be executed twice. So a forgotten call is simply held anew when it is sent again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use ebb_runtime::Moment;
use ebb_types::{RequestId, Result, SessionId, bail};
use ebb_wire::pb;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::requests::RequestName;
use crate::results::Entered;

/// Most calls of one session at a time. A client fetches ahead and writes ahead by far less.
const SESSION_MAX: usize = 256;

/// An answer, and the bytes beside it.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The answer.
    pub reply: pb::RelayReply,
    /// Bytes that were read.
    pub payload: Bytes,
}

/// One call.
#[derive(Debug)]
pub struct Hold {
    until: Mutex<Moment>,
    given_up: AtomicBool,
    kept: Mutex<Option<Kept>>,
    filled: Notify,
    /// Room for the call or its answer, whichever is larger, as long as one of them is here.
    _room: OwnedSemaphorePermit,
}

impl Hold {
    fn new(until: Moment, room: OwnedSemaphorePermit) -> Self {
        Self {
            until: Mutex::new(until),
            given_up: AtomicBool::new(false),
            kept: Mutex::default(),
            filled: Notify::new(),
            _room: room,
        }
    }

    /// Waits for the answer.
    pub async fn wait(&self) -> Kept {
        loop {
            let filled = self.filled.notified();
            tokio::pin!(filled);
            filled.as_mut().enable();
            if let Some(kept) = self.kept.lock().clone() {
                return kept;
            }
            filled.await;
        }
    }

    /// Sets the answer, if there is none.
    pub fn fill(&self, kept: Kept) {
        self.kept.lock().get_or_insert(kept);
        self.filled.notify_waiters();
    }

    /// Whether the client still waits for the answer at `now`.
    pub fn is_wanted(&self, now: Moment) -> bool {
        !self.given_up.load(Ordering::Relaxed) && now < *self.until.lock()
    }

    /// Extends the wait: the client has called again.
    fn extend(&self, until: Moment) {
        let mut known = self.until.lock();
        // Repeated calls overtake each other: an earlier end never shortens the wait.
        *known = until.max(*known);
    }
}

/// All calls that are held.
#[derive(Debug, Default)]
pub struct Holds(BTreeMap<RequestName, Arc<Hold>>);

impl Holds {
    /// The held call of this name. Its client now waits until `until`.
    pub fn find(&self, name: RequestName, until: Moment) -> Option<Arc<Hold>> {
        let hold = self.0.get(&name).cloned()?;
        hold.extend(until);
        Some(hold)
    }

    /// Holds a call, unless it is held.
    ///
    /// Errors: `Overloaded` if the session has too many.
    pub fn enter(&mut self, name: RequestName, until: Moment, room: OwnedSemaphorePermit) -> Result<Entered<Hold>> {
        if let Some(hold) = self.find(name, until) {
            return Ok(Entered::Known(hold));
        }
        // I-100: a session that never acknowledges fills its own places only.
        if self.0.range(RequestName::all_of(name.session)).count() >= SESSION_MAX {
            bail!(Overloaded, "{SESSION_MAX} calls of session {} are held already", name.session);
        }
        let hold = Arc::new(Hold::new(until, room));
        let before = self.0.insert(name, Arc::clone(&hold));
        assert!(before.is_none(), "{name:?} is held twice: its first caller would wait for ever");
        Ok(Entered::New(hold))
    }

    /// Forgets the answers below `acknowledged`: the session's client waits for none of them.
    pub fn acknowledge(&mut self, session: SessionId, acknowledged: RequestId) {
        let range = RequestName::new(session, 0)..RequestName { session, request: acknowledged };
        let taken: Vec<_> = self.0.range(range).map(|(name, _)| *name).collect();
        taken.into_iter().for_each(|name| self.forget(name));
    }

    /// Forgets calls whose client's patience is over, or whose session is.
    pub fn sweep(&mut self, now: Moment, lives: impl Fn(SessionId) -> bool) {
        let over =
            |(name, hold): (&RequestName, &Arc<Hold>)| (!hold.is_wanted(now) || !lives(name.session)).then_some(*name);
        let over: Vec<_> = self.0.iter().filter_map(over).collect();
        over.into_iter().for_each(|name| self.forget(name));
    }

    fn forget(&mut self, name: RequestName) {
        if let Some(hold) = self.0.remove(&name) {
            // The task of the call looks at this before it sends the call.
            hold.given_up.store(true, Ordering::Relaxed);
        }
    }

    /// Number of calls that are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no call is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ebb_types::ErrorKind;
    use tokio::sync::Semaphore;

    use super::*;

    const ONE: SessionId = SessionId::new(1);
    const TWO: SessionId = SessionId::new(2);

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    fn enter(holds: &mut Holds, memory: &Arc<Semaphore>, session: SessionId, request: u64) -> (Arc<Hold>, bool) {
        let room = Arc::clone(memory).try_acquire_many_owned(10).unwrap();
        match holds.enter(RequestName::new(session, request), at(30), room).unwrap() {
            Entered::New(hold) => (hold, true),
            Entered::Known(hold) => (hold, false),
        }
    }

    #[test]
    fn a_call_is_held_once_and_its_room_is_free_when_its_answer_was_taken() {
        let memory = Arc::new(Semaphore::new(100));
        let mut holds = Holds::default();
        let (first, is_new) = enter(&mut holds, &memory, ONE, 1);
        assert!(is_new);
        let (again, is_new) = enter(&mut holds, &memory, ONE, 1);
        assert!(!is_new && Arc::ptr_eq(&first, &again));
        drop(again);
        enter(&mut holds, &memory, ONE, 2);
        enter(&mut holds, &memory, TWO, 1);
        assert_eq!((holds.len(), memory.available_permits()), (3, 70));
        holds.acknowledge(ONE, RequestId::new(2));
        assert!(!first.is_wanted(at(0)), "who carries it out is told");
        drop(first);
        assert_eq!((holds.len(), memory.available_permits()), (2, 80), "another session's are its own");
    }

    #[test]
    fn a_hold_without_a_waiter_goes_and_a_repeated_request_is_waited_for() {
        let memory = Arc::new(Semaphore::new(100));
        let mut holds = Holds::default();
        let (patient, _) = enter(&mut holds, &memory, ONE, 1);
        enter(&mut holds, &memory, ONE, 2);
        enter(&mut holds, &memory, TWO, 1);
        assert!(holds.find(RequestName::new(ONE, 1), at(60)).is_some());
        holds.sweep(at(10), |session| session == ONE);
        assert_eq!(holds.len(), 2, "a session is over");
        holds.sweep(at(30), |_| true);
        assert!(holds.len() == 1 && patient.is_wanted(at(59)) && !patient.is_wanted(at(60)));
    }

    #[test]
    fn one_session_cannot_fill_the_table() {
        let memory = Arc::new(Semaphore::new(10_000));
        let mut holds = Holds::default();
        (1..=SESSION_MAX as u64).for_each(|request| drop(enter(&mut holds, &memory, ONE, request)));
        let room = Arc::clone(&memory).try_acquire_many_owned(10).unwrap();
        assert_eq!(holds.enter(RequestName::new(ONE, 1000), at(30), room).unwrap_err().kind(), ErrorKind::Overloaded);
        assert!(enter(&mut holds, &memory, TWO, 1).1);
    }
}
