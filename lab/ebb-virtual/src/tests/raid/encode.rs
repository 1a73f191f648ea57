//! RAID sets are made when data are cold, and what is lost or asleep is decoded.

use std::time::Duration;

use ebb_power::PolicyKind;
use ebb_runtime::SeededBug;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::NodeId;
use ebb_wire::pb;

use super::{FILES, INTERVAL, Scene, is_thin, nodes_of};
use crate::power::newest_plan;

#[test]
fn cold_metablocks_are_encoded_and_read_without_their_members() {
    World::run(71, WorldOptions::default(), |world| async move {
        let scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        let sets = scene.encoded(&world, is_thin).await;
        assert_eq!(sets.iter().map(|set| set.slots.len()).sum::<usize>(), usize::from(FILES));
        for set in &sets {
            let mut nodes = nodes_of(set);
            nodes.sort_unstable();
            nodes.dedup();
            assert_eq!(nodes.len(), set.slots.len() + 2, "each member on a node of its own: {set:?}");
        }
        assert_eq!(scene.check("reader").await.degraded_reads, 0, "all members are there");
        // One of each slot and row: the other copies are gone from the disks.
        scene.until_replicas(&world, u64::from(FILES) + 2 * sets.len() as u64).await;

        // Any two nodes are lost: of each RAID set at most two members.
        let lost = [nodes_of(&sets[0])[0], nodes_of(&sets[0])[5]];
        for node in lost {
            scene.cluster.fail(NodeId::new(node)).unwrap();
        }
        let metrics = scene.check("late reader").await;
        assert!(metrics.degraded_reads > 0 && metrics.corrupt_reads == 0, "{metrics:?}");
        // And made again on those that are left, without a file that cannot be read meanwhile.
        let is_whole = |set: &pb::RaidSet| is_thin(set) && nodes_of(set).iter().all(|node| !lost.contains(node));
        let sets = scene.encoded(&world, is_whole).await;
        assert_eq!(scene.check("last reader").await.degraded_reads, 0, "{sets:?}");
        let fsck = scene.cluster.scrub().await.unwrap();
        let faults = (fsck.missing, fsck.damaged, fsck.corrupt, fsck.under_replicated, fsck.over_replicated);
        assert_eq!(faults, (0, 0, 0, 0, 0), "{:?}", fsck.findings);
        scene.client.disconnect().await.unwrap();
    });
}

/// Goal: rows that are not what their slots give are found by `fsck --parity`, and made again. Method: the encoder writes wrong ones and
/// takes them for proved; their checksums are right.
#[test]
fn wrong_rows_are_found_and_made_again() {
    let options = WorldOptions { bug: Some(SeededBug::WrongRow), ..WorldOptions::default() };
    World::run(76, options, |world| async move {
        let scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        let sets = scene.encoded(&world, is_thin).await;
        let fsck = scene.cluster.scrub().await.unwrap();
        assert_eq!((fsck.wrong_rows, fsck.corrupt), (sets.len() as u64, 0), "{:?}", fsck.findings);
        let end = world.now() + Duration::from_secs(60);
        loop {
            // Rows that are still to be made again are not compared.
            let fsck = scene.cluster.scrub().await.unwrap();
            if (fsck.rows_compared, fsck.wrong_rows) == (2 * sets.len() as u64, 0) {
                break;
            }
            assert!(world.now() < end, "rows stay wrong: {:?}", fsck.findings);
            world.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(sets, scene.encoded(&world, is_thin).await, "each in its place");
        for node in [nodes_of(&sets[0])[0], nodes_of(&sets[0])[1]] {
            scene.cluster.fail(NodeId::new(node)).unwrap();
        }
        let metrics = scene.check("late reader").await;
        assert!(metrics.degraded_reads > 0 && metrics.corrupt_reads == 0, "{metrics:?}");
        scene.client.disconnect().await.unwrap();
    });
}

/// Goal: reads go on while members sleep. Method: nodes blink with three quarters of the power; each RAID set has six
/// members, and four of them decode.
#[test]
fn members_that_sleep_are_not_waited_for() {
    World::run(72, WorldOptions::default(), |world| async move {
        let scene = Scene::start(&world, PolicyKind::BlinkCircular).await;
        scene.encoded(&world, is_thin).await;
        scene.cluster.set_fraction(0.75).await.unwrap();
        world.sleep(INTERVAL * 5).await;
        let mut degraded = 0;
        for round in 0..6 {
            let metrics = scene.check(&format!("reader{round}")).await;
            assert_eq!(metrics.corrupt_reads, 0);
            degraded += metrics.degraded_reads;
            world.sleep(INTERVAL / 3).await;
        }
        assert!(degraded > 0, "some members slept");
        scene.cluster.set_fraction(1.0).await.unwrap();
        world.sleep(INTERVAL * 4).await;
        scene.client.disconnect().await.unwrap();
    });
}

/// Goal: the cover of encoded data is on, no more, and nothing waits. Method: power for exactly so many nodes: all but as many as
/// there are rows, and two thirds of the circle.
#[test]
fn as_many_nodes_are_on_as_decode_everything() {
    for (seed, layout, nodes, cover) in [(74, "random", 8, 6), (75, "power-balanced", 12, 8)] {
        World::run(seed, WorldOptions::default(), |world| async move {
            let scene = Scene::start_on(&world, PolicyKind::Activation, nodes, layout).await;
            let sets = scene.encoded(&world, is_thin).await;
            let parts = u64::from(FILES) + 2 * sets.len() as u64;
            scene.until_replicas(&world, parts).await;
            // A node draws 25 W, or 1 W asleep.
            let share = (24.0 * cover as f64 + nodes as f64) / (25.0 * nodes as f64);
            scene.cluster.set_fraction(share + 1e-6).await.unwrap();
            world.sleep(INTERVAL * 5).await;
            assert_eq!(scene.cluster.census().serving, cover, "{layout}: {sets:?}");
            let began = world.now();
            let metrics = scene.check("reader").await;
            let took = world.now() - began;
            assert!(took < INTERVAL / 2, "{layout}: {took:?}");
            assert!(metrics.degraded_reads > 0, "{layout}");
            // With power for two nodes the dataset stalls, and the plan names what is out of reach.
            scene.cluster.set_fraction((24.0 * 2.0 + nodes as f64) / (25.0 * nodes as f64)).await.unwrap();
            let end = world.now() + INTERVAL * 60;
            loop {
                let plan = newest_plan(&scene.cluster.describe().await.unwrap()).unwrap().unwrap();
                if !plan.stalled.is_empty() && plan.out_of_reach.metablocks == u64::from(FILES) {
                    break;
                }
                assert!(world.now() < end, "{layout}: {plan}");
                world.sleep(INTERVAL).await;
            }
            scene.cluster.set_fraction(1.0).await.unwrap();
            world.sleep(INTERVAL * 4).await;
            scene.client.disconnect().await.unwrap();
        });
    }
}

/// Goal: what one master has sealed, the next one makes thin; and rows of an attempt that it did not finish are no
/// waste. Method: the master dies again and again while it encodes.
#[test]
fn a_new_master_goes_on_with_what_is_sealed() {
    World::run(73, WorldOptions::default(), |world| async move {
        let scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        world.sleep(Duration::from_secs(4)).await;
        for _ in 0..12 {
            world.sleep(Duration::from_millis(700)).await;
            scene.cluster.restart_master().await;
        }
        let sets = scene.encoded(&world, is_thin).await;
        scene.check("reader").await;
        scene.until_replicas(&world, u64::from(FILES) + 2 * sets.len() as u64).await;
        scene.client.disconnect().await.unwrap();
    });
}
