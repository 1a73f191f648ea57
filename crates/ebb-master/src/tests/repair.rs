//! Repair of the number of copies when nodes die, drain or lose bytes.

use std::time::Duration;

use ebb_types::{ErrorKind, Version};
use ebb_wire::pb;
use pb::LeaseMode::LeaseRead;
use pb::explain_copies::What;

use super::harness::{Cluster, DEADLINE, TestClient, held, with_bug, with_cluster};

async fn files(cluster: &Cluster, count: usize) -> (TestClient, Vec<(pb::Attr, pb::Metablock)>) {
    let client = cluster.client().await;
    let files = files_of(&client, cluster, "f", count).await;
    (client, files)
}

async fn files_of(
    client: &TestClient,
    cluster: &Cluster,
    prefix: &str,
    count: usize,
) -> Vec<(pb::Attr, pb::Metablock)> {
    let mut files = Vec::new();
    for number in 0..count {
        files.push(client.written_file(cluster, &format!("{prefix}{number}"), 1000).await);
    }
    files
}

async fn assert_whole(cluster: &Cluster, sets: usize) {
    let found = cluster.fsck().await;
    let expected = pb::FsckReply { metablocks: sets as u64, ..Default::default() };
    assert_eq!(found, expected, "{:?}", found.findings);
}

#[test]
fn copies_lost_with_a_node_are_made_again_and_its_late_replicas_go() {
    with_cluster(31, 5, |cluster| async move {
        let (_, files) = files(&cluster, 30).await;
        assert_whole(&cluster, 30).await;
        let dead = files[0].1.members[0].node;
        let number = cluster.number(dead);
        cluster.kill_fake(number);
        cluster
            .until("the death", |status| status.nodes.iter().any(|node| node.state == pb::NodeState::NodeDead as i32))
            .await;
        cluster.until("all copies", |status| status.under_replicated == 0).await;
        assert_whole(&cluster, 30).await;
        cluster.start_fake(number).await;
        cluster
            .until("five nodes", |status| status.nodes.iter().all(|node| node.state == pb::NodeState::NodeLive as i32))
            .await;
        cluster.until_seen("late replicas deleted", || cluster.fakes[number - 1].held.lock().replicas.is_empty()).await;
        let client = cluster.client().await;
        for (attr, _) in &files {
            let members = client.map(attr.inode).await[0].members.clone();
            assert!(members.len() == 3 && members.iter().all(|member| member.node != dead), "{members:?}");
        }
    });
}

#[test]
fn a_node_that_is_back_before_it_counts_as_dead_costs_nothing() {
    with_cluster(32, 4, |cluster| async move {
        files(&cluster, 10).await;
        cluster.kill_fake(2);
        cluster.world.sleep(Duration::from_secs(20)).await;
        cluster.start_fake(2).await;
        cluster.world.sleep(Duration::from_secs(30)).await;
        assert!(cluster.fakes.iter().all(|fake| fake.held.lock().pulls == 0));
        assert_whole(&cluster, 10).await;
    });
}

#[test]
fn a_drained_node_ends_empty() {
    with_cluster(33, 4, |cluster| async move {
        files(&cluster, 20).await;
        let (channel, _) = cluster.channel();
        let node = cluster.fakes[0].held.lock().node;
        let begun = channel.call(&pb::DrainNode { node, undo: false }, DEADLINE).await.unwrap();
        assert!(begun.metablocks_left > 0);
        let mut left = begun.metablocks_left;
        for _ in 0..100 {
            cluster.world.sleep(Duration::from_secs(1)).await;
            left = channel.call(&pb::DrainNode { node, undo: false }, DEADLINE).await.unwrap().metablocks_left;
            if left == 0 {
                break;
            }
        }
        assert_eq!(left, 0);
        cluster.until_seen("its replicas deleted", || cluster.fakes[0].held.lock().replicas.is_empty()).await;
        assert_whole(&cluster, 20).await;
        let client = cluster.client().await;
        let members = client.create("new").await.unwrap().metablocks[0].members.clone();
        assert!(members.iter().all(|member| member.node != node), "nothing new goes there");
        channel.call(&pb::DrainNode { node, undo: true }, DEADLINE).await.unwrap();
        let unknown = channel.call(&pb::DrainNode { node: 99, undo: false }, DEADLINE).await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::NotFound);
    });
}

/// Goal: an operator can ask why a copy does not move. Method: a node of three is drained, and no other node can take
/// its copies.
#[test]
fn the_reason_why_copies_do_not_move_is_given() {
    with_cluster(34, 3, |cluster| async move {
        let (_client, made) = files(&cluster, 5).await;
        let (channel, _) = cluster.channel();
        let inode = made[0].0.inode;
        let number = cluster.fakes[0].held.lock().node;
        let file = pb::ExplainCopies { what: Some(What::Inode(inode)) };
        let node = pb::ExplainCopies { what: Some(What::Node(number)) };
        let explain = async |call: &pb::ExplainCopies| channel.call(call, DEADLINE).await.unwrap();
        cluster.until("rest", |status| status.under_replicated == 0 && status.safe_start).await;
        let before = explain(&file).await.sets;
        assert_eq!((before[0].state(), &*before[0].why), (pb::CopyState::CopySettled, "as it should be"));
        assert!(explain(&node).await.work.is_empty());

        channel.call(&pb::DrainNode { node: number, undo: false }, DEADLINE).await.unwrap();
        cluster.world.sleep(Duration::from_secs(2)).await;
        let waits = &explain(&file).await.sets[0];
        assert_eq!(waits.state(), pb::CopyState::CopyWaits);
        let reasons = ["a member's node is being drained; there is no place for a copy: ", "nodes"];
        assert!(reasons.iter().all(|reason| waits.why.contains(reason)), "{}", waits.why);
        let work = explain(&node).await.work;
        assert_eq!((work.len(), work[0].sets, work[0].state()), (1, 5, pb::CopyState::CopyWaits), "{work:?}");
        assert_eq!(work[0].why, waits.why);

        channel.call(&pb::DrainNode { node: number, undo: true }, DEADLINE).await.unwrap();
        cluster.world.sleep(Duration::from_secs(2)).await;
        assert_eq!(explain(&file).await.sets[0].state(), pb::CopyState::CopySettled);
        assert!(explain(&node).await.work.is_empty());
        let refused = channel.call(&pb::ExplainCopies::default(), DEADLINE).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        let unknown = channel.call(&pb::ExplainCopies { what: Some(What::Node(99)) }, DEADLINE).await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::NotFound);
    });
}

/// Goal: a drain ends although new sets were being logged when it started. Method: four clients make files while the
/// drain is logged. The seed decides which files were placed before.
#[test]
fn blocks_placed_as_a_drain_began_leave_the_node_too() {
    let mut raced = 0;
    for seed in 330..336 {
        raced += with_bug(None, seed, 4, |cluster| async move {
            let (channel, _) = cluster.channel();
            let node = cluster.fakes[0].held.lock().node;
            let drain = pb::DrainNode { node, undo: false };
            let begin = async {
                cluster.world.sleep(Duration::from_millis(5)).await;
                channel.call(&drain, DEADLINE).await.unwrap();
            };
            let making = async |prefix| files_of(&cluster.watcher().await, &cluster, prefix, 10).await;
            let (a, b, c, d, ()) = tokio::join!(making("a"), making("b"), making("c"), making("d"), begin);
            cluster.world.sleep(Duration::from_secs(60)).await;
            let left = channel.call(&drain, DEADLINE).await.unwrap().metablocks_left;
            assert_eq!(left, 0, "seed {seed}");
            let lies_there = |block: &pb::Metablock| block.members.iter().any(|member| member.node == node);
            [a, b, c, d].iter().flatten().filter(|(_, block)| lies_there(block)).count()
        });
    }
    assert!(raced > 0, "no set was on its way");
}

#[test]
fn damaged_and_missing_replicas_are_replaced_by_good_copies() {
    with_cluster(34, 5, |cluster| async move {
        let (_, files) = files(&cluster, 3).await;
        let [(_, one), (_, two), (_, three)] = &files[..] else { panic!() };
        // One is found by its node, one by a reader, one is just gone and a reader notices.
        let node = |block: &pb::Metablock, at: usize| cluster.node(block.members[at].node).clone();
        node(one, 0).held.lock().replicas.get_mut(&one.id).unwrap().corrupt = true;
        node(one, 0).held.lock().corrupt_news.push(one.id);
        node(two, 1).held.lock().replicas.get_mut(&two.id).unwrap().corrupt = true;
        node(three, 2).held.lock().replicas.remove(&three.id);
        let (channel, _) = cluster.channel();
        for (block, at, kind) in [(two, 1, ErrorKind::Corrupt), (three, 2, ErrorKind::NoReplica)] {
            let failure = Some(pb::Failure { kind: kind.raw(), detail: "seen".into() });
            let report = pb::ReportReplica { metablock: block.id, member: Some(block.members[at]), failure };
            channel.call(&report, DEADLINE).await.unwrap();
        }
        cluster.world.sleep(Duration::from_secs(5)).await;
        cluster.until("all copies", |status| status.under_replicated == 0).await;
        cluster
            .until_seen("damage deleted", || {
                cluster.fakes.iter().all(|fake| fake.held.lock().replicas.values().all(|replica| !replica.corrupt))
            })
            .await;
        assert_whole(&cluster, 3).await;
    });
}

/// Goal: damage can be repaired with no more nodes than copies. The set stays as it is.
#[test]
fn damage_is_made_good_where_it_is_when_there_is_no_other_node() {
    with_cluster(48, 3, |cluster| async move {
        let (client, files) = files(&cluster, 2).await;
        let (attr, block) = &files[0];
        let member = cluster.node(block.members[0].node).clone();
        member.held.lock().replicas.get_mut(&block.id).unwrap().corrupt = true;
        member.held.lock().corrupt_news.push(block.id);
        cluster.until_seen("repair", || !member.replica(block.id).unwrap().corrupt).await;
        cluster.until("all copies", |status| status.under_replicated == 0).await;
        assert_eq!(client.map(attr.inode).await[0].members, block.members);
        assert_whole(&cluster, 2).await;
    });
}

/// Goal: a set that lost a member with its volume gets it on the node's next volume, although its file has no holder
/// and there is no further node. The same holds if the master that learned of the loss is gone.
#[test]
fn a_node_that_comes_back_with_another_volume_takes_its_copies_again() {
    for crash in [false, true] {
        with_cluster(49, 3, |mut cluster| async move {
            files(&cluster, 10).await;
            cluster.kill_fake(2);
            {
                let mut held = cluster.fakes[1].held.lock();
                held.volume = 0;
                held.replicas.clear();
            }
            cluster.start_fake(2).await;
            if crash {
                cluster.crash_master().await;
                cluster.until("safe start", |status| status.safe_start).await;
            }
            cluster.until_seen("copies", || cluster.fakes[1].held.lock().replicas.len() == 10).await;
            cluster.until("all copies", |status| status.under_replicated == 0).await;
            assert_whole(&cluster, 10).await;
        });
    }
}

#[test]
fn a_report_of_a_replica_that_is_good_changes_nothing() {
    with_cluster(35, 4, |cluster| async move {
        let (_, files) = files(&cluster, 1).await;
        let block = &files[0].1;
        let failure = Some(pb::Failure { kind: ErrorKind::NoReplica.raw(), detail: "a passing fault".into() });
        let report = pb::ReportReplica { metablock: block.id, member: Some(block.members[0]), failure };
        cluster.channel().0.call(&report, DEADLINE).await.unwrap();
        cluster.world.sleep(Duration::from_secs(10)).await;
        assert!(cluster.fakes.iter().all(|fake| fake.held.lock().pulls == 0));
    });
}

#[test]
fn a_poisoned_volume_is_emptied_into_others() {
    with_cluster(36, 4, |cluster| async move {
        files(&cluster, 10).await;
        cluster.fakes[1].held.lock().poisoned = true;
        let node = cluster.fakes[1].held.lock().node;
        cluster.world.sleep(Duration::from_secs(3)).await;
        cluster.until("all copies", |status| status.under_replicated == 0).await;
        let client = cluster.client().await;
        for number in 0..10 {
            let attr = client.lookup(&format!("f{number}")).await.unwrap();
            assert!(client.map(attr.inode).await[0].members.iter().all(|member| member.node != node));
        }
    });
}

/// The writer of a held file pauses for the copy, and may continue afterwards.
#[test]
fn a_file_with_a_writer_is_copied_between_its_leases() {
    with_cluster(37, 4, |cluster| async move {
        let (client, files) = files(&cluster, 1).await;
        let (attr, block) = &files[0];
        let lease = client.acquire(attr.inode, pb::LeaseMode::LeaseWrite, true).await.unwrap().attr.unwrap();
        cluster.kill_fake(cluster.number(block.members[0].node));
        let mut recalled = false;
        for _ in 0..60 {
            let recalls = client.poll(vec![]).await.unwrap().recalls;
            if let Some(recall) = recalls.iter().find(|recall| recall.keep == LeaseRead as i32) {
                assert_eq!(recall.inode, attr.inode);
                client.commit(&lease, vec![], 1000, true).await.unwrap();
                client.poll(vec![held(attr.inode, LeaseRead, lease.epoch, 1000)]).await.unwrap();
                recalled = true;
                break;
            }
        }
        assert!(recalled, "the writer was never asked");
        let again = client.acquire(attr.inode, pb::LeaseMode::LeaseWrite, false).await.unwrap();
        assert!(again.attr.unwrap().epoch > lease.epoch);
        let members = client.map(attr.inode).await[0].members.clone();
        assert!(members.len() == 3 && !members.contains(&block.members[0]), "{members:?}");
    });
}

#[test]
fn replicas_of_another_history_are_kept_and_reported_and_strays_go() {
    with_cluster(38, 4, |mut cluster| async move {
        let (client, files) = files(&cluster, 2).await;
        let (attr, block) = &files[0];
        client.forget(attr.inode).await;
        client.mutate(super::harness::unlink("f0")).await.unwrap();
        cluster.until_seen("deleted", || cluster.fakes.iter().all(|fake| fake.replica(block.id).is_none())).await;
        cluster.kill_fake(4);
        cluster.fakes[3].held.lock().strays = vec![1_000_000];
        cluster.fakes[3].put(block.id, Version::new(ebb_types::Epoch::new(1), 1), 10);
        cluster.start_fake(4).await;
        cluster.until_seen("the stray deleted", || cluster.fakes[3].replica(block.id).is_none()).await;
        let found = cluster.fsck().await;
        assert_eq!(found.orphaned, 1, "{:?}", found.findings);
        assert!(
            found.findings[0].contains("m1000000") && found.findings[0].contains("never gave out"),
            "{:?}",
            found.findings
        );
        assert!(!cluster.fakes[3].held.lock().deleted.contains(&1_000_000));
        // The counter has gone past it; it is kept all the same, also by another process of the master.
        let made = client.create("later").await.unwrap();
        assert!(made.metablocks[0].id > 1_000_000, "its id is not given out");
        cluster.crash_master().await;
        cluster.kill_fake(4);
        cluster.start_fake(4).await;
        cluster.until("safe start", |status| status.safe_start).await;
        cluster.world.sleep(Duration::from_secs(5)).await;
        assert!(!cluster.fakes[3].held.lock().deleted.contains(&1_000_000));
        // What is removed by hand is forgotten.
        cluster.kill_fake(4);
        cluster.fakes[3].held.lock().strays.clear();
        cluster.start_fake(4).await;
        cluster.world.sleep(Duration::from_secs(5)).await;
        assert_eq!(cluster.fsck().await.orphaned, 0);
    });
}

/// A write of a former holder reaches a replaced member after the master has asked there and found no replica. The next
/// report shows the replica, without a restart of anything.
#[test]
fn a_stray_that_a_late_write_makes_goes_with_the_next_report() {
    with_cluster(42, 4, |cluster| async move {
        let (_, files) = files(&cluster, 2).await;
        let (_, block) = &files[0];
        let outside = cluster.fakes.iter().find(|fake| fake.replica(block.id).is_none()).unwrap();
        outside.put(block.id, Version::new(ebb_types::Epoch::new(1), 1), 10);
        cluster.world.sleep(Duration::from_secs(60)).await;
        assert!(outside.replica(block.id).is_some(), "the master does not know of it");
        for fake in &cluster.fakes {
            fake.held.lock().report_again = true;
        }
        cluster.until_seen("the stray deleted", || outside.replica(block.id).is_none()).await;
        let pulls: u64 = cluster.fakes.iter().map(|fake| fake.held.lock().pulls).sum();
        assert_eq!(pulls, 0, "the others are where they belong");
        assert_whole(&cluster, 2).await;
    });
}

/// A replica that is gone without an observed fault is missed by the next report.
#[test]
fn a_replica_that_is_gone_is_missed_by_the_next_report() {
    with_cluster(43, 4, |cluster| async move {
        let (_, files) = files(&cluster, 1).await;
        let (_, block) = &files[0];
        let member = cluster.node(block.members[1].node).clone();
        member.held.lock().replicas.remove(&block.id);
        member.held.lock().report_again = true;
        cluster
            .until_seen("another copy", || {
                cluster.fakes.iter().filter(|fake| fake.replica(block.id).is_some()).count() == 3
            })
            .await;
        cluster.until("all copies", |status| status.under_replicated == 0).await;
        // Deletions that turn up within a moment go out together.
        cluster.world.sleep(Duration::from_secs(1)).await;
        assert_whole(&cluster, 1).await;
    });
}

/// Goal: a node that was restarted since the master's last call to it is scrubbed. A node that is unreachable is named,
/// and the findings of the others are reported and repaired.
#[test]
fn a_scrub_outlives_broken_connections_and_names_nodes_that_do_not_answer() {
    with_cluster(44, 5, |cluster| async move {
        let (_, files) = files(&cluster, 5).await;
        let scrubbed = cluster.scrub().await;
        assert!(scrubbed.unscrubbed.is_empty() && scrubbed.findings.is_empty(), "{:?}", scrubbed.findings);
        let (_, block) = &files[0];
        // The master's connections to all of them stand and lead to processes that are gone.
        for number in 1..=5 {
            cluster.kill_fake(number);
            cluster.start_fake(number).await;
        }
        let corrupt = cluster.node(block.members[0].node).clone();
        corrupt.held.lock().replicas.get_mut(&block.id).unwrap().corrupt = true;
        let found = cluster.scrub().await;
        assert_eq!((found.unscrubbed, found.corrupt), (vec![], 1), "{:?}", found.findings);
        cluster.until_seen("repair", || !corrupt.replica(block.id).is_some_and(|replica| replica.corrupt)).await;
        cluster.until("all copies", |status| status.under_replicated == 0).await;
        // One is frozen and still counts as live.
        let (_, block) = &files[1];
        let frozen = cluster.number(block.members[0].node);
        cluster.world.process(&format!("h{frozen}")).freeze();
        let corrupt = cluster.node(block.members[1].node).clone();
        corrupt.held.lock().replicas.get_mut(&block.id).unwrap().corrupt = true;
        let found = cluster.scrub().await;
        assert_eq!((found.unscrubbed, found.corrupt), (vec![block.members[0].node], 1), "{:?}", found.findings);
        assert!(found.findings.iter().any(|finding| finding.contains("was not scrubbed")), "{:?}", found.findings);
    });
}

/// A deletion names the life of the assessed replica, and the epochs that the volume must refuse from then on. They are
/// those below the file's if the replica was only excess, and all of them if its id was freed.
#[test]
fn deletions_name_an_epoch_and_a_life() {
    with_cluster(46, 4, |cluster| async move {
        let (_, files) = files(&cluster, 2).await;
        let (_, block) = &files[0];
        let number = cluster.number(block.members[0].node);
        let late = cluster.fakes[number - 1].clone();
        cluster.kill_fake(number);
        cluster
            .until("the death", |status| status.nodes.iter().any(|node| node.state == pb::NodeState::NodeDead as i32))
            .await;
        cluster.until("all copies", |status| status.under_replicated == 0).await;
        let life = late.replica(block.id).unwrap().life;
        cluster.start_fake(number).await;
        cluster.until_seen("the late replica deleted", || late.replica(block.id).is_none()).await;
        // The first session has ended meanwhile, and its leases with it.
        let client = cluster.client().await;
        let epoch = client.lookup("f0").await.unwrap().epoch;
        let named = |fake: &super::fake::Fake| {
            let deletions = fake.held.lock().deletions.clone();
            deletions.into_iter().filter(|one| one.metablock == block.id).collect::<Vec<_>>()
        };
        assert_eq!(named(&late), [pb::DeletedReplica { metablock: block.id, epoch: Some(epoch), life }]);
        // A replica that was made since is another one.
        late.put(block.id, Version::new(ebb_types::Epoch::new(epoch), 1), 10);
        assert_ne!(late.replica(block.id).unwrap().life, life);
        // Its id is freed: whichever replica a member has goes, and nothing is taken for the id any more.
        client.mutate(super::harness::unlink("f0")).await.unwrap();
        let freed = pb::DeletedReplica { metablock: block.id, epoch: None, life: 0 };
        cluster
            .until_seen("deleted", || {
                cluster.fakes.iter().filter(|fake| fake.held.lock().deletions.contains(&freed)).count() == 3
            })
            .await;
        assert!(!named(&late).contains(&freed), "it was no member");
    });
}

/// Repair keeps to the rate limit of a node, which the status shows.
#[test]
fn repair_keeps_under_its_rate_and_tells_how_far_it_is() {
    with_cluster(47, 4, |cluster| async move {
        let (_, files) = files(&cluster, 8).await;
        let dead = cluster.number(files[0].1.members[0].node);
        cluster.kill_fake(dead);
        cluster
            .until("the death", |status| status.nodes.iter().any(|node| node.state == pb::NodeState::NodeDead as i32))
            .await;
        cluster.until("all copies", |status| status.under_replicated == 0).await;
        let lost = cluster.fakes[dead - 1].held.lock().replicas.len() as u64;
        let status = cluster.channel().0.call(&pb::ClusterStatus {}, DEADLINE).await.unwrap();
        assert_eq!((status.repaired, status.repaired_bytes), (lost, lost * 1000));
        let share = status.repair_rate_bytes_per_sec / 16;
        let rates: Vec<u64> = cluster.fakes.iter().flat_map(|fake| fake.held.lock().pull_rates.clone()).collect();
        assert!(rates.len() as u64 == lost && rates.iter().all(|rate| *rate == share), "{rates:?}");
    });
}

/// Goal: a node that a client lost gets no copy of its file for a while, unless no write could continue without it. It
/// is used at once when the client reaches it again.
#[test]
fn a_node_that_a_client_lost_is_offered_to_it_rather_than_no_node() {
    with_cluster(38, 3, |cluster| async move {
        // A node that has just registered was away.
        cluster.world.sleep(Duration::from_secs(10)).await;
        let client = cluster.client().await;
        let reply = client.create("a").await.unwrap();
        let (attr, block) = (reply.attr.unwrap(), reply.metablocks[0].clone());
        let [one, two, three] = [0, 1, 2].map(|place| block.members[place]);
        let choose = async |staying: &[pb::Member], lost: &[pb::Member]| {
            let failed =
                |member: &pb::Member| pb::FailedMember { node: member.node, silent: true, ..Default::default() };
            let choose = pb::ChooseReplacement {
                session: client.session,
                inode: attr.inode,
                metablock: block.id,
                exclude_nodes: lost.iter().map(|member| member.node).collect(),
                staying: staying.to_vec(),
                failed: lost.iter().map(failed).collect(),
                may_go_on: true,
                ..Default::default()
            };
            client.channel.call(&choose, DEADLINE).await
        };
        let node = |reply: pb::ChooseReplacementReply| reply.member.map(|member| member.node);
        assert!(choose(&[one, two], &[three]).await.unwrap().go_on);
        let refused = choose(&[one, two], &[]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "it is held back: {refused}");
        assert_eq!(node(choose(&[one], &[two]).await.unwrap()), Some(three.node), "one member is too few for a write");
        assert!(choose(&[one], &[two, three]).await.is_err(), "the client says that it does not reach it");
        let poll = pb::Poll { session: client.session, reached: vec![three.node], ..Default::default() };
        client.channel.call(&poll, DEADLINE).await.unwrap();
        assert_eq!(node(choose(&[one, two], &[]).await.unwrap()), Some(three.node));
    });
}

#[test]
fn locations_and_replacements_are_returned() {
    with_cluster(39, 4, |cluster| async move {
        let client = cluster.client().await;
        let reply = client.create("a").await.unwrap();
        let (attr, block) = (reply.attr.unwrap(), reply.metablocks[0].clone());
        cluster.node(block.members[0].node).put(block.id, Version::new(ebb_types::Epoch::new(attr.epoch), 1), 10);
        let located = client.channel.call(&pb::Locate { inode: attr.inode }, DEADLINE).await.unwrap();
        assert_eq!(located.replicas.len(), 1, "only what is there");
        assert_eq!(located.replicas[0].file, format!("/v/m{}", block.id));
        let choose = pb::ChooseReplacement {
            session: client.session,
            inode: attr.inode,
            metablock: block.id,
            exclude_nodes: vec![block.members[1].node],
            staying: Vec::new(),
            ..Default::default()
        };
        let member = client.channel.call(&choose, DEADLINE).await.unwrap().member.unwrap();
        assert!(block.members.iter().all(|known| known.node != member.node));
        let other = cluster.client().await;
        let refused = other
            .channel
            .call(&pb::ChooseReplacement { session: other.session, ..choose }, DEADLINE)
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StaleEpoch);
    });
}
