//! An operator drains a node while clients work on it, and may change their mind.

use std::time::Duration;

use ebb_runtime::virt::Dice;
use ebb_types::{ErrorKind, Result, err};
use ebb_wire::pb;

use crate::cluster::{Cluster, Member, Role};

/// Between two attempts to call the master.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a call may take.
const CALL_MAX: Duration = Duration::from_secs(5);

/// The share of drains that last to the end: at rest nothing may be left on the node.
const LASTING: f64 = 0.5;

/// Whether a drain leaves more nodes than wanted copies: copies that are damaged meanwhile are made again on another
/// one.
#[must_use]
pub fn may_begin(cluster: &Cluster, member: &Member) -> bool {
    let stays = |other: &&Member| {
        let name = other.process.name();
        other.role == Role::Block && name != member.process.name() && !cluster.is_given_up(other)
    };
    let others = cluster.members().iter().filter(stays).count();
    cluster.drained().is_none() && others > cluster.options().least_block_servers()
}

/// Begins one. Returns the action that undoes it.
pub fn begin_drain(cluster: &Cluster, member: &Member, dice: &mut Dice) -> super::kind::Undo {
    let host = member.process.host().to_owned();
    cluster.set_drained(Some(&host));
    drain_or_undo(cluster, &host);
    let lasting = dice.chance(LASTING);
    Box::new(move |cluster| {
        if !lasting {
            cluster.set_drained(None);
            drain_or_undo(cluster, &host);
        }
    })
}

/// Sends the master the present wish, as often as needed: by the time that it answers the wish may have changed.
fn drain_or_undo(cluster: &Cluster, host: &str) {
    let runtime = cluster.world().process("operator").runtime();
    let (cluster, host) = (cluster.clone(), host.to_owned());
    runtime.clone().spawn("drain", async move {
        loop {
            let undo = cluster.drained().as_deref() != Some(&host);
            match drain_once(&cluster, &host, undo).await {
                Ok(()) if undo == (cluster.drained().as_deref() != Some(&host)) => return,
                Ok(()) => {}
                Err(error) => tracing::debug!(host, %error, "not drained yet"),
            }
            runtime.sleep(PAUSE).await;
        }
    });
}

async fn drain_once(cluster: &Cluster, host: &str, undo: bool) -> Result<()> {
    let master = cluster.operator();
    let status = master.call(&pb::ClusterStatus {}, CALL_MAX).await?;
    let node = status.nodes.iter().find(|node| node.host == host).map(|node| node.id);
    let node = node.ok_or_else(|| err!(NotFound, "the master knows no {host}"))?;
    match master.call(&pb::DrainNode { node, undo }, CALL_MAX).await {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
