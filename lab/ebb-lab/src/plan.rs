//! `ebb plan`: costs and benefits of a layout, a power budget or a code, before anything is built.
//!
//! Each command is one file below `plan/`: it turns its options into plain values, calls `ebb-plan`, and passes tables,
//! JSON and a figure to [`emit`]. None of them needs a cluster, but for `lsn --from-cluster`, which asks one what it has measured.

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
    /// Compute what each node stores, and how fast a dataset reads at every number of active nodes.
    Layout(Box<layout::LayoutArgs>),
    /// Compare gear sizes by recovery-group size and minimum power after a failure.
    Gears(gears::GearsArgs),
    /// Compute what stays in reach at partial power, how long reads wait, and what a month costs.
    Power(Box<power::PowerArgs>),
    /// Compute what copies and codes cost in space and lose in a year.
    Raid(Box<raid::RaidArgs>),
    /// Simulate jobs on localized storage nodes (LSNs): run times, sweeps, and the cheapest LSN for a workload.
    Lsn(Box<lsn::LsnArgs>),
    /// Write one page with the papers' analytic figures and tables next to Ebb's.
    Report(report::ReportArgs),
}

/// Runs the command.
pub async fn run(context: &Context, command: PlanCommand) -> Result<()> {
    match command {
        PlanCommand::Layout(args) => layout::run(context, &args),
        PlanCommand::Gears(args) => gears::run(context, &args),
        PlanCommand::Power(args) => power::run(context, &args),
        PlanCommand::Raid(args) => raid::run(context, &args),
        PlanCommand::Lsn(args) => lsn::run(context, &args).await,
        PlanCommand::Report(args) => report::run(context, &args),
    }
}
