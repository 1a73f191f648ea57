//! Rounds of extra copies: which are examined, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_runtime::Moment;
use ebb_types::{DatasetId, MetablockId, Version, VolumeId};
use ebb_wire::pb;

use super::{Choice, Fit, MetablockView, View, choose};
use crate::copies::executor::begin_step;
use crate::copies::repair::Condition;
use crate::copies::{Kind, Obstacle, Outcome, Priority, Reason, Step, Task};
use crate::shared::Shared;
use crate::view::ClusterView;

/// Shortest interval of the averages. Between the limits, it is a plan's blink interval.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Longest interval of the averages.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Maximum number of extra copies removed in one round.
const TAKEN_BACK_MAX: usize = 64;
/// Number of copies without a place after which a round makes no more, because others would find none either.
const PLACELESS_MAX: usize = 16;

/// State from round to round.
pub(crate) struct Round {
    /// Start of the present interval of the averages.
    interval_from: Moment,
}

impl Round {
    /// A state whose first interval starts now.
    pub(crate) const fn new(now: Moment) -> Self {
        Self { interval_from: now }
    }

    /// Makes and removes extra copies, a few at a time.
    pub(crate) async fn look_around(&mut self, shared: &Arc<Shared>) {
        let now = shared.runtime.now();
        if now.since(self.interval_from) >= interval(shared) {
            self.interval_from = now;
            shared.soft().popular.on_interval();
        }
        // Before safe start it is unknown which copies are lost and which are only unreported.
        if shared.is_safe_start() {
            look_around(shared).await;
        }
    }
}

fn interval(shared: &Shared) -> Duration {
    let blink_ms = shared.soft().plans.at(shared.wall_ms()).map(|plan| plan.interval_ms);
    blink_ms.map_or(shared.options.popularity_interval, Duration::from_millis).clamp(INTERVAL_MIN, INTERVAL_MAX)
}

async fn look_around(shared: &Arc<Shared>) {
    let machine = shared.group.snapshot();
    let shares = shares(&machine);
    if shares.is_empty() && machine.all_extras().next().is_none() {
        return;
    }
    let view = shared.with_view(|view| look_at(view, shares));
    let (mut taken_back, mut placeless) = (0, 0);
    for choice in choose(&view) {
        let (count, most) = match choice {
            Choice::TakeBack { .. } => (&mut taken_back, TAKEN_BACK_MAX),
            Choice::Make { .. } => (&mut placeless, PLACELESS_MAX),
        };
        if *count >= most {
            continue;
        }
        let Some(step) = to_step(&shared.group.machine(), choice) else { continue };
        match begin_step(shared, step).await {
            // Further copies would meet the same limit.
            Outcome::Not(Obstacle::TooMany) => return,
            Outcome::Copying => {}
            Outcome::Recorded | Outcome::Not(_) => *count += 1,
        }
    }
}

/// The step for a choice. Metablocks in RAID sets may have extra copies, too. `None` if the metablock is gone or unfit.
fn to_step(machine: &Machine, choice: Choice) -> Option<Step> {
    let (metablock, kind, reason) = match choice {
        Choice::TakeBack { metablock, extra, reason } => (metablock, Kind::TakeBack { extra }, reason),
        Choice::Make { metablock } => (metablock, Kind::Extra, Reason::Popular),
    };
    let task = Task::of(machine, metablock).filter(|task| !task.is_kept)?;
    let attr = machine.attr(task.inode).ok()?;
    let is_whole = !attr.size_unknown && task.record.min_version() != Version::ZERO;
    let may_begin = kind != Kind::Extra || is_whole && !task.is_thinning(machine);
    may_begin.then_some(Step { task, kind, priority: Priority::Spare, reason })
}

/// Shares of the unused capacity, for datasets that have one.
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
            wanted: if record.is_in_raid_set() { record.members.len() as u32 } else { attr.replicas.max(1) },
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
        // A copy on a node that sleeps, or that has not been heard yet, may be fine.
        Condition::Good | Condition::Unknown => Fit::Good,
        _ => Fit::Lost,
    }
}
