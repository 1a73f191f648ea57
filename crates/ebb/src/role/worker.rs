//! `ebb worker`.

use std::time::Duration;

use clap::Args;
use ebb_cli::process::ProcessFile;
use ebb_cli::{Context, admin};
use ebb_client::{Client, ClientOptions};
use ebb_rpc::{Connector, Counters, announce};
use ebb_runtime::Runtime;
use ebb_types::{Result, Role};

use super::{Listening, OwnHost, ready, wait_for_end};

/// How long a worker that ends tries to tell the master so.
const FAREWELL: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// Declared host. Work on metablocks of this host is sent to this worker [default: as host.toml says].
    #[arg(long)]
    host: Option<String>,
    #[command(flatten)]
    listening: Listening,
}

/// Serves until it is asked to end.
pub async fn run(context: &Context, args: WorkerArgs) -> Result<()> {
    let cluster = context.cluster()?;
    let own = OwnHost::read(&cluster)?;
    let host = own.name(args.host)?;
    let place = args.listening.over(own.file.worker);
    let runtime = Runtime::real();
    let (identity, masters) = (cluster.identity(&host, Role::Worker)?, cluster.masters()?);
    let connector = Connector::new(runtime.clone(), identity.clone(), Counters::default());
    let listener = runtime.listen(place.listen()).await?;
    let address = place.advertised(&listener.address())?;
    let options = admin::client_options(&cluster, &host, Role::Worker)?;
    let options = ClientOptions { serves_at: address.clone(), ..options };
    let client = Client::connect(runtime.clone(), connector.clone(), options).await?;
    let name = format!("worker-{host}");
    let mut file = ProcessFile::of_this_process(&cluster, &name, "worker", host.as_str());
    file.address.clone_from(&address);
    let serving =
        runtime.spawn("worker", ebb_worker::service::run(runtime.clone(), listener, identity, client.clone()));
    announce(&connector, &masters, &address).await;
    let _registration = ready(&file, &cluster)?;
    tokio::select! {
        biased;
        ended = serving.join() => ended??,
        signal = wait_for_end() => tracing::info!(signal = signal?, "stopping"),
    }
    // Without a master the session ends by its own time: nothing of it is unwritten, for a worker only reads.
    if let Err(error) = runtime.timeout(FAREWELL, "closing the session", client.disconnect()).await {
        tracing::warn!(%error, "the master is not told that this worker ends");
    }
    Ok(())
}
