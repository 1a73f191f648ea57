//! What the parts of a block server share.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ebb_handoff::HandoffLog;
use ebb_power::debt::Pace;
use ebb_rpc::{Connector, Counters};
use ebb_runtime::{Moment, Runtime};
use ebb_store::Volume;
use ebb_types::{BootId, MetablockId, NodeId, Result, VolumeId, err};
use ebb_wire::pb;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use crate::excuse::{Excuse, OwnWork};
use crate::read_queue::ReadQueue;
use crate::rest::Resting;
use crate::seen::Seen;
use crate::short_circuit::ShortCircuit;
use crate::staging::Staging;

/// Copies from other nodes at a time; further ones wait.
const PULLS_AT_ONCE: usize = 16;

/// Items of one request worked on side by side.
const AT_ONCE: usize = 512;

/// A running block server's state.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) runtime: Runtime,
    pub(crate) boot: BootId,
    /// In the order of the options.
    pub(crate) volumes: Vec<Volume>,
    /// Those that have an id.
    by_id: RwLock<BTreeMap<VolumeId, Volume>>,
    /// None before the first registration.
    id: RwLock<Option<NodeId>>,
    /// What this process and those before it have seen of the master.
    pub(crate) seen: Seen,
    pub(crate) data_dir: PathBuf,
    /// Masters' addresses.
    pub(crate) masters: Vec<String>,
    pub(crate) connector: Connector,
    pub(crate) counters: Counters,
    /// Requests in progress.
    load: AtomicU32,
    /// Reads that wait or are under way.
    pub(crate) reads: ReadQueue,
    /// How fast writes get to the disks here.
    pace: Mutex<Pace>,
    pub(crate) pulls: Arc<Semaphore>,
    /// One timing of a disk at a time.
    pub(crate) timing: Arc<Semaphore>,
    pub(crate) short_circuit: ShortCircuit,
    pub(crate) resting: Resting,
    /// What members on other nodes have not got yet.
    pub(crate) handoff: HandoffLog,
    /// Bytes of direct writes that are not written yet.
    pub(crate) staging: Mutex<Staging>,
    /// One scrub at a time.
    pub(crate) scrubbing: tokio::sync::Mutex<()>,
    /// One RAID set at a time is encoded.
    pub(crate) encoding: tokio::sync::Mutex<()>,
    /// Damage found and not yet reported to the master.
    pub(crate) damaged: Mutex<Vec<MetablockId>>,
    excuse: Mutex<Excuse>,
}

impl Node {
    pub(crate) fn new(
        runtime: &Runtime,
        volumes: Vec<Volume>,
        (id, position): (Option<NodeId>, pb::Position),
        data_dir: PathBuf,
        masters: Vec<String>,
        connector: Connector,
        handoff: HandoffLog,
    ) -> Self {
        let node = Self {
            runtime: runtime.clone(),
            boot: BootId::new(runtime.random_u64().max(1)),
            volumes,
            by_id: RwLock::default(),
            id: RwLock::new(id),
            seen: Seen::new(position),
            data_dir,
            masters,
            counters: connector.counters().clone(),
            connector,
            load: AtomicU32::new(0),
            reads: ReadQueue::default(),
            pace: Mutex::default(),
            short_circuit: ShortCircuit::default(),
            resting: Resting::default(),
            handoff,
            staging: Mutex::new(Staging::new(0)),
            pulls: Arc::new(Semaphore::new(PULLS_AT_ONCE)),
            timing: Arc::new(Semaphore::new(1)),
            scrubbing: tokio::sync::Mutex::default(),
            encoding: tokio::sync::Mutex::default(),
            damaged: Mutex::default(),
            excuse: Mutex::default(),
        };
        node.list_volumes();
        node
    }

    /// The same with room for so many bytes of direct writes.
    pub(crate) fn with_staging(mut self, bytes_max: usize) -> Self {
        self.staging = Mutex::new(Staging::new(bytes_max));
        self
    }

    /// Takes note of ids that volumes got.
    pub(crate) fn list_volumes(&self) {
        let with_id = self.volumes.iter().filter(|volume| volume.id().raw() != 0);
        *self.by_id.write() = with_id.map(|volume| (volume.id(), volume.clone())).collect();
    }

    /// The volume with this id.
    pub(crate) fn volume(&self, id: u64) -> Result<Volume> {
        let id = VolumeId::new(id);
        let found = self.by_id.read().get(&id).cloned();
        found.ok_or_else(|| err!(NoReplica, "{} has no volume {id}", self.title()))
    }

    /// None before the first registration.
    pub(crate) fn id(&self) -> Option<NodeId> {
        *self.id.read()
    }

    /// As messages have it: 0 before the first registration.
    pub(crate) fn raw_id(&self) -> u64 {
        self.id().map_or(0, NodeId::raw)
    }

    /// For people.
    pub(crate) fn title(&self) -> String {
        self.id().map_or_else(|| "a node without an id".to_owned(), |id| format!("node {id}"))
    }

    pub(crate) fn set_id(&self, id: NodeId) {
        assert_ne!(id.raw(), 0, "a registration without an id is refused before");
        *self.id.write() = Some(id);
    }

    /// Requests in progress.
    pub(crate) fn load(&self) -> u32 {
        self.load.load(Ordering::Relaxed)
    }

    /// Bytes a second that this node takes while it has something to write; 0: it has not written enough to tell.
    pub(crate) fn write_bytes_per_sec(&self) -> u64 {
        self.pace.lock().bytes_per_sec()
    }

    /// Whether the node has work of its own that makes it slow for a while.
    pub(crate) fn is_excused(&self) -> bool {
        let copies = self.pulls.available_permits() < PULLS_AT_ONCE;
        let works = copies || self.scrubbing.try_lock().is_err() || self.volumes.iter().any(Volume::is_checkpointing);
        let own_work = if works { OwnWork::UnderWay } else { OwnWork::None };
        self.excuse.lock().is_excused(own_work, self.runtime.now())
    }

    /// A write or sync of so many bytes goes on for as long as the answer is held.
    pub(crate) fn begin_writing(&self, bytes: u64) -> Writing<'_> {
        self.pace.lock().begin_write(self.since_start());
        Writing { node: self, bytes }
    }

    fn since_start(&self) -> Duration {
        self.runtime.now().since(Moment::default())
    }

    /// Counts a request for as long as the answer is held.
    pub(crate) fn enter(self: &Arc<Self>) -> InProgress {
        self.load.fetch_add(1, Ordering::Relaxed);
        InProgress(self.clone())
    }
}

/// Does the same for many items at once, so that they share their syncs; answers in the order of the items. An item
/// that was stopped before its end fails them all.
pub(crate) async fn for_all<I, O, W>(runtime: &Runtime, items: Vec<I>, work: impl Fn(I) -> W) -> Result<Vec<O>>
where
    O: Send + 'static,
    W: Future<Output = O> + Send + 'static,
{
    let count = items.len();
    let mut done = Vec::with_capacity(count);
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        let tasks: Vec<_> = items.by_ref().take(AT_ONCE).map(|item| runtime.spawn("block-item", work(item))).collect();
        for task in tasks {
            done.push(task.join().await?);
        }
    }
    assert_eq!(done.len(), count, "one answer for each item");
    Ok(done)
}

/// A write or sync in progress.
pub(crate) struct Writing<'a> {
    node: &'a Node,
    bytes: u64,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.node.pace.lock().end(self.node.since_start(), self.bytes);
    }
}

/// A request in progress.
pub(crate) struct InProgress(Arc<Node>);

impl Drop for InProgress {
    fn drop(&mut self) {
        let before = self.0.load.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a request ends that was not counted");
    }
}
