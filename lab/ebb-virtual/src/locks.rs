//! Clients that lock shared files, and record from when until when a lock was certainly theirs.
//!
//! A lock goes with its session. So a hold counts from the answer that granted it to the moment when it was given back
//! under the same session, or, if that session ended, to the last moment at which its client could believe in it. Two
//! holds that exclude each other may never overlap, also if clients were frozen, cut off or killed meanwhile
//! ([`crate::invariants::locks`]).

use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_client::{IfLocked, Lock, LockKind, LockSort};
use ebb_runtime::Runtime;
use ebb_runtime::virt::Dice;

use crate::history::Time;
use crate::workload::{LOGS, PLACED, Worker, name};

/// Bytes of a file that ranges are locked in: few, so that they meet.
const SPAN: u64 = 100;

/// Between two attempts to give a lock back.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Whether two owners may not have these at one time.
#[must_use]
pub fn exclude_each_other(one: &Lock, other: &Lock) -> bool {
    let meet = one.sort == other.sort && one.start <= other.last_byte() && other.start <= one.last_byte();
    let harmless = one.kind == LockKind::Shared && other.kind == LockKind::Shared;
    meet && !harmless && one.owner != other.owner
}

/// A lock that a client certainly had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The client.
    pub client: usize,
    /// On which file.
    pub file: usize,
    /// The lock.
    pub lock: Lock,
    /// The grant had been answered.
    pub from: Time,
    /// It had not been given back, and the session lived.
    pub until: Time,
}

impl Worker {
    /// Locks and unlocks until the run ends, one lock at a time.
    pub async fn run_locks(self, runtime: Runtime, mut dice: Dice, pause_max: Duration) {
        // Another life is another owner.
        let owner = dice.bits();
        while !self.board.done.load(Ordering::Relaxed) {
            self.lock_once(&runtime, owner, &mut dice).await;
            runtime.sleep(dice.span(pause_max * 4)).await;
        }
    }

    async fn lock_once(&self, runtime: &Runtime, owner: u64, dice: &mut Dice) {
        let file = dice.index(PLACED + LOGS);
        let lock = some_lock(owner, dice);
        let session = self.files.session().id;
        let if_locked = if dice.coin() { IfLocked::Wait } else { IfLocked::Fail };
        let asked = self.files.lock(&name(file), lock, if_locked).await;
        let sitting = self.files.session();
        if asked.is_ok() && sitting.id == session {
            let from = self.now();
            let mut until = from;
            for _ in 0..dice.between(1, 4) {
                let span_max = Duration::from_millis(*dice.pick(&[20, 300, 2000]));
                runtime.sleep(dice.span(span_max)).await;
                let sitting = self.files.session();
                if sitting.id == session && sitting.is_trusted {
                    until = self.now();
                }
            }
            let given_back_at = self.now();
            self.give_back(runtime, file, lock).await;
            if self.files.session().id == session {
                until = given_back_at;
            }
            self.board.history.lock().hold(Hold { client: self.client, file, lock, from, until });
        } else {
            // It may have been granted all the same.
            self.give_back(runtime, file, lock).await;
        }
    }

    /// Tries until there is an answer: a lock that stayed would keep all others out.
    async fn give_back(&self, runtime: &Runtime, file: usize, lock: Lock) {
        let unlock = Lock { kind: LockKind::Unlock, ..lock };
        while let Err(error) = self.files.lock(&name(file), unlock, IfLocked::Fail).await {
            tracing::debug!(client = self.client, %error, "a lock is not given back yet");
            runtime.sleep(RETRY_PAUSE).await;
        }
    }
}

fn some_lock(owner: u64, dice: &mut Dice) -> Lock {
    let kind = if dice.chance(0.3) { LockKind::Shared } else { LockKind::Exclusive };
    let pid = Some(1);
    if dice.coin() {
        return Lock { kind, pid, ..Lock::release_all(owner, LockSort::Flock) };
    }
    let start = dice.below(SPAN);
    let end = if dice.chance(0.2) { None } else { Some(start + dice.below(SPAN)) };
    Lock { kind, sort: LockSort::Fcntl, owner, start, end, pid }
}
