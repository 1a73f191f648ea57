//! Leases: the soft state of which sessions may cache a file and which may write it.
//!
//! A plain state machine without clock or I/O. Write leases are in the logged state, and come in as part of a
//! [`FileView`]. Read leases, open handles and the queues of waiting sessions are here. A file has any number of
//! readers, or one writer.

mod few;
pub mod sharing;
pub mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_types::{InodeId, SessionId};
use tokio::sync::Notify;

use few::FewSessions;

/// The master itself, in a file's queue. No lease is recorded for it.
pub const MASTER: SessionId = SessionId::new(0);

/// Strength of a lease that a session holds or wants, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// No lease.
    None,
    /// Data and attributes may be cached.
    Read,
    /// The session is the only writer.
    Write,
}

impl Mode {
    /// Decodes a mode. Unknown numbers are `None`.
    #[must_use]
    pub fn from_raw(raw: i32) -> Self {
        match raw {
            1 => Self::Read,
            2 => Self::Write,
            _ => Self::None,
        }
    }

    /// Encodes the mode for the wire.
    #[must_use]
    pub fn raw(self) -> i32 {
        self as i32
    }
}

/// The logged state of a file, and whether it may have leases that are unknown to this master.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileView {
    /// Session with the write lease.
    pub holder: Option<SessionId>,
    /// Whether a recovery is in progress: the epoch was raised, and the members are being made equal.
    pub recovering: bool,
    /// Whether another session has not reclaimed its leases from a new master process yet.
    pub unclaimed: bool,
}

/// Place in a file's queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(u64);

/// A session's request for a lease.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The session that wants it.
    pub session: SessionId,
    /// The file.
    pub inode: InodeId,
    /// `Read` or `Write`.
    pub mode: Mode,
    /// Place in the file's queue.
    pub ticket: Ticket,
}

/// The answer to a wish in the present state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The session has the lease.
    Granted,
    /// No lease conflicts: log the write lease, and keep the ticket until it is applied.
    Propose,
    /// Other leases conflict. Decide again when the file's state changes.
    Wait {
        /// Sessions with a conflicting lease, and the mode that each may keep.
        recalls: Vec<(SessionId, Mode)>,
    },
}

/// Read leases, open handles and queues of all files.
#[derive(Debug, Default)]
pub struct Leases {
    files: BTreeMap<InodeId, FileLeases>,
    by_session: BTreeMap<SessionId, BTreeSet<InodeId>>,
    next_ticket: u64,
}

/// Leases of one file. There may be millions, so parts that are seldom used take no memory while they are empty.
#[derive(Debug, Default)]
struct FileLeases {
    readers: FewSessions,
    /// Sessions with an open handle, each with the number of its last opening.
    opens: FewSessions<u64>,
    queue: Vec<(Ticket, SessionId, Mode)>,
    changed: Option<Arc<Notify>>,
}

impl FileLeases {
    fn is_idle(&self) -> bool {
        self.readers.is_empty() && self.opens.is_empty() && self.queue.is_empty() && !is_awaited(&self.changed)
    }

    fn knows(&self, session: SessionId) -> bool {
        self.readers.contains(session) || self.opens.contains(session)
    }
}

/// Whether a task waits for the notification.
fn is_awaited(changed: &Option<Arc<Notify>>) -> bool {
    changed.as_ref().is_some_and(|changed| Arc::strong_count(changed) > 1)
}

/// Wakes waiting tasks. The last waiter drops the notification.
fn wake(changed: &mut Option<Arc<Notify>>) {
    if let Some(notify) = changed {
        notify.notify_waiters();
    }
    if !is_awaited(changed) {
        *changed = None;
    }
}

impl Leases {
    /// Queues a wish. The caller gives every ticket back with [`Leases::leave`].
    pub fn enter(&mut self, session: SessionId, inode: InodeId, mode: Mode) -> Wish {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.files.entry(inode).or_default().queue.push((ticket, session, mode));
        Wish { session, inode, mode, ticket }
    }

    /// Removes a wish from the queue, granted or not, and wakes those behind it.
    pub fn leave(&mut self, wish: &Wish) {
        if let Some(file) = self.files.get_mut(&wish.inode) {
            let before = file.queue.len();
            file.queue.retain(|(ticket, _, _)| *ticket != wish.ticket);
            // Invariant: a wish is in the queue until its ticket is given back, or a later wish could overtake it.
            assert!(file.queue.len() + 1 == before, "a wish for {} left its queue twice", wish.inode);
            if file.queue.is_empty() {
                file.queue = Vec::new();
            }
        }
        self.touch(wish.inode);
    }

    /// Decides whether a wish can be granted now. A granted read lease is recorded at once.
    ///
    /// Wishes are granted in order, except that reads are granted together. So a stream of readers cannot keep a writer
    /// waiting.
    pub fn decide(&mut self, view: FileView, wish: &Wish) -> Decision {
        // The holder's own wish waits for nothing: those behind it wait for its lease.
        if wish.mode == Mode::Write && view.holder == Some(wish.session) {
            return Decision::Propose;
        }
        if !self.is_turn_of(wish) || view.recovering {
            return Decision::Wait { recalls: Vec::new() };
        }
        let recalls = self.conflicts(view, wish);
        // I-14: an unknown lease of a session that has not reclaimed may conflict with a write lease.
        if !recalls.is_empty() || (wish.mode == Mode::Write && view.unclaimed) {
            return Decision::Wait { recalls };
        }
        if wish.mode == Mode::Write {
            return Decision::Propose;
        }
        // I-14: only the wish's own session may hold the write lease when a read lease is recorded.
        assert!(
            wish.session == MASTER || view.holder.is_none_or(|holder| holder == wish.session),
            "a read lease on {} next to another session's write lease",
            wish.inode
        );
        if view.holder != Some(wish.session) && wish.session != MASTER {
            self.add_reader(wish.session, wish.inode);
        }
        Decision::Granted
    }

    fn is_turn_of(&self, wish: &Wish) -> bool {
        let Some(file) = self.files.get(&wish.inode) else { return true };
        let before = file.queue.iter().take_while(|(ticket, _, _)| *ticket != wish.ticket);
        before.into_iter().all(|(_, _, mode)| *mode == Mode::Read && wish.mode == Mode::Read)
    }

    /// Other sessions whose leases conflict with a wish, each with the mode that it may keep.
    fn conflicts(&self, view: FileView, wish: &Wish) -> Vec<(SessionId, Mode)> {
        let keep = if wish.mode == Mode::Write { Mode::None } else { Mode::Read };
        let mut recalls: Vec<_> =
            view.holder.filter(|holder| *holder != wish.session).map(|holder| (holder, keep)).into_iter().collect();
        if wish.mode == Mode::Write {
            let readers =
                self.readers(wish.inode).filter(|reader| *reader != wish.session && Some(*reader) != view.holder);
            recalls.extend(readers.map(|reader| (reader, Mode::None)));
        }
        recalls
    }

    /// Records a read lease.
    pub fn add_reader(&mut self, session: SessionId, inode: InodeId) {
        self.files.entry(inode).or_default().readers.insert(session);
        self.by_session.entry(session).or_default().insert(inode);
    }

    /// Removes a read lease that was given back, or became a write lease.
    pub fn remove_reader(&mut self, session: SessionId, inode: InodeId) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.readers.remove(session);
        }
        self.forget_pair(session, inode);
        self.touch(inode);
    }

    /// Records an open handle. `opening` is the session's number of the open; 0 means that it created the file.
    pub fn add_open(&mut self, session: SessionId, inode: InodeId, opening: u64) {
        let last = self.files.entry(inode).or_default().opens.get_or_insert(session, opening);
        *last = opening.max(*last);
        self.by_session.entry(session).or_default().insert(inode);
    }

    /// Removes the open handle of a session that has closed all handles of openings up to `last`. A later opening
    /// stays: the close message was late. `None`: the message names no opening, and none stays.
    pub fn remove_open(&mut self, session: SessionId, inode: InodeId, last: Option<u64>) {
        if let Some(file) = self.files.get_mut(&inode)
            && file.opens.get(session).is_some_and(|opening| last.is_none_or(|last| *opening <= last))
        {
            file.opens.remove(session);
        }
        self.forget_pair(session, inode);
        self.touch(inode);
    }

    /// Drops everything about a freed file, whose number is never used again.
    pub fn drop_file(&mut self, inode: InodeId) {
        if let Some(file) = self.files.get_mut(&inode) {
            let (opens, readers) = (std::mem::take(&mut file.opens), std::mem::take(&mut file.readers));
            for session in readers.iter().chain(opens.iter()) {
                self.forget_pair(session, inode);
            }
        }
        self.touch(inode);
    }

    fn forget_pair(&mut self, session: SessionId, inode: InodeId) {
        if self.files.get(&inode).is_some_and(|file| file.knows(session)) {
            return;
        }
        if let Some(inodes) = self.by_session.get_mut(&session) {
            inodes.remove(&inode);
            if inodes.is_empty() {
                self.by_session.remove(&session);
            }
        }
    }

    /// Drops everything of a session that has ended.
    pub fn drop_session(&mut self, session: SessionId) {
        for inode in self.by_session.remove(&session).unwrap_or_default() {
            if let Some(file) = self.files.get_mut(&inode) {
                file.readers.remove(session);
                file.opens.remove(session);
            }
            self.touch(inode);
        }
    }

    /// Sessions with a read lease.
    pub fn readers(&self, inode: InodeId) -> impl Iterator<Item = SessionId> + '_ {
        self.files.get(&inode).into_iter().flat_map(|file| file.readers.iter())
    }

    /// Whether the session has a read lease.
    #[must_use]
    pub fn is_reader(&self, session: SessionId, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(|file| file.readers.contains(session))
    }

    /// Whether any session has the file open.
    #[must_use]
    pub fn is_open(&self, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(|file| !file.opens.is_empty())
    }

    /// Sessions that have the file open.
    pub fn openers(&self, inode: InodeId) -> impl Iterator<Item = SessionId> + '_ {
        self.files.get(&inode).into_iter().flat_map(|file| file.opens.iter())
    }

    /// Whether a session other than this one has the file open.
    #[must_use]
    pub fn is_open_elsewhere(&self, session: SessionId, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(|file| file.opens.iter().any(|other| other != session))
    }

    /// Whether this session has the file open.
    #[must_use]
    pub fn is_open_by(&self, session: SessionId, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(|file| file.opens.contains(session))
    }

    /// Sessions with a read lease or an open handle, which are notified of changes by others.
    #[must_use]
    pub fn interested(&self, inode: InodeId) -> BTreeSet<SessionId> {
        self.files.get(&inode).map(|file| file.readers.iter().chain(file.opens.iter()).collect()).unwrap_or_default()
    }

    /// Wakes a waiter when anything about the file's leases changes. Register with it before a check of the state.
    pub fn changes(&mut self, inode: InodeId) -> Arc<Notify> {
        Arc::clone(self.files.entry(inode).or_default().changed.get_or_insert_default())
    }

    /// Wakes tasks that wait for the file, and removes an empty entry.
    pub fn touch(&mut self, inode: InodeId) {
        if let Some(file) = self.files.get_mut(&inode) {
            wake(&mut file.changed);
            if file.is_idle() {
                self.files.remove(&inode);
            }
        }
    }
}

#[cfg(test)]
mod tests;
