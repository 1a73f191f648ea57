//! State of a replica, and the one function that changes it, at receipt and at replay.

use crate::chunks::ChunkTable;
use crate::record::{Content, Head, Record, Run};

/// A replica's version and lengths, and the sums of its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct ReplicaState {
    /// Version, promise and lengths.
    pub(crate) head: Head,
    /// Sums of its chunks.
    pub(crate) chunks: ChunkTable,
}

impl ReplicaState {
    /// Applies `record` to the state.
    pub(crate) fn apply(&mut self, record: &Record) {
        if matches!(record.content, Content::Replace { .. } | Content::Delete) {
            self.chunks = ChunkTable::default();
        }
        let first_behind = crate::chunks::count(record.after.length);
        assert!(
            record.runs.iter().all(|run| run.end() <= first_behind),
            "{}: a record names chunks behind its end",
            record.metablock
        );
        self.head = record.after;
        self.chunks.resize(record.after.length);
        for run in &record.runs {
            match run {
                Run::Holes { first, count } => (*first..first + count).for_each(|index| self.chunks.set_hole(index)),
                Run::Data { first, sums, second } => {
                    for (index, sum) in sums.iter().enumerate() {
                        self.chunks.set_data(first + index, *sum, *second);
                    }
                }
            }
        }
    }
}
