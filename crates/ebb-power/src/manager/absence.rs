//! Absences that the coming supply foretells: nodes that are on now, and that the policy would leave off later. They give
//! time to programs with data to move. Nodes follow plans alone.
//!
//! The manager's decisions are played forward: the policy is asked at the beginning of each interval and at each change
//! of the supply, with the battery as the plans before leave it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_types::NodeId;

use super::{Circumstances, Cluster, Manager, Now};
use crate::account::Account;
use crate::hardware::{Supply, millis};
use crate::policy::choose;
use crate::signal::source::Origin;

/// How far ahead absences are looked for.
pub const HORIZON: Duration = Duration::from_secs(1_800);
/// Most decisions that are played: for each a policy weighs its plans. With short intervals less than the horizon is seen.
pub const DECISIONS_MAX: usize = 64;

/// An expected absence of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absence {
    /// Milliseconds since the Unix epoch at which it goes.
    pub leaves_ms: u64,
    /// Milliseconds since the Unix epoch at which it is on again, for some time of each interval at least. `None`: not as
    /// far as was looked.
    pub returns_ms: Option<u64>,
}

impl Manager {
    /// The next absence of each node that is on now and goes for whole intervals, as far as the supply is known ahead and
    /// if nothing else changes. A node that blinks is none of them: its plan tells. Nothing is expected of a supply that
    /// stays.
    ///
    /// A plan that would be held back for the data that it puts out of reach is played like any other.
    #[must_use]
    pub fn expected_absences(&self, now: Now, cluster: &Cluster<'_>) -> BTreeMap<NodeId, Absence> {
        let mut absences: BTreeMap<NodeId, Absence> = BTreeMap::new();
        let changes = self.changes(now, cluster);
        let Some(plan) = self.plans().at(now.wall_ms).filter(|_| !changes.is_empty()) else { return absences };
        let off_now: BTreeSet<NodeId> = plan.off().collect();
        let mut plan = plan.clone();
        let (mut battery, mut account) = (*self.battery(), Account::default());
        let mut watts = cluster.hardware.cluster_watts(self.sample(now).supply);
        let mut played_ms = now.wall_ms;
        for at_ms in self.decisions(now, &changes) {
            account.play(&plan, cluster.hardware, played_ms, at_ms, watts, &mut battery);
            played_ms = at_ms;
            watts = changes.range(..=at_ms).next_back().map_or(watts, |(_, watts)| *watts);
            let forecast = cluster.expected.nodes_watts(cluster.hardware, &battery, at_ms);
            let supply = Supply::Watts(watts);
            let (last, kept) = (Some(&plan), Some(&plan));
            let then = Circumstances { start_ms: at_ms, supply, battery, forecast: &forecast, last, kept };
            // A supply for which there is no plan tells nothing of what comes after it.
            let Ok(chosen) = choose(self.settings.policy, &self.ask(&self.settings, cluster, then)) else { break };
            plan = chosen;
            let off: BTreeSet<NodeId> = plan.off().collect();
            for node in off.difference(&off_now) {
                absences.entry(*node).or_insert(Absence { leaves_ms: at_ms, returns_ms: None });
            }
            for (_, absence) in absences.iter_mut().filter(|(node, _)| !off.contains(*node)) {
                absence.returns_ms.get_or_insert(at_ms);
            }
        }
        absences
    }

    /// Coming changes of the supply within the horizon: when, and the watts for the whole cluster from then on. What an
    /// operator has set, and what is assumed of a silent source, does not change.
    fn changes(&self, now: Now, cluster: &Cluster<'_>) -> BTreeMap<u64, f64> {
        let expected = cluster.expected;
        let Some(forecast) = expected.forecast.filter(|_| self.sample(now).origin == Origin::Source) else {
            return BTreeMap::new();
        };
        let begins = forecast.steps().iter().scan(expected.from_ms, |begin_ms, step| {
            let at_ms = *begin_ms;
            *begin_ms = at_ms.saturating_add(millis(step.lasts));
            Some((at_ms, step.watts))
        });
        let coming = begins.filter(|(at_ms, _)| *at_ms > now.wall_ms);
        coming.take_while(|(at_ms, _)| *at_ms <= now.wall_ms + millis(HORIZON)).collect()
    }

    /// Moments at which the policy is asked: with each change of the supply, and at the beginning of each interval.
    fn decisions(&self, now: Now, changes: &BTreeMap<u64, f64>) -> BTreeSet<u64> {
        let (first, interval_ms) = (self.boundary(now), self.settings.timing.interval_ms.max(1));
        let boundaries = (0..DECISIONS_MAX as u64).map(|number| first + number * interval_ms);
        let within = boundaries.take_while(|at_ms| *at_ms <= now.wall_ms + millis(HORIZON));
        let all: BTreeSet<u64> = within.chain(changes.keys().copied()).collect();
        all.into_iter().take(DECISIONS_MAX).collect()
    }
}
