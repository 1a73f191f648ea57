//! The locks of all files, the waits-for graph of their owners, and its cycles.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_types::{InodeId, Result, SessionId, bail};
use imbl::{OrdMap, OrdSet};

use crate::locks::{Lock, LockOwner, LockSpan, LockTable};
use crate::outcome::Effect;

/// Result of a request for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockOutcome {
    Granted,
    Queued,
}

/// What happens to a request that conflicts with a held lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Conflict {
    /// It waits in the queue.
    Waits,
    /// It is refused with kind `WouldBlock`.
    Fails,
}

/// How a queued request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    Granted,
    /// Refused, as it would wait for itself.
    Deadlock,
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

    /// Takes a lock, or queues for it. A lock that its owner holds in the range is kept until it can be changed. There
    /// is one exception: an owner that waits to change a whole-file lock gives it up first (`flock(2)`). Otherwise two
    /// such owners would wait for each other for ever.
    pub(crate) fn lock(
        &mut self,
        inode: InodeId,
        lock: Lock,
        conflict: Conflict,
        effects: &mut Vec<Effect>,
    ) -> Result<LockOutcome> {
        if let Some(table) = self.table(inode) {
            if table.holds(&lock) {
                return Ok(LockOutcome::Granted);
            }
            table.check_room()?;
        }
        let free = |locks: &Self| locks.table(inode).is_none_or(|table| table.conflicts(&lock).next().is_none());
        if conflict == Conflict::Waits && lock.owner.flock && !free(self) {
            self.unlock(inode, lock.owner, LockSpan::ALL, effects);
        }
        if free(self) {
            self.change(inode, |table| table.grant(lock));
            self.by_session.insert((lock.owner.session, inode));
            // A shared lock in place of an exclusive one can free requests of others.
            self.serve_waiters(inode, &[lock.owner], effects);
            return Ok(LockOutcome::Granted);
        }
        if conflict == Conflict::Fails {
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

    /// Releases a range, and grants the requests that become free.
    pub(crate) fn unlock(&mut self, inode: InodeId, owner: LockOwner, span: LockSpan, effects: &mut Vec<Effect>) {
        if self.table(inode).is_some() {
            self.change(inode, |table| table.cut(owner, span));
            self.serve_waiters(inode, &[owner], effects);
        }
    }

    /// Withdraws an owner's queued requests of exactly this range. True if there were any.
    pub(crate) fn cancel(&mut self, inode: InodeId, owner: LockOwner, span: LockSpan) -> bool {
        if self.table(inode).is_none() {
            return false;
        }
        let is_meant = |lock: &Lock| lock.owner == owner && lock.span() == span;
        let taken = self.change(inode, |table| table.dequeue_where(is_meant));
        self.reindex(inode, owner);
        taken
    }

    /// Ends all locks and requests of a session.
    pub(crate) fn end_session(&mut self, session: SessionId, effects: &mut Vec<Effect>) {
        let range = (session, InodeId::new(0))..=(session, InodeId::new(u64::MAX));
        let of_session = |locks: &Self| -> Vec<InodeId> {
            locks.by_session.range::<_, (SessionId, InodeId)>(range.clone()).map(|(_, inode)| *inode).collect()
        };
        let files = of_session(self);
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
        // I-42: a lock of a session that is over would never be released.
        assert!(of_session(self).is_empty(), "{session} is over and still has locks");
    }

    /// Forgets the locks of a file that is gone.
    pub(crate) fn drop_file(&mut self, inode: InodeId) {
        let Some(table) = self.tables.remove(&inode) else { return };
        for lock in table.held().iter().chain(table.queue()) {
            self.by_session.remove(&(lock.owner.session, inode));
            self.waiting.remove(&(lock.owner, inode));
        }
    }

    /// Restores a table from a checkpoint.
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

    /// Completes a change: grants the requests that are free, breaks cycles that a grant has closed, and drops an empty
    /// table.
    fn serve_waiters(&mut self, inode: InodeId, touched: &[LockOwner], effects: &mut Vec<Effect>) {
        let granted = self.change(inode, LockTable::grant_waiting);
        for lock in &granted {
            effects.push(over(inode, lock.owner, Over::Granted));
        }
        // Ordering: the indexes are right before cycles are looked for, as the search walks them.
        for owner in touched.iter().copied().chain(granted.iter().map(|lock| lock.owner)) {
            self.reindex(inode, owner);
        }
        for lock in granted {
            self.break_circles(lock.owner, effects);
        }
    }

    /// Refuses a request of this owner that closes a cycle. An owner with several threads may get one lock while
    /// another of its requests waits. An owner that now waits for it may be the one that it waits for.
    fn break_circles(&mut self, owner: LockOwner, effects: &mut Vec<Effect>) {
        for inode in self.waits_of(owner) {
            let wishes: Vec<Lock> = self.table(inode).into_iter().flat_map(LockTable::queue).copied().collect();
            for wish in wishes.into_iter().filter(|wish| wish.owner == owner) {
                if self.closes_circle(inode, &wish) {
                    self.change(inode, |table| table.dequeue_where(|lock| *lock == wish));
                    self.reindex(inode, owner);
                    effects.push(over(inode, owner, Over::Deadlock));
                }
            }
        }
    }

    fn waits_of(&self, owner: LockOwner) -> Vec<InodeId> {
        let range = (owner, InodeId::new(0))..=(owner, InodeId::new(u64::MAX));
        self.waiting.range::<_, (LockOwner, InodeId)>(range).map(|(_, inode)| *inode).collect()
    }

    /// Updates the indexes of one owner from the table.
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

    /// Whether a wait for this lock would close a cycle of the waits-for graph. Its edges lead from a waiter to the
    /// holders of conflicting locks. Only `fcntl` promises to find cycles (`EDEADLK`).
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

fn over(inode: InodeId, owner: LockOwner, how: Over) -> Effect {
    let deadlock = how == Over::Deadlock;
    Effect::LockGranted { session: owner.session, inode, owner: owner.owner, flock: owner.flock, deadlock }
}
