//! One file of the log: its header, and what its bytes mean after a crash or damage.
//!
//! A segment is zero-filled and synced before its first use, so that an append needs one fdatasync and no change of
//! the file's size. Bytes 0..64 are the header: magic "EBBMLOG1", format u32, zeros u32, cluster u64, sequence u64,
//! first batch u64 (little-endian), zeros, and at 60 the CRC-32C of bytes 0..60.

use std::path::Path;

use ebb_log::{End, find_end};
use ebb_types::{ClusterId, Result, bail, err};
use ebb_wire::frame::crc32c;

use crate::log::record::{Found, NUMBER_MAX, Record, RecordFraming, parse_record_behind};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER_LEN: usize = 64;

const MAGIC: &[u8; 8] = b"EBBMLOG1";
const FORMAT: u32 = 1;
/// No honest log has batches this far ahead of the last one read: it bounds the search for records behind damage.
const BATCH_LOOKAHEAD: u64 = 1 << 32;

/// The header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// Whose log it is.
    pub cluster: ClusterId,
    /// Its number; they follow each other without gaps.
    pub sequence: u64,
    /// The batch that its first record has.
    pub first_batch: u64,
}

impl SegmentHeader {
    /// The header as it lies on disk.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_LEN] {
        let mut out = [0; SEGMENT_HEADER_LEN];
        out[0..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[16..24].copy_from_slice(&self.cluster.raw().to_le_bytes());
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..40].copy_from_slice(&self.first_batch.to_le_bytes());
        let crc = crc32c(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads and checks a header.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Self> {
        let Some(bytes) = bytes.get(..SEGMENT_HEADER_LEN) else {
            bail!(Corrupt, "{}: too short for a log segment, damaged at offset 0; {ADVICE}", path.display());
        };
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if &bytes[0..8] != MAGIC {
            bail!(Corrupt, "{}: not a log segment of a master (magic at offset 0 differs); {ADVICE}", path.display());
        }
        if bytes[60..64] != crc32c(&bytes[..60]).to_le_bytes() {
            bail!(Corrupt, "{}: checksum of the header (offset 0) does not match; {ADVICE}", path.display());
        }
        let format = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        if format != FORMAT {
            bail!(
                Unsupported,
                "{}: log format {format}, this release reads {FORMAT}: use the release that wrote it",
                path.display()
            );
        }
        let header = Self { cluster: ClusterId::new(u64_at(16)), sequence: u64_at(24), first_batch: u64_at(32) };
        let is_possible = |number| (1..=NUMBER_MAX).contains(&number);
        if !is_possible(header.sequence) || !is_possible(header.first_batch) {
            let Self { sequence, first_batch, .. } = header;
            bail!(
                Corrupt,
                "{}: segment {sequence} with batches from {first_batch} on: no log gets there; {ADVICE}",
                path.display()
            );
        }
        Ok(header)
    }
}

const ADVICE: &str = "the disk lost or changed bytes that were synced: copy the data directory away before anything \
                      else, then put the newest saved copy of it in place; one that is older than what nodes have seen is \
                      refused, and `ebb master accept-loss` goes on with it (see docs/formats/master-log.md)";

/// Where a segment stands in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// Others follow: it was complete and synced before they were begun.
    Inner,
    /// The last one: a crash may have torn its last write.
    Last,
}

/// What was found in a segment.
#[derive(Clone, PartialEq, Debug)]
pub enum Scanned {
    /// To be taken over.
    Record(Record),
    /// Entries that a checkpoint holds, the last with this index.
    Passed(u64),
}

/// What a segment holds.
#[derive(Debug)]
pub struct Scan {
    /// Records of complete batches, in order.
    pub records: Vec<Scanned>,
    /// Where the next record goes.
    pub end: usize,
    /// The batch of the last record, or the one before the segment's first.
    pub last_batch: u64,
    /// Bytes of a torn write lie behind `end`: they must be zeroed before the log goes on.
    pub torn: bool,
}

/// Reads a segment's records; entries up to `after` are passed over.
///
/// A crash can tear only the last batch, because each batch is synced before the next is written. So an invalid
/// record without a valid one of a *later* batch behind it is a torn tail, and its batch is left out as a whole. All
/// other damage hits synced bytes and is refused with kind `Corrupt`, file and offset.
pub fn scan(bytes: &[u8], header: &SegmentHeader, position: Position, path: &Path, after: u64) -> Result<Scan> {
    let mut done =
        Scan { records: Vec::new(), end: SEGMENT_HEADER_LEN, last_batch: header.first_batch - 1, torn: false };
    let mut open: Vec<Scanned> = Vec::new();
    let mut at = SEGMENT_HEADER_LEN;
    loop {
        let found = parse_record_behind(&bytes[at..], after)
            .map_err(|error| error.context(format!("{} at offset {at}", path.display())))?;
        let (batch, last, len, scanned) = match found {
            Found::Record(placed, len) => (placed.batch, placed.last, len, Scanned::Record(placed.record)),
            Found::Passed(batch, last, index, len) => (batch, last, len, Scanned::Passed(index)),
            Found::Free | Found::Bad => break,
        };
        // A record of another batch stands where the open batch goes on: that batch lost its place.
        if batch != done.last_batch + 1 {
            return Err(damage(path, at, &format!("batch {batch} after batch {}", done.last_batch)));
        }
        at += len;
        match (&scanned, open.last_mut()) {
            (Scanned::Passed(index), Some(Scanned::Passed(before))) => *before = *index,
            _ => open.push(scanned),
        }
        if last {
            done.records.append(&mut open);
            done.end = at;
            done.last_batch = batch;
        }
    }
    // A record of the batch that is torn may lie whole behind its torn part.
    let later = done.last_batch + 2;
    match find_end(RecordFraming, bytes, at, |frame| (later..later + BATCH_LOOKAHEAD).contains(&frame.batch)) {
        End::Free if open.is_empty() => {}
        End::Damaged { batch, .. } => {
            return Err(damage(path, at, &format!("no valid record, but batch {batch} behind it")));
        }
        End::Free | End::Torn if position == Position::Inner => {
            return Err(damage(path, at, "no valid record, but a later segment follows"));
        }
        End::Free | End::Torn => done.torn = true,
    }
    Ok(done)
}

pub(super) fn damage(path: &Path, at: usize, reason: &str) -> ebb_types::Error {
    err!(Corrupt, "{}: damaged at offset {at}: {reason}; {ADVICE}", path.display())
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    /// A header with these bytes instead, and the right sum.
    fn header(at: usize, bytes: &[u8]) -> Vec<u8> {
        let header = SegmentHeader { cluster: ClusterId::new(7), sequence: 3, first_batch: 12 };
        let mut out = header.encode().to_vec();
        out[at..at + bytes.len()].copy_from_slice(bytes);
        let sum = crc32c(&out[..60]);
        out[60..64].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn refused(bytes: &[u8]) -> ebb_types::Error {
        SegmentHeader::decode(bytes, Path::new("/m/log-3.segment")).unwrap_err()
    }

    #[test]
    fn another_format_is_refused_by_name() {
        for format in [0_u32, 2] {
            let error = refused(&header(8, &format.to_le_bytes()));
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let due =
                format!("/m/log-3.segment: log format {format}, this release reads 1: use the release that wrote it");
            assert_eq!(error.to_string(), due);
        }
    }

    #[test]
    fn numbers_that_no_log_gets_to_are_refused() {
        for (at, number) in [(24, 0), (24, u64::MAX), (32, 0), (32, u64::MAX)] {
            let bytes = header(at, &u64::to_le_bytes(number));
            assert_eq!(refused(&bytes).kind(), ErrorKind::Corrupt, "{number} at {at}");
        }
    }
}
