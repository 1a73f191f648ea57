//! The checksum of a file's bytes, from the checksums of its chunks: members say them without reading a byte.

use std::sync::Arc;

use crc_fast::{CrcAlgorithm, checksum_combine};
use ebb_power::Awake;
use ebb_types::{CHUNK_SIZE, InodeId, Result, bail};
use ebb_wire::frame::{PAYLOAD_LEN_MAX, crc32c};
use ebb_wire::pb;

use crate::session::ATTEMPT;
use crate::shared::Shared;
use crate::types::Handle;
use crate::write::members;

/// Bytes whose checksums come with one call.
const PART: u64 = PAYLOAD_LEN_MAX as u64;

/// A checksum of a run of bytes, and their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sum {
    crc: u32,
    len: u64,
}

impl Sum {
    /// Of these bytes.
    fn of(bytes: &[u8]) -> Self {
        Self { crc: crc32c(bytes), len: bytes.len() as u64 }
    }

    /// Of these bytes and others behind them.
    fn then(self, next: Self) -> Self {
        if self.len == 0 {
            return next;
        }
        let algorithm = CrcAlgorithm::Crc32Iscsi;
        let crc = checksum_combine(algorithm, self.crc.into(), next.crc.into(), next.len);
        Self { crc: u32::try_from(crc).expect("a 32-bit checksum"), len: self.len + next.len }
    }

    /// Of `len` bytes whose chunks have these checksums.
    fn of_chunks(checksums: &[u32], len: u64) -> Self {
        let mut left = len;
        checksums.iter().fold(Self::default(), |sum, crc| {
            let chunk = left.min(CHUNK_SIZE);
            left -= chunk;
            sum.then(Self { crc: *crc, len: chunk })
        })
    }
}

impl Shared {
    /// CRC-32C of the first `length` bytes of an open file. What members do not say is read.
    ///
    /// # Errors
    /// `Invalid` if the file has fewer bytes.
    pub async fn checksum(self: &Arc<Self>, handle: Handle, length: u64) -> Result<u32> {
        let file = self.handles.get(handle)?;
        let inode = file.inode.id;
        let unit = file.inode.core.lock().geometry().metablock_size;
        // The writer commits before the map is told; its members have synced then.
        let locations = self.locations(inode).await?;
        let mut sum = Sum::default();
        while sum.len < length {
            let (index, within) = (sum.len / unit, sum.len % unit);
            let left = PART.min(unit - within).min(length - sum.len);
            // An end within a chunk goes alone: if it has to be read, nothing else is.
            let wanted = if left > CHUNK_SIZE { left - left % CHUNK_SIZE } else { left };
            let block = locations.iter().map(|location| &location.metablock).find(|block| block.index == index);
            let told = match block {
                Some(block) => self.sum_of_part(block, within, wanted).await,
                None => None,
            };
            let part = match told {
                Some(part) => part,
                None => self.read_sum(handle, inode, sum.len, wanted).await?,
            };
            sum = sum.then(part);
        }
        Ok(sum.crc)
    }

    /// As a member says it. `None`: no member is awake that answers, or the end of the part lies within a chunk of which the member
    /// has more.
    async fn sum_of_part(self: &Arc<Self>, block: &pb::Metablock, offset: u64, len: u64) -> Option<Sum> {
        for member in block.members.iter().filter(|member| self.awake_for(member.node_id()) != Awake::Asleep) {
            let Ok(hop) = self.nodes.hop(member) else { continue };
            let message = pb::ReadReplica {
                metablock: block.id,
                volume: member.volume,
                min_version: block.version,
                offset,
                length: len.next_multiple_of(CHUNK_SIZE),
                sums_only: true,
                ..Default::default()
            };
            match members::ask_awake(self, &hop, &message, Vec::new(), ATTEMPT).await {
                Ok(reply) => {
                    let had = reply.message.length.saturating_sub(offset).min(len.next_multiple_of(CHUNK_SIZE));
                    let is_exact = had == len || had > len && len.is_multiple_of(CHUNK_SIZE);
                    let chunks = len.div_ceil(CHUNK_SIZE);
                    if is_exact && reply.message.checksums.len() as u64 == chunks {
                        return Some(Sum::of_chunks(&reply.message.checksums, len));
                    }
                }
                Err(error) => tracing::debug!(%error, node = member.node, "a member does not say its checksums"),
            }
        }
        None
    }

    async fn read_sum(self: &Arc<Self>, handle: Handle, inode: InodeId, offset: u64, len: u64) -> Result<Sum> {
        let file = self.handles.get(handle)?;
        let mut sum = Sum::default();
        while sum.len < len {
            let part = self.read(&file, offset + sum.len, (len - sum.len).min(super::READ_MAX)).await?.into_bytes();
            if part.is_empty() {
                bail!(
                    Invalid,
                    "{inode} has {} bytes, and the checksum of {} is asked for",
                    offset + sum.len,
                    offset + len
                );
            }
            sum = sum.then(Sum::of(&part));
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_parts_are_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..3 * CHUNK_SIZE + 77).map(|at| (at * 31 % 251) as u8).collect();
        let chunks: Vec<u32> = bytes.chunks(CHUNK_SIZE as usize).map(crc32c).collect();
        assert_eq!(Sum::of_chunks(&chunks, bytes.len() as u64), Sum::of(&bytes));
        let (front, back) = bytes.split_at(1000);
        assert_eq!(Sum::of(front).then(Sum::of(back)), Sum::of(&bytes));
        assert_eq!(Sum::of_chunks(&[], 0), Sum::default());
        assert_eq!(Sum::of(b"123456789").crc, 0xe306_9283, "CRC-32C of the standard's nine digits");
    }
}
