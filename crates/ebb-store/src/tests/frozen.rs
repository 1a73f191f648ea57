//! Replicas that never change again, and those that serve decoding alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ebb_types::{CHUNK_SIZE, Epoch, ErrorKind, Incarnation, Version};

use super::rig::{Writer, bytes, data, id, in_world, version};
use crate::{Deletion, Purpose, Reader, Volume};

#[derive(Debug, Default)]
struct Revocation(AtomicBool);

impl Reader for Revocation {
    fn revoke(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn incarnation(volume: &Volume) -> Incarnation {
    volume.label().incarnation
}

#[test]
fn a_frozen_replica_refuses_every_change_and_stays_frozen_after_a_crash() {
    in_world(51, |mut rig| async move {
        let volume = rig.open().await.unwrap();
        let mut writer = Writer::new(&volume, 1);
        writer.send(data(0, &bytes(50_000, 1)), true).await.unwrap();
        let told = volume.promise(id(1), incarnation(&volume), Epoch::FROZEN).await.unwrap();
        assert_eq!((told.version, told.length), (version(1, 1), 50_000));
        assert_eq!(writer.send(data(0, &bytes(5, 2)), false).await.unwrap_err().kind(), ErrorKind::StaleEpoch);
        let volume = rig.open_again(&volume).await;
        let recovery = volume.promise(id(1), incarnation(&volume), Epoch::new(9)).await.unwrap_err();
        assert_eq!(recovery.kind(), ErrorKind::StaleEpoch);
        let stamp = volume.stamp(id(1), incarnation(&volume), Epoch::new(9), version(1, 1), 10).await.unwrap_err();
        assert_eq!(stamp.kind(), ErrorKind::StaleEpoch);
        assert_eq!(volume.report(None, 9)[0].promised, Epoch::FROZEN);
        assert_eq!(volume.read_all(id(1), version(1, 1)).await.unwrap().1, bytes(50_000, 1));
        volume.promise(id(1), incarnation(&volume), Epoch::FROZEN).await.unwrap();
    });
}

#[test]
fn a_retired_replica_serves_decoding_alone() {
    in_world(52, |mut rig| async move {
        let volume = rig.open().await.unwrap();
        Writer::new(&volume, 1).send(data(0, &bytes(50_000, 1)), true).await.unwrap();
        let revocation = Arc::new(Revocation::default());
        let reader: Arc<dyn Reader> = revocation.clone();
        volume.open_short_circuit(id(1), Version::ZERO, Arc::downgrade(&reader)).await.unwrap();
        volume.promise(id(1), incarnation(&volume), Epoch::RETIRED).await.unwrap();
        assert!(revocation.0.load(Ordering::SeqCst), "who has a descriptor is told");

        let volume = rig.open_again(&volume).await;
        let retired = Some(ErrorKind::NoReplica);
        let read = volume.read(id(1), version(1, 1), 0, CHUNK_SIZE).await;
        assert_eq!(read.map(drop).map_err(|error| error.kind()).err(), retired);
        let found = volume.seek(id(1), version(1, 1), 0, false).await;
        assert_eq!(found.map(drop).map_err(|error| error.kind()).err(), retired);
        let opened = volume.open_short_circuit(id(1), version(1, 1), Arc::downgrade(&reader)).await;
        assert_eq!(opened.map(drop).map_err(|error| error.kind()).err(), retired);
        let read = volume.read_for(Purpose::Decoding, id(1), version(1, 1), 0, CHUNK_SIZE).await.unwrap();
        assert_eq!(read.data.into_bytes().await.unwrap(), bytes(50_000, 1)[..CHUNK_SIZE as usize]);
        let back = volume.promise(id(1), incarnation(&volume), Epoch::FROZEN).await.unwrap_err();
        assert_eq!(back.kind(), ErrorKind::StaleEpoch, "what a file has lost does not come back");
        volume.delete(&[Deletion::freed(id(1))]).await.unwrap();
        assert!(volume.report(None, 9).is_empty());
    });
}

#[test]
fn a_promise_above_all_writers_makes_no_replica() {
    in_world(53, |rig| async move {
        let volume = rig.open().await.unwrap();
        for epoch in [Epoch::FROZEN, Epoch::RETIRED] {
            let absent = volume.promise(id(1), incarnation(&volume), epoch).await.unwrap_err();
            assert_eq!(absent.kind(), ErrorKind::NoReplica);
        }
        assert!(volume.report(None, 9).is_empty());
        // A copy that goes, and comes back when it is needed after all: its fence is as high as what it had promised.
        let mut writer = Writer::new(&volume, 2);
        writer.send(data(0, &bytes(100, 1)), true).await.unwrap();
        volume.promise(id(2), incarnation(&volume), Epoch::FROZEN).await.unwrap();
        let life = volume.describe(id(2)).await.unwrap().unwrap().life;
        let leaving = Deletion { metablock: id(2), epoch: Some(Epoch::FROZEN), life: Some(life) };
        volume.delete(&[leaving]).await.unwrap();
        let absent = volume.promise(id(2), incarnation(&volume), Epoch::FROZEN).await.unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::NoReplica);
        assert_eq!(writer.send(data(0, &bytes(100, 1)), true).await.unwrap_err().kind(), ErrorKind::StaleEpoch);
    });
}
