//! The journal's segments: appending to the newest, reusing old ones. See `docs/formats/journal.md`.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_runtime::{Disk, File, OpenMode};
use ebb_types::{ErrorKind, Incarnation, Result};

use crate::batch::{BATCH_ALIGN, BatchBody, BatchPlace};

/// Segments kept for reuse after a checkpoint.
const SPARES_MAX: usize = 4;

/// Name of a segment's file.
pub(crate) fn segment_path(root: &Path, segment: u64) -> PathBuf {
    root.join(format!("journal-{segment}"))
}

/// The end of the journal, where batches are appended.
///
/// Invariant: at most one batch, the last, has been written and not synced.
#[derive(Debug)]
pub(crate) struct Journal {
    disk: Disk,
    root: PathBuf,
    incarnation: Incarnation,
    segment_bytes: u64,
    /// The newest segment, and how long its file is; none before its first batch.
    file: Option<(File, u64)>,
    segment: u64,
    offset: u64,
    lsn: u64,
    /// Segments that no replay needs: their numbers and lengths.
    spares: Vec<(u64, u64)>,
    /// Older segments that a replay would need: their numbers and lengths.
    needed: Vec<(u64, u64)>,
    /// Bytes appended since the last checkpoint began.
    appended_bytes: u64,
}

impl Journal {
    /// A journal that goes on with an empty segment `segment`, whose file does not exist, and batch `lsn`.
    pub(crate) fn new(
        disk: Disk,
        root: &Path,
        incarnation: Incarnation,
        segment_bytes: u64,
        segment: u64,
        lsn: u64,
    ) -> Self {
        Self {
            disk,
            root: root.to_owned(),
            incarnation,
            segment_bytes: segment_bytes.next_multiple_of(BATCH_ALIGN),
            file: None,
            segment,
            offset: 0,
            lsn,
            spares: Vec::new(),
            needed: Vec::new(),
            appended_bytes: 0,
        }
    }

    /// Takes over a segment that no replay needs, `len` bytes long.
    pub(crate) fn adopt_spare(&mut self, segment: u64, len: u64) {
        self.spares.push((segment, len));
    }

    /// Appends a batch and syncs it (`sync` is false only where that mistake is planted). An error of kind `NoSpace` leaves the journal as it was; after any other one it
    /// is not known what is on disk.
    pub(crate) async fn append(&mut self, body: BatchBody, sync: bool) -> Result<()> {
        let len = body.len().next_multiple_of(BATCH_ALIGN);
        if self.file.as_ref().is_some_and(|(_, file_len)| self.offset + len > *file_len) {
            self.begin_segment();
        }
        if self.file.is_none() {
            self.file = Some(self.make_segment(len).await?);
        }
        let (file, _) = self.file.as_ref().expect("made above");
        let place = BatchPlace { lsn: self.lsn, segment: self.segment, incarnation: self.incarnation };
        file.write_at(self.offset, body.encode(place)).await?;
        if sync {
            file.sync_data().await?;
        }
        self.offset += len;
        self.lsn += 1;
        self.appended_bytes += len;
        Ok(())
    }

    /// Goes on in a new segment; returns its number and the lsn of its first batch. What came before is needed until
    /// [`Journal::release`].
    pub(crate) fn rotate(&mut self) -> (u64, u64) {
        self.begin_segment();
        self.appended_bytes = 0;
        (self.segment, self.lsn)
    }

    /// Bytes appended since the last [`Journal::rotate`].
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// Segments below `first` are not needed any more: keeps some for reuse and removes the others.
    pub(crate) async fn release(&mut self, first: u64) -> Result<()> {
        let (free, needed) = std::mem::take(&mut self.needed).into_iter().partition(|(segment, _)| *segment < first);
        self.needed = needed;
        self.spares.extend::<Vec<_>>(free);
        while self.spares.len() > SPARES_MAX {
            let (segment, _) = self.spares[0];
            self.disk.remove_file(&segment_path(&self.root, segment)).await?;
            self.spares.remove(0);
        }
        Ok(())
    }

    fn begin_segment(&mut self) {
        // A segment without a file keeps its number: numbers have no gaps.
        if let Some((_, len)) = self.file.take() {
            self.needed.push((self.segment, len));
            self.segment += 1;
            self.offset = 0;
        }
    }

    /// Makes the file of the newest segment, big enough for a batch of `len` bytes.
    async fn make_segment(&mut self, len: u64) -> Result<(File, u64)> {
        let path = segment_path(&self.root, self.segment);
        if let Some(at) = self.spares.iter().position(|(_, spare_len)| *spare_len >= len) {
            let (spare, spare_len) = self.spares[at];
            self.disk.rename(&segment_path(&self.root, spare), &path).await?;
            self.spares.remove(at);
            let file = self.disk.open(&path, OpenMode::Existing).await?;
            // Ordering: the name before the first batch that is found by it.
            self.disk.sync_dir(&self.root).await?;
            return Ok((file, spare_len));
        }
        let file_len = self.segment_bytes.max(len);
        match self.fill_segment(&path, file_len).await {
            Ok(file) => Ok((file, file_len)),
            Err(error) => {
                if error.kind() == ErrorKind::NoSpace {
                    // Best effort: without the file the next attempt starts afresh.
                    let _ = self.disk.remove_file(&path).await;
                }
                Err(error)
            }
        }
    }

    async fn fill_segment(&self, path: &Path, len: u64) -> Result<File> {
        let file = self.disk.open(path, OpenMode::Create).await?;
        file.set_len(0).await?;
        let zeros = Bytes::from(vec![0; (1 << 20).min(len as usize)]);
        let mut at = 0;
        while at < len {
            let step = (len - at).min(zeros.len() as u64);
            file.write_at(at, vec![zeros.slice(..step as usize)]).await?;
            at += step;
        }
        file.sync_data().await?;
        self.disk.sync_dir(&self.root).await?;
        Ok(file)
    }
}
