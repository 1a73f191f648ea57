//! Many runs, and their run times against the baseline's.
//!
//! This crate starts no threads. A caller with threads passes a [`Runner`]. [`Serial`] runs one case after the other.

use ebb_types::Result;
use serde::Serialize;

use crate::app::App;
use crate::cluster::{Cluster, Placement};
use crate::job::{self, JobOptions, JobReport};

/// One run.
#[derive(Clone, Debug)]
pub struct Case {
    /// The cluster.
    pub cluster: Cluster,
    /// The application.
    pub app: App,
    /// Options of the run.
    pub options: JobOptions,
}

impl Case {
    /// Simulates it.
    ///
    /// # Errors
    /// Those of [`job::run`].
    pub fn run(&self) -> Result<JobReport> {
        job::run(&self.cluster, &self.app, self.options)
    }
}

/// A way of running cases.
pub trait Runner {
    /// The reports in the order of the cases.
    ///
    /// # Errors
    /// The first one of a case.
    fn run_all(&self, cases: &[Case]) -> Result<Vec<JobReport>>;
}

/// One after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Runner for Serial {
    fn run_all(&self, cases: &[Case]) -> Result<Vec<JobReport>> {
        cases.iter().map(Case::run).collect()
    }
}

/// An application on a cluster, against the baseline.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Timing {
    /// The application.
    pub app: String,
    /// Mean run time over the baseline's mean run time.
    pub normalized_time: f64,
    /// Mean seconds.
    pub seconds: f64,
    /// Mean seconds of the baseline.
    pub baseline_seconds: f64,
    /// Slowest run less the fastest, over the mean: the effect of the seed.
    pub spread: f64,
    /// Disks in the whole cluster.
    pub disks: usize,
    /// Disks in the whole baseline.
    pub baseline_disks: usize,
    /// The run with the first seed.
    pub report: JobReport,
}

/// Runs every application on every cluster and on the baseline, once for each seed; answers cluster by cluster.
///
/// The baseline is each cluster's own with [`Placement::Baseline`], unless one is given.
///
/// # Errors
/// Those of [`job::run`].
pub fn compare(
    runner: &dyn Runner,
    baseline: Option<&Cluster>,
    clusters: &[Cluster],
    apps: &[App],
    seeds: &[u64],
) -> Result<Vec<Vec<Timing>>> {
    let baselines: Vec<Cluster> = match baseline {
        Some(cluster) => vec![cluster.clone()],
        None => distinct(clusters.iter().map(|cluster| canonical(&cluster.with_placement(Placement::Baseline)))),
    };
    let all: Vec<&Cluster> = baselines.iter().chain(clusters).collect();
    let mut cases = Vec::new();
    for cluster in &all {
        for app in apps {
            for seed in seeds {
                let options = JobOptions { seed: *seed, ..JobOptions::default() };
                cases.push(Case { cluster: (*cluster).clone(), app: app.clone(), options });
            }
        }
    }
    let reports = runner.run_all(&cases)?;
    let of = |cluster: usize, app: usize| {
        let first = (cluster * apps.len() + app) * seeds.len();
        &reports[first..first + seeds.len()]
    };
    let base_of = |cluster: &Cluster| {
        if baseline.is_some() {
            return 0;
        }
        let wanted = canonical(&cluster.with_placement(Placement::Baseline));
        baselines.iter().position(|one| *one == wanted).expect("it was made from this cluster")
    };
    let timing = |index: usize, cluster: &Cluster, app: usize| {
        let base = base_of(cluster);
        let runs = of(baselines.len() + index, app);
        let (seconds, baseline_seconds) = (mean(runs), mean(of(base, app)));
        let fastest = runs.iter().map(|run| run.seconds).fold(f64::INFINITY, f64::min);
        let slowest = runs.iter().map(|run| run.seconds).fold(0.0, f64::max);
        Timing {
            app: apps[app].name.clone(),
            normalized_time: seconds / baseline_seconds,
            seconds,
            baseline_seconds,
            spread: (slowest - fastest) / seconds,
            disks: cluster.total_disks(),
            baseline_disks: baselines[base].total_disks(),
            report: runs[0].clone(),
        }
    };
    let rows = |(index, cluster): (usize, &Cluster)| (0..apps.len()).map(|app| timing(index, cluster, app)).collect();
    Ok(clusters.iter().enumerate().map(rows).collect())
}

/// The baseline without settings that have no effect on it, so that one run serves many settings of the LSN.
fn canonical(baseline: &Cluster) -> Cluster {
    Cluster {
        lsn_disks: 1,
        lsn_parity_disks: 0,
        lsn_gbps: 1.0,
        lsn_replicas: 1,
        local_disks: 1,
        node_ssd: false,
        ..baseline.clone()
    }
}

fn distinct(clusters: impl Iterator<Item = Cluster>) -> Vec<Cluster> {
    let mut kept: Vec<Cluster> = Vec::new();
    for cluster in clusters {
        if !kept.contains(&cluster) {
            kept.push(cluster);
        }
    }
    kept
}

fn mean(runs: &[JobReport]) -> f64 {
    runs.iter().map(|run| run.seconds).sum::<f64>() / runs.len() as f64
}
