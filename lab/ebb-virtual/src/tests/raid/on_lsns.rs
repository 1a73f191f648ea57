//! RAID sets over localized storage nodes.

use std::collections::BTreeSet;

use ebb_runtime::virt::WorldOptions;
use ebb_types::NodeId;

use super::*;
use crate::power::sites::{Site, SubRackSizes};

/// Goal: with enough localized storage nodes cold data are kept in RAID sets over them, bear the loss of any two, and are made whole
/// again; compute hosts with disks take no part. Method: seven nodes for 4+2, each with a host that has a disk; one of the nodes with
/// a slot is lost for good, and another one is away for a read.
#[test]
fn cold_data_on_localized_storage_nodes_lose_their_copies_and_bear_losses() {
    World::run(71, WorldOptions::default(), |world| async move {
        let sizes = SubRackSizes { sub_racks: 7, hosts: 1, lsn_volumes: 2, host_volumes: 1, racks: 1 };
        let usual = PowerOptions::new(1, PolicyKind::AlwaysOn, INTERVAL);
        let options = PowerOptions { sites: Site::sub_racks(sizes), ..usual };
        let settings = pb::Dataset { layout: "lsn".into(), replicas: 2, ..Default::default() };
        let scene = Scene::start_with(&world, options, settings).await;
        let nodes = scene.cluster.cluster_status().await.unwrap().nodes;
        let lsns: BTreeSet<u64> =
            nodes.iter().filter(|node| !node.serves_hosts.is_empty()).map(|node| node.id).collect();
        let lie_on_lsns = |set: &pb::RaidSet| {
            let members = nodes_of(set);
            let distinct: BTreeSet<u64> = members.iter().copied().collect();
            distinct.len() == members.len() && distinct.is_subset(&lsns)
        };
        let sets = scene.encoded(&world, is_thin).await;
        assert!(sets.iter().all(lie_on_lsns), "{sets:?}");
        scene.check("reader").await;

        let lost = sets[0].slots[0].members[0].node;
        scene.cluster.fail(NodeId::new(lost)).unwrap();
        let metrics = scene.check("with-one-lost").await;
        assert!(metrics.degraded_reads > 0, "{metrics:?}");
        let is_whole = |set: &pb::RaidSet| is_thin(set) && !nodes_of(set).contains(&lost) && lie_on_lsns(set);
        let sets = scene.encoded(&world, is_whole).await;
        scene.check("rebuilt").await;
        let other = sets[0].slots[0].members[0].node;
        scene.cluster.fail(NodeId::new(other)).unwrap();
        scene.check("with-another-lost").await;
        scene.client.disconnect().await.unwrap();
    });
}
