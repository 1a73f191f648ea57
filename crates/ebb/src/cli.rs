//! What can be said on the command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};
use ebb_runtime::virt::Turn;
use ebb_types::{Error, Result, err};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::cluster::{config::ClusterDir, down, status, up};
use crate::output::Output;
use crate::{dataset, fs, fsck, lab, node, plan, power, role};

/// A distributed file system whose power draw follows the power that it is given.
#[derive(Debug, Parser)]
#[command(name = "ebb", version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// The cluster's directory.
    #[arg(long, global = true, env = "EBB_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print JSON alone on stdout.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A whole cluster of processes on this machine.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Mount the file system.
    Mount(role::mount::MountArgs),
    /// Unmount it.
    Umount {
        /// Where it is mounted.
        mountpoint: PathBuf,
    },
    /// Files without a mount.
    #[command(subcommand)]
    Fs(fs::FsCommand),
    /// Directory trees with their own layout, copies and sizes.
    #[command(subcommand)]
    Dataset(dataset::DatasetCommand),
    /// Who sleeps when, and how much power there is.
    #[command(subcommand)]
    Power(power::PowerCommand),
    /// Nodes and their volumes.
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Compare the master's map with what the nodes have.
    Fsck(fsck::FsckArgs),
    /// Experiments.
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// What a layout, a power budget or a code costs and gives; needs no cluster.
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// Completions for a shell.
    Completions {
        /// bash, zsh, fish, elvish or powershell.
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command.
    Man {
        /// A directory of a manual path, as /usr/local/share/man/man1.
        directory: PathBuf,
    },
    /// Run a master (usually started by `cluster up`), or decide for one.
    Master(role::master::MasterArgs),
    /// Run a proxy.
    #[command(hide = true)]
    Proxy(role::proxy::ProxyArgs),
    /// Run a block server.
    #[command(hide = true)]
    Block(role::block::BlockArgs),
    /// Run a worker.
    #[command(hide = true)]
    Worker(role::worker::WorkerArgs),
    /// Run a power manager.
    #[command(hide = true)]
    PowerManager(role::power_manager::PowerManagerArgs),
    /// Run the power client of this machine's nodes.
    #[command(hide = true)]
    PowerClient(role::power_client::PowerClientArgs),
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Start a cluster, making it if it is not there; returns when it serves.
    Up(UpArgs),
    /// Show its processes.
    Status,
    /// End it: no process, no mount is left.
    Down,
}

#[derive(Debug, Args)]
struct UpArgs {
    /// Block servers; each is its own host h1..hN.
    #[arg(long)]
    nodes: u32,
    /// Volumes of each.
    #[arg(long, default_value_t = 1)]
    volumes: u32,
    /// Racks that the hosts are dealt to.
    #[arg(long, default_value_t = 2)]
    racks: u32,
    /// Copies in the default dataset [default: 3, or the number of nodes if smaller].
    #[arg(long)]
    replicas: Option<u32>,
    /// Milliseconds after which a silent block server counts as dead [default: 30000].
    #[arg(long)]
    dead_after_ms: Option<u64>,
    /// Milliseconds after which a silent client loses its leases [default: 10000].
    #[arg(long)]
    session_ttl_ms: Option<u64>,
    #[command(flatten)]
    power: crate::role::power_manager::PowerFigures,
    /// Proxies in processes of their own, 0: one, in the master's process [default: 0].
    #[arg(long)]
    proxies: Option<u32>,
    /// MB per second that repair may move to or from one node, 0: no limit [default: 200].
    #[arg(long)]
    repair_mb_per_s: Option<u64>,
}

/// What a command knows of its surroundings.
#[derive(Clone, Debug)]
pub struct Context {
    dir: Option<PathBuf>,
    /// How to print.
    pub output: Output,
}

impl Context {
    /// The cluster's directory as given.
    pub fn dir(&self) -> Result<PathBuf> {
        self.dir.clone().ok_or_else(|| err!(Invalid, "which cluster? give --dir DIR or set EBB_DIR"))
    }

    /// The cluster's directory, read.
    pub fn cluster(&self) -> Result<ClusterDir> {
        ClusterDir::open(&self.dir()?)
    }
}

impl Cli {
    /// Does what was said; false: done, and what was looked at is not healthy.
    pub async fn run(self) -> Result<bool> {
        let context = Context { dir: self.dir, output: Output::new(self.json) };
        match self.command {
            Command::Cluster(ClusterCommand::Up(args)) => {
                let options = up::UpOptions {
                    nodes: args.nodes,
                    volumes: args.volumes,
                    racks: args.racks,
                    replicas: args.replicas,
                    dead_after_ms: args.dead_after_ms,
                    session_ttl_ms: args.session_ttl_ms,
                    power: args.power,
                    proxies: args.proxies,
                    repair_mb_per_s: args.repair_mb_per_s,
                };
                up::up(&context.dir()?, &options, &context.output).await.map(|()| true)
            }
            Command::Cluster(ClusterCommand::Status) => status::status(&context.dir()?, &context.output).await,
            Command::Cluster(ClusterCommand::Down) => down::down(&context.dir()?, &context.output).map(|()| true),
            Command::Mount(args) => role::mount::run(&context, args).await.map(|()| true),
            Command::Umount { mountpoint } => role::mount::unmount(&mountpoint).map(|()| true),
            Command::Fs(command) => fs::run(&context, command).await.map(|()| true),
            Command::Dataset(command) => dataset::run(&context, command).await.map(|()| true),
            Command::Power(command) => power::run(&context, command).await.map(|()| true),
            Command::Node(command) => node::run(&context, command).await,
            Command::Fsck(args) => fsck::run(&context, args).await,
            Command::Lab(command) => lab::run(&context, command).await,
            Command::Plan(command) => plan::run(&context, command).map(|()| true),
            Command::Completions { shell } => {
                clap_complete::generate(shell, &mut Self::command(), "ebb", &mut std::io::stdout());
                Ok(true)
            }
            Command::Man { directory } => clap_mangen::generate_to(Self::command(), &directory)
                .map(|()| true)
                .map_err(|error| Error::from_io(&error, directory.display())),
            Command::Master(args) => role::master::run(&context, args).await.map(|()| true),
            Command::Block(args) => role::block::run(&context, args).await.map(|()| true),
            Command::Proxy(args) => role::proxy::run(&context, args).await.map(|()| true),
            Command::Worker(args) => role::worker::run(&context, args).await.map(|()| true),
            Command::PowerManager(args) => role::power_manager::run(&context, args).await.map(|()| true),
            Command::PowerClient(args) => role::power_client::run(&context, args).await.map(|()| true),
        }
    }

    fn is_daemon(&self) -> bool {
        use Command as C;
        matches!(
            self.command,
            C::Master(role::master::MasterArgs { command: None })
                | C::Proxy(_)
                | C::Block(_)
                | C::Worker(_)
                | C::Mount(_)
                | C::PowerManager(_)
                | C::PowerClient(_)
        )
    }
}

/// Daemons log what they do; commands only what goes wrong. `EBB_LOG` overrides both.
pub fn start_logging(cli: &Cli) {
    let default = match &cli.command {
        _ if cli.is_daemon() => "info",
        // What its servers say of the faults that they are put to is no news: the report tells what was promised and broken.
        Command::Lab(command) if command.is_virtual() => "off",
        _ => "error",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("EBB_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    log.with_timer(Stamp).init();
}

/// The time before a line of the log; in a virtual world that world's, with the process that speaks.
struct Stamp;

impl FormatTime for Stamp {
    fn format_time(&self, line: &mut Writer<'_>) -> std::fmt::Result {
        match Turn::current() {
            Some(turn) => write!(line, "{turn}"),
            None => SystemTime.format_time(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_stand_anywhere() {
        for line in [
            vec!["ebb", "cluster", "up", "--dir", "d", "--nodes", "3", "--volumes", "2"],
            vec!["ebb", "fs", "--dir", "d", "locations", "/f", "--json"],
            vec!["ebb", "fs", "--dir", "d", "blocks", "/f", "--json"],
            vec!["ebb", "node", "list", "--dir", "d", "--json"],
            vec!["ebb", "mount", "--dir", "d", "--host", "h1", "/mnt"],
            vec!["ebb", "fsck", "--dir", "d", "--scrub", "--json"],
            vec!["ebb", "lab", "wordcount", "--dir", "d", "/t", "--no-locations", "--json"],
            vec!["ebb", "lab", "virtual", "--seed", "17", "--json"],
            vec!["ebb", "plan", "gears", "--primaries", "100", "--gear-size", "1,5,10", "--json"],
            vec![
                "ebb",
                "dataset",
                "create",
                "--dir",
                "d",
                "/s",
                "--block",
                "512KiB",
                "--metablock",
                "512KiB",
                "--replicas",
                "2",
                "--layout",
                "striped",
                "--replication",
                "single-source",
            ],
        ] {
            Cli::try_parse_from(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        }
    }
}
