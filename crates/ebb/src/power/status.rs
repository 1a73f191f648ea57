//! `ebb power status`: once, or again and again.

use std::time::Duration;

use ebb_cli::output::{Table, counted, human_bytes, print_line};
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
    let status = manager.call(&pb::PowerStatus {}, admin::ASK).await?;
    if context.output.json() {
        context.output.print_json(&to_json(&status));
    } else {
        lines(&status).iter().for_each(|line| print_line(line));
    }
    Ok(())
}

/// Prints that an order was taken: nodes go by the plan of before until the one that is made for it begins.
pub async fn print_taken(context: &Context, manager: &Channel) -> Result<()> {
    if context.output.json() {
        return print_once(context, manager).await;
    }
    let status = manager.call(&pb::PowerStatus {}, admin::ASK).await?;
    taken(&status).iter().for_each(|line| print_line(line));
    Ok(())
}

/// Prints how things stand over and over, each time over the last; on no terminal one after the other, and as JSON one
/// line each.
pub async fn follow(context: &Context) -> Result<()> {
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let mut before = 0;
    loop {
        // The manager may be away for a while: its last plan goes on.
        let status = ask(context).await;
        let mut shown = match &status {
            Ok(status) if context.output.json() => vec![to_json(status).to_string()],
            Ok(status) => lines(status),
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

async fn ask(context: &Context) -> Result<pb::PowerStatusReply> {
    let manager = admin::power_manager(&context.cluster()?).await?;
    manager.call(&pb::PowerStatus {}, admin::ASK).await
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

fn to_json(status: &pb::PowerStatusReply) -> serde_json::Value {
    let node = |node: &pb::PowerNode| {
        json!({
            "id": NodeId::new(node.id).to_string(), "host": node.host, "state": name(node.state()),
            "watts": node.watts, "start_s": node.start_s, "active_s": node.active_s, "pids": node.pids,
            "starts": node.wakes, "joules": node.joules, "hosts_served": node.hosts_served, "stored_bytes": node.stored_bytes,
        })
    };
    json!({
        "policy": status.policy, "plan_version": status.plan_version, "budget_watts": status.budget_watts,
        "drawn_watts": status.drawn_watts, "modelled": true, "joules": status.joules, "interval_s":
        status.interval_ms as f64 / 1000.0, "source": status.source, "why": status.why, "held_back": status.held_back,
        "over_joules": status.over_joules, "battery_joules": status.battery_joules, "base_watts": status.base_watts,
        "served_bytes": status.served_bytes, "joules_per_gib": joules_per_gib(status),
        "forecast": status.forecast, "forecast_watts": status.forecast_watts,
        "absences": status.absences.iter().map(|absence| absence_json(status, absence)).collect::<Vec<_>>(),
        "away": away_json(&status.away), "nodes": status.nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

/// Bytes below which the joules for each GiB say nothing.
const SERVED_MIN: u64 = 64 << 20;

/// Joules for each GiB that programs read and wrote; none before there was much.
fn joules_per_gib(status: &pb::PowerStatusReply) -> Option<f64> {
    (status.served_bytes >= SERVED_MIN).then(|| status.joules / (status.served_bytes as f64 / f64::from(1 << 30)))
}

fn headline(status: &pb::PowerStatusReply) -> String {
    let pb::PowerStatusReply { policy, plan_version, drawn_watts, budget_watts, source, joules, .. } = status;
    format!(
        "{policy} v{plan_version}: draws {drawn_watts:.1} W (modelled); the budget is {budget_watts:.1} W ({source}); \
         {joules:.0} J so far"
    )
}

fn taken(status: &pb::PowerStatusReply) -> [String; 2] {
    [headline(status), format!("{}: `ebb power status` shows it", next_plan(status))]
}

/// When a change of the budget has its effect.
fn next_plan(status: &pb::PowerStatusReply) -> String {
    format!("a plan for it begins with one of the next intervals of {} s", status.interval_ms as f64 / 1000.0)
}

fn lines(status: &pb::PowerStatusReply) -> Vec<String> {
    let mut lines = vec![headline(status), status.why.clone()];
    if status.drawn_watts > status.budget_watts {
        lines.push(format!("above the budget: {}", next_plan(status)));
    }
    if let Some(joules) = joules_per_gib(status) {
        lines.push(format!("{joules:.0} J for each GiB served ({} so far)", human_bytes(status.served_bytes)));
    }
    lines.extend(forecast_line(status));
    lines.extend(status.absences.iter().map(|absence| absence_line(status, absence)));
    if !status.held_back.is_empty() {
        lines.push(format!("held back: {}", status.held_back));
    }
    let mut table = Table::new(&["NODE", "HOST", "STATE", "WATTS", "STARTS", "INTERVAL"]);
    for node in &status.nodes {
        table.row(vec![
            NodeId::new(node.id).to_string(),
            node.host.clone(),
            name(node.state()).to_owned(),
            format!("{:.0}", node.watts),
            node.wakes.to_string(),
            picture(node, status.interval_ms),
        ]);
    }
    lines.extend(table.lines());
    lines.extend(lsn_line(&status.nodes));
    lines.extend(away_line(&status.away));
    lines
}

/// Bytes below which the watts for each terabyte say nothing.
const STORED_MIN: u64 = 1_000_000_000;

/// What localized storage nodes draw for each terabyte and for each host served; none where there are none.
fn lsn_line(nodes: &[pb::PowerNode]) -> Option<String> {
    let lsns = || nodes.iter().filter(|node| node.hosts_served > 0);
    let (watts, stored): (f64, u64) = (lsns().map(|node| node.watts).sum(), lsns().map(|node| node.stored_bytes).sum());
    let hosts: u32 = lsns().map(|node| node.hosts_served).sum();
    let for_each_terabyte = match stored {
        ..STORED_MIN => String::new(),
        bytes => format!("{:.1} W for each TB stored, ", watts / (bytes as f64 / 1e12)),
    };
    (hosts > 0).then(|| {
        format!(
            "{} draw {watts:.1} W: {for_each_terabyte}{:.1} W for each of {hosts} hosts served",
            counted(lsns().count() as u64, "localized storage node"),
            watts / f64::from(hosts)
        )
    })
}

/// The coming supply in a line for people; none where it is the present one by the usual rule.
fn forecast_line(status: &pb::PowerStatusReply) -> Option<String> {
    let watts = &status.forecast_watts;
    let [first, .., last] = watts.as_slice() else { return None };
    let middle = watts[watts.len() / 2];
    let is_usual = status.forecast == "persistence";
    (!is_usual).then(|| {
        format!(
            "forecast ({}): {first:.1} W now, {middle:.1} W in {} min, {last:.1} W in {} min",
            status.forecast,
            watts.len() / 2,
            watts.len()
        )
    })
}

/// The host of a node in a status; its number for a node that is not in it.
pub fn host_of(status: &pb::PowerStatusReply, node: u64) -> String {
    let found = status.nodes.iter().find(|one| one.id == node);
    found.map_or_else(|| NodeId::new(node).to_string(), |node| node.host.clone())
}

fn absence_line(status: &pb::PowerStatusReply, absence: &pb::ExpectedAbsence) -> String {
    let lasts = absence.lasts_ms.map_or_else(|| "longer than is known".to_owned(), |ms| format!("for {} s", ms / 1000));
    format!("{} is expected to go in {} s, {lasts}", host_of(status, absence.node), absence.leaves_in_ms / 1000)
}

fn absence_json(status: &pb::PowerStatusReply, absence: &pb::ExpectedAbsence) -> serde_json::Value {
    let seconds = |ms: u64| ms as f64 / 1000.0;
    json!({
        "host": host_of(status, absence.node), "leaves_in_s": seconds(absence.leaves_in_ms),
        "lasts_s": absence.lasts_ms.map(seconds),
    })
}

/// Copies away from home, by home, as scripts read it.
pub fn away_json(away: &[pb::Away]) -> serde_json::Value {
    let entry = |away: &pb::Away| json!({ "home": NodeId::new(away.home).to_string(), "metablocks": away.metablocks, "bytes": away.bytes });
    away.iter().map(entry).collect()
}

/// Copies away from home in a line for people; none where no copy is.
pub fn away_line(away: &[pb::Away]) -> Option<String> {
    let entry =
        |away: &pb::Away| format!("{} of {} ({})", away.metablocks, NodeId::new(away.home), human_bytes(away.bytes));
    let homes: Vec<String> = away.iter().map(entry).collect();
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
        let mut status = pb::PowerStatusReply { joules: 300.0, ..Default::default() };
        assert!(to_json(&status)["joules_per_gib"].is_null());
        assert_eq!(lines(&status).len(), 3, "{:?}", lines(&status));
        status.forecast_watts = (0..60).map(f64::from).collect();
        status.forecast = "persistence".into();
        assert_eq!(lines(&status).len(), 3);
        status.forecast = "signal".into();
        let line = "forecast (signal): 0.0 W now, 30.0 W in 30 min, 59.0 W in 60 min";
        assert!(lines(&status).iter().any(|shown| shown == line), "{:?}", lines(&status));
        assert_eq!(to_json(&status)["forecast_watts"][59], 59.0);
        status.forecast_watts.clear();
        status.served_bytes = 512 << 20;
        assert_eq!(to_json(&status)["joules_per_gib"], 600.0);
        assert!(lines(&status)[2].starts_with("600 J for each GiB served"), "{:?}", lines(&status));
    }

    #[test]
    fn watts_of_localized_storage_nodes_are_shown_for_each_terabyte_and_host() {
        let node = |hosts_served, stored_bytes| pb::PowerNode {
            watts: 120.0,
            hosts_served,
            stored_bytes,
            ..Default::default()
        };
        assert_eq!(lsn_line(&[node(0, 0)]), None);
        let line = lsn_line(&[node(3, 2_000_000_000_000), node(3, 1_000_000_000_000), node(0, 0)]).unwrap();
        assert_eq!(
            line,
            "2 localized storage nodes draw 240.0 W: 80.0 W for each TB stored, 40.0 W for each of 6 hosts served"
        );
        assert!(!lsn_line(&[node(1, 999)]).unwrap().contains("TB"), "too little is stored to tell");
    }

    #[test]
    fn an_expected_absence_is_told_with_its_host() {
        let node = pb::PowerNode { id: 3, host: "h3".into(), ..Default::default() };
        let absence = |node, lasts_ms| pb::ExpectedAbsence { node, leaves_in_ms: 55_400, lasts_ms };
        let absences = vec![absence(3, Some(300_000)), absence(4, None)];
        let status = pb::PowerStatusReply { nodes: vec![node], absences, ..Default::default() };
        let shown = lines(&status);
        assert!(shown.contains(&"h3 is expected to go in 55 s, for 300 s".to_owned()), "{shown:?}");
        assert!(shown.contains(&"n4 is expected to go in 55 s, longer than is known".to_owned()), "{shown:?}");
        let json = to_json(&status);
        assert_eq!((&json["absences"][0]["lasts_s"], &json["absences"][1]["lasts_s"]), (&json!(300.0), &json!(null)));
    }

    #[test]
    fn an_accepted_order_is_shown_with_its_budget_and_its_start() {
        let status = pb::PowerStatusReply {
            policy: "tide".into(),
            plan_version: 3,
            budget_watts: 85.0,
            drawn_watts: 265.0,
            interval_ms: 2_500,
            source: "operator".into(),
            ..Default::default()
        };
        let [headline, next] = taken(&status);
        let wanted = "tide v3: draws 265.0 W (modelled); the budget is 85.0 W (operator); 0 J so far";
        assert_eq!(headline, wanted);
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
