//! The job and the cluster that a running cluster's counters describe, for the knob ([`crate::sizing`]).
//!
//! What programs read and wrote in a span becomes one job: a map in every slot reads and writes its share, and works on it for so
//! long that the job takes the span on disks in the hosts. So a cluster whose disks waited for programs gets a job that computes, and
//! one whose programs waited for disks gets one that does not.

use ebb_types::{Result, bail};
use serde::Serialize;

use crate::app::App;
use crate::claims::testbed_hardware;
use crate::cluster::{Cluster, DiskModel, GBPS, Hardware, MIB, Placement};
use crate::job::{self, JobOptions};

/// Seconds of the job: the span's bytes are multiplied to it.
const JOB_SECS: f64 = 60.0;
/// Rates of a description that do not allow what was measured by this share are taken as exact.
const SLACK: f64 = 0.05;
/// With less nothing can be said.
const LEAST_BYTES: f64 = 16.0 * MIB;

/// A host of a block server in the span.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MeasuredHost {
    /// Its name.
    pub host: String,
    /// Volumes of its block server.
    pub disks: usize,
    /// Bytes that the block server sent: reads, and writes that it passed on.
    pub sent_bytes: f64,
    /// Bytes that it received: copies of what was written.
    pub received_bytes: f64,
    /// Bytes a second that all its disks take, as it measured itself; 0: not known yet.
    pub write_bytes_per_sec: f64,
}

/// What a cluster measured in a span.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measured {
    /// The span.
    pub seconds: f64,
    /// Bytes that programs read, or had written, however often they were copied.
    pub served_bytes: f64,
    /// Copies of a written byte, the mean of all datasets by their bytes.
    pub copies: f64,
    /// Hosts with a block server.
    pub hosts: Vec<MeasuredHost>,
    /// Hosts on which programs run.
    pub compute_hosts: usize,
    /// Sub-racks that are declared; 0: none.
    pub sub_racks: usize,
}

/// A cluster with an LSN to be sized, and the job.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Described {
    /// The cluster. Its disks and hosts are the measured ones; link, cores and slots are those of `base`.
    pub cluster: Cluster,
    /// The job.
    pub app: App,
    /// Bytes that programs read in the span.
    pub read_bytes: f64,
    /// Bytes that they wrote.
    pub written_bytes: f64,
}

impl Measured {
    /// Bytes that programs read and wrote. A member of a set with `c` copies passes on `c - 1` of `c` bytes that arrive; what is sent
    /// beyond that was read. What is read on the own host never passes the block server, but is served.
    fn read_and_written(&self) -> (f64, f64) {
        let sum = |of: fn(&MeasuredHost) -> f64| self.hosts.iter().map(of).sum::<f64>();
        let (sent, received) = (sum(|host| host.sent_bytes), sum(|host| host.received_bytes));
        let written = received / self.copies;
        let read = (sent - (received - written)).max(self.served_bytes - written).max(0.0);
        (read, written)
    }

    /// The median of the hosts' rates for one disk; none: no host knows its own.
    fn disk_bytes_per_sec(&self) -> Option<f64> {
        let known = self.hosts.iter().filter(|host| host.disks > 0 && host.write_bytes_per_sec > 0.0);
        let mut rates: Vec<f64> = known.map(|host| host.write_bytes_per_sec / host.disks as f64).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied()
    }

    fn check(&self, base: &Cluster) -> Result<()> {
        if self.compute_hosts == 0 || self.hosts.iter().all(|host| host.disks == 0) {
            bail!(Invalid, "the cluster has no host with a volume: `ebb node add` adds one");
        }
        if self.seconds < 1.0 || self.copies < 1.0 {
            bail!(Invalid, "--sample {}: the nearest possible value is 1", self.seconds);
        }
        let (read, written) = self.read_and_written();
        if read + written < LEAST_BYTES {
            bail!(
                Invalid,
                "programs read and wrote {:.1} MiB in {:.0} s, and a plan needs {:.0}: run the jobs while this command measures, or \
                 measure for longer (--sample)",
                (read + written) / MIB,
                self.seconds,
                LEAST_BYTES / MIB
            );
        }
        for host in &self.hosts {
            let gbps = host.sent_bytes.max(host.received_bytes) / self.seconds / GBPS;
            let link = if self.sub_racks > 0 { base.lsn_gbps.max(base.node_gbps) } else { base.node_gbps };
            if gbps > link * (1.0 + SLACK) {
                let least = (gbps * 10.0).ceil() / 10.0;
                bail!(
                    Invalid,
                    "--node-gbps {link}: {} moved {gbps:.2} Gb/s, more than its link; the nearest possible value is {least}",
                    host.host
                );
            }
        }
        Ok(())
    }
}

/// The cluster and the job of what was measured. `base` gives what no counter tells: links, cores and slots of a host, and sub-racks if
/// none are declared. `disk_bytes_per_sec` goes before the measured rate.
///
/// # Errors
/// Invalid: too little was moved, no disk rate is known, or the described disks and links could not have moved it. Each names the
/// option that mends it. Otherwise those of a run.
pub fn describe(measured: &Measured, base: &Cluster, disk_bytes_per_sec: Option<f64>) -> Result<Described> {
    measured.check(base)?;
    let Some(rate) = disk_bytes_per_sec.or_else(|| measured.disk_bytes_per_sec()) else {
        bail!(
            Invalid,
            "no node has measured its disks yet, as too little was written: write some files, or name the rate (--disk-write-mb)"
        );
    };
    let disk = DiskModel { read_bytes_per_sec: rate, write_bytes_per_sec: rate, ..DiskModel::ES2 };
    // Programs run already, and all work alike.
    let hardware = Hardware {
        disk,
        start_cycles: 0.0,
        wrap_up_cycles: 0.0,
        work_spread: 1.0,
        heartbeat_secs: 0.1,
        ..testbed_hardware()
    };
    let disks: usize = measured.hosts.iter().map(|host| host.disks).sum();
    let sub_racks = if measured.sub_racks > 0 { measured.sub_racks } else { base.sub_racks };
    let nodes = measured.compute_hosts;
    let cluster = Cluster {
        placement: Placement::Hybrid,
        nodes,
        sub_racks: sub_racks.min(nodes),
        node_disks: disks.div_ceil(nodes),
        replicas: (measured.copies.round() as usize).clamp(1, nodes),
        hardware,
        ..base.clone()
    };
    cluster.check()?;
    let (read_bytes, written_bytes) = measured.read_and_written();
    let factor = JOB_SECS / measured.seconds;
    let mut app = App {
        name: "measured".to_owned(),
        map_input_bytes: read_bytes * factor,
        map_output_bytes: written_bytes * factor,
        reduce_output_bytes: 0.0,
        mappers: nodes * cluster.map_slots,
        reducers: 0,
        map_cycles_per_byte: 0.0,
        reduce_cycles_per_byte: 0.0,
    };
    app.map_cycles_per_byte = cycles(&cluster.with_placement(Placement::Baseline), &app)?;
    Ok(Described { cluster, app, read_bytes, written_bytes })
}

/// Cycles for a byte with which the job takes [`JOB_SECS`] on the baseline.
fn cycles(baseline: &Cluster, app: &App) -> Result<f64> {
    let seconds = |cycles: f64| {
        let app = App { map_cycles_per_byte: cycles, ..app.clone() };
        job::run(baseline, &app, JobOptions::default()).map(|report| report.seconds)
    };
    let least = seconds(0.0)?;
    if least > JOB_SECS * (1.0 + SLACK) {
        bail!(
            Invalid,
            "{} hosts of {} disks at {:.0} MB/s and {} Gb/s would need {:.1} times as long for what was measured: name faster disks \
             (--disk-read-mb, --disk-write-mb) or links (--node-gbps). Reads from memory are such a case",
            baseline.nodes,
            baseline.node_disks,
            baseline.hardware.disk.write_bytes_per_sec / 1e6,
            baseline.node_gbps,
            least / JOB_SECS
        );
    }
    let (mut low, mut high) = (0.0, 1.0);
    while seconds(high)? < JOB_SECS {
        (low, high) = (high, high * 4.0);
    }
    while high - low > 0.001 * high {
        let middle = f64::midpoint(low, high);
        if seconds(middle)? < JOB_SECS { low = middle } else { high = middle }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::Study;

    fn base() -> Cluster {
        Cluster { node_gbps: 1.0, ..Study::by_name("5-node").unwrap().cluster }
    }

    /// Six hosts of two disks that read 200 MB/s and write 30 MB/s in three copies.
    fn six() -> Measured {
        let host = |number: usize| MeasuredHost {
            host: format!("h{number}"),
            disks: 2,
            sent_bytes: (2000e6 + 600e6) / 6.0,
            received_bytes: 900e6 / 6.0,
            write_bytes_per_sec: 200e6,
        };
        let hosts = (1..=6).map(host).collect();
        Measured { seconds: 10.0, served_bytes: 2300e6, copies: 3.0, hosts, compute_hosts: 6, sub_racks: 2 }
    }

    #[test]
    fn the_job_reads_and_writes_what_was_measured_in_the_span() {
        let found = describe(&six(), &base(), None).unwrap();
        assert!((found.read_bytes - 2000e6).abs() < 1.0 && (found.written_bytes - 300e6).abs() < 1.0, "{found:?}");
        let Cluster { nodes, sub_racks, node_disks, replicas, .. } = found.cluster;
        assert_eq!((nodes, sub_racks, node_disks, replicas), (6, 2, 2, 3));
        assert_eq!(found.cluster.hardware.disk.read_bytes_per_sec, 100e6);
        let baseline = found.cluster.with_placement(Placement::Baseline);
        let seconds = job::run(&baseline, &found.app, JobOptions::default()).unwrap().seconds;
        assert!((seconds - JOB_SECS).abs() < 1.0, "{seconds} s");
    }

    #[test]
    fn reads_on_the_own_host_count_though_no_server_sent_them() {
        let mut measured = six();
        measured.hosts.iter_mut().for_each(|host| host.sent_bytes = 600e6 / 6.0);
        assert!((describe(&measured, &base(), None).unwrap().read_bytes - 2000e6).abs() < 1.0);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_option_that_mends_it() {
        let refused = |change: fn(&mut Measured), words: &str| {
            let mut measured = six();
            change(&mut measured);
            let error = describe(&measured, &base(), None).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        refused(|one| one.hosts.clear(), "ebb node add");
        refused(|one| one.seconds = 0.5, "--sample");
        refused(
            |one| {
                one.served_bytes = 0.0;
                one.hosts.iter_mut().for_each(|host| (host.sent_bytes, host.received_bytes) = (0.0, 0.0));
            },
            "run the jobs while this command measures",
        );
        refused(|one| one.hosts.iter_mut().for_each(|host| host.write_bytes_per_sec = 0.0), "--disk-write-mb");
        refused(|one| one.hosts[2].sent_bytes = 99e9, "h3 moved");
        refused(|one| one.served_bytes = 99e9, "name faster disks");
    }
}
