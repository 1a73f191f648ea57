//! A cluster of the real services on the lab's machines, with data in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, ClientOptions, Created, Handle, NewFile, NewName};
use ebb_power::policy::reservoir::steady;
use ebb_power::policy::{Ask, Rotational, Timing, choose};
use ebb_power::{Battery, Duty, Hardware, PolicyKind, Supply, wall_ms};
use ebb_rpc::Counters;
use ebb_runtime::Runtime;
use ebb_runtime::virt::{Process, World};
use ebb_types::{Credentials, Encode, HostName, InodeId, NodeId, Prefetch, RaidCode, Redundancy, Result, bail, err};
use ebb_virtual::power::sites::Site;
use ebb_virtual::power::{OverloadRule, PowerCluster, PowerOptions, Settings, newest_plan};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, Op, SetDataset};

use crate::hardware::MACHINES;

/// Announced so long before, a plan is known everywhere when it begins.
const LEAD_MS: u64 = 300;

/// For extra copies of what is read often: as `ebb dataset create` has it.
const EXTRA_SHARE_PERCENT: u32 = 10;

/// Between the last write of the data and the measurement.
const REST: Duration = Duration::from_secs(60);

/// For a call of the master about a RAID set.
const ENCODING_CALL: Duration = Duration::from_secs(60);
/// Time for everything to be encoded.
const ENCODED_WITHIN: Duration = Duration::from_secs(7_200);

/// How the data lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// A name of `ebb_layout::LayoutKind`.
    pub name: &'static str,
    /// Copies.
    pub replicas: u32,
    /// Primaries, for layouts on a chain.
    pub primaries: u32,
    /// Nodes of a gear, for the layout with gears.
    pub gear_size: u32,
}

impl Layout {
    /// HDFS's.
    pub const RANDOM: Self = Self { name: "random", replicas: 3, primaries: 0, gear_size: 0 };

    /// Rabbit's.
    #[must_use]
    pub const fn equal_work(primaries: u32, replicas: u32) -> Self {
        Self { name: "equal-work", replicas, primaries, gear_size: 0 }
    }

    /// Rabbit's, with gear and recovery groups.
    #[must_use]
    pub const fn geared(primaries: u32, gear_size: u32, replicas: u32) -> Self {
        Self { name: "geared", replicas, primaries, gear_size }
    }

    /// BlinkFS's.
    #[must_use]
    pub const fn balanced(replicas: u32) -> Self {
        Self { name: "power-balanced", replicas, primaries: 0, gear_size: 0 }
    }
}

/// A cluster and its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Block servers.
    pub nodes: u32,
    /// The policy that decides which of them sleep.
    pub policy: PolicyKind,
    /// How the data lies.
    pub layout: Layout,
    /// Bytes that a byte stands for.
    pub scale: u64,
    /// Bytes of a block as it is stored, the unit of transfer.
    pub block_bytes: u64,
    /// Files.
    pub files: u32,
    /// Blocks of each.
    pub blocks_per_file: u32,
    /// Blocks of a metablock, the unit of placement.
    pub metablock_blocks: u32,
    /// Of an access to a disk that is far from the last one.
    pub seek: Duration,
    /// Whether nodes write for homes that have too much to write.
    pub offloads: bool,
    /// RAID sets for everything, once it is written; none: it stays in copies.
    pub code: Option<RaidCode>,
    /// Whether everything is in RAID sets before anything is measured. Else it is due when that is said.
    pub encoded: bool,
}

impl Setting {
    /// Blocks of 4 MB (BlinkFS, Sec. 6) that are 64 KiB here, in files of 16.
    #[must_use]
    pub const fn of(nodes: u32, policy: PolicyKind, layout: Layout, blocks: u32) -> Self {
        Self {
            nodes,
            policy,
            layout,
            scale: 64,
            block_bytes: 64 << 10,
            files: blocks.div_ceil(16),
            blocks_per_file: 16,
            metablock_blocks: 1,
            seek: Duration::ZERO,
            offloads: true,
            code: None,
            encoded: true,
        }
    }

    /// Bytes that all blocks stand for.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.files as u64 * self.blocks_per_file as u64 * self.block_bytes * self.scale
    }
}

/// The cluster while it runs.
pub struct Testbed {
    /// Its world.
    pub world: World,
    /// Its setting.
    pub setting: Setting,
    cluster: PowerCluster,
    directory: InodeId,
    files: Vec<InodeId>,
    /// Reads that go to each node's data; then plans come from here, for a manager would have to learn them first.
    popularity: Option<BTreeMap<NodeId, f64>>,
}

/// A user that reads and writes the files.
#[derive(Clone)]
pub struct User {
    /// The session.
    pub client: Client,
    /// Of its process: tasks that are started here are frozen with it.
    pub runtime: Runtime,
    /// Every file, open for reading, or for both.
    pub handles: Vec<Handle>,
}

/// Runs `body` on a cluster of its own whose data has been written, all nodes on. To be called from [`crate::Lab::map`],
/// on a thread of its own: within an asynchronous runtime that runtime's budget would run out, for no time passes there.
pub fn on<T, F>(seed: u64, setting: Setting, body: impl FnOnce(Testbed) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    on_arranged(seed, setting, &[], body)
}

/// The same with the first copy of each file on a chosen node, counted from 0, as far as its layout lets it (write
/// affinity); with no choice, where the layout has it.
pub fn on_arranged<T, F>(seed: u64, setting: Setting, homes: &[u32], body: impl FnOnce(Testbed) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut machines = MACHINES.world(setting.scale);
    machines.disk.seek = setting.seek;
    World::run(seed, machines, |world| async move {
        let mut bed = Testbed::start(&world, setting).await?;
        bed.fill(homes).await?;
        body(bed).await
    })
}

impl Testbed {
    async fn start(world: &World, setting: Setting) -> Result<Self> {
        let node = MACHINES.node;
        let mut settings = Settings::new(setting.policy, MACHINES.interval);
        settings.base_watts = MACHINES.base_watts;
        (settings.active_watts, settings.asleep_watts) = (node.active_watts, node.asleep_watts);
        settings.transition_ms = node.transition_ms() / 2;
        settings.battery_s = MACHINES.battery.as_secs_f64();
        let mut overload_rule = OverloadRule::default();
        if !setting.offloads {
            overload_rule.ahead_bytes = None;
        }
        let options = PowerOptions {
            sites: Site::equal(setting.nodes as usize),
            settings,
            scale: setting.scale,
            overload_rule,
            // Its slots are as many times as large for the disks, and a master does not know that.
            call_timeout: setting.code.map(|_| ENCODING_CALL),
        };
        let cluster = PowerCluster::start_with(world, options).await?;
        Ok(Self {
            world: world.clone(),
            setting,
            cluster,
            directory: InodeId::ROOT,
            files: Vec::new(),
            popularity: None,
        })
    }

    /// Writes every block.
    async fn fill(&mut self, homes: &[u32]) -> Result<()> {
        let user = self.user("writer", None).await?;
        let extra_share_percent = EXTRA_SHARE_PERCENT;
        let code = self.setting.code.unwrap_or(Redundancy::Copies.to_raw());
        let settings = pb::Dataset {
            extra_share_percent,
            raid_copies: code.copies,
            raid_slots: code.slots,
            raid_rows: code.rows,
            delay_ms: 5_000,
            encode: (if self.setting.encoded { Encode::Background } else { Encode::Off }).to_raw(),
            ..Default::default()
        };
        self.directory = self.make_dataset(&user.client, "data", self.setting.layout, settings).await?;
        for number in 0..self.setting.files {
            let home = homes.get(number as usize).map(|place| HostName::new(format!("h{}", place + 1)));
            let name = format!("f{number}");
            let inode = self.write_new(&user.client, self.directory, &name, home).await?;
            self.files.push(inode);
        }
        user.client.disconnect().await?;
        if let Some(code) = self.setting.code.filter(|_| self.setting.encoded) {
            self.wait_until_thin(code).await?;
        }
        // Checkpoints that the writing has brought about are done before anything is measured.
        self.world.sleep(REST).await;
        Ok(())
    }

    /// Everything is old enough for RAID sets from now on.
    pub async fn make_due(&self, user: &User) -> Result<()> {
        let encode = Some(Encode::Background.to_raw());
        let set = SetDataset { dataset: self.dataset().await?.id, encode, ..Default::default() };
        user.client.meta(&Credentials::root(), Op::SetDataset(set)).await.map(drop)
    }

    /// Part of the bytes that is in RAID sets.
    pub async fn encoded_share(&self) -> Result<f64> {
        let bytes = u64::from(self.setting.files * self.setting.blocks_per_file) * self.setting.block_bytes;
        let encoded: u64 = self.cluster.raid_status().await?.iter().map(|one| one.encoded_bytes).sum();
        Ok(encoded as f64 / bytes as f64)
    }

    /// Waits until every block is in a RAID set, and the copies that are not needed have left. The last ones may be too few for
    /// one.
    async fn wait_until_thin(&self, code: RaidCode) -> Result<()> {
        let too_few = u64::from(code.slots) * self.setting.block_bytes;
        let bytes = u64::from(self.setting.files * self.setting.blocks_per_file) * self.setting.block_bytes;
        let end = self.world.now() + ENCODED_WITHIN;
        loop {
            let encoded = self.cluster.thin_bytes().await?;
            if encoded.is_some_and(|encoded| encoded + too_few > bytes) {
                return Ok(());
            }
            if self.world.now() > end {
                bail!(Timeout, "{encoded:?} of {bytes} bytes were encoded within {ENCODED_WITHIN:?}");
            }
            self.world.sleep(Duration::from_secs(1)).await;
        }
    }

    /// Makes a dataset of a new directory below the root, which it returns, with these further settings.
    async fn make_dataset(
        &self,
        client: &Client,
        name: &str,
        layout: Layout,
        settings: pb::Dataset,
    ) -> Result<InodeId> {
        let root = Credentials::root();
        let directory = NewName { parent: InodeId::ROOT, name: name.as_bytes(), mode: 0o755, umask: 0 };
        let made = client.make_dir(&root, directory).await?;
        let dataset = pb::Dataset {
            path: format!("/{name}"),
            layout: layout.name.to_owned(),
            replicas: layout.replicas,
            primaries: layout.primaries,
            gear_size: layout.gear_size,
            block_size: self.setting.block_bytes,
            metablock_size: self.setting.block_bytes * u64::from(self.setting.metablock_blocks),
            replication: "pipeline".to_owned(),
            ..settings
        };
        client.meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() })).await?;
        Ok(made.inode)
    }

    /// Writes one more dataset, of so many files as large as those of the setting. Its files, for [`Testbed::reader`]. It
    /// has no extra copies: neither HDFS nor Rabbit has any. Share 0: it has none.
    pub async fn add_dataset(&self, name: &str, layout: Layout, share: u32, files: u32) -> Result<Vec<InodeId>> {
        let user = self.user(&format!("writer of {name}"), None).await?;
        let settings = pb::Dataset { share, ..Default::default() };
        let directory = self.make_dataset(&user.client, name, layout, settings).await?;
        let mut all = Vec::new();
        for number in 0..files {
            all.push(self.write_new(&user.client, directory, &format!("f{number}"), None).await?);
        }
        user.client.disconnect().await?;
        self.world.sleep(REST).await;
        Ok(all)
    }

    /// A user that is always on, with these files open for reading.
    pub async fn reader(&self, host: &str, files: &[InodeId]) -> Result<User> {
        let mut user = self.user(host, None).await?;
        for file in files {
            user.handles.push(user.client.open(&Credentials::root(), *file, Access::Read).await?.0);
        }
        Ok(user)
    }

    /// Writes a new file of as many blocks as the others, and makes it safe.
    async fn write_new(
        &self,
        client: &Client,
        directory: InodeId,
        name: &str,
        home: Option<HostName>,
    ) -> Result<InodeId> {
        self.write_blocks(client, directory, (name, self.setting.blocks_per_file), home).await
    }

    /// Writes a new file of this name and so many blocks, and makes it safe.
    async fn write_blocks(
        &self,
        client: &Client,
        directory: InodeId,
        (name, blocks): (&str, u32),
        home: Option<HostName>,
    ) -> Result<InodeId> {
        let (root, access) = (Credentials::root(), Access::Write);
        let homes: Vec<HostName> = home.into_iter().collect();
        let created =
            client.create(&root, NewFile { hosts: &homes, ..NewFile::exclusive(directory, name.as_bytes(), access) });
        let Created { handle, attr, .. } = created.await?;
        for block in 0..blocks {
            let at = u64::from(block) * self.setting.block_bytes;
            client.write(handle, at, self.block(block as u8)).await?;
        }
        client.fsync(handle).await?;
        client.close(handle).await;
        Ok(attr.inode)
    }

    /// Writes new blocks as one of several writers.
    pub async fn write_one(&self, user: &User, number: usize, blocks: u32) -> Result<()> {
        self.write_blocks(&user.client, self.directory, (&format!("output{number}"), blocks), None).await.map(drop)
    }

    /// Contents for a block.
    #[must_use]
    pub fn block(&self, byte: u8) -> Bytes {
        Bytes::from(vec![byte; self.setting.block_bytes as usize])
    }

    /// A user that is always on, on a host of this name, with every file open if they are to be used.
    pub async fn user(&self, host: &str, access: Option<Access>) -> Result<User> {
        let client = self.cluster.connect(host).await?;
        self.open(client, &self.world.process(host), access).await
    }

    /// A user that is always on, with memory for blocks, that has so much fetched ahead of a sequential reader.
    pub async fn caching_user(&self, host: &str, cache_bytes: usize, prefetch: Prefetch) -> Result<User> {
        let process = self.world.process(host);
        let with_cache = |options: &mut ClientOptions| {
            (options.read_cache_bytes, options.prefetch) = (cache_bytes, Some(prefetch));
        };
        let client = self.cluster.session_with(&process, Counters::default(), with_cache).await?;
        self.open(client, &process, Some(Access::Read)).await
    }

    /// A user on a node, counted from 0. It is frozen with the node.
    pub async fn user_on(&self, node: u32, access: Access) -> Result<User> {
        let (client, process) = self.cluster.connect_on(node as usize, &format!("user of h{}", node + 1)).await?;
        self.open(client, &process, Some(access)).await
    }

    async fn open(&self, client: Client, process: &Process, access: Option<Access>) -> Result<User> {
        let mut handles = Vec::new();
        if let Some(access) = access {
            for file in &self.files {
                handles.push(client.open(&Credentials::root(), *file, access).await?.0);
            }
        }
        Ok(User { client, runtime: process.runtime(), handles })
    }

    /// The map of each file.
    pub async fn maps(&self, user: &User) -> Result<Vec<Vec<pb::Metablock>>> {
        let mut maps = Vec::new();
        for file in &self.files {
            let located = user.client.locations(*file).await?;
            maps.push(located.into_iter().map(|place| place.metablock).collect());
        }
        Ok(maps)
    }

    /// Nodes that hold each block, counted from 0.
    pub async fn holders(&self, user: &User) -> Result<Vec<Vec<u32>>> {
        let places = self.places().await?;
        let of = |record: &pb::Metablock| {
            let nodes = record.members.iter();
            nodes.filter_map(|member| places.get(&member.node).copied()).collect()
        };
        Ok(self.maps(user).await?.iter().flatten().map(of).collect())
    }

    /// Nodes by their number in the cluster, counted from 0.
    pub async fn places(&self) -> Result<BTreeMap<u64, u32>> {
        let place = |host: &str| host.strip_prefix('h')?.parse::<u32>().ok()?.checked_sub(1);
        let reply = self.cluster.describe().await?;
        Ok(reply.nodes.iter().filter_map(|node| Some((node.id, place(&node.host)?))).collect())
    }

    /// The nodes of [`Testbed::nodes_on`], counted from 0.
    pub async fn places_on(&self) -> Result<BTreeSet<u32>> {
        let (places, on) = (self.places().await?, self.nodes_on().await?);
        Ok(on.iter().filter_map(|node| places.get(node).copied()).collect())
    }

    /// Nodes that the newest plan keeps on without a break; all, if there is none.
    pub async fn nodes_on(&self) -> Result<BTreeSet<u64>> {
        let reply = self.cluster.describe().await?;
        let plan = newest_plan(&reply)?;
        let is_on = |node: &u64| {
            let duty = plan.as_ref().and_then(|plan| plan.nodes.get(&NodeId::new(*node))).map(|node| node.duty);
            duty.is_none_or(|duty| duty == Duty::On)
        };
        Ok(reply.nodes.iter().map(|node| node.id).filter(is_on).collect())
    }

    /// From now on plans come from here, by this popularity: for `load-proportional` alone.
    pub fn direct(&mut self, popularity: BTreeMap<NodeId, f64>) {
        self.cluster.kill_manager();
        self.popularity = Some(popularity);
    }

    /// Whether the power manager makes the plans.
    #[must_use]
    pub const fn has_manager(&self) -> bool {
        self.popularity.is_none()
    }

    /// The dataset of the files, as the master has it.
    pub async fn dataset(&self) -> Result<pb::Dataset> {
        let all = self.cluster.describe().await?.datasets;
        all.into_iter().find(|dataset| dataset.path == "/data").ok_or_else(|| err!(NotFound, "no dataset /data"))
    }

    /// Copies that lie away from home.
    pub async fn away(&self) -> Result<u64> {
        Ok(self.cluster.describe().await?.away.iter().map(|away| away.metablocks).sum())
    }

    /// As many of its nodes are to be on, and no more.
    pub async fn set_active(&self, user: &User, nodes: u32) -> Result<()> {
        let set = SetDataset { dataset: self.dataset().await?.id, active: Some(nodes), ..Default::default() };
        user.client.meta(&Credentials::root(), Op::SetDataset(set)).await.map(drop)
    }

    /// The cluster itself.
    #[must_use]
    pub const fn cluster(&self) -> &PowerCluster {
        &self.cluster
    }

    /// Gives the cluster so much power from now on.
    pub async fn supply(&self, supply: Supply) -> Result<()> {
        match (&self.popularity, supply) {
            (Some(popularity), supply) => self.publish(popularity, supply).await,
            (None, Supply::Fraction(share)) => self.cluster.set_fraction(share).await,
            (None, Supply::Watts(watts)) => self.cluster.set_watts(watts).await,
        }
    }

    async fn publish(&self, popularity: &BTreeMap<NodeId, f64>, supply: Supply) -> Result<()> {
        let reply = self.cluster.describe().await?;
        let circle: Vec<NodeId> = reply.nodes.iter().map(|node| NodeId::new(node.id)).collect();
        let hardware = Hardware::new(MACHINES.base_watts, circle.iter().map(|node| (*node, MACHINES.node)).collect())?;
        let last = newest_plan(&reply)?;
        let interval_ms = u64::try_from(MACHINES.interval.as_millis()).map_err(|_| err!(Invalid, "a long interval"))?;
        let now_ms = wall_ms(self.world.process("operator").runtime().wall());
        let ask = Ask {
            hardware: &hardware,
            supply,
            battery: Battery::full(hardware.full_watts(), MACHINES.battery.as_secs_f64()),
            circle: &circle,
            chains: &[],
            dead: &BTreeSet::new(),
            late: &BTreeSet::new(),
            popularity,
            rotational: Rotational::Spare,
            timing: Timing::every(interval_ms, (now_ms + LEAD_MS).next_multiple_of(interval_ms)),
            lead_ms: LEAD_MS,
            forecast: &steady(hardware.nodes_watts(supply)),
            last: last.as_ref(),
            kept: None,
        };
        self.cluster.publish(&choose(self.setting.policy, &ask)?).await
    }

    /// Gives the cluster so much power, and waits until the plan for it is in force and an interval of it has passed.
    pub async fn supply_and_wait(&self, supply: Supply) -> Result<()> {
        self.supply(supply).await?;
        self.world.sleep(MACHINES.interval * 2 + Duration::from_secs(2)).await;
        Ok(())
    }
}
