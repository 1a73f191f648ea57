//! `ebb power-manager`.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ebb_power::PolicyKind;
use ebb_power_manager::manager::{self, ManagerOptions};
use ebb_power_manager::settings::Settings;
use ebb_runtime::Runtime;
use ebb_types::{HostName, Result};

use super::wait_for_end;
use crate::cli::Context;
use crate::cluster::config::ClusterDir;
use crate::cluster::process::{self, ProcessFile};
use crate::units::Span;

/// The always-on node that it stands on, beside the master.
const HOST: &str = "master";
/// Its role, and its name.
pub const NAME: &str = "power-manager";

#[derive(Debug, Args)]
pub struct PowerManagerArgs {
    /// The policy, if it is to be another than before.
    #[arg(long)]
    policy: Option<PolicyKind>,
    /// The blink interval, if it is to be another than before.
    #[arg(long)]
    interval: Option<Span>,
    /// Watts for the whole cluster that are assumed when the source is silent or lies.
    #[arg(long)]
    fallback_watts: Option<f64>,
    /// How long the battery carries all nodes, in seconds; 0: there is none.
    #[arg(long)]
    battery_seconds: Option<f64>,
    /// `ip:port` to listen on; port 0 for any.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

/// Blink interval of a cluster that was not told one: the paper's.
const INTERVAL: Duration = Duration::from_secs(60);

/// Manages until it is asked to end.
pub async fn run(context: &Context, args: PowerManagerArgs) -> Result<()> {
    let cluster = context.cluster()?;
    let runtime = Runtime::real();
    let dir = cluster.path.join("power");
    let policy = args.policy.unwrap_or(PolicyKind::AlwaysOn);
    let fresh = Settings::new(policy, args.interval.map_or(INTERVAL, |span| span.0));
    let mut settings = Settings::read_or(&runtime, &dir, fresh.clone()).await?;
    let before = settings.clone();
    if let Some(policy) = args.policy {
        (settings.policy, settings.force) = (policy.name().to_owned(), settings.force && policy == before.policy()?);
    }
    settings.interval_ms = args.interval.map_or(settings.interval_ms, |_| fresh.interval_ms);
    settings.fallback_watts = args.fallback_watts.or(settings.fallback_watts);
    settings.battery_s = args.battery_seconds.unwrap_or(settings.battery_s);
    if settings != before {
        settings.check()?;
        settings.write(&runtime, &dir).await?;
    }
    let listener = runtime.listen(&args.listen).await?;
    let mut file = ProcessFile::of_this_process(&cluster, NAME, NAME, HOST);
    file.address = listener.address();
    let _registration = file.write(&cluster)?;
    let options = ManagerOptions {
        dir,
        fresh,
        master: cluster.masters()?.remove(0),
        power_client: client_address(cluster.clone()),
    };
    let identity = cluster.identity(&HostName::new(HOST), NAME);
    tokio::select! {
        biased;
        ended = manager::run(runtime, listener, identity, options) => ended,
        signal = wait_for_end() => {
            tracing::info!(signal = signal?, "stopping");
            Ok(())
        }
    }
}

/// Where the power client is reached: it may start later, and again.
fn client_address(cluster: ClusterDir) -> Arc<dyn Fn() -> Option<String> + Send + Sync> {
    Arc::new(move || {
        let all = process::list(&cluster).ok()?;
        let client = all.into_iter().find(|process| process.role == super::power_client::NAME);
        client.filter(ProcessFile::is_running).map(|process| process.address)
    })
}
