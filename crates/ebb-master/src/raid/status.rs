//! What operators see of RAID sets, and what they ask for.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_layout::raid::least_len_bytes;
use ebb_meta::{Due, Machine, RaidTally};
use ebb_types::{DatasetId, Domain, Encode, InodeId, MetablockId, Result, bail};
use ebb_wire::pb;
use pb::raid_work::Kind;

use super::choose::{code_of, spans_of};
use crate::copies::repair::Condition;
use crate::shared::Shared;

/// RAID sets in one answer.
const LIMIT: usize = 100;

/// Answers `RaidStatus`.
pub(crate) fn status(shared: &Shared, call: &pb::RaidStatus) -> Result<pb::RaidStatusReply> {
    let machine = shared.group.snapshot();
    if call.dataset != 0 && machine.dataset(DatasetId::new(call.dataset)).is_none() {
        bail!(NotFound, "there is no dataset {}", call.dataset);
    }
    let mut datasets: Vec<pb::RaidDataset> = machine
        .datasets()
        .filter(|dataset| call.dataset == 0 || dataset.id == call.dataset)
        .map(|dataset| of_dataset(shared, &machine, dataset, |_| true))
        .collect();
    for set in machine.raid_sets() {
        let Some(dataset) = datasets.iter_mut().find(|dataset| dataset.id == set.dataset) else { continue };
        let lost = parts_of(shared, &set).iter().filter(|part| part.is_lost).count();
        match lost {
            0 => dataset.whole += 1,
            lost if lost <= set.rows.len() => dataset.lost_some += 1,
            _ => dataset.lost_too_many += 1,
        }
    }
    let has_any = |one: &pb::RaidDataset| {
        one.code.is_some_and(|code| code.slots > 0) || one.whole + one.lost_some + one.lost_too_many > 0
    };
    datasets.retain(|one| call.dataset != 0 || has_any(one));
    let encoding = shared.soft().encoding.nodes().map(ebb_types::NodeId::raw).collect();
    Ok(pb::RaidStatusReply { datasets, encoding })
}

fn of_dataset(
    shared: &Shared,
    machine: &Machine,
    dataset: &pb::Dataset,
    in_scope: impl Fn(InodeId) -> bool,
) -> pb::RaidDataset {
    let coded = code_of(dataset);
    let tally = tally(shared, machine, dataset, in_scope);
    pb::RaidDataset {
        id: dataset.id,
        path: dataset.path.clone(),
        code: Some(dataset.raid_code().into()),
        encode: dataset.encode,
        delay_ms: coded.map_or(0, |(_, delay)| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        encoded_bytes: tally.encoded,
        sealed_bytes: tally.sealed,
        due_bytes: tally.due,
        waits: if coded.is_some() && tally.due > 0 {
            shared.soft().encoding.why_waits(DatasetId::new(dataset.id))
        } else {
            String::new()
        },
        young_bytes: tally.young,
        short_bytes: tally.short,
        unready_bytes: tally.unready,
        stored_bytes: tally.stored,
        row_bytes: tally.rows,
        dead_bytes: tally.dead,
        thawed_bytes: shared.soft().thaws.within_a_day(DatasetId::new(dataset.id), shared.runtime.now()),
        ..Default::default()
    }
}

fn tally(shared: &Shared, machine: &Machine, dataset: &pb::Dataset, in_scope: impl Fn(InodeId) -> bool) -> RaidTally {
    let now_s = shared.wall_ms() / 1000;
    let (full, last) = code_of(dataset).map_or_else(Default::default, |(_, delay)| spans_of(dataset, delay));
    let due = Due {
        min_len: least_len_bytes(dataset.metablock_size),
        full_s: now_s.saturating_sub(full.as_secs()),
        last_s: now_s.saturating_sub(last.as_secs()),
    };
    machine.raid_tally(DatasetId::new(dataset.id), due, in_scope)
}

/// A slot or row in words.
struct Part {
    text: String,
    is_lost: bool,
}

fn parts_of(shared: &Shared, set: &pb::RaidSet) -> Vec<Part> {
    let slots =
        set.slots.iter().map(|slot| (slot.metablock, slot.members.iter().chain(&slot.leaving).copied().collect()));
    let rows = set.rows.iter().map(|row| (row.metablock, row.member.into_iter().collect()));
    let parts: Vec<(u64, Vec<pb::Member>)> = slots.chain(rows).collect();
    shared.with_view(|view| {
        let part = |(metablock, members): (u64, Vec<pb::Member>)| {
            let conditions: Vec<Condition> =
                members.iter().map(|member| view.condition(MetablockId::new(metablock), member)).collect();
            let texts = members.iter().zip(&conditions).map(|(member, condition)| {
                let state = match condition {
                    Condition::Good => "good",
                    Condition::Draining => "on a node that drains",
                    Condition::Damaged => "damaged",
                    Condition::NodeLost | Condition::VolumeLost => "lost",
                    Condition::Cramped => "on a full volume",
                    Condition::Unknown => "not heard",
                };
                match set.raid_code().domain {
                    Domain::Host => format!("n{} {state}", member.node),
                    Domain::Volume => format!("n{} {} {state}", member.node, member.volume_id()),
                }
            });
            Part {
                text: texts.collect::<Vec<_>>().join(", "),
                is_lost: !conditions.iter().any(|condition| condition.is_source()),
            }
        };
        parts.into_iter().map(part).collect()
    })
}

/// Answers `DescribeRaidSets`.
pub(crate) fn describe(shared: &Shared, call: &pb::DescribeRaidSets) -> pb::DescribeRaidSetsReply {
    let machine = shared.group.snapshot();
    let scope = (call.inode != 0).then(|| machine.below(InodeId::new(call.inode)));
    let limit = if call.limit == 0 { LIMIT } else { LIMIT.min(call.limit as usize) };
    let in_scope = |set: &pb::RaidSet| {
        scope.as_ref().is_none_or(|files| set.slots.iter().any(|slot| files.contains(&InodeId::new(slot.inode))))
    };
    let mut reply = pb::DescribeRaidSetsReply::default();
    for set in machine.raid_sets_from(ebb_types::RaidSetId::new(call.from)).filter(in_scope) {
        if reply.sets.len() == limit {
            reply.next = set.id;
            break;
        }
        let parts = parts_of(shared, &set);
        let lost = u32::try_from(parts.iter().filter(|part| part.is_lost).count()).unwrap_or(u32::MAX);
        if call.troubled && lost == 0 {
            continue;
        }
        let path = machine.dataset(DatasetId::new(set.dataset)).map(|dataset| dataset.path.clone());
        let parts = parts.into_iter().map(|part| part.text).collect();
        reply.sets.push(pb::DescribedRaidSet { set: Some(set), path: path.unwrap_or_default(), parts, lost });
    }
    reply
}

/// Answers `RaidWork`.
///
/// Errors: `Invalid` if the dataset encodes nothing.
pub(crate) fn work(shared: &Arc<Shared>, call: &pb::RaidWork) -> Result<pb::RaidWorkReply> {
    let machine = shared.group.snapshot();
    let root = InodeId::new(call.inode);
    let dataset = machine.dataset_of(root)?;
    if code_of(&dataset).is_none() && call.kind() == Kind::RaidEncode {
        let why = match Encode::from_raw(dataset.encode) {
            Some(Encode::Off) if dataset.raid_slots > 0 => "has --encode off",
            _ => "keeps its data in copies: give it a --redundancy",
        };
        bail!(Invalid, "dataset {} {why}", dataset.path);
    }
    let files = machine.below(root);
    if !call.ask {
        shared.soft().encoding.ask_for(call.kind(), files.iter().copied());
    }
    Ok(match call.kind() {
        Kind::RaidEncode => encode_left(shared, &machine, &dataset, &files),
        Kind::RaidRepack => repack_left(&machine, &files),
    })
}

fn encode_left(
    shared: &Shared,
    machine: &Machine,
    dataset: &pb::Dataset,
    files: &BTreeSet<InodeId>,
) -> pb::RaidWorkReply {
    let tally = tally(shared, machine, dataset, |inode| files.contains(&inode));
    pb::RaidWorkReply {
        done_bytes: tally.encoded,
        // What is young is due for whoever asks.
        left_bytes: tally.sealed + tally.due + tally.young,
        short_bytes: tally.short,
        waiting: tally.unready,
        waits: shared.soft().encoding.why_waits(DatasetId::new(dataset.id)),
    }
}

fn repack_left(machine: &Machine, files: &BTreeSet<InodeId>) -> pb::RaidWorkReply {
    let mut reply = pb::RaidWorkReply::default();
    for set in machine.raid_sets() {
        if !set.slots.iter().any(|slot| files.contains(&InodeId::new(slot.inode))) {
            continue;
        }
        for slot in &set.slots {
            match slot.inode {
                0 => reply.left_bytes += slot.length,
                _ => reply.done_bytes += slot.length,
            }
        }
    }
    reply
}

/// Forgets what was asked for and is done, or cannot be.
pub(crate) fn forget_done(shared: &Shared) {
    let machine = shared.group.snapshot();
    let mut soft = shared.soft();
    let is_copied = |inode: InodeId| {
        machine.metablocks(inode).is_ok_and(|blocks| blocks.iter().any(|block| !block.is_in_raid_set()))
    };
    soft.encoding.forget_asked(Kind::RaidEncode, is_copied);
    let has_ballast: BTreeSet<InodeId> = machine
        .raid_sets()
        .filter(|set| set.slots.iter().any(|slot| slot.inode == 0))
        .flat_map(|set| set.slots)
        .map(|slot| InodeId::new(slot.inode))
        .collect();
    soft.encoding.forget_asked(Kind::RaidRepack, |inode| has_ballast.contains(&inode));
}
