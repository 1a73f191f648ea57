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
use crate::pages::{Adapt, Behind, Changer, Pages, Served, Shown, Way};
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
    /// An answer has adapted the kernel's state, or a drop is done.
    adapted: Notify,
}

impl std::fmt::Debug for KernelCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KernelCache({:?})", self.0.invalidator)
    }
}

impl KernelCache {
    /// The caches of the kernel that `invalidator` notifies.
    pub(crate) fn new(runtime: Runtime, invalidator: Arc<Invalidator>) -> Self {
        let (pages, unguarded, adapted) = (Mutex::default(), Notify::new(), Notify::new());
        Self(Arc::new(Inner { runtime, invalidator, pages, unguarded, adapted }))
    }

    /// Chooses the way of a new descriptor that requested `asked`.
    pub(crate) fn open(&self, inode: InodeId, access: Access, asked: Way, maps: Mappable) -> Way {
        self.0.pages.lock().open(inode, access, asked, maps)
    }

    /// Uncounts a closed descriptor.
    pub(crate) fn close(&self, inode: InodeId, access: Access, way: Way) {
        let excess = self.0.pages.lock().close(inode, access, way);
        if let Some(all) = excess.and_then(|excess| self.begin_drop(excess, Changer::OtherMount, true)) {
            self.0.runtime.spawn("drop pages of a closed file", all);
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
            let adapted = self.0.adapted.notified();
            tokio::pin!(adapted);
            adapted.as_mut().enable();
            let what = self.0.pages.lock().adapt(inode, now);
            match what {
                Adapt::Done => return,
                Adapt::Wait => adapted.await,
                Adapt::Do(behind) => break behind,
            }
        };
        let mut adapting = Adapting { cache: self, inode, behind, shown: None };
        // Ordering: pages first. With the new size, the end of an old page would be read as zeros.
        wait_for_all(self.drop_all(inode, &adapting.behind.pages)).await;
        if adapting.behind.grows {
            let _ = self.0.invalidator.grow(inode, now.size).await;
        }
        adapting.shown = Some(now);
    }

    /// The kernel takes the attributes of an answer without a comparison.
    pub(crate) fn overwrite_size(&self, inode: InodeId) {
        self.0.pages.lock().overwrite_size(inode);
    }

    /// A program on this mount wrote up to `end`.
    pub(crate) fn on_written(&self, inode: InodeId, end: u64) {
        self.0.pages.lock().on_written(inode, end);
    }

    fn drop_all(&self, inode: InodeId, served: &Served) -> Vec<Dropped> {
        let ranges = match served {
            Served::Nothing => Vec::new(),
            Served::Ranges(ranges) => {
                ranges.iter().map(|&(offset, len)| Range { inode, offset, len: Some(len) }).collect()
            }
            Served::Anything => vec![Range::whole(inode)],
        };
        ranges.into_iter().map(|range| self.0.invalidator.invalidate(range)).collect()
    }

    /// Makes the kernel drop what was served of a file. The future completes when it has. `None`: nothing was.
    fn begin_drop(&self, inode: InodeId, changer: Changer, whole: bool) -> Option<impl Future<Output = ()> + use<>> {
        let served = self.0.pages.lock().begin_drop(inode, changer, whole);
        if served == Served::Nothing {
            return None;
        }
        let waits = self.drop_all(inode, &served);
        let dropping = Dropping { cache: self.clone(), inode, left: served };
        Some(async move {
            wait_for_all(waits).await;
            dropping.end();
        })
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

/// Completes when the kernel has dropped a range.
type Dropped = tokio::sync::oneshot::Receiver<()>;

async fn wait_for_all(waits: Vec<Dropped>) {
    for wait in waits {
        // An error means that the mount has ended, and no thread notifies the kernel.
        let _ = wait.await;
    }
}

/// A drop of pages under way. Answers with attributes wait for it, because the kernel may still have
/// the pages and ignore the answer.
///
/// Cancel-safety: dropped half-way, what is `left` counts as served again.
struct Dropping {
    cache: KernelCache,
    inode: InodeId,
    left: Served,
}

impl Dropping {
    /// The kernel has dropped everything.
    fn end(mut self) {
        self.left = Served::Nothing;
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        let mut pages = self.cache.0.pages.lock();
        pages.put_back(self.inode, std::mem::take(&mut self.left));
        pages.dropped(self.inode);
        drop(pages);
        self.cache.0.adapted.notify_waiters();
    }
}

/// An adaptation under way.
///
/// Cancel-safety: dropped half-way, the ranges count as served again.
struct Adapting<'a> {
    cache: &'a KernelCache,
    inode: InodeId,
    behind: Behind,
    /// State that the kernel has reached.
    shown: Option<Shown>,
}

impl Drop for Adapting<'_> {
    fn drop(&mut self) {
        let mut pages = self.cache.0.pages.lock();
        if self.shown.is_none() {
            pages.put_back(self.inode, std::mem::take(&mut self.behind.pages));
        }
        pages.adapted(self.inode, self.shown);
        drop(pages);
        self.cache.0.adapted.notify_waiters();
    }
}
