//! `ebb cluster status`.

use std::path::Path;
use std::time::{Duration, Instant};

use ebb_runtime::Runtime;
use ebb_types::{HostName, Result, bail};
use ebb_wire::pb;
use serde_json::json;

use super::config::ClusterDir;
use super::process;
use crate::output::{Output, human_bytes};

/// How long one question to the master may take.
const ASK: Duration = Duration::from_secs(2);

/// Prints the state of the cluster; false: it does not serve.
pub async fn status(path: &Path, output: &Output) -> Result<bool> {
    let cluster = ClusterDir::open(path)?;
    let answer = ask(&cluster).await;
    let serving = answer.as_ref().is_ok_and(|reply| reply.serving);
    let safe_start = answer.as_ref().is_ok_and(|reply| reply.safe_start);
    let metadata = match answer.as_ref().map_or(1, |reply| reply.masters) {
        0 | 1 => "one copy".to_owned(),
        masters => format!("{masters} copies"),
    };
    let processes = process::list(&cluster)?;
    if output.json() {
        let processes: Vec<_> = processes
            .iter()
            .map(|process| {
                json!({
                    "role": process.role, "node": process.node, "host": process.host, "pid": process.pid,
                    "port": port(&process.address), "log": process.log,
                    "state": if process.is_running() { "running" } else { "dead" },
                    "mountpoint": process.mountpoint,
                })
            })
            .collect();
        output.print_json(&json!({
            "cluster_id": cluster.file.cluster, "serving": serving, "safe_start": safe_start,
            "metadata": metadata, "processes": processes,
            "repair": answer.as_ref().ok().map(|reply| json!({
                "under_replicated": reply.under_replicated, "running": reply.repairs_running,
                "copies": reply.repaired, "bytes": reply.repaired_bytes,
                "rate_bytes_per_sec": reply.repair_rate_bytes_per_sec,
            })),
        }));
        return Ok(serving);
    }
    output.say(&format!(
        "cluster {} {}{}, metadata: {metadata}",
        cluster.file.cluster,
        if serving { "serves" } else { "does not serve" },
        if safe_start { " (safe start: waiting for reports)" } else { "" },
    ));
    if let Ok(reply) = &answer {
        output.say(&format!(
            "{} inodes, {} metablocks, {} under-replicated, {} repairs running, {} sessions",
            reply.inodes, reply.metablocks, reply.under_replicated, reply.repairs_running, reply.sessions
        ));
        if reply.under_replicated > 0 || reply.repaired > 0 {
            let rate = match reply.repair_rate_bytes_per_sec {
                0 => "without a limit".to_owned(),
                rate => format!("at most {}/s for each node", human_bytes(rate)),
            };
            output.say(&format!(
                "repair: {} copies of {} made, {} sets to go, {rate}",
                reply.repaired,
                human_bytes(reply.repaired_bytes),
                reply.under_replicated,
            ));
        }
    } else if let Err(error) = &answer {
        output.say(&format!("master: {error}"));
    }
    let mut table = crate::output::Table::new(&["ROLE", "NODE", "HOST", "PID", "ADDRESS", "STATE"]);
    for process in processes {
        let state = if process.is_running() { "running" } else { "dead" };
        let place = process.mountpoint.as_ref().map_or(process.address.clone(), |path| path.display().to_string());
        table.row(vec![
            process.role.clone(),
            process.node.clone().unwrap_or_default(),
            process.host.clone(),
            process.pid.to_string(),
            place,
            state.to_owned(),
        ]);
    }
    output.table(&table);
    Ok(serving)
}

/// The master's view.
pub async fn ask(cluster: &ClusterDir) -> Result<pb::ClusterStatusReply> {
    let runtime = Runtime::real();
    let connector = cluster.connector(&runtime, &HostName::new("client"), "cli");
    let master = cluster.masters()?.remove(0);
    connector.channel(&master).call(&pb::ClusterStatus {}, ASK).await
}

/// Waits until the master serves and `nodes` block servers are live.
pub async fn wait_serving(cluster: &ClusterDir, nodes: usize, span: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        let answer = ask(cluster).await;
        let live = answer
            .as_ref()
            .map_or(0, |reply| reply.nodes.iter().filter(|node| node.state() == pb::NodeState::NodeLive).count());
        if live >= nodes && answer.as_ref().is_ok_and(|reply| reply.serving) {
            return Ok(());
        }
        if start.elapsed() > span {
            match answer {
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
