//! Before a client's node sleeps, the client gives back everything that others would wait for.
//!
//! A client that sleeps answers no recall and forgets nothing. Others would wait for its node to wake, or for its
//! session to end: a writer for its read leases, a reader for its write lease, the maker of a name for a directory
//! that it keeps. So shortly before its node stops serving by the plan, the client flushes, commits and gives leases
//! back, has the kernel drop its pages, and forgets names and attributes.
//!
//! ```text
//!  serves ──(the plan: soon no more)──► resting: gives back; takes nothing anew ──(serves again)──► serves
//! ```
//! What still waits for members that sleep stays, with its lease: it cannot be given back before they have it. Nothing
//! depends on all this being done in time: a lease that is left over is recalled, or ends with its session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_power::Awake;
use ebb_power::work::rest_ms;
use ebb_runtime::Moment;
use ebb_types::{NodeId, Result};
use tokio::sync::Notify;

use crate::inode::{Core, Inode};
use crate::lease::hold::Lease;
use crate::session::poll::PollNews;
use crate::shared::Shared;

/// Between looks at the plans, which may change.
const LOOK: Duration = Duration::from_secs(1);
/// Files that are in use and given back at a time.
const FILES_MAX: usize = 32;

/// Whether this client is resting.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    is: AtomicBool,
    /// It is giving back: what takes longer than its node served goes on when it wakes.
    gives: AtomicBool,
    over: Notify,
}

/// A client's next action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Looks again after this.
    Serve(Duration),
    /// Give back as much as possible within this time.
    Rest(Duration),
}

/// `awake`: how long its node still serves.
fn next(awake: Awake, interval_ms: u64) -> Next {
    let ahead = Duration::from_millis(rest_ms(interval_ms));
    match awake.left() {
        Some(left) if left <= ahead => Next::Rest(left),
        Some(left) => Next::Serve((left - ahead).min(LOOK)),
        None => Next::Serve(LOOK),
    }
}

/// Runs until the client disconnects.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.closing.load(Ordering::Relaxed) {
        match shared.next_rest() {
            Next::Serve(wait) => {
                shared.resting.stop_resting();
                shared.runtime.sleep(wait).await;
            }
            Next::Rest(within) => {
                if shared.resting.start_resting() {
                    let (own, until) = (shared.clone(), shared.runtime.now().after(within));
                    shared.runtime.spawn("give back before sleeping", async move { own.rest(until).await });
                }
                let wakes = shared.own_wake().map_or(LOOK, |wake| wake.min(LOOK));
                shared.runtime.sleep(wakes.max(within).max(Duration::from_millis(1))).await;
            }
        }
    }
    shared.resting.stop_resting();
}

impl Resting {
    /// True: it served until now, and nothing is being given back yet.
    fn start_resting(&self) -> bool {
        !self.is.swap(true, Ordering::Relaxed) && !self.gives.swap(true, Ordering::Relaxed)
    }

    fn stop_resting(&self) {
        if self.is.swap(false, Ordering::Relaxed) {
            self.over.notify_waiters();
        }
    }
}

impl Shared {
    fn next_rest(&self) -> Next {
        let Some(own) = self.nodes.on_host(self.options.host.as_str()) else { return Next::Serve(LOOK) };
        let interval_ms = self.plans.lock().at(self.wall_ms()).map_or(0, |plan| plan.interval_ms);
        next(self.awake_for(NodeId::new(own)), interval_ms)
    }

    fn own_wake(&self) -> Option<Duration> {
        self.wakes_in(self.nodes.on_host(self.options.host.as_str())?)
    }

    /// Waits, while this client's node is about to sleep or sleeps, until it serves again: a lease taken now would
    /// not go back before. Fails at an operation's deadline.
    pub async fn serving(&self) -> Result<()> {
        if !self.resting.is.load(Ordering::Relaxed) {
            return Ok(());
        }
        let waiting = async {
            loop {
                let over = self.resting.over.notified();
                tokio::pin!(over);
                over.as_mut().enable();
                if !self.resting.is.load(Ordering::Relaxed) {
                    return Ok(());
                }
                over.await;
            }
        };
        self.runtime.timeout(self.session.deadline(), "waiting for this client's node to be awake", waiting).await
    }

    /// Gives back all that does not wait for members that sleep, and is not in use until then.
    async fn rest(self: &Arc<Self>, until: Moment) {
        self.metrics.rests.add(1);
        let inodes = self.inodes().into_iter();
        let files: Vec<Arc<Inode>> = inodes.filter(|inode| self.can_rest(&inode.core.lock())).collect();
        self.release_files(&files).await;
        for part in files.chunks(FILES_MAX) {
            let rest = |inode: &Arc<Inode>| {
                let (shared, inode) = (self.clone(), inode.clone());
                self.runtime
                    .spawn("give a lease back before sleeping", async move { shared.rest_file(&inode, until).await })
            };
            for task in part.iter().map(rest).collect::<Vec<_>>() {
                if let Err(error) = task.join().await.and_then(|rested| rested) {
                    tracing::debug!(%error, "giving a lease back before sleeping");
                }
            }
        }
        self.give_back_idle().await;
        // The answer brings a number under which all is forgotten, and the poll loop does it.
        let news = PollNews { rest: true, ..PollNews::default() };
        if let Err(error) = self.poll_once(0, news).await {
            tracing::debug!(%error, "telling that this client is going to rest");
        }
        self.resting.gives.store(false, Ordering::Relaxed);
    }

    fn can_rest(&self, core: &Core) -> bool {
        let sleeps = |node| self.wakes_in(node) != Some(Duration::ZERO);
        let waits = |channel: &crate::write::channel::Channel| {
            channel.is_unsettled() && channel.peers.iter().any(|peer| sleeps(peer.member.node))
        };
        core.hold.lease() != Lease::None && !core.channels.values().any(waits)
    }

    /// As for a recall, but one attempt; and bytes are flushed before others have to wait at the gate.
    async fn rest_file(self: &Arc<Self>, inode: &Arc<Inode>, until: Moment) -> Result<()> {
        if inode.core.lock().hold.lease() == Lease::None {
            return Ok(());
        }
        self.flush(inode).await?;
        self.give_back_now(inode, until).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_rests_shortly_before_its_node_does() {
        let ms = Duration::from_millis;
        assert_eq!(next(Awake::Always, 2000), Next::Serve(LOOK), "no plan lets it sleep");
        assert_eq!(next(Awake::ForMs(5000), 60_000), Next::Serve(LOOK), "the plan may change before");
        assert_eq!(next(Awake::ForMs(800), 60_000), Next::Serve(ms(300)), "half a second of a minute");
        assert_eq!(next(Awake::ForMs(500), 60_000), Next::Rest(ms(500)));
        assert_eq!(next(Awake::ForMs(60), 2000), Next::Serve(ms(10)), "a fortieth of two seconds");
        assert_eq!(next(Awake::ForMs(20), 100), Next::Rest(ms(20)));
        assert_eq!(next(Awake::Asleep, 2000), Next::Rest(ms(0)), "it sleeps");
    }
}
