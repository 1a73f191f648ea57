//! One replica in memory: what was received, what of it is synced, who waits for more.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use ebb_runtime::{File, Moment};
use ebb_types::{CHUNK_SIZE, MetablockId, Result, Version, err};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, RwLock, oneshot};

use crate::overlay::Overlay;
use crate::record::{Content, Record, chunks_of};
use crate::share::Reader;
use crate::state::ReplicaState;

/// A replica.
///
/// Locks are taken in the order of the fields, and `live` after those of the volume. `live` is never held across a wait.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) id: MetablockId,
    /// Serialises everything that changes the replica's state.
    pub(crate) gate: tokio::sync::Mutex<()>,
    /// Held shared while bytes are read together with the state that describes them; exclusively while records are
    /// put in place.
    pub(crate) content: RwLock<()>,
    pub(crate) live: Mutex<Live>,
    /// Told whenever a write was received.
    pub(crate) advanced: Notify,
}

/// What changes about a replica.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// With everything received.
    pub(crate) state: ReplicaState,
    /// Up to here it is on stable storage.
    pub(crate) synced: Version,
    /// Received, not yet in the journal; in order.
    pending: VecDeque<Staged>,
    /// Of these, how many have a place in the file to go to.
    pending_placed: usize,
    /// Contents that are not in the file yet.
    pub(crate) overlay: Overlay,
    waiters: Vec<Waiter>,
    /// Records received, and of them in the journal.
    received_count: u64,
    flushed_count: u64,
    /// Whether anything was ever received for it, a promise included.
    pub(crate) known: bool,
    /// Why it is not served.
    pub(crate) damage: Option<String>,
    /// A copy is being made: writes are refused.
    pub(crate) pulling: bool,
    /// It is gone: whoever still knows it looks it up again.
    pub(crate) deleted: bool,
    /// Whether it has a file, and whether the file's name is durable.
    pub(crate) file_made: bool,
    pub(crate) entry_synced: bool,
    /// End of the space kept ahead of growth; 0 for none.
    pub(crate) grown_to: u64,
    pub(crate) last_write: Moment,
    /// Who reads the file by a descriptor, and is told before its bytes change.
    pub(crate) readers: Vec<Weak<dyn Reader>>,
}

/// A record on its way to the journal.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) record: Arc<Record>,
    /// A file with bytes that must be synced before the record is written.
    pub(crate) sync_first: Option<File>,
}

#[derive(Debug)]
struct Waiter {
    count: u64,
    answer: oneshot::Sender<Result<()>>,
}

impl Replica {
    pub(crate) fn new(id: MetablockId) -> Self {
        Self {
            id,
            gate: tokio::sync::Mutex::default(),
            content: RwLock::default(),
            live: Mutex::default(),
            advanced: Notify::new(),
        }
    }
}

impl Live {
    /// Takes a record in: from now on it is received.
    pub(crate) fn receive(&mut self, record: Record, sync_first: Option<File>, permit: Option<OwnedSemaphorePermit>) {
        // Ordering: before anything that this record does to the file.
        self.revoke_readers();
        self.state.apply(&record);
        let record = Arc::new(record);
        self.overlay.receive(&record, permit);
        self.pending_placed += usize::from(record.has_place());
        self.pending.push_back(Staged { record, sync_first });
        self.received_count += 1;
        self.known = true;
    }

    /// Whether this volume has the replica.
    pub(crate) fn exists(&self) -> bool {
        self.known && !self.deleted
    }

    /// Whether everything received is in the journal.
    pub(crate) fn is_settled(&self) -> bool {
        self.flushed_count == self.received_count
    }

    /// Where the answer comes when everything received so far is in the journal; none if it is already.
    pub(crate) fn wait_flushed(&mut self) -> Option<oneshot::Receiver<Result<()>>> {
        if self.is_settled() {
            return None;
        }
        let (answer, receiver) = oneshot::channel();
        self.waiters.push(Waiter { count: self.received_count, answer });
        Some(receiver)
    }

    /// The next `count` records are in the journal; `version` is that of the last. Returns who waited for them.
    pub(crate) fn flushed(&mut self, count: u64, version: Version) -> Vec<oneshot::Sender<Result<()>>> {
        self.flushed_count += count;
        self.synced = version;
        let flushed = self.flushed_count;
        let (done, waiting) = std::mem::take(&mut self.waiters).into_iter().partition(|waiter| waiter.count <= flushed);
        self.waiters = waiting;
        done.into_iter().map(|waiter: Waiter| waiter.answer).collect()
    }

    /// Everybody who waits, to be told of a failure.
    pub(crate) fn take_waiters(&mut self) -> Vec<oneshot::Sender<Result<()>>> {
        std::mem::take(&mut self.waiters).into_iter().map(|waiter| waiter.answer).collect()
    }

    /// Whether anything received is not in the journal, nor on its way there.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The next record for the journal.
    pub(crate) fn take_pending(&mut self) -> Option<Staged> {
        let staged = self.pending.pop_front()?;
        self.pending_placed -= usize::from(staged.record.has_place());
        Some(staged)
    }

    /// Gives back what was taken and did not come to the journal: the last one first.
    pub(crate) fn put_back(&mut self, staged: Staged) {
        self.pending_placed += usize::from(staged.record.has_place());
        self.pending.push_front(staged);
    }

    /// Whether whole chunks from `offset` on may be written straight to the file: where nothing that counts lies, and
    /// where nothing that is still to be done to the file could hit them.
    pub(crate) fn takes_direct(&self, offset: u64, len: u64) -> bool {
        let length = self.state.head.length;
        if !offset.is_multiple_of(CHUNK_SIZE) {
            return false;
        }
        if offset >= length {
            let harmless = |one: &Record| {
                matches!(one.content, Content::Data { .. } | Content::Allocate { .. } | Content::Direct { .. })
            };
            return self.overlay.records().all(harmless);
        }
        let end = offset + len;
        // A hole has no second place: bytes of a write that was never acknowledged could not be told from its zeros.
        len.is_multiple_of(CHUNK_SIZE)
            && chunks_of(offset, end.min(length) - offset).all(|chunk| self.state.chunks.is_data(chunk))
            && !self.overlay.records().any(|one| one.may_touch(offset, end))
    }

    /// Whether something that is in the journal is not in the file yet.
    pub(crate) fn is_being_placed(&self) -> bool {
        self.overlay.records().len() > self.pending_placed
    }

    /// Refuses a damaged replica.
    pub(crate) fn check_sound(&self, id: MetablockId) -> Result<()> {
        match &self.damage {
            Some(damage) => Err(err!(Corrupt, "replica of {id}: {damage}")),
            None => Ok(()),
        }
    }
}
