//! The master's disk fails, and forgets.

use std::time::Duration;

use super::cluster::good;
use crate::faults::kind::Kind;
use crate::{VirtualOptions, run};

#[test]
fn errors_of_the_masters_disk_cost_nothing_that_was_acknowledged() {
    let options = VirtualOptions {
        faults: Some(vec![Kind::MasterError, Kind::MasterRot]),
        fault_pause: Duration::from_millis(1500),
        chaos: Duration::from_secs(30),
        ..VirtualOptions::default()
    };
    let (mut errors, mut flipped) = (0, 0);
    for seed in 0..4 {
        let report = run(seed, options.clone());
        good(&report);
        errors += report.injected.get("master error").copied().unwrap_or_default();
        flipped += report.injected.get("master rot").copied().unwrap_or_default();
    }
    assert!(errors > 5 && flipped > 5, "{errors} errors, {flipped} flipped bits");
}
