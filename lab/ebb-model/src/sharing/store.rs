//! The members of the file's sets, as one: what the first model shows that they are.

use crate::names::Epoch;
use crate::sharing::log::Log;

/// What members have.
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

    /// Takes what a holder has. Members that lost their power are sent everything again: the boot id tells.
    pub fn on_write(&mut self, log: &Log) {
        if log.len() > self.received.len() {
            self.received = *log;
        }
    }

    /// Puts what was received on stable storage.
    pub const fn sync(&mut self) {
        self.synced = self.received;
    }

    /// Power fails everywhere.
    pub const fn lose_power(&mut self) {
        self.received = self.synced;
    }
}
