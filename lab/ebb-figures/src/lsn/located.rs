//! Located tasks against blind ones (ours): what crosses between sub-racks, and what it costs.

use ebb_plan::figure::{Axis, Bars};
use ebb_plan::{Cell, Comparison, Figure, Section, Table};
use ebb_sim::claims::{figure_4_apps, testbed_hardware};
use ebb_sim::{App, Cluster, Study};
use ebb_types::Result;

use super::bed::{self, Bed};
use super::job::{self, JobTimes};
use super::tracker::Choice;
use crate::part::Lab;

pub const SOURCES: &[&str] = &["Located"];

/// Links of the LSNs, in Gb/s. The slower one is the limit if most of what it carries is for other sub-racks.
const LINKS: [f64; 2] = [1.0, 10.0];
/// Bytes and tasks of a quick run, of a full one's.
const QUICK_SIZE: f64 = 0.125;

/// Both ways of giving tasks out, in one world with the same input.
struct Pair {
    gbps: f64,
    located: JobTimes,
    blind: JobTimes,
    input_bytes: u64,
}

impl Pair {
    async fn measure(bed: &Bed, app: &App, seed: u64) -> Result<Self> {
        let input = job::write_input(bed, app).await?;
        bed.world.sleep(bed::REST).await;
        let located = job::run(bed, app, input.as_ref(), Choice::Located, seed).await?;
        let blind = job::run(bed, app, input.as_ref(), Choice::Blind, seed).await?;
        let input_bytes = input.map_or(0, |input| input.bytes());
        Ok(Self { gbps: bed.spec.lsn_gbps, located, blind, input_bytes })
    }
}

/// Bytes that crossed between sub-racks, for each byte of input.
fn crossed(times: &JobTimes, input_bytes: u64) -> f64 {
    (times.network_bytes - times.sub_rack_bytes) as f64 / input_bytes as f64
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let grep = &figure_4_apps().swap_remove(1).scaled(lab.effort.of(1.0, QUICK_SIZE));
    let base = Cluster { hardware: testbed_hardware(), lsn_disks: 3, ..Study::by_name("real-cluster")?.cluster };
    let pairs = lab.map(&LINKS, |gbps| {
        let cluster = Cluster { lsn_gbps: *gbps, ..base.clone() };
        bed::on(lab.seed, &cluster, |bed| async move { Pair::measure(&bed, grep, lab.seed).await })
    })?;
    let mut section = Section::new("", &[]);
    section.tables.push(table(&pairs));
    section.rows.extend(pairs.iter().flat_map(rows));
    section.figures.push(figure(&pairs));
    Ok(section)
}

fn table(pairs: &[Pair]) -> Table {
    let columns = [
        ("gbps", "Gb/s of an LSN"),
        ("tasks", "tasks"),
        ("seconds", "s"),
        ("near_maps", "maps near their data"),
        ("network_bytes", "MiB between hosts"),
        ("crossed_bytes", "of them between sub-racks"),
    ];
    let mut table = Table::new("Located and blind tasks: a search on three LSNs of three disks", &columns);
    for pair in pairs {
        for (name, times) in [("located", &pair.located), ("blind", &pair.blind)] {
            let mib = |stored: u64| Cell::Number(bed::mib(stored), 0);
            table.row(vec![
                Cell::Number(pair.gbps, 0),
                Cell::text(name),
                Cell::Number(times.seconds, 1),
                Cell::count(times.near_maps),
                mib(times.network_bytes),
                mib(times.network_bytes - times.sub_rack_bytes),
            ]);
        }
    }
    table
}

/// With equal sub-racks a blind task meets its data in one of three.
fn rows(pair: &Pair) -> [Comparison; 3] {
    let [located, blind] = [&pair.located, &pair.blind].map(|times| crossed(times, pair.input_bytes));
    let of = |what: &str| format!("{} Gb/s for each LSN: {what}", pair.gbps);
    let slower = pair.blind.seconds / pair.located.seconds;
    [
        Comparison::new(
            "Located",
            of("bytes between sub-racks for each byte of input, located"),
            "none of the input".into(),
            Cell::Number(located, 3),
            "What crosses is each task's calls to the master.",
        )
        .judged(located < 0.05, if located < 0.05 { "holds" } else { "does not hold" }),
        Comparison::new(
            "Located",
            of("the same, blind"),
            Cell::Number(2.0 / 3.0, 2),
            Cell::Number(blind, 2),
            "Two of three sub-racks are not that of the data.",
        )
        .judged((blind - 2.0 / 3.0).abs() < 0.1, "as expected"),
        Comparison::new(
            "Located",
            of("time of a blind search, of a located one's"),
            "at least 1".into(),
            Cell::Number(slower, 2),
            "An LSN's link carries its data out either way. Links between sub-racks have no limit here, as in the paper.",
        )
        .judged(slower > 0.95, "as expected"),
    ]
}

fn figure(pairs: &[Pair]) -> Figure {
    let categories = pairs.iter().map(|pair| format!("{} Gb/s", pair.gbps)).collect();
    let shares = |of: fn(&Pair) -> &JobTimes| pairs.iter().map(|pair| crossed(of(pair), pair.input_bytes)).collect();
    let groups =
        vec![("located".to_owned(), shares(|pair| &pair.located)), ("blind".to_owned(), shares(|pair| &pair.blind))];
    let y = Axis::linear("bytes between sub-racks for each of the input");
    let bars = Bars { categories, y, groups, stacked: false, line: None };
    Figure::bars("Located: what crosses between sub-racks", bars)
}
