//! RAID sets in a check: parts that are lost, what can be decoded without them, and rows that are not the code of their slots.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_types::{Error, InodeId, MetablockId, NodeId, RaidSetId, Result, Version, bail, err};
use ebb_wire::{convert, pb};

use super::examine::Found;
use super::{FINDINGS_MAX, find_state};
use crate::describe::describe;
use crate::recovery::run::pull_deadline;
use crate::shared::Shared;

/// RAID sets that are examined at a time.
const SLICE: usize = 500;
/// Comparisons at a time.
const COMPARED_AT_ONCE: usize = 4;

/// A slot or row, with its members.
struct Part {
    name: String,
    metablock: MetablockId,
    version: Version,
    members: Vec<pb::Member>,
    /// Whether a file has it, whose own check speaks of it.
    is_of_file: bool,
}

fn parts_of(set: &pb::RaidSet) -> Vec<Part> {
    let slots = set.slots.iter().enumerate().map(|(number, slot)| Part {
        name: format!("slot {number}"),
        metablock: MetablockId::new(slot.metablock),
        version: convert::version(slot.version),
        members: slot.members.iter().chain(&slot.leaving).copied().collect(),
        is_of_file: slot.inode != 0,
    });
    let rows = set.rows.iter().enumerate().map(|(number, row)| Part {
        name: format!("row {number}"),
        metablock: MetablockId::new(row.metablock),
        version: Version::ZERO,
        members: row.member.into_iter().collect(),
        is_of_file: false,
    });
    slots.chain(rows).collect()
}

fn in_scope(set: &pb::RaidSet, scope: Option<&BTreeSet<InodeId>>) -> bool {
    scope.is_none_or(|files| set.slots.iter().any(|slot| files.contains(&InodeId::new(slot.inode))))
}

/// Looks at the members of all parts. Returns the RAID sets that give the bytes of each of their slots.
pub(super) async fn examine_sets(
    shared: &Arc<Shared>,
    machine: &Machine,
    scope: Option<&BTreeSet<InodeId>>,
    reply: &mut pb::FsckReply,
) -> BTreeSet<RaidSetId> {
    let mut decodable = BTreeSet::new();
    let sets: Vec<pb::RaidSet> = machine.raid_sets().filter(|set| in_scope(set, scope)).collect();
    for sets in sets.chunks(SLICE) {
        let parts: Vec<Vec<Part>> = sets.iter().map(parts_of).collect();
        let members = parts.iter().flatten().flat_map(|part| part.members.iter().map(|one| (part.metablock, *one)));
        let (asked, off) = shared.with_view(|view| {
            let may_answer = |node| view.soft.registry.is_live(node) && !view.is_off(node);
            let off: BTreeSet<NodeId> = view.nodes().filter(|node| view.is_off(*node)).collect();
            (members.filter(|(_, member)| may_answer(member.node_id())).collect::<Vec<_>>(), off)
        });
        let answers = describe(shared, asked).await;
        for (set, parts) in sets.iter().zip(&parts) {
            let id = RaidSetId::new(set.id);
            // The answers may be older than a change of the record.
            if shared.group.machine().raid_set(id).is_none_or(|now| now.generation != set.generation) {
                reply.unsettled += 1;
                decodable.insert(id);
                continue;
            }
            reply.raid_sets += 1;
            let mut lost = 0;
            for part in parts {
                let state = |member: &pb::Member| {
                    let silence = if off.contains(&member.node_id()) { Found::Asleep } else { Found::Unreachable };
                    let answer = answers.get(&(part.metablock, member.volume_id()));
                    find_state(shared, part.metablock, part.version.max(LEAST), member, answer, silence)
                };
                let found: Vec<Found> = part.members.iter().map(state).collect();
                let is_there = |found: &Found| matches!(found, Found::Good | Found::Asleep);
                if !found.iter().any(is_there) {
                    lost += 1;
                }
                for (member, found) in part.members.iter().zip(&found).filter(|_| !part.is_of_file) {
                    note_part(reply, id, part, member, *found);
                }
            }
            if lost <= set.rows.len() {
                decodable.insert(id);
            }
        }
    }
    decodable
}

/// What the encoder writes first. A replica below it is empty.
const LEAST: Version = Version::new(ebb_types::Epoch::new(1), 1);

fn note_part(reply: &mut pb::FsckReply, id: RaidSetId, part: &Part, member: &pb::Member, found: Found) {
    let fault = match found {
        Found::Good => return,
        Found::Asleep => {
            reply.unseen += 1;
            return;
        }
        Found::Corrupt => {
            reply.corrupt += 1;
            "is damaged: its bytes do not match their checksums, or its file is gone"
        }
        Found::Behind => "is absent or older than committed",
        Found::Unreachable => "is out of reach: its node does not answer",
    };
    reply.lost_parts += 1;
    say(
        reply,
        format!(
            "{id}, {}: replica on n{} v{} {fault}; it is made again of the others",
            part.name, member.node, member.volume
        ),
    );
}

fn say(reply: &mut pb::FsckReply, finding: String) {
    if reply.findings.len() < FINDINGS_MAX {
        reply.findings.push(finding);
    }
}

/// Has each row compared with what its slots give, at a node that has a row.
pub(super) async fn compare_rows(
    shared: &Arc<Shared>,
    machine: &Machine,
    scope: Option<&BTreeSet<InodeId>>,
    deadline: Duration,
    reply: &mut pb::FsckReply,
) {
    let until = shared.runtime.now().after(deadline * 3 / 4);
    let sets: Vec<pb::RaidSet> = machine.raid_sets().filter(|set| in_scope(set, scope)).collect();
    for sets in sets.chunks(COMPARED_AT_ONCE) {
        let compared: Vec<_> = sets
            .iter()
            .map(|set| {
                let (own, set) = (Arc::clone(shared), set.clone());
                shared.runtime.spawn("compare rows", async move { compare_set(&own, &set).await })
            })
            .collect();
        for (set, compared) in sets.iter().zip(compared) {
            let id = RaidSetId::new(set.id);
            match compared.join().await.and_then(|verdict| verdict) {
                Ok(faults) => {
                    reply.rows_compared += faults.len() as u64;
                    for (row, fault) in faults.iter().enumerate().filter(|(_, fault)| !fault.is_empty()) {
                        reply.wrong_rows += 1;
                        say(reply, format!("{id}: row {row}: {fault}"));
                    }
                }
                // A record that has moved on is another's to compare.
                Err(_) if shared.group.machine().raid_set(id).is_none_or(|now| now.generation != set.generation) => {}
                Err(error) => say(reply, format!("{id}: its rows were not compared ({error})")),
            }
        }
        if shared.runtime.now() >= until {
            say(reply, "not all rows were compared: it took too long; name a directory".to_owned());
            return;
        }
    }
}

async fn compare_set(shared: &Shared, set: &pb::RaidSet) -> Result<Vec<String>> {
    // A member that is lost or damaged is made again first.
    let sources = |metablock: u64, members: &[pb::Member]| -> Result<Vec<pb::Hop>> {
        let is_good = |member: &&pb::Member| {
            shared.with_view(|view| view.condition(MetablockId::new(metablock), member)).is_source()
        };
        let good: Vec<pb::Hop> =
            members.iter().filter(is_good).map(|member| shared.hop(*member)).collect::<Result<_>>()?;
        if good.is_empty() {
            bail!(Unavailable, "m{metablock} has no good replica");
        }
        Ok(good)
    };
    let mut slots = Vec::with_capacity(set.slots.len());
    for slot in &set.slots {
        let members: Vec<pb::Member> = slot.members.iter().chain(&slot.leaving).copied().collect();
        let (metablock, version, length) = (slot.metablock, slot.version, slot.length);
        slots.push(pb::EncodeSlot { metablock, version, length, sources: sources(metablock, &members)? });
    }
    let mut rows = Vec::with_capacity(set.rows.len());
    for row in &set.rows {
        let sources = sources(row.metablock, row.member.as_slice())?;
        rows.push(pb::RebuildRow { metablock: row.metablock, length: row.length, sources });
    }
    let at = set.rows.first().and_then(|row| row.member);
    let at = at.ok_or_else(|| err!(Internal, "rs{} has no rows", set.id))?.node_id();
    let bytes = set.slots.iter().map(|slot| slot.length).sum::<u64>();
    let rate_bytes_per_sec = shared.options.copy_rate_bytes_per_sec;
    let call = pb::VerifySet { raid_set: set.id, code: set.code, slots, rows, rate_bytes_per_sec };
    let reply = shared.channel(at)?.call(&call, pull_deadline(shared, 2 * bytes)).await;
    reply.map(|reply| reply.faults).map_err(|error: Error| error.context(format_args!("{at}")))
}
