//! Full and failing disks; bounded memory.

use std::time::Duration;

use ebb_runtime::virt::{DiskFaults, DiskOptions, DiskWork, PlannedFault};
use ebb_types::ErrorKind;

use super::rig::{Writer, bytes, data, id, in_reality, in_world, version};
use crate::{Change, Deletion};

#[test]
fn a_full_disk_refuses_before_it_acknowledges_and_recovers() {
    for block in [60_000, 500_000] {
        in_world(1, |mut rig| async move {
            let capacity_bytes = 64 << 20;
            let process = rig.virt_process().clone();
            process.set_disk_options(DiskOptions { capacity_bytes, ..process.disk_options() });
            let volume = rig.open().await.unwrap();
            let mut kept = Vec::new();
            let refused = loop {
                let raw = kept.len() as u64 + 1;
                let content = bytes(block, raw as u8);
                match Writer::new(&volume, raw).send(data(0, &content), true).await {
                    Ok(_) => kept.push(content),
                    Err(error) => break error,
                }
            };
            assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
            assert!(kept.len() * block > capacity_bytes as usize / 2, "only {} replicas fit", kept.len());
            // Nothing of the refused write is there, deletes work, and then there is room again.
            let raw = kept.len() as u64 + 1;
            assert_eq!(volume.read(id(raw), version(1, 1), 0, 16384).await.unwrap_err().kind(), ErrorKind::NoReplica);
            volume.delete(&(1..=20).map(|raw| Deletion::freed(id(raw))).collect::<Vec<_>>()).await.unwrap();
            rig.runtime.sleep(Duration::from_secs(2)).await;
            Writer::new(&volume, raw).send(data(0, &bytes(block, 1)), true).await.unwrap();
            drop(volume);
            rig.crash();
            let volume = rig.open().await.unwrap();
            for (index, content) in kept.iter().enumerate().skip(20) {
                assert_eq!(volume.read_all(id(index as u64 + 1), version(1, 1)).await.unwrap().1, content);
            }
        });
    }
}

/// Goal: a first write that is refused leaves no unknown file, and its id can still be used. Method: the disk gets full
/// just after the check for space, or fails, when the new file has been made already.
#[test]
fn a_first_write_that_is_refused_leaves_no_file() {
    in_world(11, |rig| async move {
        let process = rig.virt_process().clone();
        let volume = rig.open().await.unwrap();
        process.plan_disk_fault(PlannedFault::no_space(DiskWork::Write, "replicas/"));
        let content = bytes(500_000, 1);
        let refused = Writer::new(&volume, 1).send(data(0, &content), true).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        assert_eq!(volume.report(None, 9), []);
        let left: Vec<_> =
            process.disk_files().into_iter().filter(|(path, _)| path.ends_with("0000000000000001")).collect();
        assert_eq!(left, [], "an unknown file");
        assert_eq!(volume.poisoned(), None);
        Writer::new(&volume, 1).send(data(0, &content), true).await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 1)).await.unwrap().1, content);
    });
}

#[test]
fn a_limit_counts_like_a_full_disk() {
    in_world(2, |mut rig| async move {
        rig.options.limit_bytes = Some(1 << 20);
        let volume = rig.open().await.unwrap();
        let mut writer = Writer::new(&volume, 1);
        writer.send(data(0, &bytes(1 << 19, 1)), true).await.unwrap();
        writer.send(data(1 << 19, &bytes(1 << 19, 1)), true).await.unwrap();
        assert_eq!(writer.send(data(1 << 20, &bytes(100, 1)), true).await.unwrap_err().kind(), ErrorKind::NoSpace);
        // Overwrites need no room.
        writer.send(data(5, &bytes(100, 2)), true).await.unwrap();
        writer.send(Change::Punch { offset: 0, len: 1 << 18 }, true).await.unwrap();
        writer.send(data(1 << 20, &bytes(100, 1)), true).await.unwrap();
        let space = volume.space().await.unwrap();
        assert_eq!((space.capacity_bytes, space.free_bytes), (1 << 20, (1 << 18) - 100));
    });
}

#[test]
fn synced_data_that_finds_no_place_waits_in_the_journal() {
    in_world(3, |mut rig| async move {
        let process = rig.virt_process().clone();
        let volume = rig.open().await.unwrap();
        let mut writer = Writer::new(&volume, 1);
        writer.send(data(0, &bytes(100, 1)), true).await.unwrap();
        // Another program fills the disk at once, just after the check for space.
        process.set_disk_options(DiskOptions { capacity_bytes: 0, ..process.disk_options() });
        writer.send(data(0, &bytes(30_000, 2)), true).await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 2)).await.unwrap().1, bytes(30_000, 2));
        process.set_disk_options(DiskOptions { capacity_bytes: 1 << 30, ..process.disk_options() });
        rig.runtime.sleep(Duration::from_secs(3)).await;
        let file = volume.describe(id(1)).await.unwrap().unwrap().file;
        assert_eq!(rig.runtime.disk().read(file.as_ref()).await.unwrap(), bytes(30_000, 2));
        drop(volume);
        rig.crash();
        let volume = rig.open().await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 2)).await.unwrap().1, bytes(30_000, 2));
    });
}

#[test]
fn a_failed_sync_poisons_the_volume_until_it_is_opened_again() {
    for len in [1000, 200_000] {
        in_world(4, |mut rig| async move {
            let process = rig.virt_process().clone();
            let volume = rig.open().await.unwrap();
            let mut writer = Writer::new(&volume, 1);
            writer.send(data(0, &bytes(len, 1)), true).await.unwrap();
            process.disk_faults(DiskFaults { sync_error: 1.0, ..DiskFaults::default() });
            let error = writer.send(data(len as u64, &bytes(len, 2)), true).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::VolumePoisoned, "{error}");
            process.disk_faults(DiskFaults::default());
            // The disk says that all is well again. It is not believed.
            assert!(volume.poisoned().is_some());
            let later = Writer::new(&volume, 2).send(data(0, &bytes(9, 1)), true).await.unwrap_err();
            assert_eq!(later.kind(), ErrorKind::VolumePoisoned);
            let read = volume.read(id(1), version(1, 1), 0, 16384).await.unwrap_err();
            assert_eq!(read.kind(), ErrorKind::VolumePoisoned);
            assert_eq!(volume.delete(&[Deletion::freed(id(1))]).await.unwrap_err().kind(), ErrorKind::VolumePoisoned);
            assert_eq!(volume.stop().await.unwrap_err().kind(), ErrorKind::VolumePoisoned);
            drop(volume);
            rig.crash();
            let volume = rig.open().await.unwrap();
            let (_, found) = volume.read_all(id(1), version(1, 1)).await.unwrap();
            assert_eq!(found[..len], bytes(len, 1));
        });
    }
}

#[test]
fn a_failed_direct_write_poisons_too() {
    in_world(5, |rig| async move {
        let process = rig.virt_process().clone();
        let volume = rig.open().await.unwrap();
        process.disk_faults(DiskFaults { write_error: 1.0, ..DiskFaults::default() });
        let error = Writer::new(&volume, 1).send(data(0, &bytes(200_000, 1)), false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::VolumePoisoned);
    });
}

#[test]
fn unsynced_writes_take_bounded_memory() {
    in_world(6, |mut rig| async move {
        rig.options.unplaced_bytes_max = 256 << 10;
        let volume = rig.open().await.unwrap();
        let mut tasks = Vec::new();
        for raw in 1..=8 {
            let volume = volume.clone();
            tasks.push(rig.runtime.spawn("writer", async move {
                let mut writer = Writer::new(&volume, raw);
                for index in 0..40 {
                    // No caller asks for a sync: the shortage of memory causes it.
                    writer.send(data(index * 30_000, &bytes(30_000, 1)), false).await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.join().await.unwrap();
        }
        assert!(volume.sync_count() > 8 * 40 * 30_000 / (256 << 10));
        // Longer than the whole memory, and not next to the old bytes: still accepted.
        Writer::new(&volume, 9).send(data(3, &bytes(1 << 20, 1)), true).await.unwrap();
    });
}

/// Goal: when another program has filled the disk to the last byte, writes are refused, and nothing is lost. Deletions
/// still get through, and free enough space to go on.
#[test]
fn deletions_and_checkpoints_work_on_a_disk_without_a_free_byte() {
    in_world(7, |mut rig| async move {
        let process = rig.virt_process().clone();
        let volume = rig.open().await.unwrap();
        for raw in 1..=30 {
            Writer::new(&volume, raw).send(data(0, &bytes(50_000, raw as u8)), true).await.unwrap();
        }
        process.fill_disk(Some(0));
        // Overwrites need no space of their own, but sooner or later a segment of the journal.
        let mut writer = Writer { volume: &volume, metablock: id(1), at: version(1, 1) };
        let mut kept = bytes(50_000, 1);
        let refused = loop {
            let next = bytes(50_000, writer.at.seq as u8);
            match writer.send(data(0, &next), true).await {
                Ok(_) => kept = next,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        let new = Writer::new(&volume, 99).send(data(0, &bytes(50_000, 1)), true).await.unwrap_err();
        assert_eq!(new.kind(), ErrorKind::NoSpace);
        assert_eq!(volume.poisoned(), None);
        let (at, found) = volume.read_all(id(2), version(1, 1)).await.unwrap();
        assert_eq!((at, found), (version(1, 1), bytes(50_000, 2)));
        for raw in 3..=25 {
            volume.delete(&[Deletion::freed(id(raw))]).await.unwrap();
        }
        rig.runtime.sleep(Duration::from_secs(5)).await;
        volume.promise(id(2), volume.label().incarnation, ebb_types::Epoch::new(2)).await.unwrap();
        volume.stop().await.unwrap();
        drop(volume);
        rig.crash();
        let volume = rig.open().await.unwrap();
        // The refused write may have been received, and then stays like any other.
        assert_eq!(volume.report(None, 99).iter().filter(|one| one.metablock != id(99)).count(), 7);
        let (at, found) = volume.read_all(id(1), version(1, 1)).await.unwrap();
        // The last write was refused, but all of it was here.
        assert!(found == kept || at.seq as usize > 1 && found == bytes(50_000, (at.seq - 1) as u8), "{at}");
        process.fill_disk(None);
        Writer::new(&volume, 98).send(data(0, &bytes(500_000, 1)), true).await.unwrap();
    });
}

/// Goal: synced bytes that find no room on the disk hold memory until there is room. A writer soon gets the error that
/// the disk is full: a client without an answer for four seconds takes the node for frozen. Overwrites need no room of
/// their own, but are refused, too, once there is no memory left. Acknowledged bytes can be read, and are put in place
/// later.
#[test]
fn a_writer_soon_gets_an_error_while_bytes_wait_for_room() {
    in_world(9, |mut rig| async move {
        rig.options.unplaced_bytes_max = 256 << 10;
        let process = rig.virt_process().clone();
        let volume = rig.open().await.unwrap();
        let mut writers: Vec<_> = (1..=8).map(|raw| Writer::new(&volume, raw)).collect();
        for writer in &mut writers {
            writer.send(data(0, &bytes(50_000, 1)), true).await.unwrap();
        }
        process
            .plan_disk_fault(PlannedFault { count: u32::MAX, ..PlannedFault::no_space(DiskWork::Write, "replicas/") });
        let mut kept = Vec::new();
        let began = rig.runtime.now();
        let refused = loop {
            let at = kept.len() % writers.len();
            match writers[at].send(data(0, &bytes(50_000, 2)), true).await {
                Ok(_) => kept.push(at),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        assert!(refused.to_string().contains("make room"), "{refused}");
        assert!((2..=5).contains(&kept.len()), "{} writes of 50 kB into 256 KiB", kept.len());
        let took = rig.runtime.now().since(began);
        assert!(took < Duration::from_secs(1), "the answer came after {took:?}");
        assert_eq!(volume.poisoned(), None);
        for at in &kept {
            let (_, found) = volume.read_all(id(*at as u64 + 1), version(1, 2)).await.unwrap();
            assert_eq!(found, bytes(50_000, 2));
        }
        process.cancel_disk_faults();
        rig.runtime.sleep(Duration::from_secs(3)).await;
        for _ in 0..10 {
            writers[7].send(data(0, &bytes(50_000, 3)), true).await.unwrap();
        }
    });
}

async fn names(rig: &super::rig::Rig) -> Vec<String> {
    rig.runtime.disk().read_dir(&rig.root).await.unwrap()
}

#[test]
fn a_checkpoint_without_space_is_made_later_and_leaves_nothing_behind() {
    in_world(8, |mut rig| async move {
        rig.options.checkpoint_bytes = 300 << 10;
        let process = rig.virt_process().clone();
        let volume = rig.open().await.unwrap();
        process.plan_disk_fault(PlannedFault { count: 3, ..PlannedFault::no_space(DiskWork::Write, "index-") });
        let mut writer = Writer::new(&volume, 1);
        for index in 0..8 {
            writer.send(data(index * 50_000, &bytes(50_000, 1)), true).await.unwrap();
        }
        rig.runtime.sleep(Duration::from_millis(500)).await;
        assert!(names(&rig).await.iter().all(|name| !name.ends_with(".new") && name != "index-3"));
        rig.runtime.sleep(Duration::from_secs(8)).await;
        let found = names(&rig).await;
        let indexes: Vec<_> =
            found.iter().filter_map(|name| name.strip_prefix("index-")?.parse::<u64>().ok()).collect();
        assert!(indexes.len() == 1 && indexes[0] > 1, "the checkpoint was made without a second request: {found:?}");
        drop(volume);
        rig.crash();
        assert_eq!(rig.open().await.unwrap().read_all(id(1), version(1, 8)).await.unwrap().1.len(), 400_000);
    });
}

/// Goal: an error of the disk at any place poisons the volume, and loses no acknowledged write. Method: a fault is
/// planned for one kind of work on one kind of file. All acknowledged writes must be there after the restart.
#[test]
fn an_io_error_anywhere_loses_nothing_that_was_acknowledged() {
    let places = [
        (DiskWork::Write, "journal-", ErrorKind::Io),
        (DiskWork::Sync, "journal-", ErrorKind::Io),
        (DiskWork::Sync, "journal-", ErrorKind::NoSpace),
        (DiskWork::Open, "journal-", ErrorKind::Io),
        (DiskWork::Write, "replicas/", ErrorKind::Io),
        (DiskWork::Write, "replicas/", ErrorKind::NoSpace),
        (DiskWork::Sync, "replicas/", ErrorKind::Io),
        (DiskWork::Sync, "replicas/", ErrorKind::NoSpace),
        (DiskWork::SyncDir, "replicas/", ErrorKind::Io),
        (DiskWork::Write, "index-", ErrorKind::Io),
        (DiskWork::Sync, "index-", ErrorKind::Io),
        (DiskWork::Rename, "index-", ErrorKind::Io),
        (DiskWork::SyncDir, "v1", ErrorKind::Io),
        (DiskWork::Remove, "", ErrorKind::Io),
    ];
    for (seed, (work, path_part, error)) in places.into_iter().enumerate() {
        for len in [20_000, 100_000] {
            in_world(900 + seed as u64, |mut rig| async move {
                rig.options.checkpoint_bytes = 200 << 10;
                let process = rig.virt_process().clone();
                let volume = rig.open().await.unwrap();
                let mut kept = Vec::new();
                for raw in 1..=40 {
                    if raw == 4 {
                        process.plan_disk_fault(PlannedFault { skip: 1, error, ..PlannedFault::next(work, path_part) });
                    }
                    let done = Writer::new(&volume, raw).send(data(0, &bytes(len, raw as u8)), true).await;
                    match done {
                        Ok(_) => kept.push(raw),
                        Err(error) => {
                            let kind = error.kind();
                            assert!(matches!(kind, ErrorKind::VolumePoisoned | ErrorKind::NoSpace), "{error}");
                        }
                    }
                }
                rig.runtime.sleep(Duration::from_secs(3)).await;
                process.cancel_disk_faults();
                drop(volume);
                rig.crash();
                let volume = rig.open().await.unwrap();
                for raw in &kept {
                    let (_, found) = volume.read_all(id(*raw), version(1, 1)).await.unwrap();
                    assert_eq!(found, bytes(len, *raw as u8), "{work:?} {path_part} {error:?}");
                }
                assert!(!kept.is_empty() && volume.scrub(0).await.unwrap().corrupt.is_empty());
            });
        }
    }
}

/// Size of a directory as `du` counts it, in bytes.
fn du(path: &std::path::Path) -> u64 {
    let found = std::fs::symlink_metadata(path).unwrap();
    let below = match found.is_dir() {
        true => std::fs::read_dir(path).unwrap().map(|entry| du(&entry.unwrap().path())).sum(),
        false => 0,
    };
    std::os::unix::fs::MetadataExt::blocks(&found) * 512 + below
}

/// Goal: many small replicas and a large one take little more space than they have bytes. Method: a mixture on a real
/// disk, with all settings in the proportion of the defaults: segments have a sixteenth of the default size.
#[test]
fn a_resting_volume_takes_little_more_than_its_bytes() {
    in_reality(|mut rig| async move {
        rig.options.checkpoint_bytes = 4 * rig.options.segment_bytes;
        let volume = rig.open().await.unwrap();
        let mut stored = 0;
        for raw in 1..=700_usize {
            let len = 1 + raw * 7919 % 20_000;
            Writer::new(&volume, raw as u64)
                .send(data(0, &bytes(len, raw as u8)), raw.is_multiple_of(50))
                .await
                .unwrap();
            stored += len as u64;
        }
        let mut writer = Writer::new(&volume, 1000);
        for block in 0..40 {
            writer.send(data(block << 20, &bytes(1 << 20, block as u8)), block == 39).await.unwrap();
            stored += 1 << 20;
        }
        let limit = stored * 5 / 4;
        let empty = 256 * 4096;
        let mut taken = 0;
        for _ in 0..100 {
            taken = du(&rig.root) - empty;
            if taken <= limit {
                return;
            }
            rig.runtime.sleep(Duration::from_millis(200)).await;
        }
        panic!("{stored} bytes take {taken}");
    });
}
