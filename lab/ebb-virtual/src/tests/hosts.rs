//! Hosts that are a client's and a block server's at once.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::cluster::good;
use crate::VirtualOptions;
use crate::faults::kind::Kind;
use crate::swarm::{self, Next};

/// Goal: promises to a client hold when its witness, the server whose descriptors it reads by, and one copy of each of
/// its files end in the same moment as it does. Method: clients on hosts of block servers. The power of these hosts
/// fails, they are cut off, and one of their processes is killed or frozen.
#[test]
fn hosts_with_two_roles_that_fail_as_one_keep_every_promise() {
    let options = |seed| VirtualOptions {
        shares_hosts: true,
        names: true,
        faults: Some(vec![Kind::Host, Kind::Kill, Kind::Freeze, Kind::Isolate]),
        fault_pause: Duration::from_secs(2),
        chaos: Duration::from_secs(30),
        ..VirtualOptions::drawn(seed)
    };
    let (mut hosts, mut short, mut firm) = (0, 0, 0);
    swarm::run_all(3000..3008, NonZeroUsize::MIN, options, |report| {
        good(&report);
        hosts += report.injected.get("host").copied().unwrap_or_default();
        short += report.short_circuit_reads;
        firm += report.firm;
        Next::GoOn
    });
    assert!(hosts > 8 && firm > 200, "{hosts} hosts failed, {firm} writes were synced");
    assert!(short > 20, "{short} reads by descriptors");
}
