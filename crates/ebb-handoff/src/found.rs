//! What is found on a disk of a log that was written by an earlier process, and whether anything is missing.

use std::fmt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_runtime::Disk;
use ebb_types::{Epoch, InodeId, MetablockId, Result};
use ebb_wire::{convert, pb};
use pb::handoff_record::Record;

use crate::book::{Book, Logged};
use crate::record::{self, Past, Search};

/// Why a log may not have everything that it confirmed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Doubt {
    /// Something is missing for certain. Otherwise the last bytes are no whole record: a write that was never confirmed,
    /// for the power failed, or the last record, damaged. Nothing tells the two apart.
    pub is_certain: bool,
    /// Which file.
    pub path: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// What is wrong there.
    pub what: &'static str,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, byte {}: {}", self.path.display(), self.offset, self.what)
    }
}

/// What an earlier process left.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// What could be read.
    pub book: Book,
    /// The first thing that is wrong, a certain one if there is any.
    pub doubt: Option<Doubt>,
    /// Number of the newest segment; 0: there is none.
    pub newest: u64,
}

impl Found {
    fn doubt(&mut self, is_certain: bool, path: &Path, offset: u64, what: &'static str) {
        if self.doubt.as_ref().is_none_or(|doubt| is_certain && !doubt.is_certain) {
            self.doubt = Some(Doubt { is_certain, path: path.to_owned(), offset, what });
        }
    }
}

/// The path of a segment.
pub(crate) fn path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(format!("offload-{segment}"))
}

/// Reads the newest segment. `is_expected`: there was a log here before, so one that is not there was lost.
pub(crate) async fn find(disk: &Disk, dir: &Path, is_expected: bool) -> Result<Found> {
    let names = disk.read_dir(dir).await?;
    let mut segments: Vec<u64> = names.iter().filter_map(|name| name.strip_prefix("offload-")?.parse().ok()).collect();
    segments.sort_unstable();
    let mut found = Found { newest: segments.last().copied().unwrap_or(0), ..Found::default() };
    if segments.is_empty() && is_expected {
        found.doubt(true, dir, 0, "the handoff log is gone");
    }
    // A segment begins with everything that the one before held: only the newest counts. It got its name when it was
    // synced, so one without a head is damaged; what an older one holds is better than nothing.
    for segment in segments.iter().rev() {
        let path = path(dir, *segment);
        let bytes = disk.read(&path).await?;
        match take_segment(&mut found, &path, *segment, bytes).map_err(|error| error.context(path.display()))? {
            true => break,
            false => found.doubt(true, &path, 0, "this is no head of a segment of this number: it is damaged"),
        }
    }
    Ok(found)
}

/// Takes in what a segment's bytes say; false if they have no head of it.
pub(crate) fn take_segment(found: &mut Found, path: &Path, segment: u64, bytes: Bytes) -> Result<bool> {
    let Some(past) = record::read_head(&bytes, segment)? else { return Ok(false) };
    found.doubt = found.doubt.take().or_else(|| doubt_of(past, path));
    read(found, path, &bytes)?;
    Ok(true)
}

fn doubt_of(past: Past, path: &Path) -> Option<Doubt> {
    let (is_certain, what) = match past {
        Past::Whole => return None,
        Past::PerhapsDamaged => (false, "an earlier segment ended within a record"),
        Past::Damaged => (true, "an earlier segment was damaged"),
    };
    Some(Doubt { is_certain, path: path.to_owned(), offset: 0, what })
}

/// Reads the records of a segment. Damage costs the records that it hits, not those behind.
fn read(found: &mut Found, path: &Path, bytes: &Bytes) -> Result<()> {
    let mut at = record::HEAD_BYTES;
    let mut search = None;
    while at < bytes.len() {
        match record::decode(&bytes.slice(at..)) {
            Some((record, payload, length)) => {
                apply(&mut found.book, record, &payload)?;
                at += length;
            }
            None => match search.get_or_insert_with(|| Search::new(bytes)).next(at) {
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
    }
    Ok(())
}

/// A call of a holder: what all members have, then what they lack.
pub(crate) fn apply_append(book: &mut Book, inode: InodeId, epoch: Epoch, cuts: &[pb::LogCut], writes: Vec<Logged>) {
    apply_cuts(book, inode, cuts);
    book.apply_append(inode, epoch, writes);
}

/// Nobody needs what was logged up to these versions.
pub(crate) fn apply_cuts(book: &mut Book, inode: InodeId, cuts: &[pb::LogCut]) {
    for cut in cuts {
        book.apply_cut(inode, MetablockId::new(cut.metablock), convert::version(cut.version));
    }
}
