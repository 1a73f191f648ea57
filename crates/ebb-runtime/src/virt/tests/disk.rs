//! Losses of disks, and the changes that they keep.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::ErrorKind;
use parking_lot::Mutex;

use super::super::{DiskFaults, DiskOptions, DiskWork, PlannedFault, Small, World, WorldOptions};
use super::{with_directory, with_seeds};
use crate::OpenMode;

fn filled(byte: u8, len: usize) -> Vec<Bytes> {
    vec![Bytes::from(vec![byte; len])]
}

#[test]
fn synced_bytes_survive_every_crash() {
    with_seeds(0..50, |world| async move {
        let process = world.process("h1");
        let disk = process.runtime().disk();
        let directory = with_directory(&process.runtime()).await;
        let path = directory.join("f");
        let file = disk.open(&path, OpenMode::Create).await.unwrap();
        file.write_at(0, filled(1, 100_000)).await.unwrap();
        file.sync_data().await.unwrap();
        disk.sync_dir(directory).await.unwrap();
        file.write_at(50_000, filled(2, 10_000)).await.unwrap();
        process.crash();
        assert_eq!(file.read_at(0, 1).await.unwrap_err().kind(), ErrorKind::ShuttingDown);
        let data = process.restart().disk().read(&path).await.unwrap();
        assert_eq!(data.len(), 100_000);
        assert!(data[..50_000].iter().chain(&data[60_000..]).all(|byte| *byte == 1));
        assert!(data[50_000..60_000].iter().all(|byte| *byte == 1 || *byte == 2));
    });
}

#[test]
fn over_seeds_unsynced_writes_are_lost_kept_and_torn() {
    let fates = Arc::new(Mutex::new(BTreeSet::new()));
    with_seeds(0..60, |world| {
        let fates = fates.clone();
        async move {
            let process = world.process("h1");
            let disk = process.runtime().disk();
            let directory = with_directory(&process.runtime()).await;
            let path = directory.join("f");
            let file = disk.open(&path, OpenMode::Create).await.unwrap();
            file.write_at(0, filled(1, 8192)).await.unwrap();
            file.sync_data().await.unwrap();
            disk.sync_dir(directory).await.unwrap();
            file.write_at(0, filled(2, 8192)).await.unwrap();
            process.crash();
            let data = process.restart().disk().read(&path).await.unwrap();
            let fate = match data.iter().filter(|byte| **byte == 2).count() {
                0 => "lost",
                8192 => "kept",
                _ => "torn",
            };
            fates.lock().insert(fate);
            let faults = world.faults();
            assert_eq!(faults.contains_key("lost_write"), fate == "lost", "{faults:?}");
            assert_eq!(faults.contains_key("torn_write"), fate == "torn", "{faults:?}");
        }
    });
    assert_eq!(*fates.lock(), BTreeSet::from(["kept", "lost", "torn"]));
}

#[test]
fn a_crash_during_a_write_or_sync_leaves_either() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    for at_micros in [1, 10, 100, 300, 500, 2000] {
        with_seeds(0..30, |world| {
            let seen = seen.clone();
            async move {
                let process = world.process("h1");
                let runtime = process.runtime();
                let directory = with_directory(&runtime).await;
                let path = directory.join("f");
                let file = runtime.disk().open(&path, OpenMode::Create).await.unwrap();
                file.write_at(0, filled(1, 512)).await.unwrap();
                file.sync_data().await.unwrap();
                runtime.disk().sync_dir(directory).await.unwrap();
                let acknowledged = Arc::new(Mutex::new(false));
                let flag = acknowledged.clone();
                runtime.spawn("write", async move {
                    file.write_at(0, filled(2, 512)).await.unwrap();
                    file.sync_data().await.unwrap();
                    *flag.lock() = true;
                });
                world.sleep(Duration::from_micros(at_micros)).await;
                process.crash();
                let new = process.restart().disk().read(&path).await.unwrap()[0] == 2;
                assert!(new || !*acknowledged.lock(), "an acknowledged write is lost");
                seen.lock().insert((*acknowledged.lock(), new));
            }
        });
    }
    assert_eq!(*seen.lock(), BTreeSet::from([(false, false), (false, true), (true, true)]));
}

#[test]
fn replace_leaves_the_old_or_the_new_file_and_nothing_between() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    with_seeds(0..120, |world| {
        let seen = seen.clone();
        async move {
            let process = world.process("h1");
            let runtime = process.runtime();
            let path = with_directory(&runtime).await.join("id");
            runtime.disk().replace(&path, Bytes::from_static(b"the old one")).await.unwrap();
            let (disk, target) = (runtime.disk(), path.clone());
            runtime.spawn("replace", async move {
                disk.replace(&target, Bytes::from_static(b"new")).await.unwrap();
            });
            world.sleep(world.dice("when").span(Duration::from_micros(1500))).await;
            process.crash();
            let data = process.restart().disk().read(&path).await.unwrap();
            assert!(data == "the old one" || data == "new", "{data:?}");
            seen.lock().insert(data);
        }
    });
    assert_eq!(seen.lock().len(), 2, "{:?}", seen.lock());
}

#[test]
fn names_not_synced_may_be_lost() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    with_seeds(0..20, |world| {
        let seen = seen.clone();
        async move {
            let process = world.process("h1");
            let disk = process.runtime().disk();
            let directory = with_directory(&process.runtime()).await;
            let file = disk.open(&directory.join("f"), OpenMode::Create).await.unwrap();
            file.write_at(0, filled(1, 10)).await.unwrap();
            file.sync_data().await.unwrap();
            process.crash();
            let there = process.restart().disk().exists(&directory.join("f")).await.unwrap();
            assert_eq!(world.faults().contains_key("lost_name"), !there);
            seen.lock().insert(there);
        }
    });
    assert_eq!(seen.lock().len(), 2);
}

#[test]
fn a_killed_process_keeps_its_page_cache() {
    with_seeds(0..20, |world| async move {
        let process = world.process("h1");
        let disk = process.runtime().disk();
        let path = with_directory(&process.runtime()).await.join("f");
        let file = disk.open(&path, OpenMode::Create).await.unwrap();
        file.write_at(0, filled(7, 5000)).await.unwrap();
        let lock = disk.lock_dir(Path::new("/d")).await.unwrap();
        process.kill();
        let disk = process.restart().disk();
        assert_eq!(disk.read(&path).await.unwrap(), vec![7; 5000]);
        let _mine = disk.lock_dir(Path::new("/d")).await.unwrap();
        drop(lock);
        assert_eq!(disk.lock_dir(Path::new("/d")).await.unwrap_err().kind(), ErrorKind::Busy);
    });
}

#[test]
fn a_full_disk_takes_no_more_and_gives_space_back() {
    World::run(3, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        process.set_disk_options(DiskOptions { capacity_bytes: 1 << 20, ..process.disk_options() });
        let disk = process.runtime().disk();
        let directory = with_directory(&process.runtime()).await;
        let first = disk.open(&directory.join("a"), OpenMode::Create).await.unwrap();
        first.write_at(0, filled(1, 900_000)).await.unwrap();
        let second = disk.open(&directory.join("b"), OpenMode::Create).await.unwrap();
        assert_eq!(second.write_at(0, filled(2, 500_000)).await.unwrap_err().kind(), ErrorKind::NoSpace);
        assert!(second.len().await.unwrap() < 500_000);
        assert_eq!(second.allocate(0, 1 << 50).await.unwrap_err().kind(), ErrorKind::NoSpace);
        first.write_at(100, filled(3, 1000)).await.unwrap();
        assert_eq!(world.faults()["disk_full"], 2);
        drop(first);
        disk.remove_file(&directory.join("a")).await.unwrap();
        disk.sync_dir(directory).await.unwrap();
        second.write_at(0, filled(2, 500_000)).await.unwrap();
        let space = disk.space(directory).await.unwrap();
        assert!(space.free_bytes > 400_000 && space.free_bytes < 600_000, "{space:?}");
    });
}

#[test]
fn failing_disks_fail_and_are_counted() {
    with_seeds(0..10, |world| async move {
        let process = world.process("h1");
        let disk = process.runtime().disk();
        let path: PathBuf = with_directory(&process.runtime()).await.join("f");
        let file = disk.open(&path, OpenMode::Create).await.unwrap();
        file.write_at(0, filled(1, 1000)).await.unwrap();
        process.disk_faults(DiskFaults { read_error: 0.5, write_error: 0.5, sync_error: 0.5 });
        let mut failed = [0_u64; 3];
        for _ in 0..100 {
            failed[0] += u64::from(file.read_at(0, 10).await.is_err());
            failed[1] += u64::from(file.write_at(0, filled(2, 1000)).await.is_err());
            failed[2] += u64::from(file.sync_data().await.is_err());
        }
        process.disk_faults(DiskFaults::default());
        let faults = world.faults();
        assert_eq!(failed, [faults["read_error"], faults["write_error"], faults["sync_error"]]);
        assert!(failed.iter().all(|count| (25..75).contains(count)), "{failed:?}");
        file.read_at(0, 10).await.unwrap();
    });
}

#[test]
fn flipped_bits_survive_and_show() {
    World::run(3, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        let disk = process.runtime().disk();
        let directory = with_directory(&process.runtime()).await;
        let path = directory.join("f");
        let file = disk.open(&path, OpenMode::Create).await.unwrap();
        file.write_at(0, filled(0, 1000)).await.unwrap();
        file.sync_data().await.unwrap();
        disk.sync_dir(directory).await.unwrap();
        assert_eq!(process.flip_bits(&path, 998, 10).unwrap(), 2);
        assert_eq!(process.flip_bits(&path, 5_000, 10).unwrap(), 0);
        assert!(process.flip_bits(Path::new("/d/none"), 0, 1).is_err());
        assert_eq!(file.read_at(996, 4).await.unwrap(), &[0, 0, 1, 1][..]);
        process.crash();
        assert_eq!(process.restart().disk().read(&path).await.unwrap()[996..], [0, 0, 1, 1]);
        assert_eq!(world.faults()["bit_flip"], 1);
    });
}

/// A long aligned write takes the disk's time at once, and a sync behind it has nothing to move. It is no more durable.
#[test]
fn long_aligned_writes_go_around_the_page_cache() {
    let kept = (0..20).filter(|seed| {
        World::run(*seed, WorldOptions::default(), |world| async move {
            let process = world.process("h1");
            process.set_disk_options(DiskOptions { direct_bytes_min: 256 << 10, ..process.disk_options() });
            let (disk, directory) = (process.runtime().disk(), with_directory(&process.runtime()).await);
            let path = directory.join("f");
            let file = disk.open(&path, OpenMode::Create).await.unwrap();
            disk.sync_dir(directory).await.unwrap();
            let mut took = Vec::new();
            for (offset, len) in [(0, 8 << 20), (1, 8 << 20), (0, 128 << 10)] {
                let start = world.now();
                file.write_at(offset, filled(1, len)).await.unwrap();
                let written = world.now();
                file.sync_data().await.unwrap();
                took.push(((written - start).as_micros() > 1_000, (world.now() - written).as_micros() > 1_000));
            }
            assert_eq!(took, [(true, false), (false, true), (false, false)]);
            file.write_at(0, filled(2, 8 << 20)).await.unwrap();
            process.crash();
            let found = process.restart().disk().read(&path).await.unwrap();
            found[..8 << 20].iter().all(|byte| *byte == 2)
        })
    });
    let kept = kept.count();
    assert!((1..20).contains(&kept), "{kept} of 20 unsynced writes were kept");
}

/// A read near the last one needs no seek. One elsewhere does, and so does one behind a sync that had bytes to write.
#[test]
fn disks_seek_to_an_access_that_is_far_from_the_last_one() {
    World::run(4, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        let seek = Duration::from_millis(8);
        process.set_disk_options(DiskOptions { seek, ..process.disk_options() });
        let disk = process.runtime().disk();
        let directory = with_directory(&process.runtime()).await;
        let (file, other) = (directory.join("f"), directory.join("g"));
        let file = disk.open(&file, OpenMode::Create).await.unwrap();
        let other = disk.open(&other, OpenMode::Create).await.unwrap();
        for file in [&file, &other] {
            file.write_at(0, filled(1, 16 << 20)).await.unwrap();
            file.sync_data().await.unwrap();
        }
        let mut seeks = Vec::new();
        let far = 8 << 20;
        for (file, offset) in [(&file, 0), (&file, 16_384), (&file, far), (&other, far), (&other, far - 4096)] {
            let start = world.now();
            file.read_at(offset, 4096).await.unwrap();
            seeks.push(world.now() - start >= seek);
        }
        assert_eq!(seeks, [true, false, true, true, false]);
        other.sync_data().await.unwrap();
        let start = world.now();
        other.read_at(far, 4096).await.unwrap();
        assert!(world.now() - start < seek, "a sync without bytes moves nothing");
    });
}

/// Two readers take turns, piece by piece. The disk seeks for each piece, or once for each range that it heard of.
#[test]
fn a_range_read_ahead_costs_one_seek_however_many_readers_there_are() {
    let time = |tells: bool| {
        World::run(4, WorldOptions::default(), move |world| async move {
            let process = world.process("h1");
            let seek = Duration::from_millis(8);
            let options = process.disk_options();
            process.set_disk_options(DiskOptions { seek, jitter_ratio: 0.0, ..options });
            let disk = process.runtime().disk();
            let directory = with_directory(&process.runtime()).await;
            let mut files = Vec::new();
            for name in ["f", "g"] {
                let file = disk.open(&directory.join(name), OpenMode::Create).await.unwrap();
                file.write_at(0, filled(1, 4 << 20)).await.unwrap();
                file.sync_data().await.unwrap();
                files.push(file);
            }
            let start = world.now();
            if tells {
                for file in &files {
                    file.will_read(0, 4 << 20).await;
                }
            }
            let mut first = None;
            for at in (0..4_u64 << 20).step_by(256 << 10) {
                for file in &files {
                    file.read_at(at, 256 << 10).await.unwrap();
                    first.get_or_insert(world.now() - start);
                }
            }
            (first.unwrap().as_secs_f64(), (world.now() - start).as_secs_f64())
        })
    };
    let ((first, all), (first_told, all_told)) = (time(false), time(true));
    assert!(all > 32.0 * 0.008, "a seek for each piece: {all}");
    assert!((all - all_told - 30.0 * 0.008).abs() < 0.008, "thirty seeks less: {all} {all_told}");
    assert!((first - first_told).abs() < 0.001, "the first piece comes as soon: {first} {first_told}");
}

/// Where a byte stands for many, a record of the store's own still stands for itself.
#[test]
fn short_accesses_can_have_a_bandwidth_of_their_own() {
    World::run(5, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        let small = Some(Small { bytes_max: 4096, bandwidth_bytes_per_sec: 1_000_000_000 });
        let slow = DiskOptions { bandwidth_bytes_per_sec: 1_000_000, small, ..process.disk_options() };
        process.set_disk_options(slow);
        let path = with_directory(&process.runtime()).await.join("f");
        let file = process.runtime().disk().open(&path, OpenMode::Create).await.unwrap();
        let mut took = Vec::new();
        for len in [4096, 8192] {
            file.write_at(0, filled(1, len)).await.unwrap();
            let start = world.now();
            file.sync_data().await.unwrap();
            took.push(world.now() - start);
        }
        assert!(took[0] < Duration::from_millis(1) && took[1] > Duration::from_millis(8), "{took:?}");
    });
}

#[test]
fn disks_take_time_and_slow_ones_take_more() {
    World::run(3, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        let disk = process.runtime().disk();
        let path = with_directory(&process.runtime()).await.join("f");
        let file = disk.open(&path, OpenMode::Create).await.unwrap();
        let mut took = Vec::new();
        for factor in [1.0, 50.0] {
            process.slow_disk(factor);
            file.write_at(0, filled(1, 10_000_000)).await.unwrap();
            let start = world.now();
            file.sync_data().await.unwrap();
            took.push(world.now() - start);
        }
        // 10 MB at 1 GB/s.
        assert!(took[0] >= Duration::from_millis(10) && took[0] < Duration::from_millis(12), "{took:?}");
        assert!(took[1] >= Duration::from_millis(500), "{took:?}");
        // Two syncs at a time share the disk.
        process.slow_disk(1.0);
        let start = world.now();
        let reads = [0, 1].map(|_| {
            let file = file.clone();
            process.runtime().spawn("read", async move { file.read_at(0, 10_000_000).await.unwrap() })
        });
        for read in reads {
            read.join().await.unwrap();
        }
        assert!(world.now() - start >= Duration::from_millis(20));
    });
}

#[test]
fn a_write_goes_on_when_its_caller_stops_waiting() {
    World::run(3, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        let runtime = process.runtime();
        let path = with_directory(&runtime).await.join("f");
        let file = runtime.disk().open(&path, OpenMode::Create).await.unwrap();
        let waiting = runtime.timeout(Duration::from_nanos(1), "the write", file.write_at(0, filled(5, 10)));
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Timeout);
        drop(file);
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(runtime.disk().read(&path).await.unwrap(), vec![5; 10]);
    });
}

#[test]
fn planned_faults_hit_their_target_and_nothing_else() {
    with_seeds(0..4, |world| async move {
        let process = world.process("h1");
        let disk = process.runtime().disk();
        let directory = with_directory(&process.runtime()).await;
        let file = disk.open(&directory.join("apple"), OpenMode::Create).await.unwrap();
        let other = disk.open(&directory.join("pear"), OpenMode::Create).await.unwrap();
        let fault = PlannedFault { skip: 1, count: 2, ..PlannedFault::no_space(DiskWork::Write, "apple") };
        process.plan_disk_fault(fault);
        let mut outcomes = Vec::new();
        for byte in 1..=4 {
            other.write_at(0, filled(byte, 10)).await.unwrap();
            outcomes.push(file.write_at(0, filled(byte, 10)).await.map_err(|error| error.kind()));
        }
        let full = Err(ErrorKind::NoSpace);
        assert_eq!(outcomes, [Ok(()), full, full, Ok(())]);
        for work in [DiskWork::Open, DiskWork::Remove, DiskWork::SyncDir, DiskWork::Read, DiskWork::Sync] {
            process.plan_disk_fault(PlannedFault::next(work, ""));
        }
        let io = Some(ErrorKind::Io);
        let kind = |error: ebb_types::Error| Some(error.kind());
        assert_eq!(disk.open(&directory.join("fig"), OpenMode::Create).await.map_or_else(kind, |_| None), io);
        assert_eq!(disk.remove_file(&directory.join("pear")).await.map_or_else(kind, |()| None), io);
        assert_eq!(disk.sync_dir(directory).await.map_or_else(kind, |()| None), io);
        assert_eq!(file.read_at(0, 1).await.map_or_else(kind, |_| None), io);
        assert_eq!(file.sync_data().await.map_or_else(kind, |()| None), io);
        assert!(disk.exists(&directory.join("pear")).await.unwrap());
        file.sync_data().await.unwrap();
        process.plan_disk_fault(PlannedFault::next(DiskWork::Rename, "apple"));
        process.cancel_disk_faults();
        disk.rename(&directory.join("pear"), &directory.join("apple")).await.unwrap();
    });
}

#[test]
fn a_disk_that_something_else_fills_is_full_until_it_goes() {
    with_seeds(0..4, |world| async move {
        let process = world.process("h1");
        let disk = process.runtime().disk();
        let directory = with_directory(&process.runtime()).await;
        let file = disk.open(&directory.join("f"), OpenMode::Create).await.unwrap();
        file.write_at(0, filled(1, 100_000)).await.unwrap();
        process.fill_disk(Some(8192));
        assert_eq!(disk.space(directory).await.unwrap().free_bytes, 8192);
        file.write_at(1 << 20, filled(1, 8192)).await.unwrap();
        let error = file.write_at(2 << 20, filled(1, 4096)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        // Space that it frees itself is its own again.
        file.punch_hole(1 << 20, 8192).await.unwrap();
        file.sync_data().await.unwrap();
        file.write_at(2 << 20, filled(1, 4096)).await.unwrap();
        process.fill_disk(None);
        file.write_at(3 << 20, filled(1, 1 << 20)).await.unwrap();
    });
}

/// The sync behind a rename fails, and its process is killed: the next one reads the new contents from the cache.
#[test]
fn a_replaced_file_that_was_read_is_there_after_a_crash() {
    with_seeds(0..30, |world| async move {
        let process = world.process("h1");
        let disk = process.runtime().disk();
        let path = with_directory(&process.runtime()).await.join("f");
        disk.replace(&path, Bytes::from_static(b"old")).await.unwrap();
        process.plan_disk_fault(PlannedFault::next(DiskWork::SyncDir, ""));
        assert_eq!(disk.replace(&path, Bytes::from_static(b"new")).await.unwrap_err().kind(), ErrorKind::Io);
        process.kill();
        assert_eq!(process.restart().disk().read_replaced(&path).await.unwrap(), "new");
        process.crash();
        assert_eq!(process.restart().disk().read(&path).await.unwrap(), "new");
    });
}

/// All outcomes of a power failure can be put on the disk, one after the other, from one moment of it.
#[test]
fn each_outcome_of_a_power_failure_can_be_chosen() {
    with_seeds(0..2, |world| async move {
        let process = world.process("h1");
        let disk = process.runtime().disk();
        let directory = with_directory(&process.runtime()).await;
        let path = directory.join("f");
        let file = disk.open(&path, OpenMode::Create).await.unwrap();
        file.write_at(0, filled(1, 1000)).await.unwrap();
        file.sync_data().await.unwrap();
        disk.sync_dir(directory).await.unwrap();
        file.write_at(700, filled(2, 900)).await.unwrap();
        disk.open(&directory.join("unsynced"), OpenMode::Create).await.unwrap();
        let cut = process.power_cut();
        assert_eq!(cut.part_count(), 4, "three sectors and the length");
        process.kill();
        let mut outcomes = BTreeSet::new();
        for kept in 0..16 {
            process.restore_disk(&cut, |part| kept >> part & 1 == 1);
            let disk = process.restart().disk();
            let data = disk.read(&path).await.unwrap();
            assert!(data[..700].iter().all(|byte| *byte == 1));
            assert!(data[700..1000].iter().all(|byte| *byte == 1 || *byte == 2));
            assert!(data[1000..].iter().all(|byte| *byte == 0 || *byte == 2));
            assert!(!disk.exists(&directory.join("unsynced")).await.unwrap());
            outcomes.insert(data);
            process.kill();
        }
        // With the last sector the file is as long as with its length.
        assert_eq!(outcomes.len(), 12);
    });
}

/// Bytes that went around the page cache are nothing to sync, also behind a power failure that has lost them.
#[test]
fn a_disk_with_a_chosen_outcome_syncs_what_is_written_later() {
    World::run(5, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        process.set_disk_options(DiskOptions { direct_bytes_min: 256 << 10, ..process.disk_options() });
        let (disk, directory) = (process.runtime().disk(), with_directory(&process.runtime()).await);
        let path = directory.join("f");
        let file = disk.open(&path, OpenMode::Create).await.unwrap();
        disk.sync_dir(directory).await.unwrap();
        file.write_at(0, filled(1, 1 << 20)).await.unwrap();
        let cut = process.power_cut();
        process.kill();
        process.restore_disk(&cut, |_| false);
        let file = process.restart().disk().open(&path, OpenMode::Existing).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 0);
        file.write_at(0, filled(2, 100)).await.unwrap();
        file.sync_data().await.unwrap();
    });
}
