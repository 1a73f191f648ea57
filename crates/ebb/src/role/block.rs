//! `ebb block`.

use std::time::Duration;

use clap::Args;
use ebb_block::{BlockOptions, BlockServer};
use ebb_cli::Context;
use ebb_cli::process::ProcessFile;
use ebb_runtime::Runtime;
use ebb_types::{Error, HostName, RackName, Result, Role, bail};

use super::{Listening, OwnHost, tell_service_manager, wait_for_end};

#[derive(Debug, Args)]
pub struct BlockArgs {
    /// Declared host: the unit of locality and failure [default: as host.toml says].
    #[arg(long)]
    host: Option<String>,
    /// Declared rack [default: as host.toml says, or r1].
    #[arg(long)]
    rack: Option<String>,
    /// Number of volumes of this node in the cluster's directory, created at its first start [default: those of host.toml, or
    /// 1]. With 0, no data are placed here.
    #[arg(long)]
    volumes: Option<u32>,
    /// Hosts of its sub-rack, for which this node is the localized storage node: names, with commas between them. Tasks on these
    /// hosts count as near to its data.
    #[arg(long, value_delimiter = ',', value_name = "HOSTS")]
    serves_hosts: Vec<String>,
    #[command(flatten)]
    listening: Listening,
}

/// Serves until it is asked to end.
pub async fn run(context: &Context, args: BlockArgs) -> Result<()> {
    ebb_runtime::real::memory::keep_freed_memory();
    ebb_runtime::real::memory::give_back_unused();
    let cluster = context.cluster()?;
    let own = OwnHost::read(&cluster)?;
    let host = own.name(args.host)?;
    let rack = args.rack.or(own.file.rack).unwrap_or_else(|| "r1".to_owned());
    let settings = own.file.block.unwrap_or_default();
    let place = args.listening.over(Some(settings.place()));
    let dir = cluster.node_dir(&host);
    let is_new = !dir.exists();
    let mut options = BlockOptions::new(dir.clone(), cluster.identity(&host, Role::Block)?, cluster.masters()?);
    options.volumes = match args.volumes {
        None if !settings.volumes.is_empty() => settings.volumes,
        count => (1..=count.unwrap_or(1)).map(|number| dir.join(format!("volume-{number}"))).collect(),
    };
    if args.volumes == Some(0) && dir.join("volume-1").is_dir() {
        bail!(
            Invalid,
            "{} has volumes, and their data would count as lost: start it with --volumes as before",
            dir.display()
        );
    }
    options.rack = RackName::new(rack.clone());
    let serves = if args.serves_hosts.is_empty() { settings.serves_hosts } else { args.serves_hosts };
    options.serves_hosts = serves.iter().map(|host| HostName::new(host.trim())).collect();
    place.listen().clone_into(&mut options.listen);
    options.advertise = place.told()?;
    options.pid = std::process::id();
    // A holder believes in its lease for less than a session lives; clocks may differ.
    options.volume.tombstone_time =
        options.volume.tombstone_time.max(3 * Duration::from_millis(cluster.file.session_ttl_ms));
    let server = BlockServer::start(Runtime::real(), options).await?;
    // It listens, and seeks the master for as long as there is none: the start of a machine does not wait for that.
    tell_service_manager();
    let name = format!("block-{host}");
    let mut file = ProcessFile::of_this_process(&cluster, &name, "block", host.as_str());
    file.rack = rack;
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
