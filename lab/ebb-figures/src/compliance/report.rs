//! The measures of several policies as a table and as figures.

use std::time::Duration;

use ebb_plan::figure::{Axis, Bars};
use ebb_plan::{Cell, Figure, Mark, Table};

use super::{Compliance, LEVEL};

/// What the figures and rows are from.
pub const SOURCE: &str = "Compliance";

/// A policy on a cluster of processes, on one in virtual time, or on both.
#[derive(Clone, PartialEq, Debug)]
pub struct Pair {
    /// Of the cluster of processes.
    pub real: Option<Compliance>,
    /// Of the one in virtual time.
    pub simulated: Option<Compliance>,
}

impl Pair {
    /// Those that there are, with their names.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, &Compliance)> {
        let pair = [("real", &self.real), ("virtual", &self.simulated)];
        pair.into_iter().filter_map(|(name, seen)| Some((name, seen.as_ref()?)))
    }
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

/// A row for each policy and cluster. A time that is missing was not reached.
#[must_use]
pub fn table(pairs: &[Pair]) -> Table {
    let columns = [
        ("policy", "policy"),
        ("cluster", "cluster"),
        ("within_s", "within (s)"),
        ("mean_within_s", "as mean (s)"),
        ("over_s", "above (s)"),
        ("over_joules", "above (J)"),
        ("missing_joules", "missing (J)"),
        ("requests", "requests"),
        ("failed", "failed"),
        ("slowest_read_s", "slowest read (s)"),
        ("slowest_write_s", "write (s)"),
        ("all_serving_s", "all serve (s)"),
    ];
    let title = format!("Power cut to {:.0} % of the nodes', and back", LEVEL * 100.0);
    let mut table = Table::new(title, &columns);
    for (cluster, seen) in pairs.iter().flat_map(Pair::each) {
        let (over, answered) = (seen.record.over(), &seen.answered);
        let requests = answered.reads.seconds.len() + answered.writes.seconds.len();
        table.row(vec![
            Cell::text(seen.policy.name()),
            cluster.into(),
            Cell::number(seconds(seen.record.within()), 2),
            Cell::number(seconds(seen.record.mean_within()), 2),
            Cell::Number(over.time.as_secs_f64(), 2),
            Cell::Number(over.joules, 0),
            Cell::Number(over.missing_joules, 0),
            Cell::Count(requests as u64 + answered.failed()),
            Cell::Count(answered.failed()),
            Cell::number(answered.reads.slowest(), 2),
            Cell::number(answered.writes.slowest(), 2),
            Cell::number(seconds(seen.record.all_serving()), 2),
        ]);
    }
    table
}

/// The draw around the cut, a figure for each policy; then the measures as bars.
#[must_use]
pub fn figures(pairs: &[Pair]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = pairs.iter().filter_map(draw).collect();
    let read = |seen: &Compliance| seen.answered.reads.slowest();
    let write = |seen: &Compliance| seen.answered.writes.slowest();
    let above = |seen: &Compliance| Some(seen.record.over().joules);
    let missing = |seen: &Compliance| Some(seen.record.over().missing_joules);
    figures.push(bars(
        "from the cut until the draw is within the supply",
        "s; without a bar: never",
        pairs,
        &[
            ("each instant", &|seen| seconds(seen.record.within())),
            ("each interval's mean", &|seen| seconds(seen.record.mean_within())),
        ],
    ));
    figures.push(bars(
        "energy drawn above the supply",
        "J",
        pairs,
        &[("in all", &above), ("that the battery had not", &missing)],
    ));
    figures.push(bars("the slowest request", "s", pairs, &[("read", &read), ("write and fsync", &write)]));
    let serving = |seen: &Compliance| seconds(seen.record.all_serving());
    figures.push(bars("from the return of the power until all nodes serve", "s", pairs, &[("", &serving)]));
    figures
}

fn draw(pair: &Pair) -> Option<Figure> {
    let (_, first) = pair.each().next()?;
    let mut figure = Figure::plane(
        format!("{SOURCE}: what {} draws when the power is cut, and when it returns", first.policy),
        Axis::linear("time since the cut (s)").from(-first.interval.as_secs_f64()),
        Axis::linear("draw of the cluster (W)").from(0.0),
    )
    .subtitle(format!(
        "{} nodes, {:.0} % of their power, interval {:?}; the grey line is the supply",
        first.record.nodes,
        LEVEL * 100.0,
        first.interval
    ));
    for (cluster, seen) in pair.each() {
        let mark = if cluster == "real" { Mark::Step } else { Mark::DashedStep };
        figure = figure.with(cluster, mark, changes(seen, |look| look.watts));
    }
    let mut supply = Vec::new();
    for (at, watts) in changes(first, |look| look.supply_watts) {
        if let Some((_, before)) = supply.last().copied() {
            supply.push((at, before));
        }
        supply.push((at, watts));
    }
    Some(figure.with("supply", Mark::Reference, supply))
}

/// Where a value changes: seconds since the cut and the value from there on; from an interval before the cut on.
fn changes(seen: &Compliance, value: impl Fn(&super::record::Look) -> f64) -> Vec<(f64, f64)> {
    let record = &seen.record;
    let first = record.looks.partition_point(|look| look.at + seen.interval < record.cut);
    let looks = &record.looks[first..];
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (index, look) in looks.iter().enumerate() {
        let value = value(look);
        let is_last = index + 1 == looks.len();
        if is_last || points.last().is_none_or(|last| last.1 != value) {
            points.push((look.at.as_secs_f64() - record.cut.as_secs_f64(), value));
        }
    }
    points
}

type Measure<'a> = (&'a str, &'a dyn Fn(&Compliance) -> Option<f64>);

fn bars(title: &str, unit: &str, pairs: &[Pair], measures: &[Measure<'_>]) -> Figure {
    let name = |pair: &Pair| pair.each().next().map_or_else(String::new, |(_, seen)| seen.policy.to_string());
    let mut groups = Vec::new();
    for (measure, of) in measures {
        for cluster in ["real", "virtual"] {
            let value = |pair: &Pair| {
                let seen = pair.each().find(|one| one.0 == cluster);
                seen.and_then(|(_, seen)| of(seen)).unwrap_or(f64::NAN)
            };
            if pairs.iter().flat_map(Pair::each).any(|one| one.0 == cluster) {
                let name = if measure.is_empty() { cluster.to_owned() } else { format!("{measure}, {cluster}") };
                groups.push((name, pairs.iter().map(value).collect()));
            }
        }
    }
    let bars = Bars {
        categories: pairs.iter().map(name).collect(),
        y: Axis::linear(unit),
        groups,
        stacked: false,
        line: None,
    };
    Figure::bars(format!("{SOURCE}: {title}"), bars)
}
