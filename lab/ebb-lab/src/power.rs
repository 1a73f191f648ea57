//! `ebb lab power`: throughput of a real cluster at less power, beside that of a virtual one.

use std::time::Duration;

use clap::Args;
use ebb_cli::{Context, admin};
use ebb_client::{Client, ClientOptions};
use ebb_figures::agreement::{self, Agreement, Load, TOLERANCE};
use ebb_power::PolicyKind;
use ebb_runtime::Runtime;
use ebb_types::{Error, ErrorKind, HostName, Result, Role};
use ebb_wire::pb;
use serde_json::json;

/// Intervals of each measurement.
const INTERVALS: u32 = 6;
/// Host of the load: it is no node, and always on.
const HOST: &str = "client";

#[derive(Debug, Args)]
pub struct PowerArgs {
    /// Number of times that all levels are measured; medians are compared.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Seed of the random choices in the virtual cluster.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Measures both. False: they differ by more than the tolerance.
pub async fn run(context: &Context, args: &PowerArgs) -> Result<bool> {
    let cluster = context.cluster()?;
    let manager = admin::power_manager(&cluster).await?;
    let status = manager.call(&pb::PowerStatus {}, admin::ASK).await?;
    let policy: PolicyKind = status.policy.parse()?;
    let interval = Duration::from_millis(status.interval_ms);
    let load = Load { runs: args.runs, intervals: INTERVALS, interval };
    let (seed, nodes) = (args.seed, status.nodes.len());
    // A world of its own must not run within this process's runtime.
    let simulated = tokio::task::spawn_blocking(move || agreement::simulate(seed, nodes, policy, load));

    let (runtime, host) = (Runtime::real(), HostName::new(HOST));
    let connector = cluster.connector(&runtime, &host, Role::Operator)?;
    // Without a read cache every read goes to a node.
    let options = ClientOptions { read_cache_bytes: 0, ..admin::client_options(&cluster, &host, Role::Operator)? };
    let client = Client::connect(runtime.clone(), connector, options).await?;
    context.output.say(&format!("{nodes} nodes, {policy}, an interval of {interval:?}; {} runs", args.runs));
    let set = async |share| {
        let call = pb::SetPower { watts: None, fraction: Some(share) };
        manager.call(&call, admin::ASK).await.map(drop)
    };
    let real = agreement::measure(&runtime, &client, policy, load, set).await;
    client.disconnect().await?;
    let simulated = simulated.await.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    let agreement = Agreement { real: real?, simulated: simulated? };
    let (table, worst) = (agreement.table(), agreement.worst());
    if context.output.json() {
        context.output.print_json(&json!({"seed": args.seed, "rows": table.json(), "worst": worst}));
    } else {
        table.lines().iter().for_each(|line| context.output.say(line));
        let points = worst * 100.0;
        context.output.say(&format!("they differ by {points:.1} points at most; {:.0} are allowed", TOLERANCE * 100.0));
    }
    Ok(worst <= TOLERANCE)
}
