//! Bytes that really went over connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_types::HostName;
use ebb_wire::pb;
use parking_lot::Mutex;

/// Most hosts whose bytes are counted by themselves. Bytes of further ones are network bytes all the same.
const PEERS_MAX: usize = 65_536;

/// A reading of the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Sent to other declared hosts, headers included.
    pub network_sent_bytes: u64,
    /// Received from other declared hosts.
    pub network_received_bytes: u64,
    /// Of what was sent to other hosts: to those of the own sub-rack.
    pub sub_rack_sent_bytes: u64,
    /// Of what was received from other hosts: from those of the own sub-rack.
    pub sub_rack_received_bytes: u64,
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

    /// Of these, bytes between hosts of one sub-rack.
    #[must_use]
    pub const fn sub_rack_bytes(&self) -> u64 {
        self.sub_rack_sent_bytes + self.sub_rack_received_bytes
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
            sub_rack_sent_bytes: self.sub_rack_sent_bytes,
            sub_rack_received_bytes: self.sub_rack_received_bytes,
        }
    }
}

impl std::ops::Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            network_sent_bytes: self.network_sent_bytes + other.network_sent_bytes,
            network_received_bytes: self.network_received_bytes + other.network_received_bytes,
            sub_rack_sent_bytes: self.sub_rack_sent_bytes + other.sub_rack_sent_bytes,
            sub_rack_received_bytes: self.sub_rack_received_bytes + other.sub_rack_received_bytes,
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
    /// By the other end's host, of other hosts alone.
    peers: Mutex<BTreeMap<HostName, Arc<PeerCells>>>,
    /// Other hosts of the own sub-rack.
    sub_rack: Mutex<BTreeSet<HostName>>,
}

/// What went to one host, and came from it.
#[derive(Debug, Default)]
struct PeerCells {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counters {
    /// The counters now.
    #[must_use]
    pub fn read(&self) -> Traffic {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let (mut sub_rack_sent_bytes, mut sub_rack_received_bytes) = (0, 0);
        {
            let (sub_rack, peers) = (self.0.sub_rack.lock(), self.0.peers.lock());
            for cells in sub_rack.iter().filter_map(|host| peers.get(host)) {
                sub_rack_sent_bytes += get(&cells.sent);
                sub_rack_received_bytes += get(&cells.received);
            }
        }
        Traffic {
            sub_rack_sent_bytes,
            sub_rack_received_bytes,
            network_sent_bytes: get(&self.0.network_sent),
            network_received_bytes: get(&self.0.network_received),
            local_sent_bytes: get(&self.0.local_sent),
            local_received_bytes: get(&self.0.local_received),
            calls: get(&self.0.calls),
        }
    }

    /// From now on these hosts are those of the own sub-rack. What was carried before counts by them, too.
    pub fn set_sub_rack(&self, hosts: impl IntoIterator<Item = HostName>) {
        *self.0.sub_rack.lock() = hosts.into_iter().collect();
    }

    fn peer(&self, host: &HostName) -> Arc<PeerCells> {
        let mut peers = self.0.peers.lock();
        match peers.get(host) {
            Some(cells) => Arc::clone(cells),
            None if peers.len() >= PEERS_MAX => Arc::default(),
            None => Arc::clone(peers.entry(host.clone()).or_default()),
        }
    }

    pub(crate) fn count_call(&self) {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// The counters of one connection: knows whether its other end is on another declared host, and on which.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    counters: Counters,
    between_hosts: bool,
    peer: Option<Arc<PeerCells>>,
}

impl Link {
    /// A link from `own` to `peer`.
    pub fn new(counters: &Counters, own: &HostName, peer: &HostName) -> Self {
        let between_hosts = own != peer;
        Self { counters: counters.clone(), between_hosts, peer: between_hosts.then(|| counters.peer(peer)) }
    }

    /// A link to a peer that has proved nothing: not known to be on this host, so it counts as network.
    pub fn to_stranger(counters: &Counters) -> Self {
        Self { counters: counters.clone(), between_hosts: true, peer: None }
    }

    pub fn sent(&self, bytes: u64) {
        let cells = &self.counters.0;
        let cell = if self.between_hosts { &cells.network_sent } else { &cells.local_sent };
        cell.fetch_add(bytes, Ordering::Relaxed);
        if let Some(peer) = &self.peer {
            peer.sent.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub fn received(&self, bytes: u64) {
        let cells = &self.counters.0;
        let cell = if self.between_hosts { &cells.network_received } else { &cells.local_received };
        cell.fetch_add(bytes, Ordering::Relaxed);
        if let Some(peer) = &self.peer {
            peer.received.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub fn count_call(&self) {
        self.counters.count_call();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_hosts_of_the_sub_rack_are_a_part_of_the_network_s() {
        let counters = Counters::default();
        let host = |name: &str| HostName::new(name);
        let link = |peer: &str| Link::new(&counters, &host("h1"), &host(peer));
        link("h1").sent(1);
        link("lsn1").sent(10);
        link("lsn1").received(100);
        link("h9").received(1_000);
        Link::to_stranger(&counters).sent(10_000);
        assert_eq!((counters.read().network_bytes(), counters.read().sub_rack_bytes()), (11_110, 0));
        counters.set_sub_rack([host("lsn1"), host("h2")]);
        let read = counters.read();
        assert_eq!((read.sub_rack_sent_bytes, read.sub_rack_received_bytes), (10, 100), "also what went before");
        assert_eq!((read.network_bytes(), read.local_sent_bytes), (11_110, 1));
        link("h2").sent(5);
        assert_eq!((read + counters.read()).sub_rack_bytes(), 225);
    }
}
