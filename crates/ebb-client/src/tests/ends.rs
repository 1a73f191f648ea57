//! Clients that end without a word, and files that end with them.

use std::time::Duration;

use ebb_rpc::{Connector, Counters};
use ebb_runtime::SeededBug;
use ebb_types::{ErrorKind, InodeId, Role};
use ebb_wire::pb;

use super::harness::{Cluster, create, identity, pattern, read_all, root, run, run_with_bug};
use crate::{Access, Client, EntryDetail, Handle, UnnamedFile};

/// A session lives for so long without a sign of life.
const SESSION_TTL: Duration = Duration::from_secs(10);

async fn append(cluster: &Cluster, client: &Client, inode: InodeId) -> Duration {
    let begun = cluster.world.now();
    let (handle, _) = client.open(&root(), inode, Access::ReadWrite).await.unwrap();
    client.append(handle, pattern(9, 10)).await.unwrap();
    client.close(handle).await;
    cluster.world.now() - begun
}

/// The time is virtual: it depends on nothing but the order of events.
#[test]
fn a_client_killed_beside_a_block_server_keeps_no_other_waiting() {
    run(61, 3, |cluster| async move {
        let (near, one) = cluster.process_with(cluster.options("h0")).await;
        let (far, two) = cluster.process_with(cluster.options("nowhere")).await;
        let other = cluster.client("h1").await;
        let mut files = Vec::new();
        for (name, client) in [("near", &one), ("far", &two)] {
            let (handle, inode) = create(client, InodeId::ROOT, name).await;
            client.write(handle, 0, pattern(1, 100)).await.unwrap();
            client.fsync(handle).await.unwrap();
            files.push(inode);
        }
        cluster.world.sleep(Duration::from_secs(3)).await;
        near.kill();
        assert!(append(&cluster, &other, files[0]).await < SESSION_TTL / 4, "the kernel of its host knows");
        far.kill();
        assert!(append(&cluster, &other, files[1]).await > SESSION_TTL / 2, "nobody knows whether it lives");
    });
}

/// How long another waits for the file of a mount that was killed beside a block server.
fn wait_for_a_dead_mount(bug: Option<SeededBug>) -> Duration {
    run_with_bug(bug, 65, 3, |cluster| async move {
        let options = crate::ClientOptions { role: "mount".to_owned(), ..cluster.options("h0") };
        let (mount, client) = cluster.process_with(options).await;
        let other = cluster.client("h1").await;
        let (handle, inode) = create(&client, InodeId::ROOT, "file").await;
        client.write(handle, 0, pattern(1, 100)).await.unwrap();
        client.fsync(handle).await.unwrap();
        cluster.world.sleep(Duration::from_secs(3)).await;
        mount.kill();
        append(&cluster, &other, inode).await
    })
}

#[test]
fn a_mount_that_was_killed_is_waited_for_until_its_kernel_forgets() {
    // Its last poll was answered at most a quarter of the session's time ago.
    let trust = SESSION_TTL - Duration::from_secs(2);
    let until_forgotten = trust - SESSION_TTL / 4 - Duration::from_secs(1)..trust + Duration::from_secs(2);
    let took = wait_for_a_dead_mount(None);
    assert!(until_forgotten.contains(&took), "{took:?}");
    let took = wait_for_a_dead_mount(Some(SeededBug::EndsMountAtOnce));
    assert!(took < until_forgotten.start, "its pages may be read until then: {took:?}");
}

#[test]
fn a_client_that_is_frozen_or_spoken_of_elsewhere_keeps_its_session() {
    run(62, 3, |cluster| async move {
        let (process, client) = cluster.process_with(cluster.options("h0")).await;
        let (handle, _) = create(&client, InodeId::ROOT, "file").await;
        client.write(handle, 0, pattern(1, 100)).await.unwrap();
        cluster.world.sleep(Duration::from_secs(3)).await;
        let before = client.session();
        process.freeze();
        cluster.world.sleep(SESSION_TTL / 2).await;
        process.thaw();
        let runtime = cluster.world.process("liar").runtime();
        let liar = Connector::new(runtime, identity("h2", Role::Block), Counters::default());
        let lie = pb::SessionEnded { session: before.raw() };
        let refused = liar.channel(&cluster.master_address).call(&lie, Duration::from_secs(5)).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
        client.write(handle, 100, pattern(2, 100)).await.unwrap();
        client.fsync(handle).await.unwrap();
        assert_eq!(client.session(), before);
        // Its socket is closed with its server; it lives.
        cluster.nodes[0].process.kill();
        cluster.world.sleep(SESSION_TTL / 2).await;
        assert_eq!(read_all(&client, handle).await.unwrap().len(), 200);
        assert_eq!(client.session(), before);
    });
}

/// Goal: what a client may not believe after it was frozen costs a round trip, and not the wait of a poll. Method: it is
/// frozen until just after its leases may be believed no longer; its session goes on.
#[test]
fn a_client_that_was_frozen_reads_at_once_when_it_is_thawed() {
    // Whether the thaw comes before or after the end of the poll under way is chance.
    for seed in 60..70 {
        read_after_a_freeze(seed);
    }
}

fn read_after_a_freeze(seed: u64) {
    run(seed, 3, |cluster| async move {
        let (process, client) = cluster.process_with(cluster.options("h0")).await;
        let (handle, _) = create(&client, InodeId::ROOT, "file").await;
        client.write(handle, 0, pattern(1, 100)).await.unwrap();
        client.fsync(handle).await.unwrap();
        cluster.world.sleep(Duration::from_secs(3)).await;
        let before = client.session();
        process.freeze();
        cluster.world.sleep(Duration::from_millis(8_200)).await;
        assert!(client.shared().session.trust_left().is_zero(), "it believes nothing any more");
        process.thaw();
        let thawed = cluster.world.now();
        assert_eq!(read_all(&client, handle).await.unwrap().len(), 100);
        let took = cluster.world.now() - thawed;
        assert!(took < Duration::from_millis(100), "{took:?}");
        assert_eq!(client.session(), before, "it goes on");
    });
}

async fn unnamed(client: &Client, linkable: bool) -> (Handle, InodeId) {
    let made = client
        .create_unnamed(
            &root(),
            UnnamedFile {
                directory: InodeId::ROOT,
                mode: 0o600,
                umask: 0,
                linkable,
                access: Access::ReadWrite,
                hosts: &[],
            },
        )
        .await;
    let (handle, attr) = made.unwrap();
    assert_eq!(attr.links, 0);
    (handle, attr.inode)
}

async fn is_gone(client: &Client, inode: InodeId) -> bool {
    let asked = client.get_attr(&root(), inode).await;
    asked.is_err_and(|error| error.kind() == ErrorKind::Stale)
}

#[test]
fn a_file_without_a_name_ends_with_its_last_handle_or_its_client() {
    run(63, 3, |cluster| async move {
        let (process, client) = cluster.process_with(cluster.options("h0")).await;
        let other = cluster.client("h1").await;
        let (closed, first) = unnamed(&client, true).await;
        let (open, second) = unnamed(&client, true).await;
        for handle in [closed, open] {
            client.write(handle, 0, pattern(3, 100_000)).await.unwrap();
        }
        client.fsync(open).await.unwrap();
        assert!(
            other.read_dir(&root(), InodeId::ROOT, None, 10, EntryDetail::Names).await.unwrap().entries.is_empty(),
            "nobody sees them"
        );
        client.close(closed).await;
        cluster.world.sleep(Duration::from_secs(5)).await;
        assert!(is_gone(&other, first).await);

        // Another master process lets it live, too, for as long as it is open.
        cluster.restart_master().await;
        cluster.world.sleep(SESSION_TTL * 2).await;
        assert_eq!(read_all(&client, open).await.unwrap(), &pattern(3, 100_000)[..]);
        client.write(open, 100_000, pattern(4, 10)).await.unwrap();
        client.fsync(open).await.unwrap();
        process.kill();
        cluster.world.sleep(SESSION_TTL * 2).await;
        assert!(is_gone(&other, second).await);
    });
}

#[test]
fn a_file_without_a_name_gets_one_if_it_may() {
    run(64, 3, |cluster| async move {
        let client = cluster.client("h0").await;
        let (handle, inode) = unnamed(&client, true).await;
        client.write(handle, 0, pattern(5, 5000)).await.unwrap();
        let linked = client.link(&root(), inode, InodeId::ROOT, b"named").await.unwrap();
        assert_eq!((linked.links, linked.inode), (1, inode));
        client.close(handle).await;
        let other = cluster.client("h1").await;
        cluster.world.sleep(Duration::from_secs(5)).await;
        let found = other.lookup(&root(), InodeId::ROOT, b"named").await.unwrap();
        let (reader, _) = other.open(&root(), found.inode, Access::Read).await.unwrap();
        assert_eq!(read_all(&other, reader).await.unwrap(), &pattern(5, 5000)[..]);

        // Once it has had a name it is like any other.
        client.unlink(&root(), InodeId::ROOT, b"named").await.unwrap();
        let again = client.link(&root(), inode, InodeId::ROOT, b"again").await;
        assert_eq!(again.unwrap_err().kind(), ErrorKind::NotFound);
        let (handle, never) = unnamed(&client, false).await;
        let refused = client.link(&root(), never, InodeId::ROOT, b"never").await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
        client.close(handle).await;
    });
}
