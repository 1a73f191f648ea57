//! Checkpoints: the whole state machine in one file.
//!
//! A file is a head and a sequence of blocks; each block has a checksum of its own and holds whole records, so that
//! damage has an offset and blocks are read by several threads. The last record, the trailer, has the number of
//! records before it and a checksum over them; the state machine makes and checks it. The file gets its name
//! `checkpoint-<index>` only when it is complete and synced; the last two are kept, and the log behind the older one.

use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use ebb_meta::{Machine, Names, Remainder};
use ebb_runtime::{File, OpenMode, Runtime};
use ebb_types::{ClusterId, ErrorKind, Result, bail};
use ebb_wire::frame::crc32c;
use ebb_wire::pb::checkpoint_record::Record;
use ebb_wire::{Message, decode_length_delimiter, encode_length_delimiter, pb};

/// A block ends with the record that makes it so long.
const BLOCK_LEN: usize = 256 << 10;
/// Bytes written between syncs.
const SYNC_EVERY: u64 = 8 << 20;
/// Length and checksum before each block's records.
pub(super) const BLOCK_HEADER_LEN: usize = 8;
const MAGIC: &[u8; 8] = b"EBBMCKPT";
const FORMAT: u32 = 2;
/// Magic, format, and the checksum of both.
pub(super) const HEAD_LEN: usize = 16;
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
    /// Indexes of the checkpoints in `dir`, oldest first.
    pub async fn list(runtime: &Runtime, dir: &Path) -> Result<Vec<u64>> {
        list(runtime, dir).await
    }

    /// Reads one. A damaged one is an error of kind `Corrupt` that names the file and the offset.
    pub async fn read(runtime: &Runtime, dir: &Path, index: u64, cluster: ClusterId) -> Result<Self> {
        let path = path(dir, index);
        let bytes = runtime.disk().read(&path).await?;
        let checkpoint = decode(runtime, bytes).await.map_err(|error| match error.kind() {
            ErrorKind::Unsupported => error.context(path.display()),
            _ => error.context(format!("{} is damaged", path.display())),
        })?;
        if checkpoint.index != index {
            bail!(Corrupt, "{}: holds index {}: rename it back", path.display(), checkpoint.index);
        }
        match checkpoint.machine.cluster() {
            Some(owner) if owner != cluster => {
                bail!(Invalid, "{}: belongs to cluster {owner}, this is {cluster}", path.display())
            }
            _ => Ok(checkpoint),
        }
    }

    /// Takes a damaged one out of the way, for a person to look at.
    pub async fn set_aside(runtime: &Runtime, dir: &Path, index: u64) -> Result<PathBuf> {
        let aside = dir.join(format!("checkpoint-{index:020}.damaged"));
        runtime.disk().rename(&path(dir, index), &aside).await?;
        runtime.disk().sync_dir(dir).await?;
        Ok(aside)
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
        let written = async {
            file.set_len(0).await?;
            self.stream(machine, index, term, &file).await?;
            // Ordering: contents before the name; the name before anything that it makes superfluous goes.
            file.sync_data().await
        };
        if let Err(error) = written.await {
            // On a full disk its bytes are wanted; what cannot be removed now is removed at the next start.
            let _ = disk.remove_file(&unfinished).await;
            return Err(error);
        }
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
            let (mut at, mut synced) = (0, 0);
            while let Some(part) = received.recv().await {
                let len = part.len() as u64;
                file.write_at(at, vec![part]).await?;
                at += len;
                if at - synced >= SYNC_EVERY {
                    // Little by little: bytes written at once would stand before the log's own syncs in the disk's
                    // queue.
                    file.sync_data().await?;
                    synced = at;
                }
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
    emit(Bytes::copy_from_slice(&head()));
    let mut at = HEAD_LEN as u64;
    let mut block = new_block();
    let mut end_block = |block: &mut BytesMut| {
        let len = block.len() - BLOCK_HEADER_LEN;
        let sum = block_sum(at, &block[BLOCK_HEADER_LEN..]);
        block[0..4].copy_from_slice(&u32::try_from(len).expect("a record is below 4 GiB").to_le_bytes());
        block[4..8].copy_from_slice(&sum.to_le_bytes());
        at += block.len() as u64;
        emit(std::mem::replace(block, new_block()).freeze());
    };
    machine.encode_records(index, term, |record| {
        encode_length_delimiter(record.len(), &mut block).expect("a growing buffer has room");
        block.extend_from_slice(record);
        if block.len() >= BLOCK_LEN {
            end_block(&mut block);
        }
    });
    if block.len() > BLOCK_HEADER_LEN {
        end_block(&mut block);
    }
}

pub(super) fn head() -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[0..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    let sum = crc32c(&head[..12]);
    head[12..16].copy_from_slice(&sum.to_le_bytes());
    head
}

fn new_block() -> BytesMut {
    let mut block = BytesMut::with_capacity(BLOCK_LEN + (64 << 10));
    block.extend_from_slice(&[0; BLOCK_HEADER_LEN]);
    block
}

/// Covers the block's place too, so that one that lies elsewhere is noticed.
pub(super) fn block_sum(at: u64, records: &[u8]) -> u32 {
    crc32c(&[crc32c(records).to_le_bytes().as_slice(), &at.to_le_bytes()].concat())
}

async fn decode(runtime: &Runtime, bytes: Bytes) -> Result<Checkpoint> {
    let again = bytes.clone();
    // Two threads: each reads the whole stream and takes its own records.
    let names = runtime.compute(move || {
        check_head(&again)?;
        let mut stream = Stream::new(&again);
        let names = Names::load(stream.by_ref());
        names.map_err(|error| error.context(format!("before offset {}", stream.at)))
    });
    let rest = runtime.compute(move || {
        check_head(&bytes)?;
        // Count and checksum in the trailer are the state machine's to check.
        let mut stream = Stream::new(&bytes);
        let rest = Remainder::load(stream.by_ref());
        let at = stream.at;
        let rest = rest.map_err(|error| error.context(format!("before offset {at}")))?;
        if at < bytes.len() {
            bail!(Corrupt, "at offset {at}: {} bytes follow its trailer", bytes.len() - at);
        }
        Ok(rest)
    });
    let (names, rest) = tokio::join!(biased; names, rest);
    let (names, rest) = (names?, rest?);
    let (machine, index, term) = runtime.compute(move || names.join(rest)).await?;
    Ok(Checkpoint { machine, index, term })
}

pub(super) fn check_head(bytes: &[u8]) -> Result<()> {
    let Some(found) = bytes.get(..HEAD_LEN).filter(|found| &found[0..8] == MAGIC) else {
        if is_of_format_1(bytes) {
            bail!(Unsupported, "it is of format 1, this release reads {FORMAT}: use the release that wrote it");
        }
        bail!(Corrupt, "at offset 0: it does not begin as a checkpoint of format {FORMAT} does");
    };
    if found[12..16] != crc32c(&found[..12]).to_le_bytes() {
        bail!(Corrupt, "at offset 0: the checksum of its head does not match");
    }
    let format = u32::from_le_bytes(found[8..12].try_into().expect("four bytes"));
    if format != FORMAT {
        bail!(Unsupported, "it is of format {format}, this release reads {FORMAT}: use the release that wrote it");
    }
    Ok(())
}

/// Format 1 had neither head nor blocks: a file begins with its first record, the header, after its length.
fn is_of_format_1(mut bytes: &[u8]) -> bool {
    let len = decode_length_delimiter(&mut bytes).ok().filter(|len| (1..=256).contains(len));
    let record = len.and_then(|len| pb::CheckpointRecord::decode(bytes.get(..len)?).ok());
    matches!(record.and_then(|record| record.record), Some(Record::Header(header)) if header.applied_index > 0)
}

/// The records of all blocks. Each block is checked before its first record is returned.
pub(super) struct Stream<'a> {
    bytes: &'a [u8],
    /// Where the present block ends.
    block_end: usize,
    /// Where the next record, or the next block, begins.
    at: usize,
}

impl<'a> Stream<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, block_end: HEAD_LEN, at: HEAD_LEN }
    }

    fn next_record(&mut self) -> Result<Option<&'a [u8]>> {
        if self.at == self.block_end {
            if self.at == self.bytes.len() {
                return Ok(None);
            }
            self.open_block()?;
        }
        let mut rest = &self.bytes[self.at..self.block_end];
        let len = decode_length_delimiter(&mut rest).ok().filter(|len| *len <= rest.len());
        let Some(len) = len else { bail!(Corrupt, "at offset {}: a record is longer than its block", self.at) };
        self.at = self.block_end - rest.len() + len;
        Ok(Some(&rest[..len]))
    }

    fn open_block(&mut self) -> Result<()> {
        let at = self.at;
        let header = self.bytes.get(at..at + BLOCK_HEADER_LEN);
        let Some(header) = header else { bail!(Corrupt, "at offset {at}: it ends within a block's header") };
        let len = u32::from_le_bytes(header[0..4].try_into().expect("four bytes")) as usize;
        let from = at + BLOCK_HEADER_LEN;
        let records = self.bytes.get(from..from + len).filter(|_| len > 0);
        let Some(records) = records else { bail!(Corrupt, "at offset {at}: a block of {len} bytes does not fit") };
        if block_sum(at as u64, records).to_le_bytes() != header[4..8] {
            bail!(Corrupt, "at offset {at}: the checksum of the block up to offset {} does not match", from + len);
        }
        (self.at, self.block_end) = (from, from + len);
        Ok(())
    }
}

impl<'a> Iterator for Stream<'a> {
    type Item = Result<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_format_is_refused_by_name() {
        let mut newer = head();
        newer[8..12].copy_from_slice(&3_u32.to_le_bytes());
        let sum = crc32c(&newer[..12]);
        newer[12..16].copy_from_slice(&sum.to_le_bytes());
        // Format 1 began with the first record: the header, after its length.
        let mut oldest = Vec::new();
        Machine::new().encode_records(9, 2, |record| {
            encode_length_delimiter(record.len(), &mut oldest).unwrap();
            oldest.extend_from_slice(record);
        });
        for (bytes, format) in [(&newer[..], 3), (&oldest[..], 1)] {
            let error = check_head(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let due = format!("it is of format {format}, this release reads 2: use the release that wrote it");
            assert_eq!(error.to_string(), due);
        }
        assert_eq!(check_head(&newer[..15]).unwrap_err().kind(), ErrorKind::Corrupt);
        check_head(&head()).unwrap();
    }
}
