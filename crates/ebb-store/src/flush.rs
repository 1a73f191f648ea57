//! Group commit: one task for each volume writes received records to the journal, and then puts them in place.
//!
//! Ordering: for each batch, (1) files with bytes written directly, and the names of new ones, are synced; (2) the
//! batch is written to the journal and synced; from then on its records are synced, and their waiters get the answer;
//! (3) contents are put in place in the page cache, where the next checkpoint syncs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebb_log::Sync;
use ebb_runtime::{File, OpenMode, SeededBug};
use ebb_types::{Error, ErrorKind, MetablockId, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::batch::BatchBody;
use crate::chunks::SECOND;
use crate::files::{pull_path, replica_path, shard, sync_shard};
use crate::journal::Journal;
use crate::latency::SMALL_BYTES;
use crate::notice::log_stuck;
use crate::record::{Content, Record};
use crate::replica::{Replica, Staged};
use crate::short_circuit::revoke_all;
use crate::volume::Shared;
use crate::write::Starving;

/// A batch is full once it has so many bytes, or five eighths of a segment. With its last payload it still fits into
/// one segment, so that old segments can be reused.
const BATCH_BYTES: u64 = 8 << 20;

/// Files synced side by side.
pub(crate) const SYNCS_AT_ONCE: usize = 8;

/// The replicas with records for the journal, and those among them that a caller waits for.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    cells: Mutex<Cells>,
    wake: Notify,
    /// Writers that wait for memory: as long as there are some, everything is flushed at once.
    starving: AtomicUsize,
}

#[derive(Debug, Default)]
struct Cells {
    dirty: BTreeMap<MetablockId, Arc<Replica>>,
    wanted: BTreeMap<MetablockId, Arc<Replica>>,
}

impl Queue {
    /// Adds a replica with records for the journal.
    pub(crate) fn add(&self, replica: &Arc<Replica>) {
        self.cells.lock().dirty.insert(replica.id, replica.clone());
        if self.starving.load(Ordering::SeqCst) > 0 {
            self.want(replica);
        }
    }

    /// Marks a writer that waits for memory, for as long as the result is held. The caller then calls
    /// [`Queue::want_all`].
    pub(crate) fn starve(&self) -> Starving<'_> {
        self.starving.fetch_add(1, Ordering::SeqCst);
        Starving(&self.starving)
    }

    fn want(&self, replica: &Arc<Replica>) {
        self.cells.lock().wanted.insert(replica.id, replica.clone());
        self.wake.notify_one();
    }

    /// Requests a flush of all replicas, because memory is short.
    pub(crate) fn want_all(&self) {
        let mut cells = self.cells.lock();
        cells.wanted = cells.dirty.clone();
        self.wake.notify_one();
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn all_dirty(&self) -> Vec<Arc<Replica>> {
        self.cells.lock().dirty.values().cloned().collect()
    }

    fn take_wanted(&self) -> BTreeMap<MetablockId, Arc<Replica>> {
        std::mem::take(&mut self.cells.lock().wanted)
    }

    fn remove_if_clean(&self, replica: &Arc<Replica>) {
        let mut cells = self.cells.lock();
        if !replica.live.lock().has_pending() {
            cells.dirty.remove(&replica.id);
        }
    }
}

/// Returns when everything received for the replica so far is on stable storage.
pub(crate) async fn flush(shared: &Shared, replica: &Arc<Replica>) -> Result<()> {
    shared.check_sound()?;
    let Some(done) = replica.live.lock().wait_flushed() else { return Ok(()) };
    shared.queue.want(replica);
    done.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::ShuttingDown, "the volume was closed")))
}

/// Returns when everything received for these replicas so far is on stable storage. They are flushed together.
pub(crate) async fn flush_these<'a>(shared: &Shared, replicas: impl Iterator<Item = &'a Arc<Replica>>) -> Result<()> {
    shared.check_sound()?;
    let mut waiting = Vec::new();
    for replica in replicas {
        let done = replica.live.lock().wait_flushed();
        waiting.extend(done);
        shared.queue.want(replica);
    }
    for done in waiting {
        done.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::ShuttingDown, "the volume was closed")))?;
    }
    Ok(())
}

/// Returns when everything received on the volume so far is on stable storage.
pub(crate) async fn flush_all(shared: &Shared) -> Result<()> {
    let dirty = shared.queue.all_dirty();
    shared.queue.want_all();
    for replica in dirty {
        flush(shared, &replica).await?;
    }
    Ok(())
}

/// The task: writes batches to the journal and puts them in place, until the volume closes.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        shared.queue.wake.notified().await;
        let mut wanted = shared.queue.take_wanted();
        while !wanted.is_empty() {
            // Held from before the records leave their replica until they are in place. Otherwise another task that
            // puts contents in place could miss a record that is in neither.
            let mut journal = shared.journal.lock().await;
            let batch = take_batch(&mut wanted, BATCH_BYTES.min(shared.options.segment_bytes / 8 * 5));
            let done = commit(&shared, &mut journal, batch).await;
            drop(journal);
            if let Err(error) = done {
                fail_waiters(&shared, &error);
                break;
            }
            // Replicas requested in the meantime join.
            wanted.append(&mut shared.queue.take_wanted());
        }
        if let Err(error) = shared.check_sound() {
            fail_waiters(&shared, &error);
            revoke_all(&shared);
        }
    }
}

fn fail_waiters(shared: &Shared, error: &Error) {
    for replica in shared.queue.all_dirty() {
        let waiters = replica.live.lock().take_waiters();
        waiters.into_iter().for_each(|waiter| drop(waiter.send(Err(error.clone()))));
    }
}

/// Records of one replica on their way to the journal.
struct Part {
    replica: Arc<Replica>,
    staged: Vec<Staged>,
}

impl Part {
    fn has_data(&self) -> bool {
        self.staged.iter().any(|staged| staged.record.data().is_some())
    }
}

fn take_batch(wanted: &mut BTreeMap<MetablockId, Arc<Replica>>, enough: u64) -> Vec<Part> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while bytes < enough
        && let Some((_, replica)) = wanted.pop_first()
    {
        let mut live = replica.live.lock();
        let mut staged = Vec::new();
        while bytes < enough
            && let Some(one) = live.take_pending()
        {
            bytes += 256 + one.record.data().map_or(0, |data| data.len() as u64);
            staged.push(one);
        }
        let more = live.has_pending();
        drop(live);
        if more {
            wanted.insert(replica.id, replica.clone());
        }
        if !staged.is_empty() {
            batch.push(Part { replica, staged });
        }
    }
    batch
}

/// Takes a batch to stable storage. After an error of kind `NoSpace` its records are pending again.
async fn commit(shared: &Shared, journal: &mut Journal, batch: Vec<Part>) -> Result<()> {
    if let Err(error) = shared.check_sound() {
        give_back(batch);
        return Err(error);
    }
    if let Err(error) = sync_direct(shared, &batch).await {
        give_back(batch);
        return Err(shared.poison(&error, "sync of a replica"));
    }
    let batch = match append(shared, journal, &batch).await {
        Ok(()) => batch,
        Err(error) if error.kind() == ErrorKind::NoSpace => {
            let (with_data, without): (Vec<_>, Vec<_>) = batch.into_iter().partition(Part::has_data);
            let nothing_else = with_data.is_empty() || without.is_empty();
            give_back(with_data);
            if nothing_else {
                give_back(without);
                return Err(error);
            }
            // Deletions get through, even if the other records of the batch do not.
            if let Err(error) = append(shared, journal, &without).await {
                give_back(without);
                return Err(error);
            }
            finish(shared, &without).await?;
            return Err(error);
        }
        Err(error) => {
            give_back(batch);
            return Err(error);
        }
    };
    finish(shared, &batch).await?;
    if journal.appended_bytes() >= shared.checkpoint_due() {
        shared.checkpoint_wanted.notify_one();
    }
    Ok(())
}

async fn append(shared: &Shared, journal: &mut Journal, batch: &[Part]) -> Result<()> {
    let mut body = BatchBody::default();
    batch.iter().flat_map(|part| &part.staged).for_each(|staged| body.push(&staged.record));
    shared.syncs.fetch_add(1, Ordering::Relaxed);
    let (bytes, begun) = (body.len(), shared.runtime.now());
    let sync = if shared.runtime.has_bug(SeededBug::SkipFsync) { Sync::Skipped } else { Sync::Now };
    let done = journal.append(body, sync).await;
    if done.is_ok() && bytes <= SMALL_BYTES {
        let now = shared.runtime.now();
        shared.latency.lock().add(now.since(begun), now);
    }
    done.map_err(|error| match error.kind() {
        ErrorKind::NoSpace => error.context("no room for the journal"),
        // Nothing was written: the next segment could not be opened.
        ErrorKind::Overloaded => error.context("no descriptor for the journal"),
        _ => shared.poison(&error, "append to the journal"),
    })
}

/// Answers the waiters of a batch that is in the journal, and puts it in place.
async fn finish(shared: &Shared, batch: &[Part]) -> Result<()> {
    for part in batch {
        report_synced(shared, part);
    }
    for part in batch {
        put_in_place(shared, &part.replica).await?;
    }
    log_stuck(shared);
    Ok(())
}

fn give_back(batch: Vec<Part>) {
    for part in batch {
        let mut live = part.replica.live.lock();
        // Ordering: the last one first, so that they leave again in the order in which they came.
        part.staged.into_iter().rev().for_each(|staged| live.put_back(staged));
    }
}

fn report_synced(shared: &Shared, part: &Part) {
    let last = part.staged.last().expect("a part has records");
    debug_assert!(
        part.staged.iter().all(|staged| staged.record.metablock == part.replica.id),
        "a part is one replica's"
    );
    for deletion in part.staged.iter().filter(|staged| staged.record.content == Content::Delete) {
        // Ordering: the tombstone is made while the journal is held, so that the next index contains it.
        let fence = deletion.record.after.promised;
        shared.tombstones.lock().add(part.replica.id, fence, shared.runtime.now());
    }
    let done = {
        let mut live = part.replica.live.lock();
        live.deleted |= last.record.content == Content::Delete && !live.has_pending();
        live.entry_synced |= part.staged.iter().any(|staged| staged.sync_first.is_some());
        live.flushed(part.staged.len() as u64, last.record.after.version)
    };
    shared.queue.remove_if_clean(&part.replica);
    // A waiter may have gone away.
    done.into_iter().for_each(|waiter| drop(waiter.send(Ok(()))));
}

/// Syncs the files of the batch's direct writes, and the names of new files.
async fn sync_direct(shared: &Shared, batch: &[Part]) -> Result<()> {
    let mut files = Vec::new();
    let mut shards = BTreeSet::new();
    for part in batch {
        let mut in_part: Vec<&File> = part.staged.iter().filter_map(|staged| staged.sync_first.as_ref()).collect();
        // One sync serves all writes to one file. A copy that replaced it in the meantime is another file.
        in_part.dedup_by_key(|file| file.path());
        let new_name = !part.replica.live.lock().entry_synced
            || part.staged.iter().any(|staged| matches!(staged.record.content, Content::Replace { .. }));
        if !in_part.is_empty() && new_name {
            shards.insert(shard(part.replica.id));
        }
        files.extend(in_part.into_iter().cloned());
    }
    sync_files(shared, files).await?;
    for shard in shards {
        sync_shard(&shared.disk, &shared.file_system, &shared.root, shard).await?;
    }
    Ok(())
}

/// Syncs files, a few side by side.
pub(crate) async fn sync_files(shared: &Shared, files: Vec<File>) -> Result<()> {
    shared.syncs.fetch_add(files.len() as u64, Ordering::Relaxed);
    if let [file] = &files[..] {
        return file.sync_data().await;
    }
    for group in files.chunks(SYNCS_AT_ONCE) {
        let tasks: Vec<_> = group
            .iter()
            .map(|file| {
                let file = file.clone();
                shared.runtime.spawn("volume-sync", async move { file.sync_data().await })
            })
            .collect();
        for task in tasks {
            task.join().await??;
        }
    }
    Ok(())
}

/// Applies the replica's records in the journal to its file. The caller holds the journal. A full disk stops it: the
/// rest stays in memory and in the journal, and the next batch or checkpoint tries again. The caller then logs it with
/// [`log_stuck`].
pub(crate) async fn put_in_place(shared: &Shared, replica: &Replica) -> Result<()> {
    let _content = replica.content.write().await;
    loop {
        let next = {
            let live = replica.live.lock();
            live.overlay.first().filter(|_| live.is_being_placed()).cloned()
        };
        let Some(record) = next else { return Ok(()) };
        match place(shared, replica, &record).await {
            Ok(()) => {}
            // A full disk is no failed disk. Neither is a file that cannot be opened for want of descriptors.
            Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Overloaded) => {
                shared.unsynced.lock().stuck.insert(replica.id);
                return Ok(());
            }
            Err(error) => return Err(shared.poison(&error, "write to a replica")),
        }
        let done = replica.live.lock().overlay.pop();
        // This frees its memory.
        drop(done);
    }
}

async fn place(shared: &Shared, replica: &Replica, record: &Record) -> Result<()> {
    match &record.content {
        Content::Delete => return remove(shared, replica, record.length_before).await,
        Content::Replace { token } => return replace(shared, replica, *token).await,
        _ => {}
    }
    let file = match open(shared, replica).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // The file was removed from outside. The disk is sound, the replica is not.
            shared.mark_damaged(replica, "its file is missing".into());
            return Ok(());
        }
        file => file?,
    };
    shared.unsynced.lock().note_file(replica.id);
    match &record.content {
        // To the places in the record, not in the state: records received since are not in the journal, and may be
        // lost.
        Content::Data { offset, bytes } => {
            for place in record.places(*offset, bytes.len() as u64) {
                let from = (place.offset - offset) as usize;
                file.write_at(place.at, vec![bytes.slice(from..from + place.len as usize)]).await?;
            }
            Ok(())
        }
        Content::Direct { offset, len } => {
            for place in record.places_before(*offset, *len) {
                file.punch_hole(place.at, place.len).await?;
            }
            Ok(())
        }
        Content::Length => {
            replica.live.lock().grown_to = 0;
            set_length(&file, record.after.length).await
        }
        Content::Punch { offset, len } => punch(&file, *offset, *len).await,
        Content::Zero { offset, len } => {
            punch(&file, *offset, *len).await?;
            file.allocate(*offset, *len).await
        }
        Content::Allocate { offset, len } => file.allocate(*offset, *len).await,
        Content::None | Content::Delete | Content::Replace { .. } => Ok(()),
    }
}

/// Cuts or grows both places.
async fn set_length(file: &File, length: u64) -> Result<()> {
    if file.len().await? <= SECOND {
        return file.set_len(length).await;
    }
    punch(file, length, SECOND - length).await
}

/// Punches a hole into a range, in both places.
pub(crate) async fn punch(file: &File, offset: u64, len: u64) -> Result<()> {
    file.punch_hole(offset, len).await?;
    match file.len().await? {
        len_both if len_both > SECOND => file.punch_hole(SECOND + offset, len).await,
        _ => Ok(()),
    }
}

/// The replica's file; made if it never had one.
pub(crate) async fn open(shared: &Shared, replica: &Replica) -> Result<File> {
    let made = replica.live.lock().file_made;
    let file = shared.files.get(replica.id, if made { OpenMode::Existing } else { OpenMode::Create }).await?;
    if !made {
        replica.live.lock().file_made = true;
    }
    Ok(file)
}

/// Removes the file of a replica of `length` bytes, and takes a deleted replica off the list.
pub(crate) async fn remove(shared: &Shared, replica: &Replica, length: u64) -> Result<()> {
    shared.files.forget(replica.id);
    shared.unsynced.lock().note_removed(replica.id);
    if std::mem::take(&mut replica.live.lock().file_made) {
        match shared.removed.remove(&replica_path(&shared.root, replica.id), length).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            done => done?,
        }
    }
    if replica.live.lock().deleted {
        // Ordering: after its file, so that no new file of that name is made before.
        shared.replicas.write().remove(&replica.id);
        shared.grown.lock().remove(&replica.id);
        replica.advanced.notify_waiters();
    }
    Ok(())
}

async fn replace(shared: &Shared, replica: &Replica, token: u64) -> Result<()> {
    let target = replica_path(&shared.root, replica.id);
    shared.files.forget(replica.id);
    shared.disk.rename(&pull_path(&shared.root, replica.id, token), &target).await?;
    shared.unsynced.lock().note_file(replica.id);
    let mut live = replica.live.lock();
    live.file_made = true;
    live.entry_synced = true;
    live.grown_to = 0;
    live.compression_tried = false;
    Ok(())
}
