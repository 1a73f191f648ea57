//! A client of the cluster for one command.

use std::time::Duration;

use ebb_client::{Client, ClientOptions};
use ebb_rpc::Channel;
use ebb_runtime::Runtime;
use ebb_types::{Credentials, HostName, Result, bail};

use crate::directory::ClusterDir;
use crate::process::{self, ProcessFile};

/// Role under which a power manager registers.
pub const POWER_MANAGER: &str = "power-manager";
/// How long an administrative question may take.
pub const ASK: Duration = Duration::from_secs(30);

/// The channel to the master.
pub fn master(cluster: &ClusterDir) -> Result<Channel> {
    let connector = cluster.connector(&Runtime::real(), &HostName::new("client"), "cli");
    Ok(connector.channel(&cluster.masters()?[0]))
}

/// The channel to the power manager.
///
/// # Errors
/// `Unavailable` if none runs.
pub fn power_manager(cluster: &ClusterDir) -> Result<Channel> {
    let found = process::list(cluster)?.into_iter().find(|process| process.role == POWER_MANAGER);
    let Some(process) = found.filter(ProcessFile::is_running) else {
        bail!(
            Unavailable,
            "no power manager runs: `ebb cluster up --dir {} --nodes N --policy P` starts one",
            cluster.path.display()
        );
    };
    let connector = cluster.connector(&Runtime::real(), &HostName::new("client"), "cli");
    Ok(connector.channel(&process.address))
}

/// The workers that run: host and address.
pub fn workers(cluster: &ClusterDir) -> Result<Vec<(HostName, String)>> {
    let running = |process: &ProcessFile| process.role == "worker" && process.is_running();
    let all = process::list(cluster)?.into_iter().filter(running);
    Ok(all.map(|process| (HostName::new(process.host), process.address)).collect())
}

/// A session as `role` on `host`.
pub async fn client(cluster: &ClusterDir, host: &HostName, role: &str) -> Result<Client> {
    let runtime = Runtime::real();
    let connector = cluster.connector(&runtime, host, role);
    Client::connect(runtime, connector, client_options(cluster, host, role)?).await
}

/// Settings of such a session.
pub fn client_options(cluster: &ClusterDir, host: &HostName, role: &str) -> Result<ClientOptions> {
    // A command that is killed must not make others wait until its session is over.
    let keep_names = role == "mount";
    let pid = std::process::id();
    let waits = crate::waiting::WAITS.clone();
    Ok(ClientOptions { pid, keep_names, waits, ..ClientOptions::new(cluster.masters()?, host.clone(), role) })
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
