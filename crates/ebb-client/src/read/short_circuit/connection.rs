//! One server of this host: its socket, its slots, the descriptors that it gave.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::local::{LocalRead, LocalWrite};
use ebb_runtime::{File, Moment, Parcel, Runtime, Thing, Words};
use ebb_types::{Result, Version, bail, err};
use ebb_wire::pb::short_circuit_reply::Kind as ReplyKind;
use ebb_wire::pb::short_circuit_request::Kind as RequestKind;
use ebb_wire::{Message, convert, pb};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::nodes::Hop;
use crate::read::fetch::Wanted;
use crate::shared::Shared;

/// For the call that asks for a ticket.
const TICKET_DEADLINE: Duration = Duration::from_secs(2);
/// Messages on their way out; more than descriptors and reads at a time.
const OUTGOING_MAX: usize = 1024;
/// Replicas remembered for each server, open or not.
const REPLICAS_MAX: usize = 256;
/// A replica that changed, or was refused, is left alone for so long: it may be changing all the time.
const SHUT_FOR: Duration = Duration::from_secs(1);

/// A metablock and the volume that its replica is on.
type Key = (u64, u64);
/// Filled once, by the first read that wants it; none if the server refused.
type Cell = Arc<OnceCell<Option<Arc<Replica>>>>;

/// A connection to a server of this host.
#[derive(Debug)]
pub(super) struct Connection {
    words: Words,
    alive: AtomicBool,
    outgoing: mpsc::Sender<RequestKind>,
    cells: Mutex<Cells>,
    /// The session that the server has heard of.
    session: AtomicU64,
}

#[derive(Debug, Default)]
struct Cells {
    last_request: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Result<Opened>>>,
    replicas: BTreeMap<Key, Entry>,
    clock: u64,
}

#[derive(Debug)]
enum Entry {
    Open { cell: Cell, used: u64 },
    Shut { until: Moment },
}

#[derive(Debug)]
struct Opened {
    file: File,
    reply: pb::ShortCircuitOpened,
}

/// A replica whose file is open.
#[derive(Debug)]
pub(super) struct Replica {
    file: File,
    pub version: Version,
    pub length: u64,
    pub checksums: Vec<u32>,
    runs: Vec<pb::ShortCircuitRun>,
    key: Key,
    slot: u64,
    grant: u64,
    connection: Weak<Connection>,
    _place: OwnedSemaphorePermit,
}

impl Replica {
    /// Bytes of the replica; none if its file does not have them.
    pub async fn read(&self, offset: u64, len: u64) -> Option<Bytes> {
        let first = self.runs.partition_point(|run| run.offset + run.length <= offset);
        let mut found: Vec<Bytes> = Vec::new();
        let mut start = offset;
        for run in self.runs[first..].iter().take_while(|run| run.offset < offset + len) {
            let stop = (run.offset + run.length).min(offset + len);
            let at = run.at + start.checked_sub(run.offset)?;
            found.push(self.file.read_at(at, (stop - start) as usize).await.ok()?);
            start = stop;
        }
        match found.len() {
            1 => found.pop(),
            _ => Some(found.concat().into()),
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.send(RequestKind::Close(pb::ShortCircuitClose { slot: self.slot, grant: self.grant }));
        }
    }
}

impl Connection {
    /// Gets a ticket over the network, where both sides have proved their identity, and connects.
    pub async fn open(shared: &Arc<Shared>, address: &str) -> Result<Arc<Self>> {
        let runtime = &shared.runtime;
        let ticket = shared.connector.channel(address).call(&pb::ShortCircuitTicket {}, TICKET_DEADLINE).await?;
        let mut stream = runtime.connect_local(std::path::Path::new(&ticket.path)).await?;
        stream.write.send(parcel(RequestKind::Hello(pb::ShortCircuitHello { ticket: ticket.ticket }))).await?;
        let Some(mut welcome) = stream.read.receive().await? else {
            bail!(Unauthorized, "{} refused this client", ticket.path);
        };
        let Some(Thing::Words(words)) = welcome.things.pop() else {
            bail!(Protocol, "{} sent no memory with its welcome", ticket.path);
        };
        let (outgoing, requests) = mpsc::channel(OUTGOING_MAX);
        let connection = Arc::new(Self {
            words,
            alive: AtomicBool::new(true),
            outgoing,
            cells: Mutex::default(),
            session: AtomicU64::new(0),
        });
        runtime.spawn("short-circuit requests", send_all(Arc::downgrade(&connection), stream.write, requests));
        let (own, clock) = (connection.clone(), runtime.clone());
        runtime.spawn("short-circuit replies", async move {
            let ended = own.receive_all(&clock, stream.read).await;
            tracing::debug!(?ended, "a server of this host has gone");
            own.end();
        });
        Ok(connection)
    }

    /// Says which session this process has, if the server has not heard of it: it will know when the process has ended.
    pub fn introduce(&self, session: u64) {
        if self.session.swap(session, Ordering::Relaxed) != session {
            self.send(RequestKind::Session(pb::ShortCircuitSession { session }));
        }
    }

    /// Whether the server is still there.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }

    /// Whether the replica's bytes are still those of its version.
    pub fn is_valid(&self, replica: &Replica) -> bool {
        let at = replica.slot as usize * 3;
        let slot = [self.words.load(at), self.words.load(at + 1), self.words.load(at + 2)];
        slot == [replica.grant, replica.version.epoch.raw(), replica.version.seq] && self.is_alive()
    }

    /// The replica, opened if it is not; none if the server does not give it.
    pub async fn replica(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        places: &Arc<Semaphore>,
        wanted: &Wanted,
        hop: &Hop,
    ) -> Option<Arc<Replica>> {
        let key = (wanted.record.id, hop.member.volume);
        let cell = self.cell(&shared.runtime, key)?;
        let opened = cell.get_or_init(|| self.open_replica(places, key, wanted.min_version)).await;
        match opened {
            Some(replica) if wanted.accepts(replica.version) && self.is_valid(replica) => Some(replica.clone()),
            _ => {
                self.shut_cell(&shared.runtime, key, &cell);
                None
            }
        }
    }

    /// The replica has changed.
    pub fn shut(&self, runtime: &Runtime, replica: &Replica) {
        let cell = match self.cells.lock().replicas.get(&replica.key) {
            Some(Entry::Open { cell, .. }) if holds(cell, replica.slot, replica.grant) => cell.clone(),
            _ => return,
        };
        self.shut_cell(runtime, replica.key, &cell);
    }

    /// Forgets a metablock.
    pub fn close(&self, metablock: u64) {
        let mut cells = self.cells.lock();
        let keys: Vec<Key> =
            cells.replicas.range((metablock, 0)..=(metablock, u64::MAX)).map(|(key, _)| *key).collect();
        let closed: Vec<_> = keys.iter().filter_map(|key| cells.replicas.remove(key)).collect();
        drop(cells);
        drop(closed);
    }

    /// Where the replica is, or will be; none if it is to be left alone.
    fn cell(&self, runtime: &Runtime, key: Key) -> Option<Cell> {
        let mut cells = self.cells.lock();
        cells.clock += 1;
        let now_used = cells.clock;
        match cells.replicas.get_mut(&key) {
            Some(Entry::Shut { until }) if runtime.now() < *until => return None,
            Some(Entry::Open { cell, used }) => {
                *used = now_used;
                return Some(cell.clone());
            }
            _ => {}
        }
        let evicted = cells.make_room();
        let cell = Cell::default();
        cells.replicas.insert(key, Entry::Open { cell: cell.clone(), used: now_used });
        drop(cells);
        // Closing sends a message, which takes no lock, and a descriptor, which may wait for the disk.
        drop(evicted);
        Some(cell)
    }

    fn shut_cell(&self, runtime: &Runtime, key: Key, old: &Cell) {
        let mut cells = self.cells.lock();
        let shut = match cells.replicas.get_mut(&key) {
            Some(entry) if matches!(&*entry, Entry::Open { cell, .. } if Arc::ptr_eq(cell, old)) => {
                Some(std::mem::replace(entry, Entry::Shut { until: runtime.now().after(SHUT_FOR) }))
            }
            _ => None,
        };
        drop(cells);
        drop(shut);
    }

    async fn open_replica(
        self: &Arc<Self>,
        places: &Arc<Semaphore>,
        key: Key,
        min_version: Version,
    ) -> Option<Arc<Replica>> {
        let place = places.clone().try_acquire_owned().ok()?;
        let (answer, receiver) = oneshot::channel();
        let request = {
            let mut cells = self.cells.lock();
            cells.last_request += 1;
            let request = cells.last_request;
            cells.waiting.insert(request, answer);
            request
        };
        let (metablock, volume) = key;
        self.send(RequestKind::Open(pb::ShortCircuitOpen {
            request,
            metablock,
            volume,
            min_version: Some(min_version.into()),
        }));
        match receiver.await {
            Ok(Ok(Opened { file, reply })) => Some(Arc::new(Replica {
                file,
                version: convert::version(reply.version),
                length: reply.length,
                checksums: reply.checksums,
                runs: reply.runs,
                key,
                slot: reply.slot,
                grant: reply.grant,
                connection: Arc::downgrade(self),
                _place: place,
            })),
            Ok(Err(error)) => {
                tracing::debug!(metablock, %error, "a descriptor was refused");
                None
            }
            Err(_) => None,
        }
    }

    fn send(&self, request: RequestKind) {
        if self.outgoing.try_send(request).is_err() {
            self.end();
        }
    }

    async fn receive_all(&self, runtime: &Runtime, mut read: LocalRead) -> Result<()> {
        while let Some(mut parcel) = read.receive().await? {
            let reply =
                pb::ShortCircuitReply::decode(parcel.bytes).map_err(|error| err!(Protocol, "a reply: {error}"))?;
            match reply.kind {
                Some(ReplyKind::Opened(reply)) => self.on_opened(reply, parcel.things.pop())?,
                Some(ReplyKind::Revoked(revoked)) => self.on_revoked(runtime, revoked),
                _ => bail!(Protocol, "an empty reply"),
            }
        }
        Ok(())
    }

    fn on_opened(&self, reply: pb::ShortCircuitOpened, thing: Option<Thing>) -> Result<()> {
        let waiting = self.cells.lock().waiting.remove(&reply.request);
        let opened = match (&reply.failure, thing) {
            (Some(failure), None) => Err(failure.clone().into()),
            (None, Some(Thing::File(file))) if (reply.slot as usize) < self.words.len() / 3 => {
                Ok(Opened { file, reply: reply.clone() })
            }
            _ => bail!(Protocol, "a descriptor that is none"),
        };
        let is_good = opened.is_ok();
        let unwanted = waiting.is_none_or(|waiting| waiting.send(opened).is_err());
        if unwanted && is_good {
            // The caller has gone.
            self.send(RequestKind::Close(pb::ShortCircuitClose { slot: reply.slot, grant: reply.grant }));
        }
        Ok(())
    }

    fn on_revoked(&self, runtime: &Runtime, revoked: pb::ShortCircuitRevoked) {
        let found = {
            let cells = self.cells.lock();
            let mut open = cells.replicas.iter().filter_map(|(key, entry)| match entry {
                Entry::Open { cell, .. } => Some((*key, cell)),
                Entry::Shut { .. } => None,
            });
            open.find(|(_, cell)| holds(cell, revoked.slot, revoked.grant)).map(|(key, cell)| (key, cell.clone()))
        };
        if let Some((key, cell)) = found {
            self.shut_cell(runtime, key, &cell);
        }
    }

    /// Nothing that the server gave is good any more.
    fn end(&self) {
        self.alive.store(false, Ordering::SeqCst);
        let (waiting, replicas) = {
            let mut cells = self.cells.lock();
            (std::mem::take(&mut cells.waiting), std::mem::take(&mut cells.replicas))
        };
        drop((waiting, replicas));
    }
}

impl Cells {
    /// Takes out the one that was not used for longest, if there are as many as there may be.
    fn make_room(&mut self) -> Option<Entry> {
        if self.replicas.len() < REPLICAS_MAX {
            return None;
        }
        let age = |entry: &Entry| if let Entry::Open { used, .. } = entry { *used } else { 0 };
        let oldest = self.replicas.iter().min_by_key(|(_, entry)| age(entry)).map(|(key, _)| *key)?;
        self.replicas.remove(&oldest)
    }
}

fn holds(cell: &Cell, slot: u64, grant: u64) -> bool {
    cell.get().and_then(Option::as_ref).is_some_and(|replica| (replica.slot, replica.grant) == (slot, grant))
}

fn parcel(kind: RequestKind) -> Parcel {
    Parcel { bytes: pb::ShortCircuitRequest { kind: Some(kind) }.encode_to_vec().into(), things: Vec::new() }
}

async fn send_all(connection: Weak<Connection>, mut write: LocalWrite, mut requests: mpsc::Receiver<RequestKind>) {
    while let Some(request) = requests.recv().await {
        if write.send(parcel(request)).await.is_err() {
            if let Some(connection) = connection.upgrade() {
                connection.end();
            }
            return;
        }
    }
}
