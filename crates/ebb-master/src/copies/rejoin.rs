//! Members that a recovery went on without, and that are there again: with exactly what it settled they are members again
//! without a copy.
//!
//! The record tells from which version the others were stamped. A version names one content, so whoever has it, and nothing
//! beyond, has the same bytes. What it has is asked when it is to be stamped, under a promise: a write of before the recovery
//! that comes late is refused from then on. The copy that follows finds everything there, gives the replica another life, and
//! ends with the compare-and-swap that any copy ends with.

use std::sync::Arc;

use ebb_types::{Epoch, ErrorKind, Result, Version, bail};
use ebb_wire::{convert, pb};

use super::Task;
use super::repair::Condition;
use crate::shared::Shared;
use crate::view::ClusterView;

/// Who may join a set that is short: left out of it, there again, and with nothing written since.
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

/// Whether two members lie on different nodes and belong to different ones.
fn is_apart(one: &pb::Member, other: &pb::Member) -> bool {
    let (places, others) = ([one.node_id(), one.home_id()], [other.node_id(), other.home_id()]);
    places.iter().all(|place| !others.contains(place))
}

fn stamp(one: &pb::LeftOut) -> Version {
    Version::new(Epoch::new(one.epoch), 0)
}

/// Stamps a replica that was left out, if it has what its set has at `at`. `StaleVersion`: it has not, and is not asked again.
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
    let told = shared.ask(member.node_id(), &promise, shared.options.call_timeout).await?;
    let Some(told) = told.replicas.into_iter().next() else {
        bail!(NoReplica, "n{} says nothing of {}", member.node, task.metablock)
    };
    convert::failure(told.failure)?;
    let (has, base) = (convert::version(told.version), convert::version(left_out.base));
    if told.absent || (has != base && has != at) {
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
