//! Fig. 7: a sort reads everything and writes as much.

use ebb_client::Access;
use ebb_plan::figure::{Axis, Bars};
use ebb_plan::{Cell, Comparison, Figure, Section};
use ebb_power::PolicyKind;
use ebb_types::Result;

use crate::balancer::Balancer;
use crate::drive::{read_whole, write_whole};
use crate::part::Lab;
use crate::testbed::{Layout, Setting, on};

pub const SOURCES: &[&str] = &["Fig. 7"];

const NODES: u32 = 25;
const STREAMS: usize = 4;

/// Layouts that are sorted on. The policy has no say with all nodes on: tide's data is Rabbit's.
const LAYOUTS: [(&str, Layout); 2] =
    [("HDFS", Layout::RANDOM), ("equal-work (Rabbit, tide)", Layout::equal_work(3, 3))];

/// Seconds of the full read and of the full write, at scale.
fn run(layout: Layout, seed: u64, nodes: u32, blocks: u32) -> Result<(f64, f64)> {
    on(seed, Setting::of(nodes, PolicyKind::AlwaysOn, layout, blocks), |bed| async move {
        let mut users = Vec::new();
        for number in 1..=nodes {
            users.push(bed.user(&format!("worker{number}"), Some(Access::Read)).await?);
        }
        let is_chained = layout != Layout::RANDOM;
        let balancer = if is_chained { Some(Balancer::new(&bed, &users[0]).await?) } else { None };
        let read = read_whole(&bed, &users, STREAMS, balancer).await;
        let wrote = write_whole(&bed, &users).await?;
        Ok((read.took.as_secs_f64(), wrote.as_secs_f64()))
    })
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let blocks = lab.effort.of(800, 160);
    let seen = lab.map(&LAYOUTS, |layout| run(layout.1, lab.seed, NODES, blocks))?;
    let [hdfs, rabbit] = [seen[0], seen[1]];
    let mut section = Section::new("", &[]);
    let map = rabbit.0 / hdfs.0;
    section.rows.push(
        Comparison::new(
            "Fig. 7",
            "map phase (full read), equal-work against HDFS",
            "comparable".into(),
            Cell::Number(map, 2),
            "",
        )
        .bound((0.9..1.15).contains(&map)),
    );
    let whole = (rabbit.0 + rabbit.1) / (hdfs.0 + hdfs.1);
    section.rows.push(
        Comparison::new(
            "Fig. 7",
            "whole sort (full read, full write), equal-work against HDFS",
            "slower".into(),
            Cell::Number(whole, 2),
            "A copy of every block goes to one of three primaries, and writes are not off-loaded to other active nodes: \
             as in the paper's prototype, which had no off-loading either.",
        )
        .bound(whole > 1.05),
    );
    let groups = ["full read", "full write"].into_iter().zip([[hdfs.0, rabbit.0], [hdfs.1, rabbit.1]]);
    section.figures.push(
        Figure::bars(
            "Fig. 7: the map phase is HDFS's, the writes wait for the primaries",
            Bars {
                categories: LAYOUTS.iter().map(|layout| layout.0.to_owned()).collect(),
                y: Axis::linear("seconds"),
                groups: groups.map(|(name, values)| (name.to_owned(), values.to_vec())).collect(),
                stacked: true,
                line: None,
            },
        )
        .subtitle(format!("{NODES} nodes on, three copies, p = 3; {blocks} blocks of 4 MB read, then as many written")),
    );
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_off_loading_primaries_hold_writes_up() {
        let (hdfs, rabbit) = (run(Layout::RANDOM, 7, NODES, 176).unwrap(), run(LAYOUTS[1].1, 7, NODES, 176).unwrap());
        assert!(rabbit.1 > 1.3 * hdfs.1, "{hdfs:?} {rabbit:?}");
    }
}
