//! How a client behaves.

use std::time::Duration;

use ebb_types::deadlines::OPERATION_DEADLINE;
use ebb_types::{CHUNK_SIZE, HostName, Prefetch};

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

/// Sizes of writes and calls, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// A longer write to a block goes in several parts: a disk writes one while the next one is on its way. A multiple of
    /// the chunk size.
    pub write_max: u64,
    /// Writes up to this go to every member from the client; larger ones through the pipeline.
    pub single_source_max: usize,
    /// Of a call to a log.
    pub log_call_max: usize,
    /// A member that lacks at least so much gets it from the log, if it is there. Less is sent.
    pub feed_min: usize,
    /// The most that a member gets from the log with one call.
    pub feed_max: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            write_max: 1 << 20,
            single_source_max: 64 << 10,
            log_call_max: 1 << 20,
            feed_min: 64 << 10,
            feed_max: 8 << 20,
        }
    }
}

impl Sizes {
    /// For a world in which a byte stands for `scale` bytes. No write is shorter than a chunk for that.
    #[must_use]
    pub fn divided_by(self, scale: u64) -> Self {
        let divided = |bytes: usize| (bytes as u64 / scale) as usize;
        let write_max = (self.write_max / scale).next_multiple_of(CHUNK_SIZE).max(CHUNK_SIZE);
        Self {
            write_max,
            single_source_max: divided(self.single_source_max),
            log_call_max: divided(self.log_call_max).max(write_max as usize),
            feed_min: divided(self.feed_min),
            feed_max: divided(self.feed_max).max(write_max as usize),
        }
    }
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
    /// Sizes of writes and calls.
    pub sizes: Sizes,
    /// Bytes written and not yet synced by all members; more makes writers wait.
    pub dirty_bytes_max: usize,
    /// How long a write may stay only in memory.
    pub commit_interval: Duration,
    /// How long an operation is retried before it fails.
    pub operation_deadline: Duration,
    /// Whether names and attributes are kept as long as the master lets it. For clients that live long: one that dies
    /// without a word makes others wait for the end of its session.
    pub keep_names: bool,
    /// Whether leases stay when the last handle of a file is closed, for its next use. If not, they go back within moments: a client
    /// that is killed makes nobody wait for the end of its session because of files that it had closed.
    pub keep_leases: bool,
    /// Whether replicas of block servers on this host are read from their files.
    pub short_circuit: bool,
    /// Writes to shared files from so many bytes on go to the members directly, and only word of them to the proxy.
    pub direct_bytes_min: u64,
    /// Where the client shows its waits. A caller that keeps a clone can read them even while the client connects.
    pub waits: Waits,
    /// Process id, for people who look at sessions; 0 where it says nothing (a virtual world must not depend on it).
    pub pid: u32,
    /// Where its process serves, for those that ask the master for it; empty if nowhere.
    pub serves_at: String,
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
            sizes: Sizes::default(),
            dirty_bytes_max: 128 << 20,
            commit_interval: Duration::from_secs(1),
            operation_deadline: OPERATION_DEADLINE,
            keep_names: true,
            keep_leases: true,
            short_circuit: true,
            direct_bytes_min: 256 << 10,
            waits: Waits::default(),
            pid: 0,
            serves_at: String::new(),
        }
    }
}
