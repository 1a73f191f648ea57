//! Fig. 6: full reads at each number of active nodes, beside HDFS on as many.

use ebb_client::Access;
use ebb_plan::figure::Axis;
use ebb_plan::{Cell, Comparison, Figure, Mark, Section};
use ebb_power::{PolicyKind, Supply};
use ebb_types::Result;

use crate::balancer::Balancer;
use crate::drive::{Whole, read_whole};
use crate::hardware::MACHINES;
use crate::part::Lab;
use crate::testbed::{Layout, Setting, on};

pub const SOURCES: &[&str] = &["Fig. 6"];

/// Nodes of the testbed (Sec. 4).
const NODES: u32 = 25;
/// The paper does not give it; with three copies the chain then spreads over 26 nodes, the cluster.
const PRIMARIES: u32 = 3;
/// 40 GB in blocks of 4 MB (Sec. 4).
const BLOCKS: u32 = 10_240;
/// Requests of each reader at a time.
const STREAMS: usize = 4;
/// The same where nodes blink: a stream that waits for one node leaves others to the next streams.
const BLINKING_STREAMS: usize = 64;

/// One run.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Case {
    system: System,
    /// Power for so many active nodes.
    awake: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    Hdfs,
    Rabbit,
    /// The same, with one balancer for all clients that names the holder of each block, as Rabbit has it.
    Named,
    Tide,
}

impl Case {
    fn setting(&self, blocks: u32) -> Setting {
        let layout = Layout::equal_work(PRIMARIES, 3);
        let setting = match self.system {
            // "The data is written onto a number of nodes equal to the number of active nodes in the Rabbit case".
            System::Hdfs => Setting::of(self.awake, PolicyKind::AlwaysOn, Layout::RANDOM, blocks),
            System::Rabbit | System::Named => Setting::of(NODES, PolicyKind::Activation, layout, blocks),
            System::Tide => Setting::of(NODES, PolicyKind::Tide, layout, blocks),
        };
        // Ten thousand blocks fit into memory as short ones.
        Setting { scale: 256, block_bytes: 16 << 10, ..setting }
    }

    /// MB/s of a full read, and the 90th percentile of its blocks' latency in ms. None: it did not end.
    fn run(&self, seed: u64, blocks: u32) -> Result<Option<(f64, f64)>> {
        let setting = self.setting(blocks);
        on(seed, setting, |bed| async move {
            if setting.nodes == NODES {
                bed.supply_and_wait(Supply::Watts(MACHINES.watts(NODES, self.awake) + 0.5)).await?;
            }
            let mut users = Vec::new();
            for number in 1..=self.awake {
                users.push(bed.user(&format!("reader{number}"), Some(Access::Read)).await?);
            }
            let streams = if self.awake < PRIMARIES { BLINKING_STREAMS } else { STREAMS };
            let balancer = match self.system {
                System::Named => Some(Balancer::new(&bed, &users[0]).await?),
                System::Hdfs | System::Rabbit | System::Tide => None,
            };
            Ok(rate(&read_whole(&bed, &users, streams, balancer).await, setting.bytes()))
        })
    }
}

/// MB/s and the 90th percentile in ms; none if something could not be read.
fn rate(whole: &Whole, bytes: u64) -> Option<(f64, f64)> {
    let p90 = whole.latencies.p90()?;
    (whole.latencies.failed == 0).then(|| (bytes as f64 / 1e6 / whole.took.as_secs_f64(), p90 * 1e3))
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let (blocks, steps): (u32, &[u32]) = lab.effort.of((BLOCKS, &[5, 10, 15, 20, 25]), (160, &[5, 15]));
    let cases = |system, steps: &[u32]| steps.iter().map(|awake| Case { system, awake: *awake }).collect::<Vec<_>>();
    let mut all = cases(System::Hdfs, steps);
    all.extend(cases(System::Rabbit, steps));
    all.extend(cases(System::Rabbit, &[2]));
    all.extend(cases(System::Named, steps));
    all.extend(cases(System::Tide, steps));
    all.extend(cases(System::Tide, &[2]));
    let seen = lab.map(&all, |case| case.run(lab.seed, blocks))?;
    let of = |system: System, awake: u32| {
        all.iter().zip(&seen).find(|(case, _)| case.system == system && case.awake == awake).and_then(|found| *found.1)
    };
    let mut section = Section::new("", &[]);
    rows(&mut section, steps, &of);
    section.figures.push(figure(steps, &of));
    Ok(section)
}

/// Rabbit reads as fast as HDFS within so much (the paper: "equal"; its figure has no numbers).
const EQUAL: f64 = 0.10;

fn rows(section: &mut Section, steps: &[u32], of: &dyn Fn(System, u32) -> Option<(f64, f64)>) {
    let share = |system: System, awake: u32| Some(of(system, awake)?.0 / of(System::Hdfs, awake)?.0);
    for awake in steps {
        let (ratio, named) = (share(System::Rabbit, *awake), share(System::Named, *awake));
        let quantity =
            format!("full read of {awake} of {NODES} nodes, activation on equal-work, as a share of HDFS on {awake}");
        let named = Cell::share(named, 0).human();
        let why = format!(
            "Each live client keeps hit ratios by its own reads. With one balancer that names holders for all of them, as \
             Rabbit has it: {named}."
        );
        section.rows.push(
            Comparison::new("Fig. 6", quantity, "equal".into(), Cell::share(ratio, 0), why)
                .bound(ratio.is_some_and(|ratio| (1.0 - ratio).abs() <= EQUAL)),
        );
    }
    let (first, last) = (steps[0], steps[steps.len() - 1]);
    let growth = of(System::Rabbit, last).zip(of(System::Rabbit, first)).map(|(last, first)| last.0 / first.0);
    let linear = f64::from(last) / f64::from(first);
    section.rows.push(
        Comparison::new(
            "Fig. 6",
            format!("times as fast with {last} nodes as with {first}"),
            Cell::Number(linear, 1),
            Cell::number(growth, 2),
            "The paper's line is straight.",
        )
        .bound(growth.is_some_and(|growth| growth > linear * (1.0 - 2.0 * EQUAL))),
    );
    for awake in steps.iter().copied().chain([2]) {
        let (tide, rabbit) = (of(System::Tide, awake), of(System::Rabbit, awake));
        let quantity = format!("full read with power for {awake} nodes: tide (MB/s); beside it activation");
        let p90 =
            |seen: Option<(f64, f64)>| seen.map_or_else(|| "stalls".into(), |seen| format!("p90 {:.0} ms", seen.1));
        let remark = format!(
            "Same data, same copies. 90th percentile of a block: tide {}, activation {}.",
            p90(tide),
            p90(rabbit)
        );
        let holds = match (tide, rabbit) {
            (Some(tide), Some(rabbit)) => tide.0 >= rabbit.0 * 0.99,
            (tide, None) => tide.is_some(),
            (None, Some(_)) => false,
        };
        let beside = rabbit.map_or_else(|| "stalls".into(), |rabbit| Cell::Number(rabbit.0, 0));
        let words = if holds { "no worse" } else { "worse" };
        section.rows.push(
            Comparison::new("Fig. 6", quantity, beside, Cell::number(tide.map(|tide| tide.0), 0), remark)
                .judged(holds, words),
        );
    }
}

fn figure(steps: &[u32], of: &dyn Fn(System, u32) -> Option<(f64, f64)>) -> Figure {
    let curve = |system, steps: &[u32]| {
        steps.iter().filter_map(|awake| of(system, *awake).map(|seen| (f64::from(*awake), seen.0))).collect::<Vec<_>>()
    };
    let with_two: Vec<u32> = [2].into_iter().chain(steps.iter().copied()).collect();
    let per_node = of(System::Hdfs, steps[0]).map_or(0.0, |seen| seen.0 / f64::from(steps[0]));
    Figure::plane(
        "Fig. 6: read throughput follows the number of active nodes",
        Axis::linear("power (active nodes)").from(0.0).whole(),
        Axis::linear("full read (MB/s)").from(0.0),
    )
    .subtitle(format!(
        "{NODES} nodes, three copies, p = {PRIMARIES}; HDFS written anew for each number; tide has power for 2, too"
    ))
    .with("activation (Rabbit)", Mark::Markers, curve(System::Rabbit, steps))
    .with("HDFS", Mark::Dashed, curve(System::Hdfs, steps))
    .with("tide", Mark::Line, curve(System::Tide, &with_two))
    .with("activation, one balancer", Mark::Points, curve(System::Named, steps))
    .with("straight line", Mark::Reference, vec![(0.0, 0.0), (f64::from(NODES), per_node * f64::from(NODES))])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shape: a full read gets faster with each node, and below the primaries only tide goes on. One seed says little of
    /// so few blocks: where they lie is chance, so five are added up. With fewer of them the last reads decide.
    #[test]
    fn reads_follow_the_power_and_tide_goes_on_below_the_primaries() {
        let run = |system, awake| Case { system, awake }.run(7, 96).unwrap();
        let rates = |awake| -> Vec<f64> {
            (7..12).map(|seed| Case { system: System::Rabbit, awake }.run(seed, 240).unwrap().unwrap().0).collect()
        };
        let (five, fifteen) = (rates(5), rates(15));
        let sum = |rates: &[f64]| rates.iter().sum::<f64>();
        assert!(sum(&fifteen) > 1.8 * sum(&five), "{five:?} {fifteen:?}");
        assert_eq!(run(System::Rabbit, 2), None, "two of three primaries hold not everything");
        assert!(run(System::Tide, 2).unwrap().0 > 0.0);
    }
}
