//! The run's directory tree and its datasets: one for the files that all clients share, and perhaps others for files
//! with one user. So a run meets more than one way to place and to send.

use ebb_client::{Client, NewName};
use ebb_types::{Credentials, InodeId, Result};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, ListDatasets, Op};

use crate::files::directory_of;
use crate::invariants::Violation;
use crate::options::VirtualOptions;

/// Bytes of a metablock: few blocks, so that edges are met.
pub const METABLOCK: u64 = 256 << 10;

/// Bytes that the files of a dataset with a quota may have: some own files fit, and then no more.
const QUOTA: u64 = 768 << 10;

/// How files of a dataset are placed and sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatasetKind {
    /// Placed by chance, sent through a pipeline.
    Plain,
    /// First copies take turns over the disks.
    Striped,
    /// The holder sends to every member itself.
    SingleSource,
    /// As plain, with little room.
    Quota,
}

impl DatasetKind {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::Plain, Self::Striped, Self::SingleSource, Self::Quota];

    fn dataset(self, path: &str, options: &VirtualOptions) -> pb::Dataset {
        pb::Dataset {
            path: path.to_owned(),
            layout: if self == Self::Striped { "striped" } else { "random" }.to_owned(),
            replicas: options.replicas,
            block_size: options.block_bytes,
            metablock_size: METABLOCK,
            replication: if self == Self::SingleSource { "single-source" } else { "pipeline" }.to_owned(),
            extra_share_percent: options.extra_share_percent,
            quota_bytes: if self == Self::Quota { QUOTA } else { 0 },
            raid_copies: u32::from(options.raid.is_some()),
            raid_slots: options.raid.map_or(0, |(slots, _)| slots),
            raid_rows: options.raid.map_or(0, |(_, rows)| rows),
            delay_ms: u64::try_from(options.raid_delay.as_millis()).unwrap_or(u64::MAX),
            ..Default::default()
        }
    }
}

/// Makes the run's directory, and one in it for each client. A client's directory is a dataset of its own if the options
/// name one for it.
pub async fn make(client: &Client, options: &VirtualOptions) -> Result<()> {
    let run = make_dir(client, InodeId::ROOT, "run").await?;
    make_dataset(client, options.shared.dataset("/run", options)).await?;
    for number in 0..options.clients {
        let name = directory_of(number);
        make_dir(client, run, &name).await?;
        if let Some(kind) = options.own.get(number).copied().flatten() {
            make_dataset(client, kind.dataset(&format!("/run/{name}"), options)).await?;
        }
    }
    Ok(())
}

async fn make_dir(client: &Client, parent: InodeId, name: &str) -> Result<InodeId> {
    let made =
        client.make_dir(&Credentials::root(), NewName { parent, name: name.as_bytes(), mode: 0o755, umask: 0 }).await?;
    Ok(made.inode)
}

async fn make_dataset(client: &Client, dataset: pb::Dataset) -> Result<()> {
    client
        .meta(&Credentials::root(), Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() }))
        .await
        .map(drop)
}

/// Whether any dataset has more than its quota allows. Source: "write" in `docs/semantics.md`.
pub async fn check_quotas(client: &Client) -> Result<Vec<Violation>> {
    let listed = client.meta(&Credentials::root(), Op::ListDatasets(ListDatasets::default())).await?.datasets;
    let over = listed.iter().filter(|dataset| dataset.quota_bytes != 0 && dataset.used_bytes > dataset.quota_bytes);
    let complain = |dataset: &pb::Dataset| {
        let detail = format!("{} has {} bytes, its quota is {}", dataset.path, dataset.used_bytes, dataset.quota_bytes);
        Violation::new("healthy", detail)
    };
    Ok(over.map(complain).collect())
}
