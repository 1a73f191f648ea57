//! Power for nodes that do not answer.
//!
//! A silent node may be broken. But it may also be a node that was not woken, or that the network has cut off for a
//! moment. A node that is left off can never answer again. So a late node keeps its turns if nodes blink
//! ([`Ask::turns`]). If whole nodes are on, the watts of one node are set aside for late nodes, as long as no dataset
//! stalls for that. A node that was given up is powered whenever that takes power from no other node. If no node
//! answers at all, the plan is made as if all did. As long as one node answers, one that answers is on. Hosts without data
//! are no such nodes: they get what is left, while their localized storage node is on.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::NodeId;

use super::circular::around;
use super::fit::profile;
use super::served::dependent_hosts;
use super::{Ask, Rotational, Schedule};
use crate::hardware::Supply;
use crate::plan::Duty;
use crate::plan::profile::SLACK_WATTS;

const NOBODY: &BTreeSet<NodeId> = &BTreeSet::new();

/// The schedule of a policy, with the remaining power for nodes that do not answer.
pub(super) fn schedule(ask: &Ask<'_>, policy: impl Fn(&Ask<'_>) -> Schedule) -> Schedule {
    if ask.living().is_empty() {
        return policy(&Ask { dead: NOBODY, late: NOBODY, ..*ask });
    }
    let mut schedule = policy(ask);
    wake_one(ask, &mut schedule);
    lend_spare(ask, &mut schedule);
    set_aside(ask, &schedule, policy).unwrap_or(schedule)
}

/// Switches one node on that answers, if none would be on because the cover of the living nodes needs too much power.
/// Otherwise all power would go to nodes that do not answer, and a master that starts then would get no report.
fn wake_one(ask: &Ask<'_>, schedule: &mut Schedule) {
    let is_there = |node: &&NodeId| !ask.dead.contains(node);
    if ask.dead.is_empty() || ask.circle.iter().filter(is_there).any(|node| !is_off(schedule, node)) {
        return;
    }
    // A host without data has nothing to report.
    let hosts = dependent_hosts(ask);
    for node in ask.circle.iter().filter(is_there).filter(|node| !hosts.contains_key(node)) {
        let mut duties = schedule.duties.clone();
        duties.insert(*node, Duty::On);
        if is_powered(ask, &duties, schedule.interval_ms) {
            schedule.duties = duties;
            schedule.why.push_str(&format!("; {node} is on, so that one node answers"));
            return;
        }
    }
}

/// Switches nodes on that do not answer, the late ones first, as far as the others leave watts for them at every
/// instant.
fn lend_spare(ask: &Ask<'_>, schedule: &mut Schedule) {
    let of_late = |is_late: bool| move |node: &&NodeId| ask.dead.contains(node) && ask.late.contains(node) == is_late;
    let late_first = ask.circle.iter().filter(of_late(true)).chain(ask.circle.iter().filter(of_late(false)));
    let hosts = dependent_hosts(ask);
    for node in late_first {
        let waits_for_disks = hosts.get(node).is_some_and(|lsn| is_off(schedule, lsn));
        if !is_off(schedule, node) || waits_for_disks {
            continue;
        }
        let mut duties = schedule.duties.clone();
        duties.insert(*node, Duty::On);
        if is_powered(ask, &duties, schedule.interval_ms) {
            schedule.duties = duties;
        }
    }
}

/// Gives one node's watts to late nodes that would be off, in turns. Returns the policy's schedule for the rest of the
/// power. `None` if a dataset would stall or a node would have to blink for that.
fn set_aside(ask: &Ask<'_>, schedule: &Schedule, policy: impl Fn(&Ask<'_>) -> Schedule) -> Option<Schedule> {
    let hosts = dependent_hosts(ask);
    let has_data = |node: &NodeId| !hosts.contains_key(node);
    let is_waiting = |node: &NodeId| ask.late.contains(node) && is_off(schedule, node) && has_data(node);
    let waiting: Vec<NodeId> = ask.circle.iter().copied().filter(is_waiting).collect();
    let most = waiting.iter().map(|node| ask.extra(*node)).reduce(f64::max)?;
    let supply = Supply::Watts(ask.hardware.cluster_watts(ask.supply) - most);
    let mut rest = policy(&Ask { supply, ..*ask });
    let has_blinked = rest.duties.values().any(|duty| matches!(duty, Duty::Blink { .. }));
    // A node beyond the cover that blinks gives its time to late ones.
    rest.duties.retain(|_, duty| *duty == Duty::On);
    let is_cover_on = || ask.cover().iter().all(|node| !is_off(&rest, node));
    if has_blinked && !is_cover_on() || rest.duties.is_empty() || rest.stalled != schedule.stalled {
        return None;
    }
    let (turns, interval_ms) = turns(ask, &waiting);
    rest.interval_ms = interval_ms;
    rest.duties.extend(turns);
    rest.why.push_str(&format!("; one node's watts are set aside for {} late", waiting.len()));
    let is_powered = is_powered(ask, &rest.duties, rest.interval_ms);
    lend_spare(ask, &mut rest);
    is_powered.then_some(rest)
}

/// Turns one after the other. Only the first node gets power if turns would be too short, or would wear disks out.
fn turns(ask: &Ask<'_>, waiting: &[NodeId]) -> (Vec<(NodeId, Duty)>, u64) {
    let count = waiting.len() as u64;
    let may_blink =
        waiting.iter().all(|node| ask.power(*node).rotational_disks == 0) || ask.rotational == Rotational::Blink;
    match ask.stretched(1.0 / count as f64, ask.least_active_of(waiting)).filter(|_| may_blink) {
        Some(interval_ms) if count > 1 => {
            let turn = |index: usize| around(index as u64, count, 1, interval_ms);
            let turn = |index| Duty::Blink { start_ms: turn(index).0, active_ms: turn(index).1 };
            (waiting.iter().enumerate().map(|(index, node)| (*node, turn(index))).collect(), interval_ms)
        }
        _ => (vec![(waiting[0], Duty::On)], ask.timing.interval_ms),
    }
}

fn is_off(schedule: &Schedule, node: &NodeId) -> bool {
    schedule.duties.get(node).is_none_or(|duty| *duty == Duty::Off)
}

/// Whether these duties draw no more than there is, at any instant.
pub(super) fn is_powered(ask: &Ask<'_>, duties: &BTreeMap<NodeId, Duty>, interval_ms: u64) -> bool {
    profile(ask, duties, interval_ms).peak_watts() <= ask.nodes_watts() + SLACK_WATTS
}
