//! `ebb lab`: experiments.

use std::num::NonZeroUsize;

use clap::{Args, Subcommand};
use ebb_types::Result;

use crate::cli::Context;
use crate::path::EbbPath;

mod metablocks;
mod paper;
mod power;
mod soak;
mod virtual_cluster;
mod wordcount;

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Count the words of a file or a tree by shipping the work to the hosts that hold its metablocks.
    Wordcount(WordcountArgs),
    /// Count the lines that hold a text, as `grep -F -c` does, likewise.
    Grep {
        /// What is looked for.
        text: String,
        #[command(flatten)]
        job: WordcountArgs,
    },
    /// Run a whole cluster in virtual time, with faults, and check what it promised.
    Virtual(VirtualArgs),
    /// Run virtual clusters of every kind with new seeds for hours: small and large ones under faults, and ones that
    /// follow their power. Ctrl-C ends it after the seeds that are under way.
    Soak(soak::SoakArgs),
    /// The figures of "Robust and Flexible Power-Proportional Storage", run in virtual time beside the printed numbers.
    Rabbit(paper::PaperArgs),
    /// The figures of "BlinkFS: A Distributed File System for Intermittent Power", likewise.
    Blinkfs(paper::PaperArgs),
    /// The figures of "Cloud analytics: Do we really need to reinvent the storage stack?": block sizes, metablocks,
    /// locations and prefetch, measured on a running cluster beside the printed numbers.
    Metablocks(metablocks::MetablocksArgs),
    /// What a running cluster serves at 20, 50 and 80 % power, as a share of its full power, beside a virtual one. The
    /// operator's override is full power afterwards.
    Power(power::PowerArgs),
}

#[derive(Debug, Args)]
pub struct WordcountArgs {
    /// A file or a directory.
    path: EbbPath,
    /// Hand the work out without looking where the data is.
    #[arg(long)]
    no_locations: bool,
    /// Tell progress as JSON lines on stderr.
    #[arg(long)]
    progress: bool,
}

#[derive(Debug, Args)]
pub struct VirtualArgs {
    /// One seed: everything that happens follows from it.
    #[arg(long, conflicts_with_all = ["seeds", "jobs"])]
    seed: Option<u64>,
    /// A range of seeds, FIRST..END.
    #[arg(long)]
    seeds: Option<String>,
    /// Seeds at a time.
    #[arg(long, default_value = "1")]
    jobs: NonZeroUsize,
    /// One fault at a time, mostly with as many block servers as copies: how long anybody waits meanwhile.
    #[arg(long, conflicts_with_all = ["large", "power"])]
    single: bool,
    /// A large cluster: up to twenty block servers, eight clients and three proxies, several faults at a time.
    #[arg(long, conflicts_with = "power")]
    large: bool,
    /// A cluster that follows its power: every policy, signal and kind of fault, drawn from the seed.
    #[arg(long)]
    power: bool,
    /// Only this policy.
    #[arg(long, requires = "power")]
    policy: Option<String>,
    /// Only this signal: constant, oscillating, falling-to-zero or renewable.
    #[arg(long, requires = "power")]
    signal: Option<String>,
    /// Let the code make a mistake, to see whether it is found: skip-fsync, stale-read, epoch-ignored, torn-overwrite,
    /// early-delete, commit-unsynced, forget-fsync; with --power also standin-unsynced or log-ignored. Only a virtual
    /// cluster can be told to.
    #[arg(long)]
    plant: Option<String>,
}

impl LabCommand {
    /// Whether everything that it starts is virtual.
    pub const fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual(_) | Self::Soak(_) | Self::Rabbit(_) | Self::Blinkfs(_))
    }
}

/// Does it; false: something promised did not hold.
pub async fn run(context: &Context, command: LabCommand) -> Result<bool> {
    match command {
        LabCommand::Wordcount(args) => wordcount::run(context, &args, None).await,
        LabCommand::Grep { text, job } => wordcount::run(context, &job, Some(&text)).await,
        LabCommand::Virtual(args) => virtual_cluster::run(context, &args),
        LabCommand::Soak(args) => soak::run(context, &args),
        LabCommand::Rabbit(args) => paper::run(context, &paper::RABBIT, &args).map(|()| true),
        LabCommand::Blinkfs(args) => paper::run(context, &paper::BLINKFS, &args).map(|()| true),
        LabCommand::Metablocks(args) => metablocks::run(context, &args).await.map(|()| true),
        LabCommand::Power(args) => power::run(context, &args).await,
    }
}
