//! Write leases of files that are closed and were not used for a while become read leases, without a recall.
//!
//! A write lease outlives its use, so that a program can write the file again without a question to the master. But when its client dies each file that it
//! held is recovered: two entries of the master's log, and a promise and a stamp on every member's disk. A read lease costs
//! nothing then, and keeps everything that is cached ([`crate::lease::batch`]).
//!
//! It costs a share of one entry in the log for each file, a thousand of them in a command, and one more call before
//! the file is written again. A file that is used again within the [`IDLE`] time never pays.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_runtime::{Moment, SeededBug};
use parking_lot::Mutex;

use crate::inode::Core;
use crate::lease::batch::{RELEASE_BATCH, is_idle};
use crate::lease::hold::Lease;
use crate::shared::Shared;

/// How long a closed file is not used before its write lease is lowered.
const IDLE: Duration = Duration::from_secs(10);
/// Between two batches: others come in between.
const PAUSE: Duration = Duration::from_millis(20);

/// Samples of the counter of uses, each with its time.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    marks: Mutex<VecDeque<(Moment, u64)>>,
    /// Leases are being lowered: one round at a time.
    round: tokio::sync::Mutex<()>,
}

impl Uses {
    /// Records the counter of uses. Returns its value of at least [`IDLE`] ago: files last used before that value are
    /// idle.
    fn mark(&self, now: Moment, count: u64) -> u64 {
        let mut marks = self.marks.lock();
        let is_old = |mark: Option<&(Moment, u64)>| mark.is_some_and(|(at, _)| now.since(*at) >= IDLE);
        marks.push_back((now, count));
        while is_old(marks.get(1)) {
            marks.pop_front();
        }
        marks.front().filter(|mark| is_old(Some(mark))).map_or(0, |(_, count)| *count)
    }
}

impl Shared {
    /// Lowers write leases of files that were not used for a while, in the background.
    pub fn lower_idle_leases(self: &Arc<Self>) {
        let idle_below = self.uses.mark(self.runtime.now(), self.use_count());
        if idle_below == 0 || self.runtime.has_bug(SeededBug::KeepsIdle) {
            return;
        }
        let shared = self.clone();
        self.runtime.spawn("lower idle leases", async move {
            let Ok(_round) = shared.uses.round.try_lock() else { return };
            let is_due = |inode: &Arc<crate::inode::Inode>| {
                inode.used.load(Ordering::Relaxed) < idle_below && may_lower(&inode.core.lock())
            };
            let due: Vec<_> = shared.inodes().into_iter().filter(is_due).collect();
            for batch in due.chunks(RELEASE_BATCH) {
                drop(shared.lower(shared.shut(batch, may_lower)).await);
                shared.runtime.sleep(PAUSE).await;
            }
        });
    }
}

/// Whether the write lease of a file may be lowered. A removed file's goes in a way of its own.
pub(crate) fn may_lower(core: &Core) -> bool {
    core.hold.lease() == Lease::Write
        && !core.hold.is_closed()
        && is_idle(core)
        && core.attr.is_some_and(|attr| attr.links > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_idle_that_were_last_used_ten_seconds_ago() {
        let uses = Uses::default();
        let at = |secs: u64| Moment::default().after(Duration::from_secs(secs));
        assert_eq!(uses.mark(at(0), 5), 0, "nothing is known of the time before");
        assert_eq!(uses.mark(at(5), 9), 0);
        assert_eq!(uses.mark(at(10), 12), 5);
        assert_eq!(uses.mark(at(14), 20), 5, "what was used in the fifth second is not due yet");
        assert_eq!(uses.mark(at(15), 20), 9);
        // A committer that was kept waiting: the newest mark that is old enough counts.
        assert_eq!(uses.mark(at(60), 30), 20);
        assert_eq!(uses.mark(at(61), 31), 20);
        assert_eq!(uses.mark(at(70), 31), 30);
    }
}
