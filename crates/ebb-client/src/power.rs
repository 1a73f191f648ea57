//! What this client knows of who sleeps when. A sleeping node is waited for or passed over, never asked in vain.

use std::time::Duration;

use ebb_power::{NodeState, PowerPlan, wall_ms};
use ebb_types::{HostName, NodeId, Result, err};
use ebb_wire::pb;

use crate::fetch::order;
use crate::shared::Shared;

/// What the power plans make of a host, as far as this client knows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostPower {
    /// It is on, or no plan is about it.
    On,
    /// It sleeps now and then, and serves again within this.
    Blinks(Duration),
    /// No plan wakes it.
    Off,
}

/// Wakes that are waited for in one attempt: a plan may change while a reader waits.
const WAKES_MAX: u32 = 4;
/// A longer wait is judged anew after this: the clock that it was reckoned by may have been put right.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Shared {
    /// The master told of power plans.
    pub fn on_plans(&self, plans: &[Vec<u8>]) {
        let now_ms = self.wall_ms();
        let mut timetable = self.plans.lock();
        for bytes in plans {
            let taken = PowerPlan::decode(bytes).and_then(|plan| timetable.accept(plan, now_ms));
            if let Err(error) = taken {
                tracing::warn!(%error, "a power plan that cannot be followed");
            }
        }
        // Who waits for a node to wake waits for two intervals at most: no operation gives up before.
        let interval = timetable.at(now_ms).map_or(0, |plan| plan.interval_ms);
        self.session.wait_at_least(Duration::from_millis(interval.saturating_mul(2)));
    }

    /// Version of the newest plan; 0: none.
    pub fn plan_version(&self) -> u64 {
        self.plans.lock().version().raw()
    }

    fn wall_ms(&self) -> u64 {
        wall_ms(self.runtime.wall())
    }

    /// How long a node still serves, in milliseconds; 0: it sleeps; `u64::MAX`: no plan lets it sleep.
    pub fn awake_left_ms(&self, node: u64) -> u64 {
        self.plans.lock().awake_left_ms(NodeId::new(node), self.wall_ms())
    }

    /// How long until a node serves: zero if it does, none if no plan wakes it.
    pub fn wakes_in(&self, node: u64) -> Option<Duration> {
        let (node, now_ms, plans) = (NodeId::new(node), self.wall_ms(), self.plans.lock());
        if plans.state(node, now_ms) == NodeState::Awake {
            return Some(Duration::ZERO);
        }
        let wake = plans.next_wake_ms(node, now_ms)?;
        Some(Duration::from_millis(wake.saturating_sub(now_ms).max(1)))
    }

    /// What the plans make of a host. One that is several nodes is what the first of them is.
    pub fn host_power(&self, host: &HostName) -> HostPower {
        let node = self.nodes.all().into_iter().find(|node| node.host == host.as_str());
        let Some(node) = node.map(|node| NodeId::new(node.id)) else { return HostPower::On };
        let (now_ms, plans) = (self.wall_ms(), self.plans.lock());
        if plans.next_wake_ms(node, now_ms).is_none() {
            return HostPower::Off;
        }
        match (plans.awake_left_ms(node, now_ms), plans.at(now_ms)) {
            (u64::MAX, _) | (_, None) => HostPower::On,
            (_, Some(plan)) => HostPower::Blinks(Duration::from_millis(plan.interval_ms)),
        }
    }

    /// Waits until a node serves. `Unavailable` if no plan wakes it.
    pub async fn awake(&self, node: u64) -> Result<()> {
        let mut wakes = 0;
        while wakes < WAKES_MAX {
            match self.wakes_in(node) {
                Some(Duration::ZERO) => return Ok(()),
                Some(wait) => wakes += self.wait_for_wake(wait).await,
                None => break,
            }
        }
        Err(err!(Unavailable, "n{node} is switched off by the power plan v{}", self.plan_version()))
    }

    /// Waits for a node that wakes in so long, or a part of it; how many wakes that was, 0 or 1.
    async fn wait_for_wake(&self, wait: Duration) -> u32 {
        self.runtime.sleep(wait.min(LOOK_AGAIN)).await;
        u32::from(wait <= LOOK_AGAIN)
    }

    /// Members that serve now, in the order in which they are to be asked; if all sleep, waits for the first to wake.
    /// `Unavailable` if none ever does.
    pub async fn awake_order(&self, record: &pb::Metablock) -> Result<Vec<usize>> {
        let mut wakes = 0;
        while wakes < WAKES_MAX {
            let places = order(self, record);
            if !places.is_empty() || record.members.is_empty() {
                return Ok(places);
            }
            let first = record.members.iter().filter_map(|member| self.wakes_in(member.node)).min();
            match first {
                Some(wait) => wakes += self.wait_for_wake(wait).await,
                None => break,
            }
        }
        Err(err!(
            Unavailable,
            "every node with a replica of m{} is switched off by the power plan v{}",
            record.id,
            self.plan_version()
        ))
    }
}
