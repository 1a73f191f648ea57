//! Who may cache and who may write: the part of it that is not logged.
//!
//! A plain state machine without clock or I/O. Write leases are in the logged state and come in as part of a
//! [`FileView`]; read leases, open handles and the queue of those who wait are here. For each file there are any
//! number of readers, or one writer.

mod few;
pub mod sharing;
pub mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_types::{InodeId, SessionId};
use tokio::sync::Notify;

use few::FewSessions;

/// The master itself, in a file's queue: it notes no lease for itself.
pub const MASTER: SessionId = SessionId::new(0);

/// What a session may keep, or wants. Ordered: less first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// Nothing.
    None,
    /// Cache data and attributes.
    Read,
    /// The only writer.
    Write,
}

impl Mode {
    /// From the wire; unknown numbers are `None`.
    #[must_use]
    pub fn from_raw(raw: i32) -> Self {
        match raw {
            1 => Self::Read,
            2 => Self::Write,
            _ => Self::None,
        }
    }

    /// For the wire.
    #[must_use]
    pub fn raw(self) -> i32 {
        self as i32
    }
}

/// What the logged state says of a file, and whether sessions may hold leases that this master does not know yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileView {
    /// Session with the write lease.
    pub holder: Option<SessionId>,
    /// Its epoch was raised and its members are being made equal.
    pub recovering: bool,
    /// Another session has not yet told a new master what it holds.
    pub unclaimed: bool,
}

/// Place in a file's queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(u64);

/// A lease that somebody wants.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Who.
    pub session: SessionId,
    /// For which file.
    pub inode: InodeId,
    /// `Read` or `Write`.
    pub mode: Mode,
    /// Its turn.
    pub ticket: Ticket,
}

/// What to do about a wish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It has the lease.
    Granted,
    /// Nothing is in the way: log the write lease, keeping the ticket until it is applied.
    Propose,
    /// Others must give way first; decide again when the file's state changes.
    Wait {
        /// Who must reduce to what.
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

/// There are as many as clients keep files: what is there for a moment only takes no memory before and after.
#[derive(Debug, Default)]
struct FileLeases {
    readers: FewSessions,
    /// With the number of the last opening, of the session's.
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

/// Whether somebody waits for it.
fn is_awaited(changed: &Option<Arc<Notify>>) -> bool {
    changed.as_ref().is_some_and(|changed| Arc::strong_count(changed) > 1)
}

/// Wakes those who wait. Who waited last has it dropped.
fn wake(changed: &mut Option<Arc<Notify>>) {
    if let Some(notify) = changed {
        notify.notify_waiters();
    }
    if !is_awaited(changed) {
        *changed = None;
    }
}

impl Leases {
    /// Queues a wish. Every ticket is handed back with [`Leases::leave`].
    pub fn enter(&mut self, session: SessionId, inode: InodeId, mode: Mode) -> Wish {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.files.entry(inode).or_default().queue.push((ticket, session, mode));
        Wish { session, inode, mode, ticket }
    }

    /// Takes a wish out of the queue, granted or not, and wakes those behind it.
    pub fn leave(&mut self, wish: &Wish) {
        if let Some(file) = self.files.get_mut(&wish.inode) {
            file.queue.retain(|(ticket, _, _)| *ticket != wish.ticket);
            if file.queue.is_empty() {
                file.queue = Vec::new();
            }
        }
        self.touch(wish.inode);
    }

    /// Whether a wish can be met now. A read lease that is `Granted` is noted at once.
    ///
    /// Wishes are met in order, except that reads go together: a stream of readers cannot keep a writer waiting.
    pub fn decide(&mut self, view: FileView, wish: &Wish) -> Decision {
        if wish.mode == Mode::Write && view.holder == Some(wish.session) {
            return Decision::Propose;
        }
        if !self.is_turn_of(wish) || view.recovering {
            return Decision::Wait { recalls: Vec::new() };
        }
        let recalls = self.in_the_way(view, wish);
        if !recalls.is_empty() || (wish.mode == Mode::Write && view.unclaimed) {
            return Decision::Wait { recalls };
        }
        if wish.mode == Mode::Write {
            return Decision::Propose;
        }
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

    fn in_the_way(&self, view: FileView, wish: &Wish) -> Vec<(SessionId, Mode)> {
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

    /// Notes a read lease.
    pub fn add_reader(&mut self, session: SessionId, inode: InodeId) {
        self.files.entry(inode).or_default().readers.insert(session);
        self.by_session.entry(session).or_default().insert(inode);
    }

    /// A read lease was given back, or became a write lease.
    pub fn remove_reader(&mut self, session: SessionId, inode: InodeId) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.readers.remove(session);
        }
        self.forget_pair(session, inode);
        self.touch(inode);
    }

    /// Notes that a session has the file open, since its opening of this number; 0: since it made the file.
    pub fn add_open(&mut self, session: SessionId, inode: InodeId, opening: u64) {
        let last = self.files.entry(inode).or_default().opens.get_or_insert(session, opening);
        *last = opening.max(*last);
        self.by_session.entry(session).or_default().insert(inode);
    }

    /// The session's last handle was closed, and it had opened nothing after `last`. What it has opened since stays: this word
    /// of it comes late. None: it does not say, and nothing stays.
    pub fn remove_open(&mut self, session: SessionId, inode: InodeId, last: Option<u64>) {
        if let Some(file) = self.files.get_mut(&inode)
            && file.opens.get(session).is_some_and(|opening| last.is_none_or(|last| *opening <= last))
        {
            file.opens.remove(session);
        }
        self.forget_pair(session, inode);
        self.touch(inode);
    }

    /// The file is freed: nobody has anything of it any more, and its number is never given again.
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

    /// The session is gone, and all that it had.
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

    /// Sessions that have a read lease or an open handle: they hear of changes by others.
    #[must_use]
    pub fn interested(&self, inode: InodeId) -> BTreeSet<SessionId> {
        self.files.get(&inode).map(|file| file.readers.iter().chain(file.opens.iter()).collect()).unwrap_or_default()
    }

    /// Told when anything about the file's leases changes. Whoever waits takes it before looking.
    pub fn changes(&mut self, inode: InodeId) -> Arc<Notify> {
        Arc::clone(self.files.entry(inode).or_default().changed.get_or_insert_default())
    }

    /// Wakes those who wait for the file, and drops the entry if nothing is left to know.
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
