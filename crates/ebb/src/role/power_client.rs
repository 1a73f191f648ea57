//! `ebb power-client`: one for all nodes of a cluster on this machine, or one that asks their controllers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ebb_cli::directory::ClusterDir;
use ebb_cli::{Context, admin};
use ebb_power_drivers::{DryRun, Freeze, Ipmi, PowerDriver, Redfish, Suspend};
use ebb_power_manager::client::{self, Nodes};
use ebb_runtime::Runtime;
use ebb_types::{NodeId, Result, Role, bail};

use self::config::{ClientFile, Kind};
use self::nodes::{OwnMachine, Registered};
use super::{Listening, OwnHost, Service, wait_for_end};

mod config;
mod nodes;

/// On no node: it never sleeps.
const HOST: &str = "master";
/// Its role, and its name.
pub const NAME: &str = "power-client";
/// A process that waits for its disk stops when the disk has answered.
const FREEZE_DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub struct PowerClientArgs {
    /// File that says what switches the nodes [default: power/client.toml in the cluster directory]. Without such a
    /// file, processes are frozen.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    listening: Listening,
}

/// Keeps the nodes to the power plans until it is asked to end; then all are woken.
pub async fn run(context: &Context, args: PowerClientArgs) -> Result<()> {
    let cluster = context.cluster()?;
    let runtime = Runtime::real();
    let file = ClientFile::read(&args.config.unwrap_or_else(|| cluster.path.join("power/client.toml")))?;
    let own = OwnHost::read(&cluster)?;
    let (host, place) = (own.name_or(HOST), args.listening.over(own.file.power_client));
    let serving = Service::start(&runtime, &cluster, Role::PowerClient, host, &place).await?;
    let Service { listener, identity, registration: _registration } = serving;
    let master = cluster.masters()?.remove(0);
    let stop = async {
        match wait_for_end().await {
            Ok(signal) => tracing::info!(signal, "stopping; all nodes are woken"),
            Err(error) => tracing::error!(%error, "stopping"),
        }
    };
    let (driver, nodes) = open(&runtime, &cluster, &file).await?;
    tracing::info!(driver = driver.name(), "switches nodes");
    client::run(runtime, listener, identity, master, driver, nodes, stop).await
}

/// The driver that switches the nodes, and the nodes.
async fn open(
    runtime: &Runtime,
    cluster: &ClusterDir,
    file: &ClientFile,
) -> Result<(Arc<dyn PowerDriver>, Arc<dyn Nodes>)> {
    if file.kind == Kind::Freeze {
        let freeze = Arc::new(Freeze::new(runtime.clone(), FREEZE_DEADLINE));
        let nodes = OwnMachine { cluster: cluster.clone(), freeze: Arc::clone(&freeze) };
        return Ok((freeze, Arc::new(nodes)));
    }
    let hosts: Vec<String> = file.hosts().map(str::to_owned).collect();
    let (registered, ids) = Registered::wait(runtime, admin::master(cluster)?, &hosts).await;
    let driver: Arc<dyn PowerDriver> = match file.kind {
        Kind::Freeze | Kind::DryRun => Arc::new(DryRun::default()),
        Kind::Suspend => {
            let Some(node) = ids.into_values().next() else { bail!(Invalid, "which host is this? name it") };
            Arc::new(Suspend::new(runtime.clone(), node, Path::new("/sys"))?)
        }
        Kind::Redfish => {
            let services = by_node(file.services()?, &ids);
            Arc::new(Redfish::new(runtime.clone(), services, file.off(), file.call(), file.deadline()))
        }
        Kind::Ipmi => {
            let (program, controllers) = (file.program.clone(), by_node(file.controllers()?, &ids));
            Arc::new(Ipmi::new(runtime.clone(), program, controllers, file.off(), file.call(), file.deadline()))
        }
    };
    Ok((driver, registered))
}

fn by_node<T>(of_hosts: BTreeMap<String, T>, ids: &BTreeMap<String, NodeId>) -> BTreeMap<NodeId, T> {
    of_hosts.into_iter().filter_map(|(host, one)| Some((*ids.get(&host)?, one))).collect()
}
