//! `ebb plan`: what a layout, a power budget or a code costs and gives, before anything is built.
//!
//! Each command is one file below `plan/`: it turns its options into plain values, asks `ebb-plan`, and hands tables,
//! JSON and a figure to [`emit`]. None of them needs a cluster.

mod emit;
mod gears;

use clap::Subcommand;
use ebb_types::Result;

use crate::cli::Context;

#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Gear size against recovery-group size and minimum power after a failure.
    Gears(gears::GearsArgs),
}

/// Does it.
pub fn run(context: &Context, command: PlanCommand) -> Result<()> {
    match command {
        PlanCommand::Gears(args) => gears::run(context, &args),
    }
}
