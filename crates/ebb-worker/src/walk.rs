//! The files below a directory, with their maps, a few directories side by side.

use std::collections::BTreeMap;
use std::future::Future;

use ebb_client::{Access, Client};
use ebb_power::work::Turn;
use ebb_runtime::{Owned, Runtime};
use ebb_types::{Attr, Credentials, ErrorKind, FileKind, HostName, InodeId, Result, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{GetMap, Op, ReadDir};
use tokio::sync::mpsc;

use crate::meter::Carried;
use crate::plan::{FoundFile, map_may_go_on};

/// Directory pages read side by side.
const PAGES_MAX: usize = 4;
/// Entries, or metablocks, asked for at once.
const PAGE_LEN: u32 = 1024;
/// Pages found and not yet taken.
const QUEUE_LEN: usize = 4;

/// The namespace, as a walk needs it.
pub trait Tree: Clone + Send + Sync + 'static {
    /// The attributes of the file at a path.
    fn resolve(&self, path: &[u8]) -> impl Future<Output = Result<Attr>> + Send;
    /// Attributes of a file when everything that was written to it is committed, so that its map is complete.
    fn wait_until_committed(&self, inode: InodeId) -> impl Future<Output = Result<Attr>> + Send;
    /// Entries after `cookie`, with attributes and maps; true: these are the last.
    fn read_dir(&self, inode: InodeId, cookie: u64) -> impl Future<Output = Result<(Vec<pb::DirEntry>, bool)>> + Send;
    /// Metablocks from `first_index` on; true: these are the last.
    fn map(&self, inode: InodeId, first_index: u64) -> impl Future<Output = Result<(Vec<pb::Metablock>, bool)>> + Send;
    /// The nodes as last heard.
    fn nodes(&self) -> Vec<pb::Node>;
    /// What its connections have carried.
    fn carried(&self) -> Carried;
    /// What a host does for work, by the power plans.
    fn turn(&self, host: &HostName) -> Turn;
}

/// The namespace by a client, for one user.
#[derive(Clone)]
pub struct ClientTree {
    /// The client.
    pub client: Client,
    /// The user on whose behalf the walk is: directories that this user may not read fail the walk.
    pub credentials: Credentials,
}

impl Tree for ClientTree {
    async fn resolve(&self, path: &[u8]) -> Result<Attr> {
        self.client.resolve(&self.credentials, path).await
    }

    async fn wait_until_committed(&self, inode: InodeId) -> Result<Attr> {
        // A read lease is granted when a writer has flushed, synced and committed; recoveries are waited for.
        let (handle, attr) = self.client.open(&self.credentials, inode, Access::Read).await?;
        self.client.close(handle).await;
        Ok(attr)
    }

    async fn read_dir(&self, inode: InodeId, cookie: u64) -> Result<(Vec<pb::DirEntry>, bool)> {
        let op = ReadDir { inode: inode.raw(), cookie, limit: PAGE_LEN, plus: true, map: true, ..ReadDir::default() };
        let reply = self.client.meta(&self.credentials, Op::ReadDir(op)).await?;
        Ok((reply.entries, reply.end))
    }

    async fn map(&self, inode: InodeId, first_index: u64) -> Result<(Vec<pb::Metablock>, bool)> {
        let op = GetMap { inode: inode.raw(), first_index, limit: PAGE_LEN };
        let reply = self.client.meta(&self.credentials, Op::GetMap(op)).await?;
        Ok((reply.metablocks, reply.end))
    }

    fn nodes(&self) -> Vec<pb::Node> {
        self.client.nodes()
    }

    fn carried(&self) -> Carried {
        self.client.counters().read().into()
    }

    fn turn(&self, host: &HostName) -> Turn {
        self.client.turn_of(host)
    }
}

/// A walk under way: files as they are found, in pages; it ends after the first error. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Walk {
    found: mpsc::Receiver<Result<Vec<FoundFile>>>,
    _walker: Owned<()>,
}

impl Walk {
    /// Starts at `path`, a directory or a file.
    pub fn start(runtime: &Runtime, tree: &impl Tree, path: &[u8]) -> Self {
        let (found, receiver) = mpsc::channel(QUEUE_LEN);
        let walker = Walker { runtime: runtime.clone(), tree: tree.clone(), directories: Vec::new(), found };
        let path = path.to_vec();
        let task = runtime.spawn("walk", async move { walker.run(&path).await });
        Self { found: receiver, _walker: Owned::new(task) }
    }

    /// The next files; `None` when all were found.
    ///
    /// Cancel-safety: nothing is lost.
    pub async fn next(&mut self) -> Option<Result<Vec<FoundFile>>> {
        self.found.recv().await
    }
}

struct Walker<T> {
    runtime: Runtime,
    tree: T,
    /// Directories, or the rest of them behind a cookie, that are still to be read.
    directories: Vec<(InodeId, u64)>,
    found: mpsc::Sender<Result<Vec<FoundFile>>>,
}

/// The content of a part of a directory.
#[derive(Default)]
struct Page {
    files: Vec<FoundFile>,
    directories: Vec<(InodeId, u64)>,
}

impl<T: Tree> Walker<T> {
    async fn run(mut self, path: &[u8]) {
        if let Err(error) = self.walk(path).await {
            // If the walk was dropped, its error does not matter.
            let _ = self.found.send(Err(error)).await;
        }
    }

    async fn walk(&mut self, path: &[u8]) -> Result<()> {
        let attr = self.tree.resolve(path).await?;
        match attr.kind {
            FileKind::Directory => self.directories.push((attr.inode, 0)),
            FileKind::File => {
                let attr = self.tree.wait_until_committed(attr.inode).await?;
                let file = complete(&self.tree, attr, Vec::new()).await?;
                let _ = self.found.send(Ok(vec![file])).await;
            }
            _ => bail!(Invalid, "{} is neither a directory nor a file", String::from_utf8_lossy(path)),
        }
        let (done, mut pages) = mpsc::channel(PAGES_MAX);
        // By number; stopped with the walk.
        let mut reading: BTreeMap<u64, Owned<()>> = BTreeMap::new();
        let mut numbers = 0_u64..;
        loop {
            while reading.len() < PAGES_MAX
                && let Some((inode, cookie)) = self.directories.pop()
            {
                let (tree, done) = (self.tree.clone(), done.clone());
                let number = numbers.next().expect("no walk reads 2^64 pages");
                let task = self.runtime.spawn("read-directory", async move {
                    let _ = done.send((number, read_page(&tree, inode, cookie).await)).await;
                });
                reading.insert(number, Owned::new(task));
            }
            if reading.is_empty() {
                break;
            }
            let Some((number, page)) = pages.recv().await else { break };
            reading.remove(&number);
            let Page { files, directories } = page?;
            self.directories.extend(directories);
            if !files.is_empty() && self.found.send(Ok(files)).await.is_err() {
                break;
            }
        }
        Ok(())
    }
}

async fn read_page(tree: &impl Tree, inode: InodeId, cookie: u64) -> Result<Page> {
    let (entries, is_last) = match tree.read_dir(inode, cookie).await {
        // Removed since it was found.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => return Ok(Page::default()),
        read => read?,
    };
    let mut page = Page::default();
    if let (false, Some(last)) = (is_last, entries.last()) {
        page.directories.push((inode, last.cookie));
    }
    for entry in entries {
        match (FileKind::from_raw(entry.kind), entry.attr) {
            (Some(FileKind::Directory), _) => page.directories.push((InodeId::new(entry.inode), 0)),
            (Some(FileKind::File), Some(attr)) => {
                let attr = Attr::try_from(attr)?;
                let is_settled = !entry.unsettled && !attr.size_unknown;
                match find(tree, attr, is_settled, entry.metablocks).await {
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => {}
                    file => page.files.push(file?),
                }
            }
            (Some(FileKind::File), None) => bail!(Protocol, "the master left out the attributes of i{}", entry.inode),
            // Links are not followed; the rest has no bytes.
            _ => {}
        }
    }
    Ok(page)
}

/// A listed file with its whole map. One that is being written is settled first: its map was behind.
async fn find(tree: &impl Tree, attr: Attr, is_settled: bool, metablocks: Vec<pb::Metablock>) -> Result<FoundFile> {
    if is_settled {
        return complete(tree, attr, metablocks).await;
    }
    let attr = tree.wait_until_committed(attr.inode).await?;
    complete(tree, attr, Vec::new()).await
}

/// A file with its whole map, of which `metablocks` are the beginning.
async fn complete(tree: &impl Tree, attr: Attr, metablocks: Vec<pb::Metablock>) -> Result<FoundFile> {
    let inode = attr.inode;
    let mut file = FoundFile {
        inode: inode.raw(),
        size: attr.size,
        block_size: attr.storage.geometry.block_size,
        metablock_size: attr.storage.geometry.metablock_size,
        dataset: attr.storage.dataset.raw(),
        metablocks,
    };
    if map_may_go_on(&file) {
        file.metablocks.clear();
        loop {
            let next = file.metablocks.last().map_or(0, |last| last.index + 1);
            let (more, is_last) = tree.map(inode, next).await?;
            let is_stuck = more.first().is_some_and(|first| first.index < next);
            file.metablocks.extend(more.iter().cloned());
            if is_last || more.is_empty() || is_stuck {
                break;
            }
        }
    }
    Ok(file)
}
