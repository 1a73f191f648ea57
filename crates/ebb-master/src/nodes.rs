//! Calls of block servers: registration, heartbeats, replica reports.

use std::collections::BTreeSet;

use ebb_meta::{Machine, Reply};
use ebb_types::{BootId, Epoch, ErrorKind, MetablockId, NodeId, Result, Version, VolumeId, bail};
use ebb_wire::{convert, pb};
use pb::command::Command as Op;

use crate::copies::repair::look::{lost_volumes, suspect_volumes};
use crate::joins;
use crate::popular::Popular;
use crate::registry::{Loss, Pulse, Reported};
use crate::shared::Shared;
use crate::soft::Soft;
use crate::twins;
use crate::version;
use crate::view::nodes;
use crate::work::Work;

/// Answers `RegisterNode`. The registration is logged if it differs from the recorded node.
///
/// Errors: `Invalid` for an incomplete registration, or one that contradicts those of other nodes, `Unavailable` for a new node while the master does not serve,
/// `Superseded` for a twin, `WentBack` if the node has seen a newer master.
pub(crate) async fn register(shared: &Shared, mut call: pb::RegisterNode) -> Result<pb::RegisterNodeReply> {
    if call.host.is_empty() || call.rack.is_empty() || call.address.is_empty() {
        bail!(
            Invalid,
            "a node registers with its host, rack and address; got {:?}, {:?}, {:?}",
            call.host,
            call.rack,
            call.address
        );
    }
    let sender = || format!("n{} ({}, {})", call.node, call.host, call.address);
    shared.hear(sender, call.position.as_ref())?;
    version::check_release(shared, &call)?;
    check_new(shared, &call)?;
    adopt_ids(shared, &mut call);
    twins::check(shared, &call)?;
    let known = is_recorded(&shared.group.machine(), &call);
    let mut reply = if known {
        pb::RegisterNodeReply { node: call.node, volumes: call.volumes.clone(), ..Default::default() }
    } else {
        let register = pb::RegisterNodeCommand {
            node: call.node,
            host: call.host.clone(),
            rack: call.rack.clone(),
            address: call.address.clone(),
            volumes: call.volumes.clone(),
            boot: call.boot,
            adopt: shared.is_of_lost_history(call.position.as_ref()),
            serves_hosts: call.serves_hosts.clone(),
        };
        match shared.group.propose(Op::RegisterNode(register)).await? {
            Reply::Node(reply) => reply,
            other => bail!(Internal, "RegisterNode was answered with {other:?}"),
        }
    };
    reply.heartbeat_ms = u32::try_from(shared.options.heartbeat.as_millis()).unwrap_or(u32::MAX);
    // Ids come from the reply, because the log gives them. Space and state come from the call.
    let volumes: Vec<_> = call
        .volumes
        .iter()
        .zip(&reply.volumes)
        .map(|(reported, named)| pb::Volume { id: named.id, ..reported.clone() })
        .collect();
    let node = NodeId::new(reply.node);
    let now = shared.runtime.now();
    let is_new = shared.soft().registry.on_register(node, BootId::new(call.boot), call.pid, &volumes, now);
    shared.soft().registry.on_version(node, version::of_release(&call));
    if is_new {
        shared.soft().work.parted.on_away(node, now);
    }
    shared.soft().gray.on_start(node, now);
    shared.soft().encoding.on_registered(node, call.knows_frozen);
    tracing::info!(%node, host = call.host, address = call.address, volumes = volumes.len(), "node registered");
    // A volume may have got a new incarnation, or be gone. Its sets have then lost a member.
    let machine = shared.group.snapshot();
    let ids = volumes.iter().map(|volume| VolumeId::new(volume.id)).chain(lost_volumes(&machine));
    suspect_volumes(shared, &machine, &ids.collect::<Vec<_>>());
    for volume in volumes.iter().filter(|volume| volume.state() == pb::VolumeState::VolumePoisoned) {
        tracing::warn!(volume = %VolumeId::new(volume.id), trouble = volume.trouble, "a volume was already poisoned when its node registered");
    }
    joins::join_chains(shared, node).await?;
    shared.announce_node_map();
    reply.position = Some(shared.position());
    Ok(reply)
}

/// Refuses new nodes while the log may be out of date: a node that is off may already have the ids that it would give.
fn check_new(shared: &Shared, call: &pb::RegisterNode) -> Result<()> {
    if call.node_id().is_none() && !shared.standing.is_serving() && shared.group.machine().nodes().next().is_some() {
        bail!(Unavailable, "a new node waits: {}", shared.standing.sentence());
    }
    Ok(())
}

/// Fills in the ids of a new node that repeats its registration because the first answer was lost.
fn adopt_ids(shared: &Shared, call: &mut pb::RegisterNode) {
    if call.node_id().is_some() {
        return;
    }
    let Some(node) = call.boot_id().and_then(|boot| shared.soft().registry.by_boot(boot)) else { return };
    let machine = shared.group.machine();
    let Some(record) = machine.registered(node) else { return };
    call.node = record.id;
    for volume in call.volumes.iter_mut().filter(|volume| volume.id == 0) {
        let known =
            record.volumes.iter().find(|known| (&known.path, known.incarnation) == (&volume.path, volume.incarnation));
        volume.id = known.map_or(0, |known| known.id);
    }
}

fn is_recorded(machine: &Machine, call: &pb::RegisterNode) -> bool {
    let same = |record: &&pb::Node| {
        let volume = |volume: &pb::Volume| (volume.id, volume.incarnation, volume.starts, volume.path.clone());
        record.id == call.node
            && record.boot == call.boot
            && (&record.host, &record.rack, &record.address) == (&call.host, &call.rack, &call.address)
            && record.serves_hosts == call.serves_hosts
            && record.volumes.iter().map(volume).collect::<Vec<_>>()
                == call.volumes.iter().map(volume).collect::<Vec<_>>()
    };
    call.node_id().is_some() && nodes(machine).any(|record| same(&record))
}

/// Answers `Heartbeat`.
///
/// Errors: `WentBack` if the node has seen a newer master.
pub(crate) fn heartbeat(shared: &Shared, call: &pb::Heartbeat) -> Result<pb::HeartbeatReply> {
    shared.hear(|| format!("n{}", call.node), call.position.as_ref())?;
    let position = Some(shared.position());
    let machine = shared.group.machine();
    // A node that was removed is refused when it registers again.
    if machine.node(NodeId::new(call.node)).is_none() {
        return Ok(pb::HeartbeatReply { report: true, position, gray: false });
    }
    let (pulse, losses, changed) = {
        let mut soft = shared.soft();
        let before = soft.registry.version();
        let (pulse, losses) = soft.registry.on_heartbeat(call, shared.runtime.now());
        if pulse == Pulse::Known {
            call.volumes.iter().for_each(|volume| soft.room.on_heartbeat(VolumeId::new(volume.id)));
        }
        (pulse, losses, soft.registry.version() != before)
    };
    if pulse == Pulse::Register {
        return Ok(pb::HeartbeatReply { report: true, position, gray: false });
    }
    for metablock in call.corrupt.iter().map(|id| MetablockId::new(*id)) {
        let Some((members, _)) = machine.placed_metablock(metablock) else { continue };
        let mut soft = shared.soft();
        // The damage may be old, and a good copy may have replaced the replica since. So it is only a doubt.
        let own = members.iter().filter(|member| member.node == call.node);
        soft.work.doubts.extend(own.map(|member| (metablock, member.volume_id())));
        for extra in machine.extras(metablock).iter().filter(|extra| extra.node == call.node) {
            soft.popular.condemn((metablock, extra.volume_id()));
        }
    }
    let snapshot = machine.clone();
    drop(machine);
    on_losses(shared, &snapshot, &losses);
    if changed {
        shared.announce_node_map();
    }
    let gray = {
        let node = NodeId::new(call.node);
        let mut soft = shared.soft();
        soft.gray.on_heartbeat(node, &call.volumes, call.working, shared.runtime.now());
        soft.gray.verdict(node).is_some()
    };
    Ok(pb::HeartbeatReply { report: false, position, gray })
}

/// Queues sets that lost a member for repair.
pub(crate) fn on_losses(shared: &Shared, machine: &Machine, losses: &[Loss]) {
    for loss in losses {
        match loss {
            Loss::NodeDied(node) => {
                tracing::warn!(%node, silent = ?shared.options.dead_time, "a node is dead; its replicas are made again elsewhere");
                suspect_volumes(shared, machine, &machine.volumes_of(*node));
            }
            Loss::VolumePoisoned(volume) => {
                tracing::warn!(%volume, "a volume is poisoned; its replicas are made again elsewhere");
                suspect_volumes(shared, machine, &[*volume]);
            }
        }
    }
}

/// Records replicas of another history before the report is used.
// I-37: a replica of another history is never deleted.
async fn quarantine(shared: &Shared, machine: &Machine, call: &pb::ReplicaReport) -> Result<()> {
    let volume = VolumeId::new(call.volume);
    let is_foreign = |id: &u64| {
        let id = MetablockId::new(*id);
        // Ids come from a durable counter. An id below it that the map lacks was deleted, unless the counter skipped
        // it.
        machine.is_foreign(id) && !machine.is_quarantined(volume, id)
    };
    let foreign: Vec<u64> = call.replicas.iter().map(|replica| replica.metablock).filter(is_foreign).collect();
    if foreign.is_empty() {
        return Ok(());
    }
    tracing::warn!(%volume, replicas = foreign.len(), first = foreign[0], "replicas of another history are quarantined");
    let op = pb::Quarantine { volume: call.volume, metablocks: foreign, release: false };
    shared.group.propose(Op::Quarantine(op)).await.map(|_| ())
}

/// Answers `ReplicaReport`: compares the replicas of a volume with the map.
///
/// Errors: `Stale` if the node has not registered its present start, `WentBack` if a replica is from a newer history.
pub(crate) async fn report(shared: &Shared, call: &pb::ReplicaReport) -> Result<()> {
    let machine = shared.group.snapshot();
    hear_epochs(shared, &machine, call)?;
    quarantine(shared, &machine, call).await?;
    let gone = take_report(shared, call)?;
    if !gone.is_empty() {
        let op = pb::Quarantine { volume: call.volume, metablocks: gone, release: true };
        shared.group.propose(Op::Quarantine(op)).await?;
    }
    Ok(())
}

/// Checks the replicas' epochs. An epoch that this log never gave to the file is from another history.
fn hear_epochs(shared: &Shared, machine: &Machine, call: &pb::ReplicaReport) -> Result<()> {
    for replica in &call.replicas {
        let metablock = MetablockId::new(replica.metablock);
        let promised = Some(Epoch::new(replica.promised_epoch)).filter(|epoch| epoch.is_real()).unwrap_or_default();
        let seen = promised.max(convert::version(replica.version).epoch);
        let Some((inode, _)) = machine.find_metablock(metablock) else { continue };
        // A file that is gone has no epoch to compare with.
        let given = machine.attr(inode).ok().map(|attr| Epoch::new(attr.epoch));
        let sender = || format!("the replica of {metablock} on n{} v{}", call.node, call.volume);
        if given.is_some_and(|given| shared.hear_epoch(sender, seen, given)) {
            let mut soft = shared.soft();
            let work = &mut soft.work;
            work.ahead.insert(inode);
            work.recoveries.insert(inode);
            shared.state.wake.recovery.notify_one();
        }
        shared.standing.check()?;
    }
    Ok(())
}

/// Queues the differences between a report and the map. Returns quarantined replicas that the volume no longer has.
fn take_report(shared: &Shared, call: &pb::ReplicaReport) -> Result<Vec<u64>> {
    let machine = shared.group.snapshot();
    let volume = VolumeId::new(call.volume);
    let reported = shared.soft().registry.on_report(call);
    if reported == Reported::Unknown {
        bail!(Stale, "node n{} has not registered this start (boot {}): register first", call.node, call.boot);
    }
    let deleted: BTreeSet<_> = machine.deleted_on(volume).collect();
    let mut gone = Vec::new();
    let mut soft = shared.soft();
    let Soft { work, popular, encoding, .. } = &mut *soft;
    for replica in &call.replicas {
        let metablock = MetablockId::new(replica.metablock);
        encoding.on_promise_told(metablock, volume, Epoch::new(replica.promised_epoch));
        if !deleted.contains(&metablock) && !machine.is_quarantined(volume, metablock) {
            compare(&machine, work, popular, volume, replica);
        }
    }
    if let Reported::Whole { named, first } = reported {
        // A report shows a moment in the past. A replica that it lacks may be newer, so the volume is asked before it
        // counts as missing.
        for metablock in machine.on_volume(volume).filter(|metablock| !named.contains(metablock)) {
            work.doubts.insert((metablock, volume));
        }
        // Durability does not depend on an extra copy. One that seems to be missing is dropped at once, and made again
        // where it is wanted.
        let is_here = |extras: &[pb::Member]| extras.iter().any(|extra| extra.volume_id() == volume);
        let extras = machine.all_extras().filter(|(_, _, extras)| is_here(extras)).map(|(_, metablock, _)| metablock);
        extras
            .filter(|metablock| !named.contains(metablock))
            .for_each(|metablock| popular.condemn((metablock, volume)));
        // The volume was away, and its sets may have changed without it.
        if first {
            work.suspects.extend(machine.on_volume(volume));
        }
        work.on_node_back();
        tracing::info!(%volume, replicas = named.len(), first, "volume reported");
        let foreign = machine.quarantined().filter(|(on, id)| *on == volume && !named.contains(id));
        gone.extend(foreign.map(|(_, id)| id.raw()));
    }
    drop(soft);
    shared.state.wake.recovery.notify_one();
    shared.state.wake.repair.notify_one();
    shared.state.wake.deletes.notify_one();
    Ok(gone)
}

fn compare(machine: &Machine, work: &mut Work, popular: &mut Popular, volume: VolumeId, replica: &pb::ReplicaState) {
    let metablock = MetablockId::new(replica.metablock);
    let Some(record) = machine.find_record(metablock) else {
        // Rows and ballast are of a RAID set and of no file.
        if machine.is_placed_on(metablock, volume) {
            work.excess.remove(&(volume, metablock));
            if replica.corrupt {
                work.on_damage(metablock, volume);
            } else {
                work.on_renewed(metablock, volume);
                let least = machine.placed_metablock(metablock).map_or(Version::ZERO, |(_, version)| version);
                if convert::version(replica.version) < least {
                    work.doubts.insert((metablock, volume));
                }
            }
        } else {
            work.excess.insert((volume, metablock));
        }
        return;
    };
    if record.extra.iter().any(|extra| extra.volume_id() == volume) {
        work.excess.remove(&(volume, metablock));
        if replica.corrupt || convert::version(replica.version) < record.min_version() {
            popular.condemn((metablock, volume));
        }
    } else if machine.is_left_out(metablock, volume) {
        // The replica may be the copy that the set lacks.
        work.excess.remove(&(volume, metablock));
        work.suspects.insert(metablock);
    } else if !record.members.iter().any(|member| member.volume_id() == volume) {
        work.excess.insert((volume, metablock));
    } else if replica.corrupt {
        work.on_damage(metablock, volume);
    } else {
        work.on_renewed(metablock, volume);
        if convert::version(replica.version) < record.min_version() {
            work.doubts.insert((metablock, volume));
        }
    }
}

/// Answers `ReportReplica`: a client has met a damaged or missing replica.
pub(crate) fn report_replica(shared: &Shared, call: &pb::ReportReplica) {
    let Some(member) = call.member else { return };
    let metablock = MetablockId::new(call.metablock);
    let recorded = {
        let machine = shared.group.machine();
        if machine.extras(metablock).iter().any(|known| known.is_at(&member)) {
            shared.soft().popular.condemn((metablock, member.volume_id()));
        }
        machine.placed_metablock(metablock).is_some_and(|(members, _)| members.iter().any(|known| known.is_at(&member)))
    };
    if !recorded {
        return;
    }
    let kind = call.failure.as_ref().map(|failure| ErrorKind::from_raw(failure.kind));
    let mut soft = shared.soft();
    let work = &mut soft.work;
    if kind == Some(ErrorKind::Corrupt) {
        work.on_damage(metablock, member.volume_id());
    } else {
        work.doubts.insert((metablock, member.volume_id()));
    }
    drop(soft);
    shared.state.wake.repair.notify_one();
}

/// Whether a member's answer shows that its replica is damaged or lacks committed writes.
pub(crate) fn is_damaged(described: &pb::DescribedReplica, committed: Version) -> bool {
    described.corrupt
        || (committed > Version::ZERO && (described.absent || convert::version(described.version) < committed))
}
