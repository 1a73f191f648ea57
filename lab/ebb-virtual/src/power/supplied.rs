//! The supply of a run, by its source.

use std::time::Duration;

use ebb_power::NodePower;
use ebb_power::signal::{End, Trace};
use ebb_types::Result;
use parking_lot::Mutex;

use super::PowerCluster;

/// The supply that the source gives, whatever the manager makes of it.
#[derive(Debug)]
pub struct Supplied {
    trace: Trace,
    since: Duration,
    /// The operator's share of the full power.
    forced: Mutex<Option<f64>>,
}

impl Supplied {
    /// A trace that plays again and again, from a moment of the world on.
    pub fn new(trace: Trace, since: Duration) -> Self {
        Self { trace, since, forced: Mutex::default() }
    }

    /// Watts for so many nodes.
    pub fn nodes_watts(&self, now: Duration, nodes: usize) -> f64 {
        let elapsed = now.saturating_sub(self.since).as_secs_f64();
        let share = self.forced.lock().unwrap_or_else(|| self.trace.at(elapsed, End::Repeat).value);
        share * NodePower::REFERENCE.active_watts * nodes as f64
    }

    /// An operator sets another supply.
    pub async fn force(&self, cluster: &PowerCluster, share: f64) -> Result<()> {
        cluster.set_fraction(share).await?;
        *self.forced.lock() = Some(share);
        Ok(())
    }
}
