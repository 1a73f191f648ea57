//! A cluster of the simulator, with the real services on its machines: hosts that compute, and disks in them or in localized storage
//! nodes (LSNs).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ebb_client::Client;
use ebb_power::PolicyKind;
use ebb_rpc::Counters;
use ebb_runtime::Runtime;
use ebb_runtime::virt::{DiskOptions, LinkOptions, World, WorldOptions};
use ebb_sim::cluster::{GBPS, MIB};
use ebb_sim::{Cluster, DiskModel, Placement};
use ebb_types::{CHUNK_SIZE, Credentials, InodeId, NodeClass, Result, bail};
use ebb_virtual::power::sites::{Site, SubRackSizes};
use ebb_virtual::power::{PowerCluster, PowerOptions};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, Op};
use tokio::sync::Semaphore;

use crate::hardware::MACHINES;

/// Bytes that a byte stands for. So a chunk, the least that is read, stands for 4 MiB: what a map of the simulator reads at a time, and
/// a metablock of the layout `lsn`.
pub const SCALE: u64 = 256;
/// Bytes of a task's requests, as they are stored.
pub const PIECE: u64 = CHUNK_SIZE;
/// Metablocks of files that are not on LSNs: HDFS's blocks of 64 MiB.
const HDFS_BLOCK: u64 = (64 << 20) / SCALE;
/// Racks that sub-racks are dealt to in turn.
const RACKS: usize = 2;
/// Written and not yet on disks, for each host, in the paper's bytes. Five hosts have so much under way that one disk, or a link of
/// 1 Gb/s, is through with it within two seconds, and a member that has not answered for four is replaced.
pub const DIRTY: usize = 32 << 20;
/// The same as a mount has it by default: more than that link and that disk take in four seconds.
pub const DIRTY_OF_MOUNTS: usize = 128 << 20;
/// A core goes from task to task after so long, if more tasks compute than there are cores.
const SLICE: Duration = Duration::from_millis(250);
/// Work in the background ends within this after files were written or removed.
pub const REST: Duration = Duration::from_secs(60);

/// The disks of all figures, reading or writing: those of the paper's testbed.
pub const DISK: DiskModel = DiskModel::ES2;

/// The cluster while it runs.
pub struct Bed {
    /// Its world.
    pub world: World,
    /// The services.
    pub cluster: PowerCluster,
    /// As the simulator describes it.
    pub spec: Cluster,
    /// The hosts that compute, in order: h1 is the first.
    pub hosts: Vec<Host>,
    /// The directory of input and output.
    pub data: InodeId,
    /// The directory of shuffle data.
    pub scratch: InodeId,
}

/// A host that computes: its programs share a session, as those of a mount do.
#[derive(Clone)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// The session.
    pub client: Client,
    /// Of its programs.
    pub runtime: Runtime,
    /// Bytes of the session.
    pub counters: Counters,
    cores: Arc<Semaphore>,
    core_hertz: f64,
}

/// What a cluster's description leaves open, or has otherwise.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Means {
    /// Every disk; its rate for reading is that for writing.
    pub disk: DiskModel,
    /// What a host may have written and not yet on disks, in the paper's bytes.
    pub dirty_bytes: usize,
}

impl Default for Means {
    fn default() -> Self {
        Self { disk: DISK, dirty_bytes: DIRTY }
    }
}

/// Runs `body` on a cluster of its own. To be called from [`crate::Lab::map`], on a thread of its own.
pub fn on<T, F>(seed: u64, spec: &Cluster, body: impl FnOnce(Bed) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    with(seed, spec, Means::default(), body)
}

/// The same with other means.
pub fn with<T, F>(seed: u64, spec: &Cluster, means: Means, body: impl FnOnce(Bed) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let spec = spec.clone();
    World::run(seed, world(&means.disk), |world| async move {
        let bed = Bed::start(&world, spec, means.dirty_bytes / SCALE as usize).await?;
        body(bed).await
    })
}

/// Links get their bandwidth by the ports of hosts; the master's has no limit that matters.
fn world(disk: &DiskModel) -> WorldOptions {
    let usual = MACHINES.world(SCALE);
    let link = LinkOptions { bandwidth_bytes_per_sec: LinkOptions::default().bandwidth_bytes_per_sec, ..usual.link };
    let disk = DiskOptions {
        bandwidth_bytes_per_sec: (disk.read_bytes_per_sec / SCALE as f64) as u64,
        seek: Duration::from_secs_f64(disk.read_seek_secs),
        ..usual.disk
    };
    WorldOptions { link, disk, ..usual }
}

/// A solid-state disk: one rate for both ways, at which a byte written once and read once takes as long as on the model's.
fn solid_state(spec: &Cluster, usual: DiskOptions) -> DiskOptions {
    let ssd = spec.hardware.ssd;
    let rate = 2.0 / (1.0 / ssd.read_bytes_per_sec + 1.0 / ssd.write_bytes_per_sec);
    DiskOptions { bandwidth_bytes_per_sec: (rate / SCALE as f64) as u64, seek: Duration::ZERO, ..usual }
}

/// The block servers of a cluster.
fn sites(spec: &Cluster) -> Result<Vec<Site>> {
    if spec.placement == Placement::Naive {
        bail!(Invalid, "a store outside of all sub-racks is not run");
    }
    let shared = spec.is_shared();
    let host_volumes = match spec.placement {
        Placement::Hybrid => spec.local_disks,
        Placement::Localized => 0,
        Placement::Baseline | Placement::Naive => spec.node_disks,
    };
    let sizes = SubRackSizes {
        sub_racks: spec.sub_racks,
        hosts: spec.nodes / spec.sub_racks,
        lsn_volumes: if shared { spec.lsn_disks } else { 0 },
        host_volumes,
        racks: RACKS.min(spec.sub_racks),
    };
    let mut sites = Site::sub_racks(sizes);
    if !shared {
        sites.retain(|site| site.serves.is_empty());
    }
    Ok(sites)
}

/// Settings of a dataset on all hosts, with HDFS's blocks.
fn on_hosts(copies: usize) -> pb::Dataset {
    let (layout, metablock_size) = ("random".to_owned(), HDFS_BLOCK);
    pb::Dataset { layout, replicas: copies as u32, metablock_size, ..Default::default() }
}

impl Bed {
    async fn start(world: &World, spec: Cluster, dirty_bytes: usize) -> Result<Self> {
        let sites = sites(&spec)?;
        for site in &sites {
            let gbps = if site.serves.is_empty() { spec.node_gbps } else { spec.lsn_gbps };
            world.port(&site.host, (gbps * GBPS / SCALE as f64) as u64);
        }
        let usual = PowerOptions::new(1, PolicyKind::AlwaysOn, MACHINES.interval);
        let cluster = PowerCluster::start_with(world, PowerOptions { sites, scale: SCALE, ..usual }).await?;
        let mut hosts = Vec::new();
        for number in 1..=spec.nodes {
            let name = format!("h{number}");
            if spec.is_shared() && spec.node_ssd {
                let process = world.process(&name);
                process.set_disk_options(solid_state(&spec, process.disk_options()));
            }
            hosts.push(Host::start(world, &cluster, (&spec, dirty_bytes), name).await?);
        }
        let mut bed = Self { world: world.clone(), cluster, spec, hosts, data: InodeId::ROOT, scratch: InodeId::ROOT };
        let copies = if bed.spec.is_shared() { bed.spec.lsn_replicas } else { bed.spec.replicas };
        bed.data = bed.make_dataset("/data", &bed.for_files(copies)).await?;
        let scratch = match bed.spec.placement {
            Placement::Localized => bed.for_files(1),
            Placement::Hybrid => pb::Dataset { node_class: NodeClass::Compute.to_raw(), ..on_hosts(1) },
            Placement::Baseline | Placement::Naive => on_hosts(1),
        };
        bed.scratch = bed.make_dataset("/scratch", &scratch).await?;
        Ok(bed)
    }

    /// Settings of a dataset for files, where the cluster's placement has them.
    #[must_use]
    pub fn for_files(&self, copies: usize) -> pb::Dataset {
        if !self.spec.is_shared() {
            return on_hosts(copies);
        }
        pb::Dataset { layout: "lsn".to_owned(), replicas: copies as u32, metablock_size: PIECE, ..Default::default() }
    }

    /// A dataset with its directory.
    pub async fn make_dataset(&self, path: &str, settings: &pb::Dataset) -> Result<InodeId> {
        let dataset = pb::Dataset {
            path: path.to_owned(),
            block_size: PIECE,
            replication: "pipeline".to_owned(),
            ..settings.clone()
        };
        let create = CreateDataset { dataset: Some(dataset), ..Default::default() };
        let made = self.hosts[0].client.meta(&Credentials::root(), Op::CreateDataset(create)).await?;
        Ok(InodeId::new(made.dataset.unwrap_or_default().root_inode))
    }

    /// The directory of a volume of an LSN or a host, counted from 1.
    #[must_use]
    pub fn volume(number: usize) -> PathBuf {
        Site::volume(number)
    }

    /// Removes a name of a directory, with everything below it.
    pub async fn remove(&self, parent: InodeId, name: &str) -> Result<()> {
        self.hosts[0].client.remove_tree(&Credentials::root(), parent, name.as_bytes()).await
    }

    /// Members that sessions of hosts have replaced in sets.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.hosts.iter().map(|host| host.client.metrics().replaced_members).sum()
    }

    /// Bytes that all sessions of hosts have sent and received between hosts, and of these within sub-racks.
    #[must_use]
    pub fn carried(&self) -> (u64, u64) {
        let each = self.hosts.iter().map(|host| host.counters.read());
        each.fold((0, 0), |sum, one| (sum.0 + one.network_bytes(), sum.1 + one.sub_rack_bytes()))
    }
}

impl Host {
    async fn start(
        world: &World,
        cluster: &PowerCluster,
        (spec, dirty_bytes): (&Cluster, usize),
        name: String,
    ) -> Result<Self> {
        let process = world.process_on(&name, &format!("tasks of {name}"));
        let counters = Counters::default();
        let client = cluster
            .session_with(&process, counters.clone(), |options| {
                // As a library within programs does, which may be killed.
                options.keep_leases = false;
                options.dirty_bytes_max = dirty_bytes;
            })
            .await?;
        let cores = Arc::new(Semaphore::new(spec.cores));
        let core_hertz = spec.hardware.core_hertz;
        Ok(Self { name, client, runtime: process.runtime(), counters, cores, core_hertz })
    }

    /// Works for so many cycles on one core at a time, as soon as one is free.
    pub async fn compute(&self, cycles: f64) {
        let mut left = Duration::from_secs_f64(cycles / self.core_hertz);
        while !left.is_zero() {
            let _core = self.cores.acquire().await.expect("it is never closed");
            let slice = left.min(SLICE);
            self.runtime.sleep(slice).await;
            left -= slice;
        }
    }
}

/// Bytes of the paper's data as MiB.
#[must_use]
pub fn mib(stored_bytes: u64) -> f64 {
    stored_bytes as f64 * SCALE as f64 / MIB
}
