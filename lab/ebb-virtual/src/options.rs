//! The options of a run.

use std::time::Duration;

use ebb_runtime::SeededBug;
use ebb_runtime::virt::Dice;

use crate::datasets::DatasetKind;
use crate::faults::kind::Kind;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct VirtualOptions {
    /// Block servers, each on a host of its own.
    pub block_servers: usize,
    /// Racks that they are spread over.
    pub racks: usize,
    /// Proxies, each a process of its own on a host of its own; 0: one, in the master's process.
    pub proxies: usize,
    /// Clients, each on a host of its own, or on a block server's.
    pub clients: usize,
    /// Operations of one client at a time.
    pub workers_per_client: usize,
    /// Copies of each metablock.
    pub replicas: u32,
    /// Slots and rows of the RAID sets that cold metablocks get.
    pub raid: Option<(u32, u32)>,
    /// How old a metablock is when it is encoded.
    pub raid_delay: Duration,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Where shared files are.
    pub shared: DatasetKind,
    /// By client: where its own files are, if not beside the shared ones.
    pub own: Vec<Option<DatasetKind>>,
    /// How long faults go on.
    pub chaos: Duration,
    /// How long clients work on without faults.
    pub calm: Duration,
    /// How long the system may take to come to rest, once faults are healed.
    pub rest_max: Duration,
    /// Mean pause between two faults; zero: none.
    pub fault_pause: Duration,
    /// The kinds of faults; none: drawn from the seed.
    pub faults: Option<Vec<Kind>>,
    /// Clients mostly use one file to overwrite and one to append to, so that these go to the proxy.
    pub in_turns: bool,
    /// Writes to files at the proxy from so many bytes on go to the members directly.
    pub direct_bytes_min: u64,
    /// Clients keep leases of files that they have closed. If not, a push closes its file.
    pub keep_leases: bool,
    /// Percent of the unused capacity that extra copies of often read data may take; 0: there are none.
    pub extra_share_percent: u32,
    /// The first clients are on hosts of block servers, and share their fate.
    pub shares_hosts: bool,
    /// Clients use a few names of one directory, too.
    pub names: bool,
    /// Clients take snapshots of the run's dataset, too.
    pub snapshots: bool,
    /// Longest pause of a worker between two operations.
    pub work_pause_max: Duration,
    /// A mistake that the code is to make, to see whether it is found.
    pub bug: Option<SeededBug>,
}

impl Default for VirtualOptions {
    fn default() -> Self {
        Self {
            block_servers: 5,
            racks: 2,
            proxies: 0,
            clients: 2,
            workers_per_client: 2,
            replicas: 3,
            raid: None,
            raid_delay: Duration::from_secs(2),
            block_bytes: 64 << 10,
            shared: DatasetKind::Plain,
            own: Vec::new(),
            chaos: Duration::from_secs(30),
            calm: Duration::from_secs(5),
            rest_max: Duration::from_secs(240),
            fault_pause: Duration::from_secs(3),
            faults: None,
            in_turns: false,
            direct_bytes_min: 32 << 10,
            keep_leases: true,
            extra_share_percent: 0,
            shares_hosts: false,
            names: false,
            snapshots: false,
            work_pause_max: Duration::from_millis(150),
            bug: None,
        }
    }
}

impl VirtualOptions {
    /// Block servers that hold what is lost on another one.
    #[must_use]
    pub fn least_block_servers(&self) -> usize {
        let parts = self.raid.map_or(0, |(slots, rows)| slots + rows);
        self.replicas.max(parts) as usize
    }

    /// A cluster drawn from the seed: seeds differ in size and pace as well as in luck. Short runs of many kinds find
    /// more in the same time than long ones of one kind (Groce et al., "Swarm Testing", ISSTA 2012).
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "options");
        let replicas = if dice.chance(0.3) { 2 } else { 3 };
        Self {
            // With none to spare a set goes on with fewer, where it may.
            block_servers: dice.between(u64::from(replicas), 7) as usize,
            racks: dice.between(2, 3) as usize,
            clients: dice.between(2, 4) as usize,
            workers_per_client: dice.between(1, 2) as usize,
            replicas,
            chaos: dice.span_between(Duration::from_secs(10), Duration::from_secs(40)),
            calm: dice.span_between(Duration::from_secs(1), Duration::from_secs(4)),
            // Frequent faults meet each other, rare ones meet a system that is busy with the last.
            fault_pause: Duration::from_millis(*dice.pick(&[300, 800, 2000, 4000])),
            work_pause_max: Duration::from_millis(*dice.pick(&[120, 250, 500])),
            // Of larger blocks whole chunks go to the members at a time, and to other places of their files.
            block_bytes: *dice.pick(&[64 << 10, 128 << 10]),
            shared: *dice.pick(&[
                DatasetKind::Plain,
                DatasetKind::Plain,
                DatasetKind::Striped,
                DatasetKind::SingleSource,
            ]),
            in_turns: Dice::new(seed, "turns").chance(0.25),
            // From one cell on, from chunks on, or never.
            direct_bytes_min: *Dice::new(seed, "direct").pick(&[1, 32 << 10, u64::MAX]),
            keep_leases: *Dice::new(seed, "leases of closed files").pick(&[true, true, false]),
            extra_share_percent: if Dice::new(seed, "extra copies").coin() { 50 } else { 0 },
            own: (0..4).map(|_| dice.coin().then(|| *dice.pick(DatasetKind::ALL))).collect(),
            proxies: *Dice::new(seed, "proxies").pick(&[0, 0, 0, 1, 2]),
            shares_hosts: Dice::new(seed, "shared hosts").chance(0.3),
            names: Dice::new(seed, "names").chance(0.5),
            ..Self::default()
        }
    }

    /// As drawn, and cold metablocks trade their copies for rows.
    #[must_use]
    pub fn raid(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "RAID sets");
        let drawn = Self::drawn(seed);
        // One row bears the loss of one member, as the second copy does.
        let rows = drawn.replicas - 1;
        let slots = dice.between(2, 4) as u32;
        Self {
            // One host to heal on.
            block_servers: (slots + rows) as usize + dice.between(1, 2) as usize,
            raid: Some((slots, rows)),
            raid_delay: Duration::from_millis(*dice.pick(&[500, 2_000, 6_000])),
            // Files of one dataset are left alone for long enough to be cold, and are used again.
            own: Vec::new(),
            clients: dice.between(3, 5) as usize,
            workers_per_client: 2,
            work_pause_max: Duration::from_millis(*dice.pick(&[500, 1_500, 4_000])),
            // A master that is just back encodes nothing before it has heard everybody.
            fault_pause: Duration::from_millis(*dice.pick(&[800, 2_000, 6_000])),
            chaos: dice.span_between(Duration::from_secs(60), Duration::from_secs(120)),
            rest_max: Duration::from_secs(900),
            ..drawn
        }
    }

    /// As drawn, half of them with RAID sets, and clients take snapshots.
    #[must_use]
    pub fn snapshots(seed: u64) -> Self {
        let drawn = if Dice::new(seed, "snapshots").coin() { Self::raid(seed) } else { Self::drawn(seed) };
        Self { snapshots: true, rest_max: Duration::from_secs(900), ..drawn }
    }

    /// A run at scale: up to twenty block servers in up to five racks, up to eight clients and three proxies, and
    /// faults so often that several are under way at a time.
    #[must_use]
    pub fn large(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "large options");
        Self {
            block_servers: dice.between(8, 20) as usize,
            racks: dice.between(2, 5) as usize,
            proxies: dice.between(0, 3) as usize,
            clients: dice.between(4, 8) as usize,
            workers_per_client: dice.between(1, 3) as usize,
            fault_pause: Duration::from_millis(*dice.pick(&[100, 300, 1000])),
            own: (0..8).map(|_| dice.coin().then(|| *dice.pick(DatasetKind::ALL))).collect(),
            ..Self::drawn(seed)
        }
    }
}
