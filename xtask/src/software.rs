//! Programs that people use, on a real mount and on the host's file system beside it (`tests/software`).

use crate::step::Step;

/// What CI runs, in minutes; the others take longer or find less.
pub const SHORT: [&str; 5] = ["sqlite", "postgresql", "git", "copies", "stress-ng"];

/// These suites; all of the folder if none is named.
pub fn run(suites: &[&str]) -> bool {
    if !Step::cargo("build", &["build", "--locked", "-q", "--bin", "ebb"]).run() {
        return false;
    }
    let words: Vec<&str> = ["tests/software/on-a-mount.sh"].iter().chain(suites).copied().collect();
    Step::program("software", &words).run()
}
