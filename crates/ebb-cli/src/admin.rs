//! A client of the cluster for one command.

use std::time::Duration;

use ebb_client::{Client, ClientOptions};
use ebb_rpc::Channel;
use ebb_runtime::Runtime;
use ebb_types::{Credentials, HostName, Result, Role, bail};
use ebb_wire::pb;

use crate::directory::ClusterDir;
use crate::process::{self, ProcessFile};

/// Role under which a power manager registers.
pub const POWER_MANAGER: &str = "power-manager";
/// How long an administrative question may take.
pub const ASK: Duration = Duration::from_secs(30);

/// Host of commands, unless they name one.
pub const HOST: &str = "client";

/// The channel to the master.
pub fn master(cluster: &ClusterDir) -> Result<Channel> {
    let connector = cluster.connector(&Runtime::real(), &HostName::new(HOST), Role::Operator)?;
    Ok(connector.channel(&cluster.masters()?[0]))
}

/// The processes with this role that told the master where they serve: host and address.
///
/// # Errors
/// That of the call.
async fn services(cluster: &ClusterDir, role: Role) -> Result<Vec<(HostName, String)>> {
    let status = master(cluster)?.call(&pb::ClusterStatus {}, ASK).await?;
    let of_role = status.services.into_iter().filter(|service| service.role == role.name());
    Ok(of_role.map(|service| (HostName::new(service.host), service.address)).collect())
}

/// The channel to the power manager.
///
/// # Errors
/// `Unavailable` if none runs.
pub async fn power_manager(cluster: &ClusterDir) -> Result<Channel> {
    // One on this machine is asked without a master, which may be away.
    let here = process::list(cluster)?.into_iter().find(|process| process.role == POWER_MANAGER);
    let address = match here.filter(ProcessFile::is_running) {
        Some(process) => Some(process.address),
        None => services(cluster, Role::PowerManager).await?.into_iter().next().map(|(_, address)| address),
    };
    let Some(address) = address else {
        bail!(
            Unavailable,
            "no power manager runs: `ebb cluster up --dir {} --nodes N --policy P` starts one",
            cluster.path.display()
        );
    };
    let connector = cluster.connector(&Runtime::real(), &HostName::new(HOST), Role::Operator)?;
    Ok(connector.channel(&address))
}

/// The workers that run: host and address.
///
/// # Errors
/// That of the call.
pub async fn workers(cluster: &ClusterDir) -> Result<Vec<(HostName, String)>> {
    services(cluster, Role::Worker).await
}

/// A session of a command.
pub async fn operator(cluster: &ClusterDir) -> Result<Client> {
    client(cluster, &HostName::new(HOST), Role::Operator).await
}

/// A session as `role` on `host`.
pub async fn client(cluster: &ClusterDir, host: &HostName, role: Role) -> Result<Client> {
    let runtime = Runtime::real();
    let connector = cluster.connector(&runtime, host, role)?;
    Client::connect(runtime, connector, client_options(cluster, host, role)?).await
}

/// Settings of such a session.
pub fn client_options(cluster: &ClusterDir, host: &HostName, role: Role) -> Result<ClientOptions> {
    // A command that is killed must not make others wait until its session is over.
    let keep_names = role == Role::Mount;
    let pid = std::process::id();
    let waits = crate::waiting::WAITS.clone();
    Ok(ClientOptions { pid, keep_names, waits, ..ClientOptions::new(cluster.masters()?, host.clone(), role.name()) })
}

/// The user that runs this process.
pub fn credentials() -> Credentials {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(rustix::process::Gid::as_raw).collect(),
    }
}
