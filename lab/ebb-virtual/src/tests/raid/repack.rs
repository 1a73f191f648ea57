//! Slots that die, RAID sets that are repacked, and the way back to copies.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, KnownMap};
use ebb_power::PolicyKind;
use ebb_runtime::SeededBug;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, ErrorKind, NodeId, Result};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Op, SetDataset};

use super::{FILES, METABLOCK, Scene, WITHIN, is_thin};

impl Scene {
    /// Removes a file.
    async fn remove(&mut self, file: usize) {
        let name = format!("f{}", self.numbers[file]);
        self.client.unlink(&Credentials::root(), self.directory, name.as_bytes()).await.unwrap();
        self.files.remove(file);
        self.numbers.remove(file);
    }

    async fn set(&self, raid: Option<pb::RaidCode>, encode: Option<u32>) {
        let set = SetDataset { dataset: self.dataset, raid, encode, ..Default::default() };
        self.client.meta(&Credentials::root(), Op::SetDataset(set)).await.unwrap();
    }

    /// Waits until no metablock is in a RAID set.
    async fn until_copies(&self, world: &World) {
        let begun = world.now();
        loop {
            let mut left = 0;
            for file in 0..self.files.len() {
                left += usize::from(self.record(file).await.is_in_raid_set());
            }
            if left == 0 {
                return;
            }
            assert!(world.now() - begun < WITHIN, "{left} are left");
            world.sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Goal: the room of removed files comes back, and what is left stays readable after any two losses. Method: half of the
/// slots of each RAID set die; then two nodes.
#[test]
fn what_lives_is_repacked_when_half_of_its_neighbours_are_dead() {
    World::run(101, WorldOptions::default(), |world| async move {
        let mut scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        let sets = scene.encoded(&world, is_thin).await;
        assert_eq!(sets.len(), 2, "eight files, four in each: {sets:?}");
        for set in &sets {
            for slot in &set.slots[..2] {
                let file = scene.files.iter().position(|(inode, _)| inode.raw() == slot.inode).unwrap();
                scene.remove(file).await;
            }
        }
        let fresh = scene.encoded(&world, |set| is_thin(set) && sets.iter().all(|old| old.id != set.id)).await;
        assert_eq!(fresh.iter().map(|set| set.slots.len()).sum::<usize>(), 4, "nothing is in two: {fresh:?}");
        // Ballast and the old rows are gone.
        scene.until_replicas(&world, 4 + 2 * fresh.len() as u64).await;
        assert_eq!(scene.check("reader").await.degraded_reads, 0);
        for slot in [0, 1] {
            scene.cluster.fail(NodeId::new(fresh[0].slots[slot].members[0].node)).unwrap();
        }
        assert!(scene.check("late reader").await.degraded_reads > 0);
        scene.client.disconnect().await.unwrap();
    });
}

/// Goal: with its last slot a RAID set ends. Method: all files are removed.
#[test]
fn a_raid_set_without_a_living_slot_leaves_nothing() {
    World::run(102, WorldOptions::default(), |world| async move {
        let mut scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        scene.encoded(&world, is_thin).await;
        for _ in 0..FILES {
            scene.remove(0).await;
        }
        scene.until_replicas(&world, 0).await;
        scene.client.disconnect().await.unwrap();
    });
}

/// Goal (I-68): what a file has lost is read by nobody. Method: a reader has the map from before a write, and reads by it.
#[test]
fn a_reader_with_an_old_map_gets_nothing_that_was_overwritten() {
    let refused = read_by_old_map(None).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::NoReplica | ErrorKind::StaleVersion), "{refused}");
    assert!(read_by_old_map(Some(SeededBug::NotRetired)).is_ok(), "a master that retires nothing is found");
}

fn read_by_old_map(bug: Option<SeededBug>) -> Result<Bytes> {
    World::run(103, WorldOptions { bug, ..WorldOptions::default() }, |world| async move {
        let scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        scene.encoded(&world, is_thin).await;
        let (old, (inode, len)) = (scene.record(0).await, scene.files[0]);
        let handle = scene.client.open(&Credentials::root(), inode, Access::ReadWrite).await.unwrap().0;
        scene.client.write(handle, 0, Bytes::from_static(b"new bytes")).await.unwrap();
        scene.client.fsync(handle).await.unwrap();
        world.sleep(Duration::from_secs(3)).await;
        let reader = scene.cluster.connect("reader").await.unwrap();
        let metablocks = [old];
        let map = KnownMap {
            metablocks: &metablocks,
            metablock_size: METABLOCK as u64,
            file_size: len as u64,
            dataset: None,
        };
        let read = reader.read_by_map(map, 0, 4_096).await;
        reader.disconnect().await.unwrap();
        scene.client.disconnect().await.unwrap();
        read
    })
}

/// Goal: a dataset can be switched both ways while it is used. Method: to copies, with a node lost afterwards; and back.
#[test]
fn a_dataset_returns_to_copies_and_is_encoded_again() {
    World::run(104, WorldOptions::default(), |world| async move {
        let scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        let sets = scene.encoded(&world, is_thin).await;
        scene.set(Some(pb::RaidCode::default()), None).await;
        scene.until_copies(&world).await;
        scene.until_replicas(&world, 3 * u64::from(FILES)).await;
        scene.check("reader").await;
        // The ordinary repair keeps them now.
        scene.cluster.fail(NodeId::new(sets[0].slots[0].members[0].node)).unwrap();
        scene.until_replicas(&world, 3 * u64::from(FILES)).await;
        scene.check("late reader").await;

        scene.set(Some(pb::RaidCode { copies: 1, slots: 3, rows: 1, domain: 0 }), None).await;
        let sets = scene.encoded(&world, is_thin).await;
        assert!(sets.iter().all(|set| set.rows.len() == 1), "{sets:?}");
        scene.until_replicas(&world, u64::from(FILES) + sets.len() as u64).await;
        scene.check("last reader").await;
        scene.client.disconnect().await.unwrap();
    });
}
