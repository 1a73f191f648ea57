//! The trash of datasets is emptied of what has been in it for its time.

use std::sync::Arc;
use std::time::Duration;

use ebb_types::{InodeId, Result, SessionId};
use ebb_wire::pb;
use pb::command::Command as Op;

use crate::fence::Fence;
use crate::shared::Shared;

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(10);
/// Maximum number of names that one command removes.
const NAMES_MAX: usize = 500;
/// Time in which sessions forget the names, or it is tried again at the next look.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(10);

/// Removes what has expired. Runs until the master stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.is_stopped() {
        match expire(&shared).await {
            Ok(NAMES_MAX) => continue,
            Ok(0) => {}
            Ok(names) => tracing::info!(names, "the trash is emptied of what has expired"),
            Err(error) => tracing::info!(%error, "expired trash could not be removed; it is tried again"),
        }
        shared.runtime.sleep(PERIOD).await;
    }
}

/// Removes some of it, and returns the number of names.
async fn expire(shared: &Arc<Shared>) -> Result<usize> {
    let expired = shared.group.snapshot().expired_names(shared.runtime.wall().0, NAMES_MAX);
    if expired.is_empty() {
        return Ok(0);
    }
    let mut touched: Vec<InodeId> = expired.iter().flat_map(|name| [name.parent, name.inode]).collect();
    touched.sort_unstable();
    touched.dedup();
    // I-27: no session has them in its cache when they go.
    let fence = Fence::raise(shared, SessionId::default(), touched);
    fence.wait_until_forgotten(FORGOTTEN_WITHIN).await?;
    let names = expired.into_iter().map(|expired| pb::expire_trash::Name {
        parent: expired.parent.raw(),
        name: expired.name,
        inode: expired.inode.raw(),
    });
    let names: Vec<_> = names.collect();
    let count = names.len();
    shared.group.propose(Op::ExpireTrash(pb::ExpireTrash { names })).await?;
    Ok(count)
}
