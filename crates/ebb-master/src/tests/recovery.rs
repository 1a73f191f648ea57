//! Recovery of files whose holder died, from members that disagree.

use std::time::Duration;

use ebb_runtime::SeededBug;
use ebb_types::{Epoch, Version};
use ebb_wire::pb;
use pb::LeaseMode::{LeaseRead, LeaseWrite};

use super::harness::{Cluster, TestClient, held, with_bug, with_cluster};

/// A file that a session made, wrote to each member up to these seqs, and left when it died.
async fn abandoned(cluster: &Cluster, seqs: [u64; 3]) -> (pb::Attr, pb::Metablock) {
    let client = cluster.client().await;
    let reply = client.create("a").await.unwrap();
    let (attr, block) = (reply.attr.unwrap(), reply.metablocks[0].clone());
    for (member, seq) in block.members.iter().zip(seqs) {
        if seq > 0 {
            cluster.node(member.node).put(block.id, Version::new(Epoch::new(attr.epoch), seq), seq * 1000);
        }
    }
    (attr, block)
}

/// Attributes and map of the file, once another session sees its size.
async fn settled(cluster: &Cluster, client: &TestClient, inode: u64) -> (pb::Attr, Vec<pb::Metablock>) {
    for _ in 0..300 {
        cluster.world.sleep(Duration::from_millis(300)).await;
        let holder_is_gone = cluster.status().await.sessions == 1;
        if holder_is_gone && let Ok(attr) = client.attr(inode).await {
            return (attr, client.map(inode).await);
        }
    }
    panic!("i{inode} was not recovered");
}

#[test]
fn members_are_made_equal_to_the_highest_and_stamped() {
    with_cluster(21, 3, |cluster| async move {
        let (attr, block) = abandoned(&cluster, [3, 2, 0]).await;
        let client = cluster.watcher().await;
        let (now, map) = settled(&cluster, &client, attr.inode).await;
        assert_eq!(now.size, 3000, "what one member had is kept");
        assert!(now.epoch > attr.epoch && !now.size_unknown);
        let stamp = Version::new(Epoch::new(now.epoch), 0);
        assert_eq!((map[0].min_version(), map[0].length, map[0].members.len()), (stamp, 3000, 3));
        for member in &block.members {
            let replica = cluster.node(member.node).replica(block.id).unwrap();
            assert_eq!((replica.version, replica.length), (stamp, 3000));
        }
        // The file can be written again.
        let lease = client.acquire(attr.inode, LeaseWrite, true).await.unwrap();
        assert!(lease.attr.unwrap().epoch > now.epoch);
    });
}

#[test]
fn a_member_that_is_silent_when_it_is_to_be_stamped_is_waited_for() {
    with_cluster(32, 3, |cluster| async move {
        let (attr, block) = abandoned(&cluster, [3, 3, 3]).await;
        cluster.node(block.members[1].node).held.lock().silent_stamps = 2;
        let client = cluster.watcher().await;
        let (now, map) = settled(&cluster, &client, attr.inode).await;
        assert_eq!(cluster.node(block.members[1].node).held.lock().silent_stamps, 0);
        assert_eq!((now.size, map[0].members.len(), map[0].left_out.len()), (3000, 3, 0));
    });
}

#[test]
fn an_unused_grant_is_freed() {
    with_cluster(22, 3, |cluster| async move {
        let (attr, _) = abandoned(&cluster, [0, 0, 0]).await;
        let client = cluster.watcher().await;
        let (now, map) = settled(&cluster, &client, attr.inode).await;
        assert_eq!((now.size, map.len()), (0, 0));
    });
}

#[test]
fn a_member_that_is_down_is_left_out_and_the_count_is_made_good() {
    with_cluster(23, 4, |cluster| async move {
        let (attr, block) = abandoned(&cluster, [3, 3, 3]).await;
        let down = cluster.number(block.members[0].node);
        cluster.kill_fake(down);
        let client = cluster.watcher().await;
        let (now, map) = settled(&cluster, &client, attr.inode).await;
        assert_eq!(now.size, 3000);
        assert!(map[0].members.iter().all(|member| member.node != block.members[0].node));
        cluster.until("three copies again", |status| status.under_replicated == 0).await;
        let client = cluster.client().await;
        let map = client.map(attr.inode).await;
        assert_eq!(map[0].members.len(), 3);
        // The one that turns up later is in no set: its replica goes.
        cluster.start_fake(down).await;
        cluster.until_seen("the late replica deleted", || cluster.fakes[down - 1].replica(block.id).is_none()).await;
    });
}

#[test]
fn a_recovery_without_any_member_waits_for_one_and_readers_wait_with_it() {
    with_cluster(24, 3, |cluster| async move {
        let (attr, block) = abandoned(&cluster, [3, 3, 3]).await;
        for number in 1..=3 {
            cluster.kill_fake(number);
        }
        let client = cluster.watcher().await;
        cluster.world.sleep(Duration::from_secs(12)).await;
        assert!(client.attr(attr.inode).await.is_err(), "its size is not known");
        assert!(client.acquire(attr.inode, LeaseRead, true).await.is_err());
        let number = cluster.number(block.members[1].node);
        cluster.start_fake(number).await;
        let (now, map) = settled(&cluster, &client, attr.inode).await;
        assert_eq!((now.size, map[0].members.len()), (3000, 1));
    });
}

#[test]
fn a_master_that_dies_in_a_recovery_begins_it_again_with_a_higher_epoch() {
    with_cluster(25, 3, |mut cluster| async move {
        let (attr, block) = abandoned(&cluster, [2, 1, 1]).await;
        // No member is there, so that the recovery is under way when the master dies.
        for number in 1..=3 {
            cluster.kill_fake(number);
        }
        cluster.world.sleep(Duration::from_secs(14)).await;
        let client = cluster.watcher().await;
        assert!(client.attr(attr.inode).await.is_err());
        cluster.crash_master().await;
        for number in 1..=3 {
            cluster.start_fake(number).await;
        }
        let (now, map) = settled(&cluster, &client, attr.inode).await;
        assert_eq!((now.size, map[0].members.len()), (2000, 3));
        let replica = cluster.node(block.members[2].node).replica(block.id).unwrap();
        assert_eq!(replica.version, Version::new(Epoch::new(now.epoch), 0));
    });
}

#[test]
fn a_holder_that_gives_its_lease_up_without_committing_is_recovered() {
    with_cluster(26, 3, |cluster| async move {
        let client = cluster.client().await;
        let reply = client.create("a").await.unwrap();
        let (attr, block) = (reply.attr.unwrap(), reply.metablocks[0].clone());
        for member in &block.members {
            cluster.node(member.node).put(block.id, Version::new(Epoch::new(attr.epoch), 1), 500);
        }
        client.poll(vec![held(attr.inode, pb::LeaseMode::LeaseNone, attr.epoch, 0)]).await.unwrap();
        let watcher = cluster.watcher().await;
        let now = watcher.attr(attr.inode).await.unwrap();
        assert_eq!(now.size, 500);
        let refused = client.commit(&attr, vec![], 9, false).await.unwrap();
        assert_eq!(refused.refusals.len(), 1, "the old epoch is fenced off");
    });
}

/// All nodes go down with the holder, and one comes back before its session ends.
async fn alone(cluster: &Cluster) -> (pb::Attr, pb::Metablock) {
    let (attr, block) = abandoned(cluster, [3, 3, 3]).await;
    (1..=3).for_each(|number| cluster.kill_fake(number));
    cluster.world.sleep(Duration::from_secs(4)).await;
    cluster.start_fake(cluster.number(block.members[0].node)).await;
    (attr, block)
}

async fn start_others(cluster: &Cluster, block: &pb::Metablock) {
    for member in &block.members[1..] {
        cluster.start_fake(cluster.number(member.node)).await;
    }
}

fn pulls(cluster: &Cluster) -> u64 {
    cluster.fakes.iter().map(|fake| fake.held.lock().pulls).sum()
}

#[test]
fn a_recovery_waits_for_nodes_that_are_only_silent() {
    with_cluster(27, 3, |cluster| async move {
        let (attr, block) = alone(&cluster).await;
        let client = cluster.watcher().await;
        cluster.world.sleep(Duration::from_secs(14)).await;
        let status = cluster.status().await;
        assert_eq!(status.sessions, 1, "the holder's is over");
        start_others(&cluster, &block).await;
        let (now, map) = settled(&cluster, &client, attr.inode).await;
        assert_eq!((now.size, map[0].members.len()), (3000, 3));
        assert_eq!(pulls(&cluster), 0);
        assert!(cluster.fakes.iter().all(|fake| fake.held.lock().deletions.is_empty()));
    });
}

#[test]
fn a_member_left_out_with_all_bytes_is_a_member_again_without_a_copy() {
    with_cluster(28, 3, |cluster| async move {
        let (attr, block) = alone(&cluster).await;
        let client = cluster.watcher().await;
        let (now, map) = settled(&cluster, &client, attr.inode).await;
        assert_eq!((now.size, map[0].members.len(), map[0].left_out.len()), (3000, 1, 2));
        start_others(&cluster, &block).await;
        cluster.until("three copies again", |status| status.under_replicated == 0 && status.safe_start).await;
        let map = client.map(attr.inode).await;
        assert_eq!((map[0].members.len(), map[0].left_out.len()), (3, 0));
        assert_eq!(pulls(&cluster), 0, "nothing is copied");
        assert!(cluster.fakes.iter().all(|fake| fake.held.lock().deletions.is_empty()), "nothing is deleted");
        for member in &block.members {
            let replica = cluster.node(member.node).replica(block.id).unwrap();
            assert_eq!((replica.version, replica.length), (Version::new(Epoch::new(now.epoch), 0), 3000));
        }
    });
}

#[test]
fn a_member_left_out_of_a_write_gets_a_copy() {
    with_cluster(29, 3, |cluster| async move {
        let (attr, block) = alone(&cluster).await;
        let client = cluster.watcher().await;
        let (_, map) = settled(&cluster, &client, attr.inode).await;
        assert_eq!(map[0].members.len(), 1);
        let lease = client.acquire(attr.inode, LeaseWrite, true).await.unwrap();
        let held = lease.attr.unwrap();
        let version = Version::new(Epoch::new(held.epoch), 1);
        cluster.node(block.members[0].node).put(block.id, version, 4000);
        let committed = pb::CommitMetablock { id: block.id, version: Some(version.into()), length: 4000 };
        client.commit(&held, vec![committed], 4000, true).await.unwrap();
        let release = pb::Release { session: client.session, inodes: vec![attr.inode] };
        client.channel.call(&release, super::harness::DEADLINE).await.unwrap();
        start_others(&cluster, &block).await;
        cluster.until("three copies again", |status| status.under_replicated == 0 && status.safe_start).await;
        assert_eq!(pulls(&cluster), 2);
        for member in &block.members {
            let replica = cluster.node(member.node).replica(block.id).unwrap();
            assert_eq!((replica.version, replica.length), (version, 4000));
        }
    });
}

/// A node is replaced while it is dead, and returns when only one of the other members is left. Its replica is in no
/// set, and is one of two copies. Returns the number of replicas that it was asked to delete.
fn deletions_while_copies_lack(bug: Option<SeededBug>) -> usize {
    with_bug(bug, 30, 4, |cluster| async move {
        let (attr, block) = abandoned(&cluster, [3, 3, 3]).await;
        let client = cluster.watcher().await;
        settled(&cluster, &client, attr.inode).await;
        let away = cluster.number(block.members[2].node);
        cluster.kill_fake(away);
        let mut members = block.members.clone();
        while members.len() != 3 || members.contains(&block.members[2]) {
            cluster.world.sleep(Duration::from_secs(1)).await;
            members = client.map(attr.inode).await[0].members.clone();
        }
        for member in members.iter().filter(|member| member.node != block.members[0].node) {
            cluster.kill_fake(cluster.number(member.node));
        }
        let is_dead = |node: &&pb::Node| node.state() == pb::NodeState::NodeDead;
        cluster.until("three deaths", |status| status.nodes.iter().filter(is_dead).count() == 3).await;
        cluster.start_fake(away).await;
        cluster.until("it is back", |status| status.nodes.iter().filter(is_dead).count() == 2).await;
        cluster.world.sleep(Duration::from_secs(20)).await;
        cluster.fakes[away - 1].held.lock().deletions.len()
    })
}

#[test]
fn replicas_outside_the_set_are_kept_while_the_set_lacks_copies() {
    assert_eq!(deletions_while_copies_lack(None), 0);
    assert!(deletions_while_copies_lack(Some(SeededBug::MapAlone)) > 0);
}
