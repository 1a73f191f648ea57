//! What programs lose while data are encoded in the background, at the rate that a cluster has by itself.
//!
//! The same loads run before, during and after. The reference is the mean of before and after, so that a machine which
//! becomes slower, or a disk which fills up, is no loss.

use std::fs::OpenOptions;
use std::io::{Error, Result};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use super::latency::{percentile, repeat};
use super::rig::{METABLOCK, Rig};
use super::{Bench, Figure, Measured, figure};
use crate::bench::aligned::Aligned;
use crate::bench::random::{first_place, next_place};
use crate::bench::report::Aim;
use crate::bench::stream::{self, DIRECT};
use crate::interrupt;

const ALONE: &str = "alone";
const STREAM: &str = "beside encoding: sequential write + fsync";
const MEDIAN: &str = "beside encoding: 4 KiB write + fsync, median";
const TAIL: &str = "beside encoding: 4 KiB write + fsync, 99th percentile";
const ENCODED: &str = "beside encoding: what is encoded meanwhile";

/// The figures, in the order of the table.
pub const FIGURES: &[Figure] = &[
    figure(STREAM, "MB/s", ALONE, Some(Aim::RatioAtLeast(0.95))),
    figure(MEDIAN, "us", ALONE, None),
    figure(TAIL, "us", ALONE, Some(Aim::RatioAtMost(1.1))),
    figure(ENCODED, "MB/s", ALONE, None),
];

/// Rate of the stream, median and 99th percentile of the small writes.
struct Foreground {
    stream: f64,
    median: f64,
    tail: f64,
}

/// Measures all of them.
pub fn measure(bench: &Bench) -> Result<Vec<Measured>> {
    let rig = Rig::start(bench, 7, "4+2", METABLOCK, &[])?;
    // Enough for the time of the loads: four nodes encode at once, each at its own rate.
    let files = 3;
    for file in 0..files {
        rig.write(&format!("f{file}"), bench.bytes)?;
    }
    stream::write_synced(&rig.path("small"), bench.bytes / 4)?;
    let before = run(&rig, bench)?;
    let mut asking = rig.begin_encoding()?;
    let meanwhile =
        rig.wait_for("encoding to begin", |journal| journal.count(&["an attempt begins"]) > 0).and_then(|()| {
            let meanwhile = run(&rig, bench)?;
            let still = asking.try_wait()?.is_none();
            Ok((meanwhile, still))
        });
    if meanwhile.is_err() {
        let _ = asking.kill();
    }
    let done = super::rig::wait(&mut asking, || Ok(()));
    let (meanwhile, still) = meanwhile?;
    done?;
    if !still {
        return Err(Error::other("encoding had come to its end before the loads beside it"));
    }
    let journal = rig.journal()?;
    let (begun, sealed) = (journal.times(&["an attempt begins"]), journal.times(&["a RAID set is sealed"]));
    let span = sealed.last().unwrap_or(&0.0) - begun.first().unwrap_or(&0.0);
    let after = run(&rig, bench)?;
    let mean = |of: fn(&Foreground) -> f64| f64::midpoint(of(&before), of(&after));
    Ok(vec![
        Measured::new(STREAM, meanwhile.stream, mean(|load| load.stream)),
        Measured::new(MEDIAN, meanwhile.median, mean(|load| load.median)),
        Measured::new(TAIL, meanwhile.tail, mean(|load| load.tail)),
        Measured { reference: None, ..Measured::new(ENCODED, (files * bench.bytes) as f64 / 1e6 / span, 0.0) },
    ])
}

fn run(rig: &Rig, bench: &Bench) -> Result<Foreground> {
    interrupt::check()?;
    let path = rig.path("stream");
    let stream = stream::write_synced(&path, bench.bytes)?;
    std::fs::remove_file(path)?;
    let file = OpenOptions::new().write(true).custom_flags(DIRECT).open(rig.path("small"))?;
    let blocks = file.metadata()?.len() / 4096;
    let mut bytes = Aligned::new(4096);
    let mut place = first_place(1);
    let times = repeat(bench.span, || {
        // The same places in each turn.
        file.write_all_at(bytes.bytes(), next_place(&mut place) % blocks * 4096)?;
        file.sync_data()?;
        Ok(true)
    })?;
    Ok(Foreground { stream, median: percentile(&times, 0.5), tail: percentile(&times, 0.99) })
}
