//! Notifies the kernel of pages, names and attributes that it must drop.
//!
//! Before the kernel drops pages, it waits until no request has them locked. The tasks of this
//! process answer such requests. So separate threads write the notifications about pages. These
//! threads hold no lock, and no task waits for them without a bound.
//!
//! Notifications about names and attributes wait for nothing. All names are invalidated at once
//! (`FUSE_NOTIFY_INC_EPOCH`), because a drop of one name takes the lock of its directory. The
//! kernel holds that lock while a request for another change there waits for this process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;

use ebb_types::{InodeId, Result};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::abi::reply;
use crate::device::Device;

/// Maximum number of threads.
///
/// A locked page blocks one thread. It may stay locked until the recall of another file is done,
/// here or in another mount. So each range that a task waits for gets a thread. Each such file has
/// a request under way, and the kernel has few of those.
const THREADS_MAX: usize = 256;

/// Maximum number of queued ranges that no task waits for. They may be dropped late, or not at all.
const QUEUE_MAX: usize = 1 << 16;

/// Part of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Range {
    /// The file.
    pub inode: InodeId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes. `None`: up to the end of the file.
    pub len: Option<u64>,
}

impl Range {
    /// The whole file.
    pub fn whole(inode: InodeId) -> Self {
        Self { inode, offset: 0, len: None }
    }
}

/// Change to the kernel's caches that may wait for locked pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Notice {
    /// The kernel drops a range, and the attributes of its file.
    Drop(Range),
    /// The kernel's size of a file becomes at least this number of bytes.
    Grow(InodeId, u64),
}

impl Notice {
    fn inode(&self) -> InodeId {
        match self {
            Self::Drop(range) => range.inode,
            Self::Grow(inode, _) => *inode,
        }
    }

    fn send(&self, device: &Device) -> Result<()> {
        match *self {
            Self::Drop(range) => device.notify(&reply::invalidate_range(range)),
            Self::Grow(inode, size) => device.notify_without_data(&reply::store_last_byte(inode, size)),
        }
    }
}

/// Queue of notices, and the threads that send them to the kernel.
pub struct Invalidator {
    state: Mutex<State>,
    changed: Condvar,
    /// Device for notifications, and whether the kernel caches names and can forget all of them.
    device: OnceLock<(Arc<Device>, bool)>,
    /// Reference to this value, for its threads.
    own: Weak<Self>,
}

impl std::fmt::Debug for Invalidator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Invalidator({} queued)", self.state.lock().queue.len())
    }
}

#[derive(Default)]
struct State {
    /// Notices in the order of their arrival, each once.
    queue: VecDeque<Notice>,
    /// Tasks that wait for notices in the queue.
    waiting: BTreeMap<Notice, Vec<oneshot::Sender<()>>>,
    /// Notices that a thread is sending. The thread waits for their pages, and a second thread
    /// would wait with it.
    busy: BTreeSet<Notice>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl State {
    fn add(&mut self, notice: Notice, done: Option<oneshot::Sender<()>>) {
        if !self.waiting.contains_key(&notice) {
            if done.is_none() && self.queue.len() >= QUEUE_MAX {
                return;
            }
            self.queue.push_back(notice);
        }
        self.waiting.entry(notice).or_default().extend(done);
    }

    /// Takes the next notice that no thread is busy with.
    fn take_next(&mut self) -> Option<(Notice, Vec<oneshot::Sender<()>>)> {
        let at = self.queue.iter().position(|notice| !self.busy.contains(notice))?;
        let notice = self.queue.remove(at)?;
        self.busy.insert(notice);
        Some((notice, self.waiting.remove(&notice).unwrap_or_default()))
    }

    fn wants_thread(&self) -> bool {
        let ready = self.queue.iter().filter(|notice| !self.busy.contains(notice)).take(self.idle + 1).count();
        ready > self.idle && self.threads < THREADS_MAX
    }
}

impl Invalidator {
    /// An invalidator that is not started yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            device: OnceLock::new(),
            own: own.clone(),
        })
    }

    /// Starts notifications to `device`. `epochs`: its kernel caches names, and can forget all of
    /// them.
    pub fn start(&self, device: &Arc<Device>, epochs: bool) {
        // Cannot fail: it is started once.
        let _ = self.device.set((Arc::clone(device), epochs));
        self.ensure_thread(&mut self.state.lock());
    }

    /// Whether the kernel caches names, as given to [`Invalidator::start`].
    pub fn keeps_names(&self) -> bool {
        self.device.get().is_some_and(|(_, epochs)| *epochs)
    }

    /// Makes the kernel drop a range and the attributes of its file soon.
    pub fn submit(&self, range: Range) {
        self.push(Notice::Drop(range), None);
    }

    /// The same. The receiver completes when the kernel has dropped the range.
    pub fn invalidate(&self, range: Range) -> oneshot::Receiver<()> {
        self.awaited(Notice::Drop(range))
    }

    /// Raises the kernel's size of a file to at least `size` bytes. The receiver completes when
    /// that is done.
    ///
    /// Attributes in a reply are not enough: the kernel ignores them if it was notified about the
    /// file since it sent the request, or if another reply about the file was faster
    /// (`fuse_change_attributes` compares versions). It then reads with the size that it had.
    pub fn grow(&self, inode: InodeId, size: u64) -> oneshot::Receiver<()> {
        self.awaited(Notice::Grow(inode, size))
    }

    fn awaited(&self, notice: Notice) -> oneshot::Receiver<()> {
        let (done, wait) = oneshot::channel();
        self.push(notice, Some(done));
        wait
    }

    /// Makes the kernel request the attributes of `inode` again. This mount changed them without a
    /// report to the kernel.
    pub fn submit_attributes(&self, inode: InodeId) {
        if let Some((device, _)) = self.device.get()
            && let Err(error) = device.notify(&reply::invalidate_attributes(inode))
        {
            tracing::warn!(%inode, %error, "the kernel keeps attributes until their time is over");
        }
    }

    /// Ends the threads.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.queue.clear();
        state.waiting.clear();
        self.changed.notify_all();
    }

    fn push(&self, notice: Notice, done: Option<oneshot::Sender<()>>) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.add(notice, done);
        self.ensure_thread(&mut state);
        self.changed.notify_one();
    }

    fn ensure_thread(&self, state: &mut State) {
        let (Some((device, _)), Some(own)) = (self.device.get(), self.own.upgrade()) else { return };
        if !state.wants_thread() {
            return;
        }
        let device = Arc::clone(device);
        match thread::Builder::new().name("ebb-invalidate".into()).spawn(move || own.run(&device)) {
            Ok(_) => state.threads += 1,
            Err(error) => tracing::warn!(%error, "no thread more to make the kernel forget; those there are go on"),
        }
    }

    fn run(&self, device: &Device) {
        while let Some((notice, waiting)) = self.next() {
            if let Err(error) = notice.send(device) {
                tracing::warn!(inode = %notice.inode(), %error, "leave a page cache as it is");
            }
            self.state.lock().busy.remove(&notice);
            for done in waiting {
                // The task may no longer wait.
                let _ = done.send(());
            }
        }
    }

    /// Waits for a notice. `None`: the invalidator is closed.
    fn next(&self) -> Option<(Notice, Vec<oneshot::Sender<()>>)> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(next) = state.take_next() {
                self.ensure_thread(&mut state);
                return Some(next);
            }
            state.idle += 1;
            self.changed.wait(&mut state);
            state.idle -= 1;
        }
    }
}

impl Invalidator {
    /// Makes the kernel request the attributes of these inodes again. If it caches names, it must
    /// request all of them again too. Waits for nothing.
    pub fn forget(&self, inodes: &[InodeId]) {
        if let Err(error) = self.notify_forget(inodes) {
            tracing::warn!(%error, "the kernel keeps names and attributes until their time is over");
        }
    }

    /// Notifies the kernel from this thread. This takes no lock that a request may hold.
    fn notify_forget(&self, inodes: &[InodeId]) -> Result<()> {
        let Some((device, epochs)) = self.device.get() else { return Ok(()) };
        if *epochs {
            device.notify(&reply::invalidate_names())?;
        }
        inodes.iter().try_for_each(|inode| device.notify(&reply::invalidate_attributes(*inode)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_waits_for_another_and_none_is_invalidated_twice_at_a_time() {
        let mut state = State::default();
        let [a, b] = [1, 2].map(|id| Notice::Drop(Range::whole(InodeId::new(id))));
        let (done, mut wait) = oneshot::channel();
        state.add(a, None);
        state.add(a, Some(done));
        state.add(b, None);
        assert!(state.wants_thread());
        let (first, waiting) = state.take_next().unwrap();
        assert_eq!((first, waiting.len(), state.queue.len()), (a, 1, 1), "both wishes for one file are met at once");
        // A thread is busy with `a`. A new `a` comes after it, and `b` does not wait for it.
        state.add(a, None);
        assert!(state.wants_thread());
        assert_eq!(state.take_next().map(|(notice, _)| notice), Some(b));
        assert!(state.take_next().is_none() && !state.wants_thread());
        state.busy.remove(&a);
        assert!(state.wants_thread());
        assert_eq!(state.take_next().map(|(notice, _)| notice), Some(a));
        drop(waiting);
        assert!(wait.try_recv().is_err());
    }
}
