//! Records each call, and does nothing.

use std::collections::BTreeMap;

use ebb_types::{NodeId, Result};
use parking_lot::Mutex;

use crate::{PowerDriver, Powered, Work};

/// Pretends: for plans that are only to be looked at.
#[derive(Debug, Default)]
pub struct DryRun {
    off: Mutex<BTreeMap<NodeId, Option<u64>>>,
}

impl DryRun {
    /// Nodes that would sleep now, and when they would wake.
    #[must_use]
    pub fn asleep(&self) -> BTreeMap<NodeId, Option<u64>> {
        self.off.lock().clone()
    }
}

impl PowerDriver for DryRun {
    fn name(&self) -> &'static str {
        "dry-run"
    }

    fn sleep(&self, node: NodeId, wake_ms: Option<u64>) -> Work<'_, Result<()>> {
        Box::pin(async move {
            tracing::info!(%node, wake_ms, "would sleep");
            self.off.lock().insert(node, wake_ms);
            Ok(())
        })
    }

    fn wake(&self, node: NodeId) -> Work<'_, Result<()>> {
        Box::pin(async move {
            tracing::info!(%node, "would wake");
            self.off.lock().remove(&node);
            Ok(())
        })
    }

    fn powered(&self, node: NodeId) -> Work<'_, Result<Powered>> {
        Box::pin(async move { Ok(if self.off.lock().contains_key(&node) { Powered::Off } else { Powered::On }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_remembers_and_does_nothing() {
        let client = DryRun::default();
        let node = NodeId::new(1);
        client.sleep(node, Some(5_000)).await.unwrap();
        assert_eq!(client.powered(node).await.unwrap(), Powered::Off);
        assert_eq!(client.asleep(), BTreeMap::from([(node, Some(5_000))]));
        client.wake(node).await.unwrap();
        assert_eq!(client.powered(node).await.unwrap(), Powered::On);
    }
}
