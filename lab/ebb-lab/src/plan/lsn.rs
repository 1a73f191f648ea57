//! `ebb plan lsn`: jobs on localized storage nodes against jobs on disks in the nodes (`ebb-sim`).
//!
//! It answers five questions: run times of applications on one or several LSNs (the default, and a sweep if an option
//! has several values); the cheapest LSN that keeps them within a percentage (`--within`); the paper's figures beside
//! ours (`--figures`); times to read datasets back with one copy and with three (`--readback`); and the LSN for what a
//! running cluster does (`--from-cluster`).

mod apps;
mod measured;
mod runs;
mod section;
mod show;

use std::path::PathBuf;

use clap::Args;
use ebb_cli::Context;
use ebb_plan::{Figure, Table};
use ebb_sim::cluster::MIB;
use ebb_sim::measure::{Timing, compare};
use ebb_sim::measured::{Measured, describe};
use ebb_sim::sizing::{Prices, Strictness, Wish, advise};
use ebb_sim::{App, Cluster, Placement, Study, claims, job, readback};
use ebb_types::{Result, bail, err};
use serde_json::json;

use super::emit::{Answer, EmitArgs};
use super::number::{real, whole};
use runs::Runs;

pub use section::section;

/// Per cent that jobs may take longer, if a plan for a running cluster does not say.
const WITHIN: f64 = 10.0;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct LsnArgs {
    /// Initial settings: 20-node, 5-node, better-nodes or real-cluster.
    #[arg(long, default_value = "20-node", value_name = "NAME")]
    study: String,
    /// Places of the data, comma-separated: baseline, naive, localized or hybrid.
    #[arg(long, value_delimiter = ',', default_value = "hybrid", value_name = "PLACEMENT")]
    placement: Vec<String>,
    /// Applications of the paper's Table II, comma-separated [default: all ten, unless --app-file is given].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    apps: Vec<String>,
    /// TOML file with applications in `[[app]]` tables, which replace the default or add to --apps.
    #[arg(long, value_name = "FILE")]
    app_file: Option<PathBuf>,
    /// Factor for the bytes and tasks of every application.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = real(1e-6, 1e6))]
    scale: f64,
    /// Disks of an LSN, including parity disks, comma-separated [default: as in the study].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>(1, 10_000))]
    lsn_disks: Vec<usize>,
    /// Speeds of an LSN's link in Gbps, comma-separated [default: as in the study].
    #[arg(long, value_delimiter = ',', value_name = "GBPS", value_parser = real(0.001, 100_000.0))]
    lsn_gbps: Vec<f64>,
    /// Copies of a block among LSNs [default: as in the study]. The paper gives no number; 1 leaves protection to the
    /// LSN's RAID.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1, 8))]
    lsn_replicas: Option<usize>,
    /// Disks of an LSN that hold parity, which make writes more expensive [default: as in the study].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(0, 9_999))]
    lsn_parity_disks: Option<usize>,
    /// MiB of one stream that an LSN's array writes before its heads move on, over any number of disks [default: as in
    /// the study].
    #[arg(long, value_name = "MIB", value_parser = real(0.1, 1e6))]
    lsn_stripe_mib: Option<f64>,
    /// Replace the disk that stays in a node with an SSD.
    #[arg(long)]
    node_ssd: bool,
    #[command(flatten)]
    nodes: NodeArgs,
    /// Number of runs of each case, with consecutive seeds from --seed on. Times are means.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = whole::<u64>(1, 1000))]
    runs: u64,
    /// First seed.
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>(0, u64::MAX))]
    seed: u64,
    #[command(flatten)]
    wish: WishArgs,
    /// Plan for what a running cluster does: its hosts, sub-racks, disks and their rates, and one job that reads and writes as
    /// much as programs do while it is measured. Implies --within 10 unless it is given.
    #[arg(long, conflicts_with_all = ["figures", "readback", "apps", "app_file", "scale", "nodes", "node_disks", "replicas"])]
    from_cluster: bool,
    /// With --from-cluster: seconds to measure.
    #[arg(long, default_value_t = 10, requires = "from_cluster", value_name = "SECONDS", value_parser = whole::<u64>(1, 86_400))]
    sample: u64,
    /// Show the paper's figures beside Ebb's.
    #[arg(long, conflicts_with_all = ["within", "readback"])]
    figures: bool,
    /// Read datasets of 10 to 6000 blocks back with three copies, one, and one badly spread (DiskReduce).
    #[arg(long, conflicts_with = "within")]
    readback: bool,
    #[command(flatten)]
    emit: EmitArgs,
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
struct NodeArgs {
    /// Number of compute nodes in all [default: as in the study].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1, 20_000))]
    nodes: Option<usize>,
    /// Number of sub-racks, each with one LSN [default: as in the study].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1, 20_000))]
    sub_racks: Option<usize>,
    /// Cores of a node [default: as in the study].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1, 1024))]
    cores: Option<usize>,
    /// Disks of a node in the baseline [default: as in the study].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1, 1000))]
    node_disks: Option<usize>,
    /// Disks of a node in the baseline that also hold shuffle data [default: as in the study]. Hadoop's default is one
    /// directory.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1, 1000))]
    shuffle_disks: Option<usize>,
    /// Disks that stay in a node beside an LSN [default: as in the study].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1, 1000))]
    local_disks: Option<usize>,
    /// Speed of a node's link in Gbps [default: as in the study]. With --better-nodes-only, it applies only to the LSN
    /// cluster.
    #[arg(long, value_name = "GBPS", value_parser = real(0.001, 100_000.0))]
    node_gbps: Option<f64>,
    /// Keep the study's node links in the baseline.
    #[arg(long, requires = "node_gbps")]
    better_nodes_only: bool,
    /// Speed between a sub-rack and the others in Gbps [default: unlimited].
    #[arg(long, value_name = "GBPS", value_parser = real(0.001, 100_000.0))]
    uplink_gbps: Option<f64>,
    /// Map tasks that a node runs at a time [default: as in the study].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1, 1024))]
    map_slots: Option<usize>,
    /// Reduce tasks that a node runs at a time [default: as in the study].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1, 1024))]
    reduce_slots: Option<usize>,
    /// Copies of a block in the baseline [default: as in the study].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1, 20_000))]
    replicas: Option<usize>,
    /// Read speed of a disk in MB/s [default: as in the study].
    #[arg(long, value_name = "MB", value_parser = real(0.1, 1e6))]
    disk_read_mb: Option<f64>,
    /// Write speed of a disk in MB/s [default: as in the study].
    #[arg(long, value_name = "MB", value_parser = real(0.1, 1e6))]
    disk_write_mb: Option<f64>,
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
struct WishArgs {
    /// Find the cheapest LSN with which every application takes at most PERCENT longer than in the baseline.
    #[arg(long, value_name = "PERCENT", value_parser = real(0.0, 10_000.0))]
    within: Option<f64>,
    /// With --within: apply the limit to the mean of the applications, not to each.
    #[arg(long, requires = "within")]
    mean: bool,
    /// With --within: maximum number of disks of an LSN.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = whole::<usize>(1, 10_000))]
    max_disks: usize,
    /// With --within: link speeds to choose from, in Gbps, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,10,20,25,40,100", value_name = "GBPS", value_parser = real(0.001, 100_000.0))]
    links: Vec<f64>,
    /// With --within: price of a disk.
    #[arg(long, default_value_t = 1.0, value_name = "PRICE", value_parser = real(0.0, 1e12))]
    disk_price: f64,
    /// With --within: price of one Gbps of the LSN's link, in disks if a disk costs 1.
    #[arg(long, default_value_t = 0.5, value_name = "PRICE", value_parser = real(0.0, 1e12))]
    gbps_price: f64,
}

/// Answers.
pub async fn run(context: &Context, args: &LsnArgs) -> Result<()> {
    let runner = Runs::new(context.output);
    let seeds = args.seeds();
    let answer = if args.from_cluster {
        let measured = measured::measure(context, args.sample).await?;
        planned(args, &measured, &runner, &seeds)?
    } else if args.figures {
        let claims = claims::all(&runner, &seeds)?;
        let table = show::claims(&claims);
        let figure = args.emit.wants_figure().then(|| section::figure_5(&runner, &seeds)).transpose()?;
        Answer { notes: show::parameters(&args.cluster()?), json: table.json(), tables: vec![table], figure }
    } else if args.readback {
        let found = readback::readback(&runner, &readback::cluster(), &readback::BLOCKS, &seeds)?;
        let table = show::readback(&found);
        let notes = vec![
            "60 nodes of 4 disks (105 MB/s) and 8 map slots on 10 Gbps; one map for each block of 64 MiB.".to_owned(),
        ];
        let figure = args.emit.wants_figure().then(|| show::readback_figure(&found));
        Answer { notes, json: table.json(), tables: vec![table], figure }
    } else if let Some(percent) = args.wish.within {
        let (cluster, apps) = (args.one_cluster()?, args.applications()?);
        advice(args, percent, (&cluster, &apps), &runner, &seeds)?
    } else {
        timings(args, &runner, &seeds)?
    };
    args.emit.emit(context.output, &answer)
}

fn timings(args: &LsnArgs, runner: &Runs, seeds: &[u64]) -> Result<Answer> {
    let clusters = args.clusters()?;
    let rows = compare(runner, args.baseline()?.as_ref(), &clusters, &args.applications()?, seeds)?;
    let table = show::timings(&clusters, &rows);
    let figure = args.emit.wants_figure().then(|| show::timings_figure(args.study.as_str(), &clusters, &rows));
    let tables =
        if clusters.len() > 1 { vec![show::sweep(&clusters, &rows), table.clone()] } else { vec![table.clone()] };
    // JSON has one row for each run time. People first see a table with a column for each setting.
    Ok(Answer { notes: show::parameters(&clusters[0]), json: table.json(), tables: order(tables, &args.emit), figure })
}

/// CSV is made of the first table, so the one with a row for each run time goes first.
fn order(mut tables: Vec<Table>, emit: &EmitArgs) -> Vec<Table> {
    if emit.wants_csv() {
        tables.reverse();
    } else {
        tables.truncate(1);
    }
    tables
}

/// The advice for what a cluster measured.
fn planned(args: &LsnArgs, measured: &Measured, runner: &Runs, seeds: &[u64]) -> Result<Answer> {
    let nodes = &args.nodes;
    let rate = nodes.disk_write_mb.or(nodes.disk_read_mb).map(|mb| mb * 1e6);
    let described = describe(measured, &args.one_cluster()?, rate)?;
    let percent = args.wish.within.unwrap_or(WITHIN);
    let mut answer = advice(args, percent, (&described.cluster, std::slice::from_ref(&described.app)), runner, seeds)?;
    answer.notes.splice(0..0, show::measured(measured, &described));
    answer.json["measured"] = json!({
        "seconds": measured.seconds, "read_bytes": described.read_bytes, "written_bytes": described.written_bytes,
        "copies": measured.copies, "hosts": measured.hosts,
    });
    Ok(answer)
}

fn advice(
    args: &LsnArgs,
    percent: f64,
    (cluster, apps): (&Cluster, &[App]),
    runner: &Runs,
    seeds: &[u64],
) -> Result<Answer> {
    let wish = Wish {
        within: percent / 100.0,
        of: if args.wish.mean { Strictness::Mean } else { Strictness::Each },
        most_disks: args.wish.max_disks,
        links: args.wish.links.clone(),
        prices: Prices { disk: args.wish.disk_price, gbps: args.wish.gbps_price },
    };
    let found = advise(runner, cluster, apps, seeds, &wish)?;
    let mut notes = show::parameters(cluster);
    notes.extend(show::advice(&found, percent, cluster, &wish));
    let table = show::frontier(&found);
    let mut json = serde_json::to_value(&found).map_err(|error| err!(Internal, "an advice is no JSON: {error}"))?;
    // What `ebb lab lsn --against-plan` builds, runs and compares with.
    let best = Cluster { lsn_disks: found.best.lsn_disks, lsn_gbps: found.best.lsn_gbps, ..cluster.clone() };
    let timings = compare(runner, None, std::slice::from_ref(&best), apps, seeds)?;
    let predicted = |one: &Timing| json!({"app": one.app, "normalized_time": one.normalized_time});
    json["predicted"] = timings.iter().flatten().map(predicted).collect();
    json["cluster"] = json!(best);
    json["apps"] = json!(apps);
    let figure: Option<Figure> = args.emit.wants_figure().then(|| show::frontier_figure(&found, percent));
    Ok(Answer { notes, json, tables: vec![table], figure })
}

impl LsnArgs {
    /// The cluster whose LSNs are looked for.
    fn one_cluster(&self) -> Result<Cluster> {
        if !(self.lsn_disks.is_empty() && self.lsn_gbps.is_empty()) {
            bail!(
                Invalid,
                "--within looks for disks and link itself: bound it by --max-disks and --links, not --lsn-disks"
            );
        }
        if self.placement.len() > 1 {
            bail!(Invalid, "--within wants one --placement; the nearest possible value is {}", self.placement[0]);
        }
        Ok(self.clusters()?.remove(0))
    }

    fn seeds(&self) -> Vec<u64> {
        (0..self.runs).map(|run| self.seed.wrapping_add(run)).collect()
    }

    /// The study, changed by the options that have one value.
    fn cluster(&self) -> Result<Cluster> {
        let mut cluster = Study::by_name(&self.study)?.cluster;
        let nodes = &self.nodes;
        set(&mut cluster.nodes, nodes.nodes);
        set(&mut cluster.sub_racks, nodes.sub_racks);
        set(&mut cluster.cores, nodes.cores);
        set(&mut cluster.node_disks, nodes.node_disks);
        set(&mut cluster.shuffle_disks, nodes.shuffle_disks);
        set(&mut cluster.local_disks, nodes.local_disks);
        set(&mut cluster.node_gbps, nodes.node_gbps);
        set(&mut cluster.map_slots, nodes.map_slots);
        set(&mut cluster.reduce_slots, nodes.reduce_slots);
        set(&mut cluster.replicas, nodes.replicas);
        set(&mut cluster.lsn_replicas, self.lsn_replicas);
        set(&mut cluster.lsn_parity_disks, self.lsn_parity_disks);
        set(&mut cluster.hardware.array_stripe_bytes, self.lsn_stripe_mib.map(|mib| mib * MIB));
        set(&mut cluster.hardware.disk.read_bytes_per_sec, nodes.disk_read_mb.map(|mb| mb * 1e6));
        set(&mut cluster.hardware.disk.write_bytes_per_sec, nodes.disk_write_mb.map(|mb| mb * 1e6));
        cluster.uplink_gbps = nodes.uplink_gbps;
        cluster.node_ssd = self.node_ssd;
        Ok(cluster)
    }

    /// One cluster for each combination of the options with several values.
    fn clusters(&self) -> Result<Vec<Cluster>> {
        let base = self.cluster()?;
        let disks = if self.lsn_disks.is_empty() { vec![base.lsn_disks] } else { self.lsn_disks.clone() };
        let links = if self.lsn_gbps.is_empty() { vec![base.lsn_gbps] } else { self.lsn_gbps.clone() };
        let mut clusters = Vec::new();
        for name in &self.placement {
            let placement = placement(name)?;
            for lsn_disks in &disks {
                for lsn_gbps in &links {
                    clusters.push(Cluster { placement, lsn_disks: *lsn_disks, lsn_gbps: *lsn_gbps, ..base.clone() });
                }
            }
        }
        // All are checked before the first one runs.
        clusters.iter().try_for_each(Cluster::check)?;
        Ok(clusters)
    }

    /// The baseline, if it differs from the cluster in more than its placement.
    fn baseline(&self) -> Result<Option<Cluster>> {
        if !self.nodes.better_nodes_only {
            return Ok(None);
        }
        let node_gbps = Study::by_name(&self.study)?.cluster.node_gbps;
        Ok(Some(Cluster { node_gbps, placement: Placement::Baseline, ..self.cluster()? }))
    }

    fn applications(&self) -> Result<Vec<App>> {
        let mut apps: Vec<App> = Vec::new();
        if let Some(path) = &self.app_file {
            apps.extend(apps::read(path)?);
        }
        for name in &self.apps {
            apps.push(App::by_name(name)?);
        }
        if apps.is_empty() {
            apps = App::table_ii();
        }
        let cluster = self.cluster()?;
        for app in &apps {
            let fits = |scale: f64| job::effort(&cluster, &app.scaled(scale)) <= job::MOST_EFFORT;
            if cluster.check().is_ok() && !fits(self.scale) && fits(1.0) {
                bail!(
                    Invalid,
                    "--scale {}: {} would take too long to simulate; the nearest possible value is {}",
                    self.scale,
                    app.name,
                    largest(self.scale, fits)
                );
            }
        }
        let apps: Vec<App> = apps.iter().map(|app| app.scaled(self.scale)).collect();
        apps.iter().try_for_each(App::check)?;
        Ok(apps)
    }
}

/// The largest scale below `over` that fits, in three digits; 1 does.
fn largest(over: f64, fits: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (1.0, over);
    while high / low > 1.0001 {
        let middle = f64::sqrt(low * high);
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    let digit = 10_f64.powf(low.log10().floor() - 2.0);
    // Rounded down, so that the named value does fit.
    (low / digit).floor() * digit
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn placement(name: &str) -> Result<Placement> {
    let names = Placement::ALL.map(Placement::name).join(", ");
    Placement::ALL
        .into_iter()
        .find(|one| one.name() == name)
        .ok_or_else(|| err!(Invalid, "--placement {name:?} is not known; known are {names}"))
}

/// One setting in a few words, without the values that all settings share.
fn setting(cluster: &Cluster, all: &[Cluster]) -> String {
    let mut words = Vec::new();
    let differ = |value: fn(&Cluster) -> String| all.iter().any(|other| value(other) != value(cluster));
    if all.len() == 1 || differ(|one| one.placement.name().to_owned()) {
        words.push(cluster.placement.name().to_owned());
    }
    if cluster.is_shared() {
        if all.len() == 1 || differ(|one| one.lsn_disks.to_string()) {
            words.push(format!("{} disks", cluster.lsn_disks));
        }
        if all.len() == 1 || differ(|one| one.lsn_gbps.to_string()) {
            words.push(format!("{} Gbps", cluster.lsn_gbps));
        }
    }
    if words.is_empty() { "as the others".to_owned() } else { words.join(", ") }
}

/// Times by cluster and application.
type Rows = [Vec<Timing>];
