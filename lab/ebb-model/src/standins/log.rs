//! A handoff log: writes under one epoch, and the epoch below which nothing is taken.

use crate::names::{Epoch, Version, Writes};
use crate::replica::Copy;

/// A write as a holder sends it, to members and to logs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Entry {
    /// Its version.
    pub version: Version,
    /// The version that it follows.
    pub predecessor: Version,
    /// Its number in the history.
    pub write: u8,
}

/// A call of a holder to have writes logged: those of its epoch behind `after`, up to `upto`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Append {
    /// Of the lease.
    pub epoch: Epoch,
    /// Logged, or with all members.
    pub after: Version,
    /// The last write.
    pub upto: Version,
    /// All members have this, and logs need it no more.
    pub cut: Version,
    /// Every write up to this is with all members, or in as many logs as it has to be.
    pub base: Version,
}

/// A log on a disk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Log {
    /// Of the writes that it holds.
    pub epoch: Epoch,
    /// By version.
    pub entries: Vec<Entry>,
    /// How many of them a crash takes away: none, but for a mistake.
    pub unsynced: u8,
    /// Lower epochs are refused.
    pub promised: Epoch,
    /// It was lost while the file was at this epoch, and its writes are not known.
    pub lost_at: Option<Epoch>,
}

impl Log {
    /// Whether everything that was ever logged and not cut is there.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.lost_at.is_none()
    }

    /// Whether a holder of this epoch may log.
    #[must_use]
    pub fn takes(&self, epoch: Epoch) -> bool {
        epoch >= self.promised.max(self.epoch)
    }

    /// Whether a write of a call that follows `predecessor` leaves no gap here.
    #[must_use]
    pub fn is_behind(&self, append: &Append, predecessor: Version) -> bool {
        let holds = self.epoch == append.epoch && self.entries.iter().any(|entry| entry.version == predecessor);
        predecessor <= append.base || holds
    }

    /// Takes writes. The first one of a later epoch removes those of an earlier one.
    pub fn append(&mut self, epoch: Epoch, cut: Version, entries: impl Iterator<Item = Entry>, synced: bool) {
        self.entries.retain(|entry| entry.version > cut);
        if self.epoch < epoch {
            self.entries.clear();
        }
        self.epoch = epoch;
        for entry in entries {
            if !self.entries.contains(&entry) {
                self.entries.push(entry);
                self.unsynced += u8::from(!synced);
            }
        }
        self.entries.sort_unstable();
    }

    /// Nothing below this epoch from now on.
    pub fn promise(&mut self, epoch: Epoch) {
        self.promised = self.promised.max(epoch);
    }

    /// The version of its last write.
    #[must_use]
    pub fn last(&self) -> Option<Version> {
        self.entries.last().map(|entry| entry.version)
    }

    /// Its process dies.
    pub fn crash(&mut self) {
        let kept = self.entries.len() - usize::from(self.unsynced);
        self.entries.truncate(kept);
        self.unsynced = 0;
    }

    /// The disk is gone; an empty log takes its place, which knows that.
    pub fn lose(&mut self, epoch: Epoch, is_noticed: bool) {
        *self = Self { lost_at: is_noticed.then_some(epoch), ..Self::default() };
    }
}

/// The content of a replica after the logged writes: each write behind its predecessor, as far as that goes.
#[must_use]
pub fn made_up(mut copy: Copy, entries: &[Entry]) -> Copy {
    for entry in entries {
        if entry.version > copy.version && entry.predecessor == copy.version {
            copy = Copy { version: entry.version, writes: copy.writes.with(entry.write) };
        }
    }
    copy
}

/// The writes of some entries.
#[must_use]
pub fn writes(entries: &[Entry]) -> Writes {
    entries.iter().fold(Writes::NONE, |writes, entry| writes.with(entry.write))
}
