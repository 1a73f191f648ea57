//! The always-on node's handoff log, and its use by recoveries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_handoff::{HandoffLog, Logged};
use ebb_meta::Machine;
use ebb_power::debt::{self, Ask, Owed};
use ebb_rpc::Answer;
use ebb_runtime::{Runtime, SeededBug};
use ebb_types::{Epoch, InodeId, MetablockId, NodeId, Result, Version, bail};
use ebb_wire::{convert, pb};

use crate::doubt::{Doubtful, is_past};
use crate::options::Options;
use crate::recovery::ReplicaState;
use crate::registry::Registry;
use crate::shared::Shared;
use crate::soft::Soft;
use crate::work::{ReplicaKey, replica_key};

/// Directory in the master's data directory. The name is that of an earlier release, because disks keep it.
const DIR: &str = "offload";
/// How long a member's request waits for others.
const FEED_WAIT: Duration = Duration::from_secs(1);
/// Interval of the search for writes that are no longer needed.
const LOOK: Duration = Duration::from_secs(10);

/// Opens the log. `is_begun` says whether the cluster, and so its log, existed before.
pub(crate) async fn open(runtime: &Runtime, options: &Options, is_begun: bool) -> Result<HandoffLog> {
    HandoffLog::open(runtime, &options.data_dir.join(DIR), options.handoff_bytes_max, is_begun).await
}

/// Answers `LogWrites`.
///
/// Errors: `StaleEpoch` if the file's holder has lost the lease; those of the log; those of [`admit`].
pub(crate) async fn append(shared: &Shared, message: pb::LogWrites, payload: Bytes) -> Result<()> {
    let (inode, epoch) = (InodeId::new(message.inode), message.epoch);
    {
        let machine = shared.group.machine();
        let known = machine.attr(inode)?.epoch;
        if known != epoch || machine.holder(inode).is_none() {
            bail!(StaleEpoch, "{inode}: epoch {epoch} is over, the file's is {known}: the lease is lost");
        }
    }
    let lacks = message.lacks.clone();
    shared.handoff.append_if(message, payload, |news| admit(shared, &lacks, news)).await
}

/// Answers `ReadLogged`.
///
/// Errors: `Overloaded` if so much is on its way to members that this has no place for long; the holder then sends the
/// writes.
pub(crate) async fn feed(shared: &Shared, message: &pb::ReadLogged) -> Result<Answer> {
    let (reply, payload) = shared.handoff.between(message);
    let bytes: usize = payload.iter().map(Bytes::len).sum();
    // One page may be longer than all of them together.
    let permits = u32::try_from(bytes).unwrap_or(u32::MAX).min(shared.options.feed_bytes_max);
    let place = async { Ok(Arc::clone(&shared.feeds).acquire_many_owned(permits).await.expect("it is never closed")) };
    let Ok(place) = shared.runtime.timeout(FEED_WAIT, "a place to feed a member", place).await else {
        bail!(Overloaded, "{} bytes of the handoff log are on their way to members", shared.options.feed_bytes_max);
    };
    Ok(Answer::with(&reply, payload.into()).holding(place))
}

/// Logged writes that sleeping nodes still have to take.
#[derive(Debug, Default)]
pub(crate) struct Debts {
    owed: Owed,
    refused: u64,
}

/// Admits writes that the nodes without them can take within an interval, besides everything that they owe already.
fn admit(shared: &Shared, lacks: &[pb::LogLack], news: &BTreeMap<MetablockId, u64>) -> Result<()> {
    let mut soft = shared.soft();
    let mut asks: BTreeMap<NodeId, Ask> = BTreeMap::new();
    for lack in lacks {
        let Some(bytes) = news.get(&MetablockId::new(lack.metablock)) else { continue };
        for node in lack.nodes.iter().map(|node| NodeId::new(*node)) {
            let new = || Ask { bytes: 0, bytes_per_sec: pace(&soft.registry, node) };
            asks.entry(node).or_insert_with(new).bytes += bytes;
        }
    }
    let now_ms = shared.wall_ms();
    let Soft { plans, debts, .. } = &mut *soft;
    let taken = debts.owed.add_debts(plans, now_ms, &asks);
    debts.refused += u64::from(taken.is_err());
    taken
}

fn pace(registry: &Registry, node: NodeId) -> u64 {
    debt::pace_or_assumed(registry.write_bytes_per_sec(node))
}

/// State of the log for operators.
pub(crate) fn status(shared: &Shared) -> pb::HandoffStatus {
    let held_bytes = shared.handoff.bytes() as u64;
    let (_, nodes) = shared.node_map();
    let (now_ms, soft) = (shared.wall_ms(), shared.soft());
    let Soft { plans, debts, .. } = &*soft;
    let of_node = |node: pb::Node| {
        let (id, pace) = (NodeId::new(node.id), debt::pace_or_assumed(node.write_bytes_per_sec));
        Some(pb::NodeDebt {
            node: node.id,
            owed_bytes: debts.owed.bytes(plans, id, now_ms, pace),
            room_bytes: debt::room(plans, id, now_ms, pace)?,
            write_bytes_per_sec: node.write_bytes_per_sec,
        })
    };
    pb::HandoffStatus {
        held_bytes,
        held_bytes_max: shared.handoff.bytes_max() as u64,
        refused: debts.refused,
        debts: nodes.into_iter().filter_map(of_node).collect(),
    }
}

/// Answers `JudgeLogs`.
pub(crate) fn judge_logs(shared: &Shared, call: &pb::JudgeLogs) -> pb::JudgeLogsReply {
    let machine = shared.group.machine();
    pb::JudgeLogsReply { over: call.files.iter().filter(|file| is_over(&machine, file)).cloned().collect() }
}

/// Whether the logged writes of a file are no longer needed. Either the file is past their epoch, or all of them are
/// committed, and so on all members.
fn is_over(machine: &Machine, file: &pb::LoggedFile) -> bool {
    let inode = InodeId::new(file.inode);
    if is_past(machine, inode, Epoch::new(file.epoch)) {
        return true;
    }
    if machine.attr(inode).is_ok_and(|attr| attr.size_unknown) {
        return false;
    }
    let Ok(metablocks) = machine.metablocks(inode) else { return false };
    let committed: BTreeMap<u64, Version> = metablocks.iter().map(|record| (record.id, record.min_version())).collect();
    // A metablock that is not in the map was cut off.
    file.last
        .iter()
        .all(|last| committed.get(&last.metablock).is_none_or(|committed| *committed >= convert::version(last.version)))
}

/// Drops writes that are no longer needed, and ends a doubt when it no longer matters. Runs until the master stops.
pub(crate) async fn tidy(shared: Arc<Shared>) {
    let mut doubtful = Doubtful::of(&shared.group.machine());
    while !shared.is_stopped() {
        shared.runtime.sleep(LOOK).await;
        if shared.handoff.doubt().is_some() && doubtful.is_over(&shared.group.machine()) {
            match shared.handoff.trust().await {
                Ok(()) => {
                    tracing::info!("no write that the handoff log may lack is needed any more: the log is whole again")
                }
                Err(error) => tracing::warn!(%error, "the handoff log stays in doubt"),
            }
        }
        for file in shared.handoff.marks() {
            let is_over = is_over(&shared.group.machine(), &file);
            let inode = file.inode;
            if is_over && let Err(error) = shared.handoff.cut(file).await {
                tracing::warn!(inode, %error, "logged writes that are no longer needed could not be dropped");
            }
        }
    }
}

/// Logged writes of a file, by metablock and version. From now on no write of a lower epoch is logged for it.
///
/// The always-on node's log normally has everything. If it was damaged, every other node that may have a copy is asked,
/// and all live ones must answer. If it only ended within a record, that was nearly always a write cut off by a power
/// failure, and the answers of those that do answer suffice.
///
/// Errors: those of the log; those of a node's call if the log was certainly damaged.
pub(crate) async fn gather(
    shared: &Shared,
    inode: InodeId,
    epoch: Epoch,
) -> Result<BTreeMap<MetablockId, Vec<Logged>>> {
    let own = shared.handoff.promise(inode, epoch).await?;
    let mut found = BTreeMap::new();
    let mut take = |logged: Vec<Logged>| {
        found.extend(logged.into_iter().map(|write| ((write.metablock(), write.version()), write)));
    };
    take(own);
    if shared.runtime.has_bug(SeededBug::LogIgnored) {
        return Ok(BTreeMap::new());
    }
    if let Some(doubt) = shared.handoff.doubt() {
        let (_, nodes) = shared.node_map();
        for node in nodes.iter().filter(|node| node.state() != pb::NodeState::NodeDead) {
            match read_all(shared, NodeId::new(node.id), inode, epoch).await {
                Ok(logged) => take(logged),
                Err(error) if doubt.is_certain => return Err(error),
                Err(error) => {
                    tracing::info!(node = node.id, %inode, %error, "the handoff log of a node could not be read")
                }
            }
        }
    }
    let mut by_metablock: BTreeMap<MetablockId, Vec<Logged>> = BTreeMap::new();
    for ((metablock, _), write) in found {
        by_metablock.entry(metablock).or_default().push(write);
    }
    Ok(by_metablock)
}

async fn read_all(shared: &Shared, node: NodeId, inode: InodeId, epoch: Epoch) -> Result<Vec<Logged>> {
    let mut call = pb::ReadLog { inode: inode.raw(), epoch: epoch.raw(), ..pb::ReadLog::default() };
    let mut all = Vec::new();
    loop {
        shared.awake(node).await?;
        let reply = shared.channel(node)?.call_with(&call, Vec::new(), shared.options.call_timeout * 2).await?;
        let end = reply.message.end;
        let writes = ebb_handoff::split(reply.message.writes, &reply.payload)?;
        if let Some(last) = writes.last() {
            (call.after_metablock, call.after_version) = (last.metablock().raw(), Some(last.version().into()));
        }
        let is_empty = writes.is_empty();
        all.extend(writes);
        if end || is_empty {
            return Ok(all);
        }
    }
}

/// Writes logged writes to members that lack them and promised `epoch`. Returns whether any member got some.
///
/// Errors: `Unavailable` if some metablock would have no member with everything, because acknowledged writes must not
/// be lost.
// I-46: the members have the logged writes before the file gets another holder.
pub(crate) async fn replay(
    shared: &Arc<Shared>,
    epoch: Epoch,
    metablocks: &[pb::Metablock],
    promised: &BTreeMap<ReplicaKey, ReplicaState>,
    logged: &BTreeMap<MetablockId, Vec<Logged>>,
) -> Result<bool> {
    let mut any = false;
    for record in metablocks {
        let Some(writes) = logged.get(&record.metablock_id()) else { continue };
        let last = writes.last().map_or(Version::ZERO, Logged::version);
        let mut tasks = Vec::new();
        let mut is_whole = false;
        for member in &record.members {
            let Some(held) = promised.get(&replica_key(record, member)) else { continue };
            if held.version >= last {
                is_whole = true;
                continue;
            }
            let missing: Vec<Logged> = writes.iter().filter(|write| write.version() > held.version).cloned().collect();
            let (own, member) = (Arc::clone(shared), *member);
            let work = async move { replay_on(&own, epoch, member, missing).await };
            tasks.push(shared.runtime.spawn("replay logged writes", work));
        }
        for task in tasks {
            match task.join().await? {
                Ok(()) => (any, is_whole) = (true, true),
                Err(error) => tracing::info!(metablock = record.id, %error, "a member does not take logged writes"),
            }
        }
        if !is_whole {
            bail!(Unavailable, "no member of m{} has, or takes, what was logged up to {last}", record.id);
        }
    }
    Ok(any)
}

async fn replay_on(shared: &Shared, epoch: Epoch, member: pb::Member, writes: Vec<Logged>) -> Result<()> {
    let count = writes.len();
    for (place, logged) in writes.into_iter().enumerate() {
        let version = logged.version();
        let call = pb::WriteReplica {
            volume: member.volume,
            incarnation: member.incarnation,
            authority: epoch.raw(),
            sync: place + 1 == count,
            ..logged.write
        };
        let payload = if logged.data.is_empty() { Vec::new() } else { vec![logged.data] };
        shared.awake(member.node_id()).await?;
        let reply = shared.channel(member.node_id())?.call_with(&call, payload, shared.options.call_timeout).await?;
        let answer = convert::required(reply.message.results.into_iter().next(), "the result of a write")?;
        convert::failure(answer.failure)?;
        let reached = convert::version(if place + 1 == count { answer.synced } else { answer.received });
        if reached < version {
            bail!(StaleVersion, "{} is at {reached} after a write of {version}", member.node_id());
        }
    }
    Ok(())
}
