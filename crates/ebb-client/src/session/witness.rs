//! Lets block servers of this host know which session this process has.
//!
//! If the process ends without a word, killed or aborted, a server hears of it from the kernel and tells the master, which
//! ends the session at once: others need not wait for it to expire (`ebb_block::witness`). Nothing depends on it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::shared::Shared;

/// Between looks at the servers that there are, and whether they know.
const INTERVAL: Duration = Duration::from_secs(2);
/// Servers that are told: one may be down when the process ends.
const WITNESSES: usize = 2;

/// Runs until the client has disconnected.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.closing.load(Ordering::Relaxed) {
        let nodes = shared.nodes.all();
        let near = nodes.iter().filter(|node| node.host == shared.options.host.as_str() && !node.address.is_empty());
        for node in near.take(WITNESSES) {
            shared.short_circuit.introduce(&shared, &node.address).await;
        }
        shared.runtime.sleep(INTERVAL).await;
    }
}
