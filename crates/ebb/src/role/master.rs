//! `ebb master`.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use ebb_cli::Context;
use ebb_cli::directory::ClusterDir;
use ebb_cli::host::{HostFile, Place, ports};
use ebb_cli::process::{self, ProcessFile};
use ebb_master::accept;
use ebb_master::options::Options;
use ebb_master::service::Master;
use ebb_proxy::{Hosted, ProxyOptions, Sessions};
use ebb_runtime::Runtime;
use ebb_types::{HostName, NodeId, Result, Role, bail, err};
use serde_json::json;

use super::{Listening, OwnHost, ready, wait_for_end};

/// The master's own declared host: no block server's, so that talk with it counts as network.
const HOST: &str = "master";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct MasterArgs {
    #[command(flatten)]
    listening: Listening,
    /// Decision to record; without one, the master runs.
    #[command(subcommand)]
    pub command: Option<MasterCommand>,
}

#[derive(Debug, Subcommand)]
pub enum MasterCommand {
    /// Continue with a master directory that is older than what nodes and clients have seen.
    ///
    /// Changes that came after this directory was saved are lost. The decision takes effect at the next start of the
    /// master, once the nodes have reported. No replica is deleted until `ebb fsck` has completed and misses no
    /// metablock.
    AcceptLoss {
        /// Node whose report the master does not wait for (its id, as `node list` shows it); may be repeated.
        #[arg(long, value_name = "NODE")]
        without: Vec<String>,
    },
}

/// Serves until it is asked to end, or writes an operator's decision down.
pub async fn run(context: &Context, args: MasterArgs) -> Result<()> {
    match args.command {
        Some(MasterCommand::AcceptLoss { without }) => accept_loss(context, &without).await,
        None => serve(context, args.listening).await,
    }
}

/// The master follows it at its next start, when the nodes have reported.
async fn accept_loss(context: &Context, without: &[String]) -> Result<()> {
    let cluster = context.cluster()?;
    if let Some(master) = process::running(&cluster, |process| process.role == "master")?.first() {
        bail!(Busy, "the master runs (process {}): end the cluster first, with `ebb cluster down`", master.pid);
    }
    let data_dir = cluster.path.join("master");
    if !data_dir.is_dir() {
        bail!(NotFound, "{} is not there: this cluster has had no master", data_dir.display());
    }
    let node = |name: &String| {
        let id = name.strip_prefix('n').unwrap_or(name).parse().ok().map(NodeId::new);
        id.ok_or_else(|| err!(Invalid, "--without {name}: give the node's id, as n3"))
    };
    let without = without.iter().map(node).collect::<Result<BTreeSet<NodeId>>>()?;
    accept::write(&Runtime::real(), &data_dir, &without).await?;
    context.output.answer(
        "the loss is accepted with the master's next start, once the nodes have reported: what came after this directory was \
         saved is lost. Until `ebb fsck` has come to its end no replica is deleted",
        &json!({ "accepted": true, "without": without.iter().map(ToString::to_string).collect::<Vec<_>>() }),
    );
    Ok(())
}

async fn serve(context: &Context, listening: Listening) -> Result<()> {
    ebb_runtime::real::memory::give_back_unused();
    let cluster = context.cluster()?;
    let host = HostName::new(HOST);
    let own = OwnHost::read(&cluster)?;
    let known = cluster.masters()?.remove(0);
    // Others know it by `cluster.toml`; it may bind another address, such as all networks.
    let place = listening.over(own.file.master.clone());
    let listen = if place.listen.is_some() { place.listen() } else { &known };
    let identity = cluster.identity(&host, Role::Master)?;
    let mut options = Options::new(cluster.path.join("master"), listen, identity);
    options.authority = cluster.keys().authority()?.map(Arc::new);
    options.default_replicas = cluster.file.replicas;
    options.dead_time = Duration::from_millis(cluster.file.dead_after_ms);
    options.suspect_time = options.suspect_time.min(options.dead_time / 2);
    options.hear_time = options.suspect_time;
    options.session_ttl = Duration::from_millis(cluster.file.session_ttl_ms);
    options.heartbeat = options.heartbeat.min(options.dead_time / 4);
    options.limit_copies(cluster.file.repair_mb_per_s.saturating_mul(1_000_000));
    options.hosts_proxy = cluster.file.proxies == 0;
    let runtime = Runtime::real();
    let hosts_proxy = options.hosts_proxy;
    let master = Master::start(runtime.clone(), options).await?;
    let proxy =
        if hosts_proxy { Some(Hosted::start(&runtime, proxy_options(&cluster, &own, &master, &known)?)) } else { None };
    let mut file = ProcessFile::of_this_process(&cluster, "master", "master", HOST);
    file.address = master.address().to_owned();
    let _registration = ready(&file, &cluster)?;
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

/// The only proxy lives in the master's process, beside its address; it reports its port to the master.
fn proxy_options(cluster: &ClusterDir, own: &OwnHost, master: &Master, known: &str) -> Result<ProxyOptions> {
    let place = proxy_place(&own.file, master.address(), known);
    let identity = cluster.identity(&HostName::new(HOST), Role::Proxy)?;
    // It is on the master's own machine, where each of its addresses leads to it.
    let (masters, sessions) = (vec![reachable_here(master.address())], Sessions::new(master.living()));
    let mut options = ProxyOptions::new(identity, masters, place.listen(), sessions);
    options.advertise = place.told()?;
    Ok(options)
}

/// Where that proxy serves: as `host.toml` says, or beside the master. On a host of its own it has a port that firewalls know.
fn proxy_place(file: &HostFile, bound: &str, known: &str) -> Place {
    let host_of =
        |address: &str| address.rsplit_once(':').map_or_else(|| address.to_owned(), |(host, _)| host.to_owned());
    let beside = |address: &str, port: u16| Some(format!("{}:{port}", host_of(address)));
    match (&file.proxy, &file.master) {
        (Some(place), _) => place.clone(),
        (None, Some(_)) => Place { listen: beside(bound, ports::PROXY), advertise: beside(known, ports::PROXY) },
        (None, None) => Place { listen: beside(bound, 0), advertise: None },
    }
}

/// An address at which a process of this machine reaches what is bound to `address`.
fn reachable_here(address: &str) -> String {
    match address.parse::<SocketAddr>() {
        Ok(bound) if bound.ip().is_unspecified() => {
            let loopback: IpAddr =
                if bound.is_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
            SocketAddr::new(loopback, bound.port()).to_string()
        }
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_in_the_masters_process_is_reached_as_the_master_is() {
        let alone = proxy_place(&HostFile::default(), "127.0.0.1:7000", "127.0.0.1:7000");
        assert_eq!((alone.listen(), alone.advertise.as_deref()), ("127.0.0.1:0", None));
        let several = HostFile { master: Some(Place::default()), ..HostFile::default() };
        let place = proxy_place(&several, "[::]:7000", "m.example.org:7000");
        assert_eq!((place.listen(), place.advertise.as_deref()), ("[::]:7003", Some("m.example.org:7003")));
        assert_eq!(reachable_here("[::]:7000"), "[::1]:7000");
        assert_eq!(reachable_here("0.0.0.0:7000"), "127.0.0.1:7000");
        assert_eq!(reachable_here("10.0.0.1:7000"), "10.0.0.1:7000");
    }
}
