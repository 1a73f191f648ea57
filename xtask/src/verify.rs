//! Everything that must hold before a change is merged. It only reads.

use crate::failure::Failure;
use crate::step::{Step, run_all};

/// All checks.
pub fn run() -> Vec<Failure> {
    let formatted = Step::cargo("format", &["fmt", "--all", "--check"]).run();
    let tidy = crate::tidy::run();
    let rest = run_all(&[
        Step::cargo("clippy", &["clippy", "--workspace", "--all-targets", "--locked", "-q", "--", "-D", "warnings"]),
        Step::cargo("tests", &["test", "--workspace", "--locked", "--no-fail-fast"])
            // The same drawn cases in every run: a run says of a change what it does. `cargo test` draws others.
            .with("PROPTEST_RNG_SEED", "1")
            .with("RUST_TEST_THREADS", tests_at_a_time().to_string())
            .showing(is_closing_line),
        Step::cargo("docs", &["doc", "--workspace", "--no-deps", "--locked", "-q"]).with("RUSTDOCFLAGS", "-D warnings"),
    ]);
    [formatted, tidy].into_iter().filter_map(Result::err).chain(rest).collect()
}

/// Tests of real processes wait for most of their time: for leases and sessions to end, for nodes to be dead.
fn tests_at_a_time() -> usize {
    2 * std::thread::available_parallelism().map_or(1, usize::from)
}

/// Lines with a test binary's name and its counts, which a person or a tool can add up, and lines with slow tests: only
/// these name a test that never ends.
fn is_closing_line(line: &str) -> bool {
    let line = line.trim_start();
    let is_count = line.starts_with("test result:") || line.starts_with("Running ");
    is_count || line.contains(" has been running for over ") || line.contains(" has not ended after ")
}
