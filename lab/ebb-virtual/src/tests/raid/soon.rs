//! What is due does not wait for anything but its delay and a place.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, NewFile};
use ebb_power::PolicyKind;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::Credentials;
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{GetMap, Op, SetDataset};

use super::{Scene, content, is_thin};

/// Goal: a dataset with a short delay is not kept waiting by a pause that began before it was made. Method: a pause without any dataset
/// takes a minute, and began with the master.
#[test]
fn a_new_dataset_with_a_short_delay_is_encoded_within_seconds() {
    World::run(81, WorldOptions::default(), |world| async move {
        let scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        let begun = world.now();
        scene.encoded(&world, is_thin).await;
        // A delay of five seconds, and the lease of a file that was closed: it stays for up to fifteen.
        assert!(world.now() - begun < Duration::from_secs(40), "{:?}", world.now() - begun);
        scene.client.disconnect().await.unwrap();
    });
}

/// Goal: a backlog is encoded without pauses, however long the delay is. Method: more RAID sets are due at once than may be made at a time;
/// between two rounds lies a minute.
#[test]
fn a_backlog_is_encoded_without_pauses() {
    const FILES: u8 = 40;
    World::run(82, WorldOptions::default(), |world| async move {
        let scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        let root = Credentials::root();
        let set = SetDataset { dataset: scene.dataset, delay_ms: Some(300_000), ..Default::default() };
        scene.client.meta(&root, Op::SetDataset(set)).await.unwrap();
        let mut made = Vec::new();
        for number in 0..FILES {
            let name = format!("more{number}");
            let new = NewFile::exclusive(scene.directory, name.as_bytes(), Access::ReadWrite);
            let file = scene.client.create(&root, new).await.unwrap();
            scene.client.write(file.handle, 0, Bytes::from(content(number, 500_000))).await.unwrap();
            scene.client.fsync(file.handle).await.unwrap();
            scene.client.close(file.handle).await;
            made.push(file.attr.inode);
        }
        let mut times = Vec::new();
        let end = world.now() + Duration::from_secs(900);
        while times.len() < usize::from(FILES) {
            assert!(world.now() < end, "{} of {FILES} files are encoded", times.len());
            world.sleep(Duration::from_secs(1)).await;
            let mut encoded = 0;
            for inode in &made {
                let map = GetMap { inode: inode.raw(), first_index: 0, limit: 1 };
                let found = scene.client.meta(&root, Op::GetMap(map)).await.unwrap().metablocks;
                encoded += usize::from(found.iter().all(pb::Metablock::is_in_raid_set));
            }
            times.resize(encoded, world.now());
        }
        let took = times[times.len() - 1] - times[0];
        assert!(took < Duration::from_secs(30), "ten RAID sets, four at a time, took {took:?}");
        scene.client.disconnect().await.unwrap();
    });
}
