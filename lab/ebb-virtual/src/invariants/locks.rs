//! No client has a lock while another has one that excludes it, and a client that is gone leaves none behind.
//!
//! Source: "Locks" in `docs/semantics.md`, fcntl(2) and flock(2). A hold ends, at the latest, when its client's session
//! cannot be believed in any more. A lock may move on only after that. Clients that freeze or are cut off with a lock
//! in hand test this.

use ebb_client::{IfLocked, Lock, LockKind, LockSort};
use ebb_types::ErrorKind;

use super::Violation;
use crate::files::Files;
use crate::history::History;
use crate::locks::{Hold, exclude_each_other};
use crate::workload::{LOGS, PLACED, name};

/// Finds holds that exclude each other and overlap.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let mut holds: Vec<&Hold> = history.holds().iter().collect();
    holds.sort_by_key(|hold| hold.from);
    let mut violations = Vec::new();
    for (index, one) in holds.iter().enumerate() {
        let meanwhile = holds[index + 1..].iter().take_while(|other| other.from < one.until);
        for other in meanwhile.filter(|other| other.file == one.file && exclude_each_other(&other.lock, &one.lock)) {
            let detail = format!(
                "file {}: client {} had {:?} from {} to {}, and client {} had {:?} from {} to {}",
                one.file, one.client, one.lock, one.from, one.until, other.client, other.lock, other.from, other.until
            );
            violations.push(Violation::new("locks", detail));
        }
    }
    violations
}

/// Takes every lock there can be on the shared files, at rest: no holder is left.
pub async fn check_rest(files: &dyn Files) -> ebb_types::Result<Vec<Violation>> {
    let mut violations = Vec::new();
    for file in 0..PLACED + LOGS {
        for sort in [LockSort::Fcntl, LockSort::Flock] {
            let all = Lock { kind: LockKind::Exclusive, pid: Some(1), ..Lock::release_all(1, sort) };
            match files.lock(&name(file), all, IfLocked::Fail).await {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let detail = format!("file {file}: at rest a lock of {sort:?} is still held: {error}");
                    violations.push(Violation::new("locks", detail));
                }
                done => done?,
            }
        }
    }
    Ok(violations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Time;

    fn hold(owner: u64, kind: LockKind, start: u64, from: Time, until: Time) -> Hold {
        let lock = Lock { kind, sort: LockSort::Fcntl, owner, start, end: Some(start + 9), pid: None };
        Hold { client: owner as usize, file: 0, lock, from, until }
    }

    fn count(holds: &[Hold]) -> usize {
        let mut history = History::default();
        holds.iter().for_each(|one| history.hold(*one));
        check(&history).len()
    }

    #[test]
    fn only_exclusive_locks_may_not_overlap() {
        use LockKind::{Exclusive, Shared};
        let first = hold(1, Exclusive, 0, 10, 20);
        assert_eq!(count(&[first, hold(2, Exclusive, 5, 15, 16)]), 1);
        assert_eq!(count(&[hold(2, Shared, 5, 15, 30), first]), 1, "in any order");
        assert_eq!(count(&[first, hold(2, Exclusive, 10, 15, 16)]), 0, "other bytes");
        assert_eq!(count(&[first, hold(2, Exclusive, 5, 20, 30)]), 0, "one after the other");
        assert_eq!(count(&[first, hold(1, Exclusive, 5, 15, 16)]), 0, "its own");
        assert_eq!(count(&[hold(1, Shared, 0, 10, 20), hold(2, Shared, 0, 10, 20)]), 0);
        assert_eq!(count(&[first, Hold { file: 1, ..hold(2, Exclusive, 5, 15, 16) }]), 0, "another file");
    }
}
