//! The counterpart of `verify` that writes.

use crate::step::{Step, run_all};

/// Makes the repairs that need no decision.
pub fn run() -> bool {
    run_all(&[
        Step::cargo(
            "clippy",
            &["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged", "-q"],
        ),
        Step::cargo("format", &["fmt", "--all"]),
    ])
}
