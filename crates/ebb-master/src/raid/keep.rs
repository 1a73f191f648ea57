//! Keeps RAID sets: copies leave when all parts are frozen, and lost members are made again ([`step`](super::step)).

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_layout::raid::{Held, RaidRule, Sites, rule_on_volumes, stand_in, stand_ins};
use ebb_layout::{View, VolumeView};
use ebb_runtime::Moment;
use ebb_types::{DatasetId, Epoch, MetablockId, NodeId, RaidCode, RaidSetId, Redundancy, VolumeId};
use ebb_wire::pb;

use super::choose::{held, rule_over};
use super::stand_ins;
use super::step::{Facts, Step, choose_step};
use crate::copies::repair::Condition;
use crate::placement::volumes;
use crate::registry::Patience;
use crate::shared::Shared;

pub(crate) mod freeze;
mod mend;

use freeze::{drop_copies, retire, thin};
use mend::{dissolve, make_again, return_copy};

/// Epoch of the encoder's writes.
const ROW_EPOCH: Epoch = Epoch::new(1);
/// Time between two rounds, if no node has made a member.
const ROUND: Duration = Duration::from_secs(1);
/// And at least.
const ROUND_LEAST: Duration = Duration::from_millis(100);
/// Most RAID sets that are looked at in one round.
const LOOKS_MAX: usize = 2000;
/// Most steps at a time.
const STEPS_MAX: usize = 64;
/// Members that are made on a node at a time. Each has the rate of a copy.
const COMING_MAX: u64 = 1;

/// Rule by dataset, code and the node on whose volumes they lie. A RAID set keeps the code with which it was made, whatever its dataset
/// has by now.
///
/// What the nodes hold is counted over all RAID sets, and only for a step that chooses nodes.
type Rules = BTreeMap<(u64, RaidCode, Option<NodeId>), Option<(RaidRule, OnceCell<Held>)>>;

/// Looks at all RAID sets in turn, and starts their steps. Runs until the master stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut from = RaidSetId::default();
    let mut lost_since: BTreeMap<(MetablockId, VolumeId), Moment> = BTreeMap::new();
    while !shared.is_stopped() {
        if shared.is_safe_start() {
            from = look_around(&shared, from, &mut lost_since);
        }
        shared.runtime.sleep(ROUND_LEAST).await;
        tokio::select! {
            biased;
            () = shared.state.wake.raid.notified() => {}
            () = shared.runtime.sleep(ROUND - ROUND_LEAST) => {}
        }
    }
}

/// Looks at RAID sets from `from` on. Returns where the next round begins.
fn look_around(
    shared: &Arc<Shared>,
    from: RaidSetId,
    lost_since: &mut BTreeMap<(MetablockId, VolumeId), Moment>,
) -> RaidSetId {
    let machine = shared.group.snapshot();
    if machine.raid_count() == 0 {
        lost_since.clear();
        return RaidSetId::default();
    }
    let sets: Vec<pb::RaidSet> = machine.raid_sets_from(from).take(LOOKS_MAX).collect();
    let (view, exclude) = shared.with_view(|view| (volumes(view, Patience::Prompt), view.busy_nodes(u64::MAX)));
    let inside: BTreeMap<NodeId, View> =
        sets.iter().filter_map(stand_ins::node_of).map(|node| (node, stand_ins(&view, node))).collect();
    let inside: BTreeMap<NodeId, Sites<'_>> = inside.iter().map(|(node, view)| (*node, Sites::of(view))).collect();
    let across = Sites::of(&view);
    let mut rules = Rules::new();
    let mut coming = shared.soft().encoding.coming();
    let none_coming = BTreeMap::new();
    let is_excluded = |volume: &&VolumeView| exclude.contains(&volume.node);
    let exclude_inside: Vec<NodeId> =
        view.volumes.iter().filter(is_excluded).map(|volume| stand_in(volume.volume)).collect();
    let now = shared.runtime.now();
    for set in &sets {
        let id = RaidSetId::new(set.id);
        {
            let soft = shared.soft();
            if soft.encoding.is_kept(id) || soft.encoding.kept_count() >= STEPS_MAX {
                continue;
            }
        }
        let code = set.raid_code();
        let dataset = DatasetId::new(set.dataset);
        let node = stand_ins::node_of(set);
        let sites = node.and_then(|node| inside.get(&node)).unwrap_or(&across);
        let rule = rules.entry((set.dataset, code, node)).or_insert_with(|| {
            let rule = match node {
                Some(_) => rule_on_volumes(sites, code).ok()?,
                None => {
                    let chain = shared.soft().chains.chain(dataset)?;
                    rule_over(sites, chain, code)?
                }
            };
            Some((rule, OnceCell::new()))
        });
        let Some((rule, known)) = rule.as_ref() else { continue };
        let held = || known.get_or_init(|| held(&machine, dataset, code.domain));
        let mut conditions = conditions_of(shared, set);
        note_lost(lost_since, &conditions, now);
        let after = shared.options.rebuild_after;
        let is_overdue = |metablock, volume| {
            lost_since.get(&(metablock, volume)).is_some_and(|since: &Moment| now.since(*since) >= after)
        };
        let is_retired = |metablock, volume| shared.soft().encoding.is_retired(metablock, volume);
        let leaves = node.is_some() && stand_ins::leave(&mut conditions);
        let known = machine.dataset(dataset);
        let returns_to =
            known.and_then(|known| copies_wanted(known).or(leaves.then_some(known.replicas.max(1) as usize)));
        let lifted = node.map(|_| stand_ins::on_stand_ins(set));
        let facts = Facts {
            set: lifted.as_ref().unwrap_or(set),
            code,
            sites,
            rule,
            held: &held,
            coming: if node.is_some() { &none_coming } else { &coming },
            conditions,
            is_overdue: &is_overdue,
            exclude: if node.is_some() { &exclude_inside } else { &exclude },
            is_retired: &is_retired,
            returns_to,
        };
        let step = choose_step(&facts);
        let step = step.map(|step| match node {
            Some(node) => stand_ins::on_node(step, set, node),
            None => step,
        });
        match step {
            None => {}
            Some(Step::Wait(reason)) => tracing::debug!(raid_set = %id, reason, "a RAID set waits"),
            Some(step) => {
                let target = target_of(&step);
                if target.is_some_and(|node| coming.get(&node).is_some_and(|members| *members >= COMING_MAX)) {
                    continue;
                }
                target.into_iter().for_each(|node| *coming.entry(node).or_default() += 1);
                begin_step(shared, set.clone(), step);
            }
        }
    }
    match sets.last() {
        Some(last) if sets.len() == LOOKS_MAX => RaidSetId::new(last.id + 1),
        _ => {
            shared.soft().encoding.forget_retired(|metablock| machine.raid_set_of(metablock).is_some());
            RaidSetId::default()
        }
    }
}

/// The copies that a dataset wants, if it wants no RAID sets.
fn copies_wanted(dataset: &pb::Dataset) -> Option<usize> {
    (dataset.redundancy() == Redundancy::Copies).then_some(dataset.replicas.max(1) as usize)
}

fn conditions_of(shared: &Shared, set: &pb::RaidSet) -> BTreeMap<(MetablockId, VolumeId), Condition> {
    let slots =
        set.slots.iter().flat_map(|slot| [(slot.metablock, &slot.members[..]), (slot.metablock, &slot.leaving[..])]);
    let rows = set.rows.iter().map(|row| (row.metablock, row.member.as_slice()));
    shared.with_view(|view| {
        let condition = |(metablock, member): (u64, &pb::Member)| {
            let metablock = MetablockId::new(metablock);
            ((metablock, member.volume_id()), view.condition(metablock, member))
        };
        let members =
            slots.chain(rows).flat_map(|(metablock, members)| members.iter().map(move |one| (metablock, one)));
        members.map(condition).collect()
    })
}

fn note_lost(
    lost_since: &mut BTreeMap<(MetablockId, VolumeId), Moment>,
    conditions: &BTreeMap<(MetablockId, VolumeId), Condition>,
    now: Moment,
) {
    for (place, condition) in conditions {
        if matches!(condition, Condition::NodeLost | Condition::VolumeLost) {
            lost_since.entry(*place).or_insert(now);
        } else {
            lost_since.remove(place);
        }
    }
}

/// The node on which a step makes a member.
fn target_of(step: &Step) -> Option<NodeId> {
    match step {
        Step::Mend(mend) => Some(mend.target.unwrap_or(mend.replaced).node_id()),
        _ => None,
    }
}

/// Starts a step as a task of its own.
fn begin_step(shared: &Arc<Shared>, set: pb::RaidSet, step: Step) {
    let id = RaidSetId::new(set.id);
    let target = target_of(&step);
    shared.soft().encoding.keep(id, target);
    let own = Arc::clone(shared);
    shared.runtime.spawn("keep a RAID set", async move {
        let done = match &step {
            Step::Thin(stay) => thin(&own, &set, stay).await,
            Step::Drop => drop_copies(&own, &set).await,
            Step::Mend(mend) => make_again(&own, &set, mend).await,
            Step::Retire(members) => retire(&own, members).await,
            Step::Return(metablock) => return_copy(&own, &set, *metablock).await,
            Step::Dissolve => dissolve(&own, &set).await,
            Step::Wait(_) => Ok(()),
        };
        match done {
            Ok(()) => tracing::debug!(raid_set = %id, ?step, "a step of a RAID set"),
            Err(error) => {
                tracing::info!(raid_set = %id, %error, "a step of a RAID set failed; it is chosen anew");
                own.runtime.sleep(ROUND).await;
            }
        }
        own.soft().encoding.end_keeping(id);
        if target.is_some() {
            own.state.wake.raid.notify_one();
        }
        own.state.wake.deletes.notify_one();
    });
}
