//! `ebb node attach` and `detach`: programs of others that sleep with a node.

use ebb_cli::{Context, attached};
use ebb_types::{Result, bail};
use serde_json::json;

use crate::cluster::status;

/// Attaches processes to a host.
pub async fn attach(context: &Context, host: &str, pids: &[u32]) -> Result<()> {
    let cluster = context.cluster()?;
    let nodes = status::ask(&cluster).await?.nodes;
    if !nodes.iter().any(|node| node.host == host) {
        let hosts: Vec<&str> = nodes.iter().map(|node| node.host.as_str()).collect();
        bail!(NotFound, "no node runs on {host:?}: the hosts are {}", hosts.join(", "));
    }
    for pid in pids {
        attached::add(&cluster, host, *pid)?;
    }
    context.output.answer(
        &format!("they sleep and wake with the node on {host}, and so does all that they start"),
        &json!({ "host": host, "attached": pids }),
    );
    Ok(())
}

/// Takes them away.
pub fn detach(context: &Context, host: &str, pids: &[u32]) -> Result<()> {
    let cluster = context.cluster()?;
    for pid in pids {
        attached::remove(&cluster, host, *pid)?;
    }
    context.output.answer(
        &format!("the node on {host} sleeps without them; if it sleeps now, they go on within a second or two"),
        &json!({ "host": host, "detached": pids }),
    );
    Ok(())
}
