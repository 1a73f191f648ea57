//! The contents of the disks at rest, beside the map: the files, by looking at the disks themselves, and their
//! contents, by asking each member for its bytes. In a file they lie where the member's own history has put them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::Client;
use ebb_types::{Credentials, Result, Version};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{GetMap, GetRaidSets, Op};

use crate::cluster::{Cluster, Role};
use crate::datasets::METABLOCK;
use crate::faults::kind::is_replica;

/// Metablocks whose RAID sets are asked for at once.
const SETS_AT_ONCE: usize = 100;

/// How long a member may take to answer.
const READ_MAX: Duration = Duration::from_secs(10);

/// A file on the disk of a block server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stored {
    /// The block server's host.
    pub host: String,
    /// Its path there.
    pub path: PathBuf,
}

/// A metablock as recorded, with the replicas that were found.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// Of the file.
    pub inode: u64,
    /// As recorded.
    pub record: pb::Metablock,
    /// Copies that the dataset asks for.
    pub wanted: usize,
    /// Replicas with their contents; empty, where nothing but zeroes was ever written.
    pub replicas: Vec<(Stored, Bytes)>,
}

impl Surveyed {
    /// Whether anything was ever committed to it.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.record.min_version() != Version::ZERO
    }
}

/// A part of a RAID set that no file has: a row, or ballast.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beside {
    /// The RAID set.
    pub raid_set: u64,
    /// The metablock.
    pub metablock: u64,
    /// Hosts of its members, as recorded.
    pub hosts: BTreeSet<String>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Every metablock of every file.
    pub metablocks: Vec<Surveyed>,
    /// Rows and ballast of the RAID sets that these files' metablocks are in.
    pub beside: Vec<Beside>,
    /// Every replica file on every disk that is in use.
    pub stored: Vec<Stored>,
}

impl Survey {
    /// Reads the map of each file, and its replicas on the disks.
    pub async fn collect_replicas(
        cluster: &Cluster,
        client: &Client,
        inodes: impl Iterator<Item = u64>,
    ) -> Result<Self> {
        let status = cluster.status(client, READ_MAX).await?;
        let nodes: BTreeMap<u64, &pb::Node> = status.nodes.iter().map(|node| (node.id, node)).collect();
        let mut survey = Self::default();
        let mut in_raid_sets = Vec::new();
        for inode in inodes {
            let located = cluster.locate(inode).await?;
            let map = Op::GetMap(GetMap { inode, first_index: 0, limit: 10_000 });
            for record in client.meta(&Credentials::root(), map).await?.metablocks {
                let mut replicas = Vec::new();
                for replica in located.iter().filter(|replica| replica.metablock == record.id) {
                    let Some(node) = nodes.get(&replica.node) else { continue };
                    let stored = Stored { host: node.host.clone(), path: replica.file.clone().into() };
                    replicas.push((stored, content(client, node, &record, replica.volume).await?));
                }
                let is_thin = record.is_in_raid_set();
                if is_thin {
                    in_raid_sets.push(record.id);
                }
                // RAID sets of these runs keep one copy.
                let wanted = if is_thin { 1 } else { cluster.options().replicas as usize };
                survey.metablocks.push(Surveyed { inode, record, wanted, replicas });
            }
        }
        survey.beside = beside(client, &nodes, in_raid_sets).await?;
        for member in cluster.members().iter().filter(|member| member.role == Role::Block && member.process.is_alive())
        {
            let files = member.process.disk_files().into_iter().filter(|(path, _)| is_replica(path));
            let host = member.process.host();
            survey.stored.extend(files.map(|(path, _)| Stored { host: host.to_owned(), path }));
        }
        Ok(survey)
    }
}

/// Rows and ballast of the RAID sets that these metablocks are in.
async fn beside(client: &Client, nodes: &BTreeMap<u64, &pb::Node>, metablocks: Vec<u64>) -> Result<Vec<Beside>> {
    let mut beside = Vec::new();
    let mut seen = BTreeSet::new();
    for metablocks in metablocks.chunks(SETS_AT_ONCE) {
        let query = Op::GetRaidSets(GetRaidSets { metablocks: metablocks.to_vec() });
        for set in client.meta(&Credentials::root(), query).await?.raid_sets {
            if !seen.insert(set.id) {
                continue;
            }
            let mut add = |metablock: u64, members: &[pb::Member]| {
                let hosts = members.iter().filter_map(|member| Some(nodes.get(&member.node)?.host.clone())).collect();
                beside.push(Beside { raid_set: set.id, metablock, hosts });
            };
            set.rows.iter().for_each(|row| add(row.metablock, row.member.as_slice()));
            set.slots.iter().filter(|slot| slot.inode == 0).for_each(|slot| add(slot.metablock, &slot.members));
        }
    }
    Ok(beside)
}

/// The bytes of a replica, as its block server reads them.
async fn content(client: &Client, node: &pb::Node, record: &pb::Metablock, volume: u64) -> Result<Bytes> {
    if record.min_version() == Version::ZERO || record.length == 0 {
        return Ok(Bytes::new());
    }
    let read = pb::ReadReplica {
        metablock: record.id,
        volume,
        min_version: record.version,
        length: METABLOCK,
        ..Default::default()
    };
    let channel = client.connector().channel(&node.address);
    let bytes = channel.call_sized(&read, Vec::new(), METABLOCK as usize, READ_MAX).await?.payload;
    Ok(bytes)
}
