//! Bytes that really went over connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
}
