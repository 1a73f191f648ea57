//! Files that two mounts write at the same time: the proxy holds them.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::harness::{Cluster, wait_for};
use crate::watch::StopAtEnd;

/// Length of a record: odd, so that records straddle blocks.
const RECORD: usize = 1003;

fn record(mount: u8, number: u32) -> Vec<u8> {
    let mut out = vec![mount; RECORD];
    out[..4].copy_from_slice(&number.to_le_bytes());
    out
}

/// The writer and number of this record; it must be whole.
fn parse_record(bytes: &[u8]) -> (u8, u32) {
    let mount = bytes[4];
    assert!(bytes[4..].iter().all(|byte| *byte == mount), "a record of {mount} is torn");
    (mount, u32::from_le_bytes(bytes[..4].try_into().unwrap()))
}

#[test]
fn appends_of_two_mounts_are_whole_and_none_is_lost() {
    let cluster = Cluster::up(3);
    let mounts = [cluster.mount("one"), cluster.mount_as("two", "h1")];
    std::thread::scope(|scope| {
        for (index, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                let open = OpenOptions::new().append(true).create(true).open(mount.join("log"));
                let mut file = open.unwrap();
                for number in 0..300 {
                    file.write_all(&record(index as u8, number)).unwrap();
                }
                file.sync_all().unwrap();
            });
        }
    });
    for mount in &mounts {
        let data = std::fs::read(mount.join("log")).unwrap();
        assert_eq!(data.len(), 600 * RECORD);
        let mut last = [None::<u32>; 2];
        for (index, number) in data.chunks(RECORD).map(parse_record) {
            // Each mount's own come in its order.
            assert_eq!(number, last[index as usize].map_or(0, |before| before + 1));
            last[index as usize] = Some(number);
        }
        assert_eq!(last, [Some(299), Some(299)]);
    }
    cluster.healthy();
}

/// Two writers that go on until they are asked to stop.
#[derive(Default)]
struct Writers {
    stop: AtomicBool,
    /// How many syncs of each were acknowledged.
    synced: [AtomicU64; 2],
}

impl Writers {
    /// Returns when both have had so many more syncs acknowledged.
    fn wait_for_more(&self, more: u64) {
        let synced = || self.synced.each_ref().map(|synced| synced.load(Ordering::Relaxed));
        let before = synced();
        wait_for("syncs of both writers", Duration::from_secs(60), || {
            synced().iter().zip(before).all(|(now, before)| now - before >= more)
        });
    }
}

/// Writes numbers to every second slot and syncs them, until it is asked to stop; returns the last acknowledged one of
/// each.
fn writer(mount: u64, path: &Path, writers: &Writers) -> Vec<u64> {
    let file: File = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut acknowledged = vec![0_u64; 8];
    let mut number: u64 = 1;
    while !writers.stop.load(Ordering::Relaxed) {
        let slot = number % 8;
        let written = file.write_all_at(&number.to_le_bytes(), (slot * 2 + mount) * 8);
        // A write or sync that was under way when the proxy died may fail.
        if written.and_then(|()| file.sync_data()).is_ok() {
            acknowledged[slot as usize] = number;
            writers.synced[mount as usize].fetch_add(1, Ordering::Relaxed);
        }
        number += 1;
    }
    acknowledged
}

#[test]
fn bytes_synced_by_two_mounts_survive_kills_of_the_master_and_its_proxy() {
    let cluster = Cluster::up(3);
    let mounts = [cluster.mount("one"), cluster.mount_as("two", "h1")];
    std::fs::write(mounts[0].join("slots"), vec![0; 128]).unwrap();
    let writers = Writers::default();
    let acknowledged: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let end = StopAtEnd(&writers.stop);
        let running: Vec<_> = mounts
            .iter()
            .enumerate()
            .map(|(index, mount)| {
                let (path, writers) = (mount.join("slots"), &writers);
                scope.spawn(move || writer(index as u64, &path, writers))
            })
            .collect();
        for _ in 0..2 {
            writers.wait_for_more(100);
            cluster.kill(cluster.pid("master", ""));
            cluster.ok(&["cluster", "up", "--nodes", "3"]);
        }
        writers.wait_for_more(100);
        drop(end);
        running.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    // The last of each: numbers acknowledged before the kills are long overwritten.
    assert!(acknowledged.iter().flatten().all(|number| *number > 100), "{acknowledged:?}");
    for mount in &mounts {
        let data = std::fs::read(mount.join("slots")).unwrap();
        for (index, acknowledged) in acknowledged.iter().enumerate() {
            for (slot, expected) in acknowledged.iter().enumerate() {
                let at = (slot * 2 + index) * 8;
                let value = u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
                assert!(value >= *expected, "slot {slot} of mount {index}: {value}, but {expected} was synced");
                assert!(value % 8 == slot as u64 || value == 0);
            }
        }
    }
    cluster.healthy();
}
