//! The simulated cluster: machines, links and the placement of data. Plain values with the reasons for their defaults.

use ebb_types::{Result, bail};
use serde::{Deserialize, Serialize};

/// Bytes of a mebibyte.
pub const MIB: f64 = 1024.0 * 1024.0;
/// Bytes a second of one gigabit a second.
pub const GBPS: f64 = 1e9 / 8.0;

/// Placement of a job's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Every node keeps files on its own disks, in [`Cluster::replicas`] copies: Hadoop as it is.
    Baseline,
    /// One store outside the cluster keeps everything, shuffle data included.
    Naive,
    /// The localized storage node of each sub-rack keeps everything of that sub-rack, shuffle data included.
    Localized,
    /// Files are on the localized storage nodes, shuffle data on a disk of each node. The paper measures this
    /// placement.
    Hybrid,
}

impl Placement {
    /// Every placement.
    pub const ALL: [Self; 4] = [Self::Baseline, Self::Naive, Self::Localized, Self::Hybrid];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Naive => "naive",
            Self::Localized => "localized",
            Self::Hybrid => "hybrid",
        }
    }
}

/// A disk. One stream goes at `read` or `write`; with more streams the head moves at each request.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct DiskModel {
    /// Bytes a second.
    pub read_bytes_per_sec: f64,
    /// Bytes a second.
    pub write_bytes_per_sec: f64,
    /// Seconds to another stream's place.
    pub read_seek_secs: f64,
    /// Seconds to another stream's place.
    pub write_seek_secs: f64,
    /// Bytes read before the head goes to another stream.
    pub read_run_bytes: f64,
    /// Bytes written before the head goes to another stream.
    pub write_run_bytes: f64,
}

impl DiskModel {
    /// The "Seagate" of the MRPerf simulator, which the paper extended: 280 MiB/s read, 75 MiB/s write
    /// (`hadoop_conf.py`), seeks of 8.2 and 9.2 ms (`hadoop.cluster.tcl`, there in a comment, so that MRPerf itself
    /// has none) and half a turn at 7,200 a minute, 4.2 ms. Streams take turns with each request: a mapper's piece when
    /// they read ([`Hardware::read_piece_bytes`]), 1 MiB when they write.
    pub const HARD_DISK: Self = Self {
        read_bytes_per_sec: 280.0 * MIB,
        write_bytes_per_sec: 75.0 * MIB,
        read_seek_secs: 0.0082 + 0.0042,
        write_seek_secs: 0.0092 + 0.0042,
        read_run_bytes: 4.0 * MIB,
        write_run_bytes: 1.0 * MIB,
    };

    /// A measured disk: Seagate's data sheet of the Barracuda ES.2 in the paper's testbed says 105 MB/s at the outer
    /// edge and seeks of 8.5 and 9.5 ms. MRPerf's 280 MiB/s are more than one such disk gives.
    pub const ES2: Self = Self {
        read_bytes_per_sec: 105e6,
        write_bytes_per_sec: 105e6,
        read_seek_secs: 0.0085 + 0.0042,
        write_seek_secs: 0.0095 + 0.0042,
        ..Self::HARD_DISK
    };

    /// A small SATA solid-state disk of the paper's years: the data sheet of Intel's X25-M (160 GB, second generation)
    /// says 250 MB/s read, 100 MB/s written. It does not seek.
    pub const SSD: Self = Self {
        read_bytes_per_sec: 250e6,
        write_bytes_per_sec: 100e6,
        read_seek_secs: 0.0,
        write_seek_secs: 0.0,
        read_run_bytes: 1.0 * MIB,
        write_run_bytes: 1.0 * MIB,
    };
}

/// Parameters that the paper leaves open, chosen once for all studies.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hardware {
    /// Cycles a second of a core. MRPerf's "Xeon 2.5GHz L5420".
    pub core_hertz: f64,
    /// Cycles to start a task's virtual machine. MRPerf's `jvm_start_cost`.
    pub start_cycles: f64,
    /// Cycles at the end of a map. MRPerf's `wrap_up_cost`.
    pub wrap_up_cycles: f64,
    /// Cycles to sort a byte of map output before it is spilled. MRPerf's `sort_cycles_per_byte`.
    pub sort_cycles_per_byte: f64,
    /// Bytes of map output sorted and spilled at a time: Hadoop's `io.sort.mb` (100 MiB) times
    /// `io.sort.spill.percent` (0.80). MRPerf spills at 50 MiB, which would send every full block to disk twice.
    pub sort_buffer_bytes: f64,
    /// Cycles of one merge in a reducer. MRPerf's `merge_cycles`.
    pub merge_cycles: f64,
    /// Bytes that a reducer holds before it merges them to disk. MRPerf's `in_mem_space`.
    pub merge_buffer_bytes: f64,
    /// Cycles of a reducer's last sort. MRPerf's `reduce_sort_cycles`.
    pub reduce_sort_cycles: f64,
    /// Nodes that a reducer fetches from at a time. Hadoop's `mapred.reduce.parallel.copies`.
    pub copiers: usize,
    /// Seconds between two heartbeats of a node, at which it gets tasks. MRPerf's `heart_beat_delay`.
    pub heartbeat_secs: f64,
    /// Reducers that a node gets at a heartbeat. MRPerf's `tasks_to_start`.
    pub reducers_per_heartbeat: usize,
    /// Bytes that a mapper asks for at a time, before it works on them.
    pub read_piece_bytes: f64,
    /// Bytes of a file block: after each block the replicas of output go to other nodes. MRPerf's `unit_size`, Hadoop's
    /// `dfs.block.size`.
    pub block_bytes: f64,
    /// Spread of the cycles of equal pieces of work: MRPerf's log-normal deviation of 1.10.
    pub work_spread: f64,
    /// Bytes of one stream that the array of a localized storage node writes before its heads go to another stream: a
    /// stripe over all of its disks. An array of more disks cuts it into smaller pieces, and all of them still seek for
    /// each stripe, so that seeks do not become fewer. The paper does not give its array's stripe, but shows that it
    /// has one: TeraGen is 55 % slower than the baseline with 16 disks, and still 53.7 % with 32 (figures 5 and 11).
    /// Chosen once, to be near both, as [`Hardware::array_piece_bytes`] was.
    pub array_stripe_bytes: f64,
    /// Bytes of a stripe that go to one disk at most, however few disks there are: somewhat more than a lone disk
    /// writes at a time ([`DiskModel::write_run_bytes`]), because an array's cache gathers writes. The paper does not
    /// give this number either: it was chosen by the paper's results, as the stripe was. It is the limit in arrays of
    /// up to eight disks (figures 5 and 7).
    pub array_piece_bytes: f64,
    /// Disks of nodes and of localized storage nodes.
    pub disk: DiskModel,
    /// The disk that replaces a node's local disk with [`Cluster::node_ssd`].
    pub ssd: DiskModel,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            core_hertz: 2.5e9,
            start_cycles: 4.0e9,
            wrap_up_cycles: 4.8e9,
            sort_cycles_per_byte: 44.0,
            sort_buffer_bytes: 80.0 * MIB,
            merge_cycles: 1.0e9,
            merge_buffer_bytes: 66.0 * MIB,
            reduce_sort_cycles: 6.0e9,
            copiers: 5,
            heartbeat_secs: 1.0,
            reducers_per_heartbeat: 2,
            read_piece_bytes: 4.0 * MIB,
            block_bytes: 64.0 * MIB,
            work_spread: 1.10,
            array_stripe_bytes: 10.25 * MIB,
            array_piece_bytes: 1.25 * MIB,
            disk: DiskModel::HARD_DISK,
            ssd: DiskModel::SSD,
        }
    }
}

/// A cluster: rack > sub-racks > nodes, and with each sub-rack perhaps a localized storage node (LSN).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cluster {
    /// Placement of data.
    pub placement: Placement,
    /// Compute nodes in all.
    pub nodes: usize,
    /// Sub-racks, each with one LSN; nodes are dealt to them evenly.
    pub sub_racks: usize,
    /// Cores of a node.
    pub cores: usize,
    /// Disks of a node in the baseline.
    pub node_disks: usize,
    /// Of these, the disks that hold shuffle data; they hold files too. Hadoop's default is one directory
    /// (`mapred.local.dir`), so one disk.
    pub shuffle_disks: usize,
    /// Disks that stay in a node when an LSN holds the files; they hold shuffle data (hybrid).
    pub local_disks: usize,
    /// The local disk is a solid-state one (not in the baseline).
    pub node_ssd: bool,
    /// Gigabits a second of a node's link, each way.
    pub node_gbps: f64,
    /// Gigabits a second between a sub-rack and the others, each way. `None`: no limit.
    pub uplink_gbps: Option<f64>,
    /// Map tasks that a node runs at a time.
    pub map_slots: usize,
    /// Reduce tasks that a node runs at a time.
    pub reduce_slots: usize,
    /// Copies of a file block in the baseline.
    pub replicas: usize,
    /// Data disks of an LSN (of the one outside store, if naive).
    pub lsn_disks: usize,
    /// Disks of each LSN that hold parity, which make writes more expensive.
    pub lsn_parity_disks: usize,
    /// Gigabits a second of an LSN's link, each way.
    pub lsn_gbps: f64,
    /// Copies of a file block among LSNs. One: the LSN itself protects its disks. The paper gives no number; its figure 7
    /// needs one.
    pub lsn_replicas: usize,
    /// Parameters of the machines.
    pub hardware: Hardware,
    /// See [`crate::engine::Engine::new`]; none: exact up to 64 nodes, then one part in 400 of a second for each node
    /// over them, at most a tenth.
    pub quantum_secs: Option<f64>,
}

impl Cluster {
    /// Refuses an impossible cluster, with the nearest possible value.
    ///
    /// # Errors
    /// Invalid: names the value, the reason and the nearest possible value.
    pub fn check(&self) -> Result<()> {
        at_least("nodes", self.nodes, 1, "no node, no work")?;
        at_most("nodes", self.nodes, 20_000, "larger clusters take hours")?;
        at_least("sub-racks", self.sub_racks, 1, "every node is in one")?;
        at_most("sub-racks", self.sub_racks, self.nodes, "an LSN without nodes serves none")?;
        at_least("cores", self.cores, 1, "tasks run on cores")?;
        at_most("cores", self.cores, 1024, "no machine has more")?;
        at_least("map-slots", self.map_slots, 1, "maps run in slots")?;
        at_least("reduce-slots", self.reduce_slots, 1, "reducers run in slots")?;
        at_most("map-slots", self.map_slots, 1024, "no machine runs more tasks")?;
        at_most("reduce-slots", self.reduce_slots, 1024, "no machine runs more tasks")?;
        at_least("node-disks", self.node_disks, 1, "the baseline keeps files on them")?;
        at_most("node-disks", self.node_disks, 1000, "no machine holds more")?;
        at_least("shuffle-disks", self.shuffle_disks, 1, "shuffle data needs a disk")?;
        at_most("shuffle-disks", self.shuffle_disks, self.node_disks, "they are some of the node's disks")?;
        at_least("local-disks", self.local_disks, 1, "shuffle data and the system need a disk in each node")?;
        at_most("local-disks", self.local_disks, 1000, "no machine holds more")?;
        at_least("replicas", self.replicas, 1, "a file has at least one copy")?;
        at_most("replicas", self.replicas, self.nodes, "copies of a block are on different nodes")?;
        at_least("lsn-disks", self.lsn_disks, 1, "an LSN without disks holds nothing")?;
        at_most("lsn-disks", self.lsn_disks, 10_000, "no machine holds more")?;
        at_most("lsn-parity-disks", self.lsn_parity_disks, self.lsn_disks - 1, "one disk must hold data")?;
        at_least("lsn-replicas", self.lsn_replicas, 1, "a file has at least one copy")?;
        at_most("lsn-replicas", self.lsn_replicas, 8, "more copies than that are a mistake")?;
        link("node-gbps", self.node_gbps)?;
        link("lsn-gbps", self.lsn_gbps)?;
        if let Some(gbps) = self.uplink_gbps {
            link("uplink-gbps", gbps)?;
        }
        for (name, disk) in [("disk", &self.hardware.disk), ("ssd", &self.hardware.ssd)] {
            rate(name, "read", disk.read_bytes_per_sec)?;
            rate(name, "write", disk.write_bytes_per_sec)?;
        }
        stripe(self.hardware.array_stripe_bytes)?;
        Ok(())
    }

    /// Whether files are on LSNs or an outside store.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.placement != Placement::Baseline
    }

    /// Disks in the whole cluster.
    #[must_use]
    pub fn total_disks(&self) -> usize {
        match self.placement {
            Placement::Baseline => self.nodes * self.node_disks,
            Placement::Naive => self.nodes * self.local_disks + self.lsn_disks,
            Placement::Localized | Placement::Hybrid => self.nodes * self.local_disks + self.sub_racks * self.lsn_disks,
        }
    }

    /// The cluster with another placement of its data.
    #[must_use]
    pub fn with_placement(&self, placement: Placement) -> Self {
        Self { placement, ..self.clone() }
    }

    /// The sub-rack of a node.
    #[must_use]
    pub const fn sub_rack_of(&self, node: usize) -> usize {
        node * self.sub_racks / self.nodes
    }

    /// The quantum in seconds.
    #[must_use]
    pub fn quantum(&self) -> f64 {
        self.quantum_secs.unwrap_or(self.nodes.saturating_sub(64) as f64 / 400.0).min(0.1)
    }
}

fn at_least(name: &str, value: usize, least: usize, reason: &str) -> Result<()> {
    if value < least {
        bail!(Invalid, "--{name} {value}: {reason}; the nearest possible value is {least}");
    }
    Ok(())
}

fn at_most(name: &str, value: usize, most: usize, reason: &str) -> Result<()> {
    if value > most {
        bail!(Invalid, "--{name} {value}: {reason}; the nearest possible value is {most}");
    }
    Ok(())
}

fn link(name: &str, gbps: f64) -> Result<()> {
    const LEAST: f64 = 0.001;
    const MOST: f64 = 100_000.0;
    if !(LEAST..=MOST).contains(&gbps) {
        let nearest = if gbps > MOST { MOST } else { LEAST };
        bail!(
            Invalid,
            "--{name} {gbps}: a link goes at {LEAST} to {MOST} Gbps; the nearest possible value is {nearest}"
        );
    }
    Ok(())
}

fn rate(disk: &str, way: &str, bytes_per_sec: f64) -> Result<()> {
    const LEAST: f64 = 1e5;
    const MOST: f64 = 1e12;
    if !(LEAST..=MOST).contains(&bytes_per_sec) {
        let nearest = if bytes_per_sec > MOST { MOST } else { LEAST } / 1e6;
        bail!(
            Invalid,
            "--{disk}-{way}-mb {}: a disk goes at {} to {} MB/s; the nearest possible value is {nearest}",
            bytes_per_sec / 1e6,
            LEAST / 1e6,
            MOST / 1e6
        );
    }
    Ok(())
}

fn stripe(bytes: f64) -> Result<()> {
    const LEAST: f64 = 0.1 * MIB;
    const MOST: f64 = 1e6 * MIB;
    if !(LEAST..=MOST).contains(&bytes) {
        let nearest = if bytes > MOST { MOST } else { LEAST } / MIB;
        bail!(
            Invalid,
            "--lsn-stripe-mib {}: a stripe is {} to {} MiB; the nearest possible value is {nearest}",
            bytes / MIB,
            LEAST / MIB,
            MOST / MIB
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
