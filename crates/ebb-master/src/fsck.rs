//! File-system check: comparison of the map with the replicas on the volumes.
//!
//! The verdict on one set is pure ([`examine`]). The members are asked in slices of sets, so that memory stays bounded.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_types::{Error, InodeId, MetablockId, NodeId, Result, VolumeId, bail};
use ebb_wire::pb;
use pb::command::Command as Op;

use crate::describe::describe;
use crate::holdings::Holdings;
use crate::nodes::{is_damaged, volumes_of};
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

/// State in which a member's replica was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It has the committed version or a higher one.
    Good,
    /// Its bytes do not match their checksums, or its volume reports damage.
    Corrupt,
    /// It is absent, or below the committed version.
    Behind,
    /// Its node does not answer.
    Unreachable,
    /// A power plan keeps its node off, so it was not examined.
    Asleep,
}

/// One set as recorded and as found.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The recorded set.
    pub record: pb::Metablock,
    /// Number of copies that the dataset wants.
    pub wanted: usize,
    /// Whether the file has a write lease or is in recovery, so that the record may lag behind.
    pub unsettled: bool,
    /// State of each member, in the record's order.
    pub found: Vec<(pb::Member, Found)>,
}

/// Adds one set to the counts of the reply. Returns a sentence for each fault.
pub fn examine(set: &Examined, reply: &mut pb::FsckReply) -> Vec<String> {
    reply.metablocks += 1;
    reply.unsettled += u64::from(set.unsettled);
    // Before the first commit a missing replica is no loss. Damage to a replica that exists counts all the same.
    let committed = set.record.min_version() != ebb_types::Version::ZERO;
    let mut findings = Vec::new();
    let nodes = |wanted: Found| -> BTreeSet<NodeId> {
        set.found.iter().filter(|(_, found)| *found == wanted).map(|(member, _)| member.node_id()).collect()
    };
    let (good, asleep) = (nodes(Found::Good), nodes(Found::Asleep));
    let there = good.union(&asleep).count();
    reply.unseen += asleep.len() as u64;
    let mut say = |text: String| findings.push(format!("m{} (index {}): {text}", set.record.id, set.record.index));
    for (member, found) in &set.found {
        let fault = match found {
            Found::Good | Found::Asleep => continue,
            Found::Behind | Found::Unreachable if !committed => continue,
            Found::Corrupt => {
                reply.corrupt += 1;
                "is corrupt: its bytes do not match their checksums; a good copy takes its place"
            }
            Found::Behind => {
                "is absent or older than committed (a lost write, or a volume that was emptied); it is copied again"
            }
            Found::Unreachable => {
                "is out of reach: its node does not answer; it is made again elsewhere once the node is dead"
            }
        };
        say(format!("replica on n{} v{} {fault}", member.node, member.volume));
    }
    if !committed {
        return findings;
    }
    if there == 0 {
        reply.missing += 1;
        say("no replica serves: its bytes cannot be read until one of these nodes comes back; see --repair".to_owned());
    } else if there < set.wanted {
        reply.under_replicated += 1;
        let next = if set.unsettled { "when its writer is done" } else { "as soon as a node has room and time" };
        say(format!("{there} of {} copies are good; the others are made {next}", set.wanted));
    }
    if good.is_empty() && !asleep.is_empty() {
        reply.asleep += 1;
        say("every good replica is on a node that the power plan keeps off: it can be read when one is on".to_owned());
    }
    if set.record.members.len() > set.wanted {
        reply.over_replicated += 1;
        say(format!("{} members, {} copies wanted; the excess is dropped", set.record.members.len(), set.wanted));
    }
    findings
}

/// Answers `Fsck`, and queues the damage that it finds for repair.
pub(crate) async fn fsck(shared: &Arc<Shared>, call: &pb::Fsck, deadline: Duration) -> Result<pb::FsckReply> {
    let mut reply = pb::FsckReply::default();
    if call.scrub {
        scrub(shared, deadline, &mut reply).await?;
    }
    let machine = {
        let machine = shared.group.machine();
        debug_assert!(shared.soft().holdings == Holdings::of(&machine), "what lies where is counted as it changes");
        machine.clone()
    };
    let mut metablocks = BTreeSet::new();
    for node in nodes(&machine) {
        for volume in volumes_of(&machine, NodeId::new(node.id)) {
            metablocks.extend(machine.on_volume(volume));
        }
    }
    let metablocks: Vec<MetablockId> = metablocks.into_iter().collect();
    let mut short = Tally::default();
    for slice in metablocks.chunks(SLICE) {
        let mut findings = examine_slice(shared, &machine, slice, &mut reply, &mut short).await;
        findings.truncate(FINDINGS_MAX.saturating_sub(reply.findings.len()));
        reply.findings.append(&mut findings);
    }
    reply.shortages = short.to_messages();
    name_lost(&machine, &mut reply);
    count_strays(shared, &machine, &mut reply);
    release_deletions(shared, &mut reply).await?;
    Ok(reply)
}

/// Resumes deletions that were held since a loss was accepted. Unmapped replicas are no longer needed once every
/// metablock has a replica that serves.
async fn release_deletions(shared: &Shared, reply: &mut pb::FsckReply) -> Result<()> {
    if !shared.group.machine().deletions_held() {
        return Ok(());
    }
    if reply.missing == 0 {
        shared.group.propose(Op::ReleaseDeletions(pb::Empty {})).await?;
        tracing::info!(
            "every metablock has a replica that serves: deletions, held since a loss was accepted, are resumed"
        );
        return Ok(());
    }
    let held = format!(
        "a loss was accepted, and no replica is deleted as long as {} metablocks have none that serves: one that no set \
         names may have their bytes",
        reply.missing
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

/// Adds the paths of the lost files.
fn name_lost(machine: &Machine, reply: &mut pb::FsckReply) {
    if reply.lost.is_empty() {
        return;
    }
    let mut paths = machine.paths_of(&reply.lost.iter().map(|file| InodeId::new(file.inode)).collect());
    for file in &mut reply.lost {
        file.path = paths.remove(&InodeId::new(file.inode)).unwrap_or_default();
    }
}

/// Counts replicas without a record, on volumes of live nodes.
fn count_strays(shared: &Shared, machine: &Machine, reply: &mut pb::FsckReply) {
    let soft = shared.soft();
    let live = nodes(machine).map(|node| NodeId::new(node.id)).filter(|node| soft.registry.is_live(*node));
    let live: BTreeSet<VolumeId> = live.flat_map(|node| volumes_of(machine, node)).collect();
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
    reply: &mut pb::FsckReply,
    short: &mut Tally,
) -> Vec<String> {
    let records: Vec<(InodeId, pb::Metablock)> =
        slice.iter().filter_map(|metablock| machine.find_metablock(*metablock)).collect();
    let all =
        records.iter().flat_map(|(_, record)| record.members.iter().map(|member| (record.metablock_id(), *member)));
    let (wanted, off) = shared.with_view(|view| {
        let may_answer = |node| view.soft.registry.is_live(node) && !view.is_off(node);
        let off: BTreeSet<NodeId> = view.nodes().filter(|node| view.is_off(*node)).collect();
        (all.filter(|(_, member)| may_answer(member.node_id())).collect::<Vec<_>>(), off)
    });
    let is_off = |node| off.contains(&node);
    let answers = describe(shared, wanted).await;
    let mut findings = Vec::new();
    for (inode, record) in records {
        // The answers may be older than a change of the set, so a changed set is not assessed.
        let Some((_, now)) = shared.group.machine().find_metablock(record.metablock_id()) else { continue };
        if now.members != record.members {
            reply.metablocks += 1;
            reply.unsettled += 1;
            continue;
        }
        let Ok(attr) = machine.attr(inode) else { continue };
        let found = record.members.iter().map(|member| {
            let answer = answers.get(&replica_key(&record, member));
            let silence = if is_off(member.node_id()) { Found::Asleep } else { Found::Unreachable };
            (*member, find_state(shared, &record, member, answer, silence))
        });
        let set = Examined {
            wanted: attr.replicas.max(1) as usize,
            unsettled: machine.may_have_uncommitted(inode),
            found: found.collect(),
            record,
        };
        let (missing, under_replicated) = (reply.missing, reply.under_replicated);
        findings.extend(examine(&set, reply));
        if reply.under_replicated > under_replicated {
            short.add(explain_found(&set, &obstacles(shared, inode)));
        }
        if reply.missing > missing {
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
    record: &pb::Metablock,
    member: &pb::Member,
    answer: Option<&pb::DescribedReplica>,
    silence: Found,
) -> Found {
    let place = replica_key(record, member);
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
    if is_damaged(described, record.min_version()) {
        work.on_damage(place.0, place.1);
        shared.state.wake.repair.notify_one();
        return if described.corrupt { Found::Corrupt } else { Found::Behind };
    }
    if work.damaged.contains(&place) { Found::Corrupt } else { Found::Good }
}

/// Lets every live node read all its replicas. A node that fails is named in the reply. Part of the deadline is left
/// for the rest of the check.
async fn scrub(shared: &Arc<Shared>, deadline: Duration, reply: &mut pb::FsckReply) -> Result<()> {
    let live =
        shared.with_view(|view| view.nodes().filter(|node| view.soft.registry.is_live(*node)).collect::<Vec<_>>());
    let calls: Vec<_> = live
        .into_iter()
        .map(|node| {
            let own = Arc::clone(shared);
            let scrub = async move {
                let call = pb::Scrub { rate_bytes_per_sec: 0 };
                let reply = tokio::select! {
                    biased;
                    reply = own.ask(node, &call, deadline * 3 / 4) => reply?,
                    () = death(&own, node) => bail!(Unreachable, "it has been silent for {:?}", own.options.dead_time),
                };
                note_scrubbed(&own, node, &reply);
                Ok::<_, Error>(())
            };
            (node, shared.runtime.spawn("scrub", scrub))
        })
        .collect();
    for (node, call) in calls {
        if let Err(error) = call.join().await? {
            tracing::warn!(%node, %error, "a node could not be scrubbed");
            reply.unscrubbed.push(node.raw());
            if reply.findings.len() < FINDINGS_MAX {
                reply
                    .findings
                    .push(format!("node {node} was not scrubbed ({error}); run it again when the node answers"));
            }
        }
    }
    Ok(())
}

/// Returns when the node counts as dead. A scrub may take hours, and a frozen node would use up all of them.
async fn death(shared: &Shared, node: NodeId) {
    while shared.soft().registry.is_live(node) {
        shared.runtime.sleep(Duration::from_secs(1)).await;
    }
}

/// Queues the damage that a scrub found.
fn note_scrubbed(shared: &Shared, node: NodeId, reply: &pb::ScrubReply) {
    let machine = shared.group.machine();
    let mut soft = shared.soft();
    for metablock in reply.corrupt.iter().map(|id| MetablockId::new(*id)) {
        let Some((_, record)) = machine.find_metablock(metablock) else { continue };
        for member in record.members.iter().filter(|member| member.node_id() == node) {
            soft.work.on_damage(metablock, VolumeId::new(member.volume));
        }
        for extra in record.extra.iter().filter(|extra| extra.node_id() == node) {
            soft.popular.condemn((metablock, extra.volume_id()));
        }
    }
    shared.state.wake.repair.notify_one();
}

#[cfg(test)]
mod tests;
