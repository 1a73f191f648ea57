//! What a run is made of.

use std::time::Duration;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct VirtualOptions {
    /// Block servers, each on a host of its own.
    pub block_servers: usize,
    /// Clients, each on a host of its own.
    pub clients: usize,
    /// Operations of one client at a time.
    pub workers_per_client: usize,
    /// Copies of each metablock.
    pub replicas: u32,
    /// How long faults go on.
    pub chaos: Duration,
    /// How long clients work on without faults.
    pub calm: Duration,
    /// How long the system may take to come to rest.
    pub rest_max: Duration,
    /// Mean pause between two faults; zero: none.
    pub fault_pause: Duration,
}

impl Default for VirtualOptions {
    fn default() -> Self {
        Self {
            block_servers: 5,
            clients: 2,
            workers_per_client: 2,
            replicas: 3,
            chaos: Duration::from_secs(60),
            calm: Duration::from_secs(10),
            rest_max: Duration::from_secs(300),
            fault_pause: Duration::from_secs(3),
        }
    }
}
