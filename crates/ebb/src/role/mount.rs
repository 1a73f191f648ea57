//! `ebb mount` and `ebb umount`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ebb_cli::directory::ClusterDir;
use ebb_cli::output::Output;
use ebb_cli::process::{self, ProcessFile};
use ebb_cli::units::ByteSize;
use ebb_cli::{Context, admin};
use ebb_client::{Client, Unit};
use ebb_runtime::Runtime;
use ebb_types::{Error, HostName, Prefetch, Result, Role};
use serde_json::json;

use super::{OwnHost, ready, wait_for_end};
use crate::cluster::start;

/// Time for a mount to appear.
const START_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub struct MountArgs {
    /// Mount point: a directory. Its own entries are hidden while the file system is mounted there.
    mountpoint: PathBuf,
    /// Declared host of this client. Replicas on this host count as nearest, and first copies go there [default: as host.toml
    /// says, or client].
    #[arg(long)]
    host: Option<String>,
    /// Refuse all changes.
    #[arg(long)]
    read_only: bool,
    /// Let programs on the mount run with their owner's rights (set-user-id and set-group-id bits, capabilities).
    /// Without it, the bits are kept and shown, but the kernel ignores them.
    #[arg(long)]
    suid: bool,
    /// Let device files on the mount open devices of this host.
    #[arg(long)]
    dev: bool,
    /// Amount of data that is fetched before a sequential reader asks for it: a percentage of the full window, or
    /// `spare`. `spare` leaves other traffic alone [default: as each dataset says].
    #[arg(long)]
    prefetch: Option<Prefetch>,
    /// Size of the read cache [default: 256MiB].
    #[arg(long)]
    read_cache: Option<ByteSize>,
    /// Fetch a whole block for each byte that is read, as file systems do whose block is the unit of transfer. This is
    /// meant for comparisons.
    #[arg(long)]
    whole_blocks: bool,
    /// Stay in the foreground, and print to the terminal.
    #[arg(long)]
    foreground: bool,
    /// Smallest write that goes directly to the block servers if several clients write the file. The proxy then gets
    /// only a message about it. With 0, all such writes go through the proxy.
    #[arg(long, default_value = "256KiB", value_name = "SIZE")]
    direct_min: ByteSize,
    /// Name under which the process registers.
    #[arg(long, hide = true)]
    name: Option<String>,
}

/// Mounts, by default in the background: then it returns when the mount serves.
pub async fn run(context: &Context, args: MountArgs) -> Result<()> {
    let cluster = context.cluster()?;
    let mountpoint = absolute(&args.mountpoint)?;
    // Kept until the mount is registered.
    let (name, _claim) = match &args.name {
        Some(name) => (name.clone(), None),
        None => {
            let claim = process::claim_name(&cluster, "mount")?;
            (claim.name.clone(), Some(claim))
        }
    };
    if args.foreground {
        ebb_runtime::real::memory::keep_freed_memory();
        ebb_runtime::real::memory::give_back_unused();
        return serve(&cluster, &args, &name, &mountpoint).await;
    }
    cluster.masters()?;
    let hidden = std::fs::read_dir(&mountpoint).map_or(0, Iterator::count) as u64;
    let host = args.host(&cluster)?;
    let mut arguments: Vec<OsString> =
        ["mount", "--foreground", "--name", &name, "--host", host.as_str()].map(OsString::from).to_vec();
    for (is_set, option) in [(args.read_only, "--read-only"), (args.suid, "--suid"), (args.dev, "--dev")] {
        if is_set {
            arguments.push(option.into());
        }
    }
    arguments.extend(args.client_arguments());
    arguments.extend(["--dir".into(), cluster.path.clone().into_os_string(), mountpoint.clone().into_os_string()]);
    let started = start::start(&cluster, &name, &arguments)?.wait_registered(&cluster, START_TIMEOUT)?;
    let sentence = format!("{} is mounted (pid {})", mountpoint.display(), started.pid);
    let value = json!({ "mountpoint": mountpoint.display().to_string(), "pid": started.pid, "hidden_entries": hidden });
    context.output.answer(&sentence, &value);
    if hidden > 0 {
        let (entries, mountpoint) = (counted_entries(hidden), mountpoint.display());
        context.output.warn(&format!("{mountpoint} was not empty: {entries} hidden while it is a mount"));
    }
    Ok(())
}

fn counted_entries(count: u64) -> String {
    if count == 1 { "its one entry is".to_owned() } else { format!("its {count} entries are") }
}

impl MountArgs {
    fn host(&self, cluster: &ClusterDir) -> Result<HostName> {
        let own = OwnHost::read(cluster)?;
        Ok(self.host.clone().map_or_else(|| own.name_or(admin::HOST), HostName::new))
    }

    /// Arguments about the client for the process in the background.
    fn client_arguments(&self) -> Vec<OsString> {
        let prefetch = self.prefetch.map(|setting| ["--prefetch".into(), setting.to_string()]);
        let cache = self.read_cache.map(|size| ["--read-cache".into(), size.to_string()]);
        let direct = ["--direct-min".into(), self.direct_min.0.to_string()];
        let mut arguments: Vec<String> = prefetch.into_iter().chain(cache).flatten().chain(direct).collect();
        if self.whole_blocks {
            arguments.push("--whole-blocks".into());
        }
        arguments.into_iter().map(OsString::from).collect()
    }

    async fn client(&self, cluster: &ClusterDir, host: &HostName) -> Result<Client> {
        let mut options = admin::client_options(cluster, host, Role::Mount)?;
        options.prefetch = self.prefetch;
        options.direct_bytes_min = if self.direct_min.0 == 0 { u64::MAX } else { self.direct_min.0 };
        if let Some(ByteSize(bytes)) = self.read_cache {
            options.read_cache_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        if self.whole_blocks {
            options.unit = Unit::Blocks;
        }
        let runtime = Runtime::real();
        let connector = cluster.connector(&runtime, host, Role::Mount)?;
        Client::connect(runtime, connector, options).await
    }
}

async fn serve(cluster: &ClusterDir, args: &MountArgs, name: &str, mountpoint: &Path) -> Result<()> {
    let host = args.host(cluster)?;
    let client = args.client(cluster, &host).await?;
    let options = ebb_fuse::MountOptions {
        read_only: args.read_only,
        allow_suid: args.suid,
        allow_devices: args.dev,
        ..ebb_fuse::MountOptions::default()
    };
    let mount = ebb_fuse::mount(&Runtime::real(), client, options, mountpoint).await?;
    let mut file = ProcessFile::of_this_process(cluster, name, "mount", host.as_str());
    file.mountpoint = Some(mountpoint.to_owned());
    let _registration = ready(&file, cluster)?;
    tokio::select! {
        biased;
        ended = mount.wait() => ended?,
        signal = wait_for_end() => {
            tracing::info!(signal = signal?, "unmounting");
            mount.stop().await?;
        }
    }
    Ok(())
}

/// Unmounts and waits until the mount process has flushed everything and ended.
pub fn unmount(mountpoint: &Path, output: Output) -> Result<()> {
    let mountpoint = absolute(mountpoint)?;
    ebb_fuse::unmount(&mountpoint)?;
    if output.json() {
        output.print_json(&json!({ "unmounted": mountpoint.display().to_string() }));
    }
    Ok(())
}

/// The absolute path. Works where a dead mount makes every look at the path itself fail.
fn absolute(path: &Path) -> Result<PathBuf> {
    if let Ok(path) = std::fs::canonicalize(path) {
        return Ok(path);
    }
    let absolute = std::path::absolute(path).map_err(|error| Error::from_io(&error, path.display()))?;
    let (Some(parent), Some(last)) = (absolute.parent(), absolute.file_name()) else {
        return Ok(absolute);
    };
    Ok(std::fs::canonicalize(parent).map_err(|error| Error::from_io(&error, parent.display()))?.join(last))
}
