//! Costs of a volume: space, time and bytes written. The numbers in `docs/formats/volume.md` come from here.
//!
//! ```sh
//! cargo run -p ebb-store --example volume_speed -- [DIRECTORY [space | overwrite | index | files]]
//! ```
//! Without a directory it uses one for temporary files, and removes it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ebb_runtime::{OpenMode, Runtime};
use ebb_store::{Change, Volume, VolumeOptions, Write};
use ebb_types::{CHUNK_SIZE, ClusterId, Epoch, ErrorKind, MetablockId, NodeId, Result, Version};
use ebb_wire::frame::crc32c;

/// One of six nodes' share of 23,000 files of 10 KB and one of 1.3 GB, three copies each.
const SMALL_FILES: u64 = 11_500;
const LARGE_BYTES: u64 = 650_000_000;

const METABLOCK: u64 = 64 << 20;
const BLOCK: u64 = 1 << 20;
const WRITERS: usize = 64;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let temporary = std::env::temp_dir().join(format!("ebb-volume-speed.{}", std::process::id()));
    let directory = args.next().map_or_else(|| temporary.clone(), PathBuf::from);
    let part = args.next();
    let wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let measured = tokio.block_on(async {
        let runtime = Runtime::real();
        if wanted("space") {
            space(&runtime, &directory.join("space")).await?;
        }
        if wanted("overwrite") {
            overwrite(&runtime, &directory.join("overwrite")).await?;
        }
        if wanted("index") {
            for count in [1_000, 100_000] {
                index(&runtime, &directory.join(format!("index-{count}")), count).await?;
            }
        }
        if wanted("files") {
            files(&runtime, &directory.join("files")).await?;
        }
        Ok(())
    });
    // A directory from the command line has none.
    let _ = std::fs::remove_dir_all(temporary);
    measured
}

fn options() -> VolumeOptions {
    VolumeOptions::new(ClusterId::new(7), Some(NodeId::new(1)))
}

/// Size of a directory as `du` counts it, in bytes.
fn du(path: &Path) -> u64 {
    let Ok(found) = std::fs::symlink_metadata(path) else { return 0 };
    let below = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| du(&entry.path())).sum::<u64>();
    found.blocks() * 512 + below
}

/// Bytes that the kernel has written to disks for this process (Linux `/proc/PID/io`).
fn disk_written() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok()).unwrap_or(0)
}

fn content(len: u64, salt: u64) -> Bytes {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8 ^ salt as u8).collect::<Vec<_>>().into()
}

fn data(offset: u64, bytes: &Bytes) -> Change {
    assert!(offset.is_multiple_of(CHUNK_SIZE), "checksums here are cut from the front");
    let checksums = bytes.chunks(CHUNK_SIZE as usize).map(crc32c).collect();
    Change::Data { offset, bytes: bytes.clone(), checksums }
}

fn write(volume: &Volume, metablock: u64, seq: u64, change: Change) -> Write {
    let version = |seq: u64| Version::new(Epoch::new(u64::from(seq > 0)), seq);
    let (metablock, incarnation) = (MetablockId::new(metablock), volume.label().incarnation);
    let authority = version(seq).epoch;
    Write { metablock, incarnation, version: version(seq), predecessor: version(seq - 1), change, authority }
}

/// Small replicas, each synced, by many writers at once; lengths from 1 byte to twice the mean.
async fn small_files(runtime: &Runtime, volume: &Volume, first: u64, count: u64, mean: u64) -> Result<u64> {
    let mut total = 0;
    let mut tasks = std::collections::VecDeque::new();
    for raw in first..first + count {
        let len = 1 + raw.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (2 * mean);
        total += len;
        if tasks.len() == WRITERS {
            let task: ebb_runtime::Task<Result<_>> = tasks.pop_front().expect("not empty");
            task.join().await??;
        }
        let (volume, write) = (volume.clone(), write(volume, raw, 1, data(0, &content(len, raw))));
        tasks.push_back(runtime.spawn("small", async move { volume.write(&write, true).await }));
    }
    for task in tasks {
        task.join().await??;
    }
    Ok(total)
}

/// A replica written from front to end in blocks, synced at the end; as version `seq` and those after it.
async fn one_replica(volume: &Volume, metablock: u64, len: u64, first_seq: u64) -> Result<u64> {
    let mut seq = first_seq;
    let mut at = 0;
    while at < len {
        let block = content(BLOCK.min(len - at), seq);
        let end = at + block.len() as u64;
        volume.write(&write(volume, metablock, seq, data(at, &block)), end >= len).await?;
        (at, seq) = (end, seq + 1);
    }
    Ok(seq)
}

async fn space(runtime: &Runtime, root: &Path) -> Result<()> {
    let volume = Volume::open(runtime, root, options()).await?;
    let empty = du(root);
    let started = Instant::now();
    let small = small_files(runtime, &volume, 1, SMALL_FILES, 10_000).await?;
    let small_time = started.elapsed();
    let mut rest = LARGE_BYTES;
    let mut metablock = 1 << 32;
    while rest > 0 {
        one_replica(&volume, metablock, rest.min(METABLOCK), 1).await?;
        rest = rest.saturating_sub(METABLOCK);
        metablock += 1;
    }
    let source = small + LARGE_BYTES;
    let at_once = du(root);
    runtime.sleep(Duration::from_secs(5)).await;
    let (rested, replicas) = (du(root), du(&root.join("replicas")));
    println!(
        "space: {SMALL_FILES} small replicas ({small} bytes, {small_time:?}) and {LARGE_BYTES} bytes in large ones"
    );
    println!(
        "  du {at_once} at once, {rested} rested: {:.3} of the bytes; {empty} empty",
        rested as f64 / source as f64
    );
    println!("  of it {replicas} in replicas, {} in journal and index", rested - replicas);
    volume.stop().await
}

async fn overwrite(runtime: &Runtime, root: &Path) -> Result<()> {
    let volume = Volume::open(runtime, root, options()).await?;
    for (part, round) in [("written anew", 0), ("overwritten", 1), ("overwritten again", 2)] {
        let (started, before) = (Instant::now(), disk_written());
        for metablock in 1..=4 {
            one_replica(&volume, metablock, METABLOCK, 1 + round * (METABLOCK / BLOCK)).await?;
        }
        let time = started.elapsed();
        // Checkpoints sync the bytes that were put in place.
        runtime.sleep(Duration::from_secs(3)).await;
        let factor = (disk_written() - before) as f64 / (4 * METABLOCK) as f64;
        println!("overwrite: {} bytes {part} in {time:?}, {factor:.2} times as many to disk", 4 * METABLOCK);
    }
    volume.stop().await
}

async fn index(runtime: &Runtime, root: &Path, count: u64) -> Result<()> {
    let volume = Volume::open(runtime, root, options()).await?;
    small_files(runtime, &volume, 1, count, 100).await?;
    let (started, before) = (Instant::now(), disk_written());
    volume.stop().await?;
    let first = (started.elapsed(), disk_written() - before);
    drop(volume);
    let mut opening = Instant::now();
    let volume = loop {
        match Volume::open(runtime, root, options()).await {
            // Its tasks are on their way out.
            Err(error) if error.kind() == ErrorKind::Busy => runtime.sleep(Duration::from_millis(10)).await,
            done => break done?,
        }
        opening = Instant::now();
    };
    let opened = opening.elapsed();
    small_files(runtime, &volume, count + 1, 1, 100).await?;
    let (started, before) = (Instant::now(), disk_written());
    volume.stop().await?;
    let (time, written) = (started.elapsed(), disk_written() - before);
    println!("index: {count} replicas: {first:?} for the checkpoint after writing them");
    println!("  {time:?} and {written} bytes for one with a single new one; a start {opened:?}");
    Ok(())
}

/// The same bytes as a file each, and one behind the other in one file that was allocated before.
async fn files(runtime: &Runtime, root: &Path) -> Result<()> {
    let disk = runtime.disk();
    let (count, bytes) = (10_000, content(10_000, 1));
    for shard in 0..256 {
        disk.create_dir_all(&root.join(format!("{shard:02x}"))).await?;
    }
    let started = Instant::now();
    for raw in 0..count {
        let path = root.join(format!("{:02x}/{raw:016x}", raw % 256));
        disk.open(&path, OpenMode::Create).await?.write_at(0, vec![bytes.clone()]).await?;
    }
    let made = started.elapsed();
    for raw in 0..count {
        disk.open(&root.join(format!("{:02x}/{raw:016x}", raw % 256)), OpenMode::Existing).await?.sync_data().await?;
    }
    println!(
        "files: {count} files of {} bytes: {made:?} to make, {:?} with their syncs",
        bytes.len(),
        started.elapsed()
    );
    let file = disk.open(&root.join("region"), OpenMode::Create).await?;
    let slot = (bytes.len() as u64).next_multiple_of(4096);
    file.allocate(0, count * slot).await?;
    let started = Instant::now();
    for raw in 0..count {
        file.write_at(raw * slot, vec![bytes.clone()]).await?;
    }
    let made = started.elapsed();
    file.sync_data().await?;
    println!("files: the same in one region: {made:?} to write, {:?} with its sync", started.elapsed());
    Ok(())
}
