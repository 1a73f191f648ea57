//! From `main` to the exit code.

use std::future::Future;
use std::process::ExitCode;

use ebb_types::{Error, ErrorKind, Result};
use serde_json::json;
use tracing_subscriber::fmt::time::FormatTime;

use crate::output::Output;
use crate::verdict::Verdict;

/// Exit code: done, and good.
pub const GOOD: u8 = 0;
/// Exit code: the inspected object is not healthy, or the command failed underway.
pub const UNHEALTHY: u8 = 1;
/// Exit code: the command line makes no sense.
pub const USAGE: u8 = 2;
/// Exit code: understood and not done.
pub const REFUSED: u8 = 3;

/// Logs to stderr by the filter `default`, or by `EBB_LOG` if it is set.
pub fn start_logging(default: &str, timer: impl FormatTime + Send + Sync + 'static) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("EBB_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    log.with_timer(timer).init();
}

/// Runs a command to its exit code. The command returns its verdict on the inspected object. An error goes to stderr,
/// as a sentence or, with `output` for programs, as a JSON object with its kind.
pub fn run<V: Into<Verdict>>(name: &str, output: Output, command: impl Future<Output = Result<V>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{name}: starting threads: {error}");
            return ExitCode::from(UNHEALTHY);
        }
    };
    let code = match runtime.block_on(command) {
        Ok(verdict) => verdict.into().code(),
        Err(error) => {
            let code = exit_code(error.kind());
            match output.json() {
                true => eprintln!("{}", error_json(&error, code)),
                false => eprintln!("{name}: {error}"),
            }
            code
        }
    };
    // Blocking reads of a terminal or a slow disk must not hold the exit up.
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// `{"error": {"kind": "NotFound", "message": "...", "exit_code": 1}}`.
fn error_json(error: &Error, code: u8) -> serde_json::Value {
    json!({ "error": { "kind": format!("{:?}", error.kind()), "message": error.to_string(), "exit_code": code } })
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

/// The kind of error with which a command ends whose own child ended with this exit code: both exit alike.
#[must_use]
pub fn kind_of_exit(code: Option<i32>) -> ErrorKind {
    match code.and_then(|code| u8::try_from(code).ok()) {
        Some(USAGE) => ErrorKind::Invalid,
        Some(REFUSED) => ErrorKind::Busy,
        _ => ErrorKind::Unavailable,
    }
}
