//! What is fetched before it is asked for: bounded by the setting, counted, and made good use of.

use std::sync::Arc;
use std::time::Duration;

use ebb_types::{InodeId, Prefetch};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, Op, SetDataset};

use super::harness::{Cluster, create, pattern, root, run};
use crate::{Access, Client, Metrics, NewName, Unit};

/// The window has eight of them.
const BLOCK: u64 = 1 << 20;
const READ: u64 = 256 << 10;
const SIZE: u64 = 64 * BLOCK;
const STREAMS: u64 = 3;
/// Reads of a stream that is long enough for the whole window: eight blocks and a half.
const LONG: u64 = 34;

/// A file in one metablock of a dataset of its own; the dataset's id.
async fn file(client: &Client) -> (InodeId, u64) {
    client.make_dir(&root(), NewName { parent: InodeId::ROOT, name: b"d", mode: 0o755, umask: 0 }).await.unwrap();
    let dataset = pb::Dataset { path: "/d".into(), block_size: BLOCK, metablock_size: SIZE, ..Default::default() };
    let made = client
        .meta(&root(), Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() }))
        .await
        .unwrap();
    let dataset = made.dataset.unwrap();
    let (handle, inode) = create(client, InodeId::new(dataset.root_inode), "f").await;
    let whole = pattern(1, SIZE as usize);
    for at in (0..SIZE as usize).step_by(8 << 20) {
        client.write(handle, at as u64, whole.slice(at..at + (8 << 20))).await.unwrap();
    }
    client.fsync(handle).await.unwrap();
    client.close(handle).await;
    (inode, dataset.id)
}

/// A client that reads streams of `reads` small reads each, far from each other. Returns its counters.
async fn streams(
    cluster: &Arc<Cluster>,
    inode: InodeId,
    setting: Option<Prefetch>,
    reads: u64,
    unit: Unit,
) -> (Metrics, u64) {
    let mut options = cluster.options("client");
    (options.prefetch, options.unit) = (setting, unit);
    let client = cluster.client_with(options).await;
    let (handle, _) = client.open(&root(), inode, Access::Read).await.unwrap();
    let whole = pattern(1, SIZE as usize);
    let before = client.counters().read().network_bytes();
    for stream in 0..STREAMS {
        for read in 0..reads {
            let at = (stream * 20 + 1) * BLOCK + read * READ;
            let data = client.read(handle, at, READ as u32).await.unwrap();
            assert_eq!(data, whole.slice(at as usize..(at + READ) as usize));
        }
    }
    // What was begun comes.
    cluster.world.sleep(Duration::from_secs(2)).await;
    let network = client.counters().read().network_bytes() - before;
    let metrics = client.metrics();
    client.disconnect().await.unwrap();
    (metrics, network)
}

/// A window's worth is wasted at the end of each stream, and nothing where reads are no stream.
#[test]
fn the_setting_bounds_what_is_fetched_ahead_and_never_asked_for() {
    run(81, 3, |cluster| async move {
        let (inode, _) = file(&cluster.client("writer").await).await;
        let mut networks = Vec::new();
        for (percent, blocks) in [(0, 0), (25, 2), (50, 4), (100, 8)] {
            let setting = Some(Prefetch::Percent(percent));
            let (seen, network) = streams(&cluster, inode, setting, LONG, Unit::Chunks).await;
            // All blocks but the first are there before they are asked for, and half of the ninth is used.
            let (ahead, used) = if blocks == 0 { (0, 0) } else { ((8 + blocks) * BLOCK, (LONG - 4) * READ) };
            assert_eq!((seen.ahead_bytes, seen.used_ahead_bytes), (STREAMS * ahead, STREAMS * used));
            assert_eq!(seen.unused_ahead_bytes, 0, "it is still in memory");
            networks.push(network);
        }
        assert!(networks.is_sorted(), "the traffic grows with the setting: {networks:?}");
        assert!(2 * networks[3] > 3 * networks[0], "{networks:?}");
        let (seen, _) = streams(&cluster, inode, None, 1, Unit::Chunks).await;
        assert_eq!(seen.ahead_bytes, 0, "single reads are no stream");
    });
}

/// As a program that looks at the beginnings of files, or samples one.
#[test]
fn a_short_stream_has_no_more_fetched_ahead_than_it_read() {
    run(84, 3, |cluster| async move {
        let (inode, _) = file(&cluster.client("writer").await).await;
        let (seen, network) = streams(&cluster, inode, Some(Prefetch::Percent(100)), 8, Unit::Chunks).await;
        // Two blocks are read, the second of them ahead, and with it two more.
        assert_eq!((seen.ahead_bytes, seen.used_ahead_bytes), (STREAMS * 3 * BLOCK, STREAMS * 4 * READ));
        assert!(network < STREAMS * 5 * BLOCK, "{network}");
    });
}

#[test]
fn a_file_is_read_by_its_datasets_rule_unless_the_client_has_one() {
    run(82, 3, |cluster| async move {
        let writer = cluster.client("writer").await;
        let (inode, dataset) = file(&writer).await;
        let ahead = async |setting| streams(&cluster, inode, setting, LONG, Unit::Chunks).await.0.ahead_bytes;
        assert_eq!(ahead(None).await, STREAMS * 16 * BLOCK, "nothing said: the whole window");
        let set = async |setting: Prefetch| {
            let set = SetDataset { dataset, prefetch: Some(setting.to_raw()), ..Default::default() };
            writer.meta(&root(), Op::SetDataset(set)).await.unwrap();
        };
        set(Prefetch::Percent(0)).await;
        assert_eq!(ahead(None).await, 0);
        assert_eq!(ahead(Some(Prefetch::Percent(100))).await, STREAMS * 16 * BLOCK);
        set(Prefetch::Spare).await;
        let spare = ahead(None).await;
        assert!((1..STREAMS * 16 * BLOCK).contains(&spare), "a window that has to grow first: {spare}");
    });
}

/// A task reads its split, and of the next one the rest of a record.
#[test]
fn nothing_is_fetched_ahead_beyond_the_end_that_a_program_told_and_no_whole_block_there() {
    run(85, 3, |cluster| async move {
        let (inode, _) = file(&cluster.client("writer").await).await;
        let read = async |told: Option<u64>| {
            let client = cluster.client_with(cluster.options("client")).await;
            let (handle, _) = client.open(&root(), inode, Access::Read).await.unwrap();
            let end = 16 * BLOCK;
            if let Some(end) = told {
                client.expect_end(handle, end).unwrap();
            }
            let before = client.counters().read().network_bytes();
            for at in (0..end).step_by(READ as usize) {
                client.read(handle, at, READ as u32).await.unwrap();
            }
            let rest = client.read(handle, end, 100).await.unwrap();
            assert_eq!(rest, pattern(1, SIZE as usize).slice(end as usize..end as usize + 100));
            cluster.world.sleep(Duration::from_secs(2)).await;
            let network = client.counters().read().network_bytes() - before;
            client.disconnect().await.unwrap();
            network
        };
        let (told, untold) = (read(Some(16 * BLOCK)).await, read(None).await);
        assert!((16 * BLOCK..16 * BLOCK + BLOCK / 2).contains(&told), "{told}");
        assert!(untold > 23 * BLOCK, "{untold}");
    });
}

/// For comparison with file systems whose block is the unit of transfer: a small read fetches its block.
#[test]
fn the_unit_of_a_single_read_is_a_chunk_unless_it_is_to_be_a_block() {
    run(83, 3, |cluster| async move {
        let (inode, _) = file(&cluster.client("writer").await).await;
        let (_, chunks) = streams(&cluster, inode, None, 1, Unit::Chunks).await;
        let (seen, blocks) = streams(&cluster, inode, None, 1, Unit::Blocks).await;
        assert!((STREAMS * READ..STREAMS * BLOCK).contains(&chunks), "{chunks}");
        assert!((STREAMS * BLOCK..STREAMS * BLOCK * 6 / 5).contains(&blocks), "{blocks}");
        assert_eq!(seen.ahead_bytes, 0, "a program asked for a byte of each");
    });
}
