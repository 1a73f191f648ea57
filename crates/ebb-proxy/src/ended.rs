//! Stays that are over: how each ended, and to whom that must still be said.
//!
//! A client that wrote and has not synced believes that its writes are lost, if a stay ends without a word. It asks within
//! its commit interval, and is answered "moved, kept". A proxy that ends in good order waits for that.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{Epoch, InodeId, SessionId};
use parking_lot::Mutex;

use crate::file::SharedFile;
use crate::unheard::Unheard;

/// Stays that are remembered: clients come soon, if ever, to hear how theirs ended.
const ENDED_MAX: usize = 16_384;

/// Stays by file and epoch.
#[derive(Default)]
pub(crate) struct Ended {
    stays: BTreeMap<(InodeId, Epoch), Stay>,
    order: VecDeque<(InodeId, Epoch)>,
}

struct Stay {
    /// Everything was synced.
    kept: bool,
    at: Moment,
    unheard: Arc<Mutex<Unheard>>,
    /// Alive as long as an operation is under way.
    file: Weak<SharedFile>,
}

impl Ended {
    /// A stay is over.
    pub fn add(&mut self, file: &Arc<SharedFile>, kept: bool, at: Moment) {
        let key = (file.inode, file.epoch);
        let stay = Stay { kept, at, unheard: file.unheard(), file: Arc::downgrade(file) };
        if self.stays.insert(key, stay).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > ENDED_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.stays.remove(&oldest);
            }
        }
    }

    /// A session comes to hear how a stay ended: whether with everything synced. False also if nothing is known of it.
    pub fn tell(&self, inode: InodeId, epoch: Epoch, session: SessionId) -> bool {
        let Some(stay) = self.stays.get(&(inode, epoch)) else { return false };
        stay.unheard.lock().forget(session);
        stay.kept
    }

    /// How many have not come of those that have cause to: sessions that `lives` knows, and operations under way. Those that
    /// did not come for `span` will not come.
    pub fn untold(&self, lives: impl Fn(SessionId) -> bool, now: Moment, span: Duration) -> usize {
        let recent = self.stays.values().filter(|stay| stay.kept && now.since(stay.at) < span);
        recent
            .map(|stay| {
                let waits = stay.unheard.lock().sessions().filter(|session| lives(*session)).count();
                waits + stay.file.strong_count()
            })
            .sum()
    }
}
