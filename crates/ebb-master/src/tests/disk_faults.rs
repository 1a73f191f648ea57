//! The master's disk loses or changes synced bytes. The names have only one copy, so nothing restores them. But the
//! loss is noticed: the master refuses to start, or has everything all the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ebb_runtime::virt::{Dice, PowerCut};
use ebb_types::{Error, ErrorKind};

use super::harness::{Cluster, TestClient, options, with_cluster};
use crate::Master;

/// Acknowledged names, and a disk that has all of them, at rest.
struct Scene {
    cluster: Cluster,
    client: TestClient,
    names: BTreeMap<String, u64>,
    disk: PowerCut,
}

impl Scene {
    /// Two checkpoints, several segments, and the last change a while ago.
    async fn new(mut cluster: Cluster) -> Self {
        let client = cluster.watcher().await;
        for number in 0..1000 {
            client.create(&format!("f{number}")).await.unwrap();
        }
        cluster.world.sleep(Duration::from_secs(2)).await;
        let names = client.list().await;
        let disk = cluster.process.power_cut();
        cluster.process.kill();
        cluster.master = None;
        Self { cluster, client, names, disk }
    }

    /// Applies `change` to the disk, and starts the master on it. Returns whether it serves; it must then have
    /// everything.
    async fn try_with(&mut self, case: &str, change: impl AsyncFnOnce(&Cluster)) -> bool {
        self.cluster.process.kill();
        self.cluster.process.restore_disk(&self.disk, |_| true);
        change(&self.cluster).await;
        self.start(case).await
    }

    async fn start(&mut self, case: &str) -> bool {
        let mut options = options();
        options.listen = self.cluster.address();
        match Master::start(self.cluster.process.restart(), options).await {
            Ok(master) => {
                self.cluster.master = Some(master);
                // Its keep-alive finds the way to the new process.
                self.cluster.world.sleep(Duration::from_secs(1)).await;
                let names = self.client.list().await;
                let missing: Vec<_> = self.names.keys().filter(|name| !names.contains_key(*name)).collect();
                assert!(self.names == names, "{case}: the master serves without {missing:?}");
                self.cluster.process.kill();
                self.cluster.master = None;
                true
            }
            Err(error) => {
                self.cluster.process.kill();
                check_refusal(case, &error);
                false
            }
        }
    }

    fn files(&self) -> Vec<(PathBuf, u64)> {
        let files = self.cluster.process.disk_files();
        // What is being made has no synced name, and is not on the disk that the tries begin with.
        let is_made = |path: &Path| path.extension().is_none_or(|end| end != "unfinished");
        files.into_iter().filter(|(path, len)| *len > 0 && path.starts_with("/data") && is_made(path)).collect()
    }
}

/// Checks that a refusal names the file and a remedy.
fn check_refusal(case: &str, error: &Error) {
    let text = error.to_string();
    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid), "{case}: {text}");
    assert!(text.contains("/data"), "{case}: where? {text}");
    let advice = ["saved copy", "rename it back", "remove", "mirror"];
    assert!(advice.iter().any(|words| text.contains(words)), "{case}: what to do? {text}");
}

/// A random place in a file with content.
fn place(cluster: &Cluster, path: &Path, dice: &mut Dice) -> u64 {
    let bytes = cluster.process.disk_content(path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    dice.below(end as u64)
}

#[test]
fn a_changed_bit_of_any_file_is_refused_or_harmless() {
    with_cluster(1, 3, |cluster| async move {
        let mut scene = Scene::new(cluster).await;
        let (mut served, mut refused) = (0, 0);
        for (path, _) in scene.files() {
            let mut dice = scene.cluster.world.dice(&path.display().to_string());
            for _ in 0..8 {
                scene.cluster.process.restore_disk(&scene.disk, |_| true);
                let at = place(&scene.cluster, &path, &mut dice);
                let case = format!("{} at {at}", path.display());
                let flip = async |cluster: &Cluster| {
                    cluster.process.flip_bits(&path, at, 1).unwrap();
                };
                *if scene.try_with(&case, flip).await { &mut served } else { &mut refused } += 1;
            }
        }
        assert!(served > 10 && refused > 10, "{served} served, {refused} refused");
    });
}

#[test]
fn the_loss_of_any_file_is_refused_or_harmless() {
    with_cluster(2, 3, |cluster| async move {
        let mut scene = Scene::new(cluster).await;
        let (mut served, mut refused) = (0, 0);
        for (path, _) in scene.files() {
            let remove = async |cluster: &Cluster| {
                let disk = cluster.process.restart().disk();
                disk.remove_file(&path).await.unwrap();
                disk.sync_dir("/data".as_ref()).await.unwrap();
                cluster.process.kill();
            };
            *if scene.try_with(&format!("{} is gone", path.display()), remove).await {
                &mut served
            } else {
                &mut refused
            } += 1;
        }
        assert!(served > 0 && refused > 1, "{served} served, {refused} refused");
    });
}

/// Goal: a misdirected write, which destroys the bytes at its wrong place, is noticed. Method: one write to the log or
/// to a checkpoint goes to a wrong place while names are made; then the process is killed, or the power fails.
#[test]
fn a_misdirected_write_is_refused_or_harmless() {
    let (mut served, mut refused) = (0, 0);
    for seed in 0..12 {
        let (served, refused) = (&mut served, &mut refused);
        with_cluster(seed, 3, |cluster| async move {
            let mut scene = Scene::new(cluster).await;
            scene.cluster.process.restore_disk(&scene.disk, |_| true);
            assert!(scene.start("an untouched disk").await);
            scene.cluster.start_master().await;
            scene.cluster.until("safe start", |status| status.safe_start && status.nodes.len() == 3).await;
            scene.cluster.process.misdirect_write(if seed % 3 == 0 { "checkpoint" } else { ".segment" });
            for number in 0..if seed % 3 == 0 { 450 } else { 5 + seed } {
                scene.client.create(&format!("g{number}")).await.unwrap();
            }
            // The hint is written down within some tenths of a second.
            scene.cluster.world.sleep(Duration::from_secs(1)).await;
            scene.names = scene.client.list().await;
            if seed % 2 == 0 {
                scene.cluster.process.kill();
            } else {
                let cut = scene.cluster.process.power_cut();
                scene.cluster.process.kill();
                scene.cluster.process.restore_disk(&cut, |_| true);
            }
            scene.cluster.master = None;
            *if scene.start(&format!("seed {seed}")).await { served } else { refused } += 1;
        });
    }
    assert!(refused >= 4, "{served} served, {refused} refused");
}
