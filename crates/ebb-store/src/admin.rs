//! Requests of recovery, repair and tools to a volume: promises, stamps, deletions, descriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_runtime::OpenMode;
use ebb_types::{Epoch, Incarnation, MetablockId, Result, Version, bail};

use crate::files::{replica_path, shard, sync_shard};
use crate::flush::{flush, flush_these};
use crate::plan::{Change, OldChunks, Way};
use crate::read::read_verified;
use crate::record::{Content, Head, Record};
use crate::replica::Replica;
use crate::scrub::check_name_in;
use crate::tombstones::FREED;
use crate::volume::{Shared, Volume};
use crate::write::{known_after, receive};

/// A replica's version and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicaVersion {
    /// Synced.
    pub version: Version,
    /// In bytes.
    pub length: u64,
}

/// A replica as the volume reports it to the master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaSummary {
    /// Whose replica.
    pub metablock: MetablockId,
    /// Synced.
    pub version: Version,
    /// Lower epochs are refused.
    pub promised: Epoch,
    /// In bytes.
    pub length: u64,
    /// Whether it is damaged.
    pub corrupt: bool,
}

/// The replica to free, and the fence that is kept for its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deletion {
    /// Whose replica.
    pub metablock: MetablockId,
    /// Lower epochs are refused for this id from now on. `None`: the id itself was freed, and every epoch is refused
    /// for ever.
    pub epoch: Option<Epoch>,
    /// The life to delete, as [`Description::life`] has it. A replica with another life was made later and stays.
    /// `None`: any life, which is right only when the id itself ends.
    pub life: Option<u64>,
}

impl Deletion {
    /// Deletes every life of an id that is not in use any more.
    #[must_use]
    pub const fn freed(metablock: MetablockId) -> Self {
        Self { metablock, epoch: None, life: None }
    }

    fn fence(&self) -> Epoch {
        self.epoch.unwrap_or(FREED)
    }
}

/// A replica's summary, and its place on the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// The summary.
    pub summary: ReplicaSummary,
    /// Its file.
    pub file: String,
    /// Offset of its first chunk in the file.
    pub file_offset: u64,
    /// Space that the file takes.
    pub allocated_bytes: u64,
    /// Distinguishes the replica from all others that this volume ever had of the metablock. A deletion names it.
    pub life: u64,
}

impl Volume {
    /// Promises durably to refuse epochs below this one, then returns version and length. For an epoch of a writer or
    /// recovery, a replica that this volume does not have is at version (0,0).
    ///
    /// Errors: `NoReplica` if the volume does not have the replica, for [`Epoch::FROZEN`] and above. A replica that is
    /// made for the promise alone would refuse the one that belongs there.
    pub async fn promise(
        &self,
        metablock: MetablockId,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<ReplicaVersion> {
        let shared = &*self.shared;
        shared.check_open()?;
        shared.check_incarnation(incarnation)?;
        known_after(shared, metablock, promise(shared, metablock, epoch).await).await
    }

    /// The replica at exactly `base` becomes version (epoch, 0), cut to `length`, synced. Repeating it does no harm.
    pub async fn stamp(
        &self,
        metablock: MetablockId,
        incarnation: Incarnation,
        epoch: Epoch,
        base: Version,
        length: u64,
    ) -> Result<ReplicaVersion> {
        let shared = &*self.shared;
        shared.check_open()?;
        shared.check_incarnation(incarnation)?;
        known_after(shared, metablock, stamp(shared, metablock, epoch, base, length).await).await
    }

    /// Frees replicas durably, and keeps a tombstone for each. Repeating it does no harm: a replica made since has
    /// another life.
    ///
    /// Errors: `Overloaded` if the volume has no room for more tombstones.
    pub async fn delete(&self, deletions: &[Deletion]) -> Result<()> {
        let shared = &*self.shared;
        shared.check_sound()?;
        // In the order of their ids, as in every task that holds several gates.
        let deletions: BTreeMap<MetablockId, Deletion> = deletions.iter().map(|one| (one.metablock, *one)).collect();
        shared.tombstones.lock().check_room(deletions.len())?;
        let replicas: Vec<(Deletion, Arc<Replica>)> =
            deletions.into_values().filter_map(|deletion| Some((deletion, to_delete(shared, &deletion)?))).collect();
        let mut gates = Vec::new();
        for (deletion, replica) in &replicas {
            let gate = replica.gate.lock().await;
            if begin_deletion(shared, deletion, replica) {
                gates.push((replica, gate));
            }
        }
        flush_these(shared, gates.iter().map(|(replica, _)| *replica)).await?;
        // Files lose their names while the journal is held.
        drop(shared.journal.lock().await);
        // Their space is free for good when the names are durably gone.
        let shards: BTreeSet<u8> = gates.iter().map(|(replica, _)| shard(replica.id)).collect();
        for shard in shards {
            let synced = sync_shard(&shared.disk, &shared.file_system, &shared.root, shard).await;
            synced.map_err(|error| shared.poison(&error, "sync of a directory"))?;
        }
        Ok(())
    }

    /// All replicas after `after`, at most `limit`, in the order of their ids.
    #[must_use]
    pub fn report(&self, after: Option<MetablockId>, limit: usize) -> Vec<ReplicaSummary> {
        let replicas = self.shared.replicas.read();
        let start = match after {
            Some(metablock) => std::ops::Bound::Excluded(metablock),
            None => std::ops::Bound::Unbounded,
        };
        let rest = replicas.range((start, std::ops::Bound::Unbounded));
        rest.filter_map(|(_, replica)| summary(replica)).take(limit).collect()
    }

    /// Summary and place of a replica, with a look whether its file is there. `None` if this volume does not have it.
    pub async fn describe(&self, metablock: MetablockId) -> Result<Option<Description>> {
        let shared = &*self.shared;
        let Some(replica) = shared.get(metablock) else { return Ok(None) };
        let _content = replica.content.read().await;
        check_name_in(shared, &replica).await?;
        let Some(summary) = summary(&replica) else { return Ok(None) };
        let made = replica.live.lock().file_made;
        let allocated_bytes = match made {
            true => match shared.files.get(metablock, OpenMode::Existing).await {
                Ok(file) => file.allocated_bytes().await?,
                Err(_) => 0,
            },
            false => 0,
        };
        let file = replica_path(&shared.root, metablock).display().to_string();
        let live = replica.live.lock();
        let life = live.state.head.life;
        let file_offset = live.state.chunks.places(0, 1)[0].at;
        Ok(Some(Description { summary, file, file_offset, allocated_bytes, life }))
    }
}

async fn promise(shared: &Shared, metablock: MetablockId, epoch: Epoch) -> Result<ReplicaVersion> {
    let replica = match shared.get(metablock) {
        Some(replica) => replica,
        None if epoch.is_real() => shared.get_or_make(metablock),
        None => bail!(NoReplica, "there is no replica of {metablock} to freeze"),
    };
    let _gate = replica.gate.lock().await;
    if !epoch.is_real() && !replica.live.lock().exists() {
        bail!(NoReplica, "there is no replica of {metablock} to freeze");
    }
    let head = checked_head(&replica)?;
    check_epoch(&head, epoch)?;
    if epoch > head.promised || !replica.live.lock().known {
        receive(shared, &replica, unchanged(&replica, Head { promised: epoch, ..head }), None, None);
    }
    flush(shared, &replica).await?;
    Ok(ReplicaVersion { version: head.version, length: head.length })
}

async fn stamp(
    shared: &Shared,
    metablock: MetablockId,
    epoch: Epoch,
    base: Version,
    length: u64,
) -> Result<ReplicaVersion> {
    let replica = shared.get_or_make(metablock);
    let _gate = replica.gate.lock().await;
    let head = checked_head(&replica)?;
    check_epoch(&head, epoch)?;
    let stamp = Version::new(epoch, 0);
    if head.version != stamp || head.length != length {
        if head.version != base {
            bail!(StaleVersion, "the replica of {metablock} is at {}, not at {base}", head.version);
        }
        if length > head.length {
            bail!(Invalid, "the replica of {metablock} has {} bytes and cannot be cut to {length}", head.length);
        }
        let record = match length == head.length {
            true => unchanged(&replica, Head { version: stamp, promised: epoch, ..head }),
            false => cut(shared, &replica, stamp, length).await?,
        };
        receive(shared, &replica, record, None, None);
    }
    flush(shared, &replica).await?;
    Ok(ReplicaVersion { version: stamp, length })
}

/// The replica to delete, if the deletion applies here. An id that was freed gets a tombstone even without a replica.
fn to_delete(shared: &Shared, deletion: &Deletion) -> Option<Arc<Replica>> {
    let found = shared.get(deletion.metablock);
    let remembered = || shared.tombstones.lock().fence(deletion.metablock) >= deletion.fence();
    match deletion.epoch {
        None if found.is_none() && !remembered() => Some(shared.get_or_make(deletion.metablock)),
        _ => found,
    }
}

/// Receives the deletion; false if there is nothing to delete. The gate is held.
fn begin_deletion(shared: &Shared, deletion: &Deletion, replica: &Arc<Replica>) -> bool {
    let head = {
        let live = replica.live.lock();
        let head = live.state.head;
        if live.deleted || deletion.life.is_some_and(|life| life != head.life) {
            return false;
        }
        head
    };
    // The life stays, because a deletion that fails is requested again with the same life.
    let after = Head { promised: head.promised.max(deletion.fence()), life: head.life, ..Head::default() };
    let record = Record { content: Content::Delete, ..unchanged(replica, after) };
    receive(shared, replica, record, None, None);
    true
}

fn summary(replica: &Replica) -> Option<ReplicaSummary> {
    let live = replica.live.lock();
    live.exists().then(|| ReplicaSummary {
        metablock: replica.id,
        version: live.synced,
        promised: live.state.head.promised,
        length: live.state.head.length,
        corrupt: live.damage.is_some(),
    })
}

/// The head of a sound replica that is not being deleted or copied.
fn checked_head(replica: &Replica) -> Result<Head> {
    let live = replica.live.lock();
    live.check_sound(replica.id)?;
    if live.deleted {
        bail!(Busy, "the replica of {} was being deleted: ask again", replica.id);
    }
    Ok(live.state.head)
}

pub(crate) fn check_epoch(head: &Head, epoch: Epoch) -> Result<()> {
    if epoch < head.promised {
        bail!(StaleEpoch, "epoch {epoch} is over, {} was promised", head.promised);
    }
    Ok(())
}

/// A record that changes no bytes.
pub(crate) fn unchanged(replica: &Replica, after: Head) -> Record {
    let length_before = replica.live.lock().state.head.length;
    Record { metablock: replica.id, length_before, after, runs: Vec::new(), content: Content::None }
}

async fn cut(shared: &Shared, replica: &Replica, stamp: Version, length: u64) -> Result<Record> {
    let change = Change::Truncate { length };
    let needed = change.chunks_needed(&replica.live.lock().state);
    let mut old = OldChunks::new();
    for chunk in needed {
        old.insert(chunk, read_verified(shared, replica, chunk..chunk + 1).await?);
    }
    change.record(replica.id, stamp, &replica.live.lock().state, &old, Way::Journal)
}
