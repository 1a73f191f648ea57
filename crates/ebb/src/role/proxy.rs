//! `ebb proxy`.

use clap::Args;
use ebb_cli::Context;
use ebb_cli::process::ProcessFile;
use ebb_proxy::{Proxy, ProxyOptions};
use ebb_runtime::Runtime;
use ebb_types::{HostName, Result, bail};

use super::wait_for_end;

#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// Name of the proxy in the cluster, which it keeps over restarts. Files are assigned to proxies by these names.
    /// The name is also the declared host of the proxy, which is no node that sleeps.
    #[arg(long)]
    name: String,
    /// Address to listen on, as `ip:port`; port 0 selects any free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

/// Serves until it is asked to end.
pub async fn run(context: &Context, args: ProxyArgs) -> Result<()> {
    ebb_runtime::real::memory::give_back_unused();
    let cluster = context.cluster()?;
    if cluster.file.proxies == 0 {
        bail!(
            Invalid,
            "the proxy of this cluster is in its master's process: `ebb cluster down`, then `ebb cluster up --proxies N`"
        );
    }
    let identity = cluster.identity(&HostName::new(&args.name), "proxy");
    let options = ProxyOptions::apart(identity, cluster.masters()?, args.listen, &args.name);
    let proxy = Proxy::start(Runtime::real(), options).await?;
    let mut file = ProcessFile::of_this_process(&cluster, &args.name, "proxy", &args.name);
    file.address = proxy.address().to_owned();
    let _registration = file.write(&cluster)?;
    tracing::info!(signal = wait_for_end().await?, "stopping");
    if let Err(error) = proxy.stop().await {
        tracing::warn!(%error, "files that several clients use are left to recovery");
    }
    Ok(())
}
