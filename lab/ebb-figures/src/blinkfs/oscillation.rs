//! Fig. 10: a reader while the power swings, beside a system that moves its data at each change.
//!
//! Ebb moves no data for power, so the rival is computed. The policy `migration` gives the number of nodes that are on,
//! `ebb_power::policy::migration` the data that have to move, and the machines' links the time for that. Meanwhile the
//! rival answers nothing. Otherwise a read takes as long as it does at full power.

use std::collections::BTreeSet;
use std::time::Duration;

use ebb_client::Access;
use ebb_plan::figure::Axis;
use ebb_plan::{Cell, Comparison, Figure, Mark, Section};
use ebb_power::policy::{Ask, Rotational, Timing, choose, migration};
use ebb_power::signal::{OSCILLATION_PERIOD, Signal};
use ebb_power::{Battery, Duty, Hardware, PolicyKind, Supply};
use ebb_types::{NodeId, Result};

use crate::drive::{follow, read_in_a_loop};
use crate::hardware::MACHINES;
use crate::part::Lab;
use crate::testbed::{Layout, Setting, on};

pub const SOURCES: &[&str] = &["Fig. 10"];

const NODES: u32 = 9;
const LEVELS: [u32; 6] = [0, 20, 40, 60, 80, 100];

/// Reads a second while the power swings; the level is in per cent.
fn blinking(policy: PolicyKind, level: u32, seed: u64, periods: u32) -> Result<f64> {
    let setting = Setting::of(NODES, policy, Layout::balanced(3), 144);
    let signal = Signal::oscillating(f64::from(level) / 100.0, OSCILLATION_PERIOD)?;
    on(seed, setting, |bed| async move {
        let user = bed.user("user", Some(Access::Read)).await?;
        bed.supply_and_wait(signal.at(Duration::ZERO)).await?;
        let span = OSCILLATION_PERIOD * periods;
        let (followed, seen) =
            tokio::join!(follow(&bed, &signal, OSCILLATION_PERIOD, span), read_in_a_loop(&bed, &user, span));
        followed.map(|()| seen.seconds.len() as f64 / span.as_secs_f64())
    })
}

/// Nodes that are on with so much power.
fn active(supply: Supply) -> Result<u32> {
    let hardware = Hardware::uniform(MACHINES.base_watts, NODES, MACHINES.node)?;
    let circle: Vec<NodeId> = hardware.nodes().keys().copied().collect();
    let interval_ms = MACHINES.interval.as_secs() * 1_000;
    let ask = Ask {
        hardware: &hardware,
        supply,
        battery: Battery::NONE,
        circle: &circle,
        chains: &[],
        dead: &BTreeSet::new(),
        late: &BTreeSet::new(),
        popularity: &std::collections::BTreeMap::new(),
        rotational: Rotational::Spare,
        timing: Timing::every(interval_ms, 0),
        lead_ms: 0,
        forecast: &[],
        last: None,
        kept: None,
    };
    let plan = choose(PolicyKind::Migration, &ask)?;
    Ok(plan.nodes.values().filter(|node| node.duty == Duty::On).count() as u32)
}

/// Reads a second of the rival, of `full` that there are when nothing moves.
fn moving(level: u32, data_bytes: f64, full: f64) -> Result<f64> {
    let signal = Signal::oscillating(f64::from(level) / 100.0, OSCILLATION_PERIOD)?;
    let [high, low] = [Duration::ZERO, OSCILLATION_PERIOD].map(|at| active(signal.at(at)));
    let (high, low) = (high?, low?);
    let share = |from: u32, to: u32| {
        if to == 0 {
            return 0.0;
        }
        let moved = migration(from, to, data_bytes);
        // Those that come or go, and those that stay, each with one link.
        let links = from.abs_diff(to).min(from.min(to)).max(1);
        let takes = moved.bytes / (f64::from(links) * MACHINES.link_bytes_per_sec as f64);
        (1.0 - takes / OSCILLATION_PERIOD.as_secs_f64()).max(0.0)
    };
    Ok(full * f64::midpoint(share(high, low), share(low, high)))
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let (levels, periods) = lab.effort.of((&LEVELS[..], 4), (&[0, 100][..], 2));
    let policies = [PolicyKind::BlinkStaggered, PolicyKind::Tide];
    let cases: Vec<(PolicyKind, u32)> =
        policies.into_iter().flat_map(|policy| levels.iter().map(move |level| (policy, *level))).collect();
    let seen = lab.map(&cases, |(policy, level)| blinking(*policy, *level, lab.seed, periods))?;
    let curve = |policy: PolicyKind| {
        let all = cases.iter().zip(&seen).filter(|(case, _)| case.0 == policy);
        all.map(|(case, reads)| (f64::from(case.1), *reads)).collect::<Vec<_>>()
    };
    let full = 1.0 / lab.map(&[()], |()| service(lab.seed))?[0];
    let moved = |bytes: f64| {
        levels.iter().map(|level| Ok((f64::from(*level), moving(*level, bytes, full)?))).collect::<Result<Vec<_>>>()
    };
    let (blink, ten, twenty) = (curve(PolicyKind::BlinkStaggered), moved(10e9)?, moved(20e9)?);
    let mut section = Section::new("", &[]);
    rows(&mut section, &blink, &ten, &twenty);
    section.figures.push(
        Figure::plane(
            "Fig. 10: blinking does not care how the power swings as much as migration does",
            Axis::linear("oscillation (%)").from(0.0).to(100.0),
            Axis::linear("reads of 4 MB a second").from(0.0),
        )
        .subtitle("one closed-loop reader; five minutes up, five down around 45 % of the nodes' power; three copies")
        .with("staggered", Mark::Markers, blink)
        .with("tide", Mark::Line, curve(PolicyKind::Tide))
        .with("migration, 10 GB (computed)", Mark::Dashed, ten)
        .with("migration, 20 GB (computed)", Mark::DashedStep, twenty),
    );
    Ok(section)
}

/// Seconds of a read with all nodes on.
fn service(seed: u64) -> Result<f64> {
    on(seed, Setting::of(NODES, PolicyKind::AlwaysOn, Layout::balanced(3), 48), |bed| async move {
        let user = bed.user("user", Some(Access::Read)).await?;
        Ok(read_in_a_loop(&bed, &user, Duration::from_secs(20)).await.mean().unwrap_or(f64::NAN))
    })
}

fn rows(section: &mut Section, blink: &[(f64, f64)], ten: &[(f64, f64)], twenty: &[(f64, f64)]) {
    let (first, last) = (0, blink.len() - 1);
    let share = |curve: &[(f64, f64)]| curve[last].1 / curve[first].1;
    section.rows.push(
        Comparison::new(
            "Fig. 10",
            "blinking: throughput at full oscillation, as a share of that without",
            "about 1".into(),
            Cell::Number(share(blink), 2),
            "The battery holds five minutes of all nodes. It takes in what the high half leaves, and carries 45 % of the \
             nodes through the low half, as in the paper. It begins full, and ends so.",
        )
        .bound(share(blink) > 0.9),
    );
    for (name, curve) in [("10", ten), ("20", twenty)] {
        section.rows.push(
            Comparison::new(
                "Fig. 10",
                format!("migration of {name} GB: the same"),
                if name == "20" { "0".into() } else { "falls".into() },
                Cell::Number(share(curve), 2),
                "Data moves at the full rate of as many links as can be used here; the prototype moved it slower.",
            )
            .bound(share(curve) < share(blink)),
        );
    }
    section.rows.push(
        Comparison::new(
            "Fig. 10",
            "no oscillation: migration of 10 GB against blinking",
            "slightly better".into(),
            Cell::Number(ten[first].1 / blink[first].1, 2),
            "",
        )
        .bound(ten[first].1 >= blink[first].1),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_to_move_and_wider_swings_cost_migration_more() {
        let at = |level, bytes| moving(level, bytes, 15.0).unwrap();
        assert_eq!(at(0, 10e9), 15.0);
        assert!(at(40, 10e9) < 15.0 && at(40, 20e9) < at(40, 10e9) && at(100, 20e9) <= at(60, 20e9));
    }
}
