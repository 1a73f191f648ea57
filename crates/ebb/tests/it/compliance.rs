//! What a cluster of real processes draws when its power falls to a fifth and returns, and what its users notice.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Signal, signal};
use crate::power::{frozen, up, wait_plan};

const POLICY: &str = "blink-circular";

/// Goal: what nodes draw after a cut of the power is seen by their processes, and the cluster is left as it was. Method:
/// one policy on a cluster that follows another one, under a supply that the operator has set.
#[test]
fn compliance_is_measured_and_the_cluster_left_as_it_was() {
    let cluster = up("tide");
    wait_plan(&cluster, "the first status", |_| true);
    cluster.ok(&["power", "set", "--watts", "200"]);
    let out = cluster.path("figures");
    let shown = cluster.ebb(&["lab", "compliance", "--policy", POLICY, "--json", "--out", out.to_str().unwrap()]);
    let seen: Value = serde_json::from_str(&shown.out).unwrap_or_else(|_| panic!("{}{}", shown.out, shown.err));
    let rows = seen["rows"].as_array().unwrap();
    let clusters: Vec<&str> = rows.iter().map(|row| row["cluster"].as_str().unwrap()).collect();
    assert_eq!(clusters, ["real", "virtual"]);
    for row in rows {
        assert!(row["policy"] == POLICY && row["failed"] == 0 && row["requests"].as_u64() > Some(0), "{row}");
        // Nodes were on when the power was cut, slept after it, and have come back.
        assert!(row["over_joules"].as_f64() > Some(0.0) && row["mean_within_s"].is_number(), "{row}");
        assert!(row["missing_joules"] == 0.0 && row["all_serving_s"].as_f64() > Some(0.0), "{row}");
    }
    // How long a busy machine takes to freeze a node is not for this test to say.
    assert_eq!(shown.code == 0, seen["broken"] == json!([]), "{seen}");
    assert!(std::fs::read_dir(&out).unwrap().count() >= 7, "five figures, the numbers and the page");
    let is_as_before = |status: &Value| {
        status["policy"] == "tide" && status["budget_watts"] == 200.0 && status["source"] == "operator"
    };
    assert_ne!(cluster.ebb(&["fs", "ls", "/lab-compliance"]).code, 0, "the files that it read are gone");
    wait_plan(&cluster, "the policy and the power of before", is_as_before);

    // So it is after a ctrl-C in the middle.
    let mut lab = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(["lab", "compliance", "--policy", POLICY])
        .env("EBB_DIR", cluster.dir())
        .spawn()
        .unwrap();
    wait_plan(&cluster, "the low power", |status| status["budget_watts"] == 85.0 && frozen(status) > 0);
    signal(lab.id(), Signal::INT);
    assert_eq!(lab.wait().unwrap().code(), Some(130));
    wait_plan(&cluster, "the policy and the power of before", is_as_before);
    assert_ne!(cluster.ebb(&["fs", "ls", "/lab-compliance"]).code, 0, "the files that it read are gone");
}
