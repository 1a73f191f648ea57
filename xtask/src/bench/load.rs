//! The load, which is the same on every place.

use std::fs::File;
use std::io::{Error, Result};
use std::path::Path;
use std::time::Duration;

use super::cpu::{self, Cpu};
use super::figure::Part;
use super::files::{self, Files};
use super::place::Place;
use super::random::{Act, Random};
use super::{random, stream};

/// Size of the load.
#[derive(Clone, Copy)]
pub struct Size {
    /// Bytes of the large file.
    pub stream: u64,
    /// Duration of each random load.
    pub span: Duration,
    /// Small files.
    pub small: u64,
    /// Empty files.
    pub empty: u64,
    /// Number of files for the measurement of the master's memory.
    pub fill: u64,
}

impl Size {
    /// For comparable figures.
    pub const WHOLE: Self =
        Self { stream: 1 << 30, span: Duration::from_secs(3), small: 2000, empty: 4000, fill: 100_000 };
    /// To check that everything runs.
    pub const QUICK: Self =
        Self { stream: 64 << 20, span: Duration::from_millis(500), small: 200, empty: 200, fill: 2000 };
}

/// One measurement.
pub struct Sample {
    /// The figure's value.
    pub value: f64,
    /// Processor seconds of the place's processes for each GiB or operation.
    pub cpu: Cpu,
}

/// Runs a part on a place; the samples are in the order of the part's figures. A figure that the place does not have is
/// `None`, or missing at the end.
pub fn run(part: Part, place: &mut Place, size: Size) -> Result<Vec<Option<Sample>>> {
    let samples = match part {
        Part::Large => large(place, size),
        Part::Small => small(place, size.small),
        Part::Empty => empty(place, size.empty),
        Part::Start => start(place),
        Part::Memory => memory(place, size.fill),
    }?;
    assert!(samples.len() <= part.figures().len(), "each sample has its figure");
    Ok(samples)
}

/// Runs `work`, which returns a value and its number of units.
fn sample(place: &Place, work: impl FnOnce() -> Result<(f64, f64)>) -> Result<Option<Sample>> {
    let before = cpu::used(&place.daemons());
    let (value, count) = work()?;
    Ok(Some(Sample { value, cpu: cpu::since(&place.daemons(), &before, count.max(1e-9)) }))
}

fn large(place: &mut Place, size: Size) -> Result<Vec<Option<Sample>>> {
    let path = place.root().join("large");
    let gib = size.stream as f64 / f64::from(1 << 30);
    let whole = |value: f64| (value, gib);
    let mut samples = vec![sample(place, || stream::write_synced(&path, size.stream).map(whole))?];
    if matches!(place, Place::Bare(_)) {
        std::fs::remove_file(path)?;
        return Ok(samples);
    }
    place.chill()?;
    samples.push(sample(place, || stream::read(&path, false).map(whole))?);
    samples.push(sample(place, || stream::read(&path, true).map(whole))?);
    for (act, block, depth) in [
        (Act::Read, 4 << 10, 1),
        (Act::Read, 4 << 10, 16),
        (Act::Read, 128 << 10, 1),
        (Act::Read, 128 << 10, 16),
        (Act::Write, 4 << 10, 1),
        (Act::Write, 4 << 10, 16),
        (Act::WriteSync, 4 << 10, 1),
    ] {
        // The work that earlier writes left must not count for this measurement.
        File::open(&path)?.sync_all()?;
        samples.push(sample(place, || random::run(&path, Random { act, block, depth }, size.span))?);
    }
    std::fs::remove_file(path)?;
    Ok(samples)
}

fn small(place: &mut Place, count: u64) -> Result<Vec<Option<Sample>>> {
    let mut samples = Vec::new();
    let each = |files: &Files, act| files.run(act).map(|rate| (rate, count as f64));
    for threads in [1, 8] {
        let files = Files::new(place.root(), count, threads, 16 << 10)?;
        samples.push(sample(place, || each(&files, files::Act::Create))?);
        place.chill()?;
        samples.push(sample(place, || each(&files, files::Act::Read))?);
        samples.push(sample(place, || each(&files, files::Act::Unlink))?);
        if threads == 8 {
            samples.push(sample(place, || each(&files, files::Act::CreateSync))?);
        }
        files.remove()?;
    }
    Ok(samples)
}

fn empty(place: &mut Place, count: u64) -> Result<Vec<Option<Sample>>> {
    let mut samples = Vec::new();
    let each = |rate: f64| (rate, count as f64);
    for threads in [1, 8] {
        let files = Files::new(place.root(), count, threads, 0)?;
        samples.push(sample(place, || files.run(files::Act::Create).map(each))?);
        place.chill()?;
        samples.push(sample(place, || files.run(files::Act::Stat).map(each))?);
        if threads == 8 {
            samples.push(sample(place, || files.list().map(each))?);
        }
        samples.push(sample(place, || files.run(files::Act::Unlink).map(each))?);
        files.remove()?;
    }
    Ok(samples)
}

fn start(place: &Place) -> Result<Vec<Option<Sample>>> {
    let Place::Cluster(cluster) = place else { return Ok(vec![None]) };
    Ok(vec![Some(Sample { value: cluster.cold_start()?, cpu: Cpu::new() })])
}

fn memory(place: &Place, count: u64) -> Result<Vec<Option<Sample>>> {
    if !matches!(place, Place::Cluster(_)) {
        return Ok(vec![None]);
    }
    let files = Files::new(place.root(), count, 8, 0)?;
    files.run(files::Act::Create)?;
    let daemons = place.daemons();
    let master = daemons.iter().find(|daemon| daemon.role == "master");
    let master = master.ok_or_else(|| Error::other("the master's process is not to be found"))?;
    let resident = resident_mib(Path::new(&format!("/proc/{}/status", master.pid)))?;
    files.remove()?;
    Ok(vec![Some(Sample { value: resident, cpu: Cpu::new() })])
}

/// `VmRSS` of proc_pid_status(5), in MiB.
fn resident_mib(status: &Path) -> Result<f64> {
    let text = std::fs::read_to_string(status)?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).ok_or_else(|| Error::other(format!("{} has no VmRSS", status.display())))
}
