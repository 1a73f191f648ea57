//! `ebb-lab`: proof and research. `ebb lab` and `ebb plan` start it.
//!
//! [`cli`] defines the command line. Each of the other modules is one command. It turns options into plain values,
//! calls `ebb-virtual`, `ebb-figures`, `ebb-plan` or `ebb-sim`, and prints the result.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the command line lives in the real world")]

mod cli;
mod compliance;
mod examples;
mod lsn;
mod metablocks;
mod paper;
mod plan;
mod power;
mod soak;
mod virtual_cluster;

use std::process::ExitCode;

use ebb_runtime::virt::Turn;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

fn main() -> ExitCode {
    let cli = cli::Cli::of_this_process();
    ebb_cli::program::start_logging(cli.log_default(), Stamp);
    ebb_cli::program::run("ebb-lab", cli.output(), cli.run())
}

/// The time before a line of the log. In a virtual world it is that world's time, with the name of the process.
struct Stamp;

impl FormatTime for Stamp {
    fn format_time(&self, line: &mut Writer<'_>) -> std::fmt::Result {
        match Turn::current() {
            Some(turn) => write!(line, "{turn}"),
            None => SystemTime.format_time(line),
        }
    }
}
