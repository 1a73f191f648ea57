//! *Robust and Flexible Power-Proportional Storage* (CMU-PDL-10-106).

use ebb_layout::targets::equal_work;
use ebb_types::Result;

use crate::datasets::{self, Overlay};
use crate::figure::Mark;
use crate::gears::GearChoice;
use crate::layout::balance::{Optimal, greedy, mean_and_deviation};
use crate::layout::placement::Placement;
use crate::layout::sweep::{self, Greedy, Point};
use crate::layout::{Ask, Layout, Setting};
use crate::plots;
use crate::report::{Comparison, Section};
use crate::table::{Cell, Table};

/// Gear sizes and recovery groups of Table 1, for 100 primaries.
pub const TABLE_1: [(u32, u64); 6] = [(1, 174), (5, 37), (10, 20), (20, 11), (50, 6), (100, 4)];

/// The section.
pub fn section() -> Result<Section> {
    let mut section = Section::new(
        "Rabbit: Robust and Flexible Power-Proportional Storage",
        &[
            "Layouts with nodes that are switched on along a chain. Formulas take a node's data as a quantity. Where an \
         assignment of blocks is given, real blocks were laid out and every one of a full read was assigned.",
        ],
    );
    for (gear_size, printed) in TABLE_1 {
        section.rows.push(table_1(gear_size, printed)?);
    }
    section.rows.extend(figure_1()?);
    section.rows.extend(layout_numbers()?);
    section.rows.extend(balancer()?);
    section.rows.extend(failures()?);
    section.rows.extend(sharing()?);
    section.rows.extend(priorities());
    section.figures.push(plots::blocks_per_node(&[example(Layout::EqualWork)?, example(Layout::Simple)?]));
    section.figures.push(plots::read_time(&curves(&[Layout::Simple, Layout::EqualWork])?));
    section.figures.push(plots::gears(100)?);
    section.figures.push(figure_5()?);
    section.figures.push(figure_8()?);
    section.tables.push(gear_table()?);
    Ok(section)
}

fn table_1(gear_size: u32, printed: u64) -> Result<Comparison> {
    let formula = GearChoice::new(100, gear_size)?.recovery_group_formula();
    let remark = if formula.round() as u64 == printed {
        ""
    } else {
        "The formula with an exact e gives 174.55; the printed number comes from e cut to about 2.71."
    };
    let quantity = format!("recovery group for gears of {gear_size}, 100 primaries");
    Ok(Comparison::new("Table 1", quantity, Cell::Count(printed), Cell::Number(formula.round(), 0), remark))
}

fn example(layout: Layout) -> Result<Setting> {
    Setting::new(Ask { layout, nodes: 100, primaries: 5, replicas: 4, blocks: 10_000, gear_size: 5 })
}

fn curves(layouts: &[Layout]) -> Result<Vec<(Setting, Vec<Point>)>> {
    layouts.iter().map(|layout| example(*layout).map(|setting| (setting, sweep::fluid(&setting)))).collect()
}

fn figure_1() -> Result<Vec<Comparison>> {
    let simple = sweep::fluid(&example(Layout::Simple)?);
    let equal = sweep::fluid(&example(Layout::EqualWork)?);
    let row = |active: usize, paper: f64| {
        let ours = simple[active - 1].read_time_increase.unwrap_or(f64::NAN);
        let quantity = format!("simple layout: increase in read time at {active} active nodes");
        Comparison::new("Fig. 1b", quantity, Cell::Share(paper, 1), Cell::Share(round(ours), 1), "")
    };
    let worst = equal.iter().filter_map(|point| point.read_time_increase).fold(0.0, f64::max);
    let last = simple.iter().rev().find(|point| point.read_time_increase.is_some_and(|more| more > 1e-9));
    Ok(vec![
        row(5, 0.0),
        row(18, 1.12),
        row(20, 1.105),
        row(32, 0.0),
        Comparison::new(
            "Fig. 1b",
            "simple layout: fewest nodes from which there is no increase",
            Cell::Count(32),
            Cell::Count(last.map_or(0, |point| u64::from(point.active) + 1)),
            "",
        ),
        Comparison::new(
            "Fig. 1b",
            "equal-work layout: largest increase at any number of nodes",
            Cell::Share(0.0, 1),
            Cell::Share(round(worst), 1),
            "",
        ),
    ])
}

/// Sums of thousands of parts are zero only to rounding.
fn round(share: f64) -> f64 {
    (share * 1e9).round() / 1e9
}

fn layout_numbers() -> Result<Vec<Comparison>> {
    let simple = example(Layout::Simple)?;
    let stored = simple.blocks_per_node()[50];
    Ok(vec![
        Comparison::new(
            "Sec. 2.1",
            "simple layout: blocks on a node that is no primary",
            Cell::Count(316),
            Cell::Count(stored),
            "",
        ),
        Comparison::new(
            "Sec. 2.1",
            "blocks each of 20 nodes should serve",
            Cell::Count(500),
            Cell::Number(10_000.0 / 20.0, 0),
            "",
        ),
        Comparison::new(
            "Eq. 1",
            "equal-work layout: spread for p = 5, r = 4",
            Cell::Number(5.0 * 3.0_f64.exp(), 1),
            Cell::Count(equal_work::spread(5, 4)),
            "The paper prints the lower bound p e^(r-1); the sum of whole nodes needs some more.",
        ),
        Comparison::new(
            "Sec. 3.3",
            "write bandwidth with off-loading, N = 100, r = 3 (nodes' worth)",
            Cell::Number(33.3, 1),
            Cell::Number(100.0 / 3.0, 1),
            "",
        ),
    ])
}

fn balancer() -> Result<Vec<Comparison>> {
    let ask = Ask { layout: Layout::EqualWork, nodes: 24, primaries: 3, replicas: 3, blocks: 1_700, gear_size: 1 };
    let placement = Placement::of(&Setting::new(ask)?, 1);
    let all = vec![true; placement.nodes];
    let found = greedy(&placement, &all, 0..placement.holders.len()).map(|loads| mean_and_deviation(&loads, &all));
    let mut best = Optimal::new(&placement);
    (0..placement.nodes).for_each(|node| best.switch_on(node));
    best.even_out_loads();
    let optimal = mean_and_deviation(&best.loads(), &all).1;
    let mean = Cell::number(found.map(|found| found.0), 2);
    let deviation = Cell::number(found.map(|found| found.1), 2);
    let remark = format!(
        "The paper does not give p and r; with p = 3, r = 3 our balancer is more even. The best assignment there is has {optimal:.2}."
    );
    Ok(vec![
        Comparison::new(
            "Sec. 3.2",
            "greedy balancer: mean blocks served by 24 nodes, 1700 blocks",
            Cell::Number(70.83, 2),
            mean,
            "",
        ),
        Comparison::new("Sec. 3.2", "greedy balancer: standard deviation", Cell::Number(1.79, 2), deviation, remark),
    ])
}

fn geared(layout: Layout, replicas: u32, nodes: u32) -> Result<Setting> {
    Setting::new(Ask { layout, nodes, primaries: 10, replicas, blocks: 10_000, gear_size: 5 })
}

fn failures() -> Result<Vec<Comparison>> {
    let geared = geared(Layout::Geared, 3, 80)?;
    let plain = Setting::new(Ask {
        layout: Layout::EqualWork,
        nodes: 100,
        primaries: 10,
        replicas: 3,
        blocks: 10_000,
        gear_size: 1,
    })?;
    let points = sweep::placed(&Placement::of(&geared, 1), &sweep::order(&geared, 0)[..15], Greedy::No, |_| {});
    let degree = |active: usize| points[active - 1].throughput.map(|speed| speed / active as f64);
    let failed =
        |setting: &Setting| setting.min_active_after_failure().map_or(Cell::Missing, |nodes| Cell::Count(nodes.into()));
    Ok(vec![
        Comparison::new(
            "Fig. 5",
            "p = 10, gears of 5: share of the ideal with 14 nodes, one short of a gear",
            Cell::Number(10.0 / 14.0, 3),
            Cell::number(degree(14), 3),
            "",
        ),
        Comparison::new(
            "Fig. 5",
            "the same with 15 nodes, a whole gear",
            Cell::Number(1.0, 3),
            Cell::number(degree(15), 3),
            "",
        ),
        Comparison::new(
            "Sec. 3.5",
            "p = 10: nodes on after a primary failed, without gears",
            Cell::Number(std::f64::consts::E * 10.0 - 1.0, 1),
            failed(&plain),
            "e p - 1 takes the sum of 1/i for an integral; whole nodes of the second copy are counted here.",
        ),
        Comparison::new(
            "Sec. 3.5",
            "p = 10, gears of 5: nodes on after a primary failed",
            Cell::Count(u64::from(10 - 1 + GearChoice::new(10, 5)?.gear_groups())),
            failed(&geared),
            "",
        ),
    ])
}

fn figure_5() -> Result<crate::figure::Figure> {
    let setting = geared(Layout::Geared, 3, 80)?;
    let placement = Placement::of(&setting, 1);
    let curve = |failed| (failed, sweep::placed(&placement, &sweep::order(&setting, failed), Greedy::No, |_| {}));
    Ok(plots::failures(&setting, &[curve(0), curve(1)]))
}

fn sharing() -> Result<Vec<Comparison>> {
    let overlay = Overlay::new(100, 5, 4, 3)?;
    let given = overlay.allot(&[0, 2], &[1.0, 1.0])?;
    let mut rows: Vec<Comparison> = given
        .iter()
        .map(|one| {
            let quantity = format!("100 nodes, 3 datasets, 1 and 3 live: nodes of dataset {}", one.dataset + 1);
            Comparison::new("Fig. 3", quantity, Cell::Count(50), Cell::count(one.nodes.len()), "")
        })
        .collect();
    rows.extend(degrees()?);
    Ok(rows)
}

/// Nodes, primaries, copies and largest number of stored datasets of Figs. 8 and 9; the paper gives only the nodes.
const DEGREES: [(u32, u32, u32, u32); 4] = [(14, 3, 3, 8), (14, 2, 4, 8), (25, 5, 3, 8), (100, 20, 3, 8)];

fn degrees() -> Result<Vec<Comparison>> {
    let row = |(nodes, primaries, replicas, most): (u32, u32, u32, u32)| {
        let curves = grid(nodes, primaries, replicas, most)?;
        let points: Vec<(f64, f64, f64)> = curves.into_iter().flat_map(|curve| curve.1).collect();
        let lowest = points.iter().map(|point| point.1).fold(1.0, f64::min);
        let quantity =
            format!("{nodes} nodes, p = {primaries}, r = {replicas}, 1 to {most} datasets: lowest average degree");
        let remark =
            "The paper does not give p and r. Over every number of live datasets and all combinations of them.";
        let source = if nodes == 14 { "Fig. 8" } else { "Fig. 9" };
        Ok(Comparison::new(source, quantity, "above 0.90".into(), Cell::Number(lowest, 3), remark).bound(lowest > 0.90))
    };
    let mut rows: Vec<Comparison> = DEGREES.into_iter().map(row).collect::<Result<_>>()?;
    let overlay = Overlay::new(14, 2, 3, 7)?;
    let all = datasets::sample(7, 4, 2_000, 1).combinations;
    let ours = datasets::study(&overlay, &all, &[1.0; 4])?.average;
    let best = datasets::best_study(&overlay, &all, &[1.0; 4])?.average;
    let curves = grid(14, 2, 3, 7)?;
    let seven: Vec<f64> = curves.last().map_or_else(Vec::new, |curve| curve.1.iter().map(|point| point.1).collect());
    let mean = seven.iter().sum::<f64>() / seven.len().max(1) as f64;
    rows.push(
        Comparison::new(
            "Fig. 8",
            "14 nodes, p = 2, r = 3: average for 7 datasets, over all numbers of live ones",
            "above 0.90".into(),
            Cell::Number(mean, 3),
            "The average of one point of the figure, 4 of 7 live, is lower: next rows.",
        )
        .bound(mean > 0.90),
    );
    rows.push(Comparison::new(
        "Fig. 8",
        "14 nodes, p = 2, r = 3: average with 4 of 7 datasets live",
        "above 0.90".into(),
        Cell::number(ours, 3),
        "Below the paper's, so that these are not its p and r: a dataset has three or four nodes, two of them primaries, and \
         every node that comes next in its chain is a primary of another dataset.",
    ).bound(ours.is_some_and(|average| average > 0.90)));
    rows.push(
        Comparison::new(
            "Fig. 8",
            "the same with the best of all allotments of each combination",
            "above 0.90".into(),
            Cell::number(best, 3),
            "An experiment: all ways of giving the nodes out were tried. The rule of largest scores is not the cause.",
        )
        .bound(best.is_some_and(|average| average > 0.90)),
    );
    Ok(rows)
}

fn grid(nodes: u32, primaries: u32, replicas: u32, most: u32) -> Result<Vec<plots::Degrees>> {
    let curve = |stored: u32| {
        let overlay = Overlay::new(nodes, primaries, replicas, stored)?;
        let points: Result<Vec<_>> = (1..=stored.min(nodes / primaries))
            .map(|live| {
                let sample = datasets::sample(stored as usize, live as usize, 2_000, 1);
                let study = datasets::study(&overlay, &sample.combinations, &vec![1.0; live as usize])?;
                Ok((f64::from(live), study.average.unwrap_or(f64::NAN), study.worst.unwrap_or(f64::NAN)))
            })
            .collect();
        Ok((stored, points?))
    };
    (1..=most).map(curve).collect()
}

fn figure_8() -> Result<crate::figure::Figure> {
    let all = grid(14, 3, 3, 6)?;
    let shown: Vec<plots::Degrees> = all.into_iter().filter(|curve| [2, 4, 6].contains(&curve.0)).collect();
    let figure = plots::degrees("14 nodes, p = 3, r = 3, fair sharing, all combinations of live datasets", &shown);
    Ok(figure.with("the paper's average: above this", Mark::Reference, vec![(1.0, 0.9), (4.0, 0.9)]))
}

/// Arithmetic on the printed times; the times themselves need a cluster.
fn priorities() -> Vec<Comparison> {
    [(1, 393.0, 558.0, 0.704), (2, 182.0, 98.4, 1.85), (3, 152.0, 94.0, 1.61)]
        .map(|(job, hdfs, rabbit, printed): (u32, f64, f64, f64)| {
            let quantity = format!("speed-up of job {job} from the printed times");
            Comparison::new("Table 3", quantity, Cell::Number(printed, 3), Cell::Number(hdfs / rabbit, 3), "")
        })
        .to_vec()
}

fn gear_table() -> Result<Table> {
    let columns = [
        ("gear_size", "gear size"),
        ("printed", "printed"),
        ("formula", "formula"),
        ("gear_groups", "whole gears for one copy"),
        ("on", "on after a failure"),
    ];
    let mut table = Table::new("Gear size against recovery group, 100 primaries", &columns);
    for (gear_size, printed) in TABLE_1 {
        let choice = GearChoice::new(100, gear_size)?;
        table.row(vec![
            Cell::Count(gear_size.into()),
            Cell::Count(printed),
            Cell::Number(choice.recovery_group_formula(), 2),
            Cell::Count(choice.gear_groups().into()),
            Cell::Count(choice.min_active_after_failure().into()),
        ]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gear_groups_are_whole() {
        let groups: Vec<u32> = TABLE_1.iter().map(|row| GearChoice::new(100, row.0).unwrap().gear_groups()).collect();
        assert_eq!(groups, [173, 36, 19, 10, 5, 3]);
        assert_eq!(GearChoice::new(10, 5).unwrap().gear_groups(), 5);
        assert!(GearChoice::new(10, 11).unwrap_err().to_string().ends_with("is 10"));
        assert!(GearChoice::new(10, 0).is_err() && GearChoice::new(0, 1).is_err());
    }

    #[test]
    fn table_1_is_within_one() {
        for (gear_size, printed) in TABLE_1 {
            let formula = GearChoice::new(100, gear_size).unwrap().recovery_group_formula();
            assert!((formula.round() - printed as f64).abs() <= 1.0, "{gear_size}: {formula}");
        }
    }

    fn check(rows: &[Comparison], apart: &[&str]) {
        for row in rows {
            let excused = apart.iter().any(|words| row.quantity.contains(words));
            assert!(row.agrees() != excused, "{}: {} {}", row.quantity, row.paper.human(), row.ours.human());
        }
    }

    #[test]
    fn figure_1_comes_out() {
        check(&figure_1().unwrap(), &[]);
    }

    #[test]
    fn the_layout_s_numbers_come_out() {
        check(&layout_numbers().unwrap(), &["spread"]);
        assert_eq!(equal_work::spread(5, 4), 111);
    }

    #[test]
    fn the_balancer_matches_the_mean_and_beats_the_deviation() {
        check(&balancer().unwrap(), &["deviation"]);
    }

    #[test]
    fn degrees_are_above_nine_tenths_or_at_their_best() {
        let rows = degrees().unwrap();
        let value = |row: &Comparison| match row.ours {
            Cell::Number(value, _) => value,
            _ => f64::NAN,
        };
        assert!(rows[..=DEGREES.len()].iter().all(|row| value(row) > 0.90), "{rows:#?}");
        let [ours, best] = [DEGREES.len() + 1, DEGREES.len() + 2].map(|index| value(&rows[index]));
        assert!(best >= ours && best - ours < 0.01 && best < 0.90, "{ours} {best}");
    }

    #[test]
    fn failures_and_sharing_come_out() {
        check(&failures().unwrap(), &["without gears"]);
        check(&sharing().unwrap(), &["4 of 7", "allotments"]);
        check(&priorities(), &[]);
    }
}
