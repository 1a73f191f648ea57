//! Ranges that the disk reads before they are read.

use std::collections::VecDeque;
use std::ops::Range;

use super::names::InodeNumber;

/// Ranges that the page cache keeps. The oldest go first.
const KEPT_MAX: usize = 256;

/// A range of a file that is, or was, read ahead.
struct Piece {
    file: InodeNumber,
    bytes: Range<u64>,
    /// From the arrival of its first byte to that of its last, in nanoseconds.
    arrives_ns: Range<u64>,
}

/// The ranges, the oldest first.
#[derive(Default)]
pub(super) struct Ahead(VecDeque<Piece>);

impl Ahead {
    /// Adds a range that arrives byte by byte.
    pub fn add(&mut self, file: InodeNumber, bytes: Range<u64>, arrives_ns: Range<u64>) {
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Piece { file, bytes, arrives_ns });
    }

    /// Forgets the ranges of other files.
    pub fn retain(&mut self, keeps: impl Fn(InodeNumber) -> bool) {
        self.0.retain(|piece| keeps(piece.file));
    }

    /// Whether all of these bytes were asked for.
    pub fn has(&self, file: InodeNumber, offset: u64, len: u64) -> bool {
        self.find(file, offset, len).is_some()
    }

    /// Takes the time at which all of these bytes are in memory. `None` if they were not asked for. Once a read has come to
    /// the end of a range, another read of it costs the disk as much as any.
    pub fn take_arrival_ns(&mut self, file: InodeNumber, offset: u64, len: u64) -> Option<u64> {
        let at = self.find(file, offset, len)?;
        let Piece { bytes, arrives_ns, .. } = &self.0[at];
        let end = offset + len;
        let share = (end - bytes.start) as f64 / (bytes.end - bytes.start) as f64;
        let arrival_ns = arrives_ns.start + ((arrives_ns.end - arrives_ns.start) as f64 * share) as u64;
        if end == bytes.end {
            self.0.remove(at);
        }
        Some(arrival_ns)
    }

    /// The newest range with these bytes.
    fn find(&self, file: InodeNumber, offset: u64, len: u64) -> Option<usize> {
        let holds =
            |piece: &Piece| piece.file == file && piece.bytes.start <= offset && offset + len <= piece.bytes.end;
        self.0.iter().rposition(holds)
    }
}
