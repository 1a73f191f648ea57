//! One member of a RAID set that is decoded at another node.
//!
//! A RAID set that could bear no further loss gets a member back at once. So two of its nodes are killed, and the first member
//! that is made again is measured. The second one waits, as the RAID set can then bear a loss.

use std::io::{Error, Result};

use super::journal::Journal;
use super::rig::{Rig, all};
use super::{Bench, Figure, Measured, figure};
use crate::bench::disk;
use crate::bench::report::Aim;

const DISK: &str = "disk, write + sync";
const FREE: &str = "rebuild of a member, no throttle";
const CPU: &str = "rebuild of a member, no throttle: processor time";
const THROTTLED: &str = "rebuild of a member, as by itself";

/// The figures, in the order of the table.
pub const FIGURES: &[Figure] = &[
    figure(FREE, "MB/s", DISK, Some(Aim::ValueAtLeast(200.0))),
    figure(CPU, "s/GiB", DISK, None),
    figure(THROTTLED, "MB/s", DISK, None),
];

/// Large, so that a log's times are exact enough.
const METABLOCK: u64 = 256 << 20;

/// Measures both rates.
pub fn measure(bench: &Bench) -> Result<Vec<Measured>> {
    let reference = disk::stream_sync()? * f64::from(1 << 20) / 1e6;
    let (free, cpu) = rebuild(bench, &["--repair-mb-per-s", "0"])?;
    let (throttled, _) = rebuild(bench, &[])?;
    Ok(vec![
        Measured::new(FREE, free, reference),
        Measured { reference: None, ..Measured::new(CPU, cpu, 0.0) },
        Measured::new(THROTTLED, throttled, reference),
    ])
}

/// MB a second of one member, and processor seconds for each GiB of it.
fn rebuild(bench: &Bench, up: &[&str]) -> Result<(f64, f64)> {
    let up: Vec<&str> = up.iter().copied().chain(["--dead-after-ms", "4000"]).collect();
    // Eight hosts: six are left for six parts.
    let rig = Rig::start(bench, 8, "4+2", METABLOCK, &up)?;
    rig.write("file", 4 * METABLOCK)?;
    rig.encode()?;
    let hosts = rig.hosts_of("file")?;
    let [first, second, ..] = &hosts[..] else { return Err(Error::other("a RAID set of fewer than two slots")) };
    for host in [first, second] {
        rig.cluster.kill(&format!("block-{host}"))?;
    }
    let (begins, ends) = (&["a member of a RAID set is made again"][..], &["a step of a RAID set", "Mend"][..]);
    rig.wait_for("a member to be made again", |journal| journal.count(begins) > 0)?;
    let before = rig.cpu();
    rig.wait_for("a member that is made again", |journal| journal.count(ends) > 0)?;
    let cpu = all(&rig.cpu_since(&before, METABLOCK));
    let Journal(log) = rig.journal()?;
    let journal = Journal(log);
    let (Some(begun), Some(ended)) = (journal.times(begins).first().copied(), journal.times(ends).first().copied())
    else {
        return Err(Error::other("the master's log does not say when it made a member again"));
    };
    Ok((METABLOCK as f64 / 1e6 / (ended - begun), cpu))
}
