//! Reads and writes anywhere in a file, around the page cache, by one or many threads for a while.

use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use super::aligned::Aligned;
use super::stream::DIRECT;

/// The operation at each place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Write, then fdatasync.
    WriteSync,
}

/// A random load.
#[derive(Clone, Copy)]
pub struct Random {
    /// The operation.
    pub act: Act,
    /// Bytes of each.
    pub block: usize,
    /// Threads, each with one under way.
    pub depth: u64,
}

/// Operations a second, and their number.
pub fn run(path: &Path, load: Random, span: Duration) -> Result<(f64, f64)> {
    let blocks = std::fs::metadata(path)?.len() / load.block as u64;
    let begun = Instant::now();
    let count = std::thread::scope(|scope| {
        let worker = |seed| scope.spawn(move || work(path, load, blocks, seed, begun + span));
        let workers: Vec<_> = (1..=load.depth).map(worker).collect();
        let counts = workers.into_iter().map(|worker| worker.join().expect("a thread that only measures"));
        counts.sum::<Result<u64>>()
    })?;
    Ok((count as f64 / begun.elapsed().as_secs_f64(), count as f64))
}

fn work(path: &Path, load: Random, blocks: u64, seed: u64, until: Instant) -> Result<u64> {
    let writes = load.act != Act::Read;
    let file = OpenOptions::new().read(true).write(writes).custom_flags(DIRECT).open(path)?;
    let mut buffer = Aligned::new(load.block);
    buffer.bytes().fill(seed as u8);
    let mut place = first_place(seed);
    let mut count = 0;
    while Instant::now() < until {
        act(&file, load.act, buffer.bytes(), next_place(&mut place) % blocks * load.block as u64)?;
        count += 1;
    }
    Ok(count)
}

/// Where a walk begins that [`next_place`] goes on with. No two seeds go the same way.
pub fn first_place(seed: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A number from anywhere: Marsaglia's xorshift, which costs next to nothing.
pub fn next_place(place: &mut u64) -> u64 {
    *place ^= *place << 13;
    *place ^= *place >> 7;
    *place ^= *place << 17;
    *place
}

fn act(file: &File, act: Act, bytes: &mut [u8], offset: u64) -> Result<()> {
    match act {
        Act::Read => file.read_exact_at(bytes, offset),
        Act::Write => file.write_all_at(bytes, offset),
        Act::WriteSync => {
            file.write_all_at(bytes, offset)?;
            file.sync_data()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Scratch, stream};

    #[test]
    fn every_act_reaches_the_file() {
        let scratch = Scratch::new("random").unwrap();
        stream::write_synced(&scratch.0, 4 << 20).unwrap();
        assert!(stream::read(&scratch.0, true).unwrap() > 0.0);
        for (act, depth) in [(Act::Read, 1), (Act::Write, 3), (Act::WriteSync, 1)] {
            let load = Random { act, block: 4096, depth };
            let (rate, count) = run(&scratch.0, load, Duration::from_millis(50)).unwrap();
            assert!(rate > 0.0 && count >= 1.0);
        }
        assert_eq!(std::fs::metadata(&scratch.0).unwrap().len(), 4 << 20, "nothing is written behind its end");
    }
}
