//! Every policy at every level of power, by every measure, on each kind of data: no figure of the papers.
//!
//! Policies are compared on the same data. Each reads all of it, counts its words, and answers a key-value store's user.

use std::time::Duration;

use ebb_client::Access;
use ebb_plan::{Cell, Comparison, Section, Table};
use ebb_power::{PolicyKind, Supply};
use ebb_types::Result;

use super::requests::{self, Arrivals, Load};
use crate::drive::read_whole;
use crate::hardware::MACHINES;
use crate::job::Workers;
use crate::part::Lab;
use crate::testbed::{Layout, Setting, on};

pub const SOURCES: &[&str] = &["Policies"];

const NODES: u32 = 9;
const POWERS: [u32; 10] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
/// A job or a full read that has not ended by then has stalled.
const PATIENCE: Duration = Duration::from_secs(1_200);
/// Requests of each reader of everything at a time: those that wait for a node leave others to go on.
const STREAMS: usize = 16;
/// Tide is second by more than chance if it is worse than the best by this share.
const NOISE: f64 = 0.05;

/// Data, and the policies that make something of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Data {
    name: &'static str,
    layout: Layout,
    policies: &'static [PolicyKind],
}

use PolicyKind::{Activation, BlinkCircular, BlinkStaggered, Tide};

/// Three copies each.
const DATA: [Data; 3] = [
    Data {
        name: "equal-work, two primaries",
        layout: Layout::equal_work(2, 3),
        policies: &[Activation, BlinkStaggered, BlinkCircular, Tide],
    },
    Data { name: "power-balanced", layout: Layout::balanced(3), policies: &[BlinkStaggered, BlinkCircular, Tide] },
    Data {
        name: "gears of three, three primaries",
        layout: Layout::geared(3, 3, 3),
        policies: &[Activation, BlinkStaggered, BlinkCircular, Tide],
    },
];

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Measure {
    /// A full read by nine users that are always on, in MB/s.
    Read,
    /// A word count by workers on the nodes, in seconds.
    Count,
    /// Mean latency of a key-value store's requests, in seconds.
    Mean,
    /// The time that nine of ten of them did not exceed, in seconds.
    P90,
}

impl Measure {
    const ALL: [Self; 4] = [Self::Read, Self::Count, Self::Mean, Self::P90];

    const fn name(self) -> &'static str {
        match self {
            Self::Read => "full read, MB/s",
            Self::Count => "word count, s",
            Self::Mean => "mean latency, s",
            Self::P90 => "90th percentile, s",
        }
    }

    fn cell(self, value: Option<f64>) -> Cell {
        match self {
            _ if value.is_none() => "stalls".into(),
            Self::Read | Self::Count => Cell::number(value, 0),
            Self::Mean | Self::P90 => Cell::number(value, 3),
        }
    }

    /// How much worse one value is than another, as a share; none: it stalls.
    fn worse(self, one: Option<f64>, than: f64) -> Option<f64> {
        match self {
            Self::Read => one.map(|one| than / one - 1.0),
            Self::Count | Self::Mean | Self::P90 => one.map(|one| one / than - 1.0),
        }
    }

    fn best(self, values: impl Iterator<Item = f64>) -> Option<f64> {
        match self {
            Self::Read => values.max_by(f64::total_cmp),
            Self::Count | Self::Mean | Self::P90 => values.min_by(f64::total_cmp),
        }
    }
}

/// One cluster.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Case {
    layout: Layout,
    policy: PolicyKind,
    percent: u32,
}

/// Its values by [`Measure::ALL`]. None: it stalls.
type Seen = [Option<f64>; 4];

impl Case {
    fn supply(&self) -> Supply {
        Supply::Fraction(f64::from(self.percent) / 100.0)
    }

    /// Full reads one after the other for so many intervals: a short one would depend on the part of an interval that it falls
    /// into.
    fn read(&self, seed: u64, intervals: u32) -> Result<Option<f64>> {
        let setting = Setting::of(NODES, self.policy, self.layout, 432);
        on(seed, setting, |bed| async move {
            bed.supply_and_wait(self.supply()).await?;
            let mut users = Vec::new();
            for number in 1..=NODES {
                users.push(bed.user(&format!("reader{number}"), Some(Access::Read)).await?);
            }
            let (began, mut bytes) = (bed.world.now(), 0);
            while bed.world.now() - began < MACHINES.interval * intervals {
                let whole = read_whole(&bed, &users, STREAMS, None).await;
                if whole.latencies.failed > 0 || whole.took > PATIENCE {
                    return Ok(None);
                }
                bytes += setting.bytes();
            }
            Ok(Some(bytes as f64 / 1e6 / (bed.world.now() - began).as_secs_f64()))
        })
    }

    /// Mean time of jobs, likewise.
    fn count(&self, seed: u64, intervals: u32) -> Result<Option<f64>> {
        let setting = Setting { files: 27, blocks_per_file: 12, ..Setting::of(NODES, self.policy, self.layout, 0) };
        on(seed, setting, |bed| async move {
            let user = bed.user("scheduler", None).await?;
            let workers = Workers::start(&bed, &user).await?;
            bed.supply_and_wait(self.supply()).await?;
            let (began, mut jobs) = (bed.world.now(), 0.0);
            while bed.world.now() - began < MACHINES.interval * intervals {
                if workers.count(&bed, PATIENCE).await?.is_none() {
                    return Ok(None);
                }
                jobs += 1.0;
            }
            Ok(Some((bed.world.now() - began).as_secs_f64() / jobs))
        })
    }

    fn latency(&self, seed: u64, intervals: u32) -> Result<[Option<f64>; 2]> {
        let load = Load { bytes: 100_000, skew: 1.0, arrivals: Arrivals::Steady, files: 63 };
        let span = MACHINES.interval * intervals;
        let seen = requests::steady(self.policy, self.layout, self.supply(), seed, load, span)?;
        Ok([seen.mean(), seen.p90()].map(|value| value.filter(|_| seen.failed == 0)))
    }

    /// All measures.
    fn run(&self, seed: u64, intervals: u32) -> Result<Seen> {
        let [mean, p90] = self.latency(seed, intervals)?;
        Ok([self.read(seed, intervals)?, self.count(seed, intervals)?, mean, p90])
    }
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let (powers, intervals) = lab.effort.of((&POWERS[..], 10), (&[20, 50][..], 4));
    let cases: Vec<Case> = DATA
        .iter()
        .flat_map(|data| data.policies.iter().map(|policy| (data.layout, *policy)))
        .flat_map(|(layout, policy)| powers.iter().map(move |percent| Case { layout, policy, percent: *percent }))
        .collect();
    let seen = lab.map(&cases, |case| case.run(lab.seed, intervals))?;
    let of = |case: Case| cases.iter().position(|one| *one == case).map_or([None; 4], |at| seen[at]);
    let mut section = Section::new("", &[]);
    for data in DATA {
        for measure in Measure::ALL {
            compare(&mut section, &data, measure, powers, &of);
        }
    }
    Ok(section)
}

/// A table of one measure on one kind of data, and the sentence about tide.
fn compare(section: &mut Section, data: &Data, measure: Measure, powers: &[u32], of: &dyn Fn(Case) -> Seen) {
    let mut columns = vec![("percent", "power, %")];
    columns.extend(data.policies.iter().map(|policy| (policy.name(), policy.name())));
    let mut table = Table::new(format!("{}: {}", data.name, measure.name()), &columns);
    let mut worst: Option<(f64, u32)> = None;
    for percent in powers.iter().copied() {
        let value = |policy| of(Case { layout: data.layout, policy, percent })[measure as usize];
        let values: Vec<Option<f64>> = data.policies.iter().map(|policy| value(*policy)).collect();
        let best = measure.best(values.iter().flatten().copied());
        let is_best = |value: &Option<f64>| best.is_some_and(|best| measure.worse(*value, best) == Some(0.0));
        let marks: Vec<bool> = std::iter::once(false).chain(values.iter().map(is_best)).collect();
        let cells = values.iter().map(|value| measure.cell(*value));
        table.marked_row(std::iter::once(Cell::Count(percent.into())).chain(cells).collect(), &marks);
        if let Some(best) = best {
            let behind = measure.worse(value(Tide), best).unwrap_or(f64::INFINITY);
            if worst.is_none_or(|(most, _)| behind > most) {
                worst = Some((behind, percent));
            }
        }
    }
    section.tables.push(table);
    let holds = worst.is_none_or(|(behind, _)| behind <= NOISE);
    let why = worst.map_or(String::new(), |(_, percent)| format!("At {percent} % power."));
    section.rows.push(
        Comparison::new(
            "Policies",
            format!("{}, {}: tide, behind the best of all at most", data.name, measure.name()),
            "nothing".into(),
            Cell::share(worst.map(|(behind, _)| behind), 1),
            why,
        )
        .judged(holds, if holds { "no worse" } else { "worse" }),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_knows_the_better_of_two() {
        assert_eq!(Measure::Read.best([1.0, 3.0].into_iter()), Some(3.0));
        assert_eq!(Measure::Read.worse(Some(2.0), 3.0), Some(0.5));
        assert_eq!(Measure::P90.best([1.0, 3.0].into_iter()), Some(1.0));
        assert_eq!((Measure::P90.worse(Some(1.5), 1.0), Measure::P90.worse(None, 1.0)), (Some(0.5), None));
    }

    /// Below the primaries tide goes on, and activation does not.
    #[test]
    fn a_case_has_every_measure_or_stalls() {
        let run = |policy| Case { layout: Layout::equal_work(2, 3), policy, percent: 20 }.run(7, 2).unwrap();
        assert_eq!(run(Activation), [None; 4]);
        assert!(run(Tide).iter().all(Option::is_some));
    }
}
