//! The power manager as a state machine: readings and ticks in, plans to publish out.
//!
//! It calls the policy with the present reading of the source. It announces a new plan ahead of the interval in which
//! the plan begins, and publishes nothing while nothing changes. A plan that cannot be powered any longer is replaced
//! at once. The manager may be killed at any time: nodes keep to the plans that they have, and a new manager goes on
//! from those.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_types::{NodeId, PlanVersion, Result};

use crate::account::{Account, Seen};
use crate::battery::Battery;
use crate::chain::DatasetChain;
use crate::hardware::{Hardware, Supply, millis};
use crate::plan::timetable::Timetable;
use crate::plan::{EXAMPLE_MAX, OutOfReach, PowerPlan};
use crate::policy::reservoir::{STEPS, forecast_step, level_watts, reserve_joules, steady};
use crate::policy::{Ask, PolicyKind, Rotational, Timing};
use crate::reach::{Force, Holding, admit, at_stake, newly_at_stake, spoken_of};
use crate::signal::Forecast;
use crate::signal::source::{Doubt, Origin, Reading, Sample, Source};

pub mod absence;
mod memo;
#[cfg(test)]
mod tests;

use memo::Memo;

/// Characters of a file's name in a plan, of at most four bytes each.
const EXAMPLE_CHARS: usize = EXAMPLE_MAX / 4;

/// The operator's settings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// The policy.
    pub policy: PolicyKind,
    /// Interval, guard band, least time to serve; the start is filled in for each plan.
    pub timing: Timing,
    /// Time between a plan's publication and its start, in which all processes get it. It is also the delay of a plan
    /// that replaces one that cannot be powered.
    pub lead_ms: u64,
    /// Whether rotational disks may blink.
    pub rotational: Rotational,
}

/// A policy that an operator wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The policy.
    pub policy: PolicyKind,
    /// Whether rotational disks may blink under it.
    pub rotational: Rotational,
    /// Whether it is followed even if it puts data out of reach.
    pub force: Force,
}

/// The cluster as the manager's host knows it now.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// Draw and transitions.
    pub hardware: &'a Hardware,
    /// Nodes in blink order.
    pub circle: &'a [NodeId],
    /// Datasets.
    pub chains: &'a [DatasetChain],
    /// Nodes of all data, to compute the data that a plan would put out of reach.
    pub holdings: &'a [Holding],
    /// Nodes that should answer and do not.
    pub dead: &'a BTreeSet<NodeId>,
    /// Dead nodes that have not been given up.
    pub late: &'a BTreeSet<NodeId>,
    /// Reads that go to each node's data.
    pub popularity: &'a BTreeMap<NodeId, f64>,
    /// Expected supply.
    pub expected: Expected<'a>,
}

/// The supply that is expected.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Expected<'a> {
    /// Beginning of the forecast, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// Watts for the whole cluster. `None`: nothing is known.
    pub forecast: Option<&'a Forecast>,
}

impl Expected<'_> {
    /// Watts for the nodes in each step from a moment on.
    fn nodes_watts(&self, hardware: &Hardware, battery: &Battery, at_ms: u64) -> Vec<f64> {
        let later = Duration::from_millis(at_ms.saturating_sub(self.from_ms));
        let step = forecast_step(hardware, battery);
        let watts = self.forecast.map(|forecast| forecast.after(later).watts_per_step(step, STEPS));
        watts.into_iter().flatten().map(|watts| hardware.nodes_watts(Supply::Watts(watts))).collect()
    }
}

/// Now, by both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// On the monotonic clock: for silence and for energy.
    pub moment: Duration,
    /// Milliseconds since the Unix epoch: for plans.
    pub wall_ms: u64,
}

/// Plans of another history: a master's log can be a saved copy that was put in place of a newer one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Others {
    /// Newest version that some process follows, as far as the master knows. Such a process accepts only newer
    /// versions.
    pub followed: PlanVersion,
    /// Versions up to this one may have been given by another history, without a report to the master yet.
    pub doubtful: PlanVersion,
}

/// The outcome of a tick.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Decision {
    /// A plan to make durable and publish, in this order.
    pub publish: Option<PowerPlan>,
    /// The reason to hold another plan back, if there is one. That plan would put data out of reach, and the plan in
    /// force can still be powered. The data must be moved first, or the operator must insist.
    pub held_back: Option<ebb_types::Error>,
    /// Data named in `publish` and `held_back`, for which the caller may look for the name of a file.
    pub spoken_of: Vec<Holding>,
}

/// The refusal of another policy.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    /// The reason.
    pub error: ebb_types::Error,
    /// Data named in the error, for which the caller may look for the name of a file.
    pub spoken_of: Vec<Holding>,
}

impl From<ebb_types::Error> for Refusal {
    fn from(error: ebb_types::Error) -> Self {
        Self { error, spoken_of: Vec::new() }
    }
}

/// Part of the full draw by which a plan may be above what may be drawn now, until the next interval.
const LITTLE_MORE: f64 = 0.05;
/// Missing energy that counts as a rounding error.
const SLACK_JOULES: f64 = 1e-3;

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Manager {
    settings: Settings,
    source: Source,
    battery: Battery,
    plans: Timetable,
    account: Account,
    counted: Option<Duration>,
    force: Force,
    others: Others,
    memo: RefCell<Memo>,
}

impl Manager {
    /// A manager that goes on from the plans that were published before it.
    pub fn new(settings: Settings, source: Source, battery: Battery, plans: Timetable) -> Result<Self> {
        battery.check()?;
        let (account, others) = (Account::default(), Others::default());
        let (force, memo) = (Force::Refuse, RefCell::default());
        Ok(Self { settings, source, battery, plans, account, counted: None, force, others, memo })
    }

    /// Sets the known versions of plans outside this log, so that new plans get higher versions. True if they changed.
    pub fn on_others(&mut self, others: Others) -> bool {
        std::mem::replace(&mut self.others, others) != others
    }

    /// Takes a reading of the source. Returns a doubt if the reading cannot be right.
    pub fn on_reading(&mut self, now: Now, reading: Reading) -> Option<Doubt> {
        self.source.on_reading(now.moment, reading)
    }

    /// Sets the operator's override of the supply. `None` ends it.
    pub fn force_supply(&mut self, supply: Option<Supply>) -> Result<()> {
        self.source.force(supply)
    }

    /// Checks whether another policy may be followed. It is refused if its plan for the present supply would be:
    /// `NotPermitted` names the data at stake, or the disks.
    pub fn check_policy(&self, now: Now, cluster: &Cluster<'_>, wanted: Wanted) -> Result<(), Refusal> {
        let Wanted { policy, rotational, force } = wanted;
        let settings = Settings { policy, rotational, ..self.settings };
        let plan = self.plan(&settings, now, cluster, self.sample(now), self.boundary(now))?;
        let lost = at_stake(&plan, cluster.holdings, cluster.dead);
        admit(&plan, &lost, force).map_err(|error| Refusal { error, spoken_of: spoken_of(&lost) })
    }

    /// Sets another policy, from the next decision on. `wanted.force` holds for as long as the policy stays.
    pub fn set_policy(&mut self, wanted: Wanted) {
        (self.settings.policy, self.settings.rotational) = (wanted.policy, wanted.rotational);
        self.force = wanted.force;
    }

    /// The supply that counts now, and its origin.
    #[must_use]
    pub fn sample(&self, now: Now) -> Sample {
        self.source.sample(now.moment)
    }

    /// Settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Plans in force and announced.
    #[must_use]
    pub const fn plans(&self) -> &Timetable {
        &self.plans
    }

    /// The energy account.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// The battery, with its charge by the account.
    #[must_use]
    pub const fn battery(&self) -> &Battery {
        &self.battery
    }

    /// Sets the charge that a meter measured.
    pub fn set_charge(&mut self, joules: f64) {
        self.battery.charge_joules = joules.clamp(0.0, self.battery.capacity_joules);
    }

    /// Goes on with the account of an earlier manager.
    pub fn resume_account(&mut self, account: Account) {
        self.account = account;
    }

    /// Counts bytes served to programs.
    pub fn count_served(&mut self, bytes: u64) {
        self.account.served_bytes += bytes;
    }

    /// Adds the time since the last count to the account. To be called whenever a node's state changes, and regularly.
    pub fn count(&mut self, now: Now, cluster: &Cluster<'_>, seen: &BTreeMap<NodeId, Seen>) {
        let since = self.counted.map_or(Duration::ZERO, |last| now.moment.saturating_sub(last));
        let supply = cluster.hardware.cluster_watts(self.sample(now).supply);
        self.account.add(cluster.hardware, seen, supply, &mut self.battery, millis(since));
        self.counted = Some(now.moment);
    }

    /// Decides whether to publish a plan. To be called at every reading, at every change of the cluster, when the
    /// source falls silent ([`Source::silent_at`]), and at least once in each interval. It changes no state: a plan
    /// counts once it is logged ([`Manager::on_logged`]).
    ///
    /// Errors: those of [`crate::policy::choose`].
    pub fn decide(&self, now: Now, cluster: &Cluster<'_>) -> Result<Decision> {
        let sample = self.sample(now);
        let soon_ms = now.wall_ms + self.settings.lead_ms;
        let is_carried = self.is_carried(now, cluster, sample.supply, soon_ms)
            && self.is_within_level(now, cluster, sample, soon_ms);
        let start_ms = if is_carried { self.boundary(now) } else { soon_ms };
        let mut plan = self.plan(&self.settings, now, cluster, sample, start_ms)?;
        if is_carried && self.brings_back(now, cluster, &plan) {
            plan = self.plan(&self.settings, now, cluster, sample, soon_ms)?;
        }
        let (mut held_back, mut spoken) = (None, Vec::new());
        if let Some(latest) = self.latest(now).filter(|latest| is_carried && !latest.is_same_schedule(&plan)) {
            let lost = newly_at_stake(latest, &plan, cluster.holdings, cluster.dead);
            held_back = admit(&plan, &lost, self.force).err();
            if held_back.is_some() {
                spoken = spoken_of(&lost);
                plan = PowerPlan { start_ms: latest.start_ms.max(self.boundary(now)), ..latest.clone() };
            }
        }
        let lost = at_stake(&plan, cluster.holdings, cluster.dead);
        plan.out_of_reach = out_of_reach(&lost);
        spoken.extend(spoken_of(&lost));
        // The same plan, announced for the next interval, does not help if the present one cannot be powered until then.
        let is_same = |latest: &PowerPlan| {
            latest.start_ms <= plan.start_ms && latest.is_same_schedule(&plan) && is_same_reach(latest, &plan)
        };
        let is_followed = self.others.followed <= self.plans.version();
        // Readings that fall ten times a second ask for more plans than can be announced. The first ones begin soon.
        let has_room = self.plans.has_room(plan.start_ms, now.wall_ms);
        if !has_room || is_followed && self.latest(now).is_some_and(is_same) {
            return Ok(Decision { publish: None, held_back, spoken_of: spoken });
        }
        plan.version = self.next_version();
        Ok(Decision { publish: Some(plan), held_back, spoken_of: spoken })
    }

    /// The master has logged a plan, so all processes will follow it.
    pub fn on_logged(&mut self, plan: PowerPlan, now: Now) -> Result<()> {
        self.plans.accept(plan, now.wall_ms).map(drop)
    }

    fn next_version(&self) -> PlanVersion {
        let newest = self.plans.version().max(self.others.followed).max(self.others.doubtful);
        PlanVersion::new(newest.raw().saturating_add(1))
    }

    /// Whether a plan brings data back within reach that a node's failure put out of reach. Such a plan does not wait
    /// for the beginning of an interval (availability comes first: Rabbit, Sec. 3.5).
    fn brings_back(&self, now: Now, cluster: &Cluster<'_>, plan: &PowerPlan) -> bool {
        let lost = |plan: &PowerPlan| metablocks(&at_stake(plan, cluster.holdings, cluster.dead));
        self.latest(now).map(lost).is_some_and(|out| out > 0 && lost(plan) < out)
    }

    /// The plan that will be in force when all announced plans have begun.
    fn latest(&self, now: Now) -> Option<&PowerPlan> {
        let mut plan = self.plans.at(now.wall_ms)?;
        while let Some(next) = self.plans.next(plan.start_ms.max(now.wall_ms)) {
            plan = next;
        }
        Some(plan)
    }

    /// Whether this supply and the battery can power the plans until another one can begin at the beginning of an
    /// interval. Nodes must then still be able to go to sleep in order, if they could before. Without a plan every node
    /// is on.
    ///
    /// Time counts from `soon_ms` on. No plan changes what happens before; a shortage of that time would replace the
    /// announced plan at each call, and each replacement would begin later than the one before.
    fn is_carried(&self, now: Now, cluster: &Cluster<'_>, supply: Supply, soon_ms: u64) -> bool {
        if self.settings.policy == PolicyKind::AlwaysOn {
            return true;
        }
        let until_ms = self.boundary(now).max(self.latest(now).map_or(0, |latest| latest.start_ms));
        let (soon, missed_joules) = self.foresee(now, soon_ms, cluster, supply);
        let (battery, missing_joules) = self.foresee(now, until_ms, cluster, supply);
        let reserve = reserve_joules(cluster.hardware, &self.battery, self.settings.lead_ms);
        let keeps = battery.charge_joules + SLACK_JOULES >= reserve.min(soon.charge_joules);
        missing_joules - missed_joules <= SLACK_JOULES && keeps
    }

    /// Whether the plan in force soon draws no more as a mean than may be drawn. A plan that draws a little more stays until
    /// the next interval, or each small change of a forecast would begin another in the middle of one.
    fn is_within_level(&self, now: Now, cluster: &Cluster<'_>, sample: Sample, soon_ms: u64) -> bool {
        if self.settings.policy == PolicyKind::AlwaysOn {
            return true;
        }
        let (full, asleep) = (cluster.hardware.full_watts(), cluster.hardware.asleep_watts());
        let drawn = self.plans.at(soon_ms).map_or(full, |plan| plan.profile(cluster.hardware).mean_watts());
        let level = self.with_ask(&self.settings, now, cluster, sample, soon_ms, level_watts);
        drawn <= level.max(asleep) + full * LITTLE_MORE
    }

    /// The battery at a later time, and the energy missing until then, if the supply stays and nodes keep to the
    /// present plans.
    fn foresee(&self, now: Now, until_ms: u64, cluster: &Cluster<'_>, supply: Supply) -> (Battery, f64) {
        let (mut battery, mut account) = (self.battery, Account::default());
        let watts = cluster.hardware.cluster_watts(supply);
        let mut at = now.wall_ms;
        while at < until_ms {
            let end = self.plans.next(at).map_or(until_ms, |next| next.start_ms.min(until_ms));
            match self.plans.at(at) {
                Some(plan) => account.play(plan, cluster.hardware, at, end, watts, &mut battery),
                None => account.add(cluster.hardware, &BTreeMap::new(), watts, &mut battery, end - at),
            }
            at = end;
        }
        (battery, account.missing_joules)
    }

    /// The next beginning of an interval that leaves all processes time to get a plan.
    fn boundary(&self, now: Now) -> u64 {
        (now.wall_ms + self.settings.lead_ms).next_multiple_of(self.settings.timing.interval_ms.max(1))
    }

    fn plan(
        &self,
        settings: &Settings,
        now: Now,
        cluster: &Cluster<'_>,
        sample: Sample,
        start_ms: u64,
    ) -> Result<PowerPlan> {
        self.with_ask(settings, now, cluster, sample, start_ms, |ask| {
            self.memo.borrow_mut().choose(settings.policy, ask)
        })
    }

    /// The question for a plan that starts at a moment.
    fn with_ask<T>(
        &self,
        settings: &Settings,
        now: Now,
        cluster: &Cluster<'_>,
        sample: Sample,
        start_ms: u64,
        answer: impl FnOnce(&Ask<'_>) -> T,
    ) -> T {
        let forecast = match sample.origin {
            Origin::Source => cluster.expected.nodes_watts(cluster.hardware, &self.battery, start_ms),
            // What an operator sets holds, and so does what is assumed of a silent source.
            Origin::Override | Origin::Fallback(_) => steady(cluster.hardware.nodes_watts(sample.supply)),
        };
        answer(&self.ask(
            settings,
            cluster,
            Circumstances {
                start_ms,
                supply: sample.supply,
                battery: self.foresee(now, start_ms, cluster, sample.supply).0,
                forecast: &forecast,
                last: self.plans.at(start_ms.saturating_sub(1).max(now.wall_ms)),
                kept: self.latest(now).filter(|latest| latest.start_ms <= start_ms),
            },
        ))
    }

    fn ask<'a>(&self, settings: &Settings, cluster: &Cluster<'a>, of: Circumstances<'a>) -> Ask<'a> {
        Ask {
            hardware: cluster.hardware,
            supply: of.supply,
            battery: in_steps(of.battery),
            circle: cluster.circle,
            chains: cluster.chains,
            dead: cluster.dead,
            late: cluster.late,
            popularity: cluster.popularity,
            rotational: settings.rotational,
            timing: Timing { start_ms: of.start_ms, ..settings.timing },
            lead_ms: self.settings.lead_ms,
            forecast: of.forecast,
            last: of.last,
            kept: of.kept,
        }
    }
}

/// What holds when a plan begins.
struct Circumstances<'a> {
    start_ms: u64,
    supply: Supply,
    battery: Battery,
    /// Watts for the nodes in each step from then on.
    forecast: &'a [f64],
    /// The plan before.
    last: Option<&'a PowerPlan>,
    /// The newest plan that is known for the time from then on.
    kept: Option<&'a PowerPlan>,
}

/// The battery with its charge rounded down to a thousandth of its size. A policy would answer every joule with a plan
/// of its own.
fn in_steps(battery: Battery) -> Battery {
    let step = battery.capacity_joules / 1000.0;
    if step <= 0.0 {
        return battery;
    }
    let charge_joules = ((battery.charge_joules + SLACK_JOULES) / step).floor() * step;
    Battery { charge_joules: charge_joules.min(battery.capacity_joules), ..battery }
}

/// A plan's statement of the data that it puts out of reach.
fn out_of_reach(lost: &[&Holding]) -> OutOfReach {
    let named = lost.iter().find(|lost| !lost.example.is_empty());
    let example = named.map_or("", |named| &named.example).chars().take(EXAMPLE_CHARS).collect();
    OutOfReach { metablocks: metablocks(lost), example }
}

fn metablocks(lost: &[&Holding]) -> u64 {
    lost.iter().map(|holding| holding.metablocks).sum()
}

/// Whether both plans have the same datasets stalled, and both or neither have data out of reach. A change of the
/// number alone is no news.
fn is_same_reach(one: &PowerPlan, other: &PowerPlan) -> bool {
    one.stalled == other.stalled && (one.out_of_reach.metablocks > 0) == (other.out_of_reach.metablocks > 0)
}
