//! What the kernel keeps of files, and how it is made to let go in time.
//!
//! A file that changes here or elsewhere must not be read from pages that were cached before. In the order of what is
//! done: programs that begin to read are held up (the kernel asks for attributes before it uses a page, and such a
//! question waits), the kernel drops pages and attributes, the change is made, what was served to programs that had
//! begun before is dropped too, and who waits goes on. So nobody reads old bytes after somebody has read new ones.
//! Mappings ask for nothing before they are read: they see old bytes until the kernel has dropped them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ebb_client::{CacheGuard, CacheListener};
use ebb_runtime::Runtime;
use ebb_types::InodeId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::abi::init::Mappable;
use crate::invalidate::{Invalidator, Range};
use crate::pages::{Changer, Pages, Served, Way};
use crate::vfs::Access;

/// How long a change waits for the kernel to drop pages. It waits itself for pages that a request has locked, and that
/// request may wait for another mount that waits for this one.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Rounds of dropping what was served while the kernel dropped. Who begins to read waits, so few follow.
const ROUNDS_MAX: usize = 4;

/// The kernel's caches of one mount; a cheap handle.
#[derive(Clone)]
pub struct KernelCache(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    invalidator: Arc<Invalidator>,
    pages: Mutex<Pages>,
    unguarded: Notify,
}

impl std::fmt::Debug for KernelCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KernelCache({:?})", self.0.invalidator)
    }
}

impl KernelCache {
    /// Caches that `invalidator` reaches.
    pub(crate) fn new(runtime: Runtime, invalidator: Arc<Invalidator>) -> Self {
        let (pages, unguarded) = (Mutex::default(), Notify::new());
        Self(Arc::new(Inner { runtime, invalidator, pages, unguarded }))
    }

    /// How a new descriptor goes that asked to go `asked`.
    pub(crate) fn open(&self, inode: InodeId, access: Access, asked: Way, maps: Mappable) -> Way {
        self.0.pages.lock().open(inode, access, asked, maps)
    }

    /// A descriptor is gone.
    pub(crate) fn close(&self, inode: InodeId, access: Access, way: Way) {
        let excess = self.0.pages.lock().close(inode, access, way);
        if let Some(excess) = excess {
            self.0.pages.lock().take_served(excess, Changer::OtherMount);
            self.0.invalidator.submit(Range::whole(excess));
        }
    }

    /// The kernel has put bytes into pages where they may not belong, and will be told to drop them.
    pub(crate) fn misplaced(&self, inode: InodeId) {
        self.0.invalidator.submit(Range::whole(inode));
    }

    /// Attributes were changed of which the kernel was not told.
    pub(crate) fn attributes_changed(&self, inode: InodeId) {
        self.0.invalidator.submit_attributes(inode);
    }

    /// Whether the kernel can be made to forget names, and so keeps any.
    pub(crate) fn keeps_names(&self) -> bool {
        self.0.invalidator.keeps_names()
    }

    /// The kernel asks again for all names that it keeps now.
    pub(crate) fn forget_names(&self) {
        self.0.invalidator.forget(&[]);
    }

    /// A read through a descriptor that goes this way is about to be answered.
    pub(crate) fn serve(&self, inode: InodeId, way: Way, offset: u64, len: u64) {
        self.0.pages.lock().serve(inode, way, offset, len);
    }

    /// Whether what is said of the attributes of a file now may be believed for no time at all.
    pub(crate) fn is_guarded(&self, inode: InodeId) -> bool {
        self.0.pages.lock().is_guarded(inode)
    }

    /// Returns when nobody changes the file.
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

    /// Does `work`, which changes the data of a file, while no program here reads what was there before.
    pub(crate) async fn change<T>(&self, inode: InodeId, work: impl Future<Output = T>) -> T {
        let guard = {
            let mut pages = self.0.pages.lock();
            pages.may_have(inode).then(|| {
                pages.guard(inode);
                // What mappings alone have is the kernel's matter: it looks through them before it writes around them.
                Guard { cache: self.clone(), inode, whole: false, changer: Changer::ThisMount }
            })
        };
        let Some(mut guard) = guard else { return work.await };
        guard.drop_served().await;
        let outcome = work.await;
        guard.drop_served().await;
        outcome
    }

    /// Makes the kernel drop data and attributes of a file.
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

/// Keeps the caches of one file from being used while it lives.
struct Guard {
    cache: KernelCache,
    inode: InodeId,
    /// The kernel may have more than was served since it dropped everything.
    whole: bool,
    /// For another mount, what mappings have goes too, also what they read while the kernel dropped.
    changer: Changer,
}

impl Guard {
    async fn drop_served(&mut self) {
        let inner = &self.cache.0;
        for round in 0..ROUNDS_MAX {
            let served = inner.pages.lock().take_served(self.inode, self.changer);
            let ranges = match served {
                _ if std::mem::take(&mut self.whole) => vec![Range::whole(self.inode)],
                Served::Nothing => {
                    if round == 0 {
                        inner.invalidator.submit_attributes(self.inode);
                    }
                    return;
                }
                Served::Ranges(ranges) => ranges
                    .into_iter()
                    .map(|(offset, len)| Range { inode: self.inode, offset, len: Some(len) })
                    .collect(),
                Served::Anything => vec![Range::whole(self.inode)],
            };
            let waits: Vec<_> = ranges.into_iter().map(|range| inner.invalidator.tell(range)).collect();
            let all = async {
                for wait in waits {
                    // Nobody tells any more once the mount is gone.
                    let _ = wait.await;
                }
                Ok(())
            };
            if let Err(error) = inner.runtime.timeout(WAIT_MAX, "waiting for the kernel to drop pages", all).await {
                tracing::warn!(inode = %self.inode, %error, "go on although the kernel has not dropped its pages yet");
                return;
            }
        }
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
