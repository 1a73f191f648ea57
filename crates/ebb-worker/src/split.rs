//! Counting one split: block by block, the next one on its way while one is counted.

use bytes::Bytes;
use ebb_client::Handle;
use ebb_runtime::Runtime;
use ebb_types::{CHUNK_SIZE, InodeId, Result, bail};
use ebb_wire::pb;

use crate::source::{Source, block_size, metablock_size};
use crate::task::{Count, How};

/// Buffers shorter than this are counted where they are; longer ones off the tasks' threads.
const COMPUTE_MIN: usize = 128 << 10;
/// Largest block that a split may name.
const BLOCK_MAX: u64 = 16 << 20;

/// The result of a split.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Its words, or its lines with the text.
    pub found: u64,
    /// Bytes read for it.
    pub read_bytes: u64,
}

/// Counts the task's words or lines in a split. With `use_locations` it reads by the split's map, and goes on by a
/// fresh one if that fails; without, it reads as any program does.
pub async fn count_split(runtime: &Runtime, source: &impl Source, split: &pb::Split, how: &How) -> Result<Counted> {
    check(split)?;
    let mut count = Count::new(&how.task, split.offset, split.length);
    let end = split.offset + split.length;
    let block = how.unit(block_size(split));
    let mut reader = Reader::new(runtime, source, split, how.use_locations, count.position());
    // The first read takes the look-back and the first block together.
    let mut data = reader.read_to(next_edge(split.offset, block).min(end)).await?;
    while reader.at < end && !data.is_empty() {
        let edge = next_edge(reader.at, block).min(end);
        let (counted, next) = tokio::join!(feed(runtime, count, data), reader.read_to(edge));
        count = counted;
        data = next?;
    }
    count = feed(runtime, count, data).await;
    // A run that began just before the end and shows nothing printable yet, or a line that the text may still come in:
    // chunks, not the whole next metablock (metablocks paper, Sec. 3).
    let mut step = 0;
    while !count.is_decided() && reader.at < split.file_size {
        let data = reader.read_to(next_edge(reader.at, CHUNK_SIZE) + step).await?;
        if data.is_empty() {
            break;
        }
        count.feed(&data);
        step = (step * 2 + CHUNK_SIZE).min(block);
    }
    Ok(Counted { found: count.found(), read_bytes: reader.read_bytes })
}

fn check(split: &pb::Split) -> Result<()> {
    let block = block_size(split);
    if block > BLOCK_MAX || !metablock_size(split).is_multiple_of(block) {
        bail!(Invalid, "a split names blocks of {block} in metablocks of {} bytes", metablock_size(split));
    }
    if split.offset.checked_add(split.length).is_none_or(|end| end > i64::MAX as u64) {
        bail!(Invalid, "a split of {} bytes from {} is beyond any file", split.length, split.offset);
    }
    Ok(())
}

fn next_edge(at: u64, unit: u64) -> u64 {
    (at / unit + 1).saturating_mul(unit)
}

async fn feed(runtime: &Runtime, mut count: Count, data: Bytes) -> Count {
    if data.len() < COMPUTE_MIN {
        count.feed(&data);
        return count;
    }
    runtime
        .compute(move || {
            count.feed(&data);
            count
        })
        .await
}

/// Reads a split's file forwards.
struct Reader<'a, S: Source> {
    runtime: &'a Runtime,
    source: &'a S,
    split: &'a pb::Split,
    by_map: bool,
    opened: Option<Opened<S>>,
    /// Offset of the next byte.
    at: u64,
    read_bytes: u64,
}

impl<'a, S: Source> Reader<'a, S> {
    fn new(runtime: &'a Runtime, source: &'a S, split: &'a pb::Split, by_map: bool, at: u64) -> Self {
        Self { runtime, source, split, by_map, opened: None, at, read_bytes: 0 }
    }

    /// The bytes from where it is to `end`, fewer only at the end of the file.
    async fn read_to(&mut self, end: u64) -> Result<Bytes> {
        let data = self.read(end.min(self.split.file_size).saturating_sub(self.at)).await?;
        self.at += data.len() as u64;
        self.read_bytes += data.len() as u64;
        Ok(data)
    }

    async fn read(&mut self, len: u64) -> Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        if self.by_map {
            match self.source.read_by_map(self.split, self.at, len).await {
                Ok(data) => return Ok(data),
                Err(error) => {
                    // The file has moved or changed since the split was made, or its members fail: the client's own
                    // way asks the master, and tries for longer.
                    let inode = InodeId::new(self.split.inode);
                    tracing::debug!(%inode, offset = self.at, %error, "read a split by a fresh map");
                    self.by_map = false;
                }
            }
        }
        let opened = match &self.opened {
            Some(opened) => opened,
            None => {
                let handle = self.source.open(InodeId::new(self.split.inode)).await?;
                let (source, runtime) = (self.source.clone(), self.runtime.clone());
                self.opened.insert(Opened { source, runtime, handle })
            }
        };
        let len = u32::try_from(len).expect("blocks are at most 16 MiB, and chunks follow them");
        self.source.read(opened.handle, self.at, len).await
    }
}

/// An open file, closed when dropped.
struct Opened<S: Source> {
    source: S,
    runtime: Runtime,
    handle: Handle,
}

impl<S: Source> Drop for Opened<S> {
    fn drop(&mut self) {
        let (source, handle) = (self.source.clone(), self.handle);
        self.runtime.spawn("close-split", async move { source.close(handle).await });
    }
}

#[cfg(test)]
mod tests;
