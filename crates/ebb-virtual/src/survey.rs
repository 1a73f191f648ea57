//! What is on the disks at rest, beside what the map says: gathered by looking at the disks themselves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_client::Client;
use ebb_types::{Credentials, Result, Version};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{GetMap, Op};

use crate::cluster::{Cluster, Role};
use crate::faults::kind::is_replica;

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
    /// Where replicas are, with what is in them; nothing, where nothing but zeroes was ever written.
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
    /// Looks at everything.
    pub async fn take(cluster: &Cluster, client: &Client, inodes: impl Iterator<Item = u64>) -> Result<Self> {
        let status = cluster.status(client, std::time::Duration::from_secs(10)).await?;
        let hosts: BTreeMap<u64, &str> = status.nodes.iter().map(|node| (node.id, node.host.as_str())).collect();
        let mut survey = Self::default();
        for inode in inodes {
            let located = cluster.locate(client, inode).await?;
            let map = Op::GetMap(GetMap { inode, first_index: 0, limit: 10_000 });
            for record in client.meta(&Credentials::root(), map).await?.metablocks {
                let mine = located.iter().filter(|replica| replica.metablock == record.id);
                let stored = mine.map(|replica| Stored {
                    host: hosts.get(&replica.node).copied().unwrap_or_default().to_owned(),
                    path: replica.file.clone().into(),
                });
                let replicas = stored.map(|stored| (stored.clone(), content(cluster, &stored))).collect();
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

fn content(cluster: &Cluster, stored: &Stored) -> Bytes {
    let holder = cluster.members().iter().find(|member| member.process.host() == stored.host);
    let path: &Path = &stored.path;
    holder.and_then(|member| member.process.disk_content(path)).unwrap_or_default()
}
