//! This client's knowledge of sleeping nodes. A sleeping node is waited for or passed over, never asked in vain.

pub mod deliver;
pub(crate) mod inspect;
pub(crate) mod relay;
pub(crate) mod rest;

use std::time::Duration;

use ebb_power::read::Order;
use ebb_power::work::Turn;
use ebb_power::{Awake, NodeState, PowerPlan, wall_ms};
use ebb_types::{Error, HostName, NodeId, Result, err};

use crate::plan::NEED_MS;
use crate::read::fetch::{Wanted, order};
use crate::shared::Shared;

/// How a metablock is read.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Way {
    /// From these members, by their places in the set.
    Direct(Order<usize>),
    /// By way of a proxy: none of them is ever awake when this client is.
    Relay,
}

/// When one of some nodes is awake together with this client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meeting {
    /// In this time.
    In(Duration),
    /// Some wake, but never then; and a proxy could be asked.
    Never,
    /// No plan wakes any of them.
    Off,
}

/// A node woke lately if it did within this part of an interval, one in so many.
const LATELY_PART: u64 = 10;
/// Wakes that are waited for in one attempt: a plan may change while a reader waits.
const WAKES_MAX: u32 = 4;
/// A longer wait is judged anew after this: the clock that it was reckoned by may have been put right.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The least time between two looks at a plan.
const LOOK_NEXT: Duration = Duration::from_millis(5);
/// Between two looks at whether two nodes meet.
const LOOK_SOON: Duration = Duration::from_millis(100);

impl Shared {
    /// The master sent power plans.
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
        drop(timetable);
        self.nodes.wake_waiters();
    }

    /// Version of the newest plan; 0: none.
    pub fn plan_version(&self) -> u64 {
        self.plans.lock().version().raw()
    }

    /// Version of the plan in force; 0: none.
    pub(crate) fn plan_in_force(&self) -> u64 {
        let now_ms = self.wall_ms();
        self.plans.lock().at(now_ms).map_or(0, |plan| plan.version.raw())
    }

    pub(crate) fn wall_ms(&self) -> u64 {
        wall_ms(self.runtime.wall())
    }

    /// How long a node still serves.
    pub fn awake_for(&self, node: NodeId) -> Awake {
        self.plans.lock().awake_for(node, self.wall_ms())
    }

    /// Whether a node woke lately. Then its disk and its port may be busy with what it missed.
    pub fn woke_lately(&self, node: u64) -> bool {
        let (node, now_ms, plans) = (NodeId::new(node), self.wall_ms(), self.plans.lock());
        let Some(interval_ms) = plans.at(now_ms).map(|plan| plan.interval_ms) else { return false };
        let lately_ms = interval_ms / LATELY_PART;
        plans.serves_ms(node, now_ms.saturating_sub(lately_ms), now_ms) < lately_ms
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

    /// What a host does for work, by the plans that this client knows. A host with several nodes has the turn of the
    /// first of them; one without a node is always on.
    pub fn turn_of(&self, host: &HostName) -> Turn {
        let node = self.nodes.all().into_iter().find(|node| node.host == host.as_str());
        node.map_or(Turn::Always, |node| self.plans.lock().turn(NodeId::new(node.id), self.wall_ms()))
    }

    /// When the first of these nodes can be asked from here. A client on a node that blinks, too, must be awake then:
    /// else a proxy, if there is one, is asked to wait in its place.
    pub fn next_meeting(&self, nodes: impl Iterator<Item = u64> + Clone) -> Meeting {
        let wakes = || nodes.clone().filter_map(|node| self.wakes_in(node)).min();
        let own = self.nodes.on_host(self.options.host.as_str());
        let Some(own) = own.filter(|own| !self.awake_for(NodeId::new(*own)).is_always()) else {
            return wakes().map_or(Meeting::Off, Meeting::In);
        };
        let meets_in = |node| {
            let (now_ms, plans) = (self.wall_ms(), self.plans.lock());
            let met = plans.next_meeting_ms(NodeId::new(own), NodeId::new(node), now_ms, NEED_MS)?;
            Some(Duration::from_millis(met.saturating_sub(now_ms).max(1)))
        };
        match (nodes.clone().filter_map(meets_in).min(), wakes()) {
            (Some(wait), _) => Meeting::In(wait),
            (None, Some(_)) if self.proxy().is_some() => Meeting::Never,
            (None, Some(wait)) => Meeting::In(wait),
            (None, None) => Meeting::Off,
        }
    }

    /// Whether a node is never awake together with this client, and a proxy can be asked instead.
    pub fn is_out_of_step(&self, node: u64) -> bool {
        self.wakes_in(node) != Some(Duration::ZERO) && self.next_meeting(std::iter::once(node)) == Meeting::Never
    }

    /// Waits until a node serves. `Unavailable` if no plan wakes it.
    pub async fn awake(&self, node: u64) -> Result<()> {
        let mut wakes = 0;
        let waiting = self.enter_wait("a node that sleeps");
        while wakes < WAKES_MAX {
            if self.wakes_in(node) == Some(Duration::ZERO) {
                return Ok(());
            }
            waiting.set(self.sleep_reason(&[node]));
            match self.next_meeting(std::iter::once(node)) {
                Meeting::In(wait) => wakes += self.wait_for_wake(wait).await,
                Meeting::Never | Meeting::Off => break,
            }
        }
        Err(self.off(node))
    }

    fn off(&self, node: u64) -> Error {
        err!(Unavailable, "n{node} is switched off by the power plan v{}", self.plan_version())
    }

    /// Returns, with the reason, when no known plan wakes a node any more. What was asked of it meanwhile stays unanswered.
    pub async fn switched_off(&self, node: u64) -> Error {
        self.until(|| self.wakes_in(node).is_none(), || self.changes_in(node)).await;
        self.off(node)
    }

    /// Returns, with the reason, when a node that serves has fallen asleep.
    pub async fn fallen_asleep(&self, node: u64) -> Error {
        self.until(|| self.wakes_in(node) != Some(Duration::ZERO), || self.changes_in(node)).await;
        err!(Unavailable, "n{node} has fallen asleep by the power plan v{}", self.plan_version())
    }

    /// Returns when the known plans let two nodes serve together: a copy between them would hold up the rest of one that sleeps
    /// before the other wakes. If they never do, it returns at once.
    pub async fn meeting(&self, one: u64, other: u64) {
        let (first, second) = (NodeId::new(one), NodeId::new(other));
        let wait = || {
            let now_ms = self.wall_ms();
            let met_ms = self.plans.lock().next_meeting_ms(first, second, now_ms, NEED_MS)?;
            Some(Duration::from_millis(met_ms.saturating_sub(now_ms)))
        };
        self.until(|| wait().is_none_or(|wait| wait.is_zero()), wait).await;
    }

    /// Returns, with the reason, when the known plans never let two nodes serve together.
    pub async fn parted(&self, one: u64, other: u64) -> Error {
        let (first, second) = (NodeId::new(one), NodeId::new(other));
        let is_parted = || self.plans.lock().next_meeting_ms(first, second, self.wall_ms(), NEED_MS).is_none();
        // They may have been together by a plan that has ended meanwhile.
        self.until(is_parted, || Some(LOOK_SOON)).await;
        err!(Unavailable, "n{one} and n{other} are never awake together by the power plan v{}", self.plan_version())
    }

    /// Time until a node falls asleep or wakes by a known plan; none if it stays as it is.
    fn changes_in(&self, node: u64) -> Option<Duration> {
        match self.wakes_in(node) {
            Some(Duration::ZERO) => self.awake_for(NodeId::new(node)).left(),
            wait => wait,
        }
    }

    /// Returns when something holds. Looks again when a plan comes, and after the given time.
    async fn until(&self, holds: impl Fn() -> bool, look_again_in: impl Fn() -> Option<Duration>) {
        loop {
            let changed = self.nodes.changes().notified_owned();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if holds() {
                return;
            }
            match look_again_in() {
                Some(wait) => tokio::select! {
                    biased;
                    () = &mut changed => {}
                    () = self.runtime.sleep(wait.max(LOOK_NEXT)) => {}
                },
                None => changed.await,
            }
        }
    }

    /// The wait for the first of these nodes that wakes, in words.
    fn sleep_reason(&self, nodes: &[u64]) -> String {
        let names: Vec<String> = nodes.iter().map(|node| format!("n{node}")).collect();
        let (names, version) = (names.join(" or "), self.plan_version());
        match nodes.iter().filter_map(|node| self.wakes_in(*node)).min() {
            Some(wake) => format!("{names} to wake in {:.1} s by power plan v{version}", wake.as_secs_f64()),
            None => format!("{names}: power plan v{version} keeps them off"),
        }
    }

    /// Waits for a node that wakes in `wait`, or for a part of that. Returns the number of wakes, 0 or 1.
    async fn wait_for_wake(&self, wait: Duration) -> u32 {
        self.runtime.sleep(wait.min(LOOK_AGAIN)).await;
        u32::from(wait <= LOOK_AGAIN)
    }

    /// How a range of a metablock is to be read: members that serve now, in the order in which they are to be asked.
    /// If all sleep, waits for the first that wakes while this client does, or says that none ever will. `Unavailable`
    /// if no plan wakes any.
    pub(crate) async fn way_to(&self, wanted: &Wanted) -> Result<Way> {
        let (mut wakes, mut waiting, record) = (0, None, &wanted.record);
        while wakes < WAKES_MAX {
            let places = order(self, wanted);
            if !places.nodes.is_empty() || record.members.is_empty() {
                return Ok(Way::Direct(places));
            }
            let nodes = record.members.iter().map(|member| member.node);
            let reason = self.sleep_reason(&nodes.clone().collect::<Vec<_>>());
            waiting.get_or_insert_with(|| self.enter_wait("nodes that sleep")).set(reason);
            match self.next_meeting(nodes) {
                Meeting::In(wait) => wakes += self.wait_for_wake(wait).await,
                Meeting::Never => return Ok(Way::Relay),
                Meeting::Off => break,
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
