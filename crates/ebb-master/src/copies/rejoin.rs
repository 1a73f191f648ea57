//! Members that a recovery left out and that have returned. A member with exactly the settled version rejoins without a
//! copy (I-84).
//!
//! The record has the version from which the other members were stamped. A version names one content, so a member with
//! that version, and nothing beyond it, has the same bytes. The member is asked just before its stamp, under a promise:
//! from then on it refuses late writes from before the recovery.
//!
//! The copy that follows finds everything there, gives the replica another life, and ends with the same
//! compare-and-swap as any copy.

use std::sync::Arc;

use ebb_types::{Epoch, ErrorKind, Result, Version, bail};
use ebb_wire::{convert, pb};

use super::Task;
use super::repair::Condition;
use crate::shared::Shared;
use crate::view::ClusterView;

/// Chooses a left-out member that may rejoin a short set. It must have returned, and nothing may have been written
/// since.
pub(crate) fn choose(view: &ClusterView<'_>, task: &Task, staying: &[pb::Member]) -> Option<pb::LeftOut> {
    let work = &view.soft.work;
    let is_held_back =
        |member: &pb::Member| work.parted.held_back(task.inode, view.now).any(|(node, _)| node == member.node_id());
    let is_fit = |one: &&pb::LeftOut| {
        let Some(member) = one.member else { return false };
        stamp(one) == task.record.min_version()
            && staying.iter().all(|other| is_apart(other, &member))
            && view.condition(task.metablock, &member) == Condition::Good
            && !is_held_back(&member)
            && !work.unfit.contains(&(task.metablock, member.volume_id()))
    };
    task.record.left_out.iter().find(is_fit).copied()
}

/// Whether two members have different nodes and different homes.
fn is_apart(one: &pb::Member, other: &pb::Member) -> bool {
    let (places, others) = ([one.node_id(), one.home_id()], [other.node_id(), other.home_id()]);
    places.iter().all(|place| !others.contains(place))
}

fn stamp(one: &pb::LeftOut) -> Version {
    Version::new(Epoch::new(one.epoch), 0)
}

/// Stamps a left-out replica if it equals its set at version `at`.
///
/// Errors: `StaleVersion` if it differs; it is not asked again. Errors of the call.
pub(crate) async fn restamp(shared: &Arc<Shared>, task: &Task, left_out: &pb::LeftOut, at: Version) -> Result<()> {
    if stamp(left_out) != at {
        bail!(StaleVersion, "{} was written since a member was left out", task.metablock);
    }
    let done = try_restamp(shared, task, left_out, at).await;
    if let Err(error) = &done
        && !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Disconnected)
        && let Some(member) = left_out.member
    {
        shared.soft().work.unfit.insert((task.metablock, member.volume_id()));
    }
    done
}

async fn try_restamp(shared: &Arc<Shared>, task: &Task, left_out: &pb::LeftOut, at: Version) -> Result<()> {
    let member = convert::required(left_out.member, "which member was left out")?;
    let (metablock, volume, incarnation) = (task.metablock.raw(), member.volume, member.incarnation);
    let name = pb::ReplicaName { metablock, volume, incarnation };
    let promise = pb::PromiseEpoch { epoch: left_out.epoch, replicas: vec![name] };
    let reply = shared.ask(member.node_id(), &promise, shared.options.call_timeout).await?;
    let Some(promised) = reply.replicas.into_iter().next() else {
        bail!(NoReplica, "n{} reports nothing about {}", member.node, task.metablock)
    };
    convert::failure(promised.failure)?;
    let (has, base) = (convert::version(promised.version), convert::version(left_out.base));
    if promised.absent || (has != base && has != at) {
        bail!(StaleVersion, "n{} has {} at {has}, and {base} was settled", member.node, task.metablock);
    }
    let call = pb::StampReplica {
        metablock,
        volume,
        incarnation,
        epoch: left_out.epoch,
        base: Some(has.into()),
        length: left_out.length,
    };
    let reply = shared.ask(member.node_id(), &call, shared.options.call_timeout).await?;
    if convert::version(reply.version) != at {
        bail!(StaleVersion, "a stamped replica of {} is at {}", task.metablock, convert::version(reply.version));
    }
    Ok(())
}
