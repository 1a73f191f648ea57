//! Hosts whose disks are in a localized storage node (LSN): they are not powered while it is not.
//!
//! A host that holds no data has nothing to do without its LSN: its watts would wait for disks. So policies see the nodes
//! with data alone. What power is left goes to hosts whose LSN is on. Where LSNs blink, a sub-rack blinks as a whole: to the
//! policy it is one node with the watts of all. The other way round is free, since an LSN without its hosts serves others.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::NodeId;

use super::doubt::is_powered;
use super::{Ask, Schedule};
use crate::chain::DatasetChain;
use crate::hardware::{Hardware, NodePower};
use crate::plan::Duty;

/// The schedule of a policy for the nodes with data, and the hosts that it lets be on.
pub(super) fn schedule(ask: &Ask<'_>, policy: impl Fn(&Ask<'_>) -> Schedule) -> Schedule {
    let hosts = dependent_hosts(ask);
    if hosts.is_empty() {
        return policy(ask);
    }
    let storing: Vec<NodeId> = ask.circle.iter().copied().filter(|node| !hosts.contains_key(node)).collect();
    let schedule = policy(&Ask { circle: &storing, ..*ask });
    let blinks = |node: &NodeId| matches!(schedule.duties.get(node), Some(Duty::Blink { .. }));
    if hosts.values().any(blinks) {
        let hardware = as_units(ask.hardware, &hosts);
        let mut schedule = policy(&Ask { circle: &storing, hardware: &hardware, ..*ask });
        for (host, lsn) in &hosts {
            if let Some(duty) = schedule.duties.get(lsn).copied() {
                schedule.duties.insert(*host, duty);
            }
        }
        schedule.why.push_str("; the hosts of a sub-rack blink with its localized storage node");
        return schedule;
    }
    with_hosts(ask, &hosts, schedule)
}

/// Hosts that hold no data, each with the LSN that it goes with: of several nodes on the LSN's host the first.
pub(super) fn dependent_hosts(ask: &Ask<'_>) -> BTreeMap<NodeId, NodeId> {
    let storing: BTreeSet<NodeId> = ask.chains.iter().flat_map(DatasetChain::nodes).copied().collect();
    let idle = ask.circle.iter().filter(|node| !storing.contains(node));
    idle.filter_map(|node| {
        let lsns = ask.hardware.lsns_of(*node);
        Some((*node, lsns.iter().copied().find(|lsn| ask.circle.contains(lsn))?))
    })
    .collect()
}

/// Switches hosts on whose LSN is on, as far as the power goes. A dataset that stalls leaves its power unused.
fn with_hosts(ask: &Ask<'_>, hosts: &BTreeMap<NodeId, NodeId>, mut schedule: Schedule) -> Schedule {
    let is_on = |node: &NodeId| schedule.duties.get(node) == Some(&Duty::On);
    let near: Vec<NodeId> = ask.circle.iter().copied().filter(|node| hosts.get(node).is_some_and(is_on)).collect();
    let mut on = 0;
    for host in near.iter().filter(|host| !ask.dead.contains(host) && schedule.stalled.is_empty()) {
        let mut duties = schedule.duties.clone();
        duties.insert(*host, Duty::On);
        if is_powered(ask, &duties, schedule.interval_ms) {
            (schedule.duties, on) = (duties, on + 1);
        }
    }
    if on < hosts.len() {
        let without = hosts.len() - near.len();
        let why =
            format!("; {on} of {} hosts without data on, {without} without their localized storage node", hosts.len());
        schedule.why.push_str(&why);
    }
    schedule
}

/// The hardware with each of these hosts as a part of its LSN.
fn as_units(hardware: &Hardware, hosts: &BTreeMap<NodeId, NodeId>) -> Hardware {
    let mut nodes: BTreeMap<NodeId, NodePower> = hardware.nodes().clone();
    for (host, lsn) in hosts {
        let power = nodes.remove(host).expect("the circle was checked against the hardware");
        let unit = nodes.get_mut(lsn).expect("no LSN is served by another one");
        unit.active_watts += power.active_watts;
        unit.idle_watts += power.idle_watts;
        unit.asleep_watts += power.asleep_watts;
        unit.wake = unit.wake.max(power.wake);
        unit.suspend = unit.suspend.max(power.suspend);
        unit.rotational_disks += power.rotational_disks;
    }
    Hardware::new(hardware.base_watts(), nodes).expect("sums of possible draws are possible")
}
