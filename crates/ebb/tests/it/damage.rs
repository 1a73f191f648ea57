//! Damaged files of the master and of volumes: named, never served, and there is a way out.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::harness::{Cluster, pattern, write_synced};

/// Flips a bit; once more puts it back.
fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

/// Files of a directory with this beginning, by name.
fn files(dir: &Path, beginning: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(beginning)).collect();
    found.sort();
    found
}

/// (lsn, file, offset, bytes) of the batches in a volume's journal, in order (docs/formats/journal.md).
fn batches(volume: &Path) -> Vec<(u64, PathBuf, u64, u64)> {
    let mut found = Vec::new();
    for path in files(volume, "journal-") {
        let segment: u64 = path.to_str().unwrap().rsplit_once('-').unwrap().1.parse().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for (page, batch) in bytes.chunks(4096).enumerate() {
            let long = |at: usize| u64::from_le_bytes(batch[at..at + 8].try_into().unwrap());
            if batch.starts_with(b"EBBJ") && long(24) == segment {
                let len = u64::from(u32::from_le_bytes(batch[8..12].try_into().unwrap()));
                found.push((long(16), path.clone(), page as u64 * 4096, len));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_damaged_master_log_is_refused_by_file_and_offset() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mnt");
    for index in 0..30 {
        write_synced(&mount.join(format!("f{index}")), &pattern(1000, index)).unwrap();
        std::fs::create_dir(mount.join(format!("d{index}"))).unwrap();
    }
    cluster.ok(&["cluster", "down"]);
    let log = files(&cluster.dir().join("master"), "log-").pop().unwrap();
    let bytes = std::fs::read(&log).unwrap();
    let middle = bytes.iter().rposition(|byte| *byte != 0).unwrap() / 2;
    // In the middle: a batch, with others behind it, and not the zeros between two.
    let at = (middle + bytes[middle..].iter().position(|byte| *byte != 0).unwrap()) as u64;
    flip(&log, at);
    let refused = cluster.ebb(&["cluster", "up", "--nodes", "3"]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains(&format!("{}: damaged at offset", log.display())), "{}", refused.err);
    assert!(refused.err.contains("put the newest saved copy of it in place"), "{}", refused.err);
    flip(&log, at);
    cluster.ok(&["cluster", "up", "--nodes", "3"]);
    for index in 0..30 {
        let local = cluster.path("got");
        cluster.ok(&["fs", "get", &format!("/f{index}"), local.to_str().unwrap()]);
        assert_eq!(std::fs::read(&local).unwrap(), pattern(1000, index));
        std::fs::remove_file(local).unwrap();
    }
}

/// Goal: a volume whose journal is damaged is left out by name; on the node's next volume everything is made again, also
/// of files that are being written, although no other node could take the copies.
#[test]
fn a_damaged_journal_is_refused_and_a_new_volume_takes_its_place() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mnt");
    let mut open = File::create(mount.join("open")).unwrap();
    open.write_all(&pattern(50_000, 100)).unwrap();
    open.sync_all().unwrap();
    for index in 0..20 {
        write_synced(&mount.join(format!("f{index}")), &pattern(3000, index)).unwrap();
    }
    cluster.kill(cluster.pid("block", "h2"));
    let volume = cluster.dir().join("nodes/h2/volume-1");
    let known = batches(&volume);
    let (_, path, offset, len) = &known[known.len() - 3];
    flip(path, offset + len - 3);
    let refused = cluster.ebb(&["node", "start", "h2"]);
    assert_ne!(refused.code, 0);
    for part in [format!("{} offset {offset}: damaged", path.display()), "makes a new volume there".into()] {
        assert!(refused.err.contains(&part), "{part:?} is not in: {}", refused.err);
    }
    std::fs::rename(&volume, cluster.path("damaged-volume")).unwrap();
    cluster.ok(&["node", "start", "h2"]);
    open.write_all(&pattern(50_000, 101)).unwrap();
    open.sync_all().unwrap();
    write_synced(&mount.join("new"), &pattern(70_000, 102)).unwrap();
    cluster.healthy();
    assert_eq!(cluster.json(&["fsck", "--scrub"])["corrupt"], 0);
    assert_eq!(cluster.json(&["fs", "locations", "/open"])["metablocks"][0]["replicas"].as_array().unwrap().len(), 3);
    for index in 0..20 {
        assert_eq!(std::fs::read(mount.join(format!("f{index}"))).unwrap(), pattern(3000, index));
    }
    let both = [pattern(50_000, 100), pattern(50_000, 101)].concat();
    assert_eq!(std::fs::read(mount.join("open")).unwrap(), both);
}
