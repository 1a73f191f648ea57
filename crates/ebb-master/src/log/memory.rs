//! The log as raft sees it: everything durable behind a point, in memory.

use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::log::wal::Recovered;

/// Durable entries behind the last point of truncation, with term, vote and voters.
///
/// Invariant: holds only what the write-ahead log has synced.
#[derive(Clone, Debug, Default)]
pub struct LogMemory {
    hard_state: HardState,
    conf_state: ConfState,
    truncated_index: u64,
    truncated_term: u64,
    entries: VecDeque<Entry>,
}

impl LogMemory {
    /// The log as found on disk behind the checkpoint of this index and term.
    #[must_use]
    pub fn new(recovered: Recovered, index: u64, term: u64) -> Self {
        let Recovered { mut hard_state, conf_state, entries } = recovered;
        // What a checkpoint holds was committed.
        hard_state.commit = hard_state.commit.max(index);
        hard_state.term = hard_state.term.max(term);
        Self { hard_state, conf_state, truncated_index: index, truncated_term: term, entries }
    }

    /// Takes over entries that have been synced.
    pub fn append(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            while self.entries.back().is_some_and(|last| last.index >= entry.index) {
                self.entries.pop_back();
            }
            assert_eq!(entry.index, self.last() + 1, "raft appends without gaps");
            self.entries.push_back(entry);
        }
    }

    /// Takes over term, vote and commit.
    pub fn set_hard_state(&mut self, state: HardState) {
        self.hard_state = state;
    }

    /// Raises the commit index.
    pub fn set_commit(&mut self, commit: u64) {
        self.hard_state.commit = commit;
    }

    /// Takes over the voters.
    pub fn set_conf_state(&mut self, state: ConfState) {
        self.conf_state = state;
    }

    /// Forgets entries up to `index` that have been applied, but keeps the last `keep`.
    pub fn truncate(&mut self, index: u64, keep: usize) {
        while self.entries.len() > keep && self.entries.front().is_some_and(|first| first.index <= index) {
            let gone = self.entries.pop_front().expect("it was looked at");
            (self.truncated_index, self.truncated_term) = (gone.index, gone.term);
        }
    }

    /// Index of the last durable entry.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.truncated_index + self.entries.len() as u64
    }

    fn place(&self, index: u64) -> usize {
        usize::try_from(index - self.truncated_index - 1).expect("a place in memory")
    }
}

impl Storage for LogMemory {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState { hard_state: self.hard_state.clone(), conf_state: self.conf_state.clone() })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.truncated_index {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        assert!(high <= self.last() + 1, "raft asks for entries up to {high}, the log ends at {}", self.last());
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let mut size = 0;
        let mut out = Vec::new();
        for entry in self.entries.range(self.place(low)..self.place(high)) {
            size += entry.data.len() as u64;
            if !out.is_empty() && size > max_size {
                break;
            }
            out.push(entry.clone());
        }
        Ok(out)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.truncated_index {
            return Ok(self.truncated_term);
        }
        if index < self.truncated_index {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        self.entries.get(self.place(index)).map(|entry| entry.term).ok_or(raft::Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.truncated_index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        // A group of one has no member to send a snapshot to.
        Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}
