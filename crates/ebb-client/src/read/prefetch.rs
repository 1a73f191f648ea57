//! The range to fetch for a read, and ahead of it, decided from one handle's reads in their order. Pure.
//!
//! A stream is fetched by whole blocks, with a window ahead of it. The window begins with a block, and doubles with every
//! read that begins where the last one ended, up to the handle's *limit*: a percentage of the full window, or the room
//! that `spare` finds (metablocks paper, G5). It is counted in bytes, so that blocks of any size hide the same wait, and it
//! goes over the edges of metablocks. Bytes ahead are wasted where a stream ends, so traffic grows with the limit. A
//! window of more than a block is no longer than what was read, so that no more is wasted than that: programs look at the
//! beginning of a file, or sample one.
//! Reads that jump about fetch nothing ahead, whatever the limit, and only what they ask for, however small their file is.

use ebb_types::{Geometry, Prefetch};

/// The full window, in bytes. A longer block is a window by itself.
pub(crate) const WINDOW_MAX: u64 = 8 << 20;
/// The most calls that a window is fetched with: each block is one.
const BLOCKS_MAX: u64 = 64;
/// A run of reads that is as long as this is a stream. Small reads that jump about within a file seldom make such a run.
const STREAM_MIN: u64 = 32 << 10;
/// A gap before or behind a run may be this part of it, one in so many, and still count as going on: kernels read ahead
/// out of order.
const GAP_PART: u64 = 4;
/// The same in bytes, at most.
const GAP_MAX: u64 = 2 << 20;

/// How one handle reads: the run of reads that its last one belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadAhead {
    start: u64,
    end: u64,
    /// Bytes to fetch beyond the read, if nothing limits them; 0: reads jump about.
    window: u64,
}

/// How much to fetch for one read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reach {
    /// Fetch missing parts in whole blocks.
    pub whole_blocks: bool,
    /// Fetch up to here in advance (a file offset).
    pub ahead_to: u64,
}

/// Bytes that a setting allows ahead of a stream. `spare`: the room that is free now, in bytes.
pub(crate) fn limit(setting: Prefetch, spare: impl FnOnce() -> u64) -> u64 {
    match setting {
        Prefetch::Percent(percent) => WINDOW_MAX * u64::from(percent.min(100)) / 100,
        Prefetch::Spare => spare().min(WINDOW_MAX),
    }
}

/// Blocks of so many bytes within a limit of so many. The least that is not nothing is a block.
fn blocks(bytes: u64, block_size: u64) -> u64 {
    bytes.div_ceil(block_size).min(BLOCKS_MAX)
}

impl ReadAhead {
    /// Notes a read of `offset..end` and decides how much to fetch, at most `limit` bytes ahead.
    pub fn on_read(&mut self, geometry: Geometry, offset: u64, end: u64, limit: u64) -> Reach {
        let run = self.end - self.start;
        let gap = (run / GAP_PART).min(GAP_MAX);
        let was_end = self.end;
        let is_at_end = offset <= self.end + gap && end + gap >= self.end;
        let is_at_start = offset < self.start && end + gap >= self.start;
        if run > 0 && (is_at_end || is_at_start) {
            (self.start, self.end) = (self.start.min(offset), self.end.max(end));
            let run = self.end - self.start;
            if end > was_end && run >= STREAM_MIN {
                let least = geometry.block_size;
                self.window = (self.window * 2).min(WINDOW_MAX).min(run).max(least);
            }
        } else {
            *self = Self { start: offset, end: end.max(offset), window: 0 };
        }
        self.to_reach(geometry, end, limit)
    }

    /// The same for a reader that has said that it reads in order: a stream begins with its first read.
    pub fn on_read_in_order(&mut self, geometry: Geometry, offset: u64, end: u64, limit: u64) -> Reach {
        let reach = self.on_read(geometry, offset, end, limit);
        if reach.whole_blocks {
            return reach;
        }
        self.window = geometry.block_size;
        self.to_reach(geometry, end, limit)
    }

    fn to_reach(self, geometry: Geometry, end: u64, limit: u64) -> Reach {
        let ahead = blocks(self.window.min(limit), geometry.block_size) * geometry.block_size;
        Reach { whole_blocks: self.window > 0, ahead_to: end + ahead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry { block_size: 1 << 20, metablock_size: 64 << 20 };
    const READ: u64 = 128 << 10;

    /// Blocks ahead of each of ten reads of this size, one behind the other.
    fn windows(read: u64, limit: u64) -> Vec<u64> {
        let mut ahead = ReadAhead::default();
        let ends = (1..=10).map(|step| (200 << 20) + step * read);
        ends.map(|end| (ahead.on_read(GEOMETRY, end - read, end, limit).ahead_to - end) >> 20).collect()
    }

    #[test]
    fn a_stream_has_a_window_that_doubles_up_to_its_limit_and_is_no_longer_than_the_stream() {
        assert_eq!(windows(8 << 20, WINDOW_MAX), [0, 1, 2, 4, 8, 8, 8, 8, 8, 8]);
        assert_eq!(windows(1 << 20, WINDOW_MAX), [0, 1, 2, 4, 5, 6, 7, 8, 8, 8]);
        assert_eq!(windows(READ, WINDOW_MAX), [0, 1, 1, 1, 1, 1, 1, 1, 2, 2]);
        assert_eq!(windows(1 << 20, 3 << 20), [0, 1, 2, 3, 3, 3, 3, 3, 3, 3]);
        assert_eq!(windows(READ, 1), [0, 1, 1, 1, 1, 1, 1, 1, 1, 1], "a block, if it is not nothing");
        assert_eq!(windows(READ, 0), [0; 10]);
    }

    /// Bytes ahead of a stream in the end, by the size of its blocks.
    fn full_window(block_size: u64) -> u64 {
        let (mut ahead, geometry) = (ReadAhead::default(), Geometry { block_size, metablock_size: block_size });
        let reads =
            (1..=100).map(|step| (step * READ, ahead.on_read(geometry, (step - 1) * READ, step * READ, WINDOW_MAX)));
        let (end, last) = reads.last().unwrap();
        last.ahead_to - end
    }

    #[test]
    fn the_window_is_as_long_for_blocks_of_any_size_and_goes_over_edges() {
        assert_eq!([256 << 10, 1 << 20, 2 << 20, 8 << 20].map(full_window), [WINDOW_MAX; 4]);
        assert_eq!(full_window(16 << 20), 16 << 20, "a longer block is a window by itself");
        assert_eq!(full_window(16 << 10), BLOCKS_MAX * (16 << 10), "short blocks are many calls");
    }

    #[test]
    fn a_reader_that_has_said_so_is_a_stream_at_once() {
        let (mut ahead, small) = (ReadAhead::default(), 4 << 10);
        let first = ahead.on_read_in_order(GEOMETRY, 300 << 20, (300 << 20) + small, WINDOW_MAX);
        assert_eq!(first, Reach { whole_blocks: true, ahead_to: (301 << 20) + small });
        let next = ahead.on_read_in_order(GEOMETRY, (300 << 20) + small, (300 << 20) + 2 * small, WINDOW_MAX);
        assert_eq!(next, Reach { whole_blocks: true, ahead_to: (301 << 20) + 2 * small });
        let limited = ahead.on_read_in_order(GEOMETRY, 0, small, 0);
        assert_eq!(limited, Reach { whole_blocks: true, ahead_to: small }, "a jump, and nothing is free");
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
            let back = ahead.on_read(GEOMETRY, 0, 4096, limit);
            assert!(!back.whole_blocks, "a place that was read before is a jump all the same");
        }
    }

    /// How many of so many reads of `size` bytes at random places of a file fetch whole blocks.
    fn whole_blocks_of_random_reads(file: u64, size: u64, grain: u64) -> usize {
        let (mut ahead, mut place) = (ReadAhead::default(), 1_u64);
        let mut random = || {
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (place >> 33) % ((file - size) / grain + 1) * grain
        };
        let offsets: Vec<u64> = (0..1_000).map(|_| random()).collect();
        let reads = offsets.into_iter().map(|at| ahead.on_read(GEOMETRY, at, at + size, WINDOW_MAX));
        reads.filter(|reach| reach.whole_blocks).count()
    }

    #[test]
    fn reads_that_jump_about_in_a_small_file_fetch_what_they_ask_for() {
        assert_eq!(whole_blocks_of_random_reads(1 << 20, 4 << 10, 4 << 10), 0);
        let pages = whole_blocks_of_random_reads(1 << 20, 16 << 10, 16 << 10);
        assert!(pages < 60, "{pages} of 1,000 pages");
        let objects = whole_blocks_of_random_reads(4 << 20, 100_000, 1);
        assert!(objects < 100, "{objects} of 1,000 objects");
    }

    #[test]
    fn small_reads_in_a_row_and_reads_out_of_order_are_a_stream() {
        let mut ahead = ReadAhead::default();
        let small: Vec<bool> =
            (0..12).map(|at| ahead.on_read(GEOMETRY, at << 12, (at + 1) << 12, WINDOW_MAX).whole_blocks).collect();
        assert_eq!(small.iter().filter(|whole| **whole).count(), 12 - 7, "from 32 KiB on: {small:?}");
        let mut ahead = ReadAhead::default();
        let places = [1, 0, 2, 3, 5, 4, 6, 8, 7, 9, 10];
        let reads = places.map(|at: u64| ahead.on_read(GEOMETRY, at * READ, (at + 1) * READ, WINDOW_MAX).whole_blocks);
        assert_eq!(reads, [false, false, true, true, true, true, true, true, true, true, true]);
        let mut backwards = ReadAhead::default();
        let mut reads = (0..20_u64).rev().map(|at| backwards.on_read(GEOMETRY, at * READ, (at + 1) * READ, WINDOW_MAX));
        assert!(reads.all(|reach| !reach.whole_blocks), "a window lies ahead, and not behind");
    }

    #[test]
    fn the_gap_that_counts_as_going_on_does_not_grow_with_large_blocks() {
        let large = Geometry { block_size: 16 << 20, metablock_size: 16 << 20 };
        let mut ahead = ReadAhead::default();
        let mut is_stream = |at: u64| ahead.on_read(large, at, at + (32 << 10), WINDOW_MAX).whole_blocks;
        assert!(!is_stream(100 << 20) && !is_stream(120 << 20) && !is_stream(90 << 20));
        assert!(is_stream((90 << 20) + (32 << 10)));
    }

    #[test]
    fn a_percentage_is_of_the_full_window_and_spare_is_asked_only_for_spare() {
        let of = |percent| limit(Prefetch::Percent(percent), || panic!("the spare room was not asked for"));
        assert_eq!([0, 25, 50, 75, 100, 255].map(of), [0, 2, 4, 6, 8, 8].map(|mib| mib << 20));
        assert_eq!([0, 5, 99 << 20].map(|free| limit(Prefetch::Spare, || free)), [0, 5, WINDOW_MAX]);
    }
}
