//! Checkpoints: contents put in place are synced, all states are written to a new index, old segments are freed. The
//! volume serves requests in the meantime.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_runtime::{Moment, OpenMode};
use ebb_types::{Error, ErrorKind, MetablockId, Result, bail};

use crate::files::{shard, sync_shard};
use crate::flush::{flush, put_in_place, sync_files};
use crate::index::{IndexHead, IndexWriter, index_path};
use crate::notice::{News, Notice, log_stuck};
use crate::state::ReplicaState;
use crate::volume::Shared;

/// Files opened and synced in one step of a checkpoint.
const FILES_AT_ONCE: usize = 64;

/// Interval between progress messages of a volume that is being closed.
const CLOSING_LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Pause after a checkpoint for which there was no space.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The files and directories that the next checkpoint has to sync, and the index that it replaces.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    files: BTreeSet<MetablockId>,
    shards: BTreeSet<u8>,
    /// Replicas with synced contents that found no space in the file system.
    pub(crate) stuck: BTreeSet<MetablockId>,
    /// The messages logged about `stuck`.
    pub(crate) notice: Notice,
    /// The index in force.
    pub(crate) index: u64,
}

impl Unsynced {
    /// No changes, with this index in force.
    pub(crate) fn new(index: u64) -> Self {
        Self { index, ..Self::default() }
    }

    /// The replica's file, and perhaps its name, changed.
    pub(crate) fn note_file(&mut self, metablock: MetablockId) {
        self.files.insert(metablock);
        self.shards.insert(shard(metablock));
    }

    /// The replica's file lost its name.
    pub(crate) fn note_removed(&mut self, metablock: MetablockId) {
        self.files.remove(&metablock);
        self.shards.insert(shard(metablock));
    }
}

/// The task: checkpoints when the journal has grown enough.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut notice = Notice::default();
    loop {
        shared.checkpoint_wanted.notified().await;
        let done = checkpoint(&shared).await;
        let waits = done.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace);
        let news = notice.observe(waits, shared.runtime.now());
        match done {
            Ok(()) => {
                if let Some(News::Over(lasted)) = news {
                    let volume = shared.root.display();
                    tracing::info!(%volume, seconds = lasted.as_secs(), "the checkpoint found room");
                }
            }
            Err(error) if waits => {
                if let Some(News::Waits(lasted)) = news {
                    let volume = shared.root.display();
                    tracing::warn!(%volume, seconds = lasted.as_secs(), %error, "checkpoint waits for space");
                }
                shared.runtime.sleep(RETRY_PAUSE).await;
                shared.checkpoint_wanted.notify_one();
            }
            // Poisoned and reported, or closing.
            Err(_) => {}
        }
    }
}

/// Makes a checkpoint, if anything happened since the last one.
pub(crate) async fn checkpoint(shared: &Shared) -> Result<()> {
    let _one_at_a_time = shared.checkpointing.lock().await;
    shared.check_sound()?;
    let Some((head, files, shards)) = start_checkpoint(shared).await? else { return Ok(()) };
    // Any error of a sync poisons the volume, even `NoSpace`: the state of the files on disk is unknown after it.
    sync_contents(shared, files, shards).await.map_err(|error| shared.poison(&error, "sync at a checkpoint"))?;
    if let Err(error) = write_index(shared, head).await {
        // Best effort: half an index only takes space.
        let _ = shared.disk.remove_file(&index_path(&shared.root, head.segment).with_extension("new")).await;
        return Err(broken(shared, error, "write of an index"));
    }
    let old = std::mem::replace(&mut shared.unsynced.lock().index, head.segment);
    assert!(old <= head.segment, "index {} takes the place of a later one, {old}", head.segment);
    let freed = async {
        if old != head.segment {
            shared.disk.remove_file(&index_path(&shared.root, old)).await?;
        }
        shared.journal.lock().await.release(head.segment).await
    };
    // The next start removes the files that could not be removed here.
    freed.await.or_else(|error| {
        tracing::warn!(volume = %shared.root.display(), %error, "old index or journal stays");
        Ok(())
    })
}

/// Starts a new segment of the journal. All records before it are in place, and the index will contain them.
async fn start_checkpoint(shared: &Shared) -> Result<Option<(IndexHead, BTreeSet<MetablockId>, BTreeSet<u8>)>> {
    let mut journal = shared.journal.lock().await;
    retry_stuck(shared).await?;
    if !shared.unsynced.lock().stuck.is_empty() {
        bail!(NoSpace, "{}: synced data waits for space", shared.root.display());
    }
    // Without new records a checkpoint is due only if the last one found no space.
    if journal.appended_bytes() == 0 && journal.segment() == shared.unsynced.lock().index {
        return Ok(None);
    }
    let (segment, lsn) = journal.rotate();
    let head = IndexHead { segment, lsn, incarnation: shared.label.lock().incarnation };
    let mut unsynced = shared.unsynced.lock();
    Ok(Some((head, std::mem::take(&mut unsynced.files), std::mem::take(&mut unsynced.shards))))
}

/// Puts synced contents in place that found no space before. The caller holds the journal.
pub(crate) async fn retry_stuck(shared: &Shared) -> Result<()> {
    let stuck = shared.unsynced.lock().stuck.clone();
    for metablock in stuck {
        // One by one, so that a concurrent check for a full disk still sees the others.
        shared.unsynced.lock().stuck.remove(&metablock);
        if let Some(replica) = shared.get(metablock) {
            put_in_place(shared, &replica).await?;
        }
    }
    log_stuck(shared);
    Ok(())
}

async fn sync_contents(shared: &Shared, files: BTreeSet<MetablockId>, shards: BTreeSet<u8>) -> Result<()> {
    let files: Vec<MetablockId> = files.into_iter().collect();
    // An error of writing back a file that was closed since is reported only by a sync of the file system.
    let was_closed = shared.files.take_closed_one();
    if files.len() > shared.options.sync_each_max || was_closed {
        // This covers names and contents of all replicas. A file that was removed from outside is found by a read or a
        // scrub.
        shared.syncs.fetch_add(1, Ordering::Relaxed);
        return shared.file_system.sync_all().await;
    }
    let mut closing = Closing { shared, last_log: shared.runtime.now() };
    for (number, group) in files.chunks(FILES_AT_ONCE).enumerate() {
        closing.log_progress("files", number * FILES_AT_ONCE, files.len());
        let mut open = Vec::new();
        for metablock in group {
            let Some(replica) = shared.get(*metablock) else { continue };
            let _content = replica.content.read().await;
            match shared.files.get(*metablock, OpenMode::Existing).await {
                Ok(file) => open.push(file),
                // The replica was deleted in the meantime.
                Err(_) if !replica.live.lock().file_made => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    shared.mark_damaged(&replica, "its file is missing".into());
                }
                // No descriptor is left: sync the whole file system, as with too many files.
                Err(error) if error.kind() == ErrorKind::Overloaded => {
                    shared.syncs.fetch_add(1, Ordering::Relaxed);
                    return shared.file_system.sync_all().await;
                }
                Err(error) => return Err(error),
            }
        }
        sync_files(shared, open).await?;
    }
    let count = shards.len();
    for (number, shard) in shards.into_iter().enumerate() {
        closing.log_progress("directories", number, count);
        sync_shard(&shared.disk, &shared.file_system, &shared.root, shard).await?;
    }
    Ok(())
}

/// Logs the progress of a long last checkpoint, so that an operator sees that the process is still ending.
struct Closing<'a> {
    shared: &'a Shared,
    last_log: Moment,
}

impl Closing<'_> {
    fn log_progress(&mut self, step: &str, synced: usize, all: usize) {
        let now = self.shared.runtime.now();
        if self.shared.closing.load(Ordering::Relaxed) && now.since(self.last_log) >= CLOSING_LOG_INTERVAL {
            self.last_log = now;
            tracing::info!(volume = %self.shared.root.display(), step, synced, all, "still syncing before the volume is closed");
        }
    }
}

async fn write_index(shared: &Shared, head: IndexHead) -> Result<()> {
    let mut index = IndexWriter::create(&shared.disk, &shared.root, head).await?;
    let ids: Vec<MetablockId> = shared.replicas.read().keys().copied().collect();
    for metablock in ids {
        if let Some(state) = settled_state(shared, metablock).await? {
            index.push(metablock, &state).await?;
        }
    }
    let tombstones = shared.tombstones.lock().list();
    index.push_tombstones(&tombstones).await?;
    let index_bytes = index.finish().await?;
    shared.index_bytes.store(index_bytes, Ordering::Relaxed);
    shared.syncs.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// The replica's state at a moment when all of it is synced.
async fn settled_state(shared: &Shared, metablock: MetablockId) -> Result<Option<ReplicaState>> {
    let Some(replica) = shared.get(metablock) else { return Ok(None) };
    let take = || {
        let live = replica.live.lock();
        live.is_settled().then(|| live.exists().then(|| live.state.clone()))
    };
    if let Some(state) = take() {
        return Ok(state);
    }
    // Nothing is received while the gate is held.
    let _gate = replica.gate.lock().await;
    flush(shared, &replica).await?;
    Ok(take().flatten())
}

fn broken(shared: &Shared, error: Error, step: &str) -> Error {
    match error.kind() {
        ErrorKind::NoSpace | ErrorKind::Overloaded | ErrorKind::VolumePoisoned | ErrorKind::ShuttingDown => error,
        _ => shared.poison(&error, step),
    }
}
