//! Power plans: they are made durable, published, and respected by calls, by the detection of dead nodes and by
//! placement.
//!
//! The power manager decides, and the master keeps the decisions. A node that sleeps by plan is not dead, and is not
//! called before it wakes.

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

/// Maximum lead of a reported plan version over the log. No lost history is further ahead: this is a plan each second
/// for a century.
const AHEAD_MAX: u64 = 1 << 32;
/// Longest wait for a plan, whatever the caller asks.
const WATCH_MAX: Duration = Duration::from_secs(30);
/// Longest wait of a call for its node to wake, unless the plan's interval is longer.
const WAKE_MAX: Duration = Duration::from_secs(60);

/// The logged plans. A plan that this release cannot decode is skipped, with an error in the log.
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
    /// Records that a process follows the plan of this version. A version beyond the log is from a lost history. New
    /// plans must then be newer, or that process would accept none of them.
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

    /// Waits until a node is awake.
    ///
    /// Errors: `Unavailable` if no plan wakes it soon.
    pub(crate) async fn awake(&self, node: NodeId) -> Result<()> {
        // Sleep by plan is waited for: a recovery without the node would leave fewer copies than possible.
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

/// Answers `PublishPlan` once the plan is durable.
///
/// Errors: `Invalid` for a plan that cannot be decoded, or whose version is too far ahead.
pub(crate) async fn publish(shared: &Shared, call: pb::PublishPlan) -> Result<()> {
    let plan = PowerPlan::decode(&call.plan)?;
    let newest = shared.soft().plans.version().raw();
    if plan.version.raw() > newest.saturating_add(AHEAD_MAX) {
        bail!(Invalid, "{}: the newest plan is p{newest}, and versions are not given so far ahead", plan.version);
    }
    let (version, start_ms) = (plan.version.raw(), plan.start_ms);
    tracing::info!(version, policy = %plan.policy, why = plan.sentence(), "a power plan was published");
    // Ordering: the plan is logged before any process sees it. Otherwise a node could follow a plan that the next
    // master does not know.
    shared.group.propose(Op::PublishPlan(pb::PublishedPlan { version, start_ms, plan: call.plan })).await.map(drop)
}

/// Answers `WatchPower`: at once if there is a newer plan, else within the caller's wait.
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

/// Answers `DescribePower`: nodes, plans, served bytes and copies away from home. Unless the call wants no more, the
/// reply also has the datasets with metablocks, and the holdings.
///
/// Errors: those of [`examples::find`].
pub(crate) async fn describe(
    shared: &Shared,
    call: &pb::DescribePower,
    deadline: Duration,
) -> Result<pb::DescribePowerReply> {
    let (_, nodes) = shared.node_map();
    let served = Some(pb::Served { boot: shared.boot, bytes: shared.soft().served.bytes(), told_bytes: 0 });
    // Both are of one moment, or a dataset with metablocks in one could be unknown in the other.
    let (machine, holdings) = {
        let machine = shared.group.machine();
        (machine.clone(), shared.soft().holdings.clone())
    };
    let (away, _) = crate::copies::guests::count(&machine, None);
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
    let filled = machine.datasets().filter(|dataset| holdings.is_filled(DatasetId::new(dataset.id)));
    let datasets = filled.map(|dataset| chains::charted(dataset, &chains::nodes_of(&machine, dataset))).collect();
    let mut holdings = holdings.list();
    let until = shared.runtime.now().after(deadline);
    examples::find(shared, &machine, &mut holdings, &call.named, until).await?;
    let loads = shared.soft().popular.loads(&machine);
    let reads = loads.into_iter().map(|(node, reads)| pb::NodeReads { node: node.raw(), reads }).collect();
    Ok(pb::DescribePowerReply { nodes, datasets, holdings, away, served, reads, ..plans })
}
