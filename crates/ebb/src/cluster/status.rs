//! `ebb cluster status`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use ebb_cli::admin;
use ebb_cli::directory::ClusterDir;
use ebb_cli::output::{Output, counted, human_bytes};
use ebb_cli::process::{self, ProcessFile};
use ebb_cli::verdict::Verdict;
use ebb_runtime::Runtime;
use ebb_types::{HostName, NodeId, Result, Role, bail};
use ebb_wire::pb;
use serde_json::json;

use super::health::{notices, troubles};
use super::unreadable::Unreadable;

/// How long one question to the master may take.
const ASK: Duration = Duration::from_secs(2);

/// Prints the state of the cluster. Unhealthy: it does not serve, or something needs an operator.
pub async fn status(path: &Path, output: &Output) -> Result<Verdict> {
    let cluster = ClusterDir::open(path)?;
    let answer = ask(&cluster).await;
    let serving = answer.as_ref().is_ok_and(|reply| reply.serving);
    let safe_start = answer.as_ref().is_ok_and(|reply| reply.safe_start);
    let metadata = match answer.as_ref().map_or(1, |reply| reply.masters) {
        0 | 1 => "one copy".to_owned(),
        masters => format!("{masters} copies"),
    };
    let troubles = answer.as_ref().map_or_else(|_| Vec::new(), troubles);
    let notices = answer.as_ref().map_or_else(|_| Vec::new(), |reply| notices(&reply.nodes, now_ms()));
    let unreadable = answer.as_ref().map_or_else(|_| Unreadable::default(), Unreadable::of_status);
    let verdict = unreadable.verdict(serving && troubles.is_empty());
    let processes = process::list(&cluster)?;
    if output.json() {
        let processes: Vec<_> = processes
            .iter()
            .map(|process| {
                json!({
                    "role": process.role, "node": process.node, "host": process.host, "pid": process.pid,
                    "port": port(&process.address), "log": process.log,
                    "state": state(process),
                    "mountpoint": process.mountpoint,
                })
            })
            .collect();
        output.print_json(&json!({
            "failures": answer.as_ref().map_or_else(|_| Vec::new(), |reply| reply.failures.iter().map(failure_json).collect()),
            "handoff": answer.as_ref().ok().and_then(|reply| reply.handoff.as_ref()).map(handoff_json),
            "version": answer.as_ref().ok().map(|reply| reply.version),
            "services": answer.as_ref().map_or_else(|_| Vec::new(), |reply| reply.services.iter().map(|service| json!({
                "role": service.role, "host": service.host, "address": service.address,
            })).collect()),
            "cluster_id": cluster.file.cluster, "serving": serving, "safe_start": safe_start,
            "metadata": metadata, "processes": processes, "troubles": troubles,
            "verdict": verdict.word(), "unreadable": unreadable.to_json(), "notices": notices, "gray": answer.as_ref().map_or_else(|_| Vec::new(), |reply| reply.nodes.iter().filter_map(gray_json).collect()),
            "repair": answer.as_ref().ok().map(|reply| json!({
                "under_replicated": reply.under_replicated, "running": reply.repairs_running,
                "copies": reply.repaired, "rejoined": reply.rejoined, "bytes": reply.repaired_bytes,
                "rate_bytes_per_sec": reply.repair_rate_bytes_per_sec,
                "short": shortages_json(&reply.shortages),
            })),
        }));
        return Ok(verdict);
    }
    output.say(&format!(
        "cluster {} {}{}, metadata: {metadata}",
        cluster.file.cluster,
        if serving { "serves" } else { "does not serve" },
        if serving && !safe_start { " (deletes nothing before all nodes have reported)" } else { "" },
    ));
    if let Ok(reply) = &answer {
        output.say(&format!(
            "{}, {}, {} under-replicated, {} running, {} with {}",
            counted(reply.inodes, "inode"),
            counted(reply.metablocks, "metablock"),
            reply.under_replicated,
            counted(reply.repairs_running, "repair"),
            counted(reply.sessions, "session"),
            counted(reply.write_leases, "write lease")
        ));
        if reply.under_replicated > 0 || reply.repaired > 0 {
            let rate = match reply.repair_rate_bytes_per_sec {
                0 => "without a limit".to_owned(),
                rate => format!("at most {}/s for each node", human_bytes(rate)),
            };
            output.say(&format!(
                "repair: {} of {} made, {} to go, {rate}",
                counted(reply.repaired, "copy"),
                human_bytes(reply.repaired_bytes),
                counted(reply.under_replicated, "set"),
            ));
        }
        unreadable.lines().iter().for_each(|line| output.say(line));
        shortage_lines(&reply.shortages).iter().for_each(|line| output.say(line));
        reply.failures.iter().for_each(|failure| output.say(&failure_line(failure, now_ms())));
        if let Some(handoff) = &reply.handoff {
            handoff_lines(handoff).iter().for_each(|line| output.say(line));
        }
        if reply.version < reply.version_newest {
            output.say(&format!(
                "version {} of {}: when all nodes run the new release, `ebb cluster raise-version` lets the cluster use it",
                reply.version, reply.version_newest
            ));
        }
        troubles.iter().chain(&notices).for_each(|sentence| output.say(sentence));
    } else if let Err(error) = &answer {
        output.say(&format!("master: {error}"));
    }
    let mut table = ebb_cli::output::Table::new(&["ROLE", "NODE", "HOST", "PID", "ADDRESS", "STATE"]);
    for service in answer.iter().flat_map(|reply| &reply.services) {
        let is_own = |process: &ProcessFile| (&process.role, &process.host) == (&service.role, &service.host);
        if !processes.iter().any(is_own) {
            let (role, host, address) = (service.role.clone(), service.host.clone(), service.address.clone());
            table.row(vec![role, String::new(), host, String::new(), address, "announced".to_owned()]);
        }
    }
    for process in processes {
        let place = process.mountpoint.as_ref().map_or(process.address.clone(), |path| path.display().to_string());
        table.row(vec![
            process.role.clone(),
            process.node.clone().unwrap_or_default(),
            process.host.clone(),
            process.pid.to_string(),
            place,
            state(&process).to_owned(),
        ]);
    }
    output.table(&table);
    Ok(verdict)
}

/// The processes of a node that sleeps are stopped.
fn state(process: &ProcessFile) -> &'static str {
    match process.is_running() {
        true if process.is_frozen() => "asleep",
        true => "running",
        false => "dead",
    }
}

/// The wall clock, in milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    ebb_power::wall_ms(Runtime::real().wall())
}

/// A node that was missed, and the times since when its copies are restored; spans are since it was heard last.
fn failure_json(failure: &pb::NodeFailure) -> serde_json::Value {
    let after = |at_ms: u64| (at_ms > 0).then(|| span_s(failure.failed_ms, at_ms));
    json!({
        "node": NodeId::new(failure.node).to_string(), "failed_ms": failure.failed_ms, "back_after_s": after(failure.back_ms),
        "unreachable": failure.unreachable, "reachable_after_s": after(failure.reachable_ms),
        "under_replicated": failure.short, "replicated_after_s": after(failure.whole_ms),
        "misplaced": failure.misplaced, "placed_after_s": after(failure.placed_ms),
    })
}

/// Why a node counts as slow beyond its peers, if it does.
pub fn gray_json(node: &pb::Node) -> Option<serde_json::Value> {
    let gray = node.gray.as_ref()?;
    let cause = match gray.cause() {
        pb::GrayCause::GrayDisk => "disk",
        pb::GrayCause::GrayAnswers => "answers",
        pb::GrayCause::GrayBoth => "both",
        pb::GrayCause::GrayUnknown => "unknown",
    };
    Some(json!({
        "node": NodeId::new(node.id).to_string(), "cause": cause, "since_ms": gray.since_ms,
        "took_us": gray.took_us, "peers_us": gray.peers_us, "clients": gray.clients,
    }))
}

fn span_s(from_ms: u64, to_ms: u64) -> f64 {
    to_ms.saturating_sub(from_ms) as f64 / 1000.0
}

/// A missed node in a line for people: availability, durability, layout.
fn failure_line(failure: &pb::NodeFailure, now_ms: u64) -> String {
    let stage = |at_ms: u64, restored: &str, left: String| match at_ms {
        0 => left,
        at_ms => format!("{restored} after {:.1} s", span_s(failure.failed_ms, at_ms)),
    };
    let back = stage(failure.back_ms, ", back", String::new());
    let reachable = stage(
        failure.reachable_ms,
        "all reachable",
        format!("{} out of reach", counted(failure.unreachable, "metablock")),
    );
    let whole = stage(
        failure.whole_ms,
        "all copies there",
        format!("{} without all copies", counted(failure.short, "metablock")),
    );
    let placed = stage(failure.placed_ms, "all in their places", format!("{} lie off their layout", failure.misplaced));
    let ago = span_s(failure.failed_ms, now_ms);
    format!("{} failed {ago:.0} s ago{back}: {reachable}; {whole}; {placed}", NodeId::new(failure.node))
}

/// Why sets are short.
pub fn shortages_json(shortages: &[pb::Shortage]) -> serde_json::Value {
    json!(shortages.iter().map(|short| json!({ "metablocks": short.metablocks, "why": short.why })).collect::<Vec<_>>())
}

/// Why sets are short, in lines for people.
pub fn shortage_lines(shortages: &[pb::Shortage]) -> Vec<String> {
    shortages
        .iter()
        .map(|short| format!("  {} without all copies: {}", counted(short.metablocks, "metablock"), short.why))
        .collect()
}

/// Writes that were logged for nodes that sleep.
fn handoff_json(handoff: &pb::HandoffStatus) -> serde_json::Value {
    let debt = |debt: &pb::NodeDebt| {
        json!({
            "node": NodeId::new(debt.node).to_string(), "owed_bytes": debt.owed_bytes,
            "room_bytes": debt.room_bytes, "write_bytes_per_sec": debt.write_bytes_per_sec,
        })
    };
    json!({
        "held_bytes": handoff.held_bytes, "held_bytes_max": handoff.held_bytes_max, "refused": handoff.refused,
        "debts": handoff.debts.iter().map(debt).collect::<Vec<_>>(),
    })
}

/// Logged writes in lines for people: none where no node sleeps.
fn handoff_lines(handoff: &pb::HandoffStatus) -> Vec<String> {
    if handoff.debts.is_empty() {
        return Vec::new();
    }
    let waited = match handoff.refused {
        0 => String::new(),
        refused => format!(", {refused} times writers had to wait"),
    };
    let held = format!("{} of {}", human_bytes(handoff.held_bytes), human_bytes(handoff.held_bytes_max));
    let mut lines = vec![format!("handoff log: {held}{waited}")];
    for debt in handoff.debts.iter().filter(|debt| debt.owed_bytes > 0) {
        let (owed, room) = (human_bytes(debt.owed_bytes), human_bytes(debt.room_bytes));
        lines
            .push(format!("  {} is to take {owed} of the {room} that it takes in an interval", NodeId::new(debt.node)));
    }
    lines
}

/// The master's view.
pub async fn ask(cluster: &ClusterDir) -> Result<pb::ClusterStatusReply> {
    let runtime = Runtime::real();
    let connector = cluster.connector(&runtime, &HostName::new(admin::HOST), Role::Operator)?;
    let master = cluster.masters()?.remove(0);
    connector.channel(&master).call(&pb::ClusterStatus {}, ASK).await
}

/// Hosts whose block servers sleep now.
pub fn asleep(cluster: &ClusterDir) -> Result<BTreeSet<String>> {
    let blocks = process::list(cluster)?.into_iter().filter(|process| process.role == "block");
    Ok(blocks.filter(ProcessFile::is_frozen).map(|process| process.host).collect())
}

/// Waits until the master serves and `nodes` block servers are live. Returns the troubles that need an operator all the
/// same.
pub async fn wait_serving(cluster: &ClusterDir, nodes: usize, span: Duration) -> Result<Vec<String>> {
    let start = Instant::now();
    loop {
        let answer = ask(cluster).await;
        // A node that sleeps by plan may have reported nothing to a master that has just been started, and does not
        // until it wakes.
        let asleep = asleep(cluster)?;
        // A node whose directory is refused waits for an operator, and the operator needs the other nodes.
        let is_there = |node: &&pb::Node| {
            let is_live = matches!(node.state(), pb::NodeState::NodeLive | pb::NodeState::NodeDraining);
            is_live || asleep.contains(&node.host) || !node.twin.is_empty()
        };
        let live = answer.as_ref().map_or(0, |reply| reply.nodes.iter().filter(is_there).count());
        if let Some(reply) = answer.as_ref().ok().filter(|reply| live >= nodes && reply.serving) {
            return Ok(troubles(reply));
        }
        // Waiting does not help: an operator decides.
        if let Some(refused) = answer.as_ref().ok().filter(|reply| reply.refused) {
            bail!(WentBack, "{}", refused.standing);
        }
        if start.elapsed() > span {
            match answer {
                Ok(reply) if !reply.serving => bail!(Timeout, "the master does not serve yet: {}", reply.standing),
                Ok(_) => bail!(
                    Timeout,
                    "{live} of {nodes} block servers are live after {} s: see {}",
                    span.as_secs(),
                    cluster.log_dir().display()
                ),
                Err(error) => return Err(error.context("the master does not serve")),
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn port(address: &str) -> Option<u16> {
    address.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_reported_with_restored_and_remaining_copies() {
        let mut failure = pb::NodeFailure { node: 3, failed_ms: 10_000, short: 7, misplaced: 9, ..Default::default() };
        failure.unreachable = 2;
        assert_eq!(
            failure_line(&failure, 14_000),
            "n3 failed 4 s ago: 2 metablocks out of reach; 7 metablocks without all copies; 9 lie off their layout"
        );
        (failure.reachable_ms, failure.unreachable) = (15_500, 0);
        (failure.whole_ms, failure.short, failure.back_ms) = (50_000, 0, 60_000);
        assert_eq!(
            failure_line(&failure, 70_000),
            "n3 failed 60 s ago, back after 50.0 s: all reachable after 5.5 s; all copies there after 40.0 s; 9 lie off \
             their layout"
        );
        let json = failure_json(&failure);
        assert_eq!((&json["reachable_after_s"], &json["placed_after_s"]), (&json!(5.5), &serde_json::Value::Null));
    }

    #[test]
    fn bytes_owed_to_sleepers_are_shown_where_there_are_any() {
        let debt = |node, owed_bytes| pb::NodeDebt { node, owed_bytes, room_bytes: 10 << 20, write_bytes_per_sec: 0 };
        let mut handoff = pb::HandoffStatus { held_bytes: 3 << 20, held_bytes_max: 256 << 20, ..Default::default() };
        assert_eq!(handoff_lines(&handoff), Vec::<String>::new());
        handoff.debts = vec![debt(1, 0), debt(2, 4 << 20)];
        handoff.refused = 7;
        let lines = handoff_lines(&handoff);
        assert_eq!(lines[0], "handoff log: 3.0 MiB of 256.0 MiB, 7 times writers had to wait");
        assert_eq!(lines[1..], ["  n2 is to take 4.0 MiB of the 10.0 MiB that it takes in an interval"]);
    }
}
