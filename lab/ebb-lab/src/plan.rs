//! `ebb plan`: what a layout, a power budget or a code costs and gives, before anything is built.
//!
//! Each command is one file below `plan/`: it turns its options into plain values, asks `ebb-plan`, and hands tables,
//! JSON and a figure to [`emit`]. None of them needs a cluster.

mod emit;
mod gears;
mod layout;
mod lsn;
mod number;
mod parallel;
mod power;
mod raid;
mod report;

use clap::Subcommand;
use ebb_cli::Context;
use ebb_types::Result;

#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// What each node stores, and how fast a dataset reads at every number of active nodes.
    Layout(Box<layout::LayoutArgs>),
    /// Gear size against recovery-group size and minimum power after a failure.
    Gears(gears::GearsArgs),
    /// What stays in reach on part of the power, how long reads wait, what a month costs.
    Power(Box<power::PowerArgs>),
    /// What codes cost in space and lose in a year.
    Raid(Box<raid::RaidArgs>),
    /// Jobs on localized storage nodes: run times, sweeps, the cheapest node for a workload.
    Lsn(Box<lsn::LsnArgs>),
    /// One page: the papers' analytic figures and tables next to ours.
    Report(report::ReportArgs),
}

/// Does it.
pub fn run(context: &Context, command: PlanCommand) -> Result<()> {
    match command {
        PlanCommand::Layout(args) => layout::run(context, &args),
        PlanCommand::Gears(args) => gears::run(context, &args),
        PlanCommand::Power(args) => power::run(context, &args),
        PlanCommand::Raid(args) => raid::run(context, &args),
        PlanCommand::Lsn(args) => lsn::run(context, &args),
        PlanCommand::Report(args) => report::run(context, &args),
    }
}
