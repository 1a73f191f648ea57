//! Readers with descriptors: they are notified in time, and never see bytes that are not the replica's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_types::{CHUNK_SIZE, Epoch, ErrorKind, Version};

use super::rig::{Writer, act, bytes, data, id, in_reality, in_world, version};
use crate::crc::crc32c;
use crate::{Change, Deletion, Reader, ShortCircuitReplica, Volume};

#[derive(Debug, Default)]
struct Revocation(AtomicBool);

impl Reader for Revocation {
    fn revoke(&self) {
        assert!(!self.0.swap(true, Ordering::SeqCst), "revoked twice");
    }
}

impl Revocation {
    fn has_come(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

async fn open(volume: &Volume, metablock: u64) -> (ShortCircuitReplica, Arc<Revocation>) {
    let revocation = Arc::new(Revocation::default());
    let reader: Arc<dyn Reader> = revocation.clone();
    let shared = volume.open_short_circuit(id(metablock), Version::ZERO, Arc::downgrade(&reader)).await.unwrap();
    (shared, revocation)
}

/// The replica's bytes, if each chunk matches its sum.
async fn read(shared: &ShortCircuitReplica) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    for (offset, at, len) in &shared.runs {
        assert_eq!(*offset, found.len() as u64);
        found.extend_from_slice(&shared.file.read_at(*at, *len as usize).await.unwrap());
    }
    let sound = found.chunks(CHUNK_SIZE as usize).map(crc32c).eq(shared.checksums.iter().copied());
    (sound && found.len() as u64 == shared.length).then_some(found)
}

#[test]
fn synced_bytes_lie_in_the_file_and_every_change_revokes_it() {
    for reality in [false, true] {
        let body = |rig: super::rig::Rig| async move {
            let volume = rig.open().await.unwrap();
            let mut writer = Writer::new(&volume, 1);
            let mut model = Vec::new();
            let changes = [
                data(0, &bytes(300_000, 1)),
                data(5, &bytes(100, 2)),
                data(300_000, &bytes(9, 3)),
                data(32_768, &bytes(131_072, 4)),
                data(327_680, &bytes(131_072, 5)),
                Change::Punch { offset: 70_000, len: 50_000 },
                Change::Zero { offset: 10, len: 20_000 },
                Change::Truncate { length: 200_001 },
                Change::Truncate { length: 250_000 },
            ];
            let mut before: Option<Arc<Revocation>> = None;
            for (number, change) in changes.into_iter().enumerate() {
                act(&mut model, &change);
                writer.send(change, number % 2 == 0).await.unwrap();
                assert!(before.is_none_or(|revocation| revocation.has_come()), "change {number}");
                let (shared, revocation) = open(&volume, 1).await;
                assert_eq!(shared.version, writer.at);
                assert!(read(&shared).await.unwrap() == model, "after change {number}");
                assert!(!revocation.has_come());
                before = Some(revocation);
            }
            let revocation = before.unwrap();
            volume.promise(id(1), volume.label().incarnation, Epoch::new(5)).await.unwrap();
            assert!(revocation.has_come());
            let (shared, revocation) = open(&volume, 1).await;
            volume.delete(&[Deletion::freed(id(1))]).await.unwrap();
            assert!(revocation.has_come());
            Writer::new(&volume, 2).send(data(0, &bytes(300_000, 9)), true).await.unwrap();
            assert!(read(&shared).await.unwrap() == model, "the deleted file still has its bytes");
            let (_, revocation) = open(&volume, 2).await;
            volume.stop().await.unwrap();
            assert!(revocation.has_come(), "a volume that is closed serves nothing");
        };
        if reality { in_reality(body) } else { in_world(1, body) }
    }
}

#[test]
fn a_reader_without_revocation_has_read_one_version_whole() {
    for seed in 0..20 {
        in_world(seed, |rig| async move {
            let volume = rig.open().await.unwrap();
            Writer::new(&volume, 1).send(data(0, &bytes(200_000, 0)), true).await.unwrap();
            let (runtime, written) = (rig.runtime.clone(), volume.clone());
            let done = Arc::new(AtomicBool::new(false));
            let ended = done.clone();
            let writing = rig.runtime.spawn("write", async move {
                let mut writer = Writer { volume: &written, metablock: id(1), at: version(1, 1) };
                for turn in 0..60u64 {
                    let offset = runtime.random_u64() % 150_000;
                    let change = match turn % 5 {
                        4 => Change::Truncate { length: 100_000 + offset },
                        3 => Change::Punch { offset, len: 30_000 },
                        2 => data(offset / CHUNK_SIZE * CHUNK_SIZE, &bytes(CHUNK_SIZE as usize * 5, turn as u8)),
                        turn => data(offset, &bytes(5_000 << turn, turn as u8)),
                    };
                    writer.send(change, turn % 3 == 0).await.unwrap();
                    runtime.sleep(Duration::from_micros(runtime.random_u64() % 3000)).await;
                }
                ended.store(true, Ordering::SeqCst);
            });
            let (mut whole, mut revoked_late) = (0, 0);
            while !done.load(Ordering::SeqCst) {
                let revocation = Arc::new(Revocation::default());
                let reader: Arc<dyn Reader> = revocation.clone();
                match volume.open_short_circuit(id(1), version(1, 1), Arc::downgrade(&reader)).await {
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Busy),
                    Ok(shared) => {
                        let found = read(&shared).await;
                        match revocation.has_come() {
                            true => revoked_late += 1,
                            false => whole += usize::from(found.expect("one version, whole").len() >= 100_000),
                        }
                    }
                }
                rig.runtime.sleep(Duration::from_micros(200)).await;
            }
            writing.join().await.unwrap();
            assert!(whole > 0 && revoked_late > 0, "{whole} {revoked_late}");
        });
    }
}

#[test]
fn a_replica_that_cannot_be_shown_is_refused() {
    in_world(3, |rig| async move {
        let volume = rig.open().await.unwrap();
        let revocation: Arc<dyn Reader> = Arc::new(Revocation::default());
        let open = |metablock, at| volume.open_short_circuit(id(metablock), at, Arc::downgrade(&revocation));
        assert_eq!(open(1, version(1, 1)).await.unwrap_err().kind(), ErrorKind::NoReplica);
        assert_eq!(open(1, Version::ZERO).await.unwrap_err().kind(), ErrorKind::Unsupported);
        Writer::new(&volume, 1).send(data(0, &bytes(10, 1)), true).await.unwrap();
        assert_eq!(open(1, version(1, 2)).await.unwrap_err().kind(), ErrorKind::StaleVersion);
        let incarnation = volume.label().incarnation;
        volume.promise(id(2), incarnation, Epoch::new(1)).await.unwrap();
        assert_eq!(open(2, Version::ZERO).await.unwrap_err().kind(), ErrorKind::Unsupported);
        for _ in 0..100 {
            let gone: Arc<dyn Reader> = Arc::new(Revocation::default());
            volume.open_short_circuit(id(1), version(1, 1), Arc::downgrade(&gone)).await.unwrap();
        }
        let replica = volume.shared.get(id(1)).unwrap();
        assert_eq!(replica.live.lock().readers.len(), 1, "dropped readers are forgotten");
        rig.runtime.disk().remove_file(&crate::files::replica_path(&rig.root, id(1))).await.unwrap();
        assert_eq!(volume.scrub(0).await.unwrap().corrupt, [id(1)]);
        assert_eq!(open(1, version(1, 1)).await.unwrap_err().kind(), ErrorKind::Corrupt);
    });
}
