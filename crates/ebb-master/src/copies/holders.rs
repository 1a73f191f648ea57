//! Files that clients hold, and steps that can wait: a file that is being written is disturbed seldom.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_runtime::Moment;
use ebb_types::InodeId;

/// A file that a client holds is asked back so often for its copies, and not before it has been held so long.
const PAUSE: Duration = Duration::from_secs(10);
/// Files whose holders are waited for; further ones are not waited for.
const FILES_MAX: usize = 10_000;

/// Until when the holder of each file is not asked.
#[derive(Default)]
pub(super) struct Holders {
    until: BTreeMap<InodeId, Moment>,
}

impl Holders {
    /// Forgets files that no step came for in a while.
    pub(super) fn forget_old(&mut self, now: Moment) {
        self.until.retain(|_, until| now < until.after(PAUSE));
    }

    /// Whether a client holds the file, and is not to be asked for it now.
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
