//! Reads of what a killed node had, beside the same reads before.
//!
//! Only metablocks whose slot is on that node are read: every byte of the second half is decoded.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use super::latency::{percentile, repeat, seconds};
use super::rig::{COLD, METABLOCK, Rig, all, read_range};
use super::{Bench, Figure, Measured, figure};
use crate::bench::aligned::Aligned;
use crate::bench::cpu;
use crate::bench::report::Aim;
use crate::bench::stream::DIRECT;

const NORMAL: &str = "all nodes up";
const STREAM: &str = "without a node: sequential read";
const CPU: &str = "without a node: processor time of it";
const RANDOM: &str = "without a node: 4 KiB random read, median";
const RANDOM_CPU: &str = "without a node: processor time of a 4 KiB random read";
const FIRST: &str = "without a node: first read after the loss";

/// The figures, in the order of the table.
pub const FIGURES: &[Figure] = &[
    figure(STREAM, "MB/s", NORMAL, Some(Aim::RatioAtLeast(0.35))),
    figure(CPU, "s/GiB", NORMAL, None),
    figure(RANDOM, "us", NORMAL, Some(Aim::RatioAtMost(2.0))),
    figure(RANDOM_CPU, "us", NORMAL, None),
    figure(FIRST, "us", NORMAL, None),
];

/// Bytes that a checksum is for: a client keeps no less.
const CHUNK: u64 = 16 << 10;
/// Chunks from one random read to the next. A large prime, so that each chunk comes once, and neighbours far apart.
const STEP: u64 = 1_000_003;

/// Reads of one kind of state.
struct Reads {
    first: f64,
    stream: f64,
    cpu: f64,
    random: f64,
    random_cpu: f64,
}

/// Measures all of them.
pub fn measure(bench: &Bench) -> Result<Vec<Measured>> {
    let rig = Rig::start(bench, 7, "4+2", METABLOCK, &[])?;
    rig.write("file", bench.bytes)?;
    rig.encode()?;
    let mut slots: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (index, host) in (0..).zip(rig.hosts_of("file")?) {
        slots.entry(host).or_default().push(index * METABLOCK);
    }
    let most = slots.into_iter().max_by_key(|(_, starts)| starts.len());
    let (host, starts) = most.ok_or_else(|| Error::other("no metablock has a host"))?;
    let normal = run(&rig, bench, &starts, || Ok(()))?;
    let degraded = run(&rig, bench, &starts, || rig.cluster.kill(&format!("block-{host}")))?;
    Ok(vec![
        Measured::new(STREAM, degraded.stream, normal.stream),
        Measured::new(CPU, degraded.cpu, normal.cpu),
        Measured::new(RANDOM, degraded.random, normal.random),
        Measured::new(RANDOM_CPU, degraded.random_cpu, normal.random_cpu),
        Measured::new(FIRST, degraded.first, normal.first),
    ])
}

/// Reads the metablocks that begin at `starts`, with cold caches, after a change of the cluster.
fn run(rig: &Rig, bench: &Bench, starts: &[u64], change: impl FnOnce() -> Result<()>) -> Result<Reads> {
    rig.cluster.chill()?;
    change()?;
    let path = rig.path(COLD).join("file");
    let file = File::open(&path)?;
    let first = seconds(|| file.read_exact_at(&mut [0; 1], starts[0] + METABLOCK / 2))? * 1e6;
    let bytes = starts.len() as u64 * METABLOCK;
    let before = rig.cpu();
    let spent = seconds(|| starts.iter().try_for_each(|start| read_range(&file, *start, METABLOCK)))?;
    let stream_cpu = all(&rig.cpu_since(&before, bytes));
    drop(file);
    // The mount forgets what it has read. The page caches of the nodes stay warm.
    rig.cluster.mount_anew()?;
    let file = OpenOptions::new().read(true).custom_flags(DIRECT).open(&path)?;
    let mut buffer = Aligned::new(4096);
    // A chunk that was read is kept, and tells nothing when it is read again: each is read once.
    let chunks = bytes / CHUNK;
    let mut order = 0..chunks;
    let before = rig.cpu();
    let times = repeat(bench.span, || {
        let Some(turn) = order.next() else { return Ok(false) };
        let at = turn * STEP % chunks * CHUNK;
        file.read_exact_at(buffer.bytes(), starts[(at / METABLOCK) as usize] + at % METABLOCK)?;
        Ok(true)
    })?;
    let random_cpu = all(&cpu::since(&rig.cluster.daemons(), &before, times.len().max(1) as f64)) * 1e6;
    Ok(Reads {
        first,
        stream: bytes as f64 / 1e6 / spent,
        cpu: stream_cpu,
        random: percentile(&times, 0.5),
        random_cpu,
    })
}
