//! Clients on several mounts read and write shared registers while a block server freezes and thaws: every history
//! must be linearizable.
//!
//! Each value is written once, so that checking takes n log n: the operations of a value span a *zone*, and a history
//! of a register is linearizable exactly if no read ends before its write begins, no two forward zones overlap and no
//! backward zone lies within a forward one (Gibbons and Korach, "Testing Shared Memories", SIAM J. Comput. 1997;
//! zones after Golab, Li and Shah, PODC 2011).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Cluster, Dice, Signal, signal};
use crate::watch::StopAtEnd;

/// One operation on a register: it wrote or read `value` between two moments.
#[derive(Clone, Copy, Debug)]
struct Operation {
    wrote: bool,
    value: u64,
    begin: u128,
    end: u128,
}

/// All operations of one value.
#[derive(Clone, Copy, Debug)]
struct Zone {
    /// Latest begin.
    last_begin: u128,
    /// Earliest end.
    first_end: u128,
    /// When its write began.
    written: u128,
}

/// The violation in the history of one register that held 0 at first; none: it is linearizable.
fn violation(history: &[Operation]) -> Option<String> {
    let mut zones = BTreeMap::from([(0, Zone { last_begin: 0, first_end: 0, written: 0 })]);
    for write in history.iter().filter(|operation| operation.wrote) {
        let zone = Zone { last_begin: write.begin, first_end: write.end, written: write.begin };
        if zones.insert(write.value, zone).is_some() {
            return Some(format!("{} was written twice: the test is wrong", write.value));
        }
    }
    for read in history.iter().filter(|operation| !operation.wrote) {
        let Some(zone) = zones.get_mut(&read.value) else {
            return Some(format!("{} was read and never written", read.value));
        };
        if read.end < zone.written {
            return Some(format!("{} was read before its write began", read.value));
        }
        zone.last_begin = zone.last_begin.max(read.begin);
        zone.first_end = zone.first_end.min(read.end);
    }
    // Forward: something of the value ended before something else of it began; the register held it in between.
    let (mut forward, backward): (Vec<_>, Vec<_>) =
        zones.iter().partition(|(_, zone)| zone.first_end < zone.last_begin);
    forward.sort_by_key(|(_, zone)| zone.first_end);
    for pair in forward.windows(2) {
        if pair[1].1.first_end < pair[0].1.last_begin {
            return Some(format!("{} was seen after {} had been seen, and then again", pair[0].0, pair[1].0));
        }
    }
    for (value, zone) in backward {
        let index = forward.partition_point(|(_, other)| other.first_end < zone.last_begin);
        if let Some((holder, other)) = index.checked_sub(1).and_then(|index| forward.get(index))
            && zone.first_end < other.last_begin
        {
            return Some(format!("{value} came and went while the register held {holder}"));
        }
    }
    None
}

const REGISTERS: usize = 4;
const CLIENTS: usize = 5;
const MOUNTS: usize = 3;

fn client(number: usize, path: &Path, epoch: Instant, next: &AtomicU64, stop: &AtomicBool) -> Vec<(usize, Operation)> {
    let mut dice = Dice::new(number as u64 + 1);
    let files: Vec<File> = (0..REGISTERS)
        .map(|register| OpenOptions::new().read(true).write(true).open(path.join(format!("r{register}"))).unwrap())
        .collect();
    let mut done = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let register = dice.below(REGISTERS as u64) as usize;
        let wrote = dice.below(3) == 0;
        let begin = epoch.elapsed().as_nanos();
        let value = if wrote {
            let value = next.fetch_add(1, Ordering::Relaxed);
            files[register].write_all_at(&value.to_le_bytes(), 0).unwrap();
            value
        } else {
            let mut bytes = [0; 8];
            files[register].read_exact_at(&mut bytes, 0).unwrap();
            u64::from_le_bytes(bytes)
        };
        done.push((register, Operation { wrote, value, begin, end: epoch.elapsed().as_nanos() }));
    }
    done
}

#[test]
fn histories_of_shared_registers_are_linearizable_while_a_server_freezes() {
    let cluster = Cluster::up(4);
    let mounts: Vec<_> = (0..MOUNTS).map(|index| cluster.mount_as(&format!("m{index}"), "client")).collect();
    for register in 0..REGISTERS {
        std::fs::write(mounts[0].join(format!("r{register}")), 0_u64.to_le_bytes()).unwrap();
    }
    let (epoch, next, stop) = (Instant::now(), AtomicU64::new(1), AtomicBool::new(false));
    let mut histories: Vec<Vec<Operation>> = vec![Vec::new(); REGISTERS];
    std::thread::scope(|scope| {
        let end = StopAtEnd(&stop);
        let running: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (mount, next, stop) = (&mounts[number % MOUNTS], &next, &stop);
                scope.spawn(move || client(number, mount, epoch, next, stop))
            })
            .collect();
        let frozen = cluster.pid("block", "h2");
        for (frozen_ms, thawed_ms) in [(500, 1000), (4000, 1500)] {
            std::thread::sleep(Duration::from_millis(1000));
            signal(frozen, Signal::STOP);
            std::thread::sleep(Duration::from_millis(frozen_ms));
            signal(frozen, Signal::CONT);
            std::thread::sleep(Duration::from_millis(thawed_ms));
        }
        drop(end);
        for handle in running {
            handle.join().unwrap().into_iter().for_each(|(register, operation)| histories[register].push(operation));
        }
    });
    for (register, history) in histories.iter().enumerate() {
        assert!(history.len() > 20, "register {register}: {} operations show little", history.len());
        assert_eq!(violation(history), None, "register {register}, {} operations", history.len());
    }
    cluster.healthy();
}

fn operation(wrote: bool, value: u64, begin: u128, end: u128) -> Operation {
    Operation { wrote, value, begin, end }
}

#[test]
fn the_checker_tells_good_histories_from_bad() {
    let (write, read) = (|v, b, e| operation(true, v, b, e), |v, b, e| operation(false, v, b, e));
    assert_eq!(violation(&[read(0, 1, 2), write(1, 3, 4), read(1, 5, 6)]), None);
    // Overlapping ones may be ordered either way.
    assert_eq!(violation(&[write(1, 1, 10), read(0, 2, 3), read(1, 4, 5), write(2, 6, 7), read(2, 8, 9)]), None);
    let bad = [
        ("stale", vec![write(1, 1, 2), read(0, 3, 4)]),
        ("goes back", vec![write(1, 1, 10), read(1, 2, 3), read(0, 4, 5)]),
        ("from the future", vec![read(1, 1, 2), write(1, 3, 4)]),
        ("lost write", vec![write(1, 1, 2), write(2, 3, 4), read(1, 5, 6)]),
        ("made up", vec![read(7, 1, 2)]),
    ];
    for (name, history) in bad {
        assert!(violation(&history).is_some(), "{name} was not noticed");
    }
}
