//! Cluster after cluster until the time is over, or until ctrl-C.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::Lab;

#[test]
fn a_soak_goes_on_until_its_time_is_over() {
    let report = Lab::new().json(&["soak", "--time", "1s", "--first", "4"]);
    let passed = report["passed"].as_u64().unwrap();
    assert!(passed >= 1 && report["failed"] == 0, "{report}");
    assert!(report["first"] == 4 && report["seconds"].as_f64().unwrap() >= 1.0, "{report}");
    assert!(report["writes"].as_u64().unwrap() > passed, "{report}");

    let refused = Lab::new().run(&["soak", "--time", "0s"]);
    assert!(refused.code == 2 && refused.err.contains("takes some time"), "{}", refused.err);
}

#[test]
fn ctrl_c_ends_a_soak_with_its_results() {
    let lab = Lab::new();
    let mut command = lab.command(&["soak", "--time", "8h", "--first", "0"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // It listens for the signal before it prints this line.
    assert!(lines.next().unwrap().starts_with("from seed 0 on, 8h, 1 at a time"));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let last = lines.last().unwrap();
    assert!(child.wait().unwrap().success() && last.contains(" 1 seeds passed, 0 failed; "), "{last}");
}
