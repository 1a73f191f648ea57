//! The version of a metablock.

use std::fmt;

use crate::Epoch;

/// `(epoch, seq)`: the epoch belongs to the file, `seq` to the metablock.
///
/// Invariant: a `seq` once sent never carries other bytes. `(0, 0)` is the version of a metablock that was granted
/// and never written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version {
    /// Fencing epoch of the file at the time of the write.
    pub epoch: Epoch,
    /// Number of the write within that epoch; 0 is the stamp that a recovery leaves.
    pub seq: u64,
}

impl Version {
    /// Granted, never written.
    pub const ZERO: Self = Self { epoch: Epoch::new(0), seq: 0 };

    /// The version with these parts.
    #[must_use]
    pub const fn new(epoch: Epoch, seq: u64) -> Self {
        Self { epoch, seq }
    }

    /// The version of the next write under `epoch`, which must not be lower than this version's.
    #[must_use]
    pub fn successor(self, epoch: Epoch) -> Self {
        assert!(epoch >= self.epoch, "a write may not go back from {} to {epoch}", self.epoch);
        if epoch == self.epoch { Self { epoch, seq: self.seq + 1 } } else { Self { epoch, seq: 1 } }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successor_counts_within_an_epoch_and_restarts_in_the_next() {
        let first = Version::ZERO.successor(Epoch::new(3));
        assert_eq!(first.to_string(), "e3.1");
        assert_eq!(first.successor(Epoch::new(3)).to_string(), "e3.2");
        assert_eq!(first.successor(Epoch::new(4)).to_string(), "e4.1");
        assert!(first < first.successor(Epoch::new(4)));
    }
}
