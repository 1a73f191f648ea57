//! Reads from the files of block servers on the client's host.

use std::time::Duration;

use bytes::Bytes;
use ebb_types::InodeId;

use super::harness::{BLOCK, Blocks, Cluster, METABLOCK, create, pattern, read_all, root, run, run_with};
use crate::{Access, Client, ClientOptions, Handle};

/// Nothing is kept in memory.
fn forgetful(options: ClientOptions) -> ClientOptions {
    ClientOptions { read_cache_bytes: 0, ..options }
}

async fn open(client: &Client, inode: InodeId) -> Handle {
    client.open(&root(), inode, Access::Read).await.unwrap().0
}

/// A file that a client elsewhere wrote and `two`, next to a server, has read.
struct Read {
    /// The writer keeps its lease.
    _one: Client,
    two: Client,
    inode: InodeId,
    reader: Handle,
    data: Bytes,
}

async fn written_and_read(cluster: &Cluster, len: u64) -> Read {
    let (one, two) = (cluster.client("h0").await, cluster.client_with(forgetful(cluster.options("h1"))).await);
    let dir = cluster.small_dataset(&one, 3).await;
    let data = pattern(1, len as usize);
    let (handle, inode) = create(&one, dir, "file").await;
    one.write(handle, 0, data.clone()).await.unwrap();
    one.fsync(handle).await.unwrap();
    let reader = open(&two, inode).await;
    assert_eq!(read_all(&two, reader).await.unwrap(), &data[..]);
    Read { _one: one, two, inode, reader, data }
}

#[test]
fn a_replica_on_the_own_host_is_read_from_its_file() {
    run(21, 3, |cluster| async move {
        let Read { _one, two, inode, data, .. } = written_and_read(&cluster, 4 * METABLOCK).await;
        let metrics = two.metrics();
        assert!(metrics.short_circuit_reads >= 16, "{metrics:?}");
        assert_eq!((metrics.failed_reads, metrics.corrupt_reads), (0, 0));

        // A client without a server on its host goes over the network.
        let three = cluster.client_with(forgetful(cluster.options("client"))).await;
        let reader = open(&three, inode).await;
        assert_eq!(read_all(&three, reader).await.unwrap(), &data[..]);
        assert_eq!(three.metrics().short_circuit_reads, 0);
    });
}

#[test]
fn writes_of_others_are_seen_at_once() {
    run(22, 3, |cluster| async move {
        let (one, two) = (cluster.client("h0").await, cluster.client_with(forgetful(cluster.options("h1"))).await);
        let dir = cluster.small_dataset(&one, 3).await;
        let mut model = pattern(1, METABLOCK as usize).to_vec();
        let (handle, inode) = create(&one, dir, "file").await;
        one.write(handle, 0, model.clone().into()).await.unwrap();
        let reader = open(&two, inode).await;
        for turn in 0..20u64 {
            let offset = (turn * 7919) as usize % (METABLOCK - BLOCK) as usize;
            let news = pattern(turn + 2, 1 + (turn as usize * 3001) % BLOCK as usize);
            model[offset..offset + news.len()].copy_from_slice(&news);
            one.write(handle, offset as u64, news).await.unwrap();
            assert!(read_all(&two, reader).await.unwrap() == model, "turn {turn}");
            if turn % 4 == 3 {
                // Long enough for a replica that changed to be asked for again.
                cluster.world.sleep(Duration::from_secs(2)).await;
                assert!(read_all(&two, reader).await.unwrap() == model, "turn {turn}");
            }
        }
        let metrics = two.metrics();
        assert!(
            metrics.short_circuit_reads > 0 && metrics.failed_reads == 0 && metrics.corrupt_reads == 0,
            "{metrics:?}"
        );
    });
}

#[test]
fn the_end_of_the_server_ends_its_descriptors() {
    run(23, 3, |cluster| async move {
        let Read { _one, two, reader, data, .. } = written_and_read(&cluster, METABLOCK).await;
        let before = two.metrics().short_circuit_reads;
        assert!(before > 0);
        cluster.kill_node(1);
        assert_eq!(read_all(&two, reader).await.unwrap(), &data[..]);
        assert_eq!(two.metrics().short_circuit_reads, before, "a dead server's files are not read");
        cluster.restart_node(1).await;
        cluster.world.sleep(Duration::from_secs(20)).await;
        assert_eq!(read_all(&two, reader).await.unwrap(), &data[..]);
        assert!(two.metrics().short_circuit_reads > before, "and those of the next one are");
    });
}

#[test]
fn damage_in_the_file_is_not_shown() {
    run(24, 3, |cluster| async move {
        let Read { _one, two, reader, data, .. } = written_and_read(&cluster, METABLOCK).await;
        let process = &cluster.nodes[1].process;
        for (path, _) in process.disk_files() {
            if path.to_string_lossy().contains("/replicas/") {
                process.flip_bits(&path, 100_000, 1).unwrap();
            }
        }
        assert_eq!(read_all(&two, reader).await.unwrap(), &data[..]);
        assert!(two.metrics().corrupt_reads > 0, "the network's answer tells of the damage");
    });
}

#[test]
fn a_server_without_descriptors_is_read_over_the_network() {
    run_with(Blocks::Fake, 25, 3, |cluster| async move {
        let Read { _one, two, .. } = written_and_read(&cluster, METABLOCK).await;
        assert_eq!(two.metrics().short_circuit_reads, 0);
    });
}
