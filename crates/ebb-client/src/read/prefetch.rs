//! The range to fetch for a read, and ahead of it, decided from one handle's reads in their order. Pure.
//!
//! A stream is fetched by whole blocks, with a window ahead of it. The window doubles with every read that begins where
//! the last one ended, up to the handle's *limit*: a percentage of the full window, or the room that `spare` finds
//! (metablocks paper, G5). Bytes ahead are wasted where a stream ends, so traffic grows with the limit. Reads that jump about fetch nothing ahead, whatever the limit.

use ebb_types::{Geometry, Prefetch};

/// The full window, in blocks.
pub(crate) const WINDOW_MAX: u64 = 8;
/// How far a read may be from where the last one ended and still count as going on: kernels read ahead out of order.
const SLACK_BLOCKS: u64 = 2;
/// The same in bytes, at most: of large blocks two are so far that reads which jump about would count as going on.
const SLACK_MAX: u64 = 2 << 20;

/// How one handle reads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadAhead {
    next: u64,
    /// Blocks to fetch beyond the read, if nothing limits them; 0: reads jump about.
    window: u64,
    started: bool,
}

/// How much to fetch for one read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reach {
    /// Fetch missing parts in whole blocks.
    pub whole_blocks: bool,
    /// Fetch up to here in advance (a file offset).
    pub ahead_to: u64,
}

/// Blocks that a setting allows ahead of a stream. `spare`: the room that is free now, in blocks.
pub(crate) fn limit(setting: Prefetch, spare: impl FnOnce() -> u64) -> u64 {
    match setting {
        // The least that is not nothing is a block.
        Prefetch::Percent(percent) => (WINDOW_MAX * u64::from(percent)).div_ceil(100).min(WINDOW_MAX),
        Prefetch::Spare => spare().min(WINDOW_MAX),
    }
}

impl ReadAhead {
    /// Notes a read of `offset..end` and decides how much to fetch, at most `limit` blocks ahead.
    pub fn on_read(&mut self, geometry: Geometry, offset: u64, end: u64, limit: u64) -> Reach {
        let slack = (SLACK_BLOCKS * geometry.block_size).min(SLACK_MAX);
        let near = offset <= self.next + slack && offset + slack >= self.next;
        let goes_on = self.started && near && end > self.next.saturating_sub(slack);
        let was = self.next;
        if goes_on {
            if end > self.next {
                self.window = (self.window * 2).clamp(1, WINDOW_MAX);
            }
            self.next = self.next.max(end);
        } else {
            self.window = 0;
            self.next = end;
        }
        self.started = true;
        // A second small read right behind the first is a stream; one long jump is not.
        let whole_blocks = self.window > 0 && offset <= was + slack;
        let blocks = self.window.min(limit);
        let ahead_to = if whole_blocks && blocks > 0 { ahead(geometry, end, blocks) } else { end };
        Reach { whole_blocks, ahead_to }
    }
}

/// Read-ahead stops at the edge of the metablock, unless the reader is close to it.
fn ahead(geometry: Geometry, end: u64, blocks: u64) -> u64 {
    let wanted = end + blocks * geometry.block_size;
    let edge = end.next_multiple_of(geometry.metablock_size);
    if wanted <= edge || edge - end <= SLACK_BLOCKS * geometry.block_size { wanted } else { edge }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry { block_size: 1 << 20, metablock_size: 64 << 20 };
    const READ: u64 = 128 << 10;

    /// Blocks ahead of each of ten reads, one behind the other.
    fn windows(limit: u64) -> Vec<u64> {
        let mut ahead = ReadAhead::default();
        let ends = (1..=10).map(|step| (200 << 20) + step * READ);
        ends.map(|end| (ahead.on_read(GEOMETRY, end - READ, end, limit).ahead_to - end) >> 20).collect()
    }

    #[test]
    fn a_stream_has_a_window_that_doubles_up_to_its_limit() {
        assert_eq!(windows(WINDOW_MAX), [0, 1, 2, 4, 8, 8, 8, 8, 8, 8]);
        assert_eq!(windows(3), [0, 1, 2, 3, 3, 3, 3, 3, 3, 3]);
        assert_eq!(windows(0), [0; 10]);
    }

    #[test]
    fn without_a_window_a_stream_still_has_whole_blocks_and_a_jump_has_not() {
        for limit in [0, WINDOW_MAX] {
            let mut ahead = ReadAhead::default();
            let first = ahead.on_read(GEOMETRY, 0, READ, limit);
            assert_eq!(first, Reach { whole_blocks: false, ahead_to: READ });
            assert!(ahead.on_read(GEOMETRY, READ, 2 * READ, limit).whole_blocks);
            let jump = ahead.on_read(GEOMETRY, 500 << 20, (500 << 20) + 4096, limit);
            assert_eq!(jump, Reach { whole_blocks: false, ahead_to: (500 << 20) + 4096 });
        }
    }

    #[test]
    fn the_gap_that_counts_as_sequential_does_not_grow_with_large_blocks() {
        let large = Geometry { block_size: 16 << 20, metablock_size: 16 << 20 };
        let mut ahead = ReadAhead::default();
        let mut is_stream = |at: u64| ahead.on_read(large, at, at + 8192, WINDOW_MAX).whole_blocks;
        assert!(!is_stream(100 << 20) && !is_stream(120 << 20) && !is_stream(90 << 20));
        assert!(is_stream((90 << 20) + 8192));
    }

    #[test]
    fn read_ahead_stops_at_the_metablock_unless_the_reader_is_close() {
        let edge = GEOMETRY.metablock_size;
        assert_eq!(ahead(GEOMETRY, edge - (5 << 20), 8), edge);
        assert_eq!(ahead(GEOMETRY, edge - (2 << 20), 8), edge + (6 << 20));
    }

    #[test]
    fn a_percentage_is_of_the_full_window_and_spare_is_asked_only_for_spare() {
        let of = |percent| limit(Prefetch::Percent(percent), || panic!("the spare room was not asked for"));
        assert_eq!([0, 1, 25, 50, 75, 99, 100, 255].map(of), [0, 1, 2, 4, 6, 8, 8, 8]);
        assert_eq!([0, 5, 99].map(|free| limit(Prefetch::Spare, || free)), [0, 5, WINDOW_MAX]);
    }
}
