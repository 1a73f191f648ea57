//! Making the kernel forget what other clients have changed.
//!
//! The kernel waits for pages that a request has locked before it forgets them, and such a request is answered by the
//! tasks of this process. So the notifications that concern pages are written by threads of their own, which hold no
//! lock and which no task waits for without a bound. Those that concern names and attributes wait for nothing: names
//! are made void all at once (`FUSE_NOTIFY_INC_EPOCH`), because to drop one takes the lock of its directory, which the
//! kernel holds while a request for another change there waits for this process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread;
use std::time::Duration;

use ebb_client::CacheListener;
use ebb_types::{InodeId, Result};
use parking_lot::{Condvar, Mutex};

use crate::abi::reply;
use crate::device::Device;

/// A page that stays locked holds one thread up, and it may stay locked until another inode's recall is through here or
/// in another mount: so there is a thread for each inode that is waited for. Each such inode has a request under way, and
/// the kernel has few of those.
const THREADS_MAX: usize = 256;

/// Most inodes that wait for a thread without anybody waiting for them: forgetting late does no harm.
const QUEUE_MAX: usize = 1 << 16;

/// How long a recall waits for the kernel. What is stale after that is still never read: attributes are void before
/// another client may write, so the kernel asks for size and time of change before it reads, and drops pages that do
/// not match. Mappings alone see old bytes for longer.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Hands inodes to threads that tell the kernel.
pub struct Invalidator {
    state: Mutex<State>,
    changed: Condvar,
    /// Where the kernel is told, and whether it keeps names and can be made to forget all of them.
    device: OnceLock<(Arc<Device>, bool)>,
    /// Itself, for its threads.
    own: Weak<Self>,
}

impl std::fmt::Debug for Invalidator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Invalidator({} queued)", self.state.lock().queue.len())
    }
}

#[derive(Default)]
struct State {
    /// In the order in which they came, each once.
    queue: VecDeque<InodeId>,
    /// Who waits for those in the queue.
    waiting: BTreeMap<InodeId, Vec<mpsc::SyncSender<()>>>,
    /// A thread tells the kernel of these just now. It waits for their pages: a second one would wait with it.
    busy: BTreeSet<InodeId>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl State {
    fn add(&mut self, inode: InodeId, done: Option<mpsc::SyncSender<()>>) {
        if !self.waiting.contains_key(&inode) {
            if done.is_none() && self.queue.len() >= QUEUE_MAX {
                return;
            }
            self.queue.push_back(inode);
        }
        self.waiting.entry(inode).or_default().extend(done);
    }

    /// The next that nobody is busy with.
    fn take(&mut self) -> Option<(InodeId, Vec<mpsc::SyncSender<()>>)> {
        let at = self.queue.iter().position(|inode| !self.busy.contains(inode))?;
        let inode = self.queue.remove(at)?;
        self.busy.insert(inode);
        Some((inode, self.waiting.remove(&inode).unwrap_or_default()))
    }

    fn wants_thread(&self) -> bool {
        let ready = self.queue.iter().filter(|inode| !self.busy.contains(inode)).take(self.idle + 1).count();
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

    /// Tells `device` from now on. `epochs`: its kernel keeps names, and can be made to forget all of them.
    pub fn start(&self, device: &Arc<Device>, epochs: bool) {
        // Started once.
        let _ = self.device.set((Arc::clone(device), epochs));
        self.ensure_thread(&mut self.state.lock());
    }

    /// The kernel forgets `inode` soon.
    pub fn submit(&self, inode: InodeId) {
        self.push(inode, None);
    }

    /// The kernel asks for the attributes of `inode` again: this mount changed what the kernel was not told of.
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

    fn push(&self, inode: InodeId, done: Option<mpsc::SyncSender<()>>) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.add(inode, done);
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
        while let Some((inode, waiting)) = self.next() {
            if let Err(error) = device.notify(&reply::invalidate_inode(inode)) {
                tracing::warn!(%inode, %error, "leave a page cache as it is");
            }
            self.state.lock().busy.remove(&inode);
            for done in waiting {
                // The task may have stopped waiting.
                let _ = done.try_send(());
            }
        }
    }

    /// Waits for an inode; none: closed.
    fn next(&self) -> Option<(InodeId, Vec<mpsc::SyncSender<()>>)> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(next) = state.take() {
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
    /// Tells the kernel from this thread: no lock is taken that a request may hold.
    fn tell_forget(&self, inodes: &[InodeId]) -> Result<()> {
        let Some((device, epochs)) = self.device.get() else { return Ok(()) };
        if *epochs {
            device.notify(&reply::invalidate_names())?;
        }
        inodes.iter().try_for_each(|inode| device.notify(&reply::invalidate_attributes(*inode)))
    }
}

impl CacheListener for Invalidator {
    fn invalidate_inode(&self, inode: InodeId) {
        let (done, wait) = mpsc::sync_channel(1);
        self.push(inode, Some(done));
        let wait = move || match wait.recv_timeout(WAIT_MAX) {
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => {
                tracing::warn!(%inode, "go on with a recall although the kernel has not dropped its pages yet");
            }
        };
        // The requests that the kernel waits for are answered by other tasks: they must get this worker's thread.
        match tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor()) {
            Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
            _ => wait(),
        }
    }

    fn forget(&self, inodes: &[InodeId]) {
        if let Err(error) = self.tell_forget(inodes) {
            tracing::warn!(%error, "the kernel keeps names and attributes until their time is over");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_inode_waits_for_another_and_none_is_told_twice_at_a_time() {
        let mut state = State::default();
        let [a, b] = [1, 2].map(InodeId::new);
        let (done, wait) = mpsc::sync_channel(1);
        state.add(a, None);
        state.add(a, Some(done));
        state.add(b, None);
        assert!(state.wants_thread());
        let (first, waiting) = state.take().unwrap();
        assert_eq!((first, waiting.len(), state.queue.len()), (a, 1, 1), "both wishes for one inode are met at once");
        // The kernel is being told of `a`; what comes now is told after that, and `b` does not wait for it.
        state.add(a, None);
        assert!(state.wants_thread());
        assert_eq!(state.take().map(|(inode, _)| inode), Some(b));
        assert!(state.take().is_none() && !state.wants_thread());
        state.busy.remove(&a);
        assert!(state.wants_thread());
        assert_eq!(state.take().map(|(inode, _)| inode), Some(a));
        drop(waiting);
        assert!(wait.try_recv().is_err());
    }
}
