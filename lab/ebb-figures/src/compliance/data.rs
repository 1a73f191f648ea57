//! The files of a measurement.

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile, NewName};
use ebb_types::{Credentials, ErrorKind, InodeId, Result};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, Op};

use crate::testbed::Layout;

/// Name of the directory that is read and written.
const DIRECTORY: &str = "lab-compliance";

/// The data of a measurement.
pub struct Data {
    /// Every file, open for reading and writing. The last one is written, the others are read.
    pub handles: Vec<Handle>,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of each file.
    pub blocks_per_file: u64,
}

impl Data {
    const FILES: usize = 25;
    const BLOCK: u64 = 256 << 10;
    const BLOCKS_PER_FILE: u64 = 4;

    /// Writes a dataset of its own with three copies.
    pub async fn make(client: &Client, layout: Layout) -> Result<Self> {
        let root = Credentials::root();
        let made = client
            .make_dir(&root, NewName { parent: InodeId::ROOT, name: DIRECTORY.as_bytes(), mode: 0o755, umask: 0 })
            .await?;
        let dataset = pb::Dataset {
            path: format!("/{DIRECTORY}"),
            layout: layout.name.to_owned(),
            replicas: layout.replicas,
            primaries: layout.primaries,
            gear_size: layout.gear_size,
            block_size: Self::BLOCK,
            metablock_size: Self::BLOCK,
            replication: "pipeline".to_owned(),
            ..Default::default()
        };
        client.meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset) })).await?;
        let mut data = Self { handles: Vec::new(), block_bytes: Self::BLOCK, blocks_per_file: Self::BLOCKS_PER_FILE };
        for file in 0..Self::FILES {
            let name = name_of(file);
            let created = client.create(&root, NewFile::exclusive(made.inode, name.as_bytes(), Access::ReadWrite));
            let handle = created.await?.handle;
            for block in 0..Self::BLOCKS_PER_FILE {
                client.write(handle, block * Self::BLOCK, data.block(file as u8)).await?;
            }
            client.fsync(handle).await?;
            data.handles.push(handle);
        }
        Ok(data)
    }

    /// Removes what [`Data::make`] made, all of it or what there is of it. Open handles are the caller's.
    pub async fn remove(client: &Client) -> Result<()> {
        let root = Credentials::root();
        let Some(found) = unless_gone(client.resolve(&root, format!("/{DIRECTORY}").as_bytes()).await)? else {
            return Ok(());
        };
        for file in 0..Self::FILES {
            unless_gone(client.unlink(&root, found.inode, name_of(file).as_bytes()).await)?;
        }
        unless_gone(client.remove_dir(&root, InodeId::ROOT, DIRECTORY.as_bytes()).await).map(drop)
    }

    pub(super) fn block(&self, byte: u8) -> Bytes {
        Bytes::from(vec![byte; usize::try_from(self.block_bytes).unwrap_or_default()])
    }
}

fn name_of(file: usize) -> String {
    format!("f{file}")
}

fn unless_gone<T>(done: Result<T>) -> Result<Option<T>> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}
