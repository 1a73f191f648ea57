//! Room on the volume: a write is acknowledged only if there is room to put it in place later.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::{Disk, Moment, Runtime, Space};
use ebb_types::{Result, bail};
use parking_lot::Mutex;

use crate::removed::Removed;
use crate::volume::VolumeOptions;

/// A reading of free space is used for so long.
const READING_AGE_MAX: Duration = Duration::from_secs(1);

/// Free space of the volume. It counts the space taken since the last reading of the file system's free space.
#[derive(Debug)]
pub(crate) struct SpaceGauge {
    runtime: Runtime,
    disk: Disk,
    root: PathBuf,
    /// Kept free for the journal, the index and the file system's own metadata.
    reserve_bytes: u64,
    /// The most that replicas may take, if that is less than the file system.
    limit_bytes: Option<u64>,
    /// Files whose space is still to be freed.
    removed: Arc<Removed>,
    cells: Mutex<Cells>,
}

#[derive(Debug, Default)]
struct Cells {
    reading: Option<(Moment, Space)>,
    taken_since: u64,
    /// Bytes of all replicas.
    stored: u64,
}

impl SpaceGauge {
    pub(crate) fn new(runtime: &Runtime, root: PathBuf, options: &VolumeOptions, removed: Arc<Removed>) -> Self {
        let (disk, cells) = (runtime.disk(), Mutex::default());
        let (reserve_bytes, limit_bytes) = (options.reserve_bytes, options.limit_bytes);
        Self { runtime: runtime.clone(), disk, root, reserve_bytes, limit_bytes, removed, cells }
    }

    /// Records that a replica's size went from `from` bytes to `to`.
    pub(crate) fn stored_changed(&self, from: u64, to: u64) {
        let mut cells = self.cells.lock();
        cells.stored = (cells.stored + to).saturating_sub(from);
    }

    /// Bytes of all replicas.
    pub(crate) fn stored(&self) -> u64 {
        self.cells.lock().stored
    }

    /// Fails with `NoSpace` unless `len` more bytes fit beside `promised` bytes that were accepted and are not in their
    /// files yet. Frees the space of removed files if they do not.
    pub(crate) async fn check(&self, len: u64, promised: u64) -> Result<()> {
        let fits = |cells: &Cells, space: Space| self.free(cells, space) >= cells.taken_since + promised + len;
        {
            let mut cells = self.cells.lock();
            if let Some((at, space)) = cells.reading
                && self.runtime.now().since(at) < READING_AGE_MAX
                && fits(&cells, space)
            {
                cells.taken_since += len;
                return Ok(());
            }
        }
        loop {
            let space = self.disk.space(&self.root).await?;
            let free = {
                let mut cells = self.cells.lock();
                cells.reading = Some((self.runtime.now(), space));
                cells.taken_since = 0;
                if fits(&cells, space) {
                    cells.taken_since += len;
                    return Ok(());
                }
                self.free(&cells, space).saturating_sub(promised)
            };
            // The limit is one of replicas, and a removed file is none.
            let is_at_limit = self.limit_bytes.is_some_and(|limit| limit < self.stored() + promised + len);
            if is_at_limit || self.removed.cut().await.is_none() {
                bail!(NoSpace, "{}: {len} bytes do not fit in {free} free ones", self.root.display());
            }
        }
    }

    /// Capacity, and the space that clients may still use. A limit makes a part of the disk count as a disk of its own.
    pub(crate) async fn read(&self) -> Result<Space> {
        let mut space = self.disk.space(&self.root).await?;
        space.free_bytes = space.capacity_bytes.min(space.free_bytes + self.removed.bytes());
        let cells = self.cells.lock();
        let capacity_bytes = self.limit_bytes.map_or(space.capacity_bytes, |limit| limit.min(space.capacity_bytes));
        let device = self.limit_bytes.map_or(space.device, |_| 0);
        Ok(Space { capacity_bytes, free_bytes: self.free(&cells, space), device })
    }

    fn free(&self, cells: &Cells, space: Space) -> u64 {
        let reserve = self.reserve_bytes.min(space.capacity_bytes / 16);
        let free = space.free_bytes.saturating_sub(reserve);
        self.limit_bytes.map_or(free, |limit| free.min(limit.saturating_sub(cells.stored)))
    }
}
