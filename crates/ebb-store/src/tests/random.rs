//! Random work with crashes against byte arrays.
//!
//! Goal: after a crash every replica is at a version that was sent, not below the version acknowledged as synced, with
//! exactly the bytes of that version. Method: writers send random changes to a few replicas at once, with random syncs,
//! reads and pauses; power fails at a random moment (or the volume is stopped); each version's bytes are remembered,
//! and the replica is compared with those of the version that it says it has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::virt::Dice;
use ebb_types::{CHUNK_SIZE, Epoch, Version};
use parking_lot::Mutex;

use super::rig::{Rig, act, bytes, data, id, in_reality, in_world};
use crate::{Change, Deletion, Volume, Write};

const LENGTH_MAX: u64 = 600_000;

/// The writes sent to a replica.
#[derive(Default)]
struct Sent {
    /// Bytes of each version, from the last one that was sure to be there.
    states: BTreeMap<Version, Vec<u8>>,
    last: Version,
    synced: Version,
}

impl Sent {
    fn bytes(&self, version: Version) -> Vec<u8> {
        self.states.get(&version).cloned().unwrap_or_default()
    }
}

type Shared = Arc<Mutex<Sent>>;

fn random_change(dice: &mut Dice, length: u64) -> Change {
    let salt = dice.below(256) as u8;
    let offset = match dice.below(4) {
        0 => length,
        1 => length.next_multiple_of(CHUNK_SIZE),
        2 => dice.below(length + 1) / CHUNK_SIZE * CHUNK_SIZE,
        _ => dice.below(length + 40_000),
    }
    .min(LENGTH_MAX);
    let len = match dice.below(5) {
        0 => 1 + dice.below(200),
        1 => CHUNK_SIZE * (1 + dice.below(3)),
        2 => 70_000 + dice.below(130_000),
        3 => CHUNK_SIZE * (5 + dice.below(6)),
        _ => 1 + dice.below(60_000),
    };
    match dice.below(10) {
        0 => Change::Truncate { length: dice.below(length + 50_000).min(LENGTH_MAX) },
        1 => Change::Punch { offset, len },
        2 => Change::Zero { offset, len },
        3 => Change::Allocate { offset, len },
        _ => data(offset, &bytes(len as usize, salt)),
    }
}

/// Sends changes until it is done or the process dies.
async fn write_some(rig: Rig, volume: Volume, raw: u64, sent: Shared, mut dice: Dice, epoch: Epoch) {
    let incarnation = volume.label().incarnation;
    for _ in 0..dice.between(1, 12) {
        let (change, predecessor, version) = {
            let mut sent = sent.lock();
            let predecessor = sent.last;
            let mut state = sent.bytes(predecessor);
            let change = random_change(&mut dice, state.len() as u64);
            act(&mut state, &change);
            let version = predecessor.successor(epoch);
            sent.states.insert(version, state);
            sent.last = version;
            (change, predecessor, version)
        };
        let sync = dice.chance(0.3);
        let write = Write { metablock: id(raw), incarnation, version, predecessor, change, authority: version.epoch };
        let progress = volume.write(&write, sync).await.unwrap();
        assert!(!sync || progress.synced >= version);
        match dice.below(8) {
            0 => {
                let (at, found) = volume.read_all(id(raw), version).await.unwrap();
                let mut sent = sent.lock();
                assert_eq!(found, sent.bytes(at));
                sent.synced = sent.synced.max(at);
            }
            1 => rig.runtime.sleep(dice.span(Duration::from_millis(3))).await,
            2 => assert!(volume.scrub(0).await.unwrap().corrupt.is_empty()),
            _ => {}
        }
        let mut sent = sent.lock();
        sent.synced = sent.synced.max(progress.synced);
    }
}

/// For each replica the volume must have exactly some version that was sent, and not below the synced one.
async fn check(volume: &Volume, all: &BTreeMap<u64, Shared>, epoch: Epoch) {
    let incarnation = volume.label().incarnation;
    for (raw, sent) in all {
        let (at, found) = volume.read_all(id(*raw), Version::ZERO).await.unwrap();
        {
            let mut sent = sent.lock();
            assert!(at >= sent.synced, "m{raw} is at {at}, {} was synced", sent.synced);
            assert!(at == Version::ZERO || sent.states.contains_key(&at), "m{raw} is at {at}, which was never sent");
            let expected = sent.bytes(at);
            assert_eq!(found.len(), expected.len(), "m{raw} at {at}");
            assert!(
                found == expected,
                "m{raw} at {at} differs at {:?}",
                found.iter().zip(&expected).position(|(a, b)| a != b)
            );
            sent.states.retain(|version, _| *version == at);
            (sent.last, sent.synced) = (at, at);
        }
        // The next writer has a new epoch: a seq once sent never carries other bytes.
        let reply = volume.promise(id(*raw), incarnation, epoch).await.unwrap();
        assert_eq!((reply.version, reply.length), (at, found.len() as u64));
    }
    assert!(volume.scrub(0).await.unwrap().corrupt.is_empty());
}

async fn rounds(mut rig: Rig, mut dice: Dice, count: u64) {
    rig.options.checkpoint_bytes = *dice.pick(&[300 << 10, 1 << 20, 8 << 20]);
    rig.options.unplaced_bytes_max = *dice.pick(&[256 << 10, 4 << 20]);
    rig.options.open_files_max = *dice.pick(&[1, 2, 100]);
    rig.options.sync_each_max = *dice.pick(&[0, 1, 1000]);
    let all: BTreeMap<u64, Shared> = [1, 2, 3, 0x101].into_iter().map(|raw| (raw, Shared::default())).collect();
    for round in 1..=count {
        let epoch = Epoch::new(round);
        let volume = rig.open().await.unwrap();
        check(&volume, &all, epoch).await;
        if dice.chance(0.2) {
            let raw = *dice.pick(&[1, 2, 3, 0x101]);
            let life = volume.describe(id(raw)).await.unwrap().map(|found| found.life);
            volume.delete(&[Deletion { metablock: id(raw), epoch: Some(epoch), life }]).await.unwrap();
            *all[&raw].lock() = Sent::default();
        }
        let tasks: Vec<_> = all
            .iter()
            .map(|(raw, sent)| {
                let dice = Dice::new(dice.bits(), "writer");
                rig.runtime.spawn("writer", write_some(rig.clone(), volume.clone(), *raw, sent.clone(), dice, epoch))
            })
            .collect();
        match dice.below(4) {
            0 => {
                for task in tasks {
                    task.join().await.unwrap();
                }
                volume.stop().await.unwrap();
                drop(volume);
                if dice.coin() {
                    rig.crash();
                }
            }
            ended => {
                let span = dice.span(Duration::from_millis(if ended == 1 { 300 } else { 30 }));
                rig.runtime.sleep(span).await;
                tasks.iter().for_each(ebb_runtime::Task::abort);
                drop(volume);
                rig.crash();
                drop(tasks);
            }
        }
    }
    let volume = rig.open().await.unwrap();
    check(&volume, &all, Epoch::new(count + 1)).await;
}

#[test]
fn nothing_synced_is_lost_or_torn_by_power_failures() {
    for seed in 0..60 {
        in_world(seed, |rig| {
            let dice = Dice::new(seed, "driver");
            async move { rounds(rig, dice, 6).await }
        });
    }
}

#[test]
fn nothing_is_lost_on_a_real_disk() {
    for seed in 0..4 {
        in_reality(|rig| async move { rounds(rig, Dice::new(seed, "driver"), 4).await });
    }
}
