//! `ebb block`.

use std::time::Duration;

use clap::Args;
use ebb_block::{BlockOptions, BlockServer};
use ebb_cli::Context;
use ebb_cli::process::ProcessFile;
use ebb_runtime::Runtime;
use ebb_types::{Error, HostName, RackName, Result, bail};

use super::wait_for_end;

#[derive(Debug, Args)]
pub struct BlockArgs {
    /// Declared host: the unit of locality and failure.
    #[arg(long)]
    host: String,
    /// Declared rack.
    #[arg(long, default_value = "r1")]
    rack: String,
    /// Number of volumes of this node, created at its first start. With 0, no data are placed here.
    #[arg(long, default_value_t = 1)]
    volumes: u32,
    /// Hosts of its sub-rack, for which this node is the localized storage node: names, with commas between them. Tasks on these
    /// hosts count as near to its data.
    #[arg(long, value_delimiter = ',', value_name = "HOSTS")]
    serves_hosts: Vec<String>,
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
    let is_new = !dir.exists();
    let mut options = BlockOptions::new(dir.clone(), cluster.identity(&host, "block"), cluster.masters()?);
    options.volumes = (1..=args.volumes).map(|number| dir.join(format!("volume-{number}"))).collect();
    if args.volumes == 0 && dir.join("volume-1").is_dir() {
        bail!(
            Invalid,
            "{} has volumes, and their data would count as lost: start it with --volumes as before",
            dir.display()
        );
    }
    options.rack = RackName::new(args.rack.clone());
    options.serves_hosts = args.serves_hosts.iter().map(|host| HostName::new(host.trim())).collect();
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
                return Ok(node);
            }
            if let Some(error) = server.declined() {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let signal = tokio::select! {
        biased;
        signal = wait_for_end() => signal?,
        node = registered => match node {
            Ok(node) => {
                file.node = Some(node.to_string());
                let _registration = file.write(&cluster)?;
                wait_for_end().await?
            }
            Err(error) => {
                server.stop().await?;
                if is_new {
                    // Nobody has ever known it, so nothing is there. `cluster up` would try to start it.
                    std::fs::remove_dir_all(&dir).map_err(|failed| Error::from_io(&failed, dir.display()))?;
                }
                return Err(error);
            }
        },
    };
    tracing::info!(signal, "stopping");
    server.stop().await
}
