//! Data that can be read with part of the power, the time that reads take, and the results of a month of a power
//! signal.

pub mod blink;
pub mod month;
pub mod signal;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use ebb_power::policy::{Migration, migration};
use ebb_power::{Hardware, NodePower};
use ebb_types::{Result, bail};

/// Nodes and their draw.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machines {
    /// Nodes that may be switched off.
    pub nodes: u32,
    /// Watts of an active node.
    pub active_watts: f64,
    /// Watts of a sleeping node.
    pub sleep_watts: f64,
}

impl Machines {
    /// The nine block servers of the BlinkFS prototype (Sec. 5).
    pub const BLINKFS: Self = Self {
        nodes: 9,
        active_watts: NodePower::REFERENCE.active_watts,
        sleep_watts: NodePower::REFERENCE.asleep_watts,
    };

    /// `Invalid` if there are no nodes or a sleeping one draws no less than an active one.
    pub fn new(nodes: u32, active_watts: f64, sleep_watts: f64) -> Result<Self> {
        if nodes == 0 {
            bail!(Invalid, "0 nodes draw no power; the nearest possible number of nodes is 1");
        }
        let sensible = active_watts.is_finite() && sleep_watts >= 0.0 && active_watts > sleep_watts;
        if !sensible {
            bail!(
                Invalid,
                "a node of {active_watts} W active and {sleep_watts} W asleep saves nothing by sleeping; the nearest \
                 possible draw asleep is anything from 0 to below {active_watts} W"
            );
        }
        Ok(Self { nodes, active_watts, sleep_watts })
    }

    /// The power manager's view of these machines. `Invalid` if it is impossible.
    pub fn hardware(&self, fixed_watts: f64, transition_s: f64) -> Result<Hardware> {
        let Ok(transition) = Duration::try_from_secs_f64(transition_s) else {
            bail!(Invalid, "{transition_s} s for a transition; the nearest possible value is 0");
        };
        let power = NodePower {
            active_watts: self.active_watts,
            idle_watts: self.active_watts,
            asleep_watts: self.sleep_watts,
            wake: transition,
            suspend: transition,
            rotational_disks: 0,
        };
        Hardware::uniform(fixed_watts, self.nodes, power)
    }

    /// Watts with all nodes active.
    #[must_use]
    pub fn full_watts(&self) -> f64 {
        f64::from(self.nodes) * self.active_watts
    }

    /// Watts with all nodes asleep.
    #[must_use]
    pub fn least_watts(&self) -> f64 {
        f64::from(self.nodes) * self.sleep_watts
    }

    /// Share of the time that each node can be awake on these watts: `(p - p_inactive) / (p_total - p_inactive)`,
    /// between 0 and 1 (BlinkFS, Sec. 4.2).
    #[must_use]
    pub fn awake_share(&self, watts: f64) -> f64 {
        ((watts - self.least_watts()) / (self.full_watts() - self.least_watts())).clamp(0.0, 1.0)
    }

    /// Whole nodes that can be on for good on these watts, the others asleep.
    #[must_use]
    pub fn nodes_on(&self, watts: f64) -> u32 {
        let nodes = ((watts - self.least_watts()) / (self.active_watts - self.sleep_watts) + 1e-9).floor();
        nodes.clamp(0.0, f64::from(self.nodes)) as u32
    }

    /// Watts with `on` nodes active.
    #[must_use]
    pub fn watts_with(&self, on: f64) -> f64 {
        self.least_watts() + on * (self.active_watts - self.sleep_watts)
    }
}

/// Bytes that an equal-work chain of `nodes` can store once if every node has `node_bytes`: the primaries are full, and
/// node `i` holds `p / i` of a primary (BlinkFS, Sec. 2.3).
#[must_use]
pub fn equal_work_capacity(nodes: u32, primaries: u32, node_bytes: f64) -> f64 {
    let behind: f64 = (primaries + 1..=nodes).map(|index| f64::from(primaries) / f64::from(index)).sum();
    node_bytes * (f64::from(primaries) + behind)
}
