//! A process without file descriptors: nothing is wrong with its disk.

use std::time::Duration;

use ebb_runtime::virt::{DiskWork, PlannedFault};
use ebb_types::ErrorKind;

use super::rig::{Writer, bytes, data, id, in_world, version};

fn without_descriptors(work: DiskWork, path_part: &str, count: u32) -> PlannedFault {
    PlannedFault { count, error: ErrorKind::Overloaded, ..PlannedFault::next(work, path_part) }
}

/// Goal: a lack of descriptors at any open of a file or directory poisons no volume and loses nothing. With descriptors
/// again the volume goes on without a restart. Method: a number of opens fail in turn. All acknowledged writes must be
/// there before and after a crash.
#[test]
fn want_of_descriptors_poisons_no_volume_and_loses_nothing() {
    let places = [
        (DiskWork::Open, "replicas/", 1),
        (DiskWork::Open, "replicas/", 40),
        (DiskWork::SyncDir, "replicas/", 5),
        (DiskWork::Open, "journal-", 3),
        (DiskWork::Open, "index-", 2),
        (DiskWork::Open, "", 30),
    ];
    for (seed, (work, path_part, count)) in places.into_iter().enumerate() {
        for len in [20_000, 100_000] {
            in_world(2100 + seed as u64, |mut rig| async move {
                rig.options.checkpoint_bytes = 200 << 10;
                let process = rig.virt_process().clone();
                let volume = rig.open().await.unwrap();
                let (mut kept, mut refused) = (Vec::new(), 0);
                for raw in 1..=60 {
                    if raw % 20 == 4 {
                        process.plan_disk_fault(without_descriptors(work, path_part, count));
                    }
                    match Writer::new(&volume, raw).send(data(0, &bytes(len, raw as u8)), true).await {
                        Ok(_) => kept.push(raw),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Overloaded, "{work:?} {path_part}: {error}");
                            refused += 1;
                        }
                    }
                }
                // Some checkpoints on the way.
                rig.runtime.sleep(Duration::from_secs(3)).await;
                process.cancel_disk_faults();
                assert_eq!(volume.poisoned(), None, "{work:?} {path_part}");
                Writer::new(&volume, 100).send(data(0, &bytes(len, 100)), true).await.unwrap();
                kept.push(100);
                for crashed in [false, true] {
                    let again;
                    let mut there = &volume;
                    if crashed {
                        rig.crash();
                        again = rig.open().await.unwrap();
                        there = &again;
                    }
                    for raw in &kept {
                        let (_, found) = there.read_all(id(*raw), version(1, 1)).await.unwrap();
                        assert_eq!(found, bytes(len, *raw as u8), "{work:?} {path_part}, {refused} refused");
                    }
                    assert!(there.scrub(0).await.unwrap().corrupt.is_empty());
                }
            });
        }
    }
}

/// Goal: a process with unused open files closes them to open another one. Method: many replicas are open; the next
/// opening fails twice.
#[test]
fn files_that_are_not_used_are_closed_for_one_that_is() {
    in_world(2200, |rig| async move {
        let process = rig.virt_process().clone();
        let volume = rig.open().await.unwrap();
        for raw in 1..=30 {
            Writer::new(&volume, raw).send(data(0, &bytes(100_000, raw as u8)), true).await.unwrap();
        }
        process.plan_disk_fault(without_descriptors(DiskWork::Open, "replicas/", 2));
        Writer::new(&volume, 31).send(data(0, &bytes(100_000, 31)), true).await.unwrap();
        for raw in 1..=31 {
            assert_eq!(volume.read_all(id(raw), version(1, 1)).await.unwrap().1, bytes(100_000, raw as u8));
        }
    });
}
