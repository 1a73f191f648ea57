//! Full and failing disks; bounded memory.

use std::time::Duration;

use ebb_runtime::virt::{DiskFaults, DiskOptions};
use ebb_types::ErrorKind;

use super::rig::{Writer, bytes, data, id, in_world, version};
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
        // Somebody else fills the disk at a stroke, just after space was looked at.
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
                    // Nobody asks for a sync: memory does.
                    writer.send(data(index * 30_000, &bytes(30_000, 1)), false).await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.join().await.unwrap();
        }
        assert!(volume.sync_count() > 8 * 40 * 30_000 / (256 << 10));
        // Longer than all of it, and not in one piece with what is there: still accepted.
        Writer::new(&volume, 9).send(data(3, &bytes(1 << 20, 1)), true).await.unwrap();
    });
}
