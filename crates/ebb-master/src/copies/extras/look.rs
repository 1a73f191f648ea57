//! The background queue of extra copies: looks, decides, carries out, a little at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_types::{DatasetId, MetablockId, Result, Version, VolumeId};
use ebb_wire::pb;
use pb::command::Command as Op;

use super::copy;
use super::{Fit, MetablockView, Step, View, choose};
use crate::copies::repair::Condition;
use crate::shared::Shared;
use crate::view::ClusterView;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// An interval of the averages is no shorter than this, and no longer than the next: a plan's blink interval otherwise.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Extra copies under way at a time.
const RUNNING_MAX: usize = 2;
/// Extra copies taken back in one look.
const TAKEN_BACK_MAX: usize = 64;
/// Copies that find no place in one look before it ends: others would find none either.
const PLACELESS_MAX: usize = 16;

/// Makes extra copies and takes them back. Runs as long as the master.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut begun = shared.runtime.now();
    while !shared.is_stopped() {
        shared.runtime.sleep(PAUSE).await;
        let now = shared.runtime.now();
        if now.since(begun) >= interval(&shared) {
            begun = now;
            shared.soft().popular.on_interval();
        }
        // Before safe start nobody knows what is lost and what is only not heard of.
        if shared.is_safe_start() {
            look(&shared).await;
        }
    }
}

fn interval(shared: &Shared) -> Duration {
    let blink_ms = shared.soft().plans.at(shared.wall_ms()).map(|plan| plan.interval_ms);
    blink_ms.map_or(shared.options.popularity_interval, Duration::from_millis).clamp(INTERVAL_MIN, INTERVAL_MAX)
}

async fn look(shared: &Arc<Shared>) {
    let machine = shared.group.snapshot();
    let shares = shares(&machine);
    if shares.is_empty() && machine.all_extras().next().is_none() {
        return;
    }
    let (mut taken_back, mut placeless) = (0, 0);
    let view = shared.look(|view| look_at(view, shares));
    for step in choose(&view) {
        match step {
            Step::TakeBack { metablock, extra, reason } if taken_back < TAKEN_BACK_MAX => {
                taken_back += 1;
                match take_back(shared, metablock, &extra).await {
                    Ok(()) => tracing::info!(%metablock, node = extra.node, %reason, "extra copy taken back"),
                    Err(error) => tracing::debug!(%metablock, %error, "extra copy not taken back yet"),
                }
            }
            Step::Make { metablock } if placeless < PLACELESS_MAX => {
                if shared.soft().work.extra_copies.len() >= RUNNING_MAX {
                    return;
                }
                placeless += usize::from(!copy::begin(shared, metablock));
            }
            Step::TakeBack { .. } | Step::Make { .. } => {}
        }
    }
}

/// Shares of the unused capacity, of datasets that have one.
fn shares(machine: &Machine) -> BTreeMap<DatasetId, f64> {
    let share = |dataset: &pb::Dataset| (DatasetId::new(dataset.id), f64::from(dataset.extra_share_percent) / 100.0);
    machine.datasets().filter(|dataset| dataset.extra_share_percent > 0).map(share).collect()
}

fn look_at(cluster: &ClusterView<'_>, shares: BTreeMap<DatasetId, f64>) -> View {
    let (machine, soft) = (cluster.machine, cluster.soft);
    let popular = &soft.popular;
    let tight = soft.registry.tight_volumes(&soft.room);
    let copied = machine.all_extras().map(|(_, metablock, _)| metablock);
    let read = popular.averages().iter().map(|(metablock, _)| metablock);
    let known: BTreeSet<MetablockId> = copied.chain(read).collect();
    let mut unused_bytes = soft.registry.space(&soft.room).free_bytes;
    let mut metablocks = Vec::with_capacity(known.len());
    for id in known {
        let Some((inode, record)) = machine.find_metablock(id) else { continue };
        let Ok(attr) = machine.attr(inode) else { continue };
        unused_bytes = unused_bytes.saturating_add(record.length.saturating_mul(record.extra.len() as u64));
        metablocks.push(MetablockView {
            id,
            dataset: DatasetId::new(attr.dataset),
            bytes: if record.min_version() == Version::ZERO { 0 } else { record.length },
            wanted: attr.replicas.max(1),
            heat: popular.averages().heat(id),
            is_idle: !attr.size_unknown && !soft.work.extra_copies.contains_key(&id),
            extras: record.extra.iter().map(|extra| (*extra, fit(cluster, &tight, id, extra))).collect(),
        });
    }
    let is_repairing = soft.work.is_mending();
    View {
        metablocks,
        unused_bytes,
        shares,
        rule: cluster.options.extra_rule,
        is_warm: popular.is_warm(),
        is_repairing,
    }
}

fn fit(view: &ClusterView<'_>, tight: &BTreeSet<VolumeId>, metablock: MetablockId, extra: &pb::Member) -> Fit {
    if view.soft.popular.is_condemned(&(metablock, extra.volume_id())) {
        return Fit::Lost;
    }
    match view.condition(metablock, extra) {
        Condition::Good | Condition::Unknown if tight.contains(&extra.volume_id()) => Fit::Tight,
        // One that is asleep, or has not been heard of yet, may be fine.
        Condition::Good | Condition::Unknown => Fit::Good,
        _ => Fit::Lost,
    }
}

async fn take_back(shared: &Shared, metablock: MetablockId, extra: &pb::Member) -> Result<()> {
    let Some(change) = change(&shared.group.machine(), metablock, |extras| extras.retain(|one| one != extra)) else {
        return Ok(());
    };
    shared.group.propose(Op::ChangeExtras(change)).await.map(drop)
}

/// The command that changes the extra copies of a metablock from what they are now; none if it is gone.
pub(super) fn change(
    machine: &Machine,
    metablock: MetablockId,
    change: impl FnOnce(&mut Vec<pb::Member>),
) -> Option<pb::ChangeExtras> {
    let (inode, record) = machine.find_metablock(metablock)?;
    let mut members = record.extra.clone();
    change(&mut members);
    Some(pb::ChangeExtras {
        inode: inode.raw(),
        epoch: machine.attr(inode).ok()?.epoch,
        metablock: metablock.raw(),
        generation: record.generation,
        before: record.extra,
        members,
    })
}
