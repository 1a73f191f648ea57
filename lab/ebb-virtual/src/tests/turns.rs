//! Files that several clients write in turns, while the proxy and its users meet faults.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::Duration;

use ebb_runtime::SeededBug;

use super::cluster::good;
use crate::faults::kind::Kind;
use crate::swarm::{self, Next};
use crate::{ProxyUse, VirtualOptions};

/// Faults of the proxy, its users and the links between. The proxy's loss is drawn more often than others: a file comes
/// to the proxy only where clients get on with their work, so a swarm of all kinds alike seldom finds one there.
const KINDS: &[Kind] = &[
    Kind::LostProxy,
    Kind::LostProxy,
    Kind::LostProxy,
    Kind::Partition,
    Kind::OneWay,
    Kind::Isolate,
    Kind::Freeze,
    Kind::Oversleep,
    Kind::Kill,
    Kind::PowerCut,
];

const SEEDS: Range<u64> = 1000..1012;

/// Of runs in which proxies are processes of their own.
const SEEDS_APART: Range<u64> = 1100..1106;

/// Goal: no promise is broken where the proxy is lost, cut off, frozen, and asked again. Method: many operations on few
/// files, and faults that are seen to hit them: in half of the seeds a client finds its stay lost, and over all of them each
/// fate of an operation is met.
#[test]
fn files_used_in_turns_keep_their_promises() {
    let options = |seed| VirtualOptions {
        in_turns: true,
        faults: Some(KINDS.to_vec()),
        fault_pause: Duration::from_secs(2),
        work_pause_max: Duration::from_millis(80),
        chaos: Duration::from_secs(40),
        ..VirtualOptions::drawn(seed)
    };
    let mut each = Vec::new();
    swarm::run_all(SEEDS, NonZeroUsize::MIN, options, |report| {
        good(&report);
        each.push(report.proxy);
        Next::GoOn
    });
    let seeds_with = |met: fn(&ProxyUse) -> bool| each.iter().filter(|seed| met(seed)).count();
    let most = each.len() / 2;
    assert!(seeds_with(|seed| seed.done > 0) >= most, "files come to the proxy: {each:?}");
    assert!(seeds_with(|seed| seed.lost > 0) >= most, "stays are lost: {each:?}");
    assert!(seeds_with(|seed| seed.repeated > 0) >= most, "operations are sent again: {each:?}");
    assert!(seeds_with(|seed| seed.moved > 0) >= most, "operations find their file elsewhere: {each:?}");
    assert!(seeds_with(|seed| seed.direct > 0) >= each.len() / 3, "bytes go to the members: {each:?}");
    assert!(seeds_with(|seed| seed.unknown > 0) > 0, "no operation has an unknown result: {each:?}");
}

/// Goal: a reader that sees one half of a write is found. Method: a proxy that gives a direct write's metablocks their
/// versions one after the other, lets others in between, and clients that meet at the edge.
#[test]
fn direct_writes_that_are_made_by_halves_are_found() {
    let options = |seed| VirtualOptions {
        in_turns: true,
        direct_bytes_min: 1,
        fault_pause: Duration::ZERO,
        work_pause_max: Duration::from_millis(40),
        bug: Some(SeededBug::DirectHalves),
        ..VirtualOptions::drawn(seed)
    };
    let mut broken = Vec::new();
    swarm::run_all(0..20, NonZeroUsize::MIN, options, |report| {
        broken.extend(report.violations.iter().map(|violation| violation.invariant));
        if broken.contains(&"whole") { Next::Stop } else { Next::GoOn }
    });
    assert!(broken.contains(&"whole"), "{broken:?}");
}

/// Goal: the same where files are dealt to several proxies, each a process that is killed, cut off and frozen by
/// itself. A proxy that is declared dead and lives on does nothing. A proxy that has not heard of a session's end does
/// not serve that session.
#[test]
fn files_that_are_dealt_to_several_proxies_keep_their_promises() {
    let options = |seed| VirtualOptions {
        proxies: 2,
        in_turns: true,
        faults: Some(KINDS.to_vec()),
        fault_pause: Duration::from_secs(3),
        work_pause_max: Duration::from_millis(80),
        chaos: Duration::from_secs(40),
        ..VirtualOptions::drawn(seed)
    };
    let mut each = Vec::new();
    swarm::run_all(SEEDS_APART, NonZeroUsize::MIN, options, |report| {
        good(&report);
        each.push(report.proxy);
        Next::GoOn
    });
    let seeds_with = |met: fn(&ProxyUse) -> bool| each.iter().filter(|seed| met(seed)).count();
    assert!(seeds_with(|seed| seed.done > 0) >= each.len() * 2 / 3, "files come to a proxy: {each:?}");
    assert!(seeds_with(|seed| seed.lost > 0) > 0, "stays are lost: {each:?}");
}
