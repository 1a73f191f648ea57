//! The nodes' power, compared with the plans every few milliseconds, at all times.

use std::collections::BTreeSet;

use ebb_power::reach::{Holding, at_stake};
use ebb_power::{Battery, Hardware, PolicyKind, PowerPlan, Timetable};
use ebb_types::{NodeId, Result};

use crate::invariants::Violation;

/// Clocks and transitions: plans that are in force within this of a moment count for it.
pub const SLACK_MS: u64 = 150;
/// A plan may be ignorant of the places of copies for so long: the manager's look at the master, an interval, and the
/// notice.
const LAG_MS: u64 = 5_000 + 1_000;
/// Violations of one kind that are kept.
const KEPT_MAX: usize = 3;

/// Whether a policy promises never to draw more than its plan's budget.
#[must_use]
pub fn is_capped(policy: PolicyKind) -> bool {
    matches!(policy, PolicyKind::Activation | PolicyKind::Migration | PolicyKind::BlinkCircular)
}

/// One look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Of the nodes.
    pub watts: f64,
    /// For the nodes, by the source, and not by any plan.
    pub supply_watts: f64,
    /// A fault keeps nodes from following their plan.
    pub is_excused: bool,
}

/// An interval under one plan.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    number: u64,
    version: u64,
    joules: f64,
    since_ms: u64,
    until_ms: u64,
    is_whole: bool,
}

/// Readings of the nodes' power, and their results.
#[derive(Debug)]
pub struct Meter {
    hardware: Hardware,
    plans: Timetable,
    every: Vec<PowerPlan>,
    battery: Battery,
    /// A fault was under way since the charge was last told.
    is_astray: bool,
    last: Option<Look>,
    stretch: Option<Stretch>,
    stake_since: Option<(u64, u64)>,
    /// Readings above the plans that were known then.
    in_doubt: Vec<Look>,
    violations: Vec<Violation>,
}

impl Meter {
    /// Of these nodes, with a battery.
    #[must_use]
    pub fn new(hardware: Hardware, battery: Battery) -> Self {
        Self {
            hardware,
            plans: Timetable::default(),
            every: Vec::new(),
            battery,
            is_astray: true,
            last: None,
            stretch: None,
            stake_since: None,
            in_doubt: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// Plans that the master reports.
    pub fn on_plans(&mut self, plans: &[Vec<u8>], now_ms: u64) -> Result<()> {
        for bytes in plans {
            let plan = PowerPlan::decode(bytes)?;
            if self.every.iter().all(|known| known.version != plan.version) {
                self.every.push(plan.clone());
            }
            self.plans.accept(plan, now_ms)?;
        }
        for look in std::mem::take(&mut self.in_doubt) {
            if let Some(cap) = self.passed_cap(&look) {
                let plan = self.plans.at(look.at_ms).map_or(0, |plan| plan.version.raw());
                self.complain(
                    "watts",
                    format!("{} W at {} under plan v{plan}, which has {cap:.1} W", look.watts, look.at_ms),
                );
            }
        }
        Ok(())
    }

    /// The watts that the plans allow, if a look showed more.
    fn passed_cap(&self, look: &Look) -> Option<f64> {
        self.cap(look.at_ms).filter(|cap| look.watts > cap + 1e-6 && !look.is_excused)
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self, at_ms: u64) -> Option<&PowerPlan> {
        self.plans.at(at_ms)
    }

    /// The violations found.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub(super) fn complain(&mut self, invariant: &'static str, detail: String) {
        if self.violations.iter().filter(|known| known.invariant == invariant).count() < KEPT_MAX {
            self.violations.push(Violation::new(invariant, detail));
        }
    }

    /// The most that any plan near a moment allows, if all of them promise to keep to it.
    fn cap(&self, at_ms: u64) -> Option<f64> {
        let near = [at_ms.saturating_sub(SLACK_MS), at_ms, at_ms + SLACK_MS];
        let plans: Vec<&PowerPlan> = near.iter().filter_map(|at| self.plans.at(*at)).collect();
        let capped = plans.len() == near.len() && plans.iter().all(|plan| is_capped(plan.policy));
        // One node at a time may be on where not even one fits: from the battery.
        let allowed = |plan: &&PowerPlan| {
            let (nodes, power) = (self.hardware.nodes().len() as f64, ebb_power::NodePower::REFERENCE);
            let one = (nodes - 1.0) * power.asleep_watts + power.active_watts;
            let budget = plan.budget_mw as f64 / 1000.0;
            if budget < one && plan.profile(&self.hardware).peak_watts() <= one + 1e-6 { one } else { budget }
        };
        capped.then(|| plans.iter().map(allowed).fold(0.0, f64::max))
    }

    /// One look at the nodes.
    pub fn on_look(&mut self, look: Look) {
        if self.passed_cap(&look).is_some() {
            // A plan may have begun that has not been reported here yet.
            self.in_doubt.push(look);
        }
        let last = self.last.replace(look);
        let (Some(last), Some(plan)) = (last, self.plans.at(look.at_ms)) else { return };
        let (version, interval_ms, policy) = (plan.version.raw(), plan.interval_ms.max(1), plan.policy);
        let passed_ms = look.at_ms.saturating_sub(last.at_ms);
        let flow = self.battery.pass(last.supply_watts, last.watts, passed_ms);
        // Nodes draw what they draw asleep, also when there is nothing.
        let is_needless = last.watts > self.hardware.asleep_watts() + 1e-6;
        self.is_astray |= look.is_excused;
        if flow.missing_joules > 1e-6 && is_needless && !self.is_astray && policy != PolicyKind::AlwaysOn {
            let detail = format!("{:.1} J that neither supply nor battery had, at {}", flow.missing_joules, look.at_ms);
            self.complain("battery", detail);
        }
        self.count(look, last, version, interval_ms);
    }

    /// The charge by the power manager's account. After a fault it counts: a manager that was away has not seen what was
    /// drawn.
    pub fn on_charge(&mut self, joules: f64, is_excused: bool) {
        if std::mem::replace(&mut self.is_astray, is_excused) && !is_excused {
            self.battery.charge_joules = joules.clamp(0.0, self.battery.capacity_joules);
        }
    }

    /// Means of whole intervals under one plan.
    fn count(&mut self, look: Look, last: Look, version: u64, interval_ms: u64) {
        let number = look.at_ms / interval_ms;
        let joules = last.watts * look.at_ms.saturating_sub(last.at_ms) as f64 / 1000.0;
        match &mut self.stretch {
            Some(stretch) if (stretch.number, stretch.version) == (number, version) => {
                stretch.joules += joules;
                stretch.until_ms = look.at_ms;
                stretch.is_whole &= !look.is_excused;
            }
            other => {
                let (since_ms, until_ms) = (look.at_ms, look.at_ms);
                // The first interval of a plan still has nodes in it that change over.
                let follows = other.is_some_and(|stretch| stretch.version == version);
                let new = Stretch { number, version, joules: 0.0, since_ms, until_ms, is_whole: follows };
                let done = other.replace(new);
                if let Some(done) = done.filter(|done| done.is_whole && done.version == version) {
                    self.check_mean(done, interval_ms);
                }
            }
        }
    }

    fn check_mean(&mut self, done: Stretch, interval_ms: u64) {
        let span_ms = done.until_ms - done.since_ms;
        let Some(plan) = self.every.iter().find(|plan| plan.version.raw() == done.version) else { return };
        if span_ms * 10 < interval_ms * 9 || plan.policy == PolicyKind::AlwaysOn {
            return;
        }
        let mean = done.joules * 1000.0 / span_ms as f64;
        // No plan can have nodes draw less than they do asleep.
        let budget = (plan.budget_mw as f64 / 1000.0).max(self.hardware.asleep_watts());
        // A look is 10 ms long, and so much is each node's switch uncertain.
        let grain = self.hardware.full_watts() * 20.0 / interval_ms as f64;
        if mean > budget + grain {
            let detail =
                format!("a mean of {mean:.1} W over an interval of v{}, which has {budget:.1} W", done.version);
            self.complain("mean", detail);
        }
    }

    /// Whether the plan in force switches off the last copies of some data without saying so, for longer than it takes
    /// to learn the places of copies.
    pub fn on_holdings(&mut self, holdings: &[Holding], dead: &BTreeSet<NodeId>, at_ms: u64, is_excused: bool) {
        let Some(plan) = self.plans.at(at_ms) else { return };
        let (version, interval_ms) = (plan.version.raw(), plan.interval_ms);
        let on = |holding: &&Holding| format!("{} metablocks on {:?}", holding.metablocks, holding.nodes);
        let lost: Vec<String> = at_stake(plan, holdings, dead).iter().map(on).collect();
        let is_announced = !plan.stalled.is_empty() || plan.out_of_reach.metablocks > 0;
        if lost.is_empty() || is_announced || is_excused {
            self.stake_since = None;
            return;
        }
        let (of, since_ms) = *self.stake_since.get_or_insert((version, at_ms));
        if of != version {
            self.stake_since = Some((version, at_ms));
        } else if at_ms - since_ms > LAG_MS + 2 * interval_ms {
            let why = plan.sentence();
            self.complain(
                "promised",
                format!("v{version} ({why}) puts {} out of reach and names nothing", lost.join(", ")),
            );
        }
    }
}
