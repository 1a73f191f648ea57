//! Stays that are over: how each ended, and which sessions do not know it yet.
//!
//! If a stay ends without a word, a client with unsynced writes has to treat them as lost. It asks within its commit
//! interval, and the answer is "moved, kept". A proxy that ends in good order waits for these questions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{Epoch, InodeId, SessionId};
use parking_lot::Mutex;

use crate::file::SharedFile;
use crate::unheard::Unheard;

/// Most stays that are remembered. Clients ask soon how theirs ended, if ever.
const ENDED_MAX: usize = 16_384;

/// How a stay ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The lease went back with everything synced.
    Kept,
    /// The lease was lost: some writes may not be synced.
    Lost,
    /// The proxy knows nothing of the stay.
    Unknown,
}

/// A stay is named by its file and the epoch of its lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct StayName {
    inode: InodeId,
    epoch: Epoch,
}

/// Stays that are over, and the order in which they ended.
#[derive(Default)]
pub(crate) struct EndedStays {
    stays: BTreeMap<StayName, Stay>,
    order: VecDeque<StayName>,
}

struct Stay {
    ended: Ended,
    at: Moment,
    unheard: Arc<Mutex<Unheard>>,
    /// Alive as long as an operation is under way.
    file: Weak<SharedFile>,
}

impl EndedStays {
    /// Records the end of a stay.
    pub fn add(&mut self, file: &Arc<SharedFile>, ended: Ended, at: Moment) {
        let name = StayName { inode: file.inode, epoch: file.epoch };
        let stay = Stay { ended, at, unheard: file.unheard(), file: Arc::downgrade(file) };
        if self.stays.insert(name, stay).is_none() {
            self.order.push_back(name);
        }
        while self.order.len() > ENDED_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.stays.remove(&oldest);
            }
        }
        assert!(self.stays.len() == self.order.len(), "a stay that ended is never forgotten, or too early");
    }

    /// Returns how a stay ended. The session knows it from then on.
    pub fn end_of(&self, inode: InodeId, epoch: Epoch, session: SessionId) -> Ended {
        let Some(stay) = self.stays.get(&StayName { inode, epoch }) else { return Ended::Unknown };
        stay.unheard.lock().forget(session);
        stay.ended
    }

    /// Number of sessions that have not asked yet how their stay ended, and of operations under way. Only live sessions
    /// count. A session that did not ask for `span` will not ask.
    pub fn unheard(&self, lives: impl Fn(SessionId) -> bool, now: Moment, span: Duration) -> usize {
        let recent = self.stays.values().filter(|stay| stay.ended == Ended::Kept && now.since(stay.at) < span);
        recent
            .map(|stay| {
                let waits = stay.unheard.lock().sessions().filter(|session| lives(*session)).count();
                waits + stay.file.strong_count()
            })
            .sum()
    }
}
