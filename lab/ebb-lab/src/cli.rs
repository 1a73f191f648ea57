//! The command line.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use ebb_cli::describe::{self, DescribeCommand};
use ebb_cli::output::Output;
use ebb_cli::{Context, Globals, examples};
use ebb_types::Result;

use crate::examples::EXAMPLES;
use crate::{compliance, lsn, metablocks, paper, plan, power, soak, virtual_cluster};

/// Experiments with Ebb: virtual clusters under faults, the papers' figures, and planners.
#[derive(Debug, Parser)]
#[command(name = "ebb-lab", version = ebb_cli::VERSION, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run whole clusters in virtual time, with faults, and check their guarantees.
    Virtual(virtual_cluster::VirtualArgs),
    /// Run virtual clusters of every kind with new seeds for hours.
    ///
    /// There are small and large clusters under faults, and clusters that follow their power. Ctrl-C ends the run after
    /// the seeds that are under way; a second Ctrl-C ends it at once.
    Soak(soak::SoakArgs),
    /// Reproduce the figures of "Robust and Flexible Power-Proportional Storage" in virtual time.
    ///
    /// The results are shown beside the printed numbers.
    Rabbit(paper::PaperArgs),
    /// Reproduce the figures of "BlinkFS: A Distributed File System for Intermittent Power" in virtual time.
    ///
    /// The results are shown beside the printed numbers.
    Blinkfs(paper::PaperArgs),
    /// Reproduce the figures of "DiskReduce: RAIDing the Cloud" in virtual time.
    ///
    /// The results are shown beside the printed numbers.
    Diskreduce(paper::PaperArgs),
    /// Reproduce the figures of "On the Use of Shared Storage in Shared-Nothing Environments" in virtual time.
    ///
    /// The results are shown beside the printed numbers and the simulator's. With --against-plan, a plan's LSNs are built and
    /// its jobs run.
    Lsn(lsn::LsnArgs),
    /// Measure block sizes, metablocks, locations and prefetch on a running cluster.
    ///
    /// The results are shown beside the printed numbers of "Cloud analytics: Do we really need to reinvent the storage
    /// stack?".
    Metablocks(metablocks::MetablocksArgs),
    /// Compare a running cluster with a virtual one at 20, 50 and 80 % power.
    ///
    /// The throughput is shown as a share of that at full power. The command sets the operator's override of the
    /// supply, and leaves it at full power. `ebb power set --release` ends the override.
    Power(power::PowerArgs),
    /// Cut a running cluster's power to 20 % and give it back, under each policy, and on a virtual cluster beside it.
    ///
    /// For each policy the command shows how soon the nodes draw no more than there is, the energy above that, failed
    /// requests, the slowest ones, and how soon all nodes serve again. It sets policy and power of the cluster, makes a
    /// dataset of its own, and leaves everything as it was, also after an error or ctrl-C. Other data may be out of
    /// reach for some intervals. The exit code is 1 if a request failed, or if a policy that promises never to draw more
    /// than its budget did so for longer than an interval and the notice of a plan.
    Compliance(compliance::ComplianceArgs),
    /// Compute what a layout, a power budget or a code costs and gives; needs no cluster.
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    #[command(flatten)]
    Describe(DescribeCommand),
}

impl Cli {
    /// Reads the command line; prints and ends the process if it makes no sense.
    pub fn of_this_process() -> Self {
        let matches = Self::described().get_matches();
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

    /// Runs the command. False: a guarantee did not hold.
    pub async fn run(self) -> Result<bool> {
        let context = Context::from(self.globals);
        match self.command {
            Command::Virtual(args) => virtual_cluster::run(&context, &args),
            Command::Soak(args) => soak::run(&context, &args),
            Command::Rabbit(args) => paper::run(&context, &paper::RABBIT, &args).map(|()| true),
            Command::Blinkfs(args) => paper::run(&context, &paper::BLINKFS, &args).map(|()| true),
            Command::Diskreduce(args) => paper::run(&context, &paper::DISKREDUCE, &args).map(|()| true),
            Command::Lsn(args) => lsn::run(&context, &args),
            Command::Metablocks(args) => metablocks::run(&context, &args).await.map(|()| true),
            Command::Power(args) => power::run(&context, &args).await,
            Command::Compliance(args) => compliance::run(&context, &args).await,
            Command::Plan(command) => plan::run(&context, command).await.map(|()| true),
            Command::Describe(command) => describe::run(Self::described(), command).map(|()| true),
        }
    }

    /// Errors are logged, except in a virtual world: there the servers' errors are the result of injected faults, and
    /// the report lists every broken guarantee.
    pub const fn log_default(&self) -> &'static str {
        match self.command {
            Command::Virtual(_)
            | Command::Soak(_)
            | Command::Rabbit(_)
            | Command::Blinkfs(_)
            | Command::Diskreduce(_)
            | Command::Lsn(_) => "off",
            _ => "error",
        }
    }
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
            vec!["ebb-lab", "virtual", "--seed", "17", "--json"],
            vec!["ebb-lab", "--json", "plan", "gears", "--primaries", "100", "--gear-size", "1,5,10"],
            vec!["ebb-lab", "metablocks", "--dir", "d", "--size", "32MiB"],
            vec!["ebb-lab", "metablocks", "--figure", "2", "--rounds", "1", "--scripts", "tests/hadoop"],
        ] {
            Cli::try_parse_from(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        }
    }
}
