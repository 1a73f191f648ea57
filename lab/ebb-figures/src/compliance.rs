//! How a cluster keeps to its power: the nodes' power goes from all of it to a fifth and back, under a load, and each
//! policy is measured by its draw around the cut.
//!
//! [`measure`] runs on real clusters and on virtual ones alike. [`Controls`] set the power, and see what the
//! nodes do. What is seen must be the nodes themselves, and not their plan. [`record`] has the measures,
//! which are functions of the looks alone, and [`report`] the tables and figures.
//!
//! The cut and the return come a tenth of an interval after an interval began. The wait for the next one is then nearly
//! as long as it can be, and a real and a virtual cluster are at the same place of their plans.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::time::Duration;

use ebb_client::Client;
use ebb_power::{Battery, NodePower, PolicyKind, wall_ms};
use ebb_runtime::virt::{World, WorldOptions};
use ebb_runtime::{Moment, Runtime};
use ebb_types::{Result, bail};
use ebb_virtual::power::meter::is_capped;
use ebb_virtual::power::{PowerCluster, PowerOptions, Settings};
use ebb_wire::pb;

use crate::data::{Data, TestFiles};
use crate::testbed::Layout;

pub mod record;
pub mod report;
mod requests;

use record::{Look, Record};
pub use requests::Answered;
use requests::Requests;

/// What is read and written. The last file is written, the others are read.
pub const FILES: TestFiles = TestFiles { directory: "lab-compliance", count: 25 };

/// The share of the nodes' power that is left.
pub const LEVEL: f64 = 0.2;

/// The policies that are measured. `migration` is none of them: no service moves data for it, so live nodes would sleep
/// with data of which there is no other copy.
pub const POLICIES: [PolicyKind; 7] = [
    PolicyKind::AlwaysOn,
    PolicyKind::Activation,
    PolicyKind::BlinkSynchronous,
    PolicyKind::BlinkStaggered,
    PolicyKind::BlinkCircular,
    PolicyKind::LoadProportional,
    PolicyKind::Tide,
];

/// The layout of three copies that a policy is for. Activation has one primary: a fifth of nine nodes' power is that of
/// one, and with more primaries its datasets stall, as they should.
#[must_use]
pub const fn layout(policy: PolicyKind) -> Layout {
    match policy {
        PolicyKind::Activation => Layout::equal_work(1, 3),
        PolicyKind::Tide => Layout::equal_work(2, 3),
        PolicyKind::BlinkStaggered | PolicyKind::BlinkCircular => Layout::balanced(3),
        PolicyKind::AlwaysOn | PolicyKind::BlinkSynchronous | PolicyKind::LoadProportional | PolicyKind::Migration => {
            Layout::RANDOM
        }
    }
}

/// What a change of the supply needs before a plan for it begins: the command, the manager's next reading, and the time
/// for which a plan is announced.
pub const NOTICE: Duration = Duration::from_millis(500);

/// Between two looks.
pub const LOOK: Duration = Duration::from_millis(10);
/// For all nodes to serve, beside some intervals.
const PATIENCE: Duration = Duration::from_secs(60);

/// The requests, and how long they are sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// Readers.
    pub readers: usize,
    /// Each reader begins a read so long after the one before, or at once if that took longer.
    pub read_pause: Duration,
    /// The writer does so with overwritten blocks, each made safe.
    pub write_pause: Duration,
    /// The interval that the operator set.
    pub interval: Duration,
    /// Intervals of the low supply.
    pub low_intervals: u32,
}

impl Load {
    /// For a cluster whose disks and links are not part of the question.
    #[must_use]
    pub const fn light(interval: Duration) -> Self {
        let (read_pause, write_pause) = (Duration::from_millis(100), Duration::from_millis(250));
        Self { readers: 4, read_pause, write_pause, interval, low_intervals: 6 }
    }
}

/// The nodes at one moment. Nodes that neither draw nor serve are asleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Nodes that draw as if they worked: awake, or on the way from one state to the other.
    pub drawing: usize,
    /// Those among them that serve.
    pub serving: usize,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plant {
    /// The policy that the cluster follows.
    pub policy: PolicyKind,
    /// What each of its nodes draws.
    pub node: NodePower,
    /// Its battery; the charge is that of the power manager's account at the cut.
    pub battery: Battery,
}

/// The hands and eyes of a measurement.
pub struct Controls<Set, See, Ask> {
    /// Gives the nodes a share of their power.
    pub set: Set,
    /// Sees the nodes as they are now.
    pub see: See,
    /// Asks the power manager for its status.
    pub ask: Ask,
}

/// A cluster's behaviour under one policy.
#[derive(Clone, PartialEq, Debug)]
pub struct Compliance {
    /// The policy.
    pub policy: PolicyKind,
    /// What was seen of the nodes.
    pub record: Record,
    /// What became of the requests.
    pub answered: Answered,
    /// Draw with one node awake: below it, policies may have one awake at a time on the battery.
    pub one_awake_watts: f64,
    /// The interval that the operator set.
    pub interval: Duration,
}

impl Compliance {
    /// Why this cluster did not keep what its policy promises; none if it did.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        let failed = self.answered.failed();
        if failed > 0 {
            let first = self.answered.error.as_deref().unwrap_or("no reason is known");
            return Some(format!("{}: {failed} requests failed, the first one: {first}", self.policy));
        }
        let above = self.record.time_above(self.one_awake_watts);
        if is_capped(self.policy) && above > self.interval + NOTICE {
            return Some(format!("{}: drew more than the supply for {above:?}", self.policy));
        }
        None
    }
}

/// Cuts the power of a cluster, and gives it back, under a load.
///
/// Cancel-safety: dropped, its requests end with the next answer. The power stays as it was set last.
pub async fn measure<Set, See, Ask>(
    runtime: &Runtime,
    client: &Client,
    data: &Data,
    load: Load,
    plant: Plant,
    controls: &Controls<Set, See, Ask>,
) -> Result<Compliance>
where
    Set: AsyncFn(f64) -> Result<()>,
    See: Fn() -> Seen,
    Ask: AsyncFn() -> Result<pb::PowerStatusReply>,
{
    (controls.set)(1.0).await?;
    let status = (controls.ask)().await?;
    let eyes = Eyes {
        runtime,
        interval: load.interval,
        plant,
        controls,
        began: runtime.now(),
        base_watts: status.base_watts,
        nodes: status.nodes.len(),
        share: Cell::new(1.0),
        looks: RefCell::default(),
    };
    eyes.wait_until_all_serve().await?;
    let requests = Requests::start(runtime, client, data, load);
    let cut = tokio::select! {
        biased;
        never = eyes.watch() => match never {},
        cut = eyes.cut_and_return(load.low_intervals) => cut,
    };
    let answered = requests.end().await?;
    let Cut { cut, back, interval, charge_joules } = cut?;
    let battery = Battery { charge_joules: charge_joules.min(plant.battery.capacity_joules), ..plant.battery };
    let grain_watts = eyes.full_watts() * (LOOK * 2).as_secs_f64() / interval.as_secs_f64();
    let (nodes, one_awake_watts) = (eyes.nodes, eyes.watts(1));
    let record = Record { looks: eyes.looks.into_inner(), cut, back, interval, battery, nodes, grain_watts };
    Ok(Compliance { policy: plant.policy, record, answered, one_awake_watts, interval: load.interval })
}

/// When the supply changed, and under what.
struct Cut {
    cut: Duration,
    back: Duration,
    interval: Duration,
    charge_joules: f64,
}

/// Looks at a cluster, and the supply that it has.
struct Eyes<'a, Set, See, Ask> {
    runtime: &'a Runtime,
    interval: Duration,
    plant: Plant,
    controls: &'a Controls<Set, See, Ask>,
    began: Moment,
    base_watts: f64,
    nodes: usize,
    share: Cell<f64>,
    looks: RefCell<Vec<Look>>,
}

impl<Set, See, Ask> Eyes<'_, Set, See, Ask>
where
    Set: AsyncFn(f64) -> Result<()>,
    See: Fn() -> Seen,
    Ask: AsyncFn() -> Result<pb::PowerStatusReply>,
{
    fn full_watts(&self) -> f64 {
        self.nodes as f64 * self.plant.node.active_watts
    }

    /// Draw of the cluster with so many of its nodes awake.
    fn watts(&self, drawing: usize) -> f64 {
        let asleep = self.nodes.saturating_sub(drawing) as f64;
        self.base_watts + drawing as f64 * self.plant.node.active_watts + asleep * self.plant.node.asleep_watts
    }

    fn elapsed(&self) -> Duration {
        self.runtime.now().since(self.began)
    }

    fn add_look(&self) {
        let Seen { drawing, serving } = (self.controls.see)();
        let supply_watts = self.base_watts + self.share.get() * self.full_watts();
        let look = Look { at: self.elapsed(), watts: self.watts(drawing), supply_watts, serving };
        self.looks.borrow_mut().push(look);
    }

    async fn watch(&self) -> Infallible {
        loop {
            self.add_look();
            self.runtime.sleep(LOOK).await;
        }
    }

    /// Changes the supply; returns the moment. It is that at which the command is sent: no node knows of it before.
    async fn supply(&self, share: f64) -> Result<Duration> {
        self.share.set(share);
        let at = self.elapsed();
        self.add_look();
        (self.controls.set)(share).await?;
        Ok(at)
    }

    async fn cut_and_return(&self, low_intervals: u32) -> Result<Cut> {
        self.runtime.sleep(self.interval).await;
        let charge_joules = (self.controls.ask)().await?.battery_joules;
        self.wait_for_a_tenth().await;
        let cut = self.supply(LEVEL).await?;
        self.runtime.sleep(self.interval * (low_intervals / 2)).await;
        let interval = Duration::from_millis((self.controls.ask)().await?.interval_ms);
        // Of a plan with a longer interval two are seen.
        let until = cut + (self.interval * low_intervals).max(interval * 2 + self.interval);
        self.runtime.sleep(until.saturating_sub(self.elapsed())).await;
        self.wait_for_a_tenth().await;
        let back = self.supply(1.0).await?;
        self.wait_until_all_serve().await?;
        self.runtime.sleep(self.interval).await;
        self.add_look();
        Ok(Cut { cut, back, interval, charge_joules })
    }

    async fn wait_until_all_serve(&self) -> Result<()> {
        let end = self.runtime.now().after(self.interval * 8 + PATIENCE);
        while (self.controls.see)().serving < self.nodes {
            if self.runtime.now() >= end {
                bail!(Timeout, "not all of {} nodes serve although there is power for all of them", self.nodes);
            }
            self.runtime.sleep(LOOK).await;
        }
        Ok(())
    }

    /// Until a tenth of an interval has passed.
    async fn wait_for_a_tenth(&self) {
        let interval_ms = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX).max(1);
        let past_ms = (wall_ms(self.runtime.wall()) + interval_ms - interval_ms / 10) % interval_ms;
        self.runtime.sleep(Duration::from_millis(interval_ms - past_ms)).await;
    }
}

/// The same on a virtual cluster of nodes with these settings, apart from the policy and from where the power comes.
pub fn simulate(seed: u64, nodes: usize, settings: &Settings, policy: PolicyKind, load: Load) -> Result<Compliance> {
    let mut settings = settings.clone();
    policy.name().clone_into(&mut settings.policy);
    (settings.feed, settings.forced, settings.force) = (None, None, false);
    World::run(seed, WorldOptions::default(), |world| async move {
        let plant =
            Plant { policy, node: settings.node(), battery: settings.battery(settings.active_watts * nodes as f64) };
        let options = PowerOptions { settings, ..PowerOptions::new(nodes, policy, load.interval) };
        let cluster = PowerCluster::start_with(&world, options).await?;
        let client = cluster.connect("client").await?;
        let data = FILES.make(&client, layout(policy)).await?;
        measure_virtual(&world.process("client").runtime(), &client, &data, load, plant, &cluster).await
    })
}

/// Measures a virtual cluster.
pub async fn measure_virtual(
    runtime: &Runtime,
    client: &Client,
    data: &Data,
    load: Load,
    plant: Plant,
    cluster: &PowerCluster,
) -> Result<Compliance> {
    let see = || {
        let census = cluster.census();
        Seen { drawing: census.serving + census.changing, serving: census.serving }
    };
    let set = async |share| cluster.set_fraction(share).await;
    let controls = Controls { set, see, ask: async || cluster.status().await };
    measure(runtime, client, data, load, plant, &controls).await
}

#[cfg(test)]
mod tests;
