//! Programs that people use, on a real mount and on the host's file system beside it (`tests/software`).

use crate::failure::Failure;
use crate::step::Step;

/// The suites of CI, which take minutes: all present ones, in their short forms.
pub const SHORT: [&str; 11] = [
    "sqlite",
    "sqlite-full",
    "postgresql",
    "git",
    "copies",
    "stress-ng",
    "dbench",
    "bonnie",
    "small-files",
    "c-build",
    "rust-build",
];

/// Runs these suites, or all of the folder if none is named.
pub fn run(suites: &[&str]) -> Result<(), Failure> {
    crate::programs::build()?;
    let words: Vec<&str> = ["tests/software/on-a-mount.sh"].iter().chain(suites).copied().collect();
    Step::program("software", &words).run()
}
