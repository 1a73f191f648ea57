//! Write leases of closed files do not stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_runtime::SeededBug;
use ebb_types::InodeId;

use super::harness::{create, pattern, read_all, root, run, run_with_bug};
use crate::lease::hold::Lease;
use crate::lease::idle::may_lower;
use crate::{Access, Client};

const FILES: u64 = 40;
/// After this time at rest nothing is left but open files: ten seconds, and the interval of the task, five.
const REST: Duration = Duration::from_secs(25);

/// Makes files and closes them, all but the first; their inodes, in order.
async fn make_files(client: &Client) -> Vec<InodeId> {
    let mut made = Vec::new();
    for number in 0..FILES {
        let (handle, inode) = create(client, InodeId::ROOT, &format!("f{number}")).await;
        client.write(handle, 0, pattern(number, 5000)).await.unwrap();
        if number > 0 {
            client.close(handle).await;
        }
        made.push(inode);
    }
    made
}

fn write_leases_at_rest(bug: Option<SeededBug>) -> u64 {
    run_with_bug(bug, 201, 3, |cluster| async move {
        let client = cluster.client("h0").await;
        make_files(&client).await;
        assert_eq!(cluster.write_leases(&client).await, FILES);
        cluster.world.sleep(REST).await;
        cluster.write_leases(&client).await
    })
}

#[test]
fn a_client_at_rest_holds_write_leases_only_of_files_that_are_open() {
    assert_eq!(write_leases_at_rest(None), 1);
    assert_eq!(write_leases_at_rest(Some(SeededBug::KeepsIdle)), FILES);
}

#[test]
fn a_file_in_repeated_use_or_with_unsettled_writes_keeps_its_lease() {
    run(202, 3, |cluster| async move {
        let client = cluster.client("h0").await;
        let made = make_files(&client).await;
        for _ in 0..6 {
            cluster.world.sleep(Duration::from_secs(4)).await;
            let (handle, _) = client.open(&root(), made[1], Access::ReadWrite).await.unwrap();
            client.append(handle, pattern(1, 10)).await.unwrap();
            client.close(handle).await;
        }
        assert_eq!(cluster.write_leases(&client).await, 2, "the open one, and the one that is used");
        // No member takes the write: it is closed, and not settled.
        let (handle, _) = client.open(&root(), made[1], Access::ReadWrite).await.unwrap();
        for number in 0..3 {
            cluster.kill_node(number);
        }
        client.append(handle, pattern(1, 10)).await.unwrap();
        client.close(handle).await;
        cluster.world.sleep(Duration::from_secs(20)).await;
        assert_eq!(cluster.write_leases(&client).await, 2);
    });
}

/// Goal: cached state stays valid. No message for attributes, and none for bytes that the client has.
#[test]
fn a_lowered_lease_is_a_read_lease_with_everything_that_was_cached() {
    run(203, 3, |cluster| async move {
        let (one, two) = (cluster.client("h0").await, cluster.client("h1").await);
        let made = make_files(&one).await;
        let before = one.get_attr(&root(), made[3]).await.unwrap();
        cluster.world.sleep(REST).await;
        let lease = |inode: InodeId| one.shared().find(inode).unwrap().core.lock().hold.lease();
        assert_eq!((lease(made[0]), lease(made[3])), (Lease::Write, Lease::Read));
        let kept = one.shared().kept_attr(made[3]).expect("attributes need not be asked for");
        assert_eq!((kept.size, kept.mtime), (before.size, before.mtime));
        let recorded = two.get_attr(&root(), made[3]).await.unwrap();
        assert_eq!(kept, recorded, "they are what the master has");
        let (handle, _) = one.open(&root(), made[3], Access::Read).await.unwrap();
        // Members cannot answer: reads come from memory.
        for number in 0..3 {
            cluster.nodes[number].process.freeze();
        }
        assert_eq!(read_all(&one, handle).await.unwrap(), pattern(3, 5000));
        for number in 0..3 {
            cluster.nodes[number].process.thaw();
        }
        // The next writer waits for no other client, and all clients see its write.
        let (written, _) = two.open(&root(), made[3], Access::ReadWrite).await.unwrap();
        two.write(written, 0, pattern(99, 5000)).await.unwrap();
        assert_eq!(read_all(&one, handle).await.unwrap(), pattern(99, 5000));
    });
}

/// Goal: a write that begins while its lease is being lowered is neither lost nor refused. Method: leases are lowered all the time,
/// as soon as a file is settled, while files are opened, written and closed at many moments; another client looks afterwards.
#[test]
fn a_write_that_begins_while_leases_are_lowered_is_kept() {
    const ROUNDS: u64 = 5;
    run(204, 3, |cluster| async move {
        let (one, two) = (cluster.client("h0").await, cluster.client("h1").await);
        let made = make_files(&one).await;
        let (shared, done) = (one.shared().clone(), Arc::new(AtomicBool::new(false)));
        let lowering = shared.runtime.clone().spawn("lower all the time", {
            let done = done.clone();
            async move {
                while !done.load(Ordering::Relaxed) {
                    drop(shared.lower(shared.shut(&shared.inodes(), may_lower)).await);
                    shared.runtime.sleep(Duration::from_micros(300)).await;
                }
            }
        });
        for round in 0..ROUNDS {
            for (number, inode) in made.iter().enumerate().skip(1) {
                let (handle, _) = one.open(&root(), *inode, Access::ReadWrite).await.unwrap();
                one.append(handle, pattern(round * FILES + number as u64, 100)).await.unwrap();
                one.close(handle).await;
                cluster.world.sleep(Duration::from_millis(13 * (number as u64 % 5))).await;
            }
            cluster.world.sleep(Duration::from_millis(700)).await;
        }
        done.store(true, Ordering::Relaxed);
        lowering.join().await.unwrap();
        for (number, inode) in made.iter().enumerate().skip(1) {
            let mut wanted = pattern(number as u64, 5000).to_vec();
            for round in 0..ROUNDS {
                wanted.extend_from_slice(&pattern(round * FILES + number as u64, 100));
            }
            let (handle, _) = two.open(&root(), *inode, Access::Read).await.unwrap();
            assert_eq!(read_all(&two, handle).await.unwrap(), wanted, "f{number}");
            two.close(handle).await;
        }
        assert!(one.metrics().lowered_leases > FILES, "{} leases were lowered", one.metrics().lowered_leases);
        assert_eq!(one.metrics().lost_files, 0);
    });
}

/// Goal: an answer that does not come leaves no lease that is believed and not held. Method: the master is frozen when it has been
/// asked, for longer than the client asks; then another process takes its place.
#[test]
fn leases_that_may_have_gone_back_are_not_believed() {
    run(205, 3, |cluster| async move {
        let (one, two) = (cluster.client("h0").await, cluster.client("h1").await);
        let made = make_files(&one).await;
        cluster.world.sleep(Duration::from_secs(3)).await;
        let shared = one.shared().clone();
        let generation = shared.session.name().generation;
        cluster.master.freeze();
        let files: Vec<_> = made.iter().filter_map(|inode| shared.find(*inode)).collect();
        drop(shared.lower(shared.shut(&files, may_lower)).await);
        assert_eq!(shared.session.name().generation, generation, "nothing was heard of the session's end");
        let leases: Vec<Lease> = files.iter().map(|inode| inode.core.lock().hold.lease()).collect();
        assert_eq!(leases[0], Lease::Write);
        assert!(leases[1..].iter().all(|lease| *lease == Lease::None), "{leases:?}");
        cluster.master.thaw();
        cluster.restart_master().await;
        cluster.world.sleep(REST * 2).await;
        assert!(cluster.write_leases(&two).await <= 1);
        let (handle, _) = two.open(&root(), made[5], Access::ReadWrite).await.unwrap();
        two.write(handle, 0, pattern(77, 5000)).await.unwrap();
        let (read, _) = one.open(&root(), made[5], Access::Read).await.unwrap();
        assert_eq!(read_all(&one, read).await.unwrap(), pattern(77, 5000));
    });
}

/// Goal: memory that files took goes with them, however many there were.
#[test]
fn nothing_is_kept_of_removed_files() {
    run(206, 3, |cluster| async move {
        let client = cluster.client("h0").await;
        let before = client.shared().inode_count();
        for round in 0..3 {
            for number in 0..200 {
                let name = format!("r{round}-{number}");
                let (handle, _) = create(&client, InodeId::ROOT, &name).await;
                client.write(handle, 0, pattern(number, 100)).await.unwrap();
                client.close(handle).await;
            }
            for number in 0..200 {
                client.unlink(&root(), InodeId::ROOT, format!("r{round}-{number}").as_bytes()).await.unwrap();
            }
        }
        cluster.world.sleep(REST).await;
        let shared = client.shared();
        // The attributes of the directory are kept.
        assert_eq!((shared.inode_count(), shared.known.attrs_kept(), shared.cache.bytes()), (before, 1, 0));
    });
}
