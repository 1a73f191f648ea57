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
        sum += count_split(runtime, source, &split, use_locations).await.unwrap().words;
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
        assert_eq!(count_split(&runtime, &source, &good, true).await.unwrap_err().kind(), ErrorKind::Corrupt);
        let huge_block = pb::Split { block_size: 1 << 40, ..good.clone() };
        let endless = pb::Split { length: u64::MAX, offset: 5, ..good.clone() };
        for split in [huge_block, endless] {
            assert_eq!(count_split(&runtime, &source, &split, true).await.unwrap_err().kind(), ErrorKind::Invalid);
        }
        runtime.sleep(Duration::from_secs(1)).await;
    });
    assert!(source.open.lock().is_empty());
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
