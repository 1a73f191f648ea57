//! Makes a slot or row of a RAID set again, of the other parts. It is a copy whose source is decoded.
//!
//! The checksums of a slot are those of its writer, from a trailer: the store compares what is decoded with them. Those of a
//! row are made here, of bytes that matched theirs.

use std::sync::Arc;

use bytes::Bytes;
use ebb_code::{Part, Trailer};
use ebb_store::{Found, Pull, PullFuture, PullSource, SourceChunks};
use ebb_types::{CHUNK_SIZE, Epoch, Incarnation, MetablockId, Result, Version, bail, err};
use ebb_wire::frame::crc32c;
use ebb_wire::pb;

use super::parts::Parts;
use crate::node::Node;
use crate::source::Front;

/// Answers `RebuildReplica`. When it returns, the replica is synced.
///
/// Errors: `Unavailable` if too few other parts can be had; `Corrupt` if what is decoded does not match its checksums; those of
/// [`ebb_store::Volume::pull`].
pub(crate) async fn rebuild(node: &Arc<Node>, message: pb::RebuildReplica) -> Result<pb::RebuildReplicaReply> {
    let volume = node.volume(message.volume)?;
    let pull = Pull {
        metablock: MetablockId::new(if message.heir == 0 { message.metablock } else { message.heir }),
        incarnation: Incarnation::new(message.incarnation),
        epoch: Epoch::new(message.epoch),
        at: Version::ZERO,
        anew: message.anew,
        rate_bytes_per_sec: message.rate_bytes_per_sec,
    };
    let front_bytes = message.front_bytes;
    let _place = node.pulls.acquire().await.expect("never closed");
    let decoded = Decoded::new(node, message).await?;
    let done = volume.pull(Pull { at: decoded.version, ..pull }, &Front::of(&decoded, front_bytes)).await;
    tracing::trace!(metablock = %pull.metablock, raid_set = %decoded.parts.outline.raid_set, ?done, "rebuild");
    let done = done?;
    Ok(pb::RebuildReplicaReply { version: Some(done.version.into()), length: done.length })
}

/// A part that is decoded while it is read.
struct Decoded {
    parts: Parts,
    wanted: Part,
    version: Version,
    length: u64,
    trailer: Trailer,
    /// The end of a row.
    encoded: Bytes,
}

impl Decoded {
    async fn new(node: &Arc<Node>, message: pb::RebuildReplica) -> Result<Self> {
        let metablock = MetablockId::new(message.metablock);
        let parts = Parts::new(node, message)?;
        let wanted = parts.find(metablock)?;
        let trailer = parts.trailer(wanted).await?;
        let source = parts.source(wanted).ok_or_else(|| err!(Internal, "{wanted} was found"))?;
        let (version, length) = (source.version(), source.length());
        let encoded = match wanted {
            Part::Slot(_) => Bytes::new(),
            Part::Row(row) if length != trailer.metablock_len() => {
                bail!(
                    Corrupt,
                    "row {row} of {} has {length} bytes, not {}",
                    parts.outline.raid_set,
                    trailer.metablock_len()
                )
            }
            Part::Row(row) => Trailer { row, ..trailer.clone() }.encode()?.into(),
        };
        Ok(Self { parts, wanted, version, length, trailer, encoded })
    }

    async fn read_chunks(&self, offset: u64, len: u64) -> Result<SourceChunks> {
        let end = (offset + len).min(self.length);
        let (data, checksums) = match self.wanted {
            _ if offset >= end => (Bytes::new(), Vec::new()),
            Part::Slot(slot) => {
                let data = self.parts.decode(self.wanted, offset..end, &self.trailer).await?;
                let sums = self.trailer.slots[slot].as_ref().map_or(&[][..], |slot| &slot.sums);
                let chunks = (offset / CHUNK_SIZE) as usize..end.div_ceil(CHUNK_SIZE) as usize;
                (data, sums[chunks].to_vec())
            }
            Part::Row(row) => {
                let row_len = self.trailer.row_len();
                let mut data = Bytes::new();
                if offset < row_len {
                    data = self.parts.decode(self.wanted, offset..end.min(row_len), &self.trailer).await?;
                }
                if end > row_len {
                    let from = offset.max(row_len) - row_len;
                    let rest = &self.encoded[from as usize..(end - row_len) as usize];
                    data = [&data[..], rest].concat().into();
                }
                let sums: Vec<u32> = data.chunks(CHUNK_SIZE as usize).map(crc32c).collect();
                for (chunk, sum) in (offset / CHUNK_SIZE..row_len / CHUNK_SIZE).zip(&sums).filter(|_| row == 0) {
                    if *sum != self.trailer.sum_of_row_zero(chunk)? {
                        bail!(
                            Corrupt,
                            "{}: chunk {chunk} of row 0 is not the sum of its slots",
                            self.parts.outline.raid_set
                        );
                    }
                }
                (data, sums)
            }
        };
        Ok(SourceChunks { version: self.version, length: self.length, checksums, data })
    }
}

impl PullSource for Decoded {
    fn read(&self, _min_version: Version, offset: u64, len: u64) -> PullFuture<'_, SourceChunks> {
        Box::pin(self.read_chunks(offset, len))
    }

    /// Nothing tells holes from zeros, which the copy finds out by itself.
    fn seek(&self, _min_version: Version, offset: u64, hole: bool) -> PullFuture<'_, Found> {
        let found = Some(offset).filter(|offset| !hole && *offset < self.length);
        Box::pin(async move { Ok(Found { offset: found, length: self.length }) })
    }
}
