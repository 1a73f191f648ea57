//! Who keeps what was told of names and attributes, and who must forget it before somebody else changes it.
//!
//! A plain state machine without clock or I/O. A session that *watches* an inode may answer from memory what it was
//! told of it: attributes, and for a directory its names, those that are not there included. Nothing of this is
//! logged: sessions lose their watches with the master process that knew them.
//!
//! ```text
//!  nothing ── told, nobody is changing it ──► watches ── another changes it ──► forgetting ── says so ──► nothing
//! ```
//! Invariant: while a change by one session is under way (its *fence* is up), no other session begins to watch.
//! Invariant: one that is told to forget watches nothing anew before it has said that it forgot; so what it says is
//! never about a later watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{InodeId, SessionId};
use ebb_wire::pb;
use tokio::sync::Notify;

use super::few::FewSessions;
use super::{is_awaited, wake};
use crate::patience::Owed;

/// Inodes that one session may watch; told more, it may not keep them.
const WATCHES_MAX: usize = 1 << 20;
/// What was told and not dealt with is told again after this.
const REPEAT_AFTER: Duration = Duration::from_secs(1);

/// Watches, and changes under way.
#[derive(Debug, Default)]
pub struct Watches {
    inodes: BTreeMap<InodeId, Watched>,
    sessions: BTreeMap<SessionId, Watcher>,
    next_number: u64,
}

/// There are as many as clients keep names and attributes: what is there for a moment only takes no memory before and after.
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
    /// By number.
    forgetting: BTreeMap<u64, Told>,
}

#[derive(Debug)]
struct Told {
    what: What,
    at: Option<Moment>,
    owed: Owed,
}

impl Told {
    fn new(what: What) -> Self {
        Self { what, at: None, owed: Owed::default() }
    }
}

/// What a session has to forget.
#[derive(Debug)]
enum What {
    One(InodeId),
    /// All that it watched when it said that it is going to rest.
    All(BTreeSet<InodeId>),
}

impl Watches {
    /// Nobody watches anything. Numbers begin at `first_number`, drawn by lot, so that none of another master process
    /// is taken for one of this.
    #[must_use]
    pub fn new(first_number: u64) -> Self {
        Self { next_number: first_number, ..Self::default() }
    }

    /// The session is being told of an inode as it is now. True: it may keep it.
    pub fn watch(&mut self, session: SessionId, inode: InodeId) -> bool {
        let watcher = self.sessions.entry(session).or_default();
        if watcher.inodes.len() >= WATCHES_MAX {
            return false;
        }
        let watched = self.inodes.entry(inode).or_default();
        let free = watched.fences.iter().all(|other| other == session) && !watched.forgetting.contains(session);
        if free {
            watched.keepers.insert(session);
            watcher.inodes.insert(inode);
        }
        free
    }

    /// Whether the session may keep what it knows of an inode.
    #[must_use]
    pub fn is_watching(&self, session: SessionId, inode: InodeId) -> bool {
        self.inodes.get(&inode).is_some_and(|watched| watched.keepers.contains(session))
    }

    /// A change by `session` begins. Every raised fence is lowered again.
    pub fn raise(&mut self, session: SessionId, inode: InodeId) {
        *self.inodes.entry(inode).or_default().fences.get_or_insert(session, 0) += 1;
    }

    /// The change is over, or given up.
    pub fn lower(&mut self, session: SessionId, inode: InodeId) {
        if let Some(watched) = self.inodes.get_mut(&inode) {
            if let Some(count) = watched.fences.get_mut(session) {
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

    /// Everybody but `by` has to forget the inode. Returns who has to be told just now.
    pub fn recall(&mut self, by: SessionId, inode: InodeId) -> Vec<SessionId> {
        let Some(watched) = self.inodes.get_mut(&inode) else { return Vec::new() };
        let told: Vec<SessionId> = Watched::others(&watched.keepers, by).collect();
        for session in &told {
            watched.keepers.remove(*session);
            watched.forgetting.insert(*session);
            let watcher = self.sessions.entry(*session).or_default();
            watcher.inodes.remove(&inode);
            self.next_number = self.next_number.wrapping_add(1);
            watcher.forgetting.insert(self.next_number, Told::new(What::One(inode)));
        }
        told
    }

    /// The session is going to rest: it has to forget all that it watches, so that nobody waits for it while it sleeps.
    /// Said again before it has done so, it adds what was watched since.
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
        watcher.forgetting.insert(self.next_number, Told::new(What::All(all)));
    }

    /// Whether nobody but `by` keeps anything of the inode.
    #[must_use]
    pub fn is_clear(&self, by: SessionId, inode: InodeId) -> bool {
        self.inodes.get(&inode).is_none_or(|watched| {
            Watched::others(&watched.keepers, by).chain(Watched::others(&watched.forgetting, by)).next().is_none()
        })
    }

    /// The session says that it has dealt with what it was told under this number.
    pub fn on_forgotten(&mut self, session: SessionId, number: u64) {
        let told = self.sessions.get_mut(&session).and_then(|watcher| watcher.forgetting.remove(&number));
        if let Some(told) = told {
            self.end_told(session, told);
        }
    }

    /// The session polls, so long after the time before.
    pub fn on_poll(&mut self, session: SessionId, passed: Duration) {
        let Some(watcher) = self.sessions.get_mut(&session) else { return };
        for told in watcher.forgetting.values_mut().filter(|told| told.at.is_some()) {
            told.owed.on_poll(passed, false);
        }
    }

    /// Sessions that were told long ago to forget something and have not done so, with such an inode.
    pub fn overdue(&self) -> impl Iterator<Item = (SessionId, InodeId)> + '_ {
        self.sessions.iter().filter_map(|(session, watcher)| {
            let told = watcher.forgetting.values().find(|told| told.owed.is_overdue())?;
            let inode = match &told.what {
                What::One(inode) => Some(*inode),
                What::All(inodes) => inodes.first().copied(),
            };
            Some((*session, inode.unwrap_or_default()))
        })
    }

    fn end_told(&mut self, session: SessionId, told: Told) {
        match told.what {
            What::One(inode) => self.end_forgetting(session, inode),
            What::All(inodes) => inodes.into_iter().for_each(|inode| self.end_forgetting(session, inode)),
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

    /// The inode is freed: there is nothing left to keep, and its number is never given again. Who was told to forget it
    /// still says so.
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

    /// The session is gone.
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
        for told in watcher.forgetting.into_values() {
            self.end_told(session, told);
        }
    }

    /// Puts what the session has to forget, and was not told lately, into an answer; true: there was something.
    pub fn take_news(&mut self, session: SessionId, now: Moment, reply: &mut pb::PollReply) -> bool {
        let Some(watcher) = self.sessions.get_mut(&session) else { return false };
        let before = reply.forget.len() + reply.forget_all.len();
        for (number, told) in &mut watcher.forgetting {
            if told.at.is_none_or(|at| now.since(at) >= REPEAT_AFTER) {
                told.at = Some(now);
                match &told.what {
                    What::One(inode) => reply.forget.push(pb::Forgetting { inode: inode.raw(), number: *number }),
                    What::All(_) => reply.forget_all.push(*number),
                }
            }
        }
        reply.forget.len() + reply.forget_all.len() > before
    }

    /// When there is something to repeat, if nothing else happens.
    #[must_use]
    pub fn next_repeat(&self, session: SessionId) -> Option<Moment> {
        let told = self.sessions.get(&session)?.forgetting.values();
        told.filter_map(|told| told.at).min().map(|at| at.after(REPEAT_AFTER))
    }

    /// Told when somebody has forgotten the inode. Whoever waits takes it before looking, and says when it has done.
    pub fn changes(&mut self, inode: InodeId) -> Arc<Notify> {
        Arc::clone(self.inodes.entry(inode).or_default().changed.get_or_insert_default())
    }

    /// Drops the entry of an inode of which there is nothing left to know.
    pub fn tidy(&mut self, inode: InodeId) {
        if self.inodes.get(&inode).is_some_and(Watched::is_idle) {
            self.inodes.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests;
