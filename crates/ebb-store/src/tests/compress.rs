//! Compression of frozen replicas by the file system.

use std::time::Duration;

use ebb_runtime::Compression;
use ebb_runtime::virt::{DiskOptions, DiskWork, PlannedFault};
use ebb_types::Epoch;

use super::rig::{Rig, Writer, bytes, data, id, in_world, version};
use crate::{Deletion, Volume};

const MINUTE: Duration = Duration::from_secs(60);

fn set_compression(rig: &Rig, compression: Option<Compression>) {
    let process = rig.virt_process();
    process.set_disk_options(DiskOptions { compression, ..process.disk_options() });
}

/// A replica of 100 KB.
async fn write(volume: &Volume, raw: u64) {
    Writer::new(volume, raw).send(data(0, &bytes(100_000, raw as u8)), true).await.unwrap();
}

async fn freeze(volume: &Volume, raw: u64, epoch: Epoch) {
    volume.promise(id(raw), volume.label().incarnation, epoch).await.unwrap();
}

#[test]
fn what_is_frozen_is_compressed_and_nothing_else() {
    in_world(61, |mut rig| async move {
        let volume = rig.open().await.unwrap();
        for raw in 1..=3 {
            write(&volume, raw).await;
        }
        freeze(&volume, 1, Epoch::FROZEN).await;
        freeze(&volume, 2, Epoch::RETIRED).await;
        rig.runtime.sleep(MINUTE).await;
        assert_eq!(volume.compressed_bytes(), 0, "nobody has asked for it");
        // As an administrator does it, while the volume is in use.
        set_compression(&rig, Some(Compression::Zstd));
        rig.runtime.sleep(MINUTE).await;
        assert_eq!(volume.compressed_bytes(), 100_000);
        rig.runtime.sleep(MINUTE).await;
        assert_eq!(volume.compressed_bytes(), 100_000, "once is enough");
        let volume = rig.open_again(&volume).await;
        rig.runtime.sleep(MINUTE).await;
        assert_eq!(volume.compressed_bytes(), 100_000, "a new process finds it again");
        assert_eq!(volume.read_all(id(1), version(1, 1)).await.unwrap().1, bytes(100_000, 1));
    });
}

#[test]
fn a_failure_leaves_the_replica_and_the_volume_as_good_as_before() {
    in_world(62, |mut rig| async move {
        let volume = rig.open().await.unwrap();
        for raw in [1, 2] {
            write(&volume, raw).await;
            freeze(&volume, raw, Epoch::FROZEN).await;
        }
        set_compression(&rig, Some(Compression::Lzo));
        rig.virt_process().plan_disk_fault(PlannedFault::no_space(DiskWork::Compress, ""));
        rig.runtime.sleep(MINUTE).await;
        assert_eq!(volume.compressed_bytes(), 100_000);
        for raw in [1, 2] {
            assert_eq!(volume.read_all(id(raw), version(1, 1)).await.unwrap().1, bytes(100_000, raw as u8));
        }
        write(&volume, 3).await;
        let volume = rig.open_again(&volume).await;
        rig.runtime.sleep(MINUTE).await;
        assert_eq!(volume.compressed_bytes(), 200_000, "tried again after a start");
    });
}

#[test]
fn replicas_are_deleted_and_the_power_fails_while_they_are_compressed() {
    for after_ms in [9_990, 10_000, 10_001, 10_050, 10_500, 11_000] {
        in_world(after_ms, |mut rig| async move {
            set_compression(&rig, Some(Compression::Zstd));
            let volume = rig.open().await.unwrap();
            for raw in 1..=40 {
                write(&volume, raw).await;
                freeze(&volume, raw, Epoch::FROZEN).await;
            }
            rig.runtime.sleep(Duration::from_millis(after_ms)).await;
            let deletions: Vec<Deletion> = (1..=20).map(|raw| Deletion::freed(id(raw))).collect();
            volume.delete(&deletions).await.unwrap();
            let volume = rig.open_again(&volume).await;
            rig.runtime.sleep(MINUTE).await;
            assert_eq!(volume.compressed_bytes(), 20 * 100_000, "{after_ms}");
            for raw in 21..=40 {
                assert_eq!(volume.read_all(id(raw), version(1, 1)).await.unwrap().1, bytes(100_000, raw as u8));
            }
        });
    }
}
