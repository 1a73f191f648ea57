//! `ebb lab soak`: cluster after cluster until the time is over, or until ctrl-C.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::harness::{Cluster, Signal, signal};

#[test]
fn a_soak_goes_on_until_its_time_is_over() {
    let told = Cluster::none().json(&["lab", "soak", "--time", "1s", "--first", "4"]);
    let passed = told["passed"].as_u64().unwrap();
    assert!(passed >= 1 && told["failed"] == 0, "{told}");
    assert!(told["first"] == 4 && told["seconds"].as_f64().unwrap() >= 1.0, "{told}");
    assert!(told["writes"].as_u64().unwrap() > passed, "{told}");

    let refused = Cluster::none().ebb(&["lab", "soak", "--time", "0s"]);
    assert!(refused.code == 2 && refused.err.contains("takes some time"), "{}", refused.err);
}

#[test]
fn ctrl_c_ends_a_soak_with_what_it_found() {
    let arguments = ["lab", "soak", "--time", "8h", "--first", "0"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_ebb")).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // It listens before it says so.
    assert!(lines.next().unwrap().starts_with("from seed 0 on, 8h, 1 at a time"));
    signal(child.id(), Signal::INT);
    let last = lines.last().unwrap();
    assert!(child.wait().unwrap().success() && last.contains(" 1 seeds passed, 0 failed; "), "{last}");
}
