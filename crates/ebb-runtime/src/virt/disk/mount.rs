//! A spindle as one life of the process found it.

use std::path::Path;

use super::State;

/// What an operation was begun on, or a file opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mount {
    /// Of the process.
    pub(super) life: u64,
    /// The spindle's index.
    pub(super) spindle: usize,
}

impl State {
    /// Where a path leads to.
    pub(super) fn mount(&self, path: &Path) -> Mount {
        Mount { life: self.life, spindle: self.spindles.index_of(path) }
    }
}
