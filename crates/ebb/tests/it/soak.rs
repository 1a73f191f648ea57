//! `ebb lab soak`: cluster after cluster until the time is over, or until ctrl-C.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::Cluster;

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
    let arguments = ["lab", "soak", "--time", "8h", "--first", "0", "--json"];
    let child = Command::new(env!("CARGO_BIN_EXE_ebb")).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    // Long enough for it to listen, and nothing depends on how far it comes meanwhile.
    std::thread::sleep(Duration::from_secs(2));
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success() && told["failed"] == 0 && told["passed"].as_u64().unwrap() >= 1, "{told}");
}
