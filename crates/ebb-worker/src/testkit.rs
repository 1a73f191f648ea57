//! Files and directories in memory, and readers of them that remember the requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebb_client::Handle;
use ebb_power::work::Turn;
use ebb_power::{Timetable, wall_ms};
use ebb_runtime::Runtime;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Attr, Error, ErrorKind, FileKind, Geometry, HostName, InodeId, NodeId, Result, Storage, err};
use ebb_wire::pb;
use parking_lot::Mutex;

use crate::count::SplitCount;
use crate::meter::Carried;
use crate::source::Source;
use crate::walk::Tree;

pub const BLOCK: u64 = 64 << 10;
pub const METABLOCK: u64 = 256 << 10;

/// Runs a test in a virtual world.
pub fn virt<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(Runtime) -> F) {
    World::run(seed, WorldOptions::default(), |world| {
        let process = world.process("h0");
        async move { test(process.runtime()).await }
    });
}

/// Runs a test on Linux.
pub fn real<F: Future<Output = ()>>(test: impl FnOnce(Runtime) -> F) {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async { test(Runtime::real()).await });
}

/// One file: its bytes, and the nodes of each metablock.
#[derive(Clone, Debug)]
pub struct FakeFile {
    pub data: Bytes,
    pub nodes: Vec<Vec<u64>>,
}

#[derive(Clone, Debug)]
enum Entry {
    File(FakeFile),
    Directory(Vec<(String, u64)>),
}

/// A namespace in memory. Directories are served in pages of three.
#[derive(Debug, Default)]
pub struct Namespace {
    entries: BTreeMap<u64, Entry>,
    pub nodes: Vec<pb::Node>,
    pub calls: AtomicUsize,
    /// Hosts that are switched off.
    pub off: Mutex<BTreeSet<HostName>>,
    /// The power plans of the nodes, by this clock.
    pub plans: Option<(Runtime, Timetable)>,
}

impl Namespace {
    /// An empty root directory, and a node on each of the hosts.
    pub fn new(hosts: &[&str]) -> Self {
        let nodes = (1..).zip(hosts).map(|(id, host)| pb::Node { id, host: (*host).to_owned(), ..Default::default() });
        let entries = BTreeMap::from([(1, Entry::Directory(Vec::new()))]);
        let (calls, off) = (AtomicUsize::new(0), Mutex::default());
        Self { entries, nodes: nodes.collect(), calls, off, plans: None }
    }

    fn add(&mut self, parent: u64, entry: Entry) -> u64 {
        let inode = self.entries.len() as u64 + 1;
        self.entries.insert(inode, entry);
        match self.entries.get_mut(&parent) {
            Some(Entry::Directory(names)) => names.push((format!("name-{inode}"), inode)),
            other => panic!("no directory {parent}: {other:?}"),
        }
        inode
    }

    pub fn add_dir(&mut self, parent: u64) -> u64 {
        self.add(parent, Entry::Directory(Vec::new()))
    }

    /// A file whose metablocks lie on these nodes, one after the other.
    pub fn add_file(&mut self, parent: u64, data: impl Into<Bytes>, nodes: &[&[u64]]) -> u64 {
        let data = data.into();
        let count = (data.len() as u64).div_ceil(METABLOCK) as usize;
        let nodes = (0..count).map(|index| nodes[index % nodes.len()].to_vec()).collect();
        self.add(parent, Entry::File(FakeFile { data, nodes }))
    }

    pub fn file(&self, inode: u64) -> Result<&FakeFile> {
        match self.entries.get(&inode) {
            Some(Entry::File(file)) => Ok(file),
            _ => Err(err!(NotFound, "no file i{inode}")),
        }
    }

    /// What a node does for work, now.
    pub fn turn(&self, node: u64) -> Turn {
        let plans = self.plans.as_ref();
        plans.map_or(Turn::Always, |(clock, plans)| plans.turn(NodeId::new(node), wall_ms(clock.wall())))
    }

    fn attr_of(&self, inode: u64) -> Result<Attr> {
        let (kind, size) = match self.entries.get(&inode) {
            Some(Entry::File(file)) => (FileKind::File, file.data.len() as u64),
            Some(Entry::Directory(_)) => (FileKind::Directory, 0),
            None => return Err(err!(NotFound, "no inode i{inode}")),
        };
        let geometry = Geometry { block_size: BLOCK, metablock_size: METABLOCK };
        let storage = Storage { geometry, ..Storage::default() };
        Ok(Attr { size, storage, ..Attr::empty(InodeId::new(inode), kind) })
    }

    pub fn metablocks(&self, inode: u64) -> Vec<pb::Metablock> {
        let Ok(file) = self.file(inode) else { return Vec::new() };
        let member = |node: &u64| pb::Member { node: *node, volume: *node, incarnation: 1, home: 0 };
        (0..)
            .zip(&file.nodes)
            .map(|(index, nodes)| pb::Metablock {
                id: inode * 100 + index,
                index,
                version: Some(pb::Version { epoch: 1, seq: 1 }),
                length: METABLOCK,
                generation: 1,
                members: nodes.iter().map(member).collect(),
                ..Default::default()
            })
            .collect()
    }

    /// Words of all files, by the counting core in one go.
    pub fn words(&self) -> u64 {
        let files = self.entries.values().filter_map(|entry| match entry {
            Entry::File(file) => Some(words(&file.data)),
            Entry::Directory(_) => None,
        });
        files.sum()
    }

    /// A split of the whole of a file's metablock `index`.
    pub fn split(&self, inode: u64, index: u64) -> pb::Split {
        let size = self.file(inode).unwrap().data.len() as u64;
        let offset = index * METABLOCK;
        pb::Split {
            inode,
            offset,
            length: METABLOCK.min(size - offset),
            file_size: size,
            metablock_size: METABLOCK,
            block_size: BLOCK,
            metablocks: self.metablocks(inode),
            dataset: None,
        }
    }
}

pub fn words(data: &[u8]) -> u64 {
    let mut count = SplitCount::new(0, data.len() as u64);
    count.feed(data);
    count.words()
}

#[derive(Clone, Debug)]
pub struct FakeTree(pub Arc<Namespace>);

impl Tree for FakeTree {
    async fn resolve(&self, path: &[u8]) -> Result<Attr> {
        let inode = std::str::from_utf8(path).unwrap().trim_start_matches('/').parse().unwrap_or(1);
        self.0.attr_of(inode)
    }

    async fn wait_until_committed(&self, inode: InodeId) -> Result<Attr> {
        self.0.attr_of(inode.raw())
    }

    async fn read_dir(&self, inode: InodeId, cookie: u64) -> Result<(Vec<pb::DirEntry>, bool)> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let Some(Entry::Directory(names)) = self.0.entries.get(&inode.raw()) else {
            return Err(err!(NotFound, "no directory {inode}"));
        };
        let from = names.iter().skip(cookie as usize);
        let entries = from.zip(cookie + 1..).take(3).map(|((name, inode), cookie)| {
            let mut attr = self.0.attr_of(*inode).unwrap();
            // Only the beginning of a long map comes along.
            let mut metablocks: Vec<_> = self.0.metablocks(*inode).into_iter().take(2).collect();
            // Every third file is being written, and nothing of it is recorded yet.
            let unsettled = inode.is_multiple_of(3) && attr.kind == FileKind::File;
            if unsettled {
                attr.size = 0;
                metablocks.clear();
            }
            let (name, kind) = (name.clone().into_bytes(), attr.kind.raw());
            pb::DirEntry { name, inode: *inode, kind, cookie, attr: Some(attr.into()), metablocks, unsettled }
        });
        let entries: Vec<_> = entries.collect();
        let is_last = cookie as usize + entries.len() >= names.len();
        Ok((entries, is_last))
    }

    async fn map(&self, inode: InodeId, first_index: u64) -> Result<(Vec<pb::Metablock>, bool)> {
        let rest: Vec<_> = self.0.metablocks(inode.raw()).into_iter().skip(first_index as usize).collect();
        let is_last = rest.len() <= 2;
        Ok((rest.into_iter().take(2).collect(), is_last))
    }

    fn nodes(&self) -> Vec<pb::Node> {
        self.0.nodes.clone()
    }

    fn carried(&self) -> Carried {
        Carried::default()
    }

    fn turn(&self, host: &HostName) -> Turn {
        if self.0.off.lock().contains(host) {
            return Turn::Off;
        }
        let node = self.0.nodes.iter().find(|node| node.host == host.as_str()).unwrap();
        self.0.turn(node.id)
    }
}

/// One read that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    pub inode: u64,
    pub by_map: bool,
    pub offset: u64,
    pub len: u64,
}

/// Reads the files of a [`Namespace`] and remembers the requests.
#[derive(Clone, Debug)]
pub struct FakeSource {
    pub namespace: Arc<Namespace>,
    pub asked: Arc<Mutex<Vec<Asked>>>,
    /// Reads by map fail for files with these inodes, with this kind.
    pub stale: Arc<Mutex<BTreeMap<u64, ErrorKind>>>,
    /// Reads of these files fail whichever way.
    pub broken: Arc<Mutex<Vec<u64>>>,
    pub open: Arc<Mutex<BTreeMap<u64, u64>>>,
    pub handles: Arc<AtomicU64>,
    /// It is on this node, frozen with it, and reads so many bytes a second.
    pub blinks: Option<(u64, f64)>,
    /// How often it was frozen in the middle of a read.
    pub freezes: Arc<AtomicUsize>,
}

impl FakeSource {
    pub fn new(namespace: Arc<Namespace>) -> Self {
        Self {
            namespace,
            asked: Arc::default(),
            stale: Arc::default(),
            broken: Arc::default(),
            open: Arc::default(),
            handles: Arc::default(),
            blinks: None,
            freezes: Arc::default(),
        }
    }

    /// Takes the time of a read, in which it may be frozen.
    async fn spend(&self, len: u64) {
        let (Some((node, rate)), Some((clock, _))) = (self.blinks, &self.namespace.plans) else { return };
        let mut left = Duration::from_secs_f64(len as f64 / rate);
        let mut was_awake = true;
        while !left.is_zero() {
            let is_awake = self.namespace.turn(node).is_awake();
            self.freezes.fetch_add(usize::from(was_awake && !is_awake), Ordering::Relaxed);
            let step = left.min(Duration::from_millis(10));
            clock.sleep(step).await;
            if is_awake {
                left -= step;
            }
            was_awake = is_awake;
        }
    }

    fn serve_read(&self, asked: Asked) -> Result<Bytes> {
        self.asked.lock().push(asked);
        if self.broken.lock().contains(&asked.inode) {
            return Err(err!(Corrupt, "i{} is damaged everywhere", asked.inode));
        }
        let data = &self.namespace.file(asked.inode)?.data;
        let start = data.len().min(asked.offset as usize);
        Ok(data.slice(start..data.len().min(start + asked.len as usize)))
    }
}

impl Source for FakeSource {
    async fn read_by_map(&self, split: &pb::Split, offset: u64, len: u64) -> Result<Bytes> {
        if let Some(kind) = self.stale.lock().get(&split.inode) {
            return Err(Error::new(*kind, "the map is old"));
        }
        assert!(!split.metablocks.is_empty(), "a read by map without a map");
        self.spend(len).await;
        self.serve_read(Asked { inode: split.inode, by_map: true, offset, len })
    }

    async fn open(&self, inode: InodeId) -> Result<Handle> {
        self.namespace.file(inode.raw())?;
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(handle, inode.raw());
        Ok(Handle(handle))
    }

    async fn read(&self, handle: Handle, offset: u64, len: u32) -> Result<Bytes> {
        let inode = *self.open.lock().get(&handle.0).expect("an open handle");
        self.spend(len.into()).await;
        self.serve_read(Asked { inode, by_map: false, offset, len: len.into() })
    }

    async fn close(&self, handle: Handle) {
        self.open.lock().remove(&handle.0);
    }
}

/// Text of `len` bytes with words of many lengths.
pub fn prose(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let pieces = ["a", "bc", "word", " ", " ", "\n", "é", "字", "\u{3000}", "\0", "longer-word", "\u{a0}"];
    let mut text = String::with_capacity(len + 16);
    while text.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(pieces[(state % pieces.len() as u64) as usize]);
    }
    let mut bytes = text.into_bytes();
    bytes.truncate(len);
    bytes
}
