//! A plan of `ebb plan lsn` against the real services: its cluster is built in virtual time, its jobs run, and its predicted
//! slowdowns are compared with what they took.

use ebb_plan::{Cell, Comparison, Section};
use ebb_sim::claims::UNLIMITED;
use ebb_sim::measure::compare;
use ebb_sim::{App, Cluster, DiskModel, Placement};
use ebb_types::{Result, bail, err};
use serde::Deserialize;

use super::bed::{DIRTY, Means};
use super::runner::Worlds;
use super::show;
use crate::part::Lab;

/// Largest difference of a predicted slowdown from ours, in times of the baseline's.
pub const TOLERANCE: f64 = 0.15;
/// Bytes of a job at most: the real services carry each of them.
const MOST_BYTES: f64 = 64e9;

/// What is read of a plan's answer in JSON.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Plan {
    /// The cluster with the planned LSNs.
    pub cluster: Cluster,
    /// The jobs that it was planned for.
    pub apps: Vec<App>,
    /// What the plan says of each job.
    pub predicted: Vec<Predicted>,
}

/// A job's time over the baseline's.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Predicted {
    /// The job.
    pub app: String,
    /// Its time on the LSNs over that on disks in the hosts.
    pub normalized_time: f64,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// Invalid: it is no answer of `ebb plan lsn --within P --json`, or one that the real services cannot be put to. Names the
    /// option of the plan that mends it.
    pub fn parse(text: &str) -> Result<Self> {
        let plan: Self = serde_json::from_str(text).map_err(|error| {
            err!(Invalid, "this is no plan ({error}): `ebb plan lsn --within 10 --json > FILE` makes one, also with --from-cluster")
        })?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<()> {
        self.cluster.check()?;
        self.apps.iter().try_for_each(App::check)?;
        let Cluster { placement, lsn_parity_disks, uplink_gbps, lsn_replicas, sub_racks, hardware, .. } = &self.cluster;
        let DiskModel { read_bytes_per_sec: read, write_bytes_per_sec: write, .. } = hardware.disk;
        if !matches!(placement, Placement::Hybrid | Placement::Localized) {
            bail!(Invalid, "the plan's placement is {}: plan with --placement hybrid or localized", placement.name());
        }
        if read != write {
            bail!(
                Invalid,
                "the plan's disks read {:.0} and write {:.0} MB/s, and a disk in virtual time has one rate: plan with \
                 --disk-read-mb {:.0}, or --from-cluster",
                read / 1e6,
                write / 1e6,
                write / 1e6
            );
        }
        if hardware.array_stripe_bytes < UNLIMITED {
            bail!(
                Invalid,
                "the plan's LSNs have an array with stripes, and Ebb's have none: plan with --lsn-stripe-mib 1000000"
            );
        }
        if *lsn_parity_disks > 0 {
            bail!(
                Invalid,
                "the plan's LSNs have disks for parity, and Ebb's have none: plan with --lsn-parity-disks 0"
            );
        }
        if uplink_gbps.is_some() {
            bail!(Invalid, "links between sub-racks have no limit in virtual time: plan without --uplink-gbps");
        }
        if lsn_replicas > sub_racks {
            bail!(Invalid, "{lsn_replicas} copies on {sub_racks} LSNs: plan with --lsn-replicas {sub_racks} at most");
        }
        for app in &self.apps {
            let bytes = app.map_input_bytes + app.map_output_bytes + app.reduce_output_bytes;
            if bytes > MOST_BYTES {
                bail!(
                    Invalid,
                    "{} moves {:.0} GB, and the most that is run is {:.0}: plan with a smaller --scale, or measure a shorter span",
                    app.name,
                    bytes / 1e9,
                    MOST_BYTES / 1e9
                );
            }
            if !self.predicted.iter().any(|one| one.app == app.name) {
                bail!(Invalid, "the plan predicts nothing of {}: make it again", app.name);
            }
        }
        Ok(())
    }
}

/// The jobs of a plan on the real services, with a row for each: the predicted slowdown, and ours. A row holds if they differ by at
/// most [`TOLERANCE`].
///
/// # Errors
/// Those of a run.
pub fn section(lab: &Lab<'_>, plan: &Plan) -> Result<Section> {
    let Cluster { hardware, .. } = plan.cluster;
    let worlds = Worlds::new(lab, hardware, 1.0).with(Means { disk: hardware.disk, dirty_bytes: DIRTY });
    let found = compare(&worlds, None, std::slice::from_ref(&plan.cluster), &plan.apps, &[lab.seed])?;
    let mut section = Section::new("A plan against the real services", &[]);
    for timing in found.iter().flatten() {
        let predicted = plan.predicted.iter().find(|one| one.app == timing.app);
        let predicted = predicted.map_or(f64::NAN, |one| one.normalized_time);
        let points = (timing.normalized_time - predicted) * 100.0;
        let why = format!("{:.1} s, {:.1} s on disks in the hosts.", timing.seconds, timing.baseline_seconds);
        let (planned, ours) = (Cell::Number(predicted, 2), Cell::Number(timing.normalized_time, 2));
        section.rows.push(
            Comparison::new("Plan", format!("{}: time over the baseline's", timing.app), planned, ours, why)
                .judged(points.abs() <= TOLERANCE * 100.0, format!("{points:+.0} points")),
        );
    }
    let seen = worlds.seen.into_inner();
    section.tables.push(show::table("Jobs of the plan", &seen, &[]));
    Ok(section)
}
