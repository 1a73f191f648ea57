//! What a running cluster measures: the counters of all block servers and of the master, twice.

use std::time::Duration;

use ebb_cli::{Context, admin};
use ebb_rpc::Channel;
use ebb_runtime::Runtime;
use ebb_sim::measured::{Measured, MeasuredHost};
use ebb_types::{HostName, Result, Role, bail};
use ebb_wire::pb;

/// The counters at one moment.
struct Reading {
    status: pb::ClusterStatusReply,
    power: pb::DescribePowerReply,
    /// Of the nodes, in their order.
    counters: Vec<pb::CountersReply>,
}

/// Asks for all counters, waits so many seconds, and asks again.
///
/// # Errors
/// Unavailable: a node does not answer. Invalid: a process was started anew in between. Each is named.
pub async fn measure(context: &Context, seconds: u64) -> Result<Measured> {
    let cluster = context.cluster()?;
    let (runtime, master) = (Runtime::real(), admin::master(&cluster)?);
    let connector = cluster.connector(&runtime, &HostName::new("client"), Role::Operator)?;
    let channel = |address: &str| connector.channel(address);
    let begun = runtime.now();
    let first = read(&master, channel).await?;
    context.output.say(&format!("measuring for {seconds} s what programs read and write"));
    runtime.sleep(Duration::from_secs(seconds)).await;
    let last = read(&master, channel).await?;
    difference(&first, &last, runtime.now().since(begun).as_secs_f64())
}

async fn read(master: &Channel, channel: impl Fn(&str) -> Channel) -> Result<Reading> {
    let mut status = master.call(&pb::ClusterStatus {}, admin::ASK).await?;
    status.nodes.retain(|node| node.state() == pb::NodeState::NodeLive);
    let power = master.call(&pb::DescribePower::default(), admin::ASK).await?;
    let mut counters = Vec::new();
    for node in &status.nodes {
        let asked = channel(&node.address).call(&pb::Counters {}, admin::ASK).await;
        counters.push(asked.map_err(|error| error.context(format!("asking n{} on {}", node.id, node.host)))?);
    }
    Ok(Reading { status, power, counters })
}

/// What happened between two readings.
fn difference(first: &Reading, last: &Reading, seconds: f64) -> Result<Measured> {
    let mut hosts = Vec::new();
    for (node, now) in last.status.nodes.iter().zip(&last.counters) {
        let before = first.status.nodes.iter().position(|one| (one.id, one.boot) == (node.id, node.boot));
        let Some(before) = before.map(|at| &first.counters[at]) else {
            bail!(Invalid, "n{} on {} was started anew while it was measured: measure again", node.id, node.host);
        };
        let sent = |one: &pb::CountersReply| one.network_sent_bytes + one.local_sent_bytes;
        let received = |one: &pb::CountersReply| one.network_received_bytes + one.local_received_bytes;
        hosts.push(MeasuredHost {
            host: node.host.clone(),
            disks: node.volumes.len(),
            sent_bytes: sent(now).saturating_sub(sent(before)) as f64,
            received_bytes: received(now).saturating_sub(received(before)) as f64,
            write_bytes_per_sec: node.write_bytes_per_sec as f64,
        });
    }
    let served = |reading: &Reading| reading.power.served.unwrap_or_default();
    let (before, now) = (served(first), served(last));
    if before.boot != now.boot {
        bail!(Invalid, "the master was started anew while it was measured: measure again");
    }
    let lsns = last.status.nodes.iter().filter(|node| !node.serves_hosts.is_empty());
    let served_hosts: usize = lsns.clone().map(|node| node.serves_hosts.len()).sum();
    Ok(Measured {
        seconds,
        served_bytes: now.bytes.saturating_sub(before.bytes) as f64,
        copies: copies(&last.power.datasets),
        compute_hosts: if served_hosts > 0 { served_hosts } else { hosts.len() },
        sub_racks: lsns.count(),
        hosts,
    })
}

/// The mean of all datasets by their bytes; that of the first one if they are empty.
fn copies(datasets: &[pb::Dataset]) -> f64 {
    let bytes: f64 = datasets.iter().map(|dataset| dataset.used_bytes as f64).sum();
    let of = |dataset: &pb::Dataset| f64::from(dataset.replicas.max(1));
    if bytes > 0.0 {
        datasets.iter().map(|dataset| of(dataset) * dataset.used_bytes as f64).sum::<f64>() / bytes
    } else {
        datasets.first().map_or(1.0, of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(boot: u64, sent: u64, served: u64) -> Reading {
        let lsn = pb::Node {
            id: 1,
            boot,
            host: "lsn1".into(),
            serves_hosts: vec!["h1".into(), "h2".into()],
            ..Default::default()
        };
        let lsn = pb::Node { volumes: vec![pb::Volume::default(); 4], write_bytes_per_sec: 400, ..lsn };
        let datasets = vec![
            pb::Dataset { replicas: 1, used_bytes: 300, ..Default::default() },
            pb::Dataset { replicas: 3, used_bytes: 100, ..Default::default() },
        ];
        let counters =
            pb::CountersReply { network_sent_bytes: sent, local_received_bytes: sent / 2, ..Default::default() };
        Reading {
            status: pb::ClusterStatusReply { nodes: vec![lsn], ..Default::default() },
            power: pb::DescribePowerReply {
                datasets,
                served: Some(pb::Served { boot: 7, bytes: served, ..Default::default() }),
                ..Default::default()
            },
            counters: vec![counters],
        }
    }

    #[test]
    fn what_happened_is_the_difference_of_two_readings() {
        let found = difference(&reading(1, 100, 50), &reading(1, 900, 450), 10.0).unwrap();
        let host = &found.hosts[0];
        assert_eq!(
            (host.disks, host.sent_bytes, host.received_bytes, host.write_bytes_per_sec),
            (4, 800.0, 400.0, 400.0)
        );
        assert_eq!((found.served_bytes, found.copies, found.compute_hosts, found.sub_racks), (400.0, 1.5, 2, 1));
    }

    #[test]
    fn a_node_that_was_started_anew_is_named() {
        let error = difference(&reading(1, 100, 50), &reading(2, 10, 60), 10.0).unwrap_err().to_string();
        assert!(error.contains("n1 on lsn1"), "{error}");
    }
}
