//! Speed of the disk under the build: the floor of every fsync.

use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::Scratch;

const SYNCS: u32 = 20;
const STREAM_BYTES: usize = 64 << 20;

/// Microseconds for a 4 KiB overwrite and its fdatasync, in a file that is there already.
pub fn small_sync() -> Result<f64> {
    let scratch = Scratch::new("sync")?;
    let file = File::create(&scratch.0)?;
    let page = [7; 4096];
    file.write_all_at(&vec![0; page.len() * SYNCS as usize], 0)?;
    file.sync_all()?;
    let started = Instant::now();
    for turn in 0..SYNCS {
        file.write_all_at(&page, u64::from(turn) * 4096)?;
        file.sync_data()?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(SYNCS))
}

/// MiB per second of a new file, synced once at its end.
pub fn stream_sync() -> Result<f64> {
    let scratch = Scratch::new("stream")?;
    let file = File::create(&scratch.0)?;
    let block = vec![7; 1 << 20];
    let started = Instant::now();
    for turn in 0..STREAM_BYTES / block.len() {
        file.write_all_at(&block, (turn * block.len()) as u64)?;
    }
    file.sync_data()?;
    Ok((STREAM_BYTES >> 20) as f64 / started.elapsed().as_secs_f64())
}
