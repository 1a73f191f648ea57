//! Bytes that really went over connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_types::HostName;
use ebb_wire::pb;

/// A reading of the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Sent to other declared hosts, headers included.
    pub network_sent_bytes: u64,
    /// Received from other declared hosts.
    pub network_received_bytes: u64,
    /// Sent to processes of the own host.
    pub local_sent_bytes: u64,
    /// Received from processes of the own host.
    pub local_received_bytes: u64,
    /// Calls made and answered.
    pub calls: u64,
}

impl Traffic {
    /// Bytes between different hosts, both ways.
    #[must_use]
    pub const fn network_bytes(&self) -> u64 {
        self.network_sent_bytes + self.network_received_bytes
    }

    /// Answer to the call `Counters`, for a process that has synced `syncs` times.
    #[must_use]
    pub const fn to_reply(&self, syncs: u64) -> pb::CountersReply {
        pb::CountersReply {
            network_sent_bytes: self.network_sent_bytes,
            network_received_bytes: self.network_received_bytes,
            local_sent_bytes: self.local_sent_bytes,
            local_received_bytes: self.local_received_bytes,
            calls: self.calls,
            syncs,
        }
    }
}

impl std::ops::Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            network_sent_bytes: self.network_sent_bytes + other.network_sent_bytes,
            network_received_bytes: self.network_received_bytes + other.network_received_bytes,
            local_sent_bytes: self.local_sent_bytes + other.local_sent_bytes,
            local_received_bytes: self.local_received_bytes + other.local_received_bytes,
            calls: self.calls + other.calls,
        }
    }
}

/// Counters shared by the connections of one process (or of one task of it). Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Counters(Arc<Cells>);

#[derive(Debug, Default)]
struct Cells {
    network_sent: AtomicU64,
    network_received: AtomicU64,
    local_sent: AtomicU64,
    local_received: AtomicU64,
    calls: AtomicU64,
}

impl Counters {
    /// The counters now.
    #[must_use]
    pub fn read(&self) -> Traffic {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Traffic {
            network_sent_bytes: get(&self.0.network_sent),
            network_received_bytes: get(&self.0.network_received),
            local_sent_bytes: get(&self.0.local_sent),
            local_received_bytes: get(&self.0.local_received),
            calls: get(&self.0.calls),
        }
    }

    pub(crate) fn count_call(&self) {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// The counters of one connection: knows whether its other end is on another declared host.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    counters: Counters,
    between_hosts: bool,
}

impl Link {
    /// A link from `own` to `peer`.
    pub fn new(counters: &Counters, own: &HostName, peer: &HostName) -> Self {
        Self { counters: counters.clone(), between_hosts: own != peer }
    }

    /// A link to a peer that has proved nothing: not known to be on this host, so it counts as network.
    pub fn to_stranger(counters: &Counters) -> Self {
        Self { counters: counters.clone(), between_hosts: true }
    }

    pub fn sent(&self, bytes: u64) {
        let cells = &self.counters.0;
        let cell = if self.between_hosts { &cells.network_sent } else { &cells.local_sent };
        cell.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn received(&self, bytes: u64) {
        let cells = &self.counters.0;
        let cell = if self.between_hosts { &cells.network_received } else { &cells.local_received };
        cell.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn count_call(&self) {
        self.counters.count_call();
    }
}
