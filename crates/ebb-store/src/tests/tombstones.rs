//! Tombstones of deleted replicas.

use std::time::Duration;

use ebb_runtime::virt::{DiskWork, PlannedFault};
use ebb_types::{Epoch, ErrorKind, Version};

use super::pulls::{Source, pull, two_volumes};
use super::rig::{Rig, Writer, bytes, data, id, in_world, version};
use crate::{Deletion, Volume};

/// The first write of a holder, sent late.
async fn late_first_write(volume: &Volume, raw: u64, epoch: u64) -> Option<ErrorKind> {
    let writer = Writer::new(volume, raw);
    let write = writer.write(version(epoch, 1), Version::ZERO, data(0, &bytes(100, 1)));
    volume.write(&write, true).await.err().map(|error| error.kind())
}

async fn life(volume: &Volume, raw: u64) -> u64 {
    volume.describe(id(raw)).await.unwrap().unwrap().life
}

/// Goal: the first write to a grant that a recovery freed is refused, however late it comes. That holds for any earlier
/// state of the replica, and over crashes and checkpoints. This is `DeleteForgetsPromise` of the protocol model.
#[test]
fn a_freed_id_takes_nothing_more_through_crashes_and_checkpoints() {
    for (seed, clean_stop) in [(1, false), (2, true)] {
        in_world(seed, |mut rig| async move {
            let volume = rig.open().await.unwrap();
            let incarnation = volume.label().incarnation;
            // Promised and never written; written; never heard of.
            volume.promise(id(1), incarnation, Epoch::new(2)).await.unwrap();
            Writer::new(&volume, 2).send(data(0, &bytes(100, 1)), true).await.unwrap();
            let freed: Vec<_> = (1..=3).map(|raw| Deletion::freed(id(raw))).collect();
            volume.delete(&freed).await.unwrap();
            let syncs = volume.sync_count();
            volume.delete(&freed).await.unwrap();
            assert_eq!(volume.sync_count(), syncs, "it is remembered already");
            for round in 0..3 {
                let volume = if round == 0 { volume.clone() } else { rig.open().await.unwrap() };
                for raw in 1..=3 {
                    for epoch in [1, 2, 900] {
                        assert_eq!(late_first_write(&volume, raw, epoch).await, Some(ErrorKind::StaleEpoch));
                    }
                    let promise = volume.promise(id(raw), incarnation, Epoch::new(9)).await;
                    assert_eq!(promise.unwrap_err().kind(), ErrorKind::StaleEpoch);
                    let sync = volume.sync(id(raw), incarnation, version(1, 1)).await;
                    assert_eq!(sync.unwrap_err().kind(), ErrorKind::StaleEpoch);
                }
                assert_eq!((volume.replica_count(), volume.report(None, 9).len()), (0, 0), "refusals leave nothing");
                if clean_stop {
                    volume.stop().await.unwrap();
                }
                drop(volume);
                if round == 2 {
                    return;
                }
                rig.crash();
            }
        });
    }
}

#[test]
fn a_tombstone_counts_its_time_anew_at_start_and_goes_then() {
    in_world(3, |mut rig| async move {
        rig.options.tombstone_time = Duration::from_secs(30);
        let volume = rig.open().await.unwrap();
        volume.delete(&[Deletion::freed(id(1))]).await.unwrap();
        rig.runtime.sleep(Duration::from_secs(28)).await;
        drop(volume);
        rig.crash();
        let volume = rig.open().await.unwrap();
        rig.runtime.sleep(Duration::from_secs(28)).await;
        assert_eq!(late_first_write(&volume, 1, 1).await, Some(ErrorKind::StaleEpoch));
        rig.runtime.sleep(Duration::from_secs(4)).await;
        // By now no holder believes in a lease of that time, so such a write would be a stray message of a dead holder.
        assert_eq!(late_first_write(&volume, 1, 1).await, None);
        volume.stop().await.unwrap();
        assert!(volume.shared.tombstones.lock().list().is_empty());
    });
}

/// Goal: a crash at any moment of a deletion leaves the replica with its promise, or the tombstone; never neither.
#[test]
fn a_crash_in_the_middle_of_a_deletion_leaves_the_promise_or_the_tombstone() {
    let mut outcomes = [0, 0];
    for step in 0..24_u64 {
        let there = in_world(100 + step, |mut rig| async move {
            let volume = rig.open().await.unwrap();
            volume.promise(id(1), volume.label().incarnation, Epoch::new(2)).await.unwrap();
            let task = {
                let volume = volume.clone();
                rig.runtime.spawn("delete", async move { volume.delete(&[Deletion::freed(id(1))]).await })
            };
            rig.runtime.sleep(Duration::from_micros(step * 60)).await;
            drop(volume);
            rig.crash();
            drop(task);
            let volume = rig.open().await.unwrap();
            let there = volume.report(None, 9).len();
            assert_eq!(late_first_write(&volume, 1, 1).await, Some(ErrorKind::StaleEpoch));
            there
        });
        outcomes[there] += 1;
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}

#[test]
fn an_excess_replica_may_come_back_and_old_deletions_do_not_hit_it() {
    in_world(4, |mut rig| async move {
        let (source, volume) = two_volumes(&rig).await;
        let from = Source::new(&source);
        volume.pull(pull(&volume, 3, version(1, 3)), &from).await.unwrap();
        let old = Deletion { metablock: id(1), epoch: Some(Epoch::new(3)), life: Some(life(&volume, 1).await) };
        volume.delete(&[old]).await.unwrap();
        assert_eq!(volume.replica_count(), 0);
        // A holder or a repair of an older epoch does not bring it back; one of the same epoch does.
        let stale = volume.pull(pull(&volume, 2, version(1, 3)), &from).await.unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::StaleEpoch);
        assert_eq!(late_first_write(&volume, 1, 2).await, Some(ErrorKind::StaleEpoch));
        volume.pull(pull(&volume, 3, version(1, 3)), &from).await.unwrap();
        let expected = source.read_all(id(1), version(1, 3)).await.unwrap();
        for _ in 0..2 {
            // The same deletion comes late, and again after a crash.
            let volume = rig.open_again(&volume).await;
            volume.delete(&[old]).await.unwrap();
            assert_eq!(volume.read_all(id(1), version(1, 3)).await.unwrap(), expected);
        }
        // A copy that found everything in place joins a set, too. So an earlier deletion must not hit it.
        let volume = rig.open().await.unwrap();
        let before = life(&volume, 1).await;
        volume.pull(pull(&volume, 3, version(1, 3)), &Source { break_at: 0, ..from.clone() }).await.unwrap();
        volume.delete(&[Deletion { life: Some(before), ..old }]).await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 3)).await.unwrap(), expected);
        let meant = Deletion { life: Some(life(&volume, 1).await), ..old };
        volume.delete(&[meant]).await.unwrap();
        assert_eq!(volume.replica_count(), 0);
    });
}

#[test]
fn a_deletion_that_found_no_room_is_done_when_it_is_asked_for_again() {
    in_world(5, |mut rig| async move {
        let volume = rig.open().await.unwrap();
        Writer::new(&volume, 1).send(data(0, &bytes(300_000, 1)), true).await.unwrap();
        let deletion = Deletion { metablock: id(1), epoch: Some(Epoch::new(1)), life: Some(life(&volume, 1).await) };
        rig.virt_process().plan_disk_fault(PlannedFault::no_space(DiskWork::Write, "journal-"));
        assert_eq!(volume.delete(&[deletion]).await.unwrap_err().kind(), ErrorKind::NoSpace);
        volume.delete(&[deletion]).await.unwrap();
        assert_eq!(volume.replica_count(), 0);
        drop(volume);
        rig.crash();
        assert!(rig.open().await.unwrap().report(None, 9).is_empty());
    });
}

#[test]
fn deletions_share_their_syncs() {
    in_world(6, |rig: Rig| async move {
        let volume = rig.open().await.unwrap();
        for raw in 1..=100 {
            Writer::new(&volume, raw).send(data(0, &bytes(10, 1)), false).await.unwrap();
        }
        let before = volume.sync_count();
        volume.delete(&(1..=100).map(|raw| Deletion::freed(id(raw))).collect::<Vec<_>>()).await.unwrap();
        assert!(volume.sync_count() - before < 5, "{} syncs", volume.sync_count() - before);
    });
}
