//! Calls of operators (cluster state, draining, locations), and the choice of replacement members.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::SeededBug;
use ebb_types::deadlines::LATE_WAIT;
use ebb_types::{ErrorKind, HostName, InodeId, NodeId, Result, SessionId, Version, bail, min_copies};
use ebb_wire::pb;
use pb::command::Command as Op;

use crate::copies::Task;
use crate::copies::repair::look::suspect_volumes;
use crate::copies::repair::{Condition, has_surplus};
use crate::describe::describe;
use crate::fewer::{Absence, Case, check_go_on};
use crate::fsck::obstacles;
use crate::handoff;
use crate::placement::{Need, place, place_late, place_roomy};
use crate::reach;
use crate::registry::Sleep;
use crate::shared::Shared;
use crate::shortage::{Tally, explain};
use crate::view::{ClusterView, nodes};

/// Answers `ClusterStatus`.
pub(crate) async fn status(shared: &Shared) -> pb::ClusterStatusReply {
    let (_, nodes) = shared.node_map();
    let (counts, cluster, version, deletions_held) = {
        let machine = shared.group.machine();
        (machine.counts(), machine.cluster(), machine.version(), machine.deletions_held())
    };
    let (under_replicated, repairs_running, copied) = {
        let machine = shared.group.snapshot();
        let soft = shared.soft();
        let view = shared.view(&machine, &soft);
        let may_lack_copies = |metablock| {
            let Some(Task { record, dataset, .. }) = Task::of(&machine, metablock) else { return true };
            let wanted = machine.copies_of(&dataset, &record);
            // A granted metablock without writes has nothing to copy: it waits for its holder, or is freed. One with
            // more copies than wanted loses some.
            record.min_version() != Version::ZERO && !has_surplus(&view.set(metablock, &record, wanted))
        };
        let work = &soft.work;
        (work.unsettled_sets(may_lack_copies), (work.copies.len() + work.recovering.len()) as u64, work.copied)
    };
    let shortages = shortages(shared).to_messages();
    let (out_of_reach, without_good_copy) = (reach::out_of_reach(shared), reach::without_good_copy(shared));
    let services = shared.soft().attendance.list(shared.runtime.now());
    // The disk is asked only here, when no lock is held.
    let disk = disk(shared).await;
    pb::ClusterStatusReply {
        cluster: cluster.map_or(0, ebb_types::ClusterId::raw),
        serving: shared.standing.is_serving() && !shared.is_stopped(),
        safe_start: shared.is_safe_start(),
        masters: 1,
        nodes,
        sessions: counts.sessions,
        write_leases: counts.held,
        inodes: counts.inodes,
        metablocks: counts.metablocks,
        under_replicated,
        repairs_running,
        last_applied: shared.group.applied_index(),
        repaired: copied.count,
        repaired_bytes: copied.bytes,
        repair_rate_bytes_per_sec: shared.options.copy_rate_bytes_per_sec,
        handoff: Some(handoff::status(shared)),
        failures: shared.soft().failures.iter().map(crate::failures::Failure::to_message).collect(),
        disk,
        shortages,
        rejoined: copied.rejoined,
        refused: shared.standing.check().is_err(),
        standing: shared.standing.sentence(),
        deletions_held,
        out_of_reach_by_plan: out_of_reach.by_plan,
        out_of_reach_by_failure: out_of_reach.by_failure,
        without_good_copy,
        version,
        version_newest: ebb_meta::version::NEWEST,
        services,
    }
}

/// Known reasons why written sets are short.
pub(crate) fn shortages(shared: &Shared) -> Tally {
    let machine = shared.group.snapshot();
    let suspects: BTreeSet<_> = {
        let soft = shared.soft();
        let work = &soft.work;
        work.suspects.iter().chain(work.copies.keys()).copied().collect()
    };
    let mut tally = Tally::default();
    for metablock in suspects {
        let Some(task) = Task::of(&machine, metablock).filter(|task| task.record.is_written()) else { continue };
        let Task { inode, record, dataset, .. } = task;
        let obstacles = obstacles(shared, inode);
        let wanted = machine.copies_of(&dataset, &record);
        let view = shared.with_view(|view| view.set(metablock, &record, wanted));
        explain(&view, &obstacles).into_iter().for_each(|why| tally.add(why));
    }
    tally
}

/// Space of the disk with the log and checkpoints. `None` if the disk does not answer; the log has the cause.
async fn disk(shared: &Shared) -> Option<pb::MasterDisk> {
    let path = &shared.options.data_dir;
    let space = shared.runtime.disk().space(path).await.ok()?;
    Some(pb::MasterDisk {
        path: path.display().to_string(),
        free_bytes: space.free_bytes,
        capacity_bytes: space.capacity_bytes,
        needed_bytes: shared.options.group.wal.segment_bytes as u64,
    })
}

/// Answers `DrainNode`: starts or ends a drain, and returns the remaining copies. A repeated call shows the progress.
///
/// Errors: `NotFound` for an unknown node.
pub(crate) async fn drain(shared: &Shared, call: &pb::DrainNode) -> Result<pb::DrainReply> {
    let node = NodeId::new(call.node);
    let draining = {
        let machine = shared.group.machine();
        let record = machine.node(NodeId::new(call.node));
        record.map(|record| record.draining)
    };
    match draining {
        None => bail!(NotFound, "there is no node {node}; `ebb cluster status` lists them"),
        Some(draining) if draining == call.undo => {
            let state = pb::SetNodeState { node: call.node, draining: !call.undo };
            shared.group.propose(Op::SetNodeState(state)).await?;
        }
        Some(_) => {}
    }
    let machine = shared.group.snapshot();
    let volumes = machine.volumes_of(node);
    if !call.undo {
        suspect_volumes(shared, &machine, &volumes);
    }
    let mut left = pb::DrainReply::default();
    for metablock in volumes.iter().flat_map(|volume| machine.on_volume(*volume)) {
        left.metablocks_left += 1;
        left.bytes_left += machine.find_record(metablock).map_or(0, |record| record.length);
    }
    for (_, metablock, extras) in machine.all_extras() {
        if extras.iter().any(|extra| extra.node_id() == node) {
            left.metablocks_left += 1;
            left.bytes_left += machine.find_metablock(metablock).map_or(0, |(_, record)| record.length);
        }
    }
    Ok(left)
}

/// Answers `Locate`: the files on volumes that hold an inode's replicas.
pub(crate) async fn locate(shared: &Arc<Shared>, call: &pb::Locate) -> Result<pb::LocateReply> {
    let metablocks = shared.group.machine().metablocks(InodeId::new(call.inode))?;
    let wanted: Vec<_> = metablocks
        .iter()
        .flat_map(|record| record.members.iter().chain(&record.extra).map(|member| (record.metablock_id(), *member)))
        .filter(|(_, member)| shared.soft().registry.is_live(member.node_id()))
        .collect();
    let answers = describe(shared, wanted.clone()).await;
    let located = wanted.iter().filter_map(|(metablock, member)| {
        let described = answers.get(&(*metablock, member.volume_id())).filter(|described| !described.absent)?;
        Some(pb::LocatedReplica {
            metablock: metablock.raw(),
            node: member.node,
            volume: member.volume,
            file: described.file.clone(),
            file_offset: described.file_offset,
        })
    });
    Ok(pb::LocateReply { replicas: located.collect() })
}

/// Answers `ChooseReplacement`: a volume in the place of a failed member, or permission to continue without one.
/// Nothing is recorded before `ChangeSet`.
///
/// Errors: `StaleEpoch` if the session is not the holder, `NotFound` for an unknown metablock; otherwise the
/// placement's errors.
pub(crate) fn choose_replacement(shared: &Shared, call: &pb::ChooseReplacement) -> Result<pb::ChooseReplacementReply> {
    let (session, inode) = (SessionId::new(call.session), InodeId::new(call.inode));
    shared.check_session(session)?;
    let (record, dataset) = {
        let machine = shared.group.machine();
        if machine.holder(inode) != Some(session) {
            bail!(StaleEpoch, "session {session} does not hold the write lease of {inode}");
        }
        let found = machine.find_metablock(ebb_types::MetablockId::new(call.metablock)).filter(|(of, _)| *of == inode);
        let Some((_, record)) = found else { bail!(NotFound, "{inode} has no metablock m{}", call.metablock) };
        (record, machine.dataset_of(inode)?)
    };
    // Another volume of the same node may take the copy if the member's volume is gone.
    let stays = |view: &ClusterView<'_>, member: &&pb::Member| {
        view.condition(record.metablock_id(), member) != Condition::VolumeLost
            && !call.exclude_nodes.contains(&member.node)
    };
    let mut exclude: Vec<NodeId> = call.exclude_nodes.iter().map(|node| NodeId::new(*node)).collect();
    let (present, home, strays, held_back, sleepers) = shared.with_view(|view| {
        let present: Vec<pb::Member> = if call.staying.is_empty() {
            record.members.iter().filter(|member| stays(view, member)).copied().collect()
        } else {
            call.staying.clone()
        };
        let home = view.home_to_keep(&record.members, &present);
        // A stray replica on a node is about to be deleted, and would take a new copy with it.
        let strays = view.nodes_with_strays(record.metablock_id());
        let work = &view.soft.work;
        exclude.extend(work.extra_copies.get(&record.metablock_id()).map(|copy| copy.target));
        let held_back: Vec<NodeId> = work.parted.held_back(inode, view.now).map(|(node, _)| node).collect();
        // Nodes that do not serve for a copy's time, from now on, and within the time that a writer waits for one.
        let sleepers = [0, LATE_WAIT.as_millis() as u64].map(|wait_ms| sleepers(view, wait_ms, record.length));
        (present, home, strays, held_back, sleepers)
    });
    let min = min_copies(dataset.min_copies, dataset.replicas) as usize;
    let well: BTreeSet<u64> = present.iter().map(|member| member.node).collect();
    let bytes = dataset.block_size.max(record.length);
    let need = Need {
        replicas: present.len() + 1,
        present,
        home,
        exclude: exclude.iter().chain(&held_back).copied().collect(),
        ..Need::fresh(inode, dataset, record.index, HostName::default(), bytes)
    };
    if call.slow != 0 {
        // A slow copy stays where it is unless a node that is not slow has room.
        let members = place_roomy(shared, &clear_of(&strays, &need))?;
        shared.soft().gray.on_replacement(session, NodeId::new(call.slow), shared.runtime.now())?;
        return Ok(pb::ChooseReplacementReply { member: members.first().copied(), go_on: false });
    }
    // With a pull the copy may replace a stray, because it gets another life: a late deletion of the stray does not hit
    // it (I-26).
    let find = |need: &Need| match place(shared, &clear_of(&strays, need)) {
        Err(_) if call.pulls && !strays.is_empty() => place(shared, need),
        found => found,
    };
    let member =
        |members: &[pb::Member]| Ok(pb::ChooseReplacementReply { member: members.first().copied(), go_on: false });
    // The writer waits while the new member copies: nodes that serve come first.
    for asleep in &sleepers {
        if let Ok(members) = find(&clear_of(asleep, &need)) {
            return member(&members);
        }
    }
    let case = Case { min, well: well.len(), absent: absent(shared, &record, &need.present, &call.failed) };
    let why = match check_go_on(&case, shared.options.suspect_time) {
        Ok(()) if call.may_go_on => {
            note_parted(shared, session, inode, &case);
            return Ok(pb::ChooseReplacementReply { member: None, go_on: true });
        }
        Ok(()) => "the client does not know that it may continue with fewer".to_owned(),
        Err(why) => why,
    };
    let error = match find(&need) {
        Ok(members) => return member(&members),
        Err(error) => error,
    };
    let late = if case.well < case.min {
        // A node that this holder could not reach some seconds ago is better than no write. The client lists the nodes
        // that it cannot reach now.
        let anywhere = Need { exclude, ..need };
        find(&anywhere).or_else(|_| place_late(shared, &clear_of(&strays, &anywhere)))
    } else {
        place_late(shared, &clear_of(&strays, &need))
    };
    member(&late.map_err(|_| error.context(format_args!("{why}, and there is no other")))?)
}

/// Nodes that do not begin to serve within a wait, for the time that a copy of so many bytes takes.
fn sleepers(view: &ClusterView<'_>, wait_ms: u64, bytes: u64) -> Vec<NodeId> {
    let (plans, need_ms) = (&view.soft.plans, view.need_ms(bytes));
    let serves_soon = |node: NodeId| {
        let wake_ms = plans.next_wake_ms(node, view.now_ms).filter(|wake_ms| *wake_ms <= view.now_ms + wait_ms);
        wake_ms.is_some_and(|wake_ms| plans.awake_for(node, wake_ms).serves_for(need_ms))
    };
    nodes(view.machine).map(|node| NodeId::new(node.id)).filter(|node| !serves_soon(*node)).collect()
}

/// The need, with further nodes excluded.
fn clear_of(nodes: &[NodeId], need: &Need) -> Need {
    Need { exclude: need.exclude.iter().chain(nodes).copied().collect(), ..need.clone() }
}

/// Members of the record that are absent, by the knowledge of this master and of the holder.
fn absent(
    shared: &Shared,
    record: &pb::Metablock,
    well: &[pb::Member],
    failed: &[pb::FailedMember],
) -> Vec<(NodeId, Absence)> {
    let machine = shared.group.machine();
    let soft = shared.soft();
    let view = shared.view(&machine, &soft);
    let absence = |member: &pb::Member| {
        let node = member.node_id();
        let report = failed.iter().find(|report| report.node == member.node);
        let kind = report.and_then(|report| Some(ErrorKind::from_raw(report.failure.as_ref()?.kind)));
        let condition = view.condition(record.metablock_id(), member);
        if soft.registry.is_missed(node) || matches!(condition, Condition::NodeLost | Condition::VolumeLost) {
            return Absence::Missed;
        }
        if matches!(kind, Some(ErrorKind::NoSpace | ErrorKind::QuotaExceeded)) {
            return Absence::Full;
        }
        match view.sleep_of(node) {
            Sleep::None => {}
            Sleep::Blinks => return Absence::Asleep,
            Sleep::Off => return Absence::Off,
        }
        if kind.is_some_and(ErrorKind::is_copy_lost) {
            return Absence::Lost;
        }
        match report {
            Some(report) if report.silent => Absence::Silent,
            report => Absence::Failing(Duration::from_millis(report.map_or(0, |report| report.for_ms))),
        }
    };
    let is_well = |member: &&pb::Member| well.iter().any(|other| other.is_at(member));
    let others = record.members.iter().filter(|member| !is_well(member));
    others.map(|member| (member.node_id(), absence(member))).collect()
}

/// Holds back nodes that the master hears and the holder does not reach, so that repair does not bring them back at
/// once.
fn note_parted(shared: &Shared, session: SessionId, inode: InodeId, case: &Case) {
    // The seeded bug: they are brought back at once, again and again.
    if shared.runtime.has_bug(SeededBug::BringsBack) {
        return;
    }
    let mut soft = shared.soft();
    let work = &mut soft.work;
    for (node, absence) in &case.absent {
        if matches!(absence, Absence::Silent | Absence::Failing(_)) {
            work.parted.on_lost(session, inode, *node, shared.runtime.now());
        }
    }
}
