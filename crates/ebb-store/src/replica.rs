//! One replica in memory: received records, synced records, and waiters.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use ebb_runtime::{File, Moment};
use ebb_types::{CHUNK_SIZE, MetablockId, Result, Version, err};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, RwLock, oneshot};

use crate::overlay::Overlay;
use crate::record::{Content, Record, chunks_of};
use crate::short_circuit::Reader;
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
    /// Notified whenever a write was received.
    pub(crate) advanced: Notify,
}

/// The changing state of a replica.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// The state after all received records.
    pub(crate) state: ReplicaState,
    /// The version up to which it is on stable storage.
    pub(crate) synced: Version,
    /// Records received and not yet in the journal, in order.
    pending: VecDeque<Staged>,
    /// Number of pending records that have to be put in place.
    pending_placed: usize,
    /// Contents that are not in the file yet.
    pub(crate) overlay: Overlay,
    waiters: Vec<Waiter>,
    /// Number of records received, and of those in the journal.
    received_count: u64,
    flushed_count: u64,
    /// Whether anything was ever received for it, a promise included.
    pub(crate) known: bool,
    /// The damage, if there is any. A damaged replica is not served.
    pub(crate) damage: Option<String>,
    /// A copy is being made: writes are refused.
    pub(crate) pulling: bool,
    /// It is gone. A task that still holds it has to look it up again.
    pub(crate) deleted: bool,
    /// Whether it has a file, and whether the file's name is durable.
    pub(crate) file_made: bool,
    pub(crate) entry_synced: bool,
    /// End of the space kept ahead of growth; 0 for none.
    pub(crate) grown_to: u64,
    /// Compression was tried since this start.
    pub(crate) compression_tried: bool,
    pub(crate) last_write: Moment,
    /// Readers that have a descriptor of the file. They are notified before its bytes change.
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
    /// Receives a record.
    pub(crate) fn receive(&mut self, record: Record, sync_first: Option<File>, permit: Option<OwnedSemaphorePermit>) {
        assert!(!self.deleted, "{}: a record for a replica that is gone", record.metablock);
        // I-8: a copy or a deletion begins another life, every other change keeps the promise.
        let begins_anew = matches!(record.content, Content::Replace { .. } | Content::Delete);
        let (before, after) = (&self.state.head, &record.after);
        assert!(
            begins_anew || after.promised >= before.promised,
            "{}: a promise is never taken back",
            record.metablock
        );
        // Ordering: before anything that this record does to the file (I-38).
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

    /// The channel for the answer when all records received so far are in the journal. `None` if they are already.
    pub(crate) fn wait_flushed(&mut self) -> Option<oneshot::Receiver<Result<()>>> {
        if self.is_settled() {
            return None;
        }
        let (answer, receiver) = oneshot::channel();
        self.waiters.push(Waiter { count: self.received_count, answer });
        Some(receiver)
    }

    /// Records that the next `count` records are in the journal, up to `version`. Returns their waiters.
    pub(crate) fn flushed(&mut self, count: u64, version: Version) -> Vec<oneshot::Sender<Result<()>>> {
        self.flushed_count += count;
        let on_the_way = (self.received_count - self.pending.len() as u64).checked_sub(self.flushed_count);
        assert!(on_the_way.is_some(), "{count} records are in the journal, which were not taken for it");
        self.synced = version;
        let flushed = self.flushed_count;
        let (done, waiting) = std::mem::take(&mut self.waiters).into_iter().partition(|waiter| waiter.count <= flushed);
        self.waiters = waiting;
        done.into_iter().map(|waiter: Waiter| waiter.answer).collect()
    }

    /// Takes all waiters, which are to get an error.
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
        assert!(self.pending_placed <= self.pending.len(), "no more have a place than are pending");
        Some(staged)
    }

    /// Puts back records that did not get to the journal. The last one is put back first.
    pub(crate) fn put_back(&mut self, staged: Staged) {
        self.pending_placed += usize::from(staged.record.has_place());
        self.pending.push_front(staged);
    }

    /// Whether whole chunks from `offset` on may be written straight to the file. No chunk may use their place, and no
    /// earlier record that is yet to be put in place may touch it.
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
        // A hole has no second place: after a crash, bytes of an unacknowledged write would stand where zeros belong.
        len.is_multiple_of(CHUNK_SIZE)
            && chunks_of(offset, end.min(length) - offset).all(|chunk| self.state.chunks.is_data(chunk))
            && !self.overlay.records().any(|one| one.may_touch(offset, end))
    }

    /// Whether a record in the journal is not in the file yet.
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
