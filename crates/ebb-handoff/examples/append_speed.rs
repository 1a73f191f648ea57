//! What a handoff log costs: appends of 4 KiB by several callers at once, beside plain writes with `fdatasync`.
//!
//! ```sh
//! cargo run -p ebb-handoff --example append_speed -- [DIRECTORY]
//! ```
//! Without a directory in one for temporary files, which is removed.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use ebb_handoff::HandoffLog;
use ebb_runtime::{OpenMode, Runtime};
use ebb_types::{Epoch, Result, Version};
use ebb_wire::pb;

const BYTES: usize = 4096;
/// Plain writes of a run, and appends of a caller alone.
const WRITES: u64 = 500;
/// Appends of each of several callers.
const APPENDS: u64 = 100;
/// Medians are of so many runs.
const RUNS: usize = 5;
const MOST: usize = 256 << 20;

fn main() -> Result<()> {
    let temporary = std::env::temp_dir().join(format!("ebb-append-speed.{}", std::process::id()));
    let directory = std::env::args().nth(1).map_or_else(|| temporary.clone(), PathBuf::from);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let measured = tokio.block_on(async {
        let runtime = Runtime::real();
        for callers in [1_u64, 4, 16, 64] {
            let (mut plain, mut logged) = (Vec::new(), Vec::new());
            // In turns, so that both meet the same disk.
            for run in 0..RUNS {
                plain.push(write_plainly(&runtime, &directory.join(format!("plain-{callers}-{run}"))).await?);
                logged.push(append(&runtime, &directory.join(format!("log-{callers}-{run}")), callers).await?);
            }
            let (plain, logged) = (median(plain), median(logged));
            println!(
                "{callers:3} callers: {logged:7.0} appends/s, {:5.2} times {plain:6.0} plain writes/s",
                logged / plain
            );
        }
        Ok(())
    });
    // A directory from the command line has none.
    let _ = std::fs::remove_dir_all(temporary);
    measured
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// One caller that writes to the end of a file and syncs it each time: writes in a second.
async fn write_plainly(runtime: &Runtime, dir: &Path) -> Result<f64> {
    let disk = runtime.disk();
    disk.create_dir_all(dir).await?;
    let file = disk.open(&dir.join("file"), OpenMode::Create).await?;
    let payload = Bytes::from(vec![7; BYTES]);
    let begun = Instant::now();
    for at in 0..WRITES {
        file.write_at(at * BYTES as u64, vec![payload.clone()]).await?;
        file.sync_data().await?;
    }
    Ok(WRITES as f64 / begun.elapsed().as_secs_f64())
}

/// Appends in a second. Each caller holds a file of its own. With each write it says that members have the one before.
async fn append(runtime: &Runtime, dir: &Path, callers: u64) -> Result<f64> {
    let log = Arc::new(HandoffLog::open(runtime, dir, MOST, false).await?);
    let begun = Instant::now();
    let each = APPENDS.max(WRITES / callers);
    let tasks: Vec<_> = (1..=callers)
        .map(|inode| {
            let log = log.clone();
            runtime.spawn("append", async move {
                let payload = Bytes::from(vec![7; BYTES]);
                for seq in 1..=each {
                    log.append(write(inode, seq), payload.clone()).await?;
                }
                Ok::<(), ebb_types::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.join().await??;
    }
    Ok((each * callers) as f64 / begun.elapsed().as_secs_f64())
}

fn write(inode: u64, seq: u64) -> pb::LogWrites {
    let version = |seq| Some(Version::new(Epoch::new(1), seq).into());
    let write = pb::WriteReplica {
        metablock: inode,
        version: version(seq),
        predecessor: version(seq - 1),
        length: BYTES as u64,
        ..Default::default()
    };
    let cuts = vec![pb::LogCut { metablock: inode, version: version(seq - 1) }];
    pb::LogWrites { inode, epoch: 1, writes: vec![write], cuts, ..Default::default() }
}
