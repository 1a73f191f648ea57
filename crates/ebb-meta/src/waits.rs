//! The locks of all files, who waits for whom, and circles of waiters.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_types::{InodeId, Result, SessionId, bail};
use imbl::{OrdMap, OrdSet};

use crate::locks::{Lock, LockOwner, LockTable};
use crate::outcome::Effect;

/// How a request for a lock ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockOutcome {
    Granted,
    Queued,
}

/// All lock tables.
///
/// Invariant: `by_session` and `waiting` follow from the tables; no table is empty.
#[derive(Clone, Default)]
pub(crate) struct Locks {
    tables: OrdMap<InodeId, Arc<LockTable>>,
    /// Files in which a session holds or waits for a lock.
    by_session: OrdSet<(SessionId, InodeId)>,
    /// Files in which an owner waits.
    waiting: OrdSet<(LockOwner, InodeId)>,
}

impl Locks {
    pub(crate) fn table(&self, inode: InodeId) -> Option<&LockTable> {
        self.tables.get(&inode).map(|table| &**table)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (InodeId, &LockTable)> {
        self.tables.iter().map(|(inode, table)| (*inode, &**table))
    }

    /// Takes a lock, or queues for it with `wait`. A lock that its owner holds there already is kept until it can be
    /// changed; only who waits to change a whole-file lock gives it up meanwhile (`flock(2)`), or two who do so would
    /// wait for each other for ever.
    pub(crate) fn lock(
        &mut self,
        inode: InodeId,
        lock: Lock,
        wait: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<LockOutcome> {
        if let Some(table) = self.table(inode) {
            if table.holds(&lock) {
                return Ok(LockOutcome::Granted);
            }
            table.check_room()?;
        }
        let free = |locks: &Self| locks.table(inode).is_none_or(|table| table.conflicts(&lock).next().is_none());
        if wait && lock.owner.flock && !free(self) {
            self.unlock(inode, lock.owner, 0, u64::MAX, effects);
        }
        if free(self) {
            self.change(inode, |table| table.grant(lock));
            self.by_session.insert((lock.owner.session, inode));
            // A shared lock in place of an exclusive one lets others in.
            self.serve_waiters(inode, &[lock.owner], effects);
            return Ok(LockOutcome::Granted);
        }
        if !wait {
            bail!(WouldBlock, "{inode} is locked by another from {} to {}", lock.start, lock.end);
        }
        if self.closes_circle(inode, &lock) {
            bail!(Deadlock, "waiting for {inode} would close a circle of lock waiters");
        }
        self.change(inode, |table| table.enqueue(lock));
        self.by_session.insert((lock.owner.session, inode));
        self.waiting.insert((lock.owner, inode));
        Ok(LockOutcome::Queued)
    }

    /// Gives up a range; whoever waited for it gets it.
    pub(crate) fn unlock(&mut self, inode: InodeId, owner: LockOwner, start: u64, end: u64, effects: &mut Vec<Effect>) {
        if self.table(inode).is_some() {
            self.change(inode, |table| table.cut(owner, start, end));
            self.serve_waiters(inode, &[owner], effects);
        }
    }

    /// Takes back an owner's queued requests of exactly this range; true if there were any.
    pub(crate) fn cancel(&mut self, inode: InodeId, owner: LockOwner, start: u64, end: u64) -> bool {
        if self.table(inode).is_none() {
            return false;
        }
        let taken = self.change(inode, |table| {
            table.dequeue_where(|lock| lock.owner == owner && (lock.start, lock.end) == (start, end))
        });
        self.reindex(inode, owner);
        taken
    }

    /// Ends everything that a session holds or waits for.
    pub(crate) fn end_session(&mut self, session: SessionId, effects: &mut Vec<Effect>) {
        let range = (session, InodeId::new(0))..=(session, InodeId::new(u64::MAX));
        let files: Vec<InodeId> =
            self.by_session.range::<_, (SessionId, InodeId)>(range).map(|(_, inode)| *inode).collect();
        for inode in files {
            let owners: BTreeSet<LockOwner> = self
                .table(inode)
                .into_iter()
                .flat_map(|table| table.held().iter().chain(table.queue()))
                .filter(|lock| lock.owner.session == session)
                .map(|lock| lock.owner)
                .collect();
            self.change(inode, |table| table.remove_session(session));
            self.serve_waiters(inode, &owners.into_iter().collect::<Vec<_>>(), effects);
        }
    }

    /// The file is gone, and its locks with it.
    pub(crate) fn drop_file(&mut self, inode: InodeId) {
        let Some(table) = self.tables.remove(&inode) else { return };
        for lock in table.held().iter().chain(table.queue()) {
            self.by_session.remove(&(lock.owner.session, inode));
            self.waiting.remove(&(lock.owner, inode));
        }
    }

    /// Puts a table in place as a checkpoint has it.
    pub(crate) fn restore(&mut self, inode: InodeId, table: LockTable) {
        for lock in table.held().iter().chain(table.queue()) {
            self.by_session.insert((lock.owner.session, inode));
        }
        for lock in table.queue() {
            self.waiting.insert((lock.owner, inode));
        }
        self.tables.insert(inode, Arc::new(table));
    }

    fn change<T>(&mut self, inode: InodeId, change: impl FnOnce(&mut LockTable) -> T) -> T {
        change(Arc::make_mut(self.tables.entry(inode).or_default()))
    }

    /// After a change: grants what waits and can be had, breaks circles that a grant has closed, drops an empty table.
    fn serve_waiters(&mut self, inode: InodeId, touched: &[LockOwner], effects: &mut Vec<Effect>) {
        let granted = self.change(inode, LockTable::grant_waiting);
        for lock in &granted {
            effects.push(over(inode, lock.owner, false));
        }
        for owner in touched.iter().copied().chain(granted.iter().map(|lock| lock.owner)) {
            self.reindex(inode, owner);
        }
        for lock in granted {
            self.break_circles(lock.owner, effects);
        }
    }

    /// An owner whose program has several threads may get a lock while another of its requests still waits: whoever
    /// now waits for it may be whom it waits for. That other request is refused.
    fn break_circles(&mut self, owner: LockOwner, effects: &mut Vec<Effect>) {
        for inode in self.waits_of(owner) {
            let wishes: Vec<Lock> = self.table(inode).into_iter().flat_map(LockTable::queue).copied().collect();
            for wish in wishes.into_iter().filter(|wish| wish.owner == owner) {
                if self.closes_circle(inode, &wish) {
                    self.change(inode, |table| table.dequeue_where(|lock| *lock == wish));
                    self.reindex(inode, owner);
                    effects.push(over(inode, owner, true));
                }
            }
        }
    }

    fn waits_of(&self, owner: LockOwner) -> Vec<InodeId> {
        let range = (owner, InodeId::new(0))..=(owner, InodeId::new(u64::MAX));
        self.waiting.range::<_, (LockOwner, InodeId)>(range).map(|(_, inode)| *inode).collect()
    }

    /// Makes the indexes say of one owner what the table says.
    fn reindex(&mut self, inode: InodeId, owner: LockOwner) {
        let table = self.table(inode);
        let empty = table.is_some_and(LockTable::is_empty);
        let concerns = table.is_some_and(|table| table.concerns(owner.session));
        let waits = table.is_some_and(|table| table.queue().iter().any(|lock| lock.owner == owner));
        if empty {
            self.tables.remove(&inode);
        }
        if !concerns {
            self.by_session.remove(&(owner.session, inode));
        }
        if !waits {
            self.waiting.remove(&(owner, inode));
        }
    }

    /// Whether waiting for this lock would be waiting for oneself: a walk over the waits-for graph, whose edges lead
    /// from a waiter to the holders of what is in its way. Only `fcntl` promises to find out (`EDEADLK`).
    fn closes_circle(&self, inode: InodeId, wish: &Lock) -> bool {
        if wish.owner.flock {
            return false;
        }
        let mut seen = BTreeSet::new();
        let mut todo = self.blockers(inode, wish);
        while let Some(owner) = todo.pop() {
            if owner == wish.owner {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            for inode in self.waits_of(owner) {
                let queue = self.table(inode).map_or(&[][..], LockTable::queue);
                for lock in queue.iter().filter(|lock| lock.owner == owner) {
                    todo.extend(self.blockers(inode, lock));
                }
            }
        }
        false
    }

    fn blockers(&self, inode: InodeId, wish: &Lock) -> Vec<LockOwner> {
        self.table(inode).into_iter().flat_map(|table| table.conflicts(wish)).map(|lock| lock.owner).collect()
    }

    /// Broken invariants, a sentence each.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut rebuilt = Self::default();
        let mut broken = Vec::new();
        for (inode, table) in self.tables() {
            if table.is_empty() {
                broken.push(format!("{inode} has an empty lock table"));
            }
            broken.extend(table.check().into_iter().map(|sentence| format!("{inode}: {sentence}")));
            rebuilt.restore(inode, table.clone());
        }
        if rebuilt.by_session != self.by_session || rebuilt.waiting != self.waiting {
            broken.push("the lock indexes differ from the lock tables".into());
        }
        broken
    }
}

fn over(inode: InodeId, owner: LockOwner, deadlock: bool) -> Effect {
    Effect::LockGranted { session: owner.session, inode, owner: owner.owner, flock: owner.flock, deadlock }
}
