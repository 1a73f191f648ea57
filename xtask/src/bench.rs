//! Measurements beside references of the same run, because a number alone depends on the machine as much as on the
//! code.
//!
//! Three kinds of figures. The *machine*: speeds of disk, loopback and page cache. The *load* of `load.rs`, on a
//! cluster's mount, on the disk and on a mount that does nothing, with the processor time of each process that serves
//! it. And *programs* (`examples/` of the crates), which run only by name, with their output passed on unchanged. A run
//! measures everything [`ROUNDS`] times, round by round, so that a busy minute affects all figures equally. It prints
//! medians with the spread.

use std::collections::BTreeMap;
use std::io::Result;
use std::path::PathBuf;
use std::process::Command;

use crate::step::Step;
use crate::tree::Tree;

mod aligned;
mod cache;
mod cluster;
mod cpu;
mod disk;
mod figure;
mod files;
mod load;
mod loopback;
mod place;
mod raid;
mod random;
mod report;
mod stream;

use cluster::{Cluster, Shape};
use figure::Part;
use load::{Sample, Size};
use place::{Bare, Kind, Place};
use report::Line;

/// Measurements of each figure.
const ROUNDS: usize = 3;

/// A figure of the machine.
struct Row {
    name: &'static str,
    unit: &'static str,
    measure: fn() -> Result<f64>,
}

/// All figures of the machine, in the order of the table.
fn rows() -> Vec<Row> {
    vec![
        Row { name: "loopback tcp, 1 MiB writes", unit: "GiB/s", measure: loopback::throughput },
        Row { name: "loopback tcp, 64 B there and back", unit: "us", measure: loopback::round_trip },
        Row { name: "disk, 4 KiB write + fdatasync", unit: "us", measure: disk::small_sync },
        Row { name: "disk, 64 MiB write + fdatasync", unit: "MiB/s", measure: disk::stream_sync },
        Row { name: "page cache, 1 MiB preads", unit: "GiB/s", measure: cache::sequential },
        Row { name: "page cache, 4 KiB preads", unit: "us", measure: cache::small },
    ]
}

/// The options of the command.
#[derive(Default)]
struct Ask<'a> {
    filter: &'a str,
    json: bool,
    quick: bool,
    raid: bool,
    /// A build that is measured in place of this tree's; RAID sets alone.
    program: Option<&'a str>,
}

/// Measures all figures, or those with `NAME` in their name; with `--raid` those of RAID sets. `None`: an unknown argument.
pub fn run(words: &[&str]) -> Option<bool> {
    let mut ask = Ask::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--program" => ask.program = Some(words.next()?),
            "--json" => ask.json = true,
            "--quick" => ask.quick = true,
            "--raid" => ask.raid = true,
            word if word.starts_with('-') || !ask.filter.is_empty() => return None,
            word => ask.filter = word,
        }
    }
    if ask.program.is_some() && !ask.raid {
        return None;
    }
    let done = if ask.raid { raid::run(&ask) } else { measure(&ask).and_then(|lines| show(&ask, &lines)) };
    Some(done.unwrap_or_else(|error| {
        eprintln!("bench: {error}");
        false
    }))
}

/// Prints the measurements, and runs the named programs.
fn show(ask: &Ask<'_>, lines: &[Line]) -> Result<bool> {
    let programs = if ask.json || ask.filter.is_empty() { Vec::new() } else { programs(ask.filter)? };
    match lines {
        [] if programs.is_empty() => {
            return Err(std::io::Error::other(format!("no figure and no program has {:?} in its name", ask.filter)));
        }
        [] => {}
        lines if ask.json => println!("{}", report::to_json(lines)),
        lines => report::print_table(lines),
    }
    Ok(programs.into_iter().filter(|step| step.run().is_err()).count() == 0)
}

fn measure(ask: &Ask<'_>) -> Result<Vec<Line>> {
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.name.contains(ask.filter)).collect();
    let is_asked = |part: &Part| part.figures().iter().any(|figure| figure.name.contains(ask.filter));
    let parts: Vec<Part> = Part::ALL.into_iter().filter(is_asked).collect();
    let mut machine: Vec<Vec<f64>> = vec![Vec::new(); rows.len()];
    let mut loads = Loads::new();
    let rounds = if ask.quick { 1 } else { ROUNDS };
    let size = if ask.quick { Size::QUICK } else { Size::WHOLE };
    let mut places = if parts.is_empty() { Vec::new() } else { start()? };
    for round in 1..=rounds {
        for (row, values) in rows.iter().zip(&mut machine) {
            values.push((row.measure)()?);
        }
        for part in &parts {
            // The part with many files runs only once.
            if *part == Part::Memory && round > 1 {
                continue;
            }
            for place in &mut places {
                eprintln!("round {round} of {rounds}: {} on {}", part.figures()[0].name, place.kind().name());
                loads.add(*part, place.kind(), load::run(*part, place, size)?);
            }
        }
    }
    let of_machine = rows.iter().zip(machine).map(|(row, values)| Line {
        name: row.name.to_owned(),
        unit: row.unit,
        values,
        reference: None,
        durable: None,
        aim: None,
        cpu: cpu::Cpu::new(),
    });
    let of_load = parts.iter().flat_map(|part| loads.lines(*part));
    Ok(of_machine.chain(of_load.filter(|line| line.name.contains(ask.filter))).collect())
}

/// Samples by place and figure.
struct Loads(BTreeMap<(Kind, &'static str), Vec<Sample>>);

impl Loads {
    fn new() -> Self {
        Self(BTreeMap::new())
    }

    fn add(&mut self, part: Part, place: Kind, samples: Vec<Option<Sample>>) {
        for (figure, sample) in part.figures().iter().zip(samples) {
            self.0.entry((place, figure.name)).or_default().extend(sample);
        }
    }

    fn lines(&mut self, part: Part) -> Vec<Line> {
        let line = |figure: &figure::Figure| {
            let samples = self.0.remove(&(Kind::Cluster, figure.name)).filter(|samples| !samples.is_empty())?;
            let values = |place: Kind| {
                let samples = self.0.get(&(place, figure.name));
                (
                    place.name(),
                    samples.map_or_else(Vec::new, |samples| samples.iter().map(|sample| sample.value).collect()),
                )
            };
            Some(Line {
                name: figure.name.to_owned(),
                unit: figure.unit,
                values: samples.iter().map(|sample| sample.value).collect(),
                reference: figure.beside.map(values),
                durable: figure.durable,
                aim: None,
                cpu: report::median_cpu(&samples),
            })
        };
        part.figures().iter().filter_map(line).collect()
    }
}

/// `ebb` without debug assertions, built now.
fn built() -> Result<PathBuf> {
    build(&["--bin", "ebb"])?;
    Ok(target().join("release/ebb"))
}

/// A directory for clusters, on the disk that the build uses.
fn scratch() -> Result<PathBuf> {
    let scratch = target().join("bench");
    std::fs::create_dir_all(&scratch)?;
    Ok(scratch)
}

/// Builds the measured programs, and starts them.
fn start() -> Result<Vec<Place>> {
    let (program, scratch) = (built()?, scratch()?);
    build(&["-p", "ebb-fuse", "--example", "bare"])?;
    let disk = scratch.join("disk");
    std::fs::create_dir_all(&disk)?;
    let bare = Bare::start(&target().join("release/examples/bare"), &scratch)?;
    let cluster = Cluster::start(&program, &scratch, Shape::PLAIN)?;
    Ok(vec![Place::Disk(disk), Place::Bare(bare), Place::Cluster(cluster)])
}

fn build(words: &[&str]) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--locked", "-q"]).args(words).current_dir(crate::tree::root());
    if command.status()?.success() {
        return Ok(());
    }
    Err(std::io::Error::other(format!("building {} failed", words.join(" "))))
}

/// Cargo's target directory.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::tree::root().join("target"), Into::into)
}

/// Crates with measurements in `examples/`.
const MEASURED: &[&str] = &["ebb-rpc", "ebb-meta", "ebb-code", "ebb-store", "ebb-client"];

fn programs(filter: &str) -> Result<Vec<Step>> {
    let tree = Tree::load().map_err(std::io::Error::other)?;
    let mut steps = Vec::new();
    for package in MEASURED {
        let folder = format!("crates/{package}/examples/");
        for file in tree.ending(".rs").filter(|file| file.path.starts_with(&folder)) {
            let name = file.path[folder.len()..].trim_end_matches(".rs");
            if format!("{package} {name}").contains(filter) {
                let words = ["run", "-q", "-p", package, "--example", name];
                steps.push(Step::cargo("program", &words).showing(|_| true));
            }
        }
    }
    Ok(steps)
}

/// A scratch file beside the build, on the disk that the build uses; gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self> {
        let folder = target().join("bench");
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder.join(format!("{name}.{}", std::process::id()))))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_the_machine_measures_something() {
        for row in rows() {
            let value = (row.measure)().unwrap();
            assert!(value.is_finite() && value > 0.0, "{}: {value}", row.name);
        }
    }

    #[test]
    fn wrong_words_are_refused() {
        assert_eq!((run(&["--quik"]), run(&["a", "b"])), (None, None));
        assert_eq!((run(&["--raid", "--program"]), run(&["--program", "ebb"])), (None, None));
    }
}
