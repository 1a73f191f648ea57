//! The time of a change, in which the kernel's pages of a file are dropped and new reads wait.

use std::pin::Pin;
use std::time::Duration;

use ebb_client::CacheGuard;
use ebb_types::InodeId;

use super::KernelCache;
use crate::pages::Changer;

/// How long a change waits for the kernel to drop pages.
///
/// The wait is bounded against a deadlock. The kernel waits for pages that a request has locked.
/// That request may wait for another mount, which waits for this one. After that time the change
/// goes on, and new readers wait alone.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Maximum number of drop rounds. Each round drops the ranges that were served during the one
/// before. New readers wait, so few rounds are needed.
const ROUNDS_MAX: usize = 4;

/// Keeps the kernel from the use of its caches of one file, until the guard is dropped.
pub(super) struct Guard {
    pub cache: KernelCache,
    pub inode: InodeId,
    /// The next round drops the whole file, not only the ranges on record.
    pub whole: bool,
    /// For a change by another mount, pages of mappings are dropped too. This includes pages that
    /// they read while the kernel dropped others.
    pub changer: Changer,
}

impl Guard {
    pub async fn drop_served(&mut self) {
        let inner = &self.cache.0;
        for round in 0..ROUNDS_MAX {
            let whole = std::mem::take(&mut self.whole);
            let Some(mut notifying) = self.cache.begin_drop(self.inode, self.changer, whole) else {
                if round == 0 {
                    inner.invalidator.submit_attributes(self.inode);
                }
                return;
            };
            let mut all = Box::pin(async move {
                notifying.drop_left().await;
                Ok(())
            });
            let done = inner.runtime.timeout(WAIT_MAX, "waiting for the kernel to drop pages", all.as_mut()).await;
            if let Err(error) = done {
                tracing::warn!(
                    inode = %self.inode, %error,
                    "a change goes on although the kernel has not dropped its pages yet; new reads wait for that"
                );
                let guard = self.another();
                inner.runtime.spawn("wait until the kernel has dropped pages", async move {
                    let _ = all.await;
                    drop(guard);
                });
                return;
            }
        }
    }

    /// A second guard of the same file.
    fn another(&self) -> Self {
        self.cache.0.pages.lock().guard(self.inode);
        Self { cache: self.cache.clone(), inode: self.inode, whole: false, changer: self.changer }
    }
}

impl CacheGuard for Guard {
    fn drop_pages<'a>(&'a mut self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(self.drop_served())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.cache.0.pages.lock().unguard(self.inode) {
            self.cache.0.unguarded.notify_waiters();
        }
    }
}
