//! Encoding as fast as it goes, beside the writing of the same data in copies.

use std::io::{Error, Result};

use super::rig::{METABLOCK, Rig, all};
use super::{Bench, Figure, Measured, figure};
use crate::bench::place::drop_caches;
use crate::bench::report::Aim;

const WRITTEN: &str = "writing copies";
const FOUR_RATE: &str = "4+2: encoding, no throttle";
const FOUR_CPU: &str = "4+2: processor time of it";
const EIGHT_RATE: &str = "8+2: encoding, no throttle";
const EIGHT_CPU: &str = "8+2: processor time of it";
const RATE: Option<Aim> = Some(Aim::ValueAtLeast(600.0));
const CPU: Option<Aim> = Some(Aim::ValueAtMost(0.8));

/// Of 4+2.
pub const FOUR: &[Figure] = &[figure(FOUR_RATE, "MB/s", WRITTEN, RATE), figure(FOUR_CPU, "s/GiB", WRITTEN, CPU)];
/// Of 8+2.
pub const EIGHT: &[Figure] = &[figure(EIGHT_RATE, "MB/s", WRITTEN, RATE), figure(EIGHT_CPU, "s/GiB", WRITTEN, CPU)];

/// 4+2 on seven hosts.
pub fn measure_four(bench: &Bench) -> Result<Vec<Measured>> {
    measure(bench, 7, "4+2", [FOUR_RATE, FOUR_CPU])
}

/// 8+2 on eleven hosts.
pub fn measure_eight(bench: &Bench) -> Result<Vec<Measured>> {
    measure(bench, 11, "8+2", [EIGHT_RATE, EIGHT_CPU])
}

fn measure(bench: &Bench, nodes: u32, code: &str, names: [&'static str; 2]) -> Result<Vec<Measured>> {
    let rig = Rig::start(bench, nodes, code, METABLOCK, &["--repair-mb-per-s", "0"])?;
    let before = rig.cpu();
    let written = rig.write("file", bench.bytes)?;
    let writing = rig.cpu_since(&before, bench.bytes);
    drop_caches()?;
    let before = rig.cpu();
    rig.ask_for_encoding()?;
    let cpu = rig.cpu_since(&before, bench.bytes);
    let journal = rig.journal()?;
    let (begun, sealed) = (journal.times(&["an attempt begins"]), journal.times(&["a RAID set is sealed"]));
    let (Some(first), Some(last)) = (begun.first(), sealed.last()) else {
        return Err(Error::other("the master's log does not say when it encoded"));
    };
    let rate = bench.bytes as f64 / 1e6 / (last - first);
    let spent = all(&cpu);
    Ok(vec![Measured { cpu, ..Measured::new(names[0], rate, written) }, Measured::new(names[1], spent, all(&writing))])
}
