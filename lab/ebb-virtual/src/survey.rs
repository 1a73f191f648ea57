//! The contents of the disks at rest, beside the map: the files, by looking at the disks themselves, and their
//! contents, by asking each member for its bytes. In a file they lie where the member's own history has put them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::Client;
use ebb_types::{Credentials, Result, Version};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{GetMap, Op};

use crate::cluster::{Cluster, Role};
use crate::datasets::METABLOCK;
use crate::faults::kind::is_replica;

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

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Every metablock of every file.
    pub metablocks: Vec<Surveyed>,
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
        for inode in inodes {
            let located = cluster.locate(client, inode).await?;
            let map = Op::GetMap(GetMap { inode, first_index: 0, limit: 10_000 });
            for record in client.meta(&Credentials::root(), map).await?.metablocks {
                let mut replicas = Vec::new();
                for replica in located.iter().filter(|replica| replica.metablock == record.id) {
                    let Some(node) = nodes.get(&replica.node) else { continue };
                    let stored = Stored { host: node.host.clone(), path: replica.file.clone().into() };
                    replicas.push((stored, content(client, node, &record, replica.volume).await?));
                }
                let wanted = cluster.options().replicas as usize;
                survey.metablocks.push(Surveyed { inode, record, wanted, replicas });
            }
        }
        for member in cluster.members().iter().filter(|member| member.role == Role::Block && member.process.is_alive())
        {
            let files = member.process.disk_files().into_iter().filter(|(path, _)| is_replica(path));
            let host = member.process.host();
            survey.stored.extend(files.map(|(path, _)| Stored { host: host.to_owned(), path }));
        }
        Ok(survey)
    }
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
