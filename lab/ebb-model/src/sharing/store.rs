//! The members of the file's sets as one object, with the abilities that the first model proves.

use crate::names::Epoch;
use crate::sharing::log::Log;

/// The content of the members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Store {
    /// Lower epochs are refused.
    pub fence: Epoch,
    /// In the memory of all.
    pub received: Log,
    /// On the disks of all; `received` begins with it.
    pub synced: Log,
}

impl Store {
    /// Whether it obeys a holder.
    #[must_use]
    pub const fn obeys(&self, epoch: Epoch) -> bool {
        epoch >= self.fence
    }

    /// Takes a holder's writes. Members that lost their power are sent everything again: the boot id shows it.
    pub fn on_write(&mut self, log: &Log) {
        if log.len() > self.received.len() {
            self.received = *log;
        }
    }

    /// Puts received writes on stable storage.
    pub const fn sync(&mut self) {
        self.synced = self.received;
    }

    /// Power fails everywhere.
    pub const fn lose_power(&mut self) {
        self.received = self.synced;
    }
}
