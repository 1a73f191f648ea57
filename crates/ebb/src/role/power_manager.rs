//! `ebb power-manager`.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ebb_cli::Context;
use ebb_cli::units::Span;
use ebb_power::PolicyKind;
use ebb_power_manager::manager::{self, ManagerOptions};
use ebb_power_manager::settings::Settings;
use ebb_rpc::{Connector, Counters, Identity};
use ebb_runtime::Runtime;
use ebb_types::{Result, Role};
use ebb_wire::pb;
use parking_lot::Mutex;

use super::{Listening, OwnHost, Service, wait_for_end};

/// The always-on node that it stands on, beside the master.
const HOST: &str = "master";
/// Its role, and its name.
pub const NAME: &str = ebb_cli::admin::POWER_MANAGER;

#[derive(Debug, Args)]
pub struct PowerManagerArgs {
    #[command(flatten)]
    figures: PowerFigures,
    #[command(flatten)]
    listening: Listening,
}

/// Settings of a power manager; settings that are left out are as before, or as in [`Settings::new`].
#[derive(Clone, Debug, Default, Args)]
pub struct PowerFigures {
    /// Power policy, by which nodes sleep when the supply is low. Without this option, a cluster keeps its earlier
    /// policy; without an earlier policy, all nodes are on.
    #[arg(long, value_parser = crate::power::policies())]
    pub policy: Option<PolicyKind>,
    /// Blink interval, such as 2s [default: 60s, or as before].
    #[arg(long, requires = "policy")]
    pub interval: Option<Span>,
    /// Supply of the cluster in watts while the power source is silent or implausible [default: base watts and half the
    /// nodes' draw, or as before].
    #[arg(long, requires = "policy")]
    pub fallback_watts: Option<f64>,
    /// Forecast of the supply for the next hour: `persistence` (the last reading holds), `signal` (the source itself,
    /// where it is known ahead) or a CSV file with the columns unix_seconds,watts [default: persistence, or as before].
    #[arg(long, requires = "policy", value_parser = crate::power::follow::parse_forecast)]
    pub forecast: Option<String>,
    /// Time in seconds for which the battery carries all nodes; 0 means no battery [default: 300, or as before].
    #[arg(long, requires = "policy")]
    pub battery_seconds: Option<f64>,
    /// Time that a node takes to wake, and to fall asleep [default: 50ms, for frozen processes, or as before].
    #[arg(long, requires = "policy")]
    pub transition: Option<Span>,
    /// Draw of a node at work, in watts [default: 25, or as before].
    #[arg(long, requires = "policy")]
    pub active_watts: Option<f64>,
    /// Draw of a sleeping node, in watts [default: 1, or as before].
    #[arg(long, requires = "policy")]
    pub asleep_watts: Option<f64>,
    /// Draw at work of a localized storage node without its disks, in watts [default: as of any node, or as before].
    #[arg(long, requires = "policy")]
    pub lsn_watts: Option<f64>,
    /// Draw at work of each disk of a localized storage node, in watts [default: 0, or as before].
    #[arg(long, requires = "policy")]
    pub disk_watts: Option<f64>,
    /// Draw of switches and always-on nodes, in watts [default: 40, or as before].
    #[arg(long, requires = "policy")]
    pub base_watts: Option<f64>,
}

impl PowerFigures {
    /// The figures as arguments of a command line.
    pub fn arguments(&self) -> Vec<String> {
        let span = |span: Span| format!("{}ms", span.0.as_millis());
        let watts = |watts: f64| watts.to_string();
        let all = [
            ("--policy", self.policy.map(|policy| policy.to_string())),
            ("--interval", self.interval.map(span)),
            ("--fallback-watts", self.fallback_watts.map(watts)),
            ("--forecast", self.forecast.clone()),
            ("--battery-seconds", self.battery_seconds.map(watts)),
            ("--transition", self.transition.map(span)),
            ("--active-watts", self.active_watts.map(watts)),
            ("--asleep-watts", self.asleep_watts.map(watts)),
            ("--lsn-watts", self.lsn_watts.map(watts)),
            ("--disk-watts", self.disk_watts.map(watts)),
            ("--base-watts", self.base_watts.map(watts)),
        ];
        all.into_iter().flat_map(|(name, value)| value.map(|value| [name.to_owned(), value])).flatten().collect()
    }

    /// Applies the given figures.
    fn change(&self, settings: &mut Settings) -> Result<()> {
        let ms = |span: Span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX);
        if let Some(policy) = self.policy {
            settings.force &= policy == settings.policy()?;
            policy.name().clone_into(&mut settings.policy);
        }
        let set = |field: &mut f64, value: Option<f64>| *field = value.unwrap_or(*field);
        settings.interval_ms = self.interval.map_or(settings.interval_ms, ms);
        settings.fallback_watts = self.fallback_watts.or(settings.fallback_watts);
        if let Some(forecast) = &self.forecast {
            settings.forecast.clone_from(forecast);
        }
        settings.transition_ms = self.transition.map_or(settings.transition_ms, ms);
        set(&mut settings.battery_s, self.battery_seconds);
        set(&mut settings.active_watts, self.active_watts);
        set(&mut settings.asleep_watts, self.asleep_watts);
        settings.lsn_watts = self.lsn_watts.or(settings.lsn_watts);
        settings.disk_watts = self.disk_watts.or(settings.disk_watts);
        set(&mut settings.base_watts, self.base_watts);
        settings.check()
    }
}

/// Blink interval of a cluster without a setting: the paper's.
const INTERVAL: Duration = Duration::from_secs(60);

/// Manages until it is asked to end.
pub async fn run(context: &Context, args: PowerManagerArgs) -> Result<()> {
    let cluster = context.cluster()?;
    let runtime = Runtime::real();
    let dir = cluster.path.join("power");
    let fresh = Settings::new(PolicyKind::AlwaysOn, INTERVAL);
    let before = Settings::read_or(&runtime, &dir, fresh.clone()).await?;
    let mut settings = before.clone();
    args.figures.change(&mut settings)?;
    if settings != before {
        settings.write(&runtime, &dir).await?;
    }
    let own = OwnHost::read(&cluster)?;
    let (host, place) = (own.name_or(HOST), args.listening.over(own.file.power_manager));
    let serving = Service::start(&runtime, &cluster, Role::PowerManager, host, &place).await?;
    let Service { listener, identity, registration: _registration } = serving;
    let master = cluster.masters()?.remove(0);
    let power_client = follow_power_client(&runtime, &identity, master.clone());
    let options = ManagerOptions { dir, fresh, master, power_client };
    tokio::select! {
        biased;
        ended = manager::run(runtime, listener, identity, options) => ended,
        signal = wait_for_end() => {
            tracing::info!(signal = signal?, "stopping");
            Ok(())
        }
    }
}

/// How often the master is asked where the power client is.
const SEEK: Duration = Duration::from_secs(2);

/// Where the power client is reached, as it told the master: it may start later, and again elsewhere.
fn follow_power_client(
    runtime: &Runtime,
    identity: &Identity,
    master: String,
) -> Arc<dyn Fn() -> Option<String> + Send + Sync> {
    let known = Arc::new(Mutex::new(None));
    let master = Connector::new(runtime.clone(), identity.clone(), Counters::default()).channel(&master);
    let (pause, found) = (runtime.clone(), Arc::clone(&known));
    runtime.spawn("seek the power client", async move {
        loop {
            if let Ok(reply) = master.call(&pb::ClusterStatus {}, SEEK * 5).await {
                let client = reply.services.into_iter().find(|service| service.role == Role::PowerClient.name());
                *found.lock() = client.map(|service| service.address);
            }
            pause.sleep(SEEK).await;
        }
    });
    Arc::new(move || known.lock().clone())
}
