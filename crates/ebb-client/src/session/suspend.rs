//! After a sleep of the host: makes the kernel drop cache entries that it would trust for too long.
//!
//! A mount limits how long the kernel may answer programs from its pages, attributes and names.
//! The limit is the time for which the session is certain to live. The kernel counts it in jiffies.
//! Jiffies stop while the host is suspended, and the master's clock does not. So after an unplanned
//! sleep, programs could read data that other clients have changed since.
//!
//! This process' clock runs on during sleep (CLOCK_BOOTTIME), but its timers stop. A late timer
//! therefore shows the sleep. The client then drops everything that the kernel keeps. A program
//! that runs within the first [`PERIOD`] after the sleep may still read old data.
//!
//! The client cannot detect a stop of all the machine's clocks, for example in a paused virtual
//! machine (docs/semantics.md).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_runtime::SeededBug;

use crate::shared::Shared;
use crate::types::CacheListener;

/// Time between two checks of the clock.
const PERIOD: Duration = Duration::from_millis(250);
/// A smaller delay counts as load of the machine. The margin of the session's time covers it.
const TOLERANCE: Duration = Duration::from_secs(1);

/// Sets the listener for invalidations. The first call also starts the task that detects sleep.
pub(crate) fn listen(shared: &Arc<Shared>, listener: Arc<dyn CacheListener>) {
    let before = shared.listener.lock().replace(listener);
    if before.is_none() {
        shared.runtime.spawn("client sleeps", run(shared.clone()));
    }
}

/// Checks the clock as long as the client runs.
async fn run(shared: Arc<Shared>) {
    while !shared.closing.load(Ordering::Relaxed) {
        let before = shared.runtime.now();
        shared.runtime.sleep(PERIOD).await;
        let passed = shared.runtime.now().since(before);
        if passed >= PERIOD + TOLERANCE && !shared.runtime.has_bug(SeededBug::TrustStandsStill) {
            tracing::warn!(?passed, "this host or process slept: the kernel forgets what it keeps of this mount");
            forget(&shared).await;
        }
    }
}

/// Attributes and names first: without them the kernel asks before it uses a page.
async fn forget(shared: &Arc<Shared>) {
    shared.forget_everything().await;
    for inode in shared.inodes() {
        shared.invalidate(inode.id).await;
    }
}
