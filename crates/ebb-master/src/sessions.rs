//! Sessions: their life, and the messages due to each.
//!
//! A plain state machine; moments come in as arguments. The logged state has the sessions themselves. This module has
//! the leader's soft state about them: the last contact, recalls, granted locks, changes by other sessions.
//!
//! An answer can be lost on its way. A recall is therefore repeated until the client complies. Lock grants and changes
//! are idempotent, so they are simply repeated in every answer of the next seconds.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{HostName, InodeId, KERNEL_TRUST_MAX, Result, SESSION_MARGIN, SessionId, bail};
use ebb_wire::pb;
use tokio::sync::Notify;

use crate::leases::Mode;
use crate::patience::{Owed, Word};

/// Time after which an unanswered recall or question is sent again.
const REPEAT_AFTER: Duration = Duration::from_secs(1);
/// Time for which lock grants and changes are repeated in answers.
const REMEMBER: Duration = Duration::from_secs(3);

/// Time after which the master asks a session whether a file without a name is still open there. The question is
/// repeated at this interval. Most files that are removed while open are closed sooner.
const ASK_AFTER: Duration = Duration::from_secs(10);
/// Sessions that a host may have, whatever other hosts have, while any are free.
const SESSIONS_GUARANTEED: usize = 16;
/// Maximum number of nameless files that one answer asks about.
const ASKED_MAX: usize = 1000;

/// All sessions known to this leader.
#[derive(Debug, Default)]
pub struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    of_host: BTreeMap<HostName, usize>,
    ttl: Duration,
    /// Number of the last question sent to any holder.
    question: u64,
}

/// Size and times of a file as the holder of its write lease knows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HolderView {
    /// Bytes.
    pub size: u64,
    /// Nanoseconds since 1970.
    pub mtime_ns: i64,
}

#[derive(Debug)]
struct Session {
    host: HostName,
    /// Start of the last poll, or the moment of its answer if that came later. The time to live counts from here.
    touched: Moment,
    /// Start of the last poll.
    polled: Moment,
    /// Whether this master process knows all its leases and open handles.
    reclaimed: bool,
    /// Its end has begun, and no answer may say that it lives.
    ending: bool,
    /// When the master learned that the process is gone. Its kernel may answer programs from its pages for a while
    /// longer.
    outlived: Option<Moment>,
    /// Number of its newest poll. An older poll that still waits gives up.
    poll: u64,
    /// Highest request number among its applied mutations.
    newest_request: u64,
    recalls: BTreeMap<InodeId, Recall>,
    questions: BTreeMap<InodeId, Question>,
    locks: Vec<(pb::LockGranted, Option<Moment>)>,
    changed: BTreeMap<InodeId, Option<Moment>>,
    /// Files without a name that count as open in this session, each with the moment of the last question, or of its
    /// entry here.
    nameless: BTreeMap<InodeId, Moment>,
    news: Arc<Notify>,
}

#[derive(Debug)]
struct Recall {
    keep: Mode,
    /// No session has the file open and none can open it again: cached bytes may be dropped without a flush.
    unwanted: bool,
    sent_at: Option<Moment>,
    owed: Owed,
}

impl Recall {
    fn message(&self, inode: InodeId) -> pb::Recall {
        pb::Recall { inode: inode.raw(), keep: self.keep.raw(), question: 0, unwanted: self.unwanted }
    }
}

/// A question for size and times.
///
/// Invariant: `answered <= sent <= asked`. At most one number is sent and unanswered, so an answer is always about the
/// number that was sent last.
#[derive(Debug, Default)]
struct Question {
    asked: u64,
    sent: u64,
    sent_at: Option<Moment>,
    answered: u64,
    answer: Option<HolderView>,
    waiting: usize,
}

impl Question {
    fn is_due(&self, now: Moment) -> bool {
        let unanswered = self.sent > self.answered;
        if unanswered { is_stale(self.sent_at, now) } else { self.asked > self.sent }
    }
}

fn is_stale(sent_at: Option<Moment>, now: Moment) -> bool {
    sent_at.is_none_or(|sent_at| now.since(sent_at) >= REPEAT_AFTER)
}

/// Whether this master process knows the leases and open handles of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// The session is from the log and has not reclaimed them yet.
    Pending,
    /// The session has reclaimed them, or was opened by this process.
    Done,
}

/// Condition for the bytes that a recalled session still caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bytes {
    /// A flush is needed before the lease is given back.
    Wanted,
    /// The file is about to be freed, and its bytes may be dropped.
    Unwanted,
}

impl Sessions {
    /// An empty table, in which a session ends after `ttl` without a poll.
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Self { sessions: BTreeMap::new(), of_host: BTreeMap::new(), ttl, question: 0 }
    }

    /// Sets the number of the last question. Two processes of a master must not use the same numbers: a holder may
    /// answer a question of the earlier process late.
    #[must_use]
    pub fn numbered_from(self, question: u64) -> Self {
        Self { question, ..self }
    }

    /// Adds a session that was just opened, or one from the log. A known session stays as it is.
    pub fn insert(&mut self, session: SessionId, host: HostName, reclaim: Reclaim, now: Moment) {
        let Entry::Vacant(place) = self.sessions.entry(session) else { return };
        *self.of_host.entry(host.clone()).or_default() += 1;
        place.insert(Session {
            host,
            touched: now,
            polled: now,
            reclaimed: reclaim == Reclaim::Done,
            ending: false,
            outlived: None,
            poll: 0,
            newest_request: 0,
            recalls: BTreeMap::new(),
            questions: BTreeMap::new(),
            locks: Vec::new(),
            changed: BTreeMap::new(),
            nameless: BTreeMap::new(),
            news: Arc::default(),
        });
    }

    /// Removes a session that has ended, and wakes its waiting poll.
    pub fn remove(&mut self, session: SessionId) {
        if let Some(gone) = self.sessions.remove(&session) {
            gone.news.notify_waiters();
            if let Some(count) = self.of_host.get_mut(&gone.host) {
                // Invariant: the count is the number of the host's sessions, so it was at least 1 here.
                assert!(*count > 0, "host {} has no sessions to remove", gone.host);
                *count -= 1;
                if *count == 0 {
                    self.of_host.remove(&gone.host);
                }
            }
        }
    }

    /// Starts the session's end, which nothing can stop. Its leases go to other sessions once the end is in the log.
    ///
    /// A poll that is answered after this point would let the client believe in its leases for another time to live.
    pub fn begin_end(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.ending = true;
            session.news.notify_waiters();
        }
    }

    /// Starts the end of a session whose mount process is gone.
    ///
    /// The kernel continues to answer programs from its pages until the session's trust runs out, or for 8 s if that is
    /// less. The session is expired after that time.
    pub fn on_outlived(&mut self, session: SessionId, now: Moment) {
        self.begin_end(session);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.outlived.get_or_insert(now);
        }
    }

    /// Whether an answer may say that the session lives.
    #[must_use]
    pub fn goes_on(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| !session.ending)
    }

    /// Whether the session is in the table; its end may have begun.
    #[must_use]
    pub fn contains(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// The host that the session declared.
    #[must_use]
    pub fn host(&self, session: SessionId) -> Option<HostName> {
        self.sessions.get(&session).map(|session| session.host.clone())
    }

    /// Refuses a new session of a host that already has as many as are free for all others. `most` is the limit for the
    /// cluster.
    ///
    /// Errors: `Overloaded`.
    pub fn check_room(&self, host: &HostName, most: usize) -> Result<()> {
        // I-100: a greedy host leaves as many sessions as it has itself to others.
        let (held, free) = (self.of_host.get(host).copied().unwrap_or(0), most.saturating_sub(self.sessions.len()));
        if free == 0 || held >= free.max(SESSIONS_GUARANTEED) {
            bail!(
                Overloaded,
                "host {host} has {held} of {} open sessions, {most} may be open: end mounts or commands there, or wait {} s \
                 for those to expire that are gone",
                self.sessions.len(),
                self.ttl.as_secs()
            );
        }
        Ok(())
    }

    /// Number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are no sessions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Sessions that have been silent for their time to live.
    ///
    /// `owes_word(host, silence)` says whether a session on this host should have polled within the silence. A host
    /// that is frozen by plan cannot poll. The exception holds only for sessions that have polled this process. A
    /// session from the log that never polled expires on time, because other sessions wait until its unknown read
    /// leases are void.
    pub fn expired(&self, now: Moment, owes_word: impl Fn(&HostName, Duration) -> bool) -> Vec<SessionId> {
        let is_late = |session: &Session| {
            let silent = now.since(session.touched);
            if let Some(gone) = session.outlived {
                return silent + SESSION_MARGIN >= self.ttl || now.since(gone) >= KERNEL_TRUST_MAX;
            }
            silent >= self.ttl && (session.poll == 0 || owes_word(&session.host, silent))
        };
        self.sessions.iter().filter(|(_, session)| is_late(session)).map(|(id, _)| *id).collect()
    }

    /// Discounts a pause of the master itself.
    // I-97: the master could not hear anything during the pause, so the pause is not counted as a session's silence.
    pub fn on_pause(&mut self, pause: Duration, now: Moment) {
        for session in self.sessions.values_mut() {
            session.touched = session.touched.after(pause).min(now);
        }
    }

    /// Sessions that have owed a lease for too long, each with one such file.
    pub fn overdue(&self) -> impl Iterator<Item = (SessionId, InodeId)> + '_ {
        self.sessions.iter().filter_map(|(id, session)| {
            let (inode, _) = session.recalls.iter().find(|(_, recall)| recall.owed.is_overdue())?;
            Some((*id, *inode))
        })
    }

    /// Records that the session has reclaimed its leases and open handles.
    pub fn set_reclaimed(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.reclaimed = true;
        }
    }

    /// Ends the time for reclaiming. Sessions that have not reclaimed lose their read leases.
    pub fn end_reclaim(&mut self) {
        for session in self.sessions.values_mut() {
            session.reclaimed = true;
        }
    }

    /// Whether a session other than `except` may hold leases that are unknown to this master.
    #[must_use]
    pub fn any_unclaimed(&self, except: SessionId) -> bool {
        self.sessions.iter().any(|(id, session)| *id != except && !session.reclaimed)
    }

    /// Whether a session has polled this process but has not reclaimed yet.
    #[must_use]
    pub fn any_about_to_reclaim(&self) -> bool {
        self.sessions.values().any(|session| !session.reclaimed && session.poll > 0)
    }

    // --- Polls -----------------------------------------------------------------------------------------------------

    /// Records the start of a poll.
    ///
    /// `working` are the inodes whose recalls the client works on. Returns the poll's number, its wake-up handle and
    /// the time since the previous poll. Returns `None` if the session is unknown or ending.
    pub fn begin_poll(
        &mut self,
        session: SessionId,
        working: &[u64],
        now: Moment,
    ) -> Option<(u64, Arc<Notify>, Duration)> {
        let session = self.sessions.get_mut(&session).filter(|session| !session.ending)?;
        let passed = now.since(std::mem::replace(&mut session.polled, now));
        for (inode, recall) in session.recalls.iter_mut().filter(|(_, recall)| recall.sent_at.is_some()) {
            recall.owed.on_poll(passed, if working.contains(&inode.raw()) { Word::Working } else { Word::Idle });
        }
        session.touched = now;
        session.poll += 1;
        // An older poll of the same session gives up, because its caller has already gone.
        session.news.notify_waiters();
        Some((session.poll, Arc::clone(&session.news), passed))
    }

    /// Whether this is still the session's newest poll. `None` means that the session is gone.
    #[must_use]
    pub fn is_newest(&self, session: SessionId, poll: u64) -> Option<bool> {
        self.sessions.get(&session).map(|session| session.poll == poll)
    }

    /// Adds due messages to an answer. Returns whether there is a reason to answer at once.
    pub fn take_news(&mut self, session: SessionId, now: Moment, reply: &mut pb::PollReply) -> bool {
        let Some(session) = self.sessions.get_mut(&session) else { return false };
        let before = reply.recalls.len() + reply.locks.len() + reply.changed.len();
        for (inode, recall) in &mut session.recalls {
            if is_stale(recall.sent_at, now) {
                recall.sent_at = Some(now);
                reply.recalls.push(recall.message(*inode));
            }
        }
        for (inode, question) in &mut session.questions {
            // A recall goes before a question about the same file: complying may answer the question too.
            if question.is_due(now) && !session.recalls.contains_key(inode) {
                if question.sent == question.answered {
                    question.sent = question.asked;
                }
                assert!(
                    question.answered <= question.sent && question.sent <= question.asked,
                    "an answer is about the question sent last"
                );
                question.sent_at = Some(now);
                let (inode, keep) = (inode.raw(), Mode::Write.raw());
                reply.recalls.push(pb::Recall { inode, keep, question: question.sent, unwanted: false });
            }
        }
        reply.locks.extend(session.locks.iter().filter(|(_, sent)| sent.is_none()).map(|(lock, _)| *lock));
        reply.changed.extend(session.changed.iter().filter(|(_, sent)| sent.is_none()).map(|(inode, _)| inode.raw()));
        reply.recalls.len() + reply.locks.len() + reply.changed.len() > before
    }

    /// Completes an answer just before it leaves: adds recent grants and changes, and restarts the session's time to
    /// live.
    pub fn finish_poll(&mut self, session: SessionId, now: Moment, reply: &mut pb::PollReply) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        session.touched = now;
        session.locks.retain(|(_, sent)| sent.is_none_or(|sent| now.since(sent) < REMEMBER));
        session.changed.retain(|_, sent| sent.is_none_or(|sent| now.since(sent) < REMEMBER));
        reply.locks.clear();
        reply.changed.clear();
        for (lock, sent) in &mut session.locks {
            sent.get_or_insert(now);
            reply.locks.push(*lock);
        }
        for (inode, sent) in &mut session.changed {
            sent.get_or_insert(now);
            reply.changed.push(inode.raw());
        }
    }

    /// Moment of the next repetition, unless something else happens first.
    #[must_use]
    pub fn next_repeat(&self, session: SessionId) -> Option<Moment> {
        let session = self.sessions.get(&session)?;
        let recalls = session.recalls.values().filter_map(|recall| recall.sent_at);
        let questions = session.questions.values().filter(|question| question.sent > question.answered);
        recalls.chain(questions.filter_map(|question| question.sent_at)).min().map(|sent| sent.after(REPEAT_AFTER))
    }

    // --- Messages to sessions --------------------------------------------------------------------------------------

    /// Recalls a lease down to `keep`. A second recall has an effect only if it leaves less.
    pub fn recall(&mut self, session: SessionId, inode: InodeId, keep: Mode) {
        self.ask_back(session, inode, keep, Bytes::Wanted);
    }

    /// Recalls the lease on a nameless file that no session has open and none may open again.
    pub fn recall_unwanted(&mut self, session: SessionId, inode: InodeId) {
        self.ask_back(session, inode, Mode::None, Bytes::Unwanted);
    }

    fn ask_back(&mut self, session: SessionId, inode: InodeId, keep: Mode, bytes: Bytes) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        let unwanted = bytes == Bytes::Unwanted;
        let before = session.recalls.get(&inode);
        if before.is_some_and(|recall| recall.keep <= keep && (recall.unwanted || !unwanted)) {
            return;
        }
        // The time that the client has owed the lease continues: a second recall must not extend it.
        let owed = before.map_or_else(Owed::default, |recall| recall.owed);
        session.recalls.insert(inode, Recall { keep, unwanted, sent_at: None, owed });
        session.news.notify_waiters();
    }

    /// The mode that a recall in progress leaves to the session.
    #[must_use]
    pub fn recalled(&self, session: SessionId, inode: InodeId) -> Option<Mode> {
        self.sessions.get(&session)?.recalls.get(&inode).map(|recall| recall.keep)
    }

    /// Cancels a recall whose lease is already gone.
    pub fn cancel_recall(&mut self, session: SessionId, inode: InodeId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.recalls.remove(&inode);
        }
    }

    /// Files with a recall in progress for this session.
    #[must_use]
    pub fn recalls(&self, session: SessionId) -> Vec<InodeId> {
        self.sessions.get(&session).map(|session| session.recalls.keys().copied().collect()).unwrap_or_default()
    }

    /// Records the lease that the session now says it holds. This ends a satisfied recall, and answers question
    /// `answers` (0 means none).
    pub fn on_held(&mut self, session: SessionId, inode: InodeId, mode: Mode, view: HolderView, answers: u64) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        if session.recalls.get(&inode).is_some_and(|recall| mode <= recall.keep) {
            session.recalls.remove(&inode);
        }
        if let Some(question) = session.questions.get_mut(&inode)
            && question.sent > question.answered
            // A late answer to an earlier question was made before this question was asked.
            && answers == question.sent
        {
            question.answered = question.sent;
            question.answer = (mode == Mode::Write).then_some(view);
            if question.asked > question.sent {
                session.news.notify_waiters();
            }
        }
    }

    /// Asks the holder for size and times, and returns the number of the question.
    ///
    /// Only an answer to this number or a later one was made after this call. Release the question with
    /// [`Sessions::end_question`]. Returns `None` if the holder's session is unknown.
    pub fn ask(&mut self, holder: SessionId, inode: InodeId) -> Option<u64> {
        let session = self.sessions.get_mut(&holder)?;
        let question = session.questions.entry(inode).or_default();
        question.waiting += 1;
        if question.asked == question.sent {
            self.question += 1;
            question.asked = self.question;
            session.news.notify_waiters();
        }
        Some(question.asked)
    }

    /// The answer to a question: `None` while it is pending, `Some(None)` if the session no longer holds the file.
    #[must_use]
    pub fn answer(&self, holder: SessionId, inode: InodeId, number: u64) -> Option<Option<HolderView>> {
        let Some(question) = self.sessions.get(&holder).and_then(|session| session.questions.get(&inode)) else {
            return Some(None);
        };
        (question.answered >= number).then_some(question.answer)
    }

    /// Releases one caller's interest in a question.
    pub fn end_question(&mut self, holder: SessionId, inode: InodeId) {
        if let Some(session) = self.sessions.get_mut(&holder)
            && let Some(question) = session.questions.get_mut(&inode)
        {
            // Invariant: every caller of `ask` calls this once, or a question would vanish while another caller waits.
            assert!(question.waiting > 0, "a question about {inode} is released more often than it was asked");
            question.waiting -= 1;
            // An unanswered question stays, or its late answer would be taken for the answer to the next one.
            if question.waiting == 0 && question.sent == question.answered {
                session.questions.remove(&inode);
            }
        }
    }

    /// Announces a lock that the session has waited for.
    pub fn grant_lock(&mut self, session: SessionId, lock: pb::LockGranted) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.locks.push((lock, None));
            session.news.notify_waiters();
        }
    }

    /// Records an applied mutation. Returns false if its number is not new: it may be a repetition.
    pub fn note_request(&mut self, session: SessionId, request: u64) -> bool {
        self.sessions.get_mut(&session).is_some_and(|session| {
            let newest = request > session.newest_request;
            session.newest_request = session.newest_request.max(request);
            newest
        })
    }

    /// Stops repeating earlier grants to an owner that has since changed its locks on the file.
    pub fn forget_lock(&mut self, session: SessionId, inode: InodeId, owner: u64, flock: bool) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.locks.retain(|(lock, _)| (lock.inode, lock.owner, lock.flock) != (inode.raw(), owner, flock));
        }
    }

    /// Announces a change of a file to sessions that hold it or have it open, except the session `by` that made it.
    pub fn announce_change(&mut self, sessions: BTreeSet<SessionId>, inode: InodeId, by: SessionId) {
        for id in sessions {
            if let Some(session) = self.sessions.get_mut(&id).filter(|_| id != by) {
                session.changed.insert(inode, None);
                session.news.notify_waiters();
            }
        }
    }

    /// Records that a file that counts as open by the session has lost its name. The file can be freed only when the
    /// session says that it is closed.
    ///
    /// The session may be unaware that the master waits for this. Causes are a removal that it gave up but that was
    /// carried out, an open that it gave up and that arrived late, a lost close message, or a removal by another
    /// session shortly before this process started.
    pub fn on_nameless(&mut self, session: SessionId, inode: InodeId, now: Moment) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.nameless.entry(inode).or_insert(now);
        }
    }

    /// Asks about nameless files in an answer that is about to leave. `stays(inode)` says whether the file still has no
    /// name and still counts as open by the session.
    pub fn ask_nameless(
        &mut self,
        session: SessionId,
        now: Moment,
        stays: impl Fn(InodeId) -> bool,
        reply: &mut pb::PollReply,
    ) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        session.nameless.retain(|inode, _| stays(*inode));
        let due = session.nameless.iter_mut().filter(|(_, since)| now.since(**since) >= ASK_AFTER);
        // The longest wait comes first. Otherwise, with more files than fit, some would never be asked about.
        let mut due: Vec<_> = due.collect();
        due.sort_by_key(|(_, since)| **since);
        for (inode, since) in due.into_iter().take(ASKED_MAX) {
            *since = now;
            reply.nameless.push(inode.raw());
        }
    }

    /// Wakes the session's poll for news that is kept elsewhere.
    pub fn wake(&self, session: SessionId) {
        if let Some(session) = self.sessions.get(&session) {
            session.news.notify_waiters();
        }
    }

    /// Wakes all polls for news that concerns every session, such as a new node map.
    pub fn wake_all(&self) {
        for session in self.sessions.values() {
            session.news.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
