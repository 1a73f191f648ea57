//! A cluster with files whose bytes are known, and what its master tells of their copies and RAID sets.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Created, NewFile, NewName};
use ebb_power::PolicyKind;
use ebb_runtime::virt::World;
use ebb_types::{Credentials, Encode, InodeId, NodeId, RaidCode, Redundancy, Result, bail, err};
use ebb_virtual::power::{PowerCluster, PowerOptions};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, Op};

use crate::hardware::MACHINES;

/// Copies of what is young.
pub const COPIES: u32 = 3;
/// Everything that is waited for must have come about within this.
const PATIENCE: Duration = Duration::from_secs(7_200);
/// Of a master, beside the time for bytes.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_secs(1);
/// Bytes of one read or write.
const PIECE: u64 = 1 << 20;

/// A cluster and the redundancy of its data. All of its nodes are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Block servers.
    pub nodes: u32,
    /// Bytes that a byte stands for.
    pub scale: u64,
    /// Bytes of a metablock as it is stored.
    pub metablock_bytes: u64,
    /// Of what is old; none: it stays in copies.
    pub code: Option<RaidCode>,
    /// When it is old.
    pub encode: Encode,
    /// The same in the background.
    pub delay: Duration,
}

impl Shape {
    /// A few seconds until data are old, and machines whose bytes stand for themselves.
    #[must_use]
    pub const fn of(nodes: u32, code: RaidCode, metablock_bytes: u64) -> Self {
        Self {
            nodes,
            scale: 1,
            metablock_bytes,
            code: Some(code),
            encode: Encode::Background,
            delay: Duration::from_secs(5),
        }
    }
}

impl Shape {
    /// What a master allows for a call: what it allows by itself, and a second for each 10 MiB of a RAID set's slots, as
    /// they are scaled up. It reckons with them as they are.
    fn call_timeout(&self) -> Duration {
        let slots = u64::from(self.code.map_or(1, |code| code.slots));
        CALL_TIMEOUT + Duration::from_secs(slots * self.metablock_bytes * (self.scale - 1) / (10 << 20))
    }
}

/// A file that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Itself.
    pub inode: InodeId,
    /// Where it is.
    pub directory: InodeId,
    /// Its bytes follow from this number, and so does its name.
    pub number: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// The cluster while it runs.
pub struct Store {
    /// Its world.
    pub world: World,
    /// Its shape.
    pub shape: Shape,
    /// Itself.
    pub cluster: PowerCluster,
    /// The writer.
    pub client: Client,
    /// What was written and is not removed.
    pub files: Vec<Written>,
    written: u64,
}

/// What a reader found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Bytes that came back as they were written.
    pub right_bytes: u64,
    /// Bytes of files that did not.
    pub wrong_bytes: u64,
    /// Reads that were decoded.
    pub degraded_reads: u64,
}

/// Runs `body` on a cluster of its own without data. To be called from [`crate::Lab::map`].
pub fn on<T, F>(seed: u64, shape: Shape, body: impl FnOnce(Store) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    World::run(seed, MACHINES.world(shape.scale), |world| async move { body(Store::start(world, shape).await?).await })
}

impl Store {
    async fn start(world: World, shape: Shape) -> Result<Self> {
        let options = PowerOptions {
            scale: shape.scale,
            call_timeout: Some(shape.call_timeout()),
            ..PowerOptions::new(shape.nodes as usize, PolicyKind::AlwaysOn, MACHINES.interval)
        };
        let cluster = PowerCluster::start_with(&world, options).await?;
        let client = cluster.connect("writer").await?;
        Ok(Self { world, shape, cluster, client, files: Vec::new(), written: 0 })
    }

    /// A dataset of a new directory below the root, which it returns.
    pub async fn make_dataset(&self, name: &str, code: Option<RaidCode>) -> Result<InodeId> {
        let code = code.unwrap_or(Redundancy::Copies.to_raw());
        let metablock = self.shape.metablock_bytes;
        let dataset = pb::Dataset {
            path: format!("/{name}"),
            replicas: COPIES,
            block_size: metablock.min(64 << 10),
            metablock_size: metablock,
            raid_copies: code.copies,
            raid_slots: code.slots,
            raid_rows: code.rows,
            encode: self.shape.encode.to_raw(),
            delay_ms: u64::try_from(self.shape.delay.as_millis()).unwrap_or(u64::MAX),
            replication: "pipeline".to_owned(),
            ..Default::default()
        };
        let create = CreateDataset { dataset: Some(dataset), ..Default::default() };
        let made = self.client.meta(&Credentials::root(), Op::CreateDataset(create)).await?;
        made.dataset.map(|dataset| InodeId::new(dataset.root_inode)).ok_or_else(|| err!(Internal, "no dataset"))
    }

    /// A new directory.
    pub async fn make_dir(&self, parent: InodeId, name: &str) -> Result<InodeId> {
        let new = NewName { parent, name: name.as_bytes(), mode: 0o755, umask: 0 };
        Ok(self.client.make_dir(&Credentials::root(), new).await?.inode)
    }

    /// Writes a new file, and makes it safe.
    pub async fn write(&mut self, directory: InodeId, len: u64) -> Result<Written> {
        let number = self.written;
        self.written += 1;
        let (name, access) = (name_of(number), Access::ReadWrite);
        let new = NewFile::exclusive(directory, name.as_bytes(), access);
        let Created { handle, attr, .. } = self.client.create(&Credentials::root(), new).await?;
        for at in (0..len).step_by(PIECE as usize) {
            self.client.write(handle, at, content(number, at, PIECE.min(len - at))).await?;
        }
        self.client.fsync(handle).await?;
        self.client.close(handle).await;
        let file = Written { inode: attr.inode, directory, number, len };
        self.files.push(file);
        Ok(file)
    }

    /// Removes a file.
    pub async fn remove(&mut self, file: Written) -> Result<()> {
        self.client.unlink(&Credentials::root(), file.directory, name_of(file.number).as_bytes()).await?;
        self.files.retain(|one| one.number != file.number);
        Ok(())
    }

    /// Bytes of all files.
    #[must_use]
    pub fn user_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// The master's account of all datasets together.
    pub async fn totals(&self) -> Result<pb::RaidDataset> {
        let mut sum = pb::RaidDataset::default();
        for one in self.cluster.raid_status().await? {
            sum.encoded_bytes += one.encoded_bytes;
            sum.sealed_bytes += one.sealed_bytes;
            sum.due_bytes += one.due_bytes;
            sum.young_bytes += one.young_bytes;
            sum.short_bytes += one.short_bytes;
            sum.unready_bytes += one.unready_bytes;
            sum.stored_bytes += one.stored_bytes;
            sum.row_bytes += one.row_bytes;
            sum.dead_bytes += one.dead_bytes;
            sum.whole += one.whole;
            sum.lost_some += one.lost_some;
            sum.lost_too_many += one.lost_too_many;
        }
        Ok(sum)
    }

    /// RAID sets as they are recorded.
    pub async fn raid_sets(&self) -> Result<Vec<pb::RaidSet>> {
        Ok(self.cluster.raid_sets().await?.into_iter().filter_map(|one| one.set).collect())
    }

    /// Waits until it is so.
    pub async fn wait_until(&self, event: &str, is_so: impl AsyncFn() -> Result<bool>) -> Result<()> {
        let end = self.world.now() + PATIENCE;
        while !is_so().await? {
            if self.world.now() > end {
                bail!(Timeout, "after {PATIENCE:?} there are still not {event}: {:?}", self.totals().await?);
            }
            self.world.sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until the master's account has been the same for so long, and no copy is to go. What it is then.
    pub async fn wait_until_quiet(&self, span: Duration) -> Result<pb::RaidDataset> {
        let (end, mut last, mut since) = (self.world.now() + PATIENCE, self.totals().await?, self.world.now());
        while self.world.now() - since < span || last.sealed_bytes > 0 {
            if self.world.now() > end {
                bail!(Timeout, "after {PATIENCE:?} RAID sets are still made: {last:?}");
            }
            self.world.sleep(LOOK).await;
            let totals = self.totals().await?;
            if totals != last {
                (last, since) = (totals, self.world.now());
            }
        }
        Ok(last)
    }

    /// Waits until the files are in RAID sets, with no more copies than their code asks for. Those that are not needed have left. A
    /// last metablock may stay in copies, as a RAID set of one is never made.
    pub async fn wait_until_encoded(&self) -> Result<pb::RaidDataset> {
        let (user_bytes, last) = (self.user_bytes(), self.shape.metablock_bytes);
        let is_encoded = async || Ok(self.cluster.thin_bytes().await?.is_some_and(|thin| thin + last >= user_bytes));
        self.wait_until("all in RAID sets", is_encoded).await?;
        self.totals().await
    }

    /// Reads every file with a client that has nothing in memory.
    pub async fn read_all(&self, reader: &str) -> Result<Found> {
        let client = self.cluster.connect(reader).await?;
        let mut found = Found::default();
        for file in &self.files {
            match is_right(&client, *file).await {
                Ok(true) => found.right_bytes += file.len,
                Ok(false) | Err(_) => found.wrong_bytes += file.len,
            }
        }
        found.degraded_reads = client.metrics().degraded_reads;
        client.disconnect().await?;
        Ok(found)
    }

    /// The nodes by their number in the cluster, counted from 0.
    pub async fn nodes(&self) -> Result<Vec<NodeId>> {
        let nodes = self.cluster.describe().await?.nodes;
        let place = |node: &pb::Node| node.host.strip_prefix('h')?.parse::<u32>().ok();
        let by_place: BTreeMap<u32, NodeId> =
            nodes.iter().filter_map(|node| Some((place(node)?, NodeId::new(node.id)))).collect();
        Ok(by_place.into_values().collect())
    }
}

/// Bytes of files that the master has recorded.
#[must_use]
pub const fn committed_bytes(totals: &pb::RaidDataset) -> u64 {
    let copied = totals.due_bytes + totals.young_bytes + totals.short_bytes + totals.unready_bytes;
    totals.encoded_bytes + totals.sealed_bytes + copied
}

/// Whether a file has the bytes that were written.
async fn is_right(client: &Client, file: Written) -> Result<bool> {
    let handle = client.open(&Credentials::root(), file.inode, Access::Read).await?.0;
    let mut right = true;
    for at in (0..file.len).step_by(PIECE as usize) {
        let len = PIECE.min(file.len - at);
        let found = client.read(handle, at, len as u32).await;
        right &= found? == content(file.number, at, len);
    }
    client.close(handle).await;
    Ok(right)
}

/// A part of a file's bytes, which differ by place and number.
fn content(number: u64, at: u64, len: u64) -> Bytes {
    let byte = |at: u64| (at / 11).wrapping_add(at.wrapping_mul(29)).wrapping_add(number.wrapping_mul(41)) as u8;
    (at..at + len).map(byte).collect::<Vec<u8>>().into()
}

fn name_of(number: u64) -> String {
    format!("f{number}")
}
