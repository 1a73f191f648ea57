//! The operations of clients and their observations, with virtual times.
//!
//! A write is **firm** when the system has promised to keep it: the first fsync of its client on its file that began
//! after the write returned has succeeded. It is **volatile** when that fsync failed, or its client died first: then
//! it may be kept or lost. A write without an end has not returned: it may happen at any time, or never.
//!
//! A write is **received** when a push that began after it has succeeded: it outlives its client. It is volatile once a server has
//! lost its memory before an fsync.

use std::collections::BTreeMap;

use crate::cell::{Value, WriteId};
use crate::invariants::Violation;
use crate::locks::Hold;
use crate::names::{Answer, Record};
use crate::snapshots::Snapshots;
use crate::workload::OWN_FIRST;

/// Virtual nanoseconds.
pub type Time = u64;

/// A change of cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Cells `first .. first + count` get the write's contents.
    Data {
        /// First cell; `None` for an append whose offset is not known.
        first: Option<u64>,
        /// How many.
        count: u64,
    },
    /// Cells from `from` on are emptied.
    Truncate {
        /// First cell that is gone.
        from: u64,
    },
    /// Cells `first .. first + count` are emptied, by a hole or by zeroes.
    Clear {
        /// First cell.
        first: u64,
        /// How many.
        count: u64,
    },
}

impl Change {
    /// Whether it leaves cells empty.
    #[must_use]
    pub fn empties(&self) -> bool {
        !matches!(self, Self::Data { .. })
    }
}

/// How far the promise for a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// No fsync has returned yet.
    Open,
    /// Must not be lost while the servers keep their memory.
    Received,
    /// Must not be lost.
    Firm,
    /// May be lost.
    Volatile,
}

/// A write or truncation.
#[derive(Clone, Debug)]
pub struct Write {
    /// Its number.
    pub id: WriteId,
    /// The client.
    pub client: usize,
    /// To which file.
    pub file: usize,
    /// Its kind.
    pub change: Change,
    /// When it was begun.
    pub start: Time,
    /// When it returned successfully.
    pub end: Option<Time>,
    /// How far the promise goes.
    pub standing: Standing,
    /// Its place was the file system's choice.
    pub appended: bool,
}

impl Write {
    /// Whether it changes a cell, as far as is known.
    #[must_use]
    pub fn touches(&self, cell: u64) -> bool {
        match self.change {
            Change::Data { first: Some(first), count } => (first..first + count).contains(&cell),
            Change::Data { first: None, .. } => false,
            Change::Truncate { from } => cell >= from,
            Change::Clear { first, count } => (first..first + count).contains(&cell),
        }
    }

    /// When it has certainly happened for good: its end, if it is firm, or received and no server has lost it.
    #[must_use]
    pub fn settled(&self) -> Option<Time> {
        self.end.filter(|_| matches!(self.standing, Standing::Firm | Standing::Received))
    }
}

/// A read of some cells.
#[derive(Clone, Debug)]
pub struct Read {
    /// The client.
    pub client: usize,
    /// Which file.
    pub file: usize,
    /// The values that were met, by cell.
    pub values: Vec<(u64, Value)>,
    /// When it was begun.
    pub start: Time,
    /// When it returned.
    pub end: Time,
    /// After faults had been healed and everything had come to rest.
    pub at_rest: bool,
}

/// Where a file that has one user is, as its user knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// Under this name.
    At(String),
    /// Under one of two: a rename has not returned, or failed.
    Either(String, String),
    /// Under this name or gone: its making or removal has not returned, or failed.
    Perhaps(String),
    /// Removed, and this was its name.
    Gone(String),
    /// Under the first name for certain, and perhaps under the second one as well.
    Both(String, String),
    /// Without a name, and open under this one; its name is another file's.
    Open(String),
    /// Under this name or nowhere: another file may have taken the name.
    Displaced(String),
}

/// A file with one user.
#[derive(Clone, Debug)]
pub struct OwnFile {
    /// Where it is.
    pub place: Whereabouts,
    /// Its inode, if it is known.
    pub inode: Option<u64>,
}

/// Everything that happened to the files of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    writes: BTreeMap<WriteId, Write>,
    reads: Vec<Read>,
    own: BTreeMap<usize, OwnFile>,
    holds: Vec<Hold>,
    names: Vec<Record>,
    names_unanswered: usize,
    files_named: u32,
    snapshots: Snapshots,
    complaints: Vec<Violation>,
}

impl History {
    /// A write is begun.
    pub fn begin_write(&mut self, client: usize, file: usize, change: Change, start: Time) -> WriteId {
        let id = WriteId(self.writes.len() as u64 + 1);
        let appended = matches!(change, Change::Data { first: None, .. });
        let write = Write { id, client, file, change, start, end: None, standing: Standing::Open, appended };
        self.writes.insert(id, write);
        id
    }

    /// A write has returned successfully; for an append with its offset.
    pub fn end(&mut self, id: WriteId, at: Time, appended_at: Option<u64>) {
        let Some(write) = self.writes.get_mut(&id) else { return };
        write.end = Some(at);
        if let (Change::Data { first, .. }, Some(at)) = (&mut write.change, appended_at) {
            *first = Some(at);
        }
        // A truncation is the master's, and a hole is on all members: durable when it returns.
        if write.change.empties() {
            write.standing = Standing::Firm;
        }
    }

    /// An operation of a client on a file failed: its unsynced writes may be lost, and this was the one warning.
    pub fn failed(&mut self, client: usize, file: usize) {
        use Standing::{Open, Received, Volatile};
        self.set_standing(client, Some(file), Time::MAX, (&[Open, Received], Volatile));
    }

    /// An fsync that was begun at `start` has succeeded.
    pub fn synced(&mut self, client: usize, file: usize, start: Time) {
        use Standing::{Firm, Open, Received};
        self.set_standing(client, Some(file), start, (&[Open, Received], Firm));
    }

    /// A push that was begun at `start` has succeeded.
    pub fn pushed(&mut self, client: usize, file: usize, start: Time) {
        self.set_standing(client, Some(file), start, (&[Standing::Open], Standing::Received));
    }

    /// A client process has died. What servers have received of it stays.
    pub fn died(&mut self, client: usize) {
        self.set_standing(client, None, Time::MAX, (&[Standing::Open], Standing::Volatile));
    }

    /// A server may have lost what it had received and not synced.
    pub fn memory_lost(&mut self) {
        let received = self.writes.values_mut().filter(|write| write.standing == Standing::Received);
        received.for_each(|write| write.standing = Standing::Volatile);
    }

    /// A read has returned.
    pub fn read(&mut self, read: Read) {
        self.reads.push(read);
    }

    /// A file with one user is about to be made; returns its number.
    pub fn begin_own(&mut self, name: &str) -> usize {
        let file = OWN_FIRST + self.own.len();
        self.own.insert(file, OwnFile { place: Whereabouts::Perhaps(name.to_owned()), inode: None });
        file
    }

    /// Where a file with one user is now; its inode, if it is known.
    pub fn settle_own(&mut self, file: usize, place: Whereabouts, inode: Option<u64>) {
        if let Some(own) = self.own.get_mut(&file) {
            own.place = place;
            own.inode = own.inode.or(inode);
        }
    }

    /// The name of a file with one user, if it is certain.
    #[must_use]
    pub fn own_name(&self, file: usize) -> Option<String> {
        match &self.own.get(&file)?.place {
            Whereabouts::At(name) | Whereabouts::Open(name) => Some(name.clone()),
            _ => None,
        }
    }

    /// Files with one user.
    #[must_use]
    pub fn own_files(&self) -> &BTreeMap<usize, OwnFile> {
        &self.own
    }

    /// Numbers of the files whose names are certain.
    #[must_use]
    pub fn own_files_that_stay(&self) -> Vec<usize> {
        let stay = self.own.iter().filter(|(_, own)| matches!(own.place, Whereabouts::At(_)));
        stay.map(|(file, _)| *file).collect()
    }

    /// A lock was held for a while.
    pub fn hold(&mut self, hold: Hold) {
        self.holds.push(hold);
    }

    /// Locks that were held, in the order of their ends.
    #[must_use]
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// An operation on a name is begun; returns its number.
    pub fn begin_name(&mut self, record: Record) -> usize {
        self.names_unanswered += usize::from(record.operation.changes());
        self.names.push(record);
        self.names.len() - 1
    }

    /// It was answered.
    pub fn end_name(&mut self, number: usize, answer: Answer, end: Time) {
        if let Some(record) = self.names.get_mut(number) {
            (record.answer, record.end) = (answer, end);
            self.names_unanswered -= usize::from(record.operation.changes() && answer != Answer::Unknown);
        }
    }

    /// Changes of names that have no answer, yet or for ever.
    #[must_use]
    pub fn names_unanswered(&self) -> usize {
        self.names_unanswered
    }

    /// The operations on names, in the order of beginning.
    #[must_use]
    pub fn names(&self) -> &[Record] {
        &self.names
    }

    /// The number of a file that is to be named.
    pub fn next_file(&mut self) -> u32 {
        self.files_named += 1;
        self.files_named
    }

    /// The file with one user that has this inode, as far as its user was told.
    #[must_use]
    pub fn own_file_of(&self, inode: u64) -> Option<usize> {
        self.own.iter().find(|(_, own)| own.inode == Some(inode)).map(|(file, _)| *file)
    }

    /// Snapshots, by name.
    #[must_use]
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// The same, to be changed.
    pub fn snapshots_mut(&mut self) -> &mut Snapshots {
        &mut self.snapshots
    }

    /// An answer was wrong.
    pub fn complain(&mut self, invariant: &'static str, complaint: String) {
        self.complaints.push(Violation::new(invariant, complaint));
    }

    /// Answers that were wrong.
    #[must_use]
    pub fn complaints(&self) -> &[Violation] {
        &self.complaints
    }

    /// Every write, by number.
    #[must_use]
    pub fn writes(&self) -> &BTreeMap<WriteId, Write> {
        &self.writes
    }

    /// Every read, in the order of return.
    #[must_use]
    pub fn reads(&self) -> &[Read] {
        &self.reads
    }

    /// Writes that returned successfully, and how many of them are firm.
    #[must_use]
    pub fn acked(&self) -> (u64, u64) {
        let ended = self.writes.values().filter(|write| write.end.is_some());
        let firm = self.writes.values().filter(|write| write.settled().is_some());
        (ended.count() as u64, firm.count() as u64)
    }

    /// Turns one of these standings into another one, of writes that had returned `before`.
    fn set_standing(&mut self, client: usize, file: Option<usize>, before: Time, (from, to): (&[Standing], Standing)) {
        for write in self.writes.values_mut() {
            let is_meant = write.client == client && file.is_none_or(|file| file == write.file);
            if is_meant && from.contains(&write.standing) && write.end.is_some_and(|end| end <= before) {
                write.standing = to;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Change = Change::Data { first: Some(0), count: 1 };

    #[test]
    fn an_fsync_makes_earlier_writes_firm() {
        let mut history = History::default();
        let before = history.begin_write(0, 0, DATA, 1);
        history.end(before, 2, None);
        let during = history.begin_write(0, 0, DATA, 3);
        history.end(during, 9, None);
        let others = history.begin_write(1, 0, DATA, 1);
        history.end(others, 2, None);
        history.synced(0, 0, 5);
        assert_eq!(history.writes()[&before].settled(), Some(2));
        assert_eq!(history.writes()[&during].standing, Standing::Open);
        assert_eq!(history.writes()[&others].standing, Standing::Open);
        assert_eq!(history.acked(), (3, 1));
    }

    #[test]
    fn a_failed_fsync_is_the_one_warning() {
        let mut history = History::default();
        let lost = history.begin_write(0, 0, DATA, 1);
        history.end(lost, 2, None);
        history.failed(0, 0);
        history.synced(0, 0, 5);
        assert_eq!(history.writes()[&lost].standing, Standing::Volatile);
    }

    #[test]
    fn a_death_takes_promises_along_but_not_kept_ones() {
        let mut history = History::default();
        let firm = history.begin_write(0, 0, DATA, 1);
        history.end(firm, 2, None);
        history.synced(0, 0, 3);
        let open = history.begin_write(0, 1, DATA, 4);
        history.end(open, 5, None);
        history.died(0);
        assert_eq!(history.writes()[&firm].standing, Standing::Firm);
        assert_eq!(history.writes()[&open].standing, Standing::Volatile);
    }
}
