//! Files of a measurement, on real clusters and on virtual ones alike.

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile, NewName};
use ebb_types::{Credentials, ErrorKind, InodeId, Result};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, Op};

use crate::testbed::Layout;

const BLOCK: u64 = 256 << 10;
const BLOCKS_PER_FILE: u64 = 4;

/// What a measurement keeps on a cluster: a dataset of its own in the root directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TestFiles {
    /// Name of the directory.
    pub directory: &'static str,
    /// Number of files.
    pub count: usize,
}

/// The files, open.
pub struct Data {
    /// Every file, open for reading and writing.
    pub handles: Vec<Handle>,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of each file.
    pub blocks_per_file: u64,
}

impl TestFiles {
    /// Writes them, in the layout.
    pub async fn make(self, client: &Client, layout: Layout) -> Result<Data> {
        let root = Credentials::root();
        let made = client
            .make_dir(&root, NewName { parent: InodeId::ROOT, name: self.directory.as_bytes(), mode: 0o755, umask: 0 })
            .await?;
        let dataset = pb::Dataset {
            path: self.path(),
            layout: layout.name.to_owned(),
            replicas: layout.replicas,
            primaries: layout.primaries,
            gear_size: layout.gear_size,
            block_size: BLOCK,
            metablock_size: BLOCK,
            replication: "pipeline".to_owned(),
            ..Default::default()
        };
        client.meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() })).await?;
        let mut data = Data { handles: Vec::new(), block_bytes: BLOCK, blocks_per_file: BLOCKS_PER_FILE };
        for file in 0..self.count {
            let name = name_of(file);
            let created = client.create(&root, NewFile::exclusive(made.inode, name.as_bytes(), Access::ReadWrite));
            let handle = created.await?.handle;
            for block in 0..BLOCKS_PER_FILE {
                client.write(handle, block * BLOCK, data.block(file as u8)).await?;
            }
            client.fsync(handle).await?;
            data.handles.push(handle);
        }
        Ok(data)
    }

    /// Removes what [`TestFiles::make`] made, all of it or what there is of it. Open handles are the caller's.
    pub async fn remove(self, client: &Client) -> Result<()> {
        let root = Credentials::root();
        let Some(found) = unless_gone(client.resolve(&root, self.path().as_bytes()).await)? else {
            return Ok(());
        };
        for file in 0..self.count {
            unless_gone(client.unlink(&root, found.inode, name_of(file).as_bytes()).await)?;
        }
        unless_gone(client.remove_dir(&root, InodeId::ROOT, self.directory.as_bytes()).await).map(drop)
    }

    fn path(self) -> String {
        format!("/{}", self.directory)
    }
}

impl Data {
    /// Closes every file.
    pub async fn close(&self, client: &Client) {
        for handle in &self.handles {
            client.close(*handle).await;
        }
    }

    pub(crate) fn block(&self, byte: u8) -> Bytes {
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
