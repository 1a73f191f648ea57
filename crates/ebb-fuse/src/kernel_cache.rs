//! Tracks the files that the kernel caches, and makes the kernel drop them in time.
//!
//! After a change, here or elsewhere, no program may read pages that were cached before it. A
//! change has these steps:
//! 1. Programs that begin to read are held up. The kernel requests attributes before it uses a
//!    page, and this request waits.
//! 2. The kernel drops pages and attributes.
//! 3. The change is made.
//! 4. The kernel drops the pages that were served meanwhile to programs that had begun before.
//! 5. The waiting programs go on.
//!
//! So no program reads old bytes after another program has read new ones. An access to a mapping
//! makes no request. So a mapping has the old bytes until the kernel has dropped them.
//!
//! The kernel ignores attributes that a notification or another reply has overtaken, and goes on
//! with the size and the pages that it has. So both are adapted before attributes are answered.

mod guard;

use std::sync::Arc;

use ebb_client::{CacheGuard, CacheListener};
use ebb_runtime::Runtime;
use ebb_types::InodeId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::abi::init::Mappable;
use crate::invalidate::{Invalidator, Range};
use crate::pages::{Adapt, Changer, Pages, Served, Shown, Way};
use crate::vfs::{Access, Attr};
use guard::Guard;

/// The kernel's caches of one mount. A clone is cheap.
#[derive(Clone)]
pub struct KernelCache(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    invalidator: Arc<Invalidator>,
    pages: Mutex<Pages>,
    unguarded: Notify,
    /// The kernel has done what it was notified of.
    notified: Notify,
}

impl std::fmt::Debug for KernelCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KernelCache({:?})", self.0.invalidator)
    }
}

impl KernelCache {
    /// The caches of the kernel that `invalidator` notifies.
    pub(crate) fn new(runtime: Runtime, invalidator: Arc<Invalidator>) -> Self {
        let (pages, unguarded, notified) = (Mutex::default(), Notify::new(), Notify::new());
        Self(Arc::new(Inner { runtime, invalidator, pages, unguarded, notified }))
    }

    /// Chooses the way of a new descriptor that requested `asked`.
    pub(crate) fn open(&self, inode: InodeId, access: Access, asked: Way, maps: Mappable) -> Way {
        self.0.pages.lock().open(inode, access, asked, maps)
    }

    /// Uncounts a closed descriptor.
    pub(crate) fn close(&self, inode: InodeId, access: Access, way: Way) {
        let excess = self.0.pages.lock().close(inode, access, way);
        if let Some(mut notifying) = excess.and_then(|excess| self.begin_drop(excess, Changer::OtherMount, true)) {
            self.0.runtime.spawn("drop pages of a closed file", async move { notifying.drop_left().await });
        }
    }

    /// Drops the pages of a file into which the kernel may have put bytes at the wrong offset.
    pub(crate) fn misplaced(&self, inode: InodeId) {
        self.0.invalidator.submit(Range::whole(inode));
    }

    /// Drops attributes that this mount changed without a report to the kernel.
    pub(crate) fn attributes_changed(&self, inode: InodeId) {
        self.0.invalidator.submit_attributes(inode);
    }

    /// Whether the kernel caches names. It may do so only if it can be made to forget them.
    pub(crate) fn keeps_names(&self) -> bool {
        self.0.invalidator.keeps_names()
    }

    /// Makes the kernel forget all names that it caches now.
    pub(crate) fn forget_names(&self) {
        self.0.invalidator.forget(&[]);
    }

    /// Records the range of a read that is about to be answered.
    pub(crate) fn serve(&self, inode: InodeId, way: Way, offset: u64, len: u64) {
        self.0.pages.lock().serve(inode, way, offset, len);
    }

    /// Whether the file is being changed. Then the kernel must not cache its attributes.
    pub(crate) fn is_guarded(&self, inode: InodeId) -> bool {
        self.0.pages.lock().is_guarded(inode)
    }

    /// Waits until the file is not being changed.
    pub(crate) async fn unguarded(&self, inode: InodeId) {
        loop {
            let unguarded = self.0.unguarded.notified();
            tokio::pin!(unguarded);
            unguarded.as_mut().enable();
            if !self.is_guarded(inode) {
                return;
            }
            unguarded.await;
        }
    }

    /// Brings the kernel's pages and size of a file to what `attr` shows, before `attr` is answered.
    /// It takes as long as requests have pages locked that are older.
    pub(crate) async fn adapt(&self, attr: &Attr) {
        let (inode, now) = (attr.inode, Shown::of(attr));
        let behind = loop {
            let notified = self.0.notified.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            let what = self.0.pages.lock().adapt(inode, now);
            match what {
                Adapt::Done => return,
                Adapt::Wait => notified.await,
                Adapt::Do(behind) => break behind,
            }
        };
        let mut notifying = Notifying { cache: self.clone(), inode, left: behind.pages };
        // Ordering: pages first. With the new size, the end of an old page would be read as zeros.
        notifying.drop_left().await;
        if behind.grows {
            let _ = self.0.invalidator.grow(inode, now.size).await;
        }
        // Ordering: before the end of `notifying`, so that no other answer adapts in between.
        self.0.pages.lock().adapted(inode, now);
    }

    /// The kernel takes the attributes of an answer without a comparison.
    pub(crate) fn overwrite_size(&self, inode: InodeId) {
        self.0.pages.lock().overwrite_size(inode);
    }

    /// A program on this mount wrote up to `end`.
    pub(crate) fn on_written(&self, inode: InodeId, end: u64) {
        self.0.pages.lock().on_written(inode, end);
    }

    /// Takes what was served of a file, for the kernel to drop. `None`: nothing was.
    fn begin_drop(&self, inode: InodeId, changer: Changer, whole: bool) -> Option<Notifying> {
        let left = self.0.pages.lock().begin_drop(inode, changer, whole);
        (left != Served::Nothing).then(|| Notifying { cache: self.clone(), inode, left })
    }

    /// Runs `work`, which changes a file's data, and keeps programs on this mount from reading the
    /// old data afterwards.
    pub(crate) async fn change<T>(&self, inode: InodeId, work: impl Future<Output = T>) -> T {
        let guard = {
            let mut pages = self.0.pages.lock();
            pages.may_have(inode).then(|| {
                pages.guard(inode);
                // Pages of mappings alone need nothing here: the kernel checks mappings before it
                // writes around the cache.
                Guard { cache: self.clone(), inode, whole: false, changer: Changer::ThisMount }
            })
        };
        let Some(mut guard) = guard else { return work.await };
        guard.drop_served().await;
        let outcome = work.await;
        guard.drop_served().await;
        outcome
    }

    /// Makes the kernel drop the data and attributes of a file.
    pub async fn drop_pages(&self, inode: InodeId) {
        CacheListener::guard(self, inode).drop_pages().await;
    }
}

impl CacheListener for KernelCache {
    fn guard(&self, inode: InodeId) -> Box<dyn CacheGuard> {
        self.0.pages.lock().guard(inode);
        Box::new(Guard { cache: self.clone(), inode, whole: true, changer: Changer::OtherMount })
    }

    fn forget(&self, inodes: &[InodeId]) {
        self.0.invalidator.forget(inodes);
    }
}

/// A notification of the kernel under way. Answers with attributes wait for its end: until then the
/// kernel may have the pages, and it may ignore the answer.
///
/// Cancel-safety: dropped half-way, what is `left` counts as served again.
struct Notifying {
    cache: KernelCache,
    inode: InodeId,
    /// What the kernel may not have dropped yet.
    left: Served,
}

impl Notifying {
    /// Completes when the kernel has dropped what is left.
    async fn drop_left(&mut self) {
        let inode = self.inode;
        let ranges = match &self.left {
            Served::Nothing => Vec::new(),
            Served::Ranges(ranges) => {
                ranges.iter().map(|&(offset, len)| Range { inode, offset, len: Some(len) }).collect()
            }
            Served::Anything => vec![Range::whole(inode)],
        };
        let waits: Vec<_> = ranges.into_iter().map(|range| self.cache.0.invalidator.invalidate(range)).collect();
        for wait in waits {
            // An error means that the mount has ended, and no thread notifies the kernel.
            let _ = wait.await;
        }
        self.left = Served::Nothing;
    }
}

impl Drop for Notifying {
    fn drop(&mut self) {
        self.cache.0.pages.lock().notified(self.inode, std::mem::take(&mut self.left));
        self.cache.0.notified.notify_waiters();
    }
}
