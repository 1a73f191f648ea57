//! `ebb power status`: once, or again and again.

use std::time::Duration;

use ebb_cli::output::{Table, human_bytes, print_line};
use ebb_cli::{Context, admin};
use ebb_rpc::Channel;
use ebb_types::{NodeId, Result};
use ebb_wire::pb;
use serde_json::json;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// Columns of the picture of an interval.
const WIDTH: usize = 40;

/// Prints how things stand.
pub async fn print_once(context: &Context, manager: &Channel) -> Result<()> {
    let told = manager.call(&pb::PowerStatus {}, admin::ASK).await?;
    if context.output.json() {
        context.output.print_json(&to_json(&told));
    } else {
        lines(&told).iter().for_each(|line| print_line(line));
    }
    Ok(())
}

/// Prints that an order was taken: nodes go by the plan of before until the one that is made for it begins.
pub async fn print_taken(context: &Context, manager: &Channel) -> Result<()> {
    if context.output.json() {
        return print_once(context, manager).await;
    }
    let told = manager.call(&pb::PowerStatus {}, admin::ASK).await?;
    taken(&told).iter().for_each(|line| print_line(line));
    Ok(())
}

/// Prints how things stand over and over, each time over the last; on no terminal one after the other, and as JSON one
/// line each.
pub async fn follow(context: &Context) -> Result<()> {
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let mut before = 0;
    loop {
        // The manager may be away for a while: its last plan goes on.
        let told = match context.cluster().and_then(|cluster| admin::power_manager(&cluster)) {
            Ok(manager) => manager.call(&pb::PowerStatus {}, admin::ASK).await,
            Err(error) => Err(error),
        };
        let mut shown = match &told {
            Ok(told) if context.output.json() => vec![to_json(told).to_string()],
            Ok(told) => lines(told),
            Err(error) => vec![error.to_string()],
        };
        if let (true, Some(first)) = (is_terminal && before > 0, shown.first_mut()) {
            // Up to the first line of the last picture, and clear to the end (ECMA-48: CPL, ED).
            *first = format!("\u{1b}[{before}F\u{1b}[J{first}");
        }
        shown.iter().for_each(|line| print_line(line));
        before = shown.len();
        tokio::time::sleep(LOOK).await;
    }
}

/// The state as people and scripts read it.
const fn name(state: pb::PoweredState) -> &'static str {
    match state {
        pb::PoweredState::PoweredAsleep => "asleep",
        pb::PoweredState::PoweredWaking => "waking",
        pb::PoweredState::PoweredGone => "gone",
        // It serves until it is frozen.
        pb::PoweredState::PoweredAwake | pb::PoweredState::PoweredFallingAsleep | pb::PoweredState::PoweredUnknown => {
            "awake"
        }
    }
}

fn to_json(told: &pb::PowerStatusReply) -> serde_json::Value {
    let node = |node: &pb::PowerNode| {
        json!({
            "id": NodeId::new(node.id).to_string(), "host": node.host, "state": name(node.state()),
            "watts": node.watts, "start_s": node.start_s, "active_s": node.active_s, "pids": node.pids,
            "starts": node.wakes, "joules": node.joules,
        })
    };
    json!({
        "policy": told.policy, "plan_version": told.plan_version, "budget_watts": told.budget_watts,
        "drawn_watts": told.drawn_watts, "modelled": true, "joules": told.joules, "interval_s":
        told.interval_ms as f64 / 1000.0, "source": told.source, "why": told.why, "held_back": told.held_back,
        "over_joules": told.over_joules, "battery_joules": told.battery_joules, "base_watts": told.base_watts,
        "served_bytes": told.served_bytes, "joules_per_gib": joules_per_gib(told),
        "away": away_json(&told.away), "nodes": told.nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

/// Joules for each GiB that programs read and wrote; none before there was any.
fn joules_per_gib(told: &pb::PowerStatusReply) -> Option<f64> {
    (told.served_bytes > 0).then(|| told.joules / (told.served_bytes as f64 / f64::from(1 << 30)))
}

fn headline(told: &pb::PowerStatusReply) -> String {
    format!(
        "{} v{}: {:.1} W of {:.1} W ({}), modelled; {:.0} J so far",
        told.policy, told.plan_version, told.drawn_watts, told.budget_watts, told.source, told.joules
    )
}

fn taken(told: &pb::PowerStatusReply) -> [String; 2] {
    let interval = told.interval_ms as f64 / 1000.0;
    let next =
        format!("a plan for it begins with one of the next intervals of {interval} s: `ebb power status` shows it");
    [headline(told), next]
}

fn lines(told: &pb::PowerStatusReply) -> Vec<String> {
    let mut lines = vec![headline(told), told.why.clone()];
    if let Some(joules) = joules_per_gib(told) {
        lines.push(format!("{joules:.0} J for each GiB served ({} so far)", human_bytes(told.served_bytes)));
    }
    if !told.held_back.is_empty() {
        lines.push(format!("held back: {}", told.held_back));
    }
    let mut table = Table::new(&["NODE", "HOST", "STATE", "WATTS", "STARTS", "INTERVAL"]);
    for node in &told.nodes {
        table.row(vec![
            NodeId::new(node.id).to_string(),
            node.host.clone(),
            name(node.state()).to_owned(),
            format!("{:.0}", node.watts),
            node.wakes.to_string(),
            picture(node, told.interval_ms),
        ]);
    }
    lines.extend(table.lines());
    lines.extend(away_line(&told.away));
    lines
}

/// Copies away from home, by home, as scripts read it.
pub fn away_json(away: &[pb::Away]) -> serde_json::Value {
    let told = |away: &pb::Away| json!({ "home": NodeId::new(away.home).to_string(), "metablocks": away.metablocks, "bytes": away.bytes });
    away.iter().map(told).collect()
}

/// Copies away from home in a line for people; none where no copy is.
pub fn away_line(away: &[pb::Away]) -> Option<String> {
    let told =
        |away: &pb::Away| format!("{} of {} ({})", away.metablocks, NodeId::new(away.home), human_bytes(away.bytes));
    let homes: Vec<String> = away.iter().map(told).collect();
    (!homes.is_empty()).then(|| format!("metablocks away from home: {}", homes.join(", ")))
}

/// When in the interval a node is powered: `#`.
fn picture(node: &pb::PowerNode, interval_ms: u64) -> String {
    let interval = (interval_ms as f64 / 1000.0).max(1e-3);
    let is_on = |column: usize| {
        let at = (column as f64 + 0.5) / WIDTH as f64 * interval;
        (at - node.start_s).rem_euclid(interval) < node.active_s
    };
    (0..WIDTH).map(|column| if is_on(column) { '#' } else { '.' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_gib_is_shown_once_something_was_served() {
        let mut told = pb::PowerStatusReply { joules: 300.0, ..Default::default() };
        assert!(to_json(&told)["joules_per_gib"].is_null());
        assert_eq!(lines(&told).len(), 3, "{:?}", lines(&told));
        told.served_bytes = 512 << 20;
        assert_eq!(to_json(&told)["joules_per_gib"], 600.0);
        assert!(lines(&told)[2].starts_with("600 J for each GiB served"), "{:?}", lines(&told));
    }

    #[test]
    fn an_accepted_order_is_shown_with_its_budget_and_its_start() {
        let told = pb::PowerStatusReply {
            policy: "tide".into(),
            plan_version: 3,
            budget_watts: 85.0,
            drawn_watts: 265.0,
            interval_ms: 2_500,
            source: "operator".into(),
            ..Default::default()
        };
        let [headline, next] = taken(&told);
        assert_eq!(headline, "tide v3: 265.0 W of 85.0 W (operator), modelled; 0 J so far");
        assert!(next.starts_with("a plan for it begins with one of the next intervals of 2.5 s: "), "{next}");
    }

    #[test]
    fn the_picture_goes_around_the_end_of_the_interval() {
        let node = pb::PowerNode { start_s: 1.5, active_s: 1.0, ..Default::default() };
        assert_eq!(picture(&node, 2_000), "##########....................##########");
        let on = pb::PowerNode { active_s: 2.0, ..Default::default() };
        assert_eq!(picture(&on, 2_000), "#".repeat(WIDTH));
    }
}
