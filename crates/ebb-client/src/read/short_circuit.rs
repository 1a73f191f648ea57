//! Short-circuit reads: from the files of block servers on this host, without their doing anything.
//!
//! A server hands out a replica's descriptor together with the version that the file has, the sums of its chunks and a
//! slot in shared memory, which it clears before any byte changes (`ebb_block::short_circuit`). A read looks at lease and slot
//! before and after; whatever is not as it should be, the network is asked as if there were no such thing. Nothing here
//! is an error for a reader, and nothing waits long.
//!
//! Invariant: bytes are shown only if they match the sums that the server gave for a version that the reader accepts.

mod connection;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::Moment;
use ebb_types::CHUNK_SIZE;
use ebb_wire::frame::crc32c;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::connection::{Connection, Replica};
use crate::nodes::Hop;
use crate::read::fetch::Wanted;
use crate::shared::Shared;

/// Metablocks shorter than this are read over the network: asking for a descriptor costs as much as asking for them.
const LENGTH_MIN: u64 = 128 << 10;
/// Descriptors that a client has, of all servers.
const DESCRIPTORS_MAX: usize = 256;
/// How long a read waits for a descriptor before it goes another way.
const OPEN_WAIT: Duration = Duration::from_millis(100);
/// For a connection that no read waits for.
const INTRODUCTION: Duration = Duration::from_secs(2);
/// A server that gave none is asked again after this.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The servers of this host.
#[derive(Debug)]
pub(crate) struct ShortCircuit {
    servers: Mutex<BTreeMap<String, Arc<Server>>>,
    descriptors: Arc<Semaphore>,
}

impl Default for ShortCircuit {
    fn default() -> Self {
        Self { servers: Mutex::default(), descriptors: Arc::new(Semaphore::new(DESCRIPTORS_MAX)) }
    }
}

#[derive(Debug, Default)]
struct Server {
    link: tokio::sync::Mutex<Link>,
}

#[derive(Debug, Default)]
enum Link {
    #[default]
    New,
    Up(Arc<Connection>),
    Down {
        until: Moment,
    },
}

impl ShortCircuit {
    /// What is wanted, from the file of a member of this host; none if that cannot be done right now.
    pub async fn read(&self, shared: &Arc<Shared>, wanted: &Wanted, hop: &Hop) -> Option<Bytes> {
        if !shared.options.short_circuit
            || hop.host != shared.options.host.as_str()
            || wanted.record.length < LENGTH_MIN
        {
            return None;
        }
        let open = async { Ok(self.replica(shared, wanted, hop).await) };
        let (connection, replica) = shared.runtime.timeout(OPEN_WAIT, "a descriptor", open).await.ok().flatten()?;
        if !wanted.is_believed(shared) {
            return None;
        }
        let len = wanted.len.min(replica.length.saturating_sub(wanted.offset));
        let data = match len {
            0 => Bytes::new(),
            len => replica.read(wanted.offset, len).await?,
        };
        // Ordering: after the bytes were read.
        let is_good = connection.is_valid(&replica) && wanted.is_believed(shared);
        if is_good && data.len() as u64 == len && matches(&data, &replica, wanted.offset) {
            shared.metrics.short_circuit_reads.add(1);
            shared.metrics.short_circuit_bytes.add(len);
            return Some(data);
        }
        connection.shut(&shared.runtime, &replica);
        None
    }

    async fn replica(
        &self,
        shared: &Arc<Shared>,
        wanted: &Wanted,
        hop: &Hop,
    ) -> Option<(Arc<Connection>, Arc<Replica>)> {
        let server = self.servers.lock().entry(hop.address.clone()).or_default().clone();
        let connection = server.connection(shared, &hop.address).await?;
        let replica = connection.replica(shared, &self.descriptors, wanted, hop).await?;
        Some((connection, replica))
    }

    /// Makes sure that a server of this host knows which session this process has.
    pub async fn introduce(&self, shared: &Arc<Shared>, address: &str) {
        let server = self.servers.lock().entry(address.to_owned()).or_default().clone();
        let connect = async { Ok(server.connection(shared, address).await) };
        if let Ok(Some(connection)) = shared.runtime.timeout(INTRODUCTION, "a server of this host", connect).await {
            connection.introduce(shared.session.name().id.raw());
        }
    }

    /// Closes the open replicas of these metablocks: their lease is gone.
    pub fn close(&self, metablocks: impl Iterator<Item = u64>) {
        let servers: Vec<Arc<Server>> = self.servers.lock().values().cloned().collect();
        // One that is being connected has nothing open.
        let links = servers.iter().filter_map(|server| server.link.try_lock().ok());
        let connections: Vec<Arc<Connection>> =
            links.filter_map(|link| if let Link::Up(up) = &*link { Some(up.clone()) } else { None }).collect();
        if connections.is_empty() {
            return;
        }
        for metablock in metablocks {
            connections.iter().for_each(|connection| connection.close(metablock));
        }
    }
}

impl Server {
    /// The connection, made if there is none: by one read, and the others wait for it.
    async fn connection(&self, shared: &Arc<Shared>, address: &str) -> Option<Arc<Connection>> {
        let mut link = self.link.lock().await;
        match &*link {
            Link::Up(connection) if connection.is_alive() => return Some(connection.clone()),
            Link::Down { until } if shared.runtime.now() < *until => return None,
            _ => {}
        }
        // Cancel-safety: a read that gave up waiting leaves a server that is not asked again at once.
        *link = Link::Down { until: shared.runtime.now().after(RETRY_AFTER) };
        match Connection::open(shared, address).await {
            Ok(connection) => {
                *link = Link::Up(connection.clone());
                Some(connection)
            }
            Err(error) => {
                tracing::debug!(address, %error, "no descriptors from a server of this host");
                None
            }
        }
    }
}

fn matches(data: &[u8], replica: &Replica, offset: u64) -> bool {
    let first = (offset / CHUNK_SIZE) as usize;
    let sums = replica.checksums.get(first..).unwrap_or_default();
    let chunks = data.chunks(CHUNK_SIZE as usize);
    chunks.len() <= sums.len() && chunks.zip(sums).all(|(chunk, sum)| crc32c(chunk) == *sum)
}
