//! Versions: order, duplicates, fencing, incarnations.

use std::time::Duration;

use ebb_types::{Epoch, ErrorKind, Incarnation, Version};

use super::rig::{Writer, bytes, data, id, in_world, version};
use crate::Change;

#[test]
fn writes_apply_in_the_order_of_their_versions() {
    in_world(1, |rig| async move {
        let volume = rig.open().await.unwrap();
        let writer = Writer::new(&volume, 1);
        let (first, second) = (bytes(10, 1), bytes(10, 2));
        let late = {
            let (volume, write) = (volume.clone(), writer.write(version(1, 2), version(1, 1), data(5, &second)));
            rig.runtime.spawn("late", async move { volume.write(&write, true).await })
        };
        rig.runtime.sleep(Duration::from_millis(50)).await;
        volume.write(&writer.write(version(1, 1), Version::ZERO, data(0, &first)), false).await.unwrap();
        assert_eq!(late.join().await.unwrap().unwrap().synced, version(1, 2));
        let (at, found) = volume.read_all(id(1), version(1, 2)).await.unwrap();
        assert_eq!((at, &found[..5], &found[5..]), (version(1, 2), &first[..5], &second[..]));

        // A missing predecessor is waited for, but not for ever; a repeated write is answered, not redone.
        let lost = writer.write(version(1, 9), version(1, 8), data(0, &second));
        assert_eq!(volume.write(&lost, false).await.unwrap_err().kind(), ErrorKind::Gap);
        let again = volume.write(&writer.write(version(1, 1), Version::ZERO, data(0, &first)), true).await.unwrap();
        assert_eq!(again.received, version(1, 2));
        assert_eq!(volume.read_all(id(1), Version::ZERO).await.unwrap().1, found);
        // A version that skips a version of this member is from a writer that does not know of it.
        let blind = writer.write(version(1, 3), version(1, 1), data(0, &second));
        assert_eq!(volume.write(&blind, false).await.unwrap_err().kind(), ErrorKind::Gap);
    });
}

#[test]
fn promises_fence_and_survive_a_crash() {
    in_world(2, |mut rig| async move {
        let volume = rig.open().await.unwrap();
        let incarnation = volume.label().incarnation;
        let mut writer = Writer::new(&volume, 1);
        writer.send(data(0, &bytes(100, 1)), false).await.unwrap();
        let reply = volume.promise(id(1), incarnation, Epoch::new(5)).await.unwrap();
        assert_eq!((reply.version, reply.length), (version(1, 1), 100));
        let absent = volume.promise(id(2), incarnation, Epoch::new(5)).await.unwrap();
        assert_eq!((absent.version, absent.length), (Version::ZERO, 0));
        drop(volume);
        rig.crash();

        let volume = rig.open().await.unwrap();
        let mut writer = Writer { volume: &volume, metablock: id(1), at: version(1, 1) };
        let refused = writer.send(data(0, &bytes(9, 2)), true).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StaleEpoch);
        let refused = volume.sync(id(1), incarnation, version(1, 1)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StaleEpoch, "a sync below the promise acknowledges nothing");
        let refused = volume.promise(id(1), incarnation, Epoch::new(4)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StaleEpoch);
        let fenced = Writer::new(&volume, 2).send(data(0, &bytes(9, 2)), true).await.unwrap_err();
        assert_eq!(fenced.kind(), ErrorKind::StaleEpoch);

        // Stamped, cut, and idempotent; a wrong base is refused.
        let wrong = volume.stamp(id(1), incarnation, Epoch::new(5), version(1, 7), 50).await.unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::StaleVersion);
        for _ in 0..2 {
            let stamped = volume.stamp(id(1), incarnation, Epoch::new(5), version(1, 1), 50).await.unwrap();
            assert_eq!((stamped.version, stamped.length), (version(5, 0), 50));
        }
        assert_eq!(volume.read_all(id(1), version(5, 0)).await.unwrap().1, bytes(100, 1)[..50]);
        let stale = volume.read(id(1), version(5, 1), 0, 16384).await.unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::StaleVersion);
        let mut writer = Writer { volume: &volume, metablock: id(1), at: version(5, 0) };
        let next = writer.write(version(6, 1), version(5, 0), data(50, &bytes(10, 3)));
        writer.at = volume.write(&next, true).await.unwrap().synced;
        assert_eq!(writer.at, version(6, 1));
    });
}

#[test]
fn only_the_recorded_incarnation_reports_absence() {
    in_world(3, |rig| async move {
        let volume = rig.open().await.unwrap();
        let other = Incarnation::new(volume.label().incarnation.raw() ^ 1);
        assert_eq!(volume.promise(id(1), other, Epoch::new(1)).await.unwrap_err().kind(), ErrorKind::NoReplica);
        assert_eq!(volume.sync(id(1), other, Version::ZERO).await.unwrap_err().kind(), ErrorKind::NoReplica);
        let mut write = Writer::new(&volume, 1).write(version(1, 1), Version::ZERO, data(0, &bytes(5, 0)));
        write.incarnation = other;
        assert_eq!(volume.write(&write, true).await.unwrap_err().kind(), ErrorKind::NoReplica);
        // Never written: nothing at (0,0), and nothing else above.
        assert_eq!(volume.read(id(1), Version::ZERO, 0, 16384).await.unwrap().length, 0);
        assert_eq!(volume.read(id(1), version(1, 1), 0, 16384).await.unwrap_err().kind(), ErrorKind::NoReplica);
    });
}

#[test]
fn damaged_and_malformed_writes_keep_nothing() {
    in_world(4, |rig| async move {
        let volume = rig.open().await.unwrap();
        let writer = Writer::new(&volume, 1);
        let send = async |change| {
            let write = writer.write(version(1, 1), Version::ZERO, change);
            volume.write(&write, true).await.unwrap_err().kind()
        };
        let Change::Data { offset, bytes: good, mut checksums } = data(100, &bytes(40_000, 1)) else { unreachable!() };
        let short = Change::Data { offset, bytes: good.clone(), checksums: checksums[1..].to_vec() };
        assert_eq!(send(short).await, ErrorKind::Protocol);
        checksums[1] ^= 1;
        assert_eq!(send(Change::Data { offset, bytes: good, checksums }).await, ErrorKind::Corrupt);
        assert_eq!(send(Change::Truncate { length: u64::MAX }).await, ErrorKind::Invalid);
        assert_eq!(send(Change::Punch { offset: u64::MAX, len: 2 }).await, ErrorKind::Invalid);
        assert_eq!(
            volume.promise(id(1), volume.label().incarnation, Epoch::new(1)).await.unwrap().version,
            Version::ZERO
        );
        assert_eq!(volume.stored_bytes(), 0);
    });
}

#[test]
fn reads_sync_first_and_seek_knows_holes() {
    in_world(5, |mut rig| async move {
        let volume = rig.open().await.unwrap();
        let mut writer = Writer::new(&volume, 1);
        let chunk = 16384;
        writer.send(data(3 * chunk, &bytes(100, 1)), false).await.unwrap();
        writer.send(Change::Allocate { offset: 0, len: chunk }, false).await.unwrap();
        let read = volume.read(id(1), version(1, 2), 0, 16 * chunk).await.unwrap();
        assert_eq!((read.version, read.length, read.checksums.len()), (version(1, 2), 3 * chunk + 100, 4));
        let seek = async |offset, hole| volume.seek(id(1), Version::ZERO, offset, hole).await.unwrap().offset;
        assert_eq!(seek(0, false).await, Some(3 * chunk));
        assert_eq!(seek(5, true).await, Some(5));
        assert_eq!(seek(3 * chunk + 7, false).await, Some(3 * chunk + 7));
        assert_eq!(seek(3 * chunk, true).await, None);
        assert_eq!(seek(3 * chunk + 100, false).await, None);
        assert_eq!(volume.read(id(1), Version::ZERO, 1, chunk).await.unwrap_err().kind(), ErrorKind::Invalid);
        // What a reader has seen is never lost.
        drop(volume);
        rig.crash();
        let volume = rig.open().await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 2)).await.unwrap().0, version(1, 2));
    });
}
