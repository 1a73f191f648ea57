//! Before sleep: no new work is taken, work in progress ends, everything is synced, and only then the rest is
//! confirmed.
//!
//! Rest ends by itself: it is given for a time, counted on the clock that goes on in sleep. A node that was never put to
//! sleep after all, because its power client died, works again when that time is over.

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{Result, bail};
use ebb_wire::{Method, pb};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::node::Node;

/// How often it is looked whether requests have ended.
const LOOK: Duration = Duration::from_millis(1);
/// Longest rest that is confirmed. A node that sleeps longer is past its end when it wakes.
const REST_MAX: Duration = Duration::from_secs(60);

/// Until when no work is taken.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    until: Mutex<Option<Moment>>,
    /// It is over: the master is to hear of it at once.
    pub(crate) woken: Notify,
}

impl Node {
    /// Refuses work while the node is about to sleep. `Unavailable`: nothing was done, and another node may be asked.
    pub(crate) fn check_awake(&self, method: Method) -> Result<()> {
        if matches!(method, Method::Rest | Method::Counters) {
            return Ok(());
        }
        let until = *self.resting.until.lock();
        if until.is_some_and(|until| self.runtime.now() < until) {
            bail!(Unavailable, "{} is about to sleep, by the power plan", self.title());
        }
        Ok(())
    }
}

/// Answers `Rest`. `Busy` if requests or syncs do not end in time: then the node goes on working.
pub(crate) async fn rest(node: &Arc<Node>, message: pb::Rest) -> Result<pb::Empty> {
    if message.ms == 0 {
        *node.resting.until.lock() = None;
        node.resting.woken.notify_one();
        return Ok(pb::Empty {});
    }
    let span = Duration::from_millis(message.ms.into()).min(REST_MAX);
    let until = node.runtime.now().after(span);
    *node.resting.until.lock() = Some(until);
    let ended = node.runtime.timeout(span, "requests in progress", finish(node)).await;
    if let Err(error) = ended {
        *node.resting.until.lock() = None;
        bail!(Busy, "{} has no rest within {span:?}: {error}", node.title());
    }
    Ok(pb::Empty {})
}

async fn finish(node: &Arc<Node>) -> Result<()> {
    // This very request is in progress too.
    while node.load() > 1 {
        node.runtime.sleep(LOOK).await;
    }
    for volume in &node.volumes {
        // A poisoned one promises nothing any more.
        if volume.poisoned().is_none() {
            volume.flush().await?;
        }
    }
    Ok(())
}
