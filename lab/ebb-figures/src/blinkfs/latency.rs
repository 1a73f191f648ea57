//! Table 2 and Fig. 8: how long one reader and one writer wait at each power and number of copies.

use std::time::Duration;

use ebb_client::Access;
use ebb_plan::figure::Axis;
use ebb_plan::{Cell, Comparison, Figure, Mark, Section};
use ebb_power::{PolicyKind, Supply};
use ebb_types::Result;

use crate::drive::{read_in_a_loop, write_in_a_loop};
use crate::hardware::MACHINES;
use crate::measure::Latencies;
use crate::part::Lab;
use crate::testbed::{Layout, Setting, on};

pub const SOURCES: &[&str] = &["Fig. 8", "Table 2"];

const NODES: u32 = 9;
const POWERS: [u32; 5] = [20, 40, 60, 80, 100];
const COPIES: [u32; 3] = [1, 3, 6];

/// Printed: copies, then 90th percentile and standard deviation of reads in ms, at each power.
const READS: [(u32, [f64; 5], [f64; 5]); 3] = [
    (1, [46_058.0, 33_636.0, 64.0, 64.0, 63.0], [15_524.0, 12_701.0, 1_692.0, 725.0, 9.0]),
    (3, [13_065.0, 64.0, 63.0, 63.0, 63.0], [5_476.0, 322.0, 309.0, 9.0, 7.0]),
    (6, [63.0; 5], [523.0, 7.0, 7.0, 7.0, 7.0]),
];

/// Printed: copies, then 90th percentile of writes in ms.
const WRITES: [(u32, [f64; 5]); 3] = [
    (1, [60.0, 60.0, 61.0, 62.0, 65.0]),
    (3, [79.0, 103.0, 131.0, 145.0, 147.0]),
    (6, [127.0, 183.0, 257.0, 258.0, 263.0]),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Reading,
    Writing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Case {
    policy: PolicyKind,
    copies: u32,
    percent: u32,
    doing: Doing,
}

impl Case {
    fn run(&self, seed: u64, blocks: u32, intervals: u32) -> Result<Latencies> {
        let setting = Setting::of(NODES, self.policy, Layout::balanced(self.copies), blocks);
        on(seed, setting, |bed| async move {
            let access = if self.doing == Doing::Reading { Access::Read } else { Access::ReadWrite };
            let user = bed.user("user", Some(access)).await?;
            bed.supply_and_wait(Supply::Fraction(f64::from(self.percent) / 100.0)).await?;
            let span: Duration = MACHINES.interval * intervals;
            Ok(match self.doing {
                Doing::Reading => read_in_a_loop(&bed, &user, span).await,
                Doing::Writing => write_in_a_loop(&bed, &user, span).await,
            })
        })
    }
}

/// The paper's policy, and ours at equal copies.
const POLICIES: [PolicyKind; 3] = [PolicyKind::BlinkStaggered, PolicyKind::BlinkCircular, PolicyKind::Tide];

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let (blocks, intervals, powers) = lab.effort.of((144, 12_u32, &POWERS[..]), (48, 3, &POWERS[..2]));
    let mut cases = Vec::new();
    for copies in COPIES {
        for percent in powers {
            let case = |policy, doing| Case { policy, copies, percent: *percent, doing };
            cases.extend(POLICIES.map(|policy| case(policy, Doing::Reading)));
            cases.push(case(PolicyKind::BlinkStaggered, Doing::Writing));
        }
    }
    let seen = lab.map(&cases, |case| {
        // Each write is made on every copy: a third of the time has as many of them.
        let intervals = if case.doing == Doing::Writing { intervals.div_ceil(3) } else { intervals };
        case.run(lab.seed, blocks, intervals)
    })?;
    let of = |wanted: Case| cases.iter().position(|case| *case == wanted).map(|at| &seen[at]);
    let mut section = Section::new("", &[]);
    reads(&mut section, powers, &of);
    writes(&mut section, powers, &of);
    section.figures.extend([read_figure(powers, &of), write_figure(powers, &of)]);
    Ok(section)
}

/// Milliseconds.
fn ms(seconds: Option<f64>) -> Option<f64> {
    seconds.map(|seconds| seconds * 1e3)
}

fn reads<'a>(section: &mut Section, powers: &[u32], of: &dyn Fn(Case) -> Option<&'a Latencies>) {
    for (copies, p90, deviation) in READS {
        for (at, percent) in powers.iter().copied().enumerate() {
            let case = |policy| Case { policy, copies, percent, doing: Doing::Reading };
            let Some(seen) = of(case(PolicyKind::BlinkStaggered)) else { continue };
            let beside = |policy: PolicyKind| {
                let p90 = of(case(policy)).and_then(Latencies::p90);
                format!("{policy} {:.0}", ms(p90).unwrap_or(f64::NAN))
            };
            let rivals =
                format!("At equal copies: {}, {}.", beside(PolicyKind::BlinkCircular), beside(PolicyKind::Tide));
            let quantity = format!("90th percentile of read latency, r = {copies}, {percent} % power (ms)");
            let ours = ms(seen.p90());
            let why = why(p90[at], ours.unwrap_or(f64::NAN));
            section.rows.push(Comparison::new(
                "Table 2",
                quantity,
                Cell::Number(p90[at], 0),
                Cell::number(ours, 0),
                format!("{why}{rivals}"),
            ));
            let quantity = format!("standard deviation of read latency, r = {copies}, {percent} % power (ms)");
            let spread = ms(seen.deviation());
            let apart = "It is made by the few reads that wait for a node to wake: how long each of them is, and how many there are at the \
                         edges of active times.";
            section.rows.push(Comparison::new(
                "Table 2",
                quantity,
                Cell::Number(deviation[at], 0),
                Cell::number(spread, 0),
                apart,
            ));
        }
    }
    let one = Case { policy: PolicyKind::BlinkStaggered, copies: 1, percent: 20, doing: Doing::Reading };
    let mean = of(one).and_then(Latencies::mean);
    section.rows.push(
        Comparison::new(
            "Fig. 8",
            "mean read latency, one copy, 20 % power (s)",
            "past 8".into(),
            Cell::number(mean, 1),
            "",
        )
        .bound(mean.is_some_and(|mean| mean > 8.0)),
    );
}

/// Where ours is not as printed.
fn why(printed: f64, ours: f64) -> &'static str {
    if (ours / printed - 1.0).abs() <= Comparison::CLOSE {
        ""
    } else if printed > 1_000.0 {
        "All waits end when a node wakes, so that they have few lengths and the percentile jumps between them; a second of \
         transitions moves it. "
    } else if ours > 1_000.0 {
        "The layout's half-way points leave neighbours on the circle without a copy, and a gap between the others; the \
         printed value comes out with copies at equal distances (`ebb plan report`). "
    } else {
        "Disk and link of the model, one after the other. "
    }
}

fn writes<'a>(section: &mut Section, powers: &[u32], of: &dyn Fn(Case) -> Option<&'a Latencies>) {
    for (copies, p90) in WRITES {
        for (at, percent) in powers.iter().copied().enumerate() {
            let case = Case { policy: PolicyKind::BlinkStaggered, copies, percent, doing: Doing::Writing };
            let ours = of(case).and_then(|seen| ms(seen.p90()));
            let why = if ours.is_some_and(|ours| ours > 1_000.0) {
                "Ours is safe when it is synced on every member, or in two logs. With so few awake, a log waits for a node to \
                 wake. The prototype's write returns when one proxy has it in memory."
            } else {
                "Not the same promise: the prototype's write returns when it is in the memory of one proxy; ours when it \
                 is synced on every member, or in two logs for those that sleep."
            };
            let quantity = format!("90th percentile of write latency, r = {copies}, {percent} % power (ms)");
            section.rows.push(Comparison::new(
                "Table 2",
                quantity,
                Cell::Number(p90[at], 0),
                Cell::number(ours, 0),
                why,
            ));
        }
    }
}

type Curve = Vec<(f64, f64)>;

fn curve<'a>(powers: &[u32], of: &dyn Fn(Case) -> Option<&'a Latencies>, case: Case) -> Curve {
    let point = |percent: &u32| {
        let seen = of(Case { percent: *percent, ..case })?.mean()?;
        Some((f64::from(*percent), seen))
    };
    powers.iter().filter_map(point).collect()
}

fn read_figure<'a>(powers: &[u32], of: &dyn Fn(Case) -> Option<&'a Latencies>) -> Figure {
    let case = |policy, copies| Case { policy, copies, percent: 0, doing: Doing::Reading };
    let mut figure = Figure::plane(
        "Fig. 8: copies at other times of the interval take the wait away",
        Axis::linear("power (% of the nodes')").from(0.0).to(100.0),
        Axis::log("mean read latency (s)"),
    )
    .subtitle("one closed-loop reader of 4 MB blocks, nine nodes, power-balanced layout, interval 60 s");
    for (copies, mark) in COPIES.into_iter().zip([Mark::Markers, Mark::Line, Mark::Dashed]) {
        let points = curve(powers, of, case(PolicyKind::BlinkStaggered, copies));
        figure = figure.with(format!("staggered, r = {copies}"), mark, points);
    }
    figure.with("tide, r = 3", Mark::DashedStep, curve(powers, of, case(PolicyKind::Tide, 3)))
}

fn write_figure<'a>(powers: &[u32], of: &dyn Fn(Case) -> Option<&'a Latencies>) -> Figure {
    let mut figure = Figure::plane(
        "Fig. 8: a safe write costs more with each copy, and does not wait for sleepers",
        Axis::linear("power (% of the nodes')").from(0.0).to(100.0),
        Axis::log("mean write latency (s)"),
    )
    .subtitle("one closed-loop writer of 4 MB blocks, each made safe; staggered");
    for (copies, mark) in COPIES.into_iter().zip([Mark::Markers, Mark::Line, Mark::Dashed]) {
        let case = Case { policy: PolicyKind::BlinkStaggered, copies, percent: 0, doing: Doing::Writing };
        figure = figure.with(format!("r = {copies}"), mark, curve(powers, of, case));
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shape: less power and fewer copies wait longer; at full power no read waits.
    #[test]
    fn power_and_copies_take_waits_away() {
        let run = |copies, percent| {
            let case = Case { policy: PolicyKind::BlinkStaggered, copies, percent, doing: Doing::Reading };
            case.run(7, 48, 2).unwrap()
        };
        let (one, three, full) = (run(1, 20), run(3, 20), run(1, 100));
        assert!(one.mean().unwrap() > three.mean().unwrap(), "{one:?} {three:?}");
        assert!(full.p90().unwrap() < 0.1 && one.p90().unwrap() > 10.0, "{full:?} {one:?}");
        assert_eq!((one.failed, three.failed, full.failed), (0, 0, 0));
    }
}
