//! A member: one replica, its received content, the content of its disk, and its promise.

use crate::message::Message;
use crate::names::{Epoch, Node, Version, Writes};
use crate::{Mutant, Protocol};

/// A state of the metablock's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Copy {
    /// Its version.
    pub version: Version,
    /// The writes that it includes.
    pub writes: Writes,
}

/// One replica. An absent one is at version (0,0).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Replica {
    /// In memory; never behind `synced`.
    pub received: Copy,
    /// On stable storage.
    pub synced: Copy,
    /// Lower epochs are refused. On stable storage, for absent replicas too.
    pub promised: Epoch,
    /// Starts of the block server so far.
    pub boot: u8,
}

impl Replica {
    /// The lowest epoch that it obeys.
    #[must_use]
    pub fn fence(&self) -> Epoch {
        self.promised.max(self.received.version.epoch)
    }

    /// The lowest epoch that it will obey after a crash.
    #[must_use]
    pub fn durable_fence(&self) -> Epoch {
        self.promised.max(self.synced.version.epoch)
    }

    /// The answer to a reader with this min_version, or `None` for "stale". Only synced content is served; a version
    /// that was received and not synced is synced first.
    #[must_use]
    pub fn serves(&self, min_version: Version) -> Option<Copy> {
        if self.synced.version >= min_version {
            Some(self.synced)
        } else if self.received.version >= min_version {
            Some(self.received)
        } else {
            None
        }
    }

    /// Puts the received content on stable storage.
    pub fn sync(&mut self) {
        self.synced = self.received;
    }

    /// Loses unsynced content.
    pub fn crash(&mut self, protocol: &Protocol) {
        self.received = self.synced;
        self.boot += 1;
        if protocol.is(Mutant::PromiseNotDurable) {
            self.promised = 0;
        }
    }

    /// A versioned write: refused below the fence, done if it is there already, applied if its predecessor is there,
    /// else a gap.
    pub fn on_write(
        &mut self,
        protocol: &Protocol,
        node: Node,
        version: Version,
        predecessor: Version,
        write: u8,
    ) -> Option<Message> {
        if version.epoch < self.fence() {
            return None;
        }
        if self.received.version < version {
            if self.received.version != predecessor && !protocol.is(Mutant::AppliesOutOfOrder) {
                return None;
            }
            self.received = Copy { version, writes: self.received.writes.with(write) };
        }
        Some(self.answer(node, version.epoch))
    }

    /// Sync for a holder: refused below the fence, so that its answer never means a version of a later epoch.
    pub fn on_sync(&mut self, protocol: &Protocol, node: Node, epoch: Epoch) -> Option<Message> {
        if epoch < self.fence() && !protocol.is(Mutant::SyncIgnoresEpoch) {
            return None;
        }
        self.sync();
        Some(self.answer(node, epoch))
    }

    /// First half of recovery. Ordering: the promise is durable before the version is reported.
    pub fn on_promise(&mut self, protocol: &Protocol, node: Node, epoch: Epoch) -> Option<Message> {
        if epoch < self.fence() {
            return None;
        }
        if !protocol.is(Mutant::TellsWithoutPromise) {
            self.promised = epoch;
        }
        self.sync();
        Some(Message::Reported { node, epoch, version: self.synced.version })
    }

    /// Makes this replica equal to `source`, unless it has `at` already: a pull that comes late must not undo later
    /// writes.
    pub fn on_pull(
        &mut self,
        protocol: &Protocol,
        node: Node,
        epoch: Epoch,
        at: Version,
        source: Copy,
    ) -> Option<Message> {
        if epoch < self.fence() {
            return None;
        }
        self.promised = epoch;
        if self.received.version < at || protocol.is(Mutant::PullGoesBack) {
            self.received = source;
        }
        self.sync();
        Some(Message::Pulled { node, epoch, version: self.synced.version })
    }

    /// Second half of recovery: the replica at exactly `base` becomes (epoch, 0), synced.
    pub fn on_stamp(&mut self, protocol: &Protocol, node: Node, epoch: Epoch, base: Version) -> Option<Message> {
        if epoch < self.fence() {
            return None;
        }
        if self.received.version != Version::stamp(epoch) {
            if self.received.version != base && !protocol.is(Mutant::StampsAnyBase) {
                return None;
            }
            self.promised = epoch;
            self.received.version = Version::stamp(epoch);
            self.sync();
        }
        Some(Message::Stamped { node, epoch })
    }

    /// Frees the bytes, for good: ids are never reused, so nothing is taken for this one any more. A holder that does
    /// not know that its lease is over may still send its first write.
    pub fn delete(&mut self, protocol: &Protocol) {
        let promised = if protocol.is(Mutant::DeleteForgetsPromise) { 0 } else { Epoch::MAX };
        *self = Self { promised, boot: self.boot, ..Self::default() };
    }

    /// Frees a replica that is in no set. It may come back, under no lower epoch.
    pub fn on_delete_excess(&mut self, epoch: Epoch) {
        if self.received.version != Version::ZERO {
            *self = Self { promised: self.fence().max(epoch), boot: self.boot, ..Self::default() };
        }
    }

    fn answer(&self, node: Node, epoch: Epoch) -> Message {
        let (received, synced) = (self.received.version, self.synced.version);
        Message::Answer { node, epoch, boot: self.boot, received, synced }
    }
}
