//! A volume as its users see it, and the state that its parts share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::{DirLock, Disk, FileSystem, OpenMode, Runtime, SeededBug, Space, Task};
use ebb_types::{ClusterId, Error, ErrorKind, Incarnation, MetablockId, NodeId, Result, VolumeId, bail, err};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore};

use crate::checkpoint::Unsynced;
use crate::files::FileCache;
use crate::journal::Journal;
use crate::label::{LABEL_FILE, Label};
use crate::latency::Latency;
use crate::record::Head;
use crate::recover::Loaded;
use crate::removed::Removed;
use crate::replica::Replica;
use crate::space::SpaceGauge;
use crate::tombstones::Tombstones;
use crate::{checkpoint, flush, housekeeping, recover, removed, short_circuit};

/// Limit of the journal before a checkpoint, which bounds the time of the next start.
pub const JOURNAL_BYTES_MAX: u64 = 256 << 20;

/// File that [`Volume::time_disk`] writes. A start removes it, as it removes all unfinished files.
const TIMED_FILE: &str = "timed.new";
const TIMED_BYTES: usize = 4096;

/// Settings of a volume. The defaults suit a disk of a real node.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// The cluster it must belong to; written into it at format.
    pub cluster: ClusterId,
    /// The node it must belong to; none if the node has no id yet.
    pub node: Option<NodeId>,
    /// Bytes of a journal segment. More make checkpoints cheaper to recycle, fewer make formatting quicker.
    pub segment_bytes: u64,
    /// Bytes in the journal after which a checkpoint begins; more if the index is longer (see `JOURNAL_BYTES_MAX`).
    pub checkpoint_bytes: u64,
    /// Writes up to this size always go through the journal: one sync instead of two.
    pub journaled_bytes_max: u64,
    /// Bytes received and not yet in their place; more make writers wait. At least the largest payload.
    pub unplaced_bytes_max: usize,
    /// How long a write waits for the ones before it.
    pub gap_wait: Duration,
    /// Files held open.
    pub open_files_max: usize,
    /// A checkpoint with more new contents than this syncs the whole file system at once, and not file by file.
    pub sync_each_max: usize,
    /// Space kept free for the journal, the index and the file system; at most a sixteenth of the disk.
    pub reserve_bytes: u64,
    /// The most that replicas may take; none: the whole disk.
    pub limit_bytes: Option<u64>,
    /// The file of a deleted replica that is longer than twice this gives its space back in steps of it.
    pub cut_bytes: u64,
    /// Time for which the volume refuses late writes to deleted replicas. It is at least the session timeout: so long a
    /// lease holder can believe in a lease that the master has given up.
    pub tombstone_time: Duration,
}

impl VolumeOptions {
    /// The defaults, for this cluster and node.
    #[must_use]
    pub fn new(cluster: ClusterId, node: Option<NodeId>) -> Self {
        Self {
            cluster,
            node,
            segment_bytes: 4 << 20,
            checkpoint_bytes: 16 << 20,
            journaled_bytes_max: 64 << 10,
            unplaced_bytes_max: 64 << 20,
            gap_wait: Duration::from_secs(2),
            open_files_max: 1024,
            sync_each_max: 1000,
            reserve_bytes: 64 << 20,
            limit_bytes: None,
            cut_bytes: 4 << 20,
            tombstone_time: Duration::from_secs(60),
        }
    }
}

/// An open volume. Cheap to clone; the volume is closed when the last clone is gone.
///
/// Cancel-safety: futures of methods that change something must be run to their end (in a task of their own).
#[derive(Clone)]
pub struct Volume {
    pub(crate) shared: Arc<Shared>,
    _tasks: Arc<Tasks>,
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volume({})", self.shared.root.display())
    }
}

/// Tasks of an open volume; they end with it.
struct Tasks {
    shared: Arc<Shared>,
    tasks: Vec<Task<()>>,
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        self.tasks.iter().for_each(Task::abort);
    }
}

/// The state that the parts of an open volume share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) runtime: Runtime,
    pub(crate) disk: Disk,
    pub(crate) root: PathBuf,
    pub(crate) options: VolumeOptions,
    pub(crate) label: Mutex<Label>,
    pub(crate) replicas: RwLock<BTreeMap<MetablockId, Arc<Replica>>>,
    pub(crate) files: FileCache,
    pub(crate) file_system: FileSystem,
    /// Held while a batch is written and put in place. While it is free, the files have everything that is in the
    /// journal.
    pub(crate) journal: tokio::sync::Mutex<Journal>,
    pub(crate) queue: flush::Queue,
    /// Files and directories with contents put in place since the last checkpoint.
    pub(crate) unsynced: Mutex<Unsynced>,
    /// Deleted ids. Locked after `replicas`.
    pub(crate) tombstones: Mutex<Tombstones>,
    /// Replicas with space kept ahead of growth.
    pub(crate) grown: Mutex<BTreeSet<MetablockId>>,
    /// Bytes that may be received without being in their place.
    pub(crate) unplaced: Arc<Semaphore>,
    pub(crate) space: SpaceGauge,
    pub(crate) removed: Arc<Removed>,
    pub(crate) checkpoint_wanted: Notify,
    /// One checkpoint at a time.
    pub(crate) checkpointing: tokio::sync::Mutex<()>,
    poison: Mutex<Option<String>>,
    /// Replicas found damaged and not yet reported.
    damaged: Mutex<BTreeSet<MetablockId>>,
    /// Damaged replicas without a mark in the journal.
    pub(crate) unmarked: Mutex<BTreeSet<MetablockId>>,
    /// lsn of the journal when housekeeping looked last.
    pub(crate) last_lsn: AtomicU64,
    /// lsn at this start.
    opened_lsn: u64,
    /// Length of the index in force.
    pub(crate) index_bytes: AtomicU64,
    pub(crate) closing: AtomicBool,
    pub(crate) syncs: AtomicU64,
    /// Bytes read by scrubs.
    pub(crate) scrubbed: AtomicU64,
    /// Bytes of frozen replicas found compressed or made so, also of those deleted since.
    pub(crate) compressed: AtomicU64,
    /// Durations of recent small commits.
    pub(crate) latency: Mutex<Latency>,
    _lock: DirLock,
}

impl Volume {
    /// Opens the volume in a directory, or formats an empty one.
    ///
    /// Errors: `Unauthorized` for a volume of another cluster or node, `Busy` if another process has it, `Corrupt` if
    /// label, index or journal are damaged; the message names file and offset.
    pub async fn open(runtime: &Runtime, root: &Path, options: VolumeOptions) -> Result<Self> {
        let shared = Arc::new(recover::open(runtime, root, options).await?);
        let tasks = vec![
            runtime.spawn("volume-flush", flush::run(shared.clone())),
            runtime.spawn("volume-checkpoint", checkpoint::run(shared.clone())),
            runtime.spawn("volume-housekeeping", housekeeping::run(shared.clone())),
            runtime.spawn("volume-removed", removed::run(shared.clone())),
        ];
        Ok(Self { _tasks: Arc::new(Tasks { shared: shared.clone(), tasks }), shared })
    }

    /// The volume's label.
    #[must_use]
    pub fn label(&self) -> Label {
        *self.shared.label.lock()
    }

    /// Its id; 0 before the first registration.
    #[must_use]
    pub fn id(&self) -> VolumeId {
        self.label().volume
    }

    /// lsn of the journal, as housekeeping saw it last, up to the last batch but one: damage to that batch does not
    /// pass for a torn write. It never goes back, even in a crash.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        // The number means nothing if a seeded bug leaves out syncs.
        if self.shared.runtime.has_bug(SeededBug::SkipFsync) {
            return 0;
        }
        self.shared.opened_lsn.max(self.shared.last_lsn.load(Ordering::Relaxed).saturating_sub(1))
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.root
    }

    /// Writes the ids that the master gave into the volume. Refused if it has others.
    pub async fn assign(&self, node: NodeId, volume: VolumeId) -> Result<()> {
        let old = self.label();
        let new = Label { node: Some(node), volume, ..old };
        if old == new {
            return Ok(());
        }
        let is_other_volume = old.volume.raw() != 0 && old.volume != volume;
        if is_other_volume || old.node.is_some_and(|owner| owner != node) {
            let owner = old.node.map_or_else(|| "no node".to_owned(), |owner| format!("node {owner}"));
            bail!(
                Unauthorized,
                "{} is volume {} of {owner} and cannot become {volume} of {node}",
                self.path().display(),
                old.volume
            );
        }
        self.shared.disk.replace(&self.path().join(LABEL_FILE), new.encode()).await?;
        *self.shared.label.lock() = new;
        Ok(())
    }

    /// The failure that poisoned the volume, if any.
    #[must_use]
    pub fn poisoned(&self) -> Option<String> {
        self.shared.poison.lock().clone()
    }

    /// Capacity and free space for clients.
    pub async fn space(&self) -> Result<Space> {
        self.shared.space.read().await
    }

    /// Bytes of all replicas.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.shared.space.stored()
    }

    /// Bytes that scrubs have read since the volume was opened.
    #[must_use]
    pub fn scrubbed_bytes(&self) -> u64 {
        self.shared.scrubbed.load(Ordering::Relaxed)
    }

    /// Bytes of frozen replicas that were found compressed or made so since the volume was opened, also of those deleted since.
    #[must_use]
    pub fn compressed_bytes(&self) -> u64 {
        self.shared.compressed.load(Ordering::Relaxed)
    }

    /// A replica drawn at random, if there is any.
    #[must_use]
    pub fn any_replica(&self) -> Option<MetablockId> {
        let replicas = self.shared.replicas.read();
        let count = replicas.len() as u64;
        let place = self.shared.runtime.random_u64().checked_rem(count)?;
        replicas.keys().nth(usize::try_from(place).ok()?).copied()
    }

    /// Replicas on it.
    #[must_use]
    pub fn replica_count(&self) -> usize {
        self.shared.replicas.read().len()
    }

    /// Syncs of files since start.
    #[must_use]
    pub fn sync_count(&self) -> u64 {
        self.shared.syncs.load(Ordering::Relaxed)
    }

    /// Small commits of the last seconds: median of their durations, and their number. `None`: there were none.
    #[must_use]
    pub fn commit_latency(&self) -> Option<(Duration, u32)> {
        self.shared.latency.lock().median(self.shared.runtime.now())
    }

    /// Whether a checkpoint is under way, which makes commits slow.
    #[must_use]
    pub fn is_checkpointing(&self) -> bool {
        self.shared.checkpointing.try_lock().is_err()
    }

    /// Writes and syncs a few bytes beside the journal, and counts that as a small commit. So the measure of an idle
    /// disk recovers when the disk does.
    ///
    /// Poisons the volume if the disk fails. Nothing else would find that on a disk with cold data alone, as nobody writes to it.
    pub async fn time_disk(&self) -> Result<()> {
        let shared = &self.shared;
        shared.check_open()?;
        let begun = shared.runtime.now();
        match self.write_timed().await {
            Err(error) if error.kind() == ErrorKind::Io => return Err(shared.poison(&error, "trying the idle disk")),
            done => done?,
        }
        let now = shared.runtime.now();
        shared.latency.lock().add(now.since(begun), now);
        Ok(())
    }

    async fn write_timed(&self) -> Result<()> {
        let shared = &self.shared;
        let file = shared.disk.open(&shared.root.join(TIMED_FILE), OpenMode::Create).await?;
        file.write_at(0, vec![Bytes::from_static(&[0; TIMED_BYTES])]).await?;
        file.sync_data().await
    }

    /// Replicas found damaged since the last call.
    #[must_use]
    pub fn take_damaged(&self) -> Vec<MetablockId> {
        std::mem::take(&mut *self.shared.damaged.lock()).into_iter().collect()
    }

    /// Returns when everything received so far is on stable storage.
    pub async fn flush(&self) -> Result<()> {
        self.shared.check_sound()?;
        flush::flush_all(&self.shared).await
    }

    /// Syncs everything received, gives spare space back and writes an index, so that the next start replays nothing.
    /// Then takes no more work.
    pub async fn stop(&self) -> Result<()> {
        let shared = &self.shared;
        shared.closing.store(true, Ordering::Relaxed);
        housekeeping::mark_damaged(shared).await?;
        flush::flush_all(shared).await?;
        short_circuit::revoke_all(shared);
        // Synced records are put in place while the journal is held.
        drop(shared.journal.lock().await);
        housekeeping::give_back_all(shared).await;
        checkpoint::checkpoint(shared).await
    }
}

impl Shared {
    pub(crate) fn new(
        runtime: &Runtime,
        root: &Path,
        options: VolumeOptions,
        label: Label,
        loaded: Loaded,
        file_system: FileSystem,
        lock: DirLock,
    ) -> Self {
        let Loaded { replicas, tombstones, journal, index, index_bytes, removed } = loaded;
        let (disk, removed) = (runtime.disk(), Arc::new(removed));
        let space = SpaceGauge::new(runtime, root.to_owned(), &options, Arc::clone(&removed));
        for replica in replicas.values() {
            space.stored_changed(0, replica.live.lock().state.chunks.data_bytes());
        }
        Self {
            runtime: runtime.clone(),
            files: FileCache::new(disk.clone(), root, options.open_files_max),
            file_system,
            disk,
            root: root.to_owned(),
            label: Mutex::new(label),
            replicas: RwLock::new(replicas),
            opened_lsn: journal.lsn(),
            journal: tokio::sync::Mutex::new(journal),
            queue: flush::Queue::default(),
            unsynced: Mutex::new(Unsynced::new(index)),
            tombstones: Mutex::new(Tombstones::new(options.tombstone_time, tombstones, runtime.now())),
            grown: Mutex::default(),
            unplaced: Arc::new(Semaphore::new(options.unplaced_bytes_max)),
            space,
            removed,
            checkpoint_wanted: Notify::new(),
            checkpointing: tokio::sync::Mutex::default(),
            poison: Mutex::default(),
            damaged: Mutex::default(),
            unmarked: Mutex::default(),
            last_lsn: AtomicU64::new(0),
            index_bytes: AtomicU64::new(index_bytes),
            closing: AtomicBool::new(false),
            syncs: AtomicU64::new(0),
            scrubbed: AtomicU64::new(0),
            compressed: AtomicU64::new(0),
            latency: Mutex::default(),
            options,
            _lock: lock,
        }
    }

    /// Bytes in the journal after which a checkpoint is due. An index holds every replica. It is written when the
    /// journal has grown as long as the index, so that its cost stays a constant part of the journal's.
    pub(crate) fn checkpoint_due(&self) -> u64 {
        let index_bytes = self.index_bytes.load(Ordering::Relaxed);
        self.options.checkpoint_bytes.max(index_bytes.min(JOURNAL_BYTES_MAX))
    }

    /// Bytes received that are not in their files yet.
    pub(crate) fn unplaced_bytes(&self) -> u64 {
        (self.options.unplaced_bytes_max - self.unplaced.available_permits()) as u64
    }

    pub(crate) fn get(&self, metablock: MetablockId) -> Option<Arc<Replica>> {
        self.replicas.read().get(&metablock).cloned()
    }

    /// The replica. Makes one if this volume does not have it.
    pub(crate) fn get_or_make(&self, metablock: MetablockId) -> Arc<Replica> {
        if let Some(replica) = self.get(metablock) {
            return replica;
        }
        let life = self.runtime.random_u64().max(1);
        let make = || {
            let replica = Replica::new(metablock);
            replica.live.lock().state.head =
                Head { promised: self.tombstones.lock().fence(metablock), life, ..Head::default() };
            Arc::new(replica)
        };
        self.replicas.write().entry(metablock).or_insert_with(make).clone()
    }

    /// Refuses new work on a volume that is poisoned or closing.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_sound()?;
        if self.closing.load(Ordering::Relaxed) {
            bail!(ShuttingDown, "{} is being closed", self.root.display());
        }
        Ok(())
    }

    /// Refuses work on a poisoned volume.
    pub(crate) fn check_sound(&self) -> Result<()> {
        match &*self.poison.lock() {
            Some(why) => Err(err!(
                VolumePoisoned,
                "{} takes no more work after a failure ({why}): check the disk, then restart the node",
                self.root.display()
            )),
            None => Ok(()),
        }
    }

    /// Refuses requests meant for another life of this volume.
    pub(crate) fn check_incarnation(&self, incarnation: Incarnation) -> Result<()> {
        let label = *self.label.lock();
        if label.incarnation != incarnation {
            bail!(
                NoReplica,
                "volume {} is {}, not {incarnation}: it was formatted anew",
                label.volume,
                label.incarnation
            );
        }
        Ok(())
    }

    /// Poisons the volume after a failed sync or write: the contents on disk are unknown, so everything is refused from
    /// now on. Returns the error for the caller's answer.
    pub(crate) fn poison(&self, error: &Error, step: &str) -> Error {
        {
            let mut poison = self.poison.lock();
            if poison.is_none() {
                tracing::error!(volume = %self.root.display(), %error, step, "volume poisoned");
                *poison = Some(format!("{step}: {error}"));
            }
        }
        self.queue.wake();
        self.check_sound().expect_err("poisoned just now")
    }

    /// Takes a replica out of service. Its mark becomes durable within about a second. A start before that does not
    /// know of the damage, and finds it again.
    pub(crate) fn mark_damaged(&self, replica: &Replica, why: String) -> Error {
        let error = err!(Corrupt, "replica of {}: {why}", replica.id);
        let news = {
            let mut live = replica.live.lock();
            let news = live.damage.is_none() && !live.deleted;
            live.damage.get_or_insert(why);
            live.revoke_readers();
            news
        };
        if news {
            tracing::warn!(volume = %self.root.display(), metablock = %replica.id, %error, "replica damaged");
            self.damaged.lock().insert(replica.id);
            self.unmarked.lock().insert(replica.id);
        }
        error
    }
}
