//! First writes to what is frozen: on nodes that are awake, and on nodes that blink.

use std::fs::OpenOptions;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::latency::{percentile, seconds};
use super::rig::{COLD, METABLOCK, Rig, all};
use super::{Bench, Figure, Measured, figure};
use crate::bench::report::Aim;
use crate::bench::stream;
use crate::interrupt;

const FRESH: &str = "writing 64 MiB + fsync";
const BYTE: &str = "thaw of 64 MiB: write of 1 byte";
const SYNCED: &str = "thaw of 64 MiB: write of 4 KiB + fsync";
const CPU: &str = "thaw of 64 MiB: processor time";
const CIRCULAR_MEDIAN: &str = "thaw, blink-circular at half power: median";
const CIRCULAR_MOST: &str = "thaw, blink-circular at half power: most";
const CIRCULAR_FAILED: &str = "thaw, blink-circular at half power: failures";
const TIDE_MEDIAN: &str = "thaw, tide at half power: median";
const TIDE_MOST: &str = "thaw, tide at half power: most";
const TIDE_FAILED: &str = "thaw, tide at half power: failures";

/// On nodes that are awake.
pub const FIGURES: &[Figure] = &[
    figure(BYTE, "s", FRESH, Some(Aim::ValueAtMost(1.0))),
    figure(SYNCED, "s", FRESH, Some(Aim::ValueAtMost(1.0))),
    figure(CPU, "s/GiB", FRESH, None),
];

/// On nodes that blink. The reference of the median is that of the same writes before, while all nodes were awake.
pub const BLINKING: &[Figure] = &[
    figure(CIRCULAR_MEDIAN, "s", "awake", None),
    figure(CIRCULAR_MOST, "s", "awake", None),
    figure(CIRCULAR_FAILED, "thaws", "all", None),
    figure(TIDE_MEDIAN, "s", "awake", None),
    figure(TIDE_MOST, "s", "awake", None),
    figure(TIDE_FAILED, "thaws", "all", None),
];

/// Files of one metablock each.
const FILES: usize = 16;
/// Of these so many are thawed while all nodes are awake, where nodes blink after that.
const AWAKE: usize = 4;
/// A policy that switches nodes off for good puts some of it out of reach: after so many failures there is no more to learn.
const FAILURES_MAX: usize = 2;
/// The interval in which nodes blink, and the time for a plan to be followed by all.
const INTERVAL: &str = "2s";
const FOLLOWED: Duration = Duration::from_secs(6);

/// Seconds of a write of so many bytes to a file that is frozen, and of its fsync if asked for.
fn thaw(rig: &Rig, file: usize, bytes: usize, sync: bool) -> Result<f64> {
    interrupt::check()?;
    let file = OpenOptions::new().write(true).open(rig.path(COLD).join(format!("f{file}")))?;
    let spent = seconds(|| {
        file.write_all_at(&vec![7; bytes], METABLOCK / 2)?;
        if sync { file.sync_data() } else { Ok(()) }
    })?;
    file.sync_data()?;
    Ok(spent)
}

fn encoded(bench: &Bench, up: &[&str], before: impl FnOnce(&Rig) -> Result<()>) -> Result<Rig> {
    let rig = Rig::start(bench, 7, "4+2", METABLOCK, up)?;
    before(&rig)?;
    (0..FILES).try_for_each(|file| rig.write(&format!("f{file}"), METABLOCK).map(drop))?;
    rig.encode()?;
    Ok(rig)
}

/// Measures thaws of files one after the other, half of them with a sync.
pub fn measure_awake(bench: &Bench) -> Result<Vec<Measured>> {
    let rig = encoded(bench, &[], |_| Ok(()))?;
    let (mut fresh, mut byte, mut synced) = (Vec::new(), Vec::new(), Vec::new());
    let (mut writing, mut thawing) = (0.0, 0.0);
    for file in 0..FILES {
        let path = rig.path(&format!("fresh{file}"));
        let before = rig.cpu();
        fresh.push(seconds(|| stream::write_synced(&path, METABLOCK).map(drop))?);
        writing += all(&rig.cpu_since(&before, METABLOCK * FILES as u64));
        let before = rig.cpu();
        match file % 2 {
            0 => byte.push(thaw(&rig, file, 1, false)?),
            _ => synced.push(thaw(&rig, file, 4096, true)?),
        }
        thawing += all(&rig.cpu_since(&before, METABLOCK * FILES as u64));
    }
    let median = |times: &[f64]| percentile(times, 0.5);
    Ok(vec![
        Measured::new(BYTE, median(&byte), median(&fresh)),
        Measured::new(SYNCED, median(&synced), median(&fresh)),
        Measured::new(CPU, thawing, writing),
    ])
}

/// Measures thaws under both policies with which nodes blink.
pub fn measure_blinking(bench: &Bench) -> Result<Vec<Measured>> {
    let mut measured = Vec::new();
    for (policy, names) in [
        ("blink-circular", [CIRCULAR_MEDIAN, CIRCULAR_MOST, CIRCULAR_FAILED]),
        ("tide", [TIDE_MEDIAN, TIDE_MOST, TIDE_FAILED]),
    ] {
        let up = ["--policy", policy, "--interval", INTERVAL];
        let full = |rig: &Rig| rig.cluster.ebb(&["power", "set", "--fraction", "1"]).map(drop);
        let rig = encoded(bench, &up, full)?;
        let awake = (0..AWAKE).map(|file| thaw(&rig, file, 4096, true)).collect::<Result<Vec<_>>>()?;
        rig.cluster.ebb(&["power", "set", "--fraction", "0.5"])?;
        interrupt::sleep(FOLLOWED);
        let (mut times, mut failed) = (Vec::new(), 0);
        for file in AWAKE..FILES {
            match thaw(&rig, file, 4096, true) {
                Ok(time) => times.push(time),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Err(error),
                Err(error) => {
                    eprintln!("a thaw under {policy} failed: {error}");
                    failed += 1;
                    if failed == FAILURES_MAX {
                        break;
                    }
                }
            }
            // The next one meets another part of the interval.
            interrupt::sleep(Duration::from_millis(300 + 70 * file as u64));
        }
        let shown: Vec<String> = times.iter().map(|time| format!("{time:.2}")).collect();
        eprintln!("thaws under {policy}, s: {}", shown.join(" "));
        if !times.is_empty() {
            measured.push(Measured::new(names[0], percentile(&times, 0.5), percentile(&awake, 0.5)));
            measured.push(Measured::new(names[1], percentile(&times, 1.0), percentile(&awake, 1.0)));
        }
        measured.push(Measured::new(names[2], failed as f64, (times.len() + failed) as f64));
    }
    Ok(measured)
}
