//! What recovery, repair and tools ask of a volume: promises, stamps, deletions, descriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_runtime::OpenMode;
use ebb_types::{Epoch, Incarnation, MetablockId, Result, Version, bail};

use crate::files::{replica_path, shard, shard_path};
use crate::flush::flush;
use crate::plan::{Change, OldChunks};
use crate::read::read_verified;
use crate::record::{Content, Head, Record};
use crate::replica::Replica;
use crate::volume::{Shared, Volume};
use crate::write::receive;

/// A replica's version and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicaVersion {
    /// Synced.
    pub version: Version,
    /// In bytes.
    pub length: u64,
}

/// What the master is told of a replica.
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

/// Where and how a replica lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// The summary.
    pub summary: ReplicaSummary,
    /// Its file; the replica's bytes begin at offset 0.
    pub file: String,
    /// Space that the file takes.
    pub allocated_bytes: u64,
}

impl Volume {
    /// Promises durably to refuse epochs below this one; then tells version and length. A replica that this volume does
    /// not have is at version (0,0).
    pub async fn promise(
        &self,
        metablock: MetablockId,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Result<ReplicaVersion> {
        let shared = &*self.shared;
        shared.check_open()?;
        shared.check_incarnation(incarnation)?;
        let replica = shared.get_or_make(metablock);
        let _gate = replica.gate.lock().await;
        let head = checked_head(&replica)?;
        check_epoch(&head, epoch)?;
        if epoch > head.promised || !replica.live.lock().known {
            receive(shared, &replica, unchanged(&replica, Head { promised: epoch, ..head }), None, None);
        }
        flush(shared, &replica).await?;
        Ok(ReplicaVersion { version: head.version, length: head.length })
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

    /// Frees replicas, durably; those that are not there are gone already.
    pub async fn delete(&self, metablocks: &[MetablockId]) -> Result<()> {
        let shared = &*self.shared;
        shared.check_sound()?;
        let found = metablocks.iter().filter_map(|metablock| shared.get(*metablock));
        // In the order of their ids, as everybody else who holds several gates.
        let replicas: BTreeMap<MetablockId, Arc<Replica>> = found.map(|replica| (replica.id, replica)).collect();
        let mut gates = Vec::new();
        for replica in replicas.values() {
            let gate = replica.gate.lock().await;
            if replica.live.lock().deleted {
                continue;
            }
            let promised = replica.live.lock().state.head.promised;
            let mut record = unchanged(replica, Head { promised, ..Head::default() });
            record.content = Content::Delete;
            receive(shared, replica, record, None, None);
            gates.push((replica, gate));
        }
        for (replica, _) in &gates {
            flush(shared, replica).await?;
        }
        // Files lose their names while the journal is held.
        drop(shared.journal.lock().await);
        // Their space is free for good when the names are durably gone.
        let shards: BTreeSet<u8> = gates.iter().map(|(replica, _)| shard(replica.id)).collect();
        for shard in shards {
            let synced = shared.disk.sync_dir(&shard_path(&shared.root, shard)).await;
            synced.map_err(|error| shared.poison(&error, "sync of a directory"))?;
        }
        for (replica, _gate) in gates {
            replica.live.lock().deleted = true;
            shared.replicas.write().remove(&replica.id);
            shared.grown.lock().remove(&replica.id);
            replica.advanced.notify_waiters();
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

    /// Where and how a replica lies; none if this volume does not have it.
    pub async fn describe(&self, metablock: MetablockId) -> Result<Option<Description>> {
        let shared = &*self.shared;
        let Some(replica) = shared.get(metablock) else { return Ok(None) };
        let _content = replica.content.read().await;
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
        Ok(Some(Description { summary, file, allocated_bytes }))
    }
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
    change.record(replica.id, stamp, &replica.live.lock().state, &old, false)
}
