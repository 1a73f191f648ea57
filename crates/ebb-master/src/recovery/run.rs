//! Execution of recoveries: promises, pulls, stamps and the record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Reply;
use ebb_types::{Epoch, Error, ErrorKind, InodeId, MetablockId, NodeId, Result, Version, VolumeId, bail, err};
use ebb_wire::{convert, pb};
use pb::command::Command as Op;
use tokio::sync::Semaphore;

use super::wait::{Silence, patience};
use super::{Answer, Case, ReplicaState, Settle, Step, plan, settled, size};
use crate::copies::Reason;
use crate::copies::transfer::{Pull, pull_exactly};
use crate::handoff;
use crate::shared::Shared;
use crate::work::{Attempt, CopyInProgress, ReplicaKey, replica_key};

/// Maximum number of replicas in one call.
const NAMES_MAX: usize = 2000;
/// Metablocks of one file that are made equal at a time.
const SETTLING_MAX: usize = 8;
/// Pause before a failed recovery is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Recovers files as they are queued, a bounded number at a time. Runs until the master stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let slots = Arc::new(Semaphore::new(shared.options.recoveries_max));
    while !shared.is_stopped() {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let next = shared.soft().work.take_recovery(shared.runtime.now());
        match next {
            Some(inode) => {
                let task = Arc::clone(&shared);
                shared.runtime.spawn("recovery", async move {
                    recover_once(&task, inode).await;
                    drop(slot);
                });
            }
            None => {
                drop(slot);
                tokio::select! {
                    biased;
                    () = shared.state.wake.recovery.notified() => {}
                    () = shared.runtime.sleep(PAUSE) => {}
                }
            }
        }
    }
}

/// One attempt to recover a file, with the bookkeeping of its outcome.
async fn recover_once(shared: &Arc<Shared>, inode: InodeId) {
    let done = recover(shared, inode).await;
    match &done {
        // A recovery that waits for a node gives up its slot, or it would hold up the others.
        Ok(Ended::Silent(nodes)) => {
            tracing::info!(%inode, ?nodes, "recovery waits for silent nodes");
            shared.soft().work.on_recovery_waits(inode, shared.runtime.now());
            return;
        }
        Ok(Ended::Done) => {}
        Err(error) => {
            tracing::info!(%inode, %error, "an attempt at recovery failed; it is repeated");
            shared.runtime.sleep(PAUSE).await;
        }
    }
    let attempt = if done.is_ok() { Attempt::Done } else { Attempt::Failed };
    shared.soft().work.on_recovery_ended(inode, attempt);
}

/// Outcome of an attempt.
enum Ended {
    /// Nothing is left to recover.
    Done,
    /// These nodes have members and did not answer, but are not dead.
    Silent(BTreeSet<NodeId>),
}

/// One attempt, under an epoch of its own. After an error it is tried again later.
async fn recover(shared: &Arc<Shared>, inode: InodeId) -> Result<Ended> {
    let Some(expected_epoch) = needed(shared, inode) else { return Ok(Ended::Done) };
    let members: BTreeSet<NodeId> = {
        let machine = shared.group.machine();
        let metablocks = machine.shown_metablocks(inode).unwrap_or_default();
        let asked = metablocks.iter().filter(|record| record.frozen.is_none());
        asked.flat_map(|record| &record.members).map(pb::Member::node_id).collect()
    };
    // A node that is known to be silent is not asked, because each such call would take its whole deadline. I-83.
    let silent = waited_for(shared, inode, members, |silence| silence.is_known());
    if !silent.is_empty() {
        return Ok(Ended::Silent(silent));
    }
    let begin = pb::BeginRecovery { inode: inode.raw(), expected_epoch: expected_epoch.raw() };
    let epoch = match shared.group.propose(Op::BeginRecovery(begin)).await {
        Ok(Reply::Epoch(epoch)) => epoch,
        Ok(other) => bail!(Internal, "BeginRecovery was answered with {other:?}"),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => return Ok(Ended::Done),
        Err(error) => return Err(error),
    };
    // The lease ends with the new epoch, whatever the outcome of the recovery.
    {
        let mut soft = shared.soft();
        let work = &mut soft.work;
        work.abandoned.remove(&inode);
        work.ahead.remove(&inode);
    }
    let (metablocks, trim) = {
        let machine = shared.group.machine();
        let Ok(mut metablocks) = machine.shown_metablocks(inode) else { return Ok(Ended::Done) };
        // S-10: what is frozen has no writer, and its members have promised more than this epoch, or a snapshot reads them.
        metablocks.retain(|record| record.frozen.is_none());
        (metablocks, machine.pending_trim(inode))
    };
    // Ordering: the log ends the old epoch before members are asked. Everything that the holder may have acknowledged
    // is then in the handoff log, or with every member.
    let logged = handoff::gather(shared, inode, epoch).await?;
    let (mut answers, unreached) = promise(shared, epoch, &metablocks).await;
    let silent = waited_for(shared, inode, unreached, |_| true);
    if !silent.is_empty() {
        return Ok(Ended::Silent(silent));
    }
    if handoff::replay(shared, epoch, &metablocks, &answers, &logged).await? {
        (answers, _) = promise(shared, epoch, &metablocks).await;
    }
    let mut settles = Vec::new();
    for record in metablocks {
        let answers = record
            .members
            .iter()
            .map(|member| Answer { member: *member, held: answers.get(&replica_key(&record, member)).copied() });
        let case = Case { answers: answers.collect(), trim, record: record.clone() };
        let step = plan(&case);
        tracing::trace!(%inode, %epoch, ?case, ?step, "answers of the members");
        match step {
            Step::Free { .. } => {}
            Step::Wait { reason } => bail!(Unavailable, "{reason}"),
            Step::Settle(settle) => settles.push(settle),
        }
    }
    let written = settles.iter().any(Settle::is_ahead);
    let (metablocks, unreached) = settle_all(shared, epoch, settles).await?;
    // I-83: a member that promised and fell silent before its stamp is waited for like one that never answered.
    let silent = waited_for(shared, inode, unreached, |_| true);
    if !silent.is_empty() {
        return Ok(Ended::Silent(silent));
    }
    if let Some(record) = metablocks.iter().find(|record| record.members.is_empty()) {
        bail!(Unavailable, "no member of m{} was stamped", record.id);
    }
    finish(shared, inode, epoch, metablocks, written).await.map(|()| Ended::Done)
}

/// Nodes among these that the recovery waits for: neither dead nor off by plan, and not waited for too long already.
/// `counts` selects silences.
fn waited_for(
    shared: &Shared,
    inode: InodeId,
    nodes: BTreeSet<NodeId>,
    counts: impl Fn(&Silence) -> bool,
) -> BTreeSet<NodeId> {
    let longest = patience(shared.options.dead_time, shared.options.session_ttl);
    shared.with_view(|view| {
        let registry = &view.soft.registry;
        let waited = view.soft.work.waiting.span(inode, view.now);
        let is_waited_for = |node: &NodeId| {
            let silence =
                Silence { state: registry.state(*node), late: registry.is_missed(*node), off: view.is_off(*node) };
            counts(&silence) && silence.is_waited_for(waited, longest)
        };
        nodes.into_iter().filter(is_waited_for).collect()
    })
}

/// The file's epoch, if it still needs recovery.
fn needed(shared: &Shared, inode: InodeId) -> Option<Epoch> {
    let machine = shared.group.machine();
    let attr = machine.attr(inode).ok()?;
    let holder = machine.holder(inode);
    let soft = shared.soft();
    let (abandoned, ahead) = (soft.work.abandoned.contains(&inode), soft.work.ahead.contains(&inode));
    let orphaned = holder.is_some_and(|holder| abandoned || !soft.sessions.contains(holder));
    (attr.size_unknown || orphaned || ahead).then(|| Epoch::new(attr.epoch))
}

/// Makes all members promise to refuse lower epochs, and asks for their versions. A member without a good answer has no
/// entry. Returns also the nodes that were not reached at all.
// I-8: the members keep the promise through crashes.
async fn promise(
    shared: &Arc<Shared>,
    epoch: Epoch,
    metablocks: &[pb::Metablock],
) -> (BTreeMap<ReplicaKey, ReplicaState>, BTreeSet<NodeId>) {
    let mut by_node: BTreeMap<NodeId, Vec<pb::ReplicaName>> = BTreeMap::new();
    for record in metablocks {
        for member in &record.members {
            let name = pb::ReplicaName { metablock: record.id, volume: member.volume, incarnation: member.incarnation };
            by_node.entry(member.node_id()).or_default().push(name);
        }
    }
    let mut calls = Vec::new();
    for (node, names) in by_node {
        for names in names.chunks(NAMES_MAX) {
            let call = pb::PromiseEpoch { epoch: epoch.raw(), replicas: names.to_vec() };
            let shared = Arc::clone(shared);
            let task = shared.clone().runtime.spawn("promise", async move {
                shared.awake(node).await?;
                shared.channel(node)?.call(&call, shared.options.call_timeout).await
            });
            calls.push((node, task));
        }
    }
    let (mut answers, mut unreached) = (BTreeMap::new(), BTreeSet::new());
    for (node, call) in calls {
        match call.join().await {
            Ok(Ok(reply)) => answers.extend(reply.replicas.into_iter().filter_map(promised)),
            Ok(Err(error)) if error.kind() == ErrorKind::StaleEpoch => {}
            _ => drop(unreached.insert(node)),
        }
    }
    (answers, unreached)
}

fn promised(replica: pb::PromisedReplica) -> Option<(ReplicaKey, ReplicaState)> {
    let key = (MetablockId::new(replica.metablock), VolumeId::new(replica.volume));
    match convert::failure(replica.failure) {
        // I-10: only the recorded incarnation of a volume may say so. Another incarnation answers with a failure.
        Ok(()) if replica.absent => Some((key, ReplicaState { version: Version::ZERO, length: 0 })),
        Ok(()) => Some((key, ReplicaState { version: convert::version(replica.version), length: replica.length })),
        Err(error) => {
            tracing::info!(metablock = replica.metablock, volume = replica.volume, %error, "a member refused to promise the new epoch");
            None
        }
    }
}

/// Makes the members of all metablocks equal, and stamps them. Returns the new records, and the nodes of members that
/// did not answer.
async fn settle_all(
    shared: &Arc<Shared>,
    epoch: Epoch,
    settles: Vec<Settle>,
) -> Result<(Vec<pb::Metablock>, BTreeSet<NodeId>)> {
    let slots = Arc::new(Semaphore::new(SETTLING_MAX));
    let tasks: Vec<_> = settles
        .into_iter()
        .map(|settle| {
            let (shared, slots) = (Arc::clone(shared), Arc::clone(&slots));
            shared.clone().runtime.spawn("settle", async move {
                let _slot = slots.acquire_owned().await.expect("this semaphore is never closed");
                settle_one(&shared, epoch, settle).await
            })
        })
        .collect();
    let (mut metablocks, mut unreached) = (Vec::new(), BTreeSet::new());
    for task in tasks {
        let (metablock, mut silent) = task.join().await??;
        metablocks.push(metablock);
        unreached.append(&mut silent);
    }
    Ok((metablocks, unreached))
}

/// Makes the members of one metablock equal, and stamps them. Members that fail are left out.
async fn settle_one(shared: &Arc<Shared>, epoch: Epoch, settle: Settle) -> Result<(pb::Metablock, BTreeSet<NodeId>)> {
    assert!(!settle.sources.is_empty(), "a version of m{} was found, so some member has it", settle.record.id);
    let mut unreached = BTreeSet::new();
    let mut equal = settle.sources.clone();
    for member in &settle.lagging {
        match pull_from_any(shared, epoch, &settle, *member).await {
            Ok(()) => equal.push(*member),
            Err(error) => {
                tracing::info!(metablock = settle.record.id, node = member.node, %error, "a member is left out of recovery: its pull failed");
                if is_silence(&error) {
                    unreached.insert(member.node_id());
                }
            }
        }
    }
    // Ordering: a member is stamped only after it is equal, because the stamp says that it is.
    let stamps: Vec<_> = equal
        .into_iter()
        .map(|member| {
            let call = pb::StampReplica {
                metablock: settle.record.id,
                volume: member.volume,
                incarnation: member.incarnation,
                epoch: epoch.raw(),
                base: Some(settle.base.into()),
                length: settle.length,
            };
            let shared = Arc::clone(shared);
            let task = shared.clone().runtime.spawn("stamp", async move {
                shared.awake(member.node_id()).await?;
                let reply = shared.channel(member.node_id())?.call(&call, shared.options.call_timeout).await?;
                let version = convert::version(reply.version);
                if version != Version::new(epoch, 0) {
                    bail!(StaleVersion, "stamped replica is at {version}");
                }
                Ok(())
            });
            (member, task)
        })
        .collect();
    let mut stamped = Vec::new();
    for (member, stamp) in stamps {
        match stamp.join().await? {
            Ok(()) => stamped.push(member),
            Err(error) => {
                tracing::info!(metablock = settle.record.id, node = member.node, %error, "a member is left out of recovery: its stamp failed");
                if is_silence(&error) {
                    unreached.insert(member.node_id());
                }
            }
        }
    }
    // Members go back into the record's order, which is the order of the write pipeline.
    stamped.sort_by_key(|member| settle.record.members.iter().position(|known| known == member));
    Ok((settled(&settle, epoch, stamped), unreached))
}

/// Whether the error means that the node did not answer, and not that it refused.
fn is_silence(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unreachable
            | ErrorKind::Disconnected
            | ErrorKind::Timeout
            | ErrorKind::Unavailable
            | ErrorKind::ShuttingDown
    )
}

/// Lets a member pull from any source that works.
async fn pull_from_any(shared: &Shared, epoch: Epoch, settle: &Settle, member: pb::Member) -> Result<()> {
    let mut last = err!(Unavailable, "there is no source");
    for source in &settle.sources {
        let wanted = Pull {
            metablock: settle.record.metablock_id(),
            source: *source,
            target: member,
            epoch: epoch.raw(),
            at: settle.base,
            length: settle.length,
            // No limit: the file cannot be used before the recovery is done.
            rate: 0,
            raid_set: 0,
        };
        let key = (wanted.metablock, member.volume_id());
        let copy = CopyInProgress::new(source.node_id(), member.node_id(), wanted.length, Reason::Recovery);
        shared.soft().work.recovery_copies.insert(key, copy);
        let done = pull_exactly(shared, &wanted).await;
        shared.soft().work.recovery_copies.remove(&key);
        match done {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Deadline of a pull, which moves up to a whole metablock. Ten megabytes per second is the least that a working disk
/// does.
pub(crate) fn pull_deadline(shared: &Shared, length: u64) -> Duration {
    shared.options.call_timeout + Duration::from_secs(length / (10 << 20))
}

/// Records the recovery. A file that was freed or recovered by another epoch meanwhile needs no record.
async fn finish(
    shared: &Shared,
    inode: InodeId,
    epoch: Epoch,
    metablocks: Vec<pb::Metablock>,
    written: bool,
) -> Result<()> {
    let size = {
        let machine = shared.group.machine();
        let Ok(attr) = machine.attr(inode) else { return Ok(()) };
        size(attr.size, attr.metablock_size, &metablocks)
    };
    let finish = pb::FinishRecovery { inode: inode.raw(), epoch: epoch.raw(), size, metablocks, written };
    match shared.group.propose(Op::FinishRecovery(finish)).await {
        Ok(_) => {
            tracing::info!(%inode, %epoch, size, "a file was recovered");
            Ok(())
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => Ok(()),
        Err(error) => Err(error),
    }
}
