//! The counterpart of `verify` that writes.

use crate::failure::Failure;
use crate::step::{Step, run_all};

/// Makes the repairs that need no decision.
pub fn run() -> Vec<Failure> {
    run_all(&[
        Step::cargo(
            "clippy",
            &["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged", "-q"],
        ),
        Step::cargo("format", &["fmt", "--all"]),
    ])
}
