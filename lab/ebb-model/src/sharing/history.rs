//! The true history, which no process knows: the properties compare the processes with it.

use crate::names::{ClientName, Writes};
use crate::sharing::log::Log;

/// One write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WriteRecord {
    /// The writer.
    pub client: ClientName,
    /// All writes that had been answered, to any client, when it began.
    pub after: Writes,
}

/// All writes, and the promises about them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct History {
    /// In order; a write's number is its place here.
    pub writes: Vec<WriteRecord>,
    /// They returned well.
    pub answered: Writes,
    /// Of those, the ones that the proxy carried out.
    pub proxied: Writes,
    /// Their writer got EIO after they returned: they may be lost.
    pub warned: Writes,
    /// Their writer got EIO instead of an answer: done or not.
    pub unknown: Writes,
    /// An fsync promised to keep them.
    pub firm: Writes,
    /// The longest beginning of the file that a client was shown and that others wrote.
    pub seen: Log,
    /// A read did not show writes that had been seen, or promised, when it began.
    pub went_back: bool,
}

impl History {
    /// Records a write and returns its number.
    pub fn begin_write(&mut self, client: ClientName) -> u8 {
        self.writes.push(WriteRecord { client, after: self.answered });
        u8::try_from(self.writes.len() - 1).expect("few writes")
    }

    /// The writer of this write.
    #[must_use]
    pub fn writer(&self, write: u8) -> ClientName {
        self.writes[usize::from(write)].client
    }

    /// A client's writes that returned and are not promised yet.
    #[must_use]
    pub fn open(&self, client: ClientName) -> Writes {
        let open = self.answered.0 & !self.firm.0 & !self.warned.0;
        let own = (0_u8..).zip(&self.writes).filter(|(_, record)| record.client == client);
        Writes(own.fold(0, |set, (number, _)| set | (1 << number)) & open)
    }

    /// A handle reported EIO to a client: the one warning.
    pub fn warn(&mut self, client: ClientName) {
        self.warned = self.warned.and(self.open(client));
    }

    /// An fsync that began when `open` was open has returned well.
    pub fn promise(&mut self, open: Writes) {
        self.firm = Writes(self.firm.0 | (open.0 & !self.warned.0));
    }

    /// A client was shown the file. Its own writes behind the last write of others may go away again.
    pub fn show(&mut self, client: ClientName, log: &Log, seen_before: &Log, firm_before: Writes) {
        self.went_back |= !log.begins_with(seen_before) || !log.writes().includes(firm_before);
        let own = log.iter().rev().take_while(|write| self.writer(*write) == client).count();
        let firm = log.prefix(log.len() - u8::try_from(own).expect("few writes"));
        if firm.len() > self.seen.len() {
            self.seen = firm;
        }
    }
}
