//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use ebb_cli::context::TimeLimit;
use ebb_cli::describe::{self, DescribeCommand};
use ebb_cli::output::Output;
use ebb_cli::verdict::{EXIT_CODES, Verdict};
use ebb_cli::{Context, Globals, examples, programs, waiting};
use ebb_identity::tls::Wire;
use ebb_types::{Result, err};

use crate::cluster::parts::{NewNodes, SubRackCount};
use crate::cluster::{down, init, raise_version, status, up};
use crate::examples::EXAMPLES;
use crate::{dataset, fs, fsck, identity, job, node, power, raid, role, snapshot, user, yarn};

/// The program with the experiments and the planners.
const LAB: &str = "ebb-lab";

/// A distributed POSIX file system whose power draw follows the available power.
#[derive(Debug, Parser)]
#[command(name = "ebb", version = ebb_cli::VERSION, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(flatten)]
    limit: TimeLimit,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start, inspect and stop a cluster of processes on this machine.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Mount the file system.
    ///
    /// The mount runs in the background unless --foreground is given. The command returns when the mount serves.
    Mount(role::mount::MountArgs),
    /// Unmount the file system.
    ///
    /// The command returns when the mount has flushed everything and its process has ended.
    Umount {
        /// Directory on which the file system is mounted.
        mountpoint: PathBuf,
    },
    /// Work with files without a mount.
    #[command(subcommand)]
    Fs(fs::FsCommand),
    /// Create, change and show datasets: directory trees with their own layout, copies and sizes.
    #[command(subcommand)]
    Dataset(dataset::DatasetCommand),
    /// Take, list and remove snapshots of datasets, to be read below .snapshot of their directories.
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Show RAID sets, and encode or repack now.
    #[command(subcommand)]
    Raid(raid::RaidCommand),
    /// Set the power supply and the power policy, and show which nodes sleep.
    #[command(subcommand)]
    Power(power::PowerCommand),
    /// Show, drain, start and readmit nodes.
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Certify processes of other hosts and users' programs, and show certificates.
    #[command(subcommand)]
    Identity(identity::IdentityCommand),
    /// Name users that count in the whole cluster, for programs that call users by names.
    #[command(subcommand)]
    User(user::UserCommand),
    /// Tell a Hadoop cluster's scheduler of the power plan.
    #[command(subcommand)]
    Yarn(yarn::YarnCommand),
    /// Compare the master's map with the replicas on the nodes.
    #[command(after_help = EXIT_CODES)]
    Fsck(fsck::FsckArgs),
    /// Run jobs on the hosts that hold the data.
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Run experiments: virtual clusters under faults, and the papers' figures (`ebb lab --help`).
    #[command(disable_help_flag = true)]
    Lab(HandedOver),
    /// Compute what a layout, a power budget or a code costs and gives; needs no cluster (`ebb plan --help`).
    #[command(disable_help_flag = true)]
    Plan(HandedOver),
    #[command(flatten)]
    Describe(DescribeCommand),
    /// Run the master (normally a service), or accept a loss for it.
    Master(role::master::MasterArgs),
    /// Run a proxy (normally a service).
    Proxy(role::proxy::ProxyArgs),
    /// Run a block server (normally a service).
    Block(role::block::BlockArgs),
    /// Run a worker (normally a service).
    Worker(role::worker::WorkerArgs),
    /// Run a power manager (normally a service).
    PowerManager(role::power_manager::PowerManagerArgs),
    /// Run a power client (normally a service), which puts nodes to sleep and wakes them by the power plan.
    PowerClient(role::power_client::PowerClientArgs),
}

/// Arguments that are passed on to `ebb-lab`.
#[derive(Debug, Args)]
struct HandedOver {
    /// Command of `ebb-lab`, with its options.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    arguments: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Make the directory of a cluster on several hosts: id, authority and settings. Nothing is started.
    Init(init::InitArgs),
    /// Start a cluster, and create it if it does not exist.
    ///
    /// The command returns when the cluster serves. If a part of the cluster runs, only the missing processes are
    /// started. The options for dead time, session time, proxies and repair then have no effect.
    Up(Box<UpArgs>),
    /// Show processes, missing copies, data out of reach, slow nodes, and data that wait for sleeping nodes.
    #[command(after_help = EXIT_CODES)]
    Status,
    /// Stop all processes and all mounts of the cluster.
    Down,
    /// Let the cluster use what the newest release brought, after an upgrade.
    ///
    /// Older releases can serve in it no more. The command is refused while a node runs one.
    RaiseVersion(raise_version::RaiseVersionArgs),
}

#[derive(Debug, Args)]
struct UpArgs {
    /// Number of nodes. Each runs one block server and is its own host, h1 to hN. A cluster that exists has as many as
    /// before, or more.
    #[arg(long)]
    nodes: Option<u32>,
    /// Number of volumes of each new node [default: 1; with --sub-racks 0, so that only localized storage nodes have disks].
    #[arg(long)]
    volumes: Option<u32>,
    /// Number of racks. New hosts, or sub-racks, are assigned to them in turn.
    #[arg(long, default_value_t = 2)]
    racks: u32,
    /// Make sub-racks in place of equal nodes: as 2x3, two of three hosts each (lsn1 serves h1 to h3). A localized storage node has the
    /// disks of its sub-rack, and runs no tasks. The default dataset gets the layout lsn.
    #[arg(long, conflicts_with = "nodes", value_name = "SUB-RACKSxHOSTS")]
    sub_racks: Option<SubRackCount>,
    /// Number of volumes of each localized storage node [default: 4].
    #[arg(long, requires = "sub_racks", conflicts_with = "nodes")]
    lsn_volumes: Option<u32>,
    /// Copies in the default dataset of a new cluster [default: 3, with --sub-racks 2, or the number of nodes if smaller].
    #[arg(long)]
    replicas: Option<u32>,
    /// Time in milliseconds after which a silent block server counts as dead [default: 30000, or as before].
    #[arg(long)]
    dead_after_ms: Option<u64>,
    /// Time in milliseconds after which a silent client loses its leases [default: 10000, or as before].
    #[arg(long)]
    session_ttl_ms: Option<u64>,
    #[command(flatten)]
    power: crate::role::power_manager::PowerFigures,
    /// Number of proxies that run as processes of their own. With 0, one proxy runs in the master's process [default:
    /// 0, or as before].
    #[arg(long)]
    proxies: Option<u32>,
    /// Limit of repair traffic to or from one node, in MB per second; 0 means no limit. A node that encodes RAID sets reads a
    /// quarter of it [default: 200, or as before].
    #[arg(long)]
    repair_mb_per_s: Option<u64>,
    /// What connections carry after the peers have proved themselves: encrypted, or plain bytes, which whoever sits on the
    /// network reads and changes [default: encrypted, or as before].
    #[arg(long, value_name = "KIND")]
    wire: Option<Wire>,
}

impl Cli {
    /// Reads the command line; prints and ends the process if it makes no sense.
    pub fn from_arguments(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let cli = Self::read(arguments);
        match &cli.command {
            Command::Lab(HandedOver { arguments }) => match job::from_old_spelling(arguments) {
                Some(job) => Self::read(["ebb".into()].into_iter().chain(cli.globals.arguments()).chain(job)),
                None => cli,
            },
            _ => cli,
        }
    }

    fn read(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let matches = Self::described().get_matches_from(arguments);
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// The command line with its examples.
    fn described() -> clap::Command {
        examples::add(Self::command(), EXAMPLES)
    }

    /// How to print.
    pub const fn output(&self) -> Output {
        self.globals.output()
    }

    /// Runs the command. Returns its verdict on the inspected object.
    pub async fn run(self) -> Result<Verdict> {
        let globals = self.globals.arguments();
        let context = Context::from(self.globals).with_limit(self.limit);
        let verdict = |()| Verdict::Good;
        match self.command {
            Command::Cluster(ClusterCommand::Up(args)) => {
                let options = up::UpOptions {
                    nodes: args.nodes,
                    new: NewNodes {
                        volumes: args.volumes.unwrap_or(u32::from(args.sub_racks.is_none())),
                        racks: args.racks,
                        sub_racks: args.sub_racks,
                        lsn_volumes: args.lsn_volumes.unwrap_or(4),
                    },
                    replicas: args.replicas,
                    dead_after_ms: args.dead_after_ms,
                    session_ttl_ms: args.session_ttl_ms,
                    power: args.power,
                    proxies: args.proxies,
                    repair_mb_per_s: args.repair_mb_per_s,
                    wire: args.wire,
                };
                waiting::limit(&context, up::up(&context.dir()?, &options, &context.output)).await.map(verdict)
            }
            Command::Cluster(ClusterCommand::Init(args)) => init::run(&context, &args).map(verdict),
            Command::Cluster(ClusterCommand::Status) => {
                waiting::limit(&context, status::status(&context.dir()?, &context.output)).await
            }
            Command::Cluster(ClusterCommand::RaiseVersion(args)) => {
                waiting::limit(&context, raise_version::run(&context, &args)).await.map(verdict)
            }
            Command::Cluster(ClusterCommand::Down) => {
                let (dir, output) = (context.dir()?, context.output);
                waiting::limit(&context, blocking(move || down::down(&dir, &output))).await.map(verdict)
            }
            Command::Umount { mountpoint } => {
                let output = context.output;
                waiting::limit(&context, blocking(move || role::mount::unmount(&mountpoint, output))).await.map(verdict)
            }
            Command::Fs(command) => waiting::run(&context, fs::run(&context, command)).await.map(Verdict::from),
            Command::Dataset(command) => waiting::run(&context, dataset::run(&context, command)).await.map(verdict),
            Command::Snapshot(command) => waiting::run(&context, snapshot::run(&context, command)).await.map(verdict),
            Command::Raid(command) => waiting::run(&context, raid::run(&context, command)).await.map(verdict),
            Command::Power(command) => waiting::run(&context, power::run(&context, command)).await.map(verdict),
            Command::Node(command) => waiting::run(&context, node::run(&context, command)).await.map(Verdict::from),
            Command::Identity(command) => waiting::run(&context, identity::run(&context, command)).await.map(verdict),
            Command::User(command) => waiting::run(&context, user::run(&context, command)).await.map(verdict),
            Command::Yarn(command) => yarn::run(&context, command).await.map(verdict),
            Command::Fsck(args) => waiting::run(&context, fsck::run(&context, args)).await,
            Command::Job(command) => waiting::run(&context, job::run(&context, command)).await.map(Verdict::from),
            Command::Lab(more) => Err(programs::hand_over(LAB, &[globals, more.arguments].concat())),
            Command::Plan(more) => {
                Err(programs::hand_over(LAB, &[globals, vec!["plan".into()], more.arguments].concat()))
            }
            Command::Describe(command) => describe::run(Self::described(), command).map(verdict),
            Command::Mount(args) => role::mount::run(&context, args).await.map(verdict),
            Command::Master(args) => role::master::run(&context, args).await.map(verdict),
            Command::Block(args) => role::block::run(&context, args).await.map(verdict),
            Command::Proxy(args) => role::proxy::run(&context, args).await.map(verdict),
            Command::Worker(args) => role::worker::run(&context, args).await.map(verdict),
            Command::PowerManager(args) => role::power_manager::run(&context, args).await.map(verdict),
            Command::PowerClient(args) => role::power_client::run(&context, args).await.map(verdict),
        }
    }

    /// Daemons log their work; commands only failures.
    pub const fn log_default(&self) -> &'static str {
        use Command as C;
        match self.command {
            C::Master(role::master::MasterArgs { command: None, .. })
            | C::Proxy(_)
            | C::Block(_)
            | C::Worker(_)
            | C::Mount(_)
            | C::PowerManager(_)
            | C::PowerClient(_) => "info",
            _ => "error",
        }
    }
}

/// Runs work that blocks its thread, so that a time limit can end the command meanwhile.
async fn blocking(work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| err!(Internal, "a task of the command failed: {error}"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::described().debug_assert();
    }

    #[test]
    fn every_command_has_examples_and_they_are_valid() {
        examples::check(&Cli::command(), EXAMPLES).unwrap();
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
            vec!["ebb", "job", "count", "--dir", "d", "/t", "--no-locations", "--json"],
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

    #[test]
    fn arguments_for_the_lab_are_handed_over_word_for_word() {
        for (line, words) in [
            (vec!["ebb", "lab"], vec![]),
            (vec!["ebb", "lab", "--help"], vec!["--help"]),
            (vec!["ebb", "--json", "lab", "rabbit", "--figure", "6"], vec!["rabbit", "--figure", "6"]),
            (
                vec!["ebb", "lab", "--json", "virtual", "--seed", "-1", "--", "x"],
                vec!["virtual", "--seed", "-1", "--", "x"],
            ),
        ] {
            let cli = Cli::try_parse_from(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
            assert_eq!(cli.globals.arguments().contains(&"--json".into()), line.contains(&"--json"));
            let Command::Lab(more) = cli.command else { panic!("{line:?}") };
            assert_eq!(more.arguments, words, "{line:?}");
        }
    }

    #[test]
    fn jobs_are_found_under_their_old_names() {
        let line = ["ebb", "--dir", "d", "lab", "grep", "text", "/t", "--json"].map(OsString::from);
        let cli = Cli::from_arguments(line);
        assert!(matches!(cli.command, Command::Job(job::JobCommand::Grep { .. })), "{cli:?}");
        assert_eq!(cli.globals.arguments(), ["--dir", "d", "--json"].map(OsString::from));
    }
}
