//! How many names lead to each file. To look through all names at each close took two fifths of a long run's time.

use std::collections::BTreeMap;

use super::names::{InodeNumber, Node};

/// Counts of names, and the files that have lost their last one.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct References {
    counts: BTreeMap<InodeNumber, u32>,
    unnamed: Vec<InodeNumber>,
}

impl References {
    /// One more name leads there.
    pub(super) fn add(&mut self, node: Node) {
        if let Node::File(file) = node {
            *self.counts.entry(file).or_default() += 1;
        }
    }

    /// One name less leads there.
    pub(super) fn drop_one(&mut self, node: Node) {
        let Node::File(file) = node else { return };
        let count = self.counts.get_mut(&file).expect("each name of a file was counted");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&file);
            self.unnamed.push(file);
        }
    }

    pub(super) fn has(&self, file: InodeNumber) -> bool {
        self.counts.contains_key(&file)
    }

    /// Files that have lost their last name since the last call. One may have got another since.
    pub(super) fn take_unnamed(&mut self) -> Vec<InodeNumber> {
        std::mem::take(&mut self.unnamed)
    }

    /// The same names, however they came to be.
    #[cfg(test)]
    pub(super) fn has_counts_of(&self, other: &Self) -> bool {
        self.counts == other.counts
    }
}
