//! Locks, rule by rule; `lock_model.rs` compares them with a plain model.

use ebb_types::{ErrorKind as E, InodeId, SessionId};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{ROOT, World, flock, range};
use crate::Effect;

const SHARED: u32 = 1;
const EXCLUSIVE: u32 = 2;
const UNLOCK: u32 = 0;

fn files(world: &mut World) -> (u64, u64) {
    (world.mkfile(ROOT, "a", 0o644).unwrap(), world.mkfile(ROOT, "b", 0o644).unwrap())
}

fn test(world: &World, inode: u64, lock: pb::FileLock) -> Option<(u64, u64, u64, u32)> {
    let reply = world.ask(Op::TestLock(meta_op::TestLock { inode, lock: Some(lock) })).unwrap();
    reply.lock.map(|lock| (lock.owner, lock.start, lock.end, lock.kind))
}

fn cancel(world: &mut World, inode: u64, lock: pb::FileLock) -> bool {
    world.run(Op::SetLock(meta_op::SetLock { inode, lock: Some(lock), wait: false, cancel: true })).unwrap().queued
}

fn granted(world: &World) -> Vec<(u64, u64, bool)> {
    let over = |effect: &Effect| match effect {
        Effect::LockGranted { inode, owner, deadlock, .. } => Some((inode.raw(), *owner, *deadlock)),
        _ => None,
    };
    world.effects.iter().filter_map(over).collect()
}

#[test]
fn ranges_split_merge_and_change_kind() {
    let mut world = World::new();
    let (a, _) = files(&mut world);
    world.lock(a, range(SHARED, 1, 0, 9), false).unwrap();
    world.lock(a, range(SHARED, 1, 20, 29), false).unwrap();
    world.lock(a, range(SHARED, 1, 10, 19), false).unwrap();
    assert_eq!(test(&world, a, range(EXCLUSIVE, 2, 0, 100)), Some((1, 0, 29, SHARED)), "neighbours are one");
    world.lock(a, range(EXCLUSIVE, 1, 5, 6), false).unwrap();
    assert_eq!(test(&world, a, range(SHARED, 2, 0, 100)), Some((1, 5, 6, EXCLUSIVE)));
    assert_eq!(test(&world, a, range(EXCLUSIVE, 2, 7, 7)), Some((1, 7, 29, SHARED)));
    world.lock(a, range(UNLOCK, 1, 8, 12), false).unwrap();
    assert_eq!(test(&world, a, range(EXCLUSIVE, 2, 7, 100)), Some((1, 7, 7, SHARED)));
    assert_eq!(test(&world, a, range(EXCLUSIVE, 2, 8, 12)), None);
    world.lock(a, range(UNLOCK, 1, 0, u64::MAX), false).unwrap();
    assert_eq!(test(&world, a, range(EXCLUSIVE, 2, 0, u64::MAX)), None);
}

#[test]
fn the_ends_of_the_range_are_safe() {
    let mut world = World::new();
    let (a, _) = files(&mut world);
    world.lock(a, range(SHARED, 1, u64::MAX, u64::MAX), false).unwrap();
    world.lock(a, range(SHARED, 1, 0, 0), false).unwrap();
    world.lock(a, range(SHARED, 1, 0, u64::MAX), false).unwrap();
    world.lock(a, range(UNLOCK, 1, 1, u64::MAX - 1), false).unwrap();
    assert_eq!(test(&world, a, range(EXCLUSIVE, 2, 1, u64::MAX)), Some((1, u64::MAX, u64::MAX, SHARED)));
    assert_eq!(world.lock(a, range(SHARED, 1, 5, 4), false).unwrap_err(), E::Invalid);
    assert_eq!(world.lock(a, range(3, 1, 4, 5), false).unwrap_err(), E::Invalid);
    assert_eq!(world.lock(999, range(SHARED, 1, 4, 5), false).unwrap_err(), E::Stale);
}

#[test]
fn shared_locks_meet_and_exclusive_ones_do_not() {
    let mut world = World::new();
    let (a, b) = files(&mut world);
    world.lock(a, range(SHARED, 1, 0, 9), false).unwrap();
    world.lock(a, range(SHARED, 2, 5, 15), false).unwrap();
    assert_eq!(world.lock(a, range(EXCLUSIVE, 2, 5, 15), false).unwrap_err(), E::WouldBlock);
    world.lock(a, range(EXCLUSIVE, 2, 10, 15), false).unwrap();
    assert_eq!(world.lock(a, range(SHARED, 1, 0, 10), false).unwrap_err(), E::WouldBlock);
    world.lock(b, range(EXCLUSIVE, 1, 0, 10), false).unwrap();
    // The two kinds of locks do not know of each other.
    world.lock(a, flock(EXCLUSIVE, 3), false).unwrap();
    // The same owner number in another session is another owner.
    world.session = world.open_session();
    world.request = 0;
    assert_eq!(world.lock(b, range(SHARED, 1, 0, 10), false).unwrap_err(), E::WouldBlock);
}

#[test]
fn waiters_get_it_in_order_as_soon_as_they_can() {
    let mut world = World::new();
    let (a, _) = files(&mut world);
    world.lock(a, range(EXCLUSIVE, 1, 0, 9), false).unwrap();
    assert!(world.lock(a, range(EXCLUSIVE, 2, 0, 4), true).unwrap().queued);
    assert!(world.lock(a, range(SHARED, 3, 0, 9), true).unwrap().queued);
    assert!(world.lock(a, range(SHARED, 4, 5, 9), true).unwrap().queued);
    assert!(granted(&world).is_empty());
    world.lock(a, range(UNLOCK, 1, 0, 9), false).unwrap();
    assert_eq!(granted(&world), [(a, 2, false), (a, 4, false)]);
    world.lock(a, range(SHARED, 2, 0, 4), false).unwrap();
    assert_eq!(granted(&world), [(a, 3, false)], "an exclusive lock that becomes shared lets others in");
}

#[test]
fn a_wait_is_taken_back_by_its_range_and_nothing_held_is_lost() {
    let mut world = World::new();
    let (a, _) = files(&mut world);
    world.lock(a, range(SHARED, 1, 0, 9), false).unwrap();
    world.lock(a, range(SHARED, 2, 0, 9), false).unwrap();
    assert!(world.lock(a, range(EXCLUSIVE, 1, 0, 9), true).unwrap().queued);
    world.lock(a, range(UNLOCK, 1, 50, 60), false).unwrap();
    assert!(!cancel(&mut world, a, range(EXCLUSIVE, 1, 0, 8)));
    assert!(cancel(&mut world, a, range(EXCLUSIVE, 1, 0, 9)));
    assert!(!cancel(&mut world, a, range(EXCLUSIVE, 1, 0, 9)));
    world.lock(a, range(UNLOCK, 2, 0, 9), false).unwrap();
    assert!(granted(&world).is_empty());
    assert_eq!(test(&world, a, range(EXCLUSIVE, 3, 0, 9)), Some((1, 0, 9, SHARED)));
    assert!(!cancel(&mut world, a, range(UNLOCK, 7, 0, 9)));
}

#[test]
fn circles_of_waiters_are_refused_across_files_and_sessions() {
    let mut world = World::new();
    let (a, b) = files(&mut world);
    let first = world.session;
    world.lock(a, range(EXCLUSIVE, 1, 0, 9), false).unwrap();
    world.session = world.open_session();
    world.request = 0;
    world.lock(b, range(EXCLUSIVE, 1, 0, 9), false).unwrap();
    world.lock(b, range(EXCLUSIVE, 3, 20, 29), false).unwrap();
    assert!(world.lock(a, range(SHARED, 1, 5, 5), true).unwrap().queued);
    let second = std::mem::replace(&mut world.session, first);
    world.request = 100;
    assert_eq!(world.lock(b, range(SHARED, 1, 0, 0), true).unwrap_err(), E::Deadlock);
    assert_eq!(world.lock(b, range(SHARED, 1, 0, 0), false).unwrap_err(), E::WouldBlock);
    assert!(world.lock(b, range(SHARED, 1, 20, 20), true).unwrap().queued, "owner 3 waits for nobody");
    // Three in a circle: 2.3 -> 1.1 would close it, for 1.1 waits for 2.3.
    world.session = second;
    world.request = 100;
    assert_eq!(world.lock(a, range(SHARED, 3, 0, 0), true).unwrap_err(), E::Deadlock);
    world.lock(b, range(UNLOCK, 3, 0, 100), false).unwrap();
    assert_eq!(granted(&world), [(b, 1, false)]);
}

#[test]
fn two_who_wish_to_upgrade_are_a_circle() {
    let mut world = World::new();
    let (a, _) = files(&mut world);
    world.lock(a, range(SHARED, 1, 0, 9), false).unwrap();
    world.lock(a, range(SHARED, 2, 0, 9), false).unwrap();
    assert!(world.lock(a, range(EXCLUSIVE, 1, 0, 9), true).unwrap().queued);
    assert_eq!(world.lock(a, range(EXCLUSIVE, 2, 0, 9), true).unwrap_err(), E::Deadlock);
    world.lock(a, range(UNLOCK, 2, 0, 9), false).unwrap();
    assert_eq!(granted(&world), [(a, 1, false)]);
}

#[test]
fn whole_file_locks_give_up_while_they_wait_to_change() {
    let mut world = World::new();
    let (a, _) = files(&mut world);
    world.lock(a, flock(SHARED, 1), false).unwrap();
    world.lock(a, flock(SHARED, 2), false).unwrap();
    assert_eq!(world.lock(a, flock(EXCLUSIVE, 1), false).unwrap_err(), E::WouldBlock);
    assert_eq!(test(&world, a, flock(EXCLUSIVE, 3)).map(|found| found.0), Some(1), "a refusal changes nothing");
    assert!(world.lock(a, flock(EXCLUSIVE, 1), true).unwrap().queued);
    assert!(!world.lock(a, flock(EXCLUSIVE, 2), true).unwrap().queued, "1 gave its shared lock up");
    world.lock(a, flock(UNLOCK, 2), false).unwrap();
    let one = Effect::LockGranted {
        session: SessionId::new(1),
        inode: InodeId::new(a),
        owner: 1,
        flock: true,
        deadlock: false,
    };
    assert_eq!(world.effects, [one]);
    // A range means nothing for a whole-file lock.
    assert_eq!(world.lock(a, pb::FileLock { start: 5, end: 3, ..flock(SHARED, 2) }, false).unwrap_err(), E::WouldBlock);
}

#[test]
fn a_grant_that_closes_a_circle_refuses_the_owners_other_wait() {
    // One program waits with two threads: for b (held by 2) and for a (held by 3). When a becomes free the program
    // gets it ahead of 2, which waits for a too: now 2 waits for the program, and the program for 2.
    let mut world = World::new();
    let (a, b) = files(&mut world);
    world.lock(a, range(EXCLUSIVE, 3, 0, 9), false).unwrap();
    world.lock(b, range(EXCLUSIVE, 2, 0, 9), false).unwrap();
    assert!(world.lock(a, range(EXCLUSIVE, 1, 0, 9), true).unwrap().queued);
    assert!(world.lock(b, range(EXCLUSIVE, 1, 0, 9), true).unwrap().queued);
    assert!(world.lock(a, range(EXCLUSIVE, 2, 0, 9), true).unwrap().queued);
    world.lock(a, range(UNLOCK, 3, 0, 9), false).unwrap();
    assert_eq!(granted(&world), [(a, 1, false), (b, 1, true)]);
}

#[test]
fn tables_have_a_bound() {
    let mut world = World::new();
    let (a, _) = files(&mut world);
    world.checked = false;
    for at in 0..crate::locks::LOCKS_MAX as u64 {
        world.lock(a, range(SHARED, 1, 2 * at, 2 * at), false).unwrap();
    }
    assert_eq!(world.lock(a, range(SHARED, 2, 1, 1), false).unwrap_err(), E::NoLocks);
    world.lock(a, range(UNLOCK, 1, 0, 100), false).unwrap();
    world.lock(a, range(SHARED, 2, 1, 1), false).unwrap();
}

#[test]
fn a_grant_that_weakens_a_lock_admits_the_longest_waiters() {
    let mut world = World::new();
    let (a, _) = files(&mut world);
    world.lock(a, range(EXCLUSIVE, 2, 2, 2), false).unwrap();
    world.lock(a, range(EXCLUSIVE, 3, 0, 1), false).unwrap();
    assert!(world.lock(a, range(SHARED, 1, 0, 2), true).unwrap().queued);
    assert!(world.lock(a, range(SHARED, 2, 0, 2), true).unwrap().queued);
    // The second waiter's own exclusive lock, which kept the first one out, becomes shared as it is granted.
    world.lock(a, range(UNLOCK, 3, 0, 1), false).unwrap();
    assert_eq!(granted(&world), [(a, 2, false), (a, 1, false)]);
}
