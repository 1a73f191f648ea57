//! Hadoop on Ebb (`tests/hadoop`): the connector's contract suites, and jobs of real engines.

use crate::failure::Failure;
use crate::step::Step;

/// Hadoop's contract suites and ours, for each version of Hadoop.
const CONTRACTS: &str = "tests/hadoop/contracts.sh";
/// YARN with jobs on it.
const ENGINES: &str = "tests/hadoop/on-yarn.sh";
/// Localized storage nodes with hosts as network namespaces: readers and jobs, while a storage node dies.
const SUB_RACKS: &str = "tests/hadoop/sub-racks.sh";
/// Builds the connector's jar.
const JAR: &str = "tests/hadoop/jar.sh";
/// The connector on another kind of processor, in an emulator.
const AARCH64: &str = "tests/hadoop/aarch64.sh";
/// The exit code of a script that did not run, and says why: no JDK can be had.
const SKIPPED: i32 = 77;

/// What CI runs: all contract suites, and short jobs of MapReduce.
pub fn run_short() -> Vec<Failure> {
    run_steps(&[(CONTRACTS, &[]), (JAR, &[]), (ENGINES, &["mapreduce"])])
}

/// `contracts [VERSION...]`, `engines [OPTION...] [SUITE...]`, or everything. None: these words say neither.
pub fn run(words: &[&str]) -> Option<Vec<Failure>> {
    match words {
        ["contracts", versions @ ..] => Some(run_steps(&[(CONTRACTS, versions)])),
        ["engines", words @ ..] => Some(run_steps(&[(JAR, &[]), (ENGINES, words)])),
        // Nodes sleep on clusters with layouts of their own.
        [] => Some(run_steps(&[
            (CONTRACTS, &[]),
            (JAR, &[]),
            (ENGINES, &["mapreduce", "spark", "faults"]),
            (ENGINES, &["power"]),
            (ENGINES, &["decommission"]),
            (SUB_RACKS, &[]),
            (AARCH64, &[]),
        ])),
        _ => None,
    }
}

/// Every script, even after a failure: one run shows all that is wrong.
fn run_steps(scripts: &[(&str, &[&str])]) -> Vec<Failure> {
    if let Err(failure) = crate::programs::build() {
        return vec![failure];
    }
    let run = |(script, words): &(&str, &[&str])| {
        let words: Vec<&str> = [*script].iter().chain(*words).copied().collect();
        Step::program("hadoop", &words).skipped_by(SKIPPED).run().err()
    };
    scripts.iter().filter_map(run).collect()
}
