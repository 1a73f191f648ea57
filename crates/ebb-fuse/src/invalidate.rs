//! Making the kernel forget what other clients have changed.
//!
//! The kernel waits for pages that a request has locked before it forgets them, and such a request is answered by the
//! tasks of this process. So the notifications are written by threads of their own, which hold no lock and which no
//! task waits for without a bound.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ebb_client::CacheListener;
use ebb_types::{Error, InodeId, Result};
use parking_lot::{Condvar, Mutex};

use crate::abi::reply;
use crate::device::Device;

/// A page that stays locked holds one thread up; the others go on.
const THREADS: usize = 4;

/// Most inodes that wait for a thread without anybody waiting for them: forgetting late does no harm.
const QUEUE_MAX: usize = 1 << 16;

/// How long a recall waits for the kernel. What is stale after that is still never read: the kernel asks for size
/// and time of change before each read, and drops pages that do not match. Mappings alone see old bytes for longer.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Hands inodes to threads that tell the kernel.
pub struct Invalidator {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Invalidator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Invalidator({} queued)", self.state.lock().queue.len())
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<(InodeId, Option<mpsc::SyncSender<()>>)>,
    closed: bool,
}

impl Invalidator {
    /// An invalidator whose threads are not started yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: Condvar::new() })
    }

    /// Starts the threads on `device`.
    pub fn start(self: &Arc<Self>, device: &Arc<Device>) -> Result<()> {
        for _ in 0..THREADS {
            let (this, device) = (Arc::clone(self), Arc::clone(device));
            thread::Builder::new()
                .name("ebb-invalidate".into())
                .spawn(move || this.run(&device))
                .map_err(|error| Error::from_io(&error, "starting a thread for the mount"))?;
        }
        Ok(())
    }

    /// The kernel forgets `inode` soon.
    pub fn submit(&self, inode: InodeId) {
        self.push(inode, None);
    }

    /// Ends the threads.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.queue.clear();
        self.changed.notify_all();
    }

    fn push(&self, inode: InodeId, done: Option<mpsc::SyncSender<()>>) {
        let mut state = self.state.lock();
        if !state.closed && (done.is_some() || state.queue.len() < QUEUE_MAX) {
            state.queue.push_back((inode, done));
            self.changed.notify_one();
        }
    }

    fn run(&self, device: &Device) {
        loop {
            let (inode, done) = {
                let mut state = self.state.lock();
                loop {
                    if state.closed {
                        return;
                    }
                    if let Some(next) = state.queue.pop_front() {
                        break next;
                    }
                    self.changed.wait(&mut state);
                }
            };
            if let Err(error) = device.notify(&reply::invalidate_inode(inode)) {
                tracing::warn!(%inode, %error, "leave a page cache as it is");
            }
            if let Some(done) = done {
                // The task may have stopped waiting.
                let _ = done.try_send(());
            }
        }
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
}
