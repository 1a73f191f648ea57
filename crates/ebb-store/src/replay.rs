//! Reading the journal back: where it ends, and where it is damaged. See `docs/formats/journal.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_runtime::Disk;
use ebb_types::{Epoch, Incarnation, MetablockId, Result, bail};

use crate::batch::{BATCH_ALIGN, decode, recognise};
use crate::index::Index;
use crate::journal::segment_path;
use crate::record::Content;
use crate::recover::{Rebuilt, read_segment};

/// The states of an index, on their way through the journal.
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
    /// Where the next batch should have been, if it was not there.
    stop: Option<(u64, u64)>,
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

    /// Takes in these segments, which are all that there are from the index's on.
    pub(crate) async fn read(&mut self, disk: &Disk, segments: &[u64]) -> Result<()> {
        for (expected, segment) in (self.first_segment..).zip(segments) {
            let path = segment_path(&self.root, expected);
            if expected != *segment {
                bail!(Corrupt, "{} is missing: synced writes are lost", path.display());
            }
            let bytes = read_segment(disk, &path).await?;
            self.take_segment(*segment, &bytes)?;
        }
        Ok(())
    }

    /// Takes in a segment's bytes.
    pub(crate) fn take_segment(&mut self, segment: u64, bytes: &Bytes) -> Result<()> {
        let mut offset = 0;
        while let Some(rest) = (offset < bytes.len()).then(|| bytes.slice(offset..)) {
            if recognise(&rest, segment, self.incarnation) != Some(self.lsn) {
                break;
            }
            let batch = decode(&rest).map_err(|error| error.context(self.place(segment, offset as u64)))?;
            for record in &batch.records {
                if record.content == Content::Delete {
                    let fence = self.tombstones.entry(record.metablock).or_default();
                    *fence = record.after.promised.max(*fence);
                }
                self.rebuilt.entry(record.metablock).or_default().add(record);
            }
            self.lsn += 1;
            self.stop = None;
            offset += batch.len as usize;
        }
        self.stop.get_or_insert((segment, offset as u64));
        self.check_nothing_follows(segment, offset, bytes)
    }

    /// A batch is written only when the one before it is synced: if one follows, what is missing here was synced.
    fn check_nothing_follows(&self, segment: u64, from: usize, bytes: &Bytes) -> Result<()> {
        for at in (from..bytes.len()).step_by(BATCH_ALIGN as usize) {
            if let Some(lsn) = recognise(&bytes[at..], segment, self.incarnation).filter(|lsn| *lsn >= self.lsn) {
                let (bad_segment, bad_offset) = self.stop.expect("set before");
                bail!(
                    Corrupt,
                    "{}: damaged; batch {lsn} follows in {}, so synced writes are lost here",
                    self.place(bad_segment, bad_offset),
                    self.place(segment, at as u64)
                );
            }
        }
        Ok(())
    }

    fn place(&self, segment: u64, offset: u64) -> String {
        format!("{} offset {offset}", segment_path(&self.root, segment).display())
    }
}
