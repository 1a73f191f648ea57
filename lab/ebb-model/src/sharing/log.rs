//! The contents of the file: writes in the order in which they were carried out.

use std::fmt;

use crate::names::Writes;

/// Longest log: a write that is carried out twice has room.
pub const LOG_MAX: usize = 5;

/// A log of writes, by their numbers in the history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Log {
    len: u8,
    writes: [u8; LOG_MAX],
}

impl Log {
    /// How many writes.
    #[must_use]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends one; beyond the longest log nothing is added: long before that a property is broken.
    pub fn push(&mut self, write: u8) {
        if usize::from(self.len) < LOG_MAX {
            self.writes[usize::from(self.len)] = write;
            self.len += 1;
        }
    }

    /// The first `len` writes.
    #[must_use]
    pub fn prefix(&self, len: u8) -> Self {
        self.iter().take(usize::from(len)).fold(Self::default(), |mut log, write| {
            log.push(write);
            log
        })
    }

    /// The writes in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u8> + ExactSizeIterator {
        self.writes[..usize::from(self.len)].iter().copied()
    }

    /// Which writes are in it.
    #[must_use]
    pub fn writes(&self) -> Writes {
        self.iter().fold(Writes::NONE, Writes::with)
    }

    /// Whether it begins with `other`.
    #[must_use]
    pub fn begins_with(&self, other: &Self) -> bool {
        self.prefix(other.len) == *other
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
