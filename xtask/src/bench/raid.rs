//! Speeds of RAID sets: encoding, programs beside it, reads and rebuilds without a node, writes to what is frozen.
//!
//! Each part has a cluster of its own in each round, and ends it. A figure has its reference in the same round, by the same code
//! on the same cluster if that has one, and its ratio is that of the round. An aim is what was wanted before anything was measured.
//!
//! Every file here but [`rig`] and [`journal`] is one part. A part writes files, has them encoded by `ebb raid encode`, and measures.
//! How long the master's own steps take is read from its log ([`journal`]), as asking it often would slow it down.

mod beside;
mod degraded;
mod encoding;
mod journal;
mod latency;
mod rebuild;
mod rig;
mod thaw;

use std::collections::BTreeMap;
use std::io::Result;
use std::path::PathBuf;

use super::cpu::Cpu;
use super::report::{Aim, Line};
use super::{Ask, ROUNDS, built, report, scratch};
use crate::interrupt;

/// A figure of RAID sets.
struct Figure {
    /// Name, which never changes, because runs are compared by it.
    name: &'static str,
    /// Unit of the value and of its reference.
    unit: &'static str,
    /// What the reference is.
    beside: &'static str,
    /// What was wanted. `None`: it explains another figure.
    aim: Option<Aim>,
}

const fn figure(name: &'static str, unit: &'static str, beside: &'static str, aim: Option<Aim>) -> Figure {
    Figure { name, unit, beside, aim }
}

/// One measurement of a figure.
struct Measured {
    name: &'static str,
    value: f64,
    reference: Option<f64>,
    /// Processor seconds of the cluster's processes, for each GiB.
    cpu: Cpu,
}

impl Measured {
    fn new(name: &'static str, value: f64, reference: f64) -> Self {
        Self { name, value, reference: Some(reference), cpu: Cpu::new() }
    }
}

/// Figures that are measured together.
struct Part {
    name: &'static str,
    figures: &'static [Figure],
    measure: fn(&Bench) -> Result<Vec<Measured>>,
}

/// All parts, in the order of the table.
const PARTS: &[Part] = &[
    Part { name: "encoding at 4+2", figures: encoding::FOUR, measure: encoding::measure_four },
    Part { name: "encoding at 8+2", figures: encoding::EIGHT, measure: encoding::measure_eight },
    Part { name: "programs beside encoding", figures: beside::FIGURES, measure: beside::measure },
    Part { name: "reads without a node", figures: degraded::FIGURES, measure: degraded::measure },
    Part { name: "rebuild", figures: rebuild::FIGURES, measure: rebuild::measure },
    Part { name: "thaw", figures: thaw::FIGURES, measure: thaw::measure_awake },
    Part { name: "thaw where members blink", figures: thaw::BLINKING, measure: thaw::measure_blinking },
];

/// What parts need to start their clusters.
struct Bench {
    program: PathBuf,
    scratch: PathBuf,
    /// Bytes of files that are encoded in one go.
    bytes: u64,
    /// Seconds of each load that runs for a time.
    span: f64,
}

/// Measures all parts, or those whose name, or the name of a figure of theirs, contains the filter.
///
/// # Errors
/// A command or a call on a mount fails, or a signal requests the end. All processes are ended then, too.
pub fn run(ask: &Ask<'_>) -> Result<bool> {
    interrupt::catch_signals();
    let is_asked = |part: &&Part| {
        [part.name]
            .into_iter()
            .chain(part.figures.iter().map(|figure| figure.name))
            .any(|name| name.contains(ask.filter))
    };
    let parts: Vec<&Part> = PARTS.iter().filter(is_asked).collect();
    if parts.is_empty() {
        return Err(std::io::Error::other(format!("no figure of RAID sets has {:?} in its name", ask.filter)));
    }
    let program = ask.program.map_or_else(built, std::fs::canonicalize)?;
    let scratch = scratch()?;
    let (bytes, span) = if ask.quick { (512 << 20, 1.0) } else { (1 << 30, 4.0) };
    let bench = Bench { program, scratch, bytes, span };
    let mut found: BTreeMap<&str, Vec<Measured>> = BTreeMap::new();
    let rounds = if ask.quick { 1 } else { ROUNDS };
    for round in 1..=rounds {
        for part in &parts {
            eprintln!("round {round} of {rounds}: {}", part.name);
            let measured = (part.measure)(&bench)
                .map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", part.name)))?;
            for measured in measured {
                found.entry(measured.name).or_default().push(measured);
            }
            interrupt::check()?;
        }
    }
    let figures = parts.iter().flat_map(|part| part.figures);
    let lines: Vec<Line> = figures.filter_map(|figure| Some(line(figure, found.remove(figure.name)?))).collect();
    if ask.json {
        println!("{}", report::to_json(&lines));
    } else {
        report::print_table(&lines);
    }
    Ok(true)
}

fn line(figure: &Figure, measured: Vec<Measured>) -> Line {
    let references: Vec<f64> = measured.iter().filter_map(|one| one.reference).collect();
    Line {
        name: figure.name.to_owned(),
        unit: figure.unit,
        values: measured.iter().map(|one| one.value).collect(),
        reference: (!references.is_empty()).then_some((figure.beside, references)),
        durable: None,
        aim: figure.aim,
        cpu: report::median_cpus(measured.iter().map(|one| &one.cpu)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_used_twice() {
        let mut names = std::collections::BTreeSet::new();
        assert!(PARTS.iter().flat_map(|part| part.figures).all(|figure| names.insert(figure.name)));
    }
}
