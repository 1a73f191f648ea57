//! The plan in force and the one that follows it.

use ebb_types::{NodeId, PlanVersion, Result, bail};

use super::PowerPlan;
use super::lookup::{Awake, NodeState};

/// Whole wakes that a node may be silent through: one may be lost on the way, or cut short.
const MISSED_WAKES: u32 = 3;
/// Most plans that are kept: the one in force and those announced.
const ANNOUNCED_MAX: usize = 8;

/// What a node, a proxy or a client keeps: it follows the last plan that it was given, for as long as no other comes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Timetable {
    plans: Vec<PowerPlan>,
}

impl Timetable {
    /// Takes a plan in. Whether it was news: an older or known version is not. `Invalid` for one that is no plan,
    /// `Overloaded` if more plans are announced than anybody needs.
    pub fn accept(&mut self, plan: PowerPlan, now_ms: u64) -> Result<bool> {
        plan.check()?;
        if plan.version <= self.version() {
            return Ok(false);
        }
        // A plan that was to follow, and starts no earlier than this one, never comes into force.
        self.plans.retain(|known| known.start_ms < plan.start_ms);
        let over = self.plans.iter().filter(|known| known.start_ms <= now_ms).count().saturating_sub(1);
        self.plans.drain(..over);
        if self.plans.len() >= ANNOUNCED_MAX {
            bail!(Overloaded, "{}: {} plans are announced already", plan.version, self.plans.len());
        }
        self.plans.push(plan);
        Ok(true)
    }

    /// Newest version; 0 if there is none.
    #[must_use]
    pub fn version(&self) -> PlanVersion {
        self.plans.last().map_or(PlanVersion::default(), |plan| plan.version)
    }

    /// The plan in force at a moment: the last that has started, or the first to come.
    #[must_use]
    pub fn at(&self, at_ms: u64) -> Option<&PowerPlan> {
        self.plans.iter().rev().find(|plan| plan.start_ms <= at_ms).or_else(|| self.plans.first())
    }

    /// The plan that follows the one in force, if one was announced.
    #[must_use]
    pub fn next(&self, at_ms: u64) -> Option<&PowerPlan> {
        self.plans.iter().skip(1).find(|plan| plan.start_ms > at_ms)
    }

    /// The plan that follows, if the node sleeps from its start on.
    fn cut(&self, node: NodeId, at_ms: u64) -> Option<&PowerPlan> {
        self.next(at_ms).filter(|next| !next.state(node, next.start_ms).is_powered())
    }

    /// When a node that sleeps under the plan that follows stops serving for it.
    fn cut_ms(&self, node: NodeId, at_ms: u64) -> Option<u64> {
        let next = self.cut(node, at_ms)?;
        let suspend_ms = next.nodes.get(&node).map_or(0, |node| u64::from(node.suspend_ms));
        Some(next.start_ms.saturating_sub(suspend_ms + next.guard_ms))
    }

    /// What a node should be doing, the plan that follows counted in: a node that is to sleep when it begins falls
    /// asleep before.
    #[must_use]
    pub fn state(&self, node: NodeId, at_ms: u64) -> NodeState {
        let Some(plan) = self.at(at_ms) else { return NodeState::Awake };
        let state = plan.state(node, at_ms);
        match self.cut_ms(node, at_ms) {
            Some(cut) if state.is_powered() && at_ms >= cut => NodeState::FallingAsleep,
            _ => state,
        }
    }

    /// How long a node still serves, the plans that follow counted in. Without a plan it always does.
    #[must_use]
    pub fn awake_for(&self, node: NodeId, at_ms: u64) -> Awake {
        let Some(plan) = self.at(at_ms) else { return Awake::Always };
        let left = plan.awake_for(node, at_ms);
        if let Some(cut) = self.cut_ms(node, at_ms) {
            return left.min(Awake::for_ms(cut.saturating_sub(at_ms)));
        }
        match self.next(at_ms) {
            // Awake at the change, and served by the plan that follows without waking again.
            Some(next) if left.serves_for(next.start_ms - at_ms) => {
                let end = self.awake_for(node, next.start_ms).end_ms(next.start_ms);
                end.map_or(Awake::Always, |end| Awake::for_ms(end - at_ms))
            }
            _ => left,
        }
    }

    /// When a node serves next, the plans that follow counted in.
    #[must_use]
    pub fn next_wake_ms(&self, node: NodeId, at_ms: u64) -> Option<u64> {
        let Some(plan) = self.at(at_ms) else { return Some(at_ms) };
        let wake = plan.next_wake_ms(node, at_ms);
        let Some(next) = self.next(at_ms) else { return wake };
        let end = self.cut_ms(node, at_ms).unwrap_or(next.start_ms);
        wake.filter(|wake| *wake < end).or_else(|| self.next_wake_ms(node, next.start_ms))
    }

    /// When two nodes next serve at the same time for `need_ms` on end, the plan that follows counted in; none if no plan
    /// ever lets them. Without a plan they do now.
    #[must_use]
    pub fn next_meeting_ms(&self, one: NodeId, other: NodeId, at_ms: u64, need_ms: u64) -> Option<u64> {
        let Some(plan) = self.at(at_ms) else { return Some(at_ms) };
        let met = plan.next_meeting(one, other, at_ms, need_ms).map(|(when, _)| when);
        let Some(next) = self.next(at_ms) else { return met };
        let later = || next.next_meeting(one, other, next.start_ms, need_ms).map(|(when, _)| when);
        met.filter(|when| when.saturating_add(need_ms) <= next.start_ms).or_else(later)
    }

    /// How long a node serves within `from_ms..until_ms`, in milliseconds, the plans that follow counted in. Without a plan
    /// it always does.
    #[must_use]
    pub fn serves_ms(&self, node: NodeId, from_ms: u64, until_ms: u64) -> u64 {
        let (mut at, mut sum) = (from_ms, 0);
        while at < until_ms {
            let Some(wake) = self.next_wake_ms(node, at).filter(|wake| *wake < until_ms) else { break };
            let end = self.awake_for(node, wake).end_ms(wake).map_or(until_ms, |end| end.min(until_ms));
            sum += end - wake;
            at = end.max(wake + 1);
        }
        sum
    }

    /// Whether a node had not to be woken: the plans that are known had it serve from `from_ms` to `until_ms` on end. Where
    /// one of them came into force within that time, what was before it is not known any more.
    #[must_use]
    pub fn serves_throughout(&self, node: NodeId, from_ms: u64, until_ms: u64) -> bool {
        let is_known = self.at(from_ms).is_none_or(|plan| plan.start_ms <= from_ms);
        is_known && self.serves_ms(node, from_ms, until_ms) >= until_ms.saturating_sub(from_ms)
    }

    /// Whether a node that was last heard at `heard_ms` must be taken for dead at `now_ms`: it is silent although the plans
    /// had it serve for `patience_ms` on end, or through several whole wakes and for as long in all. What sleeps is not
    /// silent. Without a plan a node always serves.
    #[must_use]
    pub fn is_overdue(&self, node: NodeId, heard_ms: u64, now_ms: u64, patience_ms: u64) -> bool {
        if now_ms.saturating_sub(heard_ms) < patience_ms {
            return false;
        }
        let mut at = heard_ms;
        for _ in 0..MISSED_WAKES {
            let Some(wake) = self.next_wake_ms(node, at) else { return false };
            let awake = self.awake_for(node, wake);
            if now_ms >= wake.saturating_add(patience_ms) && awake.serves_for(patience_ms) {
                return true;
            }
            let Some(end) = awake.end_ms(wake).filter(|end| *end < now_ms) else { return false };
            at = end.max(at + 1);
        }
        true
    }

    /// When a node's power must next be switched, on (true) or off (false), the plan that follows counted in.
    #[must_use]
    pub fn next_switch(&self, node: NodeId, at_ms: u64) -> Option<(u64, bool)> {
        let switch = self.at(at_ms)?.next_switch(node, at_ms);
        let Some(next) = self.next(at_ms) else { return switch };
        match switch {
            Some((at, _)) if at < next.start_ms => switch,
            _ => Some((next.start_ms, next.state(node, next.start_ms).is_powered())),
        }
    }

    /// What a node's power client must do next, and when: from that moment on it does it, and is done in time. It falls
    /// asleep so long before its power is to be off as it takes; it begins to wake when its power is to be on.
    #[must_use]
    pub fn next_action(&self, node: NodeId, at_ms: u64) -> Option<(u64, Action)> {
        let plan = self.at(at_ms)?;
        let suspend_ms = plan.nodes.get(&node).map_or(0, |node| u64::from(node.suspend_ms));
        let mut from = at_ms;
        // A switch that changes nothing, where one plan follows another, is passed over.
        for _ in 0..=ANNOUNCED_MAX {
            let (switch, is_on) = self.next_switch(node, from)?;
            let before = self
                .at(switch.saturating_sub(1))
                .is_some_and(|plan| plan.state(node, switch.saturating_sub(1).max(plan.start_ms)).is_powered());
            match (before, is_on) {
                (false, true) => return Some((switch, Action::Wake)),
                (true, false) => return Some((switch.saturating_sub(suspend_ms).max(at_ms), Action::Sleep)),
                _ => from = switch,
            }
        }
        None
    }
}

/// What a power client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Begins to wake its node.
    Wake,
    /// Stops taking work, finishes or hands over what is in flight, syncs, and lets its node sleep.
    Sleep,
}
