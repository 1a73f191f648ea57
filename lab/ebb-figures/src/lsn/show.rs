//! Tables and figures of runs: the seconds of each job on each cluster, ours beside the simulator's.

use ebb_plan::figure::{Axis, Bars};
use ebb_plan::{Cell, Figure, Table};
use ebb_sim::{Cluster, Placement};

use super::runner::Seen;

/// A figure of the paper: the clusters whose times it shows.
pub struct Shown {
    /// Where it stands.
    pub source: &'static str,
    /// What is compared.
    pub title: &'static str,
    /// Its clusters, beside the baseline.
    pub has: fn(&Cluster) -> bool,
}

/// A cluster in a few words: link and disks of the LSN or of a node, and what is better about its nodes.
#[must_use]
pub fn name(cluster: &Cluster) -> String {
    if !cluster.is_shared() {
        return format!("baseline, {} Gb/s, {} disks", cluster.node_gbps, cluster.node_disks);
    }
    let mut words = format!("LSN, {} Gb/s, {} disks", cluster.lsn_gbps, cluster.lsn_disks);
    if cluster.node_gbps > 1.0 && cluster.node_gbps < cluster.lsn_gbps {
        words += &format!(", nodes {} Gb/s", cluster.node_gbps);
    }
    if cluster.node_ssd {
        words += ", nodes with SSD";
    }
    words
}

/// The values in their order, each once.
fn distinct<T: PartialEq + Clone>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}

/// Mean seconds of an application on a cluster, of all seeds.
fn seconds(seen: &[Seen], cluster: &Cluster, app: &str) -> Option<f64> {
    let times: Vec<f64> =
        seen.iter().filter(|one| one.app == app && one.cluster == *cluster).map(|one| one.times.seconds).collect();
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
}

/// The baseline that a cluster is compared with: that of the same links, else the only one.
fn baseline_of<'a>(seen: &'a [Seen], cluster: &Cluster) -> Option<&'a Cluster> {
    let baselines = || seen.iter().map(|one| &one.cluster).filter(|one| one.placement == Placement::Baseline);
    baselines().find(|one| one.node_gbps == cluster.node_gbps).or_else(|| baselines().next())
}

/// Seconds of every job on every cluster, and the simulator's.
#[must_use]
pub fn table(title: &str, seen: &[Seen], simulated: &[Seen]) -> Table {
    let columns = [
        ("cluster", "cluster"),
        ("app", "job"),
        ("seconds", "s"),
        ("map_seconds", "maps, s"),
        ("simulated_seconds", "simulated, s"),
        ("near_maps", "maps near their data"),
        ("network_bytes", "MiB between hosts"),
        ("sub_rack_bytes", "of them in sub-racks"),
        ("replaced", "members replaced"),
    ];
    let mut table = Table::new(title, &columns);
    for one in seen {
        let mib = |stored: u64| Cell::Number(super::bed::mib(stored), 0);
        table.row(vec![
            Cell::text(name(&one.cluster)),
            Cell::text(&one.app),
            Cell::Number(one.times.seconds, 1),
            Cell::Number(one.times.map_seconds, 1),
            Cell::number(seconds(simulated, &one.cluster, &one.app), 1),
            Cell::count(one.times.near_maps),
            mib(one.times.network_bytes),
            mib(one.times.sub_rack_bytes),
            Cell::Count(one.times.replaced),
        ]);
    }
    table
}

/// Run times over the baseline's, as the paper draws them; ours, and the simulator's of the same clusters.
#[must_use]
pub fn figure(shown: &Shown, seen: &[Seen], simulated: &[Seen]) -> Option<Figure> {
    let categories = distinct(seen.iter().map(|one| one.app.clone()));
    let clusters =
        distinct(seen.iter().map(|one| one.cluster.clone()).filter(|one| one.is_shared() && (shown.has)(one)));
    let times = |from: &[Seen], cluster: &Cluster| {
        let base = baseline_of(seen, cluster);
        let over = |app: &String| {
            let base = base.and_then(|base| seconds(from, base, app));
            seconds(from, cluster, app).zip(base).map_or(f64::NAN, |(ours, base)| ours / base)
        };
        categories.iter().map(over).collect()
    };
    let groups: Vec<(String, Vec<f64>)> = clusters
        .iter()
        .flat_map(|cluster| {
            let simulated = (format!("{}, simulated", name(cluster)), times(simulated, cluster));
            [(name(cluster), times(seen, cluster)), simulated]
        })
        .collect();
    if groups.is_empty() {
        return None;
    }
    let y = Axis::linear("time of the baseline's");
    let bars = Bars { categories, y, groups, stacked: false, line: Some(1.0) };
    Some(Figure::bars(format!("{}: {}", shown.source, shown.title), bars))
}
