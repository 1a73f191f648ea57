//! Bound on the bytes of all files that are written and not yet synced by all members. Writers wait above it.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A bound on dirty bytes.
#[derive(Debug)]
pub(crate) struct Budget {
    used: Mutex<usize>,
    max: usize,
    freed: Notify,
}

impl Budget {
    /// A budget of `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { used: Mutex::new(0), max, freed: Notify::new() }
    }

    /// Takes `bytes` if there is room. A request larger than the budget succeeds when nothing else is taken.
    pub fn try_take(&self, bytes: usize) -> bool {
        let mut used = self.used.lock();
        if *used > 0 && *used + bytes > self.max {
            return false;
        }
        *used += bytes;
        true
    }

    /// Waits until there is room for `bytes`, and takes them. The caller sets the deadline.
    ///
    /// Cancel-safety: dropped before it returns, nothing is taken.
    pub async fn reserve(&self, bytes: usize) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.try_take(bytes) {
                return;
            }
            freed.await;
        }
    }

    /// Waits until something is given back.
    pub async fn given(&self) {
        self.freed.notified().await;
    }

    /// Gives `bytes` back.
    pub fn give(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut used = self.used.lock();
        assert!(*used >= bytes, "gave back {bytes} dirty bytes of {}", *used);
        *used -= bytes;
        drop(used);
        self.freed.notify_waiters();
    }

    /// Bytes that are taken and not given back.
    pub fn used(&self) -> usize {
        *self.used.lock()
    }

    /// Whether it is time to write back before the commit interval is over.
    pub fn is_tight(&self) -> bool {
        self.used() > self.max / 2
    }
}
