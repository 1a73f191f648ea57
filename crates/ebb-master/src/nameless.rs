//! Inodes that have lost their last name a moment ago.
//!
//! Who opens a file looks its name up first, and asks for the inode then. In between others may replace or remove the
//! name. On a local file system the inode is held by the one who looked it up; here only the kernel of a mount knows that
//! somebody did. So the inode stays for a while, and is opened as if it had its name still.
//!
//! It stays no longer than what was written to it: a holder that has thrown that away says so, and the log keeps it
//! (`Machine::is_emptied`). Where its room is needed it stays for half as long, which is what is promised: its writer waits.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::InodeId;

/// How long an inode stays for those who looked it up before. A kernel asks for what it has just looked up at once; what
/// takes longer is a process or a mount that does not get to run.
pub(crate) const KEPT: Duration = Duration::from_secs(2);
/// The same while its room is needed. Source: I-81 in `docs/invariants.md`.
const KEPT_MIN: Duration = Duration::from_secs(1);

/// Inodes without a name that can be opened all the same.
#[derive(Debug, Default)]
pub(crate) struct Nameless {
    /// Until when.
    until: BTreeMap<InodeId, Moment>,
}

impl Nameless {
    /// The last name is gone.
    pub fn add(&mut self, inode: InodeId, now: Moment) {
        self.until.entry(inode).or_insert(now.after(KEPT));
    }

    /// Whether somebody may open it who has looked it up before.
    #[must_use]
    pub fn is_kept(&self, inode: InodeId, now: Moment) -> bool {
        self.until.get(&inode).is_some_and(|until| now < *until)
    }

    /// It is freed, or nobody may open it any more.
    pub fn end(&mut self, inode: InodeId) {
        self.until.remove(&inode);
    }

    /// Nothing is kept for longer than it must be: the room that it takes is needed. True: something is over sooner than it
    /// would have been.
    pub fn hasten(&mut self, now: Moment) -> bool {
        let (latest, mut any) = (now.after(KEPT_MIN), false);
        for until in self.until.values_mut().filter(|until| **until > latest) {
            (*until, any) = (latest, true);
        }
        any
    }

    /// How long it is until the next one need not be kept any more. Forgets those of which that is so already.
    pub fn next_end(&mut self, now: Moment) -> Option<Duration> {
        self.until.retain(|_, until| now < *until);
        self.until.values().min().map(|until| until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_kept_for_a_while_and_no_longer_than_its_bytes() {
        let mut nameless = Nameless::default();
        let [one, other, never] = [2, 3, 4].map(InodeId::new);
        let start = Moment::default();
        let half = start.after(KEPT / 2);
        nameless.add(one, start);
        nameless.add(other, half);
        // It is told again, and counts from the first time.
        nameless.add(one, half);
        assert!(nameless.is_kept(one, half) && nameless.is_kept(other, half) && !nameless.is_kept(never, half));
        assert_eq!(nameless.next_end(half), Some(KEPT / 2));
        let end = start.after(KEPT);
        assert!(!nameless.is_kept(one, end) && nameless.is_kept(other, end));
        assert_eq!(nameless.next_end(end), Some(KEPT / 2));
        nameless.end(other);
        assert!(!nameless.is_kept(other, end));
        assert_eq!(nameless.next_end(end), None);
    }

    #[test]
    fn an_inode_whose_room_is_needed_is_kept_for_a_second_all_the_same() {
        let mut nameless = Nameless::default();
        let [old, new] = [2, 3].map(InodeId::new);
        let start = Moment::default();
        let later = start.after(Duration::from_millis(1500));
        nameless.add(old, start);
        nameless.add(new, later);
        assert!(nameless.hasten(later) && !nameless.hasten(later));
        let (ends_old, ends_new) = (start.after(KEPT), later.after(KEPT_MIN));
        assert!(nameless.is_kept(old, later) && !nameless.is_kept(old, ends_old));
        assert!(nameless.is_kept(new, ends_old) && !nameless.is_kept(new, ends_new));
    }
}
