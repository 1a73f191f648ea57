use std::sync::Arc;
use std::time::Duration;

use ebb_types::ErrorKind;
use proptest::prelude::*;

use super::*;
use crate::testkit::{Asked, BLOCK, FakeSource, METABLOCK, Namespace, prose, virt, words};

fn site(data: Vec<u8>) -> (FakeSource, u64) {
    let mut namespace = Namespace::new(&["h1", "h2"]);
    let inode = namespace.add_file(1, data, &[&[1], &[2]]);
    (FakeSource::new(Arc::new(namespace)), inode)
}

async fn sum(runtime: &Runtime, source: &FakeSource, inode: u64, use_locations: bool) -> u64 {
    let size = source.namespace.file(inode).unwrap().data.len() as u64;
    let mut sum = 0;
    for index in 0..size.div_ceil(METABLOCK) {
        let split = source.namespace.split(inode, index);
        sum += count_split(runtime, source, &split, &How::words(use_locations)).await.unwrap().found;
    }
    sum
}

/// Records that straddle metablock edges pull chunks of the next metablock, never the whole (G9).
#[test]
fn edges_cost_a_look_back_and_at_most_chunks() {
    // A word lies over the edge at 256 KiB; at 512 KiB a run begins that shows nothing for 40 KiB.
    let mut data = prose(3 * METABLOCK as usize, 1);
    let edge = METABLOCK as usize;
    data[edge - 20..edge + 20].fill(b'x');
    data[2 * edge - 1] = b' ';
    data[2 * edge - 2] = b' ';
    let mut quiet = data.clone();
    quiet[edge - 5..edge + (40 << 10)].fill(0);
    quiet[edge - 6] = b' ';
    for (data, beyond_max) in [(data, 0), (quiet, 64 << 10)] {
        let expected = words(&data);
        let (source, inode) = site(data);
        virt(1, async |runtime| assert_eq!(sum(&runtime, &source, inode, true).await, expected));
        let asked = source.asked.lock().clone();
        let first: Vec<Asked> = asked
            .iter()
            .copied()
            .take_while(|asked| asked.offset < METABLOCK - 3 || asked.offset >= METABLOCK)
            .collect();
        let beyond: u64 = first.iter().filter(|asked| asked.offset >= METABLOCK).map(|asked| asked.len).sum();
        assert!(beyond <= beyond_max, "{beyond} bytes beyond the first metablock: {first:?}");
        let total: u64 = asked.iter().map(|asked| asked.len).sum();
        assert!(total <= 3 * METABLOCK + 2 * 3 + beyond_max, "{total} bytes in all");
        assert!(asked.iter().all(|asked| asked.len <= BLOCK + 3 && asked.by_map), "{asked:?}");
    }
}

#[test]
fn an_old_map_falls_back_to_the_file_as_it_is_now() {
    for kind in [ErrorKind::StaleVersion, ErrorKind::NoReplica, ErrorKind::NotFound, ErrorKind::Timeout] {
        let data = prose(2 * METABLOCK as usize + 777, 2);
        let expected = words(&data);
        let (source, inode) = site(data);
        source.stale.lock().insert(inode, kind);
        virt(1, async |runtime| {
            assert_eq!(sum(&runtime, &source, inode, true).await, expected);
            // Handles are closed by tasks of their own.
            runtime.sleep(Duration::from_secs(1)).await;
            assert!(source.open.lock().is_empty());
        });
        assert!(source.asked.lock().iter().all(|asked| !asked.by_map));
    }
}

#[test]
fn without_locations_the_map_is_not_used() {
    let data = prose(METABLOCK as usize + 5, 3);
    let expected = words(&data);
    let (source, inode) = site(data);
    virt(1, async |runtime| assert_eq!(sum(&runtime, &source, inode, false).await, expected));
    assert!(source.asked.lock().iter().all(|asked| !asked.by_map));
}

#[test]
fn damage_and_nonsense_are_failures() {
    let (source, inode) = site(prose(1000, 4));
    source.broken.lock().push(inode);
    virt(1, async |runtime| {
        let good = source.namespace.split(inode, 0);
        assert_eq!(
            count_split(&runtime, &source, &good, &How::words(true)).await.unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        let huge_block = pb::Split { block_size: 1 << 40, ..good.clone() };
        let endless = pb::Split { length: u64::MAX, offset: 5, ..good.clone() };
        for split in [huge_block, endless] {
            assert_eq!(
                count_split(&runtime, &source, &split, &How::words(true)).await.unwrap_err().kind(),
                ErrorKind::Invalid
            );
        }
        runtime.sleep(Duration::from_secs(1)).await;
    });
    assert!(source.open.lock().is_empty());
}

/// Lines that straddle the edges of metablocks: each is found once, and costs chunks of the next metablock at most.
#[test]
fn a_search_reads_a_line_to_its_end_and_no_further() {
    let size = 3 * METABLOCK as usize + 100;
    let mut data = vec![b'.'; size];
    // A line of 100 bytes everywhere, so that the edges lie within lines; the text in every tenth, and over one edge.
    data.iter_mut().skip(99).step_by(100).for_each(|byte| *byte = b'\n');
    for line in (0..size / 100).step_by(10) {
        data[line * 100 + 50..line * 100 + 56].copy_from_slice(b"needle");
    }
    let edge = METABLOCK as usize;
    let line = edge / 100 * 100;
    data[line..line + 99].fill(b'.');
    data[edge - 3..edge + 3].copy_from_slice(b"needle");
    let expected = data.split(|byte| *byte == b'\n').filter(|line| line.windows(6).any(|six| six == b"needle")).count();
    let (source, inode) = site(data);
    let task = crate::Task::Lines(crate::Pattern::new(Bytes::from_static(b"needle")).unwrap());
    let located = How { task, use_locations: true, buffer_bytes: Some(1) };
    let blind = How { use_locations: false, buffer_bytes: Some(32 << 10), ..located.clone() };
    for (how, largest) in [(located, BLOCK), (blind, 32 << 10)] {
        source.asked.lock().clear();
        virt(1, async |runtime| {
            let mut found = 0;
            for index in 0..4 {
                let split = source.namespace.split(inode, index);
                found += count_split(&runtime, &source, &split, &how).await.unwrap().found;
            }
            assert_eq!(found, expected as u64);
        });
        let asked = source.asked.lock().clone();
        assert!(asked.iter().all(|asked| asked.len <= largest && asked.by_map == how.use_locations), "{asked:?}");
        let total: u64 = asked.iter().map(|asked| asked.len).sum();
        // A chunk on for each of three edges; behind the last there are 100 bytes.
        assert_eq!(total, size as u64 + 2 * CHUNK_SIZE + 100, "{asked:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn splits_of_any_file_add_up(len in 0_usize..5 * METABLOCK as usize, seed in any::<u64>()) {
        let data = prose(len, seed);
        let expected = words(&data);
        let (source, inode) = site(data);
        virt(seed, async |runtime| assert_eq!(sum(&runtime, &source, inode, true).await, expected));
    }
}
