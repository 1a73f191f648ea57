//! Results of operations. Each operation is executed once: its answer is kept until its client has it.
//!
//! A client numbers its requests. Each one names the *floor*: the client waits for no answer below it. Between the
//! floor and the newest request there is a bounded window. A request in the window is new, under way or answered. A
//! request below the floor is late, and is refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{InodeId, RequestId, Result, SessionId, bail};
use ebb_wire::pb;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::requests::RequestName;

/// Most requests of one session between the floor and the newest.
const WINDOW_MAX: usize = 256;
/// Most sessions that are remembered.
const SESSIONS_MAX: usize = 1 << 16;
/// A session that has sent nothing for so long waits for no answer: no operation of a client takes so long.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// The place of one answer.
#[derive(Debug)]
pub struct Slot {
    /// The file of the request. One number may name only requests about one file.
    inode: InodeId,
    reply: Mutex<Option<pb::SharedOpReply>>,
    filled: Notify,
}

impl Slot {
    /// Waits for the answer.
    pub async fn wait(&self) -> pb::SharedOpReply {
        loop {
            let filled = self.filled.notified();
            tokio::pin!(filled);
            filled.as_mut().enable();
            if let Some(reply) = self.reply.lock().clone() {
                return reply;
            }
            filled.await;
        }
    }

    /// Sets the answer, if there is none.
    pub fn fill(&self, reply: pb::SharedOpReply) {
        self.reply.lock().get_or_insert(reply);
        self.filled.notify_waiters();
    }

    fn is_filled(&self) -> bool {
        self.reply.lock().is_some()
    }
}

/// The entry of a request in a table, and whether it is new.
#[derive(Debug)]
pub enum Entered<T> {
    /// New. The caller carries the request out, and fills the entry.
    New(Arc<T>),
    /// The request is under way or done.
    Known(Arc<T>),
}

/// The answers to all sessions.
#[derive(Debug, Default)]
pub struct Results {
    sessions: BTreeMap<SessionId, Answers>,
}

#[derive(Debug)]
struct Answers {
    floor: RequestId,
    slots: BTreeMap<RequestId, Arc<Slot>>,
    heard: Moment,
}

impl Results {
    /// Finds the slot of a request. It makes none.
    ///
    /// Errors: `Stale` below the floor, `Invalid` if the number belongs to another file.
    pub fn find(&mut self, name: RequestName, inode: InodeId, now: Moment) -> Result<Option<Arc<Slot>>> {
        let Some(answers) = self.sessions.get_mut(&name.session) else { return Ok(None) };
        // A client that asks again still waits. If members sleep, this may take long.
        answers.heard = now;
        answers.find(name, inode)
    }

    /// Makes the slot of a request, or finds it. The client waits for no answer below `acknowledged`.
    ///
    /// Errors: as [`Results::find`], and `Overloaded` if the session's window, or the table, is full.
    pub fn enter(
        &mut self,
        name: RequestName,
        acknowledged: RequestId,
        inode: InodeId,
        now: Moment,
    ) -> Result<Entered<Slot>> {
        let RequestName { session, request } = name;
        if !self.sessions.contains_key(&session) && self.sessions.len() >= SESSIONS_MAX {
            bail!(Overloaded, "the proxy serves {SESSIONS_MAX} sessions already");
        }
        let answers = self.sessions.entry(session).or_insert_with(|| Answers {
            floor: acknowledged,
            slots: BTreeMap::new(),
            heard: now,
        });
        answers.heard = now;
        answers.raise_floor(acknowledged);
        if let Some(slot) = answers.find(name, inode)? {
            return Ok(Entered::Known(slot));
        }
        if answers.slots.len() >= WINDOW_MAX {
            bail!(Overloaded, "session {session} has {WINDOW_MAX} requests whose answers it has not taken");
        }
        let slot = Arc::new(Slot { inode, reply: Mutex::default(), filled: Notify::new() });
        // I-39: the slot is taken before the work starts, so a repeated request finds it and waits.
        let before = answers.slots.insert(request, Arc::clone(&slot));
        assert!(before.is_none(), "{name:?} would be carried out twice");
        Ok(Entered::New(slot))
    }

    /// Forgets sessions that have been silent for long.
    pub fn sweep(&mut self, now: Moment) {
        self.sessions.retain(|_, answers| {
            now.since(answers.heard) < FORGET_AFTER || answers.slots.values().any(|slot| !slot.is_filled())
        });
    }
}

impl Answers {
    fn raise_floor(&mut self, acknowledged: RequestId) {
        if acknowledged > self.floor {
            self.floor = acknowledged;
            self.slots = self.slots.split_off(&acknowledged);
        }
        debug_assert!(self.slots.keys().all(|request| *request >= self.floor), "an answer below the floor is kept");
    }

    fn find(&self, name: RequestName, inode: InodeId) -> Result<Option<Arc<Slot>>> {
        let RequestName { session, request } = name;
        if request < self.floor {
            bail!(Stale, "{request} of session {session} is late: its answer was taken or given up");
        }
        match self.slots.get(&request) {
            Some(slot) if slot.inode != inode => {
                bail!(Invalid, "{request} of session {session} was about {}, not {inode}", slot.inode)
            }
            slot => Ok(slot.cloned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    const ONE: SessionId = SessionId::new(1);
    const FILE: InodeId = InodeId::new(7);

    fn enter(results: &mut Results, request: u64, acknowledged: u64) -> Result<Entered<Slot>> {
        results.enter(RequestName::new(ONE, request), RequestId::new(acknowledged), FILE, Moment::default())
    }

    #[test]
    fn a_request_is_new_once_and_known_until_its_answer_was_taken() {
        let mut results = Results::default();
        let Entered::New(slot) = enter(&mut results, 1, 1).unwrap() else { panic!("it is new") };
        assert!(matches!(enter(&mut results, 1, 1), Ok(Entered::Known(_))));
        slot.fill(pb::SharedOpReply { offset: 5, ..Default::default() });
        slot.fill(pb::SharedOpReply { offset: 6, ..Default::default() });
        let Entered::Known(again) = enter(&mut results, 1, 1).unwrap() else { panic!("it is known") };
        assert_eq!(again.reply.lock().as_ref().map(|reply| reply.offset), Some(5), "the first answer stays");
        assert!(matches!(enter(&mut results, 2, 2), Ok(Entered::New(_))));
        assert_eq!(enter(&mut results, 1, 1).unwrap_err().kind(), ErrorKind::Stale, "late: nobody waits for it");
    }

    #[test]
    fn the_window_is_bounded_and_a_number_belongs_to_one_file() {
        let mut results = Results::default();
        for request in 1..=WINDOW_MAX as u64 {
            enter(&mut results, request, 1).unwrap();
        }
        let next = WINDOW_MAX as u64 + 1;
        assert_eq!(enter(&mut results, next, 1).unwrap_err().kind(), ErrorKind::Overloaded);
        assert!(matches!(enter(&mut results, next, 2), Ok(Entered::New(_))));
        let other = results.enter(RequestName::new(ONE, next), RequestId::new(2), InodeId::new(8), Moment::default());
        assert_eq!(other.unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn silent_sessions_are_forgotten_but_not_requests_under_way() {
        let mut results = Results::default();
        let Entered::New(slot) = enter(&mut results, 1, 1).unwrap() else { panic!("it is new") };
        let late = Moment::default().after(FORGET_AFTER);
        results.sweep(late);
        slot.fill(pb::SharedOpReply::default());
        assert!(results.find(RequestName::new(ONE, 1), FILE, late).unwrap().is_some());
        results.sweep(late.after(FORGET_AFTER - Duration::from_secs(1)));
        assert!(results.find(RequestName::new(ONE, 1), FILE, late).unwrap().is_some(), "it was asked for a while ago");
        results.sweep(late.after(FORGET_AFTER));
        assert!(results.find(RequestName::new(ONE, 1), FILE, late).unwrap().is_none());
    }
}
