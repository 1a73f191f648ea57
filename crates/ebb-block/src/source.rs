//! Copies from another node's block server.

use std::time::Duration;

use ebb_rpc::Channel;
use ebb_store::{Found, PullFuture, PullSource, SourceChunks};
use ebb_types::{CHUNK_SIZE, Result, Version, bail};
use ebb_wire::frame::crc32c;
use ebb_wire::{convert, pb};

/// For one piece of a copy.
const PIECE_DEADLINE: Duration = Duration::from_secs(10);

/// A replica on another node.
#[derive(Debug)]
pub(crate) struct RemoteReplica {
    pub(crate) channel: Channel,
    pub(crate) metablock: u64,
    pub(crate) volume: u64,
    /// To be decoded for this RAID set. 0: to be copied.
    pub(crate) raid_set: u64,
}

impl PullSource for RemoteReplica {
    fn read(&self, min_version: Version, offset: u64, len: u64) -> PullFuture<'_, SourceChunks> {
        Box::pin(async move {
            let (metablock, volume) = (self.metablock, self.volume);
            let read = pb::ReadReplica {
                metablock,
                volume,
                min_version: Some(min_version.into()),
                offset,
                length: len,
                queue_max: None,
                raid_set: self.raid_set,
                sums_only: false,
            };
            let reply = self.channel.call_sized(&read, Vec::new(), len as usize, PIECE_DEADLINE).await?;
            Ok(SourceChunks {
                version: convert::version(reply.message.version),
                length: reply.message.length,
                checksums: reply.message.checksums,
                data: reply.payload,
            })
        })
    }

    fn seek(&self, min_version: Version, offset: u64, hole: bool) -> PullFuture<'_, Found> {
        Box::pin(async move {
            let (metablock, volume) = (self.metablock, self.volume);
            let seek = pb::SeekReplica { metablock, volume, min_version: Some(min_version.into()), offset, hole };
            let reply = self.channel.call(&seek, PIECE_DEADLINE).await?;
            Ok(Found { offset: reply.found.then_some(reply.offset), length: reply.length })
        })
    }
}

/// The front of another source. What lies behind it was cut off, and is copied no more.
pub(crate) struct Front<'a> {
    source: &'a dyn PullSource,
    bytes: u64,
}

impl<'a> Front<'a> {
    /// So many bytes of a source. 0: all.
    pub(crate) fn of(source: &'a dyn PullSource, bytes: u64) -> Self {
        Self { source, bytes: if bytes == 0 { u64::MAX } else { bytes } }
    }

    fn cut(&self, offset: u64, found: SourceChunks) -> Result<SourceChunks> {
        let SourceChunks { version, length, mut checksums, mut data } = found;
        if length <= self.bytes {
            return Ok(SourceChunks { version, length, checksums, data });
        }
        let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let chunks = left.div_ceil(CHUNK_SIZE as usize).min(checksums.len());
        if left < data.len() && left % CHUNK_SIZE as usize != 0 {
            // The last chunk gets a sum of its own, so it is compared with its old one here.
            let begin = left - left % CHUNK_SIZE as usize;
            let end = data.len().min(begin + CHUNK_SIZE as usize);
            if checksums.get(chunks - 1) != Some(&crc32c(&data[begin..end])) {
                bail!(Corrupt, "the chunk at {} does not match its checksum", offset + begin as u64);
            }
            checksums[chunks - 1] = crc32c(&data[begin..left]);
        }
        checksums.truncate(chunks);
        data.truncate(left);
        Ok(SourceChunks { version, length: self.bytes, checksums, data })
    }
}

impl PullSource for Front<'_> {
    fn read(&self, min_version: Version, offset: u64, len: u64) -> PullFuture<'_, SourceChunks> {
        Box::pin(async move { self.cut(offset, self.source.read(min_version, offset, len).await?) })
    }

    fn seek(&self, min_version: Version, offset: u64, hole: bool) -> PullFuture<'_, Found> {
        Box::pin(async move {
            let found = self.source.seek(min_version, offset, hole).await?;
            let length = found.length.min(self.bytes);
            Ok(Found { offset: found.offset.filter(|offset| *offset < length), length })
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// A source of bytes in memory.
    struct Memory(Vec<u8>);

    impl PullSource for Memory {
        fn read(&self, _min_version: Version, offset: u64, len: u64) -> PullFuture<'_, SourceChunks> {
            let end = self.0.len().min((offset + len) as usize);
            let data = bytes::Bytes::copy_from_slice(&self.0[end.min(offset as usize)..end]);
            let checksums = data.chunks(CHUNK_SIZE as usize).map(crc32c).collect();
            let length = self.0.len() as u64;
            Box::pin(async move { Ok(SourceChunks { version: Version::ZERO, length, checksums, data }) })
        }

        fn seek(&self, _min_version: Version, offset: u64, hole: bool) -> PullFuture<'_, Found> {
            let offset = if hole { self.0.len() as u64 } else { offset };
            let found = Found { offset: Some(offset), length: self.0.len() as u64 };
            Box::pin(async move { Ok(found) })
        }
    }

    /// As a store takes them: the bytes of each piece match their sums.
    fn whole(front: &Front<'_>) -> Vec<u8> {
        let (mut at, mut out) = (0, Vec::new());
        loop {
            let piece = front.read(Version::ZERO, at, 2 * CHUNK_SIZE).now_or_never().unwrap().unwrap();
            let sums: Vec<u32> = piece.data.chunks(CHUNK_SIZE as usize).map(crc32c).collect();
            assert_eq!(sums, piece.checksums);
            out.extend_from_slice(&piece.data);
            at += 2 * CHUNK_SIZE;
            if at >= piece.length {
                assert_eq!(out.len() as u64, piece.length);
                return out;
            }
        }
    }

    #[test]
    fn the_front_of_a_source_is_cut_in_any_chunk() {
        let memory = Memory((0..5 * CHUNK_SIZE + 77).map(|at| (at / 3) as u8).collect());
        for bytes in [1, CHUNK_SIZE - 1, CHUNK_SIZE, 2 * CHUNK_SIZE, 2 * CHUNK_SIZE + 9, 5 * CHUNK_SIZE + 76, 1 << 40] {
            let front = Front::of(&memory, bytes);
            assert_eq!(whole(&front), memory.0[..memory.0.len().min(bytes as usize)], "{bytes}");
        }
        assert_eq!(whole(&Front::of(&memory, 0)), memory.0);
        let front = Front::of(&memory, 100);
        let beyond = front.seek(Version::ZERO, 0, true).now_or_never().unwrap().unwrap();
        assert_eq!((beyond.offset, beyond.length), (None, 100));
    }
}
