//! `ebb node drain`.

use std::time::{Duration, Instant};

use ebb_cli::output::{counted, human_bytes};
use ebb_cli::{Context, admin, waiting};
use ebb_rpc::Channel;
use ebb_types::{Result, bail};
use ebb_wire::pb;
use ebb_wire::pb::explain_copies::What;
use serde_json::json;

use super::find;
use crate::cluster::status;

/// Between looks at the progress.
const LOOK: Duration = Duration::from_millis(200);
/// A drain without progress for this time is explained.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Replicas that no set needs are deleted within this time, if their node answers.
const DELETED_WITHIN: Duration = Duration::from_secs(60);

/// A search for data that no other node has is repeated after this time.
const SEARCH_AGAIN: Duration = Duration::from_secs(10);
/// A search walks all files.
const SEARCH_MAX: Duration = Duration::from_secs(60);
/// Names of files in a sentence.
const NAMED: usize = 3;

/// Starts a drain, and waits for its end.
pub async fn run(context: &Context, name: &str, no_wait: bool) -> Result<()> {
    let cluster = context.cluster()?;
    let master = admin::master(&cluster)?;
    let node = find(&status::ask(&cluster).await?.nodes, name)?.id;
    let reply = if no_wait {
        master.call(&pb::DrainNode { node, undo: false }, admin::ASK).await?
    } else {
        until_empty(context, &master, node).await?
    };
    let left = reply.metablocks_left;
    let replicas = match (left, no_wait) {
        (0, false) => wait_for_deletions(context, node).await?,
        _ => stored(context, node).await?,
    };
    let reasons = if left > 0 { reasons(&master, node).await? } else { Vec::new() };
    if context.output.json() {
        context.output.print_json(&json!({
            "node": format!("n{node}"), "metablocks_left": left, "bytes_left": reply.bytes_left,
            "replicas_stored": replicas, "waits": reasons,
        }));
        return Ok(());
    }
    context.output.say(&outcome(node, &reply, replicas));
    reasons.iter().for_each(|reason| context.output.say(&format!("  {reason}")));
    Ok(())
}

/// Drains a node, and waits until no file needs it.
///
/// Errors: `NotFound` if the node is dead and has the only copies of some files.
pub async fn until_empty(context: &Context, master: &Channel, node: u64) -> Result<pb::DrainReply> {
    let request = pb::DrainNode { node, undo: false };
    let mut reply = master.call(&request, admin::ASK).await?;
    let total = reply.metablocks_left;
    let bar = context.output.item_bar(total, &format!("draining n{node}"));
    let (mut least, mut moved_at) = (total, Instant::now());
    let (mut said, mut searched) = (waiting::Said::default(), None::<Instant>);
    while reply.metablocks_left > 0 {
        bar.set_message(format!("n{node}: {} left", human_bytes(reply.bytes_left)));
        tokio::time::sleep(LOOK).await;
        reply = master.call(&request, admin::ASK).await?;
        bar.set_position(total.saturating_sub(reply.metablocks_left));
        if reply.metablocks_left < least {
            (least, moved_at) = (reply.metablocks_left, Instant::now());
        }
        if moved_at.elapsed() > PATIENCE {
            let reasons = reasons(master, node).await?.join("; ");
            bar.suspend(|| said.say(&context.output, &format!("the copies of n{node}: {reasons}")));
            if searched.is_none_or(|searched| searched.elapsed() > SEARCH_AGAIN) {
                searched = Some(Instant::now());
                refuse_lost_data(context, master, node, reply.metablocks_left).await?;
            }
        }
    }
    bar.finish_and_clear();
    Ok(reply)
}

/// Refuses to wait for a node that does not answer, if all that is left on it has no other copy.
async fn refuse_lost_data(context: &Context, master: &Channel, node: u64, left: u64) -> Result<()> {
    let nodes = status::ask(&context.cluster()?).await?.nodes;
    if nodes.iter().any(|one| one.id == node && one.state() != pb::NodeState::NodeDead) {
        return Ok(());
    }
    let found = master.call(&pb::Fsck::default(), SEARCH_MAX).await?;
    let named = || found.lost.iter().filter(|file| !file.path.is_empty());
    // Files without a name are about to be freed.
    if named().next().is_none() || found.missing + found.unreachable + found.damaged < left {
        return Ok(());
    }
    let mut files: Vec<&str> = named().map(|file| file.path.as_str()).take(NAMED).collect();
    if named().count() > NAMED {
        files.push("others");
    }
    let (left, files) = (counted(left, "metablock"), files.join(", "));
    bail!(
        NotFound,
        "n{node} does not answer, and no other node that does has a copy of {left} ({files}): `ebb node start n{node}` \
         brings them back if its disks are whole; `ebb fsck --repair` gives the files up"
    )
}

/// Ends a drain.
pub async fn undo(context: &Context, name: &str) -> Result<()> {
    let cluster = context.cluster()?;
    let node = find(&status::ask(&cluster).await?.nodes, name)?.id;
    admin::master(&cluster)?.call(&pb::DrainNode { node, undo: true }, admin::ASK).await?;
    let value = json!({ "node": format!("n{node}"), "draining": false });
    context.output.answer(&format!("n{node} takes data again"), &value);
    Ok(())
}

/// The result of a drain in a sentence. `replicas`: files that the node still stores.
fn outcome(node: u64, reply: &pb::DrainReply, replicas: u64) -> String {
    let left = counted(reply.metablocks_left, "metablock");
    match (reply.metablocks_left, replicas) {
        (0, 0) => format!("n{node} holds no data any more; `ebb node stop n{node}` stops it"),
        (0, replicas) => format!(
            "no file needs n{node} any more; {} on it are deleted as soon as no client can read them",
            counted(replicas, "replica")
        ),
        _ => format!("n{node} is draining: {left} to move, {}", human_bytes(reply.bytes_left)),
    }
}

/// Why copies of the node wait, most frequent first.
async fn reasons(master: &Channel, node: u64) -> Result<Vec<String>> {
    let work = master.call(&pb::ExplainCopies { what: Some(What::Node(node)) }, admin::ASK).await?.work;
    Ok(work.iter().map(|work| format!("{}: {}", counted(work.sets, "metablock"), work.why)).collect())
}

/// Number of replicas that the node's volumes store, as of its last heartbeat.
async fn stored(context: &Context, node: u64) -> Result<u64> {
    let nodes = status::ask(&context.cluster()?).await?.nodes;
    let volumes = nodes.iter().filter(|one| one.id == node).flat_map(|node| &node.volumes);
    Ok(volumes.map(|volume| volume.replicas).sum())
}

/// Waits until the node stores no replica. Returns the number that is left: some may be quarantined, and stay.
pub async fn wait_for_deletions(context: &Context, node: u64) -> Result<u64> {
    let began = Instant::now();
    let mut said = waiting::Said::default();
    loop {
        let replicas = stored(context, node).await?;
        if replicas == 0 || began.elapsed() > DELETED_WITHIN {
            return Ok(replicas);
        }
        if began.elapsed() > PATIENCE {
            said.say(&context.output, &format!("n{node} to delete {}", counted(replicas, "replica")));
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_holds_no_data_only_without_replica_files() {
        let reply = |metablocks_left| pb::DrainReply { metablocks_left, bytes_left: 3 << 20 };
        assert!(outcome(2, &reply(0), 0).starts_with("n2 holds no data any more"));
        assert!(outcome(2, &reply(0), 4).starts_with("no file needs n2 any more; 4 replicas on it are deleted"));
        assert_eq!(outcome(2, &reply(1), 4), "n2 is draining: 1 metablock to move, 3.0 MiB");
    }
}
