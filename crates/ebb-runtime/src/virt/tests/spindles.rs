//! Disks of several spindles, and what these do side by side.

mod failures;

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::ErrorKind;
use parking_lot::Mutex;

use super::super::{DiskOptions, Process, World, WorldOptions};
use super::with_seeds;
use crate::{File, OpenMode, Runtime, Task};

/// Bytes of one request of a stream.
const PIECE: usize = 1 << 20;

/// Pieces of a stream: 64 MiB, which one spindle here reads in 0.64 s.
const PIECES: usize = 64;

fn volume(number: usize) -> PathBuf {
    format!("/block/volume-{number}").into()
}

/// A disk of plain spindles, one for each volume: 100 MiB/s, and 8 ms for a seek.
fn split(process: &Process, volumes: usize) {
    let plain = DiskOptions {
        jitter_ratio: 0.0,
        seek: Duration::from_millis(8),
        bandwidth_bytes_per_sec: 100 << 20,
        ..process.disk_options()
    };
    process.set_disk_options(plain);
    process.split_disk(&(1..=volumes).map(volume).collect::<Vec<_>>());
}

fn filled(byte: u8, len: usize) -> Vec<Bytes> {
    vec![Bytes::from(vec![byte; len])]
}

/// A new file with synced bytes and a synced name.
async fn file(runtime: &Runtime, path: &Path, len: usize) -> File {
    let disk = runtime.disk();
    let file = disk.open(path, OpenMode::CreateNew).await.unwrap();
    file.write_at(0, filled(1, len)).await.unwrap();
    file.sync_data().await.unwrap();
    disk.sync_dir(path.parent().unwrap()).await.unwrap();
    file
}

/// Reads whole files, each by one task with one request at a time. Returns the seconds until all are read.
async fn stream_all(world: &World, runtime: &Runtime, files: &[File]) -> f64 {
    let start = world.now();
    let streams = files.iter().cloned().map(|file| {
        runtime.spawn("stream", async move {
            for piece in 0..PIECES {
                file.read_at((piece * PIECE) as u64, PIECE).await.unwrap();
            }
        })
    });
    for stream in streams.collect::<Vec<_>>() {
        stream.join().await.unwrap();
    }
    (world.now() - start).as_secs_f64()
}

/// Two streams on two spindles take as long as one. On one they share its rate, and it seeks between them.
#[test]
fn streams_on_different_spindles_go_side_by_side() {
    World::run(1, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        split(&process, 2);
        let runtime = process.runtime();
        let mut files = Vec::new();
        for (number, name) in [(1, "a"), (1, "b"), (2, "c")] {
            files.push(file(&runtime, &volume(number).join(name), PIECE * PIECES).await);
        }
        let [a, b, c] = files.try_into().unwrap();
        let alone = stream_all(&world, &runtime, std::slice::from_ref(&a)).await;
        assert!((0.64..0.67).contains(&alone), "one disk's rate: {alone} s");
        let apart = stream_all(&world, &runtime, &[a.clone(), c]).await;
        assert!(apart < alone * 1.02, "{apart} s for two, {alone} s for one");
        process.set_disk_options(DiskOptions { seek: Duration::ZERO, ..process.disk_options() });
        let together = stream_all(&world, &runtime, &[a.clone(), b.clone()]).await;
        assert!((1.95..2.05).contains(&(together / alone)), "{together} s for two, {alone} s for one");
        process.set_disk_options(DiskOptions { seek: Duration::from_millis(8), ..process.disk_options() });
        let seeking = stream_all(&world, &runtime, &[a, b]).await;
        let seeks = 0.008 * 2.0 * PIECES as f64;
        assert!((together + seeks * 0.95..together + seeks * 1.05).contains(&seeking), "{seeking} s with seeks");
    });
}

/// One stream that goes over all spindles in turn has the rate of all, if enough of it is asked for at a time; with one
/// request at a time it has the rate of one.
#[test]
fn a_stream_over_all_spindles_has_the_rate_of_all() {
    World::run(2, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        split(&process, 4);
        let runtime = process.runtime();
        let mut files = Vec::new();
        for number in 1..=4 {
            files.push(file(&runtime, &volume(number).join("f"), PIECE * PIECES / 4).await);
        }
        let read = |in_flight: usize| {
            let (world, runtime, files) = (world.clone(), runtime.clone(), files.clone());
            async move {
                let start = world.now();
                let mut tasks = VecDeque::new();
                for piece in 0..PIECES {
                    if tasks.len() == in_flight {
                        let first: Task<()> = tasks.pop_front().unwrap();
                        first.join().await.unwrap();
                    }
                    let file = files[piece % 4].clone();
                    tasks.push_back(runtime.spawn("piece", async move {
                        file.read_at((piece / 4 * PIECE) as u64, PIECE).await.unwrap();
                    }));
                }
                for task in tasks {
                    task.join().await.unwrap();
                }
                (world.now() - start).as_secs_f64()
            }
        };
        let (one, all) = (read(1).await, read(8).await);
        assert!((0.64..0.70).contains(&one), "one disk's rate: {one} s");
        assert!((0.16..0.18).contains(&all), "four disks' rate: {all} s");
    });
}

#[test]
fn writes_and_syncs_on_different_spindles_go_side_by_side() {
    World::run(3, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        split(&process, 2);
        let runtime = process.runtime();
        let mut took = Vec::new();
        for volumes in [[1, 1], [1, 2]] {
            let mut files = Vec::new();
            for (name, number) in volumes.into_iter().enumerate() {
                let path = volume(number).join(format!("{} {name}", took.len()));
                files.push(runtime.disk().open(&path, OpenMode::Create).await.unwrap());
            }
            let start = world.now();
            let writers = files.into_iter().map(|file| {
                runtime.spawn("write", async move {
                    file.write_at(0, filled(1, 50 << 20)).await.unwrap();
                    file.sync_data().await.unwrap();
                })
            });
            for writer in writers.collect::<Vec<_>>() {
                writer.join().await.unwrap();
            }
            took.push((world.now() - start).as_secs_f64());
        }
        assert!((0.98..1.05).contains(&took[0]) && (0.49..0.54).contains(&took[1]), "{took:?}");
    });
}

/// What lies in no volume is on the first spindle, and shares its time.
#[test]
fn files_outside_of_all_volumes_are_on_the_first_spindle() {
    World::run(4, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        split(&process, 2);
        let runtime = process.runtime();
        let identity = file(&runtime, Path::new("/block/identity"), 4096).await;
        let mut waits = Vec::new();
        for number in [1, 2] {
            let long = file(&runtime, &volume(number).join("long"), 50 << 20).await;
            let reading = runtime.spawn("read", async move { long.read_at(0, 50 << 20).await.unwrap() });
            world.sleep(Duration::from_micros(10)).await;
            let start = world.now();
            identity.read_at(0, 4096).await.unwrap();
            waits.push(world.now() - start > Duration::from_millis(400));
            reading.join().await.unwrap();
        }
        assert_eq!(waits, [true, false]);
        assert_eq!(runtime.disk().read_dir(Path::new("/block")).await.unwrap(), ["identity", "volume-1", "volume-2"]);
    });
}

#[test]
fn each_spindle_has_its_own_device_and_space() {
    World::run(5, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        let before = process.runtime().disk().space(Path::new("/")).await.unwrap();
        split(&process, 2);
        let first = process.spindle(&volume(1));
        first.set_options(DiskOptions { capacity_bytes: 1 << 20, ..first.options() });
        let second = process.spindle(&volume(2));
        second.set_options(DiskOptions { capacity_bytes: 4 << 20, ..second.options() });
        let runtime = process.runtime();
        let space = |path: PathBuf| {
            let disk = runtime.disk();
            async move { disk.space(&path).await.unwrap() }
        };
        let (one, two) = (space(volume(1).join("deep")).await, space(volume(2)).await);
        assert_eq!((one.capacity_bytes, two.capacity_bytes), (1 << 20, 4 << 20));
        assert!(one.device != two.device && one.device != 0 && two.device != 0);
        assert_eq!(space("/block".into()).await, one);
        assert_eq!(before.device, one.device, "the first one is the disk that there was");
        let other = world.process("h11");
        split(&other, 2);
        let theirs = other.runtime().disk().space(&volume(2)).await.unwrap().device;
        assert!(![one.device, two.device].contains(&theirs));

        let full = runtime.disk().open(&volume(1).join("f"), OpenMode::Create).await.unwrap();
        let roomy = runtime.disk().open(&volume(2).join("f"), OpenMode::Create).await.unwrap();
        assert_eq!(full.write_at(0, filled(1, 2 << 20)).await.unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(space(volume(1)).await.free_bytes, 0);
        assert_eq!(space(volume(2)).await, two);
        roomy.write_at(0, filled(1, 2 << 20)).await.unwrap();
        assert_eq!(space(volume(2)).await.free_bytes, 2 << 20);
        second.fill(Some(4096));
        assert_eq!(roomy.write_at(2 << 20, filled(1, 8192)).await.unwrap_err().kind(), ErrorKind::NoSpace);
        second.fill(None);
        roomy.write_at(2 << 20, filled(1, 8192)).await.unwrap();
    });
}

#[test]
fn a_slow_spindle_slows_no_other_one() {
    World::run(6, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        split(&process, 2);
        let runtime = process.runtime();
        let mut files = Vec::new();
        for number in [1, 2] {
            files.push(file(&runtime, &volume(number).join("f"), PIECE * PIECES).await);
        }
        process.spindle(&volume(2)).slow(10.0);
        let fast = stream_all(&world, &runtime, &files[..1]).await;
        let slow = stream_all(&world, &runtime, &files[1..]).await;
        assert!(fast < 0.67 && (6.4..6.7).contains(&slow), "{fast} s and {slow} s");
        process.slow_disk(1.0);
        let healed = stream_all(&world, &runtime, &files).await;
        assert!(healed < 0.67, "{healed} s");
    });
}

/// A rename between file systems moves nothing; programs copy.
#[test]
fn no_rename_goes_from_one_spindle_to_another() {
    World::run(7, WorldOptions::default(), |world| async move {
        let process = world.process("h1");
        split(&process, 2);
        let runtime = process.runtime();
        let (here, there) = (volume(1).join("f"), volume(2).join("f"));
        file(&runtime, &here, 100).await;
        let error = runtime.disk().rename(&here, &there).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CrossDevice);
        // The first volume and what lies beside it are on one spindle.
        runtime.disk().rename(&here, Path::new("/block/f")).await.unwrap();
    });
}

/// Over seeds, each spindle loses unsynced bytes, keeps them and tears them, whatever becomes of the other's. Syncing the
/// file system of one leaves the other's unsynced.
#[test]
fn a_power_cut_loses_unsynced_bytes_on_each_spindle() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    with_seeds(0..150, |world| {
        let seen = seen.clone();
        async move {
            let process = world.process("h1");
            split(&process, 3);
            let runtime = process.runtime();
            for number in 1..=3 {
                let file = file(&runtime, &volume(number).join("f"), 8192).await;
                file.write_at(0, filled(2, 8192)).await.unwrap();
            }
            runtime.disk().file_system(&volume(3)).await.unwrap().sync_all().await.unwrap();
            process.crash();
            let disk = process.restart().disk();
            let mut fates = [""; 3];
            for (number, fate) in (1..=3).zip(&mut fates) {
                let data = disk.read(&volume(number).join("f")).await.unwrap();
                assert_eq!(data.len(), 8192, "the first bytes were synced");
                *fate = match data.iter().filter(|byte| **byte == 2).count() {
                    0 => "lost",
                    8192 => "kept",
                    _ => "torn",
                };
            }
            assert_eq!(fates[2], "kept", "it was synced");
            seen.lock().insert((fates[0], fates[1]));
        }
    });
    assert_eq!(seen.lock().len(), 9, "{:?}", seen.lock());
}
