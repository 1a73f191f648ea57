//! Watches: sessions that cache names and attributes, and must forget them before another session changes them.
//!
//! A plain state machine without clock or I/O. A session that *watches* an inode may answer from its cache of the
//! inode's attributes. For a directory the cache has its names too, including names that are known not to exist.
//! Nothing of this is logged: all watches end with the master process that granted them.
//!
//! ```text
//!  nothing ── asks, and no change is under way ──► watches ── another changes it ──► forgetting ── confirms ──►
//!  nothing
//! ```
//! Invariant (I-27): while a change by one session is under way (its *fence* is up), no other session starts to watch.
//! Invariant: a session that was asked to forget an inode starts no new watch of it before it has confirmed. A
//! confirmation is thus never about a later watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{InodeId, SessionId};
use ebb_wire::pb;
use tokio::sync::Notify;

use super::few::FewSessions;
use super::{is_awaited, wake};
use crate::patience::{Owed, Word};

/// Inodes that one session may watch. It may not cache any beyond them.
const WATCHES_MAX: usize = 1 << 20;
/// Time after which an unconfirmed request to forget is sent again.
const REPEAT_AFTER: Duration = Duration::from_secs(1);

/// All watches, and the changes under way.
#[derive(Debug, Default)]
pub struct Watches {
    inodes: BTreeMap<InodeId, Watched>,
    sessions: BTreeMap<SessionId, Watcher>,
    next_number: u64,
}

/// Watchers of one inode. There may be millions, so parts that are seldom used take no memory while they are empty.
#[derive(Debug, Default)]
struct Watched {
    keepers: FewSessions,
    forgetting: FewSessions,
    /// Changes under way, by session.
    fences: FewSessions<u32>,
    changed: Option<Arc<Notify>>,
}

impl Watched {
    fn is_idle(&self) -> bool {
        self.keepers.is_empty() && self.forgetting.is_empty() && self.fences.is_empty() && !is_awaited(&self.changed)
    }

    fn others(sessions: &FewSessions, by: SessionId) -> impl Iterator<Item = SessionId> {
        sessions.iter().filter(move |session| *session != by)
    }
}

#[derive(Debug, Default)]
struct Watcher {
    inodes: BTreeSet<InodeId>,
    /// Requests to forget that are not confirmed, by number.
    forgetting: BTreeMap<u64, Request>,
}

/// A request to forget that is not confirmed.
#[derive(Debug)]
struct Request {
    scope: Scope,
    sent_at: Option<Moment>,
    owed: Owed,
}

impl Request {
    fn new(scope: Scope) -> Self {
        Self { scope, sent_at: None, owed: Owed::default() }
    }
}

/// Inodes that a session must forget.
#[derive(Debug)]
enum Scope {
    One(InodeId),
    /// All that it watched when it announced its rest.
    All(BTreeSet<InodeId>),
}

impl Watches {
    /// Empty tables. Requests are numbered from `first_number`, which is drawn at random, so that a confirmation meant
    /// for another master process matches none.
    #[must_use]
    pub fn new(first_number: u64) -> Self {
        Self { next_number: first_number, ..Self::default() }
    }

    /// Starts a watch as the session is sent the inode's present state. Returns whether the session may cache it.
    pub fn watch(&mut self, session: SessionId, inode: InodeId) -> bool {
        let watcher = self.sessions.entry(session).or_default();
        if watcher.inodes.len() >= WATCHES_MAX {
            return false;
        }
        let watched = self.inodes.entry(inode).or_default();
        // I-27: not while another session changes the inode, and not while an earlier request to forget is unconfirmed.
        let free = watched.fences.iter().all(|other| other == session) && !watched.forgetting.contains(session);
        if free {
            watched.keepers.insert(session);
            watcher.inodes.insert(inode);
        }
        free
    }

    /// Whether the session may cache the inode.
    #[must_use]
    pub fn is_watching(&self, session: SessionId, inode: InodeId) -> bool {
        self.inodes.get(&inode).is_some_and(|watched| watched.keepers.contains(session))
    }

    /// Raises the fence for a change by `session`. The caller lowers every fence that it raises.
    pub fn raise(&mut self, session: SessionId, inode: InodeId) {
        *self.inodes.entry(inode).or_default().fences.get_or_insert(session, 0) += 1;
    }

    /// Lowers the fence of a change that is over or given up.
    pub fn lower(&mut self, session: SessionId, inode: InodeId) {
        if let Some(watched) = self.inodes.get_mut(&inode) {
            if let Some(count) = watched.fences.get_mut(session) {
                assert!(*count > 0, "session {session} lowers a fence on inode {inode} that it has not raised");
                *count -= 1;
                if *count == 0 {
                    watched.fences.remove(session);
                }
            }
            if watched.is_idle() {
                self.inodes.remove(&inode);
            }
        }
    }

    /// Requests that all sessions except `by` forget the inode. Returns the sessions with a new request.
    pub fn recall(&mut self, by: SessionId, inode: InodeId) -> Vec<SessionId> {
        let Some(watched) = self.inodes.get_mut(&inode) else { return Vec::new() };
        let asked: Vec<SessionId> = Watched::others(&watched.keepers, by).collect();
        for session in &asked {
            watched.keepers.remove(*session);
            watched.forgetting.insert(*session);
            let watcher = self.sessions.entry(*session).or_default();
            watcher.inodes.remove(&inode);
            self.next_number = self.next_number.wrapping_add(1);
            watcher.forgetting.insert(self.next_number, Request::new(Scope::One(inode)));
        }
        // I-27: the change waits for the sessions that forget, so no other session may still watch.
        assert!(Watched::others(&watched.keepers, by).next().is_none(), "{inode} has a watcher that was not asked");
        asked
    }

    /// Requests that a session which is going to rest forgets all that it watches. Otherwise others would wait for it
    /// while it sleeps. A repeated call covers the watches that were added since.
    pub fn recall_all(&mut self, session: SessionId) {
        let Some(watcher) = self.sessions.get_mut(&session).filter(|watcher| !watcher.inodes.is_empty()) else {
            return;
        };
        let all = std::mem::take(&mut watcher.inodes);
        for inode in &all {
            if let Some(watched) = self.inodes.get_mut(inode) {
                watched.keepers.remove(session);
                watched.forgetting.insert(session);
            }
        }
        self.next_number = self.next_number.wrapping_add(1);
        watcher.forgetting.insert(self.next_number, Request::new(Scope::All(all)));
    }

    /// Whether no session except `by` may have the inode in its cache.
    #[must_use]
    pub fn is_clear(&self, by: SessionId, inode: InodeId) -> bool {
        self.inodes.get(&inode).is_none_or(|watched| {
            Watched::others(&watched.keepers, by).chain(Watched::others(&watched.forgetting, by)).next().is_none()
        })
    }

    /// Records the session's confirmation of a request.
    pub fn on_forgotten(&mut self, session: SessionId, number: u64) {
        let request = self.sessions.get_mut(&session).and_then(|watcher| watcher.forgetting.remove(&number));
        if let Some(request) = request {
            self.end_request(session, request);
        }
    }

    /// Counts a poll of the session that came `passed` after the one before.
    pub fn on_poll(&mut self, session: SessionId, passed: Duration) {
        let Some(watcher) = self.sessions.get_mut(&session) else { return };
        for request in watcher.forgetting.values_mut().filter(|request| request.sent_at.is_some()) {
            request.owed.on_poll(passed, Word::Idle);
        }
    }

    /// Sessions that have owed a confirmation for too long, each with one such inode.
    pub fn overdue(&self) -> impl Iterator<Item = (SessionId, InodeId)> + '_ {
        self.sessions.iter().filter_map(|(session, watcher)| {
            let request = watcher.forgetting.values().find(|request| request.owed.is_overdue())?;
            let inode = match &request.scope {
                Scope::One(inode) => Some(*inode),
                Scope::All(inodes) => inodes.first().copied(),
            };
            Some((*session, inode.unwrap_or_default()))
        })
    }

    fn end_request(&mut self, session: SessionId, request: Request) {
        match request.scope {
            Scope::One(inode) => self.end_forgetting(session, inode),
            Scope::All(inodes) => inodes.into_iter().for_each(|inode| self.end_forgetting(session, inode)),
        }
    }

    fn end_forgetting(&mut self, session: SessionId, inode: InodeId) {
        if let Some(watched) = self.inodes.get_mut(&inode) {
            watched.forgetting.remove(session);
            wake(&mut watched.changed);
            if watched.is_idle() {
                self.inodes.remove(&inode);
            }
        }
    }

    /// Drops the watches of a freed inode, whose number is never used again. Sessions with a request to forget it still
    /// confirm it.
    pub fn drop_inode(&mut self, inode: InodeId) {
        let Some(watched) = self.inodes.get_mut(&inode) else { return };
        for session in std::mem::take(&mut watched.keepers).iter() {
            if let Some(watcher) = self.sessions.get_mut(&session) {
                watcher.inodes.remove(&inode);
            }
        }
        wake(&mut watched.changed);
        self.tidy(inode);
    }

    /// Drops everything about a session that has ended.
    pub fn drop_session(&mut self, session: SessionId) {
        let Some(watcher) = self.sessions.remove(&session) else { return };
        for inode in watcher.inodes {
            if let Some(watched) = self.inodes.get_mut(&inode) {
                watched.keepers.remove(session);
                wake(&mut watched.changed);
                if watched.is_idle() {
                    self.inodes.remove(&inode);
                }
            }
        }
        for request in watcher.forgetting.into_values() {
            self.end_request(session, request);
        }
    }

    /// Adds the session's due requests to an answer. Returns whether there were any.
    pub fn take_news(&mut self, session: SessionId, now: Moment, reply: &mut pb::PollReply) -> bool {
        let Some(watcher) = self.sessions.get_mut(&session) else { return false };
        let before = reply.forget.len() + reply.forget_all.len();
        for (number, request) in &mut watcher.forgetting {
            if request.sent_at.is_none_or(|at| now.since(at) >= REPEAT_AFTER) {
                request.sent_at = Some(now);
                match &request.scope {
                    Scope::One(inode) => reply.forget.push(pb::Forgetting { inode: inode.raw(), number: *number }),
                    Scope::All(_) => reply.forget_all.push(*number),
                }
            }
        }
        reply.forget.len() + reply.forget_all.len() > before
    }

    /// Moment of the next repetition, unless something else happens first.
    #[must_use]
    pub fn next_repeat(&self, session: SessionId) -> Option<Moment> {
        let requests = self.sessions.get(&session)?.forgetting.values();
        requests.filter_map(|request| request.sent_at).min().map(|at| at.after(REPEAT_AFTER))
    }

    /// Wakes a waiter when a session has forgotten the inode. Register with it before a check of [`Watches::is_clear`],
    /// and call [`Watches::tidy`] after the wait.
    pub fn changes(&mut self, inode: InodeId) -> Arc<Notify> {
        Arc::clone(self.inodes.entry(inode).or_default().changed.get_or_insert_default())
    }

    /// Removes an empty entry.
    pub fn tidy(&mut self, inode: InodeId) {
        if self.inodes.get(&inode).is_some_and(Watched::is_idle) {
            self.inodes.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests;
