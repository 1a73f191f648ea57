//! Waiting for file locks: the master queues the request, a poll brings the grant.

use std::sync::Arc;
use std::time::Duration;

use ebb_types::{Error, InodeId, Result, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Op, SetLock};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::shared::Shared;
use crate::types::{IfLocked, Lock, LockKind, LockSort};

/// Interval of checks of a wait against the master: a grant may have been in a poll that got lost.
const ASK_AGAIN: Duration = Duration::from_secs(20);

/// Who waits.
#[derive(Debug, Default)]
pub(crate) struct LockWaiters(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiters: Vec<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    inode: u64,
    owner: u64,
    sort: LockSort,
    verdict_sender: oneshot::Sender<Result<()>>,
}

impl LockWaiters {
    fn enter(&self, inode: InodeId, lock: &Lock) -> (u64, oneshot::Receiver<Result<()>>) {
        let (verdict_sender, hear) = oneshot::channel();
        let mut state = self.0.lock();
        state.next += 1;
        let number = state.next;
        state.waiters.push(Waiter { number, inode: inode.raw(), owner: lock.owner, sort: lock.sort, verdict_sender });
        (number, hear)
    }

    fn leave(&self, number: u64) {
        self.0.lock().waiters.retain(|waiter| waiter.number != number);
    }

    /// A poll brought a grant. It is for the longest waiter with this owner.
    pub fn on_granted(&self, granted: &pb::LockGranted) {
        let mut state = self.0.lock();
        let place = state.waiters.iter().position(|waiter| {
            waiter.inode == granted.inode
                && waiter.owner == granted.owner
                && waiter.sort == LockSort::of_message(granted.flock)
        });
        if let Some(place) = place {
            let waiter = state.waiters.remove(place);
            let verdict = if granted.deadlock {
                Err(err!(Deadlock, "waiting for this lock would wait for itself"))
            } else {
                Ok(())
            };
            // The waiter may have given up just now; its guard takes the lock back.
            let _ = waiter.verdict_sender.send(verdict);
        }
    }

    /// Locks and waits went with the session.
    pub fn on_session_lost(&self) {
        for waiter in std::mem::take(&mut self.0.lock().waiters) {
            let _ = waiter.verdict_sender.send(Err(err!(SessionExpired, "the session expired, and its locks with it")));
        }
    }
}

impl Shared {
    /// Takes or releases a lock.
    ///
    /// Cancel-safety: dropped while it waits, the request is taken back, and so is a grant that crossed it.
    pub async fn set_lock(self: &Arc<Self>, inode: InodeId, lock: Lock, if_locked: IfLocked) -> Result<()> {
        self.check_open()?;
        if lock.kind == LockKind::Unlock {
            return self.ask_lock(inode, lock, LockRequest::Once).await.map(drop);
        }
        loop {
            let session = self.session.name().generation;
            match if_locked {
                IfLocked::Wait => self.wait_for_lock(inode, lock).await?,
                IfLocked::Fail => drop(self.ask_lock(inode, lock, LockRequest::Once).await?),
            }
            // A grant is as good as its session. An answer that lay here while this host was frozen may be of an
            // expired one, and the lock another client's. The next session asks for it anew.
            if let Err(error) = self.session.ensure_trusted().await {
                drop(GiveUp { shared: self.clone(), inode, lock, number: 0, armed: true });
                return Err(error);
            }
            if self.session.name().generation == session {
                return Ok(());
            }
        }
    }

    async fn wait_for_lock(self: &Arc<Self>, inode: InodeId, lock: Lock) -> Result<()> {
        loop {
            let (number, hear) = self.locks.enter(inode, &lock);
            let mut guard = GiveUp { shared: self.clone(), inode, lock, number, armed: true };
            if !self.ask_lock(inode, lock, LockRequest::Queue).await? {
                guard.disarm();
                return Ok(());
            }
            let verdict_sender = tokio::select! {
                biased;
                verdict_sender = hear => Some(verdict_sender.unwrap_or_else(|_| Err(lost()))),
                () = self.runtime.sleep(ASK_AGAIN) => None,
            };
            guard.disarm();
            match verdict_sender {
                Some(verdict) => return verdict,
                // Taken back and asked again; if there was nothing to take back, it has been granted.
                None if !self.ask_lock(inode, lock, LockRequest::Cancel).await? => return Ok(()),
                None => {}
            }
        }
    }

    /// One request; whether it was queued (or, of a cancel, whether there was something to take back).
    async fn ask_lock(&self, inode: InodeId, lock: Lock, request: LockRequest) -> Result<bool> {
        let (wait, cancel) = (request == LockRequest::Queue, request == LockRequest::Cancel);
        let op = SetLock { inode: inode.raw(), lock: Some(lock.into()), wait, cancel };
        Ok(self.session.meta(&self.own, Op::SetLock(op)).await?.queued)
    }
}

/// The master's options for a lock request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LockRequest {
    /// Grants or releases it at once, or refuses.
    Once,
    /// Queues it if it cannot be granted at once.
    Queue,
    /// Takes it out of the queue.
    Cancel,
}

fn lost() -> Error {
    err!(Interrupted, "the wait for a lock was given up")
}

/// Takes a lock request back when its future is dropped.
struct GiveUp {
    shared: Arc<Shared>,
    inode: InodeId,
    lock: Lock,
    number: u64,
    armed: bool,
}

impl GiveUp {
    fn disarm(&mut self) {
        self.armed = false;
        self.shared.locks.leave(self.number);
    }
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        self.shared.locks.leave(self.number);
        let (shared, inode, lock) = (self.shared.clone(), self.inode, self.lock);
        self.shared.runtime.spawn("take a lock request back", async move {
            let result = match shared.ask_lock(inode, lock, LockRequest::Cancel).await {
                // It was granted while it was being given up.
                Ok(false) => {
                    let unlock = Lock { kind: LockKind::Unlock, ..lock };
                    shared.ask_lock(inode, unlock, LockRequest::Once).await
                }
                other => other,
            };
            if let Err(error) = result {
                tracing::debug!(%inode, %error, "taking a lock request back");
            }
        });
    }
}
