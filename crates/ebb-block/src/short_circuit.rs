//! Short-circuit reads: clients of this host get replicas' descriptors over a Unix socket, and read them by themselves.
//!
//! ```text
//!  client ── ShortCircuitTicket (authenticated channel) ──► server:  path of the socket, ticket
//!         ── hello(ticket) ── Unix socket ─────────►          welcome, and the memory with the slots
//!         ── open(metablock, min_version) ─────────►          opened(slot, grant, version, sums), and the file
//!         ◄─ revoked(slot) ─────────────────────────          the slot was cleared before any byte changed
//!         ── close(slot) ──────────────────────────►          the slot is free
//!         ── session(id) ──────────────────────────►          ended with this process (`witness`)
//! ```
//! A slot is three words: the grant, 0 once the bytes may change; epoch and seq of the version. Numbers of grants are
//! not used twice on a connection, so a late look at a slot that was given out anew does not pass for valid. The end
//! of the connection ends all its grants.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ebb_runtime::{LocalListener, LocalStream, Moment, Parcel, Runtime, Thing, Words};
use ebb_store::Reader;
use ebb_types::{ErrorKind, MetablockId, Result, bail, err};
use ebb_wire::pb::short_circuit_reply::Kind as ReplyKind;
use ebb_wire::pb::short_circuit_request::Kind as RequestKind;
use ebb_wire::{Message, convert, pb};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc};

use crate::node::Node;
use crate::witness::{self, Sessions};

/// Descriptors that one client may have.
const SLOTS: usize = 512;
/// Words of a slot.
const SLOT_WORDS: usize = 3;
/// Clients at a time.
const CONNECTIONS_MAX: usize = 64;
/// Requests of one client worked on side by side.
const OPENS_AT_ONCE: usize = 32;
/// A ticket is good for so long, and as many are out at most: then the oldest of the connection that has most gives way.
const TICKET_TIME: Duration = Duration::from_secs(10);
const TICKETS_MAX: usize = 256;
/// For the first message of a connection.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// After a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// What a block server knows of its host's clients.
#[derive(Debug)]
pub(crate) struct ShortCircuit {
    /// Where it listens; none if it does not.
    path: Mutex<Option<PathBuf>>,
    tickets: Mutex<BTreeMap<[u8; 16], Given>>,
    connections: Arc<Semaphore>,
}

/// A ticket that is out.
#[derive(Debug)]
struct Given {
    at: Moment,
    /// Address and port of the client that asked for it.
    to: String,
}

impl Default for ShortCircuit {
    fn default() -> Self {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self { path: Mutex::default(), tickets: Mutex::default(), connections }
    }
}

impl ShortCircuit {
    /// From now on a client listens.
    pub(crate) fn listen_at(&self, path: PathBuf) {
        *self.path.lock() = Some(path);
    }

    /// Lets one connection in.
    pub(crate) fn ticket(&self, runtime: &Runtime, to: &str) -> Result<pb::ShortCircuitTicketReply> {
        let Some(path) = self.path.lock().clone() else {
            bail!(Unsupported, "this block server gives no descriptors");
        };
        let mut ticket = [0; 16];
        runtime.fill_random(&mut ticket);
        let mut tickets = self.tickets.lock();
        tickets.retain(|_, given| runtime.now().since(given.at) < TICKET_TIME);
        if tickets.len() >= TICKETS_MAX
            && let Some(least) = least_wanted(&tickets)
        {
            tickets.remove(&least);
        }
        tickets.insert(ticket, Given { at: runtime.now(), to: to.to_owned() });
        let path = path.to_str().ok_or_else(|| err!(Unsupported, "the socket's path is no text"))?;
        Ok(pb::ShortCircuitTicketReply { path: path.to_owned(), ticket: ticket.to_vec() })
    }

    fn redeem(&self, runtime: &Runtime, ticket: &[u8]) -> Result<()> {
        let given = <[u8; 16]>::try_from(ticket).ok().and_then(|ticket| self.tickets.lock().remove(&ticket));
        match given {
            Some(given) if runtime.now().since(given.at) < TICKET_TIME => Ok(()),
            _ => bail!(Unauthorized, "a client of this host came with a ticket that this server did not issue"),
        }
    }
}

/// The oldest ticket of the connection that has most of them.
fn least_wanted(tickets: &BTreeMap<[u8; 16], Given>) -> Option<[u8; 16]> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    tickets.values().for_each(|given| *counts.entry(&given.to).or_default() += 1);
    let most = counts.values().copied().max()?;
    let greedy = tickets.iter().filter(|(_, given)| counts[given.to.as_str()] == most);
    greedy.min_by_key(|(_, given)| given.at).map(|(ticket, _)| *ticket)
}

/// Serves clients of this host, until it is stopped.
pub(crate) async fn serve(node: Arc<Node>, listener: LocalListener) {
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let Ok(place) = node.short_circuit.connections.clone().try_acquire_owned() else { continue };
                let served = node.clone();
                node.runtime.spawn("short-circuit-connection", async move {
                    let _place = place;
                    if let Err(error) = connection(served, stream).await {
                        tracing::debug!(%error, "a client of this host");
                    }
                });
            }
            Err(error) if error.kind() == ErrorKind::ShuttingDown => return,
            Err(error) => {
                tracing::debug!(%error, "accepting clients of this host");
                node.runtime.sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(node: Arc<Node>, mut stream: LocalStream) -> Result<()> {
    let hello = node.runtime.timeout(HELLO_TIME, "a client's hello", stream.read.receive()).await?;
    let Some(RequestKind::Hello(hello)) = hello.map(decode).transpose()? else {
        bail!(Protocol, "a client of this host began without a ticket");
    };
    node.short_circuit.redeem(&node.runtime, &hello.ticket)?;
    let words = node.runtime.make_words(SLOTS * SLOT_WORDS)?;
    let table = Arc::new(Table { words: words.clone(), cells: Mutex::default(), news: Notify::new() });
    let welcome = pb::ShortCircuitWelcome { boot: node.boot.raw() };
    stream.write.send(parcel(ReplyKind::Welcome(welcome), vec![Thing::Words(words)])).await?;

    let (replies, outgoing) = mpsc::channel(OPENS_AT_ONCE);
    let sent = table.clone();
    let mut write = stream.write;
    let sender = node.runtime.spawn("short-circuit-sender", async move {
        // A client that is gone is noticed by the reading side.
        let _ = send_all(&mut write, &sent, outgoing).await;
    });
    let sessions = Sessions::default();
    let served = requests(&node, &mut stream.read, &table, &sessions, replies).await;
    sender.abort();
    // Whatever ended the connection: the process may have.
    witness::report_end(&node, &sessions, &stream.peer).await;
    served
}

async fn requests(
    node: &Arc<Node>,
    read: &mut ebb_runtime::local::LocalRead,
    table: &Arc<Table>,
    sessions: &Sessions,
    replies: mpsc::Sender<Parcel>,
) -> Result<()> {
    let places = Arc::new(Semaphore::new(OPENS_AT_ONCE));
    while let Some(request) = read.receive().await? {
        match decode(request)? {
            RequestKind::Open(open) => {
                let place = places.clone().acquire_owned().await.expect("never closed");
                let (node, table, replies) = (node.clone(), table.clone(), replies.clone());
                node.runtime.clone().spawn("short-circuit-open", async move {
                    // The connection may have ended meanwhile.
                    let _ = replies.send(open_replica(&node, &table, open).await).await;
                    drop(place);
                });
            }
            RequestKind::Session(session) => sessions.add(session.session),
            RequestKind::Close(close) => table.close(close.slot as usize, close.grant),
            RequestKind::Hello(_) => bail!(Protocol, "a client of this host said hello twice"),
        }
    }
    Ok(())
}

async fn send_all(
    write: &mut ebb_runtime::local::LocalWrite,
    table: &Table,
    mut outgoing: mpsc::Receiver<Parcel>,
) -> Result<()> {
    loop {
        let reply = tokio::select! {
            biased;
            () = table.news.notified() => None,
            reply = outgoing.recv() => match reply {
                Some(reply) => Some(reply),
                None => return Ok(()),
            },
        };
        for (slot, grant) in table.take_revoked() {
            let revoked = pb::ShortCircuitRevoked { slot: slot as u64, grant };
            write.send(parcel(ReplyKind::Revoked(revoked), Vec::new())).await?;
        }
        if let Some(reply) = reply {
            write.send(reply).await?;
        }
    }
}

async fn open_replica(node: &Node, table: &Arc<Table>, open: pb::ShortCircuitOpen) -> Parcel {
    let opened = async {
        let volume = node.volume(open.volume)?;
        let slot = table.take_slot()?;
        let reader: Weak<dyn Reader> = Arc::downgrade(&(slot.clone() as Arc<dyn Reader>));
        let replica = volume
            .open_short_circuit(MetablockId::new(open.metablock), convert::version(open.min_version), reader)
            .await;
        let replica = replica.inspect_err(|_| table.close(slot.index, slot.grant))?;
        table.words.store(slot.index * SLOT_WORDS + 1, replica.version.epoch.raw());
        table.words.store(slot.index * SLOT_WORDS + 2, replica.version.seq);
        Ok((slot, replica))
    };
    match opened.await {
        Ok((slot, replica)) => {
            let opened = pb::ShortCircuitOpened {
                request: open.request,
                failure: None,
                slot: slot.index as u64,
                grant: slot.grant,
                version: Some(replica.version.into()),
                length: replica.length,
                checksums: replica.checksums,
                runs: replica.runs.iter().map(|(offset, at, len)| run(*offset, *at, *len)).collect(),
            };
            parcel(ReplyKind::Opened(opened), vec![Thing::File(replica.file)])
        }
        Err(error) => {
            let error: ebb_types::Error = error;
            let failure = Some(pb::Failure::from(&error));
            parcel(
                ReplyKind::Opened(pb::ShortCircuitOpened { request: open.request, failure, ..Default::default() }),
                Vec::new(),
            )
        }
    }
}

fn run(offset: u64, at: u64, length: u64) -> pb::ShortCircuitRun {
    pb::ShortCircuitRun { offset, at, length }
}

fn parcel(kind: ReplyKind, things: Vec<Thing>) -> Parcel {
    Parcel { bytes: pb::ShortCircuitReply { kind: Some(kind) }.encode_to_vec().into(), things }
}

fn decode(parcel: Parcel) -> Result<RequestKind> {
    let request = pb::ShortCircuitRequest::decode(parcel.bytes);
    let kind = request.ok().and_then(|request| request.kind).filter(|_| parcel.things.is_empty());
    kind.ok_or_else(|| err!(Protocol, "a client of this host sent no request"))
}

/// The slots of one connection.
struct Table {
    words: Words,
    cells: Mutex<Cells>,
    /// Something was revoked.
    news: Notify,
}

#[derive(Default)]
struct Cells {
    slots: BTreeMap<usize, Arc<Slot>>,
    last_grant: u64,
    /// Not sent to the client yet.
    revoked: Vec<(usize, u64)>,
}

/// One descriptor that a client has.
struct Slot {
    table: Weak<Table>,
    index: usize,
    grant: u64,
}

impl Reader for Slot {
    fn revoke(&self) {
        let Some(table) = self.table.upgrade() else { return };
        let mut cells = table.cells.lock();
        // I-38: the slot is cleared before a byte changes. One that the client has closed may be another's by now.
        if cells.slots.get(&self.index).is_some_and(|slot| slot.grant == self.grant) {
            table.words.store(self.index * SLOT_WORDS, 0);
            cells.revoked.push((self.index, self.grant));
            drop(cells);
            table.news.notify_one();
        }
    }
}

impl Table {
    /// A free slot, valid from now on: whatever changes before the client hears of it clears it again.
    fn take_slot(self: &Arc<Self>) -> Result<Arc<Slot>> {
        let mut cells = self.cells.lock();
        let Some(index) = (0..SLOTS).find(|index| !cells.slots.contains_key(index)) else {
            bail!(Overloaded, "this client has {SLOTS} descriptors");
        };
        cells.last_grant += 1;
        let slot = Arc::new(Slot { table: Arc::downgrade(self), index, grant: cells.last_grant });
        let before = cells.slots.insert(index, slot.clone());
        assert!(before.is_none(), "slot {index} was free");
        self.words.store(index * SLOT_WORDS, slot.grant);
        Ok(slot)
    }

    fn close(&self, index: usize, grant: u64) {
        let mut cells = self.cells.lock();
        if cells.slots.get(&index).is_some_and(|slot| slot.grant == grant) {
            cells.slots.remove(&index);
            cells.revoked.retain(|revoked| *revoked != (index, grant));
            self.words.store(index * SLOT_WORDS, 0);
        }
    }

    fn take_revoked(&self) -> Vec<(usize, u64)> {
        std::mem::take(&mut self.cells.lock().revoked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greedy_connection_loses_its_own_tickets() {
        let given = |at: u64, to: &str| Given { at: Moment(Duration::from_secs(at)), to: to.to_owned() };
        let mut tickets: BTreeMap<[u8; 16], Given> = (1..=5).map(|at| ([at as u8; 16], given(at, "greedy"))).collect();
        tickets.insert([9; 16], given(0, "modest"));
        assert_eq!(least_wanted(&tickets), Some([1; 16]), "not the oldest of all");
        tickets.retain(|ticket, _| [[5; 16], [9; 16]].contains(ticket));
        assert_eq!(least_wanted(&tickets), Some([9; 16]));
        assert_eq!(least_wanted(&BTreeMap::new()), None);
    }
}
