//! The plan in force and the one that follows it.

use std::ops::Range;

use ebb_types::{NodeId, PlanVersion, Result, bail};

use super::PowerPlan;
use super::lookup::{Awake, NodeState};

/// Whole wakes that a node may be silent through: one may be lost on the way, or cut short.
const MISSED_WAKES: u32 = 3;
/// Limit of the plans that are kept: the one in force and the announced ones.
const ANNOUNCED_MAX: usize = 8;

/// The plans that a node, a proxy or a client keeps. It follows its last plan until another one comes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Timetable {
    plans: Vec<PowerPlan>,
}

impl Timetable {
    /// Adds a plan. False for an older or known version, which is ignored. `Invalid` for an impossible plan;
    /// `Overloaded` if too many plans are announced.
    pub fn accept(&mut self, plan: PowerPlan, now_ms: u64) -> Result<bool> {
        plan.check()?;
        if plan.version <= self.version() {
            return Ok(false);
        }
        if !self.has_room(plan.start_ms, now_ms) {
            bail!(Overloaded, "{}: {} plans are announced already", plan.version, self.plans.len());
        }
        let kept = self.kept(plan.start_ms, now_ms);
        self.plans.truncate(kept.end);
        self.plans.drain(..kept.start);
        self.plans.push(plan);
        Ok(true)
    }

    /// Whether a plan that starts at `start_ms` can be added.
    #[must_use]
    pub fn has_room(&self, start_ms: u64, now_ms: u64) -> bool {
        self.kept(start_ms, now_ms).len() < ANNOUNCED_MAX
    }

    /// The plans that stay beside one that starts at `start_ms`: the one in force, and the announced ones that start
    /// earlier. A later one never comes into force.
    fn kept(&self, start_ms: u64, now_ms: u64) -> Range<usize> {
        let end = self.plans.partition_point(|known| known.start_ms < start_ms);
        let begun = self.plans[..end].iter().filter(|known| known.start_ms <= now_ms).count();
        begun.saturating_sub(1)..end
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

    /// The next plan, if the node sleeps from its start on.
    fn cut(&self, node: NodeId, at_ms: u64) -> Option<&PowerPlan> {
        self.next(at_ms).filter(|next| !next.state(node, next.start_ms).is_powered())
    }

    /// Time at which a node stops serving, because it sleeps from the start of the next plan on.
    fn cut_ms(&self, node: NodeId, at_ms: u64) -> Option<u64> {
        let next = self.cut(node, at_ms)?;
        let suspend_ms = next.nodes.get(&node).map_or(0, |node| u64::from(node.suspend_ms));
        Some(next.start_ms.saturating_sub(suspend_ms + next.guard_ms))
    }

    /// State of a node, with regard to the next plan: a node that is to sleep at that plan's start falls asleep before.
    #[must_use]
    pub fn state(&self, node: NodeId, at_ms: u64) -> NodeState {
        let Some(plan) = self.at(at_ms) else { return NodeState::Awake };
        let state = plan.state(node, at_ms);
        match self.cut_ms(node, at_ms) {
            Some(cut) if state.is_powered() && at_ms >= cut => NodeState::FallingAsleep,
            _ => state,
        }
    }

    /// Time for which a node still serves, with regard to later plans. Without a plan it always serves.
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

    /// Time at which a node serves next, with regard to later plans.
    #[must_use]
    pub fn next_wake_ms(&self, node: NodeId, at_ms: u64) -> Option<u64> {
        let Some(plan) = self.at(at_ms) else { return Some(at_ms) };
        let wake = plan.next_wake_ms(node, at_ms);
        let Some(next) = self.next(at_ms) else { return wake };
        let end = self.cut_ms(node, at_ms).unwrap_or(next.start_ms);
        wake.filter(|wake| *wake < end).or_else(|| self.next_wake_ms(node, next.start_ms))
    }

    /// Next time at which two nodes serve together for `need_ms` without a break, with regard to the next plan. `None`
    /// if no plan ever lets them. Without a plan it is `at_ms`.
    #[must_use]
    pub fn next_meeting_ms(&self, one: NodeId, other: NodeId, at_ms: u64, need_ms: u64) -> Option<u64> {
        let Some(plan) = self.at(at_ms) else { return Some(at_ms) };
        let met = plan.next_meeting(one, other, at_ms, need_ms).map(|(when, _)| when);
        let Some(next) = self.next(at_ms) else { return met };
        let later = || next.next_meeting(one, other, next.start_ms, need_ms).map(|(when, _)| when);
        met.filter(|when| when.saturating_add(need_ms) <= next.start_ms).or_else(later)
    }

    /// Milliseconds for which a node serves within `from_ms..until_ms`, with regard to later plans. Without a plan it
    /// always serves.
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

    /// Whether the known plans have a node serve from `from_ms` to `until_ms` without a break, so that it did not need
    /// to be woken. False if a plan came into force within that time and its predecessor is not known any more.
    #[must_use]
    pub fn serves_throughout(&self, node: NodeId, from_ms: u64, until_ms: u64) -> bool {
        let is_known = self.at(from_ms).is_none_or(|plan| plan.start_ms <= from_ms);
        is_known && self.serves_ms(node, from_ms, until_ms) >= until_ms.saturating_sub(from_ms)
    }

    /// Whether a node that was last heard at `heard_ms` must be taken for dead at `now_ms`: it is silent although the
    /// plans had it serve for `patience_ms` without a break, or through several whole wakes and as long in all. Time
    /// asleep does not count as silence. Without a plan a node always serves.
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

    /// Next time at which a node's power must be switched on (true) or off (false), with regard to the next plan.
    #[must_use]
    pub fn next_switch(&self, node: NodeId, at_ms: u64) -> Option<(u64, bool)> {
        let switch = self.at(at_ms)?.next_switch(node, at_ms);
        let Some(next) = self.next(at_ms) else { return switch };
        match switch {
            Some((at, _)) if at < next.start_ms => switch,
            _ => Some((next.start_ms, next.state(node, next.start_ms).is_powered())),
        }
    }

    /// The next action of a node's power client, and the time to start it. A node starts to fall asleep early enough to
    /// be done when its power goes off. It starts to wake when its power comes on.
    #[must_use]
    pub fn next_action(&self, node: NodeId, at_ms: u64) -> Option<(u64, Action)> {
        let plan = self.at(at_ms)?;
        let suspend_ms = plan.nodes.get(&node).map_or(0, |node| u64::from(node.suspend_ms));
        let mut from = at_ms;
        // A switch without effect, at the change from one plan to another, is skipped.
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

/// Action of a power client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Begins to wake its node.
    Wake,
    /// Stops taking work, finishes or hands over requests in progress, syncs, and lets its node sleep.
    Sleep,
}
