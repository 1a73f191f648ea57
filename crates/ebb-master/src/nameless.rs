//! Inodes that have just lost their last name.
//!
//! A program that opens a file first looks its name up, and then asks for the inode. In between another session may
//! replace or remove the name. A local file system keeps the inode for the program that looked it up. Here only the
//! kernel of a mount knows of the lookup. So the inode stays for a while, and can be opened as if it still had its name
//! (I-81).
//!
//! It does not outlive its bytes: a holder that dropped unflushed bytes reports that, and the log keeps it
//! (`Machine::is_emptied`). If its room is needed, it stays for half as long, while the writer waits. I-81 promises no
//! more than that.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::InodeId;

/// Time for which an inode stays for sessions that looked it up before. A kernel asks for an inode right after the
/// lookup. Only a process or a mount that does not get to run takes longer.
pub(crate) const KEPT: Duration = Duration::from_secs(2);
/// The time if the room is needed. Source: I-81 in `docs/invariants.md`.
const KEPT_MIN: Duration = Duration::from_secs(1);

/// Inodes without a name that can still be opened.
#[derive(Debug, Default)]
pub(crate) struct Nameless {
    /// End of each inode's time.
    until: BTreeMap<InodeId, Moment>,
}

impl Nameless {
    /// Starts the time of an inode that has lost its last name.
    pub fn add(&mut self, inode: InodeId, now: Moment) {
        self.until.entry(inode).or_insert(now.after(KEPT));
    }

    /// Whether a session that looked the inode up before may still open it.
    #[must_use]
    pub fn is_kept(&self, inode: InodeId, now: Moment) -> bool {
        self.until.get(&inode).is_some_and(|until| now < *until)
    }

    /// Ends the time of an inode that was freed, or may no longer be opened.
    pub fn end(&mut self, inode: InodeId) {
        self.until.remove(&inode);
    }

    /// Shortens all times to the minimum, because the room is needed. Returns whether any time was shortened.
    pub fn hasten(&mut self, now: Moment) -> bool {
        let (latest, mut any) = (now.after(KEPT_MIN), false);
        for until in self.until.values_mut().filter(|until| **until > latest) {
            (*until, any) = (latest, true);
        }
        any
    }

    /// Time until the next inode may be freed. Forgets inodes whose time is over.
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
        // A second call does not extend the time.
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
