//! `ebb proxy`.

use clap::Args;
use ebb_cli::Context;
use ebb_cli::process::ProcessFile;
use ebb_proxy::{Proxy, ProxyOptions};
use ebb_runtime::Runtime;
use ebb_types::{Result, Role, bail};

use super::{Listening, OwnHost, ready, wait_for_end};

#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// Name of the proxy in the cluster, which it keeps over restarts. Files are assigned to proxies by these names.
    /// The name is also the declared host of the proxy, which is no node that sleeps [default: the host of host.toml].
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    listening: Listening,
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
    let own = OwnHost::read(&cluster)?;
    let host = own.name(args.name)?;
    let (name, place) = (host.as_str(), args.listening.over(own.file.proxy));
    let identity = cluster.identity(&host, Role::Proxy)?;
    let mut options = ProxyOptions::apart(identity, cluster.masters()?, place.listen(), name);
    options.advertise = place.told()?;
    let proxy = Proxy::start(Runtime::real(), options).await?;
    let mut file = ProcessFile::of_this_process(&cluster, name, "proxy", name);
    file.address = proxy.address().to_owned();
    let _registration = ready(&file, &cluster)?;
    tracing::info!(signal = wait_for_end().await?, "stopping");
    if let Err(error) = proxy.stop().await {
        tracing::warn!(%error, "files that several clients use are left to recovery");
    }
    Ok(())
}
