//! What can be said on the command line.

use clap::{CommandFactory, Parser, Subcommand};
use ebb_cli::describe::{self, DescribeCommand};
use ebb_cli::{Context, Globals};
use ebb_types::Result;

use crate::{metablocks, paper, plan, power, soak, virtual_cluster};

/// Experiments with Ebb: virtual clusters under faults, the papers' figures, and planners.
#[derive(Debug, Parser)]
#[command(name = "ebb-lab", version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole cluster in virtual time, with faults, and check what it promised.
    Virtual(virtual_cluster::VirtualArgs),
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
    /// What a layout, a power budget or a code costs and gives; needs no cluster.
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    #[command(flatten)]
    Describe(DescribeCommand),
}

impl Cli {
    /// Does what was said; false: something promised did not hold.
    pub async fn run(self) -> Result<bool> {
        let context = Context::from(self.globals);
        match self.command {
            Command::Virtual(args) => virtual_cluster::run(&context, &args),
            Command::Soak(args) => soak::run(&context, &args),
            Command::Rabbit(args) => paper::run(&context, &paper::RABBIT, &args).map(|()| true),
            Command::Blinkfs(args) => paper::run(&context, &paper::BLINKFS, &args).map(|()| true),
            Command::Metablocks(args) => metablocks::run(&context, &args).await.map(|()| true),
            Command::Power(args) => power::run(&context, &args).await,
            Command::Plan(command) => plan::run(&context, command).map(|()| true),
            Command::Describe(command) => describe::run(Self::command(), command).map(|()| true),
        }
    }

    /// What goes wrong is logged. Not so in a virtual world: that its servers complain of the faults that they are put to is
    /// no news, and the report has every promise that was broken.
    pub const fn log_default(&self) -> &'static str {
        match self.command {
            Command::Virtual(_) | Command::Soak(_) | Command::Rabbit(_) | Command::Blinkfs(_) => "off",
            _ => "error",
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
            vec!["ebb-lab", "virtual", "--seed", "17", "--json"],
            vec!["ebb-lab", "--json", "plan", "gears", "--primaries", "100", "--gear-size", "1,5,10"],
            vec!["ebb-lab", "metablocks", "--dir", "d", "--size", "32MiB"],
        ] {
            Cli::try_parse_from(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        }
    }
}
