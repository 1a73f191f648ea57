//! Frozen replicas are compressed by the file system.
//!
//! A frozen replica is never written again, so the work is paid once, and no write waits for it. Sums, offsets and open
//! descriptors stay as they are: the file system decompresses what is read.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ebb_runtime::{Compression, OpenMode};
use ebb_types::{Epoch, MetablockId};

use crate::files::replica_path;
use crate::replica::{Live, Replica};
use crate::volume::Shared;

/// Replicas looked at in one go, between which others run.
const PAGE: usize = 1000;

/// Pauses take so many times as long as the work between them: clients have most of the disk.
const PAUSE: u32 = 3;

/// Goes through all replicas once.
pub(crate) async fn round(shared: Arc<Shared>, method: Compression) {
    let mut last = None;
    while let Some(page) = page_after(&shared, last) {
        last = page.last().map(|replica| replica.id);
        for replica in page.iter().filter(|replica| is_due(&replica.live.lock())) {
            if shared.check_open().is_err() {
                return;
            }
            let begun = shared.runtime.now();
            compress(&shared, replica, method).await;
            shared.runtime.sleep(PAUSE * shared.runtime.now().since(begun)).await;
        }
        tokio::task::yield_now().await;
    }
}

fn page_after(shared: &Shared, last: Option<MetablockId>) -> Option<Vec<Arc<Replica>>> {
    let after = last.map_or(Bound::Unbounded, Bound::Excluded);
    let replicas = shared.replicas.read();
    let page: Vec<_> =
        replicas.range((after, Bound::Unbounded)).take(PAGE).map(|(_, replica)| replica.clone()).collect();
    (!page.is_empty()).then_some(page)
}

/// Whether all its bytes are in its file for good. What serves decoding alone goes soon.
fn is_due(live: &Live) -> bool {
    live.exists()
        && live.file_made
        && live.state.head.promised == Epoch::FROZEN
        && !live.compression_tried
        && !live.pulling
        && live.damage.is_none()
        && live.overlay.is_empty()
}

/// Failures are tried again after the next start: the replica is as good as before.
async fn compress(shared: &Shared, replica: &Replica, method: Compression) {
    let length = {
        let mut live = replica.live.lock();
        live.compression_tried = true;
        live.state.head.length
    };
    // A descriptor of its own: the replica's next sync reports a failed one of this, too.
    let path = replica_path(&shared.root, replica.id);
    let done = async { shared.disk.open(&path, OpenMode::Existing).await?.compress(method).await };
    match done.await {
        Ok(()) => {
            shared.compressed.fetch_add(length, Ordering::Relaxed);
        }
        Err(error) => {
            tracing::warn!(metablock = %replica.id, volume = %shared.root.display(), %error, "not compressed")
        }
    }
}
