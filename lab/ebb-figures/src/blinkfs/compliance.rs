//! How the policies keep to the supply when it falls to a fifth: no figure of the paper, which shows the power that is
//! drawn as a mean of intervals alone.

use ebb_client::Access;
use ebb_plan::{Cell, Comparison, Section};
use ebb_power::{Battery, PolicyKind};
use ebb_types::Result;
use ebb_virtual::power::meter::is_capped;

use crate::compliance::report::{Pair, SOURCE, figures, table};
use crate::compliance::{Compliance, Load, NOTICE, POLICIES, Plant, layout, measure_virtual};
use crate::data::Data;
use crate::hardware::MACHINES;
use crate::part::Lab;
use crate::testbed::{Setting, on};

pub const SOURCES: &[&str] = &[SOURCE];

const NODES: u32 = 9;

fn run(policy: PolicyKind, seed: u64, low_intervals: u32) -> Result<Compliance> {
    let setting = Setting::of(NODES, policy, layout(policy), 144);
    // So few that one node's disk has time for all of them: what waits waits for power.
    let (read_pause, write_pause) = (MACHINES.interval / 60, MACHINES.interval / 12);
    let load = Load { readers: 4, read_pause, write_pause, interval: MACHINES.interval, low_intervals };
    on(seed, setting, |bed| async move {
        let user = bed.user("user", Some(Access::ReadWrite)).await?;
        let blocks_per_file = u64::from(setting.blocks_per_file);
        let data = Data { handles: user.handles, block_bytes: setting.block_bytes, blocks_per_file };
        let full_watts = MACHINES.node.active_watts * f64::from(NODES);
        let battery = Battery::full(full_watts, MACHINES.battery.as_secs_f64());
        let plant = Plant { policy, node: MACHINES.node, battery };
        measure_virtual(&user.runtime, &user.client, &data, load, plant, bed.cluster()).await
    })
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let (policies, low_intervals) = lab.effort.of((&POLICIES[..], 6), (&POLICIES[3..5], 3));
    let seen = lab.map(policies, |policy| run(*policy, lab.seed, low_intervals))?;
    let pairs: Vec<Pair> = seen.into_iter().map(|seen| Pair { real: None, simulated: Some(seen) }).collect();
    let mut section = Section::new("", &[]);
    pairs.iter().flat_map(Pair::each).for_each(|(_, seen)| add_rows(&mut section, seen));
    section.figures = figures(&pairs);
    section.tables.push(table(&pairs));
    Ok(section)
}

fn add_rows(section: &mut Section, seen: &Compliance) {
    let (policy, record, answered) = (seen.policy, &seen.record, &seen.answered);
    let mut row = |quantity: &str, promise: &str, ours: Cell, why: &str, holds: bool| {
        let quantity = format!("{policy}, power from 100 to 20 %: {quantity}");
        section.rows.push(Comparison::new(SOURCE, quantity, promise.into(), ours, why).bound(holds));
    };
    let soon = Some(seen.interval + NOTICE);
    let (within, promise) = if is_capped(policy) {
        (record.within(), "seconds until no instant draws more than there is")
    } else {
        (record.mean_within(), "seconds until no interval draws more than there is")
    };
    let why = if policy == PolicyKind::AlwaysOn { "It promises nothing." } else { "" };
    let ours = within.map_or_else(|| "never".into(), |within| Cell::Number(within.as_secs_f64(), 1));
    row(promise, "an interval at most", ours, why, within.is_some() && within <= soon);
    let over = record.over();
    let words = format!("{why} {:.0} J above the supply in all.", over.joules);
    let missing = Cell::Number(over.missing_joules, 0);
    row("joules that supply and battery had not", "0", missing, words.trim(), over.missing_joules < 1.0);
    let first = answered.error.as_deref().unwrap_or("");
    row("requests that failed", "0", Cell::Count(answered.failed()), first, answered.failed() == 0);
    let slowest = [answered.reads.slowest(), answered.writes.slowest()].into_iter().flatten().max_by(f64::total_cmp);
    // The plan of the low supply may have a longer interval, or a shorter one that its end does not keep.
    let interval = record.interval.max(seen.interval).as_secs_f64();
    row(
        "slowest request of those answered (s)",
        "an interval at most",
        Cell::number(slowest, 1),
        "",
        slowest.is_some_and(|slowest| slowest <= interval),
    );
    let serving = record.all_serving();
    let ours = Cell::number(serving.map(|serving| serving.as_secs_f64()), 1);
    row(
        "seconds from the return of the power until all serve",
        "an interval at most",
        ours,
        "",
        serving.is_some() && serving <= soon,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cap is a cap at the papers' interval, too.
    #[test]
    fn a_capped_policy_is_within_the_supply_in_less_than_an_interval() {
        let seen = run(PolicyKind::BlinkCircular, 4, 2).unwrap();
        assert_eq!(seen.broken(), None);
        assert!(seen.record.within().is_some_and(|within| within < MACHINES.interval), "{:?}", seen.record.within());
        let mut section = Section::new("", &[]);
        add_rows(&mut section, &seen);
        assert_eq!((section.rows.len(), section.agreeing()), (5, 5), "{:?}", section.rows);
    }
}
