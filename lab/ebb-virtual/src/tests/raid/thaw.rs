//! Writes to what is frozen.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Allocate, Client, Handle, Seek, SetAttr};
use ebb_power::PolicyKind;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, NodeId};

use super::{INTERVAL, METABLOCK, Scene, content, is_thin};

/// A file as it must be read.
struct Model<'a> {
    client: &'a Client,
    handle: Handle,
    bytes: Vec<u8>,
}

impl<'a> Model<'a> {
    async fn open(scene: &'a Scene, file: usize) -> Self {
        let (client, (inode, len)) = (&scene.client, scene.files[file]);
        let handle = client.open(&Credentials::root(), inode, Access::ReadWrite).await.unwrap().0;
        Self { client, handle, bytes: content(file as u8, len) }
    }

    async fn write(&mut self, offset: usize, len: usize) {
        let data = content(200, len);
        self.bytes.resize(self.bytes.len().max(offset + len), 0);
        self.bytes[offset..offset + len].copy_from_slice(&data);
        self.client.write(self.handle, offset as u64, Bytes::from(data)).await.unwrap();
    }

    async fn cut(&mut self, scene: &Scene, file: usize, size: usize) {
        self.bytes.resize(size, 0);
        let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
        self.client.set_attr(&Credentials::root(), scene.files[file].0, set).await.unwrap();
    }

    async fn allocate(&mut self, mode: Allocate, offset: usize, len: usize) {
        let end = (offset + len).min(self.bytes.len());
        self.bytes[offset..end].fill(0);
        self.client.allocate(self.handle, mode, offset as u64, len as u64).await.unwrap();
    }

    /// Compares with what this client reads now; then syncs.
    async fn done(self, what: &str) -> Vec<u8> {
        let found = self.client.read(self.handle, 0, 4 * METABLOCK as u32).await.unwrap();
        assert!(found == self.bytes, "{what}: {} bytes, {} are expected", found.len(), self.bytes.len());
        self.client.fsync(self.handle).await.unwrap();
        self.client.close(self.handle).await;
        self.bytes
    }
}

/// Every way to change what is frozen. Returns what the files must have.
async fn change_all(scene: &Scene) -> Vec<Vec<u8>> {
    let mut expected = Vec::new();
    let mut file = Model::open(scene, 0).await;
    file.write(100_000, 70_000).await;
    expected.push(file.done("overwritten").await);

    let mut file = Model::open(scene, 1).await;
    let end = file.bytes.len();
    file.write(end, METABLOCK).await;
    expected.push(file.done("appended to").await);

    // A cut changes no member. What it hides does not come back, neither in a hole nor before bytes that are written there.
    let mut file = Model::open(scene, 2).await;
    file.cut(scene, 2, 300_001).await;
    file.cut(scene, 2, 500_000).await;
    let tail = scene.client.read(file.handle, 299_999, 50_000).await.unwrap();
    assert!(tail[2..].iter().all(|byte| *byte == 0), "what was cut off is back");
    assert_eq!(scene.client.seek(file.handle, 0, Seek::Hole).await.unwrap(), 300_001);
    file.write(700_000, 10_000).await;
    expected.push(file.done("cut and written behind").await);

    let mut file = Model::open(scene, 3).await;
    file.allocate(Allocate::PunchHole, 65_536, 300_000).await;
    expected.push(file.done("punched").await);

    let mut file = Model::open(scene, 4).await;
    file.allocate(Allocate::Zero, 1_000, 2_000).await;
    expected.push(file.done("zeroed").await);

    let mut file = Model::open(scene, 5).await;
    file.cut(scene, 5, 0).await;
    file.write(0, 5_000).await;
    expected.push(file.done("written anew").await);

    let mut file = Model::open(scene, 6).await;
    file.cut(scene, 6, 123_456).await;
    expected.push(file.done("cut").await);

    expected.push(Model::open(scene, 7).await.done("left alone").await);
    expected
}

async fn check(scene: &Scene, name: &str, expected: &[Vec<u8>]) {
    let client = scene.cluster.connect(name).await.unwrap();
    for (number, ((inode, _), bytes)) in scene.files.iter().zip(expected).enumerate() {
        let handle = client.open(&Credentials::root(), *inode, Access::Read).await.unwrap().0;
        let found = client.read(handle, 0, 4 * METABLOCK as u32).await.unwrap();
        assert!(found == bytes, "{name}: f{number} has {} bytes, {} are expected", found.len(), bytes.len());
        client.close(handle).await;
    }
    client.disconnect().await.unwrap();
}

/// Waits until each node has only what is recorded, and all of that.
async fn until_sound(scene: &Scene, world: &World) {
    let begun = world.now();
    loop {
        let fsck = scene.cluster.scrub().await.unwrap();
        let faults = (fsck.missing, fsck.damaged, fsck.corrupt, fsck.under_replicated, fsck.over_replicated);
        if faults == (0, 0, 0, 0, 0) {
            return;
        }
        assert!(world.now() - begun < Duration::from_secs(1_000), "{:?}", fsck.findings);
        world.sleep(Duration::from_secs(5)).await;
    }
}

#[test]
fn what_is_frozen_can_be_changed_in_every_way() {
    World::run(81, WorldOptions::default(), |world| async move {
        let scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        scene.encoded(&world, is_thin).await;
        let expected = change_all(&scene).await;
        let metrics = scene.client.metrics();
        assert_eq!(metrics.thawed_metablocks, 5, "{metrics:?}");
        check(&scene, "reader", &expected).await;
        // And again when it is cold once more.
        world.sleep(Duration::from_secs(60)).await;
        check(&scene, "late reader", &expected).await;
        until_sound(&scene, &world).await;
        scene.client.disconnect().await.unwrap();
    });
}

/// Goal: a write to a frozen metablock does not need its member. Method: two nodes are lost, and every file is changed.
#[test]
fn heirs_of_lost_members_are_decoded() {
    World::run(82, WorldOptions::default(), |world| async move {
        let scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        let sets = scene.encoded(&world, is_thin).await;
        for slot in [0, 3] {
            scene.cluster.fail(NodeId::new(sets[0].slots[slot].members[0].node)).unwrap();
        }
        let expected = change_all(&scene).await;
        check(&scene, "reader", &expected).await;
        until_sound(&scene, &world).await;
        check(&scene, "late reader", &expected).await;
        scene.client.disconnect().await.unwrap();
    });
}

/// The same while nodes blink on this share of the power.
fn change_while_nodes_blink(seed: u64, share: f64) {
    World::run(seed, WorldOptions::default(), move |world| async move {
        let scene = Scene::start(&world, PolicyKind::BlinkCircular).await;
        scene.encoded(&world, is_thin).await;
        scene.cluster.set_fraction(share).await.unwrap();
        world.sleep(INTERVAL * 5).await;
        let expected = change_all(&scene).await;
        check(&scene, "reader", &expected).await;
        scene.cluster.set_fraction(1.0).await.unwrap();
        world.sleep(INTERVAL * 4).await;
        check(&scene, "late reader", &expected).await;
        until_sound(&scene, &world).await;
        scene.client.disconnect().await.unwrap();
    });
}

#[test]
fn heirs_of_sleeping_members_are_decoded() {
    change_while_nodes_blink(83, 0.75);
}

/// With less than half of the nodes awake nothing can be decoded, and some nodes never meet the frozen metablock's.
#[test]
fn heirs_whose_members_never_meet_the_only_copy_get_it_from_others() {
    for seed in 84..88 {
        change_while_nodes_blink(seed, 0.4);
    }
}

/// Goal: a thaw that is broken off leaves nothing behind. Method: the writer dies at a random moment of it, and so does the
/// master; the file is read, and written by another client.
#[test]
fn a_thaw_that_is_broken_off_leaves_the_file_as_it_was() {
    for seed in 84..100 {
        World::run(seed, WorldOptions::default(), |world| async move {
            let scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
            scene.encoded(&world, is_thin).await;
            let (writer, process) = scene.cluster.connect_on(0, "writer").await.unwrap();
            let inode = scene.files[0].0;
            let writing = process.runtime().spawn("writer", async move {
                let handle = writer.open(&Credentials::root(), inode, Access::ReadWrite).await?.0;
                writer.write(handle, 5, Bytes::from_static(b"new")).await
            });
            world.sleep(Duration::from_micros(700 * (seed - 83))).await;
            process.kill();
            drop(writing);
            scene.cluster.restart_master().await;
            let mut file = Model::open(&scene, 0).await;
            let found = scene.client.read(file.handle, 0, METABLOCK as u32).await.unwrap();
            assert!(found == file.bytes || found[5..8] == *b"new", "seed {seed}");
            file.bytes = found.to_vec();
            file.write(77_777, 99).await;
            let bytes = file.done("after the other writer's death").await;
            until_sound(&scene, &world).await;
            check(&scene, "reader", &[bytes]).await;
            scene.client.disconnect().await.unwrap();
        });
    }
}

/// Goal: what one client has in memory ends where another one has cut. Method: a reader reads a frozen file, another client cuts
/// it and makes it longer, and the first one reads again. No version changes by that.
#[test]
fn what_was_cut_off_is_in_no_memory() {
    World::run(91, WorldOptions::default(), |world| async move {
        let scene = Scene::start(&world, PolicyKind::AlwaysOn).await;
        scene.encoded(&world, is_thin).await;
        let reader = scene.cluster.connect("reader").await.unwrap();
        let handle = reader.open(&Credentials::root(), scene.files[7].0, Access::Read).await.unwrap().0;
        reader.read(handle, 0, METABLOCK as u32).await.unwrap();
        let mut file = Model::open(&scene, 7).await;
        file.cut(&scene, 7, 200_001).await;
        file.cut(&scene, 7, 400_000).await;
        let found = reader.read(handle, 0, METABLOCK as u32).await.unwrap();
        assert!(found == file.bytes, "{} bytes", found.len());
        assert_eq!(scene.client.metrics().thawed_metablocks, 0);
        file.done("cut and made longer").await;
        reader.disconnect().await.unwrap();
        scene.client.disconnect().await.unwrap();
    });
}
