//! Segments before their first use: space and name are durable, so that an append is one write and one fdatasync.

use std::path::Path;

use bytes::Bytes;
use ebb_runtime::{Disk, File, OpenMode};
use ebb_types::Result;

/// Zeros are written in pieces of this size.
const PIECE: u64 = 1 << 20;

/// Fills a range with zeros. They are not synced.
pub async fn write_zeros(file: &File, from: u64, to: u64) -> Result<()> {
    assert!(from <= to, "zeros from {from} to {to}");
    let zeros = Bytes::from(vec![0; PIECE.min(to - from) as usize]);
    let mut at = from;
    while at < to {
        let len = PIECE.min(to - at);
        file.write_at(at, vec![zeros.slice(..len as usize)]).await?;
        at += len;
    }
    Ok(())
}

/// Makes an empty file `len` zeros long, durably. Its blocks are written, so that no later write changes the file
/// system's metadata.
pub async fn fill(file: &File, len: u64) -> Result<()> {
    write_zeros(file, 0, len).await?;
    file.sync_data().await
}

/// Gives an empty file space for `len` bytes, durably, without writing them. Cheaper than [`fill`] for a segment that a
/// single long batch fills.
pub async fn allocate(file: &File, len: u64) -> Result<()> {
    file.allocate(0, len).await?;
    file.set_len(len).await?;
    file.sync_data().await
}

/// Gives a segment its name, durably, and opens it. Its contents were synced before.
pub async fn publish(disk: &Disk, from: &Path, path: &Path) -> Result<File> {
    disk.rename(from, path).await?;
    // Ordering: the name is durable before the first batch that is found by it.
    disk.sync_dir(path.parent().expect("a segment lies in a directory")).await?;
    disk.open(path, OpenMode::Existing).await
}
