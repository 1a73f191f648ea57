//! The log that an earlier process left on a disk, and whether anything is missing from it.

use std::fmt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_log::Names;
use ebb_runtime::Disk;
use ebb_types::{Epoch, InodeId, MetablockId, Result, err};
use ebb_wire::{convert, pb};
use pb::handoff_record::Record;

use crate::book::{Book, Logged};
use crate::record::{self, Behind, Past};

/// The reason to believe that a log has lost confirmed writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Doubt {
    /// Writes are missing for certain. Otherwise the last bytes are no whole record: either a write torn by a power
    /// failure and never confirmed, or a damaged last record. The bytes look the same in both cases.
    pub is_certain: bool,
    /// The damaged file.
    pub path: PathBuf,
    /// Offset of the damage in it.
    pub offset: u64,
    /// Description of the damage.
    pub reason: &'static str,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, byte {}: {}", self.path.display(), self.offset, self.reason)
    }
}

/// The log of an earlier process.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The records that could be read.
    pub book: Book,
    /// The first damage, a certain one if there is any.
    pub doubt: Option<Doubt>,
    /// Number of the newest segment; 0: there is none.
    pub newest: u64,
}

impl Found {
    fn doubt(&mut self, is_certain: bool, path: &Path, offset: u64, reason: &'static str) {
        if self.doubt.as_ref().is_none_or(|doubt| is_certain && !doubt.is_certain) {
            self.doubt = Some(Doubt { is_certain, path: path.to_owned(), offset, reason });
        }
    }
}

/// Names of segments. A disk keeps the names that the format began with.
pub(crate) const NAMES: Names = Names { prefix: "offload-", digits: 0, suffix: "" };

/// Reads the newest segment. `is_expected`: there was a log here before, so a missing one was lost.
pub(crate) async fn find(disk: &Disk, dir: &Path, is_expected: bool) -> Result<Found> {
    let segments = NAMES.numbers(disk, dir).await?;
    let mut found = Found { newest: segments.last().copied().unwrap_or(0), ..Found::default() };
    if segments.is_empty() && is_expected {
        found.doubt(true, dir, 0, "the handoff log is gone");
    }
    // A segment begins with everything that the one before held, so only the newest counts. It got its name after its
    // sync, so a segment without a head is damaged. Then the contents of an older one are better than nothing.
    for segment in segments.iter().rev() {
        let path = NAMES.path(dir, *segment);
        let bytes = disk.read(&path).await?;
        match take_segment(&mut found, &path, *segment, bytes).map_err(|error| error.context(path.display()))? {
            true => break,
            false => found.doubt(true, &path, 0, "this is no head of a segment of this number: it is damaged"),
        }
    }
    Ok(found)
}

/// Adds the records of a segment. False if its head is not valid.
pub(crate) fn take_segment(found: &mut Found, path: &Path, segment: u64, bytes: Bytes) -> Result<bool> {
    let Some(past) = record::read_head(&bytes, segment)? else { return Ok(false) };
    found.doubt = found.doubt.take().or_else(|| doubt_of(past, path));
    read(found, path, &bytes)?;
    Ok(true)
}

fn doubt_of(past: Past, path: &Path) -> Option<Doubt> {
    let (is_certain, reason) = match past {
        Past::Whole => return None,
        Past::PerhapsDamaged => (false, "an earlier segment ended within a record"),
        Past::Damaged => (true, "an earlier segment was damaged"),
    };
    Some(Doubt { is_certain, path: path.to_owned(), offset: 0, reason })
}

/// Reads the records of a segment. Damage loses the records that it hits, not those behind.
fn read(found: &mut Found, path: &Path, bytes: &Bytes) -> Result<()> {
    let mut at = record::HEAD_BYTES;
    let mut behind = None;
    while at < bytes.len() {
        match record::decode(&bytes.slice(at..)) {
            Some((entries, length)) => {
                for (record, payload) in entries {
                    apply(&mut found.book, record, &payload)?;
                }
                at += length;
            }
            None => match behind.get_or_insert_with(|| Behind::new(bytes)).find(at) {
                Some(next) => {
                    found.doubt(true, path, at as u64, "this is no whole record, and others follow it: it is damaged");
                    at = next;
                }
                None => {
                    found.doubt(false, path, at as u64, "the log ends within a record: torn by a failure, or damaged");
                    break;
                }
            },
        }
    }
    Ok(())
}

fn apply(book: &mut Book, record: Record, payload: &Bytes) -> Result<()> {
    match record {
        Record::Append(message) => {
            let (inode, epoch) = (InodeId::new(message.inode), Epoch::new(message.epoch));
            let writes = record::split(message.writes, payload)?;
            apply_append(book, inode, epoch, &message.cuts, writes);
        }
        Record::Promise(file) => book.apply_promise(InodeId::new(file.inode), Epoch::new(file.epoch)),
        Record::Cut(file) => apply_cuts(book, InodeId::new(file.inode), &file.last),
        Record::Batch(_) => return Err(err!(Internal, "a batch within a batch is no record")),
    }
    Ok(())
}

/// Applies a call of a holder: first the cuts, for writes that all members have, then the writes that they lack.
pub(crate) fn apply_append(book: &mut Book, inode: InodeId, epoch: Epoch, cuts: &[pb::LogCut], writes: Vec<Logged>) {
    apply_cuts(book, inode, cuts);
    book.apply_append(inode, epoch, writes);
}

/// Removes the writes up to these versions, which are not needed any more.
pub(crate) fn apply_cuts(book: &mut Book, inode: InodeId, cuts: &[pb::LogCut]) {
    for cut in cuts {
        book.apply_cut(inode, MetablockId::new(cut.metablock), convert::version(cut.version));
    }
}
