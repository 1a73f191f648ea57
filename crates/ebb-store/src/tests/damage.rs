//! Damage: torn and corrupted journals, flipped bytes, lost files.

use std::path::PathBuf;
use std::time::Duration;

use ebb_runtime::OpenMode;
use ebb_types::{ErrorKind, MetablockId};

use super::pulls::{Source, pull, two_volumes};
use super::rig::{Rig, Writer, bytes, data, id, in_world, version};
use crate::{Change, Deletion, Volume};

async fn segments(rig: &Rig) -> Vec<PathBuf> {
    let names = rig.runtime.disk().read_dir(&rig.root).await.unwrap();
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| name.strip_prefix("journal-")?.parse().ok()).collect();
    // The segment in reserve holds nothing.
    numbers.retain(|number| *number > 0);
    numbers.sort_unstable();
    numbers.iter().map(|number| rig.root.join(format!("journal-{number}"))).collect()
}

pub(super) async fn flip(rig: &Rig, path: &std::path::Path, offset: u64) {
    let file = rig.runtime.disk().open(path, OpenMode::Existing).await.unwrap();
    let byte = file.read_at(offset, 1).await.unwrap()[0];
    file.write_at(offset, vec![vec![byte ^ 0x40].into()]).await.unwrap();
    file.sync_data().await.unwrap();
}

async fn three_writes(rig: &Rig) -> Volume {
    let volume = rig.open().await.unwrap();
    let mut writer = Writer::new(&volume, 1);
    for index in 0..3 {
        writer.send(data(index * 1000, &bytes(1000, index as u8)), true).await.unwrap();
    }
    volume
}

#[test]
fn a_damaged_last_batch_is_a_torn_tail() {
    in_world(1, |mut rig| async move {
        drop(three_writes(&rig).await);
        rig.crash();
        // Each batch here takes one page.
        flip(&rig, &segments(&rig).await[0], 2 * 4096 + 60).await;
        let volume = rig.open().await.unwrap();
        let (at, found) = volume.read_all(id(1), version(1, 2)).await.unwrap();
        assert_eq!((at, found.len()), (version(1, 2), 2000));
    });
}

/// Damage to the last batch, once the volume has been idle for a moment. Then it is known that the last batch was
/// synced.
#[test]
fn a_damaged_last_batch_that_was_sealed_is_refused() {
    for page in 0..4 {
        in_world(11, |mut rig| async move {
            let volume = three_writes(&rig).await;
            rig.runtime.sleep(Duration::from_secs(4)).await;
            let syncs = volume.sync_count();
            rig.runtime.sleep(Duration::from_secs(60)).await;
            assert_eq!(volume.sync_count(), syncs, "one seal is enough");
            drop(volume);
            rig.crash();
            flip(&rig, &segments(&rig).await[0], page * 4096 + 20).await;
            if page < 3 {
                let error = rig.open().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                let place = format!("/data/v1/journal-1 offset {}: damaged", page * 4096);
                assert!(error.to_string().starts_with(&place), "{error}");
                assert!(error.to_string().contains("move /data/v1 away"), "{error}");
            } else {
                // The seal itself: nothing is lost with it.
                let volume = rig.open().await.unwrap();
                assert_eq!(volume.read_all(id(1), version(1, 3)).await.unwrap().1.len(), 3000);
            }
        });
    }
}

/// Goal: sound bytes that are not the last ones written there are not served. Method: the disk has another replica's
/// chunk here, or a chunk of this replica at another place, or an old one.
#[test]
fn misdirected_and_old_chunks_are_noticed() {
    for case in 0..3 {
        in_world(12, |rig| async move {
            let volume = rig.open().await.unwrap();
            let old = bytes(100_000, 9);
            Writer::new(&volume, 2).send(data(0, &bytes(100_000, 2)), true).await.unwrap();
            let mut writer = Writer::new(&volume, 1);
            writer.send(data(0, &old), true).await.unwrap();
            writer.send(data(0, &bytes(100_000, 1)), true).await.unwrap();
            let disk = rig.runtime.disk();
            let chunk = match case {
                0 => bytes(100_000, 2).slice(16_384..32_768),
                1 => bytes(100_000, 1).slice(32_768..49_152),
                _ => old.slice(16_384..32_768),
            };
            let file = volume.describe(id(1)).await.unwrap().unwrap().file;
            let file = disk.open(file.as_ref(), OpenMode::Existing).await.unwrap();
            file.write_at(16_384, vec![chunk]).await.unwrap();
            assert_eq!(volume.read_all(id(1), version(1, 2)).await.unwrap_err().kind(), ErrorKind::Corrupt);
            assert_eq!(volume.scrub(0).await.unwrap().corrupt, [id(1)]);
            let refused = volume.read(id(1), version(1, 2), 0, 16_384).await.unwrap_err().to_string();
            assert!(refused.contains("/data/v1/replicas/01/0000000000000001 offset 16384"), "{refused}");
        });
    }
}

/// Goal: a flipped bit is noticed wherever it is in a replica's file: first, last, at the borders of chunks, in holes.
#[test]
fn a_byte_flipped_anywhere_in_a_file_is_noticed() {
    let length = 300_001;
    for at in [0, 1, 16_383, 16_384, 40_000, 99_999, 100_000, 150_000, 199_999, 200_000, 280_000, length - 1] {
        in_world(13, |rig| async move {
            let volume = rig.open().await.unwrap();
            let mut writer = Writer::new(&volume, 1);
            writer.send(data(0, &bytes(length as usize, 1)), true).await.unwrap();
            writer.send(Change::Punch { offset: 100_000, len: 100_000 }, true).await.unwrap();
            let disk = rig.runtime.disk();
            let file = volume.describe(id(1)).await.unwrap().unwrap().file;
            let file = disk.open(file.as_ref(), OpenMode::Existing).await.unwrap();
            let byte = file.read_at(at, 1).await.unwrap()[0];
            file.write_at(at, vec![vec![byte ^ 1].into()]).await.unwrap();
            assert_eq!(volume.read_all(id(1), version(1, 2)).await.unwrap_err().kind(), ErrorKind::Corrupt, "at {at}");
            assert_eq!(volume.scrub(0).await.unwrap().corrupt, [id(1)], "at {at}");
        });
    }
}

#[test]
fn a_damaged_batch_with_good_ones_behind_it_is_refused_by_name() {
    for (page, offset) in [(0, 0), (0, 60), (1, 8), (1, 16), (1, 900)] {
        in_world(2, |mut rig| async move {
            drop(three_writes(&rig).await);
            rig.crash();
            flip(&rig, &segments(&rig).await[0], page * 4096 + offset).await;
            let error = rig.open().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let place = format!("/data/v1/journal-1 offset {}: damaged", page * 4096);
            assert!(error.to_string().starts_with(&place), "{error}");
        });
    }
}

#[test]
fn a_damaged_end_of_a_segment_with_a_good_next_one_is_refused() {
    in_world(3, |mut rig| async move {
        rig.options.checkpoint_bytes = 1 << 30;
        let volume = rig.open().await.unwrap();
        let mut writer = Writer::new(&volume, 1);
        while segments(&rig).await.len() < 3 {
            writer.send(data(0, &bytes(30_000, 1)), true).await.unwrap();
        }
        let (first, all) = (segments(&rig).await[0].clone(), segments(&rig).await);
        drop(volume);
        rig.crash();
        // Eight batches of eight pages each fill a segment.
        flip(&rig, &first, 7 * 8 * 4096 + 100).await;
        let error = rig.open().await.unwrap_err();
        assert!(error.to_string().contains("journal-1 offset 229376: damaged"), "{error}");
        flip(&rig, &first, 7 * 8 * 4096 + 100).await;
        rig.runtime.disk().remove_file(&all[1]).await.unwrap();
        let error = rig.open().await.unwrap_err();
        assert!(error.to_string().contains("journal-2 is missing"), "{error}");
    });
}

#[test]
fn a_damaged_index_or_label_is_refused_by_name() {
    in_world(4, |mut rig| async move {
        let volume = three_writes(&rig).await;
        volume.stop().await.unwrap();
        drop(volume);
        rig.crash();
        let names = rig.runtime.disk().read_dir(&rig.root).await.unwrap();
        // An older index does not count if the crash undid its removal.
        let index = names.iter().rfind(|name| name.starts_with("index-")).unwrap();
        flip(&rig, &rig.root.join(index), 60).await;
        let error = rig.open().await.unwrap_err();
        assert!(error.to_string().contains(index.as_str()) && error.kind() == ErrorKind::Corrupt, "{error}");
        flip(&rig, &rig.root.join(index), 60).await;
        rig.open().await.unwrap();
        rig.crash();
        flip(&rig, &rig.root.join("volume"), 20).await;
        assert_eq!(rig.open().await.unwrap_err().kind(), ErrorKind::Corrupt);
    });
}

#[test]
fn flipped_bytes_are_found_by_readers_overwrites_and_scrub() {
    in_world(5, |rig| async move {
        let volume = rig.open().await.unwrap();
        for raw in 1..=3 {
            Writer::new(&volume, raw).send(data(0, &bytes(400_000, raw as u8)), true).await.unwrap();
        }
        let clean = volume.scrub(0).await.unwrap();
        assert_eq!((clean.replicas, clean.bytes, clean.corrupt.len()), (3, 1_200_000, 0));
        for raw in 1..=2 {
            let file = volume.describe(id(raw)).await.unwrap().unwrap().file;
            assert_eq!(rig.virt_process().flip_bits(file.as_ref(), 100_000, 1).unwrap(), 1);
        }
        // A reader gets the writer's sums beside the bytes, and sees it.
        assert_eq!(volume.read_all(id(1), version(1, 1)).await.unwrap_err().kind(), ErrorKind::Corrupt);
        // An overwrite in the same chunk verifies before it sums anew.
        let mut writer = Writer { volume: &volume, metablock: id(1), at: version(1, 1) };
        let error = writer.send(data(99_000, &bytes(10, 0)), true).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(volume.read(id(1), version(1, 1), 0, 16384).await.unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(volume.scrub(0).await.unwrap().corrupt, [id(1), id(2)]);
        assert_eq!(volume.take_damaged(), [id(1), id(2)]);
        let corrupt: Vec<(MetablockId, bool)> =
            volume.report(None, 10).iter().map(|one| (one.metablock, one.corrupt)).collect();
        assert_eq!(corrupt, [(id(1), true), (id(2), true), (id(3), false)]);
        volume.read_all(id(3), version(1, 1)).await.unwrap();
        volume.delete(&[Deletion::freed(id(1)), Deletion::freed(id(2))]).await.unwrap();
        assert!(volume.scrub(0).await.unwrap().corrupt.is_empty());
    });
}

#[test]
fn an_append_does_not_hide_damage() {
    in_world(6, |rig| async move {
        let volume = rig.open().await.unwrap();
        let mut writer = Writer::new(&volume, 1);
        writer.send(data(0, &bytes(5000, 1)), true).await.unwrap();
        let file = volume.describe(id(1)).await.unwrap().unwrap().file;
        rig.virt_process().flip_bits(file.as_ref(), 7, 1).unwrap();
        writer.send(data(5000, &bytes(5000, 2)), true).await.unwrap();
        writer.send(Change::Truncate { length: 12_000 }, true).await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 3)).await.unwrap_err().kind(), ErrorKind::Corrupt);
    });
}

#[test]
fn missing_and_short_files_are_never_served() {
    in_world(7, |mut rig| async move {
        let volume = rig.open().await.unwrap();
        for raw in 1..=4 {
            Writer::new(&volume, raw).send(data(0, &bytes(200_000, raw as u8)), true).await.unwrap();
        }
        let disk = rig.runtime.disk();
        let path = async |volume: &Volume, raw| PathBuf::from(volume.describe(id(raw)).await.unwrap().unwrap().file);
        let cut = async |path: PathBuf| {
            let file = disk.open(&path, OpenMode::Existing).await.unwrap();
            file.set_len(150_000).await.unwrap();
            file.sync_data().await.unwrap();
        };
        // While it runs: a long read is left to the kernel, a short one is not.
        cut(path(&volume, 3).await).await;
        assert_eq!(volume.read(id(3), version(1, 1), 0, 1 << 20).await.unwrap_err().kind(), ErrorKind::Corrupt);
        cut(path(&volume, 4).await).await;
        let error = volume.read(id(4), version(1, 1), 196_608 - 65_536, 65_536).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        // Before start.
        let (missing, short) = (path(&volume, 1).await, path(&volume, 2).await);
        volume.stop().await.unwrap();
        drop(volume);
        cut(short).await;
        rig.runtime.disk().remove_file(&missing).await.unwrap();
        rig.runtime.disk().sync_dir(missing.parent().unwrap()).await.unwrap();
        rig.crash();
        let volume = rig.open().await.unwrap();
        for raw in 1..=2 {
            let error = volume.read(id(raw), version(1, 1), 0, 16384).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
        assert!(volume.report(None, 9).iter().all(|one| one.corrupt));
    });
}

/// Goal: damage that was found is known after a restart, before any read of the replica. A copy heals it.
#[test]
fn damage_is_remembered_until_a_copy_takes_its_place() {
    for (seed, clean_stop) in [(8, false), (9, true)] {
        in_world(seed, |mut rig| async move {
            let (source, mut volume) = two_volumes(&rig).await;
            let good = Source::new(&source);
            volume.pull(pull(&volume, 1, version(1, 3)), &good).await.unwrap();
            let file = volume.describe(id(1)).await.unwrap().unwrap().file;
            rig.virt_process().flip_bits(file.as_ref(), 70_000, 1).unwrap();
            assert_eq!(volume.scrub(0).await.unwrap().corrupt, [id(1)]);
            for _ in 0..2 {
                match clean_stop {
                    true => volume.stop().await.unwrap(),
                    // The mark is written behind.
                    false => rig.runtime.sleep(Duration::from_secs(3)).await,
                }
                drop(volume);
                rig.crash();
                volume = rig.open().await.unwrap();
                // The bytes are right again: a disk may return other bytes each time.
                rig.virt_process().flip_bits(file.as_ref(), 70_000, 1).unwrap();
                assert!(volume.report(None, 9)[0].corrupt);
                assert_eq!(volume.read_all(id(1), version(1, 3)).await.unwrap_err().kind(), ErrorKind::Corrupt);
            }
            drop((source, good));
            let source = Rig { root: "/data/v2".into(), ..rig.clone() }.open().await.unwrap();
            let good = Source::new(&source);
            volume.pull(pull(&volume, 1, version(1, 3)), &good).await.unwrap();
            drop((volume, source, good));
            rig.crash();
            let volume = rig.open().await.unwrap();
            assert!(!volume.report(None, 9)[0].corrupt);
            volume.read_all(id(1), version(1, 3)).await.unwrap();
            assert!(volume.scrub(0).await.unwrap().corrupt.is_empty());
        });
    }
}
