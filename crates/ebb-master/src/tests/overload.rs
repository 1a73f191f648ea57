//! Homes that have too much to write: other nodes write for them meanwhile, and never in a calm cluster.

use std::time::Duration;

use ebb_types::{Epoch, Version};
use ebb_wire::pb;
use pb::meta_op::{Grant, Op};

use super::harness::{Cluster, DEADLINE, TestClient, with_cluster};

const METABLOCK: u64 = 64 << 20;

/// One primary among all nodes, two copies.
async fn dataset(client: &TestClient) -> pb::Dataset {
    let dataset = pb::Dataset {
        path: "/d".into(),
        layout: "equal-work".into(),
        replicas: 2,
        primaries: 1,
        metablock_size: METABLOCK,
        ..Default::default()
    };
    let create = pb::meta_op::CreateDataset { dataset: Some(dataset), ..Default::default() };
    client.mutate(Op::CreateDataset(create)).await.unwrap().dataset.unwrap()
}

async fn describe(cluster: &Cluster, dataset: &pb::Dataset) -> pb::DescribeDatasetReply {
    cluster.channel().0.call(&pb::DescribeDataset { dataset: dataset.id }, DEADLINE).await.unwrap()
}

async fn grant(client: &TestClient, attr: &pb::Attr, indexes: impl Iterator<Item = u64>) -> Vec<pb::Metablock> {
    let grant = Grant { inode: attr.inode, epoch: attr.epoch, indexes: indexes.collect(), ..Default::default() };
    client.mutate(Op::Grant(grant)).await.unwrap().metablocks
}

fn committed(attr: &pb::Attr, block: &pb::Metablock, length: u64) -> pb::CommitMetablock {
    let version = Version::new(Epoch::new(attr.epoch), 1);
    pb::CommitMetablock { id: block.id, version: Some(version.into()), length }
}

fn is_away(block: &pb::Metablock) -> bool {
    block.members.iter().any(pb::Member::is_guest)
}

fn primaries_of(dataset: &pb::Dataset, blocks: &[pb::Metablock]) -> usize {
    blocks.iter().filter(|block| block.members.iter().any(|member| member.node == dataset.chain[0])).count()
}

/// Goal: all nodes share in a burst, and its copies end where the layout wants them. Method: with all nodes on, a
/// writer is granted 40 metablocks at once, writes a little of each, and gives the file back.
#[test]
fn a_burst_is_written_by_all_nodes_and_goes_home() {
    with_cluster(91, 8, |cluster| async move {
        let client = cluster.client().await;
        let dataset = dataset(&client).await;
        let made = client.create_in(dataset.root_inode, "burst").await.unwrap();
        let attr = made.attr.unwrap();
        let mut blocks = made.metablocks.clone();
        blocks.extend(grant(&client, &attr, 1..40).await);
        // 80 copies on 8 nodes, and four metablocks more than the mean before others write for a home.
        let mut on = std::collections::BTreeMap::<u64, usize>::new();
        blocks.iter().flat_map(|block| &block.members).for_each(|member| *on.entry(member.node).or_default() += 1);
        assert!(on.len() == 8 && on.values().all(|copies| *copies <= 10 + 5), "{on:?}");
        assert!(primaries_of(&dataset, &blocks) < 16);
        assert!(blocks.iter().all(|block| block.members.iter().any(|one| one.home_id().raw() == dataset.chain[0])));

        let version = Version::new(Epoch::new(attr.epoch), 1);
        for block in &blocks {
            block.members.iter().for_each(|member| cluster.node(member.node).put(block.id, version, 1000));
        }
        let commits: Vec<_> = blocks.iter().map(|block| committed(&attr, block, 1000)).collect();
        let size = 39 * METABLOCK + 1000;
        client.commit(&attr, commits.clone(), size, false).await.unwrap();
        let found = describe(&cluster, &dataset).await;
        let away: u64 = found.away.iter().map(|away| away.metablocks).sum();
        assert_eq!(away as usize, blocks.iter().flat_map(|block| &block.members).filter(|one| one.is_guest()).count());
        assert!(away >= 20 && found.elsewhere == 0, "{found:?}");

        client.commit(&attr, commits, size, true).await.unwrap();
        let release = pb::Release { session: client.session, inodes: vec![attr.inode] };
        client.channel.call(&release, DEADLINE).await.unwrap();
        for _ in 0..300 {
            if describe(&cluster, &dataset).await.away.is_empty() {
                break;
            }
            cluster.world.sleep(Duration::from_millis(200)).await;
        }
        let found = describe(&cluster, &dataset).await;
        assert!(found.away.is_empty() && found.guests.iter().sum::<u64>() == 0, "{found:?}");
        assert_eq!(primaries_of(&dataset, &client.map(attr.inode).await), 40);
        let held = || cluster.fakes.iter().map(|fake| fake.held.lock().replicas.len()).sum::<usize>();
        cluster.until_seen("nothing is left of guests", || held() == 80).await;
        let checked = cluster.fsck().await;
        assert!(checked.findings.is_empty(), "{checked:?}");
    });
}

/// Goal: neither a writer at the nodes' own pace nor one with many small files causes guests. Method: one primary for
/// all; no time passes, so that only commits show that bytes were written.
#[test]
fn a_calm_cluster_has_no_guests() {
    with_cluster(92, 8, |cluster| async move {
        let client = cluster.client().await;
        let dataset = dataset(&client).await;
        let made = client.create_in(dataset.root_inode, "stream").await.unwrap();
        let attr = made.attr.unwrap();
        let mut blocks = made.metablocks.clone();
        blocks.extend(grant(&client, &attr, 1..3).await);
        for index in 0..40_u64 {
            let size = (index + 1) * METABLOCK;
            let commit = committed(&attr, &blocks[index as usize], METABLOCK);
            client.commit(&attr, vec![commit], size, false).await.unwrap();
            blocks.extend(grant(&client, &attr, index + 3..index + 4).await);
        }
        assert!(!blocks.iter().any(is_away), "three are granted ahead at a time");
        let (mut small, mut away) = (Vec::new(), 0);
        for number in 0..600 {
            // The lease is kept, and with it a block of room.
            let made = client.create_in(dataset.root_inode, &format!("f{number}")).await.unwrap();
            let (attr, block) = (made.attr.unwrap(), made.metablocks[0].clone());
            client.commit(&attr, vec![committed(&attr, &block, 4096)], 4096, false).await.unwrap();
            away += usize::from(is_away(&block));
            small.push(attr);
        }
        assert_eq!((small.len(), away), (600, 0));
    });
}

/// Goal: unused room is not expected to be written. Method: logs that get room in advance, and grow by lines.
#[test]
fn room_that_is_not_used_is_forgotten() {
    with_cluster(93, 8, |cluster| async move {
        let client = cluster.watcher().await;
        let dataset = dataset(&client).await;
        let mut last = Vec::new();
        for number in 0..6 {
            let made = client.create_in(dataset.root_inode, &format!("log{number}")).await.unwrap();
            last = grant(&client, &made.attr.unwrap(), 1..4).await;
        }
        assert!(last.iter().any(is_away), "six at once, nothing known of them: {last:?}");
        cluster.world.sleep(Duration::from_secs(11)).await;
        let made = client.create_in(dataset.root_inode, "late").await.unwrap();
        let late = grant(&client, &made.attr.unwrap(), 1..4).await;
        assert!(!late.iter().any(is_away), "{late:?}");
    });
}
