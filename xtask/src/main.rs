//! `cargo xtask`: the programs that people and CI run on the workspace, in Rust instead of shell, with std alone.
//!
//! | command | does | writes |
//! |---|---|---|
//! | `verify` | format check, clippy, tidy, tests, docs | nothing in the tree |
//! | `fix` | format, clippy's own repairs | sources |
//! | `tidy` | checks that compilers do not make: the map, dependency arrows, invariants, links, words | nothing |
//! | `bench` | measures a cluster's mount and its parts, beside references of the same run | scratch files in the target directory |
//! | `software` | databases, git, builds and other programs on a real mount and on the host (`tests/software`) | Debian's packages |
//! | `powercut` | cuts the power of nodes and of the master on loop-mounted file systems while programs write; reads acknowledged data back | the target directory, loop devices |
//! | `upgrade --from PROGRAM` | exchanges the processes of a cluster, one by one, for those of another build and back | the target directory |
//! | `hadoop` | the Hadoop connector's contract suites, and jobs of MapReduce and Spark on a real YARN (`tests/hadoop`) | Maven's and pip's caches |
//! | `ci` | `verify`, then the suites on a real mount (`tests/posix/*.sh`), a selection of `software`, five power cuts, short forms of `hadoop` | the target directory |
//!
//! Exit codes: 0 good, 1 something was found, 2 usage.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program outside the product: it works on the machine itself"
)]

mod bench;
mod ci;
mod failure;
mod fix;
mod hadoop;
mod interrupt;
mod powercut;
mod programs;
mod software;
mod step;
mod tidy;
mod tree;
mod upgrade;
mod verify;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask verify | fix | tidy | bench [--raid [--program EBB]] [--json] [--quick] [NAME] | software [SUITE...] | \
     powercut [--short | --cuts N] [--on xfs|ext4] [--redundancy copies|K+M] [--seed N] | upgrade --from PROGRAM | \
     hadoop [contracts [VERSION...] | engines [OPTION...] [SUITE...]] | ci";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let failures = match words[..] {
        ["verify"] => verify::run(),
        ["fix"] => fix::run(),
        ["tidy"] => tidy::run().err().into_iter().collect(),
        ["bench", ref words @ ..] => match bench::run(words) {
            Some(true) => Vec::new(),
            Some(false) => return ExitCode::FAILURE,
            None => return wrong(),
        },
        ["software", ref suites @ ..] => software::run(suites).err().into_iter().collect(),
        ["powercut", ref words @ ..] => match powercut::run(words) {
            Some(outcome) => outcome.err().into_iter().collect(),
            None => return wrong(),
        },
        ["upgrade", "--from", program] => upgrade::run(program).err().into_iter().collect(),
        ["hadoop", ref words @ ..] => match hadoop::run(words) {
            Some(failures) => failures,
            None => return wrong(),
        },
        ["ci"] => ci::run(),
        _ => return wrong(),
    };
    if failure::close(&failures) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn wrong() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
