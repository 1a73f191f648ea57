//! The task of a split, and how the split is read.

use ebb_types::{CHUNK_SIZE, Result};
use ebb_wire::pb;

use crate::count::SplitCount;
use crate::lines::{LineCount, Pattern};

/// The task: words or lines.
#[derive(Clone, Debug)]
pub enum Task {
    /// Words, as `wc -w` does.
    Words,
    /// Lines with a text in them, as `grep -F -c` does.
    Lines(Pattern),
}

/// The task of a split, and how it is read.
#[derive(Clone, Debug)]
pub struct How {
    /// The task.
    pub task: Task,
    /// By the split's map; else as any program reads.
    pub use_locations: bool,
    /// Without locations: bytes of one read, as of a program's buffer; none: a block.
    pub buffer_bytes: Option<u64>,
}

impl How {
    /// Words, a block at a time.
    #[must_use]
    pub fn words(use_locations: bool) -> Self {
        Self { task: Task::Words, use_locations, buffer_bytes: None }
    }

    /// As a call says it.
    pub fn from_message(call: &pb::CountWords) -> Result<Self> {
        let task = match call.pattern.is_empty() {
            true => Task::Words,
            false => Task::Lines(Pattern::new(call.pattern.clone().into())?),
        };
        let buffer_bytes = (call.buffer_bytes > 0).then(|| u64::from(call.buffer_bytes));
        Ok(Self { task, use_locations: call.use_locations, buffer_bytes })
    }

    /// A call for these splits.
    #[must_use]
    pub fn to_message(&self, splits: Vec<pb::Split>) -> pb::CountWords {
        let pattern = match &self.task {
            Task::Words => Vec::new(),
            Task::Lines(pattern) => pattern.text().to_vec(),
        };
        let buffer_bytes = self.buffer_bytes.map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        pb::CountWords { splits, use_locations: self.use_locations, pattern, buffer_bytes }
    }

    /// Bytes of one read of a file with such blocks.
    pub(crate) fn unit(&self, block: u64) -> u64 {
        match self.buffer_bytes {
            Some(bytes) if !self.use_locations => bytes.clamp(CHUNK_SIZE.min(block), block),
            _ => block,
        }
    }
}

/// The count of one split.
#[derive(Clone, Debug)]
pub(crate) enum Count {
    Words(SplitCount),
    Lines(LineCount),
}

impl Count {
    /// Of the `len` bytes from `start`, to be fed from [`Count::position`] on.
    pub fn new(task: &Task, start: u64, len: u64) -> Self {
        match task {
            Task::Words => Self::Words(SplitCount::new(start, len)),
            Task::Lines(pattern) => Self::Lines(LineCount::new(pattern.clone(), start, len)),
        }
    }

    /// File offset of the next byte to feed.
    pub fn position(&self) -> u64 {
        match self {
            Self::Words(count) => count.position(),
            Self::Lines(count) => count.position(),
        }
    }

    /// Whether nothing that follows can change the count.
    pub fn is_decided(&self) -> bool {
        match self {
            Self::Words(count) => count.is_decided(),
            Self::Lines(count) => count.is_decided(),
        }
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        match self {
            Self::Words(count) => count.feed(bytes),
            Self::Lines(count) => count.feed(bytes),
        }
    }

    /// Words or lines; final once it is decided or the file has ended.
    pub fn found(&self) -> u64 {
        match self {
            Self::Words(count) => count.words(),
            Self::Lines(count) => count.lines(),
        }
    }
}
