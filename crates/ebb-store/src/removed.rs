//! Long files of deleted replicas, which give their space back in steps.
//!
//! A file system frees a file at once, and syncs wait until it has: 12 ms for 64 MiB on an ext4 that discards, and more than a
//! second for some dozens. So a long file loses its name under `replicas/` alone, and is cut from its end in `removed/`.
//!
//! Its space counts as free from then on. A write that needs it cuts the files itself.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::{Disk, Moment, OpenMode, Runtime};
use ebb_types::{ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::record::REPLICA_LEN_MAX;
use crate::volume::Shared;

/// Directory of these files, in a volume's.
pub(crate) const REMOVED_DIR: &str = "removed";

/// Bytes that are freed in a second: as fast as a disk takes new ones, or nearly so.
const BYTES_PER_SEC: u64 = 128 << 20;

/// Time before the first cut. A reply with bytes of the file may still be on its way to the network.
const REST: Duration = Duration::from_secs(2);

/// The files, oldest first.
#[derive(Debug)]
pub(crate) struct Removed {
    runtime: Runtime,
    disk: Disk,
    directory: PathBuf,
    /// Bytes of a step. A file of two steps or fewer is removed at once.
    step_bytes: u64,
    cells: Mutex<Cells>,
    /// One step at a time.
    cutting: tokio::sync::Mutex<()>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Cells {
    next: u64,
    files: VecDeque<RemovedFile>,
}

#[derive(Clone, Copy, Debug)]
struct RemovedFile {
    /// Its name.
    number: u64,
    /// Bytes that it takes on the disk.
    bytes: u64,
    since: Moment,
}

impl Removed {
    /// Finds what an earlier start left.
    pub(crate) async fn open(runtime: &Runtime, root: &Path, step_bytes: u64) -> Result<Self> {
        let (disk, directory) = (runtime.disk(), root.join(REMOVED_DIR));
        disk.create_dir_all(&directory).await?;
        let mut numbers: Vec<u64> =
            disk.read_dir(&directory).await?.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        let mut cells = Cells { next: numbers.last().map_or(1, |last| last + 1), ..Cells::default() };
        for number in numbers {
            let file = disk.open(&path(&directory, number), OpenMode::Existing).await?;
            cells.files.push_back(RemovedFile { number, bytes: file.allocated_bytes().await?, since: runtime.now() });
        }
        Ok(Self {
            runtime: runtime.clone(),
            disk,
            directory,
            step_bytes,
            cells: Mutex::new(cells),
            cutting: tokio::sync::Mutex::default(),
            added: Notify::new(),
        })
    }

    /// Bytes that are still to be freed.
    pub(crate) fn bytes(&self) -> u64 {
        self.cells.lock().files.iter().map(|file| file.bytes).sum()
    }

    /// Removes a replica's file of at most `length` bytes. The caller syncs its directory.
    pub(crate) async fn remove(&self, path: &Path, length: u64) -> Result<()> {
        if length <= 2 * self.step_bytes {
            return self.disk.remove_file(path).await;
        }
        let bytes = self.disk.open(path, OpenMode::Existing).await?.allocated_bytes().await?;
        let number = {
            let mut cells = self.cells.lock();
            cells.next += 1;
            cells.next - 1
        };
        match self.disk.rename(path, &self.path(number)).await {
            // A directory may need a block for a name, and a full disk has none.
            Err(error) if error.kind() == ErrorKind::NoSpace => return self.disk.remove_file(path).await,
            renamed => renamed?,
        }
        self.cells.lock().files.push_back(RemovedFile { number, bytes, since: self.runtime.now() });
        self.added.notify_one();
        Ok(())
    }

    /// Cuts a step off the oldest file. Returns the bytes freed; `None` if there is no file.
    pub(crate) async fn cut(&self) -> Option<u64> {
        let _one_at_a_time = self.cutting.lock().await;
        let file = self.cells.lock().files.front().copied()?;
        let left = match self.cut_file(&self.path(file.number)).await {
            Ok(left) => left,
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::warn!(%error, "a removed file keeps its space until the next start");
                }
                None
            }
        };
        let mut cells = self.cells.lock();
        match left {
            Some(bytes) => cells.files[0].bytes = bytes.min(file.bytes),
            None => drop(cells.files.pop_front()),
        }
        Some(file.bytes.saturating_sub(left.unwrap_or(0)))
    }

    /// Bytes that the file takes then; `None`: it is gone.
    async fn cut_file(&self, path: &Path) -> Result<Option<u64>> {
        let file = self.disk.open(path, OpenMode::Existing).await?;
        let length = file.len().await?;
        if length <= self.step_bytes {
            drop(file);
            self.disk.remove_file(path).await?;
            // Its space is free for good when the name is durably gone.
            return self.disk.sync_dir(&self.directory).await.map(|()| None);
        }
        // Second places begin there, and a hole lies before them.
        let floor = if length > REPLICA_LEN_MAX { REPLICA_LEN_MAX } else { 0 };
        file.set_len((length - self.step_bytes).max(floor)).await?;
        file.allocated_bytes().await.map(Some)
    }

    fn path(&self, number: u64) -> PathBuf {
        path(&self.directory, number)
    }

    /// Until the oldest file may be cut.
    async fn rested(&self) {
        loop {
            let oldest = self.cells.lock().files.front().map(|file| file.since);
            match oldest {
                Some(since) => {
                    let rested = self.runtime.now().since(since);
                    return self.runtime.sleep(REST.saturating_sub(rested)).await;
                }
                None => self.added.notified().await,
            }
        }
    }
}

fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(number.to_string())
}

/// The task: frees the space of removed files, no faster than programs beside it bear.
pub(crate) async fn run(shared: Arc<Shared>) {
    let removed = &shared.removed;
    loop {
        removed.rested().await;
        let freed = removed.cut().await.unwrap_or(0);
        shared.runtime.sleep(Duration::from_secs_f64(freed as f64 / BYTES_PER_SEC as f64)).await;
    }
}
