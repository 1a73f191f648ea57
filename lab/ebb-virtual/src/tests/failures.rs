//! A node of an expansion chain is lost for good: its copies come back, and another node has its place. One of the
//! circle is away for a while, and has its part again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Created, NewFile};
use ebb_layout::targets::ring;
use ebb_power::PolicyKind;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, InodeId, NodeId, Result};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, GetMap, Op, SetDataset};

use crate::power::PowerCluster;

const INTERVAL: Duration = Duration::from_secs(2);
const BLOCK: usize = 64 << 10;
const FILES: u64 = 6;
const BLOCKS: u64 = 8;

/// Two primaries, gears of two, two copies, on all nodes but one; filled. The files, and the spare node.
async fn fill(cluster: &PowerCluster, client: &Client) -> Result<(Vec<InodeId>, u64)> {
    let spare = cluster.cluster_status().await?.nodes.last().map_or(0, |node| node.id);
    cluster.drain(spare, false).await?;
    let geared = pb::Dataset { layout: "geared".into(), primaries: 2, gear_size: 2, ..Default::default() };
    let directory = make(client, geared).await?;
    cluster.drain(spare, true).await?;
    Ok((write(client, directory, 0..FILES).await?, spare))
}

/// Makes a dataset of two copies at `/data`.
async fn make(client: &Client, layout: pb::Dataset) -> Result<InodeId> {
    let (path, block_size) = ("/data".to_owned(), BLOCK as u64);
    let dataset = pb::Dataset { path, replicas: 2, block_size, metablock_size: block_size, ..layout };
    let made = client
        .meta(&Credentials::root(), Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() }))
        .await?;
    Ok(InodeId::new(made.dataset.unwrap_or_default().root_inode))
}

/// Writes files of these numbers.
async fn write(client: &Client, directory: InodeId, numbers: Range<u64>) -> Result<Vec<InodeId>> {
    write_blocks(client, directory, numbers, BLOCKS).await
}

async fn write_blocks(client: &Client, directory: InodeId, numbers: Range<u64>, blocks: u64) -> Result<Vec<InodeId>> {
    let root = Credentials::root();
    let mut files = Vec::new();
    for number in numbers {
        let (name, access) = (format!("f{number}"), Access::ReadWrite);
        let Created { handle, attr, .. } =
            client.create(&root, NewFile::exclusive(directory, name.as_bytes(), access)).await?;
        for block in 0..blocks {
            client.write(handle, block * BLOCK as u64, Bytes::from(vec![number as u8; BLOCK])).await?;
        }
        client.fsync(handle).await?;
        client.close(handle).await;
        files.push(attr.inode);
    }
    Ok(files)
}

/// Whether the files show their writes.
async fn check_content(client: &Client, files: &[InodeId]) {
    for (number, file) in files.iter().enumerate() {
        let handle = client.open(&Credentials::root(), *file, Access::Read).await.unwrap().0;
        for block in 0..BLOCKS {
            let data = client.read(handle, block * BLOCK as u64, BLOCK as u32).await.unwrap();
            assert!(data == vec![number as u8; BLOCK], "f{number} at {block}");
        }
    }
}

async fn chain(cluster: &PowerCluster) -> Vec<u64> {
    let reply = cluster.describe().await.unwrap();
    reply.datasets.into_iter().find(|dataset| dataset.path == "/data").unwrap().chain
}

/// Every metablock's members, as recorded.
async fn placed(client: &Client, files: &[InodeId]) -> Vec<Vec<u64>> {
    let mut sets = Vec::new();
    for file in files {
        let map = GetMap { inode: file.raw(), first_index: 0, limit: 1_000 };
        let records = client.meta(&Credentials::root(), Op::GetMap(map)).await.unwrap().metablocks;
        sets.extend(records.iter().map(|record| record.members.iter().map(|member| member.node).collect::<Vec<_>>()));
    }
    sets
}

/// Whether each set has one primary and one node of that primary's column.
fn are_in_columns(chain: &[u64], sets: &[Vec<u64>]) -> bool {
    let place = |node: &u64| chain.iter().position(|one| one == node);
    sets.iter().all(|members| {
        let mut places: Vec<usize> = members.iter().filter_map(place).collect();
        places.sort_unstable();
        matches!(places[..], [primary, other] if primary < 2 && other >= 2 && other % 2 == primary)
    })
}

/// Goal: availability, durability and layout are restored in this order, and reported with times; a node outside the
/// chain takes the place of one that is lost for good, while the primaries alone have power, and nothing else wakes for
/// it; the lost one has no place any more when it comes back. Method: a primary of two fails; the master dies once when
/// another node has its place, and before copies have moved.
#[test]
fn another_node_takes_the_place_of_a_primary_that_is_lost_for_good() {
    World::run(51, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, 9, PolicyKind::Activation, INTERVAL).await.unwrap();
        let client = cluster.connect("client").await.unwrap();
        let (files, spare) = fill(&cluster, &client).await.unwrap();
        let before = chain(&cluster).await;
        assert!(before.len() == 8 && !before.contains(&spare), "{before:?}");
        assert!(are_in_columns(&before, &placed(&client, &files).await));
        cluster.set_active(&client, "/data", 2).await.unwrap();
        world.sleep(Duration::from_secs(20)).await;

        cluster.fail(NodeId::new(before[0])).unwrap();
        let failed = world.now();
        let failure_now = async || cluster.cluster_status().await.unwrap().failures.last().copied().unwrap_or_default();
        while failure_now().await.whole_ms == 0 {
            world.sleep(Duration::from_millis(200)).await;
            assert!(world.now() - failed < Duration::from_secs(60), "{:?}", failure_now().await);
        }
        let stages = failure_now().await;
        assert!(stages.node == before[0] && stages.reachable_ms > stages.failed_ms, "{stages:?}");
        assert!(stages.whole_ms >= stages.reachable_ms && stages.placed_ms == 0 && stages.misplaced > 0, "{stages:?}");
        assert_eq!(chain(&cluster).await, before, "it may come back");

        while chain(&cluster).await == before {
            world.sleep(Duration::from_millis(200)).await;
            assert!(world.now() - failed < Duration::from_secs(180), "no node takes its place");
        }
        let after = chain(&cluster).await;
        assert!(after[0] == spare && after[1..] == before[1..], "{after:?}");
        cluster.restart_master().await;
        let since = world.now();
        while !are_in_columns(&after, &placed(&client, &files).await) {
            world.sleep(Duration::from_millis(500)).await;
            assert!(
                world.now() - since < Duration::from_secs(120),
                "{:?}, {:?}, {:?} on",
                placed(&client, &files).await,
                failure_now().await,
                cluster.powered().await
            );
        }
        let mut stored: BTreeMap<u64, usize> = BTreeMap::new();
        placed(&client, &files).await.into_iter().flatten().for_each(|node| *stored.entry(node).or_default() += 1);
        let half = (FILES * BLOCKS / 2) as usize;
        assert!(stored[&spare].abs_diff(half) <= 2, "half of the first copies are its: {stored:?}");
        // The new master process misses it, too, when it has been silent for as long to it.
        while failure_now().await.node != before[0] {
            world.sleep(Duration::from_millis(200)).await;
            assert!(world.now() - since < Duration::from_secs(130), "{:?}", failure_now().await);
        }
        // A copy that was made again while its home was off is a guest somewhere, and goes home when that is on.
        cluster.set_active(&client, "/data", 8).await.unwrap();
        while failure_now().await.placed_ms == 0 {
            world.sleep(Duration::from_millis(200)).await;
            assert!(
                world.now() - since < Duration::from_secs(190),
                "{:?}, {:?}",
                failure_now().await,
                cluster.describe().await.map(|reply| reply.away)
            );
        }
        cluster.set_active(&client, "/data", 2).await.unwrap();
        // No nodes but the primaries and the one in the place of a primary are needed any more.
        world.sleep(Duration::from_secs(20)).await;
        let on: BTreeSet<u64> = cluster.powered().await;
        assert!(
            on.contains(&after[0]) && on.contains(&after[1]) && on.is_disjoint(&after[2..].iter().copied().collect()),
            "{on:?}"
        );
        check_content(&client, &files).await;

        cluster.repair(NodeId::new(before[0])).unwrap();
        // Nothing is deleted before all nodes have reported to this master process.
        cluster.set_active(&client, "/data", 8).await.unwrap();
        world.sleep(Duration::from_secs(60)).await;
        assert_eq!(chain(&cluster).await, after, "it has no place any more");
        let status = cluster.cluster_status().await.unwrap();
        let back = status.nodes.iter().find(|node| node.id == before[0]).unwrap();
        assert_eq!(back.volumes.iter().map(|volume| volume.replicas).sum::<u64>(), 0, "and nothing to keep");
        assert!(status.under_replicated == 0 && failure_now().await.back_ms > 0);
        client.disconnect().await.unwrap();
    });
}

/// Copies on each node.
fn count(sets: &[Vec<u64>]) -> BTreeMap<u64, u64> {
    let mut stored = BTreeMap::new();
    sets.iter().flatten().for_each(|node| *stored.entry(*node).or_default() += 1);
    stored
}

/// Goal: on the circle of the power-balanced layout, too, copies go back to their places, the node that was away has
/// its part of the data written without it, and the operator learns when. Method: one of eight nodes is away until its
/// copies have been made again; as much as there was is written meanwhile.
#[test]
fn copies_on_the_circle_go_back_to_a_node_that_was_away() {
    World::run(52, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, 8, PolicyKind::AlwaysOn, INTERVAL).await.unwrap();
        let client = cluster.connect("client").await.unwrap();
        let directory =
            make(&client, pb::Dataset { layout: "power-balanced".into(), ..Default::default() }).await.unwrap();
        let mut files = write(&client, directory, 0..FILES).await.unwrap();
        let circle = chain(&cluster).await;
        let place = |node: &u64| circle.iter().position(|one| one == node).unwrap();
        let are_opposite = |sets: &[Vec<u64>]| sets.iter().all(|set| place(&set[0]).abs_diff(place(&set[1])) == 4);
        assert!(are_opposite(&placed(&client, &files).await));

        let gone = circle[3];
        cluster.fail(NodeId::new(gone)).unwrap();
        let failed = world.now();
        let failure_now = async || cluster.cluster_status().await.unwrap().failures.last().copied().unwrap_or_default();
        while failure_now().await.whole_ms == 0 {
            world.sleep(Duration::from_millis(200)).await;
            assert!(world.now() - failed < Duration::from_secs(60), "{:?}", failure_now().await);
        }
        files.extend(write(&client, directory, FILES..2 * FILES).await.unwrap());
        let sets = placed(&client, &files).await;
        assert!(!are_opposite(&sets) && !count(&sets).contains_key(&gone), "{sets:?}");
        assert!(failure_now().await.placed_ms == 0 && failure_now().await.misplaced > 0, "{:?}", failure_now().await);

        cluster.repair(NodeId::new(gone)).unwrap();
        while failure_now().await.placed_ms == 0 {
            world.sleep(Duration::from_millis(200)).await;
            assert!(world.now() - failed < Duration::from_secs(180), "{:?}", failure_now().await);
        }
        let (sets, share) = (placed(&client, &files).await, 2 * FILES * BLOCKS * 2 / 8);
        let stored = count(&sets);
        assert!(are_opposite(&sets), "{sets:?}");
        assert!(stored.len() == 8 && stored.values().all(|copies| copies.abs_diff(share) <= 2), "{stored:?}");
        check_content(&client, &files).await;
        client.disconnect().await.unwrap();
    });
}

/// Whether every set has so many copies, at equal distances on the circle.
fn are_even(circle: &[u64], sets: &[Vec<u64>], copies: u32) -> bool {
    let place = |node: &u64| circle.iter().position(|one| one == node).map(|place| place as u32);
    let nodes = circle.len() as u32;
    sets.iter().all(|set| {
        let places: Vec<u32> = set.iter().filter_map(place).collect();
        places.len() == copies as usize && ring::widest_gap(nodes, &places) == nodes.div_ceil(copies)
    })
}

/// Goal: whichever number of copies a dataset has, they lie at equal distances on the circle again, and no set ever has fewer
/// than both numbers. Method: two copies become three, and two again; a node is away at each change, and the master dies
/// while copies move.
#[test]
fn the_circle_is_even_again_after_another_number_of_copies() {
    World::run(54, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, 9, PolicyKind::AlwaysOn, INTERVAL).await.unwrap();
        let client = cluster.connect("client").await.unwrap();
        let directory =
            make(&client, pb::Dataset { layout: "power-balanced".into(), ..Default::default() }).await.unwrap();
        let files = write(&client, directory, 0..FILES).await.unwrap();
        let circle = chain(&cluster).await;
        assert!(are_even(&circle, &placed(&client, &files).await, 2));
        let dataset =
            cluster.describe().await.unwrap().datasets.into_iter().find(|one| one.path == "/data").unwrap().id;
        let until = async |what: &str, is_so: &dyn Fn(&[Vec<u64>]) -> bool| {
            let since = world.now();
            loop {
                let sets = placed(&client, &files).await;
                assert!(sets.iter().all(|set| set.len() >= 2), "{what}: {sets:?}");
                if is_so(&sets) {
                    return world.now() - since;
                }
                assert!(world.now() - since < Duration::from_secs(900), "{what}: {sets:?}");
                world.sleep(Duration::from_millis(500)).await;
            }
        };
        for (copies, away) in [(3, 4), (2, 7)] {
            let set = SetDataset { dataset, replicas: Some(copies), ..Default::default() };
            client.meta(&Credentials::root(), Op::SetDataset(set)).await.unwrap();
            let gone = circle[away];
            cluster.fail(NodeId::new(gone)).unwrap();
            let is_made_up =
                |sets: &[Vec<u64>]| sets.iter().all(|set| set.len() == copies as usize && !set.contains(&gone));
            until("made up for", &is_made_up).await;
            cluster.repair(NodeId::new(gone)).unwrap();
            world.sleep(Duration::from_secs(5)).await;
            cluster.restart_master().await;
            until("even", &|sets| are_even(&circle, sets, copies)).await;
            let is_whole = |sets: &[Vec<u64>]| {
                let (stored, share) = (count(sets), sets.len() as u64 * u64::from(copies) / 9);
                stored.len() == 9 && stored.values().all(|has| has.abs_diff(share) <= 2 * u64::from(copies - 1) + 1)
            };
            until("its share", &is_whole).await;
        }
        // Without a failure the blocks are found at the next check of the layout.
        let set = SetDataset { dataset, replicas: Some(3), ..Default::default() };
        client.meta(&Credentials::root(), Op::SetDataset(set)).await.unwrap();
        until("even without a failure", &|sets| are_even(&circle, sets, 3)).await;
        check_content(&client, &files).await;
        client.disconnect().await.unwrap();
    });
}

/// Goal: without any failure, too, every node has its share again: after a drain that was undone, and after files were removed
/// that lay on a few nodes. Method: one of eight nodes is drained and comes back; of files of one block each those that it has
/// are removed.
#[test]
fn shares_are_made_equal_again_after_a_drain_and_after_files_were_removed() {
    World::run(53, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, 8, PolicyKind::AlwaysOn, INTERVAL).await.unwrap();
        let writer = cluster.connect("writer").await.unwrap();
        let directory =
            make(&writer, pb::Dataset { layout: "power-balanced".into(), ..Default::default() }).await.unwrap();
        let mut files = write_blocks(&writer, directory, 0..96, 1).await.unwrap();
        // Its grants that it has not used go with it.
        writer.disconnect().await.unwrap();
        let client = cluster.connect("client").await.unwrap();
        let node = chain(&cluster).await[3];
        let until =
            async |seconds: u64, event: &str, is_so: &dyn Fn(&BTreeMap<u64, u64>) -> bool, files: &[InodeId]| {
                let since = world.now();
                loop {
                    let stored = count(&placed(&client, files).await);
                    if is_so(&stored) {
                        break;
                    }
                    assert!(world.now() - since < Duration::from_secs(seconds), "{event}: {stored:?}");
                    world.sleep(Duration::from_millis(500)).await;
                }
            };
        let is_even = |stored: &BTreeMap<u64, u64>| {
            let share = stored.values().sum::<u64>() / 8;
            stored.len() == 8 && stored.values().all(|copies| copies.abs_diff(share) <= 2)
        };
        cluster.drain(node, false).await.unwrap();
        until(60, "drained", &|stored| !stored.contains_key(&node), &files).await;
        cluster.drain(node, true).await.unwrap();
        until(60, "taken back", &is_even, &files).await;

        let sets = placed(&client, &files).await;
        let (gone, stay): (Vec<usize>, Vec<usize>) = (0..files.len()).partition(|at| sets[*at].contains(&node));
        for at in &gone {
            client.unlink(&Credentials::root(), directory, format!("f{at}").as_bytes()).await.unwrap();
        }
        files = stay.iter().map(|at| files[*at]).collect();
        assert!(!is_even(&count(&placed(&client, &files).await)));
        until(700, "after files were removed", &is_even, &files).await;
        client.disconnect().await.unwrap();
    });
}
