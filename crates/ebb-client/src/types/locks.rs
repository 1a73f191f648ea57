//! File locks.

use ebb_wire::pb;

/// A byte-range lock of fcntl(2), or a whole-file lock of flock(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// What it allows to others.
    pub kind: LockKind,
    /// Which call it is from.
    pub sort: LockSort,
    /// Its owner, unique within the client: a table of descriptors (fcntl) or an open file (flock).
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte; `None`: to the end of the file, however long it grows.
    pub end: Option<u64>,
    /// Process that asks, for people; `None`: it is on another host, or unknown.
    pub pid: Option<u32>,
}

/// What a lock allows to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Everything: the range is given up.
    Unlock,
    /// Shared locks.
    Shared,
    /// No lock.
    Exclusive,
}

/// The call that a lock is from. Locks of different sorts do not exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockSort {
    /// fcntl(2): ranges of bytes.
    Fcntl,
    /// flock(2): whole files.
    Flock,
}

/// What a lock request does if another owner has the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfLocked {
    /// Fails with `WouldBlock`.
    Fail,
    /// Waits.
    Wait,
}

impl Lock {
    /// A request that gives up all locks of `owner`.
    #[must_use]
    pub const fn release_all(owner: u64, sort: LockSort) -> Self {
        Self { kind: LockKind::Unlock, sort, owner, start: 0, end: None, pid: None }
    }

    /// The last byte of the range, `u64::MAX` if it has none.
    #[must_use]
    pub fn last_byte(&self) -> u64 {
        self.end.unwrap_or(u64::MAX)
    }

    /// A lock in an answer of the master. A process number means something only on the host of its session.
    pub(crate) fn of_message(message: &pb::FileLock, own_session: u64) -> Self {
        Self {
            kind: if message.kind == 2 { LockKind::Exclusive } else { LockKind::Shared },
            sort: LockSort::of_message(message.flock),
            owner: message.owner,
            start: message.start,
            end: Some(message.end).filter(|end| *end != u64::MAX),
            pid: Some(message.pid).filter(|pid| message.session == own_session && *pid != 0),
        }
    }
}

impl LockSort {
    /// From the flag of a message.
    pub(crate) const fn of_message(flock: bool) -> Self {
        if flock { Self::Flock } else { Self::Fcntl }
    }
}

impl From<Lock> for pb::FileLock {
    fn from(lock: Lock) -> Self {
        let kind = match lock.kind {
            LockKind::Unlock => 0,
            LockKind::Shared => 1,
            LockKind::Exclusive => 2,
        };
        let (flock, end, pid) = (lock.sort == LockSort::Flock, lock.last_byte(), lock.pid.unwrap_or(0));
        Self { kind, flock, owner: lock.owner, start: lock.start, end, pid, session: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_survives_the_way_through_a_message() {
        let lock = Lock::release_all(7, LockSort::Flock);
        let lock = Lock { kind: LockKind::Exclusive, start: 3, pid: Some(12), ..lock };
        let message = pb::FileLock { session: 5, ..lock.into() };
        assert_eq!((message.kind, message.flock, message.end), (2, true, u64::MAX));
        assert_eq!(Lock::of_message(&message, 5), lock);
        assert_eq!(Lock::of_message(&message, 6), Lock { pid: None, ..lock }, "the process is on another host");
    }
}
