//! Locks against a model: for each owner an array of bytes, and a list of waiters.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::{ErrorKind as E, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};
use proptest::prelude::*;

use super::harness::{ROOT, World, flock, range};
use crate::Effect;

/// Bytes of a file that locks are asked for on.
const BYTES: u64 = 12;

/// Session, owner in it, whole-file.
type Owner = (u64, u64, bool);

#[derive(Clone, Copy, PartialEq, Debug)]
struct Wish {
    owner: Owner,
    kind: u32,
    start: u64,
    end: u64,
}

impl Wish {
    fn bytes(&self) -> impl Iterator<Item = u64> + use<> {
        if self.owner.2 { 0..BYTES } else { self.start..self.end + 1 }
    }
}

#[derive(Default)]
struct Model {
    /// File, owner, byte: kind.
    held: BTreeMap<(usize, Owner, u64), u32>,
    queue: Vec<(usize, Wish)>,
}

impl Model {
    /// Owners in the way of a wish.
    fn blockers(&self, file: usize, wish: &Wish) -> BTreeSet<Owner> {
        let in_the_way = |((other_file, owner, byte), kind): (&(usize, Owner, u64), &u32)| {
            let meets = *other_file == file && *owner != wish.owner && owner.2 == wish.owner.2;
            (meets && wish.bytes().any(|wished| wished == *byte) && (*kind == 2 || wish.kind == 2)).then_some(*owner)
        };
        self.held.iter().filter_map(in_the_way).collect()
    }

    fn grant(&mut self, file: usize, wish: &Wish) {
        for byte in wish.bytes() {
            self.held.insert((file, wish.owner, byte), wish.kind);
        }
    }

    fn drop_range(&mut self, file: usize, wish: &Wish) {
        for byte in wish.bytes() {
            self.held.remove(&(file, wish.owner, byte));
        }
    }

    fn grant_waiting(&mut self) -> Vec<(usize, Owner)> {
        let mut granted = Vec::new();
        let mut at = 0;
        while at < self.queue.len() {
            let (file, wish) = self.queue[at];
            if self.blockers(file, &wish).is_empty() {
                self.grant(file, &wish);
                self.queue.remove(at);
                granted.push((file, wish.owner));
                at = 0;
            } else {
                at += 1;
            }
        }
        granted
    }

    /// All owners that others wait for, over any number of steps.
    fn waits_for(&self, file: usize, wish: &Wish) -> BTreeSet<Owner> {
        let mut reached = self.blockers(file, wish);
        loop {
            let next: BTreeSet<Owner> = self
                .queue
                .iter()
                .filter(|(_, waiting)| reached.contains(&waiting.owner))
                .flat_map(|(file, waiting)| self.blockers(*file, waiting))
                .chain(reached.iter().copied())
                .collect();
            if next == reached {
                return reached;
            }
            reached = next;
        }
    }

    /// The answer to a request (Ok(true): queued), and the others' grants.
    fn request(&mut self, file: usize, wish: &Wish, wait: bool) -> (Result<bool, E>, Vec<(usize, Owner)>) {
        if wish.kind == 0 {
            self.drop_range(file, wish);
            return (Ok(false), self.grant_waiting());
        }
        let mut others = Vec::new();
        if wait && wish.owner.2 && !self.blockers(file, wish).is_empty() {
            self.drop_range(file, wish);
            others = self.grant_waiting();
        }
        if self.blockers(file, wish).is_empty() {
            self.grant(file, wish);
            others.extend(self.grant_waiting());
            return (Ok(false), others);
        }
        if !wait {
            return (Err(E::WouldBlock), others);
        }
        if !wish.owner.2 && self.waits_for(file, wish).contains(&wish.owner) {
            return (Err(E::Deadlock), others);
        }
        self.queue.push((file, *wish));
        (Ok(true), others)
    }
}

/// What a session does, in small numbers.
#[derive(Clone, Copy, Debug)]
struct Step {
    session: usize,
    owner: u64,
    flock: bool,
    file: usize,
    kind: u32,
    ends: (u64, u64),
    wait: bool,
    choice: u8,
}

fn step() -> impl Strategy<Value = Step> {
    let ends = (0..BYTES, 0..BYTES).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let owner_choice = (0..2usize, 1..3u64, proptest::bool::weighted(0.25), 0..2usize);
    (owner_choice, prop_oneof![1 => Just(0u32), 2 => Just(1u32), 2 => Just(2u32)], ends, any::<bool>(), 0..40u8)
        .prop_map(|((session, owner, flock, file), kind, ends, wait, choice)| Step {
            session,
            owner,
            flock,
            file,
            kind,
            ends,
            wait,
            choice,
        })
}

struct Both {
    world: World,
    model: Model,
    files: [u64; 2],
    sessions: [u64; 2],
}

impl Both {
    fn new() -> Self {
        let mut world = World::new();
        let files = [world.mkfile(ROOT, "a", 0o644).unwrap(), world.mkfile(ROOT, "b", 0o644).unwrap()];
        let sessions = [world.session, world.open_session()];
        world.request = 1000;
        Self { world, model: Model::default(), files, sessions }
    }

    fn run(&mut self, step: Step) {
        let session = self.sessions[step.session];
        let wish =
            Wish { owner: (session, step.owner, step.flock), kind: step.kind, start: step.ends.0, end: step.ends.1 };
        self.world.session = session;
        if step.choice == 0 {
            return self.close(step.session);
        }
        let message =
            if step.flock { flock(step.kind, step.owner) } else { range(step.kind, step.owner, wish.start, wish.end) };
        let waits = self.model.queue.iter().any(|(_, waiting)| waiting.owner == wish.owner);
        if waits || step.choice < 4 {
            // A program of one thread that waits does nothing else but give up waiting.
            return self.cancel(step.file, wish, message);
        }
        let (expected, others) = self.model.request(step.file, &wish, step.wait);
        let inode = self.files[step.file];
        let answer = self.world.lock(inode, message, step.wait).map(|reply| reply.queued);
        assert_eq!(answer, expected, "{step:?}");
        self.compare(others);
    }

    fn cancel(&mut self, file: usize, wish: Wish, message: pb::FileLock) {
        let same = |waiting: &(usize, Wish)| {
            let range = |wish: &Wish| if wish.owner.2 { (0, 0) } else { (wish.start, wish.end) };
            waiting.0 == file && waiting.1.owner == wish.owner && range(&waiting.1) == range(&wish)
        };
        let expected = self.model.queue.iter().any(same);
        self.model.queue.retain(|waiting| !same(waiting));
        let op = meta_op::SetLock { inode: self.files[file], lock: Some(message), wait: false, cancel: true };
        assert_eq!(self.world.run(Op::SetLock(op)).unwrap().queued, expected);
        self.compare(Vec::new());
    }

    /// The session ends, and another takes its place.
    fn close(&mut self, at: usize) {
        let gone = self.sessions[at];
        self.model.held.retain(|(_, owner, _), _| owner.0 != gone);
        self.model.queue.retain(|(_, wish)| wish.owner.0 != gone);
        let others = self.model.grant_waiting();
        self.world.apply(Change::CloseSession(gone)).reply.unwrap();
        self.compare(others);
        self.sessions[at] = self.world.open_session();
    }

    /// Effects and tables must say what the model says. Grants in different files have no order between them.
    fn compare(&self, granted: Vec<(usize, Owner)>) {
        let grant_in = |effect: &Effect| match effect {
            Effect::LockGranted { session, inode, owner, flock, deadlock } => {
                assert!(!deadlock, "programs of one thread close circles only by asking");
                Some((*inode, (session.raw(), *owner, *flock)))
            }
            _ => None,
        };
        let by_file = |all: Vec<(InodeId, Owner)>| {
            let mut files = BTreeMap::<InodeId, Vec<Owner>>::new();
            for (inode, owner) in all {
                files.entry(inode).or_default().push(owner);
            }
            files
        };
        let expected = granted.into_iter().map(|(file, owner)| (InodeId::new(self.files[file]), owner)).collect();
        assert_eq!(by_file(self.world.effects.iter().filter_map(grant_in).collect()), by_file(expected));
        for (file, inode) in self.files.iter().enumerate() {
            let table = self.world.machine.locks.table(InodeId::new(*inode)).cloned().unwrap_or_default();
            let owner_of = |lock: &crate::locks::Lock| (lock.owner.session.raw(), lock.owner.owner, lock.owner.flock);
            let mut held = BTreeMap::new();
            for lock in table.held() {
                for byte in lock.start..=lock.end.min(BYTES - 1) {
                    held.insert((file, owner_of(lock), byte), if lock.exclusive { 2 } else { 1 });
                }
            }
            let expected: BTreeMap<_, _> = self
                .model
                .held
                .iter()
                .filter(|((other, _, _), _)| *other == file)
                .map(|(key, kind)| (*key, *kind))
                .collect();
            assert_eq!(held, expected);
            let queue: Vec<Owner> = table.queue().iter().map(owner_of).collect();
            let waiting = self.model.queue.iter().filter(|(other, _)| *other == file);
            assert_eq!(queue, waiting.map(|(_, wish)| wish.owner).collect::<Vec<_>>());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn locks_are_what_a_byte_array_says(steps in proptest::collection::vec(step(), 1..60)) {
        let mut both = Both::new();
        for step in steps {
            both.run(step);
        }
    }
}
