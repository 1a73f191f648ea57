//! `ebb lab compliance`: the power of a real cluster goes to a fifth and back under each policy, beside a virtual one.

mod frozen;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ebb_cli::directory::ClusterDir;
use ebb_cli::signals::Signals;
use ebb_cli::values::one_of;
use ebb_cli::{Context, admin};
use ebb_client::{Client, ClientOptions};
use ebb_figures::Outcome;
use ebb_figures::compliance::report::{Pair, figures, table};
use ebb_figures::compliance::{self as lab, Compliance, Controls, FILES, Load, POLICIES, Plant};
use ebb_plan::Section;
use ebb_power::{PolicyKind, Supply};
use ebb_rpc::Channel;
use ebb_runtime::Runtime;
use ebb_types::{Error, ErrorKind, HostName, Result, Role};
use ebb_virtual::power::Settings;
use ebb_wire::pb;
use serde_json::json;

use self::frozen::Frozen;
use super::paper;

/// Host of the load: it is no node, and always on.
const HOST: &str = "client";

#[derive(Debug, Args)]
pub struct ComplianceArgs {
    /// Policy to measure; give the option several times for more [default: every one that moves no data].
    #[arg(long = "policy", value_name = "POLICY", value_parser = one_of::<PolicyKind>(POLICIES.iter().map(|policy| policy.name())))]
    policies: Vec<PolicyKind>,
    /// Measure virtual clusters alone. No cluster has to run.
    #[arg(long)]
    virtual_only: bool,
    /// Number of nodes; that of the running cluster if there is one.
    #[arg(long, default_value_t = 9, requires = "virtual_only")]
    nodes: usize,
    /// Blink interval; that of the running cluster if there is one.
    #[arg(long, default_value = "2s", requires = "virtual_only")]
    interval: humantime::Duration,
    /// Seed of the random choices in the virtual clusters.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for figures (SVG), numbers (JSON) and a page with all of them. It is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Measures, reports, and puts policy and power back. False: a request failed, or a policy drew more than it promises.
pub async fn run(context: &Context, args: &ComplianceArgs) -> Result<bool> {
    let policies = if args.policies.is_empty() { &POLICIES[..] } else { &args.policies };
    let site = if args.virtual_only { None } else { Some(Site::find(context.cluster()?).await?) };
    let (nodes, settings) = match &site {
        Some(site) => (site.nodes(), site.settings.clone()),
        None => (args.nodes, Settings::new(PolicyKind::Tide, args.interval.into())),
    };
    settings.check()?;
    let load = Load::light(Duration::from_millis(settings.interval_ms));
    let worlds = if site.is_some() { 2 } else { 1 };
    let bar = context.output.item_bar(policies.len() as u64 * worlds, "clusters");
    let mut pairs = Vec::new();
    // The virtual ones first: they need the cores that the real one is to have for itself.
    for policy in policies.iter().copied() {
        let (seed, settings) = (args.seed, settings.clone());
        // A world of its own must not run within this process's runtime.
        let simulated = tokio::task::spawn_blocking(move || lab::simulate(seed, nodes, &settings, policy, load)).await;
        let simulated = simulated.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??;
        pairs.push(Pair { real: None, simulated: Some(simulated) });
        bar.inc(1);
    }
    if let Some(site) = &site {
        for (pair, real) in pairs.iter_mut().zip(site.measure_all(policies, load, || bar.inc(1)).await?) {
            pair.real = Some(real);
        }
    }
    bar.finish_and_clear();
    report(context, args, &pairs)
}

fn report(context: &Context, args: &ComplianceArgs, pairs: &[Pair]) -> Result<bool> {
    let table = table(pairs);
    let broken: Vec<String> = pairs
        .iter()
        .flat_map(Pair::each)
        .filter_map(|(cluster, seen)| Some(format!("{cluster}: {}", seen.broken()?)))
        .collect();
    let numbers = json!({ "seed": args.seed, "rows": table.json(), "broken": broken });
    let output = context.output;
    if let Some(dir) = &args.out {
        let mut section = Section::new("Keeping to the supply", &[]);
        section.figures = figures(pairs);
        section.tables.push(table.clone());
        paper::write_all(dir, &Outcome { section }, &numbers, &table.title)?;
    }
    if output.json() {
        output.print_json(&numbers);
        return Ok(broken.is_empty());
    }
    output.say(&table.title);
    table.lines().iter().for_each(|line| output.say(line));
    broken.iter().for_each(|broken| output.say(&format!("broken: {broken}")));
    if let Some(dir) = &args.out {
        output.say(&format!("wrote {}", dir.join("index.html").display()));
    }
    Ok(broken.is_empty())
}

/// A running cluster, and the settings of its power manager before.
struct Site {
    cluster: ClusterDir,
    manager: Channel,
    settings: Settings,
    status: pb::PowerStatusReply,
}

impl Site {
    async fn find(cluster: ClusterDir) -> Result<Self> {
        let manager = admin::power_manager(&cluster).await?;
        let status = manager.call(&pb::PowerStatus {}, admin::ASK).await?;
        let settings = Settings::read(&Runtime::real(), &cluster.path.join("power")).await?;
        Ok(Self { cluster, manager, settings, status })
    }

    fn nodes(&self) -> usize {
        self.status.nodes.len()
    }

    /// All policies one after the other. A signal ends the process, once policy and power are back.
    async fn measure_all(&self, policies: &[PolicyKind], load: Load, on_done: impl Fn()) -> Result<Vec<Compliance>> {
        let mut signals = Signals::listen()?;
        let (runtime, host) = (Runtime::real(), HostName::new(HOST));
        let connector = self.cluster.connector(&runtime, &host, Role::Operator)?;
        // Without a read cache every read goes to a node.
        let options =
            ClientOptions { read_cache_bytes: 0, ..admin::client_options(&self.cluster, &host, Role::Operator)? };
        let client = Client::connect(runtime.clone(), connector, options).await?;
        let measuring = async {
            let mut seen = Vec::new();
            for policy in policies {
                seen.push(self.measure(&runtime, &client, *policy, load).await?);
                on_done();
            }
            Ok::<Vec<Compliance>, Error>(seen)
        };
        let (seen, signal) = tokio::select! {
            biased;
            signal = signals.next() => (Ok(Vec::new()), Some(signal)),
            seen = measuring => (seen, None),
        };
        let restored = self.restore(&client).await;
        if let Some(signal) = signal {
            if let Err(error) = restored {
                eprintln!("ebb-lab: {error}");
            }
            signal.end_process();
        }
        let seen = seen?;
        restored.map(|()| seen)
    }

    async fn measure(&self, runtime: &Runtime, client: &Client, policy: PolicyKind, load: Load) -> Result<Compliance> {
        // All nodes are on under every policy: none is refused for what it would switch off.
        self.set_power(Some(1.0), None).await?;
        self.set_policy(policy.name(), false).await?;
        let data = FILES.make(client, lab::layout(policy)).await?;
        let status = self.manager.call(&pb::PowerStatus {}, admin::ASK).await?;
        let frozen = Frozen::of(&status)?;
        let node = self.settings.node();
        let full_watts = node.active_watts * self.nodes() as f64;
        let plant = Plant { policy, node, battery: self.settings.battery(full_watts) };
        let controls = Controls {
            set: async |share| self.set_power(Some(share), None).await,
            see: || frozen.see(),
            ask: async || self.manager.call(&pb::PowerStatus {}, admin::ASK).await,
        };
        let seen = lab::measure(runtime, client, &data, load, plant, &controls).await?;
        data.close(client).await;
        FILES.remove(client).await?;
        Ok(seen)
    }

    /// Leaves everything as it was. Each step is tried. The error is the first one.
    async fn restore(&self, client: &Client) -> Result<()> {
        let before = &self.settings;
        let mut steps = vec![self.set_power(Some(1.0), None).await, FILES.remove(client).await];
        steps.push(self.set_policy(&before.policy, before.force).await);
        let (share, watts) = match before.forced.map(Supply::from) {
            Some(Supply::Fraction(share)) => (Some(share), None),
            Some(Supply::Watts(watts)) => (None, Some(watts)),
            None => (None, None),
        };
        steps.push(self.set_power(share, watts).await);
        steps.push(client.clone().disconnect().await);
        steps.into_iter().collect::<Result<()>>().map_err(|error| error.context("putting policy and power back"))
    }

    async fn set_power(&self, fraction: Option<f64>, watts: Option<f64>) -> Result<()> {
        self.manager.call(&pb::SetPower { watts, fraction }, admin::ASK).await.map(drop)
    }

    async fn set_policy(&self, policy: &str, force: bool) -> Result<()> {
        let call = pb::SetPolicy { policy: policy.to_owned(), force };
        self.manager.call(&call, admin::ASK).await.map(drop)
    }
}
