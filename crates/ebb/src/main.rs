//! `ebb`: one binary, every role a subcommand.
//!
//! [`cli`] defines the command line. [`cluster`] starts, shows and stops a cluster of processes on this machine.
//! [`role`] has the daemons. Each of the other modules is one command.
//!
//! Experiments and planners are not here. They are in another program, `ebb-lab`, which `ebb lab` and `ebb plan` start.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the command line lives in the real world")]

mod cli;
mod cluster;
mod dataset;
mod examples;
mod fs;
mod fsck;
mod identity;
mod job;
mod node;
mod power;
mod raid;
mod role;
mod snapshot;
mod user;
mod yarn;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::from_arguments(std::env::args_os());
    ebb_cli::program::start_logging(cli.log_default(), tracing_subscriber::fmt::time::SystemTime);
    ebb_cli::program::run("ebb", cli.output(), cli.run())
}
