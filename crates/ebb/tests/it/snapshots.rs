//! Snapshots as a user meets them: taken by a command while programs write, and read below `.snapshot` on a mount.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{Cluster, Dice, pattern, shell, wait_for};

const FILES: u64 = 24;
/// Linux' number of "read-only file system".
const EROFS: i32 = 30;
const FREED_WITHIN: Duration = Duration::from_secs(90);

/// Writes the next number to one file, and then to another, until it is told to end. Nothing is synced.
fn count_up(directory: &Path, stop: &AtomicBool) -> u64 {
    let (first, second) =
        (File::create(directory.join("first")).unwrap(), File::create(directory.join("second")).unwrap());
    for number in 1.. {
        if stop.load(Ordering::Relaxed) {
            return number;
        }
        first.write_all_at(&u64::to_be_bytes(number), 0).unwrap();
        second.write_all_at(&u64::to_be_bytes(number), 0).unwrap();
    }
    unreachable!("the range has no end")
}

fn number(path: &Path) -> u64 {
    let found = std::fs::read(path).unwrap();
    found.try_into().map_or(0, u64::from_be_bytes)
}

/// Changes half of the files in every way that programs do.
fn change(directory: &Path, dice: &mut Dice) {
    for file in 0..FILES {
        let path = directory.join(format!("sub/f{file}"));
        match dice.below(8) {
            0 => std::fs::remove_file(&path).unwrap(),
            1 => {
                let other = File::options().write(true).open(&path).unwrap();
                other.set_len(dice.below(other.metadata().unwrap().len() + 1)).unwrap();
            }
            2 | 3 => {
                let other = File::options().write(true).open(&path).unwrap();
                let at = dice.below(other.metadata().unwrap().len() + 1);
                other.write_all_at(&pattern(100_000, file + 900), at).unwrap();
            }
            4 => std::fs::rename(&path, directory.join(format!("moved{file}"))).unwrap(),
            _ => {}
        }
    }
}

/// Both trees have the same names, bytes, modes and times.
fn assert_same(one: &Path, other: &Path) {
    shell(&format!("diff -r {} {}", one.display(), other.display()));
    for entry in std::fs::read_dir(one.join("sub")).unwrap() {
        let entry = entry.unwrap();
        let (a, b) = (entry.metadata().unwrap(), std::fs::metadata(other.join("sub").join(entry.file_name())).unwrap());
        let seen =
            |found: &std::fs::Metadata| (found.mode(), found.uid(), found.mtime(), found.mtime_nsec(), found.size());
        assert_eq!(seen(&a), seen(&b), "{:?}", entry.file_name());
    }
}

#[test]
fn snapshots_are_read_on_a_mount_while_files_are_overwritten_removed_and_encoded() {
    let cluster = Cluster::up(5);
    let create = ["dataset", "create", "/d", "--replicas", "2", "--block", "64KiB", "--metablock", "256KiB"];
    cluster.ok(&[&create[..], &["--redundancy", "2+1", "--delay", "1s"]].concat());
    let (mount, other) = (cluster.mount_as("a", "h1"), cluster.mount_as("b", "h2"));
    let directory = mount.join("d");
    std::fs::create_dir(directory.join("sub")).unwrap();
    for file in 0..FILES {
        let bytes = pattern(1 + 37_000 * file as usize, file);
        std::fs::write(directory.join(format!("sub/f{file}")), bytes).unwrap();
    }
    // A name that is not there is remembered, also by the kernel.
    assert!(!other.join("d/.snapshot").exists());
    let mut dice = Dice::new(7);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| count_up(&directory, &stop));
        for round in 0..3 {
            let saved = cluster.path(&format!("saved{round}"));
            shell(&format!("mkdir {0} && cp -a {1}/sub {0}/", saved.display(), directory.display()));
            let taken = cluster.json(&["snapshot", "take", "/d", &format!("s{round}")]);
            assert_eq!(taken["path"], format!("/d/.snapshot/s{round}"), "{taken}");
            change(&directory, &mut dice);
            if round == 1 {
                cluster.ok(&["raid", "encode", "/d"]);
            }
            for file in 0..FILES {
                let path = directory.join(format!("sub/f{file}"));
                if !path.exists() {
                    std::fs::write(&path, pattern(50_000, 7_000 + file)).unwrap();
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(counting.join().unwrap() > 10);
    });
    let mut before = 0;
    for round in 0..3 {
        let shown = other.join(format!("d/.snapshot/s{round}"));
        let saved = cluster.path(&format!("saved{round}"));
        // What the counting program had written of the one before the other.
        let (first, second) = (number(&shown.join("first")), number(&shown.join("second")));
        assert!(first == second || first == second + 1, "s{round} is no cut: {first}, {second}");
        assert!(first > before, "s{round} is as old as the one before it");
        before = first;
        assert_same(&saved.join("."), &shown_without_counters(&cluster, &shown, round));
    }
    assert!(!shell(&format!("ls -a {}/d", other.display())).contains(".snapshot"), "no listing has it");
    let refused = std::fs::write(other.join("d/.snapshot/s0/sub/f1"), b"x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(EROFS));
    let listed = cluster.json(&["snapshot", "list", "/d"]);
    assert_eq!(listed.as_array().unwrap().len(), 3, "{listed}");
    cluster.healthy();

    // A file comes back by a plain copy, and the oldest and the middle one go without harm to the last.
    std::fs::copy(other.join("d/.snapshot/s0/sub/f5"), other.join("d/back")).unwrap();
    assert!(std::fs::read(mount.join("d/back")).unwrap() == pattern(1 + 37_000 * 5, 5));
    assert!(cluster.ebb(&["dataset", "rm", "-r", "/d"]).err.contains("snapshot"), "it has snapshots");
    for gone in ["s1", "s0"] {
        cluster.ok(&["snapshot", "remove", "/d", gone]);
        assert!(!other.join("d/.snapshot").join(gone).exists());
    }
    cluster.ok(&["snapshot", "rename", "/d", "s2", "kept"]);
    let shown = other.join("d/.snapshot/kept");
    assert_same(&cluster.path("saved2").join("."), &shown_without_counters(&cluster, &shown, 9));
    let files: u64 = shell(&format!("find {} -type f | wc -l", shown.display())).trim().parse().unwrap();
    let shown = cluster.json(&["snapshot", "show", "/d", "kept"]);
    assert_eq!((&shown["files"], &shown["name"]), (&files.into(), &"kept".into()), "{shown}");
    cluster.ok(&["snapshot", "remove", "/d", "kept"]);
    let kept = || cluster.json(&["dataset", "show", "/d"])["kept_bytes"].as_u64().unwrap();
    wait_for("what snapshots kept to be freed", FREED_WITHIN, || kept() == 0);
    cluster.healthy();
}

/// A local copy of what a snapshot shows of `sub`.
fn shown_without_counters(cluster: &Cluster, shown: &Path, round: u64) -> std::path::PathBuf {
    let copy = cluster.path(&format!("shown{round}"));
    shell(&format!("mkdir {0} && cp -a {1}/sub {0}/", copy.display(), shown.display()));
    copy
}
