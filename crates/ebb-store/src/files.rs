//! Replica files: names, open files, space kept ahead of growth.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ebb_runtime::{Disk, File, FileSystem, OpenMode};
use ebb_types::{Error, ErrorKind, MetablockId, Result};
use parking_lot::Mutex;

/// Directory of all replica files.
pub(crate) const REPLICAS_DIR: &str = "replicas";

/// Files that grow beyond this get their space in runs of [`GROWTH_RUN`], to lie in one piece on a disk.
pub(crate) const GROWTH_MIN: u64 = 1 << 20;

/// Space reserved at once for a growing file.
pub(crate) const GROWTH_RUN: u64 = 4 << 20;

/// The shard of `replicas/` that a metablock's file is in.
pub(crate) fn shard(metablock: MetablockId) -> u8 {
    metablock.raw().to_le_bytes()[0]
}

/// Directory of a shard.
pub(crate) fn shard_path(root: &Path, shard: u8) -> PathBuf {
    root.join(REPLICAS_DIR).join(format!("{shard:02x}"))
}

/// File of a replica.
pub(crate) fn replica_path(root: &Path, metablock: MetablockId) -> PathBuf {
    shard_path(root, shard(metablock)).join(format!("{:016x}", metablock.raw()))
}

/// File of a copy that is being made.
pub(crate) fn pull_path(root: &Path, metablock: MetablockId, token: u64) -> PathBuf {
    shard_path(root, shard(metablock)).join(format!("{:016x}.pull-{token:016x}", metablock.raw()))
}

/// Parses a name in a shard: a replica, or an unfinished copy with its token.
pub(crate) fn parse_name(name: &str) -> Option<(MetablockId, Option<u64>)> {
    let hex = |text: &str| match text.len() {
        16 => u64::from_str_radix(text, 16).ok(),
        _ => None,
    };
    match name.split_once(".pull-") {
        Some((id, token)) => Some((MetablockId::new(hex(id)?), Some(hex(token)?))),
        None => Some((MetablockId::new(hex(name)?), None)),
    }
}

/// The files that are open. The longest unused one is closed first.
#[derive(Debug)]
pub(crate) struct FileCache {
    disk: Disk,
    root: PathBuf,
    open_max: usize,
    cells: Mutex<Cells>,
    /// A file was closed for want of room since the last [`FileCache::take_closed_one`].
    closed_one: AtomicBool,
}

#[derive(Debug, Default)]
struct Cells {
    files: BTreeMap<MetablockId, (File, u64)>,
    by_use: BTreeMap<u64, MetablockId>,
    clock: u64,
}

impl FileCache {
    pub(crate) fn new(disk: Disk, root: &Path, open_max: usize) -> Self {
        Self { disk, root: root.to_owned(), open_max, cells: Mutex::default(), closed_one: AtomicBool::new(false) }
    }

    /// The replica's file. Errors: `NotFound` if it must exist and does not; `Overloaded` if the process has no
    /// descriptor left, and none that it could close.
    pub(crate) async fn get(&self, metablock: MetablockId, mode: OpenMode) -> Result<File> {
        if let Some(file) = self.cells.lock().touch(metablock) {
            return Ok(file);
        }
        let path = replica_path(&self.root, metablock);
        let file = match self.disk.open(&path, mode).await {
            // Other parts of the process may take the descriptors that are freed here. Each round halves the open
            // files, so it ends.
            Err(error) if error.kind() == ErrorKind::Overloaded => self.open_with_fewer(&path, mode, error).await?,
            opened => opened?,
        };
        self.put(metablock, file.clone());
        Ok(file)
    }

    /// Closes files, the longest unused first, until another one can be opened.
    async fn open_with_fewer(&self, path: &Path, mode: OpenMode, mut last: Error) -> Result<File> {
        loop {
            let closed = self.cells.lock().give_up_half();
            if closed.is_empty() {
                return Err(last);
            }
            tracing::warn!(error = %last, closed = closed.len(), "files are closed to open another one");
            self.closed_one.store(true, Ordering::SeqCst);
            drop(closed);
            match self.disk.open(path, mode).await {
                Err(error) if error.kind() == ErrorKind::Overloaded => last = error,
                opened => return opened,
            }
        }
    }

    /// Makes this the replica's file.
    pub(crate) fn put(&self, metablock: MetablockId, file: File) {
        let closed = self.cells.lock().insert(metablock, file, self.open_max);
        if !closed.is_empty() {
            self.closed_one.store(true, Ordering::SeqCst);
        }
        // Closing a descriptor may wait for the disk, so it is not done under the lock.
        drop(closed);
    }

    /// Whether a file was closed for want of room since the last call. If the kernel then fails to write its data back,
    /// a descriptor that is opened later may not report the error.
    pub(crate) fn take_closed_one(&self) -> bool {
        self.closed_one.swap(false, Ordering::SeqCst)
    }

    /// Forgets a file that is removed or replaced.
    pub(crate) fn forget(&self, metablock: MetablockId) {
        let closed = self.cells.lock().remove(metablock);
        drop(closed);
    }
}

/// Syncs the names in a shard's directory. This opens the directory. If no descriptor is left, it syncs the whole file
/// system, for which a descriptor is kept open.
pub(crate) async fn sync_shard(disk: &Disk, file_system: &FileSystem, root: &Path, shard: u8) -> Result<()> {
    match disk.sync_dir(&shard_path(root, shard)).await {
        Err(error) if error.kind() == ErrorKind::Overloaded => file_system.sync_all().await,
        done => done,
    }
}

impl Cells {
    fn touch(&mut self, metablock: MetablockId) -> Option<File> {
        self.clock += 1;
        let (file, used) = self.files.get_mut(&metablock)?;
        let owner = self.by_use.remove(used);
        assert_eq!(owner, Some(metablock), "an open file has another file's place in the order of use");
        *used = self.clock;
        self.by_use.insert(self.clock, metablock);
        Some(file.clone())
    }

    fn insert(&mut self, metablock: MetablockId, file: File, open_max: usize) -> Vec<File> {
        let mut closed: Vec<File> = self.remove(metablock).into_iter().collect();
        self.clock += 1;
        self.files.insert(metablock, (file, self.clock));
        self.by_use.insert(self.clock, metablock);
        while self.files.len() > open_max {
            let (_, oldest) = self.by_use.pop_first().expect("as many as files");
            closed.extend(self.files.remove(&oldest).map(|(file, _)| file));
        }
        assert!(self.files.len() == self.by_use.len(), "an open file is never closed, or closed too early");
        closed
    }

    /// The longer unused half, rounded up.
    fn give_up_half(&mut self) -> Vec<File> {
        let count = self.files.len().div_ceil(2);
        let oldest: Vec<MetablockId> = self.by_use.values().take(count).copied().collect();
        oldest.into_iter().filter_map(|metablock| self.remove(metablock)).collect()
    }

    fn remove(&mut self, metablock: MetablockId) -> Option<File> {
        let (file, used) = self.files.remove(&metablock)?;
        let owner = self.by_use.remove(&used);
        assert_eq!(owner, Some(metablock), "a closed file leaves another file's place in the order of use");
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_replica() {
        let id = MetablockId::new(0xabc);
        let path = replica_path(Path::new("/v"), id);
        assert_eq!(path, Path::new("/v/replicas/bc/0000000000000abc"));
        assert_eq!(parse_name("0000000000000abc"), Some((id, None)));
        let pull = pull_path(Path::new("/v"), id, 7);
        assert_eq!(parse_name(pull.file_name().unwrap().to_str().unwrap()), Some((id, Some(7))));
        for bad in ["", "abc", "0000000000000abx", "0000000000000abc.pull-", "lost+found"] {
            assert_eq!(parse_name(bad), None);
        }
    }
}
