//! Scrubbing in the background: every replica is read once in a while, slowly, so that damage is found while there are
//! other copies to heal it from.

use std::sync::Arc;
use std::time::Duration;

use ebb_store::Volume;

use crate::node::Node;

/// How the background scrub goes about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PatrolOptions {
    /// Pause after the start and after each round.
    pub pause: Duration,
    /// How fast it reads; 0: it never runs.
    pub rate_bytes_per_sec: u64,
}

impl Default for PatrolOptions {
    /// A disk of 1 TB takes 18 hours, a tenth of its rate of reading.
    fn default() -> Self {
        Self { pause: Duration::from_secs(6 * 3600), rate_bytes_per_sec: 16 << 20 }
    }
}

/// The task. Its findings go to the master with the next heartbeat, like those of readers.
pub(crate) async fn run(node: Arc<Node>, options: PatrolOptions) {
    if options.rate_bytes_per_sec == 0 {
        return;
    }
    loop {
        node.runtime.sleep(options.pause).await;
        // Not beside a scrub that an operator asked for, which must not wait for hours.
        for volume in &node.volumes {
            round(volume, options.rate_bytes_per_sec).await;
        }
    }
}

async fn round(volume: &Volume, rate_bytes_per_sec: u64) {
    // A process that never lives as long as a round takes would else read the same replicas each time.
    let Some(first) = volume.any_replica() else { return };
    let path = volume.path().display();
    match volume.scrub_from(first, rate_bytes_per_sec).await {
        Ok(found) if found.corrupt.is_empty() => {
            tracing::info!(volume = %path, replicas = found.replicas, bytes = found.bytes, "scrubbed");
        }
        Ok(found) => {
            tracing::warn!(volume = %path, replicas = found.replicas, damaged = found.corrupt.len(), "scrubbed");
        }
        Err(error) => tracing::info!(volume = %path, %error, "not scrubbed to the end"),
    }
}
