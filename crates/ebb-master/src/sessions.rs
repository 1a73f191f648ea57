//! Sessions: who lives, and what each has to be told.
//!
//! A plain state machine; moments come in as arguments. Sessions as such are in the logged state, this is what the
//! leader knows beyond it: when each was last answered, recalls on their way, granted locks, changes by others.
//!
//! What was told may be lost with the answer, so recalls are repeated until they are dealt with; lock grants and
//! changes, which are harmless when they come twice, are repeated in the answers of the next seconds.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{HostName, InodeId, KERNEL_TRUST_MAX, Result, SESSION_MARGIN, SessionId, bail};
use ebb_wire::pb;
use tokio::sync::Notify;

use crate::leases::Mode;
use crate::patience::Owed;

/// A recall that was not dealt with is told again after this.
const REPEAT_AFTER: Duration = Duration::from_secs(1);
/// Grants and changes go along with answers for this long.
const REMEMBER: Duration = Duration::from_secs(3);

/// Of a file without a name a session is asked whether it is still open there when it has counted as that for so long, and
/// again after each such time. Most files that are removed while they are open are closed sooner.
const ASK_AFTER: Duration = Duration::from_secs(10);
/// Sessions that a host may have as long as there is room for any.
const SESSIONS_GUARANTEED: usize = 16;
/// Files asked about in one answer.
const ASKED_MAX: usize = 1000;

/// All sessions that this leader knows.
#[derive(Debug, Default)]
pub struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    of_host: BTreeMap<HostName, usize>,
    ttl: Duration,
    /// Number of the last question.
    question: u64,
}

/// What the holder of a write lease says of the file's size and times.
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
    /// When it was last answered (or began to poll).
    touched: Moment,
    /// When it last began to poll.
    polled: Moment,
    /// It has told this master process what it holds, or began after it.
    reclaimed: bool,
    /// Its end has begun: whoever has it must hear that, and not that it lives.
    ending: bool,
    /// Its process is gone since then at the latest, but a kernel may answer programs in its name for a while.
    outlived: Option<Moment>,
    /// Number of its newest poll: an older one that still waits gives up.
    poll: u64,
    /// Highest number among its applied mutations.
    newest_request: u64,
    recalls: BTreeMap<InodeId, Recall>,
    questions: BTreeMap<InodeId, Question>,
    locks: Vec<(pb::LockGranted, Option<Moment>)>,
    changed: BTreeMap<InodeId, Option<Moment>>,
    /// Files without a name that count as open by it: since when, or when it was last asked about them.
    nameless: BTreeMap<InodeId, Moment>,
    news: Arc<Notify>,
}

#[derive(Debug)]
struct Recall {
    keep: Mode,
    /// Nobody wants the file: it may be thrown away.
    unwanted: bool,
    told: Option<Moment>,
    owed: Owed,
}

impl Recall {
    fn message(&self, inode: InodeId) -> pb::Recall {
        pb::Recall { inode: inode.raw(), keep: self.keep.raw(), question: 0, unwanted: self.unwanted }
    }
}

/// A question for size and times. Invariant: answered <= told <= asked; at most one number is told and not answered,
/// so an answer is always about the number told last.
#[derive(Debug, Default)]
struct Question {
    asked: u64,
    told: u64,
    told_at: Option<Moment>,
    answered: u64,
    answer: Option<HolderView>,
    waiting: usize,
}

impl Question {
    fn is_due(&self, now: Moment) -> bool {
        let unanswered = self.told > self.answered;
        if unanswered { is_stale(self.told_at, now) } else { self.asked > self.told }
    }
}

fn is_stale(told: Option<Moment>, now: Moment) -> bool {
    told.is_none_or(|told| now.since(told) >= REPEAT_AFTER)
}

impl Sessions {
    /// No sessions yet; they end after `ttl` without a poll.
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Self { sessions: BTreeMap::new(), of_host: BTreeMap::new(), ttl, question: 0 }
    }

    /// Questions are numbered from here on: no two processes of a master should use the same numbers, for a holder's
    /// answer may come late.
    #[must_use]
    pub fn numbered_from(self, question: u64) -> Self {
        Self { question, ..self }
    }

    /// A session that was opened now, or one from the log that this process has not heard of yet (`reclaimed` false).
    pub fn insert(&mut self, session: SessionId, host: HostName, reclaimed: bool, now: Moment) {
        let Entry::Vacant(place) = self.sessions.entry(session) else { return };
        *self.of_host.entry(host.clone()).or_default() += 1;
        place.insert(Session {
            host,
            touched: now,
            polled: now,
            reclaimed,
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

    /// The session is over. Its poll, if one waits, is woken.
    pub fn remove(&mut self, session: SessionId) {
        if let Some(gone) = self.sessions.remove(&session) {
            gone.news.notify_waiters();
            if let Some(count) = self.of_host.get_mut(&gone.host) {
                *count -= 1;
                if *count == 0 {
                    self.of_host.remove(&gone.host);
                }
            }
        }
    }

    /// Its end begins, and nothing stops it any more: what it held goes to others as soon as the end is in the log. A poll
    /// that came meanwhile and was answered would have its client believe in all of that for another time to live.
    pub fn begin_end(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.ending = true;
            session.news.notify_waiters();
        }
    }

    /// The process of a mount has ended. The kernel that it served goes on answering programs from its pages, for as long as the
    /// process let it: no longer than the client believed in its session, and no longer than 8 s. The session ends when that is over.
    pub fn on_outlived(&mut self, session: SessionId, now: Moment) {
        self.begin_end(session);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.outlived.get_or_insert(now);
        }
    }

    /// Whether its client may be told that it lives.
    #[must_use]
    pub fn goes_on(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| !session.ending)
    }

    /// Whether it is known and not over.
    #[must_use]
    pub fn contains(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Its declared host.
    #[must_use]
    pub fn host(&self, session: SessionId) -> Option<HostName> {
        self.sessions.get(&session).map(|session| session.host.clone())
    }

    /// Refuses one more session of a host that has its share of `most`: as many as are left for all others.
    ///
    /// Errors: `Overloaded`.
    pub fn check_room(&self, host: &HostName, most: usize) -> Result<()> {
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

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Sessions whose time is up. `owes_word` tells of the host of one that has been silent for so long whether it should
    /// have spoken: who is frozen by plan cannot. That is asked only of those that this process has heard of: a session
    /// from the log, whose read leases nobody knows, ends in time, for others wait for that.
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

    /// The master did not run for so long until now: that was nobody's silence.
    pub fn on_pause(&mut self, pause: Duration, now: Moment) {
        for session in self.sessions.values_mut() {
            session.touched = session.touched.after(pause).min(now);
        }
    }

    /// Sessions that were told long ago to give a lease back and have not done so, with such a file.
    pub fn overdue(&self) -> impl Iterator<Item = (SessionId, InodeId)> + '_ {
        self.sessions.iter().filter_map(|(id, session)| {
            let (inode, _) = session.recalls.iter().find(|(_, recall)| recall.owed.is_overdue())?;
            Some((*id, *inode))
        })
    }

    /// It has told what it holds.
    pub fn set_reclaimed(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.reclaimed = true;
        }
    }

    /// The time for reclaiming is over: who has not done so has no read leases.
    pub fn end_reclaim(&mut self) {
        for session in self.sessions.values_mut() {
            session.reclaimed = true;
        }
    }

    /// Whether a session other than `except` may hold what this master does not know of.
    #[must_use]
    pub fn any_unclaimed(&self, except: SessionId) -> bool {
        self.sessions.iter().any(|(id, session)| *id != except && !session.reclaimed)
    }

    /// Whether a session has polled this process and not told yet what it holds.
    #[must_use]
    pub fn any_about_to_reclaim(&self) -> bool {
        self.sessions.values().any(|session| !session.reclaimed && session.poll > 0)
    }

    // --- Polls -----------------------------------------------------------------------------------------------------

    /// A poll came in: the session lives. `working`: leases that it is at work to give back. Returns its number, what wakes it,
    /// and how long after the one before it came; `None`: no such session, or it is ending.
    pub fn begin_poll(
        &mut self,
        session: SessionId,
        working: &[u64],
        now: Moment,
    ) -> Option<(u64, Arc<Notify>, Duration)> {
        let session = self.sessions.get_mut(&session).filter(|session| !session.ending)?;
        let passed = now.since(std::mem::replace(&mut session.polled, now));
        for (inode, recall) in session.recalls.iter_mut().filter(|(_, recall)| recall.told.is_some()) {
            recall.owed.on_poll(passed, working.contains(&inode.raw()));
        }
        session.touched = now;
        session.poll += 1;
        // An older poll of the same session gives up: its caller has.
        session.news.notify_waiters();
        Some((session.poll, Arc::clone(&session.news), passed))
    }

    /// Whether this is still the session's newest poll; `None`: no such session any more.
    #[must_use]
    pub fn is_newest(&self, session: SessionId, poll: u64) -> Option<bool> {
        self.sessions.get(&session).map(|session| session.poll == poll)
    }

    /// Puts what is due into an answer; false: nothing that would be worth answering at once.
    pub fn take_news(&mut self, session: SessionId, now: Moment, reply: &mut pb::PollReply) -> bool {
        let Some(session) = self.sessions.get_mut(&session) else { return false };
        let before = reply.recalls.len() + reply.locks.len() + reply.changed.len();
        for (inode, recall) in &mut session.recalls {
            if is_stale(recall.told, now) {
                recall.told = Some(now);
                reply.recalls.push(recall.message(*inode));
            }
        }
        for (inode, question) in &mut session.questions {
            // One thing at a time for each file: the recall first.
            if question.is_due(now) && !session.recalls.contains_key(inode) {
                if question.told == question.answered {
                    question.told = question.asked;
                }
                question.told_at = Some(now);
                let (inode, keep) = (inode.raw(), Mode::Write.raw());
                reply.recalls.push(pb::Recall { inode, keep, question: question.told, unwanted: false });
            }
        }
        reply.locks.extend(session.locks.iter().filter(|(_, told)| told.is_none()).map(|(lock, _)| *lock));
        reply.changed.extend(session.changed.iter().filter(|(_, told)| told.is_none()).map(|(inode, _)| inode.raw()));
        reply.recalls.len() + reply.locks.len() + reply.changed.len() > before
    }

    /// The answer is about to leave: adds what was told lately, and counts the session's time from now.
    pub fn finish_poll(&mut self, session: SessionId, now: Moment, reply: &mut pb::PollReply) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        session.touched = now;
        session.locks.retain(|(_, told)| told.is_none_or(|told| now.since(told) < REMEMBER));
        session.changed.retain(|_, told| told.is_none_or(|told| now.since(told) < REMEMBER));
        reply.locks.clear();
        reply.changed.clear();
        for (lock, told) in &mut session.locks {
            told.get_or_insert(now);
            reply.locks.push(*lock);
        }
        for (inode, told) in &mut session.changed {
            told.get_or_insert(now);
            reply.changed.push(inode.raw());
        }
    }

    /// When there is something to repeat, if nothing else happens.
    #[must_use]
    pub fn next_repeat(&self, session: SessionId) -> Option<Moment> {
        let session = self.sessions.get(&session)?;
        let recalls = session.recalls.values().filter_map(|recall| recall.told);
        let questions = session.questions.values().filter(|question| question.told > question.answered);
        recalls.chain(questions.filter_map(|question| question.told_at)).min().map(|told| told.after(REPEAT_AFTER))
    }

    // --- What sessions are told ------------------------------------------------------------------------------------

    /// Asks a session to reduce its lease. Asking again changes nothing unless it must keep less.
    pub fn recall(&mut self, session: SessionId, inode: InodeId, keep: Mode) {
        self.ask_back(session, inode, keep, false);
    }

    /// Asks a session for its lease on a file without a name that nobody has open, and nobody may open any more.
    pub fn recall_unwanted(&mut self, session: SessionId, inode: InodeId) {
        self.ask_back(session, inode, Mode::None, true);
    }

    fn ask_back(&mut self, session: SessionId, inode: InodeId, keep: Mode, unwanted: bool) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        let before = session.recalls.get(&inode);
        if before.is_some_and(|recall| recall.keep <= keep && (recall.unwanted || !unwanted)) {
            return;
        }
        let owed = before.map_or_else(Owed::default, |recall| recall.owed);
        session.recalls.insert(inode, Recall { keep, unwanted, told: None, owed });
        session.news.notify_waiters();
    }

    /// What it was asked to keep, if a recall is on its way.
    #[must_use]
    pub fn recalled(&self, session: SessionId, inode: InodeId) -> Option<Mode> {
        self.sessions.get(&session)?.recalls.get(&inode).map(|recall| recall.keep)
    }

    /// Drops a recall that has nothing left to recall.
    pub fn cancel_recall(&mut self, session: SessionId, inode: InodeId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.recalls.remove(&inode);
        }
    }

    /// Files with a recall on its way to this session.
    #[must_use]
    pub fn recalls(&self, session: SessionId) -> Vec<InodeId> {
        self.sessions.get(&session).map(|session| session.recalls.keys().copied().collect()).unwrap_or_default()
    }

    /// The session says what it holds now: settles a recall, and answers the question of that number (0: none).
    pub fn on_held(&mut self, session: SessionId, inode: InodeId, mode: Mode, view: HolderView, answers: u64) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        if session.recalls.get(&inode).is_some_and(|recall| mode <= recall.keep) {
            session.recalls.remove(&inode);
        }
        if let Some(question) = session.questions.get_mut(&inode)
            && question.told > question.answered
            // A late answer to an earlier question was made before this one was asked.
            && answers == question.told
        {
            question.answered = question.told;
            question.answer = (mode == Mode::Write).then_some(view);
            if question.asked > question.told {
                session.news.notify_waiters();
            }
        }
    }

    /// Asks the holder for size and times. Returns the number of the question: only an answer to it, or to a later
    /// one, was made after this call. Hand it back with [`Sessions::end_question`].
    pub fn ask(&mut self, holder: SessionId, inode: InodeId) -> Option<u64> {
        let session = self.sessions.get_mut(&holder)?;
        let question = session.questions.entry(inode).or_default();
        question.waiting += 1;
        if question.asked == question.told {
            self.question += 1;
            question.asked = self.question;
            session.news.notify_waiters();
        }
        Some(question.asked)
    }

    /// The answer to a question: `None` not yet, `Some(None)` it holds the file no more.
    #[must_use]
    pub fn answer(&self, holder: SessionId, inode: InodeId, number: u64) -> Option<Option<HolderView>> {
        let Some(question) = self.sessions.get(&holder).and_then(|session| session.questions.get(&inode)) else {
            return Some(None);
        };
        (question.answered >= number).then_some(question.answer)
    }

    /// Nobody waits for this question any more, as far as the caller goes.
    pub fn end_question(&mut self, holder: SessionId, inode: InodeId) {
        if let Some(session) = self.sessions.get_mut(&holder)
            && let Some(question) = session.questions.get_mut(&inode)
        {
            question.waiting = question.waiting.saturating_sub(1);
            // One that is still out stays, so that its answer is not taken for a later one's.
            if question.waiting == 0 && question.told == question.answered {
                session.questions.remove(&inode);
            }
        }
    }

    /// A lock that was waited for is granted.
    pub fn grant_lock(&mut self, session: SessionId, lock: pb::LockGranted) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.locks.push((lock, None));
            session.news.notify_waiters();
        }
    }

    /// A mutation was applied. False: it has the number of an earlier one, and may be a repetition.
    pub fn note_request(&mut self, session: SessionId, request: u64) -> bool {
        self.sessions.get_mut(&session).is_some_and(|session| {
            let newest = request > session.newest_request;
            session.newest_request = session.newest_request.max(request);
            newest
        })
    }

    /// The owner does something else with its locks on the file: earlier grants are not repeated any more.
    pub fn forget_lock(&mut self, session: SessionId, inode: InodeId, owner: u64, flock: bool) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.locks.retain(|(lock, _)| (lock.inode, lock.owner, lock.flock) != (inode.raw(), owner, flock));
        }
    }

    /// Another session changed a file that these hold or have open.
    pub fn tell_changed(&mut self, sessions: BTreeSet<SessionId>, inode: InodeId, by: SessionId) {
        for id in sessions {
            if let Some(session) = self.sessions.get_mut(&id).filter(|_| id != by) {
                session.changed.insert(inode, None);
                session.news.notify_waiters();
            }
        }
    }

    /// A file that counts as open by the session has no name: only the session can say that it is closed, and it may not know
    /// that there is something to say. (It gave up a removal that was carried out after all, an open that it gave up came
    /// late, its word that the file is closed was lost, or others removed the file shortly before this process began.)
    pub fn on_nameless(&mut self, session: SessionId, inode: InodeId, now: Moment) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.nameless.entry(inode).or_insert(now);
        }
    }

    /// Puts the question into an answer that is about to leave. `stays` tells of a file whether it has no name and counts as
    /// open by the session still.
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
        // Who waits longest goes first, or some would never be asked about.
        let mut due: Vec<_> = due.collect();
        due.sort_by_key(|(_, since)| **since);
        for (inode, since) in due.into_iter().take(ASKED_MAX) {
            *since = now;
            reply.nameless.push(inode.raw());
        }
    }

    /// There is news for it that others keep.
    pub fn wake(&self, session: SessionId) {
        if let Some(session) = self.sessions.get(&session) {
            session.news.notify_waiters();
        }
    }

    /// Something that concerns all changed: the node map.
    pub fn wake_all(&self) {
        for session in self.sessions.values() {
            session.news.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
