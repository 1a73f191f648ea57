//! RAID sets of which snapshots have slots.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::Access;
use ebb_power::PolicyKind;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, NodeId};
use ebb_wire::pb::meta_op::{ListDatasets, Op, RemoveSnapshot, TakeSnapshot};

use super::{FILES, METABLOCK, Scene, WITHIN, content, is_thin};

impl Scene {
    /// Reads every file of a snapshot, by a client that has nothing in memory.
    async fn check_snapshot(&self, name: &str, host: &str) -> ebb_client::Metrics {
        let (client, root) = (self.cluster.connect(host).await.unwrap(), Credentials::root());
        for number in 0..FILES {
            let path = format!("/cold/.snapshot/{name}/f{number}");
            let inode = client.resolve(&root, path.as_bytes()).await.unwrap().inode;
            let handle = client.open(&root, inode, Access::Read).await.unwrap().0;
            let found = client.read(handle, 0, METABLOCK as u32).await.unwrap();
            let len = METABLOCK - usize::from(number) * 7_777;
            assert!(found == content(number, len), "f{number} in {name}: {} bytes", found.len());
            client.close(handle).await;
        }
        let metrics = client.metrics();
        client.disconnect().await.unwrap();
        metrics
    }

    /// Takes a snapshot; returns its number.
    async fn take_snapshot(&self, name: &str) -> u64 {
        let take = TakeSnapshot { dataset: self.dataset, name: name.into() };
        self.client.meta(&Credentials::root(), Op::TakeSnapshot(take)).await.unwrap().snapshots[0].number
    }

    async fn remove_snapshot(&self, snapshot: u64) {
        let remove = RemoveSnapshot { dataset: self.dataset, snapshot };
        self.client.meta(&Credentials::root(), Op::RemoveSnapshot(remove)).await.unwrap();
    }

    async fn overwrite(&self, file: usize, host: &str) {
        let client = self.cluster.connect(host).await.unwrap();
        let handle = client.open(&Credentials::root(), self.files[file].0, Access::ReadWrite).await.unwrap().0;
        client.write(handle, 1_000, Bytes::from(vec![7; 300_000])).await.unwrap();
        client.fsync(handle).await.unwrap();
        client.close(handle).await;
        client.disconnect().await.unwrap();
    }

    /// Bytes that the snapshot alone has.
    async fn kept_bytes(&self) -> u64 {
        let op = Op::ListDatasets(ListDatasets::default());
        let listed = self.client.meta(&Credentials::root(), op).await.unwrap().datasets;
        listed.iter().find(|dataset| dataset.id == self.dataset).unwrap().kept_bytes
    }

    /// Slots that are alive.
    async fn living(&self) -> usize {
        let sets = self.cluster.raid_sets().await.unwrap();
        let slots = sets.iter().filter_map(|set| set.set.as_ref()).flat_map(|set| &set.slots);
        slots.filter(|slot| slot.inode != 0).count()
    }
}

/// Goal (I-74, I-76): a slot lives while a snapshot has it, whatever its file does; it is decoded like others, and dies with the
/// snapshot. Method: files are overwritten and removed after a snapshot, then nodes fail. Then the snapshot goes.
#[test]
fn slots_live_for_snapshots_and_die_with_them() {
    World::run(131, WorldOptions::default(), |world| async move {
        let mut scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        let sets = scene.encoded(&world, is_thin).await;
        let root = Credentials::root();
        let taken = scene.take_snapshot("cold").await;
        scene.overwrite(0, "writer").await;
        let mut lost = scene.files[0].1 as u64;
        for _ in 0..3 {
            let (name, (_, len)) = (format!("f{}", scene.numbers.remove(1)), scene.files.remove(1));
            scene.client.unlink(&root, scene.directory, name.as_bytes()).await.unwrap();
            lost += len as u64;
        }
        let begun = world.now();
        while scene.kept_bytes().await != lost {
            assert!(world.now() - begun < WITHIN, "{lost} bytes are not kept, but {}", scene.kept_bytes().await);
            world.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(scene.living().await, usize::from(FILES), "no slot died");
        assert_eq!(scene.check_snapshot("cold", "reader").await.degraded_reads, 0);
        let slot = sets[0].slots.iter().find(|slot| slot.inode != 0).unwrap();
        scene.cluster.fail(NodeId::new(slot.members[0].node)).unwrap();
        assert!(scene.check_snapshot("cold", "late reader").await.degraded_reads > 0);
        scene.remove_snapshot(taken).await;
        let begun = world.now();
        while scene.living().await > scene.files.len() - 1 {
            assert!(world.now() - begun < WITHIN, "slots live that nobody has");
            world.sleep(Duration::from_secs(1)).await;
        }
        assert!(scene.client.resolve(&root, b"/cold/.snapshot").await.is_err());
        scene.client.disconnect().await.unwrap();
    });
}

/// Goal (I-74, I-76): what a snapshot alone has is encoded as files' metablocks are, and nothing of it is left when the snapshot goes.
/// Method: every file is removed or overwritten before anything is old enough. Then nodes fail.
#[test]
fn what_a_snapshot_alone_has_is_encoded() {
    World::run(132, WorldOptions::default(), |world| async move {
        let mut scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        let taken = scene.take_snapshot("hot").await;
        scene.overwrite(0, "writer").await;
        for (number, _) in scene.numbers.split_off(1).iter().zip(scene.files.split_off(1)) {
            scene.client.unlink(&Credentials::root(), scene.directory, format!("f{number}").as_bytes()).await.unwrap();
        }
        let begun = world.now();
        let sets = loop {
            let sets: Vec<_> = scene.cluster.raid_sets().await.unwrap().into_iter().filter_map(|set| set.set).collect();
            // The heir of what was overwritten is cold too after a while, and a slot by itself waits for others.
            if scene.living().await >= usize::from(FILES) && sets.iter().all(is_thin) {
                break sets;
            }
            assert!(world.now() - begun < WITHIN, "{} slots: {sets:?}", scene.living().await);
            world.sleep(Duration::from_secs(1)).await;
        };
        assert_eq!(scene.check_snapshot("hot", "reader").await.degraded_reads, 0);
        for member in [sets[0].slots[0].members[0], sets[0].slots[1].members[0]] {
            scene.cluster.fail(NodeId::new(member.node)).unwrap();
        }
        let metrics = scene.check_snapshot("hot", "late reader").await;
        assert!(metrics.degraded_reads > 0 && metrics.corrupt_reads == 0, "{metrics:?}");
        let fsck = scene.cluster.scrub().await.unwrap();
        assert_eq!((fsck.missing, fsck.corrupt, fsck.wrong_rows), (0, 0, 0), "{:?}", fsck.findings);
        scene.remove_snapshot(taken).await;
        scene.client.unlink(&Credentials::root(), scene.directory, b"f0").await.unwrap();
        scene.until_replicas(&world, 0).await;
        scene.client.disconnect().await.unwrap();
    });
}
