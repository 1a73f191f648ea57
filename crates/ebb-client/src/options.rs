//! How a client behaves.

use std::time::Duration;

use ebb_types::deadlines::OPERATION_DEADLINE;
use ebb_types::{HostName, Prefetch};

use crate::waits::Waits;

/// The least that is fetched for a read that is not part of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// Chunks: what has a checksum of its own.
    #[default]
    Chunks,
    /// Blocks, as file systems do whose block is the unit of transfer and caching. For comparison.
    Blocks,
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Masters' addresses.
    pub masters: Vec<String>,
    /// Declared host; decides which replica is nearest and where first copies go.
    pub host: HostName,
    /// "mount", "cli", "worker".
    pub role: String,
    /// Bytes of read-ahead and cached blocks.
    pub read_cache_bytes: usize,
    /// How much is fetched before it is asked for, whatever a file's dataset says; none: as that says.
    pub prefetch: Option<Prefetch>,
    /// The least that is fetched.
    pub unit: Unit,
    /// Bytes written and not yet synced by all members; more makes writers wait.
    pub dirty_bytes_max: usize,
    /// How long a write may stay only in memory.
    pub commit_interval: Duration,
    /// How long an operation is retried before it fails.
    pub operation_deadline: Duration,
    /// Whether names and attributes are kept as long as the master lets it. For clients that live long: one that dies
    /// without a word makes others wait for the end of its session.
    pub keep_names: bool,
    /// Whether replicas of block servers on this host are read from their files.
    pub short_circuit: bool,
    /// Writes to shared files from so many bytes on go to the members directly, and only word of them to the proxy.
    pub direct_bytes_min: u64,
    /// Where the client shows its waits. A caller that keeps a clone can read them even while the client connects.
    pub waits: Waits,
    /// Process id, for people who look at sessions; 0 where it says nothing (a virtual world must not depend on it).
    pub pid: u32,
}

impl ClientOptions {
    /// The defaults: 256 MiB of cache, 128 MiB dirty, commits within a second, 30 s for an operation.
    #[must_use]
    pub fn new(masters: Vec<String>, host: HostName, role: impl Into<String>) -> Self {
        Self {
            masters,
            host,
            role: role.into(),
            read_cache_bytes: 256 << 20,
            prefetch: None,
            unit: Unit::Chunks,
            dirty_bytes_max: 128 << 20,
            commit_interval: Duration::from_secs(1),
            operation_deadline: OPERATION_DEADLINE,
            keep_names: true,
            short_circuit: true,
            direct_bytes_min: 256 << 10,
            waits: Waits::default(),
            pid: 0,
        }
    }
}
