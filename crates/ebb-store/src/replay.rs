//! Replay of the journal: finds its end, and any damage. See `docs/formats/journal.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_log::{End, find_end, whole_frame};
use ebb_runtime::Disk;
use ebb_types::{Epoch, Incarnation, MetablockId, Result, bail};

use crate::batch::{BatchFraming, decode};
use crate::index::Index;
use crate::journal::NAMES;
use crate::record::Content;
use crate::recover::{Rebuilt, read_segment};

/// The states of an index, while the journal's records are applied to them.
#[derive(Debug)]
pub(crate) struct Replay {
    root: PathBuf,
    incarnation: Incarnation,
    first_segment: u64,
    /// The batch that comes next.
    pub(crate) lsn: u64,
    pub(crate) rebuilt: BTreeMap<MetablockId, Rebuilt>,
    /// Deleted ids, and the epochs below which they refuse.
    pub(crate) tombstones: BTreeMap<MetablockId, Epoch>,
    /// The place at which the next batch was missing, if any.
    stop: Option<(u64, usize)>,
}

impl Replay {
    pub(crate) fn new(root: &Path, index: Index) -> Self {
        let Index { head, replicas, tombstones } = index;
        let rebuilt = replicas.into_iter().map(|(id, state)| (id, Rebuilt { state, ..Rebuilt::default() })).collect();
        Self {
            root: root.to_owned(),
            incarnation: head.incarnation,
            first_segment: head.segment,
            lsn: head.lsn,
            rebuilt,
            tombstones,
            stop: None,
        }
    }

    /// Replays these segments: all that there are from the index's on.
    pub(crate) async fn read(&mut self, disk: &Disk, segments: &[u64]) -> Result<()> {
        for (expected, segment) in (self.first_segment..).zip(segments) {
            let path = NAMES.path(&self.root, expected);
            if expected != *segment {
                bail!(Corrupt, "{} is missing: synced writes are lost", path.display());
            }
            let bytes = read_segment(disk, &path).await?;
            self.take_segment(*segment, &bytes)?;
        }
        Ok(())
    }

    /// Replays a segment's bytes.
    pub(crate) fn take_segment(&mut self, segment: u64, bytes: &Bytes) -> Result<()> {
        let framing = BatchFraming { segment, incarnation: self.incarnation };
        let mut at = 0;
        while let Some(frame) = whole_frame(&framing, &bytes[at.min(bytes.len())..])
            && frame.batch == self.lsn
        {
            let records = decode(&bytes.slice(at..)).map_err(|error| error.context(self.place(segment, at)))?;
            for record in &records {
                if record.content == Content::Delete {
                    let fence = self.tombstones.entry(record.metablock).or_default();
                    *fence = record.after.promised.max(*fence);
                }
                self.rebuilt.entry(record.metablock).or_default().add(record);
            }
            self.lsn += 1;
            self.stop = None;
            at += frame.len;
        }
        let (bad_segment, bad_at) = *self.stop.get_or_insert((segment, at));
        // A batch is written only when the one before it is synced. If one follows, the missing bytes were synced.
        if let End::Damaged { later_at, batch } = find_end(framing, bytes, at, |frame| frame.batch >= self.lsn) {
            bail!(
                Corrupt,
                "{}: damaged; batch {batch} follows in {}, so synced writes are lost here",
                self.place(bad_segment, bad_at),
                self.place(segment, later_at)
            );
        }
        Ok(())
    }

    fn place(&self, segment: u64, offset: usize) -> String {
        format!("{} offset {offset}", NAMES.path(&self.root, segment).display())
    }
}
