//! What the workload needs of a file system: the client library's calls, or a stand-in that the oracle is tried on.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, SetAttr};
use ebb_types::{Credentials, InodeId, Result};
use ebb_wire::pb::meta_op::Rename;
use parking_lot::Mutex;

/// A call on its way.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A directory of files, as one client sees it. Files are opened at their first use.
pub trait Files: Send + Sync + 'static {
    /// Writes all of `data`.
    fn write<'a>(&'a self, name: &'a str, offset: u64, data: Bytes) -> Call<'a, ()>;
    /// Writes at the end; tells where that was.
    fn append<'a>(&'a self, name: &'a str, data: Bytes) -> Call<'a, u64>;
    /// Sets the length.
    fn truncate<'a>(&'a self, name: &'a str, len: u64) -> Call<'a, ()>;
    /// Bytes from `offset`, fewer only at the end.
    fn read<'a>(&'a self, name: &'a str, offset: u64, len: u32) -> Call<'a, Bytes>;
    /// Makes what was written durable.
    fn fsync<'a>(&'a self, name: &'a str) -> Call<'a, ()>;
    /// Makes a file; tells its inode.
    fn make<'a>(&'a self, name: &'a str) -> Call<'a, u64>;
    /// Renames a file to a name that is not there.
    fn rename<'a>(&'a self, source: &'a str, target: &'a str) -> Call<'a, ()>;
    /// Names and inodes.
    fn list(&self) -> Call<'_, Vec<(String, u64)>>;
}

/// A directory through the client library.
pub struct ClientFiles {
    client: Client,
    directory: InodeId,
    open: Mutex<BTreeMap<String, (Handle, InodeId)>>,
}

impl ClientFiles {
    /// The files of `directory` through a session.
    #[must_use]
    pub fn new(client: Client, directory: InodeId) -> Self {
        Self { client, directory, open: Mutex::default() }
    }

    async fn open(&self, name: &str) -> Result<(Handle, InodeId)> {
        if let Some(open) = self.open.lock().get(name) {
            return Ok(*open);
        }
        let access = Access::ReadWrite;
        let root = Credentials::root();
        let made = self.client.create(&root, self.directory, name.as_bytes(), 0o644, 0, false, access, Vec::new());
        let (handle, attr, _) = made.await?;
        let opened = (handle, InodeId::new(attr.inode));
        // Two workers may open it at one time; both handles are good, and the first is kept.
        Ok(*self.open.lock().entry(name.to_owned()).or_insert(opened))
    }
}

impl Files for ClientFiles {
    fn write<'a>(&'a self, name: &'a str, offset: u64, data: Bytes) -> Call<'a, ()> {
        Box::pin(async move { self.client.write(self.open(name).await?.0, offset, data).await })
    }

    fn append<'a>(&'a self, name: &'a str, data: Bytes) -> Call<'a, u64> {
        Box::pin(async move { self.client.append(self.open(name).await?.0, data).await })
    }

    fn truncate<'a>(&'a self, name: &'a str, len: u64) -> Call<'a, ()> {
        Box::pin(async move {
            let set = SetAttr { size: Some(len), by_handle: true, ..SetAttr::default() };
            self.client.set_attr(&Credentials::root(), self.open(name).await?.1, set).await.map(drop)
        })
    }

    fn read<'a>(&'a self, name: &'a str, offset: u64, len: u32) -> Call<'a, Bytes> {
        Box::pin(async move { self.client.read(self.open(name).await?.0, offset, len).await })
    }

    fn fsync<'a>(&'a self, name: &'a str) -> Call<'a, ()> {
        Box::pin(async move { self.client.fsync(self.open(name).await?.0).await })
    }

    fn make<'a>(&'a self, name: &'a str) -> Call<'a, u64> {
        Box::pin(async move { Ok(self.open(name).await?.1.raw()) })
    }

    fn rename<'a>(&'a self, source: &'a str, target: &'a str) -> Call<'a, ()> {
        let rename = Rename {
            source_parent: self.directory.raw(),
            source_name: source.as_bytes().to_vec(),
            target_parent: self.directory.raw(),
            target_name: target.as_bytes().to_vec(),
            no_replace: true,
            exchange: false,
        };
        Box::pin(async move { self.client.rename(&Credentials::root(), rename).await })
    }

    fn list(&self) -> Call<'_, Vec<(String, u64)>> {
        Box::pin(async move {
            let mut names = Vec::new();
            let mut cookie = 0;
            loop {
                let (entries, is_end) =
                    self.client.read_dir(&Credentials::root(), self.directory, cookie, 100, false).await?;
                for entry in entries {
                    cookie = entry.cookie;
                    if entry.name != b"." && entry.name != b".." {
                        names.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.inode));
                    }
                }
                if is_end {
                    return Ok(names);
                }
            }
        })
    }
}
