//! `ebb master`.

use std::time::Duration;

use clap::Args;
use ebb_master::options::Options;
use ebb_master::service::Master;
use ebb_proxy::{Hosted, ProxyOptions, Sessions};
use ebb_runtime::Runtime;
use ebb_types::{HostName, Result};

use super::wait_for_end;
use crate::cli::Context;
use crate::cluster::config::ClusterDir;
use crate::cluster::process::ProcessFile;

/// The master's own declared host: no block server's, so that talk with it counts as network.
const HOST: &str = "master";

#[derive(Debug, Args)]
pub struct MasterArgs {}

/// Serves until it is asked to end.
pub async fn run(context: &Context, _args: MasterArgs) -> Result<()> {
    ebb_runtime::real::memory::give_back_what_is_unused();
    let cluster = context.cluster()?;
    let host = HostName::new(HOST);
    let mut options =
        Options::new(cluster.path.join("master"), cluster.masters()?.remove(0), cluster.identity(&host, "master"));
    options.default_replicas = cluster.file.replicas;
    options.dead_time = Duration::from_millis(cluster.file.dead_after_ms);
    options.suspect_time = options.suspect_time.min(options.dead_time / 2);
    options.session_ttl = Duration::from_millis(cluster.file.session_ttl_ms);
    options.heartbeat = options.heartbeat.min(options.dead_time / 4);
    options.copy_rate_bytes_per_sec = cluster.file.repair_mb_per_s.saturating_mul(1_000_000);
    options.hosts_proxy = cluster.file.proxies == 0;
    let runtime = Runtime::real();
    let hosts_proxy = options.hosts_proxy;
    let master = Master::start(runtime.clone(), options).await?;
    let proxy = hosts_proxy.then(|| Hosted::start(&runtime, proxy_options(&cluster, &master)));
    let mut file = ProcessFile::of_this_process(&cluster, "master", "master", HOST);
    file.address = master.address().to_owned();
    let _registration = file.write(&cluster)?;
    tokio::select! {
        biased;
        failed = master.failed() => return failed,
        signal = wait_for_end() => tracing::info!(signal = signal?, "stopping"),
    }
    if let Some(proxy) = proxy
        && let Err(error) = proxy.stop().await
    {
        tracing::warn!(%error, "files that several clients use are left to recovery");
    }
    master.stop().await;
    Ok(())
}

/// The only proxy lives in the master's process, beside its address; it tells the master on which port.
fn proxy_options(cluster: &ClusterDir, master: &Master) -> ProxyOptions {
    let address = master.address();
    let ip = address.rsplit_once(':').map_or("127.0.0.1", |(ip, _)| ip);
    let identity = cluster.identity(&HostName::new(HOST), "proxy");
    ProxyOptions::new(identity, vec![address.to_owned()], format!("{ip}:0"), Sessions::new(master.living()))
}
