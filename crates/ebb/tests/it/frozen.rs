//! A block server that is frozen for long, under reads and writes: a delay, and no failure.
//!
//! `EBB_FREEZE_SECONDS` sets for how long (12). The times of operations before, meanwhile and after, and second by
//! second, are printed (`cargo test --test it frozen -- --nocapture`); the test is about their results.

use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Cluster, Dice, Signal, pattern, signal};
use crate::watch::StopAtEnd;

const NODES: u32 = 5;
/// Files of each writer, and bytes of each file and of each operation.
const FILES: u64 = 16;
const FILE_BYTES: u64 = 1 << 20;
const PIECE: u64 = 64 << 10;
/// Before the freeze, and after it.
const QUIET: Duration = Duration::from_secs(5);
/// Operations may take longer for so long after the freeze begins.
const SETTLING: Duration = Duration::from_secs(5);

/// When an operation began, since the start of all, and how long it took.
type Timed = (Duration, Duration);

/// The work of one thread.
#[derive(Default)]
struct Done {
    writes: Vec<Timed>,
    reads: Vec<Timed>,
}

fn name(writer: u64, file: u64) -> String {
    format!("w{writer}-{file}")
}

/// Overwrites pieces of its files, each synced; returns their contents then.
fn write(mount: &Path, writer: u64, begun: Instant, stop: &AtomicBool) -> Result<(Done, Vec<Vec<u8>>)> {
    let mut dice = Dice::new(writer);
    let (mut done, mut model) = (Done::default(), vec![vec![0; FILE_BYTES as usize]; FILES as usize]);
    while !stop.load(Ordering::Relaxed) {
        let (file, piece) = (dice.below(FILES), dice.below(FILE_BYTES / PIECE));
        let data = pattern(PIECE as usize, dice.below(u64::MAX));
        let since = begun.elapsed();
        let open = OpenOptions::new().write(true).open(mount.join(name(writer, file)))?;
        open.write_all_at(&data, piece * PIECE)?;
        open.sync_data()?;
        done.writes.push((since, begun.elapsed() - since));
        let at = (piece * PIECE) as usize;
        model[file as usize][at..at + data.len()].copy_from_slice(&data);
    }
    Ok((done, model))
}

/// Reads pieces of all files on another mount, so that little of it is in a cache.
fn read(mount: &Path, writers: u64, begun: Instant, stop: &AtomicBool, seed: u64) -> Result<Done> {
    let (mut dice, mut done) = (Dice::new(seed), Done::default());
    let mut bytes = vec![0; PIECE as usize];
    while !stop.load(Ordering::Relaxed) {
        let path = mount.join(name(dice.below(writers), dice.below(FILES)));
        let since = begun.elapsed();
        File::open(path)?.read_exact_at(&mut bytes, dice.below(FILE_BYTES / PIECE) * PIECE)?;
        done.reads.push((since, begun.elapsed() - since));
    }
    Ok(done)
}

/// Prints how many there were between two moments, and how long they took.
fn print(label: &str, times: &[Timed], from: Duration, to: Duration) {
    let mut spans: Vec<Duration> = times.iter().filter(|at| (from..to).contains(&at.0)).map(|at| at.1).collect();
    spans.sort_unstable();
    let at = |share: usize| spans.get(spans.len().saturating_sub(1) * share / 100).copied().unwrap_or_default();
    eprintln!("{label:>28}: {:>6}  p50 {:>10.1?}  p99 {:>10.1?}  most {:>10.1?}", spans.len(), at(50), at(99), at(100));
}

/// Prints each second: how many operations began in it, and how long they took.
fn print_seconds(label: &str, times: &[Timed], froze: Duration, thawed: Duration) {
    let last = times.iter().map(|at| at.0.as_secs()).max().unwrap_or(0);
    for second in (0..=last).map(Duration::from_secs) {
        let next = second + Duration::from_secs(1);
        let is_frozen = second < thawed && next > froze;
        print(
            &format!("{label} {:>3} {}", second.as_secs(), if is_frozen { "frozen" } else { "" }),
            times,
            second,
            next,
        );
    }
}

/// A host with copies of the load's files, on which no mount is.
fn holder(cluster: &Cluster) -> String {
    let locations = cluster.json(&["fs", "locations", &format!("/{}", name(0, 0))]);
    let replicas = locations["metablocks"][0]["replicas"].as_array().unwrap();
    let mut hosts = replicas.iter().map(|replica| replica["host"].as_str().unwrap().to_owned());
    hosts.find(|host| host != "h1" && host != "h2").expect("three copies are on more than two hosts")
}

#[test]
fn a_block_server_frozen_for_long_delays_and_fails_nothing() {
    let frozen_for = std::env::var("EBB_FREEZE_SECONDS").map_or(12, |text| text.parse().expect("a number of seconds"));
    let frozen_for = Duration::from_secs(frozen_for);
    let cluster = Cluster::none();
    // With the time-outs that a cluster has by itself.
    cluster.ok(&["cluster", "up", "--nodes", &NODES.to_string()]);
    let mounts = [cluster.mount_as("a", "h1"), cluster.mount_as("b", "h2")];
    let writers = mounts.len() as u64;
    for (writer, file) in (0..writers).flat_map(|writer| (0..FILES).map(move |file| (writer, file))) {
        let made = File::create_new(mounts[0].join(name(writer, file))).unwrap();
        made.write_all_at(&vec![0; FILE_BYTES as usize], 0).unwrap();
        made.sync_all().unwrap();
    }
    let pid = cluster.pid("block", &holder(&cluster));
    let (begun, stop) = (Instant::now(), AtomicBool::new(false));
    let mut all = Done::default();
    let models: Vec<Vec<Vec<u8>>> = std::thread::scope(|scope| {
        let end = StopAtEnd(&stop);
        let ([writes_by, reads_by], stop) = (&mounts, &stop);
        let writing: Vec<_> =
            (0..writers).map(|writer| scope.spawn(move || write(writes_by, writer, begun, stop))).collect();
        let reading: Vec<_> =
            (0..writers).map(|seed| scope.spawn(move || read(reads_by, writers, begun, stop, seed + 9))).collect();
        std::thread::sleep(QUIET);
        signal(pid, Signal::STOP);
        let froze = begun.elapsed();
        std::thread::sleep(frozen_for);
        signal(pid, Signal::CONT);
        let thawed = begun.elapsed();
        std::thread::sleep(QUIET);
        drop(end);
        let reads = reading.into_iter().map(|thread| thread.join().unwrap().expect("no read fails"));
        reads.for_each(|done| all.reads.extend(done.reads));
        let writes = writing.into_iter().map(|thread| thread.join().unwrap().expect("no write fails"));
        let (done, models): (Vec<Done>, _) = writes.unzip();
        done.into_iter().for_each(|done| all.writes.extend(done.writes));
        for (kind, times) in [("writes", &all.writes), ("reads", &all.reads)] {
            print(&format!("{kind} before"), times, Duration::ZERO, froze);
            print(&format!("{kind}, first 5 s frozen"), times, froze, froze + SETTLING);
            print(&format!("{kind}, rest of the freeze"), times, froze + SETTLING, thawed);
            print(&format!("{kind} after"), times, thawed, Duration::MAX);
            print_seconds(kind, times, froze, thawed);
        }
        models
    });
    for (writer, model) in (0..).zip(&models) {
        for (file, wanted) in (0..).zip(model) {
            let found = std::fs::read(mounts[1].join(name(writer, file))).unwrap();
            assert!(found == *wanted, "{}: not its written content", name(writer, file));
        }
    }
    cluster.healthy();
}
