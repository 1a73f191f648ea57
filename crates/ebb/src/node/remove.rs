//! `ebb node remove`.

use ebb_cli::directory::ClusterDir;
use ebb_cli::process::{self, ProcessFile};
use ebb_cli::{Context, admin};
use ebb_rpc::Channel;
use ebb_types::{HostName, Result, Role};
use ebb_wire::pb;
use serde_json::json;

use super::{drain, find, stop};
use crate::cluster::{hosts, status, up};

/// Moves all data off a node, ends its processes, and takes it out of the cluster for good.
///
/// Each step can be repeated: a removal that was interrupted goes on where it was.
pub async fn run(context: &Context, name: &str) -> Result<()> {
    let cluster = context.cluster()?;
    let master = admin::master(&cluster)?;
    let nodes = status::ask(&cluster).await?.nodes;
    let node = find(&nodes, name)?;
    let (id, host) = (node.id, HostName::new(node.host.clone()));
    let question = pb::RemoveNode { node: id, ask: true };
    // Before anything moves, and again before anything ends: datasets may have changed meanwhile.
    master.call(&question, admin::ASK).await?;
    drain::until_empty(context, &master, id).await?;
    master.call(&question, admin::ASK).await?;
    let _lock = up::lock(&cluster)?;
    // A lost node may have been replaced by a new one on its host.
    let is_own = !nodes.iter().any(|other| other.id != id && other.host == node.host);
    if is_own && node.state() != pb::NodeState::NodeDead {
        drain::wait_for_deletions(context, id).await?;
    }
    let aside = if is_own { leave(&cluster, &host).await? } else { None };
    if let Err(error) = master.call(&pb::RemoveNode { node: id, ask: false }, admin::ASK).await {
        if let Some(aside) = &aside {
            hosts::put_back(&cluster, &host, aside)?;
        }
        return Err(error.context(format_args!(
            "n{id} is drained and stopped, and still belongs to the cluster; `ebb node start n{id}` starts it"
        )));
    }
    if is_own {
        withdraw(&cluster, &master, &host).await?;
    }
    let kept = aside.map(|path| path.display().to_string());
    let mut sentence = format!("n{id} ({host}) has left the cluster");
    if let Some(kept) = &kept {
        sentence += &format!("; its directory is kept as {kept}: remove it when `ebb fsck` misses nothing");
    }
    let value = json!({ "node": format!("n{id}"), "host": host.to_string(), "kept": kept });
    context.output.answer(&sentence, &value);
    Ok(())
}

/// Ends a node's processes, and sets its directory aside. Returns where it is kept.
async fn leave(cluster: &ClusterDir, host: &HostName) -> Result<Option<std::path::PathBuf>> {
    let own = |process: &ProcessFile| ["worker", "block"].contains(&&*process.role) && process.host == host.as_str();
    for process in process::running(cluster, own)? {
        stop::end(&process).await?;
    }
    hosts::set_aside(cluster, host)
}

/// A host without a node has no business in the cluster as one: its keys may be on a disk that is sold.
async fn withdraw(cluster: &ClusterDir, master: &Channel, host: &HostName) -> Result<()> {
    for role in [Role::Block, Role::Worker] {
        let name = role.name().to_owned();
        let revocation = pb::Revocation { role: name, host: host.as_str().to_owned(), ..Default::default() };
        master.call(&pb::RevokeIdentities { revocation: Some(revocation) }, admin::ASK).await?;
        cluster.keys().forget(role, host)?;
    }
    Ok(())
}
