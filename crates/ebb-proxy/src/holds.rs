//! Calls that are held, and answers that wait to be taken. Plain values: moments come in as arguments.
//!
//! A call has a number in its client's session. It stays until its client says that it has the answer (or has given up),
//! until the client's patience is over, or until the session is. What is held may be carried out twice, so one that was
//! forgotten is simply held anew when it is sent again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use ebb_runtime::Moment;
use ebb_types::{Result, SessionId, bail};
use ebb_wire::pb;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// Calls of one session at a time: a client fetches ahead and writes ahead by far less.
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
    /// Room for the call or its answer, whichever is larger, for as long as either is here.
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

    /// Puts the answer in, if there is none.
    pub fn fill(&self, kept: Kept) {
        self.kept.lock().get_or_insert(kept);
        self.filled.notify_waiters();
    }

    /// Whether anybody still waits for the answer at `now`.
    pub fn is_wanted(&self, now: Moment) -> bool {
        !self.given_up.load(Ordering::Relaxed) && now < *self.until.lock()
    }

    /// The client was heard again: it waits until then.
    fn extend(&self, until: Moment) {
        let mut known = self.until.lock();
        *known = until.max(*known);
    }
}

/// All calls that are held.
#[derive(Debug, Default)]
pub struct Holds(BTreeMap<(SessionId, u64), Arc<Hold>>);

impl Holds {
    /// The call of this number, if it is held. Its client waits until `until` now.
    pub fn find(&self, session: SessionId, request: u64, until: Moment) -> Option<Arc<Hold>> {
        let hold = self.0.get(&(session, request)).cloned()?;
        hold.extend(until);
        Some(hold)
    }

    /// Takes a call in. True: it is new, and to be carried out.
    ///
    /// Errors: `Overloaded` if the session has too many.
    pub fn enter(
        &mut self,
        session: SessionId,
        request: u64,
        until: Moment,
        room: OwnedSemaphorePermit,
    ) -> Result<(Arc<Hold>, bool)> {
        if let Some(hold) = self.find(session, request, until) {
            return Ok((hold, false));
        }
        if self.0.range((session, 0)..=(session, u64::MAX)).count() >= SESSION_MAX {
            bail!(Overloaded, "{SESSION_MAX} calls of session {session} are held already");
        }
        let hold = Arc::new(Hold::new(until, room));
        self.0.insert((session, request), Arc::clone(&hold));
        Ok((hold, true))
    }

    /// The client of a session waits for no answer below `acknowledged` any more.
    pub fn acknowledge(&mut self, session: SessionId, acknowledged: u64) {
        let taken: Vec<_> = self.0.range((session, 0)..(session, acknowledged)).map(|(key, _)| *key).collect();
        taken.into_iter().for_each(|key| self.forget(key));
    }

    /// Forgets what nobody waits for: patience is over, or the session is.
    pub fn sweep(&mut self, now: Moment, lives: impl Fn(SessionId) -> bool) {
        let over =
            |(key, hold): (&(SessionId, u64), &Arc<Hold>)| (!hold.is_wanted(now) || !lives(key.0)).then_some(*key);
        let over: Vec<_> = self.0.iter().filter_map(over).collect();
        over.into_iter().for_each(|key| self.forget(key));
    }

    fn forget(&mut self, key: (SessionId, u64)) {
        if let Some(hold) = self.0.remove(&key) {
            hold.given_up.store(true, Ordering::Relaxed);
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
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
        holds.enter(session, request, at(30), room).unwrap()
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
        holds.acknowledge(ONE, 2);
        assert!(!first.is_wanted(at(0)), "who carries it out is told");
        drop(first);
        assert_eq!((holds.len(), memory.available_permits()), (2, 80), "another session's are its own");
    }

    #[test]
    fn what_nobody_waits_for_goes_and_who_asks_again_is_waited_for() {
        let memory = Arc::new(Semaphore::new(100));
        let mut holds = Holds::default();
        let (patient, _) = enter(&mut holds, &memory, ONE, 1);
        enter(&mut holds, &memory, ONE, 2);
        enter(&mut holds, &memory, TWO, 1);
        assert!(holds.find(ONE, 1, at(60)).is_some());
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
        assert_eq!(holds.enter(ONE, 1000, at(30), room).unwrap_err().kind(), ErrorKind::Overloaded);
        assert!(enter(&mut holds, &memory, TWO, 1).1);
    }
}
