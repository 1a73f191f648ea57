//! State of a replica and the one function that changes it, at receipt and at replay alike.

use crate::chunks::ChunkTable;
use crate::record::{Content, Head, Record, Run};

/// What is known of a replica's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct ReplicaState {
    /// Version, promise and lengths.
    pub(crate) head: Head,
    /// Sums of its chunks.
    pub(crate) chunks: ChunkTable,
}

impl ReplicaState {
    /// The state after `record`.
    pub(crate) fn apply(&mut self, record: &Record) {
        if matches!(record.content, Content::Replace { .. } | Content::Delete) {
            self.chunks = ChunkTable::default();
        }
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
