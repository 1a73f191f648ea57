//! What an operator may set.

use std::time::Duration;

use ebb_rpc::{Identity, ServerOptions};

use crate::sessions::Sessions;

/// Settings of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// Masters' addresses.
    pub masters: Vec<String>,
    /// `ip:port`; port 0 for any.
    pub listen: String,
    /// Cluster, secret, host and role ("proxy") of this process.
    pub identity: Identity,
    /// What it is called in the cluster, from one process to the next: files go by it.
    pub name: String,
    /// Whether a client's session lives, as the master has it; none: masters elsewhere are asked.
    pub sessions: Option<Sessions>,
    /// A file that no more than one client has used for so long goes back to exclusive leases. Three seconds: far longer
    /// than the pauses of programs that take turns, short enough that a program that is left alone is soon fast again.
    pub quiet_time: Duration,
    /// How often the master is told where this proxy is. A new master process hears of it that much later.
    pub register_every: Duration,
    /// Files held at a time; further ones stay exclusive.
    pub files_max: usize,
    /// Bytes of operations in memory at a time; further ones wait.
    pub operation_bytes_max: usize,
    /// Bytes of calls that are held for nodes that sleep, and of answers that wait for their callers, at a time; further
    /// ones wait.
    pub held_bytes_max: usize,
    /// Bytes of replicas on their way between nodes that are never awake together: two of the usual metablocks. Further ones
    /// are refused, and tried again later.
    pub stopover_bytes_max: usize,
    /// Bytes of read-ahead and cached blocks.
    pub read_cache_bytes: usize,
    /// Bytes that not all members have synced; more makes writers wait.
    pub dirty_bytes_max: usize,
    /// Bounds of the server.
    pub server: ServerOptions,
}

impl ProxyOptions {
    /// The defaults for the only proxy, in the master's process: an identity, the masters, an address to listen at, and who
    /// knows which sessions live.
    #[must_use]
    pub fn new(identity: Identity, masters: Vec<String>, listen: impl Into<String>, sessions: Sessions) -> Self {
        Self { sessions: Some(sessions), ..Self::apart(identity, masters, listen, "proxy") }
    }

    /// The defaults for one in a process of its own, and what it is called.
    #[must_use]
    pub fn apart(identity: Identity, masters: Vec<String>, listen: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            masters,
            listen: listen.into(),
            identity,
            sessions: None,
            quiet_time: Duration::from_secs(3),
            register_every: Duration::from_secs(1),
            files_max: 4096,
            operation_bytes_max: 64 << 20,
            held_bytes_max: 64 << 20,
            stopover_bytes_max: 129 << 20,
            read_cache_bytes: 64 << 20,
            dirty_bytes_max: 64 << 20,
            server: ServerOptions::default(),
        }
    }
}
