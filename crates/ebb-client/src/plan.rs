//! Decisions of the read and write paths, as functions of plain values.

use std::collections::BTreeMap;

use ebb_types::{CHUNK_SIZE, Geometry};
use ebb_wire::pb;

use crate::read::prefetch::Reach;

/// Metablocks to have granted beyond the one that is being written.
const GRANTS_AHEAD: u64 = 2;
/// Indexes in one grant request.
pub(crate) const GRANTS_PER_CALL: usize = 64;
/// Files and first reads up to this are fetched whole.
const SMALL: u64 = 128 << 10;

/// Mode bits after a write by a user without privilege (inode(7), S_ISUID and S_ISGID).
pub(crate) fn without_privileges(mode: u32) -> u32 {
    let group_executes = mode & 0o010 != 0;
    mode & !0o4000 & if group_executes { !0o2000 } else { !0 }
}

/// End of the part of a metablock that the holder may write: committed, or reserved by the master.
pub(crate) fn reach_of(record: &pb::Metablock) -> u64 {
    record.length.max(record.reserved)
}

/// Metablocks of `start..end` that have no record, are frozen, or have too little room reserved: they must be granted, or
/// more of them, before anything is written there.
pub(crate) fn grants_needed(map: &BTreeMap<u64, pb::Metablock>, geometry: Geometry, start: u64, end: u64) -> Vec<u64> {
    if start >= end {
        return Vec::new();
    }
    let (first, last) = (start / geometry.metablock_size, (end - 1) / geometry.metablock_size);
    let enough = |index: u64| {
        let until = (end - index * geometry.metablock_size).min(geometry.metablock_size);
        map.get(&index).is_some_and(|record| record.frozen.is_none() && reach_of(record) >= until)
    };
    (first..=last).filter(|index| !enough(*index)).collect()
}

/// Metablocks to ask for before they are needed: the next two, once a write at the end of the file has passed half of
/// its metablock (G3).
pub(crate) fn grants_ahead(map: &BTreeMap<u64, pb::Metablock>, geometry: Geometry, end: u64, size: u64) -> Vec<u64> {
    if end == 0 || end < size || (end - 1) % geometry.metablock_size < geometry.metablock_size / 2 {
        return Vec::new();
    }
    let index = (end - 1) / geometry.metablock_size;
    (index + 1..=index + GRANTS_AHEAD).filter(|index| !map.contains_key(index)).collect()
}

/// Cuts a missing range into the ranges to fetch: whole blocks of a stream, else whole chunks; never across a block's
/// edge, never beyond the file's end (rounded up to a chunk).
pub(crate) fn fetch_ranges(geometry: Geometry, missing: (u64, u64), reach: Reach, size: u64) -> Vec<(u64, u64)> {
    let (mut start, mut end) = missing;
    let end_of_file = size.next_multiple_of(CHUNK_SIZE);
    if reach.whole_blocks {
        start -= start % geometry.block_size;
        end = end.next_multiple_of(geometry.block_size);
    } else if size <= SMALL {
        (start, end) = (0, end_of_file);
    } else {
        start -= start % CHUNK_SIZE;
        end = end.next_multiple_of(CHUNK_SIZE);
        if start == 0 {
            end = end.max(SMALL);
        }
    }
    end = end.min(end_of_file);
    geometry
        .block_pieces(start, end.saturating_sub(start))
        .map(|piece| (piece.file_offset, piece.file_offset + piece.len))
        .collect()
}

/// A node must serve for so long at least to be asked before others, in milliseconds: time to read and send a block.
pub(crate) const NEED_MS: u64 = 100;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GEOMETRY: Geometry = Geometry { block_size: 1 << 20, metablock_size: 64 << 20 };

    #[test]
    fn privileges_go_as_linux_has_it() {
        assert_eq!(without_privileges(0o6755), 0o755);
        assert_eq!(without_privileges(0o6745), 0o2745);
        assert_eq!(without_privileges(0o4600), 0o600);
        assert_eq!(without_privileges(0o1644), 0o1644);
    }

    #[test]
    fn grants_come_ahead_of_an_appender_only() {
        let whole = pb::Metablock { reserved: GEOMETRY.metablock_size, ..Default::default() };
        let map = BTreeMap::from([(0, whole)]);
        let half = GEOMETRY.metablock_size / 2;
        assert_eq!(grants_ahead(&map, GEOMETRY, half, half), Vec::<u64>::new());
        assert_eq!(grants_ahead(&map, GEOMETRY, half + 1, half + 1), [1, 2]);
        assert_eq!(grants_ahead(&map, GEOMETRY, half + 1, half + 2), Vec::<u64>::new());
        assert_eq!(grants_needed(&map, GEOMETRY, 0, GEOMETRY.metablock_size + 1), [1]);
    }

    #[test]
    fn more_is_asked_for_where_the_room_ends() {
        let part = pb::Metablock { reserved: 1 << 20, length: 5, ..Default::default() };
        let map = BTreeMap::from([(0, part)]);
        assert_eq!(grants_needed(&map, GEOMETRY, 0, 1 << 20), Vec::<u64>::new());
        assert_eq!(grants_needed(&map, GEOMETRY, 0, (1 << 20) + 1), [0]);
        let committed = pb::Metablock { length: GEOMETRY.metablock_size, ..Default::default() };
        let map = BTreeMap::from([(0, committed.clone())]);
        assert_eq!(grants_needed(&map, GEOMETRY, 7, GEOMETRY.metablock_size), Vec::<u64>::new());
        let frozen = pb::Metablock { frozen: Some(pb::Frozen::default()), ..committed };
        assert_eq!(grants_needed(&BTreeMap::from([(0, frozen)]), GEOMETRY, 7, 8), [0]);
    }

    #[test]
    fn a_small_random_read_fetches_its_chunk_and_a_stream_whole_blocks() {
        let (at, size) = (100 << 20, 640 << 20);
        let missing = (at + 5000, at + 9096);
        let reach = |whole_blocks| Reach { whole_blocks, ahead_to: missing.1 };
        assert_eq!(fetch_ranges(GEOMETRY, missing, reach(false), size), [(at, at + CHUNK_SIZE)]);
        assert_eq!(fetch_ranges(GEOMETRY, missing, reach(true), size), [(at, at + GEOMETRY.block_size)]);
    }

    proptest! {
        #[test]
        fn fetches_cover_what_is_missing(start in 0u64..10_000_000, len in 1u64..3_000_000, rest in 0u64..9_000_000, whole: bool) {
            let end = start + len;
            let size = end + rest;
            let reach = Reach { whole_blocks: whole, ahead_to: end };
            let ranges = fetch_ranges(GEOMETRY, (start, end), reach, size);
            prop_assert!(ranges[0].0 <= start && ranges[ranges.len() - 1].1 >= end);
            for pair in ranges.windows(2) { prop_assert_eq!(pair[0].1, pair[1].0); }
            for (from, to) in ranges {
                prop_assert!(from < to && to <= size.next_multiple_of(CHUNK_SIZE));
                prop_assert_eq!(from / GEOMETRY.block_size, (to - 1) / GEOMETRY.block_size);
                prop_assert_eq!((from % CHUNK_SIZE, to % CHUNK_SIZE), (0, 0));
            }
        }
    }
}
