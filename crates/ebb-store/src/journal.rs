//! The journal's segments: appending to the newest, reusing old ones. See `docs/formats/journal.md`.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_runtime::{Disk, File, OpenMode};
use ebb_types::{ErrorKind, Incarnation, Result, err};

use crate::batch::{BATCH_ALIGN, BatchBody, BatchPlace};

/// Segments kept for reuse after a checkpoint while the volume is busy: making one costs as many bytes as it will hold.
const SPARES_BUSY: usize = 16;

/// And when it rests.
const SPARES_RESTING: usize = 3;

/// Number of a segment that was made to lie in reserve: below all that hold batches.
const RESERVE: u64 = 0;

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
    /// Nothing was appended since the last seal.
    sealed: bool,
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
            sealed: true,
        }
    }

    /// Takes over a segment that no replay needs, `len` bytes long.
    pub(crate) fn adopt_spare(&mut self, segment: u64, len: u64) {
        self.spares.push((segment, len));
    }

    /// Makes sure that there is a segment which deletions can go to when the disk is full.
    pub(crate) async fn stock_up(&mut self) -> Result<()> {
        if self.spares.is_empty() {
            let len = self.segment_bytes;
            self.fill_segment(&segment_path(&self.root, RESERVE), len).await?;
            self.spares.push((RESERVE, len));
        }
        Ok(())
    }

    /// Appends a batch and syncs it (`sync` is false only where that mistake is planted). An error of kind `NoSpace` or
    /// `Overloaded` leaves the journal as it was; after any other one it is not known what is on disk.
    pub(crate) async fn append(&mut self, body: BatchBody, sync: bool) -> Result<()> {
        let len = body.len().next_multiple_of(BATCH_ALIGN);
        if self.file.as_ref().is_some_and(|(_, file_len)| self.offset + len > *file_len) {
            self.begin_segment();
        }
        if self.file.is_none() {
            self.file = Some(self.make_segment(len, body.has_data()).await?);
        }
        self.write_batch(body, sync).await?;
        self.sealed = false;
        Ok(())
    }

    /// Writes an empty batch behind the last one, if there is none yet: proof that the last one was synced, should it
    /// ever be damaged. Does nothing where the segment has no room: the next batch is the proof then.
    pub(crate) async fn seal(&mut self) -> Result<()> {
        let has_room = self.file.as_ref().is_some_and(|(_, file_len)| self.offset + BATCH_ALIGN <= *file_len);
        if !self.sealed && has_room {
            self.write_batch(BatchBody::default(), true).await?;
        }
        self.sealed = true;
        Ok(())
    }

    /// Whether the last batch is followed by a seal, or there is none.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed
    }

    async fn write_batch(&mut self, body: BatchBody, sync: bool) -> Result<()> {
        let len = body.len().next_multiple_of(BATCH_ALIGN);
        let (file, _) = self.file.as_ref().expect("made by the caller");
        let place = BatchPlace { lsn: self.lsn, segment: self.segment, incarnation: self.incarnation };
        file.write_at(self.offset, body.encode(place)).await?;
        if sync {
            // Also where it says that there is no space: it is not known what is on disk.
            file.sync_data().await.map_err(|error| err!(Io, "{error}"))?;
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
        // The index that is made now says what was synced.
        self.sealed = true;
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
        self.trim(SPARES_BUSY).await
    }

    /// Gives space back that a resting volume does not need.
    pub(crate) async fn rest(&mut self) -> Result<()> {
        self.trim(SPARES_RESTING).await
    }

    async fn trim(&mut self, kept: usize) -> Result<()> {
        while self.spares.len() > kept {
            let (segment, _) = self.spares[0];
            self.disk.remove_file(&segment_path(&self.root, segment)).await?;
            self.spares.remove(0);
        }
        Ok(())
    }

    /// That of the next batch.
    pub(crate) fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Number of the newest segment.
    pub(crate) fn segment(&self) -> u64 {
        self.segment
    }

    fn begin_segment(&mut self) {
        // A segment without a file keeps its number: numbers have no gaps.
        if let Some((_, len)) = self.file.take() {
            self.needed.push((self.segment, len));
            self.segment += 1;
            self.offset = 0;
        }
    }

    /// Makes the file of the newest segment, big enough for a batch of `len` bytes. The last spare is left for batches
    /// without data: deletions must get through when the disk is full, or it stays full.
    async fn make_segment(&mut self, len: u64, has_data: bool) -> Result<(File, u64)> {
        if self.spares.len() > 1
            && let Some(made) = self.reuse_segment(len).await?
        {
            return Ok(made);
        }
        let path = segment_path(&self.root, self.segment);
        let file_len = self.segment_bytes.max(len);
        // A long batch pays for what the file system notes about new space; zeros for its sake would cost as much as it
        // does.
        let made = match len >= self.segment_bytes / 4 {
            true => self.allocate_segment(&path, file_len).await,
            false => self.fill_segment(&path, file_len).await,
        };
        match made {
            Ok(file) => Ok((file, file_len)),
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                // Best effort: without the file the next attempt starts afresh.
                let _ = self.disk.remove_file(&path).await;
                let reused = if has_data { None } else { self.reuse_segment(len).await? };
                reused.ok_or(error)
            }
            Err(error) if error.kind() == ErrorKind::Overloaded => {
                let _ = self.disk.remove_file(&path).await;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Renames a spare segment to be the newest one, if one is big enough.
    async fn reuse_segment(&mut self, len: u64) -> Result<Option<(File, u64)>> {
        let path = segment_path(&self.root, self.segment);
        if let Some(at) = self.spares.iter().position(|(_, spare_len)| *spare_len >= len) {
            let (spare, spare_len) = self.spares[at];
            self.disk.rename(&segment_path(&self.root, spare), &path).await?;
            self.spares.remove(at);
            let file = self.disk.open(&path, OpenMode::Existing).await?;
            // Ordering: the name before the first batch that is found by it.
            self.disk.sync_dir(&self.root).await?;
            return Ok(Some((file, spare_len)));
        }
        Ok(None)
    }

    async fn allocate_segment(&self, path: &Path, len: u64) -> Result<File> {
        let file = self.disk.open(path, OpenMode::Create).await?;
        file.set_len(0).await?;
        file.allocate(0, len).await?;
        file.set_len(len).await?;
        file.sync_data().await?;
        self.disk.sync_dir(&self.root).await?;
        Ok(file)
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
