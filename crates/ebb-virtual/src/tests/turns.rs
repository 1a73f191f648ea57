//! Files that several clients write in turns, while the proxy and those who use it meet faults.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::cluster::good;
use crate::faults::kind::Kind;
use crate::swarm::{self, Next};
use crate::{ProxyUse, VirtualOptions};

/// What may befall the proxy, its users and what is between them.
const KINDS: &[Kind] = &[
    Kind::LostProxy,
    Kind::Partition,
    Kind::OneWay,
    Kind::Isolate,
    Kind::Freeze,
    Kind::Oversleep,
    Kind::Kill,
    Kind::PowerCut,
];

/// Goal: no promise is broken where the proxy is lost, cut off, frozen, and asked again. Method: many operations on few
/// files, and faults that are seen to hit them.
#[test]
fn files_used_in_turns_keep_their_promises() {
    let options = |seed| VirtualOptions {
        in_turns: true,
        faults: Some(KINDS.to_vec()),
        fault_pause: Duration::from_millis(1000),
        work_pause_max: Duration::from_millis(100),
        ..VirtualOptions::drawn(seed)
    };
    let mut all = ProxyUse::default();
    swarm::run_all(1000..1016, NonZeroUsize::MIN, options, |report| {
        good(&report);
        all = all.with(report.proxy);
        Next::GoOn
    });
    assert!(all.done > 2000 && all.repeated > 50 && all.moved > 50, "{all:?}");
    assert!(all.unknown > 5 && all.lost > 20, "{all:?}");
}
