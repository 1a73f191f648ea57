//! Leases going back: because the master asks, or because too many are held.
//!
//! ```text
//!  recall ── keep WRITE: tell size and times ────────────────────────────────► done
//!        ├── keep READ:  shut the gate, flush, commit, release, tell ───────► done
//!        └── keep NONE:  drop kernel caches (gate open), then the same ─────► done
//! ```
//! The gate stays open while the kernel drops its pages: a read that waited at the gate would keep its page locked, and
//! the kernel would wait for that page. Programs that begin to read wait before they lock any, and what was served to
//! those that had begun is dropped once the gate is shut.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_runtime::{Moment, SeededBug};
use ebb_types::{Epoch, InodeId};
use ebb_wire::pb;

use crate::inode::Inode;
use crate::lease::batch::{RELEASE_BATCH, idle_files, is_idle};
use crate::lease::hold::Lease;
use crate::plan::reach_of;
use crate::session::poll::PollNews;
use crate::shared::Shared;
use crate::types::CacheGuard;

/// Time between attempts to flush a file that another client waits for.
const FLUSH_PAUSE: Duration = Duration::from_millis(500);
/// Leases held before the least recently used go back.
pub(crate) const HELD_MAX: usize = 50_000;
/// Files flushed at a time before everything is given back.
const FLUSHES_MAX: usize = 32;
/// Bytes that may stay reserved for closed files. Other clients cannot use them. But after a lease went back, this
/// client must ask again before it reads or writes the file.
const IDLE_ROOM_MAX: u64 = 1 << 30;

impl Shared {
    /// A recall came; it is dealt with by a task of its own, once for each file.
    pub fn on_recall(self: &Arc<Self>, recall: &pb::Recall) {
        let id = InodeId::new(recall.inode);
        let (keep, question) = (Lease::from_mode(recall.keep()), recall.question);
        let inode = self.inode(id);
        if keep == Lease::Write {
            let shared = self.clone();
            self.runtime.spawn("tell size and times", async move {
                if inode.core.lock().hold.lease() != Lease::Write {
                    // The lease may be on its way here, and this file's size with it.
                    drop(inode.gate.read().await);
                    shared.refuse_coming(&inode);
                }
                let held = pb::Held { question, ..shared.held(&inode) };
                shared.report_held(vec![held]).await;
            });
            return;
        }
        if recall.unwanted {
            self.throw_away(&inode, inode.core.lock());
        }
        if self.begin_to_give_back(&inode, keep) {
            self.metrics.recalls.add(1);
        }
    }

    /// Gives a lease back, down to the part that may be kept, in a task of its own. False: another task is giving
    /// back at least as much.
    pub fn begin_to_give_back(self: &Arc<Self>, inode: &Arc<Inode>, keep: Lease) -> bool {
        let mut recalls = self.recalls.lock();
        if let Some(wanted) = recalls.get_mut(&inode.id) {
            *wanted = keep.min(*wanted);
            return false;
        }
        recalls.insert(inode.id, keep);
        drop(recalls);
        let (shared, inode) = (self.clone(), inode.clone());
        self.runtime.spawn("give a lease back", async move { shared.give_back(&inode).await });
        true
    }

    async fn give_back(self: Arc<Self>, inode: &Arc<Inode>) {
        let keep = |shared: &Self| shared.recalls.lock().get(&inode.id).copied().unwrap_or(Lease::None);
        let mut caches = None;
        if keep(&self) == Lease::None {
            self.drop_caches(&mut caches, inode.id).await;
        }
        let _gate = inode.gate.write().await;
        if self.refuse_coming(inode)
            && let Err(error) = self.disclaim(inode).await
        {
            tracing::debug!(inode = %inode.id, %error, "giving back a lease that is not known here");
        }
        let mut failing = None;
        while inode.core.lock().hold.lease() > keep(&self) {
            let returned = match keep(&self) {
                Lease::None => self.return_closed_lease(inode, &mut caches).await,
                Lease::Read | Lease::Write => self.return_lease(inode).await,
            };
            match returned {
                Ok(()) => break,
                Err(error) => {
                    tracing::debug!(inode = %inode.id, %error, "giving a lease back");
                    self.note_lease_error(inode, &error);
                    let now = self.runtime.now();
                    let failing_for = now.since(*failing.get_or_insert(now));
                    let has_given_up = inode.core.lock().channels.values().any(|channel| channel.gave_up.is_some());
                    let is_late = failing_for >= self.session.deadline() || has_given_up;
                    if is_late && !self.runtime.has_bug(SeededBug::KeepsForever) {
                        // The writes were tried for that long before they failed. Other clients wait, and the
                        // programs have their error.
                        self.lose_lease(inode, &error);
                        break;
                    }
                    self.runtime.sleep(FLUSH_PAUSE).await;
                }
            }
        }
        self.report_returned(inode).await;
        self.recalls.lock().remove(&inode.id);
    }

    /// Gives the lease of a file back, as for a recall, but with one attempt, and not if it is in use until then.
    pub async fn give_back_now(self: &Arc<Self>, inode: &Arc<Inode>, until: Moment) -> ebb_types::Result<()> {
        let mut caches = None;
        self.drop_caches(&mut caches, inode.id).await;
        let free = async { Ok(inode.gate.write().await) };
        let _gate = self.runtime.timeout(until.since(self.runtime.now()), "operations on the file", free).await?;
        let returned = self.return_closed_lease(inode, &mut caches).await;
        if let Err(error) = &returned {
            self.note_lease_error(inode, error);
        }
        self.report_returned(inode).await;
        returned
    }

    /// Nothing of the file stays. Pages served to reads that had begun are dropped, and then the lease goes back. The
    /// caller has the gate to itself.
    async fn return_closed_lease(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        caches: &mut Option<Box<dyn CacheGuard>>,
    ) -> ebb_types::Result<()> {
        inode.core.lock().hold.close();
        self.drop_caches(caches, inode.id).await;
        self.return_lease(inode).await
    }

    /// Ordering: reported before the gate opens. Otherwise the next lease of this client could be mistaken for this
    /// one.
    async fn report_returned(self: &Arc<Self>, inode: &Inode) {
        inode.core.lock().hold.reopen();
        self.report_held(vec![self.held(inode)]).await;
    }

    /// If there is no lease here: sees to it that none is taken from an answer that is on its way. The file may just be
    /// being made, and the recall have overtaken the answer, which does not wait at the gate; by the time that it comes
    /// the lease that it brings has been given back.
    fn refuse_coming(&self, inode: &Inode) -> bool {
        let core = inode.core.lock();
        let is_none = core.hold.lease() == Lease::None;
        if is_none {
            // Ordering: under the file's lock, as the answer is taken.
            self.known.on_unsure_attr(inode.id);
        }
        is_none
    }

    /// Flushes, commits and drops the lease. The caller has the gate to itself.
    ///
    /// A write lease goes back whole, even if a read lease might be kept: between the commit that releases it and the
    /// report that a read lease stays, another client may have begun to write. Cached bytes stay valid as long as the
    /// versions do, so taking the read lease again costs one call.
    async fn return_lease(self: &Arc<Self>, inode: &Arc<Inode>) -> ebb_types::Result<()> {
        if inode.core.lock().hold.lease() == Lease::Write {
            self.flush(inode).await?;
            self.commit_one(inode, true).await?;
        }
        let mut core = inode.core.lock();
        if core.hold.lease() != Lease::None {
            core.close_lease();
            self.close_descriptors(&core);
            self.known.on_unsure_attr(inode.id);
        }
        Ok(())
    }

    /// Gives the lease of a file back for good. The caller has the gate to itself.
    pub async fn finish(self: &Arc<Self>, inode: &Arc<Inode>) -> ebb_types::Result<()> {
        self.return_lease(inode).await
    }

    /// The hold on a file, as a message. For a file whose bytes were thrown away it names no epoch, so that no
    /// recovery searches for its writes.
    pub fn held(&self, inode: &Inode) -> pb::Held {
        let core = inode.core.lock();
        let epoch = if self.returns.is_thrown_away(inode.id) { Epoch::default() } else { core.hold.epoch() };
        pb::Held {
            inode: inode.id.raw(),
            mode: core.hold.lease().mode() as i32,
            epoch: epoch.raw(),
            size: core.size,
            mtime_ns: core.mtime.0,
            ..Default::default()
        }
    }

    /// The same for a new master process, which does not know the reservations of an earlier one.
    pub fn reclaimed(&self, inode: &Inode) -> pb::Held {
        let mut held = self.held(inode);
        if held.mode() == pb::LeaseMode::LeaseWrite {
            let core = inode.core.lock();
            let whole = core.geometry().metablock_size;
            let unfinished = core.map.iter().filter(|(_, record)| record.length < whole);
            let reserved = unfinished.map(|(index, record)| {
                let written = core.channels.get(index).map_or(0, |channel| channel.length);
                pb::Reserved { metablock: record.id, reserved: reach_of(record).max(written) }
            });
            held.reserved = reserved.collect();
        }
        held
    }

    /// Tells the master of recalls that were dealt with, by a poll that does not wait.
    pub async fn report_held(self: &Arc<Self>, recalled: Vec<pb::Held>) {
        self.say(PollNews { recalled, ..PollNews::default() }).await;
    }

    /// Reports forgotten names and attributes, by the numbers of the master's requests.
    pub async fn report_forgotten(self: &Arc<Self>, forgotten: Vec<u64>) {
        self.say(PollNews { forgotten, ..PollNews::default() }).await;
    }

    async fn say(self: &Arc<Self>, news: PollNews) {
        let deadline = self.session.deadline();
        let started = self.runtime.now();
        while self.runtime.now().since(started) < deadline {
            match self.poll_once(0, news.clone()).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!(%error, "telling that a recall was dealt with");
                    self.runtime.sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Gives back the least recently used leases of closed files, if there are too many leases, or if too much room is
    /// reserved for such files.
    pub async fn trim_leases(self: &Arc<Self>) {
        // Only files that need no flush: commits wait for this.
        for batch in self.files_with_room_beyond(IDLE_ROOM_MAX).chunks(RELEASE_BATCH) {
            drop(self.lower(self.shut(batch, is_idle)).await);
        }
        self.lower_idle_leases();
        // Removed files, and those of which nothing was ever known: nothing of them is asked for again.
        self.sweep(|core| core.attr.is_none_or(|attr| attr.links == 0));
        if self.inode_count() <= HELD_MAX {
            return;
        }
        self.sweep(|_| true);
        let mut idle = idle_files(self.inodes());
        let excess = self.inode_count().saturating_sub(HELD_MAX * 9 / 10).min(idle.len());
        idle.sort_by_key(|inode| inode.used.load(Ordering::Relaxed));
        idle.truncate(excess);
        for batch in idle.chunks(RELEASE_BATCH) {
            self.release_batch(batch).await;
        }
        self.sweep(|_| true);
    }

    /// Gives back all room that is reserved for closed files, and their leases with it. Callers take turns, so that a
    /// second caller finds the room that the first one gave back.
    pub async fn return_room(self: &Arc<Self>) {
        let _turn = self.returning_room.lock().await;
        self.release_files(&self.files_with_room_beyond(0)).await;
    }

    /// Closed files with unused room, without the ones used last that have `most` bytes of it together.
    fn files_with_room_beyond(&self, most: u64) -> Vec<Arc<Inode>> {
        let rooms = self.inodes().into_iter().filter_map(|inode| {
            let room = idle_room(&inode);
            (room > 0).then(|| (inode.used.load(Ordering::Relaxed), room, inode))
        });
        beyond(most, rooms.collect())
    }

    /// Flushes everything, many files at a time, and gives leases back in batches. The remaining files (in use, or
    /// with errors) follow one by one.
    pub async fn release_all(self: &Arc<Self>) {
        self.wait_for_latecomers().await;
        self.let_all_go(self.returns.take_left(None)).await;
        self.release_files(&self.inodes()).await;
    }

    /// Waits for clients that have looked a file up before it lost its last name, and may come to open it. It matters if only this
    /// client knows all that was written to the file. It takes a second at most.
    async fn wait_for_latecomers(&self) {
        let is_ours = |id: InodeId| self.find(id).is_some_and(|inode| inode.core.lock().unrecorded.any);
        let last = self.returns.leaving().into_iter().filter(|(id, _)| is_ours(*id)).map(|(_, until)| until).max();
        if let Some(last) = last {
            self.runtime.sleep(last.since(self.runtime.now())).await;
        }
    }

    pub async fn release_files(self: &Arc<Self>, files: &[Arc<Inode>]) {
        for some in files.chunks(RELEASE_BATCH) {
            for part in some.chunks(FLUSHES_MAX) {
                let flush = |inode: &Arc<Inode>| {
                    let (shared, inode) = (self.clone(), inode.clone());
                    self.runtime.spawn("flush a file", async move { shared.sync_everywhere(&inode).await })
                };
                for task in part.iter().map(flush).collect::<Vec<_>>() {
                    if let Err(error) = task.join().await.and_then(|flushed| flushed) {
                        tracing::debug!(%error, "flushing before the end");
                    }
                }
            }
            if let Err(error) = self.commit_batch(some).await {
                tracing::debug!(%error, "committing before the end");
            }
            self.release_batch(some).await;
        }
    }
}

/// The report that a file is not held. If the master has this client for the holder, it recovers the writes under
/// this epoch.
pub(crate) fn lost(inode: u64, epoch: u64) -> pb::Held {
    pb::Held { inode, epoch, ..Default::default() }
}

/// Bytes that are reserved for further writes to a file, if it is closed here.
fn idle_room(inode: &Inode) -> u64 {
    let core = inode.core.lock();
    if core.open_count > 0 || core.hold.lease() != Lease::Write {
        return 0;
    }
    let unused = core.map.iter().map(|(index, record)| {
        let length = core.channels.get(index).map_or(record.length, |channel| channel.length);
        record.reserved.saturating_sub(length)
    });
    unused.sum()
}

/// Of files with (last use, room), those to give back so that those used last keep `most` bytes of room at most.
fn beyond<T>(most: u64, mut rooms: Vec<(u64, u64, T)>) -> Vec<T> {
    rooms.sort_by_key(|(used, ..)| std::cmp::Reverse(*used));
    let mut sum = 0_u64;
    let excess = rooms.into_iter().filter_map(|(_, room, file)| {
        sum = sum.saturating_add(room);
        (sum > most).then_some(file)
    });
    excess.collect()
}

#[cfg(test)]
mod tests {
    use super::beyond;

    #[test]
    fn the_files_used_last_keep_their_room() {
        let rooms = vec![(1, 10, 'a'), (4, 10, 'd'), (3, 25, 'c'), (2, 10, 'b')];
        assert_eq!(beyond(100, rooms.clone()), []);
        assert_eq!(beyond(35, rooms.clone()), ['b', 'a']);
        assert_eq!(beyond(0, rooms), ['d', 'c', 'b', 'a']);
    }
}
