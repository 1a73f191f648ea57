//! Which nodes a power client serves, and where their block servers are reached.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_cli::attached;
use ebb_cli::directory::ClusterDir;
use ebb_cli::process::{self, ProcessFile};
use ebb_power_drivers::{Freeze, Process};
use ebb_power_manager::client::Nodes;
use ebb_rpc::Channel;
use ebb_runtime::Runtime;
use ebb_types::{NodeId, Result};
use ebb_wire::pb;
use parking_lot::Mutex;

/// How often the master is asked where block servers are reached, and how long that may take.
const LOOK: Duration = Duration::from_secs(1);
const ASK: Duration = Duration::from_secs(5);

/// The nodes of a cluster on this machine: every process of a block server's host belongs to its node.
pub struct OwnMachine {
    /// The cluster.
    pub cluster: ClusterDir,
    /// The driver that must know which processes stand for a node.
    pub freeze: Arc<Freeze>,
}

impl Nodes for OwnMachine {
    fn refresh(&self) -> Result<BTreeMap<NodeId, String>> {
        let running: Vec<ProcessFile> =
            process::list(&self.cluster)?.into_iter().filter(ProcessFile::is_running).collect();
        let attached = attached::list(&self.cluster)?;
        let mut nodes = BTreeMap::new();
        for block in running.iter().filter(|process| process.role == "block") {
            let Some(node) = block.node.as_ref().and_then(|name| name.strip_prefix('n')?.parse().ok()) else {
                continue;
            };
            let node = NodeId::new(node);
            let own = running.iter().filter(|process| process.host == block.host);
            self.freeze.set(node, own.filter_map(|process| Process::find(process.pid).ok()));
            let programs = attached.iter().filter(|program| program.host == block.host);
            self.freeze.set_programs(node, programs.filter_map(|program| Process::find(program.pid).ok()))?;
            nodes.insert(node, block.address.clone());
        }
        Ok(nodes)
    }

    fn pids(&self, node: NodeId) -> Vec<u32> {
        self.freeze.pids(node).unwrap_or_default()
    }
}

/// Nodes anywhere, as the master has them: they stand for machines, and not for processes.
pub struct Registered {
    /// All of them, or those that are switched from here.
    served: Option<Vec<NodeId>>,
    addresses: Mutex<BTreeMap<NodeId, String>>,
}

impl Registered {
    /// Those on these hosts, once every one of them has registered; with no host named, all that have. Goes on asking.
    /// Also returns which node is on which host.
    pub async fn wait(runtime: &Runtime, master: Channel, hosts: &[String]) -> (Arc<Self>, BTreeMap<String, NodeId>) {
        let nodes = loop {
            match listed(&master).await {
                Ok(nodes) if nodes.is_empty() => tracing::info!("no node has registered yet"),
                Ok(nodes) => {
                    let missing: Vec<&String> =
                        hosts.iter().filter(|host| nodes.iter().all(|node| node.host != **host)).collect();
                    if missing.is_empty() {
                        break nodes;
                    }
                    tracing::warn!(?missing, "hosts that have controllers, but have not registered");
                }
                Err(error) => tracing::info!(%error, "the master does not list its nodes yet"),
            }
            runtime.sleep(LOOK).await;
        };
        let of_hosts: BTreeMap<String, NodeId> = nodes
            .iter()
            .filter(|node| hosts.is_empty() || hosts.contains(&node.host))
            .map(|node| (node.host.clone(), NodeId::new(node.id)))
            .collect();
        let served = (!hosts.is_empty()).then(|| of_hosts.values().copied().collect());
        let registered = Arc::new(Self { served, addresses: Mutex::default() });
        registered.replace_addresses(&nodes);
        runtime.spawn("where nodes are", Arc::clone(&registered).follow(runtime.clone(), master));
        (registered, of_hosts)
    }

    fn replace_addresses(&self, nodes: &[pb::Node]) {
        let is_served = |node: &NodeId| self.served.as_ref().is_none_or(|served| served.contains(node));
        let addresses = nodes.iter().map(|node| (NodeId::new(node.id), node.address.clone()));
        *self.addresses.lock() = addresses.filter(|(node, _)| is_served(node)).collect();
    }

    async fn follow(self: Arc<Self>, runtime: Runtime, master: Channel) {
        loop {
            runtime.sleep(LOOK).await;
            match listed(&master).await {
                Ok(nodes) => self.replace_addresses(&nodes),
                Err(error) => tracing::debug!(%error, "the master does not list its nodes"),
            }
        }
    }
}

async fn listed(master: &Channel) -> Result<Vec<pb::Node>> {
    master.call(&pb::ClusterStatus {}, ASK).await.map(|reply| reply.nodes)
}

impl Nodes for Registered {
    fn refresh(&self) -> Result<BTreeMap<NodeId, String>> {
        Ok(self.addresses.lock().clone())
    }

    fn pids(&self, _node: NodeId) -> Vec<u32> {
        Vec::new()
    }
}
