//! `ebb power-client`: one for all nodes of a cluster on this machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ebb_power_client::{Freeze, Process};
use ebb_power_manager::client::{self, Nodes};
use ebb_runtime::Runtime;
use ebb_types::{HostName, NodeId, Result};

use super::wait_for_end;
use crate::cli::Context;
use crate::cluster::config::ClusterDir;
use crate::cluster::process::{self, ProcessFile};

/// On no node: it never sleeps.
const HOST: &str = "master";
/// Its role, and its name.
pub const NAME: &str = "power-client";
/// A process that waits for its disk stops when it has what it waits for.
const FREEZE_DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub struct PowerClientArgs {
    /// `ip:port` to listen on; port 0 for any.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

/// Keeps the nodes to the power plans until it is asked to end; then all are woken.
pub async fn run(context: &Context, args: PowerClientArgs) -> Result<()> {
    let cluster = context.cluster()?;
    let runtime = Runtime::real();
    let listener = runtime.listen(&args.listen).await?;
    let mut file = ProcessFile::of_this_process(&cluster, NAME, NAME, HOST);
    file.address = listener.address();
    let _registration = file.write(&cluster)?;
    let freeze = Arc::new(Freeze::new(runtime.clone(), FREEZE_DEADLINE));
    let nodes = Arc::new(OwnMachine { cluster: cluster.clone(), freeze: Arc::clone(&freeze) });
    let identity = cluster.identity(&HostName::new(HOST), NAME);
    let master = cluster.masters()?.remove(0);
    let stop = async {
        match wait_for_end().await {
            Ok(signal) => tracing::info!(signal, "stopping; all nodes are woken"),
            Err(error) => tracing::error!(%error, "stopping"),
        }
    };
    client::run(runtime, listener, identity, master, freeze, nodes, stop).await
}

/// The nodes of a cluster on this machine: every process of a block server's host belongs to its node.
struct OwnMachine {
    cluster: ClusterDir,
    freeze: Arc<Freeze>,
}

impl Nodes for OwnMachine {
    fn refresh(&self) -> Result<BTreeMap<NodeId, String>> {
        let running: Vec<ProcessFile> =
            process::list(&self.cluster)?.into_iter().filter(ProcessFile::is_running).collect();
        let mut nodes = BTreeMap::new();
        for block in running.iter().filter(|process| process.role == "block") {
            let Some(node) = block.node.as_ref().and_then(|name| name.strip_prefix('n')?.parse().ok()) else {
                continue;
            };
            let node = NodeId::new(node);
            let own = running.iter().filter(|process| process.host == block.host);
            self.freeze.set(node, own.filter_map(|process| Process::find(process.pid).ok()));
            nodes.insert(node, block.address.clone());
        }
        Ok(nodes)
    }

    fn pids(&self, node: NodeId) -> Vec<u32> {
        self.freeze.pids(node).unwrap_or_default()
    }
}
