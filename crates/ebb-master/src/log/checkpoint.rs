//! Checkpoints: the whole state machine in one file.
//!
//! A file is a stream of length-delimited `CheckpointRecord`s. The last one, the trailer, has the number of records
//! before it and a checksum over them; the state machine makes and checks it. The file gets its name `checkpoint-<index>` only when it is complete
//! and synced; the last two are kept, and the log behind the older one.

use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use ebb_meta::Machine;
use ebb_runtime::{File, OpenMode, Runtime};
use ebb_types::{ClusterId, Result, bail, err};
use ebb_wire::{Message, pb};

/// Bytes that are encoded in one go and written at once.
const PART_LEN: usize = 1 << 20;
/// Checkpoints that are kept.
const KEPT: usize = 2;

/// A checkpoint that was read.
#[derive(Clone)]
pub struct Checkpoint {
    /// The state.
    pub machine: Machine,
    /// Last entry in it.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
}

impl Checkpoint {
    /// The newest checkpoint in `dir`; `None` if there is none. A damaged one is an error that names it: what is
    /// older may be taken only if a person says so, by removing the damaged file.
    pub async fn read_newest(runtime: &Runtime, dir: &Path, cluster: ClusterId) -> Result<Option<Self>> {
        let Some(index) = list(runtime, dir).await?.pop() else { return Ok(None) };
        let path = path(dir, index);
        let bytes = runtime.disk().read(&path).await?;
        let shown = path.display().to_string();
        let read = runtime.compute(move || decode(&bytes)).await;
        let checkpoint = read.map_err(|error| {
            err!(
                Corrupt,
                "{shown} is damaged: {error}. Copy the data directory away; then restore this file from a saved copy, or \
                 remove it: the checkpoint before it and the log behind that one are still there"
            )
        })?;
        if checkpoint.index != index {
            bail!(Corrupt, "{}: holds index {}: rename it back", path.display(), checkpoint.index);
        }
        match checkpoint.machine.cluster() {
            Some(owner) if owner != cluster => {
                bail!(Invalid, "{}: belongs to cluster {owner}, this is {cluster}", path.display())
            }
            _ => Ok(Some(checkpoint)),
        }
    }
}

/// Writes checkpoints.
#[derive(Clone, Debug)]
pub struct CheckpointWriter {
    runtime: Runtime,
    dir: PathBuf,
}

impl CheckpointWriter {
    /// A writer to `dir`.
    #[must_use]
    pub fn new(runtime: Runtime, dir: PathBuf) -> Self {
        Self { runtime, dir }
    }

    /// Writes the state as of `index`, removes checkpoints that are no longer kept, and returns the index up to which
    /// the log is not needed any more. Encodes in slices off the service's threads.
    pub async fn write(&self, machine: Machine, index: u64, term: u64) -> Result<u64> {
        let disk = self.runtime.disk();
        let unfinished = self.dir.join(format!("checkpoint-{index:020}.unfinished"));
        let file = disk.open(&unfinished, OpenMode::Create).await?;
        file.set_len(0).await?;
        self.stream(machine, index, term, &file).await?;
        // Ordering: contents before the name; the name before anything that it makes superfluous goes.
        file.sync_data().await?;
        disk.rename(&unfinished, &path(&self.dir, index)).await?;
        disk.sync_dir(&self.dir).await?;
        self.drop_old().await
    }

    async fn stream(&self, machine: Machine, index: u64, term: u64, file: &File) -> Result<()> {
        // Unbounded, but never more than one checkpoint: a world with one thread encodes all before the first write.
        let (parts, mut received) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let encoder = self.runtime.compute(move || {
            encode(&machine, index, term, |part| {
                // The receiver is gone only if the whole write was given up.
                let _ = parts.send(part);
            });
        });
        let writer = async {
            let mut at = 0;
            while let Some(part) = received.recv().await {
                let len = part.len() as u64;
                file.write_at(at, vec![part]).await?;
                at += len;
            }
            Ok(())
        };
        let ((), written) = tokio::join!(biased; encoder, writer);
        written
    }

    async fn drop_old(&self) -> Result<u64> {
        let mut indexes = list(&self.runtime, &self.dir).await?;
        while indexes.len() > KEPT {
            self.runtime.disk().remove_file(&path(&self.dir, indexes.remove(0))).await?;
        }
        self.runtime.disk().sync_dir(&self.dir).await?;
        Ok(if indexes.len() == KEPT { indexes[0] } else { 0 })
    }

    /// Removes what a crash left half-written, and files that are no longer kept.
    pub async fn clean(&self) -> Result<()> {
        for name in self.runtime.disk().read_dir(&self.dir).await? {
            if name.starts_with("checkpoint-") && name.ends_with(".unfinished") {
                self.runtime.disk().remove_file(&self.dir.join(name)).await?;
            }
        }
        Ok(())
    }
}

fn path(dir: &Path, index: u64) -> PathBuf {
    dir.join(format!("checkpoint-{index:020}"))
}

/// Indexes of the checkpoints in `dir`, oldest first.
async fn list(runtime: &Runtime, dir: &Path) -> Result<Vec<u64>> {
    let names = runtime.disk().read_dir(dir).await?;
    let mut indexes: Vec<u64> =
        names.iter().filter_map(|name| name.strip_prefix("checkpoint-")?.parse().ok()).collect();
    indexes.sort_unstable();
    Ok(indexes)
}

fn encode(machine: &Machine, index: u64, term: u64, mut emit: impl FnMut(Bytes)) {
    let mut part = BytesMut::with_capacity(PART_LEN + (64 << 10));
    for record in machine.records(index, term) {
        record.encode_length_delimited(&mut part).expect("a growing buffer has room");
        if part.len() >= PART_LEN {
            emit(part.split().freeze());
        }
    }
    emit(part.freeze());
}

fn decode(bytes: &[u8]) -> Result<Checkpoint> {
    let mut stream = Stream { rest: bytes };
    // Count and checksum in the trailer are the state machine's to check.
    let (machine, index, term) = Machine::from_records(stream.by_ref())?;
    if !stream.rest.is_empty() {
        bail!(Corrupt, "{} bytes follow its trailer", stream.rest.len());
    }
    Ok(Checkpoint { machine, index, term })
}

struct Stream<'a> {
    rest: &'a [u8],
}

impl Iterator for Stream<'_> {
    type Item = Result<pb::CheckpointRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = pb::CheckpointRecord::decode_length_delimited(&mut self.rest);
        if record.is_err() {
            self.rest = &[];
        }
        Some(record.map_err(|error| err!(Corrupt, "a record does not decode: {error}")))
    }
}
