//! Power for nodes that do not answer.
//!
//! A node that is silent may be broken, and it may be one that nothing has woken: the power client was gone when it should
//! have. To leave it off for good would make sure that it is never heard again. So it is powered whenever that costs nobody
//! anything; and where no node answers at all, all of them are planned for as if they did.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::NodeId;

use super::{Ask, Schedule};
use crate::plan::Duty;
use crate::plan::profile::{Profile, SLACK_WATTS};

const NOBODY: &BTreeSet<NodeId> = &BTreeSet::new();

/// Who is planned for as dead.
pub(super) fn dead<'a>(ask: &Ask<'a>) -> &'a BTreeSet<NodeId> {
    if ask.living().is_empty() { NOBODY } else { ask.dead }
}

/// Has nodes that do not answer on, as far as there are watts that the others leave at every instant.
pub(super) fn lend_spare(ask: &Ask<'_>, schedule: &mut Schedule) {
    let peak_watts = |duties: &BTreeMap<NodeId, Duty>| {
        let all = ask.hardware.nodes().iter();
        let all = all.map(|(id, power)| (power, duties.get(id).copied().unwrap_or(Duty::Off)));
        Profile::new(all, schedule.interval_ms).peak_watts()
    };
    for node in ask.circle.iter().filter(|node| ask.dead.contains(node)) {
        let mut duties = schedule.duties.clone();
        duties.insert(*node, Duty::On);
        if peak_watts(&duties) <= ask.nodes_watts() + SLACK_WATTS {
            schedule.duties = duties;
        }
    }
}
