//! Introduces this process' session to block servers of the same host.
//!
//! If the process is killed or aborted, a block server learns of it from the kernel and informs the
//! master. The master ends the session at once, so other clients need not wait for it to expire
//! (`ebb_block::witness`). This only saves time: correctness does not depend on it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::shared::Shared;

/// Time between two rounds of introductions.
const INTERVAL: Duration = Duration::from_secs(2);
/// Number of servers to introduce the session to: one may be down when the process ends.
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
