//! Recalls of held files for steps that can wait. A file that is being written is recalled seldom.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_runtime::Moment;
use ebb_types::InodeId;

/// Minimum time between two recalls of a held file, and before the first one.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of files in the table. Holders of further files are asked at once.
const FILES_MAX: usize = 10_000;

/// When each file's holder may be asked next.
#[derive(Default)]
pub(super) struct Holders {
    until: BTreeMap<InodeId, Moment>,
}

impl Holders {
    /// Forgets files without a step for a while.
    pub(super) fn forget_old(&mut self, now: Moment) {
        self.until.retain(|_, until| now < until.after(PAUSE));
    }

    /// Whether a client holds the file and must not be asked for it yet.
    pub(super) fn is_waited_for(&mut self, machine: &Machine, inode: InodeId, now: Moment) -> bool {
        if machine.holder(inode).is_none() {
            self.until.remove(&inode);
            return false;
        }
        let is_waited_for = match self.until.get(&inode) {
            Some(until) if now < *until => return true,
            Some(_) => false,
            None => self.until.len() < FILES_MAX,
        };
        self.until.insert(inode, now.after(PAUSE));
        is_waited_for
    }
}
