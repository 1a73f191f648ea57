//! The writing twin of `verify`.

use crate::step::{Step, run_all};

/// Repairs what can be repaired without thought.
pub fn run() -> bool {
    run_all(&[
        Step::cargo(
            "clippy",
            &["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged", "-q"],
        ),
        Step::cargo("format", &["fmt", "--all"]),
    ])
}
