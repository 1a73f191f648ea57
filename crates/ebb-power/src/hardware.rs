//! Draw of the nodes, and the times that they take to wake and to fall asleep.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_types::{NodeId, Result, bail};

/// One node as the power manager sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NodePower {
    /// Watts at work. Plans assume this draw at every moment at which a node is not asleep, also in transitions.
    pub active_watts: f64,
    /// Watts awake without work; for the account only.
    pub idle_watts: f64,
    /// Watts asleep.
    pub asleep_watts: f64,
    /// From the wake-up call to the first answer.
    pub wake: Duration,
    /// From the last answer to sleep.
    pub suspend: Duration,
    /// Disks that spin, and wear out by starting and stopping.
    pub rotational_disks: u32,
}

impl NodePower {
    /// The one documented set of parameters, used for every figure: the machines of the BlinkFS prototype (Sec. 5): 25
    /// W in S0, 1 W in S3, a second for each transition, flash disks. The paper gives one figure for S0, so idle and
    /// active draw are equal.
    pub const REFERENCE: Self = Self {
        active_watts: 25.0,
        idle_watts: 25.0,
        asleep_watts: 1.0,
        wake: Duration::from_secs(1),
        suspend: Duration::from_secs(1),
        rotational_disks: 0,
    };

    /// Watts that waking it adds.
    #[must_use]
    pub fn extra_watts(&self) -> f64 {
        self.active_watts - self.asleep_watts
    }

    /// Time for which it is powered without serving, at each wake.
    #[must_use]
    pub fn transition_ms(&self) -> u64 {
        millis(self.wake) + millis(self.suspend)
    }

    fn check(&self, node: NodeId) -> Result<()> {
        let Self { active_watts, idle_watts, asleep_watts, .. } = *self;
        let in_order = asleep_watts >= 0.0 && asleep_watts <= idle_watts && idle_watts <= active_watts;
        if !(in_order && active_watts.is_finite() && active_watts > asleep_watts) {
            bail!(
                Invalid,
                "{node}: {asleep_watts} W asleep, {idle_watts} W idle and {active_watts} W active are no draw of a node: \
                 they must rise from 0 or more, and sleeping must save something"
            );
        }
        if self.wake + self.suspend > TRANSITIONS_MOST {
            bail!(Invalid, "{node}: {:?} to wake and {:?} to sleep: at most an hour together", self.wake, self.suspend);
        }
        Ok(())
    }
}

/// Longest that a node may take to wake and to sleep again.
const TRANSITIONS_MOST: Duration = Duration::from_secs(3600);

/// Whole milliseconds, rounded up, so that a transition never counts as shorter than it is.
#[must_use]
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The available power.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Supply {
    /// Watts for the whole cluster. The base draw is subtracted first.
    Watts(f64),
    /// Share of the draw of all block servers at work, from 0 to 1. It includes the watts of sleeping nodes, and not
    /// the base draw.
    Fraction(f64),
}

impl std::fmt::Display for Supply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Watts(watts) => write!(f, "{watts:.1} W"),
            Self::Fraction(share) => write!(f, "{:.1} %", share * 100.0),
        }
    }
}

/// The cluster's draw.
#[derive(Clone, PartialEq, Debug)]
pub struct Hardware {
    base_watts: f64,
    nodes: BTreeMap<NodeId, NodePower>,
    /// The localized storage nodes of hosts that such serve.
    lsns: BTreeMap<NodeId, Vec<NodeId>>,
}

impl Hardware {
    /// `base_watts` is the draw of switches and always-on nodes. `Invalid` if there is no node, if a node saves nothing
    /// by sleeping, or if a number of watts is impossible.
    pub fn new(base_watts: f64, nodes: BTreeMap<NodeId, NodePower>) -> Result<Self> {
        if !(base_watts.is_finite() && base_watts >= 0.0) {
            bail!(Invalid, "{base_watts} W that are always drawn: it must be 0 or more");
        }
        if nodes.is_empty() {
            bail!(Invalid, "no node follows the power: the cluster has no block servers that may sleep");
        }
        nodes.iter().try_for_each(|(node, power)| power.check(*node))?;
        Ok(Self { base_watts, nodes, lsns: BTreeMap::new() })
    }

    /// The same with the localized storage nodes of hosts that such serve: the nodes on the host of the LSN.
    #[must_use]
    pub fn with_lsns(self, lsns: BTreeMap<NodeId, Vec<NodeId>>) -> Self {
        Self { lsns, ..self }
    }

    /// The localized storage nodes that have a node's disks; none of a node that no such serves.
    #[must_use]
    pub fn lsns_of(&self, node: NodeId) -> &[NodeId] {
        self.lsns.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Whether any host is served by a localized storage node.
    #[must_use]
    pub fn has_lsns(&self) -> bool {
        !self.lsns.is_empty()
    }

    /// A cluster of equal nodes, numbered from 1.
    pub fn uniform(base_watts: f64, nodes: u32, power: NodePower) -> Result<Self> {
        Self::new(base_watts, (1..=u64::from(nodes)).map(|id| (NodeId::new(id), power)).collect())
    }

    /// Draw of switches and always-on nodes.
    #[must_use]
    pub const fn base_watts(&self) -> f64 {
        self.base_watts
    }

    /// All nodes that may sleep.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<NodeId, NodePower> {
        &self.nodes
    }

    /// One node, if it follows the power.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<&NodePower> {
        self.nodes.get(&node)
    }

    /// Watts of the nodes with all of them active.
    #[must_use]
    pub fn full_watts(&self) -> f64 {
        self.nodes.values().map(|node| node.active_watts).sum()
    }

    /// Watts of the nodes with all of them asleep.
    #[must_use]
    pub fn asleep_watts(&self) -> f64 {
        self.nodes.values().map(|node| node.asleep_watts).sum()
    }

    /// Watts that a supply leaves for the nodes; never below 0.
    #[must_use]
    pub fn nodes_watts(&self, supply: Supply) -> f64 {
        match supply {
            Supply::Watts(watts) => (watts - self.base_watts).max(0.0),
            Supply::Fraction(share) => (share * self.full_watts()).max(0.0),
        }
    }

    /// A supply for the whole cluster, in watts.
    #[must_use]
    pub fn cluster_watts(&self, supply: Supply) -> f64 {
        match supply {
            Supply::Watts(watts) => watts,
            Supply::Fraction(_) => self.base_watts + self.nodes_watts(supply),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_of_the_block_servers_and_watts_are_of_everything() {
        let hardware = Hardware::uniform(40.0, 9, NodePower::REFERENCE).unwrap();
        assert_eq!(hardware.nodes_watts(Supply::Fraction(0.2)), 45.0);
        assert_eq!(hardware.cluster_watts(Supply::Fraction(0.2)), 85.0);
        assert_eq!(hardware.nodes_watts(Supply::Watts(152.5)), 112.5);
        assert_eq!(hardware.nodes_watts(Supply::Watts(30.0)), 0.0);
        assert_eq!((hardware.full_watts(), hardware.asleep_watts()), (225.0, 9.0));
    }

    #[test]
    fn impossible_hardware_is_refused() {
        let with = |power| Hardware::uniform(0.0, 3, power).unwrap_err().to_string();
        assert!(with(NodePower { asleep_watts: 25.0, ..NodePower::REFERENCE }).contains("sleeping must save"));
        assert!(with(NodePower { idle_watts: f64::NAN, ..NodePower::REFERENCE }).starts_with("n1"));
        assert!(with(NodePower { wake: Duration::from_secs(7200), ..NodePower::REFERENCE }).contains("an hour"));
        assert!(Hardware::uniform(-1.0, 3, NodePower::REFERENCE).is_err());
        assert!(Hardware::uniform(0.0, 0, NodePower::REFERENCE).is_err());
    }
}
