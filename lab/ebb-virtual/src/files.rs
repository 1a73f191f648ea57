//! The file system as the workload needs it: the client library's calls, or a stand-in on which the oracle is tried.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use ebb_client::{
    Access, Allocate, Client, Created, EntryDetail, Handle, IfLocked, Lock, NewFile, Rename, RenameMode, SetAttr,
};
use ebb_types::{Credentials, ErrorKind, InodeId, Result, SessionId, err};
use parking_lot::Mutex;

/// A call on its way.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The directory of a client's own files.
#[must_use]
pub fn directory_of(client: usize) -> String {
    format!("d{client}")
}

/// The directory of names that all clients use, in the run's own.
pub const NAMES: &str = "names";

/// A directory of files and of directories of files, as one client sees it. Files are opened at their first use.
pub trait Files: Send + Sync + 'static {
    /// Writes all of `data`.
    fn write<'a>(&'a self, name: &'a str, offset: u64, data: Bytes) -> Call<'a, ()>;
    /// Writes at the end; returns the offset.
    fn append<'a>(&'a self, name: &'a str, data: Bytes) -> Call<'a, u64>;
    /// Sets the length.
    fn truncate<'a>(&'a self, name: &'a str, len: u64) -> Call<'a, ()>;
    /// Bytes from `offset`, fewer only at the end.
    fn read<'a>(&'a self, name: &'a str, offset: u64, len: u32) -> Call<'a, Bytes>;
    /// Makes earlier writes durable.
    fn fsync<'a>(&'a self, name: &'a str) -> Call<'a, ()>;
    /// Has earlier writes received by every member. It may close the file then.
    fn push<'a>(&'a self, name: &'a str) -> Call<'a, ()>;
    /// Makes a file; returns its inode.
    fn make<'a>(&'a self, name: &'a str) -> Call<'a, u64>;
    /// Renames a file to a name that is not there.
    fn rename<'a>(&'a self, source: &'a str, target: &'a str) -> Call<'a, ()>;
    /// Renames a file over another one, which stays open, and goes on under the name `kept` until it is closed.
    fn replace<'a>(&'a self, source: &'a str, target: &'a str, kept: &'a str) -> Call<'a, ()>;
    /// Closes a file that has no name any more.
    fn close<'a>(&'a self, kept: &'a str) -> Call<'a, ()>;
    /// Gives a file a second name.
    fn link<'a>(&'a self, source: &'a str, target: &'a str) -> Call<'a, ()>;
    /// fallocate(2), durable when it returns.
    fn allocate<'a>(&'a self, name: &'a str, mode: Allocate, offset: u64, len: u64) -> Call<'a, ()>;
    /// Takes or gives back a lock.
    fn lock<'a>(&'a self, name: &'a str, lock: Lock, if_locked: IfLocked) -> Call<'a, ()>;
    /// The session that holds the locks, if it certainly lives.
    fn session(&self) -> Sitting;
    /// Removes a name.
    fn unlink<'a>(&'a self, name: &'a str) -> Call<'a, ()>;
    /// Names and inodes.
    fn list(&self) -> Call<'_, Vec<(String, u64)>>;
}

/// A session as its client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sitting {
    /// Its id: another one has none of the first one's locks.
    pub id: SessionId,
    /// Whether it certainly lives now: its leases and locks may be believed.
    pub is_trusted: bool,
}

/// A directory through the client library.
pub struct ClientFiles {
    client: Client,
    /// By name; the run's own has none.
    directories: BTreeMap<String, InodeId>,
    open: Mutex<BTreeMap<String, (Handle, InodeId)>>,
    /// A push closes its file, as jobs do that have written one.
    pushes_close: bool,
    /// Handles that pushes have closed.
    closed: Mutex<BTreeSet<Handle>>,
}

impl ClientFiles {
    /// The run's files through a session: those of its directory and of its clients' directories.
    pub async fn open_all(client: Client, clients: usize, pushes_close: bool) -> Result<Self> {
        let mut directories = BTreeMap::new();
        let root = client.resolve(&Credentials::root(), b"/run").await?;
        directories.insert(String::new(), root.inode);
        for number in 0..clients {
            let name = directory_of(number);
            let found = client.resolve(&Credentials::root(), format!("/run/{name}").as_bytes()).await?;
            directories.insert(name, found.inode);
        }
        // Not there in most runs: clients that use names make it.
        let names = format!("/run/{NAMES}");
        if let Ok(found) = client.resolve(&Credentials::root(), names.as_bytes()).await {
            directories.insert(NAMES.to_owned(), found.inode);
        }
        Ok(Self { client, directories, open: Mutex::default(), pushes_close, closed: Mutex::default() })
    }

    /// The session.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Writes back, gives leases back and ends the session.
    pub async fn disconnect(&self) -> Result<()> {
        self.client.disconnect().await
    }

    fn rename_to<'a>(&self, source: &'a str, target: &'a str, mode: RenameMode) -> Result<Rename<'a>> {
        let (source_parent, source_name) = self.place(source)?;
        let (target_parent, target_name) = self.place(target)?;
        Ok(Rename {
            source_parent,
            source_name: source_name.as_bytes(),
            target_parent,
            target_name: target_name.as_bytes(),
            mode,
        })
    }

    /// The directory of a name, and the name in it.
    fn place<'a>(&self, name: &'a str) -> Result<(InodeId, &'a str)> {
        let (directory, name) = name.split_once('/').unwrap_or(("", name));
        let inode = self.directories.get(directory).ok_or_else(|| err!(NotFound, "there is no {directory}"))?;
        Ok((*inode, name))
    }

    /// Carries an operation out on a file's handle, and again on another one if the file was closed before it began.
    async fn with<'a, T>(&'a self, name: &str, operation: impl Fn(Handle) -> Call<'a, T>) -> Result<T> {
        loop {
            let (handle, _) = self.open(name).await?;
            match operation(handle).await {
                Err(error) if error.kind() == ErrorKind::Stale && self.closed.lock().contains(&handle) => {}
                done => return done,
            }
        }
    }

    async fn push_and_close(&self, name: &str) -> Result<()> {
        let (handle, _) = self.open(name).await?;
        {
            let mut open = self.open.lock();
            if open.get(name).is_none_or(|opened| opened.0 != handle) {
                // Another worker closes it.
                return Err(err!(Stale, "{name} is closed"));
            }
            open.remove(name);
        }
        self.closed.lock().insert(handle);
        self.client.push_and_close(handle).await
    }

    async fn open(&self, name: &str) -> Result<(Handle, InodeId)> {
        if let Some(open) = self.open.lock().get(name) {
            return Ok(*open);
        }
        let access = Access::ReadWrite;
        let root = Credentials::root();
        let (directory, name_there) = self.place(name)?;
        let made = self.client.create(&root, NewFile::or_existing(directory, name_there.as_bytes(), access));
        let Created { handle, attr, .. } = made.await?;
        let opened = (handle, attr.inode);
        // Two workers may open it at one time; both handles are good, and the first is kept.
        Ok(*self.open.lock().entry(name.to_owned()).or_insert(opened))
    }
}

impl Files for ClientFiles {
    fn write<'a>(&'a self, name: &'a str, offset: u64, data: Bytes) -> Call<'a, ()> {
        Box::pin(
            async move { self.with(name, |handle| Box::pin(self.client.write(handle, offset, data.clone()))).await },
        )
    }

    fn append<'a>(&'a self, name: &'a str, data: Bytes) -> Call<'a, u64> {
        Box::pin(async move { self.with(name, |handle| Box::pin(self.client.append(handle, data.clone()))).await })
    }

    fn truncate<'a>(&'a self, name: &'a str, len: u64) -> Call<'a, ()> {
        Box::pin(async move {
            let set = SetAttr { size: Some(len), by_handle: true, ..SetAttr::default() };
            self.client.set_attr(&Credentials::root(), self.open(name).await?.1, set).await.map(drop)
        })
    }

    fn read<'a>(&'a self, name: &'a str, offset: u64, len: u32) -> Call<'a, Bytes> {
        Box::pin(async move { self.with(name, |handle| Box::pin(self.client.read(handle, offset, len))).await })
    }

    fn fsync<'a>(&'a self, name: &'a str) -> Call<'a, ()> {
        Box::pin(async move { self.with(name, |handle| Box::pin(self.client.fsync(handle))).await })
    }

    fn push<'a>(&'a self, name: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            match self.pushes_close {
                true => self.push_and_close(name).await,
                false => self.client.push(self.open(name).await?.0).await,
            }
        })
    }

    fn make<'a>(&'a self, name: &'a str) -> Call<'a, u64> {
        Box::pin(async move { Ok(self.open(name).await?.1.raw()) })
    }

    fn rename<'a>(&'a self, source: &'a str, target: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            let rename = self.rename_to(source, target, RenameMode::NoReplace)?;
            self.client.rename(&Credentials::root(), rename).await?;
            let mut open = self.open.lock();
            if let Some(opened) = open.remove(source) {
                open.insert(target.to_owned(), opened);
            }
            Ok(())
        })
    }

    fn replace<'a>(&'a self, source: &'a str, target: &'a str, kept: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            // Held open, so that it outlives its name.
            self.open(target).await?;
            let rename = self.rename_to(source, target, RenameMode::Replace)?;
            if let Err(error) = self.client.rename(&Credentials::root(), rename).await {
                // It may have been carried out, and then a file without a name would stay open for ever.
                self.close(target).await?;
                return Err(error);
            }
            let mut open = self.open.lock();
            if let Some(opened) = open.remove(target) {
                open.insert(kept.to_owned(), opened);
            }
            if let Some(opened) = open.remove(source) {
                open.insert(target.to_owned(), opened);
            }
            Ok(())
        })
    }

    fn close<'a>(&'a self, kept: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            let opened = self.open.lock().remove(kept);
            if let Some((handle, _)) = opened {
                self.client.close(handle).await;
            }
            Ok(())
        })
    }

    fn link<'a>(&'a self, source: &'a str, target: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            let (_, inode) = self.open(source).await?;
            let (parent, name) = self.place(target)?;
            self.client.link(&Credentials::root(), inode, parent, name.as_bytes()).await.map(drop)
        })
    }

    fn allocate<'a>(&'a self, name: &'a str, mode: Allocate, offset: u64, len: u64) -> Call<'a, ()> {
        Box::pin(
            async move { self.with(name, |handle| Box::pin(self.client.allocate(handle, mode, offset, len))).await },
        )
    }

    fn lock<'a>(&'a self, name: &'a str, lock: Lock, if_locked: IfLocked) -> Call<'a, ()> {
        Box::pin(async move { self.client.set_lock(self.open(name).await?.1, lock, if_locked).await })
    }

    fn session(&self) -> Sitting {
        Sitting { id: self.client.session(), is_trusted: self.client.is_trusted() }
    }

    fn unlink<'a>(&'a self, name: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            let opened = self.open.lock().remove(name);
            if let Some((handle, _)) = opened {
                self.client.close(handle).await;
            }
            let (directory, name) = self.place(name)?;
            self.client.unlink(&Credentials::root(), directory, name.as_bytes()).await
        })
    }

    fn list(&self) -> Call<'_, Vec<(String, u64)>> {
        Box::pin(async move {
            let mut names = Vec::new();
            for (directory, inode) in &self.directories {
                let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
                let mut after = None;
                loop {
                    let page =
                        self.client.read_dir(&Credentials::root(), *inode, after, 100, EntryDetail::Names).await?;
                    for entry in page.entries {
                        after = Some(entry.cookie);
                        let name = String::from_utf8_lossy(&entry.name).into_owned();
                        if name != "." && name != ".." && !self.directories.contains_key(&name) {
                            names.push((format!("{prefix}{name}"), entry.inode.raw()));
                        }
                    }
                    if page.is_last {
                        break;
                    }
                }
            }
            Ok(names)
        })
    }
}
