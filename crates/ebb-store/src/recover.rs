//! Opening a volume: format it, or read index and journal and restore its files. See `docs/formats/`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ebb_runtime::{Disk, File, OpenMode, Runtime};
use ebb_types::{Epoch, ErrorKind, Incarnation, MetablockId, Result, VolumeId, bail, err};

use crate::chunks::{ChunkTable, Extent, LONG, SECOND, places};
use crate::extents::{Extents, Source};
use crate::files::{REPLICAS_DIR, parse_name, pull_path, replica_path, shard, shard_path};
use crate::index::{IndexHead, IndexWriter, index_path, read_index};
use crate::journal::{Journal, NAMES, RESERVE};
use crate::label::{LABEL_FILE, Label};
use crate::record::Content;
use crate::removed::Removed;
use crate::replay::Replay;
use crate::replica::Replica;
use crate::state::ReplicaState;
use crate::volume::{Shared, VolumeOptions};

/// Files looked at side by side.
const FILES_AT_ONCE: usize = 16;

/// At start a file's spare space is freed if it is more than this.
const SPARE_BYTES_MAX: u64 = 64 << 10;

/// A replica as index and journal have it.
#[derive(Debug, Default)]
pub(crate) struct Rebuilt {
    pub(crate) state: ReplicaState,
    pub(crate) extents: Extents,
    pub(crate) gone: bool,
}

impl Rebuilt {
    pub(crate) fn add(&mut self, record: &crate::record::Record) {
        self.state.apply(record);
        self.extents.add(record);
        self.gone = record.content == Content::Delete;
    }
}

/// Opens the volume in a directory.
pub(crate) async fn open(runtime: &Runtime, root: &Path, options: VolumeOptions) -> Result<Shared> {
    open_as_it_is(runtime, root, options).await.map_err(|error| match error.kind() {
        ErrorKind::Corrupt => err!(
            Corrupt,
            "{error}. Restore the file, or move {} away and start the node again: it makes a new volume there, and the old \
             one's data are repaired from other nodes",
            root.display()
        ),
        _ => error,
    })
}

async fn open_as_it_is(runtime: &Runtime, root: &Path, options: VolumeOptions) -> Result<Shared> {
    let disk = runtime.disk();
    disk.create_dir_all(root).await?;
    let lock = disk.lock_dir(root).await?;
    // Ordering: before anything is written, so that it reports every failure to write data back.
    let file_system = disk.file_system(root).await?;
    let names = disk.read_dir(root).await?;
    let label = match names.iter().any(|name| name == LABEL_FILE) {
        true => read_label(&disk, root, &options).await?,
        false => format(runtime, root, &names, &options).await?,
    };
    let loaded = load(runtime, root, &options, label.incarnation).await?;
    // Ordering: before the volume is registered. An older copy of the directory then has a lower count, or the same.
    let label = Label { starts: label.starts + 1, ..label };
    disk.replace(&root.join(LABEL_FILE), label.encode()).await?;
    Ok(Shared::new(runtime, root, options, label, loaded, file_system, lock))
}

async fn read_label(disk: &Disk, root: &Path, options: &VolumeOptions) -> Result<Label> {
    let path = root.join(LABEL_FILE);
    let label = Label::decode(&disk.read_replaced(&path).await?, &path)?;
    label.check_owner(options.cluster, options.node, root)?;
    Ok(label)
}

async fn format(runtime: &Runtime, root: &Path, names: &[String], options: &VolumeOptions) -> Result<Label> {
    let left_by_format = |name: &str| {
        name == REPLICAS_DIR
            || name == "index-1"
            || name.ends_with(".new")
            || name.starts_with('.')
            || name == "lost+found"
    };
    if let Some(other) = names.iter().find(|name| !left_by_format(name)) {
        bail!(Invalid, "{} is not a volume, and not empty either ({other}): give an empty directory", root.display());
    }
    let disk = runtime.disk();
    for shard in 0..=u8::MAX {
        disk.create_dir_all(&shard_path(root, shard)).await?;
    }
    disk.sync_dir(&root.join(REPLICAS_DIR)).await?;
    let incarnation = Incarnation::new(runtime.random_u64().max(1));
    IndexWriter::create(&disk, root, IndexHead { segment: 1, lsn: 1, incarnation }).await?.finish().await?;
    let label =
        Label { cluster: options.cluster, node: options.node, volume: VolumeId::new(0), incarnation, starts: 0 };
    // Ordering: last, so that a directory with a label is a whole volume.
    disk.replace(&root.join(LABEL_FILE), label.encode()).await?;
    if let Some(parent) = root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        disk.sync_dir(parent).await?;
    }
    Ok(label)
}

/// The contents of a volume's directory.
pub(crate) struct Loaded {
    pub(crate) replicas: BTreeMap<MetablockId, Arc<Replica>>,
    pub(crate) tombstones: BTreeMap<MetablockId, Epoch>,
    pub(crate) journal: Journal,
    /// Number of the index in force.
    pub(crate) index: u64,
    /// Length of the index.
    pub(crate) index_bytes: u64,
    pub(crate) removed: Removed,
}

async fn load(runtime: &Runtime, root: &Path, options: &VolumeOptions, incarnation: Incarnation) -> Result<Loaded> {
    let disk = runtime.disk();
    let found = Found::list(&disk, root).await?;
    let Some(newest) = found.indexes.last().copied() else {
        bail!(Corrupt, "{} has no index: it is damaged", root.display());
    };
    let path = index_path(root, newest);
    let index = read_index(&disk, &path).await?;
    if index.head.incarnation != incarnation || index.head.segment != newest {
        bail!(Corrupt, "{} belongs to another life of the volume", path.display());
    }
    let mut replay = Replay::new(root, index);
    let (old, live): (Vec<u64>, Vec<u64>) = found.segments.iter().partition(|segment| **segment < newest);
    replay.read(&disk, &live).await?;
    let Replay { mut rebuilt, tombstones, lsn, .. } = replay;

    for name in &found.leftovers {
        match disk.remove_file(&root.join(name)).await {
            // The last process had asked for a rename, and its disk finished it after the list was read.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            done => done?,
        }
    }
    let removed = Removed::open(runtime, root, options.cut_bytes).await?;
    let fixed = restore_files(runtime, root, &mut rebuilt).await?;
    rebuilt.retain(|_, one| !one.gone);
    let next = live.last().map_or(newest, |last| last + 1);
    if next != newest {
        let head = IndexHead { segment: next, lsn, incarnation };
        let mut index = IndexWriter::create(&disk, root, head).await?;
        for (metablock, one) in &rebuilt {
            index.push(*metablock, &one.state).await?;
        }
        index
            .push_tombstones(&tombstones.iter().map(|(metablock, fence)| (*metablock, *fence)).collect::<Vec<_>>())
            .await?;
        index.finish().await?;
    }
    for index in found.indexes.iter().filter(|index| **index != next) {
        disk.remove_file(&index_path(root, *index)).await?;
    }
    let mut journal = Journal::new(disk.clone(), root, incarnation, options.segment_bytes, next, lsn);
    for segment in old.iter().chain(&live) {
        let len = disk.open(&NAMES.path(root, *segment), OpenMode::Existing).await?.len().await?;
        journal.adopt_spare(*segment, len);
    }
    journal.rest().await?;
    if let Err(error) = journal.stock_up().await {
        tracing::warn!(volume = %root.display(), %error, "no journal segment in reserve for a full disk");
        // Best effort: half a segment only takes space.
        let _ = disk.remove_file(&NAMES.path(root, RESERVE)).await;
    }
    let index_bytes = disk.open(&index_path(root, next), OpenMode::Existing).await?.len().await?;
    let replicas = rebuilt.into_iter().map(|(id, one)| (id, Arc::new(into_replica(id, one, fixed.get(&id))))).collect();
    Ok(Loaded { replicas, tombstones, journal, index: next, index_bytes, removed })
}

fn into_replica(id: MetablockId, one: Rebuilt, fixed: Option<&FileState>) -> Replica {
    let replica = Replica::new(id);
    {
        let mut live = replica.live.lock();
        live.synced = one.state.head.version;
        live.damage = one.state.head.damaged.then(|| "it was found damaged before the last start".into());
        live.state = one.state;
        live.known = true;
        live.file_made = !matches!(fixed, None | Some(FileState::None));
        live.entry_synced = live.file_made;
        if let Some(FileState::Damaged(why)) = fixed {
            tracing::warn!(metablock = %id, why, "replica damaged");
            live.damage.get_or_insert(why.clone());
        }
    }
    replica
}

/// Names in a volume's directory, by kind of file.
#[derive(Debug, Default)]
struct Found {
    indexes: Vec<u64>,
    segments: Vec<u64>,
    leftovers: Vec<String>,
}

impl Found {
    async fn list(disk: &Disk, root: &Path) -> Result<Self> {
        let mut found = Self::default();
        for name in disk.read_dir(root).await? {
            if let Some(index) = name.strip_prefix("index-").and_then(|rest| rest.parse().ok()) {
                found.indexes.push(index);
            } else if let Some(segment) = NAMES.number(&name) {
                found.segments.push(segment);
            } else if name.ends_with(".new") {
                found.leftovers.push(name);
            }
        }
        found.indexes.sort_unstable();
        found.segments.sort_unstable();
        Ok(found)
    }
}

/// State of a replica's file.
#[derive(Debug)]
enum FileState {
    /// There is no file, and none is needed.
    None,
    Sound,
    Damaged(String),
}

/// Names found in `replicas/`.
#[derive(Debug, Default)]
struct ReplicaNames {
    files: BTreeSet<MetablockId>,
    pulls: BTreeSet<(MetablockId, u64)>,
}

/// Restores every file to the state in index and journal, durably. Returns the state of each replica's file.
async fn restore_files(
    runtime: &Runtime,
    root: &Path,
    rebuilt: &mut BTreeMap<MetablockId, Rebuilt>,
) -> Result<BTreeMap<MetablockId, FileState>> {
    let disk = runtime.disk();
    let mut names = list_replicas(&disk, root).await?;
    let mut shards = BTreeSet::new();
    for (metablock, one) in rebuilt.iter() {
        if let Some(token) = one.extents.replaced_by().filter(|token| names.pulls.remove(&(*metablock, *token))) {
            disk.rename(&pull_path(root, *metablock, token), &replica_path(root, *metablock)).await?;
            names.files.insert(*metablock);
            shards.insert(shard(*metablock));
        }
    }
    for (metablock, token) in &names.pulls {
        disk.remove_file(&pull_path(root, *metablock, *token)).await?;
    }
    let is_gone = |metablock: &MetablockId| rebuilt.get(metablock).is_none_or(|one| one.gone);
    for metablock in names.files.iter().filter(|metablock| is_gone(metablock)) {
        disk.remove_file(&replica_path(root, *metablock)).await?;
        shards.insert(shard(*metablock));
    }

    let work: Vec<(MetablockId, Fix)> = rebuilt
        .iter_mut()
        .filter(|(_, one)| !one.gone)
        .map(|(metablock, one)| {
            let head = one.state.head;
            let extents = std::mem::take(&mut one.extents);
            let fix = Fix {
                length: head.length,
                reserved: head.reserved,
                chunks: one.state.chunks.clone(),
                extents,
                has_file: names.files.contains(metablock),
            };
            (*metablock, fix)
        })
        .collect();
    let mut states = BTreeMap::new();
    let mut work = work.into_iter().peekable();
    while work.peek().is_some() {
        let group: Vec<_> = work
            .by_ref()
            .take(FILES_AT_ONCE)
            .map(|(metablock, fix)| {
                let (disk, path) = (disk.clone(), replica_path(root, metablock));
                (metablock, runtime.spawn("volume-restore", async move { fix.run(&disk, path).await }))
            })
            .collect();
        for (metablock, task) in group {
            let (state, touched) = task.join().await??;
            if touched {
                shards.insert(shard(metablock));
            }
            states.insert(metablock, state);
        }
    }
    for shard in shards {
        disk.sync_dir(&shard_path(root, shard)).await?;
    }
    Ok(states)
}

async fn list_replicas(disk: &Disk, root: &Path) -> Result<ReplicaNames> {
    let mut names = ReplicaNames::default();
    for shard in 0..=u8::MAX {
        let directory = shard_path(root, shard);
        for name in disk.read_dir(&directory).await? {
            match parse_name(&name) {
                Some((metablock, None)) => drop(names.files.insert(metablock)),
                Some((metablock, Some(token))) => drop(names.pulls.insert((metablock, token))),
                None => tracing::warn!(file = %directory.join(name).display(), "not a replica: left alone"),
            }
        }
    }
    Ok(names)
}

/// The target state of one replica's file.
struct Fix {
    length: u64,
    reserved: u64,
    chunks: ChunkTable,
    extents: Extents,
    has_file: bool,
}

impl Fix {
    /// Restores the file. Returns its state, and whether it was changed.
    async fn run(self, disk: &Disk, path: PathBuf) -> Result<(FileState, bool)> {
        if !self.has_file && self.extents.file_needed(self.length, 0) > 0 {
            return Ok((FileState::Damaged("its file is missing".into()), false));
        }
        if !self.has_file && self.length == 0 && self.extents.reservations().is_empty() {
            return Ok((FileState::None, false));
        }
        let file = disk.open(&path, OpenMode::Create).await?;
        let len = file.len().await?;
        let needed = self.extents.file_needed(self.length, 0);
        if len < needed {
            let why = format!("its file has {len} bytes of {needed}");
            return Ok((FileState::Damaged(why), false));
        }
        let spare = self.length >= SPARE_BYTES_MAX
            && self.reserved == 0
            && file.allocated_bytes().await? > self.length + SPARE_BYTES_MAX;
        // The length does not show bytes in unused second places.
        if self.extents.is_empty() && len == self.length && !spare && !self.chunks.has_second() {
            return Ok((FileState::Sound, false));
        }
        match self.put_in_place(&file).await {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                Err(error.context("synced data finds no space at start: make room on the disk, then start again"))
            }
            Err(error) => Err(error),
            Ok(()) => Ok((FileState::Sound, true)),
        }
    }

    /// Frees the places that no chunk uses.
    async fn free_places(&self, file: &File) -> Result<()> {
        if !self.chunks.has_second() {
            return file.set_len(self.length).await;
        }
        file.set_len(LONG).await?;
        for start in [0, SECOND] {
            file.punch_hole(start + self.length, SECOND - self.length).await?;
        }
        file.allocate(self.length, self.reserved.saturating_sub(self.length)).await?;
        for place in places(0, self.length, |chunk| !self.chunks.is_second(chunk)) {
            file.punch_hole(place.at, place.len).await?;
        }
        Ok(())
    }

    async fn put_in_place(&self, file: &File) -> Result<()> {
        self.free_places(file).await?;
        for (start, end, source) in self.extents.below(self.length) {
            for Extent { offset, at, len } in self.chunks.places(start, end - start) {
                match &source {
                    Source::Hole => file.punch_hole(at, len).await?,
                    Source::Bytes(bytes) => {
                        let from = (offset - start) as usize;
                        file.write_at(at, vec![bytes.slice(from..from + len as usize)]).await?;
                    }
                }
            }
        }
        for (offset, len) in self.extents.reservations() {
            file.allocate(*offset, *len).await?;
        }
        file.sync_data().await
    }
}

/// Reads a whole segment.
pub(crate) async fn read_segment(disk: &Disk, path: &Path) -> Result<Bytes> {
    disk.read(path).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => err!(Corrupt, "{} is missing: synced writes are lost", path.display()),
        _ => error,
    })
}
