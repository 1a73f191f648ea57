//! The true history, which no process knows: the properties compare the processes with it.

use crate::names::{ClientName, Epoch, Writes};

/// One write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WriteRecord {
    /// The writer.
    pub client: ClientName,
    /// Under which lease.
    pub epoch: Epoch,
    /// Its seq.
    pub seq: u8,
}

/// All writes, which of them were acknowledged by fsync, and which were seen by a read.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct History {
    /// In order; a write's number is its place here.
    pub writes: Vec<WriteRecord>,
    /// fsync returned after them.
    pub acknowledged: Writes,
    /// A read showed them.
    pub seen: Writes,
}

impl History {
    /// Records a write and returns its number.
    pub fn record(&mut self, client: ClientName, epoch: Epoch, seq: u8) -> u8 {
        self.writes.push(WriteRecord { client, epoch, seq });
        u8::try_from(self.writes.len() - 1).expect("few writes")
    }

    /// Writes of a client's lease up to a seq.
    #[must_use]
    pub fn of_lease(&self, client: ClientName, epoch: Epoch, seq: u8) -> Writes {
        let own = |record: &WriteRecord| record.client == client && record.epoch == epoch && record.seq <= seq;
        self.numbered().filter(|(_, record)| own(record)).fold(Writes::NONE, |set, (number, _)| set.with(number))
    }

    /// Writes with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u8, WriteRecord)> {
        (0_u8..).zip(self.writes.iter().copied())
    }

    /// Records of the acknowledged writes.
    pub fn acknowledged_records(&self) -> impl Iterator<Item = WriteRecord> {
        let acknowledged = self.acknowledged;
        self.numbered().filter(move |(number, _)| acknowledged.0 & (1 << number) != 0).map(|(_, record)| record)
    }
}
