//! Where a worker's bytes come from.

use std::future::Future;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, KnownMap};
use ebb_types::{BLOCK_SIZE_DEFAULT, Credentials, DatasetId, InodeId, METABLOCK_SIZE_DEFAULT, Result};
use ebb_wire::pb;

/// Reading, as a worker needs it: by a split's own map, or as any program does.
pub trait Source: Clone + Send + Sync + 'static {
    /// Bytes of the split's file from `offset`, fewer only at the end of the file, by the map in the split.
    fn read_by_map(&self, split: &pb::Split, offset: u64, len: u64) -> impl Future<Output = Result<Bytes>> + Send;
    /// Opens a file for reading.
    fn open(&self, inode: InodeId) -> impl Future<Output = Result<Handle>> + Send;
    /// Bytes of an open file, fewer only at its end.
    fn read(&self, handle: Handle, offset: u64, len: u32) -> impl Future<Output = Result<Bytes>> + Send;
    /// Forgets a handle.
    fn close(&self, handle: Handle) -> impl Future<Output = ()> + Send;
}

impl Source for Client {
    async fn read_by_map(&self, split: &pb::Split, offset: u64, len: u64) -> Result<Bytes> {
        let map = KnownMap {
            metablocks: &split.metablocks,
            metablock_size: metablock_size(split),
            file_size: split.file_size,
            dataset: split.dataset.map(DatasetId::new),
        };
        Self::read_by_map(self, map, offset, len).await
    }

    async fn open(&self, inode: InodeId) -> Result<Handle> {
        // The coordinator's walk was the check: a process that holds the cluster secret is believed.
        Self::open(self, &Credentials::root(), inode, Access::Read).await.map(|(handle, _)| handle)
    }

    async fn read(&self, handle: Handle, offset: u64, len: u32) -> Result<Bytes> {
        Self::read(self, handle, offset, len).await
    }

    async fn close(&self, handle: Handle) {
        Self::close(self, handle).await;
    }
}

/// The split's metablock size; defaults do not travel.
pub(crate) fn metablock_size(split: &pb::Split) -> u64 {
    if split.metablock_size == 0 { METABLOCK_SIZE_DEFAULT } else { split.metablock_size }
}

/// The split's block size; defaults do not travel.
pub(crate) fn block_size(split: &pb::Split) -> u64 {
    if split.block_size == 0 { BLOCK_SIZE_DEFAULT } else { split.block_size }
}
