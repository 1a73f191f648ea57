//! Answers as tables, sentences and figures.

use ebb_plan::figure::{Axis, Bars};
use ebb_plan::{Cell, Figure, Mark, Table};
use ebb_sim::claims::{Claim, Relation};
use ebb_sim::cluster::MIB;
use ebb_sim::measured::{Described, Measured};
use ebb_sim::readback::{BLOCKS, Copies, Readback};
use ebb_sim::sizing::{Advice, Candidate, Strictness, Wish};
use ebb_sim::{Cluster, Placement};

use super::{Rows, setting};

/// The paper's number, in the form of its statement.
pub fn paper_number(claim: &Claim) -> Cell {
    match claim.relation {
        Relation::Is => Cell::Number(claim.paper, 3),
        Relation::Count => Cell::Number(claim.paper, 0),
        Relation::AtMost => Cell::text(format!("at most {:.3}", claim.paper)),
        Relation::MoreThan => Cell::text(format!("more than {:.3}", claim.paper)),
        Relation::Within if claim.paper == 0.0 => Cell::text("about 1"),
        Relation::Within => Cell::text(format!("1 \u{b1} {:.3}", claim.paper)),
    }
}

/// What a running cluster measured, and the job that it is planned for.
pub fn measured(measured: &Measured, described: &Described) -> Vec<String> {
    let mb = |bytes: f64| bytes / measured.seconds / 1e6;
    let (cluster, app) = (&described.cluster, &described.app);
    vec![
        format!(
            "Measured for {:.0} s: programs read {:.1} and wrote {:.1} MB/s in {:.1} copies; a disk takes {:.0} MB/s.",
            measured.seconds,
            mb(described.read_bytes),
            mb(described.written_bytes),
            measured.copies,
            cluster.hardware.disk.write_bytes_per_sec / 1e6
        ),
        format!(
            "Planned for: {} programs that do so for a minute, and work {:.0} cycles on a byte. Links, cores and slots are those of \
             the options.",
            app.mappers, app.map_cycles_per_byte
        ),
    ]
}

/// Assumptions of the simulation, printed with every answer.
pub fn parameters(cluster: &Cluster) -> Vec<String> {
    let disk = &cluster.hardware.disk;
    let nodes = format!(
        "{} nodes in {} sub-rack(s), each of {} cores and {} Gbps; {} map and {} reduce slots; baseline: {} disks a node, \
         {} copies.",
        cluster.nodes,
        cluster.sub_racks,
        cluster.cores,
        cluster.node_gbps,
        cluster.map_slots,
        cluster.reduce_slots,
        cluster.node_disks,
        cluster.replicas
    );
    let disks = format!(
        "Disks: {:.0} MB/s read, {:.0} MB/s written, {:.1} and {:.1} ms to another stream; shuffle data on {} of a \
         node's disks. An LSN writes stripes of {} MiB.",
        disk.read_bytes_per_sec / 1e6,
        disk.write_bytes_per_sec / 1e6,
        disk.read_seek_secs * 1e3,
        disk.write_seek_secs * 1e3,
        cluster.shuffle_disks,
        cluster.hardware.array_stripe_bytes / MIB
    );
    let copies = format!(
        "At the LSN: {} {} of each block{}, {} disk(s){} left in each node. The paper does not give the number of copies.",
        cluster.lsn_replicas,
        if cluster.lsn_replicas == 1 { "copy" } else { "copies" },
        match cluster.lsn_parity_disks {
            0 => String::new(),
            parity => format!(" and {parity} disk(s) of parity"),
        },
        cluster.local_disks,
        if cluster.node_ssd { " (SSD)" } else { "" }
    );
    vec![nodes, disks, copies]
}

/// One row for each run time.
pub fn timings(clusters: &[Cluster], rows: &Rows) -> Table {
    let columns = [
        ("app", "application"),
        ("placement", "placement"),
        ("lsn_disks", "LSN disks"),
        ("lsn_gbps", "LSN Gbps"),
        ("lsn_replicas", "copies"),
        ("normalized_time", "time / baseline"),
        ("seconds", "seconds"),
        ("baseline_seconds", "baseline s"),
        ("spread", "spread"),
        ("disks", "disks"),
        ("baseline_disks", "of"),
        ("lsn_disks_busy", "LSN disks busy"),
        ("lsn_links_busy", "LSN links busy"),
        ("node_disks_busy", "node disks busy"),
    ];
    let mut table = Table::new("Run times against the baseline", &columns);
    for (cluster, row) in clusters.iter().zip(rows) {
        let shared = |cell: Cell| if cluster.is_shared() { cell } else { Cell::Missing };
        for timing in row {
            table.row(vec![
                Cell::text(&timing.app),
                Cell::text(cluster.placement.name()),
                shared(Cell::count(cluster.lsn_disks)),
                shared(Cell::Number(cluster.lsn_gbps, 1)),
                Cell::count(if cluster.is_shared() { cluster.lsn_replicas } else { cluster.replicas }),
                Cell::Number(timing.normalized_time, 3),
                Cell::Number(timing.seconds, 1),
                Cell::Number(timing.baseline_seconds, 1),
                Cell::Share(timing.spread, 1),
                Cell::count(timing.disks),
                Cell::count(timing.baseline_disks),
                shared(Cell::Share(timing.report.busy.lsn_disks, 0)),
                shared(Cell::Share(timing.report.busy.lsn_links, 0)),
                Cell::Share(timing.report.busy.node_disks, 0),
            ]);
        }
    }
    table
}

/// Applications down, settings across.
pub fn sweep(clusters: &[Cluster], rows: &Rows) -> Table {
    let settings: Vec<String> = clusters.iter().map(|cluster| setting(cluster, clusters)).collect();
    let mut columns = vec![("app", "application")];
    columns.extend(settings.iter().map(|setting| (setting.as_str(), setting.as_str())));
    let mut table = Table::new("Time over the baseline's", &columns);
    for index in 0..rows.first().map_or(0, Vec::len) {
        let mut cells = vec![Cell::text(&rows[0][index].app)];
        cells.extend(rows.iter().map(|row| Cell::Number(row[index].normalized_time, 3)));
        table.row(cells);
    }
    let mean = |row: &Vec<ebb_sim::measure::Timing>| {
        row.iter().map(|timing| timing.normalized_time).sum::<f64>() / row.len().max(1) as f64
    };
    let mut cells = vec![Cell::text("mean")];
    cells.extend(rows.iter().map(|row| Cell::Number(mean(row), 3)));
    table.row(cells);
    table
}

/// Bars as in the paper, or lines if there are too many settings for bars.
pub fn timings_figure(study: &str, clusters: &[Cluster], rows: &Rows) -> Figure {
    const MOST_BARS: usize = 7;
    let copies =
        format!("{study}; {} at the LSN; over a baseline with {} copies", copies(clusters), clusters[0].replicas);
    if clusters.len() <= MOST_BARS {
        let same = if clusters.len() == 1 { String::new() } else { common(clusters) };
        return bars("Run time on localized storage", &format!("{copies}{same}"), clusters, rows);
    }
    let by_disks = clusters.iter().any(|cluster| cluster.lsn_disks != clusters[0].lsn_disks);
    let axis = if by_disks { "disks of an LSN" } else { "LSN link (Gbps)" };
    let place = |cluster: &Cluster| if by_disks { cluster.lsn_disks as f64 } else { cluster.lsn_gbps };
    let mut figure =
        Figure::plane("Run time on localized storage", Axis::linear(axis), Axis::linear("run time (baseline = 1)"))
            .subtitle(copies);
    // One line for each application. If two parameters vary, there is one line of the mean for each value of the other
    // parameter.
    let mut others: Vec<String> = Vec::new();
    for cluster in clusters {
        let other = other_of(cluster, by_disks);
        if !others.contains(&other) {
            others.push(other);
        }
    }
    if let [_] = others[..] {
        for index in 0..rows[0].len() {
            let points = clusters.iter().zip(rows).map(|(one, row)| (place(one), row[index].normalized_time));
            figure = figure.with(&rows[0][index].app, Mark::Markers, sorted(points.collect()));
        }
    } else {
        for other in others {
            let of = clusters.iter().zip(rows).filter(|(cluster, _)| other_of(cluster, by_disks) == other);
            let mean = |row: &[ebb_sim::measure::Timing]| {
                row.iter().map(|timing| timing.normalized_time).sum::<f64>() / row.len() as f64
            };
            let points = of.map(|(cluster, row)| (place(cluster), mean(row))).collect();
            figure = figure.with(format!("mean, {other}"), Mark::Markers, sorted(points));
        }
    }
    figure
}

fn other_of(cluster: &Cluster, by_disks: bool) -> String {
    let link = if by_disks { format!(", {} Gbps", cluster.lsn_gbps) } else { String::new() };
    format!("{}{link}", cluster.placement.name())
}

fn sorted(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Bars of normalized times, one group for each cluster.
pub fn bars(title: &str, subtitle: &str, clusters: &[Cluster], rows: &Rows) -> Figure {
    let categories = rows.first().map_or_else(Vec::new, |row| row.iter().map(|timing| short(&timing.app)).collect());
    let group = |(cluster, row): (&Cluster, &Vec<ebb_sim::measure::Timing>)| {
        (setting(cluster, clusters), row.iter().map(|timing| timing.normalized_time).collect())
    };
    let groups = clusters.iter().zip(rows).map(group).collect();
    Figure::bars(
        title,
        Bars { categories, y: Axis::linear("run time (baseline = 1)"), groups, stacked: false, line: Some(1.0) },
    )
    .subtitle(subtitle.to_owned())
}

/// A short form of a name: `Inv. Index`.
fn short(name: &str) -> String {
    match name.split_once(' ') {
        Some((first, rest)) if name.chars().count() > 10 && first.chars().count() > 4 => {
            format!("{}. {rest}", first.chars().take(3).collect::<String>())
        }
        _ => name.to_owned(),
    }
}

fn copies(clusters: &[Cluster]) -> String {
    match clusters[0].lsn_replicas {
        1 => "1 copy".to_owned(),
        more => format!("{more} copies"),
    }
}

/// Values that all settings share, which the legend leaves out.
fn common(clusters: &[Cluster]) -> String {
    let first = &clusters[0];
    let mut words = String::new();
    if first.is_shared() && clusters.iter().all(|one| one.lsn_disks == first.lsn_disks) {
        words += &format!("; {} disks", first.lsn_disks);
    }
    if first.is_shared() && clusters.iter().all(|one| one.lsn_gbps == first.lsn_gbps) {
        words += &format!("; {} Gbps", first.lsn_gbps);
    }
    words
}

/// The advice in sentences.
pub fn advice(found: &Advice, percent: f64, cluster: &Cluster, wish: &Wish) -> Vec<String> {
    let best = &found.best;
    let sized = Cluster { lsn_disks: best.lsn_disks, lsn_gbps: best.lsn_gbps, ..cluster.clone() };
    let baseline = cluster.with_placement(Placement::Baseline).total_disks();
    let of = match wish.of {
        Strictness::Each => "every application",
        Strictness::Mean => "the mean of the applications",
    };
    let mut lines = vec![format!(
        "Cheapest LSN that keeps {of} within {percent} %: {} disks and {} Gbps, cost {:.1}. Slowest: {} {:+.1} %; mean \
         {:+.1} %. Disks in all: {} in place of {baseline}.",
        best.lsn_disks,
        best.lsn_gbps,
        best.cost,
        best.worst_app,
        (best.worst - 1.0) * 100.0,
        (best.mean - 1.0) * 100.0,
        sized.total_disks()
    )];
    let missed = |one: &Candidate| {
        format!(
            "{} disks and {} Gbps: slowest {} {:+.1} %, mean {:+.1} %",
            one.lsn_disks,
            one.lsn_gbps,
            one.worst_app,
            (one.worst - 1.0) * 100.0,
            (one.mean - 1.0) * 100.0
        )
    };
    lines.extend(found.fewer_disks.as_ref().map(|one| format!("One disk less: {}.", missed(one))));
    lines.extend(found.slower_link.as_ref().map(|one| format!("A slower link: {}.", missed(one))));
    lines
}

/// The cheapest LSN for each link.
pub fn frontier(found: &Advice) -> Table {
    let columns = [
        ("lsn_gbps", "LSN Gbps"),
        ("lsn_disks", "LSN disks"),
        ("cost", "cost"),
        ("worst", "slowest / baseline"),
        ("worst_app", "which"),
        ("mean", "mean / baseline"),
        ("best", "cheapest"),
    ];
    let mut table = Table::new("Fewest disks for each link", &columns);
    for one in &found.frontier {
        table.row(vec![
            Cell::Number(one.lsn_gbps, 1),
            Cell::count(one.lsn_disks),
            Cell::Number(one.cost, 1),
            Cell::Number(one.worst, 3),
            Cell::text(&one.worst_app),
            Cell::Number(one.mean, 3),
            Cell::text(if *one == found.best { "yes" } else { "" }),
        ]);
    }
    table
}

/// Disks and cost over the link.
pub fn frontier_figure(found: &Advice, percent: f64) -> Figure {
    let points = |value: fn(&Candidate) -> f64| found.frontier.iter().map(|one| (one.lsn_gbps, value(one))).collect();
    Figure::plane("Fewest disks for each link", Axis::log("LSN link (Gbps)"), Axis::linear("disks; cost"))
        .subtitle(format!("workload within {percent} % of the baseline"))
        .with("disks", Mark::Markers, points(|one| one.lsn_disks as f64))
        .with("cost", Mark::Dashed, points(|one| one.cost))
        .with("cheapest", Mark::Points, vec![(found.best.lsn_gbps, found.best.cost)])
}

/// The paper's statements beside ours.
pub fn claims(claims: &[Claim]) -> Table {
    let columns = [
        ("figure", "where"),
        ("what", "what"),
        ("says", "says"),
        ("paper", "paper"),
        ("ours", "ours"),
        ("same_direction", "direction"),
        ("close", "within 15 points"),
        ("remark", "remark"),
    ];
    let mut table = Table::new("The paper's figures and ours (times over the baseline's)", &columns);
    for claim in claims {
        table.row(vec![
            Cell::text(&claim.figure),
            Cell::text(&claim.quantity),
            Cell::text(relation_name(claim.relation)),
            Cell::Number(claim.paper, 3),
            Cell::Number(claim.ours, 3),
            Cell::text(if claim.same_direction { "same" } else { "other" }),
            Cell::text(if claim.close { "yes" } else { "no" }),
            Cell::text(&claim.remark),
        ]);
    }
    table
}

/// The kind of a statement in words.
pub const fn relation_name(relation: Relation) -> &'static str {
    match relation {
        Relation::Is => "is",
        Relation::Count => "count",
        Relation::AtMost => "at most",
        Relation::MoreThan => "more than",
        Relation::Within => "within +-",
    }
}

/// Reading back.
pub fn readback(found: &[Readback]) -> Table {
    let columns = [
        ("blocks", "blocks"),
        ("copies", "copies"),
        ("seconds", "seconds"),
        ("normalized_time", "run time (three copies = 1)"),
        ("local", "local maps"),
    ];
    let mut table = Table::new("Reading a dataset back (DiskReduce, Fig. 2)", &columns);
    for one in found {
        table.row(vec![
            Cell::count(one.blocks),
            Cell::text(one.copies.name()),
            Cell::Number(one.seconds, 1),
            Cell::Number(one.normalized_time, 3),
            Cell::Share(one.local, 0),
        ]);
    }
    table
}

/// Reading back, as bars.
pub fn readback_figure(found: &[Readback]) -> Figure {
    let group = |copies: Copies| {
        let of = found.iter().filter(|one| one.copies == copies).map(|one| one.normalized_time);
        (copies.name().to_owned(), of.collect())
    };
    let bars = Bars {
        categories: BLOCKS.map(|blocks| format!("{blocks} blocks")).to_vec(),
        y: Axis::linear("run time (three copies = 1)"),
        groups: Copies::ALL.map(group).to_vec(),
        stacked: false,
        line: Some(1.0),
    };
    Figure::bars("Reading back with fewer copies", bars)
        .subtitle("60 nodes of 4 disks, 10 Gbps; one map for each block")
}
