//! The report's part about localized storage nodes and reading back.

use ebb_cli::output::Output;
use ebb_plan::report::{Comparison, Section};
use ebb_plan::{Cell, Figure};
use ebb_sim::claims::{Claim, Relation};
use ebb_sim::measure::{Runner, compare};
use ebb_sim::readback::{self, Copies};
use ebb_sim::{App, Cluster, Study, claims};
use ebb_types::Result;

use super::runs::Runs;
use super::show;

const SEEDS: [u64; 3] = [1, 2, 3];

/// All of the paper's figures beside ours. Takes some ten seconds on two cores.
pub fn section(output: Output) -> Result<Section> {
    let runner = Runs::new(output);
    let mut section = Section::new(
        "Localized storage nodes",
        &[
            "Simulated MapReduce clusters: run times over those of a baseline with nodes that keep three copies on their own \
             disks. The LSN keeps one copy in all figures; disks, processors and costs of bytes are the same in all.",
            "Sizes are held to 15 percentage points for the studies with 20 and 5 nodes, and so are bounds, but for \
             \"more than\". What no single setting gives is marked as an experiment.",
        ],
    );
    for claim in claims::all(&runner, &SEEDS)? {
        let remark = if claim.remark.is_empty() {
            if claim.close { "within 15 points" } else { "the same direction" }.to_owned()
        } else {
            claim.remark.clone()
        };
        let ours = Cell::Number(claim.ours, if claim.relation == Relation::Count { 0 } else { 3 });
        let row = Comparison::new(&claim.figure, &claim.quantity, show::paper_number(&claim), ours, remark);
        section.rows.push(row.judged(claim.close && claim.same_direction, difference(&claim)));
    }
    let found = readback::readback(&runner, &readback::cluster(), &readback::BLOCKS, &SEEDS)?;
    for one in &found {
        let paper = match one.copies {
            Copies::Three => continue,
            Copies::OneUniform => 1.10,
            Copies::OneSkewed => 1.50,
        };
        let small = one.blocks <= 300;
        // A difference below a task's own spread does not count.
        let (most, holds) =
            if small { (1.0, (one.normalized_time - 1.0).abs() < 0.05) } else { (paper, one.normalized_time <= paper) };
        let row = Comparison::new(
            "DiskReduce, Fig. 2",
            format!("reading {} blocks back, {}", one.blocks, one.copies.name()),
            Cell::text(if small { "no difference".to_owned() } else { format!("at most {most:.2}") }),
            Cell::Number(one.normalized_time, 3),
            if small { "within 5 % of three copies" } else { "the paper gives the largest gap" },
        );
        section.rows.push(row.bound(holds));
    }
    section.figures.push(figure_5(&runner, &SEEDS)?);
    section.figures.push(figure_7(&runner, &SEEDS)?);
    section.figures.push(show::readback_figure(&found));
    Ok(section)
}

/// The words in place of a difference in per cent.
fn difference(claim: &Claim) -> String {
    let away = claim.relation.away(claim.paper, claim.ours);
    match claim.relation {
        Relation::Is => format!("{:+.0} points", (claim.ours - claim.paper) * 100.0),
        Relation::Count => format!("{:+.0}", claim.ours - claim.paper),
        Relation::Within if claim.paper == 0.0 => format!("{:+.0} points", (claim.ours - 1.0) * 100.0),
        Relation::AtMost | Relation::Within if away > 0.0 => format!("{:.1} points beyond", away * 100.0),
        Relation::MoreThan if !claim.same_direction => "does not hold".to_owned(),
        Relation::AtMost | Relation::Within | Relation::MoreThan => "holds".to_owned(),
    }
}

/// Figure 5: disks of the LSN with 20 nodes.
pub fn figure_5(runner: &dyn Runner, seeds: &[u64]) -> Result<Figure> {
    sweep(runner, seeds, "20-node", &[8, 16, 32, 64], "Fig. 5: disks of the LSN, 20 nodes")
}

/// Figure 7: disks of the LSN with 5 nodes.
fn figure_7(runner: &dyn Runner, seeds: &[u64]) -> Result<Figure> {
    sweep(runner, seeds, "5-node", &[2, 3, 4, 5, 6], "Fig. 7: disks of the LSN, 5 nodes")
}

fn sweep(runner: &dyn Runner, seeds: &[u64], study: &str, disks: &[usize], title: &str) -> Result<Figure> {
    let base = Study::by_name(study)?.cluster;
    let clusters: Vec<Cluster> =
        disks.iter().map(|lsn_disks| Cluster { lsn_disks: *lsn_disks, ..base.clone() }).collect();
    let rows = compare(runner, None, &clusters, &App::table_ii(), seeds)?;
    let subtitle = format!("{} Gbps to the LSN, one copy there; over a baseline with three", base.lsn_gbps);
    Ok(show::bars(title, &subtitle, &clusters, &rows))
}
