//! Clients inside programs that may be killed at any time, and that bring memory of their own.

use std::sync::Arc;
use std::time::Duration;

use ebb_types::{ErrorKind, InodeId};

use super::harness::{BLOCK, Cluster, METABLOCK, create, pattern, read_all, root, run};
use crate::{Access, Advice, Client};

const FILES: u64 = 40;

/// A client as a job has it: it keeps nothing of files that it has closed.
async fn job(cluster: &Arc<Cluster>, host: &str) -> (ebb_runtime::virt::Process, Client) {
    let mut options = cluster.options(host);
    (options.keep_leases, options.keep_names) = (false, false);
    cluster.process_with(options).await
}

/// Goal: nobody waits for a job that was killed, because of files that it had closed. Method: the others read and overwrite them at
/// once, a session lasts ten seconds.
#[test]
fn a_client_that_keeps_nothing_leaves_no_lease_behind() {
    run(301, 3, |cluster| async move {
        let (process, one) = job(&cluster, "h0").await;
        let two = cluster.client("h1").await;
        let mut made = Vec::new();
        for number in 0..FILES {
            let (handle, inode) = create(&one, InodeId::ROOT, &format!("f{number}")).await;
            one.write(handle, 0, pattern(number, 5000)).await.unwrap();
            one.push_and_close(handle).await.unwrap();
            assert_eq!(one.read(handle, 0, 1).await.unwrap_err().kind(), ErrorKind::Stale);
            made.push(inode);
        }
        let (kept, _) = create(&one, InodeId::ROOT, "open").await;
        one.write(kept, 0, pattern(9, 100)).await.unwrap();
        cluster.world.sleep(Duration::from_millis(500)).await;
        assert_eq!(cluster.write_leases(&two).await, 1, "the open file's");
        // What it only reads it does not keep either.
        let (handle, _) = one.open(&root(), made[0], Access::Read).await.unwrap();
        assert_eq!(read_all(&one, handle).await.unwrap(), pattern(0, 5000));
        one.push_and_close(handle).await.unwrap();
        cluster.world.sleep(Duration::from_millis(500)).await;
        process.kill();
        let before = cluster.world.now();
        for (number, inode) in made.iter().enumerate() {
            let (handle, _) = two.open(&root(), *inode, Access::ReadWrite).await.unwrap();
            assert_eq!(read_all(&two, handle).await.unwrap(), pattern(number as u64, 5000), "f{number}");
            two.write(handle, 0, pattern(99, 10)).await.unwrap();
            two.close(handle).await;
        }
        let took = cluster.world.now() - before;
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}

/// Goal: a file that is opened again while its lease goes back is as it was left.
#[test]
fn a_file_that_is_used_again_and_again_goes_on() {
    run(302, 3, |cluster| async move {
        let (_process, one) = job(&cluster, "h0").await;
        let (handle, inode) = create(&one, InodeId::ROOT, "f").await;
        one.push_and_close(handle).await.unwrap();
        let mut wanted = Vec::new();
        for round in 0..200_u64 {
            let (handle, _) = one.open(&root(), inode, Access::ReadWrite).await.unwrap();
            let part = pattern(round, 100);
            one.append(handle, part.clone()).await.unwrap();
            wanted.extend_from_slice(&part);
            one.push_and_close(handle).await.unwrap();
            cluster.world.sleep(Duration::from_micros(300 * (round % 20))).await;
        }
        let (handle, _) = one.open(&root(), inode, Access::Read).await.unwrap();
        assert_eq!(read_all(&one, handle).await.unwrap(), wanted);
        assert_eq!(one.metrics().lost_files, 0);
    });
}

/// Goal: memory of the caller gets the bytes of all layers: dirty ones, cached ones, holes and what members have.
#[test]
fn a_read_into_the_callers_memory_is_a_read() {
    run(303, 3, |cluster| async move {
        let (one, two) = (cluster.client("h0").await, cluster.client("h1").await);
        let directory = cluster.small_dataset(&one, 3).await;
        let (handle, inode) = create(&one, directory, "f").await;
        one.write(handle, 0, pattern(1, 3 * BLOCK as usize / 2)).await.unwrap();
        one.fsync(handle).await.unwrap();
        one.write(handle, METABLOCK + 7, pattern(2, 90_000)).await.unwrap();
        one.close(handle).await;
        let (handle, attr) = two.open(&root(), inode, Access::ReadWrite).await.unwrap();
        two.write(handle, BLOCK / 2, pattern(3, 777)).await.unwrap();
        for step in 0..60_u64 {
            let (offset, len) = (step * 7919 % (attr.size + 100), 1 + (step * 104_729 % (2 * METABLOCK)) as usize);
            let mut memory = vec![0xee; len];
            let count = two.read_into(handle, offset, &mut memory).await.unwrap();
            let wanted = two.read(handle, offset, len as u32).await.unwrap();
            assert_eq!(memory[..count], wanted[..], "{len} bytes at {offset}");
            assert!(memory[count..].iter().all(|byte| *byte == 0xee), "behind the end nothing is touched");
        }
        assert_eq!(two.read_into(handle, attr.size, &mut [0; 5]).await.unwrap(), 0);
        assert_eq!(two.read_into(handle, 0, &mut []).await.unwrap(), 0);
    });
}

/// Goal: advice decides what is fetched. Method: bytes from members for the same reads.
#[test]
fn advice_decides_what_is_fetched_ahead() {
    const READ: u64 = 16 << 10;
    const FILE: u64 = 4 << 20;
    run(304, 3, |cluster| async move {
        let writer = cluster.client("h9").await;
        let directory = cluster.small_dataset(&writer, 3).await;
        let (handle, inode) = create(&writer, directory, "f").await;
        writer.write(handle, 0, pattern(1, FILE as usize)).await.unwrap();
        writer.fsync(handle).await.unwrap();
        writer.close(handle).await;
        let mut fetched = Vec::new();
        for (advice, reads) in [(Advice::Random, 8), (Advice::Normal, 8), (Advice::Sequential, 1)] {
            let client = cluster.client("client").await;
            let (handle, _) = client.open(&root(), inode, Access::Read).await.unwrap();
            client.advise(handle, advice).unwrap();
            let before = client.counters().read().network_bytes();
            for read in 0..reads {
                client.read(handle, read * READ, READ as u32).await.unwrap();
            }
            cluster.world.sleep(Duration::from_secs(1)).await;
            fetched.push(client.counters().read().network_bytes() - before);
            client.disconnect().await.unwrap();
        }
        let asked = 8 * READ;
        assert!((asked..asked + asked / 4).contains(&fetched[0]), "random: {fetched:?}");
        assert!(fetched[1] > 2 * asked, "a stream shows itself: {fetched:?}");
        assert!(fetched[2] >= 2 * BLOCK, "its block and the next one, with the first read: {fetched:?}");
    });
}
