//! Reports synced writes to the master: at most a commit interval after a write, many files in one command.
//!
//! ```text
//!  write ─► dirty ─(interval, or memory is tight)─► flushing (128 at a time) ─► ready ─► Commit (1000 at a time)
//! ```
//! A file with a slow flush holds up no other file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{Epoch, Error, ErrorKind, InodeId, Result, WallTime};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Commit, Op};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore};

use crate::inode::{Core, Inode};
use crate::lease::hold::Lease;
use crate::shared::Shared;

/// Files flushed at a time.
const FLUSHES_MAX: usize = 128;
/// Files in one commit command.
pub(crate) const COMMIT_MAX: usize = 1000;
/// How long files that are ready wait for others that are being flushed.
const GATHER: Duration = Duration::from_millis(100);
/// Between looks at the number of leases held.
const TRIM_INTERVAL: Duration = Duration::from_secs(5);

/// Files on their way to a commit.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The time since which a file has something to commit.
    dirty: BTreeMap<InodeId, Moment>,
    flushing: BTreeSet<InodeId>,
    ready: BTreeSet<InodeId>,
    /// Memory is tight: nothing waits for the interval.
    urgent: bool,
}

impl State {
    /// Files to flush, and the time since which each waits. A file that is being flushed comes again after that flush.
    fn waiting(&self) -> impl Iterator<Item = (InodeId, Moment)> + '_ {
        self.dirty.iter().filter(|(inode, _)| !self.flushing.contains(inode)).map(|(inode, since)| (*inode, *since))
    }
}

impl Queue {
    /// Queues a file that has something to commit.
    pub fn mark(&self, inode: InodeId, now: Moment) {
        let mut state = self.state.lock();
        let before = state.dirty.len();
        state.dirty.entry(inode).or_insert(now);
        if before == 0 {
            self.wake.notify_one();
        }
    }

    /// Starts the flush of everything dirty now.
    pub fn hurry(&self) {
        let mut state = self.state.lock();
        if !state.urgent {
            state.urgent = true;
            self.wake.notify_one();
        }
    }

    /// Wakes the committer.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.dirty.is_empty() && state.flushing.is_empty() && state.ready.is_empty()
    }
}

/// Runs until the client has disconnected.
pub(crate) async fn run(shared: Arc<Shared>) {
    let permits = Arc::new(Semaphore::new(FLUSHES_MAX));
    let mut trimmed = shared.runtime.now();
    loop {
        let wait = next_wait(&shared);
        tokio::select! {
            biased;
            () = shared.queue.wake.notified() => {}
            () = shared.runtime.sleep(wait) => {}
        }
        start_flushes(&shared, &permits);
        commit_ready(&shared).await;
        if shared.returns.wait(shared.runtime.now()).is_some_and(|wait| wait.is_zero()) {
            shared.give_back_idle().await;
        }
        if shared.runtime.now().since(trimmed) >= TRIM_INTERVAL {
            trimmed = shared.runtime.now();
            shared.trim_leases().await;
        }
        if shared.closing.load(Ordering::Relaxed) && shared.queue.is_idle() {
            return;
        }
    }
}

fn next_wait(shared: &Shared) -> Duration {
    let interval = shared.options.commit_interval;
    let state = shared.queue.state.lock();
    if !state.ready.is_empty() {
        return GATHER;
    }
    let now = shared.runtime.now();
    let first = state.waiting().map(|(_, since)| since).min();
    let flush = first.map_or(TRIM_INTERVAL, |since| interval.saturating_sub(now.since(since)));
    shared.returns.wait(now).map_or(flush, |wait| flush.min(wait))
}

/// Starts to flush all waiting files, if the first of them is due.
fn start_flushes(shared: &Arc<Shared>, permits: &Arc<Semaphore>) {
    let due = {
        let mut state = shared.queue.state.lock();
        let now = shared.runtime.now();
        let late = state.waiting().any(|(_, since)| now.since(since) >= shared.options.commit_interval);
        let hurries = state.urgent || shared.closing.load(Ordering::Relaxed);
        if !late && !hurries {
            return;
        }
        state.urgent = false;
        let mut due: Vec<InodeId> = state.waiting().map(|(inode, _)| inode).collect();
        if !hurries {
            // A file that will soon be deleted needs no flush. It stays queued, because a program may still open it.
            for inode in due.extract_if(.., |inode| shared.returns.is_leaving(*inode)) {
                state.dirty.insert(inode, now);
            }
        }
        for inode in &due {
            state.dirty.remove(inode);
            state.flushing.insert(*inode);
        }
        due
    };
    for id in due {
        let (shared, permits) = (shared.clone(), permits.clone());
        shared.runtime.clone().spawn("flush a file", async move {
            let _permit = permits.acquire_owned().await;
            let result = match shared.find(id) {
                Some(inode) => shared.sync_everywhere(&inode).await,
                None => Ok(()),
            };
            let mut state = shared.queue.state.lock();
            state.flushing.remove(&id);
            match result {
                Ok(()) => {
                    state.ready.insert(id);
                }
                Err(error) => {
                    tracing::debug!(inode = %id, %error, "background flush");
                    let held = shared.find(id).is_some_and(|inode| {
                        let core = inode.core.lock();
                        core.hold.lease() == Lease::Write || core.hold.sharing().is_some()
                    });
                    if held && !shared.closing.load(Ordering::Relaxed) {
                        state.dirty.insert(id, shared.runtime.now());
                    }
                }
            }
            // A file that was written during the flush counts as waiting from now on.
            let go = state.flushing.is_empty() || state.ready.len() >= COMMIT_MAX || state.dirty.contains_key(&id);
            drop(state);
            if go {
                shared.queue.wake.notify_one();
            }
        });
    }
}

async fn commit_ready(shared: &Arc<Shared>) {
    let ready: Vec<InodeId> = std::mem::take(&mut shared.queue.state.lock().ready).into_iter().collect();
    for part in ready.chunks(COMMIT_MAX) {
        let inodes: Vec<Arc<Inode>> = part.iter().filter_map(|id| shared.find(*id)).collect();
        if let Err(error) = shared.commit_batch(&inodes).await {
            tracing::debug!(%error, "commit");
        }
    }
}

impl Shared {
    /// Commits the synced writes of these files. A file with a commit or truncate under way is left for the next time.
    pub async fn commit_batch(self: &Arc<Self>, inodes: &[Arc<Inode>]) -> Result<()> {
        let mut guards: Vec<(Arc<Inode>, OwnedMutexGuard<()>)> = Vec::with_capacity(inodes.len());
        for inode in inodes {
            match inode.committing.clone().try_lock_owned() {
                Ok(guard) => guards.push((inode.clone(), guard)),
                Err(_) => self.queue.mark(inode.id, self.runtime.now()),
            }
        }
        let files: Vec<Arc<Inode>> = guards.iter().map(|(inode, _)| inode.clone()).collect();
        self.commit_locked(&files, false).await
    }

    /// Commits the synced writes of one file, now.
    pub async fn commit_one(self: &Arc<Self>, inode: &Arc<Inode>, release: bool) -> Result<()> {
        let _committing = inode.committing.lock().await;
        self.commit_locked(std::slice::from_ref(inode), release).await
    }

    async fn commit_locked(self: &Arc<Self>, inodes: &[Arc<Inode>], release: bool) -> Result<()> {
        let mut sent: Vec<(Arc<Inode>, pb::CommitFile)> = Vec::with_capacity(inodes.len());
        for inode in inodes {
            if let Some(file) = build(inode.id, &inode.core.lock(), release) {
                sent.push((inode.clone(), file));
            }
        }
        if sent.is_empty() {
            return Ok(());
        }
        let files = sent.iter().map(|(_, file)| file.clone()).collect();
        let reply = match self.own_meta(Op::Commit(Commit { files })).await {
            Ok(reply) => reply,
            Err(error) => {
                for (inode, _) in &sent {
                    self.queue.mark(inode.id, self.runtime.now());
                }
                return Err(error);
            }
        };
        self.metrics.commits.add(1);
        let refusals: BTreeMap<u64, Error> = reply.refusals.into_iter().map(|one| (one.inode, one.into())).collect();
        let mut verdict = Ok(());
        for (inode, file) in sent {
            match refusals.get(&file.inode) {
                Some(error) => {
                    self.on_refused(&inode, error);
                    verdict = Err(error.clone());
                }
                None => {
                    self.metrics.committed_files.add(1);
                    if note_committed(&mut inode.core.lock(), &file) {
                        self.queue.mark(inode.id, self.runtime.now());
                    }
                }
            }
        }
        verdict
    }

    /// Handles the refusal of a file's commit.
    pub fn on_refused(self: &Arc<Self>, inode: &Inode, error: &ebb_types::Error) {
        match error.kind() {
            // A truncate of this client overtook the commit. The next commit has the right size.
            ErrorKind::Stale => self.queue.mark(inode.id, self.runtime.now()),
            ErrorKind::NotFound => {
                // The file is gone, and its writes with it. Its number is never used again.
                self.drop_held(inode, inode.core.lock(), |core, _| core.hold.forget_lost());
            }
            _ => self.lose_lease(inode, error),
        }
    }
}

/// The part of a commit for one file. `None` if there is nothing new and the lease stays.
pub(crate) fn build(id: InodeId, core: &Core, release: bool) -> Option<pb::CommitFile> {
    if core.hold.lease() != Lease::Write || (!release && !core.unrecorded.any) {
        return None;
    }
    let attr = core.attr.as_ref()?;
    let metablocks = core.uncommitted_metablocks();
    let committed_size = core.unrecorded.durable.map_or(attr.size, |durable| durable.size);
    Some(pb::CommitFile {
        inode: id.raw(),
        epoch: core.hold.epoch().raw(),
        size: committed_size,
        mtime_ns: core.unrecorded.durable.and_then(|durable| durable.mtime).map_or(0, |time| time.0),
        metablocks,
        release,
        trimmed: core.unrecorded.trim,
        kill_privileges: core.unrecorded.privileges,
        size_generation: Some(attr.size_generation),
        gone: false,
    })
}

/// Takes a commit into account. True: there is more to commit.
pub(crate) fn note_committed(core: &mut Core, file: &pb::CommitFile) -> bool {
    if !core.hold.is_write_of(Epoch::new(file.epoch)) {
        return false;
    }
    for committed in &file.metablocks {
        if let Some(channel) = core.channels.values_mut().find(|channel| channel.id.raw() == committed.id) {
            channel.committed = ebb_wire::convert::version(committed.version);
        }
    }
    let mtime = Some(WallTime(file.mtime_ns)).filter(|time| time.0 != 0);
    if let Some(attr) = &mut core.attr {
        attr.size = file.size;
        attr.mtime = mtime.unwrap_or(attr.mtime);
        if file.kill_privileges {
            attr.mode = crate::plan::without_privileges(attr.mode);
        }
    }
    if file.trimmed {
        core.unrecorded.trim = false;
    }
    if file.kill_privileges {
        core.unrecorded.privileges = false;
    }
    if mtime == Some(core.mtime) {
        core.unrecorded.mtime = false;
    }
    if core.unrecorded.durable.is_some_and(|durable| durable.size == file.size && durable.mtime == mtime) {
        core.unrecorded.durable = None;
    }
    core.unrecorded.any = core.unrecorded.mtime
        || core.unrecorded.trim
        || core.size != file.size
        || !core.dirty.is_empty()
        || core.channels.values().any(|channel| channel.last > channel.committed);
    core.unrecorded.any
}
