//! Cost of reading a cached file: the floor of every read of a replica in memory.

use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::Scratch;

const FILE_BYTES: usize = 64 << 20;

/// GiB per second in reads of 1 MiB.
pub fn sequential() -> Result<f64> {
    let seconds = read_all(1 << 20, 4)?;
    Ok(4.0 * FILE_BYTES as f64 / f64::from(1 << 30) / seconds)
}

/// Microseconds for a read of 4 KiB.
pub fn small() -> Result<f64> {
    let seconds = read_all(4096, 1)?;
    Ok(seconds * 1e6 / (FILE_BYTES / 4096) as f64)
}

fn read_all(unit: usize, times: usize) -> Result<f64> {
    let scratch = Scratch::new("cache")?;
    std::fs::write(&scratch.0, vec![7; FILE_BYTES])?;
    let file = File::open(&scratch.0)?;
    let mut buffer = vec![0; unit];
    let started = Instant::now();
    for _ in 0..times {
        for place in (0..FILE_BYTES).step_by(unit) {
            file.read_exact_at(&mut buffer, place as u64)?;
        }
    }
    Ok(started.elapsed().as_secs_f64())
}
