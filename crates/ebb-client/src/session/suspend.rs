//! A host that slept: its kernel believes what it keeps for too long, and is made to forget first.
//!
//! A mount tells the kernel for how long it may answer programs from its pages, attributes and names: no longer than the session
//! is certain to live. The kernel counts that in jiffies, which stop while the host is suspended; the master's clock does not. So
//! after a sleep that nobody planned programs could read what others have changed since. This process' own clock goes on in
//! sleep (CLOCK_BOOTTIME), and its timers do not: a timer that is late shows the sleep. Then everything that the kernel keeps
//! is dropped, before anything else is looked at. Programs that run within the [`PERIOD`] after the sleep may be faster.
//!
//! If the clocks of the whole machine stop, as those of a virtual machine that is paused, nothing here can see it
//! (docs/semantics.md).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_runtime::SeededBug;

use crate::shared::Shared;
use crate::types::CacheListener;

/// Between two looks at the clock.
const PERIOD: Duration = Duration::from_millis(250);
/// A look that is late by less is a busy machine's, and the margin of the session's time covers it.
const TOLERANCE: Duration = Duration::from_secs(1);

/// There is a kernel behind the client, which hears of invalidations.
pub(crate) fn listen(shared: &Arc<Shared>, listener: Arc<dyn CacheListener>) {
    let before = shared.listener.lock().replace(listener);
    if before.is_none() {
        shared.runtime.spawn("client sleeps", run(shared.clone()));
    }
}

/// Looks at the clock as long as the client runs.
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
