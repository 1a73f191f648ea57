//! Copies from another volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_types::{CHUNK_SIZE, Epoch, ErrorKind, Version, err};

use super::damage::flip;
use super::rig::{Rig, Writer, bytes, data, id, in_world, version};
use crate::{Change, Found, Pull, PullFuture, PullSource, SourceChunks, Volume};

/// Another volume of the same process, with faults.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) volume: Volume,
    pub(super) reads: Arc<AtomicU64>,
    /// At this read the source is written to.
    pub(super) move_on_at: u64,
    /// At this read the connection breaks.
    pub(super) break_at: u64,
    /// From this read on bytes are damaged.
    pub(super) damage_from: u64,
}

impl Source {
    pub(super) fn new(volume: &Volume) -> Self {
        let never = u64::MAX;
        Self { volume: volume.clone(), reads: Arc::default(), move_on_at: never, break_at: never, damage_from: never }
    }
}

impl PullSource for Source {
    fn read(&self, min_version: Version, offset: u64, len: u64) -> PullFuture<'_, SourceChunks> {
        Box::pin(async move {
            let number = self.reads.fetch_add(1, Ordering::Relaxed);
            if number == self.break_at {
                return Err(err!(Disconnected, "the connection broke"));
            }
            if number == self.move_on_at {
                let mut writer = Writer { volume: &self.volume, metablock: id(1), at: min_version };
                writer.send(data(10, &bytes(10, 99)), false).await?;
            }
            let part = self.volume.read(id(1), min_version, offset, len).await?;
            let mut data = part.data.into_bytes().await?.to_vec();
            if number >= self.damage_from {
                data[0] ^= 1;
            }
            Ok(SourceChunks {
                version: part.version,
                length: part.length,
                checksums: part.checksums,
                data: data.into(),
            })
        })
    }

    fn seek(&self, min_version: Version, offset: u64, hole: bool) -> PullFuture<'_, Found> {
        Box::pin(self.volume.seek(id(1), min_version, offset, hole))
    }
}

pub(super) async fn two_volumes(rig: &Rig) -> (Volume, Volume) {
    let other = Rig { root: "/data/v2".into(), ..rig.clone() };
    let source = other.open().await.unwrap();
    let mut writer = Writer::new(&source, 1);
    writer.send(data(0, &bytes(3_000_000, 1)), false).await.unwrap();
    writer.send(Change::Truncate { length: 20_000_000 }, false).await.unwrap();
    writer.send(data(19_000_001, &bytes(100_000, 2)), true).await.unwrap();
    (source, rig.open().await.unwrap())
}

pub(super) fn pull(volume: &Volume, epoch: u64, at: Version) -> Pull {
    let incarnation = volume.label().incarnation;
    Pull { metablock: id(1), incarnation, epoch: Epoch::new(epoch), at, anew: false, rate_bytes_per_sec: 0 }
}

#[test]
fn a_copy_equals_its_source_and_survives_a_crash() {
    in_world(1, |mut rig| async move {
        let (source, volume) = two_volumes(&rig).await;
        // An older replica is there already.
        Writer::new(&volume, 1).send(data(0, &bytes(500, 7)), false).await.unwrap();
        let from = Source { break_at: 2, ..Source::new(&source) };
        let done = volume.pull(pull(&volume, 1, version(1, 3)), &from).await.unwrap();
        assert_eq!((done.version, done.length), (version(1, 3), 20_000_000));
        let expected = source.read_all(id(1), version(1, 3)).await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 3)).await.unwrap(), expected);
        // Holes are not read and not written.
        assert!(from.reads.load(Ordering::Relaxed) < 8);
        assert!(volume.describe(id(1)).await.unwrap().unwrap().allocated_bytes < 3_300_000);
        // Again: it is there.
        volume.pull(pull(&volume, 1, version(1, 3)), &Source { break_at: 0, ..Source::new(&source) }).await.unwrap();
        drop((source, volume, from));
        rig.crash();
        let volume = rig.open().await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 3)).await.unwrap(), expected);
        // Life goes on from there, and over another crash.
        let mut writer = Writer { volume: &volume, metablock: id(1), at: version(1, 3) };
        writer.send(data(1000, &bytes(50, 5)), true).await.unwrap();
        drop(volume);
        rig.crash();
        let volume = rig.open().await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 4)).await.unwrap().1[1000..1050], bytes(50, 5));
    });
}

/// Goal: a replica that a reader elsewhere found damaged is copied over, though nothing here has met the damage.
#[test]
fn a_replica_that_is_there_is_compared_with_its_sums_and_copied_over_if_it_is_damaged() {
    in_world(10, |rig| async move {
        let (source, volume) = two_volumes(&rig).await;
        volume.pull(pull(&volume, 1, version(1, 3)), &Source::new(&source)).await.unwrap();
        let file = volume.describe(id(1)).await.unwrap().unwrap().file;
        flip(&rig, file.as_ref(), 19_050_000).await;
        let from = Source::new(&source);
        volume.pull(pull(&volume, 1, version(1, 3)), &from).await.unwrap();
        assert!(from.reads.load(Ordering::Relaxed) > 0, "the source was read");
        let expected = source.read_all(id(1), version(1, 3)).await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 3)).await.unwrap(), expected);
    });
}

/// Goal: a replica that is not what was written is copied over, though it matches its sums; over a crash, too.
#[test]
fn a_replica_is_copied_anew_where_that_is_asked_for() {
    in_world(11, |mut rig| async move {
        let (source, volume) = two_volumes(&rig).await;
        let mut writer = Writer::new(&volume, 1);
        for seed in [7, 8, 9] {
            writer.send(data(0, &bytes(20_000, seed)), true).await.unwrap();
        }
        let wanted = pull(&volume, 1, version(1, 3));
        volume.pull(wanted, &Source { break_at: 0, ..Source::new(&source) }).await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 3)).await.unwrap().1, bytes(20_000, 9), "it is there already");
        volume.pull(Pull { anew: true, ..wanted }, &Source::new(&source)).await.unwrap();
        let expected = source.read_all(id(1), version(1, 3)).await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 3)).await.unwrap(), expected);
        drop((source, volume));
        rig.crash();
        let volume = rig.open().await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 3)).await.unwrap(), expected);
    });
}

/// Zeros in any chunks of a piece, at its edges too, are left out of the file, and all else is written where it belongs.
#[test]
fn zeros_within_a_piece_become_holes() {
    in_world(9, |mut rig| async move {
        let other = Rig { root: "/data/v2".into(), ..rig.clone() };
        let (source, volume) = (other.open().await.unwrap(), rig.open().await.unwrap());
        let chunk = CHUNK_SIZE as usize;
        let mut content = bytes(200 * chunk + 77, 3).to_vec();
        let holes = [0..1, 5..9, 10..11, 62..66, 128..192, 199..200];
        holes.iter().for_each(|hole| content[hole.start * chunk..hole.end * chunk].fill(0));
        Writer::new(&source, 1).send(data(0, &content.clone().into()), true).await.unwrap();
        volume.pull(pull(&volume, 1, version(1, 1)), &Source::new(&source)).await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 1)).await.unwrap().1, content);
        let kept = 201 - holes.iter().map(std::ops::Range::len).sum::<usize>();
        let allocated = volume.describe(id(1)).await.unwrap().unwrap().allocated_bytes;
        assert!(allocated <= (kept * chunk) as u64, "{allocated} bytes for {kept} chunks");
        drop((source, volume));
        rig.crash();
        let volume = rig.open().await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 1)).await.unwrap().1, content);
    });
}

#[test]
fn a_source_that_moves_on_is_copied_again() {
    in_world(2, |rig| async move {
        let (source, volume) = two_volumes(&rig).await;
        let from = Source { move_on_at: 2, ..Source::new(&source) };
        let done = volume.pull(pull(&volume, 1, version(1, 3)), &from).await.unwrap();
        assert_eq!(done.version, version(1, 4));
        assert_eq!(
            volume.read_all(id(1), version(1, 4)).await.unwrap(),
            source.read_all(id(1), version(1, 4)).await.unwrap()
        );
    });
}

#[test]
fn a_failed_copy_leaves_the_old_replica() {
    in_world(3, |mut rig| async move {
        let (source, volume) = two_volumes(&rig).await;
        let damaged = Source { damage_from: 1, ..Source::new(&source) };
        let error = volume.pull(pull(&volume, 1, version(1, 3)), &damaged).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(volume.replica_count(), 1, "the promise stays");
        assert_eq!(volume.read_all(id(1), Version::ZERO).await.unwrap().0, Version::ZERO);
        Writer::new(&volume, 1).send(data(0, &bytes(500, 7)), true).await.unwrap();
        let error = volume.pull(pull(&volume, 1, version(1, 3)), &damaged).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(volume.read_all(id(1), version(1, 1)).await.unwrap().1, bytes(500, 7));
        // A lower epoch than promised, a source below the version.
        volume.promise(id(1), volume.label().incarnation, Epoch::new(4)).await.unwrap();
        let good = Source::new(&source);
        assert_eq!(
            volume.pull(pull(&volume, 3, version(1, 3)), &good).await.unwrap_err().kind(),
            ErrorKind::StaleEpoch
        );
        assert_eq!(
            volume.pull(pull(&volume, 4, version(2, 0)), &good).await.unwrap_err().kind(),
            ErrorKind::StaleVersion
        );
        drop((source, volume, good, damaged));
        rig.crash();
        let volume = rig.open().await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 1)).await.unwrap().1, bytes(500, 7));
        let names = rig.runtime.disk().read_dir(&rig.root.join("replicas/01")).await.unwrap();
        assert_eq!(names, ["0000000000000001"]);
    });
}

#[test]
fn writes_are_refused_while_a_copy_is_made_and_crashes_leave_old_or_new() {
    for seed in 0..12 {
        in_world(100 + seed, |mut rig| async move {
            let (source, volume) = two_volumes(&rig).await;
            let old = bytes(500, 7);
            Writer::new(&volume, 1).send(data(0, &old), true).await.unwrap();
            let task = {
                let (volume, source) = (volume.clone(), Source::new(&source));
                let pull = pull(&volume, 1, version(1, 3));
                rig.runtime.spawn("pull", async move { volume.pull(pull, &source).await })
            };
            rig.runtime.sleep(std::time::Duration::from_micros(500 + seed * 1500)).await;
            let mut writer = Writer { volume: &volume, metablock: id(1), at: version(1, 1) };
            let refused = writer.send(data(0, &bytes(5, 1)), false).await;
            let early = refused.is_err_and(|error| error.kind() == ErrorKind::Busy);
            assert!(early || seed > 2, "the copy was done after {seed} steps");
            drop(volume);
            rig.crash();
            drop(task);
            let volume = rig.open().await.unwrap();
            let (at, found) = volume.read_all(id(1), version(1, 1)).await.unwrap();
            match at.seq {
                1 => assert_eq!(found, old),
                _ => assert_eq!(found.len(), 20_000_000),
            }
        });
    }
}
