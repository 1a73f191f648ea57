//! Overwrites of whole chunks: to the free place, with only the sums in the journal.

use ebb_runtime::OpenMode;
use ebb_types::{CHUNK_SIZE, Version};

use super::rig::{Rig, Writer, act, bytes, data, id, in_reality, in_world, version};
use crate::files::replica_path;
use crate::{Change, Volume};

const MIB: u64 = 1 << 20;

async fn appended(volume: &Volume) -> u64 {
    let journal = volume.shared.journal.lock().await;
    journal.appended_bytes()
}

async fn allocated(rig: &Rig, metablock: u64) -> u64 {
    let path = replica_path(&rig.root, id(metablock));
    rig.runtime.disk().open(&path, OpenMode::Existing).await.unwrap().allocated_bytes().await.unwrap()
}

#[test]
fn each_byte_is_written_once_and_takes_its_place_once() {
    for reality in [false, true] {
        let body = |mut rig: Rig| async move {
            rig.options.checkpoint_bytes = 64 << 20;
            rig.options.segment_bytes = 4 << 20;
            let volume = rig.open().await.unwrap();
            let mut writer = Writer::new(&volume, 1);
            let mut model = bytes((4 * MIB) as usize, 0).to_vec();
            writer.send(data(0, &model.clone().into()), true).await.unwrap();
            let before = (appended(&volume).await, allocated(&rig, 1).await);
            // Round after round over the same bytes: whole, then in part, so that chunks lie in both places.
            for (round, (offset, len)) in
                [(0, 4 * MIB), (MIB, MIB), (0, 4 * MIB), (MIB / 2, 3 * MIB), (0, 4 * MIB)].into_iter().enumerate()
            {
                let change = data(offset, &bytes(len as usize, round as u8 + 1));
                act(&mut model, &change);
                writer.send(change, round % 2 == 0).await.unwrap();
                assert!(volume.read_all(id(1), writer.at).await.unwrap().1 == model, "round {round}");
            }
            drop(volume.shared.journal.lock().await);
            let written = appended(&volume).await - before.0;
            assert!(written < 100_000, "{written} bytes went through the journal");
            let taken = allocated(&rig, 1).await;
            assert!(taken <= before.1 + 64 * 1024, "{taken} bytes are taken for {}", before.1);
            // Parts of chunks still go through the journal, to the present places of their chunks.
            for change in [
                data(MIB - 7, &bytes(100_000, 9)),
                Change::Punch { offset: MIB / 2 + 5, len: MIB },
                Change::Zero { offset: 3 * MIB, len: 40_000 },
                Change::Truncate { length: 4 * MIB - 5000 },
                data(4 * MIB, &bytes(200_000, 10)),
                data(3 * MIB, &bytes(MIB as usize + 65_536, 11)),
                Change::Truncate { length: 5 * MIB },
            ] {
                act(&mut model, &change);
                writer.send(change, true).await.unwrap();
                assert!(volume.read_all(id(1), writer.at).await.unwrap().1 == model);
            }
            let at = writer.at;
            volume.stop().await.unwrap();
            drop(volume);
            rig.crash();
            let volume = rig.open().await.unwrap();
            assert!(volume.read_all(id(1), at).await.unwrap().1 == model, "after a restart");
            assert!(volume.scrub(0).await.unwrap().corrupt.is_empty());
        };
        if reality { in_reality(body) } else { in_world(1, body) }
    }
}

#[test]
fn an_overwrite_is_there_whole_or_not_at_all() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..60 {
        let found = in_world(seed, |mut rig| async move {
            let volume = rig.open().await.unwrap();
            let mut writer = Writer::new(&volume, 1);
            writer.send(data(0, &bytes(10 * CHUNK_SIZE as usize, 1)), true).await.unwrap();
            let (late, runtime) = (volume.clone(), rig.runtime.clone());
            let writing = rig.runtime.spawn("write", async move {
                let mut writer = Writer { volume: &late, metablock: id(1), at: version(1, 1) };
                writer.send(data(2 * CHUNK_SIZE, &bytes(6 * CHUNK_SIZE as usize, 2)), true).await
            });
            runtime.sleep(std::time::Duration::from_micros(seed * 100)).await;
            writing.abort();
            let volume = rig.open_again(&volume).await;
            let (at, found) = volume.read_all(id(1), Version::ZERO).await.unwrap();
            let mut model = bytes(10 * CHUNK_SIZE as usize, 1).to_vec();
            if at == version(1, 2) {
                act(&mut model, &data(2 * CHUNK_SIZE, &bytes(6 * CHUNK_SIZE as usize, 2)));
            }
            assert!(found == model, "seed {seed} at {at}");
            // Bytes that the crash left in free places must not appear again.
            let mut writer = Writer { volume: &volume, metablock: id(1), at };
            for change in
                [Change::Truncate { length: CHUNK_SIZE * 3 + 7 }, Change::Truncate { length: CHUNK_SIZE * 12 }]
            {
                act(&mut model, &change);
                writer.send(change, true).await.unwrap();
            }
            assert!(volume.read_all(id(1), writer.at).await.unwrap().1 == model, "seed {seed}");
            assert!(volume.scrub(0).await.unwrap().corrupt.is_empty());
            at
        });
        if found == version(1, 2) { new += 1 } else { old += 1 }
    }
    assert!(old > 5 && new > 5, "{old} {new}");
}

#[test]
fn without_room_for_both_it_goes_through_the_journal() {
    in_world(5, |mut rig| async move {
        rig.options.limit_bytes = Some(3 * MIB);
        rig.options.checkpoint_bytes = 64 << 20;
        rig.options.segment_bytes = 4 << 20;
        let volume = rig.open().await.unwrap();
        let mut writer = Writer::new(&volume, 1);
        writer.send(data(0, &bytes(2 * MIB as usize, 1)), true).await.unwrap();
        let before = appended(&volume).await;
        let next = bytes(2 * MIB as usize, 2);
        writer.send(data(0, &next), true).await.unwrap();
        assert_eq!(volume.read_all(id(1), writer.at).await.unwrap().1, next);
        assert!(appended(&volume).await - before > 2 * MIB);
    });
}
