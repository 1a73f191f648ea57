//! The one set of machines that all figures of both papers run on. `docs/lab.md` has it as a table.

use std::time::Duration;

use ebb_power::NodePower;
use ebb_runtime::virt::{DiskOptions, LinkOptions, Small, WorldOptions};

/// Machines, as the papers' experiments meet them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machines {
    /// Draw and transitions of a node: the prototype of BlinkFS, Sec. 5.
    pub node: NodePower,
    /// Switch and always-on node (BlinkFS, Sec. 5), in watts.
    pub base_watts: f64,
    /// How long the battery carries all nodes (BlinkFS, Sec. 5).
    pub battery: Duration,
    /// Blink interval (BlinkFS, Sec. 5).
    pub interval: Duration,
    /// A node's disk, reading or writing, in bytes a second: two SATA disks of Rabbit's testbed, or the flash disk of
    /// BlinkFS's; neither paper gives a rate.
    pub disk_bytes_per_sec: u64,
    /// Before bytes flow.
    pub disk_latency: Duration,
    /// Of a sync.
    pub sync_latency: Duration,
    /// One direction of a node's link: gigabit Ethernet in both papers.
    pub link_bytes_per_sec: u64,
    /// Between two nodes, one way.
    pub link_latency: Duration,
    /// Cores of a node (BlinkFS, Sec. 5).
    pub cores: u32,
    /// Their clock (BlinkFS, Sec. 5), in cycles a second.
    pub core_hz: f64,
    /// Cycles for a byte of a program that looks at records, as in `ebb_sim::app`.
    pub cycles_per_byte: f64,
}

/// The machines of all figures.
pub const MACHINES: Machines = Machines {
    node: NodePower::REFERENCE,
    base_watts: 40.0,
    battery: Duration::from_secs(300),
    interval: Duration::from_secs(60),
    disk_bytes_per_sec: 125_000_000,
    disk_latency: Duration::from_micros(100),
    sync_latency: Duration::from_micros(400),
    link_bytes_per_sec: 125_000_000,
    link_latency: Duration::from_micros(100),
    cores: 2,
    core_hz: 2.4e9,
    cycles_per_byte: 160.0,
};

/// Up to this a segment has metadata, of which a byte stands for itself.
const METADATA_MAX: u64 = 2 << 10;

/// The same of an access to a disk: a page of the store's own records. Data comes in chunks, which are longer.
const RECORD_MAX: u64 = 4 << 10;

/// Aligned writes from this size on go around the page cache, as on a real disk.
const DIRECT_MIN: u64 = 256 << 10;

/// Shorter segments would have the world spend its time on them. It is above [`METADATA_MAX`].
const SEGMENT_LEAST: usize = 4 << 10;

impl Machines {
    /// A world of them in which a byte of data stands for `scale` bytes.
    #[must_use]
    pub fn world(&self, scale: u64) -> WorldOptions {
        let disk = DiskOptions {
            read_latency: self.disk_latency,
            sync_latency: self.sync_latency,
            bandwidth_bytes_per_sec: self.disk_bytes_per_sec / scale,
            small: (scale > 1)
                .then_some(Small { bytes_max: RECORD_MAX, bandwidth_bytes_per_sec: self.disk_bytes_per_sec }),
            direct_bytes_min: DIRECT_MIN / scale,
            ..DiskOptions::default()
        };
        let segment_bytes_max = (WorldOptions::default().segment_bytes_max / scale as usize).max(SEGMENT_LEAST);
        WorldOptions { link: self.link(scale), disk, segment_bytes_max, ..WorldOptions::default() }
    }

    /// Their links.
    #[must_use]
    pub fn link(&self, scale: u64) -> LinkOptions {
        LinkOptions {
            latency: self.link_latency,
            bandwidth_bytes_per_sec: self.link_bytes_per_sec / scale,
            small: (scale > 1)
                .then_some(Small { bytes_max: METADATA_MAX, bandwidth_bytes_per_sec: self.link_bytes_per_sec }),
            ..LinkOptions::default()
        }
    }

    /// How long a node's cores need for so many bytes (not scaled) of records.
    #[must_use]
    pub fn computing(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 * self.cycles_per_byte / (self.core_hz * f64::from(self.cores)))
    }

    /// Draw of the whole cluster with so many of its nodes awake, in watts.
    #[must_use]
    pub fn watts(&self, nodes: u32, awake: u32) -> f64 {
        let (awake, all) = (f64::from(awake), f64::from(nodes));
        self.base_watts + awake * self.node.active_watts + (all - awake) * self.node.asleep_watts
    }
}
