//! The daemons: thin shells that read the cluster's directory, start a service and wait for the signal to end.

pub mod block;
pub mod master;
pub mod mount;
pub mod power_client;
pub mod power_manager;
pub mod proxy;
pub mod worker;

use clap::Args;
use ebb_cli::directory::ClusterDir;
use ebb_cli::host::{self, HostFile, Place};
use ebb_cli::process::{ProcessFile, Registration};
use ebb_rpc::{Connector, Counters, Identity};
use ebb_runtime::{Listener, Runtime};
use ebb_types::{Error, HostName, Result, Role, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Where a daemon listens.
#[derive(Clone, Debug, Default, Args)]
pub struct Listening {
    /// Address to listen on, as `ip:port` or `[ip]:port`; `0.0.0.0` and `[::]` are all networks, and port 0 is any free port
    /// [default: as host.toml says, or any port of 127.0.0.1].
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<String>,
    /// Address at which others reach it, as ip:port or name:port [default: as host.toml says, or that of --listen].
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
}

impl Listening {
    /// With what `host.toml` says where the options say nothing.
    pub fn over(self, place: Option<Place>) -> Place {
        place.unwrap_or_default().with_options(self.listen, self.advertise)
    }
}

/// This host, as its `host.toml` describes it.
pub struct OwnHost {
    /// The settings; empty if there is no such file.
    pub file: HostFile,
    path: String,
}

impl OwnHost {
    /// Reads it.
    pub fn read(cluster: &ClusterDir) -> Result<Self> {
        let file = HostFile::read(&cluster.path)?.unwrap_or_default();
        Ok(Self { file, path: host::path(&cluster.path).display().to_string() })
    }

    /// Its declared name. An option of the command wins.
    pub fn name(&self, option: Option<String>) -> Result<HostName> {
        match option.or_else(|| self.file.host.clone()) {
            Some(name) => Ok(HostName::new(name)),
            None => bail!(Invalid, "which host is this? give --host NAME, or write host = \"NAME\" into {}", self.path),
        }
    }

    /// The declared host of a process that is on no node: its own name on a host of its own, `fallback` on a machine that has
    /// all processes of a cluster.
    pub fn name_or(&self, fallback: &str) -> HostName {
        HostName::new(self.file.host.clone().unwrap_or_else(|| fallback.to_owned()))
    }
}

/// A daemon that is on no node, and that others find through the master.
pub struct Service {
    /// Where it listens.
    pub listener: Listener,
    /// What it proves itself with.
    pub identity: Identity,
    /// As long as it lives, other commands of this machine find the daemon.
    pub registration: Registration,
}

impl Service {
    /// Listens at `place`, tells the master so, and goes on with that.
    pub async fn start(
        runtime: &Runtime,
        cluster: &ClusterDir,
        role: Role,
        host: HostName,
        place: &Place,
    ) -> Result<Self> {
        let listener = runtime.listen(place.listen()).await?;
        let address = place.advertised(&listener.address())?;
        let mut file = ProcessFile::of_this_process(cluster, role.name(), role.name(), host.as_str());
        file.address.clone_from(&address);
        let (identity, masters) = (cluster.identity(&host, role)?, cluster.masters()?);
        let connector = Connector::new(runtime.clone(), identity.clone(), Counters::default());
        // Ordering: whoever sees that it serves finds it.
        ebb_rpc::announce(&connector, &masters, &address).await;
        runtime.spawn("attendance", ebb_rpc::attend(connector, masters, address, || false));
        let registration = ready(&file, cluster)?;
        Ok(Self { listener, identity, registration })
    }
}

/// The process serves: other commands find it, and the service manager learns that it is started.
pub fn ready(file: &ProcessFile, cluster: &ClusterDir) -> Result<Registration> {
    let registration = file.write(cluster)?;
    tell_service_manager();
    Ok(registration)
}

/// The service manager learns that this process is started.
pub fn tell_service_manager() {
    if let Err(error) = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]) {
        tracing::warn!(%error, "the service manager is not told that this process serves");
    }
}

/// Waits until this process is asked to end.
pub async fn wait_for_end() -> Result<&'static str> {
    let failed = |error: std::io::Error| Error::from_io(&error, "listening for signals");
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    Ok(tokio::select! {
        biased;
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}
