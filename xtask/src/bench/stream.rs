//! One large file, from its start to its end.

use std::fs::{File, OpenOptions};
use std::io::{Read, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use super::aligned::Aligned;

/// Bytes of a call.
const PIECE: usize = 1 << 20;

/// `O_DIRECT` of open(2).
pub const DIRECT: i32 = if cfg!(target_arch = "aarch64") { 0x1_0000 } else { 0x4000 };

/// MB a second of a new file with an fsync at its end.
pub fn write_synced(path: &Path, bytes: u64) -> Result<f64> {
    let piece: Vec<u8> = (0..PIECE).map(|at| ((at * 31) >> 3) as u8).collect();
    let begun = Instant::now();
    let mut file = File::create(path)?;
    for _ in 0..bytes / PIECE as u64 {
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    drop(file);
    Ok(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64())
}

/// MB a second of a file, around the page cache if `direct`.
pub fn read(path: &Path, direct: bool) -> Result<f64> {
    let mut piece = Aligned::new(PIECE);
    let begun = Instant::now();
    let mut file = OpenOptions::new().read(true).custom_flags(if direct { DIRECT } else { 0 }).open(path)?;
    let mut bytes = 0;
    loop {
        match file.read(piece.bytes())? {
            0 => break,
            len => bytes += len,
        }
    }
    Ok(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64())
}
