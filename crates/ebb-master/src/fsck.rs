//! File-system check: comparison of the map with the replicas on the volumes.
//!
//! The verdict on one set is pure ([`examine`]). The members are asked in slices of sets, so that memory stays bounded.

pub(crate) mod examine;
mod raid;
mod scrub;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_types::{InodeId, MetablockId, NodeId, RaidSetId, Result, Version, VolumeId};
use ebb_wire::pb;
use pb::command::Command as Op;

pub use self::examine::{Examined, Found, examine};
use self::scrub::scrub;
use crate::copies::Task;
use crate::describe::describe;
use crate::nodes::is_damaged;
use crate::shared::Shared;
use crate::shortage::{Obstacles, Tally, explain_found};
use crate::view::nodes;
use crate::work::replica_key;

/// Sets examined at a time.
const SLICE: usize = 5000;
/// Maximum number of sentences in a reply.
const FINDINGS_MAX: usize = 100;
/// Maximum number of lost files in a reply.
const LOST_MAX: usize = 1000;

/// Answers `Fsck`, and queues the damage that it finds for repair.
pub(crate) async fn fsck(shared: &Arc<Shared>, call: &pb::Fsck, deadline: Duration) -> Result<pb::FsckReply> {
    let mut reply = pb::FsckReply::default();
    let machine = {
        let machine = shared.group.machine();
        #[cfg(debug_assertions)]
        shared.soft().check_counts(&machine);
        machine.clone()
    };
    let scope = (call.inode != 0).then(|| machine.below(InodeId::new(call.inode)));
    let metablocks: Vec<MetablockId> = scope.as_ref().map_or_else(|| all(&machine), |files| of_files(&machine, files));
    if call.scrub {
        let only = scope.is_some().then_some(&metablocks[..]);
        scrub(shared, only, deadline, &mut reply).await?;
    }
    let decodable = raid::examine_sets(shared, &machine, scope.as_ref(), &mut reply).await;
    if call.parity {
        raid::compare_rows(shared, &machine, scope.as_ref(), deadline, &mut reply).await;
    }
    let (mut short, mut found) = (Tally::default(), Vec::new());
    for slice in metablocks.chunks(SLICE) {
        let mut findings = examine_slice(shared, &machine, slice, &decodable, &mut reply, &mut short).await;
        findings.truncate(FINDINGS_MAX.saturating_sub(reply.findings.len() + found.len()));
        found.append(&mut findings);
    }
    reply.shortages = short.to_messages();
    name_files(&machine, found, &mut reply);
    if scope.is_none() {
        count_strays(shared, &machine, &mut reply);
        release_deletions(shared, &mut reply).await?;
    }
    Ok(reply)
}

/// All metablocks.
fn all(machine: &Machine) -> Vec<MetablockId> {
    let mut metablocks = BTreeSet::new();
    for node in nodes(machine) {
        for volume in machine.volumes_of(NodeId::new(node.id)) {
            metablocks.extend(machine.on_volume(volume));
        }
    }
    metablocks.into_iter().collect()
}

/// The metablocks of these files. Directories have none.
fn of_files(machine: &Machine, files: &BTreeSet<InodeId>) -> Vec<MetablockId> {
    let records = files.iter().flat_map(|inode| machine.metablocks(*inode).unwrap_or_default());
    records.map(|record| record.metablock_id()).collect()
}

/// Resumes deletions that were held since a loss was accepted. Unmapped replicas are no longer needed once every
/// metablock has a replica that serves.
async fn release_deletions(shared: &Shared, reply: &mut pb::FsckReply) -> Result<()> {
    if !shared.group.machine().deletions_held() {
        return Ok(());
    }
    let unreadable = reply.missing + reply.unreachable + reply.damaged;
    if unreadable == 0 {
        shared.group.propose(Op::ReleaseDeletions(pb::Empty {})).await?;
        tracing::info!(
            "every metablock has a replica that serves: deletions, held since a loss was accepted, are resumed"
        );
        return Ok(());
    }
    let held = format!(
        "a loss was accepted, and no replica is deleted as long as {} metablocks have none that serves: one that no set \
         names may have their bytes",
        unreadable
    );
    reply.findings.insert(0, held);
    Ok(())
}

/// Adds a lost metablock to the list of files about which an operator must decide.
fn note_lost(reply: &mut pb::FsckReply, attr: &pb::Attr, index: u64) {
    if let Some(known) = reply.lost.iter_mut().find(|file| file.inode == attr.inode) {
        known.indexes.push(index);
    } else if reply.lost.len() < LOST_MAX {
        let (inode, size, metablock_size) = (attr.inode, attr.size, attr.metablock_size);
        reply.lost.push(pb::LostFile { inode, path: String::new(), size, metablock_size, indexes: vec![index] });
    }
}

/// What has a metablock.
#[derive(Clone, Copy)]
enum Of {
    File(InodeId),
    /// Snapshots alone have this one.
    Snapshots(MetablockId),
}

/// A sentence about one metablock of a file.
struct Finding {
    of: Of,
    /// First byte of the metablock, and the end of its bytes in the file.
    bytes: std::ops::Range<u64>,
    text: String,
}

/// Adds the paths of all files that the reply is about. One walk over the names finds them.
fn name_files(machine: &Machine, found: Vec<Finding>, reply: &mut pb::FsckReply) {
    let lost = reply.lost.iter().map(|file| InodeId::new(file.inode));
    let named = found.iter().filter_map(|finding| match finding.of {
        Of::File(inode) => Some(inode),
        Of::Snapshots(_) => None,
    });
    let files: BTreeSet<InodeId> = lost.chain(named).collect();
    if files.is_empty() && found.is_empty() {
        return;
    }
    let paths = machine.paths_of(&files);
    for file in &mut reply.lost {
        file.path = paths.get(&InodeId::new(file.inode)).cloned().unwrap_or_default();
    }
    reply.findings.extend(found.into_iter().map(|Finding { of, bytes, text }| {
        let path = match of {
            Of::File(inode) => paths.get(&inode).cloned(),
            Of::Snapshots(metablock) => machine.kept_path(metablock),
        };
        let path = path.unwrap_or_else(|| "a removed file that is still open".to_owned());
        format!("{path}, bytes {} to {}: {text}", bytes.start, bytes.end)
    }));
}

/// Counts replicas without a record, on volumes of live nodes.
fn count_strays(shared: &Shared, machine: &Machine, reply: &mut pb::FsckReply) {
    let soft = shared.soft();
    let live = nodes(machine).map(|node| NodeId::new(node.id)).filter(|node| soft.registry.is_live(*node));
    let live: BTreeSet<VolumeId> = live.flat_map(|node| machine.volumes_of(node)).collect();
    let strays = soft.work.excess.iter().map(|stray| {
        (*stray, "is in no set (its set was changed, or its file removed): it is deleted once nobody can need it")
    });
    let foreign = machine.quarantined().map(|stray| {
        (stray, "has an id that this cluster never gave out (another history's): quarantined, and never deleted here")
    });
    for ((volume, metablock), fault) in strays.chain(foreign).filter(|((volume, _), _)| live.contains(volume)) {
        reply.orphaned += 1;
        if reply.findings.len() < FINDINGS_MAX {
            reply.findings.push(format!("replica {metablock} on {volume} {fault}"));
        }
    }
}

async fn examine_slice(
    shared: &Arc<Shared>,
    machine: &Machine,
    slice: &[MetablockId],
    decodable: &BTreeSet<RaidSetId>,
    reply: &mut pb::FsckReply,
    short: &mut Tally,
) -> Vec<Finding> {
    let tasks: Vec<Task> = slice.iter().filter_map(|metablock| Task::of(machine, *metablock)).collect();
    let all = tasks.iter().flat_map(|task| task.record.members.iter().map(|member| (task.metablock, *member)));
    let (wanted, off) = shared.with_view(|view| {
        let may_answer = |node| view.soft.registry.is_live(node) && !view.is_off(node);
        let off: BTreeSet<NodeId> = view.nodes().filter(|node| view.is_off(*node)).collect();
        (all.filter(|(_, member)| may_answer(member.node_id())).collect::<Vec<_>>(), off)
    });
    let is_off = |node| off.contains(&node);
    let answers = describe(shared, wanted).await;
    let mut findings = Vec::new();
    for Task { metablock, inode, record, dataset, is_kept, .. } in tasks {
        // The answers may be older than a change of the set, so a changed set is not assessed.
        let Some(now) = shared.group.machine().find_record(metablock) else { continue };
        if now.members != record.members {
            reply.metablocks += 1;
            reply.unsettled += 1;
            continue;
        }
        let attr = machine.attr(inode).ok().filter(|_| !is_kept);
        if attr.is_none() && !is_kept {
            continue;
        }
        let found = record.members.iter().map(|member| {
            let answer = answers.get(&replica_key(&record, member));
            let silence = if is_off(member.node_id()) { Found::Asleep } else { Found::Unreachable };
            (*member, find_state(shared, record.metablock_id(), record.min_version(), member, answer, silence))
        });
        let wanted = machine.copies_of(&dataset, &record).max(1);
        let at_most = if record.is_in_raid_set() { wanted.max(dataset.replicas) } else { wanted };
        let set = Examined {
            wanted: wanted as usize,
            at_most: at_most as usize,
            unsettled: !is_kept && machine.may_have_uncommitted(inode),
            found: found.collect(),
            decodable: record.frozen.is_some_and(|frozen| decodable.contains(&RaidSetId::new(frozen.raid_set))),
            record,
        };
        let unreadable = |reply: &pb::FsckReply| reply.missing + reply.unreachable + reply.damaged;
        let (before, under_replicated) = (unreadable(reply), reply.under_replicated);
        let start = set.record.index * dataset.metablock_size;
        let end = start + dataset.metablock_size;
        let bytes = start..attr.map_or(start + set.record.length, |attr| end.min(attr.size.max(start)));
        let of = if is_kept { Of::Snapshots(metablock) } else { Of::File(inode) };
        let finding = |text| Finding { of, bytes: bytes.clone(), text };
        findings.extend(examine(&set, reply).into_iter().map(finding));
        if reply.under_replicated > under_replicated {
            short.add(explain_found(&set, &obstacles(shared, inode)));
        }
        // An operator can decide about live files. What a snapshot has lost goes with it.
        if let Some(attr) = attr.filter(|_| unreadable(reply) > before) {
            note_lost(reply, &attr, set.record.index);
        }
    }
    findings
}

/// Obstacles to further members of a file's sets.
pub(crate) fn obstacles(shared: &Shared, inode: InodeId) -> Obstacles {
    let now = shared.runtime.now();
    let soft = shared.soft();
    let missed = soft.registry.missed(now).map(|(node, _)| node).collect();
    let held_back = soft.work.parted.held_back(inode, now).map(|(node, _)| node).collect();
    Obstacles { missed, held_back }
}

/// State of a member's replica by the member's answer. `silence` is the state of a member without an answer.
fn find_state(
    shared: &Shared,
    metablock: MetablockId,
    committed: Version,
    member: &pb::Member,
    answer: Option<&pb::DescribedReplica>,
    silence: Found,
) -> Found {
    let place = (metablock, member.volume_id());
    let mut soft = shared.soft();
    if soft.registry.is_dead(member.node_id()) {
        // The node was already missed before a plan left it out, so its silence is not by plan.
        return Found::Unreachable;
    }
    let work = &mut soft.work;
    let Some(described) = answer else {
        let is_damaged = silence == Found::Asleep && work.damaged.contains(&place);
        return if is_damaged { Found::Corrupt } else { silence };
    };
    if is_damaged(described, committed) {
        work.on_damage(place.0, place.1);
        shared.state.wake.repair.notify_one();
        return if described.corrupt { Found::Corrupt } else { Found::Behind };
    }
    if work.damaged.contains(&place) { Found::Corrupt } else { Found::Good }
}
