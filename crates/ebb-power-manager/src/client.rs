//! The power client as a service: it keeps the plans, and lets nodes sleep and wake in time.
//!
//! It never sleeps itself, as a baseboard controller does not. Before a node sleeps, its block server is asked to rest:
//! to take no more work, finish work in progress, sync, confirm. If it does not confirm in time, its node sleeps all
//! the same, because there is no power for it. To the others that node fails, and the overrun is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_power::plan::timetable::Action;
use ebb_power::{NodeState, PowerPlan, Timetable, wall_ms};
use ebb_power_drivers::{PowerDriver, Powered};
use ebb_rpc::{Answer, Connector, Counters, Identity, Request, Server, ServerOptions, Service, ServiceFuture};
use ebb_runtime::{Listener, Moment, Runtime};
use ebb_types::{NodeId, Result, err};
use ebb_wire::{Method, pb};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Longest that a node is left without a look at the plans.
const LOOK: Duration = Duration::from_millis(500);
/// How long the master may hold a question for plans. The question also shows that this power client runs: so a node
/// that nothing has woken is not dead.
const WATCH: Duration = Duration::from_secs(1);
/// Between two looks at the clock.
const TICK: Duration = Duration::from_millis(100);
/// A power client that has not run for so long (it was frozen, or the machine slept) may have missed a node's turn.
const GAP: Duration = Duration::from_secs(1);
/// Pause after a question that was not answered.
const PAUSE: Duration = Duration::from_millis(200);
/// Deadline of the call that ends the rest of a block server whose node wakes.
const WAKE_CALL: Duration = Duration::from_millis(500);
/// Rest lasts for so long beyond the moment of sleep, in case freezing takes its time.
const REST_SLACK_MS: u64 = 500;

/// The nodes that are served, as they are now. They may change at any time.
pub trait Nodes: Send + Sync {
    /// Nodes with the addresses of their block servers. Also gives the power client the processes that stand for them.
    fn refresh(&self) -> Result<BTreeMap<NodeId, String>>;

    /// Processes that stand for a node; none where there are none.
    fn pids(&self, node: NodeId) -> Vec<u32>;
}

/// A running power client.
pub struct PowerClient {
    runtime: Runtime,
    connector: Connector,
    driver: Arc<dyn PowerDriver>,
    nodes: Arc<dyn Nodes>,
    /// None until the master has answered. Before that no node is put to sleep or woken.
    plans: Mutex<Option<Timetable>>,
    news: Notify,
    seen: Mutex<BTreeMap<NodeId, pb::NodePowered>>,
    pulse: Mutex<Pulse>,
}

/// Since when this process has run without a gap.
struct Pulse {
    since: Moment,
    last: Moment,
}

impl Pulse {
    /// How long that is.
    fn beat(&mut self, now: Moment) -> Duration {
        if now.since(self.last) >= GAP {
            self.since = now;
        }
        self.last = now;
        now.since(self.since)
    }
}

/// Serves on `listener` and keeps the nodes to the plans until `stop` completes; then all are woken.
pub async fn run(
    runtime: Runtime,
    listener: Listener,
    identity: Identity,
    master: String,
    driver: Arc<dyn PowerDriver>,
    nodes: Arc<dyn Nodes>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let (counters, began) = (Counters::default(), runtime.now());
    let connector = Connector::new(runtime.clone(), identity.clone(), counters.clone());
    let keeper = Arc::new(PowerClient {
        runtime: runtime.clone(),
        connector,
        driver,
        nodes,
        plans: Mutex::default(),
        news: Notify::new(),
        seen: Mutex::default(),
        pulse: Mutex::new(Pulse { since: began, last: began }),
    });
    let beating = runtime.spawn("look for gaps", beat(Arc::clone(&keeper)));
    let watching = runtime.spawn("watch plans", watch(Arc::clone(&keeper), master));
    let keeping = runtime.spawn("keep nodes", keep_all(Arc::clone(&keeper)));
    let server = Server::run_until(
        runtime,
        listener,
        identity,
        counters,
        ServerOptions::default(),
        Arc::clone(&keeper) as Arc<dyn Service>,
        stop,
    );
    let served = server.await;
    beating.abort();
    watching.abort();
    keeping.abort();
    keeper.wake_all().await;
    served
}

async fn beat(keeper: Arc<PowerClient>) {
    loop {
        keeper.beat();
        keeper.runtime.sleep(TICK).await;
    }
}

/// Asks for plans, over and over. Without an answer the last ones stay.
async fn watch(keeper: Arc<PowerClient>, master: String) {
    loop {
        let version = keeper.plans.lock().as_ref().map_or(0, |plans| plans.version().raw());
        let wait_ms = u32::try_from(WATCH.as_millis()).unwrap_or(u32::MAX);
        // The first question is answered at once: a power client that starts must know whether there is a plan.
        let wait_ms = if keeper.plans.lock().is_some() { wait_ms } else { 0 };
        let kept_ms = u64::try_from(keeper.beat().as_millis()).unwrap_or(u64::MAX);
        let call = pb::WatchPower { version, wait_ms, kept_ms };
        match keeper.connector.channel(&master).call(&call, WATCH + PAUSE * 10).await {
            Ok(reply) => keeper.accept_plans(&reply),
            Err(error) => {
                tracing::debug!(%error, "no word of power plans");
                keeper.runtime.sleep(PAUSE).await;
            }
        }
    }
}

/// One task for each node that there is.
async fn keep_all(keeper: Arc<PowerClient>) {
    let mut kept = BTreeSet::new();
    loop {
        match keeper.nodes.refresh() {
            Ok(nodes) => {
                for node in nodes.into_keys().filter(|node| kept.insert(*node)) {
                    keeper.runtime.spawn("keep a node", keep(Arc::clone(&keeper), node));
                }
            }
            Err(error) => tracing::warn!(%error, "the nodes are not known"),
        }
        keeper.runtime.sleep(LOOK).await;
    }
}

/// Keeps one node to the plans.
async fn keep(keeper: Arc<PowerClient>, node: NodeId) {
    loop {
        let news = keeper.news.notified();
        tokio::pin!(news);
        news.as_mut().enable();
        let (now_ms, plans) = (keeper.wall_ms(), keeper.plans.lock().clone());
        let Some(plans) = plans else {
            tokio::select! { biased; () = news => {}, () = keeper.runtime.sleep(LOOK) => {} }
            continue;
        };
        match plans.state(node, now_ms) {
            // It is about to be asleep, and may already be.
            NodeState::FallingAsleep => {}
            state => keeper.wake_or_sleep(node, state.is_powered()).await,
        }
        let now_ms = keeper.wall_ms();
        let next = plans.next_action(node, now_ms);
        match next {
            Some((at_ms, Action::Sleep)) if at_ms <= now_ms => {
                let switch_ms = plans.next_switch(node, now_ms).map_or(now_ms, |(switch, _)| switch);
                keeper.sleep(node, switch_ms).await;
            }
            _ => {
                let wait = next.map_or(LOOK, |(at_ms, _)| Duration::from_millis(at_ms.saturating_sub(now_ms).max(1)));
                tokio::select! { biased; () = news => {}, () = keeper.runtime.sleep(wait.min(LOOK)) => {} }
            }
        }
    }
}

impl PowerClient {
    fn wall_ms(&self) -> u64 {
        wall_ms(self.runtime.wall())
    }

    /// How long nodes have been kept to their plans without a gap.
    fn beat(&self) -> Duration {
        self.pulse.lock().beat(self.runtime.now())
    }

    fn accept_plans(&self, reply: &pb::WatchPowerReply) {
        let now_ms = self.wall_ms();
        let mut plans = self.plans.lock();
        let timetable = plans.get_or_insert_default();
        for bytes in &reply.plans {
            match PowerPlan::decode(bytes).and_then(|plan| timetable.accept(plan, now_ms)) {
                Ok(true) => tracing::info!(version = %timetable.version(), "power plan"),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "a power plan that cannot be followed"),
            }
        }
        drop(plans);
        self.news.notify_waiters();
    }

    /// Brings a node into the state that it should have now, if it is in another.
    async fn wake_or_sleep(&self, node: NodeId, is_powered: bool) {
        let powered = match self.driver.powered(node).await {
            Ok(powered) => powered,
            Err(error) => {
                tracing::warn!(%node, %error, "whether it is powered is not known");
                return;
            }
        };
        match (powered, is_powered) {
            (Powered::Gone, _) => self.record_state(node, pb::PoweredState::PoweredGone, |_| ()),
            (Powered::Off | Powered::Changing, true) => self.wake(node).await,
            (Powered::On | Powered::Changing, false) => self.sleep(node, self.wall_ms()).await,
            (Powered::Off, false) => self.record_state(node, pb::PoweredState::PoweredAsleep, |_| ()),
            (Powered::On, true) => self.record_state(node, pb::PoweredState::PoweredAwake, |_| ()),
        }
    }

    /// Lets a node sleep: its power is off at a moment, in milliseconds since the Unix epoch.
    async fn sleep(&self, node: NodeId, at_ms: u64) {
        self.record_state(node, pb::PoweredState::PoweredFallingAsleep, |_| ());
        let left_ms = at_ms.saturating_sub(self.wall_ms());
        // Some of the time is kept for falling asleep itself: another node wakes at that moment, on the same power.
        if let Err(error) = self.rest(node, left_ms * 3 / 4).await {
            tracing::info!(%node, %error, "sleeps without having rested");
            self.record_state(node, pb::PoweredState::PoweredFallingAsleep, |seen| seen.overruns += 1);
        }
        let from_ms = at_ms.max(self.wall_ms());
        let wake_ms = self.plans.lock().as_ref().and_then(|plans| plans.next_wake_ms(node, from_ms));
        match self.driver.sleep(node, wake_ms).await {
            Ok(()) => self.record_state(node, pb::PoweredState::PoweredAsleep, |_| ()),
            Err(error) => tracing::warn!(%node, %error, "does not sleep"),
        }
        // Until then the plan has it powered. Its next check would therefore wake it again.
        self.runtime.sleep(Duration::from_millis(at_ms.saturating_sub(self.wall_ms()))).await;
    }

    /// Asks a block server to take no more work, finish, sync and confirm.
    async fn rest(&self, node: NodeId, left_ms: u64) -> Result<()> {
        let nodes = self.nodes.refresh()?;
        let address = nodes.get(&node).ok_or_else(|| err!(NotFound, "{node} has no block server"))?;
        let ms = u32::try_from(left_ms + REST_SLACK_MS).unwrap_or(u32::MAX);
        let deadline = Duration::from_millis(left_ms.max(1));
        self.connector.channel(address).call(&pb::Rest { ms }, deadline).await.map(drop)
    }

    async fn wake(&self, node: NodeId) {
        self.record_state(node, pb::PoweredState::PoweredWaking, |_| ());
        if let Err(error) = self.driver.wake(node).await {
            tracing::warn!(%node, %error, "does not wake");
            return;
        }
        self.record_state(node, pb::PoweredState::PoweredWaking, |seen| seen.wakes += 1);
        let address = self.nodes.refresh().ok().and_then(|nodes| nodes.get(&node).cloned());
        if let Some(address) = address {
            // Its rest is over by itself soon: this only makes it sooner.
            if let Err(error) = self.connector.channel(&address).call(&pb::Rest { ms: 0 }, WAKE_CALL).await {
                tracing::debug!(%node, %error, "the call that ends its rest failed");
            }
        }
        self.record_state(node, pb::PoweredState::PoweredAwake, |_| ());
    }

    async fn wake_all(&self) {
        let nodes = self.nodes.refresh().unwrap_or_default();
        for node in nodes.keys() {
            if let Err(error) = self.driver.wake(*node).await {
                tracing::warn!(%node, %error, "is left asleep");
            }
        }
    }

    fn record_state(&self, node: NodeId, state: pb::PoweredState, change: impl FnOnce(&mut pb::NodePowered)) {
        let mut seen = self.seen.lock();
        let seen = seen.entry(node).or_insert_with(|| pb::NodePowered { node: node.raw(), ..Default::default() });
        seen.state = state as i32;
        change(seen);
    }

    fn to_reply(&self) -> pb::NodesPowerReply {
        let plan_version = self.plans.lock().as_ref().map_or(0, |plans| plans.version().raw());
        let mut nodes: Vec<pb::NodePowered> = self.seen.lock().values().cloned().collect();
        nodes.iter_mut().for_each(|node| node.pids = self.nodes.pids(NodeId::new(node.node)));
        pb::NodesPowerReply { nodes, plan_version }
    }
}

impl Service for PowerClient {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        Box::pin(async move {
            match request.method {
                Method::NodesPower => Ok(Answer::new(&self.to_reply())),
                other => Err(err!(Unsupported, "a power client does not answer {other:?}")),
            }
        })
    }
}
