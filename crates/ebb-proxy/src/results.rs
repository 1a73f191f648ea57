//! Operations are carried out once: what was answered is remembered until its client has taken the answer.
//!
//! A client numbers its requests and says with each one below which number it waits for no answer any more. Between that
//! *floor* and its newest request it has a bounded window. A request in the window is new, under way or answered; one
//! below the floor is late, nobody waits for it, and it is refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{InodeId, Result, SessionId, bail};
use ebb_wire::pb;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Requests of one session between the floor and the newest.
const WINDOW_MAX: usize = 256;
/// Sessions remembered.
const SESSIONS_MAX: usize = 1 << 16;
/// A session that has sent nothing for so long has given up everything: no operation of a client lasts so long.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// The place of one answer.
#[derive(Debug)]
pub struct Slot {
    /// The file that it is about: only then the same number means the same request.
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

    /// Puts the answer in, if there is none.
    pub fn fill(&self, reply: pb::SharedOpReply) {
        self.reply.lock().get_or_insert(reply);
        self.filled.notify_waiters();
    }

    fn is_filled(&self) -> bool {
        self.reply.lock().is_some()
    }
}

/// What a request is.
#[derive(Debug)]
pub enum Place {
    /// New: to be carried out, and the slot to be filled.
    New(Arc<Slot>),
    /// Under way or done.
    Known(Arc<Slot>),
}

/// What all sessions were answered.
#[derive(Debug, Default)]
pub struct Results {
    sessions: BTreeMap<SessionId, Answers>,
}

#[derive(Debug)]
struct Answers {
    floor: u64,
    slots: BTreeMap<u64, Arc<Slot>>,
    heard: Moment,
}

impl Results {
    /// Looks for a request's answer without taking a place for it.
    ///
    /// Errors: `Stale` below the floor, `Invalid` if the number was another file's.
    pub fn find(&mut self, session: SessionId, request: u64, inode: InodeId, now: Moment) -> Result<Option<Arc<Slot>>> {
        let Some(answers) = self.sessions.get_mut(&session) else { return Ok(None) };
        // Who asks again has not given up, however long it takes: where members sleep that may be long.
        answers.heard = now;
        answers.find(session, request, inode)
    }

    /// Takes the place of a request, or finds that it has one. `acknowledged`: no answer below it is waited for.
    ///
    /// Errors: as [`Results::find`], and `Overloaded` if the session's window, or the table, is full.
    pub fn enter(
        &mut self,
        session: SessionId,
        request: u64,
        acknowledged: u64,
        inode: InodeId,
        now: Moment,
    ) -> Result<Place> {
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
        if let Some(slot) = answers.find(session, request, inode)? {
            return Ok(Place::Known(slot));
        }
        if answers.slots.len() >= WINDOW_MAX {
            bail!(Overloaded, "session {session} has {WINDOW_MAX} requests whose answers it has not taken");
        }
        let slot = Arc::new(Slot { inode, reply: Mutex::default(), filled: Notify::new() });
        answers.slots.insert(request, Arc::clone(&slot));
        Ok(Place::New(slot))
    }

    /// Forgets sessions that have been silent for long.
    pub fn sweep(&mut self, now: Moment) {
        self.sessions.retain(|_, answers| {
            now.since(answers.heard) < FORGET_AFTER || answers.slots.values().any(|slot| !slot.is_filled())
        });
    }
}

impl Answers {
    fn raise_floor(&mut self, acknowledged: u64) {
        if acknowledged > self.floor {
            self.floor = acknowledged;
            self.slots = self.slots.split_off(&acknowledged);
        }
    }

    fn find(&self, session: SessionId, request: u64, inode: InodeId) -> Result<Option<Arc<Slot>>> {
        if request < self.floor {
            bail!(Stale, "request {request} of session {session} is late: its answer was taken or given up");
        }
        match self.slots.get(&request) {
            Some(slot) if slot.inode != inode => {
                bail!(Invalid, "request {request} of session {session} was about {}, not {inode}", slot.inode)
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

    fn enter(results: &mut Results, request: u64, acknowledged: u64) -> Result<Place> {
        results.enter(ONE, request, acknowledged, FILE, Moment::default())
    }

    #[test]
    fn a_request_is_new_once_and_known_until_its_answer_was_taken() {
        let mut results = Results::default();
        let Place::New(slot) = enter(&mut results, 1, 1).unwrap() else { panic!("it is new") };
        assert!(matches!(enter(&mut results, 1, 1), Ok(Place::Known(_))));
        slot.fill(pb::SharedOpReply { offset: 5, ..Default::default() });
        slot.fill(pb::SharedOpReply { offset: 6, ..Default::default() });
        let Place::Known(again) = enter(&mut results, 1, 1).unwrap() else { panic!("it is known") };
        assert_eq!(again.reply.lock().as_ref().map(|reply| reply.offset), Some(5), "the first answer stays");
        assert!(matches!(enter(&mut results, 2, 2), Ok(Place::New(_))));
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
        assert!(matches!(enter(&mut results, next, 2), Ok(Place::New(_))));
        let other = results.enter(ONE, next, 2, InodeId::new(8), Moment::default());
        assert_eq!(other.unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn silent_sessions_are_forgotten_but_not_what_is_under_way() {
        let mut results = Results::default();
        let Place::New(slot) = enter(&mut results, 1, 1).unwrap() else { panic!("it is new") };
        let late = Moment::default().after(FORGET_AFTER);
        results.sweep(late);
        slot.fill(pb::SharedOpReply::default());
        assert!(results.find(ONE, 1, FILE, late).unwrap().is_some());
        results.sweep(late.after(FORGET_AFTER - Duration::from_secs(1)));
        assert!(results.find(ONE, 1, FILE, late).unwrap().is_some(), "it was asked for a while ago");
        results.sweep(late.after(FORGET_AFTER));
        assert!(results.find(ONE, 1, FILE, late).unwrap().is_none());
    }
}
