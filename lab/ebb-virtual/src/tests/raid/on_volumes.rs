//! RAID sets inside a localized storage node (LSN): a disk's loss is borne, and the node's is not.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ebb_runtime::virt::WorldOptions;
use ebb_types::{Domain, ErrorKind, NodeId};

use super::*;
use crate::power::sites::{Site, SubRackSizes};

/// Three LSNs of so many disks, and a dataset of 2+2 on the volumes of each, written in one sub-rack.
async fn start(world: &World, lsn_volumes: usize) -> Scene {
    let settings =
        pb::Dataset { layout: "lsn".into(), replicas: 2, raid_slots: 2, raid_domain: 1, ..Default::default() };
    Scene::written_on("h1", world, options(lsn_volumes), settings).await
}

fn options(lsn_volumes: usize) -> PowerOptions {
    let sizes = SubRackSizes { sub_racks: 3, hosts: 1, lsn_volumes, host_volumes: 0, racks: 1 };
    PowerOptions { sites: Site::sub_racks(sizes), ..PowerOptions::new(1, PolicyKind::AlwaysOn, INTERVAL) }
}

/// I-77: all members on one node, each on a volume of its own.
fn is_inside(set: &pb::RaidSet) -> bool {
    let nodes: BTreeSet<u64> = nodes_of(set).into_iter().collect();
    nodes.len() == 1 && volumes_of(set).len() == set.slots.len() + set.rows.len()
}

fn volumes_of(set: &pb::RaidSet) -> BTreeSet<u64> {
    let slots = set.slots.iter().flat_map(|slot| &slot.members);
    slots.chain(set.rows.iter().filter_map(|row| row.member.as_ref())).map(|member| member.volume).collect()
}

/// Goal: cold data lose their copies inside the node, and a disk's loss is borne there, by the node alone. Method: a disk with a slot
/// fails; files are read, and its members are made again on the other disks with next to no bytes from node to node.
#[test]
fn a_disk_is_made_again_inside_its_node() {
    World::run(77, WorldOptions::default(), |world| async move {
        let scene = start(&world, 8).await;
        let sets = scene.encoded(&world, is_thin).await;
        assert!(sets.iter().all(is_inside), "{sets:?}");
        assert_eq!(scene.check("reader").await.degraded_reads, 0);
        scene.until_replicas(&world, u64::from(FILES) + 2 * sets.len() as u64).await;

        let lost = sets[0].slots[0].members[0];
        let nodes = scene.cluster.cluster_status().await.unwrap().nodes;
        let node = nodes.iter().find(|node| node.id == lost.node).unwrap();
        let volume = node.volumes.iter().find(|volume| volume.id == lost.volume).unwrap();
        world.process(&node.host).spindle(&PathBuf::from(&volume.path)).fail();
        let metrics = scene.check("with a disk lost").await;
        assert!(metrics.degraded_reads > 0 && metrics.corrupt_reads == 0, "{metrics:?}");

        let before: u64 = scene.cluster.sent_bytes().await.unwrap().iter().sum();
        let is_whole = |set: &pb::RaidSet| is_thin(set) && is_inside(set) && !volumes_of(set).contains(&lost.volume);
        let sets = scene.encoded(&world, is_whole).await;
        let after: u64 = scene.cluster.sent_bytes().await.unwrap().iter().sum();
        // Nodes tell the master how they are all the time, for the ten minutes in which a disk may come back.
        let decoded = sets.iter().filter(|set| nodes_of(set)[0] == lost.node).count() * METABLOCK;
        assert!(after - before < decoded as u64, "{} bytes sent for {decoded} made", after - before);
        assert_eq!(scene.check("rebuilt").await.degraded_reads, 0);
        let fsck = scene.cluster.scrub().await.unwrap();
        let faults = (fsck.missing, fsck.damaged, fsck.corrupt, fsck.under_replicated, fsck.over_replicated);
        assert_eq!(faults, (0, 0, 0, 0, 0), "{:?}", fsck.findings);
        scene.client.disconnect().await.unwrap();
    });
}

/// Goal: what was accepted is what happens: while an LSN is away its data are out of reach, and nothing is made of the rest; afterwards
/// all is there. Method: it is away for twenty minutes; fsck tells, and the records stay as they are.
#[test]
fn a_node_that_is_away_has_its_data_out_of_reach() {
    World::run(78, WorldOptions::default(), |world| async move {
        let scene = start(&world, 7).await;
        let sets = scene.encoded(&world, is_thin).await;
        let away = nodes_of(&sets[0])[0];
        scene.cluster.fail(NodeId::new(away)).unwrap();
        world.sleep(Duration::from_secs(1200)).await;
        let fsck = scene.cluster.scrub().await.unwrap();
        let slots: usize = sets.iter().filter(|set| nodes_of(set)[0] == away).map(|set| set.slots.len()).sum();
        assert_eq!((fsck.unreachable + fsck.missing, fsck.damaged), (slots as u64, 0), "{:?}", fsck.findings);
        assert_eq!(scene.encoded(&world, is_thin).await, sets, "nothing can be made again");
        scene.cluster.repair(NodeId::new(away)).unwrap();
        scene.check("back").await;
        scene.client.disconnect().await.unwrap();
    });
}

/// Goal: a node can be emptied, though no member of its RAID sets may lie elsewhere. Method: the data go back to copies on the other
/// nodes, which encode them again.
#[test]
fn a_drained_node_gives_its_data_back_as_copies() {
    World::run(79, WorldOptions::default(), |world| async move {
        let scene = start(&world, 7).await;
        let sets = scene.encoded(&world, is_thin).await;
        let drained = nodes_of(&sets[0])[0];
        scene.cluster.drain(drained, false).await.unwrap();
        let began = world.now();
        let is_empty = async || {
            let nodes = scene.cluster.cluster_status().await.unwrap().nodes;
            let volumes = nodes.iter().filter(|node| node.id == drained).flat_map(|node| &node.volumes);
            volumes.map(|volume| volume.replicas).sum::<u64>() == 0
        };
        while !is_empty().await {
            world.sleep(Duration::from_secs(1)).await;
            assert!(world.now() - began < WITHIN, "it is not empty");
        }
        assert_eq!(scene.check("reader").await.degraded_reads, 0);
        let has_sets = async || {
            let sets = scene.cluster.raid_sets().await.unwrap();
            let sets: Vec<&pb::RaidSet> = sets.iter().flat_map(|one| &one.set).filter(|set| is_thin(set)).collect();
            assert!(sets.iter().all(|set| is_inside(set) && nodes_of(set)[0] != drained), "{sets:?}");
            !sets.is_empty()
        };
        while !has_sets().await {
            world.sleep(Duration::from_secs(1)).await;
            assert!(world.now() - began < WITHIN, "others do not encode it");
        }
        scene.client.disconnect().await.unwrap();
    });
}

#[test]
fn what_nobody_accepted_and_too_few_disks_are_refused() {
    World::run(80, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start_with(&world, options(5)).await.unwrap();
        let client = cluster.connect("client").await.unwrap();
        let make = async |layout: &str, slots: u32, accept_node_loss: bool| {
            let dataset = pb::Dataset {
                path: "/cold".into(),
                layout: layout.into(),
                replicas: 2,
                block_size: 256 << 10,
                metablock_size: METABLOCK as u64,
                raid_copies: 1,
                raid_slots: slots,
                raid_rows: 2,
                raid_domain: Domain::Volume.to_raw(),
                ..Default::default()
            };
            let create = CreateDataset { dataset: Some(dataset), accept_node_loss, ..Default::default() };
            let made = client.meta(&Credentials::root(), Op::CreateDataset(create)).await;
            made.map(drop).map_err(|error| (error.kind(), error.detail().to_owned()))
        };
        for (layout, slots, accepted, words) in [
            ("lsn", 3, false, "--accept node-loss"),
            ("random", 3, true, "--layout lsn"),
            ("lsn", 4, true, "has 5 volumes on 5 disks; the nearest possible redundancy is 3+2"),
        ] {
            let (kind, detail) = make(layout, slots, accepted).await.unwrap_err();
            assert!(kind == ErrorKind::Invalid && detail.contains(words), "{detail}");
        }
        make("lsn", 3, true).await.unwrap();
        client.disconnect().await.unwrap();
    });
}
