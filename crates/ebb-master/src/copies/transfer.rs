//! Transfers of replicas, as the power plans allow. If both nodes are awake together, the target pulls from the source.
//! Otherwise a proxy fetches the replica while the source is awake, and the target pulls it from the proxy when it
//! wakes.

use std::time::Duration;

use ebb_layout::rendezvous;
use ebb_types::{ErrorKind, MetablockId, NodeId, Result, Version, bail};
use ebb_wire::{convert, pb};

use super::Task;
use super::route::Route;
use crate::recovery::run::pull_deadline;
use crate::shared::Shared;
use crate::view::need_ms;

/// Longest wait until two nodes are awake together, or one wakes, unless two intervals of the plan are longer.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Deadline of one call to ask whether a proxy has the replica.
const ATTEMPT: Duration = Duration::from_secs(8);
/// Pause between such calls.
const PAUSE: Duration = Duration::from_millis(100);
/// Time beyond the wait for the target for which a proxy keeps the replica, in case a failed copy is tried again.
const KEPT_BEYOND: Duration = Duration::from_secs(30);
/// Deadline of the message that the target has the replica.
const TAKEN_DEADLINE: Duration = Duration::from_secs(2);

/// A replica that one node should pull from another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pull {
    /// The metablock.
    pub metablock: MetablockId,
    /// Member that has the replica.
    pub source: pb::Member,
    /// Volume that should get it.
    pub target: pb::Member,
    /// The file's epoch.
    pub epoch: u64,
    /// Version that the copy must have.
    pub at: Version,
    /// Bytes of the replica.
    pub length: u64,
    /// Limit in bytes per second; 0 means none.
    pub rate: u64,
    /// The RAID set that the metablock is a part of. 0: it is read as a file's.
    pub raid_set: u64,
}

impl Pull {
    /// The pull for a set of a task.
    pub(crate) const fn of(task: &Task, source: pb::Member, target: pb::Member, at: Version) -> Self {
        let (metablock, epoch, length) = (task.metablock, task.promise(), task.record.length);
        Self { metablock, source, target, epoch, at, length, rate: 0, raid_set: 0 }
    }
}

/// Lets the target pull a replica at exactly the wanted version.
///
/// Errors: those of [`pull`]; `StaleVersion` if the copy has another version than wanted.
pub(crate) async fn pull_exactly(shared: &Shared, wanted: &Pull) -> Result<()> {
    let (version, _) = pull(shared, wanted).await?;
    if version != wanted.at {
        bail!(StaleVersion, "the copy is at {version}, committed is {}", wanted.at);
    }
    Ok(())
}

/// Lets the target pull a replica at a version or a later one. Returns version and length of the copy.
///
/// Errors: `Unavailable` if the nodes are not awake together in time, or a plan has switched one of them off.
pub(crate) async fn pull(shared: &Shared, pull: &Pull) -> Result<(Version, u64)> {
    let call = pb::PullReplica {
        metablock: pull.metablock.raw(),
        volume: pull.target.volume,
        incarnation: pull.target.incarnation,
        epoch: pull.epoch,
        source: None,
        at: Some(pull.at.into()),
        rate_bytes_per_sec: pull.rate,
        source_metablock: 0,
        raid_set: pull.raid_set,
        front_bytes: 0,
    };
    let reply = transfer(shared, pull.source, pull.target.node_id(), call, pull.length).await?;
    Ok((convert::version(reply.version), reply.length))
}

/// Carries out `call` on the best route. `call.source` is filled in here.
async fn transfer(
    shared: &Shared,
    source: pb::Member,
    target: NodeId,
    call: pb::PullReplica,
    length: u64,
) -> Result<pb::PullReplicaReply> {
    let need_ms = need_ms(&shared.options, length);
    let route = shared.with_view(|view| view.route(source.node_id(), target, length));
    match route {
        None => bail!(Unavailable, "a power plan has switched off {} or {target}", source.node_id()),
        Some(Route::Direct { wait_ms }) => {
            let wait = Duration::from_millis(wait_ms);
            if wait > wait_max(shared) {
                bail!(Unavailable, "{} and {target} serve together in {wait:?} only", source.node_id());
            }
            shared.runtime.sleep(wait).await;
            let call = pb::PullReplica { source: Some(shared.hop(source)?), ..call };
            shared.channel(target)?.call(&call, pull_deadline(shared, length)).await
        }
        Some(Route::ByProxy) => by_proxy(shared, source, target, call, length, need_ms).await,
    }
}

/// Longest wait: two intervals, because a node may be missed once, and at least a minute.
pub(super) fn wait_max(shared: &Shared) -> Duration {
    WAIT_MAX.max(interval(shared) * 2)
}

/// Interval of the plan in force; nothing without one.
pub(super) fn interval(shared: &Shared) -> Duration {
    Duration::from_millis(shared.soft().plans.at(shared.wall_ms()).map_or(0, |plan| plan.interval_ms))
}

async fn by_proxy(
    shared: &Shared,
    source: pb::Member,
    target: NodeId,
    call: pb::PullReplica,
    length: u64,
    need_ms: u64,
) -> Result<pb::PullReplicaReply> {
    let proxy = {
        let soft = shared.soft();
        let chosen = rendezvous::choose(call.metablock, soft.sharing.proxies(), |proxy| &proxy.name);
        chosen.map(|proxy| (proxy.address.clone(), proxy.name.clone()))
    };
    let Some((address, host)) = proxy else {
        bail!(Unavailable, "{} and {target} never serve together, and there is no proxy", source.node_id());
    };
    let channel = shared.connector.channel(&address);
    let patience = wait_max(shared) + pull_deadline(shared, length);
    let fetch = pb::FetchReplica {
        metablock: call.metablock,
        source: Some(source),
        at: call.at,
        length,
        patience_ms: u32::try_from((patience * 2 + KEPT_BEYOND).as_millis()).unwrap_or(u32::MAX),
        taken: false,
    };
    let until = shared.runtime.now().after(patience);
    loop {
        // If the source has died, another member may have the replica. The proxy would wait for this one until its
        // patience ends.
        if shared.soft().registry.is_dead(source.node_id()) {
            bail!(Unavailable, "{} has died", source.node_id());
        }
        let left = until.since(shared.runtime.now());
        match channel.call(&fetch, ATTEMPT.min(left)).await {
            Ok(_) => break,
            // The proxy continues its fetch after the time-out.
            Err(error) if error.kind() == ErrorKind::Timeout && left > ATTEMPT => shared.runtime.sleep(PAUSE).await,
            Err(error) => return Err(error.context("by way of the proxy")),
        }
    }
    // The start of the target's time awake, so that there is time for the whole transfer.
    let wait_ms = {
        let now_ms = shared.wall_ms();
        shared.soft().plans.next_meeting_ms(target, target, now_ms, need_ms).map(|met_ms| met_ms.saturating_sub(now_ms))
    };
    match wait_ms.map(Duration::from_millis).filter(|wait| *wait <= wait_max(shared)) {
        Some(wait) => shared.runtime.sleep(wait).await,
        None => bail!(Unavailable, "{target} is not awake for long enough to take {length} bytes"),
    }
    let hop = pb::Hop { member: Some(source), address, host };
    let pull = pb::PullReplica { source: Some(hop), ..call };
    let pulled = shared.channel(target)?.call(&pull, pull_deadline(shared, length)).await?;
    // Best effort: the proxy drops the replica in time by itself.
    let _ = channel.call(&pb::FetchReplica { taken: true, ..fetch }, TAKEN_DEADLINE).await;
    Ok(pulled)
}
