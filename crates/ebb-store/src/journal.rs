//! The journal's segments: appending to the newest, reusing old ones. See `docs/formats/journal.md`.

use std::path::{Path, PathBuf};

use ebb_log::{Appender, Names, Sync, make};
use ebb_runtime::{Disk, File, OpenMode};
use ebb_types::{ErrorKind, Incarnation, Result, bail};

use crate::batch::{BATCH_ALIGN, BatchBody, BatchPlace};

/// Segments kept for reuse after a checkpoint while the volume is busy: making one costs as many bytes as it will hold.
const SPARES_BUSY: usize = 16;

/// Segments kept for reuse when the volume rests.
const SPARES_RESTING: usize = 3;

/// Number of the segment in reserve: below all segments with batches.
pub(crate) const RESERVE: u64 = 0;

/// Names of segments.
pub(crate) const NAMES: Names = Names { prefix: "journal-", digits: 0, suffix: "" };

/// A segment that is not appended to.
#[derive(Clone, Copy, Debug)]
struct Segment {
    number: u64,
    /// Length of its file.
    bytes: u64,
}

/// The journal of an open volume.
///
/// ```text
///   spares        needed        newest
///   3  4          5  6          7
///   free to be    a replay      batches are
///   used again    reads them    appended here
/// ```
/// Invariant: `needed` are the segments from the index's on, without gaps, and the newest follows the last of them.
#[derive(Debug)]
pub(crate) struct Journal {
    disk: Disk,
    root: PathBuf,
    incarnation: Incarnation,
    segment_bytes: u64,
    /// The end of the newest segment; none before its first batch.
    newest: Option<Appender>,
    /// Number of the newest segment.
    segment: u64,
    /// Number of the next batch.
    lsn: u64,
    /// Segments that no replay needs.
    spares: Vec<Segment>,
    /// Older segments that a replay would need, in order.
    needed: Vec<Segment>,
    /// Bytes appended since the last checkpoint began.
    appended_bytes: u64,
    /// Nothing was appended since the last seal.
    sealed: bool,
}

impl Journal {
    /// A journal that goes on with batch `lsn` in segment `segment`. The segment is empty and has no file yet.
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
            newest: None,
            segment,
            lsn,
            spares: Vec::new(),
            needed: Vec::new(),
            appended_bytes: 0,
            sealed: true,
        }
    }

    /// Takes over a segment that no replay needs, `bytes` long.
    pub(crate) fn adopt_spare(&mut self, number: u64, bytes: u64) {
        assert!(number < self.segment, "segment {number} is not older than the newest, {}", self.segment);
        self.spares.push(Segment { number, bytes });
    }

    /// Makes sure that there is a segment for deletions when the disk is full.
    pub(crate) async fn stock_up(&mut self) -> Result<()> {
        if self.spares.is_empty() {
            let bytes = self.segment_bytes;
            self.fill_segment(&NAMES.path(&self.root, RESERVE), bytes).await?;
            self.spares.push(Segment { number: RESERVE, bytes });
        }
        Ok(())
    }

    /// Appends a batch. An error of kind `NoSpace` or `Overloaded` leaves the journal as it was. After any other error
    /// the contents on disk are unknown.
    pub(crate) async fn append(&mut self, body: BatchBody, sync: Sync) -> Result<()> {
        let len = body.len().next_multiple_of(BATCH_ALIGN);
        if self.newest.as_ref().is_some_and(|newest| newest.room() < len) {
            self.begin_segment();
        }
        if self.newest.is_none() {
            let (file, end) = self.make_segment(len, body.has_data()).await?;
            self.newest = Some(Appender::within(file, 0, end));
        }
        self.write_batch(body, sync).await?;
        self.sealed = false;
        Ok(())
    }

    /// Writes an empty batch behind the last one, if there is none yet: proof that the last one was synced, should it
    /// ever be damaged. Does nothing if the segment has no room: then the next batch is the proof.
    pub(crate) async fn seal(&mut self) -> Result<()> {
        let has_room = self.newest.as_ref().is_some_and(|newest| newest.room() >= BATCH_ALIGN);
        if !self.sealed && has_room {
            self.write_batch(BatchBody::default(), Sync::Now).await?;
        }
        self.sealed = true;
        Ok(())
    }

    /// Whether a seal follows the last batch, or there is no batch.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed
    }

    async fn write_batch(&mut self, body: BatchBody, sync: Sync) -> Result<()> {
        let len = body.len().next_multiple_of(BATCH_ALIGN);
        let newest = self.newest.as_mut().expect("made by the caller");
        if !newest.is_sound() {
            bail!(Io, "{}: takes no batch since an earlier failure", NAMES.path(&self.root, self.segment).display());
        }
        // No synced page is written again.
        assert!(newest.position().is_multiple_of(BATCH_ALIGN), "a batch at {}", newest.position());
        let place = BatchPlace { lsn: self.lsn, segment: self.segment, incarnation: self.incarnation };
        newest.append(body.encode(place), len, sync).await?;
        self.lsn += 1;
        self.appended_bytes += len;
        Ok(())
    }

    /// Goes on in a new segment. Returns its number and the lsn of its first batch. Earlier segments are needed until
    /// [`Journal::release`].
    pub(crate) fn rotate(&mut self) -> (u64, u64) {
        self.begin_segment();
        self.appended_bytes = 0;
        // The index that is made now is the proof for all earlier batches.
        self.sealed = true;
        (self.segment, self.lsn)
    }

    /// Bytes appended since the last [`Journal::rotate`].
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// Segments below `first` are not needed any more: keeps some for reuse and removes the others.
    pub(crate) async fn release(&mut self, first: u64) -> Result<()> {
        assert!(first <= self.segment, "segment {first} is not begun: the newest is {}", self.segment);
        let (free, needed): (Vec<_>, _) = self.needed.iter().partition(|segment| segment.number < first);
        self.needed = needed;
        self.spares.extend(free);
        self.trim(SPARES_BUSY).await
    }

    /// Frees space that a resting volume does not need.
    pub(crate) async fn rest(&mut self) -> Result<()> {
        self.trim(SPARES_RESTING).await
    }

    async fn trim(&mut self, kept: usize) -> Result<()> {
        while self.spares.len() > kept {
            self.disk.remove_file(&NAMES.path(&self.root, self.spares[0].number)).await?;
            self.spares.remove(0);
        }
        Ok(())
    }

    /// The lsn of the next batch.
    pub(crate) fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Number of the newest segment.
    pub(crate) fn segment(&self) -> u64 {
        self.segment
    }

    fn begin_segment(&mut self) {
        // A segment without a file keeps its number: numbers have no gaps.
        if let Some(newest) = self.newest.take() {
            assert!(self.needed.last().is_none_or(|last| last.number < self.segment), "segments have an order");
            self.needed.push(Segment { number: self.segment, bytes: newest.file_bytes() });
            self.segment += 1;
        }
    }

    /// Makes the file of the newest segment, big enough for a batch of `len` bytes. The last spare is left for batches
    /// without data. If deletions could not get through on a full disk, it would stay full.
    async fn make_segment(&mut self, len: u64, has_data: bool) -> Result<(File, u64)> {
        if self.spares.len() > 1
            && let Some(made) = self.reuse_segment(len).await?
        {
            return Ok(made);
        }
        let path = NAMES.path(&self.root, self.segment);
        let file_len = self.segment_bytes.max(len);
        // A long batch goes to allocated space, and pays for the file system's metadata about it. Writing zeros first
        // would cost as much as the batch itself.
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
        let Some(at) = self.spares.iter().position(|spare| spare.bytes >= len) else { return Ok(None) };
        let spare = self.spares[at];
        let path = NAMES.path(&self.root, self.segment);
        // The spare is removed after the rename: if the disk refuses that, the spare stays, for it may be the one in
        // reserve.
        self.disk.rename(&NAMES.path(&self.root, spare.number), &path).await?;
        self.spares.remove(at);
        // Ordering: the name is durable before the first batch in the segment.
        self.disk.sync_dir(&self.root).await?;
        Ok(Some((self.disk.open(&path, OpenMode::Existing).await?, spare.bytes)))
    }

    async fn allocate_segment(&self, path: &Path, len: u64) -> Result<File> {
        let file = self.disk.open(path, OpenMode::Create).await?;
        file.set_len(0).await?;
        make::allocate(&file, len).await?;
        self.disk.sync_dir(&self.root).await?;
        Ok(file)
    }

    async fn fill_segment(&self, path: &Path, len: u64) -> Result<File> {
        let file = self.disk.open(path, OpenMode::Create).await?;
        file.set_len(0).await?;
        make::fill(&file, len).await?;
        self.disk.sync_dir(&self.root).await?;
        Ok(file)
    }
}
