//! Long files of deleted replicas, which give their space back in steps.

use std::time::Duration;

use ebb_runtime::virt::DiskOptions;
use ebb_types::ErrorKind;

use super::rig::{Rig, Writer, bytes, data, id, in_reality, in_world, version};
use crate::{Deletion, Volume};

const STEP: u64 = 64 << 10;
const LENGTH: usize = 60 << 14;
/// What the journal may have grown by.
const JOURNAL: u64 = 512 << 10;

async fn open(rig: &mut Rig) -> Volume {
    rig.options.cut_bytes = STEP;
    rig.open().await.unwrap()
}

async fn removed_files(rig: &Rig) -> usize {
    rig.runtime.disk().read_dir(&rig.root.join("removed")).await.unwrap().len()
}

#[test]
fn a_long_file_is_cut_in_steps_and_a_short_one_is_gone_at_once() {
    in_world(1, |mut rig| async move {
        let volume = open(&mut rig).await;
        let free = || async { volume.space().await.unwrap().free_bytes };
        let before = free().await;
        Writer::new(&volume, 1).send(data(0, &bytes(LENGTH, 1)), true).await.unwrap();
        Writer::new(&volume, 2).send(data(0, &bytes(2 * STEP as usize, 2)), true).await.unwrap();
        assert!(free().await <= before - LENGTH as u64 - 2 * STEP);
        volume.delete(&[Deletion::freed(id(1)), Deletion::freed(id(2))]).await.unwrap();
        assert_eq!(removed_files(&rig).await, 1);
        assert!(free().await + JOURNAL >= before, "its space counts as free");
        let absent = volume.read(id(1), version(1, 1), 0, STEP).await.unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::NoReplica);
        rig.runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(removed_files(&rig).await, 1, "a reply with its bytes may be on its way");
        rig.runtime.sleep(Duration::from_secs(2)).await;
        assert_eq!(removed_files(&rig).await, 0);
        assert!(free().await + JOURNAL >= before);
    });
}

/// Goal: what a crash leaves is freed by the next start, also of a file whose bytes lie in second places.
#[test]
fn the_next_start_goes_on_with_what_is_left() {
    in_world(2, |mut rig| async move {
        let volume = open(&mut rig).await;
        let mut writer = Writer::new(&volume, 1);
        for round in 0..3 {
            writer.send(data(0, &bytes(LENGTH, round)), true).await.unwrap();
        }
        let described = volume.describe(id(1)).await.unwrap().unwrap();
        let file = rig.runtime.disk().open(described.file.as_ref(), ebb_runtime::OpenMode::Existing).await.unwrap();
        assert!(file.len().await.unwrap() > 1 << 30, "second places are in use");
        volume.delete(&[Deletion::freed(id(1))]).await.unwrap();
        assert_eq!(removed_files(&rig).await, 1);
        drop((volume, file));
        rig.crash();
        let volume = open(&mut rig).await;
        assert_eq!(volume.report(None, 9), []);
        rig.runtime.sleep(Duration::from_secs(5)).await;
        assert_eq!(removed_files(&rig).await, 0);
        // Names are not used twice: a crash may bring an old one back.
        Writer::new(&volume, 2).send(data(0, &bytes(LENGTH, 1)), true).await.unwrap();
        volume.delete(&[Deletion::freed(id(2))]).await.unwrap();
        assert_eq!(removed_files(&rig).await, 1);
    });
}

/// Goal: what was removed is no reason to refuse a write.
#[test]
fn a_write_that_needs_the_space_does_not_wait_for_the_pace() {
    in_world(3, |mut rig| async move {
        let process = rig.virt_process().clone();
        process.set_disk_options(DiskOptions { capacity_bytes: 64 << 20, ..process.disk_options() });
        let volume = open(&mut rig).await;
        let mut count = 0;
        let refused = loop {
            count += 1;
            match Writer::new(&volume, count).send(data(0, &bytes(LENGTH, 1)), true).await {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        volume.delete(&(1..=10).map(|raw| Deletion::freed(id(raw))).collect::<Vec<_>>()).await.unwrap();
        let begun = rig.runtime.now();
        for raw in count + 1..=count + 6 {
            Writer::new(&volume, raw).send(data(0, &bytes(LENGTH, 2)), true).await.unwrap();
        }
        assert!(rig.runtime.now().since(begun) < Duration::from_secs(1));
        for raw in count + 1..=count + 6 {
            assert_eq!(volume.read_all(id(raw), version(1, 1)).await.unwrap().1, bytes(LENGTH, 2));
        }
        let mut more = count + 7;
        while let Ok(_progress) = Writer::new(&volume, more).send(data(0, &bytes(LENGTH, 3)), true).await {
            more += 1;
        }
        assert!(more < count + 14, "more fits than was removed");
        assert_eq!(removed_files(&rig).await, 0, "it was refused when nothing was left to cut");
    });
}

#[test]
fn a_real_file_gives_its_space_back() {
    in_reality(|mut rig| async move {
        let volume = open(&mut rig).await;
        Writer::new(&volume, 1).send(data(0, &bytes(LENGTH, 1)), true).await.unwrap();
        let begun = rig.runtime.now();
        volume.delete(&[Deletion::freed(id(1))]).await.unwrap();
        while removed_files(&rig).await > 0 {
            assert!(rig.runtime.now().since(begun) < Duration::from_secs(60), "it is not removed");
            rig.runtime.sleep(Duration::from_millis(50)).await;
        }
        assert!(
            rig.runtime.now().since(begun) >= Duration::from_millis(1900),
            "a reply with its bytes may be on its way"
        );
    });
}
