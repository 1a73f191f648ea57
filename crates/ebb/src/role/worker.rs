//! `ebb worker`.

use clap::Args;
use ebb_cli::process::ProcessFile;
use ebb_cli::{Context, admin};
use ebb_runtime::Runtime;
use ebb_types::{HostName, Result};

use super::wait_for_end;

#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// Declared host. Work on metablocks of this host is sent to this worker.
    #[arg(long)]
    host: String,
    /// Address to listen on, as `ip:port`; port 0 selects any free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

/// Serves until it is asked to end.
pub async fn run(context: &Context, args: WorkerArgs) -> Result<()> {
    let cluster = context.cluster()?;
    let host = HostName::new(args.host);
    let runtime = Runtime::real();
    let client = admin::client(&cluster, &host, "worker").await?;
    let listener = runtime.listen(&args.listen).await?;
    let name = format!("worker-{host}");
    let mut file = ProcessFile::of_this_process(&cluster, &name, "worker", host.as_str());
    file.address = listener.address();
    let _registration = file.write(&cluster)?;
    let identity = cluster.identity(&host, "worker");
    tokio::select! {
        biased;
        ended = ebb_worker::service::run(runtime, listener, identity, client.clone()) => ended?,
        signal = wait_for_end() => tracing::info!(signal = signal?, "stopping"),
    }
    client.disconnect().await
}
