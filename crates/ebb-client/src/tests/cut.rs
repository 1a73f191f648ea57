//! A client that reaches the master and no member, and a master that did not run for a while.

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::SeededBug;
use ebb_types::{ErrorKind, InodeId, Result};

use super::harness::{Cluster, Heard, create, pattern, read_all, root, run_with_bug};
use crate::{Access, Client, Handle};

/// Cuts a host off from all block servers and from nothing else, or mends that.
fn set_cut(cluster: &Cluster, host: &str, is_cut: bool) {
    for node in &cluster.nodes {
        if is_cut {
            cluster.world.partition(host, node.process.host());
        } else {
            cluster.world.mend(host, node.process.host());
        }
    }
}

async fn try_append(client: &Client, inode: InodeId) -> Result<()> {
    let (handle, _) = client.open(&root(), inode, Access::ReadWrite).await?;
    let written = match client.append(handle, pattern(9, 10)).await {
        Ok(_) => client.fsync(handle).await,
        Err(error) => Err(error),
    };
    client.close(handle).await;
    written
}

async fn reader(client: &Client, inode: InodeId) -> Handle {
    client.open(&root(), inode, Access::Read).await.unwrap().0
}

/// A client has synced and unsynced bytes, loses its way to all members, and goes on polling. Another client appends
/// until that is done, or for 200 s. Returns the time taken and, once the network has healed, the first client's
/// error.
fn take_from_a_client_without_members(bug: Option<SeededBug>) -> Option<Duration> {
    run_with_bug(bug, 71, 3, |cluster| async move {
        let first = cluster.client("away").await;
        let other = cluster.client("h1").await;
        let (handle, inode) = create(&first, InodeId::ROOT, "file").await;
        first.write(handle, 0, pattern(1, 1000)).await.unwrap();
        first.fsync(handle).await.unwrap();
        set_cut(&cluster, "away", true);
        first.write(handle, 1000, pattern(2, 1000)).await.unwrap();
        let (begun, session) = (cluster.world.now(), first.session());
        while try_append(&other, inode).await.is_err() {
            if cluster.world.now() - begun > Duration::from_secs(200) {
                return None;
            }
        }
        let took = cluster.world.now() - begun;
        assert_eq!(first.session(), session, "one file is lost, and no more");
        set_cut(&cluster, "away", false);
        let lost = first.fsync(handle).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Io, "{lost}");
        cluster.world.sleep(Duration::from_secs(6)).await;
        let whole = read_all(&other, reader(&other, inode).await).await.unwrap();
        let seen = read_all(&first, reader(&first, inode).await).await.unwrap();
        assert_eq!(whole, seen, "both see the same");
        assert_eq!(whole[..1000], pattern(1, 1000), "what was synced is there");
        assert_eq!(whole[1000..], pattern(9, 10));
        first.write(handle, 0, pattern(3, 10)).await.unwrap();
        first.fsync(handle).await.unwrap();
        Some(took)
    })
}

#[test]
fn a_client_that_reaches_no_member_gives_up_what_others_want() {
    let took = take_from_a_client_without_members(None).expect("it has an end");
    assert!((28..50).contains(&took.as_secs()), "members may come back for a while: {took:?}");
    assert_eq!(take_from_a_client_without_members(Some(SeededBug::KeepsForever)), None);
}

/// A writer reaches the master and one member, which is fewer than a write needs. It gets an error, and the set stays
/// as it was: the next holder has the file recovered from all members.
#[test]
fn a_writer_that_reaches_one_member_alone_changes_no_set() {
    run_with_bug(None, 72, 3, |cluster| async move {
        let first = cluster.client("away").await;
        let other = cluster.client("h1").await;
        let (handle, inode) = create(&first, InodeId::ROOT, "file").await;
        first.write(handle, 0, pattern(1, 1000)).await.unwrap();
        first.fsync(handle).await.unwrap();
        let members = async || {
            let located = other.locations(inode).await.unwrap();
            located.iter().map(|location| location.metablock.members.len()).collect::<Vec<_>>()
        };
        for host in ["h1", "h2"] {
            cluster.world.partition("away", host);
        }
        first.write(handle, 0, pattern(2, 1000)).await.unwrap();
        let begun = cluster.world.now();
        let error = first.fsync(handle).await.unwrap_err();
        let took = cluster.world.now() - begun;
        assert!(error.kind() == ErrorKind::Io && took < Duration::from_secs(40), "{error} after {took:?}");
        cluster.world.sleep(Duration::from_secs(20)).await;
        assert_eq!(members().await, [3]);
        let begun = cluster.world.now();
        let whole = read_all(&other, reader(&other, inode).await).await.unwrap();
        let took = cluster.world.now() - begun;
        assert!(whole == pattern(1, 1000) || whole == pattern(2, 1000), "what failed may be there or not, all of it");
        assert!(took < Duration::from_secs(5), "its holder had given up long ago: {took:?}");
        assert_eq!(members().await, [3]);
    });
}

/// The master gets no processor for longer than a session lives, and then for longer than a node may be silent, each time while a
/// client has unsynced bytes. Whether that cost the client something.
fn costs_of_a_frozen_master(bug: Option<SeededBug>, seed: u64) -> bool {
    run_with_bug(bug, seed, 3, |cluster| async move {
        let client = cluster.client("h0").await;
        let (handle, _) = create(&client, InodeId::ROOT, "file").await;
        let session = client.session();
        for (at, pause) in [(0, 12), (100, 40)] {
            client.write(handle, at, pattern(at, 100)).await.unwrap();
            cluster.master.freeze();
            cluster.world.sleep(Duration::from_secs(pause)).await;
            cluster.master.thaw();
            cluster.world.sleep(Duration::from_secs(2)).await;
            if client.fsync(handle).await.is_err() || client.session() != session {
                return true;
            }
        }
        assert_eq!(read_all(&client, handle).await.unwrap().len(), 200);
        false
    })
}

#[test]
fn a_master_that_was_frozen_blames_no_client_for_it() {
    for seed in 0..8 {
        assert!(!costs_of_a_frozen_master(None, seed), "seed {seed}");
    }
    // It depends on which task goes on first.
    let costs = |seed| costs_of_a_frozen_master(Some(SeededBug::BlamesSilence), seed);
    assert!((0..8).any(costs));
}

/// A client with a kernel reads a file and sleeps for some seconds. Whether the kernel was made to forget the file at its waking, and
/// nothing before that.
fn is_forgotten_after_sleep(bug: Option<SeededBug>) -> bool {
    run_with_bug(bug, 73, 3, |cluster| async move {
        let (process, client) = cluster.process_with(cluster.options("h0")).await;
        let heard = Heard::default();
        client.set_listener(Arc::new(heard.clone()));
        let (handle, inode) = create(&client, InodeId::ROOT, "file").await;
        client.write(handle, 0, pattern(1, 100)).await.unwrap();
        client.fsync(handle).await.unwrap();
        assert_eq!(read_all(&client, handle).await.unwrap().len(), 100);
        cluster.world.sleep(Duration::from_secs(4)).await;
        assert!(!heard.0.lock().contains(&inode), "it is awake");
        process.freeze();
        cluster.world.sleep(Duration::from_secs(4)).await;
        process.thaw();
        cluster.world.sleep(Duration::from_millis(300)).await;
        heard.0.lock().contains(&inode)
    })
}

#[test]
fn a_kernel_whose_host_slept_forgets_what_it_kept() {
    assert!(is_forgotten_after_sleep(None));
    assert!(!is_forgotten_after_sleep(Some(SeededBug::TrustStandsStill)));
}
