//! Fig. 2: grep, TeraGen and TeraSort on HDFS and on Ebb, in one and two copies, on one and two racks; with it the two
//! routes of a write to its copies, and what POSIX offers beside MapReduce (the paper's sections 2.2 and 5).
//!
//! The command `ebb lab metablocks --figure 2` has a script measure, on hosts with limited links. Here are its lines,
//! the model of its bytes, and the sentences beside the paper's. Pure.

mod rows;
mod traffic;

use ebb_plan::figure::Axis;
use ebb_plan::{Bars, Cell, Figure, Section, Table};
use ebb_types::{Result, bail, err};
use serde::Deserialize;

use super::median;
pub use traffic::{Traffic, expected};

/// The site of the measurements: the script's first line.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Hosts, each with a block server, a node of HDFS and one of YARN.
    pub hosts: u32,
    /// Input of each job.
    pub bytes: u64,
    /// A metablock, a block of HDFS, and the input of a map.
    pub split: u64,
    /// Of each host's link and of the link between racks, in each direction.
    pub link_bytes_per_second: f64,
    /// Repeats.
    pub rounds: u32,
    /// Processor cores that all hosts share.
    pub cores: u32,
}

/// One measurement: each further line.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// `grep`, `teragen`, `terasort`; `write-N` by N writers; `random`, `hot`, `update`, `append`.
    pub job: String,
    /// `hdfs`, `ebb`, `striped`; `pipeline`, `single-source`; `mount`.
    pub system: String,
    /// Copies of what is read or written.
    pub copies: u32,
    /// Racks.
    pub racks: u32,
    /// Repeat, from 1.
    pub round: u32,
    /// From its start to its end.
    pub seconds: f64,
    /// Of all cores, by all processes of the machine.
    pub cpu_seconds: f64,
    /// Sent by all hosts.
    pub network_bytes: f64,
    /// Carried by the host's link that carried most, in its busier direction.
    pub busiest_link_bytes: f64,
    /// Carried by the link between racks, in its busier direction.
    pub trunk_bytes: f64,
    /// Map tasks started.
    pub maps: u32,
    /// Of them, on a host with their input.
    pub local_maps: u32,
    /// Attempts that failed.
    pub failed: u32,
}

/// All that was measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure2 {
    /// The site.
    pub setup: Setup,
    /// In the order of their end.
    pub measured: Vec<Measured>,
}

/// The systems of the figure, and their names for people.
pub const SYSTEMS: [(&str, &str); 3] = [("hdfs", "HDFS"), ("ebb", "Ebb"), ("striped", "Ebb without affinity")];
/// Its jobs.
pub const JOBS: [&str; 3] = ["grep", "teragen", "terasort"];
/// Its settings: copies, racks.
pub const SETTINGS: [(u32, u32); 4] = [(1, 1), (1, 2), (2, 1), (2, 2)];

/// Medians over the rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Medians {
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub network_bytes: f64,
    pub busiest_link_bytes: f64,
    pub trunk_bytes: f64,
    /// Of all rounds: share of maps beside their input.
    pub local: Option<f64>,
    /// Of all rounds: attempts that failed.
    pub failed: u32,
}

impl Figure2 {
    /// Reads the lines of the script.
    ///
    /// # Errors
    /// `Protocol` for a line that is none of them, or if the first is missing.
    pub fn parse<'a>(mut lines: impl Iterator<Item = &'a str>) -> Result<Self> {
        let first = lines.next().unwrap_or_default();
        let bad = |line: &str, error| err!(Protocol, "the script printed {line:?}: {error}");
        let setup = serde_json::from_str(first).map_err(|error| bad(first, error))?;
        let measured: Result<_> =
            lines.map(|line| serde_json::from_str(line).map_err(|error| bad(line, error))).collect();
        Ok(Self { setup, measured: measured? })
    }

    /// Several runs as one: the rounds of each follow those of the runs before it.
    ///
    /// # Errors
    /// `Invalid` if there is no run, or if their sites differ: what was measured cannot be compared then.
    pub fn join(runs: impl IntoIterator<Item = Self>) -> Result<Self> {
        let mut runs = runs.into_iter();
        let mut all = runs.next().ok_or_else(|| err!(Invalid, "no run to show"))?;
        for run in runs {
            let before = all.setup.rounds;
            if (Setup { rounds: before, ..run.setup }) != all.setup {
                bail!(Invalid, "runs of different sites cannot be one: {:?}, {:?}", all.setup, run.setup);
            }
            let later = |measured: Measured| Measured { round: measured.round + before, ..measured };
            all.measured.extend(run.measured.into_iter().map(later));
            all.setup.rounds += run.setup.rounds;
        }
        Ok(all)
    }

    fn of<'a>(
        &'a self,
        job: &'a str,
        system: &'a str,
        (copies, racks): (u32, u32),
    ) -> impl Iterator<Item = &'a Measured> {
        self.measured.iter().filter(move |measured| {
            measured.job == job && measured.system == system && (measured.copies, measured.racks) == (copies, racks)
        })
    }

    /// Medians of one job on one system.
    pub(super) fn medians(&self, job: &str, system: &str, setting: (u32, u32)) -> Option<Medians> {
        let of = |pick: fn(&Measured) -> f64| median(self.of(job, system, setting).map(pick));
        let maps: u32 = self.of(job, system, setting).map(|measured| measured.maps).sum();
        let local: u32 = self.of(job, system, setting).map(|measured| measured.local_maps).sum();
        Some(Medians {
            seconds: of(|measured| measured.seconds)?,
            cpu_seconds: of(|measured| measured.cpu_seconds)?,
            network_bytes: of(|measured| measured.network_bytes)?,
            busiest_link_bytes: of(|measured| measured.busiest_link_bytes)?,
            trunk_bytes: of(|measured| measured.trunk_bytes)?,
            local: (maps > 0).then(|| f64::from(local) / f64::from(maps)),
            failed: self.of(job, system, setting).map(|measured| measured.failed).sum(),
        })
    }

    /// The median of the rounds' ratios of one system to another: what took turns is compared.
    pub(super) fn ratio(
        &self,
        job: &str,
        systems: (&str, &str),
        setting: (u32, u32),
        pick: fn(&Measured) -> f64,
    ) -> Option<f64> {
        let ratios = self.of(job, systems.0, setting).filter_map(|own| {
            let other = self.of(job, systems.1, setting).find(|other| other.round == own.round)?;
            Some(pick(own) / pick(other))
        });
        median(ratios)
    }

    /// Whether a job was measured at all.
    pub(super) fn has(&self, job: &str) -> bool {
        self.measured.iter().any(|measured| measured.job == job)
    }

    /// A writer on each host: the job's name.
    pub(super) fn all_writers(&self) -> String {
        format!("write-{}", self.setup.hosts)
    }
}

/// The sentences, tables and figures.
#[must_use]
pub fn section(figure: &Figure2) -> Section {
    let setup = figure.setup;
    let mut section = Section::new(super::TITLE, &[]);
    section.intro.push(format!(
        "{} hosts as network namespaces of one machine with {} cores. Each has a link of {:.0} Mbit/s in each direction; a \
         link of the same speed joins two racks. {:.0} MiB of input, splits of {:.0} MiB; one YARN runs the jobs on all file \
         systems in turns. Medians of {} rounds.",
        setup.hosts,
        setup.cores,
        setup.link_bytes_per_second * 8.0 / 1e6,
        setup.bytes as f64 / f64::from(1 << 20),
        setup.split as f64 / f64::from(1 << 20),
        setup.rounds,
    ));
    rows::add(&mut section, figure);
    section.tables.push(jobs(figure));
    if figure.has(&figure.all_writers()) {
        section.tables.push(routes(figure));
    }
    if figure.has("update") {
        section.tables.push(posix(figure));
    }
    if JOBS.iter().any(|job| figure.has(job)) {
        section.figures.push(bars(figure, "time", "seconds", |medians| medians.seconds));
        section.figures.push(bars(figure, "processor time", "CPU seconds", |medians| medians.cpu_seconds));
    }
    section
}

fn words((copies, racks): (u32, u32)) -> String {
    let of = |count: u32, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    format!("{}, {}", of(copies, "copy", "copies"), of(racks, "rack", "racks"))
}

/// All jobs, with the model's bytes beside the measured ones.
fn jobs(figure: &Figure2) -> Table {
    let columns = [
        ("job", "job"),
        ("setting", "setting"),
        ("system", "system"),
        ("seconds", "s"),
        ("cpu_seconds", "CPU s"),
        ("network_bytes", "network"),
        ("expected_network_bytes", "expected"),
        ("busiest_seconds", "busiest link, s"),
        ("expected_busiest_seconds", "expected"),
        ("local", "local maps"),
        ("failed", "failed attempts"),
    ];
    let mut table = Table::new("Fig. 2: medians, and what the model expects of the links", &columns);
    for job in JOBS {
        for setting in SETTINGS {
            for (system, name) in SYSTEMS {
                let Some(seen) = figure.medians(job, system, setting) else { continue };
                let model = expected(&figure.setup, job, system, setting);
                let rate = figure.setup.link_bytes_per_second;
                table.row(vec![
                    job.into(),
                    Cell::text(words(setting)),
                    name.into(),
                    Cell::Number(seen.seconds, 1),
                    Cell::Number(seen.cpu_seconds, 1),
                    Cell::Bytes(seen.network_bytes),
                    Cell::Bytes(model.network),
                    Cell::Number(seen.busiest_link_bytes.max(seen.trunk_bytes) / rate, 1),
                    Cell::Number(model.busiest() / rate, 1),
                    Cell::share(seen.local, 0),
                    Cell::Count(seen.failed.into()),
                ]);
            }
        }
    }
    table
}

fn routes(figure: &Figure2) -> Table {
    let columns = [
        ("writers", "writers"),
        ("system", "system"),
        ("seconds", "s"),
        ("cpu_seconds", "CPU s"),
        ("network_bytes", "network"),
        ("busiest_seconds", "busiest link, s"),
    ];
    let mut table = Table::new("Routes of a write to three copies: medians", &columns);
    for job in ["write-1".to_owned(), figure.all_writers()] {
        for system in ["hdfs", "pipeline", "single-source"] {
            let Some(seen) = figure.medians(&job, system, (3, 1)) else { continue };
            table.row(vec![
                Cell::text(job.trim_start_matches("write-")),
                system.into(),
                Cell::Number(seen.seconds, 1),
                Cell::Number(seen.cpu_seconds, 1),
                Cell::Bytes(seen.network_bytes),
                Cell::Number(seen.busiest_link_bytes / figure.setup.link_bytes_per_second, 1),
            ]);
        }
    }
    table
}

fn posix(figure: &Figure2) -> Table {
    let columns = [
        ("use", "use"),
        ("system", "system"),
        ("seconds", "s"),
        ("cpu_seconds", "CPU s"),
        ("network_bytes", "network"),
    ];
    let mut table = Table::new("Beside MapReduce, a thousand times each: medians", &columns);
    for (job, name) in rows::USES {
        for system in ["hdfs", "mount"] {
            let Some(seen) = figure.medians(job, system, (2, 1)) else { continue };
            table.row(vec![
                name.into(),
                system.into(),
                Cell::Number(seen.seconds, 2),
                Cell::Number(seen.cpu_seconds, 2),
                Cell::Bytes(seen.network_bytes),
            ]);
        }
    }
    table
}

fn bars(figure: &Figure2, title: &str, unit: &str, pick: fn(&Medians) -> f64) -> Figure {
    let categories = JOBS.iter().flat_map(|job| SETTINGS.map(|(copies, racks)| format!("{job} rep-{copies} r{racks}")));
    let heights = |system: &'static str| {
        let of = JOBS.iter().flat_map(move |job| {
            SETTINGS.map(|setting| figure.medians(job, system, setting).as_ref().map_or(f64::NAN, pick))
        });
        of.collect()
    };
    let bars = Bars {
        categories: categories.collect(),
        y: Axis::linear(unit),
        groups: SYSTEMS.iter().map(|(system, name)| ((*name).to_owned(), heights(system))).collect(),
        stacked: false,
        line: None,
    };
    Figure::bars(format!("Fig. 2: {title} of MapReduce jobs"), bars)
}

#[cfg(test)]
mod tests;
