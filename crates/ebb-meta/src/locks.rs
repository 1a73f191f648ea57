//! The locks of one file: byte ranges (`fcntl(2)`) and whole files (`flock(2)`), held and waited for.
//!
//! The two kinds never conflict. A queued request waits for held locks only. It is granted in order of arrival, as soon
//! as no held lock conflicts with it. A request that can be granted at once does not wait behind the queue. Linux does
//! the same, and it keeps the waits-for graph free of edges between waiters.

use ebb_types::{Result, SessionId, bail};
use ebb_wire::pb;

/// Most locks of one file, held and waited for together.
pub(crate) const LOCKS_MAX: usize = 16_384;

/// Most sentences of a check of one file.
const BROKEN_MAX: usize = 100;

/// Owner of a lock. Byte-range locks and whole-file locks of one owner are independent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LockOwner {
    pub(crate) session: SessionId,
    pub(crate) owner: u64,
    pub(crate) flock: bool,
}

/// Bytes of a file, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockSpan {
    pub(crate) start: u64,
    /// `u64::MAX` stands for the end of the file, however long it grows.
    pub(crate) end: u64,
}

impl LockSpan {
    /// The whole file.
    pub(crate) const ALL: Self = Self { start: 0, end: u64::MAX };
}

/// A lock, held or requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lock {
    pub(crate) owner: LockOwner,
    pub(crate) exclusive: bool,
    pub(crate) start: u64,
    /// Inclusive; `u64::MAX` is to the end of the file, however long it grows.
    pub(crate) end: u64,
    pub(crate) pid: u32,
}

/// What a [`pb::FileLock`] requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Lock(Lock),
    Unlock { owner: LockOwner, span: LockSpan },
}

impl Wish {
    /// Reads and checks a request of this session. A whole-file lock covers everything, whatever range it names.
    pub(crate) fn parse(session: SessionId, lock: &pb::FileLock) -> Result<Self> {
        let owner = LockOwner { session, owner: lock.owner, flock: lock.flock };
        let LockSpan { start, end } =
            if lock.flock { LockSpan::ALL } else { LockSpan { start: lock.start, end: lock.end } };
        if start > end {
            bail!(Invalid, "a lock from {start} to {end} ends before it starts");
        }
        Ok(match lock.kind {
            0 => Self::Unlock { owner, span: LockSpan { start, end } },
            1 | 2 => Self::Lock(Lock { owner, exclusive: lock.kind == 2, start, end, pid: lock.pid }),
            other => bail!(Invalid, "lock kind {other} is none of 0 (unlock), 1 (shared), 2 (exclusive)"),
        })
    }
}

impl Lock {
    /// The lock for a message.
    pub(crate) fn to_pb(self) -> pb::FileLock {
        pb::FileLock {
            kind: if self.exclusive { 2 } else { 1 },
            flock: self.owner.flock,
            owner: self.owner.owner,
            start: self.start,
            end: self.end,
            pid: self.pid,
            session: self.owner.session.raw(),
        }
    }

    /// The bytes that it covers.
    pub(crate) fn span(&self) -> LockSpan {
        LockSpan { start: self.start, end: self.end }
    }

    fn in_the_way_of(&self, wish: &Self) -> bool {
        self.owner != wish.owner
            && self.owner.flock == wish.owner.flock
            && (self.exclusive || wish.exclusive)
            && self.start <= wish.end
            && wish.start <= self.end
    }
}

/// The locks of one file.
///
/// Invariant: the ranges of one owner do not overlap, and neighbours of the same kind are one range.
#[derive(Clone, Default, Debug)]
pub(crate) struct LockTable {
    /// By start, then owner.
    held: Vec<Lock>,
    /// By arrival.
    queue: Vec<Lock>,
}

impl LockTable {
    /// Held locks that conflict with this one.
    pub(crate) fn conflicts(&self, wish: &Lock) -> impl Iterator<Item = &Lock> {
        self.held.iter().filter(move |held| held.in_the_way_of(wish))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }

    pub(crate) fn held(&self) -> &[Lock] {
        &self.held
    }

    pub(crate) fn queue(&self) -> &[Lock] {
        &self.queue
    }

    /// Records a lock without conflicts. It replaces what its owner held in the range.
    pub(crate) fn grant(&mut self, lock: Lock) {
        // I-42: two owners with conflicting locks would both believe that they are alone.
        debug_assert!(self.conflicts(&lock).next().is_none(), "{lock:?} is granted beside a conflicting lock");
        self.cut(lock.owner, lock.span());
        let mut lock = lock;
        self.held.retain(|held| {
            let touches = held.owner == lock.owner
                && held.exclusive == lock.exclusive
                && (held.end.checked_add(1) == Some(lock.start) || lock.end.checked_add(1) == Some(held.start));
            if touches {
                lock.start = lock.start.min(held.start);
                lock.end = lock.end.max(held.end);
            }
            !touches
        });
        self.insert(lock);
    }

    /// Releases what the owner holds in a range. The rest of a lock that reaches beyond the range stays.
    pub(crate) fn cut(&mut self, owner: LockOwner, span: LockSpan) {
        let LockSpan { start, end } = span;
        assert!(start <= end, "locks are cut from {start} to {end}, which covers nothing");
        let (hit, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|held| held.owner == owner && held.start <= end && start <= held.end);
        self.held = kept;
        for held in hit {
            if held.start < start {
                self.insert(Lock { end: start - 1, ..held });
            }
            if held.end > end {
                self.insert(Lock { start: end + 1, ..held });
            }
        }
    }

    fn insert(&mut self, lock: Lock) {
        let at = self.held.partition_point(|held| (held.start, held.owner) < (lock.start, lock.owner));
        self.held.insert(at, lock);
    }

    /// Whether the owner holds a lock of this kind that covers the range.
    pub(crate) fn holds(&self, lock: &Lock) -> bool {
        self.held.iter().any(|held| {
            held.owner == lock.owner
                && held.exclusive == lock.exclusive
                && held.start <= lock.start
                && held.end >= lock.end
        })
    }

    pub(crate) fn enqueue(&mut self, lock: Lock) {
        // A request that waits for nothing is never looked at again.
        debug_assert!(self.conflicts(&lock).next().is_some(), "{lock:?} waits for no lock");
        self.queue.push(lock);
    }

    /// Withdraws the queued requests that `pick` selects. True if there were any.
    pub(crate) fn dequeue_where(&mut self, pick: impl Fn(&Lock) -> bool) -> bool {
        let before = self.queue.len();
        self.queue.retain(|lock| !pick(lock));
        self.queue.len() != before
    }

    /// Removes all locks and requests of a session.
    pub(crate) fn remove_session(&mut self, session: SessionId) {
        self.held.retain(|lock| lock.owner.session != session);
        self.queue.retain(|lock| lock.owner.session != session);
    }

    /// Whether a session has a lock or a request here.
    pub(crate) fn concerns(&self, session: SessionId) -> bool {
        self.held.iter().chain(&self.queue).any(|lock| lock.owner.session == session)
    }

    /// Grants the queued requests without conflicts, in order of arrival.
    pub(crate) fn grant_waiting(&mut self) -> Vec<Lock> {
        let mut granted = Vec::new();
        let mut at = 0;
        while let Some(wish) = self.queue.get(at).copied() {
            if self.conflicts(&wish).next().is_some() {
                at += 1;
            } else {
                self.queue.remove(at);
                self.grant(wish);
                granted.push(wish);
                // A shared lock may have replaced the owner's exclusive one. Requests further ahead may be free now.
                at = 0;
            }
        }
        granted
    }

    /// Refuses with kind `NoLocks` if the file has no room for a further lock.
    pub(crate) fn check_room(&self) -> Result<()> {
        if self.held.len() + self.queue.len() >= LOCKS_MAX {
            bail!(NoLocks, "the file has {LOCKS_MAX} locks and waiters already");
        }
        Ok(())
    }

    /// Rebuilds a table from a checkpoint.
    pub(crate) fn from_parts(held: Vec<Lock>, queue: Vec<Lock>) -> Self {
        let mut table = Self { held: Vec::with_capacity(held.len()), queue };
        for lock in held {
            table.insert(lock);
        }
        table
    }

    /// Broken invariants, a sentence each.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (at, a) in self.held.iter().enumerate() {
            for b in &self.held[at + 1..] {
                let overlap = a.start <= b.end && b.start <= a.end;
                // Each pair of thousands may conflict: a hundred sentences say as much as a million.
                if broken.len() < BROKEN_MAX && (a.in_the_way_of(b) || (a.owner == b.owner && overlap)) {
                    broken.push(format!("held locks conflict: {a:?} and {b:?}"));
                }
            }
        }
        for wish in &self.queue {
            if broken.len() < BROKEN_MAX && self.conflicts(wish).next().is_none() {
                broken.push(format!("a queued lock has nothing in its way: {wish:?}"));
            }
        }
        broken
    }
}
