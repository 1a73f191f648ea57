//! `ebb block`.

use std::time::Duration;

use clap::Args;
use ebb_block::{BlockOptions, BlockServer};
use ebb_cli::Context;
use ebb_cli::process::ProcessFile;
use ebb_runtime::Runtime;
use ebb_types::{HostName, RackName, Result};

use super::wait_for_end;

#[derive(Debug, Args)]
pub struct BlockArgs {
    /// Declared host: the unit of locality and failure.
    #[arg(long)]
    host: String,
    /// Declared rack.
    #[arg(long, default_value = "r1")]
    rack: String,
    /// Number of volumes of this node, created at its first start.
    #[arg(long, default_value_t = 1)]
    volumes: u32,
    /// Address to listen on, as `ip:port`; port 0 selects any free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

/// Serves until it is asked to end.
pub async fn run(context: &Context, args: BlockArgs) -> Result<()> {
    ebb_runtime::real::memory::keep_freed_memory();
    ebb_runtime::real::memory::give_back_unused();
    let cluster = context.cluster()?;
    let host = HostName::new(args.host);
    let dir = cluster.node_dir(&host);
    let mut options = BlockOptions::new(dir.clone(), cluster.identity(&host, "block"), cluster.masters()?);
    options.volumes = (1..=args.volumes).map(|number| dir.join(format!("volume-{number}"))).collect();
    options.rack = RackName::new(args.rack.clone());
    options.listen = args.listen;
    options.pid = std::process::id();
    // A holder believes in its lease for less than a session lives; clocks may differ.
    options.volume.tombstone_time =
        options.volume.tombstone_time.max(3 * Duration::from_millis(cluster.file.session_ttl_ms));
    let server = BlockServer::start(Runtime::real(), options).await?;
    let name = format!("block-{host}");
    let mut file = ProcessFile::of_this_process(&cluster, &name, "block", host.as_str());
    file.rack = args.rack;
    file.address = server.address().to_owned();
    let registered = async {
        loop {
            if let Some(node) = server.node() {
                return node;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let signal = tokio::select! {
        biased;
        signal = wait_for_end() => signal?,
        node = registered => {
            file.node = Some(node.to_string());
            let _registration = file.write(&cluster)?;
            wait_for_end().await?
        }
    };
    tracing::info!(signal, "stopping");
    server.stop().await
}
