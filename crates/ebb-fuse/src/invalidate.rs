//! Telling the kernel what to drop.
//!
//! The kernel waits for pages that a request has locked before it drops them, and such a request is answered by the
//! tasks of this process. So the notifications that concern pages are written by threads of their own, which hold no
//! lock and which no task waits for without a bound. Those that concern names and attributes wait for nothing: names
//! are made void all at once (`FUSE_NOTIFY_INC_EPOCH`), because to drop one takes the lock of its directory, which the
//! kernel holds while a request for another change there waits for this process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;

use ebb_types::{InodeId, Result};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::abi::reply;
use crate::device::Device;

/// A page that stays locked holds one thread up, and it may stay locked until another file's recall is through here or
/// in another mount: so there is a thread for each range that is waited for. Each such file has a request under way, and
/// the kernel has few of those.
const THREADS_MAX: usize = 256;

/// Most ranges that wait for a thread without anybody waiting for them: dropping late does no harm.
const QUEUE_MAX: usize = 1 << 16;

/// Part of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Range {
    /// The file.
    pub inode: InodeId,
    /// First byte.
    pub offset: u64,
    /// Bytes; `None`: up to the end.
    pub len: Option<u64>,
}

impl Range {
    /// All of a file.
    pub fn whole(inode: InodeId) -> Self {
        Self { inode, offset: 0, len: None }
    }
}

/// Hands ranges to threads that tell the kernel.
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
    queue: VecDeque<Range>,
    /// Who waits for those in the queue.
    waiting: BTreeMap<Range, Vec<oneshot::Sender<()>>>,
    /// A thread tells the kernel of these just now. It waits for their pages: a second one would wait with it.
    busy: BTreeSet<Range>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl State {
    fn add(&mut self, range: Range, done: Option<oneshot::Sender<()>>) {
        if !self.waiting.contains_key(&range) {
            if done.is_none() && self.queue.len() >= QUEUE_MAX {
                return;
            }
            self.queue.push_back(range);
        }
        self.waiting.entry(range).or_default().extend(done);
    }

    /// The next that nobody is busy with.
    fn take_next_range(&mut self) -> Option<(Range, Vec<oneshot::Sender<()>>)> {
        let at = self.queue.iter().position(|range| !self.busy.contains(range))?;
        let range = self.queue.remove(at)?;
        self.busy.insert(range);
        Some((range, self.waiting.remove(&range).unwrap_or_default()))
    }

    fn wants_thread(&self) -> bool {
        let ready = self.queue.iter().filter(|range| !self.busy.contains(range)).take(self.idle + 1).count();
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

    /// As told at the start.
    pub fn keeps_names(&self) -> bool {
        self.device.get().is_some_and(|(_, epochs)| *epochs)
    }

    /// The kernel drops a range soon, and attributes with it.
    pub fn submit(&self, range: Range) {
        self.push(range, None);
    }

    /// The same; the answer comes when it has.
    pub fn tell(&self, range: Range) -> oneshot::Receiver<()> {
        let (done, wait) = oneshot::channel();
        self.push(range, Some(done));
        wait
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

    fn push(&self, range: Range, done: Option<oneshot::Sender<()>>) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.add(range, done);
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
        while let Some((range, waiting)) = self.next() {
            if let Err(error) = device.notify(&reply::invalidate_range(range)) {
                tracing::warn!(inode = %range.inode, %error, "leave a page cache as it is");
            }
            self.state.lock().busy.remove(&range);
            for done in waiting {
                // The task may have stopped waiting.
                let _ = done.send(());
            }
        }
    }

    /// Waits for a range; none: closed.
    fn next(&self) -> Option<(Range, Vec<oneshot::Sender<()>>)> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(next) = state.take_next_range() {
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
    /// The kernel asks again for attributes of these inodes and, if it keeps any, for all names. Waits for nothing.
    pub fn forget(&self, inodes: &[InodeId]) {
        if let Err(error) = self.tell_forget(inodes) {
            tracing::warn!(%error, "the kernel keeps names and attributes until their time is over");
        }
    }

    /// Tells the kernel from this thread: no lock is taken that a request may hold.
    fn tell_forget(&self, inodes: &[InodeId]) -> Result<()> {
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
    fn no_file_waits_for_another_and_none_is_told_twice_at_a_time() {
        let mut state = State::default();
        let [a, b] = [1, 2].map(|id| Range::whole(InodeId::new(id)));
        let (done, mut wait) = oneshot::channel();
        state.add(a, None);
        state.add(a, Some(done));
        state.add(b, None);
        assert!(state.wants_thread());
        let (first, waiting) = state.take_next_range().unwrap();
        assert_eq!((first, waiting.len(), state.queue.len()), (a, 1, 1), "both wishes for one file are met at once");
        // The kernel is being told of `a`; what comes now is told after that, and `b` does not wait for it.
        state.add(a, None);
        assert!(state.wants_thread());
        assert_eq!(state.take_next_range().map(|(range, _)| range), Some(b));
        assert!(state.take_next_range().is_none() && !state.wants_thread());
        state.busy.remove(&a);
        assert!(state.wants_thread());
        assert_eq!(state.take_next_range().map(|(range, _)| range), Some(a));
        drop(waiting);
        assert!(wait.try_recv().is_err());
    }
}
