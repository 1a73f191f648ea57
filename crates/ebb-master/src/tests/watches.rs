//! Cached names and attributes are recalled before another session changes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_types::Result;
use ebb_wire::pb;
use pb::meta_op::{GetAttr, Lookup, Op, SetAttr};

use super::harness::{TestClient, create, unlink, with_cluster};

const ROOT: u64 = 1;

fn lookup(name: &str) -> Op {
    Op::Lookup(Lookup { parent: ROOT, name: name.into() })
}

/// A change in progress, and whether it was answered.
struct Change {
    task: ebb_runtime::Task<Result<pb::MetaReply>>,
    answered: Arc<AtomicBool>,
}

fn start_change(client: &Arc<TestClient>, op: Op) -> Change {
    let (own, answered) = (Arc::clone(client), Arc::new(AtomicBool::new(false)));
    let is_answered = Arc::clone(&answered);
    let task = client.runtime.spawn("a change", async move {
        let reply = own.mutate(op).await;
        is_answered.store(true, Ordering::Relaxed);
        reply
    });
    Change { task, answered }
}

#[test]
fn a_name_that_is_kept_as_missing_is_not_made_before_it_is_forgotten() {
    with_cluster(1, 3, |cluster| async move {
        let (keeper, maker) = (cluster.client().await, Arc::new(cluster.watcher().await));
        let entry = keeper.keep(lookup("f")).await;
        assert!(entry.missing && entry.leased == [ROOT], "{entry:?}");
        let change = start_change(&maker, create("f", true));
        let forget = keeper.next_forgetting().await;
        assert_eq!(forget.inode, ROOT);
        assert!(!change.answered.load(Ordering::Relaxed));
        // A query meanwhile gets the truth, but may not cache it.
        let meanwhile = keeper.keep(lookup("f")).await;
        assert!(meanwhile.missing && meanwhile.leased.is_empty(), "{meanwhile:?}");
        keeper.forgotten(vec![forget.number]).await;
        assert!(change.task.join().await.unwrap().unwrap().created);
        let after = keeper.keep(lookup("f")).await;
        assert!(after.attr.is_some() && after.leased.contains(&ROOT));
        assert!(!after.leased.contains(&after.attr.unwrap().inode), "its size changes without a word");
    });
}

#[test]
fn attributes_are_recalled_from_readers_and_from_the_writer_of_a_file() {
    with_cluster(2, 3, |cluster| async move {
        let (writer, other) = (Arc::new(cluster.client().await), Arc::new(cluster.watcher().await));
        let made = writer.create("f").await.unwrap().attr.unwrap();
        let (session, mode) = (writer.session, pb::LeaseMode::LeaseWrite as i32);
        let acquire = pb::Acquire { session, inode: made.inode, mode, keep: true, ..Default::default() };
        assert!(writer.channel.call(&acquire, Duration::from_secs(30)).await.unwrap().leased);
        let chmod = SetAttr { inode: made.inode, mode: Some(0o600), ..Default::default() };
        let change = start_change(&other, Op::SetAttr(chmod));
        let forget = writer.next_forgetting().await;
        assert_eq!(forget.inode, made.inode);
        assert!(!change.answered.load(Ordering::Relaxed));
        writer.forgotten(vec![forget.number]).await;
        assert_eq!(change.task.join().await.unwrap().unwrap().attr.unwrap().mode, 0o600);
    });
}

#[test]
fn a_keeper_that_says_nothing_is_waited_for_until_its_session_is_over() {
    with_cluster(3, 3, |cluster| async move {
        let (keeper, maker) = (cluster.client().await, Arc::new(cluster.watcher().await));
        maker.create("f").await.unwrap();
        // Not the file that is there: its holder would be asked first, for longer than this session lasts.
        while !keeper.keep(lookup("g")).await.leased.contains(&ROOT) {
            cluster.world.sleep(Duration::from_millis(1)).await;
        }
        let begun = maker.runtime.now();
        let reply = start_change(&maker, unlink("f")).task.join().await.unwrap();
        reply.unwrap();
        let took = maker.runtime.now().since(begun);
        assert!(took >= Duration::from_secs(7), "its leases may be believed for so long, and it took {took:?}");
    });
}

#[test]
fn a_new_master_waits_for_clients_that_may_keep_unknown_names() {
    with_cluster(4, 3, |mut cluster| async move {
        let (keeper, maker) = (cluster.client().await, Arc::new(cluster.client().await));
        keeper.keep(Op::GetAttr(GetAttr { inode: ROOT })).await;
        cluster.crash_master().await;
        let reclaim = |client: &TestClient| pb::Reclaim { session: client.session, ..Default::default() };
        maker.channel.call(&reclaim(&maker), Duration::from_secs(30)).await.unwrap();
        let change = start_change(&maker, create("f", true));
        cluster.world.sleep(Duration::from_secs(2)).await;
        assert!(!change.answered.load(Ordering::Relaxed));
        keeper.channel.call(&reclaim(&keeper), Duration::from_secs(30)).await.unwrap();
        assert!(change.task.join().await.unwrap().unwrap().created);
    });
}
