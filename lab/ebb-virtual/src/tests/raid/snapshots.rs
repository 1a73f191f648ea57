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
        let take = TakeSnapshot { dataset: scene.dataset, name: "cold".into() };
        let taken = scene.client.meta(&root, Op::TakeSnapshot(take)).await.unwrap();
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
        let remove = RemoveSnapshot { dataset: scene.dataset, snapshot: taken.snapshots[0].number };
        scene.client.meta(&root, Op::RemoveSnapshot(remove)).await.unwrap();
        let begun = world.now();
        while scene.living().await > scene.files.len() - 1 {
            assert!(world.now() - begun < WITHIN, "slots live that nobody has");
            world.sleep(Duration::from_secs(1)).await;
        }
        assert!(scene.client.resolve(&root, b"/cold/.snapshot").await.is_err());
        scene.client.disconnect().await.unwrap();
    });
}
