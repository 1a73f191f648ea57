//! State that all parts of one client share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ebb_layout::rendezvous;
use ebb_power::read::LearnedBalance;
use ebb_power::read::queue::Queues;
use ebb_rpc::Connector;
use ebb_runtime::Runtime;
use ebb_types::{Credentials, Error, ErrorKind, InodeId, Result, err};
use ebb_wire::pb;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};

use crate::ClientOptions;
use crate::handles::Handles;
use crate::inode::{Core, Inode};
use crate::lease::after_close::AfterClose;
use crate::lease::hold::Lease;
use crate::lease::idle::Uses;
use crate::lease::returns::Returns;
use crate::metrics::Cells;
use crate::names::known::Known;
use crate::names::locks::LockWaiters;
use crate::nodes::NodeMap;
use crate::nodes::gray::Gray;
use crate::power::rest::Resting;
use crate::read::cache::BlockCache;
use crate::read::dataset_reads::DatasetReads;
use crate::read::extras::Extras;
use crate::read::hedge::Hedge;
use crate::read::raid_sets::RaidSets;
use crate::read::short_circuit::ShortCircuit;
use crate::read::spare::Spare;
use crate::served::Served;
use crate::session::Session;
use crate::session::poll::MasterBoot;
use crate::shared_file::proxied::IN_FLIGHT_MAX;
use crate::shared_file::sharing::Requests;
use crate::types::{CacheGuard, CacheListener};
use crate::waits::Waiting;
use crate::write::budget::Budget;
use crate::write::committer::Queue;
use crate::write::feed::Feeds;
use crate::write::own_link::OwnLink;

/// The client behind [`crate::Client`].
pub(crate) struct Shared {
    pub runtime: Runtime,
    pub connector: Connector,
    pub options: ClientOptions,
    pub session: Session,
    pub boot: MasterBoot,
    pub nodes: NodeMap,
    /// Power plans in force and announced.
    pub plans: Mutex<ebb_power::Timetable>,
    pub cache: BlockCache,
    pub known: Known,
    pub budget: Budget,
    /// The user of requests that no program makes: that of a program's certificate, or the superuser.
    pub own: Credentials,
    pub own_link: OwnLink,
    pub queue: Queue,
    pub returns: Returns,
    /// Closed files that are not kept.
    pub after_close: AfterClose,
    pub uses: Uses,
    pub resting: Resting,
    pub handles: Handles,
    pub hedge: Hedge,
    pub gray: Gray,
    pub spare: Spare,
    /// Number of reads of programs that wait for members.
    pub waiting_reads: AtomicUsize,
    pub short_circuit: ShortCircuit,
    pub locks: LockWaiters,
    pub metrics: Cells,
    pub served: Served,
    pub extras: Extras,
    pub dataset_reads: DatasetReads,
    pub raid_sets: RaidSets,
    /// Shares of the nodes in serving this client's reads.
    pub balance: Mutex<LearnedBalance<u64>>,
    /// What waits to be read at the nodes.
    pub queues: Mutex<Queues<u64>>,
    pub listener: Mutex<Option<Arc<dyn CacheListener>>>,
    /// Recalls under way, and the lease that each leaves.
    pub recalls: Mutex<BTreeMap<InodeId, Lease>>,
    /// Inodes whose registration is being taken back. An open waits for that.
    pub forgetting: Mutex<BTreeSet<InodeId>>,
    pub forgotten: Notify,
    /// Requests to proxies.
    pub requests: Requests,
    /// Calls that a proxy holds and relays.
    pub relays: Requests,
    /// The proxies, as the master reported them last.
    pub proxies: Mutex<Vec<pb::ProxyAddress>>,
    /// Places for operations on shared files that are under way.
    pub in_flight: Semaphore,
    pub feeds: Feeds,
    /// Held while a write is admitted to wait for sleeping members, and is then inserted: one write at a time.
    pub admitting: tokio::sync::Mutex<()>,
    /// Held by the task that gives room back: one at a time.
    pub returning_room: tokio::sync::Mutex<()>,
    pub closing: AtomicBool,
    table: Mutex<BTreeMap<InodeId, Arc<Inode>>>,
    clock: AtomicU64,
}

impl Shared {
    /// Shows that an operation waits from now on.
    pub fn enter_wait(&self, reason: impl Into<std::borrow::Cow<'static, str>>) -> Waiting {
        self.options.waits.enter(self.runtime.now(), reason)
    }

    /// The parts, put together.
    pub fn new(runtime: Runtime, connector: Connector, options: ClientOptions, session: Session) -> Self {
        let served = Served::new(runtime.random_u64());
        Self {
            cache: BlockCache::new(options.read_cache_bytes),
            budget: Budget::new(options.dirty_bytes_max),
            own_link: OwnLink::default(),
            own: connector.identity().user().cloned().unwrap_or_else(Credentials::root),
            known: Known::default(),
            runtime,
            connector,
            options,
            session,
            boot: MasterBoot::default(),
            nodes: NodeMap::default(),
            plans: Mutex::default(),
            queue: Queue::default(),
            returns: Returns::default(),
            after_close: AfterClose::default(),
            uses: Uses::default(),
            resting: Resting::default(),
            handles: Handles::default(),
            hedge: Hedge::default(),
            gray: Gray::default(),
            spare: Spare::default(),
            waiting_reads: AtomicUsize::new(0),
            short_circuit: ShortCircuit::default(),
            locks: LockWaiters::default(),
            metrics: Cells::default(),
            served,
            extras: Extras::default(),
            dataset_reads: DatasetReads::default(),
            raid_sets: RaidSets::default(),
            balance: Mutex::default(),
            queues: Mutex::default(),
            listener: Mutex::new(None),
            recalls: Mutex::default(),
            forgetting: Mutex::default(),
            forgotten: Notify::new(),
            requests: Requests::default(),
            relays: Requests::default(),
            proxies: Mutex::default(),
            in_flight: Semaphore::new(IN_FLIGHT_MAX),
            feeds: Feeds::new(),
            admitting: tokio::sync::Mutex::default(),
            returning_room: tokio::sync::Mutex::default(),
            closing: AtomicBool::new(false),
            table: Mutex::default(),
            clock: AtomicU64::new(0),
        }
    }

    /// The proxy that relays calls to sleeping nodes. Of several proxies, this session's hash selects one.
    pub fn proxy(&self) -> Option<pb::ProxyAddress> {
        let key = self.session.name().id.raw();
        rendezvous::choose(key, self.proxies.lock().iter(), |proxy| &proxy.name).cloned()
    }

    /// The state of a file. It is made if there is none.
    pub fn inode(&self, id: InodeId) -> Arc<Inode> {
        let inode = self
            .table
            .lock()
            .entry(id)
            .or_insert_with(|| Arc::new(Inode::new(id, self.options.sizes.write_max)))
            .clone();
        self.touch(&inode);
        inode
    }

    /// Notes that a file is in use.
    pub fn touch(&self, inode: &Inode) {
        inode.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// How often files were used.
    pub fn use_count(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// The state of a file, if there is any.
    pub fn find(&self, id: InodeId) -> Option<Arc<Inode>> {
        self.table.lock().get(&id).cloned()
    }

    /// All files that have state here.
    pub fn inodes(&self) -> Vec<Arc<Inode>> {
        self.table.lock().values().cloned().collect()
    }

    /// Number of files that have state here.
    pub fn inode_count(&self) -> usize {
        self.table.lock().len()
    }

    /// Forgets the files for which `may` holds, if they are unused and nothing is held of them. Their cached data
    /// cannot be used afterwards.
    ///
    /// Invariant: there is never more than one `Inode` for an id. So an `Inode` goes only if no other reference to it
    /// exists.
    pub fn sweep(&self, may: impl Fn(&Core) -> bool) {
        self.table.lock().retain(|_, inode| {
            if Arc::strong_count(inode) > 1 {
                return true;
            }
            let core = inode.core.lock();
            !may(&core)
                || core.open_count > 0
                || core.registered.may_be()
                || core.hold.is_needed()
                || core.unrecorded.any
        });
    }

    /// Fails once the client is being disconnected.
    pub fn check_open(&self) -> Result<()> {
        if self.closing.load(Ordering::Relaxed) {
            return Err(err!(ShuttingDown, "this client is disconnecting"));
        }
        Ok(())
    }

    /// A namespace request of the client itself.
    pub async fn own_meta(&self, op: pb::meta_op::Op) -> Result<pb::MetaReply> {
        self.session.meta(&self.own, op).await
    }

    /// Whether cached state of this file may be believed now.
    pub fn is_believed(&self, core: &Core, lease: Lease) -> bool {
        core.hold.serves(lease, self.session.name().generation) && self.session.is_trusted()
    }

    /// Closes the descriptors of a file's replicas on this host, because its lease goes.
    pub fn close_descriptors(&self, core: &Core) {
        self.short_circuit.close(core.map.values().map(|record| record.id));
    }

    /// Makes the kernel drop its pages of a file, and blocks the use of its caches while `guard` lives. `guard` stays
    /// empty if there is no kernel. Called with no lock held.
    pub async fn drop_caches(&self, guard: &mut Option<Box<dyn CacheGuard>>, inode: InodeId) {
        if guard.is_none() {
            let listener = self.listener.lock().clone();
            *guard = listener.map(|listener| listener.guard(inode));
        }
        if let Some(guard) = guard {
            guard.drop_pages().await;
        }
    }

    /// Makes the kernel drop its pages of a file. Called with no lock held.
    pub async fn invalidate(&self, inode: InodeId) {
        self.drop_caches(&mut None, inode).await;
    }

    /// Handles a lease that is gone without having been given back. Its dirty bytes are dropped, each of the file's
    /// handles reports an error once, and the kernel drops its pages.
    pub fn lose_lease(self: &Arc<Self>, inode: &Inode, error: &Error) {
        let path = || self.known.paths(&BTreeSet::from([inode.id])).remove(&inode.id);
        if self.lose_lease_of(inode, error, path) != Lease::None {
            let (shared, id) = (self.clone(), inode.id);
            // A task of its own: the kernel may wait for a read that waits at the gate.
            self.runtime.spawn("invalidate what was lost", async move { shared.invalidate(id).await });
        }
    }

    /// Handles a lost lease of a file, and names its `path` in the log. The kernel's pages stay. Returns the lease that
    /// was held.
    pub fn lose_lease_of(&self, inode: &Inode, error: &Error, path: impl FnOnce() -> Option<String>) -> Lease {
        let core = inode.core.lock();
        let held = core.hold.lease();
        let (weight, lost) = self.drop_held(inode, core, |core, lost| {
            if lost {
                let detail = format!("{}: unsynced writes are lost: {error}", inode.id);
                core.sticky.set(Error::new(ErrorKind::Io, detail));
            }
        });
        if lost {
            self.metrics.lost_files.add(1);
            self.metrics.lost_bytes.add(weight as u64);
            // No name of the file is known: it was removed, or not looked up lately.
            let path = path().unwrap_or_else(|| format!("the file of inode {}", inode.id));
            tracing::warn!(
                inode = %inode.id, bytes = weight, %error,
                "{path}: {weight} unsynced bytes are lost with the write lease; each open handle gets EIO once"
            );
        }
        held
    }

    /// Drops everything that is held of a file, whose lock is `core`. `then` runs under the lock, with true if any
    /// write is lost. Returns the number of bytes of memory that are freed, and whether any write is lost.
    pub fn drop_held(
        &self,
        inode: &Inode,
        mut core: MutexGuard<'_, Core>,
        then: impl FnOnce(&mut Core, bool),
    ) -> (usize, bool) {
        self.close_descriptors(&core);
        let (weight, lost) = core.lose(&self.cache, inode.id);
        // Ordering: under the file's lock, like the check of answers.
        self.known.on_unsure_attr(inode.id);
        then(&mut core, lost);
        drop(core);
        self.budget.give(weight);
        inode.progress.notify_waiters();
        (weight, lost)
    }
}
