//! `ebb`: one binary, every role a subcommand.
//!
//! [`cli`] is what can be said; [`cluster`] starts, shows and stops a cluster of processes on this machine; [`role`]
//! holds the daemons; the other modules are one command each. This crate and the mount are the only ones that may
//! touch the system directly: everything else goes through `ebb_runtime`.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the command line lives in the real world")]

mod admin;
mod cli;
mod cluster;
mod dataset;
mod fs;
mod fsck;
mod lab;
mod node;
mod output;
mod path;
mod plan;
mod power;
mod role;
mod units;

use std::process::ExitCode;

use clap::Parser;
use ebb_types::ErrorKind;

/// Good.
const GOOD: u8 = 0;
/// Ran, and what it looked at is not healthy; or failed underway.
const UNHEALTHY: u8 = 1;
/// The command line makes no sense.
const USAGE: u8 = 2;
/// Understood and not done.
const REFUSED: u8 = 3;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    cli::start_logging(&cli);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ebb: starting threads: {error}");
            return ExitCode::from(UNHEALTHY);
        }
    };
    let code = match runtime.block_on(cli.run()) {
        Ok(true) => GOOD,
        Ok(false) => UNHEALTHY,
        Err(error) => {
            eprintln!("ebb: {error}");
            exit_code(error.kind())
        }
    };
    // Blocking reads of a terminal or a slow disk must not hold the exit up.
    runtime.shutdown_background();
    ExitCode::from(code)
}

const fn exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Invalid | ErrorKind::NameTooLong => USAGE,
        ErrorKind::Exists
        | ErrorKind::Busy
        | ErrorKind::Unauthorized
        | ErrorKind::NotPermitted
        | ErrorKind::AccessDenied
        | ErrorKind::NotEmpty
        | ErrorKind::Unsupported => REFUSED,
        _ => UNHEALTHY,
    }
}
