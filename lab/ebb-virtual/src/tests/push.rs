//! What a program has pushed outlives it: a client dies, and every server goes on.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, ClientOptions, NewFile};
use ebb_power::PolicyKind;
use ebb_rpc::Counters;
use ebb_runtime::SeededBug;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, InodeId};

use crate::power::PowerCluster;

const INTERVAL: Duration = Duration::from_secs(2);
/// A dead client's session ends, and its files are recovered.
const WITHIN: Duration = Duration::from_secs(60);

/// What a client does before it dies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// It pushes, and dies at once.
    Push,
    /// It closes the file as a job does, and dies while its lease goes back, or a little later.
    Close,
}

/// Bytes of a file that was written in pieces of any length and left by a client that died; beside them what another client reads then.
fn left_by_a_dead_client(seed: u64, policy: PolicyKind, last: Last, bug: Option<SeededBug>) -> (Vec<u8>, Vec<u8>) {
    World::run(seed, WorldOptions { bug, ..WorldOptions::default() }, move |world| async move {
        let mut dice = world.dice("pieces");
        let cluster = PowerCluster::start(&world, 6, policy, INTERVAL).await.unwrap();
        if policy != PolicyKind::AlwaysOn {
            cluster.set_fraction(0.6).await.unwrap();
            world.sleep(INTERVAL * 3).await;
        }
        let root = Credentials::root();
        let change = |options: &mut ClientOptions| options.keep_leases = last == Last::Push;
        let writer = cluster.session_with(&world.process("writer"), Counters::default(), change).await.unwrap();
        let new = NewFile::exclusive(InodeId::ROOT, b"left", Access::ReadWrite);
        let made = writer.create(&root, new).await.unwrap();
        let mut expected = Vec::new();
        for round in 0..dice.between(1, 4) {
            let length = *dice.pick(&[1, 4_000, 70_000, 1_500_000]);
            let piece: Vec<u8> = (0..length).map(|at: u64| (at * 7 + round * 31 + seed) as u8).collect();
            let at = dice.index(expected.len() + 1);
            expected.resize(expected.len().max(at + piece.len()), 0);
            expected[at..at + piece.len()].copy_from_slice(&piece);
            writer.write(made.handle, at as u64, Bytes::from(piece)).await.unwrap();
        }
        match last {
            Last::Push => writer.push(made.handle).await.unwrap(),
            Last::Close => {
                writer.push_and_close(made.handle).await.unwrap();
                world.sleep(dice.span(Duration::from_millis(20))).await;
            }
        }
        world.process("writer").kill();

        let reader = cluster.connect("reader").await.unwrap();
        let begun = world.now();
        let (handle, _) = reader.open(&root, made.attr.inode, Access::Read).await.unwrap();
        let found = reader.read(handle, 0, 8 << 20).await.unwrap();
        assert!(world.now() - begun < WITHIN, "seed {seed}: {:?}", world.now() - begun);
        reader.close(handle).await;
        reader.disconnect().await.unwrap();
        (expected, found.to_vec())
    })
}

#[test]
fn what_was_pushed_outlives_its_client() {
    for seed in 0..12 {
        let (expected, found) = left_by_a_dead_client(seed, PolicyKind::AlwaysOn, Last::Push, None);
        assert!(expected == found, "seed {seed}: {} bytes of {}", found.len(), expected.len());
    }
}

#[test]
fn what_was_closed_outlives_its_client() {
    for seed in 40..60 {
        let policy = if seed % 2 == 0 { PolicyKind::AlwaysOn } else { PolicyKind::BlinkCircular };
        let (expected, found) = left_by_a_dead_client(seed, policy, Last::Close, None);
        assert!(expected == found, "seed {seed}: {} bytes of {}", found.len(), expected.len());
    }
}

/// Members that sleep have it in logs.
#[test]
fn what_was_pushed_while_members_sleep_outlives_its_client() {
    for seed in 20..28 {
        let (expected, found) = left_by_a_dead_client(seed, PolicyKind::BlinkCircular, Last::Push, None);
        assert!(expected == found, "seed {seed}: {} bytes of {}", found.len(), expected.len());
    }
}

#[test]
fn a_push_that_waits_for_nothing_is_found() {
    let is_found = |seed| {
        let (expected, found) =
            left_by_a_dead_client(seed, PolicyKind::AlwaysOn, Last::Push, Some(SeededBug::ForgetPush));
        expected != found
    };
    assert!((0..12).any(is_found), "no seed finds it");
}
