//! The registry of policies: pure rules from a supply and a cluster to a power plan.
//!
//! | policy | at any instant | over an interval | everything in reach |
//! |---|---|---|---|
//! | `always-on` | draws what it draws | | always |
//! | `activation` | within the budget | | always, from the floor up; below it nothing |
//! | `blink-circular` | within the budget (below one node: battery) | within the budget | within an interval |
//! | `blink-staggered`, `blink-synchronous`, `load-proportional` | excess from the battery | within the budget | within an interval |
//! | `migration` | within the budget | | once data have moved |
//! | `tide` | excess from the battery | within the budget | from the floor up always, below within an interval |
//!
//! The budget is the level that [`reservoir`] makes of the supply and the battery.
//!
//! To add a policy: a file in `policy/` with a function from an [`Ask`] to a [`Schedule`], and a line here.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ebb_types::{DatasetId, Error, NodeId, PlanVersion, Result, bail, err};

use crate::hardware::millis;
use crate::plan::lookup::NodeState;
use crate::plan::{Duty, NodePlan, OutOfReach, PowerPlan};

mod activation;
mod always_on;
pub mod ask;
mod circular;
mod doubt;
mod fit;
mod migration;
mod proportional;
pub mod reservoir;
mod served;
mod staggered;
mod synchronous;
#[cfg(test)]
mod tests;
mod tide;

pub use ask::{Ask, Rotational, Timing};
pub use circular::around;
pub use migration::{Migration, migration};
pub use staggered::stagger_start;

/// The decision of a rule.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// Duties of the nodes that are not simply off.
    pub duties: BTreeMap<NodeId, Duty>,
    /// The interval, which may be longer than the one that was asked for.
    pub interval_ms: u64,
    /// Datasets without readable data.
    pub stalled: Vec<DatasetId>,
    /// The reason.
    pub why: String,
}

macro_rules! policies {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $number:literal, $rule:path;)*) => {
        /// A pure rule from a supply and a cluster to a power plan. The numbers travel in plans and never change.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum PolicyKind { $($(#[$doc])* $kind,)* }

        impl PolicyKind {
            /// Every policy.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Its name on the command line and in status.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// Its number in a plan.
            #[must_use]
            pub const fn number(self) -> u8 {
                match self { $(Self::$kind => $number,)* }
            }

            /// The policy with this number.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$kind),)* _ => None }
            }

            fn schedule(self, ask: &Ask<'_>) -> Schedule {
                match self { $(Self::$kind => $rule(ask),)* }
            }
        }
    };
}

// The registry: one line for each policy.
policies! {
    /// Every node is on at any supply: the baseline for comparisons.
    AlwaysOn = "always-on", 1, always_on::schedule;
    /// Rabbit: whole nodes along the expansion chains, or whole gears; below the floor a dataset stalls.
    Activation = "activation", 2, activation::schedule;
    /// BlinkFS: every node for the same part of each interval, starts spread so that none reaches over its end. It
    /// meets the budget as a mean, and a battery carries the rest.
    BlinkStaggered = "blink-staggered", 3, staggered::schedule;
    /// As many nodes as the power allows, taking turns around the circle: never above the budget.
    BlinkCircular = "blink-circular", 4, circular::schedule;
    /// All nodes together for a part of each interval; a battery carries them.
    BlinkSynchronous = "blink-synchronous", 5, synchronous::schedule;
    /// Staggered, with a time for each node in proportion to the popularity of its data. The total energy is the same.
    LoadProportional = "load-proportional", 6, proportional::schedule;
    /// Whole nodes, with the data moved onto them at each change.
    Migration = "migration", 7, migration::schedule;
    /// Ebb's own: whole nodes and gears, blinking for fractions of them, and the best of several plans below the cover.
    Tide = "tide", 8, tide::schedule;
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PolicyKind {
    type Err = Error;

    /// `Invalid`, with the names that there are, for any other name.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
            err!(Invalid, "there is no power policy {name:?}; choose one of {}", known.join(", "))
        })
    }
}

/// The plan that follows `ask.last`.
///
/// Errors: `Invalid` for an inconsistent ask; `NotPermitted` if the policy would blink rotational disks, and
/// `ask.rotational` does not allow it. Too little power is no error: the plan names the stalled datasets. Call
/// [`crate::reach::admit`] before publishing it.
pub fn choose(policy: PolicyKind, ask: &Ask<'_>) -> Result<PowerPlan> {
    ask.check()?;
    let ask = &reservoir::at_level(ask, &ask.cover());
    let schedule = doubt::schedule(ask, |ask| match policy {
        // It is what others are compared with: everything is on.
        PolicyKind::AlwaysOn => policy.schedule(ask),
        _ => served::schedule(ask, |ask| policy.schedule(ask)),
    });
    refuse_to_wear_disks_out(policy, ask, &schedule)?;
    let version = ask.last.map_or(PlanVersion::default(), |last| last.version);
    let interval_ms = schedule.interval_ms;
    let node_plan = |id: NodeId| {
        let power = ask.hardware.node(id).expect("the circle was checked against the hardware");
        let duty = schedule.duties.get(&id).copied().unwrap_or(Duty::Off);
        let (wake_ms, suspend_ms) = (millis(power.wake), millis(power.suspend));
        let (start_ms, guard_ms) = (ask.timing.start_ms, ask.timing.guard_ms);
        let before = ask.last.map_or(NodeState::Awake, |last| last.state(id, start_ms));
        let ready_ms = match before {
            NodeState::Awake => start_ms,
            // The node is still waking under the last plan.
            NodeState::Waking => start_ms.max(ask.last.map_or(0, |last| last.next_wake_ms(id, start_ms).unwrap_or(0))),
            NodeState::FallingAsleep => start_ms + suspend_ms + wake_ms + guard_ms,
            NodeState::Asleep => start_ms + wake_ms + guard_ms,
        };
        let short = |ms: u64| u32::try_from(ms).expect("transitions take an hour at most");
        NodePlan { duty, ready_ms, wake_ms: short(wake_ms), suspend_ms: short(suspend_ms) }
    };
    let plan = PowerPlan {
        version: PlanVersion::new(version.raw() + 1),
        policy,
        start_ms: ask.timing.start_ms,
        interval_ms,
        guard_ms: ask.timing.guard_ms,
        budget_mw: (ask.nodes_watts() * 1000.0) as u64,
        nodes: ask.hardware.nodes().keys().map(|id| (*id, node_plan(*id))).collect(),
        stalled: schedule.stalled,
        out_of_reach: OutOfReach::default(),
        why: schedule.why,
    };
    plan.check()?;
    Ok(plan)
}

/// Start-stop cycles that disks are rated for; at one blink a minute they are used up in 35 days (BlinkFS, Sec. 3.2).
pub const DISK_CYCLES_RATED: u64 = 50_000;

fn refuse_to_wear_disks_out(policy: PolicyKind, ask: &Ask<'_>, schedule: &Schedule) -> Result<()> {
    if ask.rotational == Rotational::Blink {
        return Ok(());
    }
    let blinks = |id: &NodeId| matches!(schedule.duties.get(id), Some(Duty::Blink { .. }));
    let spinning = |id: &NodeId| ask.hardware.node(*id).is_some_and(|power| power.rotational_disks > 0);
    let worn: Vec<String> =
        ask.circle.iter().filter(|id| blinks(id) && spinning(id)).map(ToString::to_string).collect();
    if worn.is_empty() {
        return Ok(());
    }
    let days = DISK_CYCLES_RATED as f64 * schedule.interval_ms as f64 / 86_400_000.0;
    bail!(
        NotPermitted,
        "{policy} would start and stop the rotational disks of {} every {} s, and they are rated for {DISK_CYCLES_RATED} \
         starts, {days:.0} days of this: choose activation, a longer interval, or force it",
        worn.join(", "),
        schedule.interval_ms as f64 / 1000.0
    )
}
