//! Figs. 4 to 11: the jobs of the paper's four studies, and its statements about them.

use ebb_plan::{Cell, Comparison, Section};
use ebb_sim::claims::{self, Claim, Relation, testbed_hardware};
use ebb_sim::cluster::Hardware;
use ebb_sim::{Cluster, Placement, Study};
use ebb_types::Result;

use super::bed::Means;
use super::runner::{SameDisks, Worlds};
use super::show::{self, Shown};
use super::tracker::Choice;
use super::{bed, job};
use crate::part::Lab;

/// Where the statements of each study stand.
pub const REAL: &[&str] = &["Fig. 4"];
pub const TWENTY: &[&str] = &["Fig. 5", "Fig. 6"];
pub const FIVE: &[&str] = &["Fig. 7", "Fig. 8"];
pub const BETTER: &[&str] = &["Fig. 9", "Fig. 10", "Fig. 11"];

/// The figures of all studies.
const SHOWN: &[Shown] = &[
    Shown { source: "Fig. 4", title: "15 hosts, three LSNs", has: |one| one.sub_racks == 3 },
    Shown { source: "Fig. 5", title: "20 hosts, 16 disks", has: |one| (one.nodes, one.lsn_disks) == (20, 16) },
    Shown { source: "Fig. 6", title: "20 hosts, 64 disks, by link", has: |one| (one.nodes, one.lsn_disks) == (20, 64) },
    Shown { source: "Fig. 7", title: "5 hosts, by disks", has: |one| one.nodes == 5 && one.lsn_gbps == 4.0 },
    Shown { source: "Fig. 8", title: "5 hosts, by link", has: |one| one.nodes == 5 && one.lsn_disks == 6 },
    Shown { source: "Fig. 9", title: "links of nodes", has: |one| is_better(one) && !one.node_ssd },
    Shown { source: "Fig. 10", title: "SSDs in nodes", has: |one| is_better(one) && one.node_gbps == 1.0 },
    Shown { source: "Fig. 11", title: "both", has: |one| is_better(one) && one.node_ssd == (one.node_gbps > 1.0) },
];

fn is_better(cluster: &Cluster) -> bool {
    (cluster.nodes, cluster.lsn_disks) == (20, 32)
}

/// Seeds of the simulator, as many as `ebb plan lsn` has.
const SIMULATED: u64 = 3;
/// Bytes and tasks of a quick run, of a full one's.
const QUICK_SIZE: f64 = 0.125;
/// What the simulator's own experiments say of themselves. They are about its parameters, and not run.
const EXPERIMENT: &str = "an experiment";

pub fn real(lab: &Lab<'_>) -> Result<Section> {
    let mut section = section(lab, "real-cluster", testbed_hardware(), REAL)?;
    section.rows.extend(dirty(lab)?);
    Ok(section)
}

/// TeraGen by how much a host may have written and not yet on disks: on disks of hosts, and on LSNs of one disk.
fn dirty(lab: &Lab<'_>) -> Result<Vec<Comparison>> {
    const LIMITS: [usize; 3] = [bed::DIRTY / 4, bed::DIRTY, bed::DIRTY_OF_MOUNTS];
    let app = &claims::figure_4_apps().swap_remove(0).scaled(lab.effort.of(1.0, QUICK_SIZE));
    let lsn = Cluster { hardware: testbed_hardware(), ..Study::by_name("real-cluster")?.cluster };
    let cases: Vec<(Cluster, usize)> = [lsn.with_placement(Placement::Baseline), lsn]
        .into_iter()
        .flat_map(|cluster| LIMITS.map(|limit| (cluster.clone(), limit)))
        .collect();
    let times =
        lab.map(&cases, |(cluster, limit)| {
            let means = Means { dirty_bytes: *limit, ..Means::default() };
            bed::with(lab.seed, cluster, means, |bed| async move {
                job::run(&bed, app, None, Choice::Located, lab.seed).await
            })
        })?;
    let made = app.map_output_bytes / bed::SCALE as f64;
    let row = |((cluster, limit), times): (&(Cluster, usize), &job::JobTimes)| {
        let (sent, name) = (times.network_bytes as f64 / made, show::name(cluster));
        let what = format!("an experiment: seconds of TeraGen, {} MiB under way on a host: {name}", limit >> 20);
        let why =
            format!("{} members replaced; writers sent and received {sent:.2} bytes for each made.", times.replaced);
        Comparison::new("Fig. 4", what, Cell::Missing, Cell::Number(times.seconds, 1), why).judged(true, "ours")
    };
    Ok(cases.iter().zip(&times).map(row).collect())
}

pub fn twenty(lab: &Lab<'_>) -> Result<Section> {
    section(lab, "20-node", Hardware::default(), TWENTY)
}

pub fn five(lab: &Lab<'_>) -> Result<Section> {
    section(lab, "5-node", Hardware::default(), FIVE)
}

pub fn better(lab: &Lab<'_>) -> Result<Section> {
    section(lab, "better-nodes", Hardware::default(), BETTER)
}

fn section(lab: &Lab<'_>, study: &str, hardware: Hardware, sources: &[&str]) -> Result<Section> {
    let size = lab.effort.of(1.0, QUICK_SIZE);
    let worlds = Worlds::new(lab, hardware, size);
    let ours = claims::of_study(study, &worlds, &[lab.seed])?;
    let seeds: Vec<u64> = (0..SIMULATED).map(|run| lab.seed.wrapping_add(run)).collect();
    let simulator = SameDisks::new(hardware, size);
    let same = claims::of_study(study, &simulator, &seeds)?;
    let mut section = Section::new("", &[]);
    for (claim, simulated) in ours.iter().zip(&same) {
        if !claim.remark.starts_with(EXPERIMENT) && claim.ours.is_finite() {
            section.rows.push(row(claim, simulated));
        }
    }
    let (seen, simulated) = (worlds.seen.lock(), simulator.seen.lock());
    let shown = SHOWN.iter().filter(|shown| sources.contains(&shown.source));
    section.figures.extend(shown.filter_map(|shown| show::figure(shown, &seen, &simulated)));
    section.tables.push(show::table(&format!("Jobs of {}", sources.join(", ")), &seen, &simulated));
    Ok(section)
}

/// A statement, with ours and the simulator's number. Direction and order must hold.
fn row(claim: &Claim, simulated: &Claim) -> Comparison {
    let words = match claim.relation {
        Relation::Is | Relation::Count => String::new(),
        Relation::AtMost => "at most ".to_owned(),
        Relation::MoreThan => "more than ".to_owned(),
        Relation::Within => "1.00 +- ".to_owned(),
    };
    let paper = format!("{words}{:.2}", claim.paper);
    let mut remark = format!("simulated on the same disks: {:.2}.", simulated.ours);
    if !claim.remark.is_empty() {
        remark += &format!(" {}.", claim.remark);
    }
    let verdict = match (claim.same_direction, claim.close) {
        (true, true) => "close",
        (true, false) => "same direction",
        (false, _) => "does not hold",
    };
    Comparison::new(&claim.figure, &claim.quantity, Cell::text(paper), Cell::Number(claim.ours, 2), remark)
        .judged(claim.same_direction, verdict)
}
