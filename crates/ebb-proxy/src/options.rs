//! Settings for operators.

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
    /// The address to tell the master, if it is not the one listened on.
    pub advertise: Option<String>,
    /// Identity of this process: cluster, host and role ("proxy").
    pub identity: Identity,
    /// Name of the proxy in the cluster. It is the same for each process of it, and files are assigned by it.
    pub name: String,
    /// The master's own answer whether a client's session lives. Without it, the masters are asked over the network.
    pub sessions: Option<Sessions>,
    /// A file that at most one client has used for so long goes back to exclusive leases. The default is three seconds.
    /// This is far longer than the pauses of programs that take turns. It is short enough that a program that is left
    /// alone is soon fast again.
    pub quiet_time: Duration,
    /// Interval of registrations at the masters. A new master process knows the proxy after this time.
    pub register_every: Duration,
    /// Most files that are held at a time. Further ones stay exclusive.
    pub files_max: usize,
    /// Most bytes of operations in memory. Further operations wait.
    pub operation_bytes_max: usize,
    /// Most bytes of held calls, and of answers that wait for their callers. Further calls wait.
    pub held_bytes_max: usize,
    /// Most bytes of replicas on their way between nodes that are never awake together: two of the usual metablocks.
    /// Further ones are refused, and tried again later.
    pub stopover_bytes_max: usize,
    /// Most bytes of prefetched and cached blocks.
    pub read_cache_bytes: usize,
    /// Most bytes that some member has not synced. More makes writers wait.
    pub dirty_bytes_max: usize,
    /// Bounds of the server.
    pub server: ServerOptions,
}

impl ProxyOptions {
    /// The defaults for the only proxy, in the master's process.
    #[must_use]
    pub fn new(identity: Identity, masters: Vec<String>, listen: impl Into<String>, sessions: Sessions) -> Self {
        Self { sessions: Some(sessions), ..Self::apart(identity, masters, listen, "proxy") }
    }

    /// The defaults for a proxy in a process of its own, with its name.
    #[must_use]
    pub fn apart(identity: Identity, masters: Vec<String>, listen: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            masters,
            listen: listen.into(),
            advertise: None,
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
