//! `ebb node stop`.

use std::collections::BTreeSet;
use std::time::Duration;

use ebb_cli::output::counted;
use ebb_cli::process::{self, ProcessFile};
use ebb_cli::{Context, admin};
use ebb_types::{Result, bail};
use ebb_wire::pb;
use rustix::process::Signal;
use serde_json::json;

use super::find;
use crate::cluster::status;

/// A block server syncs everything before it ends.
const END_MAX: Duration = Duration::from_secs(60);

/// Stops a node's block server in order.
pub async fn run(context: &Context, name: &str, force: bool) -> Result<()> {
    let cluster = context.cluster()?;
    let nodes = status::ask(&cluster).await?.nodes;
    let node = find(&nodes, name)?;
    let own = |process: &ProcessFile| process.role == "block" && process.host == node.host;
    let Some(server) = process::running(&cluster, own)?.into_iter().next() else {
        bail!(NotFound, "n{} does not run on this machine; `ebb node list` shows its state", node.id)
    };
    let holdings = admin::master(&cluster)?.call(&pb::DescribePower::default(), admin::ASK).await?.holdings;
    let alone = held_alone(node.id, &serving(&nodes), &holdings);
    if alone > 0 && !force {
        bail!(
            Busy,
            "{} would be out of reach, because no other node that serves has a copy; `ebb node drain n{}` moves them, \
             --force stops the node all the same",
            counted(alone, "metablock"),
            node.id
        );
    }
    end(&server).await?;
    let sentence = format!("n{} ({}) is stopped; `ebb node start n{}` starts it", node.id, node.host, node.id);
    let value = json!({ "node": format!("n{}", node.id), "out_of_reach": alone });
    context.output.answer(&sentence, &value);
    Ok(())
}

/// Ends a process of a node in order, and waits for its end.
pub async fn end(process: &ProcessFile) -> Result<()> {
    process.signal(Signal::CONT);
    process.signal(Signal::TERM);
    let waited = process.clone();
    if !tokio::task::spawn_blocking(move || waited.wait_ended(END_MAX)).await.unwrap_or(false) {
        let (name, pid, seconds) = (&process.name, process.pid, END_MAX.as_secs());
        bail!(Busy, "{name} (pid {pid}) has not ended within {seconds} s; its log is {}", process.log);
    }
    Ok(())
}

/// Nodes that serve now.
fn serving(nodes: &[pb::Node]) -> BTreeSet<u64> {
    let serves = |node: &&pb::Node| matches!(node.state(), pb::NodeState::NodeLive | pb::NodeState::NodeDraining);
    nodes.iter().filter(serves).map(|node| node.id).collect()
}

/// Number of metablocks of which `node` has the only copy that serves.
fn held_alone(node: u64, serving: &BTreeSet<u64>, holdings: &[pb::PowerHolding]) -> u64 {
    let is_alone = |holding: &&pb::PowerHolding| {
        holding.nodes.contains(&node) && !holding.nodes.iter().any(|other| *other != node && serving.contains(other))
    };
    holdings.iter().filter(is_alone).map(|holding| holding.metablocks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_counts_as_the_only_one_if_no_other_node_that_serves_has_one() {
        let holding =
            |nodes: &[u64], metablocks| pb::PowerHolding { nodes: nodes.to_vec(), metablocks, ..Default::default() };
        let holdings = [holding(&[1, 2], 10), holding(&[1, 3], 5), holding(&[1], 2), holding(&[2, 3], 7)];
        assert_eq!(held_alone(1, &BTreeSet::from([1, 2]), &holdings), 7);
        assert_eq!(held_alone(1, &BTreeSet::from([1, 2, 3]), &holdings), 2);
        assert_eq!(held_alone(3, &BTreeSet::from([1, 2, 3]), &holdings), 0);
    }
}
