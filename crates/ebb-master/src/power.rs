//! Power plans: made durable, told to everybody, and gone by when nodes are called, judged or given new replicas.
//!
//! The power manager decides; this master only keeps what it decided. A node that sleeps by plan is not dead, and is
//! not called before it wakes.

use std::time::Duration;

use ebb_meta::Machine;
use ebb_power::{NodeState, PowerPlan, Timetable, wall_ms};
use ebb_types::{DatasetId, NodeId, Result, bail};
use ebb_wire::pb;
use pb::command::Command as Op;

use crate::chains;
use crate::holdings::examples;
use crate::shared::{Shared, State};
use crate::waker::Waker;

/// Further ahead of the log no history has come, whatever a peer says: a plan each second for a century.
const AHEAD_MAX: u64 = 1 << 32;
/// Longest that a plan is waited for, whatever a caller asks.
const WATCH_MAX: Duration = Duration::from_secs(30);
/// Longest that a call waits for its node to wake, unless an interval of the plan takes longer.
const WAKE_MAX: Duration = Duration::from_secs(60);

/// Plans as they were logged; one that this release cannot read is left out, and said so.
pub(crate) fn timetable(machine: &Machine, now_ms: u64) -> Timetable {
    let mut timetable = Timetable::default();
    for published in machine.plans() {
        let taken = PowerPlan::decode(&published.plan).and_then(|plan| timetable.accept(plan, now_ms));
        if let Err(error) = taken {
            tracing::error!(version = published.version, %error, "a logged power plan cannot be followed");
        }
    }
    timetable
}

impl State {
    /// Somebody follows the plan of this version. One that the log does not know is of a history that was lost: plans to come
    /// have to be newer, or it would take none of them.
    pub(crate) fn on_followed(&self, version: u64) {
        let mut soft = self.soft();
        let newest = soft.plans.version().raw();
        if version <= newest.saturating_add(AHEAD_MAX) {
            soft.followed = soft.followed.max(version);
        }
    }
}

impl Shared {
    /// Milliseconds since the Unix epoch.
    pub(crate) fn wall_ms(&self) -> u64 {
        wall_ms(self.runtime.wall())
    }

    /// Waits until a node serves. `Unavailable` if no plan wakes it soon.
    pub(crate) async fn awake(&self, node: NodeId) -> Result<()> {
        // Who sleeps by the plan is waited for: a recovery that went on without would leave fewer copies than there could be.
        let interval_ms = self.state.soft().plans.at(self.wall_ms()).map_or(0, |plan| plan.interval_ms);
        let longest = WAKE_MAX.max(Duration::from_millis(interval_ms));
        let until = self.runtime.now().after(longest);
        loop {
            let wait = {
                let (now_ms, soft) = (self.wall_ms(), self.soft());
                let plans = &soft.plans;
                match plans.state(node, now_ms) {
                    NodeState::Awake => return Ok(()),
                    _ => plans.next_wake_ms(node, now_ms).map(|wake| wake.saturating_sub(now_ms)),
                }
            };
            let left = until.since(self.runtime.now());
            match wait.map(|wait| Duration::from_millis(wait.max(1))).filter(|wait| *wait <= left) {
                Some(wait) => self.runtime.sleep(wait).await,
                None => bail!(Unavailable, "{node} sleeps, and no power plan wakes it within {longest:?}"),
            }
        }
    }
}

/// Answers `PublishPlan`: once the plan is durable.
pub(crate) async fn publish(shared: &Shared, call: pb::PublishPlan) -> Result<()> {
    let plan = PowerPlan::decode(&call.plan)?;
    let newest = shared.soft().plans.version().raw();
    if plan.version.raw() > newest.saturating_add(AHEAD_MAX) {
        bail!(Invalid, "{}: the newest plan is p{newest}, and versions are not given so far ahead", plan.version);
    }
    let (version, start_ms) = (plan.version.raw(), plan.start_ms);
    tracing::info!(version, policy = %plan.policy, why = plan.sentence(), "power plan");
    // Ordering: a plan that anybody follows survives this master, so that no node follows one that nobody knows of.
    shared.group.propose(Op::PublishPlan(pb::PublishedPlan { version, start_ms, plan: call.plan })).await.map(drop)
}

/// Answers `WatchPower`.
pub(crate) async fn watch(shared: &Shared, call: &pb::WatchPower, deadline: Duration) -> pb::WatchPowerReply {
    shared.soft().waker = Some(Waker::on_watch(call, shared.runtime.now()));
    shared.state.on_followed(call.version);
    let wait = Duration::from_millis(call.wait_ms.into()).min(WATCH_MAX).min(deadline);
    let until = shared.runtime.now().after(wait);
    loop {
        let news = shared.state.wake.plans.notified();
        tokio::pin!(news);
        news.as_mut().enable();
        let version = shared.soft().plans.version().raw();
        let now = shared.runtime.now();
        if version > call.version || now >= until || shared.is_stopped() {
            return pb::WatchPowerReply { version, plans: encoded(&shared.group.machine()) };
        }
        tokio::select! {
            biased;
            () = news => {}
            () = shared.runtime.sleep(until.since(now)) => {}
        }
    }
}

/// Plans in their byte form, oldest first.
pub(crate) fn encoded(machine: &Machine) -> Vec<Vec<u8>> {
    machine.plans().map(|published| published.plan.clone()).collect()
}

/// Answers `DescribePower`: nodes, plans, what was served and what is away from home, and, unless that is all, datasets that
/// hold anything and what lies where.
///
/// Errors: those of [`examples::find`].
pub(crate) async fn describe(
    shared: &Shared,
    call: &pb::DescribePower,
    deadline: Duration,
) -> Result<pb::DescribePowerReply> {
    let (_, nodes) = shared.node_map();
    let served = Some(pb::Served { boot: shared.boot, bytes: shared.soft().served.bytes(), told_bytes: 0 });
    // Of one moment, or a dataset that is filled has no place in the other.
    let (machine, holdings) = {
        let machine = shared.group.machine();
        (machine.clone(), shared.soft().holdings.clone())
    };
    let (away, _) = crate::copies::guests::tell(&machine, None);
    let newest = machine.plans().last().map_or(0, |plan| plan.version);
    let followed = Some(shared.soft().followed).filter(|followed| *followed > newest);
    let plans = pb::DescribePowerReply {
        plans: encoded(&machine),
        followed: followed.unwrap_or_default(),
        hearing: !shared.standing.is_serving(),
        ..Default::default()
    };
    if call.nodes_only {
        return Ok(pb::DescribePowerReply { nodes, served, away, ..plans });
    }
    let all: Vec<u64> = nodes.iter().map(|node| node.id).collect();
    let filled = machine.datasets().filter(|dataset| holdings.is_filled(DatasetId::new(dataset.id)));
    let datasets = filled.map(|dataset| chains::charted(dataset, &all)).collect();
    let mut holdings = holdings.told();
    let until = shared.runtime.now().after(deadline);
    examples::find(shared, &machine, &mut holdings, &call.named, until).await?;
    let loads = shared.soft().popular.loads(&machine);
    let reads = loads.into_iter().map(|(node, reads)| pb::NodeReads { node: node.raw(), reads }).collect();
    Ok(pb::DescribePowerReply { nodes, datasets, holdings, away, served, reads, ..plans })
}
