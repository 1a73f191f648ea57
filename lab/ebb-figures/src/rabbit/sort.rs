//! Fig. 7: a sort reads everything and writes as much.

use std::time::Duration;

use ebb_client::Access;
use ebb_plan::figure::{Axis, Bars};
use ebb_plan::{Cell, Comparison, Figure, Section};
use ebb_power::PolicyKind;
use ebb_types::Result;

use crate::drive::{read_whole, write_whole};
use crate::part::Lab;
use crate::testbed::{Layout, Setting, on};

pub const SOURCES: &[&str] = &["Fig. 7", "Sec. 3.3"];

const NODES: u32 = 25;
const STREAMS: usize = 4;
/// How long guests may take to go home, and how often is looked.
const HOME_MAX: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_secs(1);

const PRIMARIES: u32 = 3;
const REPLICAS: u32 = 3;

/// The file system that is sorted on. The policy has no say with all nodes on: tide's data is Rabbit's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Case {
    name: &'static str,
    layout: Layout,
    /// Whether nodes write for homes that have too much to write.
    offloads: bool,
}

const HDFS: Case = Case { name: "HDFS", layout: Layout::RANDOM, offloads: false };
const ALONE: Case =
    Case { name: "equal-work, no off-loading", layout: Layout::equal_work(PRIMARIES, REPLICAS), offloads: false };
const RABBIT: Case = Case { name: "equal-work (Rabbit, tide)", offloads: true, ..ALONE };

/// Seconds of one sort.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Sort {
    read: f64,
    write: f64,
    /// Until nothing is away from home any more, from the last write on.
    home: f64,
    /// Copies that were away then.
    away: u64,
}

/// The full read and the full write, at scale.
fn run(case: Case, seed: u64, nodes: u32, blocks: u32) -> Result<Sort> {
    let setting = Setting { offloads: case.offloads, ..Setting::of(nodes, PolicyKind::AlwaysOn, case.layout, blocks) };
    on(seed, setting, |bed| async move {
        let mut users = Vec::new();
        for number in 1..=nodes {
            users.push(bed.user(&format!("worker{number}"), Some(Access::Read)).await?);
        }
        let read = read_whole(&bed, &users, STREAMS, None).await.took.as_secs_f64();
        let write = write_whole(&bed, &users).await?.as_secs_f64();
        let away = bed.away().await?;
        let ended = bed.world.now();
        let end = ended + HOME_MAX;
        while bed.away().await? > 0 && bed.world.now() < end {
            bed.world.sleep(LOOK).await;
        }
        let home = (bed.world.now() - ended).as_secs_f64();
        Ok(Sort { read, write, home, away })
    })
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let blocks = lab.effort.of(800, 160);
    let cases = [HDFS, ALONE, RABBIT];
    let seen = lab.map(&cases, |case| run(*case, lab.seed, NODES, blocks))?;
    let [hdfs, alone, rabbit] = [seen[0], seen[1], seen[2]];
    let mut section = Section::new("", &[]);
    let map = rabbit.read / hdfs.read;
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
    let whole = |sort: Sort| (sort.read + sort.write) / (hdfs.read + hdfs.write);
    section.rows.push(
        Comparison::new(
            "Fig. 7",
            "whole sort (full read, full write) without off-loading, equal-work against HDFS",
            "slower".into(),
            Cell::Number(whole(alone), 2),
            "A copy of every block goes to one of three primaries: the paper's prototype had no off-loading either.",
        )
        .bound(whole(alone) > 1.05),
    );
    section.rows.push(
        Comparison::new(
            "Fig. 7",
            "the same with off-loading",
            "equal".into(),
            Cell::Number(whole(rabbit), 2),
            format!(
                "Homes that have too much to write have others write for them. {} copies were away in the end, and home \
                 {:.0} s later.",
                rabbit.away, rabbit.home
            ),
        )
        .bound((0.85..1.15).contains(&whole(rabbit))),
    );
    let least = f64::from(PRIMARIES * REPLICAS) / f64::from(NODES);
    for (quantity, paper, sort, near) in [
        ("rate of the full write without off-loading, of HDFS's", least, alone, 0.2..0.7),
        ("the same with off-loading", 1.0, rabbit, 0.85..1.15),
    ] {
        let why = format!(
            "Where disks decide, p = {PRIMARIES} nodes' worth against N / r = {:.1}; here blocks also wait for each other \
             on their way through three nodes.",
            f64::from(NODES) / f64::from(REPLICAS)
        );
        let share = hdfs.write / sort.write;
        section.rows.push(
            Comparison::new("Sec. 3.3", quantity, Cell::share(Some(paper), 0), Cell::share(Some(share), 0), why)
                .bound(near.contains(&share)),
        );
    }
    let of = |value: fn(&Sort) -> f64| seen.iter().map(value).collect::<Vec<_>>();
    let groups = [("full read", of(|sort| sort.read)), ("full write", of(|sort| sort.write))];
    section.figures.push(
        Figure::bars(
            "Fig. 7: the map phase is HDFS's, and with off-loading so are the writes",
            Bars {
                categories: cases.iter().map(|case| case.name.to_owned()).collect(),
                y: Axis::linear("seconds"),
                groups: groups.map(|(name, values)| (name.to_owned(), values)).to_vec(),
                stacked: true,
                line: None,
            },
        )
        .subtitle(format!(
            "{NODES} nodes on, three copies, p = {PRIMARIES}; {blocks} blocks of 4 MB read, then as many written"
        )),
    );
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_write_for_primaries_that_would_hold_writes_up_and_it_goes_home() {
        let run = |case| run(case, 7, NODES, 400).unwrap();
        let (hdfs, alone, rabbit) = (run(HDFS), run(ALONE), run(RABBIT));
        assert!(alone.write > 1.5 * hdfs.write, "{hdfs:?} {alone:?}");
        assert!(rabbit.write < 1.25 * hdfs.write, "{hdfs:?} {rabbit:?}");
        assert!(alone.away == 0 && rabbit.away > 0 && rabbit.home < HOME_MAX.as_secs_f64(), "{alone:?} {rabbit:?}");
    }
}
