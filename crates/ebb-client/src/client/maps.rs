//! Where files lie, and reads by a map that the caller brings.

use bytes::{Bytes, BytesMut};
use ebb_types::{BLOCK_SIZE_DEFAULT, InodeId, Result, err};

use super::{Client, READS_AHEAD};
use crate::read::fetch;
use crate::types::{KnownMap, Location};

impl Client {
    /// Where a file's metablocks lie.
    pub async fn locations(&self, inode: InodeId) -> Result<Vec<Location>> {
        self.shared.locations(inode).await
    }

    /// Reads a range by a map that the caller brings (a split): no call to the master as long as the map holds.
    /// The file's size bounds it. Kind `StaleVersion` or `NoReplica` from every member: the map is out of date.
    pub async fn read_by_map(&self, map: KnownMap<'_>, offset: u64, len: u64) -> Result<Bytes> {
        let KnownMap { metablocks, metablock_size, file_size, dataset } = map;
        let block_size = BLOCK_SIZE_DEFAULT.min(metablock_size);
        let geometry = ebb_types::Geometry { block_size, metablock_size };
        geometry.check().map_err(|why| err!(Invalid, "the map of a split: {why}"))?;
        let end = offset.saturating_add(len).min(file_size);
        let pieces: Vec<_> = geometry.block_pieces(offset, end.saturating_sub(offset)).collect();
        let mut parts = Vec::with_capacity(pieces.len());
        for some in pieces.chunks(READS_AHEAD) {
            let tasks: Vec<_> = some
                .iter()
                .map(|piece| {
                    let record = metablocks.iter().find(|block| block.index == piece.metablock_index).cloned();
                    let (shared, piece) = (self.shared.clone(), *piece);
                    self.shared.runtime.spawn("read by a map", async move {
                        fetch::by_map(&shared, record.as_ref(), dataset, piece.offset, piece.len).await
                    })
                })
                .collect();
            for task in tasks {
                parts.push(task.join().await??);
            }
        }
        self.shared.served.add(parts.iter().map(Bytes::len).sum());
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        let mut out = BytesMut::with_capacity(end.saturating_sub(offset) as usize);
        parts.iter().for_each(|part| out.extend_from_slice(part));
        Ok(out.freeze())
    }
}
